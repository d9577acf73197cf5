"""What people see of a run: a table, annotations, and the job's summary. Failures come first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from kernel_actions import console, github, markdown
from kernel_actions.errors import Place, printable
from kernel_actions.test import model
from kernel_actions.test.model import TestReport

# GitHub shows ten annotations of a step; the table of a summary is for reading.
_ANNOTATIONS = 10
_ROWS = 50
_HEADER = ("failed", "where", "why")
VERDICTS: dict[model.Verdict, markdown.Verdict] = {
    "passed": "passed", "failed": "failed", "untested": "warned",
}  # fmt: skip


def show(form: str, report: TestReport, kernel_dir: Path, path: Path) -> None:
    """Print the report, and with the form ``github`` set outputs, annotate and write the summary."""
    if form == "json":
        print(json.dumps(report.as_json(), indent=2))
        return
    rows = _rows(report)
    if rows:
        print(console.table(_HEADER, rows[:_ROWS]))
        if len(rows) > _ROWS:
            print(f"and {len(rows) - _ROWS} more: {path}")
        print()
    for note in _notes(report):
        print(f"note: {printable(note)}")
    counts = f"{report.summary} in {console.duration(report.seconds)}{_where(report)}"
    print(printable(f"{report.variant}: {counts}"))
    if report.allowed is not None:
        print(f"{report.variant} goes untested, as kernel-actions.toml allows: {printable(report.allowed)}")
    if form == "github":
        _annotate(report, kernel_dir)
        github.set_outputs(
            {"passed": str(report.passed), "verdict": report.verdict, "report": path.as_posix()}
        )
        github.add_summary(summary(report))


def summary(report: TestReport) -> str:
    """The report as Markdown. What comes from the kernel is shown as text."""
    counts = f"{report.summary} in {console.duration(report.seconds)}{_where(report)}"
    has_own_reason = report.reason is not None and (report.reason.kind != "failed" or not report.failures)
    rows = _rows(report)
    timed = [(one.test, console.duration(one.seconds)) for one in report.slowest]
    skipped = [(one.test, one.reason) for one in report.skips[:_ROWS]]
    return markdown.join(
        markdown.heading(VERDICTS[report.verdict], f"{report.variant}: {counts}"),
        markdown.lines([f"Untested, as kernel-actions.toml allows: {report.allowed}"])
        if report.allowed is not None
        else "",
        markdown.lines([report.reason.text]) if report.reason is not None and has_own_reason else "",
        markdown.table(_HEADER, rows[:_ROWS]) if rows else "",
        f"{len(rows) - _ROWS} more are in the report." if len(rows) > _ROWS else "",
        markdown.bullets(_notes(report)),
        markdown.details("Slowest tests", markdown.table(("test", "time"), timed)) if timed else "",
        markdown.details(f"Skipped: {report.skipped}", markdown.table(("test", "why"), skipped))
        if skipped
        else "",
    )


def _rows(report: TestReport) -> list[tuple[str, str, str]]:
    found = [
        (
            one.function or report.sanitizer or "",
            _place(one.path, one.line),
            f"{one.what} ({console.counted(one.count, 'time')})",
        )
        for one in report.findings
    ]
    return found + [(one.test, _place(one.path, one.line), one.reason) for one in report.failures]


def _place(path: str | None, line: int | None) -> str:
    return f"{path or ''}:{line or ''}".strip(":")


def _where(report: TestReport) -> str:
    """On what: the GPU, the Torch, and the environment where it is not this suite's own."""
    parts = [f"on {report.gpu}"] if report.gpu else []
    parts += [f"Torch {report.environment.torch}"] if report.environment.torch else []
    parts += [f"environment {report.environment.kind}"] if report.environment.kind != "current" else []
    parts += [report.sanitizer] if report.sanitizer else []
    return f" ({', '.join(parts)})" if parts else ""


def _notes(report: TestReport) -> Sequence[str]:
    left = [f"the tests left running, and it was ended: {name}" for name in report.left_running]
    return [*report.notes, *left]


def _annotate(report: TestReport, kernel_dir: Path) -> None:
    for finding in report.findings[:_ANNOTATIONS]:
        where = Place(kernel_dir / finding.path, finding.line) if finding.path else None
        github.annotate(
            "error", finding.what, where=where, title=f"{report.sanitizer}: {finding.function or ''}"
        )
    for failure in report.failures[: max(0, _ANNOTATIONS - len(report.findings))]:
        where = Place(kernel_dir / failure.path, failure.line) if failure.path else None
        github.annotate("error", failure.reason, where=where, title=failure.test)
    if report.allowed is not None:
        github.annotate("warning", f"{report.variant} is untested: {report.allowed}", title="untested")
    for note in _notes(report)[:_ANNOTATIONS]:
        github.annotate("notice", note, title=report.variant)


def raised(report: TestReport, kernel_dir: Path) -> None:
    """Raise the error of a report that has not passed, which is not allowed to go untested."""
    if report.verdict != "failed":
        return
    reason = report.reason or model.Reason("failed", f"{report.variant}: the tests have not passed")
    where = Place(kernel_dir / reason.path, reason.line) if reason.path else None
    raise model.error(reason.kind)(reason.text, where=where, repair=reason.repair)
