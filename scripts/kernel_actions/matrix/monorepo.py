"""Repositories with several kernels: which folders are kernels, and what a change can concern of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from kernel_actions.errors import WrongInput, WrongSurroundings
from kernel_actions.named_tuple import NamedTuple

# Where no kernel's sources are: results of builders, and packages that other tools fetched.
_SKIPPED = frozenset({"build", "dist", "node_modules", "result", "site-packages", "target", "venv"})


class Unchanged(NamedTuple):
    """A kernel that a change does not concern."""

    directory: Path
    reason: str


class Concerned(NamedTuple):
    """What a change concerns.

    ``planned`` are the kernels whose builds or tests can see it, each with the first file that they see.
    ``checked`` are those that compliance has to look at: these, and those with any changed file in their
    folder. What all kernels share is told with one of them. ``unchanged`` are all that are not planned.
    """

    planned: Mapping[Path, str]
    checked: tuple[Path, ...]
    unchanged: tuple[Unchanged, ...]


def discover(root: Path, levels: int | None = None) -> list[Path]:
    """The kernels below ``root``: its folders with a build.toml, sorted by path; with ``levels``, those at
    most so many folders deep.

    Hidden folders, results of builds and links are not looked into, and neither are the folders of a
    kernel itself, whose tests may have kernels of their own. Raises ``WrongInput`` when there is none.
    """
    if not root.is_dir():
        raise WrongInput(f"--discover {root} is not a folder")
    found = sorted(_kernels_below(root, levels))
    if not found:
        raise WrongInput(f"no folder below {root} has a build.toml", repair="give the folder of the kernels")
    return found


def _kernels_below(root: Path, levels: int | None) -> Iterator[Path]:
    folders = [(root, 0)]
    while folders:
        folder, depth = folders.pop()
        inner: list[Path] = []
        is_kernel = False
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name == "build.toml" and entry.is_file(follow_symlinks=False):
                        is_kernel = True
                    elif entry.is_dir(follow_symlinks=False) and not _is_skipped(entry.name):
                        inner.append(folder / entry.name)
        except PermissionError as error:
            raise WrongSurroundings(f"{folder} cannot be read") from error
        if is_kernel:
            yield folder
        elif levels is None or depth < levels:
            folders += ((one, depth + 1) for one in inner)


def _is_skipped(name: str) -> bool:
    return name.startswith((".", "__")) or name in _SKIPPED
