"""The syntax tree of a Nix expression. ``offset`` is where in the text an expression can be blamed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Union


@dataclass(frozen=True)
class Constant:
    """A value that is written out: a number, or a string without interpolations."""

    value: object


@dataclass(frozen=True)
class Text:
    """A string with interpolations."""

    parts: tuple[Expression, ...]
    offset: int


@dataclass(frozen=True)
class PathLiteral:
    """A path; with interpolations its text is not known."""

    text: str
    offset: int


@dataclass(frozen=True)
class Unknown:
    """What can be read but not evaluated; ``what`` names it."""

    what: str
    offset: int


@dataclass(frozen=True)
class Variable:
    """A name."""

    name: str
    offset: int


@dataclass(frozen=True)
class Select:
    """``subject.a.b or default``; a part of ``path`` is a name or an expression for one."""

    subject: Expression
    path: tuple[str | Expression, ...]
    default: Expression | None
    offset: int


@dataclass(frozen=True)
class HasAttribute:
    """``subject ? a.b``."""

    subject: Expression
    path: tuple[str | Expression, ...]
    offset: int


@dataclass(frozen=True)
class Apply:
    """A function and the arguments that follow it."""

    function: Expression
    arguments: tuple[Expression, ...]
    offset: int


@dataclass(frozen=True)
class Formals:
    """The names that a function takes from an attribute set, each with its default or ``None``."""

    defaults: dict[str, Expression | None]
    open: bool


@dataclass(frozen=True)
class Lambda:
    """``name: body``, ``{ … }: body`` or ``{ … }@name: body``."""

    name: str | None
    formals: Formals | None
    body: Expression
    offset: int


@dataclass
class Attribute:
    """The definition of an attribute. ``inherited``: its name is looked up outside of the set."""

    value: Expression
    inherited: bool
    offset: int


@dataclass
class AttributeSet:
    """``{ … }``, ``rec { … }`` and what ``let`` binds. The parser adds to it."""

    offset: int
    recursive: bool = False
    attributes: dict[str, Attribute] = field(default_factory=dict)
    dynamic: list[tuple[Expression, Expression, int]] = field(default_factory=list)


@dataclass(frozen=True)
class ListOf:
    """``[ … ]``."""

    items: tuple[Expression, ...]
    offset: int


@dataclass(frozen=True)
class Let:
    """``let … in body``."""

    bindings: AttributeSet
    body: Expression
    offset: int


@dataclass(frozen=True)
class With:
    """``with subject; body``."""

    subject: Expression
    body: Expression
    offset: int


@dataclass(frozen=True)
class If:
    """``if condition then yes else no``."""

    condition: Expression
    yes: Expression
    no: Expression
    offset: int


@dataclass(frozen=True)
class Assert:
    """``assert condition; body``."""

    condition: Expression
    body: Expression
    offset: int


@dataclass(frozen=True)
class Not:
    """``! operand``."""

    operand: Expression
    offset: int


@dataclass(frozen=True)
class Operation:
    """``left operator right``."""

    operator: str
    left: Expression
    right: Expression
    offset: int


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
