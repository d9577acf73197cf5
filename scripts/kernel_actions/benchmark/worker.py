"""Runs the benchmarks of a built variant and writes down all times. A program of its own.

It is run in a fresh process, beside the kernel that it measures. Arguments: the file of the job, whose
fields are those of ``Job``. The answer is written whole after each workload, so that what was measured is
there when time runs out. With the folder of a variant and two descriptors as further arguments, it is
the process of a baseline, and does what it is told through them.
"""

from __future__ import annotations

import fnmatch
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

if __name__ == "__main__":
    # Last, so that nothing of the suite takes the place of what the kernel imports.
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from kernel_actions import console
from kernel_actions.benchmark import cases, decide, machine, sides
from kernel_actions.benchmark.cases import Case, CaseError
from kernel_actions.benchmark.clocks import Clocks
from kernel_actions.benchmark.sides import Apart, Loaded, Pace, Side

# Rounds after which the inputs are made anew: where they lie in memory makes a difference that must not
# be taken for one between two builds.
BLOCK = 4
# Passes that warm up a workload whose code is warm already.
_FEW_PASSES = 2
# How long the device works before anything is timed, in seconds: clocks go up under load.
_SPIN_UP = 0.5
# No rounds are added to a workload that was measured for so long, in seconds.
_LONGEST_MEASURING = 60.0
# What a variant raises for what it is not made for.
_REFUSALS = (TypeError, ValueError, NotImplementedError)


@dataclass(frozen=True)
class Job:
    """What to measure. ``folder`` is the staged variant's repository, ``baseline`` the other's, if any;
    ``apart``: not in the same process. ``only`` are globs of workloads. ``backend`` is for the loader."""

    kernel_dir: str
    repo_id: str
    version: int | None
    folder: str
    backend: str | None
    device: str
    baseline: str | None
    apart: bool
    threshold: float
    rounds: int
    max_rounds: int
    only: tuple[str, ...]
    answer: str


@dataclass
class Peer:
    """A peer of a workload, ready to be timed, or the reason why it is not."""

    name: str
    calls: Sequence[Callable[[], object]]
    reason: str = ""
    delay: float = 0.0


class Measurement:
    """One run: the sides, the clocks, and the answer so far."""

    def __init__(self, job: Job, path: Path) -> None:
        self.job = job
        self.listed = _selected(job)
        self.clocks = Clocks(job.device)
        self.kernel = Loaded(_load(job), self.listed, self.clocks)
        self.baseline = self._baseline(path)
        self.answer: dict[str, Any] = {"workloads": [], "skipped": [], "failures": [], "complete": False}
        self._said: set[tuple[str, str]] = set()

    def run(self) -> None:
        """Verify all workloads, then measure those that the kernel takes."""
        ready = [index for index in range(len(self.listed)) if self._verify(index)]
        if not self.answer["failures"]:
            self._spin_up()
            self.answer["machine"] = machine.facts(self.clocks)
            self.write()
            for index in ready:
                self._measure(index)
                self.write()
        self.answer.setdefault("machine", machine.facts(self.clocks))
        self.answer["machine"]["retaken_samples"] = self.clocks.retaken
        self.answer["complete"] = True
        self.write()

    def write(self) -> None:
        """Write the answer, whole or not at all."""
        target = Path(self.job.answer)
        temporary = target.with_name(f"{target.name}.new")
        temporary.write_text(json.dumps(self.answer), encoding="utf-8")
        os.replace(temporary, target)

    def _baseline(self, path: Path) -> Side | None:
        if self.job.baseline is None:
            return None
        folder = Path(self.job.baseline)
        try:
            if self.job.apart:
                return Apart(folder, path)
            return Loaded(_load_folder(folder, self.job.backend), self.listed, self.clocks)
        except Exception as error:
            raise RuntimeError("the baseline does not load") from error

    def _verify(self, index: int) -> bool:
        """Whether the workload can be timed: it runs, and its result is right."""
        case = self.listed[index]
        try:
            instance = case.make(self.kernel.module, self.job.device)
            case.call(instance)()
            self.clocks.synchronize()
            case.bytes_moved(instance)
            if wrong := case.wrong(instance):
                self._fail(case, wrong, case.line)
                return False
        except Exception as error:
            if self._is_refusal(error):
                self._skip(case, f"the variant refuses it: {cases.described(error)}")
            elif isinstance(error, _out_of_memory()):
                self._skip(case, f"not enough memory: {cases.described(error)}")
            else:
                self._fail(case, cases.described(error), cases.line_of(error, case.path) or case.line)
            return False
        return True

    def _is_refusal(self, error: Exception) -> bool:
        return isinstance(error, _REFUSALS) and cases.came_from(error, Path(self.job.folder).resolve())

    def _skip(self, case: Case, reason: str) -> None:
        print(f"{case.name}: skipped: {reason}")
        self.answer["skipped"].append({"name": case.name, "file": case.file, "reason": reason})

    def _fail(self, case: Case, reason: str, line: int | None) -> None:
        print(f"{case.name}: failed: {reason}")
        self.answer["failures"].append({"name": case.name, "file": case.file, "line": line, "reason": reason})

    def _spin_up(self) -> None:
        deadline = time.monotonic() + _SPIN_UP
        while time.monotonic() < deadline:
            self.clocks.copy()
            self.clocks.synchronize()

    def _measure(self, index: int) -> None:
        case = self.listed[index]
        _forget_compiled()
        try:
            with _no_collection():
                self.answer["workloads"].append(self._measured(index))
        except Exception as error:
            if isinstance(error, _out_of_memory()):
                self._skip(case, f"not enough memory: {cases.described(error)}")
            else:
                self._fail(case, cases.described(error), cases.line_of(error, case.path))
        finally:
            self.kernel.release()
            if self.baseline is not None:
                self.baseline.release()

    def _measured(self, index: int) -> dict[str, Any]:
        """The times of one workload, from as many rounds as it takes."""
        case, job = self.listed[index], self.job
        self.kernel.prepare(index, 1, 0)
        moved = case.bytes_moved(self.kernel.instances[0])
        pace = self.kernel.pace(moved)
        other, note = self.baseline, ""
        if other is not None and (refusal := sides.prepared(other, index, 1, 0)):
            other, note = None, f"the baseline does not do it: {refusal}"
        self.kernel.release()
        rounds = Rounds(pace)
        peers: list[Peer] = []
        deadline = time.monotonic() + _LONGEST_MEASURING
        while rounds.count < job.rounds or (
            other is not None
            and rounds.count < job.max_rounds
            and time.monotonic() < deadline
            and rounds.is_open(job.threshold)
        ):
            if rounds.count == 0 or (other is not None and rounds.count % BLOCK == 0):
                for peer in peers:
                    peer.calls = ()  # They hold the inputs that are about to be made anew.
                self._prepare(index, pace, other, rounds.count)
                if rounds.count < job.rounds:
                    peers = self._peers(case, peers, is_first=rounds.count == 0)
            self._round(rounds, other, [peer for peer in peers if not peer.reason])
        measured = f"{console.counted(rounds.count, 'round')} of {console.counted(pace.calls, 'call')}"
        print(f"{case.name}: {rounds.said()}, {measured}")
        return {
            "name": case.name,
            "file": case.file,
            "bytes": moved,
            "calls": pace.calls,
            "flushed": pace.is_flushed,
            "copy_bytes": self.clocks.copy_bytes,
            # Without that of a peer that stopped doing it.
            "series": [one for one in rounds.series if len(one["rounds"]) >= job.rounds],
            "missing": {peer.name: peer.reason for peer in peers if peer.reason},
            "note": note,
        }

    def _prepare(self, index: int, pace: Pace, other: Side | None, number: int) -> None:
        """Make the inputs of both sides anew, in turns which side's first."""
        passes = _FEW_PASSES if number else 2 * _FEW_PASSES
        order: list[Side] = [self.kernel] if other is None else [self.kernel, other]
        if number // BLOCK % 2:
            order.reverse()
        gc.collect()
        for side in order:
            side.release()
        for side in order:
            if refusal := side.prepare(index, pace.calls, number * pace.calls, passes):
                raise RuntimeError(f"the baseline stopped doing it: {refusal}")

    def _peers(self, case: Case, before: Sequence[Peer], *, is_first: bool) -> list[Peer]:
        """The peers, each with the inputs of the kernel's instances."""
        missing = {peer.name: peer for peer in before if peer.reason}
        made: list[Peer] = []
        for name in case.peers:
            label = name.replace("_", " ")
            if label in missing:
                made.append(missing[label])
                continue
            peer = Peer(label, ())
            try:
                peer.calls = [case.peer(name, one) for one in self.kernel.instances]
                peer.delay = sides.warm(self.clocks, peer.calls, *(() if is_first else (_FEW_PASSES,)))
            except ImportError as error:
                peer.reason = f"it is not installed ({error})"
            except Exception as error:
                peer.reason = cases.described(error)
            if peer.reason and (label, peer.reason) not in self._said:
                self._said.add((label, peer.reason))
                print(f"{case.name}: without {label}: {peer.reason}")
            made.append(peer)
        return made

    def _round(self, rounds: Rounds, other: Side | None, peers: Sequence[Peer]) -> None:
        """One round by each clock: A B B A, and B A A B in the next, so that what drifts cancels, then the
        others; without a baseline the others stand between the kernel's two samples."""
        order: list[tuple[str, str, Side]] = [("kernel", "kernel", self.kernel)]
        if other is not None:
            order.append(("baseline", "baseline", other))
            if rounds.count % 2:
                order.reverse()
        # Rounds that are added are for the comparison with the baseline alone.
        has_others = rounds.count < self.job.rounds
        for clock in rounds.pace.clocks:
            seen: dict[tuple[str, str], list[float]] = {}
            for kind, name, side in order:
                seen.setdefault((kind, name), []).append(side.sample(clock, rounds.pace.is_flushed))
            if other is None and has_others:
                self._others(clock, rounds.pace, seen, peers)
            for kind, name, side in reversed(order):
                seen[kind, name].append(side.sample(clock, rounds.pace.is_flushed))
            if other is not None and has_others:
                self._others(clock, rounds.pace, seen, peers)
            for (kind, name), samples in seen.items():
                rounds.add(kind, name, clock, samples)
        rounds.count += 1

    def _others(
        self, clock: Any, pace: Pace, seen: dict[tuple[str, str], list[float]], peers: Sequence[Peer]
    ) -> None:
        for peer in peers:
            seconds = self.clocks.sample(clock, peer.calls, peer.delay, is_flushed=pace.is_flushed)
            seen["peer", peer.name] = [seconds]
        if clock == self.clocks.first:
            seen["copy", "copy"] = [self.clocks.sample_copy(clock)]


class Rounds:
    """The samples of one workload, so far."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.count = 0
        self.series: list[dict[str, Any]] = []

    def add(self, kind: str, name: str, clock: str, samples: list[float]) -> None:
        """Add the samples of one round to the series."""
        for one in self.series:
            if (one["kind"], one["name"], one["clock"]) == (kind, name, clock):
                one["rounds"].append(samples)
                return
        self.series.append({"kind": kind, "name": name, "clock": clock, "rounds": [samples]})

    def is_open(self, threshold: float) -> bool:
        """Whether more rounds may tell what these do not. It is asked between blocks."""
        return self.count % BLOCK != 0 or any(
            comparison.verdict(threshold) == "undecided" for comparison in self._comparisons()
        )

    def said(self) -> str:
        """What these rounds say, in a few words."""
        parts = [f"{one.ratio:.3f} × the baseline's time" for one in self._comparisons()]
        return ", ".join(parts) or "measured"

    def _comparisons(self) -> Iterator[decide.Comparison]:
        by = {(one["kind"], one["clock"]): one["rounds"] for one in self.series}
        for clock in self.pace.clocks:
            if ("baseline", clock) in by:
                yield decide.compare(by["kernel", clock], by["baseline", clock])


def _selected(job: Job) -> list[Case]:
    """The workloads that ``only`` selects, by their names with or without the class."""
    listed = cases.discover(Path(job.kernel_dir))
    if not job.only:
        return listed
    return [
        case
        for case in listed
        if any(fnmatch.fnmatchcase(name, glob) for name in (case.name, case.workload) for glob in job.only)
    ]


def _load(job: Job) -> ModuleType:
    """The kernel, as its users load it: LOCAL_KERNELS has its folder in place of the Hub's."""
    from kernels import get_kernel

    module: ModuleType = get_kernel(
        job.repo_id,
        version=job.version,
        revision="main" if job.version is None else None,
        backend=job.backend,
        trust_remote_code=True,
    )
    _check_loaded(module, Path(job.folder))
    return module


def _load_folder(folder: Path, backend: str | None) -> ModuleType:
    from kernels import get_local_kernel

    module: ModuleType = get_local_kernel(folder, backend=backend, trust_remote_code=True)
    _check_loaded(module, folder)
    return module


def _check_loaded(module: ModuleType, folder: Path) -> None:
    file = module.__file__
    if file is None or not Path(file).resolve().is_relative_to(folder.resolve()):
        raise RuntimeError(f"the loader took {file}, not what is in {folder}")


def _out_of_memory() -> tuple[type[BaseException], ...]:
    import torch

    return (MemoryError, torch.OutOfMemoryError)


def _forget_compiled() -> None:
    """Let torch.compile start anew: after some shapes it would give up on a function and run it eagerly."""
    if "torch._dynamo" in sys.modules:
        import torch

        torch.compiler.reset()


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep Python's garbage collector out of the samples."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def main(arguments: Sequence[str]) -> int:
    """Measure, or be a baseline. What went wrong is in the answer, as ``error``."""
    path = Path(arguments[0])
    fields = json.loads(path.read_bytes())
    job = Job(**{**fields, "only": tuple(fields["only"])})
    if len(arguments) > 1:
        folder, requests, answers = Path(arguments[1]), int(arguments[2]), int(arguments[3])
        sides.serve(
            lambda: Loaded(_load_folder(folder, job.backend), _selected(job), Clocks(job.device)),
            requests,
            answers,
        )
        return 0
    answer: dict[str, Any]
    try:
        if job.device != "cpu" and not _is_there(job.device):
            answer = {"no_device": job.device}
        else:
            measurement = Measurement(job, path)
            with sides.closing(measurement.baseline):
                measurement.run()
            return 0
    except CaseError as error:
        answer = {"error": error.reason, "file": error.file, "line": error.line}
    except Exception as error:  # Whatever the kernel's code raises is the answer.
        answer = {"error": _chain(error)}
    Path(job.answer).write_text(json.dumps(answer), encoding="utf-8")
    return 0


def _is_there(device: str) -> bool:
    import torch

    return bool(getattr(torch, device).is_available())


def _chain(error: BaseException) -> str:
    said = cases.described(error)
    return said if error.__cause__ is None else f"{said}: {_chain(error.__cause__)}"


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    # What the kernel or a peer left running must not keep the process.
    os._exit(code)
