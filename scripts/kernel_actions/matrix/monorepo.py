"""Repositories with several kernels: which folders are kernels, and which of them a change concerns."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from kernel_actions import console, manifest
from kernel_actions.errors import KernelActionsError, WrongInput, WrongSurroundings
from kernel_actions.named_tuple import NamedTuple

# Where no kernel's sources are: results of builders, and packages that other tools fetched.
_SKIPPED = frozenset({"build", "dist", "node_modules", "result", "site-packages", "target", "venv"})
# What concerns no kernel when it lies outside of their folders: texts for people.
_TEXTS = (".md", ".rst", ".png", ".jpg", ".svg", ".gif")
_TEXT_NAMES = ("license", "copying", "notice", "codeowners", ".gitignore", ".gitattributes", ".editorconfig")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class Unchanged(NamedTuple):
    """A kernel that a change does not concern."""

    directory: Path
    reason: str


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


def outside_sources(kernel_dir: Path) -> tuple[str, ...]:
    """The files outside of its folder that a kernel's build.toml names; none where it cannot be read,
    which planning it will tell."""
    try:
        kernel = manifest.load(kernel_dir)
    except KernelActionsError:
        return ()
    sources = [*kernel.binding.src, *(source for component in kernel.components for source in component.src)]
    return tuple(dict.fromkeys(source for source in sources if source.startswith("..")))


def concerned(
    kernels: Sequence[Path], reference: str, shared: dict[Path, tuple[str, ...]]
) -> tuple[list[Path], list[Unchanged]]:
    """Those of ``kernels`` that the changes since ``reference`` concern, and the others.

    ``shared`` are the sources that each kernel names outside of its folder (``../common/x.h``). A commit that
    is not here, as GitHub names one for a branch's first push and for a forced one, leaves nothing to compare
    with: all kernels are concerned.
    Raises ``WrongInput`` and ``WrongSurroundings`` as ``git.changed_since`` does.
    """
    from kernel_actions import git  # Not at the top: it runs processes, which most plans do without.

    state = git.state(kernels[0])
    if state is not None and _is_gone(kernels[0], reference):
        console.say(f"kernel-actions: warning: there is no commit {reference} here: all kernels are planned")
        return list(kernels), []
    changed = git.changed_since(kernels[0], reference)
    assert state is not None  # Or the comparison would have failed.
    root = state.root.resolve()
    folders: dict[Path, PurePosixPath] = {}
    for kernel in kernels:
        try:
            folders[kernel] = PurePosixPath(kernel.resolve().relative_to(root).as_posix())
        except ValueError as error:
            raise WrongInput(
                f"{kernel} is not in the repository {root}", repair="plan it by itself"
            ) from error
    references: dict[PurePosixPath, set[Path]] = {}
    for kernel, sources in shared.items():
        for source in sources:
            references.setdefault(_normal(folders[kernel] / source), set()).add(kernel)
    reached = _reached(changed, {folder: kernel for kernel, folder in folders.items()}, references)
    return (
        [kernel for kernel in kernels if kernel in reached],
        [Unchanged(kernel, f"unchanged since {reference}") for kernel in kernels if kernel not in reached],
    )


def _is_gone(directory: Path, reference: str) -> bool:
    """Whether it names a commit in full that the whole history does not have."""
    from kernel_actions import git

    if not _COMMIT.fullmatch(reference):
        return False
    is_none = not reference.strip("0")
    return is_none or not (git.has_commit(directory, reference) or git.is_shallow(directory))


def _reached(
    changed: Iterable[str], kernels: dict[PurePosixPath, Path], references: dict[PurePosixPath, set[Path]]
) -> set[Path]:
    """The kernels that the changed files, paths from the repository's root, concern."""
    paths = [PurePosixPath(name) for name in changed]
    above: dict[PurePosixPath, set[Path]] = {}
    for folder, kernel in kernels.items():
        for parent in folder.parents:
            above.setdefault(parent, set()).add(kernel)
    # A kernel that was removed takes its files along: they are nobody else's.
    removed = {path.parent for path in paths if path.name == "build.toml"} - set(kernels) - set(above)
    reached: set[Path] = set()
    for path in paths:
        reached |= references.get(path, set())
        owner = next((folder for folder in path.parents if folder in kernels), None)
        if owner is not None:
            reached.add(kernels[owner])
        elif not _is_text(path) and removed.isdisjoint(path.parents):
            # Shared: it concerns the kernels of the nearest folder around it that has kernels.
            nearest = next((folder for folder in path.parents if folder in above), None)
            reached |= above[nearest] if nearest is not None else set()
    return reached


def _normal(path: PurePosixPath) -> PurePosixPath:
    """``path`` without ``..``, as git names it."""
    return PurePosixPath(os.path.normpath(path))


def _is_text(path: PurePosixPath) -> bool:
    name = path.name.lower()
    return name.endswith(_TEXTS) or name.removesuffix(".txt") in _TEXT_NAMES
