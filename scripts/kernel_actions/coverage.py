"""The coverage of a kernel: what became of each variant, by system and Torch downwards and compute across.

Values in, values out, and of the standard library alone: the plan, the job's summaries and the report share
it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from kernel_actions import markdown, nix_version
from kernel_actions.named_tuple import NamedTuple
from kernel_actions.variants import SYSTEMS, Variant

State = Literal[
    "failed", "missing", "untested", "waived", "built", "tested", "published", "kept", "planned", "left out"
]
# In the order of what has to be looked at first; where a cell has several variants, the first counts.
SIGNS: dict[State, str] = {
    "failed": "❌",
    "missing": "🕳️",
    "untested": "❓",
    "waived": "⚠️",
    "built": "🔨",
    "tested": "✅",
    "published": "🚀",
    "kept": "📦",
    "planned": "●",
    "left out": "·",
}
MEANINGS: dict[State, str] = {
    "failed": "failed",
    "missing": "planned, but not built",
    "untested": "built, but not tested",
    "waived": "goes untested, as kernel-actions.toml allows",
    "built": "built",
    "tested": "built, and tested on what is named",
    "published": "published, and tested on what is named",
    "kept": "kept from an earlier release",
    "planned": "planned",
    "left out": "left out",
}
_NAME = re.compile(
    r"(?P<framework>torch-stable-abi\d*|torch\d*|tvm-ffi\d*)(?:-cxx\d+)?(?:-(?P<compute>[a-z]+[0-9.]*))?"
    r"(?:-(?P<system>(?:x86_64|aarch64)-(?:linux|darwin|windows)))?"
)
_ANY = "any"


class Entry(NamedTuple):
    """A variant: its place in the grid, what became of it, and on what (``H200``) or why, in a few words."""

    variant: str
    system: str
    torch: str
    compute: str
    state: State
    detail: str = ""


class Grid(NamedTuple):
    """``rows`` are (system, torch, the entries by column); a cell without an entry is ``None``."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[Entry | None, ...]], ...]

    @property
    def states(self) -> tuple[State, ...]:
        """The states that are in it, in their order."""
        found = {cell.state for _, _, cells in self.rows for cell in cells if cell is not None}
        return tuple(state for state in SIGNS if state in found)


def of_variant(variant: Variant, state: State, detail: str = "") -> Entry:
    """The entry of a planned variant."""
    return Entry(variant.name, variant.system, _torch_of(variant), variant.compute, state, detail)


def of_name(name: str, state: State, detail: str = "") -> Entry:
    """The entry of a variant of which nothing but its name is known."""
    found = _NAME.fullmatch(name)
    if found is None:
        return Entry(name, _ANY, name[:40], _ANY, state, detail)
    framework = found["framework"]
    kind = framework.rstrip("0123456789")
    digits = framework.removeprefix(kind)
    version = nix_version.dotted(digits) if len(digits) > 1 else _ANY
    torch = {"torch": version, "torch-stable-abi": "stable ABI"}.get(kind, framework)
    return Entry(name, found["system"] or _ANY, torch, found["compute"] or _ANY, state, detail)


def grid(entries: Iterable[Entry]) -> Grid:
    """The entries in their places; where several share one, what has to be looked at first is shown."""
    listed = list(entries)
    order = {state: number for number, state in enumerate(SIGNS)}
    columns = tuple(sorted(dict.fromkeys(one.compute for one in listed), key=_compute_order))
    cells: dict[tuple[str, str], dict[str, Entry]] = {}
    for one in sorted(listed, key=lambda one: (_system_order(one.system), _torch_order(one.torch))):
        row = cells.setdefault((one.system, one.torch), {})
        if one.compute not in row or order[one.state] < order[row[one.compute].state]:
            row[one.compute] = one
    return Grid(
        columns,
        tuple(
            (system, torch, tuple(row.get(column) for column in columns))
            for (system, torch), row in cells.items()
        ),
    )


def as_markdown(made: Grid) -> str:
    """The grid for a job's summary, with what its signs mean."""
    if not made.rows:
        return ""
    legend = " &emsp; ".join(f"{SIGNS[state]} {MEANINGS[state]}" for state in made.states)
    header = tuple(markdown.text(one) for one in ("system", "torch", *made.columns))
    return markdown.table(header, table_rows(made)) + f"\n<sub>{legend}</sub>\n"


def table_rows(made: Grid) -> list[tuple[str, ...]]:
    """The lines of a table of the grid; each system is named in its first one."""
    found: list[tuple[str, ...]] = []
    before = ""
    for system, torch, cells in made.rows:
        found.append(("" if system == before else system, torch, *map(shown, cells)))
        before = system
    return found


def shown(entry: Entry | None) -> str:
    """A cell in a few characters."""
    if entry is None:
        return ""
    is_plain = entry.state in ("planned", "left out")
    said = entry.detail or ("" if is_plain else entry.state)
    return f"{SIGNS[entry.state]} {said}".rstrip()


def counted(entries: Iterable[Entry]) -> str:
    """How many of each state, in words: ``1 failed, 17 tested``."""
    found = [one.state for one in entries]
    return ", ".join(f"{found.count(state)} {state}" for state in SIGNS if state in found)


def short_gpu(name: str | None) -> str:
    """A GPU's name without what all of its maker's have: ``H200`` of ``NVIDIA H200``."""
    return re.sub(r"^(NVIDIA|AMD|Intel(\(R\))?)\s+", "", name) if name else "CPU"


def _torch_of(variant: Variant) -> str:
    framework = variant.name.partition("-")[0]
    if variant.name.startswith("torch-stable-abi"):
        return "stable ABI"
    if framework == "torch":
        return _ANY
    return variant.torch if framework.startswith("torch") else framework


def _system_order(system: str) -> tuple[int, str]:
    return (SYSTEMS.index(system) if system in SYSTEMS else len(SYSTEMS), system)


def _torch_order(torch: str) -> tuple[int, object, str]:
    return (0, nix_version.key(torch), torch) if torch[:1].isdigit() else (1, (), torch)


def _compute_order(compute: str) -> tuple[str, object]:
    return (
        compute.rstrip("0123456789."),
        nix_version.key(compute.lstrip("abcdefghijklmnopqrstuvwxyz") or "0"),
    )
