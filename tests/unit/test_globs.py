"""Globs of paths."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from kernel_actions import globs


@pytest.mark.parametrize(
    ("pattern", "matched", "others"),
    [
        ("docs/*.md", ["docs/a.md"], ["docs/b/a.md", "a.md", "docs/a.rst", "x/docs/a.md"]),
        ("docs/**", ["docs/a", "docs/b/c"], ["docsx/a", "x/docs/a"]),
        ("**/*.md", ["a.md", "x/a.md", "x/y/a.md"], ["a.mdx", "x/a.txt"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b/z"], ["a/xb", "b"]),
        # A folder stands for all that is in it.
        ("tools", ["tools", "tools/a/b"], ["tool", "x/tools"]),
        ("t?ols/[ab].py", ["tools/a.py"], ["tools/c.py", "t/ols/a.py"]),
        ("[!a]*", ["b", "b/c"], ["a", "a/b"]),
        ("**", ["a", "a/b"], []),
    ],
)
def test_what_a_glob_matches(pattern: str, matched: list[str], others: list[str]) -> None:
    assert all(globs.matches(PurePosixPath(path), pattern) for path in matched)
    assert not any(globs.matches(PurePosixPath(path), pattern) for path in others)


def test_a_glob_of_a_folder_starts_where_the_folder_does() -> None:
    assert globs.joined(PurePosixPath("vision/gray"), "../common/**") == "vision/common/**"
    assert globs.joined(PurePosixPath("."), "docs/*.md") == "docs/*.md"
    assert globs.joined(PurePosixPath("gray"), "../../x") == "../x"
    assert not globs.matches(PurePosixPath("x"), "../x")


def test_a_pattern_made_to_take_for_ever_does_not() -> None:
    path = PurePosixPath("/".join(["a" * 50] * 40))
    assert not globs.matches(path, "/".join(["**", "*a*a*a*"] * 9 + ["b"]))
