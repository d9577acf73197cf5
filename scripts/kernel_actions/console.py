"""What people see: progress on stderr, results on stdout."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from kernel_actions.errors import printable


def say(message: str) -> None:
    """Print one line of progress to stderr, at once."""
    print(message, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """``seconds`` as people say it: ``0.4 s``, ``12 s``, ``3 min 5 s``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def size(count: int) -> str:
    """``count`` bytes as people say it: ``512 B``, ``1.5 MB``."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError("unreachable")


def counted(count: int, name: str) -> str:
    """A number and what it counts: ``1 error``, ``2 errors``."""
    return f"{count} {name}{'' if count == 1 else 's'}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A plain table with aligned columns; cells are made printable, so that no cell breaks it."""
    cells = [[printable(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def is_verbose() -> bool:
    """Whether the whole output of tools is wanted (``KA_VERBOSE=1`` or a debug run of Actions)."""
    return os.environ.get("KA_VERBOSE") == "1" or os.environ.get("RUNNER_DEBUG") == "1"
