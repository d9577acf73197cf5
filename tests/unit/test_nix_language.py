"""The Nix language without Nix. Whether Nix gives the same values is what ``test_nix_language_agrees`` asks it."""

# ruff: noqa: E501, SIM905 - a case of a table is easier to read on one line

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_actions.nix_language import (
    Evaluation,
    LanguageError,
    NixError,
    NixSyntaxError,
    Thrown,
    TooMuch,
    Unsupported,
    evaluate,
    evaluator,
)


def with_lib(text: str) -> Any:
    """The value of ``text`` with ``lib`` in sight."""
    evaluation = Evaluation(text)
    evaluation.names = {**evaluation.names, "lib": evaluation.library}
    with evaluation.running():
        return evaluation.to_python(evaluation.value())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # Literals
        ("[ 1 007 1.5 .5 2. 1e3or 1.5E-2 ]", None),
        ("[ 1 007 1.5 .5 2. 1.5E-2 true false null ]", [1, 7, 1.5, 0.5, 2.0, 0.015, True, False, None]),
        ("http://a.b/c", "http://a.b/c"),
        ("x:x", "x:x"),
        (r'"a\n\t\r\"\\\q\${b} $${c} $"', 'a\n\t\r"\\q${b} $${c} $'),
        ('"a\r\nb\rc"', "a\nb\nc"),
        ('"é${"ü"}"', "éü"),
        ("''\n  a\n    b\n\n  c\n''", "a\n  b\n\nc\n"),
        ("''a'''b ''${x} ''\\n $$ ''", "a''b ${x} \n $$ "),
        ("''\n    ${\"a\"}\n      b\n  ''", "a\n  b\n"),
        ("''\n\ta\n  b\n''", "\ta\n  b\n"),
        ("# c\n1 /* 2 */ + /** 3 **/ 4", 5),
        # Sets
        ("{ a.b = 1; a.c = 2; }", {"a": {"b": 1, "c": 2}}),
        ("{ a = { b = 1; }; a.c = 2; }", {"a": {"b": 1, "c": 2}}),
        ('{ "a b" = 1; ${"c"} = 2; ${"d" + "e"} = 3; ${null} = 4; }', {"a b": 1, "c": 2, "de": 3}),
        ("rec { a = b; b = 1; }", {"a": 1, "b": 1}),
        ("let a = 1; in { inherit a; inherit ({ b = 2; }) b; }", {"a": 1, "b": 2}),
        ("let a = 1; in rec { inherit a; b = a; }", {"a": 1, "b": 1}),
        ("{ a = 1; b = 2; } // { b = 3; }", {"a": 1, "b": 3}),
        ("{ a.b = 1; }.a.b", 1),
        ("{ a = 1; }.b.c or 2", 2),
        ("{ a = 1; }.a.b or 2", 2),
        ('{ a.b = 1; } ? a.b && !({ a = 1; } ? a.b) && { a = 1; } ? ${"a"}', True),
        ("{ or = 1; }.or", 1),
        # Functions
        ("(x: y: x - y) 5 3", 2),
        ("({ a, b ? a + 1, ... }@whole: whole.c + a + b) { a = 1; c = 2; }", 5),
        ("(whole@{ a ? 1 }: whole) { }", {}),
        ("{ __functor = self: x: x + self.n; n = 1; } 2", 3),
        # Scopes
        ("let a = b; b = 1; in a", 1),
        ("let x = 1; in with { x = 2; y = 3; }; x + y", 4),
        ("with { x = 1; }; with { x = 2; }; x", 2),
        ("let f = n: if n == 0 then 0 else n + f (n - 1); in f 100", 5050),
        ('(x: "${x}" + toString 1) "a"', "a1"),
        # What is not needed is not evaluated.
        ("let a = throw \"no\"; in 1", 1),
        ("builtins.length [ (throw \"no\") (abort \"no\") ]", 2),
        ("(x: 1) (throw \"no\")", 1),
        ("{ a = 1; b = throw \"no\"; }.a", 1),
        ("true || throw \"no\"", True),
        # Operators and how tightly they bind
        ("1 + 2 * 3 - 4 / 2", 5),
        ("- 1 + 2", 1),
        ("[ 1 ] ++ [ 2 ] ++ [ 3 ]", [1, 2, 3]),
        ("!true || true && false -> true", True),
        ("! { a = 1; } ? b && 1 + 1 == 2", True),
        ("7 / 2 + (-7) / 2", 0),
        ("1 == 1.0 && 1 < 1.5 && [ 1 2 ] < [ 1 3 ] && \"a\" < \"b\" && 2 >= 2", True),
        ("{ a = [ 1 { } ]; } == { a = [ 1 { } ]; }", True),
        ("(x: x) == (x: x)", False),
        ('"1" == 1', False),
        ("if 1 < 2 then 3 else 4", 3),
        ("assert true; 1", 1),
        # Paths can be passed on, and no more.
        ("builtins.isPath ./. && builtins.typeOf ./a/b == \"path\" && ./a != \"a\"", True),
        ("{ path = ./.; b = 1; }.b", 1),
        ("let p = ./a/${\"b\"}/c; in 1", 1),
    ],
)  # fmt: skip
def test_language(text: str, value: Any) -> None:
    if value is None:
        with pytest.raises(LanguageError):
            evaluate(text)
    else:
        assert evaluate(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("map (x: x + 1) [ 1 2 ]", [2, 3]),
        ("builtins.filter (x: x > 1) [ 1 2 ]", [2]),
        ("builtins.elem 1.0 [ 1 ]", True),
        ("builtins.elemAt [ 1 2 ] 1", 2),
        ("builtins.hasAttr \"a\" { a = 1; }", True),
        ("builtins.getAttr \"a\" { a = 1; }", 1),
        ('map (v: builtins.compareVersions v "2.9") [ "2.10" "2.9" "2.9pre" "2" ]', [1, 0, -1, -1]),
        ("builtins.attrNames { b = 1; a = 2; }", ["a", "b"]),
        ("builtins.attrValues { b = 1; a = 2; }", [2, 1]),
        ("[ (builtins.head [ 1 2 ]) (builtins.tail [ 1 2 ]) (builtins.length [ ]) ]", [1, [2], 0]),
        ("builtins.all (x: x) [ ] && builtins.any (x: x) [ false true ]", True),
        ("builtins.foldl' (a: b: a + b) 0 [ 1 2 3 ]", 6),
        ("builtins.concatLists [ [ 1 ] [ ] [ 2 ] ] ++ builtins.concatMap (x: [ x x ]) [ 3 ]", [1, 2, 3, 3]),
        ('builtins.concatStringsSep "-" [ "a" "b" ]', "a-b"),
        ('builtins.listToAttrs [ { name = "a"; value = 1; } { name = "a"; value = 2; } ]', {"a": 1}),
        ('removeAttrs { a = 1; b = 2; } [ "a" "c" ]', {"b": 2}),
        ("builtins.intersectAttrs { a = 1; } { a = 2; b = 3; }", {"a": 2}),
        ("builtins.mapAttrs (n: v: n + v) { a = \"b\"; }", {"a": "ab"}),
        ("map builtins.typeOf [ 1 1.0 \"\" true null [ ] { } (x: x) map ./. ]",
         ["int", "float", "string", "bool", "null", "list", "set", "lambda", "lambda", "path"]),
        ('toString [ 1 1.5 true false null [ ] [ "a" [ 2 ] ] ]', "1 1.500000 1   a 2"),
        ("builtins.sort (a: b: a > b) [ 1 3 2 ]", [3, 2, 1]),
        ("builtins.genList (x: x * x) 3", [0, 1, 4]),
        ('builtins.splitVersion "2.9rc1-a"', ["2", "9", "rc", "1", "a"]),
        ('builtins.replaceStrings [ "a" "" ] [ "b" "-" ] "aca"', "b-cb-"),
        ('builtins.stringLength "é"', 2),
        ('builtins.substring 1 (-1) "abc" + builtins.substring 9 1 "abc"', "bc"),
        ("builtins.seq 1 2 + builtins.deepSeq [ 1 ] 2 + builtins.trace \"a\" 3", 7),
        ('builtins.tryEval (throw "a")', {"success": False, "value": False}),
        ("builtins.tryEval (assert false; 1)", {"success": False, "value": False}),
        ("builtins.partition (x: x > 1) [ 1 2 ]", {"right": [2], "wrong": [1]}),
        ('builtins.groupBy (x: if x > 1 then "a" else "b") [ 1 2 ]', {"a": [2], "b": [1]}),
        ('builtins.catAttrs "a" [ { a = 1; } { } ]', [1]),
        ("builtins.zipAttrsWith (n: vs: vs) [ { a = 1; } { a = 2; } ]", {"a": [1, 2]}),
        ("builtins.functionArgs ({ a, b ? 1 }: a)", {"a": False, "b": True}),
        ('builtins.toJSON { b = [ 1 null "\\n" ]; a = true; }', '{"a":true,"b":[1,null,"\\n"]}'),
        ('builtins.fromJSON "{\\"a\\": [1, 2.5, null, \\"é\\"]}"', {"a": [1, 2.5, None, "é"]}),
        ("[ (builtins.add 1 2) (builtins.sub 1 2) (builtins.mul 2 3) (builtins.div 7 2) ]", [3, -1, 6, 3]),
        ("__add 1 2 + (with builtins; length [ ])", 3),
        ("builtins ? map && !(builtins ? nothingOfThis)", True),
    ],
)  # fmt: skip
def test_builtins(text: str, value: Any) -> None:
    assert evaluate(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("lib.pipe 2 [ (x: x + 1) (lib.flip (a: b: b - a) 10) (lib.const 3) lib.id ]", 3),
        ("lib.optional true 1 ++ lib.optionals false [ 2 ] ++ [ (lib.optionalString true \"a\") ]", [1, "a"]),
        ("lib.optionalAttrs true { a = 1; } // lib.filterAttrs (n: v: v > 1) { b = 1; c = 2; }", {"a": 1, "c": 2}),
        ('[ (lib.versionAtLeast "2.10" "2.9") (lib.versionOlder "2.10" "2.9") ]', [True, False]),
        ("lib.unique (lib.flatten [ 1 [ 2 [ 1 ] ] ])", [1, 2]),
        ('lib.genAttrs [ "a" ] (n: n + "b")', {"a": "ab"}),
        ('lib.mapAttrsToList (n: v: n + v) { b = "1"; a = "2"; }', ["a2", "b1"]),
        ('[ (lib.hasPrefix "a" "ab") (lib.hasSuffix "b" "ab") (lib.hasInfix "." "ab") ]', [True, True, False]),
        ('lib.splitString "." "2.9.1"', ["2", "9", "1"]),
        ("[ (lib.last [ 1 2 ]) (lib.init [ 1 2 ]) (lib.take 1 [ 1 2 ]) (lib.drop 1 [ 1 2 ]) ]", [2, [1], [1], [2]]),
        ("lib.subtractLists [ 1 ] (lib.intersectLists [ 1 2 ] (lib.remove 3 [ 1 2 3 ]))", [2]),
        ('lib.foldr (a: b: a + b) "" [ "a" "b" ] + lib.foldl (a: b: a + b) "" [ "c" "d" ]', "abcd"),
        ("lib.imap0 (i: x: i + x) (lib.zipListsWith (a: b: a * b) [ 1 2 3 ] [ 4 5 ])", [4, 11]),
        ("lib.sortOn (x: -x) [ 1 2 ]", [2, 1]),
        ("lib.recursiveUpdate { a.b = 1; a.c = 2; } { a.b = 3; }", {"a": {"b": 3, "c": 2}}),
        ('[ (lib.versions.major "2.9.1") (lib.versions.majorMinor "2.9.1") ]', ["2", "2.9"]),
        ("lib.lists.length [ ] + lib.lists.foldl' (a: b: a + b) 0 [ 1 2 ]", 3),
        ('with lib; filter (v: versionAtLeast v "2.9") [ "2.8" "2.10" ]', ["2.10"]),
    ],
)  # fmt: skip
def test_library(text: str, value: Any) -> None:
    assert with_lib(text) == value


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("", NixSyntaxError, "line 1, column 1: unexpected end of the file"),
        ("{ a = 1 }", NixSyntaxError, "line 1, column 9: unexpected }, expecting ;"),
        ("1 +\n\n  )", NixSyntaxError, "line 3, column 3: unexpected )"),
        ('"é" é', NixSyntaxError, "line 1, column 5: unexpected character"),
        ("{ a = 1;\n a = 2; }", NixSyntaxError, "line 2, column 2: attribute 'a' is already defined"),
        ("{ a, a }: 1", NixSyntaxError, "duplicate function argument 'a'"),
        ("a == b == c", NixSyntaxError, "unexpected =="),
        ("[ ./a/ ]", NixSyntaxError, "trailing slash"),
        ("/* a", NixSyntaxError, "a comment without its end"),
        ('"a${"', NixSyntaxError, "a string without its end"),
        ("let ${\"a\" + \"b\"} = 1; in 1", NixSyntaxError, "dynamic attributes are not allowed in let"),
        ("9223372036854775808", NixSyntaxError, "invalid integer"),
        ("let a = 1; in\n b", NixError, "line 2, column 2: undefined variable 'b'"),
        ("with { }; b", NixError, "undefined variable 'b'"),
        ("{ a = 1; }\n.b", NixError, "line 2, column 1: attribute 'b' missing"),
        ("1 + \"a\"", NixError, "line 1, column 3: cannot add a string to an integer"),
        ("\"a\" + 1", NixError, "cannot coerce an integer to a string"),
        ("if 1 then 2 else 3", NixError, "value is an integer while a Boolean was expected"),
        ("1 2", NixError, "attempt to call something which is not a function but an integer"),
        ("({ a }: a) { }", NixError, "without required argument 'a'"),
        ("({ a }: a) { a = 1; b = 2; }", NixError, "unexpected argument 'b'"),
        ("let a = a; in a + 1", NixError, "infinite recursion"),
        ("[ 1 ] < [ \"a\" ]", NixError, "cannot compare an integer with a string"),
        ("1 / 0", NixError, "division by zero"),
        ("9223372036854775807 + 1", NixError, "integer overflow"),
        ("x: x", NixError, "a function where data is expected"),
        ("\n throw \"no\"", Thrown, "line 2, column 2: the text throws: no"),
        ("abort \"no\"", NixError, "the text aborts: no"),
        ("assert 1 == 2; 3", Thrown, "an assertion failed"),
        ("builtins.head [ ]", NixError, "'head' of an empty list"),
        ("<nixpkgs>", Unsupported, "line 1, column 1: the search path <nixpkgs>"),
        ("[ (import ./a.nix) ]", Unsupported, "line 1, column 4: import"),
        ("builtins.readFile ./a", Unsupported, "line 1, column 9: builtins.readFile"),
        ("with builtins; match \"a\" \"b\"", Unsupported, "builtins.match"),
        ("derivation { }", Unsupported, "derivation"),
        ("\"${./a}\"", Unsupported, "the path ./a as a string"),
        ("./a == ./b", Unsupported, "a comparison of paths"),
        ("let { body = 1; }", Unsupported, "let { … }"),
        ("1 |> x", Unsupported, "the operator |>"),
        ("let __sub = 1; in 2 - 1", Unsupported, "another meaning of __sub"),
        ("rec { __overrides = { }; }", Unsupported, "__overrides"),
        ("let f = x: x; in [ f ] == [ f ]", Unsupported, "a comparison of functions"),
        ("__curPos", Unsupported, "__curPos"),
        ('{ a = throw "no"; } == { a = 1; }', Thrown, "the text throws: no"),
        ('{ a = throw "no"; b = 1; } == { a = 1; b = 2; }', Unsupported, "a comparison of sets"),
    ],
)  # fmt: skip
def test_errors_say_what_and_where(text: str, kind: type[LanguageError], message: str) -> None:
    with pytest.raises(LanguageError) as caught:
        evaluate(text)
    assert type(caught.value) is kind
    assert message in str(caught.value)


def test_what_failed_fails_again() -> None:
    text = 'let a = throw "no"; t = builtins.tryEval; in [ (t a).success (t a).success (t [ a ]).success ]'
    assert evaluate(text) == [False, False, True]


def doubling(start: str, step: str, end: str = "a40") -> str:
    """A text of forty definitions, each made of the one before it, ``@``."""
    steps = "".join(f"a{i + 1} = {step.replace('@', f'a{i}')}; " for i in range(40))
    return f"let a0 = {start}; {steps}in {end}"


LARGE = 900_000
HOSTILE = {
    "strings": doubling('"aaaaaaaa"', '"${@}${@}"'),
    "added strings": doubling('"aaaaaaaa"', "@ + @"),
    "joined strings": doubling('"aaaaaaaa"', 'builtins.concatStringsSep "" [ @ @ ]'),
    "lists": doubling("[ 1 2 ]", "@ ++ @"),
    "shared lists": doubling("[ 1 2 ]", "[ @ @ ]"),
    "shared lists compared": doubling("[ 1 2 ]", "[ @ @ ]", "a40 == map (x: x) a40"),
    "shared lists as JSON": doubling("[ 1 2 ]", "[ @ @ ]", "builtins.toJSON a40"),
    "shared lists as text": doubling("[ 1 2 ]", "[ @ @ ]", "toString a40"),
    "sets": "let s = builtins.listToAttrs (builtins.genList (i: { name = toString i; value = i; }) 20000); "
    "in map (n: s // { x = n; }) (builtins.genList (x: x) 1000)",
    "long list": "builtins.genList (x: x) 999999999999",
    "much memory": "map (n: builtins.genList (x: [ x x x x x x x x ]) n) [ 100000 100000 100000 ]",
    "endless function": "let f = x: f x; in f 1",
    "endless argument": "let f = x: f (x ++ x); in f [ 1 ]",
    "endless set": "let a = { b = a; }; in a",
    "endless comparison": "let a = [ a ]; b = [ b ]; in a == b",
    "endless functor": "let f = { __functor = f; }; in f 1",
    "endless text": "let f = n: { __toString = self: \"${f (n + 1)}\"; }; in toString (f 0)",
    "endless sort": "let f = n: builtins.sort (a: b: builtins.length (f (n + 1)) > 0) [ 1 2 ]; in f 0",
    "endless tryEval": "let f = n: builtins.tryEval (f (n + 1)); in f 0",
    "endless fold": "let f = n: builtins.foldl' (a: b: f b) 0 [ 1 2 ]; in f 0",
    "endless all": "let f = n: builtins.all (a: f n) [ 1 ]; in f 0",
    "endless JSON": "let a = [ a ]; in builtins.toJSON a",
    "endless lists compared": "let a = [ a ]; b = [ b ]; in a < b",
    "exponential": "let f = n: if n == 0 then 0 else f (n - 1) + f (n - 1); in f 60",
    "long chain": "(builtins.foldl' (a: b: { x = a.x + 1; }) { x = 0; } (builtins.genList (x: x) 20000)).x",
    "deep list": "builtins.foldl' (a: b: [ a ]) [ ] (builtins.genList (x: x) 50000)",
    "replacements": f'builtins.replaceStrings [ "{"a" * 20}b" ] [ "" ] "{"a" * LARGE}"',
    "compared strings": f'let a = "{"a" * 400_000}"; in builtins.genList (i: a == a + "") 100000',
    "versions": f'let a = "{"1." * 400_000}"; in builtins.genList (i: builtins.compareVersions a a) 100000',
    "nested JSON": f'builtins.fromJSON "{"[" * 100_000}"',
    **{f"many {part}": part * (150_000 // len(part)) for part in
       ["(", "[", "{", "{a=", '"${', "a: ", "!", "- ", "1 + ", "1-", "a+", "a/", "~", "<", "<a", ".", "/", "//",
        '"', "''", "'", "$", "/*", "let ", "let a=", "with a; ", "if ", "a.a ", "a or ", "a ", "\\", "é", "#", " ",
        "1", "a_", "?", "rec {", "${", "a@", "{}: ", "x -> ", "[] ++ ", "{} // ", "a==a "]},
    "unfinished string": '"' + "$" * LARGE,
    "unfinished escape": '"' + "\\" * LARGE,
    "unfinished indented string": "''" + "$a'a" * (LARGE // 4),
    "nested parentheses": "(" * 5000 + "1" + ")" * 5000,
    "nested lists": "[" * 5000 + "]" * 5000,
    "long sum": "1" + " + 1" * 9000,
    "long concatenation": "[ ]" + " ++ [ ]" * 9000,
    "long or": "{ }" + ".a or { }" * 4000,
    "large": " " * 1_000_001,
    "NUL": "\"\0\"",
}  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_texts_end(text: str) -> None:
    start = time.process_time()
    with pytest.raises(LanguageError) as caught:
        evaluate(text)
    # Mostly less than half a second; machines that run tests are slow.
    assert time.process_time() - start < 5
    assert "too much memory" not in caught.value.message


@pytest.mark.parametrize(
    "name", [name for name in HOSTILE if name.startswith(("endless", "deep", "long chain"))]
)
def test_frames_are_counted(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Python's own limit is not reached even when it leaves no more room than what is counted."""
    monkeypatch.setattr(evaluator, "_UNCOUNTED_FRAMES", 100)
    with pytest.raises(TooMuch, match="nested too deeply"):
        evaluate(HOSTILE[name])


def test_recursion_limit_is_restored() -> None:
    before = sys.getrecursionlimit()
    with pytest.raises(TooMuch):
        evaluate("let f = x: f x; in f 1")
    assert sys.getrecursionlimit() == before


def test_steps_are_limited() -> None:
    assert evaluate("builtins.length (builtins.genList (x: x) 100)", steps=1000) == 100
    with pytest.raises(TooMuch, match="too many steps"):
        evaluate("builtins.length (builtins.genList (x: x) 1000)", steps=1000)


def test_honest_depth_and_size_are_possible() -> None:
    assert (
        evaluate("let f = n: if n == 0 then [ ] else [ n ] ++ f (n - 1); in builtins.length (f 250)") == 250
    )
    assert with_lib("builtins.length (lib.foldr (a: b: [ a ] ++ b) [ ] (builtins.genList (x: x) 150))") == 150
    assert evaluate("builtins.length (builtins.genList (x: { a = x; }) 10000)") == 10000


PIECES = st.sampled_from(
    "a b x: {a}: {a,b?1,...}@c: ( ) [ ] { } = ; . .. ... ? ! - + * / // ++ -> && || == != < <= or if then else let in "
    "with assert rec inherit 1 2.5 \" '' ${ $ \\ , : ./. ~/a <a> http://a true builtins. map # /* */ \n".split(
        " "
    )
)


@settings(max_examples=300, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.text(max_size=60)
    | st.lists(PIECES, max_size=25).map(" ".join)
    | st.lists(PIECES, max_size=25).map("".join)
)
def test_any_text_gives_a_value_or_an_error(text: str) -> None:
    try:
        evaluate(text, steps=20_000)
    except LanguageError as error:
        assert error.message
