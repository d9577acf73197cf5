"""Reading a list of attribute sets that is written out, such as the builder's ``versions.nix``."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from kernel_actions.named_tuple import NamedTuple
from kernel_actions.nix_language.evaluator import Evaluation
from kernel_actions.nix_language.parser import parse
from kernel_actions.nix_language.problems import Unsupported, text_of
from kernel_actions.nix_language.syntax import (
    AttributeSet,
    Constant,
    Expression,
    Lambda,
    ListOf,
    Variable,
)

_NAMED = {"true": True, "false": False, "null": None}


class LiteralSet(NamedTuple):
    """An attribute set of strings, numbers, booleans, ``null`` and lists of them.

    ``line`` is where it begins, ``lines`` where each of its attributes stands.
    """

    values: dict[str, Any]
    line: int
    lines: dict[str, int]


def read_sets(text: str) -> list[LiteralSet] | None:
    """The sets of the list that ``text`` is; ``None`` when it is a function instead.

    Raises ``NixSyntaxError``, ``TooMuch``, and ``Unsupported`` when anything would have to be evaluated.
    """
    evaluation = Evaluation(text)
    with evaluation.running():
        expression, _ = parse(evaluation.source)
        if isinstance(expression, Lambda):
            return None
        if not isinstance(expression, ListOf):
            raise Unsupported("what is not a list", getattr(expression, "offset", 0))
        starts = [index for index, character in enumerate(evaluation.source) if character == "\n"]
        return [_read_set(item, starts, expression.offset) for item in expression.items]


def _read_set(node: Expression, starts: list[int], around: int) -> LiteralSet:
    if not isinstance(node, AttributeSet) or node.recursive or node.dynamic:
        raise Unsupported("an item that is no plain attribute set", getattr(node, "offset", around))
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for name, attribute in node.attributes.items():
        if attribute.inherited:
            raise Unsupported("inherit", attribute.offset)
        shown = text_of(name)
        values[shown] = _read_value(attribute.value, attribute.offset)
        lines[shown] = bisect_right(starts, attribute.offset) + 1
    return LiteralSet(values, bisect_right(starts, node.offset) + 1, lines)


def _read_value(node: Expression, offset: int) -> Any:
    if isinstance(node, Constant):
        return text_of(node.value) if isinstance(node.value, str) else node.value
    if isinstance(node, Variable) and node.name in _NAMED:
        return _NAMED[node.name]
    if isinstance(node, ListOf):
        return [_read_value(item, node.offset) for item in node.items]
    raise Unsupported("a value that has to be evaluated", getattr(node, "offset", offset))
