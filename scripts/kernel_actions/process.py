"""Running other programs: their output, their end, and no secret in their environment."""

from __future__ import annotations

import codecs
import fcntl
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kernel_actions import console
from kernel_actions.errors import WrongSurroundings
from kernel_actions.github import STEP_FILES

# Names of variables that hold secrets: tokens of the Hub, of GitHub and of a job's identity, keys.
_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|APIKEY|NETRC|WEBHOOK|PRIVATE"
    r"|(?<![A-Z])(?:AUTH|CREDS?|KEY|PASS|PAT)(?![A-Z])|_PWD$",
    re.IGNORECASE,
)
# A user and a password inside an address, as package indexes and proxies have them.
_SECRET_VALUE = re.compile(r"://[^/@\s]+@")
# How long a child may take to end by itself once it was asked to, in seconds.
_GRACE = 5.0
# How often a silent child is looked after, in seconds.
_POLL = 0.1
# Of a line that is not kept, in characters: who prints one without end is not waited for.
_LONGEST_LINE = 16_000_000
# As much of what a program says apart from its output is kept, in bytes.
_LARGEST_ERRORS = 1_000_000


@dataclass(frozen=True)
class Finished:
    """How a program ended. ``returncode`` is negative for a signal; ``output`` is both streams, or the
    standard output alone where the other was asked for apart, as ``errors``."""

    returncode: int
    output: str
    errors: str = ""


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` without variables that hold a secret, going by their name or value, and
    without those by which a step of a job speaks to the steps after it.

    For every child that runs code which is not the suite's own: compilers, tests, the kernel.
    """
    return {
        name: value
        for name, value in environment.items()
        if name not in STEP_FILES and not _SECRET_NAME.search(name) and not _SECRET_VALUE.search(value)
    }


def without_credentials(text: str) -> str:
    """``text`` without users and passwords inside its addresses."""
    return _SECRET_VALUE.sub("://***@", text)


def run(
    arguments: Sequence[str | Path],
    *,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
    time_limit: float | None = None,
    errors_apart: bool = False,
    is_kept: bool = True,
    orphaned: signal.Signals = signal.SIGKILL,
) -> Finished:
    """Run a program to its end and return its output, as lines are passed to ``on_line``.

    The program gets its own process group, which is ended with it, and it ends when this process
    is killed: nothing is left running. Without ``environment`` the child gets this process's
    variables but for secrets. After ``time_limit`` seconds it is ended. With ``errors_apart`` what it
    says on its standard error is not part of its output. What is not ``is_kept`` is for ``on_line`` alone,
    and the longest lines are cut: a program that prints for hours fills no memory. ``orphaned`` is the signal
    that it gets when this process is killed: one that has to end others itself needs one that lets it.

    Raises ``WrongSurroundings`` when the program is missing or takes too long, ``Interrupted`` on
    a signal.
    """
    started = time.monotonic()
    said = tempfile.TemporaryFile() if errors_apart else None  # noqa: SIM115
    try:
        child = subprocess.Popen(
            [str(argument) for argument in arguments],
            cwd=directory,
            env=without_secrets(os.environ) if environment is None else dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said or subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_end_with_parent(orphaned),
        )
    except FileNotFoundError as error:
        raise WrongSurroundings(
            f"{Path(str(arguments[0])).name} is not installed", repair="install it, then run again"
        ) from error
    except (OSError, subprocess.SubprocessError) as error:
        raise WrongSurroundings(f"cannot start {arguments[0]}: {error}") from error
    lines: list[str] = []
    try:
        longest = None if is_kept else _LONGEST_LINE
        for line in _lines(child, None if time_limit is None else started + time_limit, longest):
            if is_kept:
                lines.append(line)
            if on_line is not None:
                on_line(line.rstrip("\n"))
        remaining = None if time_limit is None else max(0.0, started + time_limit - time.monotonic())
        returncode = child.wait(remaining)
    except subprocess.TimeoutExpired as error:
        name = Path(str(arguments[0])).name
        raise WrongSurroundings(
            f"{name} was ended: it took longer than {console.duration(time_limit or 0)}"
        ) from error
    finally:
        end_group(child)
        assert child.stdout is not None
        child.stdout.close()
    if said is None:
        return Finished(returncode, "".join(lines))
    with said:
        said.seek(0)
        return Finished(returncode, "".join(lines), said.read(_LARGEST_ERRORS).decode(errors="replace"))


def _lines(child: subprocess.Popen[bytes], limit: float | None, longest: int | None) -> Iterator[str]:
    """What ``child`` prints, line by line, until it ends, or the clock is at ``limit``.

    What it left running may hold its output open: that is ended with it, and what escaped is not
    waited for.
    """
    assert child.stdout is not None
    descriptor = child.stdout.fileno()
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    # The pieces of a line that has not ended: joined once, as it may have millions of characters.
    rest: list[str] = []
    size = 0
    deadline: float | None = None
    while deadline is None or time.monotonic() < deadline:
        if limit is not None and time.monotonic() > limit:
            break
        if not select.select([descriptor], [], [], _POLL)[0]:
            if deadline is None and child.poll() is not None:
                end_group(child)
                deadline = time.monotonic() + _GRACE
            continue
        data = os.read(descriptor, 1 << 16)
        if not data:
            break
        *whole, last = decoder.decode(data).split("\n")
        for line in whole:
            yield f"{''.join(rest)}{line}\n"
            rest.clear()
            size = 0
        size += len(last)
        if longest is None or size <= longest:
            rest.append(last)
    if any(rest):
        yield "".join(rest)


def _end_with_parent(number: signal.Signals) -> Callable[[], None] | None:
    """What makes a child end by a signal when this process is killed, which Linux alone can do."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    set_option = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def prepare() -> None:
        set_option(1, number)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:  # It was killed before this took effect.
            os._exit(1)

    return prepare


def keep_memory_private() -> None:
    """Have nothing of this process's memory and environment be written to a core dump, or be read by other
    processes of the same user, which Linux alone can do; root can read them still. What it starts is not
    kept so."""
    import resource

    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE


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
def locked(path: Path, held: str, until: float | None = None) -> Iterator[None]:
    """Hold the lock file ``path``, which goes with the process, however that ends.

    ``held`` says what another process that holds it is doing, while this one waits; ``until`` is when it has
    waited long enough, by ``time.monotonic``: then it raises ``TimeoutError``.
    Raises ``OSError`` where ``path`` is a link: whoever made it chose a file to be opened.
    """
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666), "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.say(f"{held}: waiting for it")
            _wait_for_lock(file.fileno(), until)
        yield


def _wait_for_lock(descriptor: int, until: float | None) -> None:
    if until is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return
    while time.monotonic() < until:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_POLL)
    raise TimeoutError
