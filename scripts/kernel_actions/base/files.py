"""Reading files that somebody else wrote: only regular files, only so much, and never through a link.

A job reads what other jobs, tests and pull requests left. A pipe in place of a file would make it wait
forever, a device would fill its memory, and a link would make it read, and perhaps show, any file.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


class NotPlain(OSError):
    """The path is a link, a pipe, a device, a socket or a folder."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(errno.EINVAL, f"it is {what}", str(path))


def open_plain(path: Path, *, follows_link: bool = False) -> BinaryIO:
    """Open a regular file for reading.

    Raises ``NotPlain`` for anything else, and ``OSError``. A link is followed only if ``follows_link``, for a
    path that the user named; links in the folders above it are always followed.
    """
    # Opening a pipe waits for its other end, and opening a device may do something: so look first.
    _check(path, (path.stat() if follows_link else path.lstat()).st_mode)
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    if not follows_link:
        flags |= getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags)
    try:
        _check(path, os.fstat(descriptor).st_mode)
    except OSError:
        os.close(descriptor)
        raise
    return open(descriptor, "rb")


def read_plain(path: Path, largest: int, *, follows_link: bool = False) -> bytes:
    """The bytes of a regular file: at most ``largest``, and one more if the file is larger.

    Raises as ``open_plain`` does.
    """
    with open_plain(path, follows_link=follows_link) as file:
        return file.read(largest + 1)


def _check(path: Path, mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise NotPlain(path, "a symbolic link")
    if not stat.S_ISREG(mode):
        raise NotPlain(path, "not a regular file")
