"""Running a kernel's tests: code that nobody has looked at, on a machine that is used again.

The process has a session of its own, variables from an allow-list, and time limits that are kept
from outside, whatever it is doing. Once it has ended, what it started is found and ended too: by
its session, by a mark in the environment, and, on Linux, because processes that lost their parent
become children of this one. Should this process itself be killed, another one does that.
"""

from __future__ import annotations

import codecs
import ctypes
import json
import os
import re
import resource
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, Protocol

from kernel_actions import github, process
from kernel_actions.errors import WrongInput, WrongSurroundings

MARK = "KERNEL_ACTIONS_TEST_RUN"
# What tests may need of this machine's variables. Everything else stays here: a deny-list would let
# through the secret that nobody thought of.
_ALLOWED = re.compile(
    r"PATH|LANG|LANGUAGE|LC_[A-Z]+|TZ|TERM|USER|LOGNAME|TMPDIR|LD_LIBRARY_PATH|DYLD_LIBRARY_PATH|CI|CC|CXX"
    r"|(?:http|https|no|all)_proxy|(?:HTTP|HTTPS|NO|ALL)_PROXY|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE"
    r"|(?:CUDA|CUDNN|CUBLAS|NVIDIA|NCCL|HIP|HSA|ROCM|ROCR|AMD|GPU|ZE|SYCL|ONEAPI|TRITON|TORCH|TORCHINDUCTOR"
    r"|PYTORCH|OMP|MKL|OPENBLAS|KMP|GOMP|MALLOC)_[A-Z0-9_]+"
    # Where the Hub is, and what is had from it already; never who asks.
    r"|HF_ENDPOINT|HF_HUB_OFFLINE|HF_HUB_DISABLE_XET|HF_HUB_CACHE|KERNELS_CACHE"
    # The runner ends what a job has left behind by it, should this process be killed.
    r"|RUNNER_TRACKING_ID"
)
# How long a process may take to end after it was told to, and how long a helper of the tests may take
# to end by itself after they have, in seconds.
_GRACE = 2.0
_AFTERGLOW = 0.5
# How long a process that was killed may take to be gone: the driver has to end what runs on the GPU.
_LAST_GRACE = 30.0
# How often a silent child is looked after, in seconds.
_POLL = 0.05
# The most of the output that is kept (its end), and the longest line of it.
_KEPT = 64_000
_LONGEST_LINE = 16_000
# The most that is taken of what the tests tell about themselves, in bytes.
_MOST_EVENTS = 256_000_000
_LONGEST_EVENT = 8_000_000
_MOST_STACKS = 256_000


@dataclass(frozen=True)
class Ended:
    """How a run ended. ``returncode`` is negative for a signal, ``tail`` the end of its output,
    ``stacks`` what Python wrote about its threads when it crashed or was ended, ``left`` the names of
    processes that outlived it and were ended, and ``unstoppable`` the ids of those that could not be.
    ``limit`` says which limit ended it."""

    returncode: int
    tail: str
    stacks: str
    seconds: float
    limit: Literal["", "test", "run"] = ""
    left: tuple[str, ...] = ()
    unstoppable: tuple[int, ...] = ()


class Watched(Protocol):
    """Who hears the events, and knows since when the test that runs now is running."""

    def hear(self, event: dict[str, Any]) -> None:
        """Take note of an event."""

    @property
    def running_since(self) -> float | None:
        """When the oldest test that runs was started, by the monotonic clock."""


@dataclass(frozen=True)
class Limits:
    """Seconds that one test, and the whole run, may take."""

    test: float
    run: float


@dataclass(frozen=True)
class Channels:
    """The numbers of the open files that the program writes events and stacks to."""

    events: int
    stacks: int


def variables(environment: Mapping[str, str], home: Path, passed: Iterable[str] = ()) -> dict[str, str]:
    """What tests get of the variables in ``environment``: those of the list, and those of ``passed``.

    Their home is ``home``, which is empty: tokens and settings are kept in homes.
    Raises ``WrongInput`` when a variable to pass is one that holds a secret.
    """
    allowed = {name: value for name, value in environment.items() if _ALLOWED.fullmatch(name)}
    for name in passed:
        if name in environment:
            allowed[name] = environment[name]
    clean = process.without_secrets(allowed)
    for name in passed:
        if name in environment and name not in clean:
            raise WrongInput(
                f"the variable {name} holds a secret, or is one of the runner's own: tests do not get it",
                repair="leave it out of test.environment-variables",
            )
    return clean | {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "HF_HOME": str(home / ".cache" / "huggingface"),
        "PYTHONNOUSERSITE": "1",
    }


def run(
    command: Callable[[Channels], Sequence[str | Path]],
    *,
    directory: Path,
    environment: Mapping[str, str],
    limits: Limits,
    watched: Watched,
    on_line: Callable[[str], None],
    on_partial: Callable[[str], None] | None = None,
    scratch: Path | None = None,
) -> Ended:
    """Run the program that ``command`` gives for its channels, to its end or to a limit. Its output is passed
    to ``on_line`` as it comes, and the beginning of a line that is not whole yet to ``on_partial``.
    ``scratch`` is a folder that is removed should this process be killed; else the caller removes it.

    Raises ``WrongSurroundings`` when it cannot be started, and ``Interrupted`` on a signal, after which
    nothing is left running either.
    """
    token = secrets.token_hex(16)
    own = dict(environment) | {MARK: token}
    started = time.monotonic()
    receiving, sending = os.pipe()
    mark = f"{MARK}={token}".encode()
    with (
        # The outermost: restored once nothing of it runs any more.
        github.kept_step_files(),
        tempfile.TemporaryFile() as stacks,
        _adopting(),
        _guarded(mark, scratch) as guard,
    ):
        before = _children(os.getpid())
        try:
            channels = Channels(sending, stacks.fileno())
            child = _start(command(channels), directory, own, channels)
        finally:
            os.close(sending)
        guard(child.pid)
        session = _Session(child, mark, before)
        assert child.stdout is not None
        channel = _Channel(child.stdout.fileno(), receiving, _Lines(on_line, on_partial), _Events(watched))
        try:
            limit = _watch(child, channel, limits, started, watched)
            if limit:
                session.dump()
        finally:
            # Also on an interrupt: whatever happens here, nothing of it stays.
            left, unstoppable = session.end()
            with suppress(OSError):
                channel.drain()
            os.close(receiving)
            child.stdout.close()
        return Ended(
            returncode=child.returncode if child.returncode is not None else -signal.SIGKILL,
            tail=channel.lines.text(),
            stacks=_read_stacks(stacks),
            seconds=time.monotonic() - started,
            limit=limit,
            left=left,
            unstoppable=unstoppable,
        )


def _start(
    arguments: Sequence[str | Path], directory: Path, environment: Mapping[str, str], channels: Channels
) -> subprocess.Popen[bytes]:
    def prepare() -> None:
        # No core files of crashes in the kernel's folder.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))

    try:
        return subprocess.Popen(
            [str(argument) for argument in arguments],
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(channels.events, channels.stacks),
            preexec_fn=prepare,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise WrongSurroundings(f"cannot start {arguments[0]}: {error}") from error


class _Lines:
    """Lines of output as they come: each is passed on, and the end of it all is kept."""

    def __init__(
        self, on_line: Callable[[str], None], on_partial: Callable[[str], None] | None = None
    ) -> None:
        self._on_line = on_line
        self._on_partial = on_partial
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""
        self._kept: list[str] = []
        self._size = 0

    def add(self, data: bytes, is_last: bool = False) -> None:
        """Take in what was printed."""
        *whole, self._rest = (self._rest + self._decoder.decode(data, is_last)).split("\n")
        for line in whole:
            self._say(line)
        while len(self._rest) > _LONGEST_LINE or (is_last and self._rest):
            self._say(self._rest[:_LONGEST_LINE])
            self._rest = self._rest[_LONGEST_LINE:]
        if self._rest and self._on_partial is not None:
            self._on_partial(self._rest)

    def _say(self, line: str) -> None:
        for start in range(0, len(line) or 1, _LONGEST_LINE):
            part = line[start : start + _LONGEST_LINE]
            self._on_line(part)
            self._kept.append(part)
            self._size += len(part) + 1
        if self._size > 2 * _KEPT:
            text = self.text()
            self._kept, self._size = [text], len(text)

    def text(self) -> str:
        """The end of the output."""
        return "\n".join(self._kept)[-_KEPT:]


class _Events:
    """Events as they come, from a process that may send anything."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._rest = b""
        self._size = 0

    def add(self, data: bytes) -> None:
        """Take in what was sent; what is no event, or too much, is dropped."""
        if self._size > _MOST_EVENTS:
            return
        self._size += len(data)
        if self._size > _MOST_EVENTS:
            reason = "more was told of the tests than anybody could read (256 MB)"
            self._watched.hear({"event": "internal-error", "reason": reason})
            return
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_EVENT:
            self._rest = b""
        for line in whole:
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict):
                self._watched.hear(event)


class _Channel:
    """What comes from a child: its output, and its events."""

    def __init__(self, output: int, events_from: int, lines: _Lines, events: _Events) -> None:
        self.lines = lines
        self._takers: dict[int, Callable[[bytes], None]] = {output: lines.add, events_from: events.add}

    @property
    def is_open(self) -> bool:
        """Whether there can be more."""
        return bool(self._takers)

    def take(self, seconds: float) -> bool:
        """Take in what is there, or comes within ``seconds``. Whether there was anything."""
        if not self._takers:
            time.sleep(min(seconds, 0.01))
            return False
        ready = select.select(list(self._takers), [], [], seconds)[0]
        for descriptor in ready:
            data = os.read(descriptor, 1 << 16)
            if data:
                self._takers[descriptor](data)
            else:
                del self._takers[descriptor]
        return bool(ready)

    def drain(self) -> None:
        """Take in what is there, up to what both pipes hold, and be done."""
        for _ in range(64):
            if not self.is_open or not self.take(0):
                break
        self.lines.add(b"", is_last=True)


def _watch(
    child: subprocess.Popen[bytes], channel: _Channel, limits: Limits, started: float, watched: Watched
) -> Literal["", "test", "run"]:
    """Listen to ``child`` until it has ended, or is at a limit, which is returned."""
    while child.poll() is None:
        now = time.monotonic()
        if now >= started + limits.run:
            return "run"
        if (since := watched.running_since) is not None and now >= since + limits.test:
            return "test"
        channel.take(_POLL)
    # What outlived the child may hold its output open, and go on printing: it is not waited for.
    ended = time.monotonic()
    while channel.is_open and time.monotonic() < ended + _AFTERGLOW and channel.take(0):
        pass
    return ""


def _read_stacks(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_MOST_STACKS).decode(errors="replace")


class _Session:
    """A child, and all that it has started."""

    def __init__(self, child: subprocess.Popen[bytes], mark: bytes, before: frozenset[int]) -> None:
        self._child = child
        self._mark = mark
        self._before = before | {child.pid}

    def dump(self) -> None:
        """Have the Python in it write down where it is: by the signal that its fault handler hears.

        The handler is C code, which runs whatever holds the interpreter's lock.
        """
        targets = [pid for pid in self._members() if _is_python(pid)] or [self._child.pid]
        for pid in targets[:8]:
            with suppress(OSError):
                os.kill(pid, signal.SIGABRT)
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(_GRACE)

    def end(self) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """End it all, and return the names of what the child left behind, and what cannot be ended."""
        was_running = self._child.poll() is None
        if was_running:
            self._signal_group(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(_GRACE)
            self._signal_group(signal.SIGKILL)
        left: dict[int, str] = {}
        deadline = time.monotonic() + (0 if was_running else _AFTERGLOW)
        while (alive := self._members()) and time.monotonic() < deadline:
            time.sleep(0.02)
        if not was_running:
            left = {pid: _name(pid) for pid in alive}
            for pid in alive:
                with suppress(OSError):
                    os.kill(pid, signal.SIGTERM)
            if alive:
                time.sleep(0.1)
        deadline = time.monotonic() + _LAST_GRACE
        while alive := self._members():
            for pid in alive:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self._reap(alive)
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        self._signal_group(signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(_GRACE)
        self._reap(_children(os.getpid()) - self._before)
        return tuple(sorted({name for name in left.values() if name})), tuple(alive)

    def _signal_group(self, number: int) -> None:
        # Either error means that nobody of the group is left.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, number)

    def _members(self) -> list[int]:
        """The living processes of it: its session, those with its mark, and what this process adopted,
        with all that they started."""
        return _family(self._child.pid, self._mark, self._before)

    def _reap(self, pids: Iterable[int]) -> None:
        for pid in pids:
            if pid != self._child.pid:
                with suppress(OSError):
                    os.waitpid(pid, os.WNOHANG)


def _family(session: int, mark: bytes, others: frozenset[int]) -> list[int]:
    """The living processes of a session, those with a mark, and the children of this process that are
    not ``others``, with all that they started."""
    own, found = os.getpid(), set()
    facts = dict(_processes())
    for pid, (parent, its_session, _) in facts.items():
        if its_session == session or (parent == own and pid not in others) or _has(pid, mark):
            found.add(pid)
    size = -1
    while size != len(found):
        size = len(found)
        found |= {pid for pid, (parent, _, _) in facts.items() if parent in found}
    found.discard(own)
    return sorted(pid for pid in found if facts[pid][2] not in "ZX")


@contextmanager
def _guarded(mark: bytes, scratch: Path | None) -> Iterator[Callable[[int], None]]:
    """Have a process at hand that ends the tests, and removes ``scratch``, when this one is killed.

    Gives what tells it the id of their session, once that is known.
    """
    receiving, sending = os.pipe()
    guard = os.fork()
    if guard == 0:
        try:
            _guard(receiving, mark, scratch)
        finally:
            os._exit(0)
    os.close(receiving)

    def tell(text: str) -> None:
        # Somebody may have ended it.
        with suppress(OSError):
            os.write(sending, f"{text}\n".encode())

    try:
        yield lambda session: tell(str(session))
    finally:
        tell("done")
        os.close(sending)
        with suppress(OSError):
            os.waitpid(guard, 0)


def _guard(receiving: int, mark: bytes, scratch: Path | None) -> None:
    """What that process does: it waits until the pipe is closed, by its owner's end."""
    # Whoever ends a job by the terminal, or by its group, does not mean this process.
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # It holds nothing open that others wait for.
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    for descriptor in _opened():
        if descriptor > 2 and descriptor != receiving:
            with suppress(OSError):
                os.close(descriptor)
    said = b""
    while data := os.read(receiving, 256):
        said += data
    words = said.decode().split()
    if "done" in words:
        return
    session = int(words[0]) if words else -1
    deadline = time.monotonic() + _LAST_GRACE
    while True:
        with suppress(OSError):
            if session > 0:
                os.killpg(session, signal.SIGKILL)
        alive = _family(session, mark, frozenset())
        for pid in alive:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not alive or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    if scratch is not None:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _adopting() -> Iterator[None]:
    """Become the parent of processes that lose theirs, which Linux alone offers."""
    if not sys.platform.startswith("linux"):
        yield
        return
    set_option = ctypes.CDLL(None).prctl
    set_option(36, 1)  # PR_SET_CHILD_SUBREAPER
    try:
        yield
    finally:
        set_option(36, 0)


def _processes() -> Iterator[tuple[int, tuple[int, int, str]]]:
    """All processes: id, and the id of the parent and of the session, and the state."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                data = Path(f"/proc/{name}/stat").read_text(errors="replace")
                # The name, in parentheses, may hold anything.
                fields = data.rpartition(")")[2].split()
                yield int(name), (int(fields[1]), int(fields[3]), fields[0])


def _children(parent: int) -> frozenset[int]:
    return frozenset(pid for pid, facts in _processes() if facts[0] == parent)


def _opened() -> list[int]:
    """The numbers of the files that this process has open, or may have."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        with suppress(OSError):
            return [int(name) for name in os.listdir(folder)]
    return list(range(256))


def _has(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read()
    except OSError:
        return False


def _is_python(pid: int) -> bool:
    return "python" in _name(pid).split(" ")[0]


def _name(pid: int) -> str:
    """What a process is called: its program, and the first of its arguments."""
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
        said = [part for part in data.decode(errors="replace").split("\0") if part][:4]
        return " ".join([Path(said[0]).name, *said[1:]])[:120] if said else ""
    except OSError:
        return ""
