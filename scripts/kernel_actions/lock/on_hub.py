"""What the Hub has of a locked kernel, and whether the release that is locked was taken back.

A release is taken back when its branch goes back to an earlier one. Three things tell, and each is enough:

- the record at the head of the branch lists it under ``rolled_back``, as ``rollback`` writes it
  (`release.record.RolledBack`); a record without that key lists none;
- a tag ``v1.2.0-rolled-back`` on the Hub marks it, for those who go back by hand;
- a commit after it on the branch is of an earlier release, and none after that is of this one again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernel_actions import console
from kernel_actions.errors import KernelFailed, WrongInput
from kernel_actions.hub import client
from kernel_actions.hub.client import Hub, Refs
from kernel_actions.lock.lockfile import Locked
from kernel_actions.release import plan, record
from kernel_actions.release.record import Record

ROLLED_BACK = "rolled_back"
ROLLED_BACK_TAG = "-rolled-back"
# Of so many commits after the locked one is the release looked up: each takes two requests.
_MOST_COMMITS = 30


@dataclass(frozen=True)
class Snapshot:
    """A commit of a repository: its variants, and its release (empty: none is recorded)."""

    commit: str
    variants: tuple[str, ...]
    release: str


@dataclass(frozen=True)
class State:
    """What became of a locked kernel: ``locked`` is ``None`` where its commit is not there, and ``head`` is
    the newest commit of its version, ``None`` where that has no branch.

    ``is_on_branch``: the branch holds it, or held it before. ``rolled_back`` says how it is known that the
    release was taken back, and is empty otherwise.
    """

    repo_exists: bool
    locked: Snapshot | None
    head: Snapshot | None
    is_on_branch: bool
    rolled_back: str

    @property
    def is_outdated(self) -> bool:
        """Whether the version has a newer commit, but for the locked release again, as after a roll-back."""
        if self.head is None or self.locked is None or self.head.commit == self.locked.commit:
            return False
        held, now = ((one.release, one.variants) for one in (self.locked, self.head))
        return not held[0] or held != now


def read(hub: Hub, one: Locked) -> State:
    """What the Hub has of a locked kernel. Raises ``WrongSurroundings`` when it does not answer."""
    refs = client.refs(hub, one.repo_id)
    if refs is None:
        return State(False, None, None, False, "")
    newest = refs.branches.get(one.branch, "") if one.branch else one.commit
    locked, found = _snapshot(hub, one.repo_id, one.commit)
    if locked is None:
        head = _snapshot(hub, one.repo_id, newest)[0] if newest else None
        return State(True, None, head, False, "")
    if newest == one.commit or not newest:
        back = _marked(found.marks, refs, locked)
        return State(True, locked, locked if newest else None, bool(newest), back)
    head, at_head = _snapshot(hub, one.repo_id, newest)
    history = [commit for commit, _ in client.history(hub, one.repo_id, newest)]
    is_on_branch = one.commit in history
    back = _marked(at_head.marks, refs, locked)
    if not back and is_on_branch:
        back = _gone_back(hub, one, found.record, history[: history.index(one.commit)])
    return State(True, locked, head, is_on_branch, back)


@dataclass(frozen=True)
class _Recorded:
    """kernel-actions.json of a commit: the record, and what it says was taken back."""

    record: Record | None = None
    marks: tuple[str, ...] = ()


def _snapshot(hub: Hub, repo_id: str, commit: str) -> tuple[Snapshot | None, _Recorded]:
    """A commit; ``None`` when the repository has none of that id."""
    try:
        client.resolve(hub, repo_id, commit)
    except WrongInput:
        return None, _Recorded()
    return snapshot(hub, repo_id, commit)


def snapshot(hub: Hub, repo_id: str, commit: str) -> tuple[Snapshot, _Recorded]:
    """What a commit that exists holds."""
    files = client.remote_files(hub, repo_id, commit)
    found = _recorded(hub, repo_id, commit) if record.FILE_NAME in files else _Recorded()
    release = str(found.record.release) if found.record else ""
    return Snapshot(commit, tuple(sorted(plan.variants_in(files))), release), found


def _recorded(hub: Hub, repo_id: str, commit: str) -> _Recorded:
    data = client.read_file(hub, repo_id, commit, record.FILE_NAME)
    if data is None:
        return _Recorded()
    try:
        return _Recorded(record.read(data, f"{repo_id} at {commit[:12]}"), marks(data))
    except KernelFailed as error:
        # Of a later suite, most likely. What the loader reads is elsewhere.
        console.say(f"warning: {error}")
        return _Recorded(None, marks(data))


def marks(data: bytes) -> tuple[str, ...]:
    """The releases and commits that a kernel-actions.json says were taken back."""
    try:
        listed: Any = json.loads(data).get(ROLLED_BACK, [])
    except (ValueError, AttributeError, RecursionError):
        return ()
    found = []
    for one in listed if isinstance(listed, list) else []:
        said = [one.get("release"), one.get("commit")] if isinstance(one, dict) else [one]
        found += [text for text in said if isinstance(text, str) and text]
    return tuple(found)


def _marked(marks: Sequence[str], refs: Refs, locked: Snapshot) -> str:
    if locked.commit in marks:
        return f"{locked.release or locked.commit[:12]} was rolled back"
    if locked.release and {locked.release, f"v{locked.release}"} & set(marks):
        return f"{locked.release} was rolled back"
    tag = f"v{locked.release}{ROLLED_BACK_TAG}"
    if locked.release and tag in refs.tags:
        return f"{locked.release} was rolled back: there is the tag {tag}"
    return ""


def _gone_back(hub: Hub, one: Locked, locked: Record | None, later: Sequence[str]) -> str:
    """Whether a commit after the locked one went back to an earlier release, and to which."""
    if locked is None:
        return ""
    # The newest of them first: what is there again counts, not what was in between.
    for commit in later[-_MOST_COMMITS:]:
        found = _recorded(hub, one.repo_id, commit).record
        if found is not None and found.release == locked.release:
            return ""
        if found is not None and found.release < locked.release:
            return f"{locked.release} was rolled back: {one.branch} went back to {found.release}"
    return ""
