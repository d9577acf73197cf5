"""The steps of a release after its plan: gate, stage, verify, promote, tag.

Each looks at what is there before it does anything, so that a release which was ended at any point
is finished by running it again. What everybody loads, the head of ``v<major>``, changes in
one guarded commit, to what was verified.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_actions import built, console, git
from kernel_actions.errors import KernelActionsError, KernelFailed, WrongInput, WrongSurroundings
from kernel_actions.hub import client
from kernel_actions.hub.client import MAIN, Changes, Copy, Refs, RemoteFile
from kernel_actions.release import gate, github_release, on_hub, plan, record, signing, verification, version
from kernel_actions.release.gate import Candidate, Lack
from kernel_actions.release.on_hub import OnHub
from kernel_actions.release.plan import There, Wanted
from kernel_actions.release.preparation import ORIGIN, Release, check_git_tag, check_origin, has_origin
from kernel_actions.release.record import Record, VariantRecord
from kernel_actions.release.verification import Verified

# How often a step is planned anew when others commit to the same branch at the same time.
ATTEMPTS = 5


class Moved(WrongSurroundings):
    """The version's branch is not what the release was staged for: it has to be staged anew."""


@dataclass(frozen=True)
class Staged:
    """A commit on the staging branch, and the record that it holds. ``changed`` files and their ``size``
    in bytes had to be sent; none when it was there already."""

    commit: str
    record: Record
    changed: int = 0
    size: int = 0


@dataclass(frozen=True)
class Tagged:
    """The tags of a release, and what had to be done for them and to clean up, in words."""

    hub_tag: str
    git_tag: str
    done: tuple[str, ...]


# Gate.


def lacks(release: Release) -> tuple[Lack, ...]:
    """All that is missing for the release; nothing when it may go ahead."""
    from kernel_actions import compliance

    variants = [one.variant for one in release.candidates]
    report = compliance.check(release.kernel_dir, variants)
    found = gate.lacks(release.candidates, release.conditions, report, release.build_dir)
    errors = client.card_errors(release.hub, release.card.text) if release.card else ()
    return found + gate.card_lacks(release.card, errors) + kept_lacks(release)


def kept_lacks(release: Release) -> tuple[Lack, ...]:
    """What the variants that are kept would lack, which can be told before anything is built. Version 0
    promises nothing, and a partial release is a rehearsal, which keeps what this machine cannot build."""
    made, hub = release.plan, release.hub
    planned = release.conditions.planned
    kept = [one.name for one in made.variants if one.action == "keep" and one.name not in planned]
    if not kept or release.conditions.is_partial or made.version.major == 0:
        return ()

    def there(name: str) -> frozenset[str] | None:
        source = client.read_file(hub, made.repo_id, made.branch, f"build/{name}/__init__.py")
        return None if source is None else gate.public_names(source)

    sources = [one.variant.path / "__init__.py" for one in release.candidates]
    if not sources:
        # Each variant gets it from the sources as it is.
        source = release.kernel_dir / "torch-ext" / made.kernel.replace("-", "_") / "__init__.py"
        sources = [source] if source.is_file() else []
    new = [names for path in sources if (names := gate.public_names(path.read_bytes())) is not None]
    replaced = next(
        (
            one.name
            for one in made.variants
            if one.action in ("replace", "unchanged") or (one.action == "keep" and one.name in planned)
        ),
        None,
    )
    return gate.kept_lacks(
        frozenset().union(*new), there(replaced) if replaced else None, {name: there(name) for name in kept}
    )


def check_gate(release: Release, missing: tuple[Lack, ...]) -> None:
    """Raises ``KernelFailed`` when something is missing, naming all of it."""
    if missing:
        listed = "; ".join(str(one) for one in missing[:5])
        more = f"; {len(missing) - 5} more" if len(missing) > 5 else ""
        raise KernelFailed(
            f"{release.plan.version} is not released, {len(missing)} "
            f"{'thing is' if len(missing) == 1 else 'things are'} missing: {listed}{more}",
            repair=missing[0].repair,
        )


# Stage.


def stage(release: Release) -> Staged:
    """Put the release on its staging branch: the version's branch as it is, with the variants in place.

    Nothing is done when it is there already. Raises ``WrongInput`` and ``WrongSurroundings``.
    """
    made, hub = release.plan, release.hub
    if client.refs(hub, made.repo_id) is None:
        client.create_repository(hub, made.repo_id)
    for _ in range(ATTEMPTS):
        there = on_hub.read(hub, made.repo_id, made.branch)
        if on_hub.promoted(hub, made, there):
            raise WrongSurroundings(f"{made.version} was released meanwhile", repair="run again to finish it")
        base = there.head or there.start
        head = there.refs.branches.get(made.staging, "")
        if not head:
            client.create_branch(hub, made.repo_id, made.staging, base)
            head = base
        recorded = _record(release, there)
        wanted = _wanted(release, there, base) | {record.FILE_NAME: recorded.as_bytes()}
        current = client.remote_files(hub, made.repo_id, head)
        wanted |= _signatures(release, {head: current, base: there.files})
        owns = plan.is_staged if there.head else plan.is_inherited_or_staged
        changed = plan.changes(current, wanted, owns=owns)
        if changed.is_empty:
            return Staged(head, recorded)
        commit = client.commit(
            hub, made.repo_id, made.staging, changed,
            parent=head, message=on_hub.title(made) if made.is_pre else f"Stage {made.version}",
            description=f"git commit {made.commit}",
        )  # fmt: skip
        if commit is not None:
            sizes = [len(file) if isinstance(file, bytes) else file.size for file in changed.added.values()]
            return Staged(commit, recorded, changed=len(sizes), size=sum(sizes))
        console.say(f"Somebody else committed to {made.staging} of {made.repo_id}: planning anew")
    raise too_many(made.repo_id, made.staging)


def _wanted(release: Release, there: OnHub, base: str) -> dict[str, Wanted]:
    """What the staging branch shall hold: what is kept, what is released, and the card."""
    names = {one.name for one in release.candidates}
    keeps_benchmarks = not client.has_benchmarks(release.kernel_dir)
    wanted: dict[str, Wanted] = {}
    if there.head:
        wanted |= plan.kept(there.files, base, names, keeps_benchmarks=keeps_benchmarks)
    wanted |= release.local
    if release.card is not None:
        wanted[plan.CARD] = release.card.data
    return wanted


def _signatures(release: Release, there: Mapping[str, Mapping[str, RemoteFile]]) -> dict[str, Wanted]:
    """The signature of each variant that has none: one that the Hub has of the same metadata.json and that
    holds, at one of the revisions ``there``, or a new one where the release is to be signed."""
    found: dict[str, Wanted] = {}
    unsigned: dict[str, Path] = {}
    uncovered: list[str] = []
    signs = signing.wants(release.sign, is_embedded=release.hub.is_embedded)
    # One that this repository made, where it signs; any that holds, where it does not.
    holds = signing.remembering_checker(release.trust_config, signing.own() if signs else None)
    for one in release.candidates:
        metadata = release.local[f"{one.variant.path_in_repo}/metadata.json"]
        path = f"{one.variant.path_in_repo}/{built.SIGNATURE}"
        if path in release.local:
            continue  # The builder signed it.
        if one.hashes is not None:
            uncovered.append(one.name)
            continue
        for revision, files in there.items():
            kept, signature = files.get(f"{one.variant.path_in_repo}/metadata.json"), files.get(path)
            if kept is None or signature is None or not metadata.is_same(kept):
                continue
            data = client.read_file(release.hub, release.plan.repo_id, revision, path)
            if data is not None and holds(metadata.source.read_bytes(), data):
                found[path] = There(revision, path, signature)
                break
        else:
            unsigned[path] = metadata.source
    if uncovered and signs:
        console.say(
            f"Not signed: {', '.join(uncovered)}: their builder lists no hashes for a signature to cover"
        )
    if unsigned and signs:
        console.say(f"Signing {console.counted(len(unsigned), 'variant')}")
        with signing.signer(release.trust_config) as sign:
            found |= {path: sign(metadata.read_bytes()) for path, metadata in unsigned.items()}
    return found


def _record(release: Release, there: OnHub) -> Record:
    made = release.plan
    variants = {one.name: _variant_record(release, one) for one in release.candidates}
    before = there.record.variants if there.record else {}
    kept = plan.variants_in(there.files) - variants.keys() if there.head else set()
    return Record(
        kernel=made.kernel,
        release=made.version,
        commit=made.commit,
        dirty=made.dirty,
        base=there.head,
        builder=release.builder,
        variants={**{name: before[name] for name in kept if name in before}, **variants},
        unknown=tuple(sorted(kept - before.keys())),
        rolled_back=there.record.rolled_back if there.record else (),
        branch=made.branch,
    )


def _variant_record(release: Release, one: Candidate) -> VariantRecord:
    return VariantRecord(
        release=str(release.plan.version),
        commit=one.commit,
        dirty=one.dirty,
        builder=one.variant.builder,
        untested=one.allowed,
        digest=one.variant.digest or "",
        metadata=release.local[f"{one.variant.path_in_repo}/metadata.json"].sha256,
        tests=one.tests,
        hashes=one.hashes,
    )


def staged(release: Release) -> Staged:
    """What was staged before. Raises ``WrongInput`` when that is not this release."""
    made = release.plan
    refs = client.refs(release.hub, made.repo_id)
    head = refs.branches.get(made.staging) if refs else None
    found = on_hub.record_at(release.hub, made.repo_id, head) if head else None
    if head is None or found is None or found.release != made.version:
        raise WrongInput(
            f"{made.version} is not staged on {made.repo_id}", repair="stage it first: release --stage"
        )
    if found.commit != made.commit:
        raise WrongInput(
            f"what is staged for {made.version} is of commit {found.commit[:12]}, not {made.commit[:12]}",
            repair="check that commit out, or stage this one: release --stage",
        )
    return Staged(head, found)


# Verify.


def verify(release: Release, staged: Staged, before: str = "") -> Verified:
    """Verify what is staged, in a process without secrets; without running any of it if it is the commit
    ``before``, which was verified elsewhere. Raises ``KernelFailed`` when it is not as it should be, and
    ``WrongInput`` when another commit was verified."""
    made = release.plan
    if before and before != staged.commit:
        raise WrongInput(
            f"{made.staging} of {made.repo_id} is at {staged.commit[:12]}, and {before[:12]} was verified",
            repair="verify what is staged now, or stage it again: release --stage",
        )
    verified = verification.in_fresh_process(
        made.repo_id, staged.commit, release.hub.address, release.trust_config, not before
    )
    verification.check(verified)
    return verified


# Promote.


def promote(release: Release, staged: Staged, verified: Verified) -> str:
    """Make the version's branch hold what was verified, in one commit, and return that commit. A pre-release
    is what was staged, and the branch stays as it is.

    Objects are used again on the server. Raises ``Moved`` when the branch is not what the release was
    staged for, so that what was verified is not what would be there.
    """
    made, hub = release.plan, release.hub
    if verified.commit != staged.commit or not verified.is_passed or verified.repo_id != made.repo_id:
        raise KernelFailed(f"{made.version} was not verified as it is staged", repair="verify it first")
    if made.is_pre:
        _check_staging(release, staged, client.refs(hub, made.repo_id) or Refs({}, {}))
        return staged.commit
    files = client.remote_files(hub, made.repo_id, staged.commit)
    for _ in range(ATTEMPTS):
        there = on_hub.read(hub, made.repo_id, made.branch)
        if there.head and plan.is_same_release(there.files, files):
            return on_hub.promotion(hub, made, there)
        _check_staging(release, staged, there.refs)
        _check_base(release, staged.record.base, there)
        parent = there.head or there.start
        if not there.head:
            client.create_branch(hub, made.repo_id, made.branch, parent)
        owns = plan.is_released if there.head else plan.is_inherited
        commit = client.commit(
            hub, made.repo_id, made.branch,
            plan.changes(there.files, plan.part(files, staged.commit), owns=owns),
            parent=parent, message=on_hub.title(made),
            description=f"git commit {made.commit}, verified as {staged.commit}",
        )  # fmt: skip
        if commit is not None:
            return commit
        console.say(f"Somebody else committed to {made.branch} of {made.repo_id}: planning anew")
    raise too_many(made.repo_id, made.branch)


def check_promoted(release: Release, commit: str, verified: str) -> None:
    """Raise ``KernelFailed`` unless ``commit``, which is to be tagged, holds what ``verified`` does.

    ``commit`` may be one that was there already: anyone who can write to the repository can give a commit the
    title of a release. Without ``verified`` there is nothing to compare it with.
    """
    if not verified or commit == verified:
        return
    made, hub = release.plan, release.hub
    try:
        is_same = plan.is_same_release(
            client.remote_files(hub, made.repo_id, commit), client.remote_files(hub, made.repo_id, verified)
        )
    except WrongInput:
        is_same = False  # The Hub has no such commit.
    if not is_same:
        raise KernelFailed(
            f"{commit[:12]} of {made.repo_id} claims to be {made.version}, and does not hold what was "
            f"verified at {verified[:12]}",
            repair="look at who committed it; then go back by `rollback`, or release a new version",
        )


def _check_staging(release: Release, staged: Staged, refs: Refs) -> None:
    """Raises ``Moved`` unless the staging branch is at what was verified."""
    made = release.plan
    if refs.branches.get(made.staging) != staged.commit:
        raise Moved(f"{made.staging} of {made.repo_id} was changed since", repair="run again")


def _check_base(release: Release, base: str, there: OnHub) -> None:
    """Raises ``Moved`` unless the branch holds what the release was staged for."""
    made = release.plan
    if there.head == base:
        return
    if base and there.head:
        before = client.remote_files(release.hub, made.repo_id, base)
        if plan.is_same_release(before, there.files):
            return
    raise Moved(
        f"{made.branch} of {made.repo_id} was changed since {made.version} was staged",
        repair="stage it again: release --stage",
    )


def too_many(repo_id: str, branch: str) -> WrongSurroundings:
    """The end of the attempts to commit to a branch that others commit to."""
    return WrongSurroundings(
        f"others keep committing to {branch} of {repo_id}", repair="run again when they are done"
    )


# Tag, and clean up.


def tag(release: Release, commit: str, *, git_tag: bool = True, moving_tags: bool = False) -> Tagged:
    """Tag the promoted ``commit`` on the Hub, put the card on ``main``, tag git (and origin, if the release
    ``pushes``, with a release on GitHub where its token is at hand), and delete the staging branch. With
    ``moving_tags``, the git tags vX and vX.Y are moved to the release, unless a later one has them.

    Git is left alone without ``git_tag``, and when the release holds what no commit holds. What fails
    in git is raised once all is done on the Hub. Raises ``WrongInput`` for a tag that is on another
    commit, and ``WrongSurroundings``.
    """
    made, hub = release.plan, release.hub
    done: list[str] = []
    refs = client.refs(hub, made.repo_id) or Refs({}, {})
    tagged = refs.tags.get(made.hub_tag)
    if tagged is None:
        message = f"Release {made.version} of git commit {made.commit}"
        tagged = client.create_tag(hub, made.repo_id, made.hub_tag, commit, message)
        done.append(f"the tag {made.hub_tag} on the Hub")
    # The list may have the tag's own object in place of the commit that it is on.
    if tagged != commit and client.resolve(hub, made.repo_id, made.hub_tag) != commit:
        raise WrongInput(
            f"the tag {made.hub_tag} of {made.repo_id} is on another commit than {commit[:12]}",
            repair="delete it on the Hub, or give a higher version with --bump",
        )
    staging = refs.branches.get(made.staging)
    if staging is not None and not made.is_pre and _promote_card(release, staging):
        done.append("the card")
    recorded = on_hub.record_at(hub, made.repo_id, commit)
    has_git_tag = git_tag and release.repository is not None and not (recorded and recorded.dirty)
    failure: KernelActionsError | None = None
    if has_git_tag and release.repository is not None:
        try:
            done += _tag_git(release, release.repository, commit)
            if moving_tags and not made.is_pre:
                done += _move_tags(release, release.repository)
            if release.pushes:
                done += github_release.publish(made, recorded, commit)
        except (WrongInput, WrongSurroundings) as error:
            failure = error
    if staging is not None:
        client.delete_branch(hub, made.repo_id, made.staging)
        done.append("the staging branch deleted")
    if failure is not None:
        raise failure
    return Tagged(made.hub_tag, made.git_tag if has_git_tag else "", tuple(done))


def _promote_card(release: Release, staging: str) -> bool:
    """Put the card that was staged on ``main``; false when it is there."""
    made, hub = release.plan, release.hub
    card = client.remote_files(hub, made.repo_id, staging).get(plan.CARD)
    for _ in range(ATTEMPTS):
        refs = client.refs(hub, made.repo_id)
        head = refs.branches.get(MAIN, "") if refs else ""
        there = client.remote_files(hub, made.repo_id, head).get(plan.CARD)
        if card is None or (there is not None and card.is_same(there)):
            return False
        changed = Changes(copied={plan.CARD: Copy(staging, plan.CARD)})
        message = f"Update the card to {made.version}"
        if client.commit(hub, made.repo_id, MAIN, changed, parent=head, message=message) is not None:
            return True
    raise too_many(made.repo_id, MAIN)


def _tag_git(release: Release, repository: Path, commit: str) -> list[str]:
    """Make the git tag, and push it; says what had to be done."""
    made = release.plan
    done: list[str] = []
    check_git_tag(release)
    if check_origin(release):
        return done
    if made.git_tag not in git.tags(repository, made.git_tag):
        message = f"{made.kernel} {made.version}\n\n{made.repo_id} at {commit}\n"
        git.add_tag(repository, made.git_tag, made.commit, message)
        done.append(f"the tag {made.git_tag} in git")
    if has_origin(release):
        try:
            git.push_tag(repository, ORIGIN, made.git_tag)
        except WrongSurroundings:
            # Another run of the same release may have been faster.
            if not check_origin(release):
                raise
        done.append(f"the tag {made.git_tag} in {ORIGIN}")
    elif release.pushes:
        console.say(f"git has no remote {ORIGIN}: the tag {made.git_tag} stays in this clone")
    elif addresses := git.push_addresses(repository, ORIGIN):
        console.say(
            f"The Hub is an embedded one: the git tag {made.git_tag} stays here, and is not pushed to "
            f"{' and '.join(addresses)}"
        )
    return done


def _move_tags(release: Release, repository: Path) -> list[str]:
    """Move the tags of the major and the minor version; says what had to be done."""
    made = release.plan
    is_pushed = has_origin(release)
    there = git.remote_tags(repository, ORIGIN, f"{made.prefix}v") if is_pushed else {}
    here = git.tags(repository, f"{made.prefix}v")
    released = [one for name in (*there, *here) if (one := version.of_tag(name, made.prefix))]
    done: list[str] = []
    for name in version.moving_tags(made.version, released, made.prefix):
        if here.get(name) != made.commit:
            git.add_tag(repository, name, made.commit, f"{made.kernel} {made.version}\n", moves=True)
            done.append(f"the tag {name} moved")
        if is_pushed and there.get(name) != made.commit:
            git.push_tag(repository, ORIGIN, name, moves=True)
            done.append(f"the tag {name} moved in {ORIGIN}")
    return done
