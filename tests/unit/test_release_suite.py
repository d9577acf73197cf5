"""Releases of the suite itself: what may be released, and which tags move."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
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


@pytest.fixture(scope="module")
def suite() -> Any:
    spec = importlib.util.spec_from_file_location("release_suite", ROOT / "scripts" / "release_suite.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_notes_are_those_of_the_version(suite: Any) -> None:
    assert suite.notes(CHANGELOG, "1.2.1") == "### Fixed\n\n- This."
    assert suite.notes(CHANGELOG, "1.2.0") == "- That."
    assert suite.notes(CHANGELOG, "1.1.0") == suite.notes(CHANGELOG, "2.0.0") == ""


def test_only_tags_of_the_suite_count(suite: Any) -> None:
    tags = ["v1", "v1.2", "v1.2.0", "grayscale/v3.0.0", "v2.0.0-rc.1", "v01.0.0", "vx"]
    assert suite.released(tags) == {(1, 2, 0)}


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
    suite: Any, version: Any, others: Any, expected: list[str]
) -> None:
    assert suite.moving(version, others) == expected


def test_what_cannot_be_released(suite: Any) -> None:
    assert suite.problems("1.2.1", "1.2.1", CHANGELOG, {(1, 2, 0)}) == []
    (wrong,) = suite.problems("1.2", "1.2.1", CHANGELOG, set())
    assert "not a version" in wrong
    assert suite.problems("$(touch x)", "1.2.1", CHANGELOG, set())
    found = suite.problems("1.3.0", "1.2.1", CHANGELOG, {(1, 3, 1)})
    assert len(found) == 3 and "__version__" in found[0] and "1.3.1 is released already" in found[2]
