"""The tokens of a Nix expression, by the rules of Nix's own lexer.

Source of the rules: https://github.com/NixOS/nix/blob/2.8.0/src/libexpr/lexer.l. As there, the longest token
wins: ``a/b`` is a path, ``x:x`` a URI, ``a-b`` a name. The time that this takes grows with the length
of the text alone.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kernel_actions.nix_language.problems import NixSyntaxError, TooMuch, Unsupported

LARGEST_TEXT = 1_000_000
MOST_TOKENS = 40_000
# Digits and more of a number: what is longer overflows anyway, or is not worth the time to read it.
_LONGEST_NUMBER = 400

KEYWORDS = frozenset(("if", "then", "else", "assert", "with", "let", "in", "rec", "inherit", "or"))

_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\r\n]*)+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_'-]*")
_FLOAT = re.compile(r"(?:[1-9][0-9]*\.[0-9]*|0?\.[0-9]+)(?:[Ee][+-]?[0-9]+)?")
_INTEGER = re.compile(r"[0-9]+")
_OPERATOR = re.compile(r"\.\.\.|==|!=|<=|>=|&&|\|\||->|//|\+\+|\|>|<\||[-+*/<>!?.,:;=@(){}\[\]]")
_PATH_CHARACTERS = re.compile(r"[A-Za-z0-9._+-]*")
_PATH_REST = re.compile(r"[A-Za-z0-9._+/-]*")
_SEARCH_PATH = re.compile(r"<[A-Za-z0-9._+-]+(?:/[A-Za-z0-9._+-]+)*>")
_SCHEME_CHARACTERS = re.compile(r"[A-Za-z0-9+.-]*")
_URI_REST = re.compile(r"[A-Za-z0-9%/?:@&=+$,\-_.!~*']+")
_IN_STRING = re.compile(r'[^$"\\]+')
_IN_INDENTED = re.compile(r"[^$']+")
_INDENTED_OPEN = re.compile(r"''(?: *\n)?")
_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_PATH_CHARACTER = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._+-")
_DIGITS = frozenset("0123456789")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


class Token(NamedTuple):
    """A token: its ``kind`` is the keyword or operator itself, or one of those named below.

    ``name``, ``integer``, ``float``, ``path``, ``search path``, ``uri``: ``text`` is how it is written.
    ``"`` and ``''`` stand at both ends of a string, ``text`` and ``escaped`` for what is in it
    (``escaped`` does not count as indentation), ``${`` and ``}`` around an interpolation.
    ``open path`` and ``end of path`` stand around a path with interpolations; ``end`` ends the text.
    """

    kind: str
    text: str
    offset: int


class _Lexer:
    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens: list[Token] = []
        # What each open brace or quote returns to: "normal", "string", "indented" or "path".
        self.states: list[str] = ["normal"]
        # The ends of the runs of characters that the position is in, so that each is searched once.
        self.end_of_path_run = 0
        self.end_of_scheme_run = 0

    def run(self) -> list[Token]:
        source = self.source
        position = 0
        steps = {
            "normal": self.normal,
            "string": self.string,
            "indented": self.indented,
            "path": self.path,
        }
        while position < len(source):
            position = steps[self.states[-1]](position)
            if len(self.tokens) > MOST_TOKENS:
                raise TooMuch(f"more than {MOST_TOKENS} tokens", position)
        if self.states[-1] == "path":
            self.path(position)
        self.add("end", "", len(source))
        return self.tokens

    def add(self, kind: str, text: str, offset: int) -> None:
        self.tokens.append(Token(kind, text, offset))

    def normal(self, position: int) -> int:
        """Take one token, or blanks and comments, and return where the next one starts."""
        source = self.source
        character = source[position]
        if character in " \t\r\n#":
            blank = _BLANK.match(source, position)
            assert blank
            return blank.end()
        if source.startswith("/*", position):
            end = source.find("*/", position + 2)
            if end < 0:
                # Without its end this is a division by a multiplication, which is no expression either.
                raise NixSyntaxError("a comment without its end", position)
            return end + 2
        if character in _PATH_CHARACTER or character == "/" or character == "~":
            end = self.take_path(position)
            if end > position:
                return end
        if character in _LETTERS:
            end = self.take_uri(position)
            if end > position:
                return end
        if character in _LETTERS or character == "_":
            return self.take_name(position)
        if character in _DIGITS or character == ".":
            end = self.take_number(position)
            if end > position:
                return end
        if character == '"':
            self.add('"', "", position)
            self.states.append("string")
            return position + 1
        if character == "'" and (opening := _INDENTED_OPEN.match(source, position)):
            self.add("''", "", position)
            self.states.append("indented")
            return opening.end()
        if source.startswith("${", position):
            return self.open_interpolation(position)
        return self.take_operator(position)

    def take_name(self, position: int) -> int:
        found = _NAME.match(self.source, position)
        assert found
        name = found.group()
        self.add(name if name in KEYWORDS else "name", name, position)
        return found.end()

    def take_number(self, position: int) -> int:
        found = _FLOAT.match(self.source, position)
        kind = "float"
        if found is None:
            found = _INTEGER.match(self.source, position)
            kind = "integer"
        if found is None:
            return position
        if found.end() - position > _LONGEST_NUMBER:
            raise NixSyntaxError("a number that is too long", position)
        self.add(kind, found.group(), position)
        return found.end()

    def take_operator(self, position: int) -> int:
        source = self.source
        if source[position] == "<" and (found := _SEARCH_PATH.match(source, position)):
            self.add("search path", found.group(), position)
            return found.end()
        found = _OPERATOR.match(source, position)
        if found is None:
            raise NixSyntaxError(f"unexpected character {source[position]!r}", position)
        operator = found.group()
        if operator in ("|>", "<|"):
            raise Unsupported(f"the operator {operator}", position)
        if operator == "{":
            self.states.append("normal")
        elif operator == "}":
            if len(self.states) == 1:
                raise NixSyntaxError("unexpected }", position)
            self.states.pop()
        self.add(operator, operator, position)
        return found.end()

    def open_interpolation(self, position: int) -> int:
        self.add("${", "", position)
        self.states.append("normal")
        return position + 2

    def take_path(self, position: int) -> int:
        """Take a path; return ``position`` when none starts there."""
        source = self.source
        if source[position] == "~":
            slash = position + 1
        else:
            if position >= self.end_of_path_run:
                run = _PATH_CHARACTERS.match(source, position)
                assert run
                self.end_of_path_run = run.end()
            slash = max(self.end_of_path_run, position)
        if not source.startswith("/", slash):
            return position
        following = source[slash + 1 : slash + 2]
        if following not in _PATH_CHARACTER and not source.startswith("${", slash + 1):
            return position
        rest = _PATH_REST.match(source, slash)
        assert rest
        end = rest.end()
        if source.startswith("${", end):
            self.add("open path", source[position:end], position)
            self.states.append("path")
            return end
        if source[end - 1] == "/":
            raise NixSyntaxError("a path has a trailing slash", position)
        self.add("path", source[position:end], position)
        return end

    def path(self, position: int) -> int:
        """Go on in a path after an interpolation, or at the first of them."""
        if self.source.startswith("${", position):
            return self.open_interpolation(position)
        rest = _PATH_REST.match(self.source, position)
        assert rest
        end = rest.end()
        if self.source.startswith("${", end):
            return end
        if end > position and self.source[end - 1] == "/":
            raise NixSyntaxError("a path has a trailing slash", position)
        self.states.pop()
        self.add("end of path", "", end)
        return end

    def take_uri(self, position: int) -> int:
        """Take a URI; return ``position`` when none starts there."""
        if position >= self.end_of_scheme_run:
            run = _SCHEME_CHARACTERS.match(self.source, position)
            assert run
            self.end_of_scheme_run = run.end()
        colon = self.end_of_scheme_run
        if not self.source.startswith(":", colon):
            return position
        rest = _URI_REST.match(self.source, colon + 1)
        if rest is None:
            return position
        self.add("uri", self.source[position : rest.end()], position)
        return rest.end()

    def string(self, position: int) -> int:
        """Take all of a string up to its end or the next interpolation."""
        source = self.source
        start = position
        pieces: list[str] = []
        while True:
            if plain := _IN_STRING.match(source, position):
                # As Nix does: what ends a line elsewhere is a line feed.
                pieces.append(_line_feeds(plain.group()))
                position = plain.end()
            character = source[position : position + 1]
            following = source[position + 1 : position + 2]
            if character == "":
                raise NixSyntaxError("a string without its end", start)
            if character == '"' or (character == "$" and following == "{"):
                break
            if character == "\\":
                if not following:
                    raise NixSyntaxError("a string without its end", start)
                pieces.append(_ESCAPES.get(following, following))
                position += 2
            elif following in ("", '"', "\\"):
                pieces.append("$")
                position += 1
            else:
                # A dollar and what follows it are taken together: `$${` opens no interpolation.
                pieces.append("$")
                position += 1
                if following == "$":
                    pieces.append("$")
                    position += 1
        if pieces:
            self.add("text", "".join(pieces), start)
        if source[position] == "$":
            return self.open_interpolation(position)
        self.add('"', "", position)
        self.states.pop()
        return position + 1

    def indented(self, position: int) -> int:
        """Take a part of an indented string up to an escape, its end or the next interpolation."""
        source = self.source
        start = position
        while True:
            if plain := _IN_INDENTED.match(source, position):
                position = plain.end()
            character = source[position : position + 1]
            following = source[position + 1 : position + 2]
            if character == "" or following == "":
                if character:
                    raise NixSyntaxError("a string without its end", start)
                break
            # As in strings: each of the two takes what follows it along.
            if (character == "$" and following not in "{'") or (character == "'" and following not in "'$"):
                position += 2
            else:
                break
        if position > start:
            self.add("text", source[start:position], start)
            return position
        if source.startswith("${", position):
            return self.open_interpolation(position)
        if source.startswith("''$", position):
            self.add("escaped", "$", position)
            return position + 3
        if source.startswith("'''", position):
            self.add("escaped", "''", position)
            return position + 3
        if source.startswith("''\\", position) and position + 3 < len(source):
            escaped = source[position + 3]
            self.add("escaped", _ESCAPES.get(escaped, escaped), position)
            return position + 4
        if source.startswith("''", position):
            self.add("''", "", position)
            self.states.pop()
            return position + 2
        self.add("escaped", source[position], position)
        return position + 1


def _line_feeds(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def tokens(source: str) -> list[Token]:
    """The tokens of ``source``, a text as ``problems.bytes_of`` gives it.

    Raises ``NixSyntaxError``, ``Unsupported`` for newer operators, and ``TooMuch``.
    """
    if len(source) > LARGEST_TEXT:
        raise TooMuch(f"more than {LARGEST_TEXT} bytes", None)
    if "\0" in source:
        raise NixSyntaxError("a NUL character", source.index("\0"))
    return _Lexer(source).run()
