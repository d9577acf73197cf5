"""Markdown for the summary of a job: one look for all commands, which no text can break.

Everything that is given as text is shown as text: names, messages and paths come from pull requests. A
summary begins with its verdict, has what failed before what did not, and folds what is long. Standard
library alone, as commands that plan use it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from kernel_actions.errors import printable
from kernel_actions.named_tuple import NamedTuple

Verdict = Literal["passed", "failed", "warned", "planned"]

SIGNS: dict[Verdict, str] = {"passed": "✅", "failed": "❌", "warned": "⚠️", "planned": "📋"}
# GitHub draws no more of a diagram than this, and nobody reads as much.
_MOST_STEPS = 60
_LONGEST_NAME = 60
_DAY = 86_400.0
_ADDRESS = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?")


class Step(NamedTuple):
    """Something that took time: in which section of the timeline, from when (in seconds), and how long."""

    section: str
    name: str
    start: float
    seconds: float
    is_failed: bool = False


_ESCAPED = {character: f"\\{character}" for character in "\\`*_[]|~#!"} | {
    # GitHub looks for mentions in the text of a page, where no escape is left. A word joiner, which nobody
    # sees, keeps what follows from being a name.
    "@": "@&#8288;",
    "&": "&amp;", "<": "&lt;", ">": "&gt;",
    # GitHub has formulas between dollars, where a backslash would be part of them.
    "$": "&#36;",
}  # fmt: skip


def text(value: str) -> str:
    """``value`` on one line, with every character that Markdown, HTML or the formulas of GitHub would act
    upon escaped. An address in it is no link: who wrote it is not known."""
    escaped = "".join(_ESCAPED.get(character, character) for character in printable(value))
    # At the start of a line: an item of a list, a rule, or what makes a heading of the line before.
    escaped = re.sub(
        r"^([-+=])|^(\d{1,9})(?=[.)](?:\s|$))",
        lambda found: f"\\{found[1]}" if found[1] else f"{found[2]}\\",
        escaped,
    )
    return escaped.replace("://", "&#58;//").replace("www.", "www&#46;")


def link(address: str) -> str:
    """``address`` as a link, where it is one that this suite made itself."""
    return f"<{address}>" if _ADDRESS.fullmatch(address) else text(address)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; ``header`` is Markdown, and what a cell of ``rows`` holds is shown as text."""
    lines = [
        "| " + " | ".join(header) + " |",
        "|" + " --- |" * len(header),
        *("| " + " | ".join(text(cell) for cell in row) + " |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def heading(verdict: Verdict, title: str) -> str:
    """How each summary begins: the verdict, and in a few words of what."""
    return f"### {SIGNS[verdict]} {text(title)}\n"


def lines(values: Iterable[str]) -> str:
    """Each of ``values`` as a paragraph."""
    return "\n".join(f"{text(value)}\n" for value in values)


def bullets(values: Iterable[str]) -> str:
    """Each of ``values`` as an item of a list."""
    return "".join(f"- {text(value)}\n" for value in values)


def details(title: str, body: str) -> str:
    """``body``, which is Markdown, folded below ``title``."""
    import html  # Not at the top: its table of entities takes long to make.

    # What is inside of HTML is Markdown again after an empty line.
    return f"<details><summary>{html.escape(printable(title))}</summary>\n\n{body.rstrip()}\n\n</details>\n"


def join(*parts: str) -> str:
    """The parts of a summary, with an empty line between them; empty parts are left out."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def timeline(steps: Sequence[Step], title: str = "Timeline") -> str:
    """The steps as a Gantt chart, which GitHub draws, folded below ``title``; nothing for less than two.

    It is drawn from the first step's start: what a chart says of the time of day would be the reader's.
    """
    if len(steps) < 2:
        return ""
    shown = steps[:_MOST_STEPS]
    first = min(step.start for step in shown)
    longest = max(len(_label(step.section)) if step.section else 0 for step in shown)
    drawn = [
        "```mermaid",
        # Sections are named left of the bars, and else below them.
        f'%%{{init: {{"gantt": {{"leftPadding": {max(75, 20 + 7 * longest)}}}}}}}%%',
        "gantt",
        "    dateFormat HH:mm:ss.SSS",
        "    axisFormat %H:%M:%S",
    ]
    section = None
    for step in shown:
        if step.section != section:
            section = step.section
            if section:
                drawn.append(f"    section {_label(section)}")
        start = min(max(step.start - first, 0.0), _DAY - 1)
        took = max(round(min(step.seconds, _DAY - 1 - start) * 1000), 1)
        state = "crit" if step.is_failed else "done"
        drawn.append(f"    {_label(step.name)} :{state}, {_clock(start)}, {took}ms")
    drawn.append("```")
    more = f"\n\n{len(steps) - len(shown)} more are left out." if len(steps) > len(shown) else ""
    return details(title, "\n".join(drawn) + more)


def _label(value: str) -> str:
    """``value`` as a label of a diagram: Mermaid has a grammar of its own, and no way to escape all of it."""
    kept = "".join(one if one.isalnum() or one in " ._-+/()" else " " for one in printable(value))
    # A line that begins with a word of its grammar would be taken for that.
    words = " ".join(kept.split())[:_LONGEST_NAME]
    return f"the {words}" if words.lower().startswith(_WORDS) or not words else words


_WORDS = (
    "section", "title", "gantt", "dateformat", "axisformat", "excludes", "includes", "todaymarker", "click",
    "tickinterval", "weekday", "weekend", "inclusiveenddates", "topaxis", "acctitle", "accdescr", "end",
)  # fmt: skip


def _clock(seconds: float) -> str:
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}.{thousandths:03}"
