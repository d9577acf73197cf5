"""``lock``: kernels.lock of a project that uses kernels, checked or brought up to date.

``check`` changes nothing, and fails for a lock that is missing, is not what pyproject.toml declares, or locks
what cannot be loaded or was taken back. ``update`` writes what ``kernels lock`` would write.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_actions import built, console, github, markdown
from kernel_actions.errors import EXIT_DONE, KernelFailed, Place
from kernel_actions.hub import client
from kernel_actions.lock import check, lockfile, platforms, project, update
from kernel_actions.lock.check import Checked, Problem
from kernel_actions.lock.lockfile import Locked
from kernel_actions.lock.platforms import Platform
from kernel_actions.lock.project import Project
from kernel_actions.lock.update import Change

if TYPE_CHECKING:
    from kernel_actions.cli import Options

_HEADER = ("kernel", "version", "commit", "release", "state")
# In Markdown, so many variants of a kernel, and so many bytes of all: the text of a pull request has at most
# 65,536 characters, and a variable of a step 131,072 bytes.
_MOST_VARIANTS = 12
_LONGEST_DIFF = 50_000
_CHANGES = ("kernel", "version", "from", "to", "variants gained", "variants lost")


def check_options(options: Options) -> tuple[Project, tuple[Platform, ...]]:
    """The project, and the platforms. Raises ``WrongInput`` for what cannot be one, and ``KernelFailed``
    where there is no lock to check."""
    found = project.read(Path(options.project))
    if options.mode == "check" and not found.lock_path.exists():
        raise KernelFailed("there is no lock", where=Place(found.lock_path), repair=lockfile.UPDATE)
    return found, wanted_platforms(options.platforms, found)


def run(options: Options) -> int:
    """The command ``lock``. Raises ``KernelFailed``, ``WrongInput`` and ``WrongSurroundings``."""
    found, wanted = check_options(options)
    if options.mode == "update":
        return _update(options, found, wanted)
    return _check(options, found, wanted)


def wanted_platforms(names: Sequence[str], found: Project) -> tuple[Platform, ...]:
    """The platforms of those names, else those that the project declares. Raises ``WrongInput``."""
    given = tuple(dict.fromkeys(platforms.parse(name) for name in names))
    return given or found.platforms


def _check(options: Options, found: Project, wanted: tuple[Platform, ...]) -> int:
    path = found.lock_path
    locked = lockfile.read(path)
    hub = client.connect(options.hub, options.token)
    checked = [check.check_one(hub, one, wanted) for one in locked]
    needed, unread = check.needed_by(hub, checked)
    problems = [
        *check.declared(found, locked),
        *check.undeclared(found, locked, needed),
        *(problem for one in checked for problem in one.problems),
        *unread,
    ]
    if options.newest:
        problems += [
            Problem(f"{one.locked.repo_id} {one.locked.wanted} is {one.verdict}")
            for one in checked
            if one.state.is_outdated and not one.problems
        ]
    _print_check(options.format, checked, problems)
    check.raise_all(path, problems)
    return EXIT_DONE


def _print_check(form: str, checked: Sequence[Checked], problems: Sequence[Problem]) -> None:
    outdated = [one.locked.repo_id for one in checked if one.state.is_outdated]
    if form == "json":
        value = {
            "verdict": "failed" if problems else "passed",
            "kernels": [_as_json(one) for one in checked],
            "problems": [{"what": one.what, "repair": one.repair} for one in problems],
        }
        print(json.dumps(value, indent=2))
        return
    rows = [
        (one.locked.repo_id, one.locked.wanted, one.locked.commit[:12], one.release, one.verdict)
        for one in checked
    ]
    with github.untrusted_output():
        print(console.table(_HEADER, rows))
    if form == "github":
        github.set_outputs({"changed": "false", "outdated": json.dumps(outdated), "diff": ""})
        verdict: markdown.Verdict = "failed" if problems else "warned" if outdated else "passed"
        newer = f", {len(outdated)} outdated" if outdated else ""
        github.add_summary(
            markdown.join(
                markdown.heading(verdict, f"kernels.lock: {console.counted(len(checked), 'kernel')}{newer}"),
                markdown.bullets(one.what for one in problems),
                markdown.table(_HEADER, rows),
            )
        )


def _as_json(one: Checked) -> dict[str, Any]:
    state = one.state
    return {
        "repo_id": one.locked.repo_id,
        "version": one.locked.version,
        "revision": one.locked.revision or None,
        "commit": one.locked.commit,
        "release": one.release,
        "head": state.head.commit if state.head else None,
        "head_release": state.head.release if state.head else None,
        "outdated": state.is_outdated,
        "rolled_back": state.rolled_back,
        "variants": list(state.locked.variants) if state.locked else [],
        "platforms": dict(one.chosen),
    }


def _update(options: Options, found: Project, wanted: tuple[Platform, ...]) -> int:
    path = found.lock_path
    old = lockfile.read_bytes(path)
    before = update.locked_before(path, old)
    hub = client.connect(options.hub, options.token)
    text = update.newest(hub, found)
    after = lockfile.parse(text, path)
    changes = update.changes(hub, before, after)
    update.check_platforms(path, changes, wanted)
    is_changed = old != text.encode()
    if is_changed:
        built.write_whole(path, text.encode())
    _print_update(options.format, path, after, changes, is_changed)
    return EXIT_DONE


def _print_update(
    form: str, path: Path, after: Sequence[Locked], changes: Sequence[Change], is_changed: bool
) -> None:
    if form == "json":
        value = {
            "changed": is_changed,
            "lock": str(path),
            "kernels": [
                {
                    "repo_id": one.repo_id,
                    "version": one.wanted,
                    "from": one.before_commit or None,
                    "to": one.after.commit if one.after else None,
                    "from_release": one.before.release if one.before else "",
                    "to_release": one.after.release if one.after else "",
                    "gained": list(one.gained),
                    "lost": list(one.lost),
                }
                for one in changes
            ],
        }
        print(json.dumps(value, indent=2))
        return
    changed = [one for one in changes if not one.is_empty]
    said = f"{path} locks {console.counted(len(after), 'kernel')}"
    if not is_changed:
        said += ", and is as it was"
    with github.untrusted_output():
        if changed:
            print(console.table(_CHANGES, [_row(one) for one in changed]))
            print()
        print(said)
    if form == "github":
        diff = _diff(changed)
        outdated = json.dumps([])
        github.set_outputs({"changed": str(is_changed).lower(), "outdated": outdated, "diff": diff})
        title = "was updated" if is_changed else "nothing is newer"
        github.add_summary(markdown.join(markdown.heading("passed", f"kernels.lock: {title}"), diff))


def _diff(changes: Sequence[Change]) -> str:
    """The changes as a table in Markdown, as far as they fit into a pull request; empty without any."""
    rows = [_row(one, _MOST_VARIANTS) for one in changes]
    size = 0
    for shown, row in enumerate(rows):
        size += len(markdown.table(_CHANGES, [row]).encode())
        if size > _LONGEST_DIFF:
            more = f"{console.counted(len(rows) - shown, 'kernel')} more changed.\n"
            return markdown.join(markdown.table(_CHANGES, rows[:shown]), more)
    return markdown.table(_CHANGES, rows) if rows else ""


def _row(one: Change, most: int = sys.maxsize) -> tuple[str, ...]:
    """The cells of a change, with as many names of variants as ``most``."""

    def listed(names: Sequence[str]) -> str:
        more = f" and {len(names) - most} more" if len(names) > most else ""
        return (", ".join(names[:most]) or "-") + more

    def named(commit: str, release: str) -> str:
        return f"{commit[:12]} ({release})" if release else commit[:12]

    before = named(one.before_commit, one.before.release if one.before else "") if one.before_commit else "-"
    after = named(one.after.commit, one.after.release) if one.after else "-"
    return (one.repo_id, one.wanted, before, after, listed(one.gained), listed(one.lost))
