"""Which files the listed sources include, and the builder does not have.

The builder compiles copies of what ``src`` lists, and of files in the package's folder by ``pyext``:
lib/source-set.nix of the builder at 8ac69fc5. A header that is in no list is found on its author's machine
alone. It is looked for as a compiler does: beside the file that includes it, in the folders of ``include``,
then in ``csrc``, which templates/utils.cmake adds. Of conditions nobody knows the outcome here: what they
include does not count.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from kernel_actions.manifest import Manifest

_DIRECTIVE = re.compile(
    rb"^[ \t]*#[ \t]*(?P<word>include|if|ifdef|ifndef|endif|define|pragma)\b[ \t]*"
    rb'(?:(?P<open>["<])(?P<name>[^">\n]+)[">])?',
    re.MULTILINE,
)
_COMMENT = re.compile(rb"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_PACKAGES = ("torch-ext", "tvm-ffi-ext")
_ALWAYS_SEARCHED = "csrc"


@dataclass(frozen=True)
class Include:
    """An ``#include`` of ``name`` in line ``line``. ``is_quoted``: it is looked for beside the file first."""

    name: str
    line: int
    is_quoted: bool


@dataclass(frozen=True)
class Missing:
    """A header that no list has: ``name`` from the kernel's folder on, included by ``file`` in ``line``."""

    name: str
    file: str
    line: int


@dataclass
class Sources:
    """The includes of listed sources, by their paths from the kernel's folder on."""

    includes: dict[str, tuple[Include, ...]] = field(default_factory=dict)

    def add(self, name: str, data: bytes) -> None:
        """Note what the source ``name`` includes, whatever conditions say."""
        self.includes[_normal(name)] = tuple(included(data)) if b"include" in data else ()

    def missing(self, manifest: Manifest) -> Iterator[Missing]:
        """The headers in the kernel's folder that no list has, each where it is included first."""
        present = _Present(manifest)
        told: set[str] = set()
        sections = [(manifest.binding.src, manifest.binding.include)]
        sections += [(one.src, one.include) for one in manifest.components]
        for listed, folders in sections:
            searched = (*folders, _ALWAYS_SEARCHED)
            # A header is read by way of what includes it, as its own section may be another.
            left = [name for name in map(_normal, listed) if _is_compiled(name)]
            seen = set(left)
            while left:
                file = left.pop(0)
                for include in self.includes.get(file, ()):
                    name, is_present = present.find(include, file, searched)
                    if name and not is_present and name not in told:
                        told.add(name)
                        yield Missing(name, file, include.line)
                    elif name and is_present and name not in seen:
                        seen.add(name)
                        left.append(name)


class _Present:
    """What the builder has of a kernel's folder, and what is there besides."""

    def __init__(self, manifest: Manifest) -> None:
        self._root = manifest.directory
        lists = [manifest.binding.src, *(one.src for one in manifest.components)]
        self._listed = {_normal(name) for names in lists for name in names}
        self._suffixes = tuple(f".{one}" for one in manifest.binding.pyext or ("py", "pyi"))
        self._known: dict[str, bool] = {}

    def find(self, include: Include, file: str, searched: Sequence[str]) -> tuple[str, bool]:
        """The path of what an include means, and whether the builder has it. Empty: it is not in the
        kernel's folder."""
        beside = (str(PurePosixPath(file).parent),) if include.is_quoted else ()
        found = [_normal(os.path.join(folder, include.name)) for folder in (*beside, *searched)]
        found = [name for name in found if not name.startswith(("..", "/"))]
        for name in found:
            if self._is_present(name):
                return name, True
        return next((name for name in found if self._exists(name)), ""), False

    def _is_present(self, name: str) -> bool:
        parts = PurePosixPath(name)
        if name in self._listed or any(str(parent) in self._listed for parent in parts.parents):
            return True
        return parts.parts[0] in _PACKAGES and name.endswith(self._suffixes) and self._exists(name)

    def _exists(self, name: str) -> bool:
        if name not in self._known:
            try:
                self._known[name] = os.path.isfile(self._root / name)
            except ValueError:  # A null character.
                self._known[name] = False
        return self._known[name]


def included(data: bytes) -> Iterator[Include]:
    """The includes that a source makes under no condition but its own guard."""
    if b"/*" in data or b"//" in data:
        data = _without_comments(data)
    directives = list(_DIRECTIVE.finditer(data))
    depth = 0
    line, at = 1, 0
    for index, found in enumerate(directives):
        word = found["word"]
        if word in (b"if", b"ifdef", b"ifndef"):
            following = directives[index + 1]["word"] if index + 1 < len(directives) else b""
            is_guard = (
                word == b"ifndef"
                and following == b"define"
                and not any(one["word"] != b"pragma" for one in directives[:index])
            )
            depth += 0 if is_guard else 1
        elif word == b"endif":
            depth = max(depth - 1, 0)
        elif word == b"include" and depth == 0 and found["name"] is not None:
            line, at = line + data.count(b"\n", at, found.start()), found.start()
            name = found["name"].decode(errors="replace").strip()
            yield Include(name, line, found["open"] == b'"')


def _without_comments(data: bytes) -> bytes:
    """The text with its comments blank. What looks like one in a string is taken for one, too."""
    return _COMMENT.sub(lambda found: re.sub(rb"[^\n]", b" ", found.group()), data)


def _is_compiled(name: str) -> bool:
    return name.endswith((".c", ".cc", ".cpp", ".cu", ".cxx", ".mm", ".metal"))


def _normal(name: str) -> str:
    return os.path.normpath(name)
