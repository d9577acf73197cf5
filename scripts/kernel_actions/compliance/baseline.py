"""The baseline of a repository: findings that its maintainers know of, and that fail nothing.

It is a file of JSON with one finding a line, sorted, so that changes of it are reviewed and merged like those
of other files. Its paths start at its own folder, or at the repository's root where it is in ``.github``.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_actions.compliance.engine import Finding
from kernel_actions.compliance.files import read as read_file
from kernel_actions.compliance.known import Earlier, Identity, identity
from kernel_actions.errors import Place, WrongInput

VERSION = 1
_ABOUT = "findings of kernel-actions compliance that are known, and fail nothing: see docs/compliance.md"
# The first digits of rules whose findings are of one pull request, or of kernel-actions.toml.
_NEVER_KNOWN = "49"
_FAMILY = 2
_LARGEST = 20_000_000
_REPAIR = "write it again: kernel-actions compliance --write-baseline FILE"


@dataclass
class Baseline:
    """The findings that the file ``path`` lists, each with how many there are of it, and where it stands.

    ``earlier`` has those that no check has found yet.
    """

    path: Path
    counts: Counter[Identity] = field(default_factory=Counter)
    lines: dict[Identity, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.earlier = Earlier(self.counts)

    @property
    def root(self) -> Path:
        """The folder that paths in the file start at."""
        return root_of(self.path)

    def part(self, findings: Iterable[Finding]) -> Iterator[tuple[Finding, bool]]:
        """``findings``, and whether each of them is known."""
        return self.earlier.part(findings, self.root)

    def stale(self, kernel_dir: Path, families: Collection[str], variants: Collection[str]) -> list[Identity]:
        """The entries that a check of the kernel would have found, and did not, sorted."""
        return sorted(
            entry
            for entry, count in self.earlier.left.items()
            if count > 0 and _is_looked_at(entry, _prefix(self.root, kernel_dir), families, variants)
        )

    def place(self, entry: Identity) -> Place:
        """Where ``entry`` stands."""
        return Place(self.path, self.lines.get(entry))


def root_of(path: Path) -> Path:
    """The folder that paths of the baseline ``path`` start at."""
    folder = Path(os.path.abspath(path)).parent
    return folder.parent if folder.name == ".github" else folder


def read(path: Path) -> Baseline:
    """Read the baseline ``path``. Raises ``WrongInput`` for what is none."""
    where = Place(path)
    data = read_file(path, _LARGEST)
    try:
        value = json.loads(data)
    except json.JSONDecodeError as error:
        raise WrongInput(
            f"is not JSON: {error.msg}", where=Place(path, error.lineno), repair=_REPAIR
        ) from error
    except (ValueError, RecursionError) as error:
        raise WrongInput("is not JSON", where=where, repair=_REPAIR) from error
    entries = value.get("findings") if isinstance(value, dict) else None
    if not isinstance(entries, list) or value.get("version") != VERSION:
        raise WrongInput(f"is no baseline of version {VERSION}", where=where, repair=_REPAIR)
    at = _lines(data)
    counts: Counter[Identity] = Counter()
    lines: dict[Identity, int] = {}
    for entry in entries:
        found = _entry(entry)
        line = at.get(json.dumps(entry, sort_keys=True))
        if found is None:
            raise WrongInput("is no finding of a baseline", where=Place(path, line), repair=_REPAIR)
        name, count = found
        counts[name] += count
        if line is not None:
            lines[name] = line
    return Baseline(path, counts, lines)


def write(
    path: Path,
    findings: Iterable[Finding],
    checked: Collection[tuple[Path, Collection[str], Collection[str]]],
) -> int:
    """Write ``findings`` to the baseline ``path``, and return how many there are of them.

    What it lists already is kept where it is not of the ``checked`` kernels (each with the families of rules
    and the variants that were looked at) and its file is still there. Raises ``WrongInput`` when that cannot
    be read, and ``OSError`` when it cannot be written.
    """
    from kernel_actions import built

    root = root_of(path)
    counts: Counter[Identity] = Counter()
    for entry, count in (read(path).counts if path.exists() else Counter[Identity]()).items():
        is_of_these = any(
            _is_looked_at(entry, _prefix(root, kernel), families, variants)
            for kernel, families, variants in checked
        )
        if not is_of_these and os.path.lexists(root / entry.path):
            counts[entry] = count
    counts.update(identity(one, root) for one in findings if one.rule.id[_FAMILY] not in _NEVER_KNOWN)
    listed = [
        {
            "rule": name.rule,
            "path": name.path,
            "what": name.what,
            **({"variant": name.variant} if name.variant else {}),
            **({"count": count} if count > 1 else {}),
        }
        for name, count in sorted(counts.items())
    ]
    lines = ",\n".join(f"    {json.dumps(one, ensure_ascii=False)}" for one in listed)
    body = f"[\n{lines}\n  ]" if listed else "[]"
    text = f'{{\n  "about": {json.dumps(_ABOUT)},\n  "version": {VERSION},\n  "findings": {body}\n}}\n'
    built.write_whole(path, text.encode())
    return counts.total()


def _is_looked_at(entry: Identity, prefix: str, families: Collection[str], variants: Collection[str]) -> bool:
    """Whether a check of the kernel at ``prefix`` would have found it."""
    family = entry.rule[_FAMILY : _FAMILY + 1]
    if family not in families or (entry.variant and entry.variant not in variants):
        return False
    return entry.path.startswith((prefix, ".github/") if family == "8" else prefix)


def _prefix(root: Path, kernel_dir: Path) -> str:
    """What the paths of a kernel's files begin with."""
    folder = Path(os.path.relpath(os.path.abspath(kernel_dir), root)).as_posix()
    return "" if folder == "." else f"{folder}/"


def _entry(value: Any) -> tuple[Identity, int] | None:
    if not isinstance(value, dict):
        return None
    texts = [value.get("rule"), value.get("path"), value.get("what"), value.get("variant", "")]
    count = value.get("count", 1)
    if not all(isinstance(one, str) for one in texts) or type(count) is not int or count < 1:
        return None
    return Identity(*map(str, texts)), count


def _lines(data: bytes) -> dict[str, int]:
    """The lines that hold a finding each."""
    found: dict[str, int] = {}
    for number, line in enumerate(data.splitlines(), 1):
        text = line.strip().removesuffix(b",")
        if text.startswith(b"{") and text.endswith(b"}"):
            try:
                found[json.dumps(json.loads(text), sort_keys=True)] = number
            except (ValueError, RecursionError):
                continue
    return found
