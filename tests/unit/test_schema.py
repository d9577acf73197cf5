"""The JSON Schema of build.toml: it and the checker, which are made from one table, agree."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_actions import manifest, schema, toml_file
from kernel_actions.errors import WrongInput
from kernel_actions.schema import Key, List, Named, Table, TextOrTable

from tests.unit.kernels import CUDA

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs" / "build.schema.json").read_text())
FULL: dict[str, Any] = {
    "general": {
        "name": "edge",
        "version": 1,
        "edition": 5,
        "license": "Apache-2.0",
        "upstream": "https://github.com/a/b",
        "source": "git@github.com:a/b.git",
        "backends": ["cpu", "cuda", "rocm", "xpu"],
        "python-depends": ["einops"],
        "kernel-depends": [{"repo-id": "a/b", "version": 1}, {"repo-id": "a/c", "revision": "main"}],
        "hub": {"repo-id": "a/b", "branch": "main"},
        "cuda": {"minver": "12.8", "maxver": "13.0", "python-depends": ["nvidia-cutlass-dsl"]},
        "neuron": {"python-depends": ["nki"]},
        "tpu": {"python-depends": []},
        "xpu": {"python-depends": ["onednn"], "kernel-depends": []},
    },
    "torch": {
        "src": ["a.cpp"],
        "include": ["."],
        "pyext": ["py"],
        "cxx-flags": ["-O3"],
        "minver": "2.10",
        "maxver": "2.12",
        "stable-abi": {"cuda": "2.11"},
    },
    "kernel": {
        "a": {"backend": "cpu", "depends": ["torch"], "src": ["a.cpp"], "cxx-flags": []},
        "b": {
            "backend": "cuda",
            "depends": ["torch", "cutlass_4_0"],
            "src": ["a.cu"],
            "include": [],
            "cuda-capabilities": ["9.0a", "12.0+PTX"],
            "cuda-flags": ["-O3"],
            "cuda-minver": "12.8",
        },
        "c": {"backend": "rocm", "depends": [], "src": [], "rocm-archs": ["gfx942"], "hip-flags": []},
        "d": {"backend": "xpu", "depends": [], "src": [], "sycl-flags": []},
    },
}
NOARCH: dict[str, Any] = {
    "general": {key: FULL["general"][key] for key in ("name", "version", "edition", "license", "backends")},
    "torch-noarch": {"pyext": ["json"], "cuda_capabilities": ["9.0"], "rocm_archs": ["gfx942"], "minver": 2},
}
TVM_FFI: dict[str, Any] = {"general": NOARCH["general"], "tvm-ffi": {"src": ["a.cpp"]}}


def _pattern(_validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[jsonschema.ValidationError]:
    """As ECMAScript and Rust read patterns, where ``$`` is the end alone."""
    if isinstance(value, str) and not re.search(pattern.removesuffix("$") + r"\Z", value):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


# JSON takes 1.0 for a whole number, and TOML does not: editors of TOML tell them apart, and so does this.
VALIDATOR = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    {"pattern": _pattern},
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _checker, value: isinstance(value, int) and not isinstance(value, bool)
    ),
)(SCHEMA)


def _toml(value: Any) -> str:
    """``value`` as TOML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(key)} = {_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        return _text(value)
    return json.dumps(value)


def _text(text: str) -> str:
    """JSON's strings are TOML's, but for what stands beyond 16 bits, and for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _errors(folder: Path, values: dict[str, Any]) -> tuple[str, ...]:
    """What the checker says about ``values`` as build.toml of edition 5."""
    text = "".join(f"{_text(key)} = {_toml(value)}\n" for key, value in values.items())
    (folder / "build.toml").write_bytes(text.encode())
    file = toml_file.read(folder / "build.toml")
    assert file.values == values
    try:
        schema.raise_faults(file, schema.check(file, manifest.BUILD_TOML, manifest.EDITION))
    except WrongInput as error:
        return tuple(map(str, error.all))
    return ()


def test_the_schema_is_one_of_draft_2020_12() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == jsonschema.Draft202012Validator.META_SCHEMA["$id"]


def test_every_key_is_described_and_every_example_is_right() -> None:
    def walk(part: Any) -> Iterator[dict[str, Any]]:
        for name, inner in part.get("properties", {}).items():
            assert inner is False or len(inner["description"]) > 20, name
            yield from (inner, *walk(inner)) if inner else ()
        for keyword in ("patternProperties",):
            for inner in part.get(keyword, {}).values():
                yield from walk(inner)
        if "items" in part:
            yield from walk(part["items"])

    found = list(walk(SCHEMA))
    assert len(found) > 60
    for one in found:
        for example in one.get("examples", ()):
            jsonschema.Draft202012Validator(one).validate(example)
        assert one["description"].endswith(".")


@pytest.mark.parametrize("values", [FULL, NOARCH, TVM_FFI, toml_file.tomllib.loads(CUDA)])
def test_both_accept_what_is_right(tmp_path: Path, values: dict[str, Any]) -> None:
    assert _errors(tmp_path, values) == ()
    VALIDATOR.validate(values)


def _changed(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    values = copy.deepcopy(FULL)
    change(values)
    return values


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v.pop("general"),
        lambda v: v.pop("torch"),
        lambda v: v.update({"tvm-ffi": {"src": []}}),
        lambda v: v.update({"tool": {}}),
        lambda v: v["general"].pop("license"),
        lambda v: v["general"].update({"edition": 4}),
        lambda v: v["general"].update({"version": 1.0}),
        lambda v: v["general"].update({"version": -1}),
        lambda v: v["general"].update({"version": True}),
        lambda v: v["general"].update({"name": "Edge"}),
        lambda v: v["general"].update({"name": "edge\n"}),
        lambda v: v["general"].update({"name": "e" * 65}),
        lambda v: v["general"].update({"license": "a\tb"}),
        lambda v: v["general"].update({"license": "a\u2028b"}),
        lambda v: v["general"].update({"upstream": "ftp://host/a"}),
        lambda v: v["general"].update({"backends": ["cdua"]}),
        lambda v: v["general"].update({"backends": "cuda"}),
        lambda v: v["general"].update({"universal": True}),
        lambda v: v["general"].update({"metal": {}}),
        lambda v: v["general"]["tpu"].update({"kernel-depends": []}),
        lambda v: v["general"].update({"kernel-depends": [{"repo-id": "a/b"}]}),
        lambda v: v["general"].update(
            {"kernel-depends": [{"repo-id": "a/b", "version": 1, "revision": "x"}]}
        ),
        lambda v: v["general"].update({"kernel-depends": [{"repo-id": "a/b", "version": 1, "x": 1}]}),
        lambda v: v["torch"].update({"minver": 2.1}),
        lambda v: v["torch"].update({"stable-abi": {"coda": "2.1"}}),
        lambda v: v["torch"].update({"stable-abi": ["2.1"]}),
        lambda v: v["torch"].update({"src": ["a", 1]}),
        lambda v: v["kernel"].update({"a b": v["kernel"]["a"]}),
        lambda v: v["kernel"].update({"e": 1}),
        lambda v: v["kernel"]["a"].pop("depends"),
        lambda v: v["kernel"]["a"].update({"backend": "tpu"}),
        lambda v: v["kernel"]["a"].update({"cuda-flags": []}),
        lambda v: v["kernel"]["a"].update({"depends": ["tourch"]}),
        lambda v: v["kernel"]["b"].update({"cuda-capabilities": ["9"]}),
    ],
)
def test_both_refuse_what_is_wrong(tmp_path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    values = _changed(change)
    assert len(_errors(tmp_path, values)) == 1
    assert not VALIDATOR.is_valid(values)


def _names(form: Any) -> Iterator[str]:
    if isinstance(form, Table):
        for key in form.keys:
            yield key.name
            yield from _names(key.form)
    elif isinstance(form, TextOrTable):
        yield from _names(form.table)
    elif isinstance(form, List | Named):
        yield from _names(form.of)


_NAMES = sorted(set(_names(manifest.BUILD_TOML)))
_TEXTS = st.one_of(
    st.sampled_from(
        ["cuda", "cpu", "torch", "2.10", "2.13rc1", "9.0a", "a/b", "https://a", "a@b:c", "", "é"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
)
_VALUES = st.recursive(
    st.one_of(_TEXTS, st.integers(-2, 2**63), st.booleans(), st.sampled_from([2.1, 1.0])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(st.one_of(st.sampled_from(_NAMES), _TEXTS), inner, max_size=2),
    ),
    max_leaves=4,
)


def _tables(value: Any) -> list[dict[str, Any]]:
    """All tables in ``value``."""
    inside = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    found = [one for inner in inside for one in _tables(inner)]
    return [value, *found] if isinstance(value, dict) else found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=400)
@given(st.data())
def test_both_say_the_same_of_whatever_is_changed(tmp_path: Path, data: st.DataObject) -> None:
    values = copy.deepcopy(data.draw(st.sampled_from([FULL, NOARCH, TVM_FFI])))
    for _ in range(data.draw(st.integers(1, 2))):
        table = data.draw(st.sampled_from(_tables(values)))
        kind = data.draw(st.sampled_from(["remove", "replace", "add", "rename"]))
        name = data.draw(st.sampled_from(sorted(table))) if table else ""
        if kind == "add" or not table:
            table[data.draw(st.one_of(st.sampled_from(_NAMES), _TEXTS))] = data.draw(_VALUES)
        elif kind == "remove":
            del table[name]
        elif kind == "rename":
            table[data.draw(st.sampled_from(_NAMES))] = table.pop(name)
        else:
            table[name] = data.draw(_VALUES)
    errors = _errors(tmp_path, values)
    assert VALIDATOR.is_valid(values) == (not errors), errors
    assert len(set(errors)) == len(errors)


def test_the_checker_of_other_files_knows_no_editions(tmp_path: Path) -> None:
    table = Table(
        (
            Key("a", schema.Flag(), "Whether a."),
            Key(
                "b", Named("a name", "[a-z]+", "use letters", Table((Key("c", schema.Whole(), "C."),))), "B."
            ),
        )
    )
    (tmp_path / "x.toml").write_text("a = 1\n[b.Z]\n[b.z]\nc = 'x'\nd = 1\n")
    file = toml_file.read(tmp_path / "x.toml")
    with pytest.raises(WrongInput) as error:
        schema.raise_faults(file, schema.check(file, table))
    assert [str(one).partition("x.toml:")[2] for one in error.value.all] == [
        "1:5: a is 1, which is not true or false",
        "2:1: [b] has 'Z', which is not a name (use letters)",
        "4:5: b.z.c is 'x', which is not a whole number of 0 or more",
        "5:1: key 'b.z.d' is not known (one of c)",
    ]
    made = schema.json_schema(table, address="x", title="y", description="z")
    assert made["properties"]["a"] == {"description": "Whether a.", "type": "boolean"}
