"""``release``: publish a version, as one act.

``prepare`` plans it, and ``carry_out`` does the rest. Its steps can be called one by one: ``lacks`` and
``check_gate``, ``stage``, ``verify``, ``promote``, ``tag``. Each finishes what an earlier run of it
began, and does nothing when it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_actions import console
from kernel_actions.errors import EXIT_DONE
from kernel_actions.release import preparation
from kernel_actions.release.gate import Lack
from kernel_actions.release.plan import ReleasePlan
from kernel_actions.release.preparation import Release, check_origin, check_push, prepare
from kernel_actions.release.protocol import (
    ATTEMPTS,
    Moved,
    Staged,
    Tagged,
    check_gate,
    check_promoted,
    kept_lacks,
    lacks,
    promote,
    stage,
    staged,
    tag,
    verify,
)
from kernel_actions.release.record import Record
from kernel_actions.release.verification import Verified
from kernel_actions.stopwatch import Stopwatch

if TYPE_CHECKING:
    from kernel_actions.cli import Options

__all__ = [
    "Lack",
    "Moved",
    "Release",
    "ReleasePlan",
    "Released",
    "Staged",
    "Tagged",
    "Verified",
    "carry_out",
    "check_gate",
    "check_promoted",
    "lacks",
    "prepare",
    "promote",
    "run",
    "stage",
    "staged",
    "tag",
    "verify",
]

STAGES = ("stage", "promote")


@dataclass(frozen=True)
class Released:
    """What became of a release. ``staged`` and ``commit`` (which was promoted) are commits on the Hub,
    empty where this run did not get to them; ``size`` is what had to be sent for it, in bytes; ``record`` is
    what the Hub keeps of it."""

    plan: ReleasePlan
    staged: str
    commit: str
    size: int = 0
    verified: Verified | None = None
    tagged: Tagged | None = None
    record: Record | None = None

    @property
    def is_unchanged(self) -> bool:
        """Whether all of it had been done before."""
        return bool(self.plan.promoted) and (self.tagged is None or not self.tagged.done)


def check_options(options: Options) -> None:
    """Raises ``WrongInput`` for a kernel that no release can be made of."""
    preparation.kernel_and_repository(options.kernel_dir, options.repo_id)


def run(options: Options) -> int:
    """The command ``release``.

    Raises ``WrongInput``, ``KernelFailed`` (the gate refused, or what is staged is not as it should
    be) and ``WrongSurroundings``.
    """
    from kernel_actions.release import show

    is_both = options.stage == options.promote
    stages = STAGES if is_both else ("stage",) if options.stage else ("promote",)
    prepared = prepare(
        options.kernel_dir,
        Path(options.build_dir),
        repo_id=options.repo_id,
        address=options.hub,
        token=options.token,
        bump=options.bump,
        pre=options.pre,
        sign=options.sign,
        trust_config=options.trust_config,
        partial=options.partial,
        allow_local_build=options.allow_local_build,
        from_staged="stage" not in stages,
    )
    with show.Shown(options.format, prepared) as shown:
        if options.dry_run and "stage" in stages and not prepared.plan.promoted:
            # What no build will change is told before there is one.
            missing = kept_lacks(prepared)
            shown.missing(missing)
            check_gate(prepared, missing)
        elif not options.dry_run:
            shown.released = carry_out(
                prepared,
                stages=stages,
                git_tag=options.git_tag,
                moving_tags=options.moving_tags,
                verified_before=options.verified,
                on_missing=shown.missing,
                watch=shown.watch,
            )
    return EXIT_DONE


def carry_out(
    prepared: Release,
    *,
    stages: Collection[str] = STAGES,
    git_tag: bool = True,
    moving_tags: bool = False,
    verified_before: str = "",
    on_missing: Callable[[tuple[Lack, ...]], None] = lambda missing: None,
    watch: Stopwatch | None = None,
) -> Released:
    """Carry out a release that was planned, or what is left to do of it.

    ``stages`` are ``stage`` (with the gate before it) and ``promote`` (with the verification before it,
    and the tags after). Without ``git_tag`` git is left alone; with ``moving_tags`` the tags vX and vX.Y
    follow. ``verified_before`` is a commit on the Hub that was verified elsewhere. ``on_missing`` gets what
    the gate finds, before that is raised; ``watch`` notes the steps.

    When the version's branch is changed by others meanwhile, the release is staged and verified anew.
    """
    made = prepared.plan
    watch = watch or Stopwatch()
    if made.promoted:
        console.say(
            f"{made.version} is on {made.hub_tag if made.is_pre else made.branch} of {made.repo_id} already"
        )
        if "promote" not in stages:
            return Released(made, "", made.promoted)
        check_promoted(prepared, made.promoted, verified_before)
        tagged = tag(prepared, made.promoted, git_tag=git_tag, moving_tags=moving_tags)
        return Released(made, "", made.promoted, tagged=tagged)
    if "stage" in stages:
        with watch.step("gate"):
            missing = lacks(prepared)
            on_missing(missing)
            check_gate(prepared, missing)
    # Told before anything is published; the tag itself comes last.
    has_tag = git_tag and check_origin(prepared)
    if git_tag and not has_tag and "promote" in stages and not made.dirty:
        check_push(prepared)
    size = 0
    for attempt in range(1, ATTEMPTS + 1):
        if "stage" in stages:
            console.say(f"Staging {made.version} on {made.staging} of {made.repo_id}")
        with watch.step("stage"):
            one = stage(prepared) if "stage" in stages else staged(prepared)
        size += one.size
        if "promote" not in stages:
            return Released(made, one.commit, "", size)
        console.say(f"Verifying {one.commit[:12]}")
        with watch.step("verify"):
            verified = verify(prepared, one, verified_before)
        try:
            where = f"Tagging it {made.hub_tag}" if made.is_pre else f"Promoting it to {made.branch}"
            console.say(where)
            with watch.step("promote"):
                commit = promote(prepared, one, verified)
            check_promoted(prepared, commit, verified.commit)
            break
        except Moved as error:
            if "stage" not in stages or attempt == ATTEMPTS:
                raise
            console.say(f"{error.what}: staging it again")
    with watch.step("tag"):
        tagged = tag(prepared, commit, git_tag=git_tag, moving_tags=moving_tags)
    return Released(made, one.commit, commit, size, verified, tagged, one.record)
