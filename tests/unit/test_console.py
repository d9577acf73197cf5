"""What people see in a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_actions import console

HEADER = ("kernel", "what is out of date", "what to do")
ROW = (
    "grayscale",
    "Torch 2.14: not built: torch214-cxx11-cpu-x86_64-linux, torch214-cxx11-cu130-x86_64-linux",
    "run `nix flake update kernel-builder` in ., commit flake.lock, then release",
)


def test_a_table_is_folded_between_words_where_there_is_less_room() -> None:
    assert console.table(HEADER, [ROW], 80).splitlines() == [
        "kernel     what is out of date                what to do",
        "---------  ---------------------------------  ---------------------------------",
        "grayscale  Torch 2.14: not built:             run `nix flake update",
        "           torch214-cxx11-cpu-x86_64-linux,   kernel-builder` in ., commit",
        "           torch214-cxx11-cu130-x86_64-linux  flake.lock, then release",
    ]
    places = console.table(
        ("rule", "where", "what"), [("KA610", f"build/{'v' * 30}/metadata.json:21", ROW[2])], 60
    )
    assert places.splitlines()[2].startswith("KA610  build/  ")
    assert max(map(len, places.splitlines())) <= 60
    assert f"  {'v' * 30}/  " in places and "  metadata.json:21  " in places


def test_a_table_that_goes_elsewhere_has_a_line_for_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(console.table(HEADER, [ROW, ROW]).splitlines()) == 4
    monkeypatch.setattr(console, "_terminal", lambda: 80)
    assert len(console.table(HEADER, [ROW, ROW]).splitlines()) == 8


def test_a_number_stays_with_its_unit() -> None:
    lines = console.table(("name", "of the copy"), [("a " * 20, "3.97 ms")], 16).splitlines()
    assert (lines[0], lines[1]) == ("name     of the", "         copy")
    assert lines[3].endswith("  3.97 ms")


@given(
    st.lists(st.tuples(*[st.text("ab ", max_size=60)] * 3), max_size=5),
    st.integers(20, 120),
)
def test_a_folded_table_holds_all_words_and_is_as_narrow_as_they_let_it(
    rows: list[tuple[str, str, str]], room: int
) -> None:
    lines = console.table(("a", "b", "c"), rows, room).splitlines()
    longest = [1, 1, 1]
    for row in rows:
        for at, cell in enumerate(one.strip() for one in row):
            # Short cells stay whole.
            words = [cell] if len(cell) <= 12 else cell.split()
            longest[at] = max(longest[at], *map(len, words))
    assert max(map(len, lines)) <= max(room, sum(longest) + 4)
    said = sorted(word for line in [lines[0], *lines[2:]] for word in line.split())
    assert said == sorted(["a", "b", "c", *(word for row in rows for cell in row for word in cell.split())])
