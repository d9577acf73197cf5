"""The syntax tree of a Nix expression. ``offset`` is where in the text an expression can be blamed.

These are no data classes, as making so many of those takes longer than all the rest of a plan. Nothing
changes them once the parser is done.
"""

from __future__ import annotations

from typing import Union


class Constant:
    """A value that is written out: a number, or a string without interpolations."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


class Text:
    """A string with interpolations."""

    __slots__ = ("offset", "parts")

    def __init__(self, parts: tuple[Expression, ...], offset: int) -> None:
        self.parts = parts
        self.offset = offset


class PathLiteral:
    """A path; with interpolations its text is not known."""

    __slots__ = ("offset", "text")

    def __init__(self, text: str, offset: int) -> None:
        self.text = text
        self.offset = offset


class Unknown:
    """What can be read but not evaluated; ``what`` names it."""

    __slots__ = ("offset", "what")

    def __init__(self, what: str, offset: int) -> None:
        self.what = what
        self.offset = offset


class Variable:
    """A name."""

    __slots__ = ("name", "offset")

    def __init__(self, name: str, offset: int) -> None:
        self.name = name
        self.offset = offset


class Select:
    """``subject.a.b or default``; a part of ``path`` is a name or an expression for one."""

    __slots__ = ("default", "offset", "path", "subject")

    def __init__(
        self, subject: Expression, path: tuple[str | Expression, ...], default: Expression | None, offset: int
    ) -> None:
        self.subject = subject
        self.path = path
        self.default = default
        self.offset = offset


class HasAttribute:
    """``subject ? a.b``."""

    __slots__ = ("offset", "path", "subject")

    def __init__(self, subject: Expression, path: tuple[str | Expression, ...], offset: int) -> None:
        self.subject = subject
        self.path = path
        self.offset = offset


class Apply:
    """A function and the arguments that follow it."""

    __slots__ = ("arguments", "function", "offset")

    def __init__(self, function: Expression, arguments: tuple[Expression, ...], offset: int) -> None:
        self.function = function
        self.arguments = arguments
        self.offset = offset


class Formals:
    """The names that a function takes from an attribute set, each with its default or ``None``."""

    __slots__ = ("defaults", "open")

    def __init__(self, defaults: dict[str, Expression | None], open: bool) -> None:
        self.defaults = defaults
        self.open = open


class Lambda:
    """``name: body``, ``{ … }: body`` or ``{ … }@name: body``."""

    __slots__ = ("body", "formals", "name", "offset")

    def __init__(self, name: str | None, formals: Formals | None, body: Expression, offset: int) -> None:
        self.name = name
        self.formals = formals
        self.body = body
        self.offset = offset


class Attribute:
    """The definition of an attribute. ``inherited``: its name is looked up outside of the set."""

    __slots__ = ("inherited", "offset", "value")

    def __init__(self, value: Expression, inherited: bool, offset: int) -> None:
        self.value = value
        self.inherited = inherited
        self.offset = offset


class AttributeSet:
    """``{ … }``, ``rec { … }`` and what ``let`` binds. The parser adds to it."""

    __slots__ = ("attributes", "dynamic", "offset", "recursive")

    def __init__(self, offset: int, recursive: bool = False) -> None:
        self.offset = offset
        self.recursive = recursive
        self.attributes: dict[str, Attribute] = {}
        self.dynamic: list[tuple[Expression, Expression, int]] = []


class ListOf:
    """``[ … ]``."""

    __slots__ = ("items", "offset")

    def __init__(self, items: tuple[Expression, ...], offset: int) -> None:
        self.items = items
        self.offset = offset


class Let:
    """``let … in body``."""

    __slots__ = ("bindings", "body", "offset")

    def __init__(self, bindings: AttributeSet, body: Expression, offset: int) -> None:
        self.bindings = bindings
        self.body = body
        self.offset = offset


class With:
    """``with subject; body``."""

    __slots__ = ("body", "offset", "subject")

    def __init__(self, subject: Expression, body: Expression, offset: int) -> None:
        self.subject = subject
        self.body = body
        self.offset = offset


class If:
    """``if condition then yes else no``."""

    __slots__ = ("condition", "no", "offset", "yes")

    def __init__(self, condition: Expression, yes: Expression, no: Expression, offset: int) -> None:
        self.condition = condition
        self.yes = yes
        self.no = no
        self.offset = offset


class Assert:
    """``assert condition; body``."""

    __slots__ = ("body", "condition", "offset")

    def __init__(self, condition: Expression, body: Expression, offset: int) -> None:
        self.condition = condition
        self.body = body
        self.offset = offset


class Not:
    """``! operand``."""

    __slots__ = ("offset", "operand")

    def __init__(self, operand: Expression, offset: int) -> None:
        self.operand = operand
        self.offset = offset


class Operation:
    """``left operator right``."""

    __slots__ = ("left", "offset", "operator", "right")

    def __init__(self, operator: str, left: Expression, right: Expression, offset: int) -> None:
        self.operator = operator
        self.left = left
        self.right = right
        self.offset = offset


Expression = Union[  # noqa: UP007 - Python 3.10 evaluates it, and ``|`` takes no names of later classes
    Constant,
    Text,
    PathLiteral,
    Unknown,
    Variable,
    Select,
    HasAttribute,
    Apply,
    Lambda,
    AttributeSet,
    ListOf,
    Let,
    With,
    If,
    Assert,
    Not,
    Operation,
]
