"""Running other programs: their output, their end, and no secret in their environment."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kernel_actions import console
from kernel_actions.errors import Interrupted, WrongSurroundings

# Names of variables that hold secrets: tokens of the Hub, of GitHub and of a job's identity, keys.
_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|_KEY$|NETRC|(?<![A-Z])AUTH(?![A-Z])", re.IGNORECASE
)
# A user and a password inside an address, as package indexes and proxies have them.
_SECRET_VALUE = re.compile(r"://[^/@\s]+@")
# How long a child may take to end by itself once it was asked to, in seconds.
_GRACE = 5.0


@dataclass(frozen=True)
class Finished:
    """How a program ended. ``returncode`` is negative for a signal; ``output`` is both streams."""

    returncode: int
    output: str


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` without variables that hold a secret, going by their name or value.

    For every child that runs code which is not the suite's own: compilers, tests, the kernel.
    """
    return {
        name: value
        for name, value in environment.items()
        if not _SECRET_NAME.search(name) and not _SECRET_VALUE.search(value)
    }


def run(
    arguments: Sequence[str | Path],
    *,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
) -> Finished:
    """Run a program to its end and return its output, as lines are passed to ``on_line``.

    The program gets its own process group, which is ended with it: when this command is
    interrupted, nothing is left running. Without ``environment`` the child gets this process's
    variables but for secrets.

    Raises ``WrongSurroundings`` when the program is missing, ``Interrupted`` on a signal.
    """
    try:
        child = subprocess.Popen(
            [str(argument) for argument in arguments],
            cwd=directory,
            env=without_secrets(os.environ) if environment is None else dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise WrongSurroundings(
            f"{Path(str(arguments[0])).name} is not installed", repair="install it, then run again"
        ) from error
    except OSError as error:
        raise WrongSurroundings(f"cannot start {arguments[0]}: {error.strerror}") from error
    lines: list[str] = []
    try:
        assert child.stdout is not None
        for line in child.stdout:
            lines.append(line)
            if on_line is not None:
                on_line(line.rstrip("\n"))
        returncode = child.wait()
    finally:
        end_group(child)
    return Finished(returncode, "".join(lines))


def end_group(child: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """End ``child`` and all that it started in its process group: first asked, then forced."""
    _signal_group(child, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        child.wait(_GRACE)
    _signal_group(child, signal.SIGKILL)
    child.wait()


def _signal_group(child: subprocess.Popen[str] | subprocess.Popen[bytes], number: int) -> None:
    # Either error means that nobody of the group is left.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn SIGINT and SIGTERM into ``Interrupted``, so that ``finally`` clauses run."""

    def interrupt(number: int, _frame: object) -> None:
        # A second signal must not break the clean-up that the first one began.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Interrupted(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def locked(path: Path, held: str) -> Iterator[None]:
    """Hold the lock file ``path``, which goes with the process, however that ends.

    ``held`` says what another process that holds it is doing, while this one waits.
    """
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.say(f"{held}: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
