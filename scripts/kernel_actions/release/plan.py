"""The plan of a release: what it is called, what decides that, and what it changes on the Hub.

Values in, values out: trees of files come from the Hub and from disk, and what to change follows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kernel_actions import digests, markdown
from kernel_actions.built import SIGNATURE
from kernel_actions.hub.client import Changes, Copy, LocalFile, RemoteFile, is_benchmark
from kernel_actions.release import record, version
from kernel_actions.release.version import Commit, Decision, Version

Action = Literal["add", "replace", "unchanged", "keep", "delete", "missing"]

CARD = "README.md"
# What the names of staging branches begin with.
STAGING = "release-"
_BUILD = "build/"
# A changelog is for reading: of more than this in one group, the rest is counted.
_MOST_LISTED = 100
_LONGEST_SUBJECT = 200


@dataclass(frozen=True)
class There:
    """A file that the Hub has already: ``path`` at the commit ``revision``."""

    revision: str
    path: str
    file: RemoteFile


# What a path shall hold: a file of this machine, some bytes, or what the Hub has.
Wanted = LocalFile | bytes | There


@dataclass(frozen=True)
class VariantChange:
    """What becomes of a variant on the version's branch. ``files`` and ``size`` (in bytes) are what it
    will hold; ``changed`` and ``sent`` are the files, and their bytes, that differ from what is there."""

    name: str
    action: Action
    files: int = 0
    changed: int = 0
    size: int = 0
    sent: int = 0


@dataclass(frozen=True)
class ReleasePlan:
    """A release before anything is done. ``commits`` are those since the last one, the newest first.

    ``branch`` is the version's on the Hub: ``v`` and its major version, or what general.hub.branch of
    build.toml names. ``promoted`` is the commit on the Hub that holds this very release already, or empty.
    ``dirty``: it holds changes that are not committed.
    """

    kernel: str
    repo_id: str
    address: str
    decision: Decision
    prefix: str
    branch: str
    commits: tuple[Commit, ...]
    variants: tuple[VariantChange, ...]
    promoted: str
    dirty: bool

    @property
    def version(self) -> Version:
        """The version to release."""
        return self.decision.next

    @property
    def commit(self) -> str:
        """The git commit to release; empty outside of git."""
        return self.decision.commit

    @property
    def is_pre(self) -> bool:
        """Whether it is a pre-release, which gets a tag and leaves the version's branch alone."""
        return bool(self.version.pre)

    @property
    def is_loaded_by_version(self) -> bool:
        """Whether who asks for this major version loads what is on ``branch``, as ``get_kernel(version=N)``
        looks at the branches ``vN`` alone (kernels/_versions.py, 0.17.2)."""
        return self.branch == f"v{self.version.major}"

    @property
    def staging(self) -> str:
        """The branch on the Hub where the release is staged."""
        return f"{STAGING}{self.version}"

    @property
    def hub_tag(self) -> str:
        """The tag on the Hub."""
        return f"v{self.version}"

    @property
    def git_tag(self) -> str:
        """The tag in git."""
        return f"{self.prefix}v{self.version}"

    @property
    def changelog(self) -> str:
        """What the release changes, as Markdown; what commits say is shown as text."""
        return changelog(self.commits)

    def as_json(self) -> dict[str, Any]:
        """The plan for programs."""
        decision = self.decision
        return {
            "kernel": self.kernel,
            "repo_id": self.repo_id,
            "hub": self.address,
            "current": None if decision.current is None else str(decision.current),
            "version": str(self.version),
            "pre_release": self.is_pre,
            "level": decision.level,
            "reason": decision.reason,
            "again": decision.is_again,
            "commit": self.commit,
            "dirty": self.dirty,
            "deciding": [_commit_as_json(commit) for commit in decision.deciding],
            "commits": [_commit_as_json(commit) for commit in self.commits],
            "branch": self.branch,
            "staging_branch": self.staging,
            "tag": self.git_tag,
            "hub_tag": self.hub_tag,
            "promoted": self.promoted,
            "variants": [
                {
                    "variant": one.name,
                    "action": one.action,
                    "files": one.files,
                    "changed_files": one.changed,
                    "bytes": one.size,
                    "sent_bytes": one.sent,
                }
                for one in self.variants
            ],
            "changelog": self.changelog,
        }


def _commit_as_json(commit: Commit) -> dict[str, str]:
    return {"id": commit.id, "subject": commit.first_line, "level": commit.level}


def changelog(commits: Iterable[Commit]) -> str:
    """The commits in groups, as Markdown."""
    lines: list[str] = []
    for title, listed in version.grouped(commits).items():
        lines += [f"### {title}", ""]
        for commit in listed[:_MOST_LISTED]:
            scope = f"**{markdown.text(commit.scope)}**: " if commit.scope else ""
            subject = markdown.text(commit.subject[:_LONGEST_SUBJECT])
            lines.append(f"- {scope}{subject}" + (f" ({commit.id[:7]})" if commit.id else ""))
        if len(listed) > _MOST_LISTED:
            lines.append(f"- and {len(listed) - _MOST_LISTED} more")
        lines.append("")
    return "\n".join(lines)


def variant_of(path: str) -> str | None:
    """The variant that a path in the repository is in."""
    parts = path.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "build" else None


def variants_in(paths: Iterable[str]) -> set[str]:
    """The variants that have files among ``paths``."""
    return {name for path in paths if (name := variant_of(path)) is not None}


def is_released(path: str) -> bool:
    """Whether a release decides what is at ``path`` of a version's branch; it leaves the rest alone."""
    return path.startswith(_BUILD) or path == record.FILE_NAME or is_benchmark(path)


def is_inherited(path: str) -> bool:
    """Whether a release decides what is at ``path`` of the first commit, from which a new version's branch
    starts: nothing of what is built or measured there is of this version."""
    return is_released(path) or path.startswith("benchmarks/")


def is_staged(path: str) -> bool:
    """Whether staging decides what is at ``path`` of the staging branch, which also holds the card."""
    return is_released(path) or path == CARD


def is_inherited_or_staged(path: str) -> bool:
    """The same of the staging branch of a new version."""
    return is_inherited(path) or is_staged(path)


def part(files: Mapping[str, RemoteFile], revision: str, variants: Collection[str] = ()) -> dict[str, Wanted]:
    """What a release decides of the ``files`` at ``revision``, but for the variants named."""
    return {
        path: There(revision, path, file)
        for path, file in files.items()
        if is_released(path) and variant_of(path) not in variants
    }


def kept(
    files: Mapping[str, RemoteFile],
    revision: str,
    variants: Collection[str],
    *,
    keeps_benchmarks: bool = False,
) -> dict[str, Wanted]:
    """What a release leaves as it is of the ``files`` that were there before: the variants not named, and the
    benchmarks if the kernel says nothing about them."""
    return {
        path: there
        for path, there in part(files, revision, variants).items()
        if keeps_benchmarks or not is_benchmark(path)
    }


def changes(
    current: Mapping[str, RemoteFile],
    wanted: Mapping[str, Wanted],
    *,
    owns: Callable[[str], bool] = is_released,
) -> Changes:
    """What makes a branch that holds ``current`` hold what is ``wanted``, and nothing else at the paths
    that it ``owns``: what a release decides, or what staging does."""
    differing = {path: file for path, file in sorted(wanted.items()) if not _is_same(file, current.get(path))}
    return Changes(
        added={path: file for path, file in differing.items() if not isinstance(file, There)},
        copied={
            path: Copy(file.revision, file.path)
            for path, file in differing.items()
            if isinstance(file, There)
        },
        deleted=tuple(sorted(path for path in current if owns(path) and path not in wanted)),
    )


def _is_same(wanted: Wanted, current: RemoteFile | None) -> bool:
    if current is None:
        return False
    if isinstance(wanted, bytes):
        if current.sha256:
            return current.sha256 == hashlib.sha256(wanted).hexdigest()
        return current.oid == digests.git_id(wanted)
    file = wanted.file if isinstance(wanted, There) else wanted
    return file.is_same(current)


def is_same_release(one: Mapping[str, RemoteFile], other: Mapping[str, RemoteFile]) -> bool:
    """Whether two commits hold the same, as far as a release decides."""
    return {path: (file.oid, file.sha256) for path, file in one.items() if is_released(path)} == {
        path: (file.oid, file.sha256) for path, file in other.items() if is_released(path)
    }


def variant_changes(
    before: Mapping[str, RemoteFile],
    given: Mapping[str, LocalFile | RemoteFile],
    missing: Collection[str] = (),
    *,
    keeps_others: bool = True,
) -> tuple[VariantChange, ...]:
    """What becomes of each variant when those ``given`` are released over what is there ``before``.

    ``missing`` are variants that are planned, and were not built. Without ``keeps_others``, what was
    there before goes.
    """
    names = variants_in(given)
    rows = [_given_change(name, before, given) for name in names]
    for name in variants_in(before) - names:
        sizes = [file.size for path, file in before.items() if variant_of(path) == name]
        action: Action = "keep" if keeps_others else "delete"
        rows.append(VariantChange(name, action, files=len(sizes), size=sum(sizes)))
    listed = {one.name for one in rows}
    rows += [VariantChange(name, "missing") for name in missing if name not in listed]
    return tuple(sorted(rows, key=lambda one: one.name))


def _given_change(
    name: str, before: Mapping[str, RemoteFile], given: Mapping[str, LocalFile | RemoteFile]
) -> VariantChange:
    old = {
        path: file
        for path, file in before.items()
        # A signature is made when all else is there, and holds as long as metadata.json is the same.
        if variant_of(path) == name and (path in given or not path.endswith(f"/{SIGNATURE}"))
    }
    new = {path: file for path, file in given.items() if variant_of(path) == name}
    changed = [file for path, file in new.items() if path not in old or not file.is_same(old[path])]
    action: Action = "replace" if changed or old.keys() - new.keys() else "unchanged"
    return VariantChange(
        name=name,
        action=action if old else "add",
        files=len(new),
        changed=len(changed),
        size=sum(file.size for file in new.values()),
        sent=sum(file.size for file in changed),
    )
