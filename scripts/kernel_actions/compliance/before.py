"""What was wrong with a kernel before: the same checks of its sources as they were at an earlier commit."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kernel_actions import git
from kernel_actions.compliance.engine import Finding
from kernel_actions.compliance.known import Earlier

Check = Callable[[Path, Path], Iterable[Finding]]
"""Checks a kernel in a folder (the first) of a repository (the second)."""

# The first digits of rules about what a commit holds, which alone can have been there before: what is built
# is new each time, and what a pull request changes is new by itself.
_COMPARED = "1238"
_FAMILY = 2


@dataclass(frozen=True)
class Before:
    """The kernel in ``kernel_dir`` as it was at ``commit``, which ``reference`` stands for.

    ``folder`` is its path from the repository's root on, empty if it is the root. ``is_same``: it has not
    changed since.
    """

    kernel_dir: Path
    commit: str
    reference: str
    folder: str
    check: Check
    is_same: bool = False

    def part(self, findings: Iterable[Finding]) -> Iterator[tuple[Finding, bool]]:
        """``findings`` of the kernel as it is now, and whether each of them was there before.

        Raises ``WrongSurroundings`` when git cannot tell.
        """
        compared: list[Finding] = []
        for one in findings:
            if one.rule.id[_FAMILY] in _COMPARED:
                compared.append(one)
            else:
                yield one, False
        if self.is_same:
            yield from ((one, True) for one in compared)
        elif compared:
            yield from self._earlier().part(compared, self.kernel_dir)

    def _earlier(self) -> Earlier:
        """What was found in it then; nothing, where there was no such kernel."""
        with tempfile.TemporaryDirectory(prefix="kernel-actions-before-") as name:
            # Checks compare where links lead to, also where the folder for temporary files is one.
            root = Path(name).resolve()
            kernel = root / self.folder if self.folder else root
            git.export(self.kernel_dir, self.commit, self.folder, kernel)
            if self.folder:
                git.export(self.kernel_dir, self.commit, ".github", root / ".github")
            if not (kernel / "build.toml").exists():
                return Earlier({})
            return Earlier.of(self.check(kernel, root), kernel)
