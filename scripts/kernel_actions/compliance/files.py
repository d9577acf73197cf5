"""Looking at files that may be anything: pipes, devices, links to nowhere, millions of them.

What is checked comes from a pull request or an artifact. Nothing here waits, follows a link out of
sight, or takes more memory or time than a kernel could need.
"""

from __future__ import annotations

import ast
import os
import stat
import warnings
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from kernel_actions.base import files as plain_files
from kernel_actions.errors import Place, WrongInput

# The largest kernels of public repositories have some hundreds of files.
MOST_FILES = 10_000
# With the usual code model neither an extension nor its data can be larger than 2 GB.
LARGEST_FILE = 2_000_000_000


@dataclass(frozen=True)
class Entry:
    """Something in a folder: its ``name`` (relative to where the walk began, with ``/``), its mode as
    ``lstat`` gives it, and its size in bytes."""

    name: str
    path: Path
    mode: int
    size: int

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder, and no link to one."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file, and no link to one."""
        return stat.S_ISREG(self.mode)

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return stat.S_ISLNK(self.mode)


@dataclass(frozen=True)
class Listing:
    """What is below a folder, sorted by name. ``cut``: why something is left out; empty: it is all there."""

    entries: tuple[Entry, ...]
    cut: str = ""


def walk(root: Path) -> Listing:
    """All that is below ``root``, at most ``MOST_FILES`` entries of it. Links are not followed."""
    entries: list[Entry] = []
    cut = ""
    folders = [""]
    while folders and len(entries) <= MOST_FILES:
        folder = folders.pop()
        try:
            with os.scandir(root / folder) as found:
                for one in islice(found, MOST_FILES + 1 - len(entries)):
                    state = one.stat(follow_symlinks=False)
                    name = f"{folder}/{one.name}" if folder else one.name
                    entries.append(Entry(name, root / name, state.st_mode, state.st_size))
                    if stat.S_ISDIR(state.st_mode):
                        folders.append(name)
        except OSError as error:
            cut = f"{folder or 'the folder'} cannot be read: {error.strerror}"
    if len(entries) > MOST_FILES:
        del entries[MOST_FILES:]
        cut = f"there are more than {MOST_FILES} files"
    return Listing(tuple(sorted(entries, key=lambda entry: entry.name)), cut)


def read(path: Path, largest: int) -> bytes:
    """What the regular file ``path`` holds.

    Raises ``WrongInput`` when it cannot be read, is of another kind, or is larger than ``largest`` bytes.
    """
    where = Place(path)
    try:
        data = plain_files.read_plain(path, largest, follows_link=True)
    except plain_files.NotPlain as error:
        raise WrongInput("is not a regular file", where=where) from error
    except OSError as error:
        raise WrongInput(f"cannot be read: {error.strerror}", where=where) from error
    if len(data) > largest:
        raise WrongInput(f"is larger than {largest} bytes", where=where)
    return data


def parse_python(path: Path, data: bytes) -> ast.Module:
    """The syntax tree of ``data``, which is what ``path`` holds.

    Raises ``WrongInput`` with the line where Python cannot parse it.
    """
    try:
        with warnings.catch_warnings():
            # What Python says about the style of what it parses would go to stderr.
            warnings.simplefilter("ignore")
            return ast.parse(data)
    except SyntaxError as error:
        where = Place(path, error.lineno, error.offset)
        raise WrongInput(f"cannot be parsed: {error.msg}", where=where) from error
    except (ValueError, RecursionError, MemoryError) as error:
        what = f"cannot be parsed: {error or type(error).__name__}"
        raise WrongInput(what, where=Place(path)) from error


def check_kind(path: Path) -> None:
    """Raises ``WrongInput`` when ``path`` is there and is no regular file, so that reading it could wait."""
    if path.exists() and not path.is_file():
        raise WrongInput("is not a regular file", where=Place(path))


def is_inside(folder: Path, path: Path) -> bool:
    """Whether ``path`` is in ``folder``, links followed."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # A loop of links; a null character.
        return False
