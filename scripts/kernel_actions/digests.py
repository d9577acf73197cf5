"""The SHA-256 and the git id of files, and a memory of those that were read before.

Reading gigabytes to find that nothing changed takes longer than everything else of an upload. A digest
that is remembered counts only while the file is provably the one that was read: its device, inode, size,
time of change and time of its inode's change (``ctime``) are the same. The last is the kernel's own: a
program can set a file's time of change back, but not that one. A file that was written less than two
seconds before it was read is not remembered, as a later write might leave the same times on file systems
that count in seconds; nor is one that changes while it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from kernel_actions import built

# A Hub keeps a larger file as LFS whatever it holds.
LARGEST_IN_GIT = 10_000_000
_FILE_NAME = "digests.json"
_SCHEMA = 1
# How long a file has to be at rest to be remembered, in nanoseconds: the coarsest clock of a file system.
_REST = 2_000_000_000
_MOST_REMEMBERED = 20_000
_LARGEST_MEMORY = 20_000_000
# What is read at once, in bytes.
_PIECE = 1 << 18

_State = tuple[int, int, int, int, int]


@dataclass(frozen=True)
class Digest:
    """What a file holds: its size in bytes, its git id (empty for one that is too large to be kept in git
    itself) and its SHA-256, both in hexadecimal."""

    size: int
    oid: str
    sha256: str


def of(path: Path) -> Digest:
    """Read the file ``path``."""
    with path.open("rb", buffering=0) as file:
        return _read(file, os.fstat(file.fileno()).st_size)


def git_id(data: bytes) -> str:
    """The git id of a file that holds ``data``, in hexadecimal."""
    sha1 = _sha1(len(data))
    sha1.update(data)
    return sha1.hexdigest()


def git_id_of(path: Path) -> str:
    """The git id of the file ``path``, of whatever size; it is read once more."""
    with path.open("rb", buffering=0) as file:
        sha1 = _sha1(os.fstat(file.fileno()).st_size)
        for piece in _pieces(file):
            sha1.update(piece)
    return sha1.hexdigest()


def _sha1(size: int) -> hashlib._Hash:
    """What makes the git id of a file of ``size`` bytes, once it was given all of them."""
    return hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)


def _pieces(file: FileIO) -> Iterator[memoryview]:
    # One piece of memory, which stays in a core's cache: each new one has its pages made by the system.
    piece = memoryview(bytearray(_PIECE))
    while got := file.readinto(piece):
        yield piece[:got]


def _read(file: FileIO, size: int) -> Digest:
    sha1, sha256 = _sha1(size), hashlib.sha256()
    is_large = size > LARGEST_IN_GIT
    count = 0
    for piece in _pieces(file):
        count += len(piece)
        if not is_large:
            sha1.update(piece)
        sha256.update(piece)
    # One that grew meanwhile has no git id that is right; the Hub refuses what it is sent then.
    return Digest(count, "" if is_large or count != size else sha1.hexdigest(), sha256.hexdigest())


class Memory:
    """The digests of files that were read before, kept in ``folder``. Threads may share it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE_NAME
        self._known = _load(self._path)
        self._is_changed = False

    def of(self, path: Path) -> Digest:
        """The digest of the file ``path``, which is read unless it is known."""
        key = os.path.abspath(path)
        with path.open("rb", buffering=0) as file:
            # Of the opened file: a network's file system asks its server then.
            state = _state(os.fstat(file.fileno()))
            found = self._known.get(key)
            if found is not None and found[0] == state:
                return found[1]
            started = time.time_ns()
            digest = _read(file, state[2])
            is_at_rest = _state(os.fstat(file.fileno())) == state and max(state[3:]) < started - _REST
        if is_at_rest:
            self._known[key] = (state, digest)
            self._is_changed = True
        return digest

    def save(self) -> None:
        """Keep what is known for the next time. What cannot be kept is read again then."""
        if not self._is_changed:
            return
        # The newest are last. What is gone need not be remembered.
        kept = {path: one for path, one in self._known.items() if os.path.exists(path)}
        listed = list(kept.items())[-_MOST_REMEMBERED:]
        value = {
            "schema": _SCHEMA,
            "files": {path: [*state, one.oid, one.sha256] for path, (state, one) in listed},
        }
        with suppress(OSError):
            built.write_whole(self._path, json.dumps(value).encode(), mode=0o600)


def _state(found: os.stat_result) -> _State:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _load(path: Path) -> dict[str, tuple[_State, Digest]]:
    """What was kept; nothing where that cannot be read, or where another user may have written it."""
    try:
        with path.open("rb") as file:
            said = os.fstat(file.fileno())
            if said.st_uid != os.getuid() or stat.S_IMODE(said.st_mode) & 0o022:
                return {}
            value = json.loads(file.read(_LARGEST_MEMORY))
        if value["schema"] != _SCHEMA:
            return {}
        return {name: _entry(*one) for name, one in value["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _entry(
    device: int, inode: int, size: int, changed: int, inode_changed: int, oid: str, sha256: str
) -> tuple[_State, Digest]:
    if len(sha256) != 64 or len(oid) not in (0, 40) or not all(isinstance(one, str) for one in (oid, sha256)):
        raise ValueError("not a digest")
    return (device, inode, size, changed, inode_changed), Digest(size, oid, sha256)
