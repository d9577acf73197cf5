"""The folder that variants are built into, which is the same for both builders."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable, Iterator
from pathlib import Path

from kernel_actions import built
from kernel_actions.errors import WrongInput, WrongSurroundings
from kernel_actions.local_builder import sources

# In it, beside the variants: locks, logs, copies that are not finished, and the projects that the local
# builder generates, for the next build and for `pip install -e`.
WORK_FOLDER = ".local"
# Beside the folders of the sources that build.toml lists.
_NOT_FOR_OUTPUT = (".git", "csrc", sources.PACKAGE_ROOT, "tests")


def check(
    kernel_dir: Path,
    folder: Path,
    listed: Iterable[str],
    option: str = "--output",
    *,
    may_hold_others: bool = False,
) -> None:
    """Raise ``WrongInput`` for a folder that is no place for what is built.

    That is one of the kernel's sources, whose folders beside the usual ones are ``listed``; and, unless it
    ``may_hold_others``, one that they are in.
    """
    directory, resolved = kernel_dir.resolve(), folder.resolve()
    repair = "choose a folder for what is built, as build"
    if not may_hold_others and directory.is_relative_to(resolved):
        raise WrongInput(f"{option} is {folder}, which holds the kernel", repair=repair)
    for name in (*_NOT_FOR_OUTPUT, *listed):
        taken = (directory / name).resolve()
        if resolved.is_relative_to(taken) or (not may_hold_others and taken.is_relative_to(resolved)):
            raise WrongInput(
                f"{option} is {folder}, and {name} is a folder of the kernel's sources", repair=repair
            )


def prepare(output: Path) -> Path:
    """Make the folder, and return the one in it that is worked in. Raises ``WrongInput`` for a file."""
    work = output / WORK_FOLDER
    try:
        work.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise WrongInput(
            f"--output is {output}, which is not a folder", repair="choose another folder"
        ) from error
    for folder in (output, work):
        built.hide_from_git(folder)
    return work


@contextlib.contextmanager
def on_disk(folder: Path, option: str = "--output") -> Iterator[None]:
    """Say which disk is full, and by what option another one is chosen: the error itself does not."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise WrongSurroundings(
            f"the disk of {folder} is full", repair=f"free some space, or choose another place by {option}"
        ) from error
