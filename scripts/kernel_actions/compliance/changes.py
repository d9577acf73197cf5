"""What a pull request changes: the files that differ from where it began."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kernel_actions import git
from kernel_actions.errors import Place, WrongSurroundings
from kernel_actions.matrix import monorepo
from kernel_actions.matrix.changes import SHARED, teller

_FILE, _LINK, _SUBMODULE = "100", "120000", "160000"
# Fields of a line of `git diff --raw`.
_FIELDS = 5


@dataclass(frozen=True)
class Change:
    """A file that differs: ``name`` is its path from the repository's root, and ``own`` from the kernel's
    folder, empty outside of it. The modes are those of git, ``000000`` where there is no file, and the ids
    those of what git keeps, zeros for what is in the folder alone."""

    name: str
    own: str
    path: Path
    mode_before: str
    mode: str
    id_before: str
    id: str

    @property
    def where(self) -> Place:
        """The place of what is about the file as a whole."""
        return Place(self.path)

    @property
    def is_there(self) -> bool:
        """Whether it was not deleted."""
        return self.mode != "000000"

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file now."""
        return self.mode.startswith(_FILE)

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link now."""
        return self.mode == _LINK

    @property
    def is_submodule(self) -> bool:
        """Whether it is a submodule, or was one."""
        return _SUBMODULE in (self.mode, self.mode_before)


@dataclass(frozen=True)
class Comparison:
    """The changes since ``base``, the commit at which the pull request began. ``folder`` is that of the
    kernel from the repository's root, with a slash at its end, and empty if it is the root."""

    kernel_dir: Path
    base: str
    folder: str
    changes: tuple[Change, ...]

    def before(self, own: str) -> str | None:
        """The text of a file of the kernel as it was; ``None`` if there was none."""
        return git.file_at(self.kernel_dir, self.base, self.folder + own)


def read(kernel_dir: Path, reference: str) -> Comparison:
    """What differs from the common ancestor of ``reference`` and the checked-out commit, in the kernel's
    folder, and in what all of the repository's kernels share, which one of them tells for all: the first that
    the changes concern. Files that git does not track are not looked at.

    Raises ``WrongInput`` for an unknown reference and ``WrongSurroundings`` outside of a repository, and in a
    clone that does not reach back to the common ancestor.
    """
    git.changed_since(kernel_dir, reference)  # Says what is wrong with the reference or the clone.
    state = git.state(kernel_dir)
    found = git.raw_difference(kernel_dir, reference)
    if state is None or found is None:
        raise WrongSurroundings(f"git cannot compare {kernel_dir} with {reference[:80]!r}")
    base, listed = found
    root = state.root.resolve()
    folder = os.path.relpath(kernel_dir.resolve(), root)
    prefix = "" if folder == "." else f"{folder}/"
    fields = listed.split("\0")
    shared = SHARED if _tells_for_all(kernel_dir, root, fields[1::2]) else ()
    changes = tuple(_parse(fields, kernel_dir, root, prefix, shared))
    return Comparison(kernel_dir, base, prefix, changes)


def _tells_for_all(kernel_dir: Path, root: Path, names: Sequence[str]) -> bool:
    """Whether this kernel is the one of the repository with which what all share is told."""
    if not any(name.startswith(SHARED) for name in names):
        return False
    kernels = {kernel_dir.resolve(), *(one.resolve() for one in monorepo.discover(root))}
    folders = {one: PurePosixPath(one.relative_to(root).as_posix()) for one in kernels}
    return teller(folders, [PurePosixPath(name) for name in names]) == kernel_dir.resolve()


def _parse(
    fields: Sequence[str], kernel_dir: Path, root: Path, folder: str, shared: tuple[str, ...]
) -> Iterator[Change]:
    for meta, name in zip(fields[::2], fields[1::2], strict=False):
        parts = meta.removeprefix(":").split(" ")
        is_own = name.startswith(folder)
        if len(parts) != _FIELDS or not (is_own or name.startswith(shared)):
            continue
        own = name.removeprefix(folder) if is_own else ""
        path = kernel_dir / own if is_own else Path(os.path.relpath(root / name))
        yield Change(name, own, path, parts[0], parts[1], parts[2], parts[3])
