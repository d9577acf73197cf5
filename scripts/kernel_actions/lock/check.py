"""``lock --mode check``: whether a lock is what its project declares, and what it locks can be loaded."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_actions import errors
from kernel_actions.errors import KernelFailed, Place
from kernel_actions.hub import client
from kernel_actions.hub.client import Hub
from kernel_actions.lock import on_hub, platforms
from kernel_actions.lock.lockfile import UPDATE, Locked
from kernel_actions.lock.on_hub import State
from kernel_actions.lock.platforms import Platform
from kernel_actions.lock.project import Project

Dependency = tuple[str, int | str]


@dataclass(frozen=True)
class Problem:
    """What is wrong with a lock, and what to do."""

    what: str
    repair: str = UPDATE


@dataclass(frozen=True)
class Checked:
    """A locked kernel, and what is wrong with it. ``chosen`` is the variant of each platform, by its name;
    empty where there is none."""

    locked: Locked
    state: State
    chosen: Mapping[str, str]
    problems: tuple[Problem, ...]

    @property
    def release(self) -> str:
        """The release that is locked; empty where none is recorded."""
        return self.state.locked.release if self.state.locked else ""

    @property
    def verdict(self) -> str:
        """Its state in a word or two."""
        if self.problems:
            return "rolled back" if self.state.rolled_back else "wrong"
        if self.state.is_outdated and self.state.head:
            head = self.state.head
            return f"outdated: {head.release or head.commit[:12]} is newer"
        return "newest"


def raise_all(path: Path, problems: Sequence[Problem]) -> None:
    """Raise ``KernelFailed`` with all problems of the lock ``path``; nothing where it has none."""
    errors.raise_all([KernelFailed(one.what, where=Place(path), repair=one.repair) for one in problems])


def declared(project: Project, locked: Sequence[Locked]) -> Iterator[Problem]:
    """What of the declared versions is not locked."""
    by_repo = {one.repo_id: one for one in locked}
    for repo_id, version in project.dependencies.items():
        if any(one.repo_id == repo_id and one.version == version for one in locked):
            continue
        if repo_id in by_repo:
            yield Problem(f"{repo_id} is locked at version {by_repo[repo_id].wanted}, not {version}")
        else:
            yield Problem(f"{repo_id} is not locked")


def undeclared(project: Project, locked: Sequence[Locked], needed: set[Dependency]) -> Iterator[Problem]:
    """What is locked though nobody asks for it, and what a kernel needs that is not locked."""
    known = {(one.repo_id, one.revision if one.version is None else one.version) for one in locked}
    for repo_id, version in sorted(known - needed - set(project.dependencies.items()), key=str):
        # Another version of what is declared is told of already.
        if repo_id not in project.dependencies:
            yield Problem(f"{repo_id} {version} is locked, but neither declared nor needed by another kernel")
    for repo_id, version in sorted(needed - known, key=str):
        yield Problem(f"{repo_id} {version} is not locked, and a locked kernel needs it")


def check_one(hub: Hub, one: Locked, wanted: Sequence[Platform]) -> Checked:
    """Look up a locked kernel on the Hub, with the variant of each platform."""
    state = on_hub.read(hub, one)
    names = state.locked.variants if state.locked else ()
    chosen = {platform.name: platforms.chosen(platform, names) for platform in wanted}
    return Checked(one, state, chosen, tuple(_problems(hub, one, state, chosen)))


def _problems(hub: Hub, one: Locked, state: State, chosen: Mapping[str, str]) -> Iterator[Problem]:
    short = one.commit[:12]
    if not state.repo_exists:
        yield Problem(
            client.missing_repository(hub, one.repo_id).what,
            "check its name in pyproject.toml, or give a token",
        )
        return
    if one.branch and state.head is None:
        yield Problem(
            f"{one.repo_id} has no version {one.version}", "declare a version that it has in pyproject.toml"
        )
    if state.locked is None:
        yield Problem(f"{one.repo_id} has no commit {short}")
        return
    if one.branch and state.head is not None and not state.is_on_branch:
        yield Problem(f"{one.repo_id}: {short} is not a commit of {one.branch}")
    if state.rolled_back:
        yield Problem(f"{one.repo_id}: {state.rolled_back}")
    if not state.locked.variants:
        yield Problem(f"{one.repo_id} has no variant at {short}")
        return
    for platform, variant in chosen.items():
        if not variant:
            yield Problem(
                f"{one.repo_id} has no variant for {platform} at {short}",
                f"it has {_some(state.locked.variants)}: lock another version, or declare other platforms",
            )


def _some(names: Sequence[str]) -> str:
    most = 4
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def needed_by(hub: Hub, checked: Sequence[Checked]) -> tuple[set[Dependency], list[Problem]]:
    """The kernels that the locked ones need, by what the metadata.json of their variants says, and what
    cannot be read of it."""
    from kernels._rust import KernelVersion, Metadata

    needed: set[Dependency] = set()
    problems: list[Problem] = []
    for one in checked:
        if one.state.locked is None:
            continue
        with tempfile.TemporaryDirectory(prefix="kernel-actions-lock-") as name:
            folder = Path(name)
            client.download(hub, one.locked.repo_id, one.locked.commit, ["build/*/metadata.json"], folder)
            for variant in one.state.locked.variants:
                path = folder / "build" / variant / "metadata.json"
                try:
                    metadata = Metadata.read_from_file(path)
                except (ValueError, OSError) as error:  # Where it is not there, too.
                    said = str(error).replace(f"{folder}/", "")
                    problems.append(Problem(f"{one.locked.repo_id}: {variant} cannot be loaded: {said}"))
                    continue
                for dependency in metadata.kernel_depends:
                    version = dependency.version
                    is_version = isinstance(version, KernelVersion.Version)
                    wanted = int(version.version) if is_version else str(version.revision)
                    needed.add((dependency.repo_id, wanted))
    return needed, problems
