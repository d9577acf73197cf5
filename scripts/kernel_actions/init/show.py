"""What people see of ``init``: what was found, the difference, and the steps that are left."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Sequence
from typing import Any

from kernel_actions import console
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
    if repository.workflows:
        listed = [(str(one.path), _KINDS[one.kind]) for one in repository.workflows]
        parts.append(console.table(("workflow", "what it does"), listed))
    return "\n\n".join(parts) + "\n"


def differences(files: Sequence[File]) -> str:
    """What would change, as a unified diff, and what would not."""
    parts = []
    for one in files:
        if one.is_written:
            old = "/dev/null" if one.before is None else f"a/{one.path}"
            lines = difflib.unified_diff(
                (one.before or "").splitlines(), one.after.splitlines(), old, f"b/{one.path}", lineterm=""
            )
            # A file holds what its author liked; a terminal must not obey it.
            parts.append("\n".join(_visible(line) for line in lines) + "\n")
    parts.append(
        console.table(("file", "what becomes of it"), [(str(one.path), _WHAT[one.state]) for one in files])
    )
    return "\n".join(parts) + "\n"


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
        "kernels": [
            {
                "kernel": one.name,
                "dir": str(one.folder),
                "backends": list(one.backends),
                "repo_id": one.repo_id or None,
            }
            for one in repository.kernels
        ],
        "unread": list(repository.unread),
        "workflows": [{"path": str(one.path), "kind": one.kind} for one in repository.workflows],
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
