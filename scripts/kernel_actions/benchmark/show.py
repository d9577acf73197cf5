"""The report for people: a table, the job's summary, Markdown; and its files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_actions import built, console, github, markdown
from kernel_actions.benchmark import plot
from kernel_actions.benchmark.decide import Comparison
from kernel_actions.benchmark.model import Clock, Report, Workload
from kernel_actions.errors import Place, WrongInput

_BAR_WIDTH = 16
_EIGHTHS = " ▏▎▍▌▋▊▉"
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_FACTS = ("gpu", "cpu")


@dataclass(frozen=True)
class Written:
    """The files of a report. Without measurements there are no plots, without Pillow no PNG."""

    report: Path
    svg: Path | None
    png: Path | None


def write(report: Report, variant: Path, report_file: str, plot_folder: str) -> Written:
    """Write the report and its plots: beside the folder of the variant, unless other places are given.

    The plots are named like the report. Raises ``WrongInput`` for a folder that is a file.
    """
    target = Path(report_file) if report_file else variant.with_name(f"{variant.name}.benchmark-report.json")
    folder = Path(plot_folder) if plot_folder else target.parent
    for each in (target.parent, folder):
        if each.exists() and not each.is_dir():
            raise WrongInput("is not a folder", where=Place(each), repair="choose another one")
    built.write_json(target, report.as_json())
    drawn = plot.draw(report)
    if drawn is None:
        return Written(target, None, None)
    stem = target.stem.removesuffix("-report")
    svg, png = folder / f"{stem}.svg", folder / f"{stem}.png"
    built.write_whole(svg, plot.svg(drawn).encode())
    image = plot.png(drawn)
    if image is None:
        console.say("No PNG of the plot: the Python package pillow is not installed")
        return Written(target, svg, None)
    built.write_whole(png, image)
    return Written(target, svg, png)


def show(report: Report, form: str, written: Written, kernel_dir: Path) -> None:
    """Print the report, and on a job's page its table and annotations too."""
    if form == "json":
        print(json.dumps(report.as_json(), indent=2))
        return
    if form == "markdown":
        print(as_markdown(report))
        return
    header, rows = table(report)
    with github.untrusted_output():
        if rows:
            print(console.table(header, rows))
            print()
        for line in notes(report):
            print(line)
        print(f"{sentence(report)} ({console.duration(report.seconds)})")
    if form == "github":
        for one in report.failures[:10]:
            where = Place(kernel_dir / one.file, one.line)
            github.annotate("error", one.reason, where=where, title=report.name_of(one))
        for workload, clock, comparison, verdict in report.decisions():
            if verdict in ("slower", "undecided"):
                said = f"{comparison_text(comparison)} of the baseline's time"
                level = "error" if verdict == "slower" else "warning"
                title = f"{label(report, workload, clock)}: {verdict}"
                github.annotate("error" if level == "error" else "warning", said, title=title)
        github.set_outputs(
            {
                "verdict": report.verdict,
                "report": written.report.as_posix(),
                "plot": written.svg.as_posix() if written.svg else "",
                "picture": written.png.as_posix() if written.png else "",
            }
        )
        outcome: markdown.Verdict = "passed" if report.verdict == "passed" else "failed"
        heading = markdown.heading(outcome, f"Benchmarks of {sentence(report)}")
        github.add_summary(markdown.join(heading, as_markdown(report)))


def as_markdown(report: Report) -> str:
    """The report as Markdown: the machine, the table, and what has to be said beside it."""
    header, rows = table(report, has_bars=True)
    parts = [markdown.text(machine(report)), ""]
    if rows:
        parts += [markdown.table(tuple(map(markdown.text, header)), rows).rstrip(), ""]
    parts += [f"- {markdown.text(line)}" for line in notes(report)]
    return "\n".join(parts).rstrip() + "\n"


def table(report: Report, *, has_bars: bool = False) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The header and the rows: one for each workload and clock."""
    peers = list(dict.fromkeys(name for each in report.workloads for name in each.peer_names))
    has_bytes = any(one.bytes is not None for one in report.workloads)
    header = ["workload", "time", "spread"]
    header += ["of copy"] if has_bytes else []
    header += [""] if has_bytes and has_bars else []
    header += peers
    header += ["× baseline", "verdict"] if report.baseline is not None else []
    rows = []
    for workload in report.workloads:
        for clock in workload.clocks:
            mine = workload.kernel(clock)
            row = [label(report, workload, clock), duration(mine.seconds), f"{100 * mine.spread:.0f} %"]
            if has_bytes:
                share = workload.share(mine)
                row += ["" if share is None else f"{share:.2f}"]
                row += [bar(share)] if has_bars else []
            ratios = {peer.name: comparison for peer, comparison in workload.peers(clock)}
            row += [f"{ratios[name].ratio:.2f} ×" if name in ratios else "–" for name in peers]
            if report.baseline is not None:
                row += _baseline_cells(report, workload, clock)
            rows.append(tuple(row))
    return tuple(header), rows


def _baseline_cells(report: Report, workload: Workload, clock: Clock) -> list[str]:
    comparison = workload.against_baseline(clock)
    if comparison is None:
        return ["–", "not compared"]
    return [comparison_text(comparison), comparison.verdict(report.threshold)]


def notes(report: Report) -> Iterator[str]:
    """What is not in the table: what was skipped, failed, missing, and what the columns mean."""
    for failure in report.failures:
        yield f"failed: {report.name_of(failure)}: {failure.reason}"
    for reason, names in _grouped([(one.reason, report.name_of(one)) for one in report.skipped]):
        yield f"skipped: {names}: {reason}"
    missing = [
        (f"{peer}: {reason}", report.name_of(one)) for one in report.workloads for peer, reason in one.missing
    ]
    for reason, names in _grouped(missing):
        yield f"without {reason} ({names})"
    for reason, names in _grouped([(one.note, report.name_of(one)) for one in report.workloads if one.note]):
        yield f"not compared: {names}: {reason}"
    rates = [rate for one in report.workloads if (rate := one.copy_rate) is not None]
    if rates:
        low, high = rate_text(min(rates)), rate_text(max(rates))
        yield f"copy rate, measured in turns with each workload: {low if low == high else f'{low} to {high}'}"
    if any(one.kind == "peer" for each in report.workloads for one in each.series):
        yield "columns of peers: their time in units of the kernel's, so above 1 the kernel is faster"
    if any(len(one.clocks) > 1 for one in report.workloads):
        yield "(host): the time on the host, which small workloads are measured by as well"
    if report.baseline is not None:
        place = ", in a process of its own" if report.baseline.apart else ", in the same process"
        commit = f" ({report.baseline.commit[:12]})" if report.baseline.commit else ""
        yield (
            f"baseline: {report.baseline.source}{commit}{place}; {100 * report.threshold:g} % slower fails; "
            f"intervals hold the true ratio with {100 * report.confidence:g} %"
        )


def sentence(report: Report) -> str:
    """The outcome in one line."""
    parts = [f"{report.variant}: {console.counted(len(report.workloads), 'workload')} measured"]
    if report.skipped:
        parts.append(f"{len(report.skipped)} skipped")
    if report.failures:
        parts.append(f"{len(report.failures)} failed")
    verdicts = [verdict for *_, verdict in report.decisions()]
    for word in ("slower", "as fast", "faster", "undecided"):
        if word in verdicts:
            parts.append(f"{verdicts.count(word)} {word}")
    if not report.complete:
        parts.append("not complete: time ran out")
    return ", ".join(parts)


def machine(report: Report) -> str:
    """The machine and the versions in one line."""
    facts = report.machine
    parts = [str(facts[name]) for name in _FACTS if facts.get(name)]
    if facts.get("threads"):
        parts.append(console.counted(int(facts["threads"] or 0), "thread"))
    for name, shown in (("driver", "driver"), ("cuda", "CUDA"), ("torch", "Torch"), ("kernels", "kernels")):
        if facts.get(name):
            parts.append(f"{shown} {facts[name]}")
    if facts.get("sm_clock_mhz"):
        parts.append(f"SM at {facts['sm_clock_mhz']} MHz, memory at {facts.get('memory_clock_mhz')} MHz")
    changes = " with changes" if report.dirty else ""
    commit = f"{report.commit[:12]}{changes}" if report.commit else "no commit"
    return f"{', '.join(parts)}; {report.variant} at {commit}, {report.started[:10]}"


def label(report: Report, workload: Workload, clock: Clock) -> str:
    """The workload's name; of its second clock, with what that is."""
    name = report.name_of(workload)
    return name if clock == workload.clocks[0] else f"{name} (host)"


def comparison_text(comparison: Comparison) -> str:
    """A ratio with its interval."""
    return f"{comparison.ratio:.3f} ({comparison.low:.3f}–{comparison.high:.3f})"


def duration(seconds: float) -> str:
    """Seconds with three digits and a unit that suits."""
    factor, unit = next(((factor, unit) for factor, unit in _UNITS if seconds >= factor), _UNITS[-1])
    return f"{_three_digits(seconds / factor)} {unit}"


def rate_text(rate: float) -> str:
    """Bytes a second with three digits and a unit that suits."""
    return f"{_three_digits(rate / 1e12)} TB/s" if rate >= 1e12 else f"{_three_digits(rate / 1e9)} GB/s"


def bar(share: float | None) -> str:
    """A share as a bar of text: full at 1."""
    if share is None:
        return ""
    eighths = round(min(max(share, 0.0), 1.25) * _BAR_WIDTH * 8)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def _grouped(pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Names with the same reason, together; many are counted."""
    by: dict[str, list[str]] = {}
    for reason, name in pairs:
        by.setdefault(reason, []).append(name)
    for reason, names in by.items():
        yield reason, ", ".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} more"
