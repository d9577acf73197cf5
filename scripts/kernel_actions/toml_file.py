"""Reading TOML that people wrote: values, and the line of each key for errors about them."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_actions.errors import Place, WrongInput

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# A build.toml has some kilobytes. More than this is refused before it is parsed.
_LARGEST = 1_000_000
# Tables in tables: a build.toml has three of them.
_DEEPEST = 50
# In bits, as TOML says.
_LONGEST_NUMBER = 64
# As much of a line as is looked at for its key.
_LONGEST_KEY = 500
# A key without quotes.
_BARE = re.compile(r"[A-Za-z0-9_\-. \t]+")
# What may be a key with dots, quoted or not, and a part of one.
_KEY = re.compile(r"[A-Za-z0-9_\-. \t\"']{100,}")
_PART = re.compile(r"[A-Za-z0-9_\-\"'][ \t]*\.")
_TOO_LONG = "has a number that is too long"
_TOO_DEEP = "is nested too deeply"
_AT = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")


@dataclass(frozen=True)
class TomlFile:
    """A parsed file: its ``values``, and where each of its keys stands."""

    path: Path
    values: dict[str, Any]
    _places: dict[str, Place] = field(repr=False)

    def place(self, key: str) -> Place:
        """The place of ``key`` (dotted, from the top: ``general.cuda.minver``), else of the
        nearest table around it."""
        while key:
            if key in self._places:
                return self._places[key]
            key = key.rpartition(".")[0]
        return Place(self.path)


def read(path: Path, *, repair: str = "") -> TomlFile:
    """Read and parse ``path``; ``repair`` says what to do when the file is missing.

    Raises ``WrongInput`` with the line and column of what is wrong.
    """
    try:
        data = read_bytes(path, _LARGEST)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise WrongInput("there is no such file", where=Place(path), repair=repair) from error
    except OSError as error:
        raise WrongInput(f"cannot be read: {error.strerror}", where=Place(path)) from error
    if len(data) > _LARGEST:
        raise WrongInput("is larger than 1 MB, which no such file needs", where=Place(path))
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise WrongInput("is not UTF-8", where=Place(path, line)) from error
    if deep := _long_key(text):
        raise WrongInput(_TOO_DEEP, where=Place(path, text.count("\n", 0, deep) + 1))
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        line, column = text.rstrip("\n").count("\n") + 1, None
        found = _AT.search(message)
        if found and found.group(1):
            line, column = int(found.group(1)), int(found.group(2))
        lines = text.splitlines()
        shown = lines[line - 1].strip() if 0 < line <= len(lines) else ""
        message = _AT.sub("", message).rstrip(".")
        raise WrongInput(
            f"is not valid TOML: {message}" + (f": {shown[:80]}" if shown else ""),
            where=Place(path, line, column),
        ) from error
    except RecursionError as error:
        raise WrongInput(_TOO_DEEP, where=Place(path)) from error
    except ValueError as error:
        # Of ``int``, which reads no number of thousands of digits.
        raise WrongInput(_TOO_LONG, where=_long_number(path, text)) from error
    _check_values(path, text, values)
    return TomlFile(path, values, _places(path, text))


def read_bytes(path: Path, largest: int) -> bytes:
    """The bytes of a regular file; one byte more than ``largest`` of one that is larger.

    Raises ``OSError``, and ``WrongInput`` for a pipe, a device or a folder: reading one may never end.
    """
    # Opening a pipe would wait for its other end, and opening a device may do something.
    if not stat.S_ISREG(path.stat().st_mode):
        raise WrongInput("cannot be read: it is not a regular file", where=Place(path))
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise WrongInput("cannot be read: it is not a regular file", where=Place(path))
        return file.read(largest + 1)


def _long_number(path: Path, text: str) -> Place:
    longest = max(re.finditer(r"[0-9][0-9A-Fa-fxob_]*", text), key=lambda found: found.end() - found.start())
    return Place(path, text.count("\n", 0, longest.start()) + 1)


def _long_key(text: str) -> int:
    """Where a key of very many parts is, which the parser takes the square of their number for; else 0."""
    for found in _KEY.finditer(text):
        if sum(1 for _ in _PART.finditer(found.group())) > _DEEPEST:
            return found.start()
    return 0


def _check_values(path: Path, text: str, values: dict[str, Any]) -> None:
    """Raise ``WrongInput`` for what later code could not even show."""
    level: list[Any] = [values]
    for _ in range(_DEEPEST):
        level = [item for value in level for item in _items(value)]
        if any(isinstance(value, int) and value.bit_length() > _LONGEST_NUMBER for value in level):
            raise WrongInput(_TOO_LONG, where=_long_number(path, text))
    if level:
        raise WrongInput(_TOO_DEEP, where=Place(path))


def _items(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _places(path: Path, text: str) -> dict[str, Place]:
    """Where each key stands. A light scan: what it misses is placed at the table around it.

    The time that it takes grows with the length of the text alone, whatever stands there.
    """
    places: dict[str, Place] = {}
    table: list[str] = []
    for number, whole in enumerate(text.split("\n"), start=1):
        line = whole[:_LONGEST_KEY]
        start = line.lstrip()
        column = len(line) - len(start) + 1
        if start.startswith("["):
            name, bracket, rest = start.lstrip("[").partition("]")
            rest = rest.removeprefix("]").strip()
            keys = _keys(name) if bracket and (not rest or rest.startswith("#")) else None
            if keys:
                table = keys
                places.setdefault(".".join(table), Place(path, number, column))
        else:
            name, equals, _ = start.partition("=")
            keys = _keys(name) if equals else None
            if keys:
                places.setdefault(".".join([*table, *keys]), Place(path, number, column))
    return places


def _keys(name: str) -> list[str] | None:
    """The parts of a key; ``None`` for what is none."""
    if _BARE.fullmatch(name):
        return [part.strip() for part in name.split(".")]
    try:
        value: Any = tomllib.loads(f"{name} = 0")
    except (ValueError, RecursionError):
        return None
    keys = []
    while isinstance(value, dict):
        if len(value) != 1:
            return None
        keys.append(next(iter(value)))
        value = value[keys[-1]]
    return keys
