"""Reading TOML that people wrote: its values, and where each key and value stands, for errors about them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from kernel_actions.base import files
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
# What may be a key with dots, quoted or not, and a part of one.
_KEY = r"[A-Za-z0-9_\-. \t\"']{100,}"
_PART = r"[A-Za-z0-9_\-\"'][ \t]*\."
_TOO_LONG = "has a number that is too long"
_TOO_DEEP = "is nested too deeply"
_AT = r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$"


# What is looked for when the place of a key is asked for, and not compiled before: white space, line ends
# and comments,
_BLANK = r"[ \t\r\n]*(?:#[^\n]*[ \t\r\n]*)*"
# one part of a key, which is bare, "quoted" or 'quoted',
_KEY_PART = r"""(?x)[ \t]*(?P<part>(?P<bare>[A-Za-z0-9_-]+)
    | "(?P<basic>[^"\\\n]*(?:\\.[^"\\\n]*)*)" | '(?P<literal>[^'\n]*)')[ \t]*"""
_ESCAPE = r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))"
_ESCAPED = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b"}
# the end of a string, or what could be taken for one (up to two quotes may precede those that end a
# string of many lines),
_STRING_ENDS = {'"""': r'(?s)\\.|"{3,5}', "'''": r"'{3,5}", '"': r'\\.|"', "'": r"'"}
# and a number, a date (which may have a space before its time), true or false.
_SCALAR = r"[^,\]}\s#]+(?: [0-9]{2}:[^,\]}\s#]*)?"

# The names from the top of a file to a key, with the index where a list is on the way.
KeyPath = tuple[str | int, ...]


class _Spot:
    """Where a key (``at``) and its value stand in a text, and what is ``inside`` of the value.

    A key that only a longer one implies, as ``[a.b]`` does ``a``, stands where that one does.
    """

    __slots__ = ("at", "inside", "is_implied", "value")

    def __init__(self, at: int, *, is_implied: bool = False) -> None:
        self.at = at
        self.value = at
        self.inside: dict[str, _Spot] | list[_Spot] | None = None
        self.is_implied = is_implied


class TomlFile:
    """A parsed file: its ``values``, and where each of its keys and values stands."""

    def __init__(self, path: Path, values: dict[str, Any], text: str) -> None:
        self.path: Final = path
        self.values: Final = values
        self._text: Final = text

    def place(self, key: str | KeyPath) -> Place:
        """The place of ``key``, else of the nearest table around it.

        ``key`` is a path, or one joined by dots from the top: ``general.cuda.minver``. The place of a
        table is that of its header, and the place of an entry of a list is the entry.
        """
        if isinstance(key, str):
            spot = _joined(self._top, key, 0)[1]
        else:
            spot, _ = self._spot(key)
        return Place(self.path) if spot is self._top else self._place(spot.at)

    def value_place(self, key: KeyPath) -> Place:
        """The place of the value of ``key``, else of the nearest key around it."""
        return self._place(self.offset(key, of_value=True))

    def offset(self, key: KeyPath, *, of_value: bool) -> int:
        """How many characters stand before ``key`` or its value: 0 of what is not in the file."""
        spot, is_found = self._spot(key)
        return spot.value if of_value and is_found else spot.at

    def written(self, key: KeyPath) -> str:
        """How the number, date or flag of ``key`` is written there: ``2.10``, where its value is 2.1."""
        spot, is_found = self._spot(key)
        found = re.compile(_SCALAR).match(self._text, spot.value) if is_found else None
        return found.group() if found else ""

    @cached_property
    def _top(self) -> _Spot:
        # Not before it is asked for: most files have nothing wrong.
        return _Scanner(self._text).scan()

    def _spot(self, key: KeyPath) -> tuple[_Spot, bool]:
        """The spot of ``key``, else of what is nearest around it, and whether it is the former."""
        spot = self._top
        for part in key:
            child = _child(spot, part)
            if child is None:
                return spot, False
            spot = child
        return spot, True

    def _place(self, offset: int) -> Place:
        line = self._text.count("\n", 0, offset) + 1
        return Place(self.path, line, offset - self._text.rfind("\n", 0, offset))


def _child(spot: _Spot, part: str | int) -> _Spot | None:
    inside = spot.inside
    if isinstance(inside, list):
        return inside[part] if isinstance(part, int) and part < len(inside) else None
    return inside.get(part) if inside is not None and isinstance(part, str) else None


def _joined(spot: _Spot, key: str, start: int) -> tuple[int, _Spot]:
    """The spot of ``key``, whose parts from ``start`` on are joined by dots, and how far it was found.

    A part may have dots of its own, as quoted keys do. No spot is looked at twice, so the time grows
    with the length of the file alone.
    """
    best = (start, spot)
    if start < len(key) and isinstance(spot.inside, dict):
        for name, child in spot.inside.items():
            end = start + len(name)
            if key.startswith(name, start) and (end == len(key) or key[end] == "."):
                best = max(best, _joined(child, key, min(end + 1, len(key))), key=lambda one: one[0])
                if best[0] == len(key):
                    break
    return best


class _Lost(Exception):
    """The text is not what a parser has accepted."""


class _Scanner:
    """Finds the keys and values of a text that a parser has accepted, in one pass.

    After https://toml.io/en/v1.0.0, with the line ends in inline tables and the escapes of 1.1. Should
    a parser accept more, what stands after that is placed at what is around it.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._blank = re.compile(_BLANK)
        self._key_part = re.compile(_KEY_PART)
        self._scalar = re.compile(_SCALAR)

    def scan(self) -> _Spot:
        """The spot of the whole text."""
        top = _Spot(0)
        top.inside = {}
        table = top
        try:
            while self._skip():
                if self._text[self._at] == "[":
                    table = self._header(top)
                else:
                    self._pair(table)
        except _Lost:
            pass
        return top

    def _skip(self) -> str:
        """Go past what is blank, and return the character that follows; none at the end."""
        blank = self._blank.match(self._text, self._at)
        if blank:
            self._at = blank.end()
        return self._text[self._at : self._at + 1]

    def _expect(self, text: str) -> None:
        if not self._text.startswith(text, self._at):
            raise _Lost
        self._at += len(text)

    def _key(self) -> list[tuple[str, int]]:
        """The parts of a key, each with its place."""
        parts = []
        while True:
            found = self._key_part.match(self._text, self._at)
            if found is None:
                raise _Lost
            name = found["bare"] or found["literal"] or _unescaped(found["basic"] or "")
            parts.append((name, found.start("part")))
            self._at = found.end()
            if not self._text.startswith(".", self._at):
                return parts
            self._at += 1

    def _header(self, top: _Spot) -> _Spot:
        """The table that ``[a.b]`` or ``[[a.b]]`` opens."""
        start = self._at
        is_list = self._text.startswith("[[", start)
        self._at += 2 if is_list else 1
        *around, (last, _) = self._key()
        self._expect("]]" if is_list else "]")
        spot = top
        for name, _ in around:
            spot = _inner(spot, name, start, is_implied=True)
        spot = _inner(spot, last, start, is_implied=False)
        if is_list:
            if not isinstance(spot.inside, list):
                spot.inside = []
            spot.inside.append(_Spot(start))
            return spot.inside[-1]
        return spot

    def _pair(self, table: _Spot) -> None:
        """A key and its value."""
        *around, (last, at) = self._key()
        spot = table
        for name, place in around:
            spot = _inner(spot, name, place, is_implied=True)
        spot = _inner(spot, last, at, is_implied=False)
        self._expect("=")
        self._value(spot)

    def _value(self, spot: _Spot) -> None:
        first = self._skip()
        spot.value = self._at
        if first == "[":
            self._at += 1
            spot.inside = entries = []
            while self._skip() != "]":
                entry = _Spot(self._at)
                entries.append(entry)
                self._value(entry)
                self._comma("]")
            self._at += 1
        elif first == "{":
            self._at += 1
            spot.inside = {}
            while self._skip() != "}":
                self._pair(spot)
                self._comma("}")
            self._at += 1
        elif first and first in "\"'":
            quotes = first * 3 if self._text.startswith(first * 3, self._at) else first
            self._at += len(quotes)
            end = re.compile(_STRING_ENDS[quotes])
            while True:
                found = end.search(self._text, self._at)
                if found is None:
                    raise _Lost
                self._at = found.end()
                if found.group()[0] == first:
                    break
        else:
            scalar = self._scalar.match(self._text, self._at)
            if scalar is None:
                raise _Lost
            self._at = scalar.end()

    def _comma(self, end: str) -> None:
        if self._skip() != end:
            self._expect(",")


def _inner(spot: _Spot, name: str, at: int, *, is_implied: bool) -> _Spot:
    """The spot of ``name`` in a table, made when it is not there; of a list, in its last table."""
    if isinstance(spot.inside, list):
        if not spot.inside:
            raise _Lost
        spot = spot.inside[-1]
    if spot.inside is None:
        spot.inside = {}
    if not isinstance(spot.inside, dict):
        raise _Lost
    child = spot.inside.get(name)
    if child is None:
        child = spot.inside[name] = _Spot(at, is_implied=is_implied)
    elif child.is_implied and not is_implied:
        child.at = child.value = at
        child.is_implied = False
    return child


def _unescaped(text: str) -> str:
    """What a quoted key means."""
    if "\\" not in text:
        return text
    return re.sub(
        _ESCAPE,
        lambda found: (
            _ESCAPED.get(found[4], found[4]) if found[4] else chr(int(found[1] or found[2] or found[3], 16))
        ),
        text,
    )


def read(path: Path, *, repair: str = "") -> TomlFile:
    """Read and parse ``path``; ``repair`` says what to do when the file is missing.

    Raises ``WrongInput`` with the line and column of what is wrong.
    """
    try:
        data = read_bytes(path, _LARGEST, follows_link=False)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise WrongInput("there is no such file", where=Place(path), repair=repair) from error
    except OSError as error:
        raise WrongInput(f"cannot be read: {error.strerror}", where=Place(path)) from error
    if len(data) > _LARGEST:
        raise WrongInput("is larger than 1 MB, which no such file needs", where=Place(path))
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise WrongInput("is not UTF-8", where=_at(path, data[: error.start].decode())) from error
    if (deep := _long_key(text)) is not None:
        raise WrongInput(_TOO_DEEP, where=_at(path, text[:deep]))
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        where = _at(path, text.rstrip("\r\n"))
        found = re.search(_AT, message)
        if found and found.group(1):
            where = Place(path, int(found.group(1)), int(found.group(2)))
        # Not splitlines, which knows line ends that TOML does not.
        lines = text.split("\n")
        shown = lines[where.line - 1].strip() if where.line and where.line <= len(lines) else ""
        message = re.sub(_AT, "", message).rstrip(".")
        raise WrongInput(
            f"is not valid TOML: {message}" + (f": {shown[:80]}" if shown else ""), where=where
        ) from error
    except RecursionError as error:
        raise WrongInput(_TOO_DEEP, where=Place(path)) from error
    except ValueError as error:
        # Of ``int``, which reads no number of thousands of digits.
        raise WrongInput(_TOO_LONG, where=_long_number(path, text)) from error
    _check_values(path, text, values)
    return TomlFile(path, values, text)


def read_bytes(path: Path, largest: int, *, follows_link: bool = True) -> bytes:
    """The bytes of a regular file; one byte more than ``largest`` of one that is larger.

    Raises ``OSError``, and ``WrongInput`` for a pipe, a device or a folder: reading one may never end. The
    same for a link, unless ``follows_link``: an error about a file shows a line of it, whatever it leads to.
    """
    try:
        return files.read_plain(path, largest, follows_link=follows_link)
    except files.NotPlain as error:
        raise WrongInput(f"cannot be read: {error.strerror}", where=Place(path)) from error


def _long_number(path: Path, text: str) -> Place:
    longest = max(re.finditer(r"[0-9][0-9A-Fa-fxob_]*", text), key=lambda found: found.end() - found.start())
    return _at(path, text[: longest.start()])


def _at(path: Path, before: str) -> Place:
    """The place of what stands after ``before``."""
    return Place(path, before.count("\n") + 1, len(before) - before.rfind("\n"))


def _long_key(text: str) -> int | None:
    """Where a key of very many parts starts, if there is one: the parser needs the square of their number."""
    if text.count(".") <= _DEEPEST:
        return None
    for found in re.finditer(_KEY, text):
        if sum(1 for _ in re.finditer(_PART, found.group())) > _DEEPEST:
            return found.start()
    return None


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
