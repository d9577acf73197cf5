"""How much memory a build takes: all its processes together, looked at from outside."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

# Seconds between two looks, once it is no short build. A look takes some milliseconds of a machine with
# hundreds of processes.
_EVERY = 1.0
_FIRST = 0.1
# The place of the resident pages among the fields behind the name: proc_pid_stat(5).
_RESIDENT = 21


class Peak:
    """The most memory that was seen, in bytes; ``None`` where nothing was seen."""

    def __init__(self) -> None:
        self.bytes: int | None = None

    def look(self) -> None:
        """Add up what the builders have right now."""
        with contextlib.suppress(OSError, ValueError):
            total = _resident(os.getpid(), _build_users())
            if total:
                self.bytes = max(self.bytes or 0, total)


@contextlib.contextmanager
def watched(every: float = _EVERY) -> Iterator[Peak]:
    """Watch the memory of what is built meanwhile; on Linux alone.

    Builders are descendants of this process where Nix builds by itself, and of the daemon, under the users of
    the group nixbld, where that builds; those may build for others at the same time too.
    """
    peak = Peak()
    ended = threading.Event()

    def watch() -> None:
        pause = _FIRST
        while not ended.wait(pause):
            peak.look()
            pause = min(2 * pause, every)

    thread = threading.Thread(target=watch, name="memory", daemon=True)
    if sys.platform.startswith("linux"):
        thread.start()
    try:
        yield peak
    finally:
        ended.set()
        if thread.is_alive():
            thread.join(every + 1)


def _build_users() -> frozenset[int]:
    """The users that a daemon's builders run as."""
    import grp
    import pwd

    found = set()
    with contextlib.suppress(KeyError):
        for name in grp.getgrnam("nixbld").gr_mem:
            with contextlib.suppress(KeyError):
                found.add(pwd.getpwnam(name).pw_uid)
    return frozenset(found)


def _resident(ancestor: int, users: frozenset[int]) -> int:
    """The bytes in memory of the descendants of a process, and of all processes of ``users``."""
    parents: dict[int, int] = {}
    sizes: dict[int, int] = {}
    wanted: set[int] = set()
    page = os.sysconf("SC_PAGE_SIZE")
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            with open(f"/proc/{entry.name}/stat", "rb") as file:
                # The name, in parentheses, may hold anything; the numbers are behind it.
                fields = file.read().rpartition(b")")[2].split()
            number = int(entry.name)
            parents[number] = int(fields[1])
            sizes[number] = int(fields[_RESIDENT]) * page
            if users and entry.stat().st_uid in users:
                wanted.add(number)
        except (OSError, IndexError, ValueError):
            continue  # It ended meanwhile.
    for number in parents:
        chain = [number]
        while chain[-1] in parents and chain[-1] != ancestor and len(chain) < 1000:
            chain.append(parents[chain[-1]])
        if chain[-1] == ancestor and number != ancestor:
            wanted.add(number)
    return sum(sizes[number] for number in wanted if number in sizes)
