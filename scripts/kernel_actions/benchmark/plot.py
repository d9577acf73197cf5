"""The plot of a report: one row for each workload, and on it the kernel, the baseline and the peers.

It is drawn once, as shapes whose colours have names, and written twice: as SVG, which follows the reader's
light or dark scheme, and as PNG on a light card of its own, which reads on either.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from xml.sax.saxutils import escape

from kernel_actions.benchmark import show
from kernel_actions.benchmark.model import Report, Series, Workload
from kernel_actions.errors import printable

Marker = Literal["dot", "ring", "square", "triangle", "diamond", "cross", "plus"]

# Name: on light, on dark. Markers differ in shape as well, for who cannot tell the colours apart.
_COLOURS = {
    "paper": ("#ffffff", "#0d1117"),
    "ink": ("#1f2328", "#f0f6fc"),
    "muted": ("#59636e", "#9198a1"),
    "grid": ("#d8dee4", "#30363d"),
    "kernel": ("#0969da", "#58a6ff"),
    "trail": ("#b6dcff", "#1c4a7d"),
    "peer0": ("#bc4c00", "#f0883e"),
    "peer1": ("#1a7f37", "#3fb950"),
    "peer2": ("#8250df", "#bc8cff"),
    "peer3": ("#bf3989", "#f778ba"),
    "peer4": ("#7d4e00", "#d29922"),
}
_PEER_MARKERS: tuple[Marker, ...] = ("square", "triangle", "diamond", "cross", "plus")
_WIDTH = 960
_LEFT = 284
_RIGHT = 770
_ROW = 24
_MARGIN = 24
_MOST_ROWS = 120
_MOST_LETTERS = 36
_TICKS = 6
_PNG_SCALE = 2


@dataclass(frozen=True)
class Text:
    """Text at a base line. ``anchor``: where ``x`` is in it."""

    x: float
    y: float
    text: str
    colour: str = "ink"
    size: int = 13
    anchor: Literal["start", "middle", "end"] = "start"
    is_bold: bool = False


@dataclass(frozen=True)
class Line:
    """A straight line."""

    x: float
    y: float
    to_x: float
    to_y: float
    colour: str
    width: float = 1.0
    is_dashed: bool = False


@dataclass(frozen=True)
class Mark:
    """A marker around a point."""

    x: float
    y: float
    kind: Marker
    colour: str
    radius: float = 5.0


@dataclass(frozen=True)
class Drawing:
    """The plot: its size in pixels, its shapes in the order in which they are painted, and its words."""

    width: int
    height: int
    shapes: tuple[Text | Line | Mark, ...]
    title: str
    description: str


@dataclass(frozen=True)
class _Row:
    name: str
    time: str
    values: dict[str, float]


def draw(report: Report) -> Drawing | None:
    """The plot of ``report``; ``None`` where nothing was measured.

    Where authors say how many bytes are moved, a value is the share of the copy rate; else it is the speed
    in units of the kernel's.
    """
    has_bytes = any(one.bytes is not None for one in report.workloads)
    workloads = [one for one in report.workloads if one.bytes is not None or not has_bytes][:_MOST_ROWS]
    if not workloads:
        return None
    names = _names(report)
    rows = [_row(report, one, has_bytes) for one in workloads]
    largest = max([1.0, *(value for row in rows for value in row.values.values())]) * 1.04
    step = _step(largest)
    axis = "share of the copy rate" if has_bytes else "speed, in units of this kernel's"
    gpu, cpu = report.machine.get("gpu"), report.machine.get("cpu")
    title = f"{report.kernel}: {axis}"
    shapes: list[Text | Line | Mark] = [
        Text(_MARGIN, 36, title, size=18, is_bold=True),
        Text(
            _MARGIN,
            58,
            printable(f"{gpu or cpu or report.device}, {report.variant}, more is better"),
            "muted",
        ),
    ]
    top = _legend(shapes, names, 84) + 34
    bottom = top + len(rows) * _ROW
    place = _scale(largest)
    for count in range(math.floor(largest / step) + 1):
        value = count * step
        is_one = math.isclose(value, 1)
        if not is_one:
            shapes.append(Line(place(value), top - 6, place(value), bottom, "grid"))
        shapes.append(Text(place(value), top - 12, f"{value:g}", "muted", 11, "middle"))
    shapes.append(Line(place(1), top - 6, place(1), bottom, "muted", 1.5, True))
    for number, row in enumerate(rows):
        _add_row(shapes, row, names, place, top + number * _ROW + _ROW / 2)
    shapes.append(Text(_RIGHT + 88, top - 12, "time", "muted", 11, "end"))
    shapes.append(Text(_WIDTH - _MARGIN, top - 12, "share" if has_bytes else "speed", "muted", 11, "end"))
    foot = "Dashed: the rate of a copy, in the same run." if has_bytes else "Dashed: this kernel."
    shapes.append(Text(_MARGIN, bottom + 24, foot, "muted", 12))
    return Drawing(_WIDTH, round(bottom + 44), tuple(shapes), title, _described(rows, names))


def svg(drawing: Drawing) -> str:
    """The drawing as SVG. It has a title and a description for readers that cannot see it."""
    light = "".join(f"--{name}:{one};" for name, (one, _) in _COLOURS.items())
    dark = "".join(f"--{name}:{two};" for name, (_, two) in _COLOURS.items())
    classes = "".join(f".{name}{{color:var(--{name})}}" for name in _COLOURS)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{drawing.width}" height="{drawing.height}" '
        f'viewBox="0 0 {drawing.width} {drawing.height}" role="img" aria-labelledby="title description" '
        'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">',
        f'<title id="title">{escape(drawing.title)}</title>',
        f'<desc id="description">{escape(drawing.description)}</desc>',
        f"<style>svg{{{light}}}@media (prefers-color-scheme:dark){{svg{{{dark}}}}}{classes}"
        "text{fill:currentColor}line{stroke:currentColor}.f{fill:currentColor}"
        ".o{fill:var(--paper);stroke:currentColor;stroke-width:2}"
        ".l{fill:none;stroke:currentColor;stroke-width:2}</style>",
        '<rect width="100%" height="100%" rx="8" style="fill:var(--paper)"/>',
        *(_svg_shape(shape) for shape in drawing.shapes),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def png(drawing: Drawing) -> bytes | None:
    """The drawing as PNG; ``None`` where Pillow is not installed."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        return None
    scale = _PNG_SCALE
    image = Image.new("RGBA", (drawing.width * scale, drawing.height * scale), (0, 0, 0, 0))
    canvas = ImageDraw.Draw(image)
    canvas.rounded_rectangle(
        (0, 0, image.width - 1, image.height - 1), 8 * scale, _colour("paper"), _colour("grid"), scale
    )
    for shape in drawing.shapes:
        if isinstance(shape, Text):
            _png_text(canvas, shape, scale, ImageFont.load_default(shape.size * scale))
        elif isinstance(shape, Line):
            _png_line(canvas, shape, scale)
        else:
            _png_mark(canvas, shape, scale)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def _names(report: Report) -> dict[str, tuple[Marker, str, str]]:
    """The marker, the colour and the shown name of each series, in the order of the legend."""
    names: dict[str, tuple[Marker, str, str]] = {"kernel": ("dot", "kernel", report.kernel)}
    if report.baseline is not None and any(True for _ in report.decisions()):
        names["baseline"] = ("ring", "ink", f"baseline ({report.baseline.source.rpartition('/')[2]})")
    measured = {one.name for each in report.workloads for one in each.series if one.kind == "peer"}
    peers = dict.fromkeys(name for each in report.workloads for name in each.peer_names if name in measured)
    for number, peer in enumerate(peers):
        marker = _PEER_MARKERS[number % len(_PEER_MARKERS)]
        names[f"peer {peer}"] = (marker, f"peer{number % len(_PEER_MARKERS)}", peer)
    return names


def _row(report: Report, workload: Workload, has_bytes: bool) -> _Row:
    clock = workload.clocks[0]
    mine = workload.kernel(clock)

    def value(series: Series) -> float:
        share = workload.share(series) if has_bytes else None
        return mine.seconds / series.seconds if share is None else share

    values = {
        f"peer {one.name}" if one.kind == "peer" else one.kind: value(one)
        for one in workload.series
        if one.clock == clock and one.kind != "copy"
    }
    return _Row(report.name_of(workload), show.duration(mine.seconds), values)


def _legend(shapes: list[Text | Line | Mark], names: dict[str, tuple[Marker, str, str]], y: float) -> float:
    """Add the legend; the base line of its last row."""
    x = float(_MARGIN)
    for marker, colour, shown in names.values():
        text = _short(shown)
        width = 26 + 7.2 * len(text)
        if x + width > _WIDTH - _MARGIN:
            x, y = float(_MARGIN), y + 22
        shapes.append(Mark(x + 6, y - 4, marker, colour))
        shapes.append(Text(x + 18, y, text))
        x += width + 8
    return y


def _add_row(
    shapes: list[Text | Line | Mark],
    row: _Row,
    names: dict[str, tuple[Marker, str, str]],
    place: Callable[[float], float],
    y: float,
) -> None:
    mine = row.values["kernel"]
    shapes.append(Text(_MARGIN, y + 4, _short(row.name)))
    shapes.append(Line(place(0), y, place(mine), y, "trail", 3))
    # The kernel last, over the others.
    for key in sorted(row.values, key=lambda key: key == "kernel"):
        marker, colour, _ = names[key]
        shapes.append(Mark(place(row.values[key]), y, marker, colour, 6.5 if marker == "ring" else 5))
    shapes.append(Text(_RIGHT + 88, y + 4, row.time, anchor="end"))
    shapes.append(Text(_WIDTH - _MARGIN, y + 4, f"{mine:.2f}", anchor="end", is_bold=True))


def _scale(largest: float) -> Callable[[float], float]:
    return lambda value: _LEFT + value / largest * (_RIGHT - _LEFT)


def _step(largest: float) -> float:
    """The distance between ticks: 1, 2 or 5 times a power of ten, such that 1 is a tick."""
    rough = largest / _TICKS
    power = 10 ** math.floor(math.log10(rough))
    return float(next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough))


def _short(text: str) -> str:
    """``text`` in as many letters as there is room for. Its ends tell more than its middle."""
    text = printable(text)
    if len(text) <= _MOST_LETTERS:
        return text
    end = _MOST_LETTERS // 2
    return f"{text[: _MOST_LETTERS - 1 - end]}…{text[-end:]}"


def _described(rows: Sequence[_Row], names: dict[str, tuple[Marker, str, str]]) -> str:
    lines = [
        f"{row.name}: " + ", ".join(f"{names[key][2]} {value:.2f}" for key, value in row.values.items())
        for row in rows
    ]
    return printable(". ".join(lines) + ".")


def _svg_shape(shape: Text | Line | Mark) -> str:
    if isinstance(shape, Text):
        weight = ' font-weight="600"' if shape.is_bold else ""
        return (
            f'<text class="{shape.colour}" x="{shape.x:.1f}" y="{shape.y:.1f}" font-size="{shape.size}" '
            f'text-anchor="{shape.anchor}"{weight}>{escape(shape.text)}</text>'
        )
    if isinstance(shape, Line):
        dash = ' stroke-dasharray="5 4"' if shape.is_dashed else ""
        return (
            f'<line class="{shape.colour}" x1="{shape.x:.1f}" y1="{shape.y:.1f}" x2="{shape.to_x:.1f}" '
            f'y2="{shape.to_y:.1f}" stroke-width="{shape.width:g}"{dash}/>'
        )
    if shape.kind in ("dot", "ring"):
        kind = "f" if shape.kind == "dot" else "o"
        return (
            f'<circle class="{shape.colour} {kind}" cx="{shape.x:.1f}" cy="{shape.y:.1f}" '
            f'r="{shape.radius:g}"/>'
        )
    paths = _paths(shape)
    kind = "l" if shape.kind in ("cross", "plus") else "f"
    data = " ".join(
        "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in path) + ("Z" if kind == "f" else "") for path in paths
    )
    return f'<path class="{shape.colour} {kind}" d="{data}"/>'


def _paths(mark: Mark) -> list[list[tuple[float, float]]]:
    """The corners of a marker with straight edges; those of strokes for crosses."""
    x, y, r = mark.x, mark.y, mark.radius
    outlines: dict[str, list[list[tuple[float, float]]]] = {
        "square": [[(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)]],
        "triangle": [[(0, -1.1), (1.05, 0.85), (-1.05, 0.85)]],
        "diamond": [[(0, -1.2), (1.2, 0), (0, 1.2), (-1.2, 0)]],
        "cross": [[(-0.9, -0.9), (0.9, 0.9)], [(-0.9, 0.9), (0.9, -0.9)]],
        "plus": [[(0, -1.1), (0, 1.1)], [(-1.1, 0), (1.1, 0)]],
    }
    return [[(x + r * dx, y + r * dy) for dx, dy in path] for path in outlines[mark.kind]]


def _colour(name: str) -> str:
    return _COLOURS[name][0]


def _drawable(text: str) -> str:
    """``text`` in the letters that Pillow's own font has. It has no µ, which is a u with a longer stroke."""
    replaced = text.replace("µ", "u").replace("–", "-")
    return "".join(letter if letter == "…" or ord(letter) < 256 else "?" for letter in replaced)


def _png_text(canvas: Any, text: Text, scale: int, font: Any) -> None:
    x, y = text.x * scale, text.y * scale
    drawn = _drawable(text.text)
    anchor = {"start": "ls", "middle": "ms", "end": "rs"}[text.anchor]
    weight = 1 if text.is_bold else 0
    canvas.text((x, y), drawn, _colour(text.colour), font, anchor, stroke_width=weight)
    left = x - font.getlength(drawn) * {"start": 0, "middle": 0.5, "end": 1}[text.anchor]
    for at, letter in enumerate(text.text):
        if letter == "µ":
            # Where the left stem of that font's u is, in parts of the size.
            size = text.size * scale
            stem = left + font.getlength(drawn[:at]) + size / 11
            canvas.rectangle((stem, y - size / 4, stem + size / 16, y + size / 4), _colour(text.colour))


def _png_line(canvas: Any, line: Line, scale: int) -> None:
    width = round(line.width * scale)
    if not line.is_dashed:
        canvas.line(
            [value * scale for value in (line.x, line.y, line.to_x, line.to_y)], _colour(line.colour), width
        )
        return
    y = line.y
    while y < line.to_y:
        end = min(y + 5, line.to_y)
        canvas.line([value * scale for value in (line.x, y, line.x, end)], _colour(line.colour), width)
        y += 9


def _png_mark(canvas: Any, mark: Mark, scale: int) -> None:
    colour = _colour(mark.colour)
    if mark.kind in ("dot", "ring"):
        box = [
            value * scale
            for value in (
                mark.x - mark.radius, mark.y - mark.radius, mark.x + mark.radius, mark.y + mark.radius,
            )
        ]  # fmt: skip
        canvas.ellipse(box, colour if mark.kind == "dot" else _colour("paper"), colour, 2 * scale)
        return
    for path in _paths(mark):
        points = [(x * scale, y * scale) for x, y in path]
        if mark.kind in ("cross", "plus"):
            canvas.line(points, colour, 2 * scale)
        else:
            canvas.polygon(points, colour)
