"""What the Hub has of a kernel before a release, and whether it is that very release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernel_actions.errors import WrongInput
from kernel_actions.hub import client
from kernel_actions.hub.client import MAIN, Hub, Refs, RemoteFile
from kernel_actions.release import record
from kernel_actions.release.plan import ReleasePlan
from kernel_actions.release.record import Record


@dataclass(frozen=True)
class OnHub:
    """What the Hub has: the first commit of ``main``, and the version's branch. ``head`` is empty
    while the branch holds no release and no upload: then ``files`` are those that it starts with."""

    refs: Refs
    start: str
    head: str
    files: Mapping[str, RemoteFile]
    record: Record | None


def read(hub: Hub, repo_id: str, branch: str) -> OnHub:
    """What the Hub has of the repository and of a version's ``branch``."""
    refs = client.refs(hub, repo_id)
    if refs is None:
        return OnHub(Refs({}, {}), "", "", {}, None)
    start = client.history(hub, repo_id, MAIN)[-1][0]
    head = refs.branches.get(branch, "")
    if head == start:
        # As new as one that is made now: it was made by somebody who was ended then.
        head = ""
    files = client.remote_files(hub, repo_id, head or start)
    is_recorded = bool(head) and record.FILE_NAME in files
    return OnHub(refs, start, head, files, record_at(hub, repo_id, head) if is_recorded else None)


def record_at(hub: Hub, repo_id: str, revision: str) -> Record | None:
    """The record of the release at ``revision``; ``None`` when there is none."""
    data = client.read_file(hub, repo_id, revision, record.FILE_NAME)
    return None if data is None else record.read(data, f"{repo_id} at {revision[:12]}")


def promoted(hub: Hub, made: ReleasePlan, on_hub: OnHub) -> str:
    """The commit on the Hub that holds this very release already; empty when none does.

    Raises ``WrongInput`` when another release has its version, a later one was made, or it was taken
    back.
    """
    taken_back = on_hub.record.rolled_back if on_hub.record else ()
    for one in taken_back:
        if one.release == str(made.version):
            raise WrongInput(
                f"{made.version} of {made.repo_id} was rolled back ({one.when or 'it is not known when'})",
                repair="release a commit that mends it, or put it back as it was: rollback --to "
                f"{made.hub_tag}",
            )
    tagged, found = on_hub.refs.tags.get(made.hub_tag, ""), on_hub.record
    if tagged and tagged != on_hub.head:
        # The list may have the tag's own object in place of the commit that it is on.
        tagged = client.resolve(hub, made.repo_id, made.hub_tag)
        found = record_at(hub, made.repo_id, tagged)
    if tagged and (found is None or found.release != made.version):
        raise WrongInput(
            f"the tag {made.hub_tag} of {made.repo_id} is on {tagged[:12]}, which is not that release",
            repair="delete the tag on the Hub, or give a higher version with --bump",
        )
    if found is None or found.release < made.version:
        return ""
    if found.release > made.version:
        raise WrongInput(
            f"{made.branch} of {made.repo_id} is at {found.release} already, which is above {made.version}",
            repair="release a commit that contains it, or give a higher version with --bump",
        )
    if found.commit != made.commit:
        raise WrongInput(
            f"{made.version} of {made.repo_id} was released from another commit, {found.commit[:12]}",
            repair="fetch its git tag, or give a higher version with --bump",
        )
    return tagged or promotion(hub, made, on_hub)


def promotion(hub: Hub, made: ReleasePlan, on_hub: OnHub) -> str:
    """The commit by which the branch came to hold the release; what others did since is theirs."""
    history = client.history(hub, made.repo_id, on_hub.head)
    return next((commit for commit, said in history if said == title(made)), on_hub.head)


def title(made: ReleasePlan) -> str:
    """The first line of the commit that promotes the release, or is the pre-release."""
    return f"{'Pre-release' if made.is_pre else 'Release'} {made.version}"
