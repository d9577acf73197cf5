"""Reading TOML that people wrote: values, and the line of each key for errors about them."""

from __future__ import annotations

import re
import sys
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
_TABLE = re.compile(r"\s*\[\[?\s*(?P<name>[^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"\s*(?P<name>[A-Za-z0-9_\-.\"' ]+?)\s*=")
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
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
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
        raise WrongInput("is nested too deeply", where=Place(path)) from error
    return TomlFile(path, values, _places(path, text))


def _places(path: Path, text: str) -> dict[str, Place]:
    """Where each key stands. A light scan: what it misses is placed at the table around it."""
    places: dict[str, Place] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if found := _TABLE.match(line):
            table = _dotted(found["name"])
            places.setdefault(table, Place(path, number, line.index("[") + 1))
        elif found := _KEY.match(line):
            key = f"{table}.{_dotted(found['name'])}".lstrip(".")
            places.setdefault(key, Place(path, number, found.start("name") + 1))
    return places


def _dotted(name: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in name.split("."))
