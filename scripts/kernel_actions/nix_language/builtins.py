"""The functions of Nix itself: ``builtins``, and those that are in sight without it.

Each behaves as in Nix 2.8 (https://nix.dev/manual/nix/latest/language/builtins), also in what it forces and
in which order. What is missing is ``Unsupported``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cmp_to_key, partial
from typing import Any

from kernel_actions import nix_version
from kernel_actions.nix_language.problems import NixError, Thrown, TooMuch, Unsupported, bytes_of, text_of
from kernel_actions.nix_language.values import (
    ABSENT,
    LARGEST_INTEGER,
    LEAST_INTEGER,
    LONGEST_LIST,
    LONGEST_STRING,
    Builtin,
    Function,
    Machine,
    Opaque,
    PathValue,
    Thunk,
    Unit,
    Value,
    wrong_type,
)

# In sight without `builtins.`; all others are so as well, with two underscores before their name.
_IN_SIGHT = frozenset(
    (
        "abort", "baseNameOf", "break", "derivation", "derivationStrict", "dirOf", "fetchGit",
        "fetchMercurial", "fetchTarball", "fetchTree", "fromTOML", "import", "isNull", "map",
        "placeholder", "removeAttrs", "scopedImport", "throw", "toString",
    )
)  # fmt: skip
# Those of some version of Nix that are not known here.
_OTHERS = frozenset(
    (
        "addDrvOutputDependencies", "addErrorContext", "appendContext", "baseNameOf", "bitAnd",
        "bitOr", "bitXor", "break", "ceil", "convertHash", "currentSystem", "currentTime",
        "derivation", "derivationStrict", "dirOf", "exec", "fetchClosure", "fetchFinalTree",
        "fetchGit", "fetchMercurial", "fetchTarball", "fetchTree", "fetchurl", "filterSource",
        "findFile", "flakeRefToString", "floor", "fromTOML", "genericClosure", "getContext",
        "getEnv", "getFlake", "hasContext", "hashFile", "hashString", "import", "langVersion",
        "match", "nixPath", "nixVersion", "outputOf", "parseDrvName", "parseFlakeRef", "path",
        "pathExists", "placeholder", "readDir", "readFile", "readFileType", "scopedImport", "split",
        "storeDir", "storePath", "toFile", "toPath", "toXML", "traceVerbose",
        "unsafeDiscardOutputDependency", "unsafeDiscardStringContext", "unsafeGetAttrPos", "warn",
    )
)  # fmt: skip
_COMPONENT = re.compile(r"[0-9]+|[^0-9.\-]+")
_JSON_NESTING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
_DEEPEST_JSON = 200


class Builtins(Opaque):
    """The attribute set ``builtins``."""

    __slots__ = ("known",)

    def __init__(self, known: dict[str, Value]) -> None:
        super().__init__("builtins")
        self.known = known

    def find(self, name: str) -> Value:
        if name in self.known:
            return self.known[name]
        if name in _OTHERS:
            raise Unsupported(f"builtins.{name}")
        return ABSENT


def global_names(machine: Machine) -> tuple[dict[str, Value], dict[str, Value]]:
    """The names in sight of every expression, and those that only ``lib`` is written with.

    An ``Unsupported`` stands for what is not known here.
    """
    functions = _Functions(machine)
    known: dict[str, Value] = {"true": True, "false": False, "null": None}
    names = dict(known)
    for name, (arity, run) in functions.table().items():
        known[name] = Builtin(name, arity, run)
        names[_in_sight(name)] = known[name]
    for name in _OTHERS:
        names[_in_sight(name)] = Unsupported(name)
    known["builtins"] = names["builtins"] = Builtins(known)
    native = {
        "hasInfix": Builtin("hasInfix", 2, functions.has_infix),
        "splitString": Builtin("splitString", 2, functions.split_string),
    }
    return names, native


def _in_sight(name: str) -> str:
    return name if name in _IN_SIGHT else f"__{name}"


class _Functions:
    """The functions, by the names of Nix. Arguments are values or thunks."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        # What a thunk of a call runs: the environment is the function and its arguments.
        self.call_one = Unit(lambda environment: machine.apply(environment[0], environment[1]), 3, 4)
        self.call_two = Unit(
            lambda environment: machine.apply(machine.apply(environment[0], environment[1]), environment[2]),
            5,
            4,
        )

    def table(self) -> dict[str, tuple[int, Callable[..., Value]]]:
        machine = self.machine
        one: dict[str, Callable[..., Value]] = {
            "abort": self.abort,
            "attrNames": self.attr_names,
            "attrValues": self.attr_values,
            "concatLists": self.concat_lists,
            "fromJSON": self.from_json,
            "functionArgs": self.function_args,
            "head": self.head,
            "isAttrs": partial(self.is_type, (dict,)),
            "isBool": partial(self.is_type, (bool,)),
            "isFloat": partial(self.is_type, (float,)),
            "isFunction": partial(self.is_type, (Function, Builtin)),
            "isInt": partial(self.is_type, (int,)),
            "isList": partial(self.is_type, (list,)),
            "isNull": partial(self.is_type, (type(None),)),
            "isPath": partial(self.is_type, (PathValue,)),
            "isString": partial(self.is_type, (str,)),
            "length": lambda value: len(machine.items(value)),
            "listToAttrs": self.list_to_attrs,
            "splitVersion": self.split_version,
            "stringLength": lambda value: len(machine.text(value)),
            "tail": self.tail,
            "throw": self.throw,
            "toJSON": self.to_json,
            "toString": lambda value: machine.text(value, True),
            "tryEval": self.try_eval,
            "typeOf": self.type_of,
        }
        two: dict[str, Callable[..., Value]] = {
            "add": lambda left, right: machine.add(*self.numbers(left, right)),
            "all": self.all,
            "any": self.any,
            "catAttrs": self.cat_attrs,
            "compareVersions": self.compare_versions,
            "concatMap": self.concat_map,
            "concatStringsSep": self.concat_strings_sep,
            "deepSeq": self.deep_seq,
            "div": lambda left, right: machine.divide(*self.numbers(left, right)),
            "elem": self.elem,
            "elemAt": self.elem_at,
            "filter": self.filter,
            "genList": self.gen_list,
            "getAttr": self.get_attr,
            "groupBy": self.group_by,
            "hasAttr": self.has_attr,
            "intersectAttrs": self.intersect_attrs,
            "lessThan": self.less_than,
            "map": self.map,
            "mapAttrs": self.map_attrs,
            "mul": lambda left, right: machine.multiply(*self.numbers(left, right)),
            "partition": self.partition,
            "removeAttrs": self.remove_attrs,
            "seq": self.seq,
            "sort": self.sort,
            "sub": lambda left, right: machine.subtract(*self.numbers(left, right)),
            "trace": self.seq,
            "zipAttrsWith": self.zip_attrs_with,
        }
        three = {"foldl'": self.foldl, "replaceStrings": self.replace_strings, "substring": self.substring}
        return {
            name: (arity, run)
            for arity, functions in ((1, one), (2, two), (3, three))
            for name, run in functions.items()
        }

    # Help

    def later(self, function: Value, argument: Value) -> Thunk:
        """The thunk of a call."""
        return Thunk(self.call_one, [function, argument])

    def callable(self, value: Value) -> Value:
        """``value``, which has to be a function or a set that acts as one."""
        value = self.machine.force(value)
        if type(value) in (Function, Builtin):
            return value
        if type(value) is dict and "__functor" in value:
            return value
        raise wrong_type(value, "a function")

    def numbers(self, left: Value, right: Value) -> tuple[int | float, int | float]:
        left = self.machine.force(left)
        right = self.machine.force(right)
        return self.machine.number(left), self.machine.number(right)

    # Types

    def type_of(self, value: Value) -> str:
        value = self.machine.force(value)
        if isinstance(value, Opaque):
            raise Unsupported(f"the type of {value.name}")
        return _TYPES[type(value)]

    def is_type(self, kinds: tuple[type, ...], value: Value) -> bool:
        value = self.machine.force(value)
        if isinstance(value, Opaque):
            raise Unsupported(f"the type of {value.name}")
        return type(value) in kinds

    def function_args(self, value: Value) -> dict[str, Value]:
        value = self.machine.force(value)
        if type(value) is Builtin:
            return {}
        if type(value) is not Function:
            raise wrong_type(value, "a function")
        formals = value.parameters.formals or {}
        self.machine.spend(2 * len(formals))
        return {name: default is not None for name, default in formals.items()}

    # Failures and strictness

    def throw(self, message: Value) -> Value:
        raise Thrown(f"the text throws: {text_of(self.machine.text(message))[:1000]}")

    def abort(self, message: Value) -> Value:
        raise NixError(f"the text aborts: {text_of(self.machine.text(message))[:1000]}")

    def try_eval(self, value: Value) -> dict[str, Value]:
        frames = self.machine.frames
        try:
            return {"success": True, "value": self.machine.force(value)}
        except Thrown:
            self.machine.frames = frames
            return {"success": False, "value": False}

    def seq(self, first: Value, second: Value) -> Value:
        self.machine.force(first)
        return self.machine.force(second)

    def deep_seq(self, first: Value, second: Value) -> Value:
        self.machine.deep(first)
        return self.machine.force(second)

    # Lists

    def map(self, function: Value, values: Value) -> list[Value]:
        items = self.machine.items(values)
        self.machine.spend(4 * len(items))
        return [self.later(function, item) for item in items]

    def filter(self, predicate: Value, values: Value) -> list[Value]:
        machine = self.machine
        items = machine.items(values)
        machine.spend(len(items))
        return [item for item in items if machine.boolean(machine.apply(predicate, item))]

    def partition(self, predicate: Value, values: Value) -> dict[str, Value]:
        machine = self.machine
        predicate = self.callable(predicate)
        right: list[Value] = []
        wrong: list[Value] = []
        for item in machine.items(values):
            machine.spend(1)
            machine.force(item)
            (right if machine.boolean(machine.apply(predicate, item)) else wrong).append(item)
        return {"right": right, "wrong": wrong}

    def group_by(self, function: Value, values: Value) -> dict[str, Value]:
        machine = self.machine
        function = self.callable(function)
        groups: dict[str, Value] = {}
        for item in machine.items(values):
            machine.spend(2)
            name = machine.string(machine.apply(function, item))
            machine.spend_string(len(name))
            groups.setdefault(name, []).append(item)
        return groups

    def any(self, predicate: Value, values: Value) -> bool:
        return self.find(predicate, values, True)

    def all(self, predicate: Value, values: Value) -> bool:
        return not self.find(predicate, values, False)

    def find(self, predicate: Value, values: Value, wanted: bool) -> bool:
        machine = self.machine
        predicate = self.callable(predicate)
        for item in machine.items(values):
            machine.spend(1)
            if machine.boolean(machine.apply(predicate, item)) is wanted:
                return True
        return False

    def elem(self, value: Value, values: Value) -> bool:
        for item in self.machine.items(values):
            self.machine.spend(1)
            if self.machine.equal_item(value, item):
                return True
        return False

    def elem_at(self, values: Value, index: Value) -> Value:
        position = self.machine.integer(index)
        items = self.machine.items(values)
        if not 0 <= position < len(items):
            raise NixError(f"list index {position} is out of bounds")
        return self.machine.force(items[position])

    def head(self, values: Value) -> Value:
        items = self.machine.items(values)
        if not items:
            raise NixError("'head' of an empty list")
        return self.machine.force(items[0])

    def tail(self, values: Value) -> list[Value]:
        items = self.machine.items(values)
        if not items:
            raise NixError("'tail' of an empty list")
        self.machine.spend(len(items))
        return items[1:]

    def foldl(self, function: Value, start: Value, values: Value) -> Value:
        machine = self.machine
        function = self.callable(function)
        found = start
        for item in machine.items(values):
            machine.spend(1)
            found = machine.force(machine.apply(machine.apply(function, found), item))
        return machine.force(found)

    def concat_lists(self, values: Value) -> list[Value]:
        lists = [self.machine.items(item) for item in self.machine.items(values)]
        return self.machine.concatenate(lists)

    def concat_map(self, function: Value, values: Value) -> list[Value]:
        machine = self.machine
        function = self.callable(function)
        lists = []
        for item in machine.items(values):
            machine.spend(1)
            lists.append(machine.items(machine.apply(function, item)))
        return machine.concatenate(lists)

    def gen_list(self, function: Value, length: Value) -> list[Value]:
        count = self.machine.integer(length)
        if count < 0:
            raise NixError(f"cannot create a list of size {count}")
        if count > LONGEST_LIST:
            raise TooMuch(f"a list of more than {LONGEST_LIST} items")
        self.machine.spend(4 * count)
        return [self.later(function, index) for index in range(count)]

    def sort(self, comparator: Value, values: Value) -> list[Value]:
        machine = self.machine
        comparator = self.callable(comparator)
        items = machine.items(values)
        machine.spend(2 * len(items))
        for item in items:
            machine.force(item)

        def compare(left: Value, right: Value) -> int:
            # `sorted` asks only whether one comes before the other, as Nix does.
            return -1 if machine.boolean(machine.apply(machine.apply(comparator, left), right)) else 0

        return sorted(items, key=cmp_to_key(compare))

    def less_than(self, left: Value, right: Value) -> bool:
        return self.machine.less(left, right)

    # Attribute sets

    def sorted_names(self, attributes: dict[str, Value]) -> list[str]:
        self.machine.spend(2 * len(attributes))
        return sorted(attributes)

    def attr_names(self, attributes: Value) -> list[Value]:
        return self.sorted_names(self.machine.attributes(attributes))

    def attr_values(self, attributes: Value) -> list[Value]:
        found = self.machine.attributes(attributes)
        return [found[name] for name in self.sorted_names(found)]

    def has_attr(self, name: Value, attributes: Value) -> bool:
        name = self.machine.string(name)
        found = self.machine.force(attributes)
        if isinstance(found, Opaque):
            return found.find(name) is not ABSENT
        return name in self.machine.attributes(found)

    def get_attr(self, name: Value, attributes: Value) -> Value:
        name = self.machine.string(name)
        found = self.machine.force(attributes)
        if isinstance(found, Opaque):
            value = found.find(name)
        else:
            value = self.machine.attributes(found).get(name, ABSENT)
        if value is ABSENT:
            raise NixError(f"attribute '{name[:80]}' missing")
        return self.machine.force(value)

    def remove_attrs(self, attributes: Value, names: Value) -> dict[str, Value]:
        found = self.machine.attributes(attributes)
        items = self.machine.items(names)
        self.machine.spend(2 * len(found) + len(items))
        removed = {self.machine.string(name) for name in items}
        return {name: value for name, value in found.items() if name not in removed}

    def intersect_attrs(self, left: Value, right: Value) -> dict[str, Value]:
        kept = self.machine.attributes(left)
        found = self.machine.attributes(right)
        self.machine.spend(2 * min(len(kept), len(found)))
        if len(kept) < len(found):
            return {name: found[name] for name in kept if name in found}
        return {name: value for name, value in found.items() if name in kept}

    def map_attrs(self, function: Value, attributes: Value) -> dict[str, Value]:
        found = self.machine.attributes(attributes)
        self.machine.spend(5 * len(found))
        return {name: Thunk(self.call_two, [function, name, value]) for name, value in found.items()}

    def cat_attrs(self, name: Value, sets: Value) -> list[Value]:
        wanted = self.machine.string(name)
        found = []
        for item in self.machine.items(sets):
            self.machine.spend(1)
            attributes = self.machine.attributes(item)
            if wanted in attributes:
                found.append(attributes[wanted])
        return found

    def zip_attrs_with(self, function: Value, sets: Value) -> dict[str, Value]:
        function = self.callable(function)
        values: dict[str, list[Value]] = {}
        for item in self.machine.items(sets):
            attributes = self.machine.attributes(item)
            self.machine.spend(5 * len(attributes) + 1)
            for name, value in attributes.items():
                values.setdefault(name, []).append(value)
        return {name: Thunk(self.call_two, [function, name, found]) for name, found in values.items()}

    def list_to_attrs(self, values: Value) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for item in self.machine.items(values):
            self.machine.spend(2)
            attributes = self.machine.attributes(item)
            if "name" not in attributes:
                raise NixError("attribute 'name' missing")
            name = self.machine.string(attributes["name"])
            self.machine.spend_string(len(name))
            if name not in found:
                # The first of a name is taken.
                if "value" not in attributes:
                    raise NixError("attribute 'value' missing")
                found[name] = attributes["value"]
        return found

    # Strings

    def compare_versions(self, left: Value, right: Value) -> int:
        first = self.machine.string(left)
        second = self.machine.string(right)
        self.machine.spend(len(first) + len(second))
        return nix_version.compare(first, second)

    def split_version(self, version: Value) -> list[Value]:
        text = self.machine.string(version)
        self.machine.spend(len(text))
        return _COMPONENT.findall(text)

    def concat_strings_sep(self, separator: Value, values: Value) -> str:
        between = self.machine.string(separator)
        pieces: list[str] = []
        for item in self.machine.items(values):
            self.machine.spend(1)
            pieces.append(self.machine.text(item))
        return self.machine.join(pieces, between)

    def substring(self, start: Value, length: Value, value: Value) -> str:
        first = self.machine.integer(start)
        count = self.machine.integer(length)
        text = self.machine.text(value)
        if first < 0:
            raise NixError("negative start position in 'substring'")
        found = text[first:] if count < 0 else text[first : first + count]
        self.machine.spend_string(len(found))
        return found

    def replace_strings(self, olds: Value, news: Value, value: Value) -> str:
        machine = self.machine
        from_items = machine.items(olds)
        to_items = machine.items(news)
        if len(from_items) != len(to_items):
            raise NixError("the lists of 'replaceStrings' have different lengths")
        machine.spend(2 * len(from_items))
        from_texts = [machine.string(item) for item in from_items]
        to_texts = [machine.string(item) for item in to_items]
        pairs = list(zip(from_texts, to_texts, strict=True))
        # What it may take to compare all of them with one place of the text.
        cost = 2 + len(pairs) // 2 + sum(map(len, from_texts)) // 64
        text = machine.string(value)
        pieces: list[str] = []
        length = 0
        position = 0
        while position <= len(text):
            machine.spend(cost)
            for old, new in pairs:
                if text.startswith(old, position):
                    pieces.append(new)
                    length += len(new)
                    if not old:
                        pieces.append(text[position : position + 1])
                    position += len(old) or 1
                    break
            else:
                pieces.append(text[position : position + 1])
                position += 1
            if length > LONGEST_STRING:
                break
        return machine.join(pieces)

    def has_infix(self, part: Value, value: Value) -> bool:
        """``lib.hasInfix``."""
        wanted = self.machine.string(part)
        text = self.machine.text(value)
        self.machine.spend_string(max(len(wanted), len(text)))
        return wanted in text

    def split_string(self, separator: Value, value: Value) -> list[Value]:
        """``lib.splitString``."""
        between = self.machine.text(separator, True)
        text = self.machine.text(value)
        if not between:
            raise Unsupported("lib.splitString of no separator")
        self.machine.spend(len(text))
        return list(text.split(between))

    # JSON

    def to_json(self, value: Value) -> str:
        pieces: list[str] = []
        self.write_json(value, pieces)
        return self.machine.join(pieces)

    def write_json(self, value: Value, pieces: list[str]) -> None:
        machine = self.machine
        machine.spend(4)
        value = machine.force(value)
        kind = type(value)
        if value is None:
            pieces.append("null")
        elif kind is bool:
            pieces.append("true" if value else "false")
        elif kind is int:
            pieces.append(str(value))
        elif kind is str:
            machine.spend_string(len(value))
            pieces.append(_json_string(value))
        elif kind is list:
            machine.enter(4)
            pieces.append("[")
            for index, item in enumerate(value):
                pieces.append("," if index else "")
                self.write_json(item, pieces)
            pieces.append("]")
            machine.frames += 4
        elif kind is dict:
            machine.enter(4)
            if "__toString" in value:
                pieces.append(_json_string(machine.text(value)))
            elif "outPath" in value:
                self.write_json(value["outPath"], pieces)
            else:
                self.write_json_set(value, pieces)
            machine.frames += 4
        elif kind is Function or kind is Builtin:
            raise NixError("cannot convert a function to JSON")
        else:
            # Versions of Nix differ in how they write floats.
            shown = value.name if isinstance(value, Opaque) else "a float" if kind is float else "a path"
            raise Unsupported(f"{shown} as JSON")

    def write_json_set(self, value: dict[str, Value], pieces: list[str]) -> None:
        pieces.append("{")
        for index, name in enumerate(self.sorted_names(value)):
            self.machine.spend_string(len(name))
            pieces.append(f"{',' if index else ''}{_json_string(name)}:")
            self.write_json(value[name], pieces)
        pieces.append("}")

    def from_json(self, value: Value) -> Value:
        import json

        text = self.machine.string(value)
        self.machine.spend(len(text))
        depth = deepest = 0
        for part in _JSON_NESTING.finditer(text):
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(part.group(), 0)
            deepest = max(deepest, depth)
        if deepest > _DEEPEST_JSON:
            raise TooMuch("JSON that is nested too deeply")
        try:
            self.machine.enter(3 * deepest)
            found = self.of_json(json.loads(text_of(text), parse_constant=_refuse, parse_int=_json_integer))
            self.machine.frames += 3 * deepest
            return found
        except (ValueError, OverflowError) as error:
            raise NixError(f"cannot parse JSON: {error}") from error

    def of_json(self, value: Any) -> Value:
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise NixError("cannot parse JSON: a lone surrogate") from error
            return bytes_of(value)
        if isinstance(value, list):
            return [self.of_json(item) for item in value]
        if isinstance(value, dict):
            return {bytes_of(name): self.of_json(item) for name, item in value.items()}
        return value


_TYPES = {
    int: "int",
    float: "float",
    bool: "bool",
    str: "string",
    list: "list",
    dict: "set",
    type(None): "null",
    Function: "lambda",
    Builtin: "lambda",
    PathValue: "path",
}
_JSON_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_JSON_ESCAPED = re.compile(r'["\\\x00-\x1f]')


def _json_string(text: str) -> str:
    def escape(found: re.Match[str]) -> str:
        character = found.group()
        return _JSON_ESCAPES.get(character) or f"\\u{ord(character):04x}"

    return f'"{_JSON_ESCAPED.sub(escape, text)}"'


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _json_integer(text: str) -> int | float:
    value = int(text) if len(text) < 30 else 2**64
    if LEAST_INTEGER <= value <= LARGEST_INTEGER:
        return value
    raise NixError("a number in JSON that is too large")
