"""The stages of one kernel. Each runs a command of the suite in a process of its own, and reads its JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_actions import built, console
from kernel_actions.errors import EXIT_WRONG_SURROUNDINGS

from public_kernels import reference, rehearsal
from public_kernels.results import KernelOutcomes, Outcome, Verdict
from public_kernels.workplace import Finished, Workplace

# Seconds that a command gets less than its process, to end by itself and to report.
_GRACE = 30
_FEWEST_ROUNDS = 8
_MOST_DETAILS = 3


@dataclass(frozen=True)
class Target:
    """The variant that a machine builds: ``runs`` says whether the machine can load it too."""

    variant: str
    backend: str
    runs: bool


def target(names: Sequence[str], backends: Sequence[str], gpu: bool) -> Target | None:
    """What a machine builds of a kernel with variants of these ``names``; ``None``: nothing.

    A machine with a GPU builds for CUDA, else for the CPU; a variant of Python alone can be made anywhere.
    An empty ``variant`` stands for the one that the local builder chooses.
    """
    runnable = ("cuda", "cpu") if gpu else ("cpu",)
    for backend in runnable:
        if backend in backends:
            noarch = f"torch-{backend}"
            return Target(noarch if noarch in names else "", backend, runs=True)
    for backend in backends:
        if f"torch-{backend}" in names:
            return Target(f"torch-{backend}", backend, runs=False)
    return None


def plan(place: Workplace, kernel: KernelOutcomes) -> Outcome:
    """All variants that the builder publishes, of every system."""
    finished = place.suite("plan", "matrix", kernel.name, "--scope", "release", "--format", "json")
    answer = finished.answer
    if finished.code != 0 or "include" not in answer:
        return unsuccessful(finished)
    jobs = answer["include"]
    names = list(dict.fromkeys(job["variant"] for job in jobs))
    backends = list(dict.fromkeys(job["backend"] for job in jobs))
    facts = {"variants": names, "backends": backends, "builder": answer["builder"]}
    return _passed(finished, console.counted(len(names), "variant"), facts)


def compliance(place: Workplace, kernel: KernelOutcomes) -> Outcome:
    """The rules about sources; those about builds are part of the release."""
    finished = place.suite("compliance", "compliance", kernel.name, "--source-only", "--format", "json")
    answer = finished.answer
    if "findings" not in answer:
        return unsuccessful(finished)
    errors, warnings = answer["errors"], answer["warnings"]
    summary = console.counted(errors, "error") if errors else "no errors"
    summary += f", {console.counted(warnings, 'warning')}" if warnings else ""
    listed = [_finding(one) for one in answer["findings"] if one["severity"] == "error"]
    facts = {"errors": errors, "warnings": warnings, "findings": listed}
    detail = "; ".join(listed[:_MOST_DETAILS])
    if len(listed) > _MOST_DETAILS:
        detail += f"; {len(listed) - _MOST_DETAILS} more"
    verdict: Verdict = "passed" if finished.code == 0 else "failed"
    return Outcome(verdict, summary, detail, finished.seconds, facts=facts)


def _finding(found: Mapping[str, Any]) -> str:
    line = f":{found['line']}" if found["line"] else ""
    return f"{found['rule']} {found['path']}{line}: {found['message']}"


def build(place: Workplace, kernel: KernelOutcomes) -> Outcome:
    """One variant, by the local builder."""
    planned = _facts(kernel, "plan")
    wanted = target(planned["variants"], planned["backends"], bool(place.machine.gpu))
    if wanted is None:
        backends = ", ".join(planned["backends"])
        return Outcome("elsewhere", f"needs {backends}")
    arguments = ["build", kernel.name, "--backend-tool", "local", "--format", "json"]
    arguments += ["--variant", wanted.variant] if wanted.variant else []
    finished = place.suite("build", *arguments)
    answer = finished.answer
    if finished.code != 0 or "variant" not in answer:
        return unsuccessful(finished)
    names = ("variant", "backend", "planned", "files", "bytes", "torch", "compiler", "nvcc")
    facts = {name: answer.get(name) for name in names} | {"runs": wanted.runs}
    return _passed(finished, answer["variant"], facts)


def test(place: Workplace, kernel: KernelOutcomes) -> Outcome:
    """The kernel's own tests that the builder would select, against the build."""
    folder = place.kernel_dir(kernel.name)
    if not has_tests(folder):
        return Outcome("absent", "no tests")
    made = _build(kernel)
    if isinstance(made, Outcome):
        return made
    limit = place.limits["test"]
    finished = place.suite(
        "test", "test", kernel.name, "--variant", made["variant"], "--format", "json",
        "--time-limit", f"{max(limit - _GRACE, 1):.0f}",
    )  # fmt: skip
    report = finished.answer
    if "verdict" not in report:
        # A report may have been written for a run that failed; the error is on the other stream.
        report = _read(folder / "build" / f"{made['variant']}.test-report.json") if finished.code == 1 else {}
    if "verdict" not in report or finished.code in (None, EXIT_WRONG_SURROUNDINGS):
        return unsuccessful(finished)
    facts = {name: report[name] for name in ("passed", "failed", "skipped", "deselected", "not_run")}
    facts["failures"] = [f"{one['test']}: {one['reason']}" for one in report["failures"][:20]]
    detail = "" if finished.code == 0 else "; ".join([finished.error, *facts["failures"][:1]])
    verdict: Verdict = "passed" if finished.code == 0 else "failed"
    return Outcome(verdict, counts(facts), detail, finished.seconds, facts=facts)


def counts(facts: Mapping[str, Any]) -> str:
    """The counts of a run of tests, in words."""
    words = (("passed", "passed"), ("failed", "failed"), ("skipped", "skipped"), ("not_run", "not run"))
    listed = [f"{facts[name]:,} {word}" for name, word in words if facts.get(name)]
    return ", ".join(listed) or "none selected"


def has_tests(folder: Path) -> bool:
    """Whether a kernel has files that pytest collects."""
    tests = folder / "tests"
    return any(True for form in ("test_*.py", "*_test.py") for _ in tests.rglob(form))


def benchmark(place: Workplace, kernel: KernelOutcomes) -> Outcome:
    """The kernel's own benchmarks, without a baseline, by the fewest rounds."""
    folder = place.kernel_dir(kernel.name)
    if not any((folder / "benchmarks").glob("benchmark*.py")):
        return Outcome("absent", "no benchmarks")
    made = _build(kernel)
    if isinstance(made, Outcome):
        return made
    limit = place.limits["benchmark"]
    finished = place.suite(
        "benchmark", "benchmark", kernel.name, "--variant", made["variant"], "--format", "json",
        "--rounds", str(_FEWEST_ROUNDS), "--time-limit", f"{max(limit - _GRACE, 1):.0f}",
    )  # fmt: skip
    workloads = finished.answer.get("workloads")
    if finished.code != 0 or not isinstance(workloads, list):
        return unsuccessful(finished)
    names = [one["name"] for one in workloads]
    return _passed(finished, console.counted(len(names), "workload"), {"workloads": names})


def release(place: Workplace, kernel: KernelOutcomes) -> Outcome:
    """A release of every planned variant, as laid out by the builder, through the gate of a real Hub."""
    return rehearsal.outcome(place, kernel)


def builder(place: Workplace, kernel: KernelOutcomes) -> Outcome:
    """What the builder's own templates make of the kernel here, and the verdict of its own tests of that."""
    if place.builder is None:
        return Outcome("elsewhere", "needs BUILDER")
    planned = _facts(kernel, "plan")
    wanted = target(planned["variants"], planned["backends"], bool(place.machine.gpu))
    if wanted is None:
        return Outcome("elsewhere", f"needs {', '.join(planned['backends'])}")
    if not wanted.variant and wanted.backend != "cpu":
        return Outcome("elsewhere", "compiled for the CPU alone")
    return reference.outcome(place, kernel, wanted.backend, wanted.runs)


#: The stages by name, and those that have to pass before.
FUNCTIONS: Mapping[str, tuple[Callable[[Workplace, KernelOutcomes], Outcome], tuple[str, ...]]] = {
    "plan": (plan, ()),
    "compliance": (compliance, ()),
    "build": (build, ("plan",)),
    "test": (test, ("plan",)),
    "benchmark": (benchmark, ("plan",)),
    "release": (release, ("plan",)),
    "builder": (builder, ("plan",)),
}


def is_built(place: Workplace, outcome: Outcome, name: str) -> bool:
    """Whether the folder of a build that passed is still there; an outcome without a build needs none."""
    if outcome.verdict != "passed":
        return True
    return (place.kernel_dir(name) / "build" / str(outcome.facts["variant"]) / "metadata.json").is_file()


def _facts(kernel: KernelOutcomes, stage: str) -> Mapping[str, Any]:
    return kernel.stages[stage].facts


def _build(kernel: KernelOutcomes) -> Mapping[str, Any] | Outcome:
    """The facts of the build, or what becomes of a stage that needs one."""
    outcome = kernel.stages.get("build")
    if outcome is None or outcome.verdict == "elsewhere":
        return Outcome("elsewhere", "not built here")
    if outcome.verdict != "passed":
        return Outcome("elsewhere", "the build failed")
    if not outcome.facts["runs"]:
        return Outcome("elsewhere", f"needs {outcome.facts['backend']}")
    return outcome.facts


def _passed(finished: Finished, summary: str, facts: Mapping[str, Any]) -> Outcome:
    return Outcome("passed", summary, "", finished.seconds, facts=facts)


def unsuccessful(finished: Finished) -> Outcome:
    """The outcome of a command that did not succeed. What a machine lacks is not the kernel's failure."""
    if finished.code is None:
        return finished.ended()
    detail = finished.error or f"ended with {finished.code}"
    if finished.code == EXIT_WRONG_SURROUNDINGS:
        return Outcome("elsewhere", "this machine lacks something", detail, finished.seconds)
    return Outcome("failed", f"exit {finished.code}", detail, finished.seconds, facts={"code": finished.code})


def _read(path: Path) -> dict[str, Any]:
    try:
        return built.read_json(path)
    except Exception:
        return {}
