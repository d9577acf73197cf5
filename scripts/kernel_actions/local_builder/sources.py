"""What a kernel consists of: the sources to compile, the Python package, and their hash.

Nothing is read from outside of the git repository that the kernel is in, or from outside of its own
folder where there is none: build.toml and links may say anything.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kernel_actions import builder_output, submodules
from kernel_actions.builder_output import Output
from kernel_actions.errors import KernelActionsError, Place, WrongInput
from kernel_actions.manifest import Component, Manifest

PACKAGE_ROOT = "torch-ext"
OPS_FILE = "_ops.py"
METADATA = "metadata.json"
# A kernel with CUTLASS in it has some thousand files and some dozen megabytes.
MOST_FILES = 20_000
MOST_BYTES = 500_000_000
_EXTENSION_NAME = b"TORCH_EXTENSION_NAME"
_SOURCE_SUFFIXES = frozenset({".c", ".cc", ".cpp", ".cu", ".cxx"})
_HEADER_SUFFIXES = frozenset({".cuh", ".h", ".hh", ".hpp", ".hxx", ".inc", ".inl"})
# In the _ops.py that kernel-builder makes, and may have left behind.
_MADE_BY_BUILDER = b"def add_op_namespace_prefix("
_CHUNK = 1 << 20
# What nix-builder/lib/source-set.nix takes of torch-ext where build.toml has no pyext (8ac69fc5, line 14).
_PYTHON_EXTENSIONS = ("py", "pyi")
# What CMake, Ninja or the shell that nvcc calls take for something else than a part of a path.
_UNFIT = re.compile('[\\x00-\\x1f\\x7f;"`\\\\|$\\[\\]]')


@dataclass(frozen=True)
class Sources:
    """The kernel's files. Names are relative to the kernel's folder, with ``/``.

    ``hashes`` has every file that may be part of a build, by name; ``package`` are the files of the
    Python package that the builder puts into a variant, relative to it; ``name_users`` are the sources
    that need to be compiled with the name of the extension.
    """

    hashes: dict[str, str]
    package: tuple[str, ...]
    name_users: frozenset[str]

    @property
    def hash(self) -> str:
        """One hash over names and contents."""
        listed = "".join(f"{name}\0{digest}\n" for name, digest in sorted(self.hashes.items()))
        return hashlib.sha256(listed.encode()).hexdigest()


def components(manifest: Manifest, backend: str) -> tuple[Component, ...]:
    """The ``[kernel.*]`` sections that are compiled for ``backend``."""
    return tuple(component for component in manifest.components if component.backend == backend)


def read(manifest: Manifest, backend: str, output: Output | None = None) -> Sources:
    """Read the kernel's files for ``backend``, as the builder that makes ``output`` takes them (``None``: the
    newest one).

    Raises ``WrongInput``: with the line of build.toml for a source that is missing or that is not in
    the repository; for a Python package that is not as the builder wants it; for a link that leads out
    of the repository; for more files than a kernel has.
    """
    tree = _Tree(manifest)
    _check_sources(manifest, backend, tree)
    package_dir = manifest.directory / PACKAGE_ROOT / manifest.python_name
    taken = package_extensions(manifest, backend, output or builder_output.newest())
    # The hash is the same for every revision of the builder.
    every = {*_PYTHON_EXTENSIONS, *manifest.binding.pyext}
    files = tuple(_package_files(package_dir, tree, every))
    package = tuple(name for name in files if _has_extension(name, taken))
    names = {f"{PACKAGE_ROOT}/{manifest.python_name}/{name}" for name in files}
    names.add("build.toml")
    walked: set[Path] = set()
    for key, name in _folders(manifest, backend):
        names.update(_files_for(tree, key, name, walked))
    if manifest.compiled_for(backend):
        names.update(os.path.normpath(name) for _, name in _listed_sources(manifest, backend))
    # kernel-builder may have left its own behind, which is not taken.
    names.discard(f"{PACKAGE_ROOT}/{manifest.python_name}/{OPS_FILE}")
    hashes: dict[str, str] = {}
    users: set[str] = set()
    left = MOST_BYTES
    for name in sorted(names):
        hashes[name], size, is_user = _hashed(tree.directory / name)
        if is_user:
            users.add(name)
        left -= size
        if left < 0:
            raise WrongInput(
                f"the kernel's sources have more than {MOST_BYTES // 1_000_000} MB",
                where=manifest.place("general.name"),
                repair="include folders that hold sources alone",
            )
    return Sources(hashes, package, frozenset(users))


def package_extensions(manifest: Manifest, backend: str, output: Output) -> tuple[str, ...]:
    """The extensions of the files of the Python package that a variant has, without the dot.

    The source set has those of ``pyext``, else ``py`` and ``pyi`` (nix-builder/lib/source-set.nix). CMake
    installs ``py`` and those of ``pyext`` that are neither (``add_kernels_install_target`` of
    templates/torch/build-variants.cmake, ``data_extensions`` of kernels-data/src/config/mod.rs), and the
    setup.py of noarch kernels all that is there.

    Raises ``WrongInput`` for a ``pyext`` without ``py``, with which the builder leaves the Python files out
    and fails (nix-builder/pkgs/kernel-layout-check).
    """
    framework = manifest.binding.framework
    section = manifest.file.values.get(framework, {})
    is_heeded = framework != "torch-noarch" or output.noarch_pyext
    listed = tuple(section["pyext"]) if "pyext" in section and is_heeded else _PYTHON_EXTENSIONS
    if "py" not in listed:
        raise WrongInput(
            f"{framework}.pyext is without py, so that the builder leaves all Python files out",
            where=manifest.place(f"{framework}.pyext"),
            repair='add "py" to it',
        )
    if not manifest.compiled_for(backend):
        return listed
    return ("py", *(extension for extension in listed if extension not in _PYTHON_EXTENSIONS))


def _has_extension(name: str, extensions: Iterable[str]) -> bool:
    return name.endswith(tuple(f".{extension}" for extension in extensions))


def folders(manifest: Manifest, backend: str) -> tuple[str, ...]:
    """The folders whose contents count as sources, relative to the kernel's own, which is not one."""
    listed = (os.path.normpath(name) for _, name in _folders(manifest, backend))
    return tuple(name for name in listed if name != ".")


def unfit_character(path: str) -> str:
    """The first character of ``path`` that CMake, Ninja or a shell would trip over; else empty."""
    found = _UNFIT.search(path)
    return found.group() if found else ""


def repository_root(directory: Path) -> Path:
    """The git repository around the folder ``directory``, or the folder itself outside of one."""
    return next((path for path in (directory, *directory.parents) if (path / ".git").exists()), directory)


class _Tree:
    """The repository around a kernel, or the kernel's folder outside of one: what may be read."""

    def __init__(self, manifest: Manifest) -> None:
        self.directory = manifest.directory.resolve()
        self.root = repository_root(self.directory)
        self._left = MOST_FILES
        self._manifest = manifest

    def place(self, key: str, name: str) -> Place:
        """Where ``name`` stands in the list of ``key``, which may have many lines."""
        where = self._manifest.place(key)
        lines = self._manifest.file.path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, start=1):
            for quoted in (f'"{name}"', f"'{name}'"):
                if number >= (where.line or 1) and quoted in line:
                    return Place(where.path, number, line.index(quoted) + 1)
        return where

    def holds(self, path: Path) -> bool:
        """Whether ``path`` is in the repository, links followed, and not in what is git's own."""
        try:
            resolved = path.resolve()
        except (OSError, RuntimeError):  # A loop of links.
            return False
        return resolved.is_relative_to(self.root) and ".git" not in resolved.relative_to(self.root).parts

    def is_around(self, folder: Path) -> bool:
        """Whether ``folder`` is the kernel's folder, or holds it."""
        return self.directory.is_relative_to(folder.resolve())

    def check(self, key: str, name: str) -> Path:
        """The path ``name`` of build.toml. Raises ``WrongInput`` when it is not the kernel's."""
        normal = os.path.normpath(name)
        if os.path.isabs(name):
            raise WrongInput(
                f"{name} of {key} is an absolute path",
                where=self.place(key, name),
                repair="write it relative to the kernel's folder",
            )
        if unfit := unfit_character(name):
            raise WrongInput(
                f"{name} of {key} has the character {unfit!r}, which CMake cannot take",
                where=self.place(key, name),
                repair="rename it",
            )
        if not self.holds(self.directory / normal):
            around = "the kernel's folder" if self.root == self.directory else "the kernel's repository"
            raise WrongInput(
                f"{name} of {key} is outside of {around}",
                where=self.place(key, name),
                repair=f"copy it into {around}",
            )
        return self.directory / normal

    def files(
        self, folder: Path, where: Place, *, is_deep: bool, walked: set[Path] | None = None
    ) -> Iterator[Path]:
        """The regular files in ``folder``, but for hidden ones and what was compiled. Links are followed,
        and the files are named by the path that leads there. What is in ``walked`` is left out, and
        what was gone through is added there.

        Raises ``WrongInput`` for a link out of the repository or to a folder around itself, and when
        there are more files than a kernel has.
        """
        waiting = [folder]
        while waiting:
            current = waiting.pop()
            if walked is not None:
                if current in walked:
                    continue
                walked.add(current)
            with os.scandir(current) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
            for entry in listed:
                self._left -= 1
                if self._left < 0:
                    raise WrongInput(
                        f"the folders of the kernel's sources hold more than {MOST_FILES} files",
                        where=where,
                        repair="list folders that hold sources alone",
                    )
                if not _is_kept(entry.name):
                    continue
                path = Path(entry.path)
                _check_name(path)
                if entry.is_symlink():
                    self._check_link(path)
                if entry.is_dir():
                    if is_deep:
                        waiting.append(path)
                elif entry.is_file():
                    yield path

    def _check_link(self, link: Path) -> None:
        repair = "put a copy in its place"
        if not link.exists():
            raise WrongInput("is a link to nothing", where=Place(link), repair="remove it")
        if not self.holds(link):
            raise WrongInput("is a link that leads out of the repository", where=Place(link), repair=repair)
        if link.is_dir() and link.parent.resolve().is_relative_to(link.resolve()):
            raise WrongInput("is a link to a folder that it is in", where=Place(link), repair=repair)


def _check_name(path: Path) -> None:
    try:
        path.name.encode()
    except UnicodeEncodeError as error:
        raise WrongInput("has a name that is not UTF-8", where=Place(path), repair="rename it") from error
    if re.search(r"[\x00-\x1f\x7f]", path.name):
        raise WrongInput("has a control character in its name", where=Place(path), repair="rename it")


def _hashed(path: Path) -> tuple[str, int, bool]:
    """A file's hash and size, and whether it mentions the name of the extension."""
    hashed = hashlib.sha256()
    size, is_user, tail = 0, False, b""
    with path.open("rb") as file:
        while size <= MOST_BYTES and (chunk := file.read(_CHUNK)):
            hashed.update(chunk)
            size += len(chunk)
            is_user = is_user or _EXTENSION_NAME in tail + chunk
            tail = chunk[-len(_EXTENSION_NAME) :]
    return hashed.hexdigest(), size, is_user


def _listed_sources(manifest: Manifest, backend: str) -> list[tuple[str, str]]:
    """The sources that build.toml lists for ``backend``, with the keys of their lists."""
    lists = [("torch.src", manifest.binding.src)]
    lists += [(f"kernel.{one.name}.src", one.src) for one in components(manifest, backend)]
    return [(key, name) for key, listed in lists for name in listed]


def _check_sources(manifest: Manifest, backend: str, tree: _Tree) -> None:
    for key, name in _listed_sources(manifest, backend):
        path = tree.check(key, name)
        if not os.path.isfile(path):  # Path.is_file raises for names that no file can have.
            what, repair = "is not a file" if os.path.exists(path) else "does not exist", "correct the path"
            if submodule := submodules.missing_around(path):
                what = f"is in the submodule {submodule}, which was not fetched"
                repair = "git submodule update --init, or submodules: recursive of actions/checkout"
            raise WrongInput(f"{name} of {key} {what}", where=tree.place(key, name), repair=repair)
    for key, name in _folders(manifest, backend):
        tree.check(key, name)
    shown = f"{PACKAGE_ROOT}/{manifest.python_name}"
    package_dir = manifest.directory / PACKAGE_ROOT / manifest.python_name
    if not (package_dir / "__init__.py").is_file():
        raise WrongInput(
            f"the kernel has no {shown}/__init__.py",
            where=manifest.place("general.name"),
            repair="it is the kernel's Python package",
        )
    if not tree.holds(package_dir):
        raise WrongInput("leads out of the repository", where=Place(package_dir))
    if (package_dir / manifest.python_name).exists():
        raise WrongInput(
            f"{shown} must not hold {manifest.python_name}: the builder refuses what has that name",
            where=manifest.place("general.name"),
            repair="rename it",
        )
    made = package_dir / OPS_FILE
    if made.is_file():
        with made.open("rb") as file:
            if _MADE_BY_BUILDER not in file.read(_CHUNK):
                raise _taken(made)


def _taken(path: Path) -> KernelActionsError:
    return WrongInput(
        f"the builder puts a {path.name} of its own there", where=Place(path, 1), repair="rename it"
    )


def _package_files(package_dir: Path, tree: _Tree, extensions: Iterable[str]) -> Iterator[str]:
    """The files with one of the ``extensions``; what kernel-builder generates into this folder is not the
    author's."""
    for path in tree.files(package_dir, Place(package_dir), is_deep=True):
        name = path.relative_to(package_dir).as_posix()
        if _has_extension(path.name, extensions) and name != OPS_FILE:
            if name == METADATA:
                raise _taken(path)
            yield name


def _folders(manifest: Manifest, backend: str) -> Iterator[tuple[str, str]]:
    """The folders that hold sources and what they include, with the keys that name them."""
    if not manifest.compiled_for(backend):
        return
    found = [(key, str(PurePosixPath(name).parent)) for key, name in _listed_sources(manifest, backend)]
    found += [("torch.include", name) for name in manifest.binding.include]
    for one in components(manifest, backend):
        found += [(f"kernel.{one.name}.include", name) for name in one.include]
    known: dict[str, tuple[str, str]] = {}
    for key, name in [*found, ("general.name", "csrc")]:
        known.setdefault(os.path.normpath(name), (key, name))
    yield from known.values()


def _files_for(tree: _Tree, key: str, name: str, walked: set[Path]) -> Iterator[str]:
    """The files of a folder that may be part of the build, relative to the kernel's folder.

    The kernel's own folder is not gone into: it holds everything, the output of this build too.
    Of those around it, which hold other kernels, nothing but sources and headers counts.
    """
    folder = tree.directory / os.path.normpath(name)
    if not folder.is_dir():
        return
    is_around = tree.is_around(folder)
    where = tree.place(key, name)
    for path in tree.files(folder, where, is_deep=not is_around, walked=walked):
        is_code = path.suffix in _SOURCE_SUFFIXES | _HEADER_SUFFIXES
        if is_code or not is_around or folder == tree.directory:
            yield Path(os.path.relpath(path, tree.directory)).as_posix()


def _is_kept(name: str) -> bool:
    return not name.startswith(".") and name != "__pycache__" and not name.endswith((".pyc", ".so", "~"))


def need_extension_name(sources: Sources, compiled: Iterable[str]) -> frozenset[str]:
    """Those of the ``compiled`` sources that mention ``TORCH_EXTENSION_NAME``.

    Only they are compiled again when nothing but the commit has changed. When a header mentions
    it, any source may mean it.
    """
    compiled = frozenset(compiled)
    in_header = any(PurePosixPath(name).suffix not in _SOURCE_SUFFIXES | {".toml", ".py"}
                    for name in sources.name_users)  # fmt: skip
    return compiled if in_header else compiled & sources.name_users
