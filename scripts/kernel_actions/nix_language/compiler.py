"""From a syntax tree to functions of Python, so that what can be known before the evaluation is.

Each expression becomes a function of the environment. Where a name is bound is found here, so that an
environment is a list; and what a piece of code takes of the machine's limits is summed up here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kernel_actions.nix_language import syntax
from kernel_actions.nix_language.problems import LanguageError, NixError, Thrown, TooMuch, Unsupported
from kernel_actions.nix_language.syntax import AttributeSet, Constant, Expression, Variable
from kernel_actions.nix_language.values import (
    ABSENT,
    Environment,
    Function,
    Machine,
    Opaque,
    Parameters,
    PathValue,
    Run,
    Thunk,
    Unit,
    Value,
    name_of_type,
    wrong_type,
)

# Expressions in expressions, as Python's stack holds them.
DEEPEST = 400
# Nix turns operators into calls of these names, which a text may thus redefine.
_NAMES_OF_OPERATORS = frozenset(("__sub", "__mul", "__div", "__lessThan"))


class Code(NamedTuple):
    """Compiled code: see ``values.Unit``, but for the frames of who runs it."""

    run: Run
    cost: int
    frames: int


class Scope:
    """The names of one level of the environment; ``names`` is ``None`` for a ``with``."""

    __slots__ = ("names", "parent")

    def __init__(self, parent: Scope | None, names: dict[str, int] | None) -> None:
        self.parent = parent
        self.names = names


def compile_expression(
    machine: Machine, expression: Expression, names: Mapping[str, Value], has_places: bool = True
) -> Unit:
    """The code of ``expression``, to be run in an empty environment.

    ``names`` are those in sight of all of it. Without ``has_places``, errors are blamed on who uses the code.

    Raises ``NixError`` for an undefined variable, ``Unsupported`` and ``TooMuch``.
    """
    return _unit(_Compiler(machine, names, has_places).code(expression, None))


def _unit(code: Code) -> Unit:
    # The frames of who forces or calls it, and of what that calls in turn.
    return Unit(code.run, code.cost + 3, code.frames + 3)


class _Compiler:
    def __init__(self, machine: Machine, names: Mapping[str, Value], has_places: bool) -> None:
        self.machine = machine
        self.names = names
        self.has_places = has_places
        self.depth = 0

    def place(self, offset: int) -> int | None:
        return offset if self.has_places else None

    def code(self, node: Expression, scope: Scope | None) -> Code:
        """The code that evaluates ``node`` to a value."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise TooMuch("nested too deeply", getattr(node, "offset", None))
        found = _COMPILERS[type(node)](self, node, scope)
        self.depth -= 1
        return found

    def scope(self, parent: Scope | None, names: dict[str, int], offset: int) -> Scope:
        for name in _NAMES_OF_OPERATORS:
            if name in names:
                raise Unsupported(f"another meaning of {name}", offset)
        return Scope(parent, names)

    def delayed(self, node: Expression, scope: Scope | None, being_made: bool = False) -> tuple[Run, int]:
        """A function to a value or thunk of ``node``, and its cost.

        ``being_made``: the innermost level of the environment is not complete when it is called.
        """
        if isinstance(node, Constant):
            value = node.value
            return lambda environment: value, 1
        if isinstance(node, syntax.Lambda):
            code = self.code(node, scope)
            return code.run, code.cost
        if isinstance(node, Variable):
            found = self.resolve(node.name, scope)
            if found is not None and not (being_made and found[0] == 0):
                return _cell(*found), 1
            if found is None and node.name in self.names:
                known = self.names[node.name]
                if not isinstance(known, Unsupported):
                    return lambda environment: known, 1
        if isinstance(node, syntax.ListOf) and not node.items:
            empty: Value = []
            return lambda environment: empty, 1
        unit = _unit(self.code(node, scope))

        def run(environment: Environment) -> Value:
            return Thunk(unit, environment)

        return run, 3

    @staticmethod
    def resolve(name: str, scope: Scope | None) -> tuple[int, int] | None:
        """How many levels up ``name`` is bound, and where there."""
        level = 0
        while scope is not None:
            if scope.names is not None and name in scope.names:
                return level, scope.names[name]
            scope = scope.parent
            level += 1
        return None

    # Names

    def variable(self, node: Variable, scope: Scope | None) -> Code:
        found = self.resolve(node.name, scope)
        if found is not None:
            return self.bound_variable(*found)
        if node.name in self.names:
            value = self.names[node.name]
            if isinstance(value, Unsupported):
                return self.failing(value.message, node.offset)
            return Code(lambda environment: value, 1, 1)
        levels = []
        level = 0
        while scope is not None:
            if scope.names is None:
                levels.append(level)
            scope = scope.parent
            level += 1
        if not levels:
            raise NixError(f"undefined variable '{node.name[:80]}'", self.place(node.offset))
        return self.variable_of_with(node.name, levels, self.place(node.offset))

    def failing(self, what: str, offset: int) -> Code:
        place = self.place(offset)

        def run(environment: Environment) -> Value:
            raise Unsupported(what, place)

        return Code(run, 1, 1)

    def bound_variable(self, level: int, index: int) -> Code:
        force = self.machine.force
        run: Run
        if level == 0:

            def run(environment: Environment) -> Value:
                value = environment[index]
                if type(value) is not Thunk:
                    return value
                return value.value if value.unit is None else force(value)

        elif level == 1:

            def run(environment: Environment) -> Value:
                value = environment[0][index]
                if type(value) is not Thunk:
                    return value
                return value.value if value.unit is None else force(value)

        else:
            cell = _cell(level, index)

            def run(environment: Environment) -> Value:
                return force(cell(environment))

        return Code(run, 1 + level // 8, 2)

    def variable_of_with(self, name: str, levels: list[int], place: int | None) -> Code:
        machine = self.machine

        def run(environment: Environment) -> Value:
            passed = 0
            for level in levels:
                while passed < level:
                    environment = environment[0]
                    passed += 1
                subject = machine.force(environment[1])
                if isinstance(subject, Opaque):
                    found = subject.find(name)
                    if found is not ABSENT:
                        return machine.force(found)
                elif type(subject) is not dict:
                    raise wrong_type(subject, "a set", place)
                elif name in subject:
                    return machine.force(subject[name])
            raise NixError(f"undefined variable '{name[:80]}'", place)

        return Code(run, 2 + max(levels) // 8, 3)

    # Literals

    def constant(self, node: Constant, scope: Scope | None) -> Code:
        value = node.value
        return Code(lambda environment: value, 1, 1)

    def path(self, node: syntax.PathLiteral, scope: Scope | None) -> Code:
        value = PathValue(node.text)
        return Code(lambda environment: value, 1, 1)

    def unknown(self, node: syntax.Unknown, scope: Scope | None) -> Code:
        return self.failing(node.what, node.offset)

    def text(self, node: syntax.Text, scope: Scope | None) -> Code:
        machine = self.machine
        place = self.place(node.offset)
        codes = [self.code(part, scope) for part in node.parts]
        runs = tuple(code.run for code in codes)

        def run(environment: Environment) -> Value:
            pieces: list[str] = []
            for part in runs:
                value = part(environment)
                pieces.append(value if type(value) is str else _placed(place, machine.text, value))
            return _placed(place, machine.join, pieces)

        return _around(run, codes, 4)

    def list_of(self, node: syntax.ListOf, scope: Scope | None) -> Code:
        pairs = [self.delayed(item, scope) for item in node.items]
        runs = tuple(run for run, _ in pairs)

        def run(environment: Environment) -> Value:
            return [item(environment) for item in runs]

        return Code(run, 1 + sum(cost for _, cost in pairs), 3)

    def attribute_set(self, node: AttributeSet, scope: Scope | None) -> Code:
        if node.recursive:
            return self.recursive_set(node, scope)
        made: list[tuple[str, Run]] = []
        cost = 1
        for name, attribute in node.attributes.items():
            run_attribute, more = self.delayed(attribute.value, scope)
            made.append((name, run_attribute))
            cost += more + 1
        static = tuple(made)

        def run(environment: Environment) -> Value:
            return {name: attribute(environment) for name, attribute in static}

        return self.with_dynamic(node, scope, Code(run, cost, 3))

    def recursive_set(self, node: AttributeSet, scope: Scope | None) -> Code:
        make, inner, cost = self.bindings(node, scope)
        names = tuple(enumerate(node.attributes, start=1))

        def run(environment: Environment) -> Value:
            return {name: environment[index] for index, name in names}

        if not node.dynamic:

            def run_static(environment: Environment) -> Value:
                return run(make(environment))

            return Code(run_static, cost, 4)
        code = self.with_dynamic(node, inner, Code(run, cost, 3))

        def run_dynamic(environment: Environment) -> Value:
            return code.run(make(environment))

        return Code(run_dynamic, code.cost, code.frames + 1)

    def with_dynamic(self, node: AttributeSet, scope: Scope | None, static: Code) -> Code:
        """``static`` and the attributes whose names have to be evaluated."""
        if not node.dynamic:
            return static
        machine = self.machine
        codes = [static]
        parts: list[tuple[Run, Run, int | None]] = []
        cost = 0
        for name, value, offset in node.dynamic:
            codes.append(self.code(name, scope))
            run_value, more = self.delayed(value, scope)
            cost += more + 2
            parts.append((codes[-1].run, run_value, self.place(offset)))
        run_static = static.run

        def run(environment: Environment) -> Value:
            found = run_static(environment)
            for name_run, value_run, place in parts:
                name = name_run(environment)
                if name is None:
                    continue
                if type(name) is not str:
                    raise wrong_type(name, "a string", place)
                machine.spend_string(len(name))
                if name in found:
                    raise NixError(f"dynamic attribute '{name[:80]}' is already defined", place)
                found[name] = value_run(environment)
            return found

        whole = _around(run, codes, 3)
        return Code(whole.run, whole.cost + cost, whole.frames)

    def bindings(self, node: AttributeSet, scope: Scope | None) -> tuple[Run, Scope, int]:
        """What makes the environment of a recursive set or ``let``, its scope, and the cost."""
        inner = self.scope(scope, {name: index for index, name in enumerate(node.attributes, 1)}, node.offset)
        made: list[tuple[bool, Run]] = []
        cost = 2
        for attribute in node.attributes.values():
            run, more = self.delayed(
                attribute.value, scope if attribute.inherited else inner, not attribute.inherited
            )
            made.append((attribute.inherited, run))
            cost += more + 1
        runs = tuple(made)

        def make(environment: Environment) -> Environment:
            found = [environment]
            for is_inherited, run in runs:
                found.append(run(environment if is_inherited else found))
            return found

        return make, inner, cost

    # Compound expressions

    def let(self, node: syntax.Let, scope: Scope | None) -> Code:
        make, inner, cost = self.bindings(node.bindings, scope)
        body = self.code(node.body, inner)
        run_body = body.run

        def run(environment: Environment) -> Value:
            return run_body(make(environment))

        return Code(run, cost + body.cost, max(body.frames, 2) + 1)

    def with_(self, node: syntax.With, scope: Scope | None) -> Code:
        subject, cost = self.delayed(node.subject, scope)
        body = self.code(node.body, Scope(scope, None))
        run_body = body.run

        def run(environment: Environment) -> Value:
            return run_body([environment, subject(environment)])

        return Code(run, cost + body.cost + 2, body.frames + 1)

    def condition(self, node: Expression, scope: Scope | None, offset: int) -> Code:
        """The code of ``node``, which has to be a boolean."""
        code = self.code(node, scope)
        inner = code.run
        place = self.place(offset)

        def run(environment: Environment) -> Value:
            value = inner(environment)
            if value is True or value is False:
                return value
            raise wrong_type(value, "a Boolean", place)

        return Code(run, code.cost, code.frames + 1)

    def if_(self, node: syntax.If, scope: Scope | None) -> Code:
        condition = self.condition(node.condition, scope, node.offset)
        yes = self.code(node.yes, scope)
        no = self.code(node.no, scope)
        run_condition, run_yes, run_no = condition.run, yes.run, no.run

        def run(environment: Environment) -> Value:
            return run_yes(environment) if run_condition(environment) else run_no(environment)

        return _around(run, [condition, yes, no])

    def assert_(self, node: syntax.Assert, scope: Scope | None) -> Code:
        condition = self.condition(node.condition, scope, node.offset)
        body = self.code(node.body, scope)
        run_condition, run_body = condition.run, body.run
        place = self.place(node.offset)

        def run(environment: Environment) -> Value:
            if not run_condition(environment):
                raise Thrown("an assertion failed", place)
            return run_body(environment)

        return _around(run, [condition, body])

    def not_(self, node: syntax.Not, scope: Scope | None) -> Code:
        operand = self.condition(node.operand, scope, node.offset)
        run_operand = operand.run
        return _around(lambda environment: not run_operand(environment), [operand])

    def lambda_(self, node: syntax.Lambda, scope: Scope | None) -> Code:
        names: dict[str, int] = {}
        if node.name is not None:
            names[node.name] = 1
        for formal in node.formals.defaults if node.formals else ():
            names[formal] = len(names) + 1
        inner = self.scope(scope, names, node.offset)
        formals: dict[str, Run | None] | None = None
        cost = 2 + len(names)
        if node.formals is not None:
            formals = {}
            for formal, default in node.formals.defaults.items():
                formals[formal] = None
                if default is not None:
                    formals[formal], more = self.delayed(default, inner, being_made=True)
                    cost += more
        body = self.code(node.body, inner)
        # The frames of `apply`, and of `bind` and a default in it.
        unit = Unit(body.run, body.cost + cost, max(body.frames, 4) + 2)
        parameters = Parameters(
            unit, node.name is not None, formals, node.formals.open if node.formals else True
        )
        return Code(lambda environment: Function(parameters, environment), 2, 1)

    def apply(self, node: syntax.Apply, scope: Scope | None) -> Code:
        function = self.code(node.function, scope)
        pairs = [self.delayed(argument, scope) for argument in node.arguments]
        run_function = function.run
        place = self.place(node.offset)
        apply = self.machine.apply
        run: Run
        if len(pairs) == 1:
            only = pairs[0][0]

            def run(environment: Environment) -> Value:
                callee = run_function(environment)
                try:
                    return apply(callee, only(environment))
                except LanguageError as error:
                    if error.offset is None:
                        error.offset = place
                    raise

        else:
            runs = tuple(run for run, _ in pairs)

            def run(environment: Environment) -> Value:
                callee = run_function(environment)
                try:
                    for argument in runs:
                        callee = apply(callee, argument(environment))
                    return callee
                except LanguageError as error:
                    if error.offset is None:
                        error.offset = place
                    raise

        return Code(run, function.cost + 1 + sum(cost for _, cost in pairs), max(function.frames, 2) + 1)

    # Attributes

    def path_of(
        self, path: tuple[str | Expression, ...], scope: Scope | None, offset: int
    ) -> tuple[list[str | Run], list[Code]]:
        parts: list[str | Run] = []
        codes: list[Code] = []
        place = self.place(offset)
        machine = self.machine
        for part in path:
            if isinstance(part, str):
                parts.append(part)
            else:
                code = self.code(part, scope)
                codes.append(code)
                parts.append(_name_run(machine, code.run, place))
        return parts, [Code(code.run, code.cost + 1, code.frames + 1) for code in codes]

    def select(self, node: syntax.Select, scope: Scope | None) -> Code:
        machine = self.machine
        subject = self.code(node.subject, scope)
        parts, codes = self.path_of(node.path, scope, node.offset)
        run_subject = subject.run
        place = self.place(node.offset)
        force = machine.force
        codes = [subject, *codes]
        run: Run
        if node.default is None and len(parts) == 1 and isinstance(parts[0], str):
            only = parts[0]

            def run(environment: Environment) -> Value:
                value = run_subject(environment)
                if type(value) is dict:
                    if only in value:
                        return force(value[only])
                    raise NixError(f"attribute '{only[:80]}' missing", place)
                return _select(machine, value, only, place)

            return _around(run, codes, 3)
        run_default: Run | None = None
        if node.default is not None:
            default = self.code(node.default, scope)
            codes.append(default)
            run_default = default.run

        def run_path(environment: Environment) -> Value:
            value = run_subject(environment)
            for part in parts:
                name = part if isinstance(part, str) else part(environment)
                if type(value) is dict:
                    found = value.get(name, ABSENT)
                elif isinstance(value, Opaque):
                    found = _placed(place, value.find, name)
                elif run_default is None:
                    raise wrong_type(value, "a set", place)
                else:
                    found = ABSENT
                if found is ABSENT:
                    if run_default is None:
                        raise NixError(f"attribute '{name[:80]}' missing", place)
                    return run_default(environment)
                value = force(found)
            return value

        return _around(run_path, codes, 3)

    def has_attribute(self, node: syntax.HasAttribute, scope: Scope | None) -> Code:
        machine = self.machine
        subject = self.code(node.subject, scope)
        parts, codes = self.path_of(node.path, scope, node.offset)
        run_subject = subject.run
        place = self.place(node.offset)

        def run(environment: Environment) -> Value:
            value = run_subject(environment)
            for part in parts:
                value = machine.force(value)
                name = part if isinstance(part, str) else part(environment)
                if type(value) is dict:
                    value = value.get(name, ABSENT)
                elif isinstance(value, Opaque):
                    value = _placed(place, value.find, name)
                else:
                    return False
                if value is ABSENT:
                    return False
            return True

        return _around(run, [subject, *codes], 3)

    # Operators

    def operation(self, node: syntax.Operation, scope: Scope | None) -> Code:
        if node.operator in ("&&", "||", "->"):
            return self.logic(node, scope)
        left = self.code(node.left, scope)
        right = self.code(node.right, scope)
        run_left, run_right = left.run, right.run
        run = _OPERATORS[node.operator](self.machine, run_left, run_right)
        place = self.place(node.offset)

        def run_placed(environment: Environment) -> Value:
            try:
                return run(environment)
            except LanguageError as error:
                if error.offset is None:
                    error.offset = place
                raise

        # Comparisons look into what they compare.
        return _around(run_placed, [left, right], 5 if node.operator in _COMPARISONS else 3)

    def logic(self, node: syntax.Operation, scope: Scope | None) -> Code:
        left = self.condition(node.left, scope, node.offset)
        right = self.condition(node.right, scope, node.offset)
        run_left, run_right = left.run, right.run
        run: Run
        if node.operator == "&&":

            def run(environment: Environment) -> Value:
                return run_left(environment) and run_right(environment)

        elif node.operator == "||":

            def run(environment: Environment) -> Value:
                return run_left(environment) or run_right(environment)

        else:

            def run(environment: Environment) -> Value:
                return not run_left(environment) or run_right(environment)

        return _around(run, [left, right])


def _around(run: Run, codes: list[Code], own_frames: int = 0) -> Code:
    """The code ``run`` that runs ``codes``, and calls ``own_frames`` others by itself."""
    cost = 1 + sum(code.cost for code in codes)
    return Code(run, cost, 2 + max(own_frames, *(code.frames for code in codes)))


def _placed(place: int | None, function: Callable[..., Value], *arguments: Value) -> Value:
    """Call ``function``, and blame what goes wrong on ``place`` when nothing closer is."""
    try:
        return function(*arguments)
    except LanguageError as error:
        if error.offset is None:
            error.offset = place
        raise


def _cell(level: int, index: int) -> Run:
    """A function to what is bound ``level`` levels up, as it is there: a value or a thunk."""
    if level == 0:
        return lambda environment: environment[index]
    if level == 1:
        return lambda environment: environment[0][index]

    def run(environment: Environment) -> Value:
        for _ in range(level):
            environment = environment[0]
        return environment[index]

    return run


def _name_run(machine: Machine, inner: Run, place: int | None) -> Run:
    def run(environment: Environment) -> Value:
        name = inner(environment)
        if type(name) is not str:
            raise wrong_type(name, "a string", place)
        machine.spend_string(len(name))
        return name

    return run


def _select(machine: Machine, value: Value, name: str, place: int | None) -> Value:
    """An attribute of what is no ordinary set."""
    if not isinstance(value, Opaque):
        raise wrong_type(value, "a set", place)
    found = _placed(place, value.find, name)
    if found is ABSENT:
        raise NixError(f"attribute '{name[:80]}' missing", place)
    return machine.force(found)


def _plus(machine: Machine, left: Run, right: Run) -> Run:
    """``+``: the type of the left side decides what is done
    (https://nix.dev/manual/nix/latest/language/operators)."""

    def run(environment: Environment) -> Value:
        a = left(environment)
        kind = type(a)
        if kind is int or kind is float:
            b = right(environment)
            if type(b) is not int and type(b) is not float:
                if isinstance(b, Opaque):
                    raise wrong_type(b, "a number")
                raise NixError(f"cannot add {name_of_type(b)} to {name_of_type(a)}")
            return machine.add(a, b)
        start = a if kind is str else machine.text(a)
        b = right(environment)
        end = b if type(b) is str else machine.text(b)
        machine.spend_string(len(start) + len(end))
        return start + end

    return run


def _arithmetic(operation: str) -> Callable[[Machine, Run, Run], Run]:
    def make(machine: Machine, left: Run, right: Run) -> Run:
        calculate = {"-": machine.subtract, "*": machine.multiply, "/": machine.divide}[operation]
        number = machine.number

        def run(environment: Environment) -> Value:
            a = left(environment)
            b = right(environment)
            return calculate(number(a), number(b))

        return run

    return make


def _equality(wanted: bool) -> Callable[[Machine, Run, Run], Run]:
    def make(machine: Machine, left: Run, right: Run) -> Run:
        equal = machine.equal

        def run(environment: Environment) -> Value:
            return equal(left(environment), right(environment)) is wanted

        return run

    return make


def _comparison(swapped: bool, wanted: bool) -> Callable[[Machine, Run, Run], Run]:
    """As in Nix, all four comparisons are made of ``<``."""

    def make(machine: Machine, left: Run, right: Run) -> Run:
        less = machine.less
        first, second = (right, left) if swapped else (left, right)

        def run(environment: Environment) -> Value:
            a = first(environment)
            return less(a, second(environment)) is wanted

        return run

    return make


def _update(machine: Machine, left: Run, right: Run) -> Run:
    def run(environment: Environment) -> Value:
        a = left(environment)
        if type(a) is not dict and not isinstance(a, Opaque):
            raise wrong_type(a, "a set")
        return machine.update(a, right(environment))

    return run


def _concatenation(machine: Machine, left: Run, right: Run) -> Run:
    def run(environment: Environment) -> Value:
        a = left(environment)
        b = right(environment)
        for value in (a, b):
            if type(value) is not list:
                raise wrong_type(value, "a list")
        machine.spend_list(len(a) + len(b))
        return a + b

    return run


_OPERATORS: dict[str, Callable[[Machine, Run, Run], Run]] = {
    "==": _equality(True),
    "!=": _equality(False),
    "<": _comparison(False, True),
    ">=": _comparison(False, False),
    ">": _comparison(True, True),
    "<=": _comparison(True, False),
    "+": _plus,
    "-": _arithmetic("-"),
    "*": _arithmetic("*"),
    "/": _arithmetic("/"),
    "//": _update,
    "++": _concatenation,
}
_COMPARISONS = frozenset(("==", "!=", "<", "<=", ">", ">="))
_COMPILERS: dict[type, Callable[..., Code]] = {
    Constant: _Compiler.constant,
    syntax.Text: _Compiler.text,
    syntax.PathLiteral: _Compiler.path,
    syntax.Unknown: _Compiler.unknown,
    Variable: _Compiler.variable,
    syntax.Select: _Compiler.select,
    syntax.HasAttribute: _Compiler.has_attribute,
    syntax.Apply: _Compiler.apply,
    syntax.Lambda: _Compiler.lambda_,
    AttributeSet: _Compiler.attribute_set,
    syntax.ListOf: _Compiler.list_of,
    syntax.Let: _Compiler.let,
    syntax.With: _Compiler.with_,
    syntax.If: _Compiler.if_,
    syntax.Assert: _Compiler.assert_,
    syntax.Not: _Compiler.not_,
    syntax.Operation: _Compiler.operation,
}
