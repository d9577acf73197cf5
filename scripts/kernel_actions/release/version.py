"""Versions, tags and Conventional Commits: which version comes next. Values in, values out.

Versions are those of https://semver.org/ (2.0.0), commits those of
https://www.conventionalcommits.org/ (1.0.0). The major version is build.toml's ``version``, which
is also the branch on the Hub; version 0 is for unstable kernels, where a breaking change raises
the minor version, as semver allows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import total_ordering
from typing import Literal

from kernel_actions import console
from kernel_actions.errors import Place, WrongInput

Level = Literal["major", "minor", "patch"]

# In the order of how much they raise a version.
LEVELS: tuple[Level, ...] = ("patch", "minor", "major")
BUMPS = ("auto", "major", "minor", "patch")

_NUMBER = r"(?:0|[1-9]\d{0,8})"
_VERSION = re.compile(
    rf"(?P<major>{_NUMBER})\.(?P<minor>{_NUMBER})\.(?P<patch>{_NUMBER})"
    r"(?:-(?P<pre>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?",
    re.ASCII,
)
# A word first, so that it is no number by itself.
_PRE = re.compile(r"[A-Za-z][0-9A-Za-z-]{0,30}", re.ASCII)
_HEADER = re.compile(
    r"(?P<type>[A-Za-z][\w-]*)(?:\((?P<scope>[^()]*)\))?(?P<breaking>!)?: +(?P<subject>\S.*)", re.ASCII
)
_BREAKING = re.compile(r"^BREAKING[ -]CHANGE(?:: | #)", re.MULTILINE)


@total_ordering
@dataclass(frozen=True)
class Version:
    """A version; ``pre`` are the parts of a pre-release, and empty for a release."""

    major: int
    minor: int
    patch: int
    pre: tuple[str, ...] = ()

    def __str__(self) -> str:
        suffix = "-" + ".".join(self.pre) if self.pre else ""
        return f"{self.major}.{self.minor}.{self.patch}{suffix}"

    def __lt__(self, other: Version) -> bool:
        return self._key() < other._key()

    def _key(self) -> tuple[object, ...]:
        # A pre-release comes before its release; its numbers come before its words.
        parts = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.pre)
        return (self.major, self.minor, self.patch, not self.pre, parts)

    @property
    def release(self) -> Version:
        """The release that a pre-release leads to."""
        return replace(self, pre=())

    def raised(self, level: Level) -> Version:
        """The next release of that level."""
        if level == "major":
            return Version(self.major + 1, 0, 0)
        if level == "minor":
            return Version(self.major, self.minor + 1, 0)
        return Version(self.major, self.minor, self.patch + 1)


def parse(text: str) -> Version | None:
    """The version that ``text`` is; ``None`` when it is none, as for ``1.2`` and ``01.2.3``."""
    found = _VERSION.fullmatch(text)
    if found is None:
        return None
    pre = tuple(found["pre"].split(".")) if found["pre"] else ()
    if any(part.isdigit() and len(part) > 1 and part.startswith("0") for part in pre):
        return None
    return Version(int(found["major"]), int(found["minor"]), int(found["patch"]), pre)


def of_branch(name: str) -> int | None:
    """The major version that the loader takes a branch of this name on the Hub for; ``None`` for none. Rule:
    ``_get_available_versions`` of kernels/_versions.py (0.17.2), by which ``v01`` is version 1."""
    try:
        return int(name[1:]) if name.startswith("v") else None
    except ValueError:
        return None


def of_tag(name: str, prefix: str) -> Version | None:
    """The version of the tag ``<prefix>vX.Y.Z``; ``None`` for a tag of somebody else."""
    start = f"{prefix}v"
    return parse(name[len(start) :]) if name.startswith(start) else None


def moving_tags(release: Version, released: Iterable[Version], prefix: str = "") -> tuple[str, ...]:
    """The tags ``<prefix>vX`` and ``<prefix>vX.Y`` that go to ``release``: of its major and its minor
    version, unless something later of that is ``released``. Pre-releases do not count."""
    later = [one for one in released if not one.pre and one > release]
    series = (
        (f"{prefix}v{release.major}", [one for one in later if one.major == release.major]),
        (
            f"{prefix}v{release.major}.{release.minor}",
            [one for one in later if (one.major, one.minor) == (release.major, release.minor)],
        ),
    )
    return tuple(name for name, behind in series if not behind)


@dataclass(frozen=True)
class Commit:
    """A commit by its id (empty for changes that are not committed) and its whole message."""

    id: str
    message: str
    is_merge: bool = False

    @property
    def first_line(self) -> str:
        """The subject, as it was written."""
        return self.message.strip().partition("\n")[0].strip()

    @property
    def kind(self) -> str:
        """The type in small letters, as in ``feat``; empty when the commit says none."""
        found = _HEADER.fullmatch(self.first_line)
        return found["type"].lower() if found else ""

    @property
    def scope(self) -> str:
        """What the commit says it is about; empty when it does not."""
        found = _HEADER.fullmatch(self.first_line)
        return (found["scope"] or "").strip() if found else ""

    @property
    def subject(self) -> str:
        """What was done, without type and scope."""
        found = _HEADER.fullmatch(self.first_line)
        return found["subject"].strip() if found else self.first_line

    @property
    def is_breaking(self) -> bool:
        """Whether users have to change something: ``!``, or a footer that says so."""
        found = _HEADER.fullmatch(self.first_line)
        return bool(found and found["breaking"]) or bool(_BREAKING.search(self.message))

    @property
    def level(self) -> Level:
        """What a release with this commit has to raise."""
        if self.is_breaking:
            return "major"
        return "minor" if self.kind == "feat" else "patch"


@dataclass(frozen=True)
class Released:
    """A version that was released, by a tag (``name``) or by what the Hub holds (no ``name``).

    ``is_ancestor``: the commit to be released contains it.
    """

    version: Version
    commit: str
    name: str = ""
    is_ancestor: bool = True


@dataclass(frozen=True)
class Decision:
    """Which version is next, and why.

    ``current`` is the last one (``None``: there is none) and ``commit`` what will carry the next one's
    tag. ``is_again``: there is nothing new, so that this is about the release that was made at that
    commit. ``level`` is what was raised, empty for a version that was given and for the first one;
    ``deciding`` are the commits that ask for it.
    """

    current: Version | None
    next: Version
    commit: str
    reason: str
    is_again: bool = False
    level: Level | Literal[""] = ""
    deciding: tuple[Commit, ...] = ()


def last(released: Iterable[Released]) -> Released | None:
    """The highest release that the commit contains; pre-releases do not count."""
    found = [one for one in released if one.is_ancestor and not one.version.pre]
    return max(found, key=lambda one: one.version, default=None)


def explicit(bump: str) -> Version | None:
    """The version that ``--bump`` gives; ``None`` when it says how to count.

    Raises ``WrongInput`` when it is neither.
    """
    if bump in BUMPS:
        return None
    found = parse(bump.removeprefix("v"))
    if found is None:
        raise WrongInput(
            f"--bump is {bump!r}", repair=f"one of {', '.join(BUMPS)}, or a version such as 1.2.3"
        )
    return found


def check_pre(pre: str, bump: str) -> None:
    """Raises ``WrongInput`` unless ``--pre`` is a name that pre-releases can be counted by, or empty."""
    if pre and not _PRE.fullmatch(pre):
        raise WrongInput(f"--pre is {pre!r}", repair="a word such as rc, beta or alpha")
    given = explicit(bump)
    if pre and given is not None and given.pre:
        raise WrongInput(
            f"--bump is {bump!r}, which is a pre-release already", repair="leave one of --bump and --pre out"
        )


def decide(
    major: int,
    released: Sequence[Released],
    commits: Sequence[Commit],
    head: str,
    bump: str,
    *,
    pre: str = "",
    where: Place | None = None,
) -> Decision:
    """The version of the commit ``head``. ``commits`` are those since the last release that change
    the kernel, the newest first; ``major`` is build.toml's ``version``, at the place ``where``. With ``pre``
    it is the next pre-release of that version, or the one that ``head`` is.

    Raises ``WrongInput`` when build.toml has another major version than the release would, with the
    edit to make, and for a version that was given and cannot come next.
    """
    check_pre(pre, bump)
    decision = _decide(major, released, commits, head, bump, where)
    return _pre_release(decision, pre, released, head) if pre else decision


def _pre_release(decision: Decision, pre: str, released: Sequence[Released], head: str) -> Decision:
    """The next pre-release on the way to what was decided."""
    target = decision.next
    if decision.is_again:
        raise WrongInput(
            f"{target} is released, and {decision.reason}: there is nothing to make a pre-release of",
            repair="commit what it shall have",
        )
    found = {
        int(one.version.pre[1]): one
        for one in released
        if one.version.release == target
        and len(one.version.pre) == 2
        and one.version.pre[0] == pre
        # A tag of somebody else may have another form.
        and one.version.pre[1].isdigit()
    }
    latest = max(found, default=0)
    if latest and found[latest].commit == head:
        version = found[latest].version
        return replace(decision, next=version, reason="this commit is that pre-release", is_again=True)
    version = replace(target, pre=(pre, str(latest + 1)))
    return replace(decision, next=version, reason=f"{decision.reason}; a pre-release of {target}")


def _decide(
    major: int,
    released: Sequence[Released],
    commits: Sequence[Commit],
    head: str,
    bump: str,
    where: Place | None,
) -> Decision:
    given = explicit(bump)
    before = last(released)
    current = before.version if before else None
    if given is not None:
        return _given(given, major, released, commits, head, where)
    if before is not None and not commits and before.version.major == major:
        return Decision(current, before.version, before.commit, "nothing has changed since", is_again=True)
    if before is None:
        first = Version(major, 0, 0) if major > 0 else Version(0, 1, 0)
        if bump == "major" and major == 0:
            first = Version(1, 0, 0)
        decision = Decision(None, first, head, "the first release")
    else:
        decision = _raised(before, major, commits, head, bump)
    _check_major(decision, major, where)
    return replace(decision, next=_above_pre_releases(decision.next, released))


def _given(
    given: Version,
    major: int,
    released: Sequence[Released],
    commits: Sequence[Commit],
    head: str,
    where: Place | None,
) -> Decision:
    before = last(released)
    decision = Decision(
        before.version if before else None, given, head, "the version that was given", deciding=tuple(commits)
    )
    _check_major(decision, major, where)
    for one in released:
        if one.version == given:
            if one.commit == head or (one.is_ancestor and not commits):
                return replace(decision, commit=one.commit, is_again=True, deciding=())
            raise WrongInput(
                f"{given} was released already, from commit {one.commit[:12]}", repair="give a higher version"
            )
    # A pre-release of another branch is in nobody's way.
    above = [
        one.version
        for one in released
        if one.version.major == major and (one.is_ancestor or not one.version.pre)
    ]
    highest = max(above, default=None)
    if highest is not None and given < highest:
        raise WrongInput(f"{given} is not above {highest}, which is there", repair="give a higher version")
    return decision


def _raised(before: Released, major: int, commits: Sequence[Commit], head: str, bump: str) -> Decision:
    """The version after ``before``, by what its commits ask for."""
    version = before.version
    if bump in LEVELS:
        level: Level = next(one for one in LEVELS if one == bump)
        return Decision(version, version.raised(level), head, f"--bump {bump}", level=level)
    level = max((commit.level for commit in commits), key=LEVELS.index, default="patch")
    deciding = tuple(commit for commit in commits if commit.level == level)
    if major == version.major + 1 and level != "major":
        # The author has written the new major version already: that is a decision too.
        raised = version.raised("major")
        return Decision(version, raised, head, f"build.toml says version = {major}", level="major")
    count = console.counted(len(deciding), "commit")
    reasons = {"major": "a breaking change", "minor": "a new feature", "patch": "a fix or other change"}
    if version.major == 0 and level == "major" and major == 0:
        return Decision(
            version,
            version.raised("minor"),
            head,
            f"{count} with {reasons[level]}, in a version 0",
            level="minor",
            deciding=deciding,
        )
    return Decision(
        version,
        version.raised(level),
        head,
        f"{count} with {reasons[level]}",
        level=level,
        deciding=deciding,
    )


def _check_major(decision: Decision, major: int, where: Place | None) -> None:
    """Raises ``WrongInput`` unless build.toml says the version's major, with the edit to make."""
    following = decision.next
    if following.major == major:
        return
    why = decision.reason
    if decision.level == "major" and decision.deciding:
        first = decision.deciding[0]
        why = f"{first.id[:7]} {first.first_line[:80]!r} is a breaking change"
    raise WrongInput(
        f"version is {major}, and the next release is {following} ({why})",
        where=where,
        repair=f"write version = {following.major} there, or give the version with --bump",
    )


def _above_pre_releases(following: Version, released: Iterable[Released]) -> Version:
    """``following``, or what the pre-releases of its major version lead to, if that is higher."""
    led_to = [
        one.version.release for one in released if one.is_ancestor and one.version.major == following.major
    ]
    return max([following, *(one for one in led_to if not _is_released(one, released))])


def _is_released(version: Version, released: Iterable[Released]) -> bool:
    return any(one.version == version for one in released)


_GROUPS: tuple[tuple[str, Callable[[Commit], bool]], ...] = (
    ("Breaking changes", lambda commit: commit.is_breaking),
    ("Features", lambda commit: commit.kind == "feat"),
    ("Fixes", lambda commit: commit.kind == "fix"),
    ("Performance", lambda commit: commit.kind == "perf"),
    ("Other changes", lambda commit: True),
)


def grouped(commits: Iterable[Commit]) -> dict[str, list[Commit]]:
    """The commits under the headings of a changelog; merges that say nothing else are left out."""
    groups: dict[str, list[Commit]] = {}
    for commit in commits:
        if commit.is_merge and not commit.kind:
            continue
        title = next(title for title, matches in _GROUPS if matches(commit))
        groups.setdefault(title, []).append(commit)
    return {title: groups[title] for title, _ in _GROUPS if title in groups}
