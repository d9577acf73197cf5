"""``report``: one page that tells what became of a run, made of the reports that its stages left.

model     what a report tells
reading   a report of files
summary   a report as the summary of a job
page      a report as an HTML page that needs nothing else
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_actions import built, console, coverage, github
from kernel_actions.errors import EXIT_DONE, printable
from kernel_actions.report import page, reading, summary
from kernel_actions.report.model import Report

if TYPE_CHECKING:
    from kernel_actions.cli import Options

__all__ = ["Report", "run", "write"]

FILE_NAME = "report.html"


def run(options: Options) -> int:
    """The command ``report``. It tells of failures and does not fail for them: the stages did.

    Raises ``WrongInput`` when there is nothing to report.
    """
    kernel_dir = options.kernel_dir
    folders = [Path(one) for one in options.reports] or [kernel_dir / "build"]
    made = reading.read([one for one in folders if options.reports or one.exists()], kernel_dir)
    if options.output:
        target = Path(options.output)
        built.write_whole(target, page.page(made).encode())
    else:
        target = write(made, kernel_dir / "build")
    if options.format == "json":
        print(json.dumps({**made.as_json(), "page": str(target)}, indent=2))
        return EXIT_DONE
    with github.untrusted_output():
        _print(made)
        print(f"\n{printable(made.sentence)}\n{target}", flush=True)
    if options.format == "github":
        github.set_outputs({"verdict": made.verdict, "page": str(target)})
        github.add_summary(summary.summary(made))
    return EXIT_DONE


def write(report: Report, build_dir: Path) -> Path:
    """Write the page of ``report`` into the folder of what is built, whole or not at all, and return its
    path. Git overlooks the folder if it was not there."""
    is_new = not build_dir.exists()
    path = build_dir / FILE_NAME
    built.write_whole(path, page.page(report).encode())
    if is_new:
        built.hide_from_git(build_dir)
    return path


def _print(made: Report) -> None:
    rows = [
        (one.title, one.variant, one.where, one.message) for one in made.findings if one.severity == "error"
    ]
    if rows:
        print(console.table(("error", "variant", "where", "what"), rows[:50]) + "\n")
    grid = coverage.grid(made.entries)
    lines = [
        (system, torch, *("" if cell is None else f"{cell.state} {cell.detail}".rstrip() for cell in cells))
        for system, torch, cells in grid.rows
    ]
    print(console.table(("system", "torch", *grid.columns), lines))
