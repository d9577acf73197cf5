"""The only module that speaks to git: which commit a folder is at, and whether it was changed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_actions import github, process
from kernel_actions.errors import WrongSurroundings

# Of git's variables only those that say where its configuration is. The others (GIT_DIR,
# GIT_INDEX_FILE, …) belong to whoever started us, such as a hook, and name another repository.
_KEPT_VARIABLES = frozenset(
    {"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_CEILING_DIRECTORIES"}
)


@dataclass(frozen=True)
class GitState:
    """The commit that is checked out. ``dirty``: a tracked file differs from that commit.

    Files that git does not track count neither way, as the builder does not see them;
    submodules are not looked into.
    """

    commit: str
    dirty: bool
    root: Path


def state(directory: Path) -> GitState | None:
    """The state of the repository around ``directory``; ``None`` where there is no commit: outside
    of a repository, before its first commit, or on a machine without git.

    Raises ``WrongSurroundings`` when git refuses to read the repository of another user.
    """
    root = _ask(directory, "rev-parse", "--show-toplevel")
    if root is None:
        return None
    status = _ask(
        directory, "status", "--porcelain=v2", "--branch", "--untracked-files=no", "--ignore-submodules=all"
    )
    commit = ""
    dirty = False
    for line in (status or "").splitlines():
        if line.startswith("# branch.oid "):
            commit = line.split()[2]
        elif line.startswith(("1 ", "2 ", "u ")):
            dirty = True
    if not commit or commit == "(initial)":
        return None
    return GitState(commit, dirty, Path(root.splitlines()[-1]))


def tracked(directory: Path) -> frozenset[str]:
    """The files below ``directory`` that git tracks, relative to it."""
    listed = _ask(directory, "ls-files", "-z")
    return frozenset(name for name in (listed or "").split("\0") if name)


def _ask(directory: Path, *arguments: str) -> str | None:
    """What git answers; ``None`` where it is missing or has no answer."""
    # Neither a program that the repository's configuration names nor a lock is wanted for a look.
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false"]
    if _is_own_workspace(directory):
        command += ["-c", "safe.directory=*"]
    try:
        finished = process.run([*command, "-C", directory, *arguments], environment=_environment(os.environ))
    except WrongSurroundings:
        return None
    if finished.returncode == 0:
        return finished.output
    if "dubious ownership" in finished.output or "unsafe repository" in finished.output:
        raise WrongSurroundings(
            f"git does not read {directory.resolve()}, which belongs to another user",
            repair=f"if you trust it: git config --global --add safe.directory {directory.resolve()}",
        )
    return None


def _is_own_workspace(directory: Path) -> bool:
    """Whether this is the checkout of a job. In a container it often belongs to another user, and
    the configuration by which ``actions/checkout`` says that it is safe is gone with its step."""
    workspace = os.environ.get("GITHUB_WORKSPACE")
    if not github.is_actions() or not workspace:
        return False
    return directory.resolve().is_relative_to(Path(workspace).resolve())


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    kept = {
        name: value
        for name, value in process.without_secrets(environment).items()
        if not name.startswith("GIT_") or name in _KEPT_VARIABLES
    }
    # Messages are read above.
    return {**kept, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
