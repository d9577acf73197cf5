"""Globs of paths, as `paths` of a GitHub workflow has them: ``*`` stays within a folder, ``**`` does not."""

from __future__ import annotations

import fnmatch
import os
from pathlib import PurePosixPath


def matches(path: PurePosixPath, pattern: str) -> bool:
    """Whether ``pattern`` matches ``path``, or a folder that it is in. Both start at the same folder.

    The time grows with the product of their numbers of folders, whatever a stranger's pattern is.
    """
    parts = path.parts
    # Of the pattern so far: which numbers of the path's first parts it matches.
    ends = {0}
    for piece in pattern.split("/"):
        if piece == "**":
            ends = set(range(min(ends), len(parts) + 1))
        else:
            ends = {end + 1 for end in ends if end < len(parts) and fnmatch.fnmatchcase(parts[end], piece)}
        if not ends:
            return False
    # Folders match with all that is in them. The root is no folder that one would name.
    return max(ends) > 0


def joined(folder: PurePosixPath, pattern: str) -> str:
    """``pattern``, which starts at ``folder``, as one that starts where ``folder`` does."""
    return os.path.normpath(f"{folder}/{pattern}")
