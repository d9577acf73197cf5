"""Rules about the C++ and Python sources: KA3xx."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from kernel_actions import console
from kernel_actions.compliance import kernel_tests
from kernel_actions.compliance.engine import Family, Problem
from kernel_actions.compliance.kernel import Kernel
from kernel_actions.compliance.python_file import PythonFile, imported
from kernel_actions.errors import Place
from kernel_actions.manifest import Manifest

RULES: Family[Kernel] = Family()

# Namespaces of Torch's own operators, which are the same in every process.
_TORCH_NAMESPACES = frozenset(
    {
        "aten", "c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd", "debugprims",
        "higher_order", "inductor", "mkl", "mkldnn", "onednn", "prim", "prims", "profiler", "quantized",
        "quantized_decomposed", "rngprims", "sparse", "static_runtime", "symm_mem",
    }
)  # fmt: skip
# What torch.ops has beside namespaces.
_TORCH_OPS_METHODS = frozenset({"import_module", "load_library", "loaded_libraries"})
# Functions of torch.library that take the name of an operator first.
_TAKE_A_NAME = frozenset(
    {
        "custom_op", "define", "impl", "impl_abstract", "register_autocast", "register_autograd",
        "register_fake", "register_kernel", "register_torch_dispatch", "register_vmap", "triton_op",
    }
)  # fmt: skip
_NAME_KEYWORDS = frozenset({"name", "ns", "op", "qualname"})
# Macros that take the namespace first. Those of Torch without EXPAND quote it as it stands, even where it is
# TORCH_EXTENSION_NAME.
_LIBRARY = re.compile(
    r"\b(?P<macro>(?:STABLE_)?TORCH_LIBRARY(?:_FRAGMENT|_IMPL)?(?P<expand>_EXPAND)?|REGISTER_EXTENSION)"
    r"\s*\(\s*(?P<name>\w+)"
)
_NAME = "TORCH_EXTENSION_NAME"
# A schema alone: a definition that has a function behind it is made of other operators.
_DEF = re.compile(r"\.\s*def\s*\(")
_SCHEMA = re.compile(r'\s*((?:"(?:\\.|[^"\\\n])*"\s*)+)\)')
_STRING = re.compile(r'"((?:\\.|[^"\\\n])*)"')
# Implementations in C++ that serve for fake tensors too.
_IMPLEMENTED = re.compile(r"\b(?:k?Meta|k?Composite(?:Implicit|Explicit)\w*)\b")
# Loops that OpenMP gives threads. Those of Torch are templates in a header, which do without where it is off.
_THREADED_LOOP = re.compile(r"\bat::parallel_(?:for|reduce)\b|#[ \t]*pragma[ \t]+omp[ \t]+parallel\b")
# The flag for it, of any compiler; but the one for vector units alone makes no threads.
_OPENMP = re.compile(r"(?<!no-)openmp(?!-simd)")
# What nvcc compiles: flags for C++ are none for it, which takes them in another way.
_OF_NVCC = frozenset({".cu", ".cuh"})
_OF_CXX = frozenset({".c", ".cc", ".cpp", ".cxx", ".mm"})
# Functions that register fake implementations, and such that register any.
_REGISTER_FAKES = frozenset({"register_fake", "impl_abstract", "_register_fake"})
_REGISTER_ALL = frozenset({"impl", "register_kernel"})
# The decorators of operators that are written in Python.
_PYTHON_OPERATORS = frozenset({"custom_op", "triton_op"})


@RULES.rule
def source_readable(kernel: Kernel) -> Iterator[Problem]:
    yield from kernel.unread


@RULES.rule
def source_all(kernel: Kernel) -> Iterator[Problem]:
    if kernel.init is None:
        return
    for node in kernel.init.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(one, ast.Name) and one.id == "__all__" for one in targets):
            return
    yield Problem("the package declares no __all__", Place(kernel.init.path, 1))


@RULES.rule
def source_library(kernel: Kernel) -> Iterator[Problem]:
    message = "no source registers operators under the build's name"
    yield from _missing(kernel, "TORCH_LIBRARY_EXPAND", message)


@RULES.rule
def source_extension(kernel: Kernel) -> Iterator[Problem]:
    yield from _missing(kernel, "REGISTER_EXTENSION", "no source makes the library a Python module")


@RULES.rule
def source_literal_library(kernel: Kernel) -> Iterator[Problem]:
    for file in kernel.cpp:
        for found in _LIBRARY.finditer(file.code):
            macro, name = found["macro"], found["name"]
            if name == _NAME and (found["expand"] or macro == "REGISTER_EXTENSION"):
                continue
            if macro.endswith("_IMPL") and name in ("aten", "_"):
                continue  # An implementation of Torch's own operators, or for all of them.
            what = (
                f"{macro}({name}, …) names a fixed namespace"
                if name != _NAME
                else f"{macro} does not expand {_NAME}"
            )
            yield Problem(what, file.place(found.start()))


@RULES.rule
def source_literal_ops(kernel: Kernel) -> Iterator[Problem]:
    for file in kernel.python:
        for node in file.nodes if file.may_use("torch.ops") else ():
            namespace = ""
            if isinstance(node, ast.Attribute) and file.full_name(node.value) == "torch.ops":
                namespace = node.attr
            elif isinstance(node, ast.Call) and _is_getattr_of_ops(file, node):
                namespace = _literal(node.args[1])
            known = _TORCH_NAMESPACES | _TORCH_OPS_METHODS
            if namespace and namespace not in known and isinstance(node, ast.expr):
                yield Problem(f"torch.ops.{namespace} is a fixed namespace", file.place(node))


@RULES.rule
def source_literal_name(kernel: Kernel) -> Iterator[Problem]:
    for file in kernel.python:
        for node in file.nodes if file.may_use("torch.library") else ():
            if not isinstance(node, ast.Call):
                continue
            module, _, function = file.full_name(node.func).rpartition(".")
            if module != "torch.library" or not (function in _TAKE_A_NAME or function == "Library"):
                continue
            named = [one.value for one in node.keywords if one.arg in _NAME_KEYWORDS]
            name = _literal((node.args or named or [ast.Constant(None)])[0])
            namespace, colons, _ = name.partition("::")
            if (colons or function == "Library") and namespace and namespace not in _TORCH_NAMESPACES:
                yield Problem(
                    f'torch.library.{function}("{name}", …) names a fixed namespace', file.place(node)
                )


@RULES.rule
def source_relative_imports(kernel: Kernel) -> Iterator[Problem]:
    package = kernel.manifest.python_name if kernel.manifest else ""
    for file in kernel.python:
        for node in file.statements if file.has(package) else ():
            for name in imported(node):
                if name.partition(".")[0] == package:
                    yield Problem(f"imports {name} by its absolute name", file.place(node))


@RULES.rule
def source_tests(kernel: Kernel) -> Iterator[Problem]:
    if kernel.manifest is None or any(kernel_tests.has_marker(file) for file in kernel.tests):
        return
    if (kernel.directory / "tests").is_dir():
        yield Problem(f"no test is marked {kernel_tests.MARKER}", Place(kernel.directory / "tests"))
    else:
        yield Problem("there is no folder tests", kernel.where)


@RULES.rule
def source_fallback_ops(kernel: Kernel) -> Iterator[Problem]:
    for file in kernel.python:
        for node in file.statements if file.has("_ops") else ():
            if isinstance(node, ast.Try) and node.handlers:
                for one in node.body:
                    if _imports_ops(one) and not any(_raises(handler) for handler in node.handlers):
                        yield Problem("goes on without _ops, or with another one", file.place(one))


@RULES.rule
def source_imports(kernel: Kernel) -> Iterator[Problem]:
    for one in kernel.foreign_imports:
        if one.is_certain:
            yield Problem(f"imports {one.name}, which no build depends on", one.file.place(one.node))


@RULES.rule
def source_later_imports(kernel: Kernel) -> Iterator[Problem]:
    for one in kernel.foreign_imports:
        if one.is_by_others:
            what = f"imports {one.name}, which is there only as long as another package requires it"
            yield Problem(what, one.file.place(one.node))
        elif not one.is_certain:
            yield Problem(f"imports {one.name}, which no build depends on", one.file.place(one.node))


@RULES.rule
def source_fake(kernel: Kernel) -> Iterator[Problem]:
    known = _fakes(kernel) if kernel.cpp else None
    if known is None or any(_IMPLEMENTED.search(file.code) for file in kernel.cpp):
        return
    known |= _wrapped(kernel)
    for file in kernel.cpp:
        for found in _DEF.finditer(file.code):
            schema = _SCHEMA.match(file.text, found.end())
            if schema is None:
                continue
            text = "".join(part for part in _STRING.findall(schema[1]))
            name, bracket, _ = text.partition("(")
            name, _, result = name.strip(), *text.rpartition("->")[1:]
            # One that gives no tensor needs none: it changes its arguments, or Torch cannot trace it. One
            # with a function behind the schema is made of others.
            if bracket and "Tensor" in result and name not in known:
                known.add(name)  # Bindings of which a build takes one define the same operators.
                yield Problem(f"{name} has no fake implementation", file.place(found.start()))


@RULES.rule
def source_test_imports(kernel: Kernel) -> Iterator[Problem]:
    # Which of the two ways there is has changed with e9152aa2 (2026-07-30): builder_output.py.
    output = kernel.output
    if kernel.manifest is None or output is None or not output.ci_tests:
        return
    package = kernel.manifest.python_name
    if not output.makes_package_folder:
        repair = 'load it by `kernels.get_kernel("owner/name", version=…)`, with the repository of build.toml'
        yield from _needed(kernel, package, f"imports {package} by its name", repair)
    if not output.ci_has_kernels and not kernel_tests.adds_loader(kernel.flake):
        repair = (
            f"import {package} by its name, add kernels to pythonCheckInputs of flake.nix, or lock a newer "
            "builder: `nix flake update`"
        )
        yield from _needed(kernel, kernel_tests.LOADER, "imports the package kernels", repair)


def _needed(kernel: Kernel, package: str, what: str, repair: str) -> Iterator[Problem]:
    """One problem for all files of tests that import ``package``: they are all mended in one way."""
    found = [file.place(node) for file, node in kernel_tests.needed_imports(kernel.tests, package)]
    if found:
        more = f", as {console.counted(len(found) - 1, 'more file')} of tests do" if found[1:] else ""
        yield Problem(f"{what}, which the locked builder's tests do not find{more}", found[0], repair, what)


@RULES.rule
def source_threads(kernel: Kernel) -> Iterator[Problem]:
    sections = dict(_without_openmp(kernel.manifest)) if kernel.manifest is not None else {}
    for file in kernel.threaded:
        found = _THREADED_LOOP.search(file.code)
        titles = [title for title, listed in sections.items() if file.path in listed]
        if found is not None and titles and file.path.suffix not in _OF_NVCC:
            what = f"{found[0]} has one thread: cxx-flags of {', '.join(titles)} ask for no OpenMP"
            yield Problem(what, file.place(found.start()))


def _without_openmp(kernel: Manifest) -> Iterator[tuple[str, frozenset[Path]]]:
    """The sections of build.toml that compile C++ without OpenMP, and the files that they list."""
    sections = [(f"[{kernel.binding.framework}]", kernel.binding.src, kernel.binding.cxx_flags)]
    for one in kernel.components:
        # The compiler for SYCL is that for C++ too.
        sections.append((f"[kernel.{one.name}]", one.src, (*one.cxx_flags, *one.sycl_flags)))
    for title, names, flags in sections:
        listed = frozenset(kernel.directory / name for name in names)
        # A header is compiled with what is listed beside it.
        if any(path.suffix in _OF_CXX for path in listed) and not any(map(_OPENMP.search, flags)):
            yield title, listed


def _imports_ops(node: ast.stmt) -> bool:
    if not isinstance(node, ast.ImportFrom):
        return False
    return node.module in ("_ops", "._ops") or any(one.name == "_ops" for one in node.names)


def _raises(handler: ast.ExceptHandler) -> bool:
    """Whether the handler ends in an error of its own."""
    return bool(handler.body) and isinstance(handler.body[-1], ast.Raise)


def _wrapped(kernel: Kernel) -> set[str]:
    """What operators that are written in Python call: it is not traced, as they have fakes of their own."""
    return {
        inner.attr
        for file in kernel.python
        if file.has(*_PYTHON_OPERATORS)
        for node in file.statements
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(_mentions(one, _PYTHON_OPERATORS) for one in node.decorator_list)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute)
    }


def _fakes(kernel: Kernel) -> set[str] | None:
    """The operators with a fake implementation; ``None`` where a name of one is put together in a loop."""
    found: set[str] = set()
    for file in kernel.python:
        for node in file.nodes if file.has(*_REGISTER_FAKES, *_REGISTER_ALL) else ():
            if not isinstance(node, ast.Call) or not _is_fake(node):
                continue
            texts = [
                inner.value
                for argument in [*node.args, *(one.value for one in node.keywords)]
                for inner in ast.walk(argument)
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str)
            ]
            if not texts:
                return None
            found.update(text.rpartition("::")[2] for text in texts)
    return found


def _is_fake(node: ast.Call) -> bool:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in _REGISTER_FAKES or (name in _REGISTER_ALL and _mentions(node, frozenset({"Meta"})))


def _mentions(node: ast.AST, words: frozenset[str]) -> bool:
    """Whether a name or a text in ``node``, however deep it is nested, is one of ``words``."""
    return any(
        str(word) in words
        for inner in ast.walk(node)
        for word in (getattr(inner, "id", ""), getattr(inner, "attr", ""), getattr(inner, "value", ""))
        if isinstance(word, str)
    )


def _missing(kernel: Kernel, macro: str, message: str) -> Iterator[Problem]:
    """A problem, unless a source uses ``macro`` with the name of the extension."""
    if kernel.manifest is None or kernel.manifest.binding.framework != "torch":
        return
    if not kernel.manifest.binding.src:
        return  # Nothing is compiled.
    for file in kernel.cpp:
        for found in _LIBRARY.finditer(file.code):
            if found["macro"].removeprefix("STABLE_") == macro and found["name"] == _NAME:
                return
    yield Problem(message, kernel.manifest.place("torch.src"))


def _is_getattr_of_ops(file: PythonFile, node: ast.Call) -> bool:
    return (
        isinstance(node.func, ast.Name)
        and node.func.id == "getattr"
        and len(node.args) > 1
        and file.full_name(node.args[0]) == "torch.ops"
    )


def _literal(node: ast.expr) -> str:
    """The text that ``node`` is, or begins with if it is an f-string; else empty."""
    if isinstance(node, ast.JoinedStr) and node.values:
        node = node.values[0]
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
