"""What compilers say: the errors in their output, and why a build was cut off."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# g++ and clang++: `path:line:column: error: message`; the linker's messages have the form as well.
_GNU = re.compile(
    r"(?P<path>[^\s:][^:]*):(?P<line>\d{1,9}):(?:(?P<column>\d{1,9}):)? (?:fatal )?error: (?P<message>.*)"
)
# nvcc: `path(line): error: message`, with the number of the message in newer versions.
_NVCC = re.compile(
    r"(?P<path>[^\s(][^(]*)\((?P<line>\d{1,9})\): (?:catastrophic )?error(?: #\S+)?: (?P<message>.*)"
)
# Errors without a place: of the linker, of ptxas, and of the programs that run the compilers.
_TOOL = re.compile(
    r"(?:\S*/)?(?:ld|collect2|ptxas|nvcc|nvlink|cc1plus|c\+\+|g\+\+|clang\+\+|clang)[\w.-]*(?:\s+\w+)?\s*:"
)
_BAD_WORD = re.compile(r"\b(?:error|fatal|undefined reference|cannot find)\b")
# Where an error in a header comes from.
_ORIGIN = re.compile(
    r"(?:In file included from|\s+from) (?P<path>[^\s:][^:]*):(?P<line>\d{1,9})"
    r"|(?P<path2>[^\s:][^:]*):(?P<line2>\d{1,9}):(?:\d+:)?\s+(?:required from|(?:note: )?in instantiation)"
    r"|at line (?P<line3>\d{1,9}) of \"?(?P<path3>[^\"\s]+)"
)
_OUT_OF_MEMORY = re.compile(
    r"Killed signal|died due to signal 9|unable to execute command: Killed|virtual memory exhausted"
    r"|[Cc]annot allocate memory|out of memory allocating|exit code 137|code=137|^Killed$",
    re.MULTILINE,
)
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded")
# How many lines after an error nvcc says what led there.
_ORIGIN_LINES = 12


@dataclass(frozen=True)
class CompilerError:
    """An error of a compiler. ``path`` is relative to the kernel's folder, ``None`` for an error
    that is in none of its files."""

    message: str
    path: str | None = None
    line: int | None = None
    column: int | None = None


def errors(output: str, kernel_dir: Path, generated: Path) -> tuple[CompilerError, ...]:
    """The errors in ``output``, in their order, without repetitions.

    An error in a header from elsewhere is placed at the line of the kernel that led there.
    ``generated`` is the folder of the build, which may lie in the kernel's.
    """
    lines = output.splitlines()
    found: dict[CompilerError, None] = {}
    unplaced: dict[CompilerError, None] = {}
    for number, line in enumerate(lines):
        matched = _GNU.fullmatch(line) or _NVCC.fullmatch(line)
        if matched is None:
            if _TOOL.match(line) and _BAD_WORD.search(line):
                unplaced[CompilerError(line.strip())] = None
            continue
        message = matched["message"].strip()
        path = _in_kernel(matched["path"], kernel_dir, generated)
        if path is not None:
            column = matched.groupdict().get("column")
            found[CompilerError(message, path, int(matched["line"]), int(column) if column else None)] = None
            continue
        elsewhere = f"{message} (in {Path(matched['path']).name}:{matched['line']})"
        origin = _origin(lines, number, kernel_dir, generated)
        found[CompilerError(elsewhere, *origin) if origin else CompilerError(elsewhere)] = None
    return tuple(found) or tuple(unplaced)


def is_out_of_memory(output: str) -> bool:
    """Whether a compiler was ended because the machine has no memory left."""
    return _OUT_OF_MEMORY.search(output) is not None


def is_out_of_space(output: str) -> bool:
    """Whether something could not be written because the disk is full."""
    return _NO_SPACE.search(output) is not None


def _origin(lines: Sequence[str], number: int, kernel_dir: Path, generated: Path) -> tuple[str, int] | None:
    """The nearest line of the kernel that led to the error in line ``number`` of the output."""
    for line in (*_before(lines, number), *lines[number + 1 : number + 1 + _ORIGIN_LINES]):
        matched = _ORIGIN.search(line)
        if matched is None:
            continue
        name = matched["path"] or matched["path2"] or matched["path3"]
        path = _in_kernel(name, kernel_dir, generated)
        if path is not None:
            return path, int(matched["line"] or matched["line2"] or matched["line3"])
    return None


def _before(lines: Sequence[str], number: int) -> Iterator[str]:
    """The lines before an error that belong to it, the nearest first."""
    for line in reversed(lines[:number]):
        if _GNU.fullmatch(line) or _NVCC.fullmatch(line) or line.startswith("FAILED:"):
            return
        yield line


def _in_kernel(name: str, kernel_dir: Path, generated: Path) -> str | None:
    path = Path(os.path.normpath(name))
    if not path.is_absolute() or path.is_relative_to(generated) or not path.is_relative_to(kernel_dir):
        return None
    return path.relative_to(kernel_dir).as_posix()
