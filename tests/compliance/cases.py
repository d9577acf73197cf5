"""What breaks each rule, with the text that a user sees, and what looks alike and keeps it."""

from __future__ import annotations

import datetime
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

from kernel_actions.nix import configuration

from tests.compliance.helpers import DAY, ID, LOCKED_AT, MACHINE, NAME, edit, sign, write, write_variant
from tests.integration.conftest import git

Change = Callable[[Path, dict[str, Path]], object]
ONE_DAY = datetime.timedelta(1)
INIT = "torch-ext/tiny_scale/__init__.py"
BINDING = "torch-ext/binding.cpp"
VARIANT = f"build/{NAME}"
OTHER_MACHINE = "aarch64" if MACHINE == "x86_64" else "x86_64"
UNKNOWN = "f" * 40
LOCKED = "8ac69fc542a4306eade0759ef7c45b4f2ae57df0"
# One of the last revisions that do not know edition 5.
OLD = "b79face32a072b46e4e95c37869b3d1cc2e7735f"
# What 43 of the 52 kernels of kernels-community lock. The builder makes no folder of the kernel's name since
# e9152aa2, which is younger.
EARLIER = "81580bb92577f2f7228661ca2a221fc052375709"
BEFORE_DIGESTS = "a9a6139ad68377762f28d52da3921144278b75ca"
CACHE = '  nixConfig.extra-substituters = [ "https://huggingface.cachix.org" ];\n'
UNPLANNED = f"torch299-cxx11-cpu-{MACHINE}-linux"
STABLE = f"torch-stable-abi211-cpu-{MACHINE}-linux"
SHARED = 'src = ["torch-ext/binding.cpp", "torch-ext/b.h"]'
MARK = "import pytest\npytestmark = pytest.mark.kernels_ci\n"
WORKFLOW = """\
name: Check
on: push
permissions: {}
concurrency:
  group: check
  cancel-in-progress: true
jobs:
  check:
    name: Check
    runs-on: ubuntu-latest
    permissions:
      contents: read
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
        with:
          persist-credentials: false
      - uses: org/kernel-actions/compliance@v1
"""
# Rule → what is changed in the kernel that keeps all rules, and what is said: `file:line: message`.
BREAKS: dict[str, list[tuple[Change, str]]] = {}
# Rule → changes that it allows.
KEEPS: dict[str, list[Change]] = {}


def edited(file: str, old: str, new: str) -> Change:
    """A change of a text in a file of the kernel."""
    return lambda kernel, _: edit(kernel / file, old, new)


def added(file: str, text: str) -> Change:
    """A change by a new file."""
    return lambda kernel, _: write(kernel / file, text)


def appended(file: str, text: str) -> Change:
    """A change by more text at the end of a file."""
    return lambda kernel, _: (kernel / file).write_text((kernel / file).read_text() + text)


def signed(**changes: object) -> Change:
    """A change of the variant's metadata.json."""
    return lambda kernel, _: sign(kernel / VARIANT, **changes)


def then_signed(change: Change) -> Change:
    """A change of the variant's files, which are then hashed anew."""
    return lambda kernel, libraries: (change(kernel, libraries), sign(kernel / VARIANT))


def built_with(library: str, name: str = NAME) -> Change:
    """A change of the extension, and of the variant's name."""

    def change(kernel: Path, libraries: dict[str, Path]) -> None:
        shutil.rmtree(kernel / "build")
        write_variant(kernel, libraries[library], name)

    return change


def built_from(data: bytes) -> Change:
    """A change of the extension to some bytes."""
    return then_signed(lambda kernel, _: (kernel / VARIANT / f"{ID}.abi3.so").write_bytes(data))


def noarch(identity: str = "_tiny_scale_cpu_0123abc", ops: str = "") -> Change:
    """The variant as one of Python alone, with the ``_ops.py`` that the builder makes."""

    def change(kernel: Path, _: dict[str, Path]) -> None:
        shutil.rmtree(kernel / "build")
        folder = write_variant(kernel, None, "torch-cpu", id=identity)
        write(
            folder / "_ops.py", ops or 'unique_id = "0123abc"\nops = f"_tiny_scale_{backend}_{unique_id}"\n'
        )
        sign(folder)

    return change


def at_commit(mark: str = "") -> Change:
    """The kernel in git, and a variant that was built from its commit, or from the commit ``mark``."""

    def change(kernel: Path, _: dict[str, Path]) -> None:
        write(kernel / ".gitignore", "/build/\n")
        git(kernel, "init", "--quiet")
        git(kernel, "add", "--all")
        git(kernel, "commit", "--quiet", "--message=All")
        commit = mark or git(kernel, "rev-parse", "HEAD").strip()
        provenance = {"kernel-builder": {"version": "1"}, "kernel": {"commit": commit, "dirty": False}}
        sign(kernel / VARIANT, provenance=provenance)

    return change


def provenance(**kernel: object) -> Change:
    """A change of where the variant says it comes from."""
    return signed(provenance={"kernel-builder": {"version": "1"}, **({"kernel": kernel} if kernel else {})})


def locked_at(commit: str, *changes: Change) -> Change:
    """Some changes, of a kernel that locks another commit of the builder."""

    def change(kernel: Path, libraries: dict[str, Path]) -> None:
        edit(kernel / "flake.lock", LOCKED, commit)
        for one in changes:
            one(kernel, libraries)

    return change


def linked(target: str) -> Change:
    """A change by a symbolic link in the variant."""
    return lambda kernel, _: os.symlink(target, kernel / VARIANT / "link.txt")


def _mode(kernel: Path, mode: int) -> None:
    (kernel / VARIANT / "_ops.py").chmod(mode)


def _noarch_manifest(kernel: Path, _: dict[str, Path]) -> None:
    edit(kernel / "build.toml", '[torch]\nsrc = ["torch-ext/binding.cpp"]', "[torch-noarch]")
    text = (kernel / "build.toml").read_text()
    write(kernel / "build.toml", text[: text.index("[kernel.scale]")])


def _socket(kernel: Path) -> None:
    # Paths of sockets are short: bind to a name, from its folder.
    here = os.getcwd()
    os.chdir(kernel / VARIANT)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("s")
    finally:
        os.chdir(here)


def _all_but(*left_out: str) -> Change:
    """Variants for Torch 2.13 alone, all of them but some."""

    def change(kernel: Path, _: dict[str, Path]) -> None:
        edit(kernel / "build.toml", "[torch]", '[torch]\nminver = "2.13"')
        for name in (f"torch213-cxx11-cpu-{OTHER_MACHINE}-linux", "torch213-cpu-aarch64-darwin"):
            if name not in left_out:
                write_variant(kernel, None, name)

    return change


def waived(rule: str, days: int, more: str = "") -> Change:
    """A waiver that ends some days after today, as it is in tests."""
    until = DAY + datetime.timedelta(days)
    text = f'[[compliance.waivers]]\nrule = "{rule}"\nreason = "so"\nuntil = "{until}"\n'
    return added("kernel-actions.toml", text + more)


def baseline(entry: str) -> Change:
    """A baseline that lists ``entry``, or nothing, and that kernel-actions.toml names."""

    def change(kernel: Path, _: dict[str, str]) -> None:
        write(kernel / "known.json", f'{{"version": 1, "findings": [\n\n{entry}\n]}}\n')
        write(kernel / "kernel-actions.toml", '[compliance]\nbaseline = "known.json"\n')

    return change


def workflow(old: str = "", new: str = "") -> Change:
    """A workflow that is as it should be, but for a text."""
    assert old in WORKFLOW
    return added(".github/workflows/check.yml", WORKFLOW.replace(old, new) if old else WORKFLOW)


def _with_loop_in_header(flags: str, *sections: str) -> Change:
    """A loop with threads in a header of the section for the CPU, with its flags, and other sections."""

    def change(kernel: Path, _: dict[str, Path]) -> None:
        for name in ("loop.h", "loop.cuh"):
            write(kernel / "csrc" / name, "#pragma once\nvoid f() { at::parallel_for(0, 9, 1, body); }\n")
        edit(kernel / "build.toml", '"csrc/scale.cpp",\n]', f'"csrc/scale.cpp", "csrc/loop.h",\n]\n{flags}')
        appended("build.toml", "\n" + "".join(f"{one}depends = []\n" for one in sections))(kernel, {})

    return change


BREAKS |= {
    "manifest-readable": [
        (edited("build.toml", "license =", "licence ="), "build.toml:5: key 'general.licence' is not known"),
        (
            edited("build.toml", "edition = 5", "edition ="),
            "build.toml:4: is not valid TOML: Invalid value: edition =",
        ),
        (
            edited("flake.lock", LOCKED, OLD),
            "build.toml:4: is of edition 5, which the locked builder does not know",
        ),
    ],
    "manifest-edition": [
        (
            edited("build.toml", "edition = 5\n", ""),
            "build.toml:1: is of edition 4, and the builder is at 5",
        ),
    ],
    "manifest-bounds": [
        (
            edited("build.toml", "[torch]", '[torch]\nminver = "9.0"'),
            "build.toml:6: no variant for cpu is left that a release publishes",
        ),
    ],
    "manifest-required": [
        (
            edited("build.toml", "[torch]", '[torch]\nminver = "2.13"'),
            "build.toml:12: torch212-cxx11-cpu-x86_64-linux is not published, and 2 other variants: "
            'Torch 2.12 is below torch.minver = "2.13"',
        ),
    ],
    "manifest-license": [
        (
            edited("build.toml", '"Apache-2.0"', '"Apache License"'),
            "build.toml:5: 'Apache License' is no license identifier",
        ),
        (edited("build.toml", '"Apache-2.0"', '""'), "build.toml:5: '' is no license identifier"),
    ],
    "manifest-repo-id": [
        (
            edited("build.toml", 'repo-id = "acme/tiny-scale"', ""),
            "build.toml:8: [general.hub] has no repo-id",
        ),
    ],
    "manifest-sources": [
        (
            edited("build.toml", "csrc/scale.cpp", "csrc/gone.cpp"),
            "build.toml:18: csrc/gone.cpp does not exist",
        ),
        (
            edited("build.toml", "csrc/scale.cpp", "../x.cpp"),
            "build.toml:18: ../x.cpp is outside of the kernel's folder",
        ),
        (edited("build.toml", "csrc/scale.cpp", "csrc"), "build.toml:18: csrc is not a regular file"),
        (
            lambda kernel, _: (
                (kernel / "csrc/scale.cpp").unlink(),
                (kernel / "csrc/scale.cpp").symlink_to("/dev/null"),
            ),
            "build.toml:18: csrc/scale.cpp is outside of the kernel's folder",
        ),
    ],
    "manifest-headers": [
        (
            lambda kernel, _: (
                write(kernel / "csrc/scale.h", ""),
                write(kernel / "csrc/scale.cpp", '#include <vector>\n/* by */ #include "scale.h"\n'),
            ),
            "scale.cpp:2: includes csrc/scale.h, which no src of build.toml lists",
        ),
        # By way of one that is listed, from a folder of include.
        (
            lambda kernel, _: (
                edit(kernel / "build.toml", '"csrc/scale.cpp",', '"csrc/scale.cpp", "include/a/scale.h",'),
                edit(kernel / "build.toml", "depends", 'include = ["include"]\ndepends'),
                write(kernel / "csrc/scale.cpp", "#include <a/scale.h>\n"),
                write(
                    kernel / "include/a/scale.h",
                    '// Once.\n#ifndef SCALE\n#define SCALE\n#include "../b.h"\n#endif\n',
                ),
                write(kernel / "include/b.h", ""),
            ),
            "scale.h:4: includes include/b.h, which no src of build.toml lists",
        ),
        (
            lambda kernel, _: (
                write(kernel / "torch-ext/binding.h", ""),
                edit(kernel / BINDING, '#include "registration.h"', '#include "binding.h"'),
            ),
            "binding.cpp:1: includes torch-ext/binding.h, which no src of build.toml lists",
        ),
    ],
    "manifest-pyext": [
        (
            edited("build.toml", "[torch]", '[torch]\npyext = ["pyi", "json"]'),
            "build.toml:12: pyext of [torch] has no py, so that the builder drops all Python files",
        ),
        # The builder puts a dot before each.
        (
            edited("build.toml", "[torch]", '[torch]\npyext = [".py"]'),
            "build.toml:12: pyext of [torch] has no py, so that the builder drops all Python files",
        ),
        (
            locked_at(LOCKED, _noarch_manifest, appended("build.toml", 'pyext = ["json"]\n')),
            "build.toml:13: pyext of [torch-noarch] has no py, so that the builder drops all Python files",
        ),
    ],
    "manifest-components": [
        (
            edited("build.toml", 'backends = ["cpu"]', 'backends = ["cpu", "cuda"]'),
            "build.toml:6: no section is compiled for cuda, and the builder cannot build the others without",
        ),
    ],
    "manifest-package": [
        (
            lambda kernel, _: (kernel / INIT).unlink(),
            "build.toml:2: there is no torch-ext/tiny_scale/__init__.py",
        ),
        (
            lambda kernel, _: (
                shutil.rmtree(kernel / "torch-ext/tiny_scale"),
                (kernel / "torch-ext/tiny_scale").symlink_to("/usr/lib"),
            ),
            "build.toml:2: torch-ext/tiny_scale/__init__.py is outside of the kernel's folder",
        ),
        (
            locked_at(EARLIER, added("torch-ext/tiny_scale/tiny_scale/x.py", "")),
            "tiny_scale:: the package holds a folder of its own name, where the locked builder puts one of "
            "its own",
        ),
        (
            locked_at(
                EARLIER,
                added("torch-ext/tiny_scale/tiny_scale.py", ""),
                edited(INIT, "import torch\n", "import torch\nfrom .tiny_scale import f\n"),
            ),
            "tiny_scale.py:: is hidden by the folder of the package's name, which the locked builder adds",
        ),
    ],
    "flake-lock": [
        (lambda kernel, _: (kernel / "flake.lock").unlink(), "flake.lock:: there is no flake.lock"),
        (
            added("flake.lock", "{"),
            "flake.lock:1: is not JSON: Expecting property name enclosed in double quotes",
        ),
    ],
    "flake-builder": [
        (
            edited("flake.lock", LOCKED, UNKNOWN),
            f"flake.lock:: builder revision {UNKNOWN} is not in this version's data, and cannot be read: …",
        ),
    ],
    "flake-fork": [
        (
            edited("flake.lock", '"owner": "huggingface"', '"owner": "acme"'),
            "flake.lock:48: input kernel-builder is acme/kernels, and not huggingface/kernels",
        ),
    ],
    "flake-renamed": [
        (
            edited("flake.lock", '"repo": "kernels"', '"repo": "kernel-builder"'),
            "flake.lock:48: input kernel-builder is huggingface/kernel-builder, which is huggingface/kernels "
            "since 2026-01",
        ),
    ],
    "flake-age": [
        (
            edited("flake.lock", str(LOCKED_AT), str(LOCKED_AT - 400 * 86_400)),
            "flake.lock:48: the builder's revision is 401 days old",
        ),
    ],
    "flake-torch": [
        (
            edited("build.toml", "[torch]", '[torch]\nmaxver = "2.12"'),
            "flake.lock:: the newest Torch with a variant for cpu is 2.12, and there is …",
        ),
    ],
    "flake-committed": [
        (
            lambda kernel, libraries: (
                at_commit()(kernel, libraries),
                git(kernel, "rm", "--quiet", "--cached", "flake.lock"),
            ),
            "flake.lock:: is not in git, so that the builder does not see it",
        ),
    ],
    "flake-cache": [
        (
            added("flake.nix", f"{{\n{CACHE}}}\n"),
            "flake.nix:2: names the cache huggingface.cachix.org, without its key",
        ),
        (
            added("flake.nix", f'{{\n{CACHE}key = "huggingface.cachix.org-1:AAAA";\n}}\n'),
            "flake.nix:2: names the cache huggingface.cachix.org, with another key than its own",
        ),
    ],
    "flake-submodules": [
        (
            added(".gitmodules", '[submodule "x"]\n\tpath = csrc\n\turl = https://example.org/x\n'),
            "build.toml:18: csrc/scale.cpp is in the submodule csrc, which flake.nix does not fetch",
        ),
    ],
    "source-readable": [
        (added("torch-ext/tiny_scale/bad.py", "def f(:\n"), "bad.py:1: cannot be parsed: invalid syntax"),
        (added("torch-ext/tiny_scale/nul.py", "a\0"), "nul.py:…"),
    ],
    "source-all": [
        (edited(INIT, '__all__ = ["twice"]', ""), "__init__.py:1: the package declares no __all__"),
    ],
    "source-library": [
        (
            edited(BINDING, "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops)", "void ops()"),
            "build.toml:12: no source registers operators under the build's name",
        ),
    ],
    "source-extension": [
        (
            edited(BINDING, "REGISTER_EXTENSION", "// "),
            "build.toml:12: no source makes the library a Python module",
        ),
    ],
    "source-literal-library": [
        (
            appended(BINDING, "TORCH_LIBRARY(scale, m) {}\n"),
            "binding.cpp:8: TORCH_LIBRARY(scale, …) names a fixed namespace",
        ),
        (
            appended(BINDING, "\nTORCH_LIBRARY_FRAGMENT (\n scale, m) {}\n"),
            "binding.cpp:9: TORCH_LIBRARY_FRAGMENT(scale, …) names a fixed namespace",
        ),
        (
            appended(BINDING, "TORCH_LIBRARY_IMPL(scale, CUDA, m) {}\n"),
            "binding.cpp:8: TORCH_LIBRARY_IMPL(scale, …) names a fixed namespace",
        ),
        (
            appended(BINDING, "TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {}\n"),
            "binding.cpp:8: TORCH_LIBRARY does not expand TORCH_EXTENSION_NAME",
        ),
        (
            edited(BINDING, "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME", "TORCH_LIBRARY_EXPAND(scale"),
            "binding.cpp:3: TORCH_LIBRARY_EXPAND(scale, …) names a fixed namespace",
        ),
        (
            appended(BINDING, "/* a */ STABLE_TORCH_LIBRARY(scale, m) {}\n"),
            "binding.cpp:8: STABLE_TORCH_LIBRARY(scale, …) names a fixed namespace",
        ),
    ],
    "source-literal-ops": [
        (
            edited(INIT, "ops.twice(x)", "torch.ops.scale.twice(x)"),
            "__init__.py:9: torch.ops.scale is a fixed namespace",
        ),
        (
            added("torch-ext/tiny_scale/a.py", "from torch import ops as o\no.scale.twice(1)\n"),
            "a.py:2: torch.ops.scale is a fixed namespace",
        ),
        (
            added("torch-ext/tiny_scale/a.py", "import torch as t\ngetattr(t.ops, 'scale')\n"),
            "a.py:2: torch.ops.scale is a fixed namespace",
        ),
    ],
    "source-literal-name": [
        (
            edited(INIT, 'add_op_namespace_prefix("twice")', '"scale::twice"'),
            '__init__.py:12: torch.library.register_fake("scale::twice", …) names a fixed namespace',
        ),
        (
            added(
                "torch-ext/tiny_scale/a.py", "from torch.library import custom_op as c\nc(f'scale::{n}')\n"
            ),
            'a.py:2: torch.library.custom_op("scale::", …) names a fixed namespace',
        ),
        (
            added("torch-ext/tiny_scale/a.py", "import torch.library as lib\nlib.Library('scale', 'DEF')\n"),
            'a.py:2: torch.library.Library("scale", …) names a fixed namespace',
        ),
        (
            added("torch-ext/tiny_scale/a.py", "import torch\ntorch.library.triton_op(name='scale::x')\n"),
            'a.py:2: torch.library.triton_op("scale::x", …) names a fixed namespace',
        ),
    ],
    "source-relative-imports": [
        (
            added("torch-ext/tiny_scale/a.py", "from tiny_scale.b import c\n"),
            "a.py:1: imports tiny_scale.b by its absolute name",
        ),
        (
            added("torch-ext/tiny_scale/d/a.py", "def f():\n    import tiny_scale as t\n"),
            "a.py:2: imports tiny_scale by its absolute name",
        ),
    ],
    "source-tests": [
        (lambda kernel, _: shutil.rmtree(kernel / "tests"), "build.toml:: there is no folder tests"),
        (
            edited("tests/test_scale.py", "@pytest.mark.kernels_ci", "# kernels_ci"),
            "tests:: no test is marked kernels_ci",
        ),
    ],
    "source-fallback-ops": [
        (
            edited(
                INIT,
                "from ._ops import add_op_namespace_prefix, ops",
                "try:\n    from ._ops import add_op_namespace_prefix, ops\n"
                "except ImportError:\n    ops = None",
            ),
            "__init__.py:4: goes on without _ops, or with another one",
        ),
        (
            added("torch-ext/tiny_scale/a.py", "try:\n    from . import _ops\nexcept Exception:\n    pass\n"),
            "a.py:2: goes on without _ops, or with another one",
        ),
    ],
    "source-imports": [
        (
            edited(INIT, "import torch\n", "import numpy as np\nimport torch\n"),
            "__init__.py:1: imports numpy, which no build depends on",
        ),
        # What it imports by a way around, in a class, and from a package of its own.
        (
            lambda kernel, _: (
                edit(kernel / INIT, "import torch\n", "from .deep import a\nimport torch\n"),
                write(kernel / "torch-ext/tiny_scale/deep/__init__.py", "from tiny_scale.b import x\n"),
                write(kernel / "torch-ext/tiny_scale/deep/a.py", "from .. import c\n"),
                write(kernel / "torch-ext/tiny_scale/c.py", "class C:\n    from einops.layers import x\n"),
            ),
            "c.py:2: imports einops.layers, which no build depends on",
        ),
        (
            lambda kernel, _: (
                edit(kernel / INIT, "import torch\n", "import tiny_scale.a\nimport torch\n"),
                write(kernel / "torch-ext/tiny_scale/a.py", "if True:\n    import numpy.linalg\n"),
            ),
            "a.py:2: imports numpy.linalg, which no build depends on",
        ),
        # To say what is missing is kind, and the package does not load nevertheless.
        (
            edited(
                INIT,
                "import torch\n",
                "import torch\ntry:\n    import iris\nexcept ImportError:\n    raise RuntimeError('iris')\n",
            ),
            "__init__.py:3: imports iris, which no build depends on",
        ),
    ],
    "source-later-imports": [
        (
            added("torch-ext/tiny_scale/a.py", "import numpy as np\n"),
            "a.py:1: imports numpy, which no build depends on",
        ),
        (
            edited(INIT, "    return ops.twice(x)", "    import numpy\n    return ops.twice(x)"),
            "__init__.py:9: imports numpy, which no build depends on",
        ),
        # Not on every machine is what a condition asks for.
        (
            edited(INIT, "import torch\n", "import torch\nif torch.version.hip:\n    import iris\n"),
            "__init__.py:3: imports iris, which no build depends on",
        ),
        # It is there with the loader of today, by way of sigstore.
        (
            edited(INIT, "import torch\n", "import requests\nimport torch\n"),
            "__init__.py:1: imports requests, which is there only as long as another package requires it",
        ),
    ],
    "source-threads": [
        (
            added("csrc/scale.cpp", "void f() {\n  at::parallel_for(0, 9, 1, body);\n}\n"),
            "scale.cpp:2: at::parallel_for has one thread: cxx-flags of [kernel.scale] ask for no OpenMP",
        ),
        (
            added("csrc/scale.cpp", "#pragma omp parallel for\nfor (;;) {}\n"),
            "scale.cpp:1: #pragma omp parallel has one thread: cxx-flags of [kernel.scale] ask for no OpenMP",
        ),
        # The flags of one section are none of another's.
        (
            lambda kernel, _: (
                appended(BINDING, "void f() { at::parallel_reduce(0, 9, 1, 0, a, b); }\n")(kernel, {}),
                edit(kernel / "build.toml", 'backend = "cpu"', 'backend = "cpu"\ncxx-flags = ["-fopenmp"]'),
            ),
            "binding.cpp:8: at::parallel_reduce has one thread: cxx-flags of [torch] ask for no OpenMP",
        ),
        # Each section that lists it compiles it; one flag for OpenMP is for vector units alone.
        (
            _with_loop_in_header(
                'cxx-flags = ["-fopenmp-simd"]',
                '[kernel.more]\nbackend = "cuda"\nsrc = ["csrc/loop.h", "csrc/more.cpp"]\n',
                '[kernel.last]\nbackend = "cpu"\nsrc = ["csrc/loop.h", "csrc/scale.cpp"]\n'
                'cxx-flags = ["-fopenmp"]\n',
            ),
            "loop.h:2: at::parallel_for has one thread: cxx-flags of [kernel.scale], [kernel.more] ask for "
            "no OpenMP",
        ),
    ],
    "source-fake": [
        (
            edited(INIT, 'add_op_namespace_prefix("twice")', 'add_op_namespace_prefix("thrice")'),
            "binding.cpp:4: twice has no fake implementation",
        ),
        (
            edited(
                BINDING,
                "REGISTER",
                'void f(M m) { m.def( "a(Tensor x,"\n " Tensor y) -> Tensor"); }\nREGISTER',
            ),
            "binding.cpp:7: a has no fake implementation",
        ),
        # The same in two bindings.
        (
            lambda kernel, _: (
                edit(
                    kernel / "build.toml",
                    'src = ["torch-ext/binding.cpp"]',
                    'src = ["torch-ext/binding.cpp", "torch-ext/stable.cpp"]',
                ),
                write(
                    kernel / "torch-ext/stable.cpp",
                    "STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) {\n"
                    '  m.def("a(Tensor x) -> Tensor[]"); m.def("a(Tensor x) -> Tensor[]");\n}\n',
                ),
            ),
            "stable.cpp:2: a has no fake implementation",
        ),
    ],
    "source-test-imports": [
        (
            edited("tests/test_scale.py", "import pytest", "import pytest\nimport tiny_scale"),
            "test_scale.py:2: imports tiny_scale by its name, which the locked builder's tests do not find",
        ),
        (
            lambda kernel, _: (
                write(kernel / "tests/deep/test_a.py", f"def f():\n    from tiny_scale.x import y\n{MARK}"),
                write(kernel / "tests/test_b.py", "import tiny_scale\n"),
                write(kernel / "tests/test_c.py", "import tiny_scale.x\nimport tiny_scale\n"),
            ),
            "test_a.py:2: imports tiny_scale by its name, which the locked builder's tests do not find, as 2 "
            "more files of tests do",
        ),
        # Before, it is the other way around; also for what tests import from beside them.
        (
            locked_at(EARLIER, added("tests/test_b.py", "from kernels import get_kernel\n")),
            "test_b.py:1: imports the package kernels, which the locked builder's tests do not find",
        ),
        (
            locked_at(
                EARLIER,
                added("tests/test_b.py", "from .lib import kernel  # kernels\n"),
                added("tests/lib.py", "import kernels\n"),
                added("flake.nix", "{ pythonCheckInputs = ps: [ ps.einops ]; kernels = 1; }\n"),
            ),
            "lib.py:1: imports the package kernels, which the locked builder's tests do not find",
        ),
    ],
    "layout-name": [
        (
            built_with("good", "torch213-cu13-linux"),
            "torch213-cu13-linux:: torch213-cu13-linux is not the name of a variant",
        ),
        (added("build/other/metadata.json", "{}"), "other:: other is not the name of a variant"),
    ],
    "layout-init": [
        (lambda kernel, _: (kernel / VARIANT / "__init__.py").unlink(), f"{NAME}:: there is no __init__.py"),
    ],
    "layout-compatibility": [
        (
            locked_at(EARLIER),
            f"{NAME}:: there is no tiny_scale/__init__.py",
        ),
    ],
    "layout-bytecode": [
        (added(f"{VARIANT}/__pycache__/a.cpython-311.pyc", ""), "a.cpython-311.pyc:: is Python bytecode"),
        (added(f"{VARIANT}/a.pyc", ""), "a.pyc:: is Python bytecode"),
    ],
    "layout-links": [
        (linked("/etc/hostname"), "link.txt:: is a link out of the variant"),
        (linked("../../build.toml"), "link.txt:: is a link out of the variant"),
        (linked("gone"), "link.txt:: is a link to nowhere"),
        (linked("link.txt"), "link.txt:: is a link to nowhere"),
        (
            lambda kernel, _: (
                (kernel / VARIANT).rename(kernel / "elsewhere"),
                (kernel / VARIANT).symlink_to("../elsewhere"),
            ),
            f"{NAME}:: is a link to ../elsewhere, and was not checked",
        ),
        (
            lambda kernel, _: (kernel / f"build/{UNPLANNED}").symlink_to("/"),
            f"{UNPLANNED}:: is a link to /, and was not checked",
        ),
        (
            lambda kernel, _: (kernel / f"build/{UNPLANNED}").symlink_to(UNPLANNED),
            f"{UNPLANNED}:: is a link to {UNPLANNED}, and was not checked",
        ),
    ],
    "layout-special": [
        (
            lambda kernel, _: os.mkfifo(kernel / VARIANT / "pipe.so"),
            "pipe.so:: is neither a file nor a folder",
        ),
        (lambda kernel, _: _socket(kernel), "s:: is neither a file nor a folder"),
    ],
    "layout-writable": [
        (lambda kernel, _: _mode(kernel, 0o666), "_ops.py:: can be written to by everyone (mode 666)"),
        (
            lambda kernel, _: (kernel / VARIANT / "layers").chmod(0o777),
            "layers:: can be written to by everyone (mode 777)",
        ),
    ],
    "layout-case": [
        (added(f"{VARIANT}/_OPS.py", ""), "_ops.py:: differs from _OPS.py only in case"),
    ],
    "layout-characters": [
        (added(f"{VARIANT}/a\x1b[2Jb", ""), "a\x1b[2Jb:: has a name that not every system can have"),
        (added(f"{VARIANT}/a\\b", ""), "a\\b:: has a name that not every system can have"),
        (
            lambda kernel, _: open(os.fsencode(kernel / VARIANT) + b"/\xff", "w").close(),
            "\udcff:: has a name that not every system can have",
        ),
    ],
    "layout-size": [
        (
            lambda kernel, _: os.truncate(kernel / VARIANT / f"{ID}.abi3.so", 2_000_000_001),
            f"{ID}.abi3.so:: is larger than 2000000000 bytes and was not read",
        ),
    ],
    "layout-total": [
        (
            lambda kernel, _: (
                write(kernel / VARIANT / "table.bin", ""),
                os.truncate(kernel / VARIANT / "table.bin", 1_200_000_000),
            ),
            f"{NAME}:: has 1.2 GB in all",
        ),
    ],
    "layout-planned": [
        (
            built_with("good", UNPLANNED),
            f"{UNPLANNED}:: {UNPLANNED} is not in the plan of the locked builder",
        ),
    ],
    "layout-complete": [
        (
            _all_but("torch213-cpu-aarch64-darwin"),
            "build.toml:: torch213-cpu-aarch64-darwin is not there, and a release publishes it",
        ),
    ],
    "workflows-danger": [
        (
            workflow(
                "compliance@v1", "compliance@v1\n      - run: echo ${{ github.event.pull_request.title }}"
            ),
            "check.yml:18: code injection via template expansion (template-injection)",
        ),
        (
            workflow("@3d3c42e5aac5ba805825da76410c181273ba90b1", "@v7"),
            "check.yml:14: unpinned action reference (unpinned-uses)",
        ),
    ],
    "workflows-advice": [
        (
            workflow("persist-credentials: false", "lfs: true"),
            "check.yml:14: credential persistence through GitHub Actions artifacts (artipacked)",
        ),
    ],
    "policy-expired": [
        (waived("KA302", -1), f"kernel-actions.toml:1: the waiver of KA302 has ended on {DAY - ONE_DAY}"),
    ],
    "policy-unused": [
        (waived("KA302", 0), "kernel-actions.toml:1: the waiver of KA302 waives nothing"),
    ],
    "policy-baseline": [
        (
            baseline('{"rule": "KA302", "path": "torch-ext/tiny_scale/__init__.py", "what": "no __all__"}'),
            "known.json:3: torch-ext/tiny_scale/__init__.py breaks KA302 no longer: no __all__",
        ),
    ],
    "policy-rule": [
        (waived("source-al", 9), "kernel-actions.toml:1: source-al is no rule"),
        (
            added("kernel-actions.toml", '[compliance.rules]\nKA999 = { severity = "error" }\n'),
            "kernel-actions.toml:2: KA999 is no rule",
        ),
    ],
    "metadata-readable": [
        (
            lambda kernel, _: (kernel / VARIANT / "metadata.json").unlink(),
            "metadata.json:: cannot be read: No such file or directory",
        ),
        (
            signed(license=None),
            "metadata.json:27: the loader cannot read it: missing field `license`",
        ),
        # What the loader refuses since it has a parser of its own (kernels 0.17.2).
        (
            provenance(commit="release", dirty=False),
            "metadata.json:24: the loader cannot read it: Invalid git object id, expected 40 or 64 "
            "hexadecimal digits: release",
        ),
        (
            provenance(commit="0" * 40),
            "metadata.json:25: the loader cannot read it: missing field `dirty`",
        ),
        (
            signed(**{"kernel-depends": [{"repo-id": "acme/relu"}]}),
            "metadata.json:32: the loader cannot read it: either `version` or `revision` must be specified",
        ),
        (
            signed(**{"kernel-depends": [{"repo-id": "acme/relu", "version": 1, "revision": "main"}]}),
            "metadata.json:34: the loader cannot read it: `version` and `revision` are mutually exclusive",
        ),
    ],
    "metadata-name": [
        (signed(name="relu"), "metadata.json:11: name is relu, but build.toml says tiny-scale"),
    ],
    "metadata-version": [
        (
            edited("build.toml", "version = 3", "version = 4"),
            "metadata.json:13: version is 3, but build.toml says 4",
        ),
    ],
    "metadata-backend": [
        (
            signed(backend={"type": "cuda"}),
            "metadata.json:16: backend is cuda, but the folder's name says cpu",
        ),
        (
            built_with("good", "torch-rocm"),
            "metadata.json:16: backend is cpu, but the folder's name says rocm",
        ),
    ],
    "metadata-id": [
        (signed(id="tiny-scale"), "metadata.json:12: id 'tiny-scale' is not an identifier"),
        (
            signed(id="_tiny_scale_0123abc"),
            "metadata.json:12: id _tiny_scale_0123abc does not begin with _tiny_scale_cpu_",
        ),
        (
            signed(id="_tiny_scale_cpu_v1"),
            "metadata.json:12: id _tiny_scale_cpu_v1 does not say which revision it was built from",
        ),
    ],
    "metadata-extension": [
        (
            lambda kernel, _: (kernel / VARIANT / f"{ID}.abi3.so").rename(kernel / VARIANT / "other.so"),
            f"metadata.json:12: no extension is named {ID}: there is other.so",
        ),
        (
            lambda kernel, _: (kernel / VARIANT / f"{ID}.abi3.so").unlink(),
            f"metadata.json:12: no extension is named {ID}: there is none",
        ),
        (built_with("good", "torch-cpu"), f"{ID}.abi3.so:: is an extension, and a noarch variant has none"),
    ],
    "metadata-namespace": [
        (
            then_signed(edited(f"{VARIANT}/_ops.py", f"ops.{ID}", "ops.other")),
            f"_ops.py:: does not load the operators of {ID}",
        ),
        (
            noarch(ops="unique_id = '9999999'\n"),
            "_ops.py:: does not load the operators of _tiny_scale_cpu_0123abc",
        ),
        (then_signed(added(f"{VARIANT}/_ops.py", "(")), "_ops.py:1: cannot be parsed: '(' was never closed"),
    ],
    "metadata-digest": [
        (added(f"{VARIANT}/extra.py", ""), "extra.py:: is not in the digest"),
        (
            lambda kernel, _: (kernel / VARIANT / "_ops.py").unlink(),
            "metadata.json:2: the digest lists _ops.py, which is not there",
        ),
        (
            added(f"{VARIANT}/layers/__init__.py", "x"),
            "__init__.py:: has the hash LXEWQrcmsEQBYnyp+6wy9chTD7GQPMTbAiWHF5IaSIE=, but the digest says "
            "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
        ),
        (signed(digest=None), "metadata.json:: there is no digest"),
        (
            # What it names elsewhere is not looked at.
            lambda kernel, _: edit(
                kernel / VARIANT / "metadata.json", '"files": {', '"files": {\n"../../../../build.toml": "x",'
            ),
            "metadata.json:2: the digest lists ../../../../build.toml, which is not there",
        ),
    ],
    "metadata-provenance": [
        (provenance(), "metadata.json:19: does not say which commit it was built from"),
        (
            provenance(commit="0" * 40, dirty=True),
            "metadata.json:19: was built from sources that no commit holds",
        ),
        (signed(provenance=None), "metadata.json:: does not say which commit it was built from"),
        (
            signed(
                provenance={
                    "kernel-builder": {"version": "1", "commit": "1" * 40, "dirty": True},
                    "kernel": {"commit": "0" * 40, "dirty": False},
                }
            ),
            "metadata.json:19: was built by a builder that no commit holds",
        ),
    ],
    "metadata-commit": [
        (at_commit("1" * 40), "metadata.json:19: was built from commit 111111111111, and …"),
    ],
    "metadata-depends": [
        (
            signed(**{"python-depends": ["numpy"]}),
            "metadata.json:…",
        ),
    ],
    "metadata-sandbox": [
        (
            added(f"build/{NAME}.build-report.json", '{"builder": "nix-unsandboxed"}'),
            f"{NAME}.build-report.json:: says that the variant was built without a sandbox",
        ),
        (added(f"build/{NAME}.build-report.json", "[" * 9999), f"{NAME}.build-report.json:: is not JSON"),
    ],
    "metadata-archs": [
        (
            lambda kernel, libraries: (
                built_with("good", f"torch213-cxx11-cu126-{MACHINE}-linux")(kernel, libraries),
                sign(
                    kernel / "build" / f"torch213-cxx11-cu126-{MACHINE}-linux",
                    backend={"type": "cuda", "archs": ["9.0", "12.0+PTX"]},
                ),
            ),
            "metadata.json:16: declares 12.0+PTX, which CUDA 12.6 does not compile for",
        ),
    ],
    "binary-readable": [
        (built_from(b""), f"{ID}.abi3.so:: is no library of Linux or macOS"),
        (built_from(b"text\n" * 99), f"{ID}.abi3.so:: is no library of Linux or macOS"),
        (
            then_signed(lambda kernel, _: os.truncate(kernel / VARIANT / f"{ID}.abi3.so", 3000)),
            f"{ID}.abi3.so:: cannot be read: Invalid ELF section header offset/size/alignment",
        ),
    ],
    "binary-system": [
        (
            built_with("good", f"torch213-cxx11-cpu-{OTHER_MACHINE}-linux"),
            f"{ID}.abi3.so:: is for {MACHINE}, not for {OTHER_MACHINE}",
        ),
        (built_with("macos15"), f"{ID}.abi3.so:: is of the format Mach-O, and linux loads ELF"),
    ],
    "binary-symbols": [
        (
            built_with("stripped"),
            f"{ID}.abi3.so:: has no symbol table: its dynamic symbols were checked in its place",
        ),
    ],
    "binary-python-abi": [
        (built_with("not-stable"), f"{ID}.abi3.so:: uses PyUnicode_AsUTF8, which is not in the stable ABI"),
        (built_with("python312"), f"{ID}.abi3.so:: uses PyObject_Vectorcall, which Python has since 3.12"),
        (
            built_with("stripped-python312"),
            f"{ID}.abi3.so:: uses PyObject_Vectorcall, which Python has since 3.12",
        ),
    ],
    "binary-manylinux": [
        (built_with("glibc"), f"{ID}.abi3.so:: uses pthread_create of GLIBC 2.34"),
        (built_with("stripped"), f"{ID}.abi3.so:: uses pthread_create of GLIBC 2.34"),
    ],
    "binary-rpath": [
        (built_with("rpath"), f"{ID}.abi3.so:: looks for libraries in /opt/lib"),
        (built_with("runpath"), f"{ID}.abi3.so:: looks for libraries in $ORIGIN/../lib"),
    ],
    "binary-needed": [
        (built_with("needed"), f"{ID}.abi3.so:: needs libgomp.so.1"),
    ],
    "binary-stack": [(built_with("stack"), f"{ID}.abi3.so:: asks for an executable stack")],
    "binary-paths": [
        (built_with("paths"), f"{ID}.abi3.so:: holds the path /home/alice/kernel/scale.cpp"),
    ],
    "binary-stable-abi": [
        (
            built_with("unstable", STABLE),
            f"{ID}.abi3.so:: uses _ZN2at3addEPNS_6TensorE, which is not in Torch's stable ABI",
        ),
        (
            built_with("stable-later", STABLE),
            f"{ID}.abi3.so:: uses aoti_torch_cpu__grouped_mm, which is there since Torch 2.12",
        ),
    ],
    "binary-init": [
        (built_with("other-init"), f"{ID}.abi3.so:: does not export PyInit_{ID}, but PyInit_x"),
        (built_with("hidden-init"), f"{ID}.abi3.so:: does not export PyInit_{ID}"),
    ],
    "binary-macos": [
        (built_with("macos26", "torch213-cpu-aarch64-darwin"), f"{ID}.abi3.so:: needs macOS 26"),
        (built_with("macos27", "torch213-metal-aarch64-darwin"), f"{ID}.abi3.so:: needs macOS 27"),
    ],
}
KEEPS |= {
    "layout-complete": [
        _all_but(),
        # A plan that there is not tells nothing.
        lambda kernel, _: (kernel / "flake.lock").unlink(),
    ],
    "workflows-danger": [workflow(), workflow("persist-credentials: false", "lfs: true")],
    "workflows-advice": [workflow(), workflow("on: push", "on: pull_request")],
    "policy-expired": [waived("KA302", 0), waived("KA302", 9999)],
    "policy-unused": [
        lambda kernel, _: (
            edit(kernel / INIT, '__all__ = ["twice"]', ""),
            waived("KA302", 0)(kernel, {}),
        ),
        # One that is over, and one for variants that are not here.
        waived("KA302", -1),
        waived("KA705", 0, 'variant = "*-rocm*"\n'),
    ],
    "policy-baseline": [
        baseline(""),
        # Of a variant that is not checked here.
        baseline('{"rule": "KA705", "path": "build/x", "what": "so", "variant": "torch-cpu"}'),
    ],
    "policy-rule": [waived("KA302", 0), waived("source-all", 0)],
    "manifest-readable": [edited("build.toml", "version = 3", "version = 3 # three")],
    "manifest-edition": [edited("build.toml", "edition = 5", "edition = 5 # newest")],
    "manifest-bounds": [
        edited("build.toml", "[torch]", '[torch]\nminver = "2.12"'),
        # The builder has no build sets for it.
        edited("build.toml", 'backends = ["cpu"]', 'backends = ["cpu", "neuron"]'),
    ],
    "manifest-required": [
        edited("build.toml", "[torch]", '[torch]\nminver = "2.12"\nmaxver = "2.99"'),
        # Nothing of it is published: another rule says so.
        edited("build.toml", "[torch]", '[torch]\nminver = "9.0"'),
        # A newer Torch covers the others.
        edited("build.toml", "[torch]", '[torch]\nstable-abi = "2.11"'),
        _noarch_manifest,
    ],
    "manifest-license": [
        edited("build.toml", '"Apache-2.0"', '"other"'),
        edited("build.toml", '"Apache-2.0"', '"(MIT OR Apache-2.0)"'),
    ],
    "manifest-repo-id": [edited("build.toml", "acme/", "acme-two/")],
    "manifest-sources": [edited("build.toml", "csrc/scale.cpp", "csrc/../csrc/scale.cpp")],
    "manifest-headers": [
        # What is listed, wherever; what the builder generates; what others have; what a condition includes.
        lambda kernel, _: (
            edit(kernel / "build.toml", '"csrc/scale.cpp",', '"csrc/scale.cpp", "csrc/a.h",'),
            edit(kernel / "build.toml", 'src = ["torch-ext/binding.cpp"]', SHARED),
            write(kernel / "csrc/a.h", "#pragma once\n"),
            write(kernel / "torch-ext/b.h", ""),
            write(kernel / "csrc/hip.h", ""),
            write(
                kernel / "csrc/scale.cpp",
                '#include "a.h"\n#include "../torch-ext/b.h"\n#include "cute/tensor.hpp"\n'
                '// #include "hip.h"\n/*\n#include "hip.h"\n*/\n#ifdef HIP\n#include "hip.h"\n#endif\n'
                '#include HEADER\n#include "../../outside.h"\n',
            ),
            write(kernel.parent / "outside.h", ""),
        ),
        # The headers of the package's folder are there by pyext.
        lambda kernel, _: (
            edit(kernel / "build.toml", "[torch]", '[torch]\npyext = ["py", "h"]'),
            write(kernel / "torch-ext/binding.h", ""),
            edit(kernel / BINDING, '#include "registration.h"', '#include "binding.h"'),
        ),
        # The one that is listed is found where the other is not there.
        lambda kernel, _: (
            edit(kernel / "build.toml", '"csrc/scale.cpp",', '"csrc/scale.cpp", "include/a.h",'),
            edit(kernel / "build.toml", "depends", 'include = ["include"]\ndepends'),
            write(kernel / "include/a.h", ""),
            write(kernel / "csrc/a.h", ""),
            write(kernel / "csrc/scale.cpp", '#include "a.h"\n'),
        ),
    ],
    "manifest-pyext": [
        edited("build.toml", "[torch]", '[torch]\npyext = ["json", "py"]'),
        # A builder that does not look at it there.
        locked_at(BEFORE_DIGESTS, _noarch_manifest, appended("build.toml", 'pyext = ["json"]\n')),
    ],
    "manifest-components": [_noarch_manifest, edited("build.toml", 'backends = ["cpu"]', "")],
    "manifest-package": [
        added("torch-ext/tiny_scale/layers/__init__.py", ""),
        # einops is such a package.
        lambda kernel, _: (
            write(kernel / "torch-ext/tiny_scale/tiny_scale.py", ""),
            edit(kernel / INIT, "import torch\n", "import torch\nfrom .tiny_scale import f\n"),
        ),
        added("torch-ext/tiny_scale/tiny_scale/x.py", ""),
        locked_at(EARLIER, added("torch-ext/tiny_scale/tiny_scale.py", "")),
    ],
    "flake-lock": [
        # A revision that is not known is no fault of the lock file.
        edited("flake.lock", LOCKED, UNKNOWN),
    ],
    "flake-builder": [lambda kernel, _: (kernel / "flake.lock").unlink()],
    "flake-fork": [lambda kernel, _: (kernel / "flake.lock").unlink()],
    "flake-renamed": [edited("flake.lock", '"owner": "huggingface"', '"owner": "acme"')],
    "flake-age": [
        edited("flake.lock", str(LOCKED_AT), str(LOCKED_AT - 300 * 86_400)),
        edited("flake.lock", str(LOCKED_AT), '"x"'),
    ],
    "flake-torch": [edited("build.toml", "[torch]", '[torch]\nminver = "2.12"'), _noarch_manifest],
    "flake-committed": [at_commit()],
    "flake-cache": [
        added("flake.nix", f'{{\n{CACHE}key = "{configuration.BUILDER_KEY}";\n}}\n'),
        added("flake.nix", "{ }\n"),
    ],
    "flake-submodules": [
        added(".gitmodules", '[submodule "x"]\n\tpath = csrc/scale\n'),
        added(".gitmodules", "\0["),
        lambda kernel, _: (
            write(kernel / ".gitmodules", '[submodule "x"]\npath = csrc\n'),
            write(kernel / "flake.nix", "{ inputs.self.submodules = true; }\n"),
        ),
    ],
    "source-fallback-ops": [
        added(
            "torch-ext/tiny_scale/a.py",
            "try:\n    from ._ops import ops\nexcept ImportError as e:\n    raise\n",
        ),
        added(
            "torch-ext/tiny_scale/a.py", "try:\n    from .other import ops\nexcept ImportError:\n    pass\n"
        ),
    ],
    "source-imports": [
        lambda kernel, _: (
            edit(kernel / INIT, "import torch\n", "import torch\nfrom . import a\n"),
            write(
                kernel / "torch-ext/tiny_scale/a.py",
                "import os.path, torch.nn, triton.language as tl\nfrom typing import TYPE_CHECKING\n"
                "from typing_extensions import Self\nif TYPE_CHECKING:\n    import numpy\n"
                "try:\n    import apex\nexcept ImportError:\n    apex = None\n"
                "def f():\n    import scipy\n",
            ),
        ),
        lambda kernel, _: (
            edit(kernel / "build.toml", "version = 3", 'version = 3\npython-depends = ["einops"]'),
            edit(kernel / INIT, "import torch\n", "import torch\nfrom einops import rearrange\n"),
        ),
        # What the loader requires is there with it.
        edited(
            INIT,
            "import torch\n",
            "import huggingface_hub\nimport torch\nimport yaml\nfrom packaging import version\n",
        ),
        # Not on every machine.
        edited(INIT, "import torch\n", "import torch\nif torch.version.hip:\n    import iris\n"),
        lambda kernel, _: (
            edit(kernel / "build.toml", 'backends = ["cpu"]', 'backends = ["cpu", "tpu"]'),
            edit(kernel / INIT, "import torch\n", "import torch\nimport jax.numpy as jnp\n"),
        ),
        # Circles, and more dots than there are folders.
        lambda kernel, _: (
            edit(kernel / INIT, "import torch\n", "from . import a\nfrom ... import numpy\nimport torch\n"),
            write(
                kernel / "torch-ext/tiny_scale/a.py", "from . import a\nfrom .a import b\nfrom . import *\n"
            ),
        ),
    ],
    "source-later-imports": [
        edited(INIT, "import torch\n", "import numpy\nimport torch\n"),
        added(
            "torch-ext/tiny_scale/a.py",
            "def f():\n    try:\n        import numpy\n    except ImportError as error:\n"
            "        raise ImportError('f needs numpy') from error\n"
            "if __name__ == '__main__':\n    import psutil\n",
        ),
        # The package is loaded without it.
        lambda kernel, _: (
            edit(
                kernel / INIT,
                "import torch\n",
                "import torch\ntry:\n    from . import a\nexcept ImportError:\n    a = None\n",
            ),
            write(kernel / "torch-ext/tiny_scale/a.py", "import iris\n"),
        ),
        # Somebody asks first, here or in another file.
        added("torch-ext/tiny_scale/a.py", "if TYPE_CHECKING:\n    import iris\n"),
        added("torch-ext/tiny_scale/a.py", "def f():\n    if HAS_IRIS:\n        import iris\n"),
        lambda kernel, _: (
            write(kernel / "torch-ext/tiny_scale/a.py", 'HAS = find_spec_cached("iris") is not None\n'),
            write(kernel / "torch-ext/tiny_scale/b.py", "import iris.language\n"),
        ),
        # What its users have who call it with arrays of another framework, and who test it.
        added("torch-ext/tiny_scale/a.py", "def f():\n    import jax.numpy\n    import tensorflow\n"),
        added("torch-ext/tiny_scale/ops/scale_test.py", "import pytest\nimport numpy\n"),
        added("torch-ext/tiny_scale/testing/plugin.py", "import pytest\n"),
        added("torch-ext/tiny_scale/scale_benchmark.py", "import tabulate\n"),
    ],
    "source-threads": [
        added("csrc/scale.cpp", '// at::parallel_for\nconst char* a = "at::parallel_for";\n'),
        added(
            "csrc/scale.cpp", "#pragma omp simd\nvoid f() { queue.parallel_for(n); data::parallel_for(n); }\n"
        ),
        added("csrc/other.cpp", "void f() { at::parallel_for(0, 9, 1, body); }\n"),
        # nvcc has flags of its own, and what it compiles; the compiler for SYCL compiles C++ as well.
        _with_loop_in_header(
            'cxx-flags = ["-Xpreprocessor", "-fopenmp"]',
            '[kernel.more]\nbackend = "cuda"\nsrc = ["csrc/loop.h", "csrc/more.cu", "csrc/loop.cuh"]\n',
            '[kernel.last]\nbackend = "xpu"\nsrc = ["csrc/loop.h", "csrc/last.cpp"]\n'
            'sycl-flags = ["-qopenmp"]\n',
        ),
        lambda kernel, _: (
            added("csrc/scale.cpp", "void f() { at::parallel_for(0, 9, 1, body); }\n")(kernel, {}),
            edit(
                kernel / "build.toml", 'backend = "cpu"', 'backend = "cpu"\ncxx-flags = ["-O3", "-fopenmp"]'
            ),
        ),
    ],
    "source-fake": [
        # One that writes to its arguments, one with a function behind it, one in a comment.
        appended(BINDING, 'void f(M m) { m.def("a(Tensor(a!) x) -> ()"); }\n'),
        appended(BINDING, 'void f(M m) { m.def("a(Tensor x) -> Tensor", &a); }\n'),
        appended(BINDING, '// m.def("a(Tensor x) -> Tensor");\n'),
        appended(BINDING, 'void f(M m) { m.def("a(int x) -> int"); }\n'),
        # One that only an operator of Python calls.
        lambda kernel, _: (
            appended(BINDING, 'void f(M m) { m.def("a(Tensor x) -> Tensor"); }\n')(kernel, {}),
            appended(
                INIT,
                '@torch.library.custom_op(add_op_namespace_prefix("b"), mutates_args=())\n'
                "def b(x: torch.Tensor) -> torch.Tensor:\n    return ops.a(x)\n",
            )(kernel, {}),
        ),
        appended(BINDING, 'void f(M m) { m.def("a(Tensor x) -> Tensor"); m.impl("a", torch::kMeta, &a); }\n'),
        lambda kernel, _: (
            appended(BINDING, 'void f(M m) { m.def("a(Tensor x) -> Tensor"); }\n')(kernel, {}),
            appended(INIT, "for n in ops:\n    torch.library.register_fake(n)\n")(kernel, {}),
        ),
    ],
    "source-test-imports": [
        added("tests/test_b.py", "import tiny_scale_two, kernels\nfrom . import tiny_scale\n"),
        added("tests/test_b.py", "tiny_scale ("),
        # What pytest does not collect, and functions that no run selects.
        added("tests/run_all.py", "import tiny_scale\n"),
        added("tests/test_b.py", "def test_it():\n    import tiny_scale\n"),
        added("tests/test_b.py", "try:\n    import tiny_scale\nexcept ImportError:\n    pass\n"),
        locked_at(EARLIER, added("tests/test_b.py", "import tiny_scale\n")),
        locked_at(
            EARLIER,
            added("tests/test_b.py", "import kernels\n"),
            added("flake.nix", "{ pythonCheckInputs = ps: with ps; [ einops kernels ]; }\n"),
        ),
        # Nobody knows what that builder has.
        locked_at(UNKNOWN, added("tests/test_b.py", "import tiny_scale, kernels\n")),
    ],
    "source-readable": [added("torch-ext/tiny_scale/notes.txt", "def f(:")],
    "source-all": [
        edited(INIT, "__all__ =", "__all__: list[str] ="),
        edited(INIT, "__all__ =", "__all__ +="),
    ],
    "source-library": [
        edited(BINDING, "TORCH_LIBRARY_EXPAND", "STABLE_TORCH_LIBRARY_EXPAND"),
        edited("build.toml", '[torch]\nsrc = ["torch-ext/binding.cpp"]', "[torch-noarch]"),
    ],
    "source-extension": [edited(BINDING, "(TORCH_EXTENSION_NAME)", "( TORCH_EXTENSION_NAME )")],
    "source-literal-library": [
        appended(BINDING, '/* TORCH_LIBRARY(a, m) */ const char* s = "TORCH_LIBRARY(a, m) \\" ";\n'),
        appended(BINDING, "#define OWN(NAME) \\\n  TORCH_LIBRARY(NAME, m)\n"),
        appended(BINDING, 'const char* r = R"x(" TORCH_LIBRARY(a, m) )x";\nint big = 1\'000\'000;\n'),
        appended(BINDING, "TORCH_LIBRARY_IMPL(aten, CPU, m) {}\n"),
        appended(BINDING, "TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, m) {}\n"),
    ],
    "source-literal-ops": [
        added(
            "torch-ext/tiny_scale/a.py",
            "import torch\ntorch.ops.aten.add(1, 2)\ntorch.ops.load_library('x')\n",
        ),
        added("torch-ext/tiny_scale/a.py", "from ._ops import ops\nops.scale(1)\n"),
        added("torch-ext/tiny_scale/a.py", "class A:\n    pass\nA.ops.scale = 1\n"),
        # The builder's own file, which it may have left behind.
        added("torch-ext/tiny_scale/_ops.py", "import torch\nops = torch.ops._tiny_scale_cpu_0123abc\n"),
    ],
    "source-literal-name": [
        added("torch-ext/tiny_scale/a.py", "import torch\ntorch.library.impl(lib, 'twice')\n"),
        added("torch-ext/tiny_scale/a.py", "import torch\ntorch.library.impl('aten::add', 'cpu')\n"),
        added("torch-ext/tiny_scale/a.py", "from x import custom_op\ncustom_op('scale::x')\n"),
        added("torch-ext/tiny_scale/a.py", "import torch\ntorch.library.register_fake()\n"),
    ],
    "source-relative-imports": [
        added(
            "torch-ext/tiny_scale/a.py", "from .tiny_scale import b\nimport tiny_scale_two\nfrom . import c\n"
        ),
    ],
    "source-tests": [
        edited("tests/test_scale.py", "@pytest.mark.kernels_ci", "pytestmark = pytest.mark.kernels_ci\n"),
        lambda kernel, _: (kernel / "tests/test_scale.py").rename(kernel / "tests/scale_test.py"),
    ],
    "layout-name": [noarch(), added("build/.local/x", ""), added("build/notes/x", "")],
    "layout-init": [noarch()],
    "layout-compatibility": [
        noarch(),
        locked_at(EARLIER, then_signed(added(f"{VARIANT}/tiny_scale/__init__.py", ""))),
        locked_at(UNKNOWN),
    ],
    "layout-bytecode": [added(f"{VARIANT}/pyc.py", "")],
    "layout-links": [linked("_ops.py"), linked("../" + NAME + "/_ops.py")],
    "layout-special": [added(f"{VARIANT}/folder/file", "")],
    "layout-writable": [lambda kernel, _: _mode(kernel, 0o775), linked("_ops.py")],
    "layout-case": [added(f"{VARIANT}/folder/_OPS.py", "")],
    "layout-characters": [added(f"{VARIANT}/größe und maß.json", "")],
    "layout-size": [lambda kernel, _: os.truncate(kernel / VARIANT / f"{ID}.abi3.so", 3_000_000)],
    "layout-total": [lambda kernel, _: os.truncate(kernel / VARIANT / "_ops.py", 10_000_000)],
    "layout-planned": [
        signed(version=4),
        lambda kernel, libraries: (
            built_with("good", "torch299-cpu-linux")(kernel, libraries),
            (kernel / "flake.lock").unlink(),
        ),
    ],
    "metadata-readable": [
        signed(upstream="https://example.org/x"),
        signed(unknown={"a": [1]}),
        signed(backend={"type": "tpu"}),
        signed(**{"kernel-depends": [{"repo-id": "acme/relu", "version": 1}]}),
        # As the builder wrote it before 2026-08-17.
        provenance(sha="0" * 40, dirty=False),
    ],
    "metadata-name": [signed(name="tiny-scale")],
    "metadata-version": [signed(version=3)],
    "metadata-backend": [built_with("good", "torch-universal")],
    "metadata-id": [
        signed(id="_tiny_scale_cpu_0123abc_dirty"),
        signed(id="_tiny_scale_cpu_local_0123abc"),
        signed(id="_tiny_scale_cpu_2juixjwdznbhy"),
    ],
    "metadata-extension": [noarch()],
    "metadata-namespace": [
        noarch(),
        then_signed(
            added(f"{VARIANT}/_ops.py", f'import tvm_ffi\nops = tvm_ffi.load_module(HERE / "{ID}.so")\n')
        ),
    ],
    "metadata-digest": [
        added(f"{VARIANT}/metadata.json.sigstore", "{}"),
        added(f"{VARIANT}/__pycache__/a.pyc", ""),
        linked("/etc/hostname"),
        then_signed(linked("_ops.py")),
    ],
    "metadata-provenance": [provenance(commit="0" * 40, dirty=False)],
    "metadata-commit": [at_commit()],
    "metadata-depends": [
        signed(**{"python-depends": ["einops"]}),
        signed(backend={"type": "cpu"}, **{"python-depends": []}),
    ],
    "metadata-sandbox": [
        added(f"build/{NAME}.build-report.json", '{"builder": "nix"}'),
        added(f"build/{NAME}.build-report.json", "[]"),
    ],
    "metadata-archs": [
        lambda kernel, libraries: (
            built_with("good", f"torch213-cxx11-cu130-{MACHINE}-linux")(kernel, libraries),
            sign(
                kernel / "build" / f"torch213-cxx11-cu130-{MACHINE}-linux",
                backend={"type": "cuda", "archs": ["7.5", "9.0a", "10.0f", "12.1+PTX"]},
            ),
        ),
    ],
    "binary-readable": [built_with("macos15"), built_with("stripped")],
    "binary-system": [built_with("macos15", "torch213-cpu-aarch64-darwin")],
    "binary-symbols": [built_with("macos15")],
    "binary-python-abi": [built_with("glibc")],
    "binary-manylinux": [built_with("not-stable"), built_with("macos26")],
    "binary-rpath": [built_with("needed")],
    "binary-needed": [built_with("torch"), built_with("glibc-parts"), built_with("macos15")],
    "binary-stack": [built_with("rpath"), built_with("macos15")],
    "binary-paths": [built_with("shared-paths")],
    "binary-stable-abi": [
        built_with("stable", STABLE),
        built_with("unstable"),
        built_with("stable-later", STABLE.replace("211", "212")),
    ],
    "binary-init": [
        built_with("stripped-good"),
        built_with("other-init", f"tvm-ffi01-cpu-{MACHINE}-linux"),
        # A library beside the module.
        lambda kernel, libraries: shutil.copy(libraries["needed"], kernel / VARIANT / "libmore.so"),
        noarch(),
    ],
    "binary-macos": [
        built_with("macos15", "torch213-cpu-aarch64-darwin"),
        built_with("macos26", "torch213-metal-aarch64-darwin"),
    ],
}
