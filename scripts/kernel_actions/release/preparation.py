"""The plan of a release, made from what git, the Hub and the build folder have. Changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_actions import built, card, git, manifest, planning, settings, upload
from kernel_actions.built import BuiltVariant
from kernel_actions.card import Card
from kernel_actions.errors import KernelActionsError, WrongInput, WrongSurroundings
from kernel_actions.git import GitState
from kernel_actions.hub import client
from kernel_actions.hub.client import Hub, LocalFile, RemoteFile
from kernel_actions.manifest import Manifest
from kernel_actions.release import gate, on_hub, plan, version
from kernel_actions.release.gate import Candidate, Conditions
from kernel_actions.release.on_hub import OnHub
from kernel_actions.release.plan import ReleasePlan, VariantChange
from kernel_actions.release.signing import Sign
from kernel_actions.release.version import Commit, Decision, Released

ORIGIN = "origin"


@dataclass(frozen=True)
class Release:
    """A release in the making: its plan, and all that the plan was made from.

    ``repository`` is the git repository that gets the tag, ``None`` outside of git; ``pushes``: so does its
    origin, and GitHub gets a release. ``local`` are the variants' files by their path on the Hub.
    """

    plan: ReleasePlan
    hub: Hub
    kernel_dir: Path
    build_dir: Path
    repository: Path | None
    candidates: tuple[Candidate, ...]
    local: Mapping[str, LocalFile]
    card: Card | None
    builder: Mapping[str, str]
    conditions: Conditions
    pushes: bool
    sign: Sign = "never"
    trust_config: str = ""


def kernel_and_repository(kernel_dir: Path, repo_id: str) -> tuple[Manifest, str]:
    """The kernel, and the repository to release it to. Raises ``WrongInput`` where it has no version."""
    kernel = manifest.load(kernel_dir)
    if kernel.version is None:
        raise WrongInput("has no version", where=kernel.place("general"), repair="add version = 1")
    repo_id = repo_id or kernel.repository("release to")
    client.check_repo_id(repo_id)
    _check_branch(kernel)
    return kernel, repo_id


def _check_branch(kernel: Manifest) -> None:
    """Raises ``WrongInput`` for a branch that has another meaning: what is released there would be loaded as
    another version, or be in the way of releases."""
    branch = kernel.version_branch
    loaded_as = version.of_branch(branch)
    if loaded_as is not None and branch != f"v{kernel.version}":
        raise WrongInput(
            f"branch is {branch!r}, which get_kernel(version={loaded_as}) loads, "
            f"and version is {kernel.version}",
            where=kernel.place("general.hub.branch"),
            repair="give the branch another name, or leave it out",
        )
    if branch == client.MAIN or branch.startswith(plan.STAGING):
        what = (
            "holds the card" if branch == client.MAIN else "is the name of a branch where a release is staged"
        )
        raise WrongInput(
            f"branch is {branch!r}, which {what}",
            where=kernel.place("general.hub.branch"),
            repair="give the branch another name, or leave it out",
        )


def prepare(
    kernel_dir: Path,
    build_dir: Path = Path("build"),
    *,
    names: Collection[str] = (),
    repo_id: str = "",
    address: str = "",
    token: str = "",
    bump: str = "auto",
    pre: str = "",
    sign: Sign = "never",
    trust_config: str = "",
    partial: bool = False,
    allow_local_build: bool = False,
    rehearsal: bool = False,
    git_dir: Path | None = None,
    from_staged: bool = False,
) -> Release:
    """Decide what the next release is, and plan it. Changes nothing.

    ``build_dir`` is relative to ``kernel_dir``; ``names`` keeps only these of its variants. ``git_dir`` is
    the repository whose tags count and that gets the tag, if that is not the kernel's own: a clone of it.
    A ``rehearsal`` follows whatever is checked out: it counts from what a shallow clone shows, and from
    what the Hub has, of whichever branch that was; and it pushes nothing. With ``pre`` it is the next
    pre-release of that name. ``sign`` and ``trust_config`` are those of `signing`. ``from_staged`` plans what
    is on the staging branch, without the variants at hand.

    Raises ``WrongInput`` (before it asks the Hub, where that can be told), ``WrongSurroundings``, and
    ``KernelFailed`` for half-made variants.
    """
    kernel, repo_id = kernel_and_repository(kernel_dir, repo_id)
    state = git.state(kernel_dir)
    repository = (git_dir or kernel_dir) if state else None
    if repository and version.explicit(bump) is None and not rehearsal and git.is_shallow(repository):
        raise WrongSurroundings(
            "this clone is shallow: the last release and what has changed since cannot be seen",
            repair="check out with fetch-depth: 0, or run git fetch --unshallow --tags, or give the version: "
            "--bump X.Y.Z",
        )
    own = settings.load(kernel_dir)
    prefix = own.tag_prefix
    released = _released_in_git(repository, prefix, state)
    # What git alone tells comes first: a wrong major version is not for a Hub to find.
    _decide(kernel, released, state, repository, bump, pre)

    hub = client.connect(address, token)
    if state is None and not hub.is_embedded:
        raise WrongInput(f"{kernel_dir} is not in a git repository with a commit", repair="commit it first")
    variants = () if from_staged else built.find(kernel_dir / build_dir, names)
    local = upload.read(variants, kernel)
    local |= {} if from_staged else client.local_benchmarks(kernel_dir)
    there = on_hub.read(hub, repo_id, kernel.version_branch)
    released += _released_on_hub(there, released, repository, state, takes_any=rehearsal)
    released += _pre_released_on_hub(hub, repo_id, there, released, repository, state)
    extra = _uncommitted(there, variants, state) if hub.is_embedded else ()
    decision, commits = _decide(kernel, released, state, repository, bump, pre, extra)

    candidates = gate.candidates(variants, own.allow_untested)
    planned, known, builder = _planned(kernel_dir, is_needed=not (partial and hub.is_embedded))
    made = ReleasePlan(
        kernel=kernel.name,
        repo_id=repo_id,
        address=hub.address,
        decision=decision,
        prefix=prefix,
        branch=kernel.version_branch,
        commits=commits,
        variants=(),
        promoted="",
        dirty=any(one.dirty for one in candidates) or (state is not None and state.dirty),
    )
    made = replace(made, promoted=on_hub.promoted(hub, made, there))
    release = Release(
        plan=made,
        hub=hub,
        kernel_dir=kernel_dir,
        build_dir=kernel_dir / build_dir,
        repository=repository,
        candidates=candidates,
        local=local,
        card=None if from_staged else card.find(kernel, kernel_dir / build_dir, repo_id),
        builder=builder,
        conditions=Conditions(
            commit=made.commit,
            planned=planned,
            known=known,
            is_partial=partial,
            takes_anything=hub.is_embedded,
            takes_local_builds=allow_local_build,
            has_uncommitted_changes=state is not None and state.dirty,
        ),
        pushes=not rehearsal and not _keeps_tags(hub, repository),
        sign=sign,
        trust_config=trust_config,
    )
    check_git_tag(release)
    rows = _rows(release, there, from_staged)
    return replace(release, plan=replace(made, variants=rows))


def _released_in_git(repository: Path | None, prefix: str, state: GitState | None) -> tuple[Released, ...]:
    if repository is None or state is None:
        return ()
    reachable = git.tags(repository, f"{prefix}v", reachable_from=state.commit)
    there = git.tags(repository, f"{prefix}v")
    found = {name: version.of_tag(name, prefix) for name in there}
    return tuple(
        Released(one, there[name], name, is_ancestor=name in reachable)
        for name, one in sorted(found.items())
        # Of other branches only the numbers of pre-releases, which are not to be used twice.
        if one is not None and (name in reachable or one.pre)
    )


def _released_on_hub(
    there: OnHub,
    released: Collection[Released],
    repository: Path | None,
    state: GitState | None,
    *,
    takes_any: bool,
) -> tuple[Released, ...]:
    """The releases that the Hub's branch holds or that were taken back from it, of which git has no tag:
    they were ended before their git tag was made, or were made without one. ``takes_any``: those of a
    commit that was amended since, or of another branch, count too."""
    found = there.record
    if found is None:
        return ()
    recorded = [(found.release, found.commit)]
    recorded += [(taken, one.source) for one in found.rolled_back if (taken := version.parse(one.release))]
    tagged = {one.version for one in released}
    return tuple(
        Released(number, commit, is_ancestor=takes_any or _contains(repository, state, commit))
        for number, commit in recorded
        if number not in tagged
    )


def _pre_released_on_hub(
    hub: Hub,
    repo_id: str,
    there: OnHub,
    released: Collection[Released],
    repository: Path | None,
    state: GitState | None,
) -> tuple[Released, ...]:
    """The pre-releases that are tagged on the Hub alone: of what comes after the last release."""
    known = {one.version for one in released}
    found: list[Released] = []
    for name in sorted(there.refs.tags):
        number = version.of_tag(name, "")
        if number is None or not number.pre or number in known:
            continue
        if there.record is not None and number < there.record.release:
            continue
        recorded = on_hub.record_at(hub, repo_id, name)
        if recorded is not None and recorded.release == number:
            is_ancestor = _contains(repository, state, recorded.commit)
            found.append(Released(number, recorded.commit, is_ancestor=is_ancestor))
    return tuple(found)


def _contains(repository: Path | None, state: GitState | None, commit: str) -> bool:
    """Whether what is checked out is ``commit``, or comes after it."""
    if repository is None or state is None or commit == state.commit:
        return commit == (state.commit if state else "")
    return bool(commit) and git.contains(repository, state.commit, commit)


def _uncommitted(
    there: OnHub, variants: Collection[BuiltVariant], state: GitState | None
) -> tuple[Commit, ...]:
    """What a rehearsal has that is not in a commit, as if it were one: else nothing would have changed."""
    found = there.record
    if found is None or not variants or found.commit != (state.commit if state else ""):
        return ()
    recorded = {name: one.digest for name, one in found.variants.items()}
    if all(recorded.get(variant.name) == variant.digest for variant in variants):
        return ()
    return (Commit("", "Changes that are not committed"),)


def _decide(
    kernel: Manifest,
    released: tuple[Released, ...],
    state: GitState | None,
    repository: Path | None,
    bump: str,
    pre: str,
    extra: tuple[Commit, ...] = (),
) -> tuple[Decision, tuple[Commit, ...]]:
    """The next version, and the commits since the last one."""
    before = version.last(released)
    commits = extra
    head = state.commit if state else ""
    if before is not None and not _contains(repository, state, before.commit):
        commits += (Commit("", "Changes since another branch, or since a commit that was amended"),)
    elif before is not None and repository is not None and state is not None and before.commit != head:
        folder = kernel.directory.resolve().relative_to(state.root.resolve()).as_posix()
        logged = git.log(repository, head, since=before.commit, folder="" if folder == "." else folder)
        commits += tuple(Commit(one.id, one.message, one.is_merge) for one in logged)
    assert kernel.version is not None
    decision = version.decide(
        kernel.version,
        released,
        commits,
        head,
        bump,
        pre=pre,
        where=kernel.place("general.version"),
    )
    return decision, () if decision.is_again and not decision.next.pre else commits


def _planned(
    kernel_dir: Path, *, is_needed: bool
) -> tuple[frozenset[str], frozenset[str] | None, dict[str, str]]:
    """The names of the variants that the builder publishes, and of all that it can make; the builder."""
    try:
        found = planning.plan(kernel_dir)
    except KernelActionsError:
        if is_needed:
            raise
        return frozenset(), None, {}
    variants = found.variants.variants
    bundled = frozenset(variant.name for variant in variants if variant.bundled)
    return bundled, frozenset(variant.name for variant in variants), found.builder.as_json()


def _rows(release: Release, there: OnHub, from_staged: bool) -> tuple[VariantChange, ...]:
    made = release.plan
    if made.promoted:
        files = client.remote_files(release.hub, made.repo_id, made.promoted)
        return plan.variant_changes(files, files)
    given: Mapping[str, LocalFile | RemoteFile] = release.local
    staging = there.refs.branches.get(made.staging)
    if from_staged and staging:
        given = client.remote_files(release.hub, made.repo_id, staging)
    missing = () if from_staged or release.conditions.is_partial else release.conditions.planned
    return plan.variant_changes(there.files, given, missing, keeps_others=bool(there.head))


def check_git_tag(release: Release) -> None:
    """Raises ``WrongInput`` when git has the tag on another commit."""
    made = release.plan
    if release.repository is not None:
        commit = git.tags(release.repository, made.git_tag).get(made.git_tag)
        if commit is not None and commit != made.commit:
            raise _tag_is_elsewhere(made, commit, "here")


def has_origin(release: Release) -> bool:
    """Whether there is an origin that gets the git tag."""
    return release.pushes and release.repository is not None and git.has_remote(release.repository, ORIGIN)


def check_origin(release: Release) -> bool:
    """Whether origin has the git tag already; false too when it does not answer, or is not asked.

    Raises ``WrongInput`` when it has the tag on another commit.
    """
    made = release.plan
    if release.repository is None or not has_origin(release):
        return False
    commit = git.remote_tag(release.repository, ORIGIN, made.git_tag)
    if commit and commit != made.commit:
        raise _tag_is_elsewhere(made, commit, f"in {ORIGIN}")
    return bool(commit)


def check_push(release: Release) -> None:
    """Raises ``WrongSurroundings`` unless the git tag may be pushed to origin."""
    made = release.plan
    if release.repository is not None and has_origin(release):
        git.check_push(release.repository, ORIGIN, made.git_tag, made.commit)


def _keeps_tags(hub: Hub, repository: Path | None) -> bool:
    """Whether the Hub is one to try things with, while origin is one that others see: then it is not told of
    a release that they cannot have."""
    if repository is None or not hub.is_embedded:
        return False
    return not all(git.is_on_this_machine(one) for one in git.push_addresses(repository, ORIGIN))


def _tag_is_elsewhere(made: ReleasePlan, commit: str, where: str) -> WrongInput:
    return WrongInput(
        f"the git tag {made.git_tag} is on commit {commit[:12]} {where}, not on {made.commit[:12]}",
        repair="give a higher version with --bump, or delete the tag if nobody uses it",
    )
