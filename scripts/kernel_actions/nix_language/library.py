"""``lib``: the part of nixpkgs' library that functions over lists of build sets may need.

Written anew in the Nix language, by what the reference says of each function
(https://nixos.org/manual/nixpkgs/stable/#sec-functions-library); each is compiled when it is first used.
All other names of the library are ``Unsupported``.
"""

from __future__ import annotations

from collections.abc import Callable

from kernel_actions.nix_language.problems import Unsupported
from kernel_actions.nix_language.values import Opaque, Value

_TRIVIAL = {
    "id": "x: x",
    "const": "x: _: x",
    "flip": "f: x: y: f y x",
    "pipe": "builtins.foldl' (value: function: function value)",
    "min": "x: y: if x < y then x else y",
    "max": "x: y: if x > y then x else y",
    "boolToString": 'x: if x then "true" else "false"',
    "isFunction": "x: builtins.isFunction x || x ? __functor && lib.isFunction (x.__functor x)",
}
_LISTS = {
    "all": "builtins.all",
    "any": "builtins.any",
    "concatLists": "builtins.concatLists",
    "concatMap": "builtins.concatMap",
    "elem": "builtins.elem",
    "elemAt": "builtins.elemAt",
    "filter": "builtins.filter",
    "genList": "builtins.genList",
    "groupBy": "builtins.groupBy",
    "head": "builtins.head",
    "isList": "builtins.isList",
    "length": "builtins.length",
    "map": "map",
    "partition": "builtins.partition",
    "sort": "builtins.sort",
    "tail": "builtins.tail",
    "singleton": "x: [ x ]",
    "forEach": "xs: f: map f xs",
    "optional": "condition: x: if condition then [ x ] else [ ]",
    "optionals": "condition: xs: if condition then xs else [ ]",
    "toList": "x: if builtins.isList x then x else [ x ]",
    "flatten": "x: if builtins.isList x then builtins.concatMap (y: lib.flatten y) x else [ x ]",
    "foldr": """f: end: xs:
        let go = i: if i == builtins.length xs then end else f (builtins.elemAt xs i) (go (i + 1));
        in go 0""",
    "foldl": """f: start: xs:
        let go = i: if i == 0 then start else f (go (i - 1)) (builtins.elemAt xs (i - 1));
        in go (builtins.length xs)""",
    "foldl'": "f: start: builtins.seq start (builtins.foldl' f start)",
    "imap0": "f: xs: builtins.genList (i: f i (builtins.elemAt xs i)) (builtins.length xs)",
    "imap1": "f: xs: builtins.genList (i: f (i + 1) (builtins.elemAt xs i)) (builtins.length xs)",
    "last": """xs:
        if xs == [ ] then throw "lists.last: list must not be empty!"
        else builtins.elemAt xs (builtins.length xs - 1)""",
    "init": """xs:
        if xs == [ ] then throw "lists.init: list must not be empty!"
        else lib.take (builtins.length xs - 1) xs""",
    "sublist": """start: count: xs:
        let
          size = builtins.length xs;
          taken = if start >= size then 0 else if start + count > size then size - start else count;
        in builtins.genList (i: builtins.elemAt xs (i + start)) taken""",
    "take": "count: lib.sublist 0 count",
    "drop": "count: xs: lib.sublist count (builtins.length xs) xs",
    "remove": "x: builtins.filter (y: y != x)",
    "unique": "lib.foldl' (seen: x: if builtins.elem x seen then seen else seen ++ [ x ]) [ ]",
    "subtractLists": "removed: builtins.filter (x: ! builtins.elem x removed)",
    "intersectLists": "kept: builtins.filter (x: builtins.elem x kept)",
    "count": "f: lib.foldl' (n: x: if f x then n + 1 else n) 0",
    "reverseList": """xs:
        let size = builtins.length xs; in builtins.genList (i: builtins.elemAt xs (size - i - 1)) size""",
    "range": "from: to: if from > to then [ ] else builtins.genList (i: from + i) (to - from + 1)",
    "zipListsWith": """f: xs: ys: builtins.genList
        (i: f (builtins.elemAt xs i) (builtins.elemAt ys i))
        (lib.min (builtins.length xs) (builtins.length ys))""",
    "zipLists": "lib.zipListsWith (fst: snd: { inherit fst snd; })",
    "sortOn": """f: xs: map (pair: builtins.elemAt pair 1)
        (builtins.sort (a: b: builtins.head a < builtins.head b) (map (x: [ (f x) x ]) xs))""",
}
_STRINGS = {
    "compareVersions": "builtins.compareVersions",
    "concatStringsSep": "builtins.concatStringsSep",
    "isString": "builtins.isString",
    "replaceStrings": "builtins.replaceStrings",
    "splitVersion": "builtins.splitVersion",
    "stringLength": "builtins.stringLength",
    "substring": "builtins.substring",
    "concatStrings": 'builtins.concatStringsSep ""',
    "concatMapStrings": 'f: xs: builtins.concatStringsSep "" (map f xs)',
    "concatMapStringsSep": "separator: f: xs: builtins.concatStringsSep separator (map f xs)",
    "optionalString": 'condition: text: if condition then text else ""',
    "hasPrefix": "start: text: builtins.substring 0 (builtins.stringLength start) text == start",
    "hasSuffix": """end: text:
        let size = builtins.stringLength text; less = builtins.stringLength end;
        in size >= less && builtins.substring (size - less) size text == end""",
    "removePrefix": """start: text:
        let size = builtins.stringLength start;
        in if builtins.substring 0 size text == start then builtins.substring size (-1) text else text""",
    "removeSuffix": """end: text:
        let size = builtins.stringLength text; less = builtins.stringLength end;
        in if less <= size && end == builtins.substring (size - less) less text
        then builtins.substring 0 (size - less) text else text""",
    # Functions of ``native``, for want of regular expressions.
    "hasInfix": "native.hasInfix",
    "splitString": "native.splitString",
    "versionOlder": "a: b: builtins.compareVersions b a == 1",
    "versionAtLeast": "a: b: ! lib.versionOlder a b",
}
_ATTRIBUTES = {
    "attrNames": "builtins.attrNames",
    "attrValues": "builtins.attrValues",
    "catAttrs": "builtins.catAttrs",
    "getAttr": "builtins.getAttr",
    "hasAttr": "builtins.hasAttr",
    "intersectAttrs": "builtins.intersectAttrs",
    "isAttrs": "builtins.isAttrs",
    "listToAttrs": "builtins.listToAttrs",
    "mapAttrs": "builtins.mapAttrs",
    "removeAttrs": "removeAttrs",
    "zipAttrsWith": "builtins.zipAttrsWith",
    "optionalAttrs": "condition: attributes: if condition then attributes else { }",
    "nameValuePair": "name: value: { inherit name value; }",
    "genAttrs": "names: f: builtins.listToAttrs (map (name: { inherit name; value = f name; }) names)",
    "getAttrs": "names: attributes: lib.genAttrs names (name: attributes.${name})",
    "filterAttrs": """f: attributes: removeAttrs attributes
        (builtins.filter (name: ! f name attributes.${name}) (builtins.attrNames attributes))""",
    "mapAttrsToList": "f: attributes: builtins.attrValues (builtins.mapAttrs f attributes)",
    "mapAttrs'": "f: attributes: builtins.listToAttrs (lib.mapAttrsToList f attributes)",
    "recursiveUpdate": """left: right: builtins.zipAttrsWith
        (name: values:
          let old = builtins.elemAt values 1; new = builtins.head values;
          in if builtins.length values == 1 || ! (builtins.isAttrs old && builtins.isAttrs new) then new
          else lib.recursiveUpdate old new)
        [ right left ]""",
}
_VERSIONS = {
    "splitVersion": "builtins.splitVersion",
    "compareVersions": "builtins.compareVersions",
    "major": "version: builtins.elemAt (builtins.splitVersion version) 0",
    "minor": "version: builtins.elemAt (builtins.splitVersion version) 1",
    "patch": "version: builtins.elemAt (builtins.splitVersion version) 2",
    "majorMinor": 'version: builtins.concatStringsSep "." (lib.take 2 (builtins.splitVersion version))',
}
_NAMESPACES = {
    "attrsets": _ATTRIBUTES,
    "lists": _LISTS,
    "strings": _STRINGS,
    "trivial": _TRIVIAL,
    "versions": _VERSIONS,
}
# What ``lib`` itself has of its namespaces.
_TOP = {**_TRIVIAL, **_LISTS, **_STRINGS, **_ATTRIBUTES}


class Library(Opaque):
    """``lib``, or a namespace of it."""

    __slots__ = ("compile", "known", "made")

    def __init__(
        self, compile_text: Callable[[str], Value], name: str = "lib", known: dict[str, str] | None = None
    ) -> None:
        super().__init__(name)
        self.compile = compile_text
        self.known = _TOP if known is None else known
        self.made: dict[str, Value] = {}
        if known is None:
            for namespace, texts in _NAMESPACES.items():
                self.made[namespace] = Library(compile_text, f"lib.{namespace}", texts)

    def find(self, name: str) -> Value:
        if name not in self.made:
            if name not in self.known:
                raise Unsupported(f"{self.name}.{name[:80]}")
            self.made[name] = self.compile(self.known[name])
        return self.made[name]
