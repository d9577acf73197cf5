"""What a kernel's package imports of other packages, and whether its users have to have that.

An import is *certain* where it runs whenever the package is loaded: in a module that ``__init__.py``
imports without asking, outside of functions, conditions, and ``try`` statements that go on without it. One
that is not may still fail, later: unless it is *provided for*, as where ``ImportError`` is caught or somebody
asked before.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kernel_actions.compliance.python_file import ASKS, PythonFile, imported, last_name
from kernel_actions.manifest import Manifest

# Files that are run by who works on the kernel. pytest's patterns are among them.
_OF_TESTS = re.compile(r"(?:^|_)(?:bench|benchmarks?|tests?|testing|pytest|conftest)(?:_|$)")
# Frameworks beside Torch, of which a package that serves several imports the one that its user has.
_FRAMEWORKS = frozenset(
    {
        "cupy", "flax", "jax", "jaxlib", "keras", "mindspore", "mlx", "mxnet", "oneflow", "paddle",
        "pytensor", "tensorflow", "tinygrad",
    }
)  # fmt: skip
# What Torch itself requires, on every system and since its version 2.
_OF_TORCH = frozenset({"filelock", "fsspec", "jinja2", "networkx", "sympy", "typing_extensions"})
# The loader, and what it requires itself: `dependencies` of kernels/pyproject.toml, the same from b79face3
# (2026-07-01) to 8ac69fc5. Whoever loads a kernel from the Hub has them.
_OF_LOADER = frozenset({"huggingface_hub", "kernels", "packaging", "sigstore", "tomlkit", "yaml"})
# What those require in turn, today: huggingface_hub 2.4.0 and sigstore 4.5.1. Nobody promises it.
_BY_OTHERS = frozenset({"click", "cryptography", "httpx", "pydantic", "requests", "rich", "tqdm", "urllib3"})
# What is there wherever Torch has the backend.
_MODULES_OF_BACKENDS = {
    "neuron": ("nki", "neuronxcc", "torch_neuronx"),
    "tpu": ("jax", "jaxlib", "torch_tpu"),
}
# The modules of the packages that the builder has, where they are not named like them.
_MODULES = {
    "nvidia-cutlass-dsl": ("cutlass", "cuda"),
    "nki": ("nki", "neuronxcc"),
    "onednn": ("onednn", "dnnl"),
}


@dataclass(frozen=True)
class Import:
    """An import of what no build depends on: ``node`` in ``file`` imports ``name``. ``is_certain``: whenever
    the package is loaded. ``is_by_others``: it is there as long as what the loader requires requires it."""

    file: PythonFile
    node: ast.stmt
    name: str
    is_certain: bool
    is_by_others: bool


@dataclass(frozen=True)
class Imports:
    """The imports of a kernel's package, whose folder is ``root``."""

    manifest: Manifest
    root: Path
    files: Sequence[PythonFile]

    @cached_property
    def foreign(self) -> tuple[Import, ...]:
        """The imports that a user's machine may not be able to make, in the order of the files."""
        found: list[Import] = []
        certain = self._certain
        for file in self.files:
            is_of_tests = any(_OF_TESTS.search(part.removesuffix(".py")) for part in self._parts(file.path))
            at_load = certain.get(file.path, frozenset())
            for node in file.statements:
                for name in imported(node):
                    module = name.partition(".")[0]
                    if module in self._allowed:
                        continue
                    by_others = module in _BY_OTHERS
                    if node in at_load:
                        found.append(Import(file, node, name, not by_others, by_others))
                    elif not is_of_tests and not self._is_provided_for(file, node, module):
                        found.append(Import(file, node, name, False, by_others))
        return tuple(found)

    @property
    def imported_files(self) -> Collection[Path]:
        """The files of the package that others of it may import; some of them are not there."""
        return self._is_guarded.keys()

    def _is_provided_for(self, file: PythonFile, node: ast.stmt, module: str) -> bool:
        if module in _FRAMEWORKS or module in self._asked_for or node in file.guarded:
            return True
        # In a module that is nowhere imported but where failing is provided for.
        return node in file.unconditional and self._is_guarded.get(file.path, False)

    @cached_property
    def _allowed(self) -> frozenset[str]:
        """What the package may import: Python's own, Torch with Triton, and what is there with the loader or
        by build.toml."""
        kernel = self.manifest
        names = {one for backend in ("", *kernel.backends) for one in kernel.all_python_depends(backend)}
        found = {module for name in names for module in _MODULES.get(name, (name.replace("-", "_"),))}
        found |= {module for backend in kernel.backends for module in _MODULES_OF_BACKENDS.get(backend, ())}
        if kernel.binding.framework == "tvm-ffi":
            # Its kernels are for any framework, and look for which of them there are.
            found |= {"tvm_ffi", "jax", "jax_tvm_ffi"}
        # By their absolute names there is another rule about them.
        own = {"torch", "triton", "__future__", kernel.python_name}
        return sys.stdlib_module_names | own | _OF_TORCH | _OF_LOADER | found

    @cached_property
    def _asked_for(self) -> frozenset[str]:
        """The packages that the kernel asks for before it uses them, somewhere."""
        found: set[str] = set()
        for file in self.files:
            for node in file.guarded:
                found.update(name.partition(".")[0] for name in imported(node))
            if file.has(ASKS):
                found.update(_asked(file))
        return frozenset(found)

    @cached_property
    def _certain(self) -> Mapping[Path, frozenset[ast.stmt]]:
        """The files that have to run when the package is loaded, each with the statements that do."""
        known = {file.path: file for file in self.files}
        found: dict[Path, frozenset[ast.stmt]] = {}
        left = [self.root / "__init__.py"]
        while left:
            path = left.pop()
            if path in found or path not in known:
                continue
            found[path] = known[path].unconditional
            for node in found[path]:
                left += self._targets(path, node)
        return found

    @cached_property
    def _is_guarded(self) -> Mapping[Path, bool]:
        """The files of the package that others of it import, and whether all of them go on without it."""
        found: dict[Path, bool] = {}
        for file in self.files:
            for node in file.statements:
                for target in self._targets(file.path, node) if imported(node) or _is_relative(node) else ():
                    found[target] = found.get(target, True) and node in file.guarded
        return found

    def _targets(self, path: Path, node: ast.stmt) -> Iterator[Path]:
        """The files of the package that a statement in one of them may load."""
        for parts in _own_modules(node, self._parts(path)[:-1], self.manifest.python_name):
            # A module comes with the packages around it.
            for end in range(len(parts) + 1):
                module = self.root.joinpath(*parts[:end])
                yield module / "__init__.py"
                yield module.with_name(f"{module.name}.py")

    def _parts(self, path: Path) -> tuple[str, ...]:
        return path.relative_to(self.root).parts


def _asked(file: PythonFile) -> Iterator[str]:
    """The packages that a file asks for: `find_spec("x")`, and functions that are named like it."""
    for node in file.nodes:
        if isinstance(node, ast.Call) and ASKS in last_name(node.func) and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value.partition(".")[0]


def _is_relative(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and node.level > 0


def _own_modules(node: ast.AST, folder: tuple[str, ...], package: str) -> Iterator[tuple[str, ...]]:
    """The modules of the package that a statement in ``folder`` of it may import, as paths in there."""
    for name in imported(node):
        first, *rest = name.split(".")
        if first == package:
            yield tuple(rest)
            if isinstance(node, ast.ImportFrom):
                yield from ((*rest, one.name) for one in node.names)
    if isinstance(node, ast.ImportFrom) and 0 < node.level <= len(folder) + 1:
        around = folder[: len(folder) - node.level + 1]
        base = (*around, *(node.module.split(".") if node.module else ()))
        yield base
        yield from ((*base, one.name) for one in node.names)
