"""What a report tells, whatever it is shown as. Values alone: ``reading`` makes them of files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from kernel_actions import console, coverage
from kernel_actions.coverage import Entry, State
from kernel_actions.markdown import Step, Verdict

Severity = Literal["error", "warning", "waived"]


@dataclass(frozen=True)
class Tests:
    """The tests of a variant on one machine: on which GPU (``None``: on none), the verdict, the counts, how
    long they took in seconds, why they have not passed, and the first of those that failed (the test,
    where, why)."""

    # Its name would have pytest take it for a test.
    __test__ = False

    gpu: str | None
    verdict: str
    passed: int
    failed: int
    skipped: int
    seconds: float = 0.0
    why: str = ""
    failures: tuple[tuple[str, str, str], ...] = ()

    @property
    def counts(self) -> str:
        """The counts in words."""
        named = (("passed", self.passed), ("failed", self.failed), ("skipped", self.skipped))
        return ", ".join(f"{count} {name}" for name, count in named if count or name == "passed")


@dataclass(frozen=True)
class Build:
    """How a variant was built: by what (``nix``, ``local``), from which commit, and with which Torch;
    ``seconds`` and ``bytes`` are what it took and holds."""

    builder: str
    commit: str
    is_dirty: bool
    torch: str
    seconds: float
    bytes: int
    files: int


@dataclass(frozen=True)
class Finding:
    """Something that is wrong: of compliance, of a test or of the release. ``where`` is a place in the
    sources, ``repair`` what to do, and ``variant`` empty where it is about none."""

    severity: Severity
    title: str
    message: str
    where: str = ""
    repair: str = ""
    variant: str = ""


@dataclass(frozen=True)
class VariantReport:
    """A variant, and what became of it. ``published`` is the release that holds it, ``waived`` why it may go
    untested; ``place`` is where it is in the grid."""

    place: Entry
    is_planned: bool
    build: Build | None = None
    tests: tuple[Tests, ...] = ()
    waived: str = ""
    published: str = ""
    is_kept: bool = False

    @property
    def name(self) -> str:
        """The variant's name."""
        return self.place.variant


@dataclass(frozen=True)
class Report:
    """A run of any stages: the kernel, what it released (empty: nothing), some facts by name, the variants,
    the findings with the errors first, and what took how long. ``has_plan``: the variants that are missing
    are known. ``read`` are the names of the files that it was made of, ``is_partial`` says that what was
    not built was not meant to be, and ``outcome`` the verdict where that follows from more than the
    variants."""

    kernel: str
    release: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    variants: tuple[VariantReport, ...] = ()
    findings: tuple[Finding, ...] = ()
    steps: tuple[Step, ...] = ()
    has_plan: bool = False
    read: tuple[str, ...] = ()
    is_partial: bool = False
    outcome: Verdict | None = None

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The variants in their places of the grid."""
        is_tested = any(one.tests for one in self.variants)
        is_built = any(one.build or one.published or one.tests for one in self.variants)
        missing: State = "left out" if self.is_partial else "missing" if is_built else "planned"
        return tuple(_entry(one, missing, is_tested=is_tested) for one in self.variants)

    @property
    def errors(self) -> int:
        """How many findings are errors."""
        return sum(one.severity == "error" for one in self.findings)

    @property
    def verdict(self) -> Verdict:
        """``failed`` when something is wrong or missing, ``planned`` when nothing was done yet."""
        if self.outcome is not None:
            return self.outcome
        states = {one.state for one in self.entries}
        if self.errors or states & {"failed", "missing", "untested"}:
            return "failed"
        return "passed" if states - {"planned", "left out"} else "planned"

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        counts = coverage.counted(self.entries) or "no variants"
        errors = f"; {console.counted(self.errors, 'error')}" if self.errors else ""
        released = f" {self.release}" if self.release else ""
        return f"{self.kernel}{released}: {counts}{errors}"

    def as_json(self) -> dict[str, Any]:
        """The report for programs."""
        return {
            "kernel": self.kernel,
            "release": self.release or None,
            "verdict": self.verdict,
            "errors": self.errors,
            "facts": dict(self.facts),
            "variants": [
                {
                    "variant": one.name,
                    "system": place.system,
                    "torch": place.torch,
                    "compute": place.compute,
                    "state": place.state,
                    "planned": one.is_planned,
                    "build": asdict(one.build) if one.build else None,
                    "tests": [asdict(tests) for tests in one.tests],
                    "waived": one.waived or None,
                    "published": one.published or None,
                }
                for one, place in zip(self.variants, self.entries, strict=True)
            ],
            "findings": [asdict(one) for one in self.findings],
            "steps": [_step(one) for one in self.steps],
            "read": list(self.read),
        }


def _step(one: Step) -> dict[str, Any]:
    return {
        "section": one.section, "name": one.name, "start": one.start, "seconds": one.seconds,
        "failed": one.is_failed,
    }  # fmt: skip


def _entry(one: VariantReport, missing: State, *, is_tested: bool) -> Entry:
    """The variant's place with its state: of what was done at all, what was not done for it is missing."""
    passed = [tests for tests in one.tests if tests.verdict == "passed"]
    gpus = ", ".join(dict.fromkeys(coverage.short_gpu(tests.gpu) for tests in passed))
    failed = next((tests for tests in one.tests if tests.verdict not in ("passed", "untested")), None)
    state: State
    if failed is not None:
        state, detail = "failed", coverage.short_gpu(failed.gpu)
    elif one.is_kept:
        state, detail = "kept", one.published
    elif one.published:
        state, detail = "published", gpus or ("untested" if one.waived else "")
    elif one.build is None and not one.tests:
        state, detail = missing, ""
    elif one.waived and not passed:
        state, detail = "waived", "untested"
    elif passed:
        state, detail = "tested", gpus
    else:
        state, detail = ("untested" if is_tested else "built"), ""
    return one.place._replace(state=state, detail=detail)
