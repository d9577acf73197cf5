"""Taking a release back: the version's branch gets exactly what an earlier release held.

The earlier release is verified as a new one is, from the Hub and without a token; then one guarded commit
copies its files on the server. kernel-actions.json says from then on which releases were taken back. Their
tags stay: whoever has pinned one can still load it, and `lock` tells them to move on.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from kernel_actions import console
from kernel_actions.errors import KernelFailed, WrongInput
from kernel_actions.hub import client
from kernel_actions.hub.client import Changes, Hub, Refs, RemoteFile
from kernel_actions.release import on_hub, plan, record, verification, version
from kernel_actions.release.plan import There, VariantChange, Wanted
from kernel_actions.release.protocol import ATTEMPTS, Moved, too_many
from kernel_actions.release.record import Record, RolledBack
from kernel_actions.release.verification import Verified
from kernel_actions.release.version import Version

_COMMIT = re.compile("[0-9a-f]{7,40}")
_MOST_NAMED = 6
_LONGEST_NAME = 80


@dataclass(frozen=True)
class Target:
    """What to go back to: a release, its commit on the Hub, what that holds, and its record."""

    commit: str
    files: Mapping[str, RemoteFile]
    record: Record


@dataclass(frozen=True)
class Rollback:
    """A roll-back before anything is done. ``head`` is the commit that the branch is at, ``current`` the
    release that it holds (``None``: none is recorded) and ``before`` all its files. ``taken`` are the
    releases that this takes back, the newest first."""

    hub: Hub
    repo_id: str
    branch: str
    target: Target
    head: str
    current: Version | None
    before: Mapping[str, RemoteFile]
    taken: tuple[RolledBack, ...]
    record: Record

    @property
    def version(self) -> Version:
        """The release to go back to."""
        return self.target.record.release

    @property
    def changes(self) -> Changes:
        """What makes the branch what it was; empty when it is that already."""
        wanted: dict[str, Wanted] = {
            path: There(self.target.commit, path, file) for path, file in self.target.files.items()
        }
        wanted[record.FILE_NAME] = self.record.as_bytes()
        # Of everything: also what others put beside the release since.
        return plan.changes(self.before, wanted, owns=lambda path: True)

    @property
    def variants(self) -> tuple[VariantChange, ...]:
        """What becomes of each variant."""
        return plan.variant_changes(self.before, self.target.files, keeps_others=False)

    def as_json(self) -> dict[str, Any]:
        """The plan for programs."""
        changes = self.changes
        return {
            "repo_id": self.repo_id,
            "hub": self.hub.address,
            "branch": self.branch,
            "release": str(self.version),
            "target": self.target.commit,
            "current": None if self.current is None else str(self.current),
            "head": self.head,
            "rolled_back": [one.release for one in self.taken],
            "copied": sorted(changes.copied),
            "written": sorted(changes.added),
            "deleted": list(changes.deleted),
            "variants": [{"variant": one.name, "action": one.action} for one in self.variants],
        }


@dataclass(frozen=True)
class Done:
    """What became of it: the commit that the branch is at. ``verified`` is ``None`` when nothing had to
    be done."""

    commit: str
    verified: Verified | None


def prepare(hub: Hub, repo_id: str, to: str, *, prefix: str = "") -> Rollback:
    """Find what ``to`` is (a tag, a version or a commit on the Hub), and plan to go back to it. Changes
    nothing. ``prefix`` is that of the kernel's git tags, which may be given too.

    Raises ``WrongInput`` when that is no release of this kernel, or not one that its branch once held.
    """
    client.check_repo_id(repo_id)
    refs = client.refs(hub, repo_id)
    if refs is None:
        raise client.missing_repository(hub, repo_id)
    commit, said = _find(hub, repo_id, refs, to, prefix)
    found = on_hub.record_at(hub, repo_id, commit)
    if found is None or (said is not None and found.release != said):
        what = f"release {found.release}" if found else "no release that was recorded"
        raise WrongInput(f"{to} of {repo_id} is {commit[:12]}, which is {what}", repair=_known(refs))
    branch = found.branch
    head = refs.branches.get(branch, "")
    history = client.history(hub, repo_id, head) if head else []
    commits = [one for one, _ in history]
    if commit not in commits:
        raise WrongInput(
            f"{to} is {commit[:12]}, which {branch} of {repo_id} never held", repair=_known(refs)
        )
    files = client.remote_files(hub, repo_id, commit)
    before = files if head == commit else client.remote_files(hub, repo_id, head)
    current = found if head == commit else _readable(hub, repo_id, head, before)
    taken = _taken(hub, repo_id, refs, found, current, head, history[: commits.index(commit)])
    marked = [one for one in (current or found).rolled_back if one.release != str(found.release)]
    marks = {one.release: one for one in (*marked, *taken)}
    ordered = sorted(marks.values(), key=lambda one: version.parse(one.release) or found.release)
    return Rollback(
        hub=hub,
        repo_id=repo_id,
        branch=branch,
        target=Target(commit, files, found),
        head=head,
        current=current.release if current else None,
        before=before,
        taken=taken,
        record=replace(found, rolled_back=tuple(ordered)),
    )


def _find(hub: Hub, repo_id: str, refs: Refs, to: str, prefix: str) -> tuple[str, Version | None]:
    """The commit that ``to`` names, and the release that it says it is, where it is a tag."""
    for name in dict.fromkeys((to, to.removeprefix(prefix), f"v{to.removeprefix('v')}")):
        if name in refs.tags and (said := version.of_tag(name, "")) is not None:
            return client.resolve(hub, repo_id, name), said
    if _COMMIT.fullmatch(to):
        # Any may be a version's: build.toml can name it.
        heads = [
            head
            for name, head in refs.branches.items()
            if name != client.MAIN and not name.startswith(plan.STAGING)
        ]
        found = {
            commit
            for head in heads
            for commit, _ in client.history(hub, repo_id, head)
            if commit.startswith(to)
        }
        if len(found) == 1:
            return found.pop(), None
        if found:
            raise WrongInput(f"{to} is the start of several commits of {repo_id}", repair="give more of it")
        raise WrongInput(f"no version of {repo_id} ever held a commit {to}", repair=_known(refs))
    raise WrongInput(f"{repo_id} has no release {to[:_LONGEST_NAME]!r} on {hub.address}", repair=_known(refs))


def _known(refs: Refs) -> str:
    """What can be given, in words."""
    versions = ((version.of_tag(name, ""), name) for name in refs.tags)
    # No branch holds a pre-release.
    found = sorted((one, name) for one, name in versions if one is not None and not one.pre)
    if not found:
        return "there is no tag of a release: give the commit on the Hub that held one"
    names = [name for _, name in reversed(found)]
    more = f" or {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"give one of {', '.join(names[:_MOST_NAMED])}{more}"


def _readable(hub: Hub, repo_id: str, head: str, files: Collection[str]) -> Record | None:
    """The record of what is there now; one that cannot be read must not keep anybody from going back."""
    if record.FILE_NAME not in files:
        return None
    try:
        return on_hub.record_at(hub, repo_id, head)
    except KernelFailed as error:
        console.say(f"warning: {error}")
        return None


def _taken(
    hub: Hub,
    repo_id: str,
    refs: Refs,
    target: Record,
    current: Record | None,
    head: str,
    later: Sequence[tuple[str, str]],
) -> tuple[RolledBack, ...]:
    """The releases above the target's that the branch held after it, and that are not marked yet."""
    marked = {one.release for one in current.rolled_back} if current else set()
    after = {commit for commit, _ in later}
    found: dict[Version, tuple[str, str]] = {}
    for name, commit in refs.tags.items():
        one = version.of_tag(name, "")
        if one is None or one <= target.release or str(one) in marked:
            continue
        if commit not in after:
            # Of another branch, or the tag's own object in place of the commit that it is on.
            commit = client.resolve(hub, repo_id, name)
        if commit in after:
            of_tag = _readable(hub, repo_id, commit, (record.FILE_NAME,))
            found[one] = (commit, of_tag.commit if of_tag else "")
    if current is not None and current.release > target.release and current.release not in found:
        # It was ended before it got its tag.
        titled = (commit for commit, title in later if title == f"Release {current.release}")
        found[current.release] = (next(titled, head), current.commit)
    when = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return tuple(
        RolledBack(str(one), commit, source, when)
        for one, (commit, source) in sorted(found.items(), reverse=True)
    )


def carry_out(made: Rollback, trust_config: str = "") -> Done:
    """Verify what to go back to, and make the branch hold it in one commit; nothing when it does.
    ``trust_config`` is that of `signing`.

    Raises ``KernelFailed`` when it is not as it should be, ``Moved`` when the branch gets other content
    meanwhile, and ``WrongSurroundings``.
    """
    if made.changes.is_empty:
        return Done(made.head, None)
    target = made.target.commit
    console.say(f"Verifying {made.version}, {target[:12]}")
    # It was loaded before it was released; where a token is, none of it is run.
    verified = verification.in_fresh_process(
        made.repo_id, target, made.hub.address, trust_config, loads=False
    )
    verification.check(verified)
    if verified.commit != target or verified.repo_id != made.repo_id:
        raise KernelFailed(f"{made.version} was not verified as it is on the Hub", repair="run again")
    first = made
    for _ in range(ATTEMPTS):
        if made.changes.is_empty:
            return Done(made.head, verified)
        if not plan.is_same_release(made.before, first.before):
            raise Moved(
                f"{made.branch} of {made.repo_id} was changed meanwhile, to {made.current or 'no release'}",
                repair=f"run again if it shall still go back to {made.version}",
            )
        console.say(f"Taking {made.branch} of {made.repo_id} back to {made.version}")
        commit = client.commit(
            made.hub, made.repo_id, made.branch, made.changes,
            parent=made.head, message=f"Roll back to {made.version}", description=_description(made),
        )  # fmt: skip
        if commit is not None:
            return Done(commit, verified)
        console.say(f"Somebody else committed to {made.branch} of {made.repo_id}: planning anew")
        made = prepare(made.hub, made.repo_id, target)
    raise too_many(made.repo_id, made.branch)


def _description(made: Rollback) -> str:
    taken = ", ".join(one.release for one in made.taken)
    return f"What {made.target.commit} holds" + (f"; taken back: {taken}" if taken else "")
