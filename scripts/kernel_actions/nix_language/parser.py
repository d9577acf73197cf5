"""From tokens to a syntax tree, by the rules of Nix's own grammar.

Source of the rules: https://github.com/NixOS/nix/blob/2.8.0/src/libexpr/parser.y. All errors of a text are
found here and in ``compiler``, before any of it is evaluated, as in Nix.
"""

from __future__ import annotations

import sys

from kernel_actions.nix_language.lexer import Token, tokens
from kernel_actions.nix_language.problems import NixSyntaxError, TooMuch, Unsupported
from kernel_actions.nix_language.syntax import (
    Apply,
    Assert,
    Attribute,
    AttributeSet,
    Constant,
    Expression,
    Formals,
    HasAttribute,
    If,
    Lambda,
    Let,
    ListOf,
    Not,
    Operation,
    PathLiteral,
    Select,
    Text,
    Unknown,
    Variable,
    With,
)

# Expressions in expressions. Each takes some frames of Python's stack here, and in the compiler.
DEEPEST = 250
_LARGEST_INTEGER = 2**63 - 1

# The operators by how tightly they bind, and on which side they associate.
_OPERATORS = {
    "->": (1, "right"),
    "||": (2, "left"),
    "&&": (3, "left"),
    "==": (4, "none"),
    "!=": (4, "none"),
    "<": (5, "none"),
    ">": (5, "none"),
    "<=": (5, "none"),
    ">=": (5, "none"),
    "//": (6, "right"),
    # 7 is `!`.
    "+": (8, "left"),
    "-": (8, "left"),
    "*": (9, "left"),
    "/": (9, "left"),
    "++": (10, "right"),
    "?": (11, "none"),
    # 12 is the sign of a number.
}
_NOT = 7
_SIGN = 12
# With what an expression that can be an argument, or a list's item, begins.
_SIMPLE = frozenset(
    (
        "name", "integer", "float", '"', "''", "path", "open path", "search path", "uri",
        "(", "let", "rec", "{", "[",
    )
)  # fmt: skip


class _Parser:
    def __init__(self, source: str) -> None:
        self.tokens = tokens(source)
        self.position = 0
        self.token = self.tokens[0]
        self.depth = 0
        self.places: dict[str, list[int]] = {}

    # Tokens

    def advance(self) -> Token:
        token = self.token
        self.position += 1
        self.token = self.tokens[min(self.position, len(self.tokens) - 1)]
        return token

    def following(self, distance: int = 1) -> str:
        """The kind of a later token."""
        return self.tokens[min(self.position + distance, len(self.tokens) - 1)].kind

    def expect(self, kind: str) -> Token:
        if self.token.kind != kind:
            raise self.unexpected(f", expecting {kind}")
        return self.advance()

    def unexpected(self, expecting: str = "") -> NixSyntaxError:
        token = self.token
        shown = {"end": "end of the file", "text": "text"}.get(token.kind, token.text or token.kind)
        return NixSyntaxError(f"unexpected {shown[:80]}{expecting}", token.offset)

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise TooMuch("nested too deeply", self.token.offset)

    # Expressions, from the loosest to the tightest

    def whole(self) -> Expression:
        expression = self.expression()
        self.expect("end")
        return expression

    def expression(self) -> Expression:
        self.deeper()
        token = self.token
        kind = token.kind
        found: Expression
        if kind == "if":
            self.advance()
            condition = self.expression()
            self.expect("then")
            yes = self.expression()
            self.expect("else")
            found = If(condition, yes, self.expression(), token.offset)
        elif kind == "let" and self.following() != "{":
            self.advance()
            bindings = AttributeSet(token.offset, recursive=True)
            self.bindings(bindings, "in")
            if bindings.dynamic:
                raise NixSyntaxError("dynamic attributes are not allowed in let", bindings.dynamic[0][2])
            found = Let(bindings, self.expression(), token.offset)
        elif kind == "with" or kind == "assert":
            self.advance()
            subject = self.expression()
            self.expect(";")
            body = self.expression()
            found = (With if kind == "with" else Assert)(subject, body, token.offset)
        elif kind == "name" and self.following() in (":", "@"):
            found = self.function_of_name()
        elif kind == "{" and self.is_formals():
            found = self.function_of_formals(None, token.offset)
        else:
            found = self.operation(0)
        self.depth -= 1
        return found

    def function_of_name(self) -> Lambda:
        name = self.advance()
        if self.advance().kind == ":":
            return Lambda(name.text, None, self.expression(), name.offset)
        return self.function_of_formals(name.text, name.offset)

    def is_formals(self) -> bool:
        """Whether this brace opens the argument of a function, and no attribute set."""
        following = self.following()
        if following == "}":
            return self.following(2) in (":", "@")
        return following == "..." or (following == "name" and self.following(2) in (",", "?", "}"))

    def function_of_formals(self, name: str | None, offset: int) -> Lambda:
        self.expect("{")
        defaults: dict[str, Expression | None] = {}
        is_open = False
        while self.token.kind != "}":
            if self.token.kind == "...":
                self.advance()
                is_open = True
                break
            formal = self.expect("name")
            if formal.text in defaults or formal.text == name:
                raise NixSyntaxError(f"duplicate function argument '{formal.text}'", formal.offset)
            defaults[formal.text] = None
            if self.token.kind == "?":
                self.advance()
                defaults[formal.text] = self.expression()
            if self.token.kind != ",":
                break
            self.advance()
        self.expect("}")
        if self.token.kind == "@" and name is None:
            self.advance()
            whole = self.expect("name")
            name = whole.text
            if name in defaults:
                raise NixSyntaxError(f"duplicate function argument '{name}'", whole.offset)
        self.expect(":")
        return Lambda(name, Formals(defaults, is_open), self.expression(), offset)

    def operation(self, least: int) -> Expression:
        """An expression of operators that bind tighter than ``least``."""
        self.deeper()
        left = self.operand()
        refused = None
        while True:
            token = self.token
            operator = token.kind
            binding, side = _OPERATORS.get(operator, (0, ""))
            if binding <= least:
                break
            if binding == refused:
                raise self.unexpected()
            self.advance()
            if operator == "?":
                left = HasAttribute(left, self.attribute_path(), token.offset)
            else:
                right = self.operation(binding - 1 if side == "right" else binding)
                left = Operation(operator, left, right, token.offset)
            refused = binding if side == "none" else None
        self.depth -= 1
        return left

    def operand(self) -> Expression:
        token = self.token
        if token.kind == "!":
            self.advance()
            return Not(self.operation(_NOT), token.offset)
        if token.kind == "-":
            self.advance()
            return Operation("-", Constant(0), self.operation(_SIGN), token.offset)
        return self.application()

    def application(self) -> Expression:
        offset = self.token.offset
        function = self.selection()
        arguments = []
        while self.token.kind in _SIMPLE:
            arguments.append(self.selection())
        return Apply(function, tuple(arguments), offset) if arguments else function

    def selection(self) -> Expression:
        subject = self.simple()
        token = self.token
        if token.kind == ".":
            self.advance()
            path = self.attribute_path()
            default = None
            if self.token.kind == "or":
                self.advance()
                self.deeper()
                default = self.selection()
                self.depth -= 1
            return Select(subject, path, default, token.offset)
        if token.kind == "or":
            # As Nix does, for a function of that name.
            self.advance()
            return Apply(subject, (Variable("or", token.offset),), token.offset)
        return subject

    def simple(self) -> Expression:
        token = self.advance()
        kind = token.kind
        if kind == "name":
            if token.text == "__curPos":
                return Unknown("__curPos", token.offset)
            return Variable(token.text, token.offset)
        if kind == "integer":
            value = int(token.text)
            if value > _LARGEST_INTEGER:
                raise NixSyntaxError(f"invalid integer {token.text[:40]}", token.offset)
            return Constant(value)
        if kind == "float":
            return Constant(_float(token))
        if kind == '"':
            return self.string(token)
        if kind == "''":
            return self.indented_string(token)
        if kind == "path":
            return PathLiteral(token.text, token.offset)
        if kind == "open path":
            return self.path_with_interpolations(token)
        if kind == "search path":
            return Unknown(f"the search path {token.text[:80]}", token.offset)
        if kind == "uri":
            return Constant(token.text)
        if kind == "(":
            inner = self.expression()
            self.expect(")")
            return inner
        if kind == "[":
            return self.list_of(token)
        if kind == "{" or (kind == "rec" and self.token.kind == "{"):
            self.deeper()
            found = AttributeSet(token.offset, recursive=kind == "rec")
            if kind == "rec":
                self.advance()
            self.bindings(found, "}")
            self.depth -= 1
            return found
        if kind == "let" and self.token.kind == "{":
            raise Unsupported("let { … }, which is obsolete", token.offset)
        self.token = token
        raise self.unexpected()

    def list_of(self, token: Token) -> ListOf:
        self.deeper()
        items = []
        while self.token.kind != "]":
            items.append(self.selection())
        self.advance()
        self.depth -= 1
        return ListOf(tuple(items), token.offset)

    # Strings

    def interpolation(self) -> Expression:
        if self.token.kind == "end":
            raise NixSyntaxError("a string without its end", self.token.offset)
        self.expect("${")
        inner = self.expression()
        self.expect("}")
        return inner

    def string(self, opening: Token) -> Constant | Text:
        parts: list[Expression] = []
        while self.token.kind != '"':
            if self.token.kind == "text":
                parts.append(Constant(self.advance().text))
            else:
                parts.append(self.interpolation())
        self.advance()
        if not parts:
            return Constant("")
        if (
            len(parts) == 1
            and isinstance(parts[0], Constant)
            and self.tokens[self.position - 2].kind == "text"
        ):
            return parts[0]
        return Text(tuple(parts), opening.offset)

    def indented_string(self, opening: Token) -> Constant | Text:
        parts: list[Token | Expression] = []
        while self.token.kind != "''":
            if self.token.kind in ("text", "escaped"):
                parts.append(self.advance())
            else:
                parts.append(self.interpolation())
        self.advance()
        stripped = _without_indentation(parts)
        if not stripped:
            return Constant("")
        if len(stripped) == 1 and isinstance(parts[0], Token):
            only = stripped[0]
            assert isinstance(only, Constant)
            return only
        return Text(tuple(stripped), opening.offset)

    def path_with_interpolations(self, token: Token) -> PathLiteral:
        while self.token.kind != "end of path":
            self.interpolation()
        self.advance()
        return PathLiteral(token.text, token.offset)

    # Attributes

    def attribute_path(self) -> tuple[str | Expression, ...]:
        path = [self.attribute_name()]
        while self.token.kind == ".":
            self.advance()
            path.append(self.attribute_name())
        return tuple(path)

    def attribute_name(self) -> str | Expression:
        token = self.token
        name: Expression
        if token.kind in ("name", "or"):
            return self.advance().text
        if token.kind == '"':
            self.advance()
            name = self.string(token)
        elif token.kind == "${":
            name = self.interpolation()
        else:
            raise self.unexpected(", expecting the name of an attribute")
        # ``${"a"}`` is the same as ``a``, also in what may not be dynamic.
        return name.value if isinstance(name, Constant) and isinstance(name.value, str) else name

    def bindings(self, found: AttributeSet, end: str) -> None:
        while self.token.kind != end:
            if self.token.kind == "inherit":
                self.inherit(found)
            else:
                offset = self.token.offset
                path = self.attribute_path()
                self.expect("=")
                value = self.expression()
                self.add(found, path, value, offset)
            self.expect(";")
        self.advance()

    def inherit(self, found: AttributeSet) -> None:
        self.advance()
        source: Expression | None = None
        if self.token.kind == "(":
            self.advance()
            source = self.expression()
            self.expect(")")
        while self.token.kind != ";":
            token = self.token
            name = self.attribute_name()
            if not isinstance(name, str):
                raise NixSyntaxError("dynamic attributes are not allowed in inherit", token.offset)
            if name in found.attributes:
                raise _duplicate(name, token.offset)
            value: Expression = Variable(name, token.offset)
            if source is not None:
                value = Select(source, (name,), None, token.offset)
            found.attributes[name] = Attribute(value, source is None, token.offset)
            self.places.setdefault(name, []).append(token.offset)

    def add(
        self, found: AttributeSet, path: tuple[str | Expression, ...], value: Expression, offset: int
    ) -> None:
        """Add ``a.b.c = value;``, joining it with what other definitions say of ``a`` and ``a.b``."""
        for name in path[:-1]:
            nested = AttributeSet(offset)
            if not isinstance(name, str):
                found.dynamic.append((name, nested, offset))
            elif name in found.attributes:
                known = found.attributes[name]
                if known.inherited or not isinstance(known.value, AttributeSet):
                    raise _duplicate(name, offset)
                nested = known.value
            else:
                self.define(found, name, nested, offset)
            found = nested
        name = path[-1]
        if not isinstance(name, str):
            found.dynamic.append((name, value, offset))
        elif name not in found.attributes:
            self.define(found, name, value, offset)
        else:
            earlier = found.attributes[name].value
            if not isinstance(earlier, AttributeSet) or not isinstance(value, AttributeSet):
                raise _duplicate(name, offset)
            if value.dynamic or (value.recursive and value.attributes):
                # Versions of Nix differ in what this means.
                raise Unsupported(f"two definitions of '{name}' that have to be joined", offset)
            for inner, attribute in value.attributes.items():
                if inner in earlier.attributes:
                    raise _duplicate(inner, attribute.offset)
                earlier.attributes[inner] = attribute

    def define(self, found: AttributeSet, name: str, value: Expression, offset: int) -> None:
        if found.recursive and name == "__overrides":
            raise Unsupported("__overrides", offset)
        found.attributes[name] = Attribute(value, False, offset)
        self.places.setdefault(name, []).append(offset)


def _float(token: Token) -> float:
    value = float(token.text)
    digits = token.text.lower().partition("e")[0]
    # As `strtod` does: what is too large, or too small to be exact, is refused.
    if value == float("inf") or (value < sys.float_info.min and digits.strip("0.")):
        raise NixSyntaxError(f"invalid float {token.text[:40]}", token.offset)
    return value


def _duplicate(name: str, offset: int) -> NixSyntaxError:
    return NixSyntaxError(f"attribute '{name[:80]}' is already defined", offset)


def _without_indentation(parts: list[Token | Expression]) -> list[Expression]:
    """What an indented string stands for: each line without the indentation that all lines have.

    Lines of blanks alone do not count, and an interpolation or an escape ends a line's indentation
    (https://nix.dev/manual/nix/latest/language/syntax#string-literal).
    """
    indentation = _common_indentation(parts)
    stripped: list[Expression] = []
    at_start = True
    dropped = 0
    for index, part in enumerate(parts):
        if not isinstance(part, Token):
            at_start = False
            dropped = 0
            stripped.append(part)
            continue
        pieces: list[str] = []
        for number, line in enumerate(part.text.split("\n")):
            if number:
                pieces.append("\n")
                at_start = True
                dropped = 0
            if not at_start:
                pieces.append(line)
                continue
            content = line.lstrip(" ")
            blanks = len(line) - len(content)
            pieces.append(" " * max(0, blanks - max(0, indentation - dropped)) + content)
            dropped += blanks
            if content:
                at_start = False
                dropped = 0
        text = "".join(pieces)
        if index == len(parts) - 1:
            before, line_feed, last = text.rpartition("\n")
            if line_feed and not last.strip(" "):
                text = before + line_feed
        stripped.append(Constant(text))
    return stripped


def _common_indentation(parts: list[Token | Expression]) -> int:
    least = 1_000_000
    current = 0
    at_start = True
    for part in parts:
        if not isinstance(part, Token) or part.kind == "escaped":
            if at_start:
                at_start = False
                least = min(least, current)
            continue
        for number, line in enumerate(part.text.split("\n")):
            if number:
                at_start = True
                current = 0
            if at_start:
                content = line.lstrip(" ")
                current += len(line) - len(content)
                if content:
                    at_start = False
                    least = min(least, current)
    return least


def parse(source: str) -> tuple[Expression, dict[str, list[int]]]:
    """The syntax tree of ``source`` (of ``problems.bytes_of``), and where each attribute is defined.

    Raises ``NixSyntaxError``, ``TooMuch``, and ``Unsupported`` for the constructs that cannot even be read.
    """
    parser = _Parser(source)
    return parser.whole(), parser.places
