"""The public face: one text, its value, and what can be done with it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kernel_actions.nix_language.builtins import global_names
from kernel_actions.nix_language.compiler import compile_expression
from kernel_actions.nix_language.library import Library
from kernel_actions.nix_language.parser import parse
from kernel_actions.nix_language.problems import (
    LanguageError,
    NixError,
    TooMuch,
    Unsupported,
    bytes_of,
    text_of,
)
from kernel_actions.nix_language.values import (
    MOST_FRAMES,
    MOST_STEPS,
    Builtin,
    Function,
    Machine,
    Opaque,
    PathValue,
    Value,
)

# Frames that are not counted: those of the parser and the compiler, and of their callers in here.
_UNCOUNTED_FRAMES = 3_000


class Evaluation:
    """A text that is being evaluated.

    All that is done with it happens within ``running``, which gives errors their place in the text.
    The limits hold for all of it together: ``steps``, and frames of Python's stack.
    """

    def __init__(self, text: str, *, steps: int = MOST_STEPS) -> None:
        self.source = bytes_of(text)
        self.machine = Machine(steps)
        self.names, native = global_names(self.machine)
        self.library = Library(self._compile_library)
        # Names that no text can write, as it cannot redefine what the library uses.
        self._library_names = {**self.names, "lib": self.library, "native": native}
        self._attribute_offsets: dict[str, list[int]] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have room on the stack, and errors that tell their line and column.

        Raises only ``LanguageError``, whatever the text is.
        """
        before = sys.getrecursionlimit()
        frames = 0
        frame: Any = sys._getframe()
        while frame is not None:
            frames += 1
            frame = frame.f_back
        sys.setrecursionlimit(max(before, frames + MOST_FRAMES + _UNCOUNTED_FRAMES))
        self.machine.frames = MOST_FRAMES
        try:
            yield
        except LanguageError as error:
            error.locate(self.source)
            raise
        except (RecursionError, MemoryError) as error:
            # Neither should be possible.
            raise TooMuch("the evaluation takes too much memory") from error
        finally:
            sys.setrecursionlimit(before)

    def value(self) -> Value:
        """The value of the text, evaluated as far as to know what kind of value it is."""
        expression, self._attribute_offsets = parse(self.source)
        unit = compile_expression(self.machine, expression, self.names)
        self.machine.spend(unit.cost)
        self.machine.enter(unit.frames)
        return unit.run([])

    def line_of_attribute(self, name: str) -> int | None:
        """The line where the text defines an attribute ``name``; ``None`` unless it does so once, as any of
        several may be the one that counts."""
        offsets = self._attribute_offsets.get(bytes_of(name), ())
        return self.source.count("\n", 0, offsets[0]) + 1 if len(offsets) == 1 else None

    def force(self, value: Value) -> Value:
        """``value``, evaluated as far as to know what kind of value it is."""
        return self.machine.force(value)

    def apply(self, function: Value, argument: Value) -> Value:
        """What ``function`` makes of ``argument``."""
        return self.machine.apply(function, argument)

    def is_function(self, value: Value) -> bool:
        """Whether ``value`` is a function."""
        return type(self.machine.force(value)) in (Function, Builtin)

    def to_python(self, value: Value) -> Any:
        """``value`` and all that is in it, in Python's types.

        Raises ``NixError`` for functions, ``Unsupported`` for paths, for what is not known, and for sets that
        have another meaning as text.
        """
        machine = self.machine
        machine.spend(4)
        value = machine.force(value)
        kind = type(value)
        if kind is str:
            machine.spend_string(len(value))
            return text_of(value)
        if kind is list or kind is dict:
            machine.enter(4)
            found = [self.to_python(item) for item in value] if kind is list else self._set_to_python(value)
            machine.frames += 4
            return found
        if kind is Function or kind is Builtin:
            raise NixError("a function where data is expected")
        if kind is PathValue or isinstance(value, Opaque):
            raise Unsupported(f"{value.name if isinstance(value, Opaque) else 'a path'} as data")
        return value

    def _set_to_python(self, value: dict[str, Value]) -> dict[str, Any]:
        for name in ("__toString", "outPath"):
            if name in value:
                raise Unsupported(f"a set with {name}")
        self.machine.spend(2 * len(value))
        return {text_of(name): self.to_python(value[name]) for name in sorted(value)}

    def from_python(self, value: Any) -> Value:
        """The value that stands for strings, numbers, booleans, ``None``, lists and dictionaries."""
        if isinstance(value, str):
            return bytes_of(value)
        if isinstance(value, list | tuple):
            return [self.from_python(item) for item in value]
        if isinstance(value, Mapping):
            return {bytes_of(name): self.from_python(item) for name, item in value.items()}
        return value

    def _compile_library(self, text: str) -> Value:
        expression, _ = parse(text)
        unit = compile_expression(self.machine, expression, self._library_names, has_places=False)
        self.machine.spend(unit.cost)
        return unit.run([])


def evaluate(text: str, *, steps: int = MOST_STEPS) -> Any:
    """The value of a Nix expression, as ``nix-instantiate --eval --strict --json`` gives it.

    Raises ``NixSyntaxError``, ``NixError``, ``Unsupported`` and ``TooMuch``, each with its line and column.
    """
    evaluation = Evaluation(text, steps=steps)
    with evaluation.running():
        return evaluation.to_python(evaluation.value())
