"""The values that a flake's ``outputs`` is called with, and those that the builder's function gives back.

Nothing is known of an input but its ``lib``: of the builder the functions that make a kernel's outputs,
whose calls are what is looked for, and of nixpkgs what ``library`` knows. Which of the two an input is does
not matter, as neither has a name of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel_actions.nix_language.evaluator import Evaluation
from kernel_actions.nix_language.problems import Unsupported
from kernel_actions.nix_language.values import ABSENT, Builtin, Opaque, Value

# ``genFlakeOutputs`` until 2026.
GENERATORS = ("genKernelFlakeOutputs", "genFlakeOutputs")
# What the builder's outputs have, whatever the kernel, and the systems below each.
_OUTPUTS = frozenset(("apps", "checks", "ciTests", "devShells", "formatter", "packages", "testShells"))
_SYSTEMS = frozenset(("x86_64-linux", "aarch64-linux", "aarch64-darwin"))


class Inputs(Opaque):
    """The argument of ``outputs``: the flake itself and the inputs that are locked; where it is not known
    which these are, every name is an input."""

    __slots__ = ("evaluation", "known", "locked")

    def __init__(self, evaluation: Evaluation, locked: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        super().__init__("the flake's inputs")
        self.evaluation = evaluation
        self.locked = locked
        self.known: dict[str, Value] = {}

    def find(self, name: str) -> Value:
        if self.locked is not None and name != "self" and name not in self.locked:
            return ABSENT
        if name not in self.known:
            self.known[name] = Input(name, self.evaluation, self._has_known_library(name))
        return self.known[name]

    def _has_known_library(self, name: str) -> bool:
        """Whether the ``lib`` of an input is nixpkgs' or the builder's, as far as its lock tells."""
        node = (self.locked or {}).get(name)
        if node is None:
            return name != "self" or self.locked is None
        source = f"{node.get('repo') or node.get('url') or node.get('path') or ''}".lower()
        return any(known in f"{name.lower()} {source}" for known in ("nixpkgs", "kernel"))


class Input(Opaque):
    """An input, of which only ``lib`` is known."""

    __slots__ = ("library",)

    def __init__(self, name: str, evaluation: Evaluation, has_known_library: bool) -> None:
        super().__init__(f"the input {name[:80]}")
        self.library = InputLibrary(name, evaluation) if has_known_library else None

    def find(self, name: str) -> Value:
        return self.library if name == "lib" and self.library is not None else super().find(name)


class InputLibrary(Opaque):
    """The ``lib`` of an input."""

    __slots__ = ("evaluation", "generator")

    def __init__(self, name: str, evaluation: Evaluation) -> None:
        super().__init__(f"{name[:80]}.lib")
        self.evaluation = evaluation
        self.generator = Builtin("genKernelFlakeOutputs", 1, self.generate)

    def find(self, name: str) -> Value:
        return self.generator if name in GENERATORS else self.evaluation.library.find(name)

    def generate(self, argument: Value) -> Value:
        return Outputs(self.evaluation.machine.attributes(argument))


class Outputs(Opaque):
    """What the builder's function gives for ``call``, its argument, or a part of that.

    ``above`` are attributes that were added to it, ``below`` those that it was added to.
    """

    __slots__ = ("above", "below", "call", "level")

    def __init__(
        self,
        call: dict[str, Value],
        level: int = 0,
        above: dict[str, Value] | None = None,
        below: dict[str, Value] | None = None,
    ) -> None:
        super().__init__("what genKernelFlakeOutputs returns")
        self.call = call
        self.level = level
        self.above = above or {}
        self.below = below or {}

    def find(self, name: str) -> Value:
        if name in self.above:
            return self.above[name]
        if (self.level == 0 and name in _OUTPUTS) or (self.level == 1 and name in _SYSTEMS):
            return Outputs(self.call, self.level + 1)
        if name in self.below and self.level == 0:
            return self.below[name]
        return super().find(name)

    def update(self, other: Opaque | dict[str, Value], other_wins: bool) -> Value:
        if not isinstance(other, dict):
            return super().update(other, other_wins)
        if other_wins:
            return Outputs(self.call, self.level, {**self.above, **other}, self.below)
        return Outputs(self.call, self.level, self.above, {**other, **self.below})


def calls_of_packages(evaluation: Evaluation, outputs: Value) -> list[dict[str, Value]]:
    """The arguments of the calls that the flake's packages come from; empty when there are no packages."""
    packages = _attribute(evaluation, outputs, "packages")
    if packages is ABSENT:
        return []
    packages = evaluation.force(packages)
    parts = [packages]
    if isinstance(packages, dict):
        parts = [evaluation.force(value) for value in packages.values()]
    elif isinstance(packages, Outputs):
        parts += [evaluation.force(value) for name, value in packages.above.items() if name in _SYSTEMS]
    calls: list[dict[str, Value]] = []
    for part in parts:
        if not isinstance(part, Outputs):
            raise Unsupported("packages that are not the builder's")
        if all(part.call is not call for call in calls):
            calls.append(part.call)
    return calls


def _attribute(evaluation: Evaluation, value: Value, name: str) -> Value:
    value = evaluation.force(value)
    if isinstance(value, Opaque):
        return value.find(name)
    return evaluation.machine.attributes(value).get(name, ABSENT)
