"""The public API of a kernel's Python package: the names in ``__all__`` and their signatures.

It is read from the sources, as importing what a pull request brings would run it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

Load = Callable[[str], "ast.Module | None"]
"""Gives the syntax tree of a file of the package, by its path in there; ``None`` if there is none."""

# As many modules as a name may come through: imports can be a circle.
_DEEPEST = 10
_PUBLIC_METHODS = frozenset({"__init__", "__new__", "__call__"})


@dataclass(frozen=True)
class Signature:
    """The parameters of a function, with what is said of their types, as written."""

    node: ast.arguments
    returns: ast.expr | None = None

    def __str__(self) -> str:
        text = f"({ast.unparse(self.node)})"
        return f"{text} -> {ast.unparse(self.returns)}" if self.returns is not None else text

    def differs(self, other: Signature) -> bool:
        """Whether a call may mean something else. Types that only one of them names are no difference."""
        if _plain(self.node) != _plain(other.node):
            return True
        pairs = [(self.returns, other.returns)]
        pairs += [
            (one.annotation, two.annotation)
            for one, two in zip(_arguments(self.node), _arguments(other.node), strict=True)
        ]
        return any(
            one is not None and two is not None and ast.unparse(one) != ast.unparse(two) for one, two in pairs
        )


@dataclass(frozen=True)
class Name:
    """A public name: ``calls`` are the signatures of a function (under an empty name) or of the methods of a
    class, ``fields`` what a class declares with a type. Anything else has neither."""

    calls: Mapping[str, Signature] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Difference:
    """A way in which two APIs differ."""

    what: str
    is_addition: bool = False


def names(load: Load) -> list[str] | None:
    """What ``__all__`` of the package lists; ``None`` where it is missing or cannot be told without running
    it."""
    return _public(load, "__init__.py", _DEEPEST)


def read(load: Load) -> dict[str, Name] | None:
    """The public names; ``None`` where ``__all__`` is missing or cannot be told without running it."""
    listed = names(load)
    if listed is None:
        return None
    return {name: _resolve(load, "__init__.py", name, _DEEPEST) or Name() for name in listed}


def compare(old: Mapping[str, Name], new: Mapping[str, Name]) -> Iterator[Difference]:
    """What a user of ``old`` finds changed in ``new``."""
    for name in old.keys() - new.keys():
        yield Difference(f"{name} is gone")
    for name in new.keys() - old.keys():
        yield Difference(f"{name} is new", is_addition=True)
    for name in old.keys() & new.keys():
        yield from _compare(name, old[name], new[name])


def _compare(name: str, old: Name, new: Name) -> Iterator[Difference]:
    # What cannot be told on one side is no difference.
    if not (old.calls or old.fields) or not (new.calls or new.fields):
        return
    for method in old.calls.keys() | new.calls.keys():
        label = f"{name}.{method}" if method else name
        before, after = old.calls.get(method), new.calls.get(method)
        if before is None:
            yield Difference(f"{label}{after} is new", is_addition=True)
        elif after is None:
            yield Difference(f"{label} is gone")
        elif before.differs(after):
            yield Difference(f"{label} was {before} and is {after}")
    for one in old.fields.keys() - new.fields.keys():
        yield Difference(f"{name}.{one} is gone")
    for one in new.fields.keys() - old.fields.keys():
        yield Difference(f"{name}.{one} is new", is_addition=True)


def _public(load: Load, module: str, deep: int) -> list[str] | None:
    tree = load(module) if deep else None
    found: list[str] | None = None
    for node in _statements(tree):
        value: ast.expr | None = None
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if not any(isinstance(one, ast.Name) and one.id == "__all__" for one in targets):
                continue
            value = node.value
        elif isinstance(node, ast.Expr) and _is_method_of_all(node.value):
            call = node.value
            assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
            value = call.args[0] if len(call.args) == 1 else None
            if value is not None and call.func.attr == "append":
                value = ast.List([value])
        else:
            continue
        names = _listed(load, tree, module, value, deep)
        if names is None:
            return None
        found = names if isinstance(node, ast.Assign | ast.AnnAssign) else [*(found or []), *names]
    return found


def _is_method_of_all(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("append", "extend")
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "__all__"
    )


def _listed(
    load: Load, tree: ast.Module | None, module: str, node: ast.expr | None, deep: int
) -> list[str] | None:
    """The names that an expression lists: literals, sums of them, and ``__all__`` of other modules."""
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        names: list[str] = []
        for one in node.elts:
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                names.append(one.value)
                continue
            if isinstance(one, ast.Name):
                # A function in place of its name, which get_kernel takes.
                names.append(one.id)
                continue
            inner = _listed(load, tree, module, one.value, deep) if isinstance(one, ast.Starred) else None
            if inner is None:
                return None
            names += inner
        return names
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = (_listed(load, tree, module, one, deep) for one in (node.left, node.right))
        return None if left is None or right is None else left + right
    if isinstance(node, ast.Attribute) and node.attr == "__all__" and isinstance(node.value, ast.Name):
        source = _imported(tree, module, node.value.id)
        return _public_of(load, source, deep) if source else None
    return None


def _public_of(load: Load, source: tuple[str, str], deep: int) -> list[str] | None:
    module, name = source
    found = _module_file(load, f"{module}/{name}".strip("/") if name else module)
    return _public(load, found, deep - 1) if found else None


def _resolve(load: Load, module: str, name: str, deep: int) -> Name | None:
    """What ``name`` of a module is, followed through the package's own modules."""
    tree = load(module) if deep else None
    found: Name | None = None
    for node in _statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            found = Name({"": Signature(node.args, node.returns)})
        elif isinstance(node, ast.ClassDef) and node.name == name:
            found = _class(node)
        elif isinstance(node, ast.Assign) and _is_target(node, name):
            found = (
                _resolve(load, module, node.value.id, deep - 1) if isinstance(node.value, ast.Name) else None
            )
        elif isinstance(node, ast.ImportFrom) and node.level:
            source = _source(module, node)
            for one in node.names:
                if one.name == "*" or (one.asname or one.name) == name:
                    file = _module_file(load, source)
                    wanted = name if one.name == "*" else one.name
                    inner = _resolve(load, file, wanted, deep - 1) if file else None
                    found = inner or found
    return found


def _is_target(node: ast.Assign, name: str) -> bool:
    return any(isinstance(one, ast.Name) and one.id == name for one in node.targets)


def _class(node: ast.ClassDef) -> Name:
    calls: dict[str, Signature] = {}
    fields: dict[str, str] = {}
    for one in node.body:
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            if not one.name.startswith("_") or one.name in _PUBLIC_METHODS:
                calls[one.name] = Signature(one.args, one.returns)
        elif (
            isinstance(one, ast.AnnAssign)
            and isinstance(one.target, ast.Name)
            and not one.target.id.startswith("_")
        ):
            fields[one.target.id] = ast.unparse(one.annotation)
    return Name(calls, fields)


def _statements(tree: ast.Module | None) -> Iterator[ast.stmt]:
    """The statements that run when the module is imported, those inside of if, try and with too."""
    left: list[ast.AST] = [tree] if tree is not None else []
    while left:
        node = left.pop(0)
        if isinstance(node, ast.stmt):
            yield node
        if isinstance(node, ast.Module | ast.If | ast.Try | ast.With | ast.ExceptHandler):
            left = [*ast.iter_child_nodes(node), *left]


def _imported(tree: ast.Module | None, module: str, name: str) -> tuple[str, str] | None:
    """The module and the name in it that a local name was imported from, inside of the package."""
    for node in _statements(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            for one in node.names:
                if (one.asname or one.name) == name:
                    return _source(module, node), one.name
    return None


def _source(module: str, node: ast.ImportFrom) -> str:
    """The module that an import names, as a path in the package without its suffix."""
    folders = module.split("/")[:-1]
    around = folders[: len(folders) - (node.level - 1)]
    return "/".join([*around, *(node.module.split(".") if node.module else [])])


def _module_file(load: Load, module: str) -> str | None:
    names = ("__init__.py",) if not module else (f"{module}/__init__.py", f"{module}.py")
    return next((name for name in names if load(name) is not None), None)


def _arguments(node: ast.arguments) -> list[ast.arg]:
    rest = [one for one in (node.vararg, node.kwarg) if one is not None]
    return [*node.posonlyargs, *node.args, *node.kwonlyargs, *rest]


def _plain(node: ast.arguments) -> str:
    """The parameters and their defaults, without types."""

    def bare(one: ast.arg | None) -> ast.arg | None:
        return None if one is None else ast.arg(one.arg)

    return ast.unparse(
        ast.arguments(
            posonlyargs=[ast.arg(one.arg) for one in node.posonlyargs],
            args=[ast.arg(one.arg) for one in node.args],
            vararg=bare(node.vararg),
            kwonlyargs=[ast.arg(one.arg) for one in node.kwonlyargs],
            kw_defaults=node.kw_defaults,
            kwarg=bare(node.kwarg),
            defaults=node.defaults,
        )
    )
