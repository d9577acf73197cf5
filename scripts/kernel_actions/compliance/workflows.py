"""Rules about the workflows of the kernel's repository, by zizmor: KA8xx.

It is a program of its own, and is asked where it is installed: <https://docs.zizmor.sh>.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_actions import git, process
from kernel_actions.compliance.engine import Family, Problem
from kernel_actions.errors import Place

FOLDER = ".github"
# In seconds: it takes a tenth of one for most repositories.
_PATIENCE = 60.0
_LARGEST_SEVERITY = "High"
# What users copy refers to this suite, or to a fork of it, by its moving major tag, which is what it is for.
_SUITE = "org/kernel-actions"
_CONFIGURATION = """\
rules:
  unpinned-uses:
    config:
      policies:
{}
        "*": hash-pin
"""
# What GitHub takes for the name of a repository.
_REPOSITORY = re.compile(r"[A-Za-z0-9-]+/[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Workflows:
    """The workflows of a repository, and what zizmor says about them, or why it says nothing."""

    root: Path
    findings: tuple[Mapping[str, Any], ...]
    failure: str = ""

    @property
    def where(self) -> Place:
        """The place of what is about all of them."""
        return Place(self.root / FOLDER)


RULES: Family[Workflows] = Family()


@RULES.rule
def workflows_danger(workflows: Workflows) -> Iterator[Problem]:
    if workflows.failure:
        yield Problem(workflows.failure, workflows.where)
    yield from _problems(workflows, is_worst=True)


@RULES.rule
def workflows_advice(workflows: Workflows) -> Iterator[Problem]:
    yield from _problems(workflows, is_worst=False)


def root_of(kernel_dir: Path) -> Path:
    """The folder of the repository around the kernel, whose workflows are checked with it."""
    state = git.state(kernel_dir)
    return state.root if state is not None else kernel_dir


def read(root: Path) -> Workflows | None:
    """What zizmor says about the workflows of the repository in ``root``; ``None`` without any, and without
    zizmor.

    Raises ``WrongSurroundings`` when it takes too long.
    """
    folder = root / FOLDER
    program = find_program()
    if program is None or not (folder / "workflows").is_dir():
        return None
    with tempfile.TemporaryDirectory() as scratch:
        configuration = Path(scratch, "zizmor.yml")
        policies = "\n".join(f'        "{one}/*": ref-pin' for one in _suites())
        configuration.write_text(_CONFIGURATION.format(policies), encoding="utf-8")
        # Its own configuration says what the repository's maintainers accept, also by a pull request: as
        # findings are waived here, it is not read.
        finished = process.run(
            [
                program, "--collect=workflows", "--collect=actions", "--format", "json", "--offline",
                "--quiet", "--no-progress", "--no-exit-codes", "--config", configuration, root.resolve(),
            ],
            time_limit=_PATIENCE, errors_apart=True,
        )  # fmt: skip
    try:
        found = json.loads(finished.output) if finished.returncode == 0 else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        lines = [line.strip() for line in finished.errors.splitlines() if line.strip()]
        said = lines[0][:200] if lines else f"exit code {finished.returncode}"
        return Workflows(root, (), f"zizmor cannot check them: {said}")
    return Workflows(root, tuple(one for one in found if isinstance(one, dict) and not one.get("ignored")))


def find_program() -> str | None:
    """The program zizmor: of this Python's environment, else of the machine."""
    own = Path(sysconfig.get_path("scripts"), "zizmor")
    return str(own) if os.access(own, os.X_OK) else shutil.which("zizmor")


def _suites() -> list[str]:
    """The repositories that this suite is used from: its own, and the one whose action this is."""
    own = os.environ.get("GITHUB_ACTION_REPOSITORY", "")
    return list(dict.fromkeys([_SUITE, own] if _REPOSITORY.fullmatch(own) else [_SUITE]))


def _problems(workflows: Workflows, *, is_worst: bool) -> Iterator[Problem]:
    for one in workflows.findings:
        severity = one.get("determinations", {}).get("severity")
        if (severity == _LARGEST_SEVERITY) == is_worst and severity not in ("Informational", "Unknown"):
            what = f"{one.get('desc')} ({one.get('ident')})"
            yield Problem(what, _place(workflows, one), f"see {one.get('url')}")


def _place(workflows: Workflows, finding: Mapping[str, Any]) -> Place:
    """Where the finding is: the primary one of its places, else the first."""
    places = finding.get("locations") or [{}]
    kinds = [one.get("symbolic", {}).get("kind") for one in places]
    chosen = places[kinds.index("Primary") if "Primary" in kinds else 0]
    local = chosen.get("symbolic", {}).get("key", {}).get("Local", {})
    path = local.get("verbatim_path") or local.get("given_path")
    start = chosen.get("concrete", {}).get("location", {}).get("start_point", {})
    if not isinstance(path, str) or not isinstance(start.get("row"), int):
        return workflows.where
    root = workflows.root.resolve()
    inside = Path(path).resolve()
    shown = workflows.root / inside.relative_to(root) if inside.is_relative_to(root) else inside
    return Place(shown, start["row"] + 1, start.get("column", 0) + 1)
