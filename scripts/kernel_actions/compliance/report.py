"""How a report is shown: a table, JSON, SARIF, or what GitHub makes of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from kernel_actions import console, github, markdown
from kernel_actions.compliance.engine import Finding, Report
from kernel_actions.errors import printable

# GitHub shows no more annotations of a level for one step.
_MOST_ANNOTATIONS = 10
# More than this is not read by anyone; the findings are all in the JSON.
_MOST_ROWS = 200
# The runner takes 1 MiB for all outputs of a job.
_LARGEST_OUTPUT = 500_000
_HEADER = ("rule", "severity", "where", "what")
_KNOWN_HEADER = ("known", "where", "what", "since")
# Of those the table on a terminal has some only.
_MOST_KNOWN = 20
_WAIVED_HEADER = ("waived", "where", "what", "until", "why")


def show(report: Report, form: str) -> None:
    """Print ``report`` in the ``form`` that ``--format`` names."""
    _PRINTERS[form](report)


def table(report: Report) -> str:
    """The report for people: what was found where, what to do about it, and the verdict."""
    parts = []
    if report.findings:
        parts.append(console.table(_HEADER, _rows(report)))
        parts.append("\n".join(f"{rule}: {repair}" for rule, repair in _repairs(report)))
    if report.known:
        parts.append(console.table(_KNOWN_HEADER, _known_rows(report, _MOST_KNOWN)))
    if report.waived:
        parts.append(console.table(_WAIVED_HEADER, _waived_rows(report)))
    if report.changed:
        parts.append("\n".join(str(one) for one in report.changed))
    parts.append(report.verdict)
    return "\n\n".join(parts)


def write_sarif(report: Report, path: Path) -> None:
    """Write ``report`` as SARIF to ``path``, whole or not at all."""
    from kernel_actions import built

    built.write_json(path, _sarif(report))


def _sarif(report: Report) -> dict[str, object]:
    from kernel_actions.compliance import sarif

    # Code scanning takes paths from the repository's root.
    return sarif.document(report, Path(os.environ.get("GITHUB_WORKSPACE") or os.curdir))


def _print_sarif(report: Report) -> None:
    print(_json(_sarif(report)))


def _json(values: dict[str, object]) -> str:
    # Of what stands in a line the runner obeys this alone: only texts can hold it.
    return json.dumps(values, indent=2).replace("##[", "#\\u0023[")


def _print_table(report: Report) -> None:
    print(table(report))


def _print_json(report: Report) -> None:
    print(_json(report.as_json()))


def _print_github(report: Report) -> None:
    # Names of files and messages are whatever a pull request made them.
    with github.untrusted_output():
        print(table(report), flush=True)
    for severity in ("error", "warning"):
        shown = [one for one in report.findings if one.rule.severity == severity]
        for one in shown[:_MOST_ANNOTATIONS]:
            message = f"{one.message} ({one.repair})"
            github.annotate(one.rule.severity, message, where=one.where, title=_title(one))
    github.set_outputs({"findings": _compact(report), "errors": str(report.errors)})
    github.add_summary(_markdown(report))


_PRINTERS: dict[str, Callable[[Report], None]] = {
    "json": _print_json,
    "sarif": _print_sarif,
    "table": _print_table,
    "github": _print_github,
}


def _rows(report: Report) -> list[tuple[str, str, str, str]]:
    rows: list[tuple[str, str, str, str]] = []
    for one in report.findings[:_MOST_ROWS]:
        rows.append((one.rule.id, one.rule.severity, str(one.where), one.message))
    left_out = len(report.findings) - len(rows)
    return [*rows, ("…", "", "", f"{left_out} more")] if left_out else rows


def _known_rows(report: Report, most: int) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for one in report.known[:most]:
        found = one.finding
        rows.append((found.rule.id, str(found.where), found.message, one.since))
    left_out = len(report.known) - len(rows)
    return [*rows, ("…", "", f"{left_out} more", "")] if left_out else rows


def _waived_rows(report: Report) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for one in report.waived[:_MOST_ROWS]:
        found = one.finding
        rows.append((found.rule.id, str(found.where), found.message, one.until, one.reason))
    left_out = len(report.waived) - len(rows)
    return [*rows, ("…", "", f"{left_out} more", "", "")] if left_out else rows


def _repairs(report: Report) -> list[tuple[str, str]]:
    """What to do, once for each rule and way."""
    found = dict.fromkeys((_title(one), one.repair) for one in report.findings[:_MOST_ROWS])
    return [(title, printable(repair)) for title, repair in sorted(found)]


def _title(finding: Finding) -> str:
    return f"{finding.rule.id} {finding.rule.slug}"


def _compact(report: Report) -> str:
    """The findings as a JSON list, as many of them as an output can hold."""
    texts: list[str] = []
    left = _LARGEST_OUTPUT
    for one in report.findings:
        text = json.dumps(one.as_json(), separators=(",", ":"))
        left -= len(text) + 1
        if left < 0:
            break
        texts.append(text)
    return f"[{','.join(texts)}]"


def _markdown(report: Report) -> str:
    verdict: markdown.Verdict = (
        "failed" if not report.is_passed else "warned" if report.warnings else "passed"
    )
    known = markdown.table(_KNOWN_HEADER, _known_rows(report, _MOST_ROWS))
    waived = markdown.table(_WAIVED_HEADER, _waived_rows(report))
    return markdown.join(
        markdown.heading(verdict, report.verdict[0].upper() + report.verdict[1:]),
        markdown.table(_HEADER, _rows(report)) if report.findings else "",
        markdown.table(("rule", "what to do"), _repairs(report)) if report.findings else "",
        markdown.details(f"{len(report.known)} known", known) if report.known else "",
        markdown.details(f"{len(report.waived)} waived", waived) if report.waived else "",
        markdown.lines(str(changed) for changed in report.changed),
    )
