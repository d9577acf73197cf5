"""What a kernel consists of: the sources to compile, the Python package, and their hash."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kernel_actions.errors import KernelActionsError, WrongInput
from kernel_actions.manifest import Component, Manifest

PACKAGE_ROOT = "torch-ext"
OPS_FILE = "_ops.py"
_EXTENSION_NAME = b"TORCH_EXTENSION_NAME"
_SOURCE_SUFFIXES = frozenset({".c", ".cc", ".cpp", ".cu", ".cxx"})


@dataclass(frozen=True)
class Sources:
    """The kernel's files. Names are relative to the kernel's folder, with ``/``.

    ``hashes`` has every file that may be part of a build, by name; ``package`` are the files of the
    Python package, relative to it; ``name_users`` are the sources that need to be compiled with
    the name of the extension.
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


def read(manifest: Manifest, backend: str) -> Sources:
    """Read the kernel's files for ``backend``.

    Raises ``WrongInput`` with the line of build.toml for a source that is missing, and for a
    Python package that is not as the builder wants it.
    """
    _check_sources(manifest, backend)
    package_dir = manifest.directory / PACKAGE_ROOT / manifest.python_name
    package = tuple(_package_files(manifest, package_dir))
    names = {f"{PACKAGE_ROOT}/{manifest.python_name}/{name}" for name in package}
    names.add("build.toml")
    for folder, is_deep in _folders(manifest, backend):
        names.update(_files(manifest.directory, folder, is_deep))
    # kernel-builder may have left its own behind, which is not taken.
    names.discard(f"{PACKAGE_ROOT}/{manifest.python_name}/{OPS_FILE}")
    hashes: dict[str, str] = {}
    users: set[str] = set()
    for name in sorted(names):
        data = (manifest.directory / name).read_bytes()
        hashes[name] = hashlib.sha256(data).hexdigest()
        if _EXTENSION_NAME in data:
            users.add(name)
    return Sources(hashes, package, frozenset(users))


def _check_sources(manifest: Manifest, backend: str) -> None:
    lists = [("torch.src", manifest.binding.src)]
    lists += [(f"kernel.{one.name}.src", one.src) for one in components(manifest, backend)]
    for key, listed in lists:
        for name in listed:
            if not (manifest.directory / name).is_file():
                raise _missing(manifest, key, name)
    if not (manifest.directory / PACKAGE_ROOT / manifest.python_name / "__init__.py").is_file():
        raise WrongInput(
            f"the kernel has no {PACKAGE_ROOT}/{manifest.python_name}/__init__.py",
            where=manifest.place("general.name"),
            repair="it is the kernel's Python package",
        )
    nested = manifest.directory / PACKAGE_ROOT / manifest.python_name / manifest.python_name
    if nested.exists():
        raise WrongInput(
            f"{PACKAGE_ROOT}/{manifest.python_name} must not hold {manifest.python_name}: "
            "the builder puts a folder of that name there",
            where=manifest.place("general.name"),
            repair="rename it",
        )


def _missing(manifest: Manifest, key: str, name: str) -> KernelActionsError:
    where = manifest.place(key)
    # The list may have many lines: the name itself is the better place.
    for number, line in enumerate(manifest.file.path.read_text(encoding="utf-8").splitlines(), start=1):
        if number >= (where.line or 1) and f'"{name}"' in line:
            where = type(where)(where.path, number, line.index(f'"{name}"') + 1)
            break
    return WrongInput(f"{name} of {key} does not exist", where=where, repair="correct the path")


def _package_files(manifest: Manifest, package_dir: Path) -> Iterator[str]:
    """Python files, and those with the extensions of ``pyext``; what kernel-builder generates into
    this folder is not the author's."""
    suffixes = {".py", *(f".{extension.lstrip('.')}" for extension in manifest.binding.pyext)}
    for name in _files(package_dir, "", is_deep=True):
        if PurePosixPath(name).suffix in suffixes and name != OPS_FILE:
            yield name


def _folders(manifest: Manifest, backend: str) -> Iterator[tuple[str, bool]]:
    """The folders that hold sources and what they include, and whether to go into their folders.

    The kernel's own folder is not gone into: it holds everything, the output of this build too.
    """
    if not manifest.compiled_for(backend):
        return
    sources = [*manifest.binding.src]
    includes = [*manifest.binding.include, "csrc"]
    for component in components(manifest, backend):
        sources += component.src
        includes += component.include
    parents = [str(PurePosixPath(name).parent) for name in sources]
    for folder in dict.fromkeys(os.path.normpath(name) for name in [*parents, *includes]):
        if (manifest.directory / folder).is_dir():
            yield folder, folder != "."


def _files(root: Path, folder: str, is_deep: bool) -> Iterator[str]:
    """The regular files in a folder, relative to ``root``, but for hidden ones and what was compiled."""
    for where, folders, files in os.walk(root / folder):
        folders[:] = sorted(name for name in folders if is_deep and _is_kept(name))
        for name in sorted(files):
            path = Path(where) / name
            if _is_kept(name) and path.is_file():
                yield Path(os.path.relpath(path, root)).as_posix()


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
