"""Findings that were there before: which of two checks of the same files found the same.

What identifies a finding does not change when lines move: its rule, its file, and what the message says, but
for what changes by itself, as a number of days does.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from kernel_actions.compliance import files
from kernel_actions.compliance.engine import Finding
from kernel_actions.errors import WrongInput

# Of a file whose line is compared; larger ones are told apart by the finding alone.
_LARGEST = 10_000_000


class Identity(NamedTuple):
    """What stays the same of a finding: the number of its rule, its ``path`` from some folder on, ``what`` it
    says, and the variant, empty for the sources."""

    rule: str
    path: str
    what: str
    variant: str = ""


def identity(finding: Finding, root: Path) -> Identity:
    """What stays the same of ``finding``, with paths from ``root`` on."""
    # Some paths are from the current folder on, and some from that of the machine: what git or zizmor names.
    folder = os.path.abspath(root)
    path = os.path.relpath(os.path.abspath(finding.where.path), folder)
    what = finding.key or finding.message
    for name in (folder, str(root)):
        if len(name) > 1:
            what = what.replace(f"{name}/", "")
    return Identity(finding.rule.id, Path(path).as_posix(), what, finding.variant)


class Lines:
    """The texts of the lines where findings are, which tell those apart that are the same otherwise."""

    def __init__(self) -> None:
        self._files: dict[Path, list[bytes]] = {}

    def text(self, finding: Finding) -> bytes:
        """The line of ``finding`` without its indentation; empty where there is none."""
        where = finding.where
        if where.line is None:
            return b""
        if where.path not in self._files:
            try:
                self._files[where.path] = files.read(where.path, _LARGEST).splitlines()
            except WrongInput:
                self._files[where.path] = []
        lines = self._files[where.path]
        return lines[where.line - 1].strip() if 0 < where.line <= len(lines) else b""


class Earlier:
    """The findings of an earlier state, each of which makes one of the same identity known.

    ``texts`` are the lines of those whose lines are known; those that stand in the same line go first.
    """

    def __init__(self, counts: Mapping[Identity, int], texts: Iterable[tuple[Identity, bytes]] = ()) -> None:
        self.left = Counter(counts)
        self._texts = Counter(texts)

    @classmethod
    def of(cls, findings: Iterable[Finding], root: Path) -> Earlier:
        """Those of a check of ``root``, whose files are still there."""
        lines = Lines()
        found = [(identity(one, root), lines.text(one)) for one in findings]
        return cls(Counter(name for name, _ in found), found)

    def part(self, findings: Iterable[Finding], root: Path) -> Iterator[tuple[Finding, bool]]:
        """``findings`` of ``root`` as it is now, and whether each of them is known."""
        lines = Lines()
        named = [(one, identity(one, root)) for one in findings]
        known: set[int] = set()
        for index, (one, name) in enumerate(named):
            if self.left[name] and self._texts[name, (text := lines.text(one))]:
                self._texts[name, text] -= 1
                self.left[name] -= 1
                known.add(index)
        for index, (one, name) in enumerate(named):
            if index not in known and self.left[name] > 0:
                self.left[name] -= 1
                known.add(index)
            yield one, index in known
