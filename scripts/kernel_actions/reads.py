"""Which files of a repository the build and the tests of a kernel can read.

Of the kernel's folder the builder takes what build.toml lists, the Python files of torch-ext and tests by
``pyext``, the lock files and the Nix code (nix-builder/lib/source-set.nix of huggingface/kernels at
8ac69fc5). It fills CARD.md in beside a bundle, copies benchmarks there (build.nix, ``mkExtensionBundle``),
and a variant has neither. Everything else in the folder counts here as well, unless it is known to be for
people: the local builder includes headers that no list names, and tests read what lies beside them.

Outside of the folder a build can read only what something in the folder leads to: a path with ``..`` in the
Nix code (an import, an input), in build.toml, in an ``#include`` or in a test; a link; and what those files
lead to. Paths are from the repository's root, and one of a folder stands for all that is in it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from kernel_actions import manifest
from kernel_actions.errors import KernelActionsError
from kernel_actions.named_tuple import NamedTuple

ROOT = PurePosixPath(".")
# Where the builder takes files by their suffix, and tests have their data.
_SOURCE_FOLDERS = ("torch-ext", "tvm-ffi-ext", "tests")
_BENCHMARKS = "benchmarks"
# Texts for people, and pictures.
_TEXTS = (".md", ".rst", ".png", ".jpg", ".svg", ".gif")
_TEXT_NAMES = ("license", "copying", "notice", "codeowners")
# git applies it when it checks files out, so it can change any of them.
ATTRIBUTES = ".gitattributes"
# What pytest takes from the folders around its tests:
# <https://docs.pytest.org/en/stable/reference/customize.html>
_PYTEST = ("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml")
# Those that other programs have as well.
SHARED_CONFIGURATION = ("pyproject.toml", "tox.ini", "setup.cfg")
_C = (
    ".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hh", ".hip", ".hpp", ".hxx", ".inc", ".inl", ".m",
    ".metal", ".mm", ".sycl",
)  # fmt: skip
# Results of builds in the kernel's folder, which nobody tracks.
_RESULTS = ("build", "dist", "result")
_SKIPPED = ("node_modules", "__pycache__")
# Of so many files outside nobody looks for what they lead to: their folders count as a whole.
_MOST_OUTSIDE = 5_000

# A path that has `..` in it: after other folders, or at its start, where a compiler's option may stand
# before.
_UPWARD = re.compile(
    r"(?<![\w./+@-])(?:[\w.+@-]*/)+\.\.(?![\w.])(?:/[\w.+@-]*)*"
    r"|(?:(?<![\w./+@-])|(?<=-I)|(?<=-L)|(?<=-isystem))\.\.(?![\w.])(?:/[\w.+@-]*)*"
)
# A path of Nix: https://nix.dev/manual/nix/latest/language/types.html#type-path
_NIX_PATH = re.compile(r"(?<![\w./+-])[\w.+-]+(?:/[\w.+-]+)+")
_INCLUDE = re.compile(
    r"""^[ \t]*\#[ \t]*(?:include|include_next|import|embed)[ \t]*[<"]([^<>"\n]+)[>"]
    | \.incbin[ \t]*\\?"([^"\\\n]+)""",
    re.MULTILINE | re.VERBOSE,
)
# The flake's own folder as a value: `inherit self` alone hands it to the builder, which takes the commit of
# it.
_OWN_FLAKE = re.compile(
    r"\$\{\s*(?:inputs\.)?self\b|\bself\s*[+/]|\bself\.(?:outPath|sourceInfo)\b|\btoString\s+self\b"
)
# `os.path.join(here, "..", "x")` and `here / ".." / "x"`, as one path.
_JOIN = re.compile(r"""['"]\s*[,/]\s*['"]""")
_PARENTS = re.compile(
    r"\.parents\[(\d{1,3})\]|((?:\.parent\b){1,50})|((?:\b(?:os\.path\.|path\.)?dirname\(\s*){1,50})"
)


class Reads(NamedTuple):
    """What a kernel's build and tests can read.

    ``root`` is the repository's folder, and ``folder`` the kernel's from there. ``include`` are the folders
    of headers that build.toml names, and ``sources`` these and the files. ``outside`` is what something in
    the folder leads to, each with that file, and ``mentioned`` the text of the kernel's Nix code, build.toml
    and tests, by which a file for people turns out to be read after all.
    """

    root: Path
    folder: PurePosixPath
    include: tuple[PurePosixPath, ...]
    sources: frozenset[PurePosixPath]
    outside: dict[PurePosixPath, str]
    mentioned: str

    def why(self, path: PurePosixPath) -> str:
        """Why a change of ``path`` concerns the kernel; empty where it does not."""
        if path.is_relative_to(self.folder) and self.is_own(path.relative_to(self.folder)):
            return f"{path} has changed"
        for part in (path, *path.parents):
            if part in self.outside:
                return f"{path} has changed, to which {self.outside[part]} leads"
        # A submodule is one entry to git, with whatever is read of it below.
        for read, leader in self.outside.items():
            if read.is_relative_to(path):
                return f"{path} has changed, to which {leader} leads"
        is_around = self.folder != path.parent and self.folder.is_relative_to(path.parent)
        if is_around and path.name in (*_PYTEST, *SHARED_CONFIGURATION, ATTRIBUTES):
            return f"{path} has changed, which is about all folders below it"
        return ""

    def is_own(self, path: PurePosixPath) -> bool:
        """Whether the build or the tests can read the file of the kernel's folder at ``path``, relative to
        it."""
        if path.parts[0] in _SOURCE_FOLDERS or path.name == ATTRIBUTES:
            return True
        if self._is_source(self.folder / path):
            return True
        name = path.name.lower()
        is_text = name.endswith(_TEXTS) or name.removesuffix(".txt") in _TEXT_NAMES
        if path.parts[0] == _BENCHMARKS or path.parts[0].startswith("."):
            return path.parts[0] in self.mentioned
        return not is_text or path.name in self.mentioned

    def uses_submodule(self, path: PurePosixPath) -> bool:
        """Whether something of the submodule at ``path`` is read."""
        if any(part in self.outside for part in (path, *path.parents)):
            return True
        if any(read.is_relative_to(path) for read in (*self.sources, *self.outside)):
            return True
        if not path.is_relative_to(self.folder):
            return False
        own = path.relative_to(self.folder)
        if own.parts[0] in _SOURCE_FOLDERS or self._is_source(path):
            return True
        # The whole name: `csrc/scale` is not in `csrc/scale.cpp`.
        if re.search(rf"(?<![\w-]){re.escape(str(own))}(?![\w.-])", self.mentioned):
            return True
        return any(
            one.is_relative_to(path) for one in _Search(self.root, self.folder, self.include).included()
        )

    def _is_source(self, path: PurePosixPath) -> bool:
        return any(part in self.sources for part in (path, *path.parents) if part != self.folder)


def of_kernel(kernel_dir: Path, root: Path) -> Reads:
    """What the build and the tests of the kernel in ``kernel_dir`` can read of the repository at ``root``,
    both resolved. A build.toml that cannot be read names nothing: planning reports it."""
    folder = PurePosixPath(kernel_dir.relative_to(root).as_posix())
    listed, headers = _named(kernel_dir)
    include = tuple(_normal(folder / name) for name in headers)
    search = _Search(root, folder, include)
    search.run()
    sources = frozenset((*include, *(_normal(folder / name) for name in listed)))
    return Reads(root, folder, include, sources, search.outside, "".join(search.texts))


def _named(kernel_dir: Path) -> tuple[list[str], list[str]]:
    """The sources, and the folders of headers, that build.toml lists."""
    try:
        kernel = manifest.load(kernel_dir)
    except KernelActionsError:
        return [], []
    sources = [*kernel.binding.src, *(name for one in kernel.components for name in one.src)]
    return sources, [*kernel.binding.include, *(name for one in kernel.components for name in one.include)]


class _Search:
    """Follows what leads out of a kernel's folder."""

    def __init__(self, root: Path, folder: PurePosixPath, include: tuple[PurePosixPath, ...]) -> None:
        self._root = root
        self._folder = folder
        # What an include of a header may be relative to: where the compiler looks.
        self._include = include
        self.outside: dict[PurePosixPath, str] = {}
        self.texts: list[str] = []
        self._waiting: list[PurePosixPath] = []

    def run(self) -> None:
        """Look through the folder, and then through what was found outside of it."""
        for path in self._files(self._folder):
            self._look(path, is_own=True)
        looked = 0
        while self._waiting:
            path = self._waiting.pop()
            looked += 1
            if looked > _MOST_OUTSIDE:
                self._lead(path.parent, str(path))
                continue
            whole = self._root / path
            # The root holds everything: nothing more can be found.
            files = self._files(path) if path != ROOT and whole.is_dir() else iter((path,))
            for file in files:
                self._look(file, is_own=False)

    def included(self) -> Iterator[PurePosixPath]:
        """Where the headers that the files of the folder include may be, whether or not they are there."""
        for path in self._files(self._folder):
            for match in _INCLUDE.finditer(self._read(path)) if path.suffix.lower() in _C else ():
                for folder in (path.parent, self._folder, *self._include):
                    yield _normal(folder / (match[1] or match[2]))

    def _files(self, folder: PurePosixPath) -> Iterator[PurePosixPath]:
        """The files below ``folder``; a link leads elsewhere, and is not followed."""
        top = self._root / folder
        for current, folders, names in os.walk(top):
            here = PurePosixPath(os.path.relpath(current, self._root))
            for name in (*folders, *names):
                if os.path.islink(os.path.join(current, name)):
                    self._link(here / name)
            skipped = (*_SKIPPED, *_RESULTS) if here == self._folder else _SKIPPED
            folders[:] = [name for name in folders if name not in skipped and not name.startswith(".")]
            yield from (here / name for name in names)

    def _link(self, path: PurePosixPath) -> None:
        whole = self._root / path
        try:
            target = os.readlink(whole)
        except OSError:
            return
        for end in (os.path.normpath(whole.parent / target), os.path.realpath(whole)):
            if (end + os.sep).startswith(str(self._root) + os.sep):
                self._lead(PurePosixPath(os.path.relpath(end, self._root)), str(path))

    def _look(self, path: PurePosixPath, *, is_own: bool) -> None:
        """Follow what the file at ``path`` names."""
        name, suffix = path.name, path.suffix.lower()
        if suffix in _C:
            self._includes(path, self._read(path, least=b".." if is_own else b""), is_own)
        elif suffix == ".nix" or name == "flake.lock":
            text = self._read(path)
            self._upward(path, text, (path.parent,))
            if suffix == ".nix":
                self._keep(text, is_own)
                if _OWN_FLAKE.search(text):
                    self._lead(ROOT, str(path))
                # Of the kernel's own, those without `..` stay in its folder.
                for match in () if is_own else _NIX_PATH.finditer(text):
                    self._lead(_normal(path.parent / match.group()), str(path))
        elif name == "build.toml" and path.parent == self._folder:
            text = self._read(path)
            self._keep(text, is_own)
            self._upward(path, text, (path.parent,))
        elif suffix == ".py" and is_own and path.relative_to(self._folder).parts[0] == "tests":
            text = self._read(path)
            self._keep(text, is_own)
            self._test(path, text)

    def _includes(self, path: PurePosixPath, text: str, is_own: bool) -> None:
        for match in _INCLUDE.finditer(text):
            name = match[1] or match[2]
            # Without `..` a header of the folder includes another one, unless build.toml names folders
            # outside, which count as a whole. The compiler looks beside the file first, where the name is in
            # quotes.
            if (".." not in name and is_own) or (is_own and self._is_beside(path, match.group(), name)):
                continue
            for folder in (path.parent, self._folder, *self._include):
                self._lead(_normal(folder / name), str(path))

    def _is_beside(self, path: PurePosixPath, written: str, name: str) -> bool:
        """Whether what a file of the kernel includes is a file of the kernel, found from where it is."""
        found = _normal(path.parent / name)
        return '"' in written and found.is_relative_to(self._folder) and os.path.isfile(self._root / found)

    def _upward(self, path: PurePosixPath, text: str, folders: tuple[PurePosixPath, ...]) -> None:
        for match in _UPWARD.finditer(text) if ".." in text else ():
            for folder in folders:
                # After a value, as in `${value}/../x`, it may lead anywhere.
                name = ".." if match.group().startswith("/") else match.group()
                self._lead(_normal(folder / name), str(path))

    def _test(self, path: PurePosixPath, text: str) -> None:
        """Tests run in the kernel's folder, and often start at ``__file__``."""
        folders = {path.parent, self._folder}
        for match in _PARENTS.finditer(text):
            up = (
                int(match[1]) + 1
                if match[1]
                else (match[2] or "").count(".parent") + (match[3] or "").count("dirname")
            )
            above = path.parents[min(up, len(path.parents)) - 1] if up else path.parent
            if self._folder.is_relative_to(above) and above != self._folder:
                self._lead(above, str(path))
            folders.add(above)
        self._upward(path, _JOIN.sub("/", text) if ".." in text else "", tuple(folders))

    def _keep(self, text: str, is_own: bool) -> None:
        if is_own:
            self.texts.append(text)

    def _lead(self, path: PurePosixPath, leader: str) -> None:
        """Note that the file ``leader`` leads to ``path``, if that is outside and in the repository."""
        is_inside = path.is_relative_to(self._folder) and self._folder != ROOT
        if is_inside or path in self.outside or path.parts[:1] == ("..",) or self._folder == ROOT:
            return
        self.outside[path] = leader
        self._waiting.append(path)

    def _read(self, path: PurePosixPath, least: bytes = b"") -> str:
        """The text of a file, empty for one without ``least`` and for what cannot be read."""
        whole = f"{self._root}/{path}"
        try:
            # A pipe would wait for ever.
            if not os.path.isfile(whole):
                return ""
            with open(whole, "rb") as file:
                data = file.read()
        except OSError:
            return ""
        return data.decode(errors="replace") if least in data else ""


def _normal(path: PurePosixPath) -> PurePosixPath:
    """``path`` without ``..``, as git names it."""
    return PurePosixPath(os.path.normpath(path))
