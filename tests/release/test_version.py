"""Which version comes next: tables of tags and commits, without git and without a Hub."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from kernel_actions.errors import Place, WrongInput
from kernel_actions.release import version
from kernel_actions.release.version import Commit, Released, Version, decide, parse

HEAD = "f" * 40
WHERE = Place(Path("build.toml"), 3, 1)


def released(*versions: str, head: str = "") -> tuple[Released, ...]:
    """Tags, each on a commit of its own but for ``head``, which is on HEAD."""
    return tuple(
        Released(_version(one), HEAD if one == head else f"{index:040x}", f"v{one}")
        for index, one in enumerate(versions, start=1)
    )


def commits(*messages: str) -> tuple[Commit, ...]:
    return tuple(Commit(f"{index:040x}", message) for index, message in enumerate(messages, start=100))


def _version(text: str) -> Version:
    found = parse(text)
    assert found is not None, text
    return found


ORDERED = (
    "0.1.0 0.1.1 0.2.0 0.10.0 1.0.0-0 1.0.0-2 1.0.0-10 1.0.0-alpha 1.0.0-alpha.1 1.0.0-alpha.beta "
    "1.0.0-beta.2 1.0.0-beta.11 1.0.0-rc.1 1.0.0-rc1 1.0.0 1.9.0 1.10.0 2.0.0-rc1 2.0.0 10.0.0"
)


def test_versions_are_in_the_order_of_semver() -> None:
    texts = ORDERED.split()
    shuffled = [_version(text) for text in texts]
    random.Random(0).shuffle(shuffled)
    assert [str(one) for one in sorted(shuffled)] == texts


@pytest.mark.parametrize(
    "text",
    ["1", "1.2", "1.2.3.4", "01.2.3", "1.02.3", "1.2.3-", "1.2.3-01", "1.2.3-a..b", "1.2.3+build", "1.2.x",
     " 1.2.3", "1.2.3\n", "-1.2.3", "1.2.3-ä", "१.2.3", "9999999999.0.0", ""],
)  # fmt: skip
def test_what_is_no_version(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("name", "prefix", "expected"),
    [
        ("v1.2.3", "", "1.2.3"),
        ("v1.2.3-rc1", "", "1.2.3-rc1"),
        ("relu/v1.2.3", "relu/", "1.2.3"),
        ("v1.2.3", "relu/", None),
        ("relu/v1.2.3", "", None),
        ("gelu/v1.2.3", "relu/", None),
        ("relu/1.2.3", "relu/", None),
        ("v1", "", None),
        ("1.2.3", "", None),
        ("V1.2.3", "", None),
        ("vnext", "", None),
        ("v1.2.3-final-final.", "", None),
    ],
)
def test_tags(name: str, prefix: str, expected: str | None) -> None:
    found = version.of_tag(name, prefix)
    assert (found and str(found)) == expected


@pytest.mark.parametrize(
    ("message", "level", "kind"),
    [
        ("feat: add gelu", "minor", "feat"),
        ("Feat: add gelu", "minor", "feat"),
        ("feat(cuda): add gelu", "minor", "feat"),
        ("feat(): add", "minor", "feat"),
        ("fix: round", "patch", "fix"),
        ("perf: be fast", "patch", "perf"),
        ("docs: say more", "patch", "docs"),
        ("feature: not a type of ours", "patch", "feature"),
        ("feat add gelu", "patch", ""),
        ("feat:", "patch", ""),
        ("feat:no space", "patch", ""),
        ("Update readme", "patch", ""),
        ('Revert "feat: add gelu"', "patch", ""),
        ("revert: feat: add gelu", "patch", "revert"),
        ("fixup! feat: add gelu", "patch", ""),
        ("Merge pull request #1 from x/feat", "patch", ""),
        ("feat!: drop", "major", "feat"),
        ("fix(cpu)!: drop", "major", "fix"),
        ("chore!: drop", "major", "chore"),
        ("fix: a\n\nBREAKING CHANGE: drop", "major", "fix"),
        ("fix: a\n\nbody\n\nBREAKING-CHANGE: drop\nRefs: #1", "major", "fix"),
        ("fix: a\n\nBREAKING CHANGE #12", "major", "fix"),
        ("no type\n\nBREAKING CHANGE: drop", "major", ""),
        ("fix: a\n\nThis is no BREAKING CHANGE: really", "patch", "fix"),
        ("fix: a\n\nbreaking change: small letters", "patch", "fix"),
        ("docs: explain BREAKING CHANGE: footers", "patch", "docs"),
        ("\n\nfeat: after empty lines", "minor", "feat"),
        ("", "patch", ""),
        ("!: x", "patch", ""),
        ("feat(a)(b): x", "patch", ""),
        ("ünïcode: x", "patch", ""),
    ],
)
def test_commits(message: str, level: str, kind: str) -> None:
    commit = Commit("1", message)
    assert (commit.level, commit.kind) == (level, kind)


def test_scope_and_subject() -> None:
    commit = Commit("1", "feat( cuda ): add  gelu \n\nbody")
    assert (commit.scope, commit.subject, commit.first_line) == (
        "cuda",
        "add  gelu",
        "feat( cuda ): add  gelu",
    )


@pytest.mark.parametrize(
    ("major", "tags", "messages", "bump", "following"),
    [
        # The first release.
        (1, "", "feat: x", "auto", "1.0.0"),
        (3, "", "", "auto", "3.0.0"),
        (0, "", "", "auto", "0.1.0"),
        (1, "", "", "patch", "1.0.0"),
        # By the commits.
        (1, "1.2.3", "fix: x", "auto", "1.2.4"),
        (1, "1.2.3", "fix: x|feat: y|docs: z", "auto", "1.3.0"),
        (1, "1.2.3", "Update readme", "auto", "1.2.4"),
        (2, "1.2.3", "fix: x|feat!: y", "auto", "2.0.0"),
        (2, "1.2.3", "fix: x\n\nBREAKING CHANGE: y", "auto", "2.0.0"),
        # A new major version that build.toml says alone.
        (2, "1.2.3", "fix: x", "auto", "2.0.0"),
        # Version 0 has no promises to break.
        (0, "0.3.1", "fix: x", "auto", "0.3.2"),
        (0, "0.3.1", "feat: x", "auto", "0.4.0"),
        (0, "0.3.1", "feat!: x", "auto", "0.4.0"),
        (1, "0.3.1", "feat!: x", "auto", "1.0.0"),
        (1, "0.3.1", "docs: x", "auto", "1.0.0"),
        # As numbers, not as text; the highest, not the latest.
        (1, "1.9.0 1.10.0", "fix: x", "auto", "1.10.1"),
        (1, "1.10.0 1.9.0", "fix: x", "auto", "1.10.1"),
        (2, "1.10.0 2.0.0 1.11.0", "fix: x", "auto", "2.0.1"),
        # Pre-releases come before their release, and lead to it.
        (2, "1.9.0 2.0.0-rc1", "feat!: x", "auto", "2.0.0"),
        (1, "1.9.0 1.10.0-rc.1", "fix: x", "auto", "1.10.0"),
        (1, "1.9.0 1.10.0-rc.1 1.10.0", "fix: x", "auto", "1.10.1"),
        (1, "1.0.0-rc1", "fix: x", "auto", "1.0.0"),
        (1, "1.9.0 2.0.0-rc1", "fix: x", "auto", "1.9.1"),
        # As it is said.
        (1, "1.2.3", "feat: x", "patch", "1.2.4"),
        (1, "1.2.3", "fix: x", "minor", "1.3.0"),
        (2, "1.2.3", "fix: x", "major", "2.0.0"),
        (1, "1.2.3", "fix: x", "1.7.0", "1.7.0"),
        (1, "1.2.3", "fix: x", "v1.7.0", "1.7.0"),
        (4, "1.2.3", "fix: x", "4.0.0", "4.0.0"),
        (1, "", "", "1.5.2", "1.5.2"),
        (1, "1.2.3 2.0.0", "fix: x", "1.2.4", "1.2.4"),
    ],
)
def test_the_next_version(major: int, tags: str, messages: str, bump: str, following: str) -> None:
    listed = commits(*messages.split("|")) if messages else ()
    decision = decide(major, released(*tags.split()), listed, HEAD, bump, where=WHERE)
    assert str(decision.next) == following
    assert not decision.is_again
    assert decision.commit == HEAD


@pytest.mark.parametrize(
    ("major", "tags", "messages", "bump", "message"),
    [
        (1, "1.2.3", "feat!: drop it", "auto",
         "build.toml:3:1: version is 1, and the next release is 2.0.0 (0000000 'feat!: drop it' is a "
         "breaking change) (write version = 2 there, or give the version with --bump)"),
        (1, "1.2.3", "fix: x", "major", "write version = 2 there"),
        (3, "1.2.3", "fix: x", "auto", "write version = 1 there"),
        (1, "2.0.0", "fix: x", "auto", "the next release is 2.0.1"),
        (1, "1.2.3", "fix: x", "2.0.0", "write version = 2 there"),
        (0, "", "", "major", "write version = 1 there"),
        (1, "1.2.3", "fix: x", "1.2.3", "1.2.3 was released already, from commit 000000000000"),
        (1, "1.2.3", "fix: x", "1.2.2", "1.2.2 is not above 1.2.3"),
        (1, "1.3.0-rc1", "fix: x", "1.2.9", "1.2.9 is not above 1.3.0-rc1"),
        (1, "1.2.3", "fix: x", "2", "--bump is '2'"),
        (1, "1.2.3", "fix: x", "Major", "--bump is 'Major'"),
        (1, "1.2.3", "fix: x", "1.2.3-rc1", "1.2.3-rc1 is not above 1.2.3"),
    ],
)  # fmt: skip
def test_what_cannot_come_next(major: int, tags: str, messages: str, bump: str, message: str) -> None:
    with pytest.raises(WrongInput) as caught:
        decide(
            major,
            released(*tags.split()),
            commits(*filter(None, messages.split("|"))),
            HEAD,
            bump,
            where=WHERE,
        )
    assert message in str(caught.value)


@pytest.mark.parametrize("bump", ["auto", "patch", "major", "1.2.3"])
def test_nothing_new_is_the_release_that_was_made(bump: str) -> None:
    decision = decide(1, released("1.2.2", "1.2.3", head="1.2.3"), (), HEAD, bump)
    assert (decision.is_again, str(decision.next), decision.commit) == (True, "1.2.3", HEAD)


def test_nothing_new_for_the_kernel_is_about_the_commit_of_its_tag() -> None:
    tags = released("1.2.3")
    decision = decide(1, tags, (), HEAD, "auto")
    assert (decision.is_again, decision.commit) == (True, tags[0].commit)


def test_the_same_commit_may_get_a_version_that_is_given() -> None:
    decision = decide(1, released("1.2.3", head="1.2.3"), (), HEAD, "1.2.4")
    assert (decision.is_again, str(decision.next)) == (False, "1.2.4")


def test_tags_of_other_branches_are_not_counted_from() -> None:
    other = Released(Version(1, 5, 0), "e" * 40, "v1.5.0", is_ancestor=False)
    decision = decide(1, (*released("1.2.3"), other), commits("fix: x"), HEAD, "auto")
    assert str(decision.next) == "1.2.4"


def test_deciding_commits_are_those_of_the_highest_level() -> None:
    decision = decide(1, released("1.0.0"), commits("fix: a", "feat: b", "feat: c"), HEAD, "auto")
    assert [one.subject for one in decision.deciding] == ["b", "c"]
    assert decision.reason == "2 commits with a new feature"


def test_the_changelog_is_grouped_and_merges_are_left_out() -> None:
    listed = [
        Commit("1", "fix: a"), Commit("2", "feat: b"), Commit("3", "feat!: c"), Commit("4", "perf: d"),
        Commit("5", "say e"), Commit("6", "Merge branch 'x'", is_merge=True),
        Commit("7", "feat: merged by its title (#3)", is_merge=True),
    ]  # fmt: skip
    groups = {title: [one.id for one in found] for title, found in version.grouped(listed).items()}
    assert groups == {
        "Breaking changes": ["3"], "Features": ["2", "7"], "Fixes": ["1"], "Performance": ["4"],
        "Other changes": ["5"],
    }  # fmt: skip


# Pre-releases.


@pytest.mark.parametrize(
    ("major", "tags", "messages", "bump", "pre", "following"),
    [
        (1, "", "fix: x", "auto", "rc", "1.0.0-rc.1"),
        (0, "", "fix: x", "auto", "alpha", "0.1.0-alpha.1"),
        (1, "1.2.3", "fix: x", "auto", "rc", "1.2.4-rc.1"),
        (1, "1.2.3", "feat: x", "auto", "rc", "1.3.0-rc.1"),
        (2, "1.2.3", "feat!: x", "auto", "rc", "2.0.0-rc.1"),
        (1, "1.2.3 1.2.4-rc.1", "fix: x", "auto", "rc", "1.2.4-rc.2"),
        (1, "1.2.3 1.2.4-rc.9 1.2.4-rc.10", "fix: x", "auto", "rc", "1.2.4-rc.11"),
        # Of another name, or of another form: not counted.
        (1, "1.2.3 1.2.4-rc.4", "fix: x", "auto", "beta", "1.2.4-beta.1"),
        (1, "1.2.3 1.2.4-rc4 1.2.4-rc.4.1 1.2.4-rc.x", "fix: x", "auto", "rc", "1.2.4-rc.1"),
        # A fix after a pre-release that leads higher stays on that way; a feature leads to a new one.
        (1, "1.2.3 1.3.0-rc.1", "fix: x", "auto", "rc", "1.3.0-rc.2"),
        (1, "1.2.3 1.2.4-rc.1", "feat: x", "auto", "rc", "1.3.0-rc.1"),
        (1, "1.2.3 1.3.0-rc.1", "fix: x", "auto", "", "1.3.0"),
        (1, "1.2.3", "fix: x", "minor", "rc", "1.3.0-rc.1"),
        (1, "1.2.3", "fix: x", "1.9.0", "rc", "1.9.0-rc.1"),
        (1, "1.2.3", "fix: x", "1.9.0-rc.7", "", "1.9.0-rc.7"),
        (1, "1.2.3", "fix: x", "v1.9.0-beta1", "", "1.9.0-beta1"),
    ],
)
def test_the_next_pre_release(
    major: int, tags: str, messages: str, bump: str, pre: str, following: str
) -> None:
    decision = decide(major, released(*tags.split()), commits(*messages.split("|")), HEAD, bump, pre=pre)
    assert (str(decision.next), decision.is_again, decision.commit) == (following, False, HEAD)


def test_a_commit_that_is_a_pre_release_already() -> None:
    tags = released("1.2.3", "1.2.4-rc.1", "1.2.4-rc.2", head="1.2.4-rc.2")
    decision = decide(1, tags, commits("fix: x"), HEAD, "auto", pre="rc")
    assert (str(decision.next), decision.is_again) == ("1.2.4-rc.2", True)
    # It is no release yet.
    decision = decide(1, tags, commits("fix: x"), HEAD, "auto")
    assert (str(decision.next), decision.is_again) == ("1.2.4", False)


@pytest.mark.parametrize(
    ("bump", "pre", "message"),
    [
        ("auto", "1", "--pre is '1'"),
        ("auto", "rc.1", "--pre is 'rc.1'"),
        ("auto", "rc 1", "a word such as rc"),
        ("auto", "-", "--pre is '-'"),
        ("auto", "x" * 40, "--pre is"),
        ("1.3.0-rc.1", "rc", "which is a pre-release already"),
    ],
)
def test_what_no_pre_release_is_called(bump: str, pre: str, message: str) -> None:
    with pytest.raises(WrongInput, match=message):
        decide(1, released("1.2.3"), commits("fix: x"), HEAD, bump, pre=pre)


def test_nothing_new_makes_no_pre_release() -> None:
    with pytest.raises(WrongInput, match="there is nothing to make a pre-release of"):
        decide(1, released("1.2.3"), (), HEAD, "auto", pre="rc")


def test_pre_releases_of_other_branches_decide_nothing_but_their_numbers() -> None:
    other = Released(_version("1.9.0-rc.1"), "1" * 40, "v1.9.0-rc.1", is_ancestor=False)
    numbered = Released(_version("1.2.4-rc.3"), "2" * 40, "v1.2.4-rc.3", is_ancestor=False)
    tags = (*released("1.2.3"), other, numbered)
    assert str(decide(1, tags, commits("fix: x"), HEAD, "auto").next) == "1.2.4"
    assert str(decide(1, tags, commits("fix: x"), HEAD, "1.3.0").next) == "1.3.0"
    assert str(decide(1, tags, commits("fix: x"), HEAD, "auto", pre="rc").next) == "1.2.4-rc.4"
