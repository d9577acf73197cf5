"""Reading TOML: the place of each key and value, and that nothing but an error comes of any text."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_actions import toml_file
from kernel_actions.errors import Place, WrongInput
from kernel_actions.toml_file import KeyPath, TomlFile

SAME_FOLDER = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200
)
TEXT = """\
top = 1 # x = 2
[general]
name = "a # b = 1 \\" [c]"
list = [ # [no]
  "x",
  'y', ["z"], { in = 1, "q.r" = 2 },
]
dotted . "quo\\u0074ed".'lit = eral' = 2.10
when = 1979-05-27 07:32:00 # and more
after = true
text = \"\"\"
[no.table]
key = "no" \\\"""
\"\"\"\"\"
raw = '''
[no.table]
key = 1'''''
last = 0

  [[kernel]]
  name = "first"
  [kernel.inner]
  a = 1
  [[kernel]]
  name = "second"
  [kernel.inner]
  a = 2
[deep.er.table]
[deep]
b.c = 3
["x86_64-linux.cuda"]
"a b" = { c.d = [ [1, 2], [3] ] }
"""


def _read(folder: Path, text: str) -> TomlFile:
    path = folder / "a.toml"
    path.write_bytes(text.encode())
    return toml_file.read(path)


def _after(text: str, place: Place) -> str:
    """What stands at ``place``."""
    assert place.line is not None and place.column is not None
    return text.split("\n")[place.line - 1][place.column - 1 :]


@pytest.mark.parametrize(
    ("key", "at", "value"),
    [
        (("top",), "1:1", "1 # x"),
        (("general",), "2:1", None),
        (("general", "name"), "3:1", '"a # b'),
        (("general", "list", 0), "5:3", '"x",'),
        (("general", "list", 1), "6:3", "'y',"),
        (("general", "list", 2, 0), "6:9", '"z"'),
        (("general", "list", 3, "in"), "6:17", "1, "),
        (("general", "list", 3, "q.r"), "6:25", "2 }"),
        (("general", "dotted"), "8:1", None),
        (("general", "dotted", "quoted"), "8:10", None),
        (("general", "dotted", "quoted", "lit = eral"), "8:24", "2.10"),
        (("general", "when"), "9:1", "1979-05-27 07:32:00 # and"),
        (("general", "after"), "10:1", "true"),
        (("general", "text"), "11:1", '"""'),
        (("general", "raw"), "15:1", "'''"),
        (("general", "last"), "18:1", "0"),
        (("kernel",), "20:3", None),
        (("kernel", 0, "name"), "21:3", '"first"'),
        (("kernel", 0, "inner", "a"), "23:3", "1"),
        (("kernel", 1), "24:3", None),
        (("kernel", 1, "name"), "25:3", '"second"'),
        (("kernel", 1, "inner", "a"), "27:3", "2"),
        (("deep",), "29:1", None),
        (("deep", "er"), "28:1", None),
        (("deep", "b", "c"), "30:3", "3"),
        (("x86_64-linux.cuda", "a b", "c", "d", 0, 1), "32:23", "2]"),
        (("x86_64-linux.cuda", "a b", "c", "d", 1, 0), "32:28", "3]"),
    ],
)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_keys_values_and_entries_have_their_places(
    tmp_path: Path, key: KeyPath, at: str, value: str | None, ends: str
) -> None:
    file = _read(tmp_path, TEXT.replace("\n", ends))
    assert str(file.place(key)).endswith(f"a.toml:{at}")
    if value is not None:
        assert _after(TEXT, file.value_place(key)).startswith(value)


def test_a_number_is_shown_as_it_is_written(tmp_path: Path) -> None:
    file = _read(tmp_path, TEXT)
    assert file.written(("general", "dotted", "quoted", "lit = eral")) == "2.10"
    assert file.written(("general", "when")) == "1979-05-27 07:32:00"
    assert file.written(("general", "missing")) == ""


def test_joined_keys_are_found_with_dots_in_their_parts(tmp_path: Path) -> None:
    file = _read(tmp_path, TEXT + '["x86_64-linux"]\ncuda = 1\n')
    assert file.place("general.list").line == 4
    assert file.place("x86_64-linux.cuda.a b.c").line == 32
    assert file.place("deep.b.c").line == 30
    # What is not there is placed at the nearest table around it, and the file at the top.
    assert file.place("general.nothing.at.all").line == 2
    assert file.place("x86_64-linux.rocm").line == 33
    assert file.place(("deep", "b", "x", 3)).line == 30
    assert str(file.place("nothing")).endswith("a.toml")


def test_places_are_found_in_time_that_grows_with_the_text_alone(tmp_path: Path) -> None:
    started = time.process_time()
    for text in (
        "a = [" + "1," * 100_000 + "]",
        "a = [" + "{}, " * 50_000 + "]",
        "a = '''" + "'' " * 300_000 + "'''",
        'a = """' + '"" \\\\' * 150_000 + '"""',
        "# a = 1 \n" * 50_000,
        "".join(f"[t{number}]\na.b = 1\n" for number in range(10_000)),
        "[[a.b]]\n" * 25_000,
        '["' + "a" * 200_000 + '"]\n' + "".join(f"a{number} = 1\n" for number in range(10_000)),
        "".join(f"'a{'.a' * (number % 40)}{number}' = 1\n" for number in range(2_000)),
    ):
        file = _read(tmp_path, text + "\nlast = 0\n" if "[" not in text[:1] else text)
        assert file.place("a" + ".a" * 100_000 + ".b") is not None
        assert file.offset(("last",), of_value=True) >= 0
    assert time.process_time() - started < 20


# A small generator of TOML: documents that hold what is easy to get wrong.
_BARE = st.text("abAB01-_", min_size=1, max_size=4)
_ODD = st.text("ab.=[]{}#\"'\\ é,\t", max_size=5)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t") + '"'


_KEYS = st.one_of(
    _BARE.map(lambda name: (name, name)),
    _ODD.map(lambda name: (name, _quoted(name))),
    _ODD.filter(lambda name: "'" not in name).map(lambda name: (name, f"'{name}'")),
)
_BLANKS = st.sampled_from(["", " ", "\t", "  "])
_LINES = st.sampled_from(["", " ", "\n", " # ] } = 'x'\n", "\r\n\t"])
_SCALARS = st.one_of(
    st.sampled_from(
        ["1", "-2.50", "0xff", "true", "inf", "1979-05-27 07:32:00Z", "07:32:00", "'''\n[a]\nb = 1''''"]
    ),
    _ODD.map(_quoted),
    _ODD.map(lambda text: '"""\n[a]\nb = ' + text.replace("\\", "\\\\").replace('"', '\\"') + '"""'),
)


@st.composite
def _values(draw: Any, depth: int = 0) -> str:
    kind = draw(st.sampled_from(["scalar"] * 3 + (["list", "table"] if depth < 3 else [])))
    if kind == "list":
        entries = draw(st.lists(_values(depth + 1), max_size=3))
        body = ",".join(draw(_LINES) + entry + draw(_LINES) for entry in entries)
        return "[" + body + (draw(st.sampled_from(["", ","])) if entries else "") + draw(_LINES) + "]"
    if kind == "table":
        pairs = draw(st.lists(_pairs(depth + 1), max_size=3))
        return "{" + draw(_BLANKS) + ", ".join(pairs) + draw(_BLANKS) + "}"
    value: str = draw(_SCALARS)
    return value


@st.composite
def _keys(draw: Any) -> str:
    parts = draw(st.lists(_KEYS, min_size=1, max_size=3))
    return ".".join(draw(_BLANKS) + written + draw(_BLANKS) for _, written in parts)


@st.composite
def _pairs(draw: Any, depth: int = 0) -> str:
    key, value = draw(_keys()), draw(_values(depth))
    return f"{key}={draw(_BLANKS)}{value}{draw(_BLANKS)}"


@st.composite
def _documents(draw: Any) -> str:
    lines = []
    for kind in draw(st.lists(st.sampled_from(["pair", "pair", "table", "tables", "comment"]), max_size=10)):
        if kind == "pair":
            lines.append(draw(_pairs()))
        elif kind == "comment":
            lines.append("# [a] = " + draw(_ODD))
        else:
            left, right = ("[", "]") if kind == "table" else ("[[", "]]")
            lines.append(f"{draw(_BLANKS)}{left}{draw(_keys())}{right}")
    return "\n".join(lines) + "\n"


def _paths(value: Any, path: KeyPath = ()) -> list[KeyPath]:
    items: Any = value.items() if isinstance(value, dict) else enumerate(value)
    found: list[KeyPath] = []
    for key, inner in items:
        found.append((*path, key))
        if isinstance(inner, dict | list):
            found += _paths(inner, (*path, key))
    return found


@SAME_FOLDER
@given(_documents())
def test_each_key_of_any_document_is_where_it_is_said_to_be(tmp_path: Path, text: str) -> None:
    try:
        file = _read(tmp_path, text)
    except WrongInput:
        return  # A key twice, or a table that another one has closed.
    for path in _paths(file.values):
        spot, is_found = file._spot(path)
        assert is_found, path
        rest = text[spot.at :]
        if isinstance(path[-1], str):
            written = (path[-1], _quoted(path[-1]), f"'{path[-1]}'")
            assert rest.startswith(written) or rest.startswith("["), (path, rest[:20])
        value: Any = file.values
        for part in path:
            value = value[part]
        rest = text[spot.value :]
        if isinstance(value, list):
            assert rest.startswith("["), (path, rest[:20])
        elif isinstance(value, str):
            assert rest.startswith(("'", '"')), (path, rest[:20])
        elif isinstance(value, bool | int | float):
            assert rest.startswith(file.written(path))
            assert toml_file.tomllib.loads(f"a = {file.written(path)}")["a"] == value
        assert str(file.value_place(path)).count(":") == 2
        assert file.place(".".join(map(str, path))) is not None


@SAME_FOLDER
@given(st.one_of(st.text(max_size=60), st.text("ab=[]{}.\"'#\n\\,1 ", max_size=60)))
def test_any_text_is_read_or_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(text.encode(errors="surrogatepass"))
    try:
        file = toml_file.read(path)
    except WrongInput as error:
        assert "\n" not in str(error)
        assert error.where is not None
        return
    for key in _paths(file.values):
        assert file.place(key).line is not None


@SAME_FOLDER
@given(st.text("ab=[]{}.\"'#\n\\,1 ", max_size=80))
def test_the_scan_of_any_text_ends(tmp_path: Path, text: str) -> None:
    """Should a later parser accept what the scan does not know, places are less exact, and no more."""
    file = TomlFile(tmp_path, {}, text)
    assert file.place(("a", "b")).path == tmp_path
