"""What people see of ``init``: what was found, the difference, and the steps that are left."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Sequence
from typing import Any

from kernel_actions import console, settings
from kernel_actions.errors import printable
from kernel_actions.init.detection import LEVELS, Repository
from kernel_actions.init.plan import File
from kernel_actions.init.steps import Step

_WHAT = {
    "new": "new",
    "update": "brought up to date",
    "replace": "REPLACED, with your edits",
    "unchanged": "as it shall be",
    "edited": "yours, left alone (--overwrite replaces it)",
    "taken": "left out: the same name with .yaml is there",
}
_KINDS = {
    "kernel-actions": "uses kernel-actions",
    "kernel-builder": "builds with kernel-builder",
    "hf-jobs": "runs on Hugging Face Jobs",
    "other": "something else",
}
_WIDTH = 100
# So many files that come to the same are shown by the first of them.
_MANY = 4


def found(repository: Repository) -> str:
    """What the repository is."""
    rows = [
        (kernel.name, str(kernel.folder), ", ".join(kernel.backends), kernel.repo_id or "not named yet")
        for kernel in repository.kernels
    ]
    parts = []
    if not repository.is_git:
        looked = f"looked for kernels in it and {LEVELS} levels below"
        parts.append(printable(f"{repository.root} is in no git repository: {looked}"))
    parts.append(console.table(("kernel", "folder", "backends", "on the Hub"), rows))
    parts += [f"not read: {printable(text)}" for text in repository.unread]
    if unlocked := [kernel.name for kernel in repository.kernels if not kernel.is_locked]:
        parts.append(printable(f"without flake.lock, so that nothing can be planned: {', '.join(unlocked)}"))
    if repository.github is None and repository.origin:
        parts.append(printable(f"origin is {repository.origin}, which is not on GitHub"))
    if repository.workflows:
        listed = [
            (str(one.path), _KINDS[one.kind], ", ".join(path.name for path in one.started_by))
            for one in repository.workflows
        ]
        parts.append(console.table(("workflow", "what it does", "started by"), listed))
    return "\n\n".join(parts) + "\n"


def differences(files: Sequence[File]) -> str:
    """What would change, as a unified diff, and what would not. Of many files of one name that differ in a
    word, the first is shown."""
    parts = []
    rows = []
    for group in _alike(files):
        one = group[0]
        more = f"and {len(group) - 1} more of that name, each with its own kernel's" if len(group) > 1 else ""
        if one.is_written:
            old = "/dev/null" if one.before is None else f"a/{one.path}"
            lines = difflib.unified_diff(
                (one.before or "").splitlines(), one.after.splitlines(), old, f"b/{one.path}", lineterm=""
            )
            # A file holds what its author liked; a terminal must not obey it.
            parts.append("\n".join(_visible(line) for line in lines) + (f"\n{more}\n" if more else "\n"))
        named = f"{one.path} and {len(group) - 1} more" if len(group) > 1 else str(one.path)
        rows.append((named, _WHAT[one.state]))
    parts.append(console.table(("file", "what becomes of it"), rows))
    return "\n".join(parts) + "\n"


def _alike(files: Sequence[File]) -> list[list[File]]:
    """``files``, with those of kernels' folders that have one name and come to the same as one."""
    groups: dict[tuple[str, str, bool], list[File]] = {}
    for number, one in enumerate(files):
        # Whatever is there already is shown.
        is_alike = (
            one.path.name == settings.FILE_NAME and one.path.parent.name != ".github" and not one.before
        )
        key = (one.path.name, one.state, True) if is_alike else (str(number), "", False)
        groups.setdefault(key, []).append(one)
    grouped = []
    for group in groups.values():
        grouped += [group] if len(group) >= _MANY else [[one] for one in group]
    return grouped


def steps(left: Sequence[Step]) -> str:
    """The steps that are left, numbered."""
    lines = ["", "What is left to do:"]
    for number, one in enumerate(left, start=1):
        lines += ["", f"{number}. {printable(one.title)}"]
        lines += textwrap.wrap(printable(one.why), _WIDTH, initial_indent="   ", subsequent_indent="   ")
        lines += [f"   $ {printable(command)}" for command in one.commands]
        lines += [f"   {printable(one.link)}"] if one.link else []
    return "\n".join(lines)


def as_json(
    repository: Repository, files: Sequence[File], left: Sequence[Step], *, is_written: bool
) -> dict[str, Any]:
    """All of it for programs."""
    return {
        "root": str(repository.root),
        "github": repository.github.url if repository.github else None,
        "origin": repository.origin or None,
        "kernels": [
            {
                "kernel": one.name,
                "dir": str(one.folder),
                "backends": list(one.backends),
                "repo_id": one.repo_id or None,
                "locked": one.is_locked,
            }
            for one in repository.kernels
        ],
        "unread": list(repository.unread),
        "workflows": [
            {"path": str(one.path), "kind": one.kind, "started_by": [str(path) for path in one.started_by]}
            for one in repository.workflows
        ],
        "files": [
            {"path": str(one.path), "state": one.state, "text": one.after if one.is_written else None}
            for one in files
        ],
        "written": is_written,
        "steps": [
            {"title": one.title, "why": one.why, "commands": list(one.commands), "link": one.link or None}
            for one in left
        ],
    }


def _visible(line: str) -> str:
    return "".join(one if one.isprintable() or one == "\t" else repr(one)[1:-1] for one in line)
