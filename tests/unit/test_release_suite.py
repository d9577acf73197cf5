"""Releases of the suite itself: what may be released, and which tags move."""

from __future__ import annotations

import pytest
import release_suite
from kernel_actions.release import version as versions
from kernel_actions.release.version import Version

CHANGELOG = """# Changelog

## [Unreleased]

## [1.2.1] - 2026-12-01

### Fixed

- This.

## [1.2.0] - 2026-11-01

- That.

## [1.1.0] - 2026-10-01

[1.2.1]: https://example.org
"""


def test_the_notes_are_those_of_the_version() -> None:
    assert release_suite.notes(CHANGELOG, "1.2.1") == "### Fixed\n\n- This."
    assert release_suite.notes(CHANGELOG, "1.2.0") == "- That."
    assert release_suite.notes(CHANGELOG, "1.1.0") == release_suite.notes(CHANGELOG, "2.0.0") == ""


def test_only_tags_of_the_suite_count() -> None:
    tags = ["v1", "v1.2", "v1.2.0", "grayscale/v3.0.0", "v2.0.0-rc.1", "v01.0.0", "vx"]
    assert release_suite.released(tags) == {Version(1, 2, 0)}


@pytest.mark.parametrize(
    ("version", "others", "expected"),
    [
        ((1, 0, 0), set(), ["v1", "v1.0"]),
        ((1, 2, 1), {(1, 2, 0), (1, 10, 0)}, ["v1.2"]),
        ((1, 10, 0), {(1, 9, 0)}, ["v1", "v1.10"]),
        ((2, 0, 0), {(1, 9, 0)}, ["v2", "v2.0"]),
        ((1, 9, 1), {(1, 9, 0), (2, 0, 0)}, ["v1", "v1.9"]),
        # Run again, after the tag was made.
        ((1, 2, 1), {(1, 2, 1)}, ["v1", "v1.2"]),
        ((1, 2, 1), {(1, 2, 2)}, []),
    ],
)
def test_tags_move_to_the_newest_of_their_line_and_never_back(
    version: tuple[int, int, int], others: set[tuple[int, int, int]], expected: list[str]
) -> None:
    found = versions.moving_tags(Version(*version), {Version(*one) for one in others})
    assert list(found) == expected


def test_a_pre_release_is_in_no_tags_way_and_a_kernels_tags_have_its_prefix() -> None:
    found = versions.moving_tags(Version(1, 2, 0), {Version(1, 3, 0, ("rc", "1"))}, "relu/")
    assert found == ("relu/v1", "relu/v1.2")


@pytest.mark.parametrize("version", ["1.2", "1.2.1-rc.1", "v1.2.1", "01.2.1", "$(touch x)"])
def test_what_is_no_version_cannot_be_released(version: str) -> None:
    (wrong,) = release_suite.problems(version, "1.2.1", CHANGELOG, set())
    assert "not a version" in wrong


def test_what_cannot_be_released() -> None:
    assert release_suite.problems("1.2.1", "1.2.1", CHANGELOG, {Version(1, 2, 0)}) == []
    found = release_suite.problems("1.3.0", "1.2.1", CHANGELOG, {Version(1, 3, 1)})
    assert len(found) == 3 and "__version__" in found[0] and "1.3.1 is released already" in found[2]
