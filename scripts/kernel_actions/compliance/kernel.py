"""A kernel's sources, read once for all rules about them."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

from kernel_actions import builder_source, manifest, planning
from kernel_actions.builder import BuilderRevision
from kernel_actions.builder_output import Output
from kernel_actions.compliance import files, headers, kernel_tests
from kernel_actions.compliance.engine import Problem
from kernel_actions.compliance.imports import Import, Imports
from kernel_actions.compliance.python_file import PythonFile
from kernel_actions.errors import KernelActionsError, Place, WrongInput
from kernel_actions.manifest import Manifest
from kernel_actions.planning import KernelPlan
from kernel_actions.toml_file import KeyPath

# The folder of the Python package, by the kind of the binding.
PACKAGE_ROOTS = {"torch": "torch-ext", "torch-noarch": "torch-ext", "tvm-ffi": "tvm-ffi-ext"}
_CPP_SUFFIXES = frozenset(
    {".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".inc", ".inl", ".metal", ".mm"}
)
_LARGEST_PYTHON = 1_000_000
_LARGEST_CPP = 10_000_000
_LARGEST_FLAKE = 1_000_000
# Of all sources of a kind. The largest public packages have 3 MB of Python, whose syntax trees take a hundred
# times as much memory.
_LARGEST_ALL_PYTHON = 10_000_000
_LARGEST_ALL_CPP = 50_000_000
# Only files that mention one of these are looked into: where operators are registered, and where loops have
# the threads of OpenMP.
_REGISTERS = re.compile(rb"TORCH_LIBRARY|REGISTER_EXTENSION")
_HAS_THREADS = re.compile(rb"at::parallel_|#[ \t]*pragma[ \t]+omp")
# Comments, strings and definitions of macros, each of which ends with the file at the latest: then no
# text makes the search slow.
_NOT_CODE = re.compile(
    r"""
      //[^\n]*
    | /\*.*?(?:\*/|\Z)
    | R"(?P<raw>[^()\\\s"]{0,16})\(.*?(?:\)(?P=raw)"|\Z)
    | "(?:\\.|[^"\\\n])*"?
    | '(?:\\.|[^'\\\n])'
    | ^[ \t]*\#[ \t]*define\b(?:\\\r?\n|[^\n])*
    """,
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)


@dataclass(frozen=True)
class CppFile:
    """A C++ or CUDA source that build.toml lists, with its ``text``. In ``code`` comments, strings and the
    definitions of macros are blank, and everything else stands where it stood."""

    path: Path
    code: str
    text: str

    def place(self, offset: int) -> Place:
        """The place of the character at ``offset``."""
        start = self.code.rfind("\n", 0, offset) + 1
        return Place(self.path, self.code.count("\n", 0, offset) + 1, offset - start + 1)


@dataclass(frozen=True)
class Kernel:
    """A kernel's sources. ``manifest`` is ``None`` where build.toml cannot be read, and then there are none
    of the others. ``cpp`` are those with registrations, ``threaded`` those with loops for OpenMP.
    ``problems`` are those of build.toml, ``unread`` those of the sources, ``includes`` what all listed
    sources include."""

    directory: Path
    manifest: Manifest | None
    python: tuple[PythonFile, ...] = ()
    cpp: tuple[CppFile, ...] = ()
    threaded: tuple[CppFile, ...] = ()
    problems: tuple[Problem, ...] = ()
    unread: tuple[Problem, ...] = ()
    includes: headers.Sources = field(default_factory=headers.Sources)

    @property
    def where(self) -> Place:
        """The place of what is about the kernel as a whole."""
        return Place(self.directory / "build.toml")

    @property
    def init(self) -> PythonFile | None:
        """The ``__init__.py`` of the package; ``None`` where it is missing or cannot be parsed."""
        if self.manifest is None:
            return None
        path = package_dir(self.manifest) / "__init__.py"
        return next((one for one in self.python if one.path == path), None)

    @cached_property
    def foreign_imports(self) -> tuple[Import, ...]:
        """What the package imports of others, and no build depends on."""
        return self._imports.foreign if self._imports is not None else ()

    @cached_property
    def tests(self) -> tuple[PythonFile, ...]:
        """The files of the kernel's tests that rules can say something about."""
        return kernel_tests.read(self.manifest) if self.manifest is not None else ()

    @property
    def imported_files(self) -> Collection[Path]:
        """The files of the package that others of it may import; some of them are not there."""
        return self._imports.imported_files if self._imports is not None else ()

    @cached_property
    def _imports(self) -> Imports | None:
        if self.manifest is None:
            return None
        return Imports(self.manifest, package_dir(self.manifest), self.python)

    @cached_property
    def flake(self) -> str:
        """The text of flake.nix; empty where there is none that can be read."""
        try:
            return files.read(self.directory / "flake.nix", _LARGEST_FLAKE).decode(errors="replace")
        except WrongInput:
            return ""

    @cached_property
    def builder(self) -> BuilderRevision | KernelActionsError:
        """The builder that flake.lock pins, or what keeps it from being known."""
        try:
            files.check_kind(self.directory / "flake.lock")
            return builder_source.find(self.directory, builder_source.from_environment())
        except KernelActionsError as error:
            return error

    @cached_property
    def output(self) -> Output | None:
        """What the locked builder puts into a variant; ``None`` where that is not known."""
        try:
            files.check_kind(self.directory / "flake.lock")
            found, remark = builder_source.find_output(self.directory, builder_source.from_environment())
        except KernelActionsError:
            return None
        return None if remark else found

    @cached_property
    def plan(self) -> KernelPlan | None:
        """The plan of the variants; ``None`` where there can be none, which rules and `matrix` say why."""
        if self.manifest is None or isinstance(self.builder, KernelActionsError):
            return None
        try:
            return planning.plan(self.directory)
        except KernelActionsError:
            return None


def package_dir(kernel: Manifest) -> Path:
    """The folder of the kernel's Python package."""
    return kernel.directory / PACKAGE_ROOTS[kernel.binding.framework] / kernel.python_name


def sources(kernel: Manifest) -> list[tuple[KeyPath, str]]:
    """The sources that build.toml lists, each with its path in there."""
    lists: list[tuple[KeyPath, tuple[str, ...]]] = [((kernel.binding.framework, "src"), kernel.binding.src)]
    lists += [(("kernel", component.name, "src"), component.src) for component in kernel.components]
    return [((*key, index), name) for key, names in lists for index, name in enumerate(names)]


def read(directory: Path) -> Kernel:
    """Read the sources of the kernel in ``directory``."""
    try:
        files.check_kind(directory / "build.toml")
        kernel = manifest.load(directory)
    except WrongInput as error:
        problems = tuple(Problem.of(one, Place(directory / "build.toml")) for one in error.all)
        return Kernel(directory, None, problems=problems)
    reader = _Reader(kernel)
    python: tuple[PythonFile, ...] = ()
    cpp: tuple[CppFile, ...] = ()
    threaded: tuple[CppFile, ...] = ()
    try:
        python = reader.python(package_dir(kernel))
        cpp, threaded = reader.cpp()
    except OSError as error:  # A name that no file can have.
        reader.problems.append(Problem(f"cannot be read: {error.strerror}", kernel.place("general.name")))
    return Kernel(directory, kernel, python, cpp, threaded, (), tuple(reader.problems), reader.includes)


class _Reader:
    """Reads sources, until there is more of them than a kernel has."""

    def __init__(self, kernel: Manifest) -> None:
        self.problems: list[Problem] = []
        self.includes = headers.Sources()
        self._kernel = kernel
        self._left = 0

    def python(self, folder: Path) -> tuple[PythonFile, ...]:
        """The Python files below ``folder`` that can be parsed."""
        if not folder.is_dir() or not is_inside(self._kernel, folder):
            return ()  # A rule says so.
        self._left = _LARGEST_ALL_PYTHON
        listing = files.walk(folder)
        if listing.cut:
            self.problems.append(Problem(listing.cut, Place(folder)))
        parsed = []
        for entry in listing.entries:
            # kernel-builder may have left its _ops.py behind, which is made anew in each build.
            if not entry.name.endswith(".py") or entry.is_folder or entry.name == "_ops.py":
                continue
            if entry.is_link and not is_inside(self._kernel, entry.path):
                self.problems.append(Problem("is a link out of the kernel's folder", Place(entry.path)))
                continue
            data = self._read(entry.path, _LARGEST_PYTHON)
            if data is not None:
                try:
                    parsed.append(PythonFile(entry.path, files.parse_python(entry.path, data), data))
                except WrongInput as error:
                    self.problems.append(Problem.of(error, Place(entry.path)))
        return tuple(parsed)

    def cpp(self) -> tuple[tuple[CppFile, ...], tuple[CppFile, ...]]:
        """The C++ sources of the kernel that register operators, and those with loops for OpenMP."""
        registering, threaded = [], []
        self._left = _LARGEST_ALL_CPP
        for name in dict.fromkeys(name for _, name in sources(self._kernel)):
            path = self._kernel.directory / name
            # Those that are missing or lead elsewhere are the business of a rule.
            is_cpp = PurePosixPath(name).suffix in _CPP_SUFFIXES and is_inside(self._kernel, name)
            data = self._read(path, _LARGEST_CPP) if is_cpp and os.path.exists(path) else None
            registers, has_threads = _REGISTERS.search(data or b""), _HAS_THREADS.search(data or b"")
            if data:
                self.includes.add(name, data)
            if data and (registers or has_threads):
                text = data.decode(errors="replace")
                file = CppFile(path, _NOT_CODE.sub(_blank, text), text)
                registering += [file] if registers else []
                threaded += [file] if has_threads else []
        return tuple(registering), tuple(threaded)

    def _read(self, path: Path, largest: int) -> bytes | None:
        if self._left < 0:
            return None
        try:
            data = files.read(path, largest)
        except WrongInput as error:
            self.problems.append(Problem.of(error, Place(path)))
            return None
        self._left -= len(data)
        if self._left < 0:
            what = "is not read: there is more before it than a kernel has"
            self.problems.append(Problem(what, Place(path)))
            return None
        return data


def is_inside(kernel: Manifest, name: str | Path) -> bool:
    """Whether a path (as text from the kernel's folder on) stays in there, links followed."""
    return files.is_inside(kernel.directory, name if isinstance(name, Path) else kernel.directory / name)


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found.group())
