"""Fills the tables of a page from reports. A program: ``make bench-docs`` runs it.

A page has places like this one, whose inner lines are replaced by the table and the plot of the report
``<name>.json``; the plot is taken to be beside it::

    <!-- benchmarks: name -->
    <!-- /benchmarks -->
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from kernel_actions.benchmark import model, show

_PLACE = re.compile(
    r"^(?P<head><!-- benchmarks: (?P<name>[a-z0-9-]+) -->\n).*?^(?P<foot><!-- /benchmarks -->)$",
    re.MULTILINE | re.DOTALL,
)
_NOTHING = "Not measured yet.\n"


def filled(page: str, folder: Path, link: str) -> str:
    """The text of ``page`` with the reports in ``folder``, which is ``link`` from the page.

    Raises ``ValueError`` for a file that is no report.
    """

    def fill(place: re.Match[str]) -> str:
        return place["head"] + _section(folder, place["name"], link) + place["foot"]

    return _PLACE.sub(fill, page)


def _section(folder: Path, name: str, link: str) -> str:
    path = folder / f"{name}.json"
    if not path.is_file():
        return _NOTHING
    try:
        report = model.read(json.loads(path.read_bytes()))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    plot = f"![What the plot shows is in the table below it]({link}/{name}.svg)\n\n"
    return (plot if (folder / f"{name}.svg").is_file() else "") + show.as_markdown(report)


def main(arguments: list[str]) -> int:
    """Fill the page of the first argument with the reports in the folder of the second."""
    page, folder = Path(arguments[0]), Path(arguments[1])
    text = page.read_text(encoding="utf-8")
    new = filled(text, folder, os.path.relpath(folder, page.parent))
    if new != text:
        page.write_text(new, encoding="utf-8")
        print(f"wrote {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
