"""The evaluator gives what Nix gives: generated expressions are evaluated by both.

Several expressions go to one process of Nix where values are expected. Those that should fail go alone, as
Nix stops at the first failure that ``tryEval`` does not catch. ``NIX_AGREEMENT=20 make test
ARGS="-k nix_language_agrees"`` runs twenty times as many as the default, at random.
"""

# ruff: noqa: E501, SIM905 - expressions are easier to read on one line

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kernel_actions import nix_language
from kernel_actions.nix_language import LanguageError, NixError, NixSyntaxError, Thrown

from tests.tools import needs

MORE = int(os.environ.get("NIX_AGREEMENT", "0"))
FAILED = "failed"
UNKNOWN = "unknown"
# How an overflow is said: Nix 2.8 lets integers wrap around, newer ones fail as we do.
OVERFLOW = "integer overflow"


def _settings(examples: int) -> settings:
    return settings(
        max_examples=examples * max(1, MORE),
        derandomize=not MORE,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        # Shrinking would run Nix thousands of times; the failing expression is shown by itself.
        phases=[Phase.generate],
    )


pytestmark = needs("nix")


class Nix:
    """Runs ``nix-instantiate`` with a home and a store of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "NIX_PATH": "",
            "NIX_STATE_DIR": str(folder / "state"),
            "NIX_LOG_DIR": str(folder / "log"),
            "NIX_STORE_DIR": str(folder / "store"),
        }
        self.number = 0

    def run(self, text: str) -> Any:
        """The value of ``text``, or ``FAILED``."""
        self.number += 1
        path = self.folder / f"{self.number}.nix"
        path.write_bytes(text.encode())
        finished = subprocess.run(
            ["nix-instantiate", "--eval", "--strict", "--json", path],
            env=self.environment,
            capture_output=True,
            timeout=60,
            check=False,
        )
        path.unlink()
        if finished.returncode != 0:
            return FAILED
        # A part of a string may end in the middle of a character.
        return json.loads(finished.stdout.decode("utf-8", "surrogateescape"))


@pytest.fixture(scope="module")
def nix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nix]:
    yield Nix(tmp_path_factory.mktemp("nix"))


def ours(text: str) -> Any:
    """The value of ``text`` by our evaluator, ``FAILED`` or ``UNKNOWN``."""
    try:
        return nix_language.evaluate(text)
    except Thrown:
        return Thrown
    except (NixError, NixSyntaxError) as error:
        return UNKNOWN if error.message == OVERFLOW else FAILED
    except LanguageError:
        return UNKNOWN


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) or isinstance(right, float):
        # Nix 2.8 writes six digits.
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        return numbers and math.isclose(left, right, rel_tol=1e-4, abs_tol=1e-300)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return type(left) is type(right) and left == right


def compare(nix: Nix, texts: list[str]) -> dict[str, int]:
    """Have both evaluate ``texts``; how many of them have a value, throw, fail and are not known."""
    counts = {"values": 0, "throws": 0, "failures": 0, "unknown": 0}
    valued: list[tuple[str, Any]] = []
    thrown: list[str] = []
    failing: list[str] = []
    for text in texts:
        value = ours(text)
        if value is UNKNOWN:
            counts["unknown"] += 1
        elif value is Thrown:
            thrown.append(text)
        elif value is FAILED:
            failing.append(text)
        else:
            valued.append((text, value))
    counts["values"], counts["throws"], counts["failures"] = len(valued), len(thrown), len(failing)
    # Each text is a file's, which ends where it ends.
    together = nix.run("[" + "\n".join(f"(\n{text}\n)" for text, _ in valued) + "]")
    if together is FAILED or len(together) != len(valued):
        together = [nix.run(text) for text, _ in valued]
    for (text, value), theirs in zip(valued, together, strict=True):
        assert same(value, theirs), f"{text}\nours: {value!r}\nNix: {theirs!r}"
    caught = "".join(
        f"(builtins.tryEval (let x = (\n{text}\n); in builtins.deepSeq x x)).success\n" for text in thrown
    )
    if nix.run(f"[{caught}]") != [False] * len(thrown):
        for text in thrown:
            assert nix.run(text) is FAILED, f"{text}\nours: throws\nNix has a value"
            alone = f"(builtins.tryEval (let x = (\n{text}\n); in builtins.deepSeq x x)).success"
            assert nix.run(alone) is False, f"{text}\nours: throws\nNix does not catch it"
    with ThreadPoolExecutor(2) as pool:
        for text, theirs in zip(failing, pool.map(nix.run, failing), strict=True):
            assert theirs is FAILED, f"{text}\nours: fails\nNix: {theirs!r}"
    return counts


# Expressions of a kind, most of them of the right types

NAMES = ["a", "b", "x", "y", "f'", "torchVersion", "systems", "cpu", "or"]
VERSIONS = ["2.9", "2.10", "2.8", "12.6", "13.0", "2.13rc1", "2.9pre", "2.9.1", "", "1.a-b", "x"]
SYSTEMS = ["x86_64-linux", "aarch64-linux", "aarch64-darwin"]
Scope = dict[str, str]
KINDS = ["int", "float", "bool", "string", "ints", "strings", "set", "sets", "function", "null"]


class Writer:
    """Writes expressions, drawing what they are from hypothesis."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw

    def one(self, *choices: str) -> str:
        return str(self.draw(st.sampled_from(choices)))

    def chance(self, of: int) -> bool:
        return bool(self.draw(st.integers(0, of - 1)) == 0)

    def write(self, kind: str, depth: int, scope: Scope) -> str:
        if self.chance(40):
            kind = self.one(*KINDS)
        known = [name for name, what in scope.items() if what == kind]
        if known and self.chance(3):
            return self.one(*known)
        if depth <= 0:
            return self.leaf(kind, depth, scope)
        if self.chance(3):
            return self.around(kind, depth - 1, scope)
        return str(getattr(self, f"write_{kind}")(depth - 1, scope))

    def leaf(self, kind: str, depth: int, scope: Scope) -> str:
        leaves = {
            "int": lambda: str(self.draw(st.integers(0, 5) | st.integers(0, 2**63 - 1))),
            "float": lambda: self.one("0.5", "1.0", "2.", ".25", "1.5e3", "(-1.5)", "3.0E-2"),
            "bool": lambda: self.one("true", "false"),
            "null": lambda: "null",
            "string": lambda: self.string(0, scope),
            "ints": lambda: self.one("[ ]", "[ 1 2 ]", "[ 3 1 2 3 ]"),
            "strings": lambda: self.one("[ ]", '[ "a" ]', '[ "x86_64-linux" "aarch64-linux" ]'),
            "set": lambda: self.one("{ }", "{ a = 1; }", '{ cpu = true; torchVersion = "2.9"; }'),
            "sets": lambda: self.one("[ ]", "defaults"),
            "function": lambda: self.one("(x: x)", "(_: true)", "({ a ? 1, ... }: a)", "builtins.isInt"),
        }
        text = leaves[kind]()
        return DEFAULTS if text == "defaults" else text

    def around(self, kind: str, depth: int, scope: Scope) -> str:
        """An expression of any kind by what can be around one."""
        name = self.one(*NAMES[:-1])
        other = self.one(*KINDS)
        inner = {**scope, name: other}
        form = self.draw(st.integers(0, 13))
        if form == 0:
            return (
                f"(if {self.write('bool', depth, scope)} then {self.write(kind, depth, scope)} "
                f"else {self.write(kind, depth, scope)})"
            )
        if form == 1:
            return f"(let {name} = {self.write(other, depth, inner)}; in {self.write(kind, depth, inner)})"
        if form == 2:
            return f"(({name}: {self.write(kind, depth, inner)}) ({self.write(other, depth, scope)}))"
        if form == 3:
            given = self.one(f"{name} = {self.write(other, depth, scope)};", "", "q = 1;")
            dots = self.one("", ", ...")
            whole = self.one("", "@whole")
            return (
                f"(({{ {name} ? {self.write(other, depth, scope)}{dots} }}{whole}: "
                f"{self.write(kind, depth, inner)}) {{ {given} }})"
            )
        if form == 4:
            return (
                f"(with {{ {name} = {self.write(other, depth, scope)}; }}; {self.write(kind, depth, inner)})"
            )
        if form == 5:
            return f"(assert {self.write('bool', depth, scope)}; {self.write(kind, depth, scope)})"
        if form == 6:
            return f"{{ {name} = {self.write(kind, depth, scope)}; }}.{name}"
        if form == 7:
            return f"({self.write('set', depth, scope)}.{name} or {self.write(kind, depth, scope)})"
        if form == 8:
            return f"(rec {{ {name} = {self.write(other, depth, inner)}; r = {self.write(kind, depth, inner)}; }}).r"
        if form == 9:
            return f"(builtins.tryEval {self.write(kind, depth, scope)}).value"
        if form == 10:
            return f"(builtins.head [ {self.write(kind, depth, scope)} ])"
        if form == 11:
            return self.one(
                '(throw "no")', '(abort "no")', "undefined", "null.a", f"({self.write(kind, depth, scope)})"
            )
        if form == 12:
            return f"(builtins.seq {self.write(other, depth, scope)} {self.write(kind, depth, scope)})"
        return f"(let inherit ({{ {name} = {self.write(other, depth, scope)}; }}) {name}; in {self.write(kind, depth, inner)})"

    def write_null(self, depth: int, scope: Scope) -> str:
        return "null"

    def write_int(self, depth: int, scope: Scope) -> str:
        form = self.draw(st.integers(0, 8))
        one, two = self.write("int", depth, scope), self.write("int", depth, scope)
        if form == 0:
            return f"(-{one})"
        if form == 1:
            return f"(builtins.length {self.write(self.one('ints', 'strings', 'sets'), depth, scope)})"
        if form == 2:
            return f"(builtins.stringLength {self.write('string', depth, scope)})"
        if form == 3:
            return f"(builtins.compareVersions {self.version(depth, scope)} {self.version(depth, scope)})"
        if form == 4:
            return (
                f"(builtins.foldl' (p: q: p {self.one('+', '-')} q) {one} {self.write('ints', depth, scope)})"
            )
        if form == 5:
            return f"(builtins.elemAt {self.write('ints', depth, scope)} {one})"
        if form == 6:
            return f"(builtins.{self.one('add', 'sub', 'mul', 'div')} {one} {two})"
        return f"({one} {self.one('+', '-', '*', '/ ')} {two} {self.one('+', '-', '*', '/ ')} {one})"

    def write_float(self, depth: int, scope: Scope) -> str:
        number = self.write(self.one("int", "float"), depth, scope)
        return f"({self.write('float', depth, scope)} {self.one('+', '-', '*', '/ ')} {number})"

    def write_bool(self, depth: int, scope: Scope) -> str:
        form = self.draw(st.integers(0, 12))
        kind = self.one(*KINDS)
        if form == 0:
            return f"(!{self.write('bool', depth, scope)})"
        if form in (1, 2):
            left, right = self.write("bool", depth, scope), self.write("bool", depth, scope)
            return f"({left} {self.one('&&', '||', '->')} {right} {self.one('&&', '||', '->')} !{left})"
        if form in (3, 4):
            kind = self.one("int", "float", "string", "ints", "strings", kind)
            other = self.one("int", "float") if kind in ("int", "float") else kind
            sign = self.one("<", "<=", ">", ">=")
            return f"({self.write(kind, depth, scope)} {sign} {self.write(other, depth, scope)})"
        if form in (5, 6):
            sign = self.one("==", "!=")
            return (
                f"({self.write(kind, depth, scope)} {sign} {self.write(self.one(kind, 'int'), depth, scope)})"
            )
        if form == 7:
            return f"({self.write('set', depth, scope)} ? {self.attribute(depth, scope)})"
        if form == 8:
            predicate = self.function("int", "bool", depth, scope)
            return f"(builtins.{self.one('any', 'all')} {predicate} {self.write('ints', depth, scope)})"
        if form == 9:
            return (
                f"(builtins.elem {self.write('string', depth, scope)} {self.write('strings', depth, scope)})"
            )
        if form == 10:
            what = self.one("Attrs", "Bool", "Float", "Function", "Int", "List", "Null", "String", "Path")
            return f"(builtins.is{what} {self.write(kind, depth, scope)})"
        if form == 11:
            return (
                f"(builtins.hasAttr {self.write('string', depth, scope)} {self.write('set', depth, scope)})"
            )
        return f"(builtins.lessThan {self.write('int', depth, scope)} {self.write('float', depth, scope)})"

    def string(self, depth: int, scope: Scope) -> str:
        letters = [
            "a",
            "b",
            "-",
            " ",
            "  ",
            "\n",
            "\t",
            "\r",
            "$",
            "$$",
            "'",
            "\\\\",
            "\\n",
            "\\t",
            '\\"',
            "\\$",
            "é",
            "\\q",
        ]
        if self.chance(4):
            return f'"{self.one(*SYSTEMS, *VERSIONS)}"'
        if depth > 0:
            letters += [f"${{{self.write('string', depth - 1, scope)}}}"] * 4
        if self.chance(3):
            letters = [x for x in letters if not x.startswith("\\")]
            letters += ["''$", "'''", "''\\n", "''\\${", "$${", "\n  ", "\n    ", "\n", "\n  a"]
            return "''" + "".join(self.draw(st.lists(st.sampled_from(letters), max_size=12))) + " ''"
        return '"' + "".join(self.draw(st.lists(st.sampled_from(letters), max_size=8))) + '"'

    def version(self, depth: int, scope: Scope) -> str:
        return self.write("string", depth, scope) if self.chance(3) else f'"{self.one(*VERSIONS)}"'

    def write_string(self, depth: int, scope: Scope) -> str:
        form = self.draw(st.integers(0, 9))
        if form < 4:
            return self.string(depth, scope)
        text = self.write("string", depth, scope)
        if form == 4:
            return f"({text} + {self.write('string', depth, scope)})"
        if form == 5:
            return f"(builtins.substring {self.one('0', '1', '3', '(-1)')} {self.one('0', '2', '(-1)', '100')} {text})"
        if form == 6:
            return f"(builtins.concatStringsSep {text} {self.write('strings', depth, scope)})"
        if form == 7:
            kind = self.one(*KINDS)
            return f"(toString {self.write(kind, depth, scope)})"
        if form == 8:
            olds, news = self.write("strings", depth, scope), self.write("strings", depth, scope)
            olds, news = (
                self.one(f"{olds} {news}", '[ "a" "" "b" ] [ "" "-" "aa" ]', '[ "86" ] [ "é" ]').rsplit(
                    "] [", 1
                )
                if False
                else (olds, news)
            )
            return self.one(
                f"(builtins.replaceStrings {olds} {news} {text})",
                f'(builtins.replaceStrings [ "a" "" "b" ] [ "" "-" "aa" ] {text})',
                f'(builtins.replaceStrings [ "86" "-" ] [ "é" "" ] {text})',
            )
        kind = self.one("int", "bool", "string", "ints", "strings", "set", "null", "sets")
        return f"(builtins.toJSON {self.write(kind, depth, scope)})"

    def function(self, taken: str, made: str, depth: int, scope: Scope) -> str:
        name = self.one("x", "y", "v")
        return f"({name}: {self.write(made, depth, {**scope, name: taken})})"

    def lists(self, item: str, depth: int, scope: Scope) -> str:
        kind = {"int": "ints", "string": "strings", "set": "sets"}[item]
        form = self.draw(st.integers(0, 10))
        one = self.write(kind, depth, scope)
        if form == 0:
            return (
                "[ "
                + " ".join(self.write(item, depth, scope) for _ in range(self.draw(st.integers(0, 3))))
                + " ]"
            )
        if form == 1:
            return f"({one} ++ {self.write(kind, depth, scope)})"
        if form == 2:
            other = self.one("int", "string", "set")
            others = {"int": "ints", "string": "strings", "set": "sets"}[other]
            return f"(map {self.function(other, item, depth, scope)} {self.write(others, depth, scope)})"
        if form == 3:
            return f"(builtins.filter {self.function(item, 'bool', depth, scope)} {one})"
        if form == 4:
            return f"(builtins.tail {one})"
        if form == 5:
            return f"(builtins.concatMap {self.function(item, kind, depth, scope)} {one})"
        if form == 6:
            return f"(builtins.concatLists [ {one} {self.write(kind, depth, scope)} ])"
        if form == 7:
            return (
                f"(builtins.genList {self.function('int', item, depth, scope)} {self.one('0', '3', '(-1)')})"
            )
        if form == 8:
            key = {"int": "", "string": "", "set": ".torchVersion or null"}[item]
            less = self.one(f"(p: q: p{key} < q{key})", f"(p: q: p{key} > q{key})", "builtins.lessThan")
            return f"(builtins.sort {less} {one})"
        if form == 9:
            part = self.one("right", "wrong")
            return f"(builtins.partition {self.function(item, 'bool', depth, scope)} {one}).{part}"
        return f"(builtins.catAttrs {self.write('string', 0, scope)} {self.write('sets', depth, scope)})"

    def write_ints(self, depth: int, scope: Scope) -> str:
        return self.lists("int", depth, scope)

    def write_strings(self, depth: int, scope: Scope) -> str:
        form = self.draw(st.integers(0, 5))
        if form == 0:
            return f"(builtins.attrNames {self.write('set', depth, scope)})"
        if form == 1:
            return f"(builtins.splitVersion {self.version(depth, scope)})"
        return self.lists("string", depth, scope)

    def write_sets(self, depth: int, scope: Scope) -> str:
        if self.chance(3):
            change = self.function("set", "set", depth, scope)
            return f"(map (v: v // ({change} v)) {self.write('sets', depth, scope)})"
        return self.lists("set", depth, scope)

    def attribute(self, depth: int, scope: Scope) -> str:
        form = self.draw(st.integers(0, 6))
        name = self.one(*NAMES)
        if form == 0:
            return f'"{name}"'
        if form == 1 and depth > 0:
            return f"${{{self.write('string', depth - 1, scope)}}}"
        if form == 2:
            return f"{name}.{self.one(*NAMES)}"
        if form == 3:
            return f'${{"{name}"}}'
        return name

    def write_set(self, depth: int, scope: Scope) -> str:
        form = self.draw(st.integers(0, 12))
        one = self.write("set", depth, scope)
        if form < 3:
            start = self.one("", "rec ")
            inner = scope if not start else {**scope, **{name: "int" for name in NAMES[:2]}}
            parts = [
                f"{self.attribute(depth, scope)} = {self.write(self.one(*KINDS), depth, inner)};"
                for _ in range(self.draw(st.integers(0, 4)))
            ]
            if scope and self.chance(3):
                parts.append(f"inherit {self.one(*scope)};")
            return f"({start}{{ {' '.join(parts)} }})"
        if form < 5:
            return f"({one} // {self.write('set', depth, scope)})"
        if form == 5:
            return f"(builtins.removeAttrs {one} {self.write('strings', depth, scope)})"
        if form == 6:
            return (
                f"(builtins.mapAttrs (n: v: {self.write('string', depth, {**scope, 'n': 'string'})}) {one})"
            )
        if form == 7:
            value = self.write(self.one(*KINDS), depth, {**scope, "n": "string"})
            return f"(builtins.listToAttrs (map (n: {{ name = n; value = {value}; }}) {self.write('strings', depth, scope)}))"
        if form == 8:
            return f"(builtins.intersectAttrs {one} {self.write('set', depth, scope)})"
        if form == 9:
            return f"(builtins.groupBy {self.function('string', 'string', depth, scope)} {self.write('strings', depth, scope)})"
        if form == 10:
            return f"(builtins.functionArgs {self.write('function', depth, scope)})"
        if form == 11:
            return f"(builtins.zipAttrsWith (n: vs: {self.one('vs', 'n', 'builtins.length vs')}) {self.write('sets', depth, scope)})"
        return f"(builtins.head {self.write('sets', depth, scope)})"

    def write_function(self, depth: int, scope: Scope) -> str:
        kind = self.one(*KINDS[:-2])
        return self.function(kind, self.one(*KINDS[:-2]), depth, scope)


DEFAULTS = (
    '[ { torchVersion = "2.9"; cpu = true; systems = [ "x86_64-linux" "aarch64-darwin" ]; bundleBuild = true; } '
    '{ torchVersion = "2.10"; cudaVersion = "12.6"; systems = [ "x86_64-linux" "aarch64-linux" ]; } '
    '{ torchVersion = "2.8"; xpuVersion = "2025.1.3"; systems = [ "x86_64-linux" ]; tvmFfiVersion = "0.1"; } ]'
)


@st.composite
def expressions(draw: Any) -> str:
    """An expression of some kind."""
    writer = Writer(draw)
    return writer.write(writer.one(*KINDS), draw(st.integers(1, 5)), {})


@st.composite
def overrides(draw: Any) -> str:
    """A function from build sets to build sets, and its call."""
    writer = Writer(draw)
    body = writer.write_sets(draw(st.integers(2, 5)), {"all": "sets"})
    return f"(all: {body}) {DEFAULTS}"


TOKENS = (
    "a b x: x:x {a}: {a,b}: {a?1,...}: @ ( ) [ ] { } {} = ; . .. ... ? ! - + * / // ++ -> && || == != < <= > >= "
    "or if then else let in with assert rec inherit 1 2.5 .5 1. 007 \" '' ${ $ \\ ' , : ./. a/b ~/a <a> <a/b> "
    "http://a true null [1] (x) {a=1;} let{ #c /**/ /* */ a.b a-b a' a+b a/ //b 1/2 1.5/2 -1 --1 !! \"a\" ''a''"
).split()


@st.composite
def soups(draw: Any) -> str:
    """Tokens in any order, most of which are no expression, with names in sight."""
    tokens = draw(st.lists(st.sampled_from(TOKENS), min_size=1, max_size=7))
    between = draw(st.sampled_from([" ", "", "\n"]))
    return f"let a = 1; b = [ ]; x = {{ a = 2; }}; in\n{between.join(tokens)}"


def _check(nix: Nix, name: str, strategy: st.SearchStrategy[str], examples: int, size: int) -> None:
    total: dict[str, int] = {}
    start = time.monotonic()

    @_settings(examples)
    @given(st.lists(strategy, min_size=size, max_size=size))
    def agree(texts: list[str]) -> None:
        # A derandomized run is bounded by its number of examples, and by time on slow machines.
        if not MORE and time.monotonic() - start > 15:
            return
        for what, count in compare(nix, texts).items():
            total[what] = total.get(what, 0) + count

    agree()
    print(f"{name}: {total}")
    assert total["values"], total


def test_expressions_agree(nix: Nix) -> None:
    _check(nix, "expressions", expressions(), 8, 30)


def test_overrides_agree(nix: Nix) -> None:
    _check(nix, "overrides", overrides(), 8, 20)


def test_syntax_agrees(nix: Nix) -> None:
    _check(nix, "soups", soups(), 4, 30)
