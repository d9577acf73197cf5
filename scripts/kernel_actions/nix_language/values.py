"""The values of the Nix language, and what happens to them lazily.

Integers, floats, booleans, null, lists and attribute sets are Python's ``int``, ``float``, ``bool``,
``None``, ``list`` and ``dict``; a string is a ``str`` with one character for each byte. Items and attributes
may be thunks. None of these is ever changed once it is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kernel_actions.nix_language.problems import NixError, TooMuch, Unsupported

# A value or a thunk. Which of the two, and which kind of value, is looked at where it matters.
Value = Any
# The variables in sight: the environment around, then the values of the innermost names.
Environment = list[Any]
Run = Callable[[Environment], Value]

MOST_STEPS = 1_000_000
# Frames of Python's stack. Python 3.10 takes the stack of C with each of them, some hundred bytes.
MOST_FRAMES = 5_000
LONGEST_STRING = 1_000_000
LONGEST_LIST = 1_000_000
# What a call of a builtin function, a comparison or a conversion takes of both at most, by itself.
BUILTIN_FRAMES = 8
# As many bytes of strings as cost a step.
BYTES_OF_A_STEP = 32
LEAST_INTEGER = -(2**63)
LARGEST_INTEGER = 2**63 - 1


class Unit(NamedTuple):
    """Compiled code: ``run``, how many steps it takes by itself, and frames until the next unit's."""

    run: Run
    cost: int
    frames: int


def _again(_environment: Environment) -> Value:
    raise NixError("infinite recursion encountered")


UNDER_WAY = Unit(_again, 0, 1)


class Thunk:
    """A value that is computed when it is first needed. ``unit`` is ``None`` once it is."""

    __slots__ = ("environment", "unit", "value")

    def __init__(self, unit: Unit | None, environment: Environment | None) -> None:
        self.unit = unit
        self.environment = environment
        self.value: Value = None


class Parameters(NamedTuple):
    """What a function's own code knows: how its argument becomes variables, and its body.

    ``formals`` are the names with the code of their defaults, ``None`` where the argument is one name.
    """

    body: Unit
    has_name: bool
    formals: dict[str, Run | None] | None
    open: bool


class Function:
    """A lambda and the variables in sight of it."""

    __slots__ = ("environment", "parameters")

    def __init__(self, parameters: Parameters, environment: Environment) -> None:
        self.parameters = parameters
        self.environment = environment


class Builtin:
    """A function of Nix itself that was given some of its arguments, or none."""

    __slots__ = ("arguments", "arity", "name", "run")

    def __init__(
        self, name: str, arity: int, run: Callable[..., Value], arguments: tuple[Value, ...] = ()
    ) -> None:
        self.name = name
        self.arity = arity
        self.run = run
        self.arguments = arguments


class PathValue:
    """A path, which can be passed on and compared with other types, but not read."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class Opaque:
    """A value that is not known here, such as a flake's input. ``name`` is for messages.

    A subclass may know some of its attributes.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def find(self, name: str) -> Value:
        """The attribute ``name``, or ``ABSENT``. Raises ``Unsupported`` when that is not known."""
        raise Unsupported(f"{self.name}.{name[:80]}")

    def update(self, other: Opaque | dict[str, Value], other_wins: bool) -> Value:
        """``self // other``, or ``other // self``."""
        raise Unsupported(f"{self.name} as an attribute set")


ABSENT = Opaque("no attribute")
_NAMES = {
    int: "an integer",
    float: "a float",
    bool: "a Boolean",
    str: "a string",
    list: "a list",
    dict: "a set",
    type(None): "null",
    Function: "a function",
    Builtin: "a built-in function",
    PathValue: "a path",
}


def wrong_type(value: Value, wanted: str, offset: int | None = None) -> NixError | Unsupported:
    """The error that ``value``, not a thunk, is not ``wanted``."""
    if isinstance(value, Opaque):
        return Unsupported(f"{value.name} as {wanted}", offset)
    return NixError(f"value is {_NAMES[type(value)]} while {wanted} was expected", offset)


def name_of_type(value: Value) -> str:
    """The type of ``value``, not a thunk, for messages."""
    return value.name if isinstance(value, Opaque) else _NAMES[type(value)]


class Machine:
    """Evaluates, and counts what that takes. The limits hold for all evaluations of one machine together."""

    __slots__ = ("frames", "steps")

    def __init__(self, steps: int = MOST_STEPS) -> None:
        self.steps = steps
        self.frames = MOST_FRAMES

    def spend(self, steps: int) -> None:
        """Count steps. Raises ``TooMuch``."""
        self.steps -= steps
        if self.steps < 0:
            raise self.exhausted()

    def enter(self, frames: int) -> None:
        """Count frames of the stack. They are given back by adding them to ``frames``, and after an error
        by whoever catches it. Raises ``TooMuch``."""
        self.frames -= frames
        if self.frames < 0:
            raise self.exhausted()

    def exhausted(self) -> TooMuch:
        """The error that a limit is reached."""
        if self.steps < 0:
            return TooMuch("the evaluation takes too many steps")
        return TooMuch("the evaluation is nested too deeply, perhaps an infinite recursion")

    def force(self, value: Value) -> Value:
        """The value of a thunk, or ``value`` itself."""
        if type(value) is not Thunk:
            return value
        unit = value.unit
        if unit is None:
            return value.value
        environment = value.environment
        frames = unit.frames
        self.frames -= frames
        self.steps -= unit.cost
        if self.frames < 0 or self.steps < 0:
            raise self.exhausted()
        value.unit = UNDER_WAY
        try:
            found = unit.run(environment)  # type: ignore[arg-type]
        except BaseException:
            # ``tryEval`` may go on, and what failed has to fail again.
            value.unit = unit
            raise
        self.frames += frames
        value.unit = None
        value.environment = None
        value.value = found
        return found

    def apply(self, function: Value, argument: Value) -> Value:
        """Call ``function``, a value or a thunk, with ``argument``, a value or a thunk."""
        if type(function) is Thunk:
            function = self.force(function)
        kind = type(function)
        if kind is Function:
            parameters = function.parameters
            body = parameters.body
            frames = body.frames
            self.frames -= frames
            self.steps -= body.cost
            if self.frames < 0 or self.steps < 0:
                raise self.exhausted()
            if parameters.formals is None:
                found = body.run([function.environment, argument])
            else:
                found = body.run(self.bind(parameters, function.environment, argument))
            self.frames += frames
            return found
        if kind is Builtin:
            arguments = (*function.arguments, argument)
            if len(arguments) < function.arity:
                self.spend(1)
                return Builtin(function.name, function.arity, function.run, arguments)
            self.spend(5)
            self.enter(BUILTIN_FRAMES)
            found = function.run(*arguments)
            self.frames += BUILTIN_FRAMES
            return found
        if kind is dict and "__functor" in function:
            self.enter(2)
            found = self.apply(self.apply(function["__functor"], function), argument)
            self.frames += 2
            return found
        if isinstance(function, Opaque):
            raise Unsupported(f"a call of {function.name}")
        raise NixError(f"attempt to call something which is not a function but {_NAMES[kind]}")

    def bind(self, parameters: Parameters, environment: Environment, argument: Value) -> Environment:
        """The environment of a function that takes an attribute set."""
        given = self.force(argument)
        formals = parameters.formals
        assert formals is not None
        made: Environment = [environment]
        if parameters.has_name:
            made.append(argument)
        if isinstance(given, Opaque):
            self.bind_opaque(formals, given, made)
            return made
        if type(given) is not dict:
            raise wrong_type(given, "a set")
        used = 0
        for name, default in formals.items():
            if name in given:
                used += 1
                made.append(given[name])
            elif default is None:
                raise NixError(f"function called without required argument '{name}'")
            else:
                made.append(default(made))
        if used < len(given) and not parameters.open:
            unexpected = min(name for name in given if name not in formals)
            raise NixError(f"function called with unexpected argument '{unexpected[:80]}'")
        return made

    @staticmethod
    def bind_opaque(formals: dict[str, Run | None], given: Opaque, made: Environment) -> None:
        for name, default in formals.items():
            found = given.find(name)
            if found is not ABSENT:
                made.append(found)
            elif default is None:
                raise NixError(f"function called without required argument '{name}'")
            else:
                made.append(default(made))

    # Conversions and comparisons

    def boolean(self, value: Value) -> bool:
        """``value``, which has to be a boolean."""
        value = self.force(value)
        if value is True or value is False:
            return bool(value)
        raise wrong_type(value, "a Boolean")

    def integer(self, value: Value) -> int:
        """``value``, which has to be an integer."""
        value = self.force(value)
        if type(value) is int:
            return value
        raise wrong_type(value, "an integer")

    def number(self, value: Value) -> int | float:
        """``value``, which has to be an integer or a float."""
        value = self.force(value)
        if type(value) is int or type(value) is float:
            return value
        raise wrong_type(value, "an integer")

    def string(self, value: Value) -> str:
        """``value``, which has to be a string."""
        value = self.force(value)
        if type(value) is str:
            return value
        raise wrong_type(value, "a string")

    def items(self, value: Value) -> list[Value]:
        """``value``, which has to be a list."""
        value = self.force(value)
        if type(value) is list:
            return value
        raise wrong_type(value, "a list")

    def attributes(self, value: Value) -> dict[str, Value]:
        """``value``, which has to be an attribute set."""
        value = self.force(value)
        if type(value) is dict:
            return value
        raise wrong_type(value, "a set")

    def spend_string(self, length: int) -> None:
        """Count a string that is made or looked through."""
        if length > LONGEST_STRING:
            raise TooMuch(f"a string of more than {LONGEST_STRING} bytes")
        self.spend(length // BYTES_OF_A_STEP)

    def join(self, pieces: list[str], between: str = "") -> str:
        """One string of ``pieces``, which is not made if it is too long."""
        self.spend_string(sum(map(len, pieces)) + len(between) * max(0, len(pieces) - 1))
        self.spend(len(pieces))
        return between.join(pieces)

    def spend_list(self, length: int) -> None:
        """Count a list that is made."""
        if length > LONGEST_LIST:
            raise TooMuch(f"a list of more than {LONGEST_LIST} items")
        self.spend(length)

    def text(self, value: Value, more: bool = False) -> str:
        """``value`` as a string: what an interpolation takes, and with ``more`` what ``toString`` takes.

        https://nix.dev/manual/nix/latest/language/string-interpolation#interpolated-expression
        """
        value = self.force(value)
        kind = type(value)
        if kind is str:
            return value  # type: ignore[no-any-return]
        if kind is dict:
            return self.text_of_set(value, more)
        if kind is PathValue:
            raise Unsupported(f"the path {value.text[:80]} as a string")
        if more:
            if kind is bool:
                return "1" if value else ""
            if kind is int:
                return str(value)
            if kind is float:
                return format_float(value)
            if value is None:
                return ""
            if kind is list:
                return self.text_of_list(value)
        if isinstance(value, Opaque):
            raise Unsupported(f"{value.name} as a string")
        raise NixError(f"cannot coerce {_NAMES[kind]} to a string")

    def text_of_set(self, value: dict[str, Value], more: bool) -> str:
        self.enter(4)
        if "__toString" in value:
            found = self.text(self.apply(value["__toString"], value), more)
        elif "outPath" in value:
            found = self.text(value["outPath"], more)
        else:
            raise NixError("cannot coerce a set to a string")
        self.frames += 4
        return found

    def text_of_list(self, value: list[Value]) -> str:
        self.enter(4)
        self.spend(3 * len(value))
        pieces: list[str] = []
        for index, item in enumerate(value):
            pieces.append(self.text(item, True))
            forced = self.force(item)
            # As Nix does: no blank after an empty list, though there is one before it.
            if index < len(value) - 1 and not (type(forced) is list and not forced):
                pieces.append(" ")
        self.frames += 4
        return self.join(pieces)

    def equal(self, left: Value, right: Value) -> bool:
        """``left == right``: numbers by value, lists and sets by their content, functions never."""
        left = self.force(left)
        right = self.force(right)
        kind = type(left)
        if kind is not type(right):
            if kind is int and type(right) is float:
                return float(left) == right
            if kind is float and type(right) is int:
                return left == float(right)  # type: ignore[no-any-return]
            for value in (left, right):
                if isinstance(value, Opaque):
                    raise Unsupported(f"a comparison with {value.name}")
            return False
        if kind is str:
            self.spend_string(min(len(left), len(right)))
            return left == right  # type: ignore[no-any-return]
        if kind is list or kind is dict:
            if left is right and not left:
                return True
            return self.equal_inside(left, right)
        if kind is PathValue:
            raise Unsupported("a comparison of paths")
        if isinstance(left, Opaque):
            raise Unsupported(f"a comparison with {left.name}")
        return kind is not Function and kind is not Builtin and left == right

    def equal_inside(self, left: Value, right: Value) -> bool:
        if len(left) != len(right) and not (type(left) is dict and "type" in left and "type" in right):
            return False
        self.spend(3 * len(left) + 1)
        self.enter(6)
        if type(left) is list:
            found = self.equal_items(left, right)
        elif (
            self.is_derivation(left)
            and self.is_derivation(right)
            and "outPath" in left
            and "outPath" in right
        ):
            found = self.equal(left["outPath"], right["outPath"])
        else:
            found = len(left) == len(right) and self.equal_attributes(left, right)
        self.frames += 6
        return found

    # The next two are written without `all`: Python 3.12 limits how often what is written in C, as that is,
    # may call Python while it is called itself.

    def equal_items(self, left: list[Value], right: list[Value]) -> bool:
        index = 0
        while index < len(left):
            if not self.equal_item(left[index], right[index]):
                return False
            index += 1
        return True

    def equal_attributes(self, left: dict[str, Value], right: dict[str, Value]) -> bool:
        # Nix compares in the order in which it has first seen the names, which is not known here. So all
        # are compared, to find out whether that matters.
        found = left.keys() == right.keys()
        failure: NixError | None = None
        frames = self.frames
        for name in sorted(left.keys() & right.keys()):
            try:
                found = self.equal_item(left[name], right[name]) and found
            except NixError as error:
                self.frames = frames
                failure = failure or error
        if failure is None:
            return found
        if found:
            raise failure
        raise Unsupported("a comparison of sets of which one is different and one fails")

    def equal_item(self, left: Value, right: Value) -> bool:
        forced = self.force(left)
        if (type(forced) is Function or type(forced) is Builtin) and forced is self.force(right):
            # Nix compares where they are stored, which depends on how it optimizes.
            raise Unsupported("a comparison of functions inside of lists or sets")
        return self.equal(left, right)

    def is_derivation(self, value: dict[str, Value]) -> bool:
        return "type" in value and self.force(value["type"]) == "derivation"

    def less(self, left: Value, right: Value) -> bool:
        """``left < right``, of two numbers, strings or lists."""
        left = self.force(left)
        right = self.force(right)
        kind = type(left)
        other = type(right)
        if kind is int and other is int:
            return left < right  # type: ignore[no-any-return]
        if (kind is int or kind is float) and (other is int or other is float):
            return float(left) < float(right)
        if kind is str and other is str:
            self.spend_string(min(len(left), len(right)))
            return left < right  # type: ignore[no-any-return]
        if kind is list and other is list:
            return self.less_inside(left, right)
        for value in (left, right):
            if isinstance(value, Opaque | PathValue):
                shown = value.name if isinstance(value, Opaque) else "paths"
                raise Unsupported(f"a comparison of {shown}")
        raise NixError(f"cannot compare {_NAMES[kind]} with {_NAMES[other]}")

    def less_inside(self, left: list[Value], right: list[Value]) -> bool:
        self.enter(6)
        for a, b in zip(left, right, strict=False):
            self.spend(1)
            if not self.equal_item(a, b):
                found = self.less(a, b)
                break
        else:
            found = len(left) < len(right)
        self.frames += 6
        return found

    # The four operations

    def add(self, left: int | float, right: int | float) -> int | float:
        return checked(left + right) if type(left) is type(right) is int else float(left) + float(right)

    def subtract(self, left: int | float, right: int | float) -> int | float:
        return checked(left - right) if type(left) is type(right) is int else float(left) - float(right)

    def multiply(self, left: int | float, right: int | float) -> int | float:
        return checked(left * right) if type(left) is type(right) is int else float(left) * float(right)

    def divide(self, left: int | float, right: int | float) -> int | float:
        if right == 0:
            raise NixError("division by zero")
        if type(left) is int and type(right) is int:
            # Towards zero, as C++ does.
            quotient = abs(left) // abs(right)
            return checked(quotient if (left < 0) == (right < 0) else -quotient)
        return float(left) / float(right)

    # Lists and sets

    def update(self, left: Value, right: Value) -> Value:
        """``left // right`` of forced values."""
        if type(left) is dict and type(right) is dict:
            self.spend(2 * (len(left) + len(right)))
            if not left or not right:
                return left or right
            return {**left, **right}
        for value in (left, right):
            if type(value) is not dict and not isinstance(value, Opaque):
                raise wrong_type(value, "a set")
        return left.update(right, True) if isinstance(left, Opaque) else right.update(left, False)

    def concatenate(self, lists: list[list[Value]]) -> list[Value]:
        """One list of the items of all."""
        self.spend_list(sum(map(len, lists)))
        return [item for one in lists for item in one]

    def deep(self, value: Value) -> Value:
        """Force ``value`` and all that is in it."""
        value = self.force(value)
        seen: set[int] = set()
        level = [value]
        # In the order of Nix: each item with all that is in it, then the next.
        pending = [iter(level)]
        while pending:
            for item in pending[-1]:
                item = self.force(item)
                if type(item) in (list, dict) and id(item) not in seen:
                    # What was seen stays alive in `value`, and so keeps its identity.
                    seen.add(id(item))
                    self.spend(len(item) + 1)
                    if type(item) is list:
                        pending.append(iter(item))
                    else:
                        pending.append(iter([item[name] for name in sorted(item)]))
                    break
            else:
                pending.pop()
        return value


def checked(value: int) -> int:
    """``value``, which has to fit into 64 bits."""
    if LEAST_INTEGER <= value <= LARGEST_INTEGER:
        return value
    raise NixError("integer overflow")


def format_float(value: float) -> str:
    """``value`` as ``toString`` writes it."""
    if value != value or value in (float("inf"), float("-inf")):
        return str(value).replace("nan", "-nan" if str(value).startswith("-") else "nan")
    return f"{value:.6f}"
