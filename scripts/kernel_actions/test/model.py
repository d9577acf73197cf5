"""What became of the tests of a variant: the report, and the rule for its verdict.

``docs/test-report.schema.json`` is made from the classes here, by ``schema``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from kernel_actions.errors import KernelActionsError, KernelFailed, WrongSurroundings

SCHEMA = 1

Verdict = Literal["passed", "failed", "untested"]
# Why something is not tested, or not passed; docs/testing.md has all of them.
Kind = Literal[
    "failed",
    "none-selected",
    "all-skipped",
    "no-tests",
    "collection",
    "not-loaded",
    "crashed",
    "ended-early",
    "test-time-limit",
    "run-time-limit",
    "killed",
    "no-gpu",
    "gpu-not-used",
    "no-code-for-gpu",
    "old-driver",
    "gpu-held",
    "sanitizer",
    "not-sanitized",
    "changed",
    "unstoppable",
]
# What the machine is to blame for: exit code 3. For all others it is 1.
SURROUNDINGS: frozenset[str] = frozenset(
    {"run-time-limit", "killed", "no-gpu", "old-driver", "gpu-held", "not-sanitized", "unstoppable"}
)
# Nothing was tested, and nothing was seen to be wrong: what `allow-untested` can allow.
ALLOWABLE: frozenset[str] = frozenset(
    {"none-selected", "all-skipped", "no-tests", "no-gpu", "no-code-for-gpu", "old-driver"}
)


@dataclass(frozen=True)
class Reason:
    """Why a run has not passed: what kind of reason, in one line, and what to do about it."""

    kind: Kind
    text: str
    repair: str = ""
    path: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class Failure:
    """A test that failed: how (``failed``, ``error`` in its fixtures, ``collection`` of its file,
    ``crashed``, ``time-limit``, ``rerun``: it failed, and passed when a plug-in ran it again), the
    first line of the reason, and the last line of the kernel's own files that led to it."""

    test: str
    kind: Literal["failed", "error", "collection", "crashed", "time-limit", "rerun"]
    reason: str
    path: str | None
    line: int | None


@dataclass(frozen=True)
class Skip:
    """A test that was skipped, and why."""

    test: str
    reason: str


@dataclass(frozen=True)
class Timed:
    """A test and the seconds that it took, with its fixtures."""

    test: str
    seconds: float


@dataclass(frozen=True)
class Holder:
    """A process that holds memory of a GPU, in bytes (``None``: not known)."""

    pid: int
    name: str
    memory: int | None


@dataclass(frozen=True)
class Gpu:
    """A GPU that tests can use.

    ``driver`` is the driver's version, ``cuda`` the newest CUDA version that it serves, and
    ``capability`` the compute capability, as in ``9.0``. Memory is in bytes; ``free_after`` is what
    was free once the tests had ended. ``None`` is not known.
    """

    name: str
    uuid: str | None = None
    driver: str | None = None
    cuda: str | None = None
    capability: str | None = None
    memory: int | None = None
    free_before: int | None = None
    free_after: int | None = None
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True)
class Surroundings:
    """Where the tests ran: ``current``, ``pip`` or ``nix``, and the versions that they saw there.

    ``cuda`` and ``rocm`` are those that Torch was built for. ``None`` is not known.
    """

    kind: Literal["current", "pip", "nix"]
    python: str | None = None
    torch: str | None = None
    cuda: str | None = None
    rocm: str | None = None
    kernels: str | None = None
    pytest: str | None = None


@dataclass(frozen=True)
class Selection:
    """Which tests were asked for: by marker, below which paths, and with which further arguments."""

    marker: str
    paths: tuple[str, ...]
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """What compute-sanitizer found: in which function and line of the kernel's sources (where
    they were compiled with ``-lineinfo``), how often, and while which test ran."""

    what: str
    function: str | None
    path: str | None
    line: int | None
    count: int
    test: str | None


@dataclass(frozen=True)
class TestReport:
    """What became of the tests of one variant of ``kernel``.

    ``digest`` names the variant's files: the hash of their hashes, as ``metadata.json`` lists them;
    ``files`` are their SHA-256 by path. ``stand_ins`` are those of files that were tested in place of them:
    extensions of the builder's ciTests, which differ by their search path alone. ``not_run`` are tests that
    were selected and did not run to their end: the process ended before, or pytest was told to do less than
    run them. ``seconds`` are of the whole run. ``reason`` is why it has not passed, and ``allowed`` what
    kernel-actions.toml says about a variant that may go untested. ``left_running`` names processes that the
    tests left behind, and that were ended.
    """

    # Its name would have pytest take it for a test.
    __test__ = False

    variant: str
    digest: str | None
    passed: int
    failed: int
    skipped: int
    seconds: float
    gpu: str | None
    failures: tuple[Failure, ...]
    not_run: int = 0
    deselected: int = 0
    reason: Reason | None = None
    allowed: str | None = None
    environment: Surroundings = field(default_factory=lambda: Surroundings("current"))
    selection: Selection = field(default_factory=lambda: Selection("kernels_ci", ("tests",)))
    gpus: tuple[Gpu, ...] = ()
    notes: tuple[str, ...] = ()
    skips: tuple[Skip, ...] = ()
    slowest: tuple[Timed, ...] = ()
    left_running: tuple[str, ...] = ()
    opcheck: bool = False
    sanitizer: str | None = None
    findings: tuple[Finding, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    kernel: str = ""
    stand_ins: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The report for programs, as it stands in ``<variant>.test-report.json``."""
        return {"schema": SCHEMA, "verdict": self.verdict, **asdict(self)}

    @property
    def verdict(self) -> Verdict:
        """``untested`` is what kernel-actions.toml allows to go untested."""
        if self.is_passed:
            return "passed"
        return "untested" if self.allowed is not None else "failed"

    @property
    def is_passed(self) -> bool:
        """Whether at least one test ran and passed, none failed, and nothing else was wrong."""
        return self.passed > 0 and self.failed == 0 and self.reason is None

    @property
    def summary(self) -> str:
        """The counts in words."""
        counts = [f"{self.passed} passed"]
        counts += [f"{self.failed} failed"] if self.failed else []
        counts += [f"{self.skipped} skipped"] if self.skipped else []
        counts += [f"{self.not_run} not run"] if self.not_run else []
        return ", ".join(counts)


def error(kind: str) -> type[KernelActionsError]:
    """The error that a reason of this kind is, which has the exit code."""
    return WrongSurroundings if kind in SURROUNDINGS else KernelFailed
