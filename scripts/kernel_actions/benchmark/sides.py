"""The two sides of a measurement: the kernel, and the baseline, in this process or in one of its own.

Two variants with different names for their operators can be loaded side by side, and are: then both are
timed by the same process, on the same clocks. Where the names are the same, the second registration would
fail, and the baseline runs in a process that does what it is told, one sample at a time.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any, Protocol

from kernel_actions.benchmark import cases
from kernel_actions.benchmark.cases import Case
from kernel_actions.benchmark.clocks import Clocks, needs_flush

if TYPE_CHECKING:
    from kernel_actions.benchmark.model import Clock

# Calls that make one sample: as many as take this long, in seconds, and no more than this many.
_SAMPLE = 1e-3
_MOST_CALLS = 16
# A call that takes less, in seconds, is timed on the host as well: starting it is part of its cost.
SMALL = 100e-6
# Warm enough: two medians in a row that differ by less, at the latest after so long or so often.
_STABLE = 0.05
_LONGEST_WARMING = 2.0
_MOST_PASSES = 50
_WINDOW = 3
# The share of the device's memory that the inputs of one sample may take.
_MEMORY_SHARE = 0.1
_PROGRAM = Path(__file__).resolve().parent / "worker.py"


@dataclass(frozen=True)
class Pace:
    """How a workload is sampled: how many calls, by which clocks, and whether caches are flushed."""

    calls: int
    clocks: tuple[Clock, ...]
    is_flushed: bool


class Side(Protocol):
    """One side: what can be prepared and sampled."""

    def prepare(self, index: int, calls: int, number: int, passes: int = _MOST_PASSES) -> str:
        """Set workload ``index`` up, ``calls`` times, and warm it up; return why that is not possible.

        Inputs are those of ``number`` and the numbers after it.
        """
        ...

    def sample(self, clock: Clock, is_flushed: bool) -> float:
        """Seconds a call, from one sample."""
        ...

    def release(self) -> None:
        """Let go of what was prepared."""
        ...


class Loaded:
    """A side in this process."""

    def __init__(self, module: ModuleType, listed: Sequence[Case], clocks: Clocks) -> None:
        self.module = module
        self.cases = listed
        self.clocks = clocks
        self.instances: list[Any] = []
        self.calls: list[Callable[[], object]] = []
        self.delay = 0.0

    def prepare(self, index: int, calls: int, number: int, passes: int = _MOST_PASSES) -> str:
        """As ``Side`` says, but what goes wrong is raised."""
        case = self.cases[index]
        self.release()
        self.instances = [case.make(self.module, self.clocks.device, number + one) for one in range(calls)]
        self.calls = [case.call(instance) for instance in self.instances]
        self.delay = warm(self.clocks, self.calls, passes)
        return ""

    def pace(self, moved: int | None) -> Pace:
        """How to sample what was prepared, with one call, and moves ``moved`` bytes."""
        seconds = min(self.clocks.seconds(self.calls) for _ in range(_WINDOW))
        clocks = self.clocks
        if clocks.first == "events":
            seconds = statistics.median(clocks.sample("events", self.calls, self.delay) for _ in range(3))
        calls = min(max(math.ceil(_SAMPLE / seconds), 1), _MOST_CALLS)
        if moved is not None:
            calls = max(min(calls, int(_memory(clocks) * _MEMORY_SHARE / moved)), 1)
        is_small = clocks.first == "events" and seconds < SMALL
        return Pace(calls, ("events", "wall") if is_small else (clocks.first,), needs_flush(moved, seconds))

    def sample(self, clock: Clock, is_flushed: bool) -> float:
        """Seconds a call, from one sample."""
        return self.clocks.sample(clock, self.calls, self.delay, is_flushed=is_flushed)

    def release(self) -> None:
        """Let go of what was prepared."""
        self.instances = []
        self.calls = []


class Apart:
    """A side in a process of its own, which ends with this one."""

    def __init__(self, folder: Path, job: Path) -> None:
        requests, asking = os.pipe()
        answered, answers = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-IuB", str(_PROGRAM), str(job), str(folder), str(requests), str(answers)],
            pass_fds=(requests, answers),
            stdin=subprocess.DEVNULL,
        )
        os.close(requests)
        os.close(answers)
        # Files, which are closed once: the number of a pipe that was closed may be another file's already.
        self._writer: IO[str] = os.fdopen(asking, "w", encoding="utf-8")
        self._reader: IO[str] = os.fdopen(answered, "r", encoding="utf-8")
        self._ask({"do": "load"})

    def prepare(self, index: int, calls: int, number: int, passes: int = _MOST_PASSES) -> str:
        """As ``Side`` says."""
        return str(
            self._ask({"do": "prepare", "index": index, "calls": calls, "number": number, "passes": passes})
        )

    def sample(self, clock: Clock, is_flushed: bool) -> float:
        """Seconds a call, from one sample."""
        return float(self._ask({"do": "sample", "clock": clock, "is_flushed": is_flushed}))

    def release(self) -> None:
        """Let go of what was prepared."""
        self._ask({"do": "release"})

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(OSError):
            self._writer.close()
        self._reader.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, request: dict[str, Any]) -> Any:
        try:
            self._writer.write(json.dumps(request) + "\n")
            self._writer.flush()
            line = self._reader.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError("the baseline's process ended early")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["value"]


def serve(load: Callable[[], Loaded], requests: int, answers: int) -> None:
    """Load a side and do what another process asks for, until it closes its end."""
    side: Loaded | None = None
    with os.fdopen(requests, "r", encoding="utf-8") as lines:
        for line in lines:
            try:
                side = side or load()
                answer: dict[str, Any] = {"value": _serve_one(side, json.loads(line))}
            except Exception as error:  # Whatever it is, the other side has to know.
                answer = {"error": cases.described(error)}
            os.write(answers, (json.dumps(answer) + "\n").encode())


def _serve_one(side: Loaded, request: dict[str, Any]) -> object:
    if request["do"] == "prepare":
        arguments = [int(request[name]) for name in ("index", "calls", "number", "passes")]
        return prepared(side, *arguments)
    if request["do"] == "sample":
        return side.sample(request["clock"], bool(request["is_flushed"]))
    if request["do"] == "release":
        side.release()
    return None


def prepared(side: Side, index: int, calls: int, number: int, passes: int = _MOST_PASSES) -> str:
    """Prepare ``side``; return why that is not possible, or what is wrong with the result: it is no error
    when a baseline cannot do everything that the kernel can."""
    try:
        refusal = side.prepare(index, calls, number, passes)
        if not refusal and isinstance(side, Loaded):
            refusal = side.cases[index].wrong(side.instances[0])
    except Exception as error:
        refusal = cases.described(error)
    if refusal:
        side.release()
    return refusal


def warm(clocks: Clocks, calls: Sequence[Callable[[], object]], passes: int = _MOST_PASSES) -> float:
    """Call until the time is stable; the time in seconds that it takes to queue all calls."""
    times: list[float] = []
    deadline = time.monotonic() + _LONGEST_WARMING
    while len(times) < passes and (time.monotonic() < deadline or not times):
        times.append(clocks.seconds(calls))
        if len(times) >= 2 * _WINDOW:
            before, now = (
                statistics.median(part) for part in (times[-2 * _WINDOW : -_WINDOW], times[-_WINDOW:])
            )
            if abs(now - before) <= _STABLE * before:
                break
    return clocks.queueing(calls)


@contextlib.contextmanager
def closing(side: Side | None) -> Iterator[None]:
    """End the process of ``side``, if it has one."""
    try:
        yield
    finally:
        if isinstance(side, Apart):
            side.close()


def _memory(clocks: Clocks) -> int:
    """The device's memory that is free, in bytes."""
    if clocks.device == "cuda":
        import torch

        return int(torch.cuda.mem_get_info()[0])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
