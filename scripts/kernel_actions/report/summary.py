"""The report as a job's summary."""

from __future__ import annotations

from kernel_actions import console, coverage, markdown
from kernel_actions.report.model import Report

_MOST = 100
_VARIANTS = ("variant", "state", "built by", "size", "build", "tests")


def summary(report: Report) -> str:
    """The report as Markdown: the verdict, what is wrong, the grid, what took how long, and the variants."""
    found = [one for one in report.findings if one.severity != "waived"]
    rows = [(one.title, one.variant, one.where, one.message, one.repair) for one in found[:_MOST]]
    listed = markdown.table(("what", "variant", "where", "how", "what to do"), rows) if rows else ""
    more = f"{len(found) - _MOST} more are in the report." if len(found) > _MOST else ""
    waived = [
        (one.title, one.variant, one.where, one.repair) for one in report.findings if one.severity == "waived"
    ]
    waived += [("untested", one.name, "", one.waived) for one in report.variants if one.waived]
    return markdown.join(
        markdown.heading(report.verdict, report.sentence),
        markdown.lines([" · ".join(f"{name} {value}" for name, value in report.facts)])
        if report.facts
        else "",
        listed,
        more,
        coverage.as_markdown(coverage.grid(report.entries)),
        markdown.timeline(report.steps, "Timeline: each job from its own start"),
        markdown.details("Variants", markdown.table(_VARIANTS, _variant_rows(report)))
        if report.variants
        else "",
        markdown.details("Accepted for a time", markdown.table(("what", "variant", "where", "why"), waived))
        if waived
        else "",
    )


def _variant_rows(report: Report) -> list[tuple[str, ...]]:
    """A row for each variant."""
    rows: list[tuple[str, ...]] = []
    for one, place in zip(report.variants, report.entries, strict=True):
        built = one.build
        tests = "; ".join(f"{coverage.short_gpu(each.gpu)}: {each.counts}" for each in one.tests)
        rows.append(
            (
                one.name,
                coverage.MEANINGS[place.state],
                built.builder if built else "",
                console.size(built.bytes) if built else "",
                console.duration(built.seconds) if built else "",
                tests,
            )
        )
    return rows
