"""One sample: caches flushed, a clock, some calls on inputs that nothing has touched since.

A call is timed as it is in use: its inputs come from memory, not from a cache that the last call left
them in. So before each sample a buffer larger than the last cache is written, and a sample of several
calls (those of a fast workload) has inputs of its own for each. Only where so few bytes are moved that
memory could not account for a hundredth of the time, nothing is flushed.

On a CPU, a sample during which the system took a core away from this process is no measurement of the
kernel: it is taken again, a few times at most, and then the shortest counts.

On a GPU, ``events`` are recorded around the calls, while the GPU is kept busy until all of them are
queued: what is timed is the GPU's work, not how fast Python can queue it. ``wall`` is the time on the
host until the GPU has finished. On a CPU there is ``wall`` alone.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernel_actions.benchmark.model import Clock

Calls = Sequence[Callable[[], object]]

_MIB = 1 << 20
_LEAST_FLUSH = 64 * _MIB
_MOST_FLUSH = 512 * _MIB
_COPY = {"cpu": 256 * _MIB, "cuda": 2048 * _MIB}
# Ticks of a GPU's clock in a second, at most: a delay counts as many.
_TICKS = 2e9
# The longest time that a GPU is kept waiting for the calls to be queued, in seconds.
_LONGEST_DELAY = 5e-3
# How often a sample is taken again that the system interrupted, and for how long in all, in seconds: of one
# that takes long, none is undisturbed on a busy machine.
_RETAKES = 4
_RETAKING = 0.05
# Bytes a second that any memory delivers, and the share of the time below which a cache makes no difference.
_SLOW_MEMORY = 2e9
_NO_DIFFERENCE = 0.01
# What no clock here can tell from zero, in seconds.
_LEAST = 1e-9


class Clocks:
    """The clocks of one device, ``cpu`` or one of Torch's kinds of accelerators."""

    def __init__(self, device: str) -> None:
        import torch

        self._torch: Any = torch
        # How many samples were taken again.
        self.retaken = 0
        self.device = device
        self.cache_bytes = self._cache()
        self.flush_bytes = min(max(2 * self.cache_bytes, _LEAST_FLUSH), _MOST_FLUSH)
        self.buffer_bytes = self._buffer()
        self._flushed = torch.zeros(self.flush_bytes, dtype=torch.uint8, device=device)
        self._source = torch.ones(self.buffer_bytes, dtype=torch.uint8, device=device)
        self._target = torch.zeros(self.buffer_bytes, dtype=torch.uint8, device=device)
        if device == "cuda":
            self._started: Any = self._torch.cuda.Event(enable_timing=True)
            self._ended: Any = self._torch.cuda.Event(enable_timing=True)

    @property
    def first(self) -> Clock:
        """The clock that counts first."""
        return "events" if self.device == "cuda" else "wall"

    @property
    def copy_bytes(self) -> int:
        """What the copy moves: each byte is read and written."""
        return 2 * self.buffer_bytes

    def copy(self) -> object:
        """The copy whose rate is the ceiling: device to device, or by all threads of the CPU."""
        return self._target.copy_(self._source)

    def synchronize(self) -> None:
        """Wait for what was started on the device."""
        if self.device != "cpu":
            getattr(self._torch, self.device).synchronize()

    def seconds(self, calls: Calls) -> float:
        """The time of all ``calls`` on the host, from warm caches: to find out how long they take."""
        self.synchronize()
        started = time.perf_counter()
        for call in calls:
            call()
        self.synchronize()
        return max(time.perf_counter() - started, _LEAST)

    def queueing(self, calls: Calls) -> float:
        """The time that it takes to start all ``calls``."""
        self.synchronize()
        started = time.perf_counter()
        for call in calls:
            call()
        took = time.perf_counter() - started
        self.synchronize()
        return took

    def sample(self, clock: Clock, calls: Calls, delay: float = 0.0, *, is_flushed: bool = True) -> float:
        """Seconds for each of ``calls``. ``delay`` is how long it takes to queue them."""
        if self.device == "cpu":
            return self._undisturbed(calls, is_flushed)
        if is_flushed:
            self._flushed.zero_()
        return self._events(calls, delay) if clock == "events" else self._wall(calls)

    def sample_copy(self, clock: Clock) -> float:
        """Seconds of the copy, which is larger than any cache."""
        return self.sample(clock, [self.copy], is_flushed=False)

    def _undisturbed(self, calls: Calls, is_flushed: bool) -> float:
        taken: list[float] = []
        while True:
            if is_flushed:
                self._flushed.zero_()
            before = _preemptions()
            taken.append(self._wall(calls))
            if _preemptions() == before:
                return taken[-1]
            if len(taken) > _RETAKES or sum(taken) * len(calls) > _RETAKING:
                return min(taken)
            self.retaken += 1

    def _wall(self, calls: Calls) -> float:
        self.synchronize()
        started = time.perf_counter()
        for call in calls:
            call()
        self.synchronize()
        return max((time.perf_counter() - started) / len(calls), _LEAST)

    def _events(self, calls: Calls, delay: float) -> float:
        # The whole queueing twice over: what is queued late is a gap that would be timed.
        self._torch.cuda._sleep(int(min(2 * delay, _LONGEST_DELAY) * _TICKS))
        self._started.record()
        for call in calls:
            call()
        self._ended.record()
        self._ended.synchronize()
        return max(float(self._started.elapsed_time(self._ended)) / 1e3 / len(calls), _LEAST)

    def _cache(self) -> int:
        if self.device == "cuda":
            return int(getattr(self._torch.cuda.get_device_properties(0), "L2_cache_size", 0))
        return cpu_cache() if self.device == "cpu" else 0

    def _buffer(self) -> int:
        wanted = _COPY.get(self.device, _COPY["cpu"])
        if self.device == "cuda":
            return int(min(wanted, self._torch.cuda.mem_get_info()[0] // 16))
        return wanted


def needs_flush(moved: int | None, seconds: float) -> bool:
    """Whether it can make a difference for a call of ``seconds`` where its ``moved`` bytes come from."""
    return moved is None or moved / _SLOW_MEMORY > _NO_DIFFERENCE * seconds


def _preemptions() -> int:
    """How often the system has taken a core away from this process, in all its threads."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def cpu_cache() -> int:
    """The bytes of the largest cache that the first core sees; 0 where nobody says."""
    largest = 0
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        try:
            text = path.read_text().strip()
            factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
            largest = max(largest, int(text.rstrip("KMG")) * factor)
        except (OSError, ValueError):
            continue
    return largest
