"""The report as one HTML page that needs nothing else: no script, no request, no font.

A policy in the page has the browser refuse whatever might get into it all the same: nothing is loaded, and
the one style sheet is named by its hash. All that is not markup of this file is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable, Iterator
from importlib import resources
from itertools import groupby

from kernel_actions import __version__, console, coverage
from kernel_actions.coverage import Entry, Grid
from kernel_actions.errors import printable
from kernel_actions.markdown import Step
from kernel_actions.report.model import Finding, Report, VariantReport

_MOST_FINDINGS = 2_000
_VERDICTS = {
    "passed": ("✓", "Passed"),
    "failed": ("✗", "Failed"),
    "warned": ("!", "Passed, with warnings"),
    "planned": ("○", "Planned"),
}
# As in a summary, but drawn by every font.
_SIGNS: dict[coverage.State, str] = {
    "failed": "✗", "missing": "–", "untested": "?", "waived": "!", "built": "■", "tested": "✓",
    "published": "↑", "kept": "=", "planned": "○", "left out": "·",
}  # fmt: skip
_SEVERITIES = {"error": "error", "warning": "warning", "waived": "accepted"}


def page(report: Report) -> str:
    """The whole page. The same report makes the same page."""
    style = resources.files("kernel_actions").joinpath("data/report/style.css").read_text(encoding="utf-8")
    hashed = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{hashed}'; base-uri 'none'; form-action 'none'"
    title = f"{report.kernel} {report.release}".strip()
    sections = list(_sections(report))
    links = "".join(f'<li><a href="#{name}">{_text(label)}</a></li>' for name, label, _ in sections)
    body = "".join(
        f'<section aria-labelledby="{name}"><h2 id="{name}">{_text(label)}</h2>{made}</section>\n'
        for name, label, made in sections
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<title>{_text(title)}: {_text(_VERDICTS[report.verdict][1].lower())}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the report</a>
<header>
<h1>{_text(title)}</h1>
<p>{_verdict(report)}</p>
<p class="lead">{_text(report.sentence)}</p>
{_facts(report)}
<nav aria-label="Sections"><ul>{links}</ul></nav>
</header>
<main id="main" tabindex="-1">
{body}</main>
<footer>Made by kernel-actions {_text(__version__)} of {_read(report)}. It loads nothing.</footer>
</body>
</html>
"""


def _sections(report: Report) -> Iterator[tuple[str, str, str]]:
    """The name, the title and the content of each section; what is wrong comes first."""
    if report.findings:
        yield "findings", "Findings", _findings(report.findings)
    if report.variants:
        yield "coverage", "Coverage", _coverage(coverage.grid(report.entries), has_plan=report.has_plan)
        yield "variants", "Variants", _variants(report)
    if report.steps:
        yield "timeline", "Timeline", _timeline(report.steps)


def _verdict(report: Report) -> str:
    sign, word = _VERDICTS[report.verdict]
    return f'<span class="verdict {report.verdict}"><span aria-hidden="true">{sign}</span> {word}</span>'


def _facts(report: Report) -> str:
    rows = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in report.facts)
    return f"<dl>{rows}</dl>" if rows else ""


def _read(report: Report) -> str:
    count = len(report.read)
    return console.counted(count, "file") if count else "the plan alone"


# What is wrong.


def _findings(findings: Iterable[Finding]) -> str:
    listed = list(findings)
    counts = ", ".join(
        f"{number} {word}" if name == "waived" else console.counted(number, word)
        for name, word in _SEVERITIES.items()
        if (number := sum(one.severity == name for one in listed))
    )
    parts = [f"<p>{_text(counts)}</p>", *map(_finding, listed[:_MOST_FINDINGS])]
    if len(listed) > _MOST_FINDINGS:
        parts.append(f"<p>{len(listed) - _MOST_FINDINGS} more are not shown.</p>")
    return "".join(parts)


def _finding(one: Finding) -> str:
    repair = "Why accepted" if one.severity == "waived" else "What to do"
    rows = (("What", one.message), ("Variant", one.variant), (repair, one.repair))
    shown = "".join(f"<dt>{name}</dt><dd>{_text(value)}</dd>" for name, value in rows if value)
    where = f' <span class="where name">{_text(one.where)}</span>' if one.where else ""
    is_open = " open" if one.severity == "error" else ""
    label = f'<span class="state is-{one.severity}">{_SEVERITIES[one.severity]}</span>'
    return (
        f"<details{is_open}><summary>{label} {_text(one.title)}{where}</summary>"
        f"<div><dl>{shown}</dl></div></details>"
    )


# The grid.


def _coverage(grid: Grid, *, has_plan: bool) -> str:
    caption = "Each build variant: system and Torch downwards, compute across."
    if not has_plan:
        caption += " The plan was not read, so that variants may be missing unseen."
    header = "".join(f'<th scope="col">{_text(one)}</th>' for one in ("system", "torch", *grid.columns))
    groups = []
    for system, rows in groupby(grid.rows, key=lambda row: row[0]):
        listed = list(rows)
        lines = []
        for number, (_, torch, cells) in enumerate(listed):
            first = (
                f'<th scope="rowgroup" rowspan="{len(listed)}">{_text(system)}</th>' if number == 0 else ""
            )
            lines.append(f'<tr>{first}<th scope="row">{_text(torch)}</th>{"".join(map(_cell, cells))}</tr>')
        groups.append(f"<tbody>{''.join(lines)}</tbody>")
    legend = "".join(
        f'<li><span class="state is-{_class(state)}" aria-hidden="true">{_SIGNS[state]}</span> '
        f"{_text(coverage.MEANINGS[state])}</li>"
        for state in grid.states
    )
    head = f"<caption><span>{_text(caption)}</span></caption><thead><tr>{header}</tr></thead>"
    table = f"<table>{head}{''.join(groups)}</table>"
    return _scrolled("Table of coverage", table) + f'<ul class="legend">{legend}</ul>'


def _cell(entry: Entry | None) -> str:
    if entry is None:
        return '<td class="cell"></td>'
    # A sign alone is nothing to a screen reader, nor to who does not know it.
    said = entry.detail or entry.state
    return (
        f'<td class="cell"><span class="is-{_class(entry.state)}" title="{_text(entry.variant)}: '
        f'{_text(coverage.MEANINGS[entry.state])}"><span aria-hidden="true">{_SIGNS[entry.state]}</span> '
        f"{_text(said)}</span></td>"
    )


def _class(state: coverage.State) -> str:
    return state.replace(" ", "-")


# The variants.


def _variants(report: Report) -> str:
    order = list(coverage.SIGNS)
    listed = zip(report.variants, report.entries, strict=True)
    # What was left out has nothing to be told of.
    told = [pair for pair in listed if pair[1].state != "left out"]
    by_state = sorted(told, key=lambda pair: order.index(pair[1].state))
    return "".join(_variant(one, entry) for one, entry in by_state)


def _variant(one: VariantReport, entry: Entry) -> str:
    built = one.build
    rows: list[tuple[str, str]] = []
    if one.published:
        rows.append(("Release", one.published + (" (kept from it)" if one.is_kept else "")))
    if built is not None:
        dirty = ", with changes that are not committed" if built.is_dirty else ""
        rows += [
            ("Built by", f"{built.builder}, in {console.duration(built.seconds)}"),
            ("From", f"{built.commit or 'no commit'}{dirty}"),
            ("Torch", built.torch),
            ("Holds", f"{console.counted(built.files, 'file')}, {console.size(built.bytes)}"),
        ]
    for tests in one.tests:
        took = f" in {console.duration(tests.seconds)}" if tests.seconds else ""
        why = f": {tests.why}" if tests.why else ""
        rows.append((f"Tests on {tests.gpu or 'no GPU'}", f"{tests.verdict}, {tests.counts}{took}{why}"))
    rows += [("May go untested", one.waived), ("Planned", "yes" if one.is_planned else "no, or not known")]
    shown = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in rows if value)
    return (
        f'<details><summary><span class="state is-{_class(entry.state)}">{_text(entry.state)}</span> '
        f'<span class="name">{_text(one.name)}</span></summary><div><dl>{shown}</dl></div></details>'
    )


# What took how long.


def _timeline(steps: Iterable[Step]) -> str:
    listed = list(steps)
    first = min(one.start for one in listed)
    whole = max(one.start + one.seconds for one in listed) - first or 1.0
    groups = []
    for section, inner in groupby(listed, key=lambda one: one.section):
        rows = [_step_cells(one, first, whole) for one in inner]
        name = f'<th scope="rowgroup" rowspan="{len(rows)}" class="name">{_text(section)}</th>'
        lines = "".join(f"<tr>{'' if number else name}{cells}</tr>" for number, cells in enumerate(rows))
        groups.append(f"<tbody>{lines}</tbody>")
    header = "".join(f'<th scope="col">{one}</th>' for one in ("what", "step", "time"))
    axis = f'<th scope="col">from 0 to {_text(console.duration(whole))}</th>'
    caption = "<caption><span>What took how long, each job from its own start.</span></caption>"
    table = f"<table>{caption}<thead><tr>{header}{axis}</tr></thead>{''.join(groups)}</table>"
    return _scrolled("Table of times", table)


def _step_cells(one: Step, first: float, whole: float) -> str:
    # Attributes, not a style: the page's policy allows no style but its own.
    start, width = (one.start - first) / whole * 1000, max(one.seconds / whole * 1000, 2.0)
    bar = (
        '<svg viewBox="0 0 1000 16" preserveAspectRatio="none" aria-hidden="true" focusable="false">'
        '<rect class="track" x="0" y="2" width="1000" height="12"/>'
        f'<rect class="{"bar bad" if one.is_failed else "bar"}" x="{min(start, 998):.1f}" y="2" '
        f'width="{width:.1f}" height="12"/></svg>'
    )
    failed = " (failed)" if one.is_failed else ""
    return (
        f'<td class="cell">{_text(one.name)}{failed}</td>'
        f'<td class="number">{_text(console.duration(one.seconds))}</td><td>{bar}</td>'
    )


def _scrolled(label: str, table: str) -> str:
    """A table that scrolls by itself where the window is narrow; the keyboard has to reach it for that."""
    return f'<div class="scroll" role="region" aria-label="{_text(label)}" tabindex="0">{table}</div>'


def _text(value: str) -> str:
    return html.escape(printable(value))
