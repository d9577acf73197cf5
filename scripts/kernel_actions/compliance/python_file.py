"""A Python file of a kernel's package, and what rules ask of its syntax tree.

Walking all of a tree takes as long as parsing it, and large kernels have hundreds of files: what looks for
statements walks those alone, and what looks for names asks the text first whether they are in there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from kernel_actions.errors import Place

# What asks whether a package is there: of importlib.util, and in the names of functions around it.
ASKS = "find_spec"
# In the condition of what runs for type checkers, and of what runs where the file is a program.
_NEVER_HERE = frozenset({"TYPE_CHECKING", "__main__"})
_CAUGHT = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
# Names of what such a question was answered with.
_ANSWERS = re.compile(r"(?:^|_)(?:has|have|available|installed)(?:_|$)", re.IGNORECASE)
# Where statements hold others.
_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")


@dataclass(frozen=True, eq=False)
class PythonFile:
    """A Python file of the kernel's package: its syntax tree, and the text it was made of."""

    path: Path
    tree: ast.Module
    text: bytes = field(repr=False)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All of the syntax tree."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def statements(self) -> tuple[ast.stmt, ...]:
        """All statements, however deep."""
        return tuple(inner_statements(self.tree.body))

    @cached_property
    def unconditional(self) -> frozenset[ast.stmt]:
        """The statements that run whenever the module is imported."""
        return frozenset(_unconditional(self.tree))

    @cached_property
    def guarded(self) -> frozenset[ast.stmt]:
        """The statements that may fail to import something, or never run where a kernel is used."""
        return frozenset(_guarded(self.statements))

    def has(self, *words: str) -> bool:
        """Whether one of ``words`` can be a name in the file. Python takes other forms of letters for the
        same, so that only ASCII tells."""
        return not self.text.isascii() or any(word.encode() in self.text for word in words)

    @cached_property
    def imported(self) -> Mapping[str, str]:
        """Local names of what is imported from other packages, with their full names."""
        names: dict[str, str] = {}
        for node in self.statements:
            if isinstance(node, ast.Import):
                for one in node.names:
                    names[one.asname or one.name.partition(".")[0]] = (
                        one.name if one.asname else one.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom) and not node.level:
                for one in node.names:
                    names[one.asname or one.name] = f"{node.module}.{one.name}"
        return names

    def full_name(self, node: ast.expr) -> str:
        """The full dotted name that ``node`` means, such as ``torch.library.custom_op``; empty where
        it is none of something imported."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.imported:
            return ""
        return ".".join([self.imported[node.id], *reversed(parts)])

    def may_use(self, module: str) -> bool:
        """Whether something in the file can have a full name that begins with ``module``, as in
        ``torch.library``."""
        package, _, name = module.rpartition(".")
        if not self.has(name):
            return False
        if not self.text.isascii():
            return True
        for local, full in self.imported.items():
            if full == module or full.startswith(f"{module}."):
                return True
            if full == package and re.search(
                rf"\b{re.escape(local)}[\s\\]*\.[\s\\]*{re.escape(name)}\b".encode(), self.text
            ):
                return True
        return False

    def place(self, node: ast.expr | ast.stmt) -> Place:
        """Where ``node`` stands."""
        return Place(self.path, node.lineno, node.col_offset + 1)


def inner_statements(nodes: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """The statements among ``nodes``, and those inside of them, in the order of the text."""
    left = list(nodes)
    left.reverse()
    while left:
        node = left.pop()
        if isinstance(node, ast.stmt):
            yield node
        for name in reversed(_BLOCKS):
            block = getattr(node, name, None)
            # Of a lambda and of a conditional expression the body is none.
            if isinstance(block, list):
                left.extend(reversed(block))


def imported(node: ast.AST) -> list[str]:
    """The modules of other packages that a statement imports."""
    if isinstance(node, ast.Import):
        return [one.name for one in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [node.module or ""]
    return []


def _unconditional(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements that run whenever the module is imported."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.stmt):
            yield node
        if isinstance(node, ast.Module | ast.ClassDef | ast.With):
            left += node.body
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Constant):
            left += node.body if node.test.value else node.orelse
        elif isinstance(node, ast.Try):
            left += node.finalbody
            if not any(_goes_on(one) for one in node.handlers):
                left += [*node.body, *node.orelse]


def _guarded(statements: Sequence[ast.AST]) -> Iterator[ast.stmt]:
    """Of all statements of a module those whose failing to import something is provided for, or that never
    run where a kernel is used."""
    for node in statements:
        if isinstance(node, ast.Try) and any(_catches(one) for one in node.handlers):
            handled = (inner for handler in node.handlers for inner in handler.body)
            yield from inner_statements((*node.body, *node.orelse, *handled))
        elif isinstance(node, ast.If) and _is_question(node.test):
            yield from inner_statements((*node.body, *node.orelse))


def _catches(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(last_name(one) in _CAUGHT for one in kinds)


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether the module is loaded although something cannot be imported."""
    return _catches(handler) and not (handler.body and isinstance(handler.body[-1], ast.Raise))


def _is_question(test: ast.expr) -> bool:
    """Whether a condition asks for a package, for a type checker, or for a program."""
    for node in ast.walk(test):
        word = last_name(node) if isinstance(node, ast.Name | ast.Attribute) else ""
        text = node.value if isinstance(node, ast.Constant) else ""
        if word in _NEVER_HERE or text in _NEVER_HERE or _ANSWERS.search(word) or ASKS in word:
            return True
    return False


def last_name(node: ast.AST) -> str:
    """The last part of a name such as ``a.b.c``; empty for anything else."""
    return str(getattr(node, "attr", "") or getattr(node, "id", ""))
