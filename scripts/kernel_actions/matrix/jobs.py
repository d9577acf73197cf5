"""The jobs of a matrix: which variants each builds, on which runners, within which limits. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kernel_actions.errors import WrongInput
from kernel_actions.named_tuple import NamedTuple
from kernel_actions.settings import Limits, Runner
from kernel_actions.variants import Variant


class Part(NamedTuple):
    """A variant to build: of which kernel, in which folder."""

    kernel: str
    directory: str
    variant: Variant


class Job(NamedTuple):
    """One entry of the matrix: variants, and the runners that build and test them.

    All its variants are of one system, and built and tested on the same kinds of runner.
    """

    parts: tuple[Part, ...]
    runner: Runner
    test_runner: Runner
    limits: Limits

    @property
    def variants(self) -> list[Variant]:
        """The variants of the job, in the order of the plan."""
        return [part.variant for part in self.parts]

    @property
    def system(self) -> str:
        """The system that the job builds for."""
        return self.parts[0].variant.system

    def as_json(self) -> dict[str, Any]:
        """The entry as a workflow sees it, under ``matrix.<key>``.

        ``variant`` and ``arch_variant`` are there only where the job has a single one; what differs
        between the variants of a job (``torch``, say) is left out. A job with variants of several kernels
        has ``parts`` in place of ``kernel``, ``dir`` and ``variants``.
        """
        by_kernel: dict[tuple[str, str], list[Variant]] = {}
        for part in self.parts:
            by_kernel.setdefault((part.directory, part.kernel), []).append(part.variant)
        parts = [
            {"kernel": kernel, "dir": directory, **_names(variants)}
            for (directory, kernel), variants in by_kernel.items()
        ]
        entry: dict[str, Any] = parts[0] if len(parts) == 1 else {"parts": parts}
        variants = self.variants
        shared = (
            ("backend", {one.backend for one in variants}),
            ("compute", {one.compute for one in variants}),
            ("torch", {one.torch for one in variants}),
        )
        entry |= {name: next(iter(values)) for name, values in shared if len(values) == 1}
        entry |= {"name": self.name, "artifact": self.artifact, "system": self.system}
        entry |= {"runner": self.runner.as_json(), "test_runner": self.test_runner.as_json()}
        return entry | self.limits.as_json()

    @property
    def artifact(self) -> str:
        """A name for the job's artifact, of characters that every file system takes.

        No other job has it, unless two kernels share a name. Kernels' names have no dot, so ``<kernel>.*``
        matches the artifacts of one kernel.
        """
        first = self.parts[0]
        more = f"-and-{len(self.parts) - 1}-more" if len(self.parts) > 1 else ""
        return f"{first.kernel}.{first.variant.name}{more}"

    @property
    def name(self) -> str:
        """The title of the job, which tells it from the others of its kernel."""
        variants = self.variants
        first = variants[0].name
        if len(variants) == 1:
            return first
        if len({part.directory for part in self.parts}) > 1:
            first = f"{self.parts[0].kernel} {first}"
        backends = dict.fromkeys(one.backend for one in variants)
        torch = dict.fromkeys(one.torch for one in variants)
        shown = [*backends, *(f"torch {one}" for one in torch if len(torch) == 1)]
        return f"{' '.join(shown)} {self.system}: {first} and {len(variants) - 1} more"


def _names(variants: Sequence[Variant]) -> dict[str, Any]:
    """The names of a kernel's variants in an entry of the matrix."""
    names = [one.name for one in variants]
    if len(variants) == 1:
        return {"variant": names[0], "arch_variant": variants[0].arch_name, "variants": names}
    return {"variants": names, "arch_variants": [one.arch_name for one in variants]}


GROUPINGS: Mapping[str, Callable[[Job], object]] = {
    "none": lambda job: job.parts[0].variant.name,
    "backend": lambda job: job.parts[0].variant.backend,
    "torch": lambda job: job.parts[0].variant.torch,
}


def group(jobs: Iterable[Job], grouping: str) -> list[Job]:
    """``jobs`` of one variant each, with those of a kernel that share ``grouping`` and the runners as one."""
    if grouping == "none":
        return list(jobs)
    shared = GROUPINGS[grouping]
    groups: dict[object, Job] = {}
    for job in jobs:
        key = (_class(job, by_backend=False), shared(job))
        before = groups.get(key)
        groups[key] = before._replace(parts=before.parts + job.parts) if before else job
    return list(groups.values())


def pack(jobs: Sequence[Job], most: int, durations: Mapping[str, float]) -> list[Job]:
    """``jobs`` as at most ``most`` ones, such that the longest of them takes as little time as can be.

    ``durations`` are seconds that variants took before, by ``<kernel>/<variant>`` or ``<variant>``; one that
    is not known counts as the median. With durations, the longest job comes first, as a runner that is
    left with it at the end makes everybody wait.

    Raises ``WrongInput`` when the variants need more kinds of job than ``most``.
    """
    typical = sorted(durations.values())[len(durations) // 2] if durations else 1.0

    def seconds(job: Job) -> float:
        names = [(part.kernel, part.variant.name) for part in job.parts]
        return sum(durations.get(f"{kernel}/{name}", durations.get(name, typical)) for kernel, name in names)

    packed = list(jobs)
    if len(packed) > most:
        packed = _pack(packed, most, seconds)
    if durations:
        packed.sort(key=seconds, reverse=True)
    return packed


def _pack(jobs: Sequence[Job], most: int, seconds: Callable[[Job], float]) -> list[Job]:
    classes: dict[object, list[Job]] = {}
    # Jobs that stay within a backend, else within a kernel, are easier to read: mixed only if need be.
    for by_backend, by_kernel in ((True, True), (False, True), (False, False)):
        classes = {}
        for job in jobs:
            classes.setdefault(_class(job, by_backend, by_kernel), []).append(job)
        if len(classes) <= most:
            break
    else:
        raise WrongInput(
            f"--max-jobs is {most}, and the variants need {len(classes)} kinds of job: one for each system, "
            "runner and set of limits",
            repair="allow more, or narrow the selection with --backends or --systems",
        )
    times = {id(job): seconds(job) for job in jobs}
    sizes = [sorted(times[id(job)] for job in members) for members in classes.values()]
    # The shortest time in which all is done: by halving, until it is known to a thousandth.
    # All of a class fit into its sum, but for what is lost where the sum, and what is left of it, is rounded.
    low, high = max(size[-1] for size in sizes), max(sum(size) for size in sizes) * (1 + 1e-9)
    while high - low > high / 1000:
        middle = (low + high) / 2
        fits = sum(_count_bins(size, middle) for size in sizes) <= most
        low, high = (low, middle) if fits else (middle, high)
    packed = []
    for members, size in zip(classes.values(), sizes, strict=True):
        packed += _balance(members, _count_bins(size, high), times)
    return packed


def _count_bins(sizes: Sequence[float], capacity: float) -> int:
    """How many jobs of at most ``capacity`` hold ``sizes`` (sorted): each goes where it fits best."""
    from bisect import bisect_left, insort  # Not at the top: few plans are packed.

    bins = 0
    rooms: list[float] = []
    for size in reversed(sizes):
        place = bisect_left(rooms, size)
        if place == len(rooms):
            bins += 1
            room = capacity
        else:
            room = rooms.pop(place)
        insort(rooms, room - size)
    return bins


def _balance(jobs: Sequence[Job], count: int, times: Mapping[int, float]) -> list[Job]:
    """``jobs`` as ``count`` ones of about the same length: the longest first, each to the shortest so far."""
    import heapq

    order = {id(job): position for position, job in enumerate(jobs)}
    heap: list[tuple[float, int, list[Job]]] = [(0.0, number, []) for number in range(count)]
    for job in sorted(jobs, key=lambda job: -times[id(job)]):
        total, number, members = heap[0]
        members.append(job)
        heapq.heapreplace(heap, (total + times[id(job)], number, members))
    bins = sorted(
        (members for _, _, members in heap if members), key=lambda one: min(order[id(job)] for job in one)
    )
    return [
        members[0]._replace(
            parts=tuple(
                part for job in sorted(members, key=lambda job: order[id(job)]) for part in job.parts
            ),
        )
        for members in bins
    ]


def _class(job: Job, by_backend: bool, by_kernel: bool = True) -> object:
    """What jobs must share to be done as one."""
    backends = frozenset(one.backend for one in job.variants) if by_backend else None
    directory = job.parts[0].directory if by_kernel else None
    return (directory, job.system, backends, job.runner, job.test_runner, job.limits)
