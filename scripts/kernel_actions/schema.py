"""Which keys a TOML file has: one table of them serves what checks files and what editors read.

A file is described by a ``Table`` of keys (``Key``), each with the form of its value. ``check`` says all that
is wrong with a file, with its place; ``json_schema`` writes the same table as JSON Schema. Rules that
are about several keys are ``Table.one_of`` and ``Key.only_for``, so both know them too. What JSON Schema
cannot say: it takes a number such as ``1.0`` for a whole one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kernel_actions import console
from kernel_actions.errors import Place, WrongInput, raise_all
from kernel_actions.named_tuple import NamedTuple
from kernel_actions.toml_file import KeyPath, TomlFile

# More errors than these nobody reads, and a hostile file has a hundred thousand.
MOST_ERRORS = 50
# As large as a number of other programs can be.
LARGEST_NUMBER = 2**63 - 1
# What no text of such a file needs, and no generated file could hold: control characters and line ends.
_CONTROL = r"\u0000-\u001f\u007f-\u009f\u2028\u2029"
# The pattern of any text but an empty one.
NOT_EMPTY = f"[^{_CONTROL}]+"
# Longer names are not compared with those that are known, and more than so many of a table neither.
_LONGEST_NAME = 100
_MOST_NAMES = 50


class Text(NamedTuple):
    """A string: one of ``choices``, or what matches ``pattern`` as a whole.

    ``what`` describes it with its article, and ``hint`` says how to write one. ``pattern`` is one that
    Python and ECMAScript read alike. ``suggestions`` are what editors may propose.
    """

    what: str = "a string"
    pattern: str = ""
    hint: str = ""
    longest: int = 0
    choices: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()


class Whole(NamedTuple):
    """A whole number from ``least`` to ``most``, or one of ``choices``."""

    what: str = "a whole number of 0 or more"
    hint: str = ""
    choices: tuple[int, ...] = ()
    least: int = 0
    most: int = LARGEST_NUMBER


class Flag(NamedTuple):
    """True or false."""

    what: str = "true or false"


class Anything(NamedTuple):
    """A value that nobody reads."""


class Table(NamedTuple):
    """A table with known keys.

    Of the keys ``one_of`` a table has exactly one; before the edition ``one_of_from``, at most one.
    ``switch`` is the key whose value decides which others the table may have (``Key.only_for``).
    """

    keys: tuple[Key, ...]
    one_of: tuple[str, ...] = ()
    one_of_from: int = 0
    one_of_hint: str = ""
    switch: str = ""
    what: str = "a table"


class Named(NamedTuple):
    """A table whose keys are names that match ``pattern``, with values of one form.

    ``name`` describes a name with its article.
    """

    name: str
    pattern: str
    hint: str
    of: Table | TextOrList | TextsOrTable
    what: str = "a table of tables"


class List(NamedTuple):
    """A list whose entries are all of one form."""

    of: Text | Table
    what: str = "a list of strings"


class TextOrList(NamedTuple):
    """A string, or a list of them with ``least`` entries or more."""

    text: Text
    what: str
    hint: str = ""
    least: int = 0


class TextOrTable(NamedTuple):
    """A string, or since the edition ``table_from`` a table."""

    text: Text
    table: Table
    table_from: int
    what: str


class TextsOrTable(NamedTuple):
    """A string, a list of them, or a table."""

    texts: TextOrList
    table: Table


Form = Text | Whole | Flag | Anything | Table | Named | List | TextOrList | TextOrTable | TextsOrTable


class Key(NamedTuple):
    """A key of a table.

    ``description`` is what editors show. Editions from ``required_from`` on require the key (0: none);
    ``first`` and ``last`` are the editions that know it (0: no bound), and ``instead`` is what later
    editions have. ``only_for`` are the values of the table's ``switch`` with which the key may stand.
    ``example`` is a value of it. Nobody reads the value of one that ``is_ignored``.
    """

    name: str
    form: Form
    description: str
    required_from: int = 0
    first: int = 0
    last: int = 0
    instead: str = ""
    only_for: tuple[str, ...] = ()
    example: Any = None
    is_ignored: bool = False

    def is_in(self, edition: int) -> bool:
        """Whether ``edition`` has this key."""
        return self.first <= edition and (not self.last or edition <= self.last)

    def is_required(self, edition: int) -> bool:
        """Whether ``edition`` requires this key."""
        return bool(self.required_from) and edition >= self.required_from


class Fault(NamedTuple):
    """Something wrong with a key, or with its value (``is_of_value``), or a key that a table lacks.

    Where ``known`` names are given, the repair names the one nearest to ``name``.
    """

    path: KeyPath
    what: str
    repair: str = ""
    is_of_value: bool = False
    name: str = ""
    known: tuple[str, ...] = ()

    def error(self, file: TomlFile) -> WrongInput:
        """The error for people."""
        place = file.value_place(self.path) if self.is_of_value else file.place(self.path)
        if place.line is None:
            place = Place(place.path, 1, 1)
        repair = suggestion(self.name, self.known) if self.known else self.repair
        return WrongInput(self.what, where=place, repair=repair)


def raise_faults(file: TomlFile, faults: Iterable[Fault]) -> None:
    """Raise one ``WrongInput`` with all ``faults``, in the order of their places, if there is one.

    The first is the error, and its ``others`` are the further ones; of very many, the last one counts
    those that are left out.
    """
    found = iter(faults)
    one = next(found, None)
    if one is None:
        return
    import heapq  # Not at the top: most files have nothing wrong.

    count = 1

    def counted() -> Iterator[Fault]:
        nonlocal count
        yield one
        for fault in found:
            count += 1
            yield fault

    first = heapq.nsmallest(
        MOST_ERRORS, counted(), key=lambda one: file.offset(one.path, of_value=one.is_of_value)
    )
    errors = list({str(error): error for error in (fault.error(file) for fault in first)}.values())
    if count > MOST_ERRORS:
        more = console.counted(count - MOST_ERRORS, "more error")
        what = f"has {more} than the {MOST_ERRORS} that are listed"
        errors.append(WrongInput(what, where=Place(file.path)))
    raise_all(errors)


def nearest(name: str, known: Sequence[str]) -> str:
    """The name of ``known`` that ``name`` is probably meant to be; empty if there is none."""
    if not known or len(name) > _LONGEST_NAME:
        return ""
    import difflib

    for spelling in (name, name.lower().replace("_", "-")):
        if close := difflib.get_close_matches(spelling, known, n=1):
            return close[0]
    return ""


def suggestion(name: str, known: Sequence[str]) -> str:
    """What to do about ``name``, which is none of ``known``."""
    close = nearest(name, known)
    return f"did you mean {close}?" if close else f"one of {', '.join(known)}"


def shown(value: str) -> str:
    """A string in a message, which a long one must not fill."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def dotted(path: KeyPath) -> str:
    """The name of a key in a message. The entry of a list has that of the list: its place says which."""
    text = ".".join(part for part in path if isinstance(part, str))
    return text if len(text) <= 100 else text[:97] + "..."


def check(file: TomlFile, table: Table, edition: int = 0) -> Iterator[Fault]:
    """All that is wrong with ``file``, whose keys are those of ``table`` in ``edition``."""
    yield from _check_table(file, (), file.values, table, edition)


def _check_table(
    file: TomlFile,
    path: KeyPath,
    values: Mapping[str, Any],
    table: Table,
    edition: int,
    is_whole: bool = True,
) -> Iterator[Fault]:
    """What is wrong with a table; where it ``is_whole``, also what it lacks."""
    known = {key.name: key for key in table.keys if key.is_in(edition)}
    names = tuple(known)
    others = {key.name: key for key in table.keys if key.name not in known}
    unknown = [name for name in values if name not in known and name not in others][:_MOST_NAMES]
    choice = values.get(table.switch) if table.switch else None
    is_chosen = table.switch and choice in _choices(known[table.switch].form)
    for name, value in values.items():
        inner = (*path, name)
        key = known.get(name)
        if key is None and name in others:
            yield _of_another_edition(inner, others[name], edition)
        elif key is None:
            yield Fault(inner, f"key {shown(dotted(inner))} is not known", name=name, known=names)
        elif is_chosen and key.only_for and choice not in key.only_for:
            what = f"key {shown(dotted(inner))} is for {table.switch} {' and '.join(key.only_for)} alone"
            yield Fault(inner, what, repair=f"remove it: this {table.switch} is {choice}")
        elif isinstance(key.form, Table) and isinstance(value, dict):
            # Where [genral] and [general.hub] stand, the former has what the latter implies.
            yield from _check_table(file, inner, value, key.form, edition, not nearest(name, unknown))
        else:
            yield from _check_value(file, inner, key.form, value, edition)
    if not is_whole:
        return
    for key in known.values():
        # A key that is misspelt is not missing as well.
        if key.is_required(edition) and key.name not in values and not nearest(key.name, unknown):
            yield _missing(path, key, edition)
    yield from _check_one_of(path, values, unknown, table, edition)


def _choices(form: Form) -> tuple[str, ...]:
    return form.choices if isinstance(form, Text) else ()


def _check_one_of(
    path: KeyPath, values: Mapping[str, Any], unknown: Sequence[str], table: Table, edition: int
) -> Iterator[Fault]:
    def name(one: str) -> str:
        return one if path else f"[{one}]"

    has = f"{dotted(path)} has" if path else "has"
    found = [one for one in values if one in table.one_of]
    if len(found) > 1:
        what = f"{has} {name(found[0])} and {name(found[1])}"
        yield Fault((*path, found[1]), what, repair=table.one_of_hint)
    elif table.one_of and not found and edition >= table.one_of_from:
        if any(nearest(one, unknown) for one in table.one_of):
            return
        what = f"{has} none of {', '.join(map(name, table.one_of))}"
        yield Fault(path, what, repair=table.one_of_hint)


def _missing(path: KeyPath, key: Key, edition: int) -> Fault:
    if isinstance(key.form, Table):
        required = [one.name for one in key.form.keys if one.is_required(edition)]
        what = f"has no [{dotted((*path, key.name))}] section"
        return Fault(path, what, repair=f"add it with {', '.join(required)}")
    around = dotted(path) if path and isinstance(path[-1], int) else f"[{dotted(path)}]"
    return Fault(path, f"{around} has no {key.name}", repair=_example(key))


def _example(key: Key) -> str:
    if key.example is None:
        return f"add {key.name} = …"
    import json

    # Strings, numbers and lists of them are written in TOML as in JSON.
    return f"as in {key.name} = {json.dumps(key.example)}"


def _of_another_edition(path: KeyPath, key: Key, edition: int) -> Fault:
    if edition < key.first:
        return Fault(
            path,
            f"key {shown(dotted(path))} is of edition {key.first}, and this file is of edition {edition}",
            repair=UPDATE,
        )
    return Fault(path, f"key {shown(dotted(path))} is of edition {key.last}", repair=key.instead)


# How a build.toml comes to a later edition.
UPDATE = "run `kernel-builder update-build`"


def _check_value(file: TomlFile, path: KeyPath, form: Form, value: Any, edition: int) -> Iterator[Fault]:
    if isinstance(form, Text):
        yield from _check_text(file, path, form, value)
    elif isinstance(form, Table):
        if isinstance(value, dict):
            yield from _check_table(file, path, value, form, edition)
        else:
            yield _wrong(file, path, value, form.what)
    elif isinstance(form, List):
        if isinstance(value, list):
            for index, entry in enumerate(value):
                yield from _check_value(file, (*path, index), form.of, entry, edition)
        else:
            yield _wrong(file, path, value, form.what, f'write ["{value}"]' if _is_short(value) else "")
    elif isinstance(form, Whole):
        yield from _check_whole(file, path, form, value)
    elif isinstance(form, Flag):
        if not isinstance(value, bool):
            yield _wrong(file, path, value, form.what)
    elif isinstance(form, Named):
        yield from _check_named(file, path, form, value, edition)
    elif isinstance(form, TextOrList):
        if isinstance(value, list) and len(value) >= form.least:
            for index, entry in enumerate(value):
                yield from _check_text(file, (*path, index), form.text, entry)
        elif isinstance(value, str):
            yield from _check_text(file, path, form.text, value)
        else:
            yield _wrong(file, path, value, form.what, form.hint)
    elif isinstance(form, TextsOrTable):
        known = [key.name for key in form.table.keys]
        # As of a name with dots and without quotes, whose last part was to be part of it.
        is_meant = isinstance(value, dict) and any(nearest(name, known) for name in list(value)[:_MOST_NAMES])
        yield from _check_value(file, path, form.table if is_meant else form.texts, value, edition)
    elif isinstance(form, TextOrTable):
        if not isinstance(value, dict):
            yield from _check_text(file, path, form.text, value)
        elif edition < form.table_from:
            what = f"{dotted(path)} is a table, which is of edition {form.table_from}"
            yield Fault(path, what, repair=UPDATE, is_of_value=True)
        else:
            yield from _check_table(file, path, value, form.table, edition)


def _check_whole(file: TomlFile, path: KeyPath, form: Whole, value: Any) -> Iterator[Fault]:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number and value > LARGEST_NUMBER:
        yield _wrong(file, path, value, f"{LARGEST_NUMBER} or less")
    elif (
        not is_number or not form.least <= value <= form.most or (form.choices and value not in form.choices)
    ):
        is_text = isinstance(value, str) and re.fullmatch("[0-9]{1,18}", value)
        yield _wrong(file, path, value, form.what, f"write {value} without quotes" if is_text else form.hint)


def _check_text(file: TomlFile, path: KeyPath, form: Text, value: Any) -> Iterator[Fault]:
    if not isinstance(value, str):
        repair = f"one of {', '.join(form.choices)}" if form.choices else form.hint
        written = file.written(path) if isinstance(value, int | float) else ""
        # Quotes alone are what it lacks, as in minver = 2.10.
        if written and not form.choices and re.fullmatch(form.pattern or ".{1,64}", written):
            repair = f'write "{written}"'
            if isinstance(value, float) and str(value) != written:
                repair += f": without quotes it is the number {value}"
        yield _wrong(file, path, value, form.what, repair)
    elif not value.isprintable() and (found := re.search(f"[{_CONTROL}]", value)):
        what = f"{dotted(path)} has the control character {found.group()!r}"
        yield Fault(path, what, repair="remove it", is_of_value=True)
    elif form.choices:
        if value not in form.choices:
            what = _says(path, shown(value), form.what)
            yield Fault(path, what, is_of_value=True, name=value, known=form.choices)
    elif form.pattern and not re.fullmatch(form.pattern, value):
        yield Fault(path, _says(path, shown(value), form.what), repair=form.hint, is_of_value=True)
    elif form.longest and len(value) > form.longest:
        what = f"{dotted(path)} has {console.counted(len(value), 'character')}"
        yield Fault(path, what, repair=f"use {form.longest} or fewer", is_of_value=True)


def _check_named(file: TomlFile, path: KeyPath, form: Named, value: Any, edition: int) -> Iterator[Fault]:
    if not isinstance(value, dict):
        yield _wrong(file, path, value, form.what)
        return
    for name, inner in value.items():
        if not re.fullmatch(form.pattern, name):
            what = f"[{dotted(path)}] has {shown(name)}, which is not {form.name}"
            yield Fault((*path, name), what, repair=form.hint)
        else:
            yield from _check_value(file, (*path, name), form.of, inner, edition)


def _is_short(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 40 and '"' not in value and value.isprintable()


def _wrong(file: TomlFile, path: KeyPath, value: Any, what: str, repair: str = "") -> Fault:
    """That ``value`` is not ``what``."""
    if isinstance(value, str):
        text = shown(value)
    elif isinstance(value, dict | list):
        text = "a table" if isinstance(value, dict) else "a list" if value else "an empty list"
    else:
        text = file.written(path)[:60]
    return Fault(path, _says(path, text, what), repair=repair, is_of_value=True)


def _says(path: KeyPath, text: str, what: str) -> str:
    verb = "has" if isinstance(path[-1], int) else "is"
    return f"{dotted(path)} {verb} {text}, which is not {what}"


def json_schema(
    table: Table, edition: int = 0, *, address: str, title: str, description: str
) -> dict[str, Any]:
    """The JSON Schema of files with the keys of ``table`` in ``edition``, in plain words of draft
    2020-12 that editors of TOML know. ``address`` is its ``$id``."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": address,
        "title": title,
        "description": description,
        **_table_schema(table, edition),
    }


def _table_schema(table: Table, edition: int) -> dict[str, Any]:
    keys = [key for key in table.keys if key.is_in(edition)]
    schema: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "required": [key.name for key in keys if key.is_required(edition)],
        "properties": {key.name: _key_schema(key, edition) for key in keys},
    }
    if not schema["required"]:
        del schema["required"]
    if table.one_of:
        schema["oneOf"] = [{"required": [name]} for name in table.one_of]
    switch = next((key for key in keys if key.name == table.switch), None)
    if switch is not None:
        schema["allOf"] = [
            {
                "if": {"properties": {switch.name: {"enum": [choice]}}, "required": [switch.name]},
                "then": {"properties": {key.name: False for key in others}},
            }
            for choice in _choices(switch.form)
            if (others := [key for key in keys if key.only_for and choice not in key.only_for])
        ]
    return schema


def _key_schema(key: Key, edition: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": key.description}
    if key.is_ignored:
        schema["deprecated"] = True
    schema |= _form_schema(key.form, edition)
    if key.example is not None:
        schema["examples"] = [key.example]
    return schema


def _form_schema(form: Form, edition: int) -> dict[str, Any]:
    if isinstance(form, Table):
        return _table_schema(form, edition)
    if isinstance(form, Named):
        return {
            "type": "object",
            "additionalProperties": False,
            "patternProperties": {f"^{form.pattern}$": _form_schema(form.of, edition)},
        }
    if isinstance(form, List):
        return {"type": "array", "items": _form_schema(form.of, edition)}
    if isinstance(form, TextOrList):
        several = {"type": "array", "items": _text_schema(form.text), "minItems": form.least}
        return {"anyOf": [_text_schema(form.text), several]}
    if isinstance(form, TextsOrTable):
        texts = _form_schema(form.texts, edition)["anyOf"]
        return {"anyOf": [*texts, _table_schema(form.table, edition)]}
    if isinstance(form, TextOrTable):
        return {"anyOf": [_form_schema(form.text, edition), _table_schema(form.table, edition)]}
    if isinstance(form, Whole):
        if form.choices:
            return {"type": "integer", "enum": list(form.choices)}
        return {"type": "integer", "minimum": form.least, "maximum": form.most}
    if isinstance(form, Flag):
        return {"type": "boolean"}
    if isinstance(form, Text):
        return _text_schema(form)
    return {}


def _text_schema(form: Text) -> dict[str, Any]:
    if form.choices:
        return {"type": "string", "enum": list(form.choices)}
    schema: dict[str, Any] = {"type": "string", "pattern": f"^(?:{form.pattern or f'[^{_CONTROL}]*'})$"}
    if form.longest:
        schema["maxLength"] = form.longest
    if form.suggestions:
        schema["examples"] = list(form.suggestions)
    return schema
