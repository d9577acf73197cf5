"""Looking through a folder that artifacts were downloaded into."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from kernel_actions.errors import KernelFailed, Place, WrongInput

# A run has at most 256 jobs for each matrix, and a job a handful of files.
_MOST_FILES = 100_000
_DEEPEST = 8


def files(root: Path) -> Iterator[tuple[str, Path]]:
    """The files below ``root``: the path inside it, with ``/``, and the path on disk.

    Raises ``WrongInput`` if ``root`` is missing, and ``KernelFailed`` for a link, a pipe or a device in it,
    or for more files than a run uploads.
    """
    if root.is_symlink() or not root.is_dir():
        raise WrongInput(
            "there is no such folder",
            where=Place(root),
            repair="download the artifacts of the builds into it",
        )
    count = 0
    waiting = [(root, "", 0)]
    while waiting:
        current, prefix, depth = waiting.pop()
        with os.scandir(current) as entries:
            for entry in entries:
                count += 1
                mode = entry.stat(follow_symlinks=False).st_mode
                path = Path(entry.path)
                if count > _MOST_FILES or depth > _DEEPEST:
                    raise KernelFailed("holds more than builds and tests upload", where=Place(root))
                if stat.S_ISDIR(mode):
                    waiting.append((path, f"{prefix}{entry.name}/", depth + 1))
                elif stat.S_ISREG(mode):
                    yield f"{prefix}{entry.name}", path
                else:
                    raise KernelFailed("is neither a plain file nor a folder", where=Place(path))
