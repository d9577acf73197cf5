"""What can go wrong with a Nix expression, each with the place in the text where it does."""

from __future__ import annotations


class LanguageError(Exception):
    """An expression has no value here. Use one of the subclasses.

    ``message`` says why. ``line`` and ``column`` count from 1, the column in characters; both are
    ``None`` where no part of the text is to blame. ``offset`` is the same place while the text is
    still read as bytes.
    """

    def __init__(self, message: str, offset: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.line: int | None = None
        self.column: int | None = None

    def __str__(self) -> str:
        return (
            self.message if self.line is None else f"line {self.line}, column {self.column}: {self.message}"
        )

    def locate(self, source: str) -> None:
        """Find the line and the column of ``offset`` in ``source``, a text as ``bytes_of`` gives it."""
        if self.offset is None or self.line is not None:
            return
        start = source.rfind("\n", 0, self.offset) + 1
        self.line = source.count("\n", 0, self.offset) + 1
        self.column = len(text_of(source[start : self.offset])) + 1


class NixSyntaxError(LanguageError):
    """The text is no Nix expression."""


class NixError(LanguageError):
    """Nix would fail as well: an undefined variable, a missing attribute, a wrong type, ``abort``."""


class Thrown(NixError):
    """A ``throw`` or a failed ``assert``: the failures that ``builtins.tryEval`` catches."""


class Unsupported(LanguageError):
    """Nix may know a value, but this evaluator does not know the construct that it depends on."""


class TooMuch(LanguageError):
    """A limit on size, depth or steps is reached: no honest expression of this kind needs as much."""


def bytes_of(text: str) -> str:
    """``text`` with one character for each byte of its UTF-8: Nix's strings are strings of bytes."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("latin-1")


def text_of(text: str) -> str:
    """The inverse of ``bytes_of``; bytes that are not UTF-8 become lone surrogates."""
    return text if text.isascii() else text.encode("latin-1").decode("utf-8", "surrogateescape")
