"""The report of a benchmark: what was measured, on what, and what follows; and its JSON."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast

from kernel_actions.benchmark import decide
from kernel_actions.benchmark.decide import Comparison, Verdict

SCHEMA = 1
Kind = Literal["kernel", "baseline", "peer", "copy"]
Clock = Literal["wall", "events"]
_KINDS = ("kernel", "baseline", "peer", "copy")
_CLOCKS = ("wall", "events")


@dataclass(frozen=True)
class Series:
    """The samples of one side of a workload, in seconds a call, round by round. Peers and the copy are in
    the first rounds alone, where rounds were added for the comparison with the baseline.

    ``clock``: ``events`` is the time on the GPU alone, ``wall`` the time on the host, from the first call
    to the end of what the calls started.
    """

    name: str
    kind: Kind
    clock: Clock
    rounds: tuple[tuple[float, ...], ...]

    @property
    def seconds(self) -> float:
        """The median of all samples."""
        return statistics.median(self._samples)

    @property
    def spread(self) -> float:
        """The distance between the quartiles, as a share of the median."""
        first, _, third = statistics.quantiles(self._samples, n=4, method="inclusive")
        return (third - first) / self.seconds

    @property
    def _samples(self) -> list[float]:
        return [one for samples in self.rounds for one in samples]


@dataclass(frozen=True)
class Workload:
    """A workload that was measured.

    ``bytes`` is what its author says that it has to move, each byte once; ``calls`` how many calls, each on
    inputs of its own, make one sample; ``flushed``: caches were, before each sample; ``copy_bytes`` what the
    copy moved, read and written. ``missing`` are peers that were not measured, with the reason; ``note`` says
    why there is no comparison, where there is a baseline.
    """

    name: str
    file: str
    bytes: int | None
    calls: int
    flushed: bool
    copy_bytes: int
    series: tuple[Series, ...]
    missing: tuple[tuple[str, str], ...] = ()
    note: str = ""

    @property
    def clocks(self) -> tuple[Clock, ...]:
        """The clocks of the kernel's series; the first is the one that counts first."""
        return tuple(one.clock for one in self.series if one.kind == "kernel")

    def find(self, kind: Kind, clock: Clock, name: str = "") -> Series | None:
        """The series of this kind and clock, and of that name if it is given."""
        for one in self.series:
            if one.kind == kind and one.clock == clock and name in ("", one.name):
                return one
        return None

    def kernel(self, clock: Clock) -> Series:
        """The kernel's own series."""
        found = self.find("kernel", clock)
        assert found is not None
        return found

    @property
    def peer_names(self) -> tuple[str, ...]:
        """The names of its peers, measured and missing."""
        named = [one.name for one in self.series if one.kind == "peer"]
        return tuple(dict.fromkeys([*named, *(name for name, _ in self.missing)]))

    @property
    def copy_rate(self) -> float | None:
        """The rate of the copy that was measured in turns with this workload, in bytes a second."""
        copy = next((one for one in self.series if one.kind == "copy"), None)
        return None if copy is None else self.copy_bytes / copy.seconds

    def share(self, series: Series) -> float | None:
        """The rate at which the workload's bytes were moved, as a share of the copy's rate."""
        rate = self.copy_rate
        return None if rate is None or self.bytes is None else self.bytes / series.seconds / rate

    def peers(self, clock: Clock) -> Iterator[tuple[Series, Comparison]]:
        """The peers, and how long each takes in units of the kernel's time."""
        mine = self.kernel(clock)
        for one in self.series:
            if one.kind == "peer" and one.clock == clock:
                yield one, decide.compare(one.rounds, mine.rounds[: len(one.rounds)])

    def against_baseline(self, clock: Clock) -> Comparison | None:
        """The kernel's time in units of the baseline's."""
        other = self.find("baseline", clock)
        return None if other is None else decide.compare(self.kernel(clock).rounds, other.rounds)


@dataclass(frozen=True)
class Skipped:
    """A workload that was not measured, and why."""

    name: str
    file: str
    reason: str


@dataclass(frozen=True)
class Failure:
    """A workload that failed before anything was timed: a wrong result, or an error."""

    name: str
    file: str
    line: int | None
    reason: str


@dataclass(frozen=True)
class Baseline:
    """What the kernel was compared with. ``source`` is as it was asked for; ``commit`` is that of the Hub.

    ``apart``: it ran in a process of its own, as both variants have the same name for their operators.
    """

    source: str
    variant: str
    digest: str | None
    commit: str | None
    apart: bool


@dataclass(frozen=True)
class Report:
    """The report of one run. ``digest`` and ``commit`` name the files and the sources that were measured;
    ``machine`` are facts about the machine, by name; ``complete`` is false when time ran out."""

    kernel: str
    variant: str
    digest: str | None
    commit: str | None
    dirty: bool
    device: str
    started: str
    seconds: float
    threshold: float
    baseline: Baseline | None
    machine: Mapping[str, str | int | float | None]
    workloads: tuple[Workload, ...]
    skipped: tuple[Skipped, ...] = ()
    failures: tuple[Failure, ...] = ()
    complete: bool = True
    confidence: float = field(default=decide.CONFIDENCE)

    def decisions(self) -> Iterator[tuple[Workload, Clock, Comparison, Verdict]]:
        """Each comparison with the baseline, and what it says."""
        for workload in self.workloads:
            for clock in workload.clocks:
                comparison = workload.against_baseline(clock)
                if comparison is not None:
                    yield workload, clock, comparison, comparison.verdict(self.threshold)

    @property
    def verdict(self) -> Literal["passed", "failed"]:
        """Whether something was measured, nothing failed, and nothing was slower past the threshold."""
        is_slower = any(verdict == "slower" for *_, verdict in self.decisions())
        return "passed" if self.workloads and not self.failures and not is_slower else "failed"

    def name_of(self, workload: Workload | Skipped | Failure) -> str:
        """The workload's name as people read it: without its class where there is only one."""
        listed: list[Workload | Skipped | Failure] = [*self.workloads, *self.skipped, *self.failures]
        classes = {one.name.rpartition(".")[0] for one in listed}
        return workload.name.rpartition(".")[2] if len(classes) == 1 else workload.name

    def as_json(self) -> dict[str, Any]:
        """The report for programs. docs/benchmarks.md describes it."""
        head = {
            name: value
            for name, value in vars(self).items()
            if name not in ("workloads", "skipped", "failures", "baseline", "machine")
        }
        return {
            "schema": SCHEMA,
            "verdict": self.verdict,
            **head,
            "baseline": None if self.baseline is None else asdict(self.baseline),
            "machine": dict(self.machine),
            "workloads": [self._workload_json(one) for one in self.workloads],
            "skipped": [asdict(one) for one in self.skipped],
            "failures": [asdict(one) for one in self.failures],
        }

    def _workload_json(self, workload: Workload) -> dict[str, Any]:
        series = []
        for one in workload.series:
            entry: dict[str, Any] = {
                "name": one.name,
                "kind": one.kind,
                "clock": one.clock,
                "median_seconds": one.seconds,
                "spread": round(one.spread, 4),
            }
            if one.kind == "copy":
                entry["bytes_per_second"] = workload.copy_rate
            elif workload.bytes is not None:
                entry["bytes_per_second"] = workload.bytes / one.seconds
                entry["share_of_copy"] = workload.share(one)
            series.append(entry | {"rounds": [list(samples) for samples in one.rounds]})
        return {
            "name": workload.name,
            "file": workload.file,
            "bytes": workload.bytes,
            "calls": workload.calls,
            "flushed": workload.flushed,
            "copy_bytes": workload.copy_bytes,
            "series": series,
            "peers": [
                {"name": peer.name, "clock": clock, **_json(comparison)}
                for clock in workload.clocks
                for peer, comparison in workload.peers(clock)
            ],
            "against_baseline": [
                {"clock": clock, "verdict": verdict, **_json(comparison)}
                for one, clock, comparison, verdict in self.decisions()
                if one is workload
            ],
            "missing": dict(workload.missing),
            "note": workload.note,
        }


def _json(comparison: Comparison) -> dict[str, float | int | None]:
    """A comparison in JSON, which has no infinity: an end that is not known is null."""
    return {name: value if value < math.inf else None for name, value in asdict(comparison).items()}


def read(value: object) -> Report:
    """The report of JSON that ``Report.as_json`` wrote; what was derived is derived again.

    Raises ``ValueError`` for anything else.
    """
    try:
        data = cast("dict[str, Any]", value)
        if data["schema"] != SCHEMA:
            raise ValueError(f"has schema {data['schema']}, not {SCHEMA}")
        baseline = data["baseline"]
        workloads, skipped, failures = read_measured(data)
        return Report(
            kernel=_text(data["kernel"]),
            variant=_text(data["variant"]),
            digest=data["digest"],
            commit=data["commit"],
            dirty=bool(data["dirty"]),
            device=_text(data["device"]),
            started=_text(data["started"]),
            seconds=float(data["seconds"]),
            threshold=float(data["threshold"]),
            baseline=None if baseline is None else Baseline(**baseline),
            machine=read_machine(data["machine"]),
            workloads=workloads,
            skipped=skipped,
            failures=failures,
            complete=bool(data["complete"]),
        )
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"is no report of a benchmark: {type(error).__name__}: {error}") from error


def read_measured(data: Any) -> tuple[tuple[Workload, ...], tuple[Skipped, ...], tuple[Failure, ...]]:
    """The workloads of JSON. Raises ``ValueError``, ``KeyError``, ``TypeError`` or ``AttributeError``."""
    return (
        tuple(_workload(one) for one in data["workloads"]),
        tuple(
            Skipped(_text(one["name"]), _text(one["file"]), _text(one["reason"])) for one in data["skipped"]
        ),
        tuple(
            Failure(
                _text(one["name"]),
                _text(one["file"]),
                None if one["line"] is None else int(one["line"]),
                _text(one["reason"]),
            )
            for one in data["failures"]
        ),
    )


def read_machine(data: Any) -> dict[str, str | int | float | None]:
    """The facts about a machine in JSON."""
    return {
        _text(name): value if isinstance(value, (str, int, float)) else None for name, value in data.items()
    }


def _workload(one: Any) -> Workload:
    series = tuple(_series(each) for each in one["series"])
    made = Workload(
        name=_text(one["name"]),
        file=_text(one["file"]),
        bytes=None if one["bytes"] is None else int(one["bytes"]),
        calls=int(one["calls"]),
        flushed=bool(one["flushed"]),
        copy_bytes=int(one["copy_bytes"]),
        series=series,
        missing=tuple((_text(name), _text(reason)) for name, reason in one["missing"].items()),
        note=_text(one["note"]),
    )
    sides = {len(each.rounds) for each in series if each.kind in ("kernel", "baseline")}
    others = {len(each.rounds) for each in series} - sides
    if len(sides) != 1 or 0 in sides | others or max(others, default=0) > max(sides):
        raise ValueError(f"{made.name} has rounds that cannot be paired")
    return made


def _series(one: Any) -> Series:
    rounds = tuple(tuple(float(sample) for sample in samples) for samples in one["rounds"])
    if one["kind"] not in _KINDS or one["clock"] not in _CLOCKS:
        raise ValueError(f"{one['kind']} by {one['clock']} is no series")
    if any(not samples or not all(0 < sample < 1e6 for sample in samples) for samples in rounds):
        raise ValueError(f"{one['name']} has no times, or impossible ones")
    if sum(map(len, rounds)) < 2:
        raise ValueError(f"{one['name']} has too few times")
    return Series(_text(one["name"]), one["kind"], one["clock"], rounds)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value
