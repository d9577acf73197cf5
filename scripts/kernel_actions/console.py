"""What people see: progress on stderr, results on stdout."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import chain, zip_longest

from kernel_actions.errors import printable

# Cells of so many characters are not folded, as "1.5 MB".
_SHORT = 12


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


def table(header: Sequence[str], rows: Sequence[Sequence[str]], room: int | None = None) -> str:
    """A plain table with aligned columns; cells are made printable, so that no cell breaks it.

    Cells are folded between words, and in paths, to make it ``room`` columns wide, where that is enough.
    Without ``room``, the terminal that results go to says how wide; where they go elsewhere, none is folded.
    """
    cells = [[printable(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    room = room or _terminal()
    gaps = 2 * (len(widths) - 1)
    if room is not None and sum(widths) + gaps > room:
        widths = _narrowed(cells, widths, room - gaps)
    first, *others = [list(zip_longest(*map(_folded, row, widths), fillvalue="")) for row in cells]
    rule = tuple("-" * width for width in widths)
    return "\n".join(
        "  ".join(part.ljust(width) for part, width in zip(line, widths, strict=True)).rstrip()
        for line in chain(first, [rule], *others)
    )


def _terminal() -> int | None:
    """The width of the terminal that results go to, in columns; ``None`` where they go elsewhere."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError, AttributeError):
        return None


def _narrowed(cells: Sequence[Sequence[str]], widths: Sequence[int], room: int) -> list[int]:
    """The widths of columns that share ``room``: the widest are made narrower, down to what is not
    taken apart in them."""
    header, *rows = cells

    def whole(cell: str) -> list[str]:
        return [cell] if len(cell) <= _SHORT else _parts(cell)

    longest = [
        max(
            len(part)
            for parts in (_parts(header[at]), *(whole(row[at]) for row in rows))
            for part in parts or [""]
        )
        for at in range(len(widths))
    ]

    def limited(most: int) -> list[int]:
        return [max(part, min(width, most)) for part, width in zip(longest, widths, strict=True)]

    least, most = 1, max(widths)
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if sum(limited(middle)) <= room else (least, middle - 1)
    return limited(least)


def _parts(text: str) -> list[str]:
    """What is not taken apart any more: words, and of paths the folders."""
    return text.replace("/", "/ ").split()


def _folded(cell: str, width: int) -> list[str]:
    """``cell`` in lines of at most ``width`` characters, between words, and in longer words as ``_parts``."""
    if len(cell) <= width:
        return [cell]
    lines = [""]
    for word in cell.split():
        gap = " "
        for part in [word] if len(word) <= width else _parts(word):
            if lines[-1] and len(lines[-1] + gap + part) > width:
                lines.append(part)
            else:
                lines[-1] = (lines[-1] + gap + part).lstrip()
            gap = ""
    return lines


def is_verbose() -> bool:
    """Whether the whole output of tools is wanted (``KA_VERBOSE=1`` or a debug run of Actions)."""
    return os.environ.get("KA_VERBOSE") == "1" or os.environ.get("RUNNER_DEBUG") == "1"
