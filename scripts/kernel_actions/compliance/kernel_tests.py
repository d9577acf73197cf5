"""The Python files of a kernel's tests, and how they come by the kernel."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from kernel_actions.compliance import files
from kernel_actions.compliance.python_file import PythonFile, imported
from kernel_actions.errors import WrongInput
from kernel_actions.manifest import Manifest

# What the builder and `kernel-actions test` select tests by.
MARKER = "kernels_ci"
# The package of the loader, whose name is in that of the marker.
LOADER = "kernels"
_LARGEST = 1_000_000
# Of a flake.nix the function that lists more packages for the tests.
_CHECK_INPUTS = re.compile(r"\bpythonCheckInputs\s*=[^\]]*\]")


def read(kernel: Manifest) -> tuple[PythonFile, ...]:
    """The files in ``tests/`` that have a marker, or that name the kernel's package or the loader: parsing
    the others would tell nothing. Those that cannot be read are left out."""
    words = (LOADER.encode(), kernel.python_name.encode())
    found = []
    for entry in _entries(kernel):
        try:
            data = files.read(entry.path, _LARGEST)
            if any(word in data for word in words):
                found.append(PythonFile(entry.path, files.parse_python(entry.path, data), data))
        except WrongInput:
            continue
    return tuple(found)


def has_marker(file: PythonFile) -> bool:
    """Whether a file marks tests for the builder."""
    return file.has(MARKER) and any(
        isinstance(node, ast.Attribute) and node.attr == MARKER for node in file.nodes
    )


def needed_imports(tests: Sequence[PythonFile], package: str) -> Iterator[tuple[PythonFile, ast.stmt]]:
    """The imports of ``package`` that the builder's run of the tests makes, one of each file: those of what
    pytest collects, inside of functions those of files with a marker. Where failing is provided for, none."""
    for file in _collected(tests):
        statements = file.statements if has_marker(file) else file.unconditional
        for node in sorted(statements, key=lambda one: one.lineno):
            if node not in file.guarded and any(one.partition(".")[0] == package for one in imported(node)):
                yield file, node
                break


def _collected(tests: Sequence[PythonFile]) -> list[PythonFile]:
    """The files that pytest runs, by their names, and those that they import from beside them."""
    found = {file for file in tests if _is_test(file.path.name)}
    left = list(found)
    while left:
        names = {part for node in left.pop().unconditional for part in _module_names(node)}
        more = {file for file in tests if file not in found and file.path.stem in names}
        found |= more
        left += more
    return [file for file in tests if file in found]


def _is_test(name: str) -> bool:
    return name.startswith("test_") or name.endswith("_test.py") or name == "conftest.py"


def _module_names(node: ast.stmt) -> Iterator[str]:
    """The last parts of the names of modules that a statement may import."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from (one.name.rpartition(".")[2] for one in node.names)
    if isinstance(node, ast.ImportFrom) and node.module:
        yield node.module.rpartition(".")[2]


def adds_loader(flake: str) -> bool:
    """Whether a flake.nix adds the loader to what the tests can import."""
    found = _CHECK_INPUTS.search(flake)
    return found is not None and re.search(rf"\b{LOADER}\b", found[0]) is not None


def _entries(kernel: Manifest) -> Iterator[files.Entry]:
    folder = kernel.directory / "tests"
    if not folder.is_dir() or not files.is_inside(kernel.directory, folder):
        return
    for entry in files.walk(folder).entries:
        is_foreign = entry.is_link and not files.is_inside(kernel.directory, entry.path)
        if entry.name.endswith(".py") and not entry.is_folder and not is_foreign:
            yield entry
