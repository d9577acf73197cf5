"""The JSON Schema of a test report, made from the classes of ``model``.

``python -m kernel_actions.test.schema`` prints it, as it stands in ``docs/test-report.schema.json``.
"""

from __future__ import annotations

import inspect
import json
import types
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from kernel_actions.test import model

ADDRESS = "https://raw.githubusercontent.com/org/kernel-actions/main/docs/test-report.schema.json"


def text() -> str:
    """The file."""
    return json.dumps(schema(), indent=2) + "\n"


def schema() -> dict[str, Any]:
    """The schema of a report, with each class of the model by its name below ``$defs``."""
    named: dict[str, Any] = {}
    report = _of_class(model.TestReport, named)
    report["properties"] = {
        "schema": {"const": model.SCHEMA, "description": "Version of this form."},
        "verdict": {
            "enum": list(get_args(model.Verdict)),
            "description": "passed: at least one selected test ran and passed, none failed, and nothing "
            "else was wrong. untested: nothing was tested, as kernel-actions.toml allows.",
        },
        **report["properties"],
    }
    report["required"] = ["schema", "verdict", *report["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": ADDRESS,
        "title": "Test report",
        **report,
        "$defs": dict(sorted(named.items())),
    }


def _of_class(kind: type, named: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    assert is_dataclass(kind)
    names = [one.name for one in fields(kind)]
    return {
        "type": "object",
        "description": " ".join((inspect.getdoc(kind) or "").split()).replace("``", ""),
        "additionalProperties": False,
        "required": names,
        "properties": {name: _of(hints[name], named) for name in names},
    }


def _of(hint: Any, named: dict[str, Any]) -> dict[str, Any]:
    """The schema of a value of a type that the model uses."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (types.UnionType, Union):
        return {"anyOf": [_of(one, named) for one in inner]}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin is tuple:
        return {"type": "array", "items": _of(inner[0], named)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of(inner[1], named)}
    if is_dataclass(hint):
        assert isinstance(hint, type)
        if hint.__name__ not in named:
            named[hint.__name__] = {}
            named[hint.__name__] = _of_class(hint, named)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    types_of = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
    return {"type": types_of[hint]}


if __name__ == "__main__":
    print(text(), end="")
