"""A kernel that compiles in seconds, and a toolchain that is nowhere installed."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

from kernel_actions.local_builder.toolchain import Compiler, Nvcc, Toolchain, Torch

BUILD_TOML = """\
[general]
name = "tiny-scale"
version = 3
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch]
src = ["torch-ext/torch_binding.cpp"]
pyext = ["py", "json"]

[kernel.scale]
backend = "cpu"
depends = ["torch"]
src = [
  "csrc/scale.h",
  "csrc/scale.cpp",
]
"""
BINDING = """\
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include "registration.h"
#include "scale.h"

void twice(torch::stable::Tensor x) {
  scale(static_cast<float*>(x.data_ptr()), x.numel());
}

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("twice(Tensor(a!) x) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("twice", TORCH_BOX(&twice));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""
SCALE = """\
#include "scale.h"

#include <memory>
#include <vector>

// shared_ptr reads __libc_single_threaded, which is not in glibc 2.28.
static std::shared_ptr<int> factor = std::make_shared<int>(2);

void scale(float* values, long count) {
  std::shared_ptr<int> used = factor;
  for (long i = 0; i < count; ++i) values[i] *= *used;
}
"""
PYTHON = """\
import json
from pathlib import Path

import torch

from ._ops import add_op_namespace_prefix, ops

__all__ = ["twice"]
NOTE = json.loads((Path(__file__).parent / "data" / "note.json").read_text())


def twice(x: torch.Tensor) -> torch.Tensor:
    ops.twice(x)
    return x
"""


def write_kernel(folder: Path, build_toml: str = BUILD_TOML) -> Path:
    """Write the kernel into ``folder``."""
    texts = {
        "build.toml": build_toml,
        "torch-ext/torch_binding.cpp": BINDING,
        "torch-ext/tiny_scale/__init__.py": PYTHON,
        "torch-ext/tiny_scale/data/note.json": '"a note"\n',
        "torch-ext/tiny_scale/data/left-out.txt": "",
        "csrc/scale.h": "#pragma once\nvoid scale(float* values, long count);\n",
        "csrc/scale.cpp": SCALE,
    }
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def commit(folder: Path, message: str = "state") -> str:
    """Commit everything in ``folder`` and return the commit."""
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.com"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "--allow-empty", "-m", message]):
        subprocess.run(["git", *identity, "-C", str(folder), *arguments], check=True)
    said = subprocess.run(
        ["git", "-C", str(folder), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    )
    return said.stdout.strip()


def toolchain(
    *,
    system: str = "x86_64-linux",
    torch: str | None = "2.13.0+cpu",
    cuda: str | None = None,
    nvcc: str | None = None,
    capabilities: tuple[str, ...] = (),
    compiler: str | None = "gcc",
) -> Toolchain:
    """A toolchain by its versions; ``None`` is what it lacks."""
    suffix = "dylib" if system.endswith("darwin") else "so"
    libraries = ("c10", "torch_cpu", "torch", *(("c10_cuda", "torch_cuda") if cuda else ()))
    known = "7.5 8.0 8.6 8.7 8.8 8.9 9.0 10.0 10.3 11.0 12.0 12.1" if nvcc and nvcc > "13" else "7.5 8.0 9.0"
    return Toolchain(
        system=system,
        python_include=Path("/python/include"),
        torch=None
        if torch is None
        else Torch(
            version=torch,
            folder=Path("/site-packages/torch"),
            libraries=tuple(f"lib{name}.{suffix}" for name in libraries),
            cuda=cuda,
            definitions=("USE_DISTRIBUTED",),
        ),
        compiler=Compiler(Path("/usr/bin/c++"), "clang" if compiler == "clang" else "gcc", "12.2.0")
        if compiler
        else None,
        nvcc=Nvcc(Path("/cuda/bin/nvcc"), nvcc, tuple(known.split())) if nvcc else None,
        cuda_includes=(Path("/site-packages/nvidia/cu13/include"),) if cuda else (),
        capabilities=capabilities,
    )


def edited(text: str, *replacements: tuple[str, str]) -> str:
    """``text`` with each pair's first part, which must be there, replaced by its second."""
    for old, new in replacements:
        assert old in text, f"{old!r} is not in the text"
        text = text.replace(old, textwrap.dedent(new))
    return text
