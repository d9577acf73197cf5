"""What is out of date is found, and told of in one issue that bothers nobody twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel_actions import builder, freshness
from kernel_actions.freshness import Finding, Kernel, Step
from kernel_actions.github import Issue

DAY = 24 * 60 * 60
NEWEST = "b" * 40
CPU, CUDA = "torch213-cxx11-cpu-x86_64-linux", "torch213-cxx11-cu130-x86_64-linux"
NEW = "torch214-cxx11-cpu-x86_64-linux"
FRESH = Kernel(
    name="relu",
    directory="kernels/relu",
    input_name="kernel-builder",
    locked="a" * 40,
    locked_at=1000.0 * DAY,
    planned={CPU: ("2.13",), CUDA: ("2.13",)},
    newest={CPU: ("2.13",), CUDA: ("2.13",)},
    published=frozenset({CPU, CUDA}),
    repo_id="me/relu",
    branch="v1",
)


def look(kernel: Kernel, days: float = 0, max_age: int = 90) -> list[Finding]:
    return freshness.look(kernel, NEWEST, "2026-08-20", (1000 + days) * DAY, max_age)


def test_what_is_fresh_has_no_findings() -> None:
    assert look(FRESH, days=90) == []


def test_a_new_torch_is_found_with_its_variants() -> None:
    (found,) = look(replace(FRESH, newest=FRESH.newest | {NEW: ("2.14",)}))
    assert found.what == f"Torch 2.14: not built: {NEW} (builder of 2026-08-20)"
    assert "nix flake update kernel-builder` in kernels/relu" in found.repair


def test_a_new_compute_version_of_an_old_torch_is_found() -> None:
    name = "torch213-cxx11-cu134-x86_64-linux"
    (found,) = look(replace(FRESH, newest=FRESH.newest | {name: ("2.13",)}))
    assert found.what.startswith(f"not built: {name}")


def test_an_old_lock_is_found_where_there_is_a_newer_builder() -> None:
    (found,) = look(FRESH, days=91)
    assert found.what.startswith("flake.lock is 91 days old")
    # Nothing newer is there, however long ago that was; and a lock without a time is of no age.
    assert look(replace(FRESH, locked=NEWEST), days=500) == []
    assert look(replace(FRESH, locked_at=0.0), days=500) == []


def test_missing_variants_are_found() -> None:
    (found,) = look(replace(FRESH, published=frozenset({CPU})))
    assert found.what == f"not published on v1 of me/relu: {CUDA}"
    (found,) = look(replace(FRESH, published=None))
    assert "is not on the Hub" in found.what
    assert found.repair == "run the release workflow for kernels/relu"
    (found,) = look(replace(FRESH, published=None, directory="."))
    assert found.repair == "run the release workflow"
    # One that goes to no Hub has nothing that is missing there.
    assert look(replace(FRESH, published=None, repo_id=None)) == []


def issue(findings: list[Finding], is_open: bool = True) -> Issue:
    return Issue(7, freshness.body(findings, "builder x"), "https://example.org/7", is_open)


def step(before: Issue | None, findings: list[Finding]) -> Step:
    return freshness.step(before, findings, "builder x")


ONE = Finding("relu", "kernels/relu: torch 2.14", "Torch 2.14", "update")
OTHER = Finding("relu", "kernels/relu: lock", "flake.lock is 91 days old", "update")


def test_an_issue_is_opened_changed_and_closed() -> None:
    assert step(None, []).kind == "none"
    opened = step(None, [ONE])
    assert opened.kind == "open" and "Torch 2.14" in opened.body
    # The same again writes to nobody; nor does another age of the same lock.
    assert step(issue([ONE]), [ONE]).kind == "none"
    older = replace(OTHER, what="flake.lock is 98 days old")
    changed = step(issue([OTHER]), [older])
    assert (changed.kind, changed.comment) == ("change", "") and "98 days" in changed.body
    # Something new does, and says what.
    changed = step(issue([ONE]), [ONE, OTHER])
    assert changed.kind == "change" and "91 days" in changed.comment and "Torch 2.14" not in changed.comment
    closed = step(issue([ONE]), [])
    assert closed.kind == "close" and closed.comment


def test_an_issue_that_a_person_closed_stays_closed_until_something_else_is_old() -> None:
    assert step(issue([ONE], is_open=False), [ONE]).kind == "none"
    assert step(issue([ONE], is_open=False), []).kind == "none"
    assert step(issue([ONE], is_open=False), [ONE, OTHER]).kind == "open"
    # Closed as nothing was left: what comes then is new.
    assert step(issue([], is_open=False), [ONE]).kind == "open"


@pytest.mark.parametrize("edited", ["", "no marker", freshness._MARKER, freshness._MARKER + '{"a": 1} -->'])
def test_a_text_that_was_edited_breaks_nothing(edited: str) -> None:
    assert step(Issue(7, edited, "", True), [ONE]).kind == "change"


def test_hostile_names_neither_end_the_comment_nor_write_markdown() -> None:
    hostile = "x --> <img src=x> @everyone `rm` [a](b) | c\n# title\x1b[31m"
    finding = Finding(hostile, hostile, hostile, hostile)
    text = freshness.body([finding], "builder x")
    assert text.count("-->") == 1 and text.rstrip().endswith("-->")
    assert "<img" not in text and "\x1b" not in text and "\n# title" not in text and "@everyone" not in text
    assert step(Issue(7, text, "", True), [finding]).kind == "none"


def test_the_newest_builder_that_is_known_can_be_planned_for() -> None:
    commit, day = builder.newest()
    assert builder.bundled(commit) is not None
    assert len(day.split("-")) == 3
