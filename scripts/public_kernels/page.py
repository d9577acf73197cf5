"""The outcomes for people: a table for a terminal, and a page of the documentation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kernel_actions import built, console, markdown
from kernel_actions.errors import Place, WrongInput

from public_kernels.results import STAGES, Outcome, Run

_PLACE = re.compile(
    r"^(?P<head><!-- public-kernels -->\n).*?^(?P<foot><!-- /public-kernels -->)$", re.MULTILINE | re.DOTALL
)
_LONGEST_REASON = 300
_MARKS = {"passed": "✓", "failed": "✗", "absent": "–", "elsewhere": "·", "time limit": "✗"}


def as_table(run: Run) -> str:
    """A row for each kernel, and the outcomes counted."""
    shown = [stage for stage in STAGES if any(stage in one.stages for one in run.kernels.values())]
    rows = [
        (kernel.name, kernel.builder[:8], *(_cell(kernel.stages.get(stage)) for stage in shown))
        for kernel in run.kernels.values()
    ]
    totals = ("total", "", *(_total(run, stage) for stage in shown))
    return console.table(("kernel", "builder", *shown), [*rows, totals])


def _cell(outcome: Outcome | None) -> str:
    return "" if outcome is None else f"{_MARKS[outcome.verdict]} {outcome.summary}"


def _total(run: Run, stage: str) -> str:
    outcomes = [one.stages[stage] for one in run.kernels.values() if stage in one.stages]
    tried = [one for one in outcomes if one.verdict in ("passed", "failed", "time limit")]
    return f"{sum(one.verdict == 'passed' for one in tried)} of {len(tried)}"


def write(path: Path, runs: Sequence[Run]) -> None:
    """Replace what is between the page's marks. Raises ``WrongInput`` where there are no marks or no runs."""
    if not runs:
        raise WrongInput(
            "--write has no outcomes to show", repair="give --results FILE, once for each machine"
        )
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    filled, count = _PLACE.subn(lambda place: place["head"] + _body(runs) + place["foot"], text)
    if count != 1:
        raise WrongInput(
            "has no place for the outcomes",
            where=Place(path),
            repair="it needs the lines <!-- public-kernels --> and <!-- /public-kernels -->",
        )
    if filled != text:
        built.write_whole(path, filled.encode())


def _body(runs: Sequence[Run]) -> str:
    """What stands between the marks: the totals, a table for each machine, and the reasons of failures."""
    runs = united(runs)
    parts = [_totals(runs)]
    for run in runs:
        parts += [f"## {run.machine.label}", _about(run), _rows(run), _reasons(run)]
    return "\n\n".join(part for part in parts if part) + "\n"


def united(runs: Sequence[Run]) -> list[Run]:
    """The runs, with those on one machine and of the same revisions as one; the later outcome counts."""
    by_place: dict[tuple[object, ...], Run] = {}
    for run in runs:
        key = (run.machine, run.kernels_repository, run.suite, run.builder)
        before = by_place.get(key)
        if before is None:
            by_place[key] = run
            continue
        kernels = {**before.kernels, **run.kernels}
        by_place[key] = replace(
            run, date=max(run.date, before.date), kernels={name: kernels[name] for name in sorted(kernels)}
        )
    return list(by_place.values())


def _totals(runs: Sequence[Run]) -> str:
    shown = [stage for stage in STAGES if any(_has(run, stage) for run in runs)]
    rows = [[stage, *(_total(run, stage) if _has(run, stage) else "" for run in runs)] for stage in shown]
    return _table(["stage", *(run.machine.label for run in runs)], rows)


def _has(run: Run, stage: str) -> bool:
    return any(stage in kernel.stages for kernel in run.kernels.values())


def _about(run: Run) -> str:
    builder = f", {run.builder}" if run.builder else ""
    return markdown.text(f"{run.date}: {run.kernels_repository}{builder}, {run.suite}. {run.machine}.")


def _rows(run: Run) -> str:
    shown = [stage for stage in STAGES if _has(run, stage)]
    rows = [
        [kernel.name, kernel.builder[:8], *(_cell(kernel.stages.get(stage)) for stage in shown)]
        for kernel in run.kernels.values()
    ]
    return _table(["kernel", "builder", *shown], rows)


def _reasons(run: Run) -> str:
    """One line for each reason why a stage failed or a machine lacks something, with the kernels it is of."""
    kernels: dict[tuple[str, str], list[str]] = {}
    for kernel in run.kernels.values():
        for stage, outcome in kernel.stages.items():
            if outcome.verdict in ("failed", "time limit") or outcome.detail:
                reason = outcome.detail or outcome.summary
                if len(reason) > _LONGEST_REASON:
                    reason = f"{reason[:_LONGEST_REASON]}…"
                kernels.setdefault((stage, reason), []).append(kernel.name)
    if not kernels:
        return ""
    listed = sorted(kernels.items(), key=lambda item: (STAGES.index(item[0][0]), item[1]))
    return _table(
        ["stage", "kernels", "reason"], [[stage, ", ".join(names), why] for (stage, why), names in listed]
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; what kernels say in its cells cannot break it."""
    return markdown.table(header, rows).rstrip()
