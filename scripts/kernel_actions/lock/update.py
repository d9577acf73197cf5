"""``lock --mode update``: the newest commit of each version, and what that changes."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_actions import console, process
from kernel_actions.errors import (
    KernelActionsError,
    KernelFailed,
    Place,
    WrongInput,
    WrongSurroundings,
    raise_all,
)
from kernel_actions.hub import client
from kernel_actions.hub.client import Hub
from kernel_actions.lock import lockfile, on_hub, platforms
from kernel_actions.lock.lockfile import Locked
from kernel_actions.lock.on_hub import Snapshot
from kernel_actions.lock.platforms import Platform
from kernel_actions.lock.project import Project

_PROGRAM = Path(__file__).resolve().parent / "lock_kernels.py"


@dataclass(frozen=True)
class Change:
    """What an update changes of a kernel's version: ``before`` and ``after`` are ``None`` where it was not,
    or is no longer, locked; ``before`` also where its commit is gone."""

    repo_id: str
    wanted: str
    before_commit: str
    before: Snapshot | None
    after: Snapshot | None

    @property
    def is_empty(self) -> bool:
        """Whether the commit stays."""
        return self.after is not None and self.before_commit == self.after.commit

    @property
    def gained(self) -> tuple[str, ...]:
        """The variants that come with it."""
        return self._difference(self.after, self.before)

    @property
    def lost(self) -> tuple[str, ...]:
        """The variants that go with it."""
        return self._difference(self.before, self.after)

    def _difference(self, one: Snapshot | None, other: Snapshot | None) -> tuple[str, ...]:
        # Of a kernel that comes or goes, all variants do.
        kept = set(other.variants) if other else set()
        return tuple(name for name in (one.variants if one else ()) if name not in kept)


def newest(hub: Hub, project: Project) -> str:
    """The text of the lock of the newest commits: that of ``kernels lock``, by its own code.

    Raises ``WrongInput`` for what is not on the Hub or not trusted, and ``WrongSurroundings``.
    """
    trusted = project.trusted if isinstance(project.trusted, bool) else list(project.trusted)
    with tempfile.TemporaryDirectory(prefix="kernel-actions-lock-") as name:
        folder = Path(name)
        question = {"dependencies": dict(project.dependencies), "trusted": trusted}
        (folder / "question.json").write_text(json.dumps(question))
        finished = process.run(
            [sys.executable, "-I", _PROGRAM, folder / "question.json", folder / "answer.json"],
            directory=folder,
            environment=_variables(hub, folder / "cache"),
            on_line=console.say if console.is_verbose() else None,
        )
        try:
            answer = json.loads((folder / "answer.json").read_bytes())
        except (OSError, ValueError):
            lines = [line for line in finished.output.splitlines() if line.strip()]
            raise WrongSurroundings(
                f"kernels cannot lock: {lines[-1] if lines else 'it said nothing'}"
            ) from None
    if "lock" in answer:
        return str(answer["lock"])
    # Where it looked is nobody's concern, and gone.
    said = str(answer["error"]).replace(f"{folder}/cache/", "")
    said = said.replace(hub.token, "***") if hub.token else said
    raise _explained(hub, project, str(answer["kind"]), said, str(answer["repo_id"]))


def _variables(hub: Hub, cache: Path) -> dict[str, str]:
    """The child's variables: the Hub's address, and the token for it, if there is one."""
    variables = process.without_secrets(os.environ) | {
        "HF_ENDPOINT": hub.address,
        # What is downloaded here is a few files of each commit: in the user's cache they would look
        # like a whole one to `load_kernel`.
        "KERNELS_CACHE": str(cache),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }
    for misleading in ("LOCAL_KERNELS", "HF_HUB_OFFLINE"):
        variables.pop(misleading, None)
    if hub.token:
        return variables | {"HF_TOKEN": hub.token}
    return variables | {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}


def _explained(hub: Hub, project: Project, kind: str, said: str, repo_id: str) -> KernelActionsError:
    where = Place(project.file.path)
    needed = ""
    if repo_id in project.dependencies:
        where = project.file.place(("tool", "kernels", "dependencies", repo_id))
    elif repo_id:
        needed = ", which another kernel needs,"
    if kind in ("trust", "input") and repo_id and client.refs(hub, repo_id) is None:
        # Nobody trusts what is not there: a misspelt name, most often.
        missing = client.missing_repository(hub, repo_id)
        also = "; another kernel needs it" if needed else ""
        return WrongInput(f"{missing.what}{also}", where=where, repair=missing.repair)
    if kind == "trust":
        return WrongInput(
            f"{repo_id}{needed} is not of a publisher that the Hub lists as trusted",
            where=where,
            repair=f'if you trust it, say so in [tool.kernel-actions]: trust-remote-code = ["{repo_id}"]',
        )
    what = f"kernels cannot lock {repo_id}{needed}".rstrip(", ")
    if kind == "input":
        return WrongInput(f"{what}: {said.partition(': ')[2] or said}", where=where)
    return WrongSurroundings(f"{what}: {said}")


def changes(hub: Hub, before: Sequence[Locked], after: Sequence[Locked]) -> tuple[Change, ...]:
    """What an update from one lock to another changes, by repository and version."""
    old = {(one.repo_id, one.wanted): one for one in before}
    new = {(one.repo_id, one.wanted): one for one in after}
    found = []
    for repo_id, wanted in sorted(old.keys() | new.keys()):
        was, is_now = old.get((repo_id, wanted)), new.get((repo_id, wanted))
        now = on_hub.snapshot(hub, repo_id, is_now.commit)[0] if is_now else None
        same = was is not None and now is not None and was.commit == now.commit
        found.append(
            Change(
                repo_id=repo_id,
                wanted=wanted,
                before_commit=was.commit if was else "",
                before=now if same else _known(hub, was),
                after=now,
            )
        )
    return tuple(found)


def _known(hub: Hub, one: Locked | None) -> Snapshot | None:
    """What was locked, unless the Hub has it no longer."""
    if one is None:
        return None
    try:
        client.resolve(hub, one.repo_id, one.commit)
        return on_hub.snapshot(hub, one.repo_id, one.commit)[0]
    except WrongInput:
        return None


def check_platforms(path: Path, found: Sequence[Change], wanted: Sequence[Platform]) -> None:
    """Raise ``KernelFailed`` unless what is locked now has a variant for each of the platforms."""
    missing = [
        KernelFailed(
            f"the newest commit of {one.repo_id} {one.wanted} has no variant for {platform.name}",
            where=Place(path),
            repair="the lock is left as it is; ask for a build, or declare other platforms",
        )
        for one in found
        for platform in wanted
        if one.after is not None and not platforms.chosen(platform, one.after.variants)
    ]
    raise_all(missing)


def locked_before(path: Path, data: bytes | None) -> tuple[Locked, ...]:
    """The locked kernels of a lock that is to be replaced, which holds ``data``: none where it is missing or
    cannot be read."""
    if data is None:
        return ()
    try:
        return lockfile.decode(data, path)
    except WrongInput as error:
        console.say(f"warning: {error.what}: {path} is written anew")
        return ()
