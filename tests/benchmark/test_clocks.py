"""The clocks: what happens around a sample, in which order; on a GPU that is written down in place of one."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kernel_actions.benchmark import clocks, machine
from kernel_actions.benchmark.clocks import Clocks, cpu_cache, needs_flush

from tests.tools import leave_out


class FakeTorch:
    """As much of Torch as the clocks use, with a log of what is called."""

    uint8 = "uint8"

    def __init__(self) -> None:
        self.log: list[str] = []
        self.cuda = SimpleNamespace(
            Event=lambda enable_timing: FakeEvent(self),
            synchronize=lambda: self.log.append("synchronize"),
            _sleep=lambda ticks: self.log.append(f"sleep {ticks}"),
            get_device_properties=lambda _: SimpleNamespace(L2_cache_size=60 << 20),
            mem_get_info=lambda: (16 << 30, 32 << 30),
        )

    def zeros(self, size: int, **_: object) -> Any:
        return SimpleNamespace(
            size=size, zero_=lambda: self.log.append("flush"), copy_=lambda _: self.log.append("copy")
        )

    ones = zeros


class FakeEvent:
    """An event; between two of them are 3 ms."""

    def __init__(self, torch: FakeTorch) -> None:
        self.torch = torch

    def record(self) -> None:
        self.torch.log.append("record")

    def synchronize(self) -> None:
        self.torch.log.append("wait")

    def elapsed_time(self, _: FakeEvent) -> float:
        return 3.0


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)  # type: ignore[arg-type]
    return fake


def test_events_are_around_calls_that_are_queued_behind_a_delay(torch: FakeTorch) -> None:
    made = Clocks("cuda")
    assert made.first == "events"
    seconds = made.sample("events", [lambda: torch.log.append("call")] * 3, 1e-3)
    assert seconds == pytest.approx(1e-3)
    assert torch.log == ["flush", "sleep 4000000", "record", "call", "call", "call", "record", "wait"]


def test_a_delay_has_an_end(torch: FakeTorch) -> None:
    Clocks("cuda").sample("events", [lambda: None], 60.0)
    assert torch.log[1] == "sleep 10000000"


def test_the_hosts_time_is_from_idle_to_idle(torch: FakeTorch) -> None:
    Clocks("cuda").sample("wall", [lambda: torch.log.append("call")])
    assert torch.log == ["flush", "synchronize", "call", "synchronize"]


def test_buffers_are_larger_than_the_cache_and_fit_the_memory(torch: FakeTorch) -> None:
    made = Clocks("cuda")
    assert made.flush_bytes == 120 << 20
    assert made.buffer_bytes == 1 << 30  # A sixteenth of what is free.
    made.sample_copy("events")
    assert "flush" not in torch.log and "copy" in torch.log


def test_an_interrupted_sample_is_taken_again(torch: FakeTorch, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([0, 1, 1, 2, 2, 2])
    monkeypatch.setattr(clocks, "_preemptions", lambda: next(seen))
    times = iter([9.0e-6, 8.0e-6, 5.0e-6])
    made = Clocks("cpu")
    monkeypatch.setattr(made, "_wall", lambda calls: next(times))
    assert made.sample("wall", [lambda: None]) == 5.0e-6
    assert made.retaken == 2
    assert torch.log.count("flush") == 3


def test_of_samples_that_are_all_interrupted_the_shortest_counts(
    torch: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = iter(range(100))
    monkeypatch.setattr(clocks, "_preemptions", lambda: next(seen))
    made = Clocks("cpu")
    times = iter([5e-6, 4e-6, 3e-6, 6e-6, 7e-6, 1e-9])
    monkeypatch.setattr(made, "_wall", lambda calls: next(times))
    assert made.sample("wall", [lambda: None]) == 3e-6
    # One that takes long is not taken again: on a busy machine, none is undisturbed.
    monkeypatch.setattr(made, "_wall", lambda calls: 0.2)
    before = made.retaken
    assert made.sample("wall", [lambda: None]) == 0.2
    assert made.retaken == before


@pytest.mark.parametrize(
    ("moved", "seconds", "expected"),
    [(None, 1.0, True), (200_000, 1e-5, True), (8_000, 1e-3, False), (8_000, 1e-5, True), (10**9, 1.0, True)],
)
def test_caches_are_flushed_where_it_matters(moved: int | None, seconds: float, expected: bool) -> None:
    assert needs_flush(moved, seconds) is expected


def test_this_machine_says_how_large_its_cache_is() -> None:
    if not Path("/sys/devices/system/cpu/cpu0/cache").is_dir():
        leave_out("Linux")
    assert cpu_cache() > 0


def _nvidia_smi(folder: Path, text: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)


def test_what_nvidia_smi_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    said = "580.65.06, 1980, 3201, 1980, 3201, 700.00, [N/A]"
    _nvidia_smi(tmp_path, f'[ "$2" = GPU-abc ] && echo "{said}"')
    found = machine._nvidia(SimpleNamespace(uuid="abc"))
    assert found["driver"] == "580.65.06"
    assert (found["sm_clock_mhz"], found["memory_clock_mhz"], found["power_limit_watt"]) == (1980, 3201, 700)
    assert found["temperature_celsius"] is None
    for text in ("exit 9", "echo nonsense", "true"):
        _nvidia_smi(tmp_path, text)
        assert machine._nvidia(SimpleNamespace()) == {}
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert machine._nvidia(SimpleNamespace()) == {}
