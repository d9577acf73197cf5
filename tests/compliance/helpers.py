"""A kernel that keeps every rule, its built variant, and libraries that break some."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import platform
import struct
import subprocess
from pathlib import Path
from typing import Any

from kernel_actions import compliance
from kernel_actions.compliance import Report

ROOT = Path(__file__).resolve().parents[2]
_LOCK = json.loads((ROOT / "flake.lock").read_text())["nodes"]
# When the builder's revision in the lock was made, in seconds since 1970.
LOCKED_AT: int = _LOCK["kernel-builder"]["locked"]["lastModified"]
# The day that it is in tests: the one after.
DAY = datetime.datetime.fromtimestamp(LOCKED_AT + 86_400, datetime.timezone.utc).date()
MACHINE = platform.machine()
NAME = f"torch213-cxx11-cpu-{MACHINE}-linux"
ID = "_tiny_scale_cpu_0123abc"
FILES = {
    "build.toml": """\
[general]
name = "tiny-scale"
version = 3
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[general.hub]
repo-id = "acme/tiny-scale"

[torch]
src = ["torch-ext/binding.cpp"]

[kernel.scale]
backend = "cpu"
depends = ["torch"]
src = [
  "csrc/scale.cpp",
]
""",
    "torch-ext/binding.cpp": """\
#include "registration.h"
// TORCH_LIBRARY(comment, ops) registers nothing.
TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("twice(Tensor x) -> Tensor");
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
""",
    "csrc/scale.cpp": "void scale() {}\n",
    "torch-ext/tiny_scale/__init__.py": """\
import torch

from ._ops import add_op_namespace_prefix, ops

__all__ = ["twice"]


def twice(x):
    return ops.twice(x)


@torch.library.register_fake(add_op_namespace_prefix("twice"))
def _fake(x):
    return torch.ops.aten.empty_like(x)
""",
    "tests/test_scale.py": "import pytest\n\n\n@pytest.mark.kernels_ci\ndef test_it():\n    pass\n",
}
# What some of them are linked with.
FLAGS = {
    "rpath": ["-Wl,-rpath,/opt/lib", "-Wl,--disable-new-dtags"],
    "runpath": ["-Wl,-rpath,$ORIGIN/../lib", "-Wl,--enable-new-dtags"],
    "stack": ["-Wl,-z,execstack"],
    "needed": ["-Wl,--no-as-needed", "libgomp.so.1"],
    "torch": ["-Wl,--no-as-needed", "libtorch_cpu.so", "libc10.so"],
    "glibc-parts": ["-Wl,--no-as-needed", "libmvec.so.1", "libatomic.so.1", "libanl.so.1", "libresolv.so.2"],
}
# Declarations in place of headers: they compile in no time.
LIBRARIES = {
    "good": f'extern "C" void* PyInit_{ID}() {{ return 0; }}',
    "glibc": (
        'extern "C" int pthread_create(...); extern "C" int f() { return pthread_create(0, 0, 0, 0); } '
        f'extern "C" void* PyInit_{ID}() {{ return 0; }}'
    ),
    "not-stable": 'extern "C" void* PyUnicode_AsUTF8(void*); void* f() { return PyUnicode_AsUTF8(0); }',
    "other-init": 'extern "C" void* PyInit_x() { return 0; }',
    "hidden-init": (f'extern "C" __attribute__((visibility("hidden"))) void* PyInit_{ID}() {{ return 0; }}'),
    "paths": 'const char* f() { return "/home/alice/kernel/scale.cpp"; }',
    "shared-paths": 'const char* f() { return "/build/source/scale.cpp /nix/store/0-x /home"; }',
    "rpath": "void f() {}",
    "runpath": "void f() {}",
    "stack": "void f() {}",
    "needed": "void f() {}",
    "torch": "void f() {}",
    "glibc-parts": "void f() {}",
    "unstable": "namespace at { struct Tensor; void add(Tensor*); } void f() { at::add(nullptr); }",
    "stable": (
        'extern "C" int aoti_torch_get_dim(void*, long*); namespace at { int own(int x) { return x; } } '
        "int f() { return aoti_torch_get_dim(0, 0) + at::own(1); }"
    ),
    # The second is there since Torch 2.12.
    "stable-later": (
        'extern "C" int torch_from_blob(...); extern "C" int aoti_torch_cpu__grouped_mm(...); '
        "int f() { return torch_from_blob() + aoti_torch_cpu__grouped_mm(); }"
    ),
    "python312": 'extern "C" void* PyObject_Vectorcall(...); void* f() { return PyObject_Vectorcall(0); }',
}


def compile_libraries(folder: Path) -> dict[str, Path]:
    """Compile ``LIBRARIES``, and make the one for macOS and the one without symbols."""
    made = {}
    for name in {one for flags in FLAGS.values() for one in flags if one.startswith("lib")}:
        command = ["g++", "-shared", "-nostdlib", "-x", "c++", "/dev/null", f"-Wl,-soname,{name}", "-o", name]
        subprocess.run(command, cwd=folder, check=True)
    for name, source in LIBRARIES.items():
        made[name] = folder / f"{name}.so"
        command = ["g++", "-shared", "-fPIC", "-o", str(made[name]), "-x", "c++", "-", "-x", "none"]
        subprocess.run([*command, *FLAGS.get(name, [])], cwd=folder, input=source, text=True, check=True)
    for name, of in (("stripped", "glibc"), ("stripped-python312", "python312"), ("stripped-good", "good")):
        made[name] = folder / f"{name}.so"
        subprocess.run(["strip", "-o", made[name], made[of]], check=True)
    for name, minos in (("macos15", 0x000F0000), ("macos26", 0x001A0000), ("macos27", 0x001B0000)):
        made[name] = folder / f"{name}.so"
        made[name].write_bytes(mach_o(minos))
    return made


def mach_o(minos: int) -> bytes:
    """A library for macOS on arm64 that needs the version ``minos``."""
    command = struct.pack("<6I", 0x32, 24, 1, minos, minos, 0)  # LC_BUILD_VERSION
    return struct.pack("<8I", 0xFEEDFACF, 0x0100000C, 0, 6, 1, len(command), 0, 0) + command


def write_kernel(folder: Path) -> Path:
    """Write the kernel, locked to a builder that the suite knows."""
    for name, text in FILES.items():
        write(folder / name, text)
    write(folder / "flake.lock", (ROOT / "flake.lock").read_text())
    return folder


def write(path: Path, text: str) -> None:
    """Write a file and the folders around it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def edit(path: Path, old: str, new: str) -> None:
    """Replace ``old``, which must be in the file."""
    text = path.read_text()
    assert old in text, f"{old!r} is not in {path}"
    path.write_text(text.replace(old, new, 1))


def write_variant(kernel: Path, library: Path | None, name: str = NAME, **changes: Any) -> Path:
    """Write a built variant of the kernel, as the locked builder does; ``changes`` are to its metadata."""
    folder = kernel / "build" / name
    identity = str(changes.get("id", ID))
    write(folder / "__init__.py", FILES["torch-ext/tiny_scale/__init__.py"])
    write(folder / "layers" / "__init__.py", "")
    write(folder / "_ops.py", f"import torch\n\nfrom . import {ID}\n\nops = torch.ops.{ID}\n")
    if library is not None:
        (folder / f"{identity}.abi3.so").write_bytes(library.read_bytes())
    metadata = {
        "name": "tiny-scale",
        "id": ID,
        "version": 3,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": "cpu"},
        "provenance": {
            "kernel-builder": {"version": "0.17.2"},
            "kernel": {"commit": "0" * 40, "dirty": False},
        },
    }
    sign(folder, metadata | changes)
    return folder


def sign(folder: Path, metadata: dict[str, Any] | None = None, **changes: Any) -> None:
    """Write metadata.json with the hashes of all files, changed as said; ``None`` takes a key away."""
    path = folder / "metadata.json"
    values = (json.loads(path.read_text()) if metadata is None else metadata) | changes
    hashes = {
        str(file.relative_to(folder)): base64.b64encode(hashlib.sha256(file.read_bytes()).digest()).decode()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file != path
    }
    values = {"digest": {"algorithm": "sha256", "files": hashes}} | values
    if metadata is None and "digest" not in changes:
        values["digest"] = {"algorithm": "sha256", "files": hashes}
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}, indent=2))


def check(kernel: Path, *, complete: bool = False) -> Report:
    """Check the kernel, its workflows, and all that is in its folder ``build``, half-made variants too; with
    ``complete`` all variants of a release have to be there."""
    folders = compliance.variant_folders(kernel / "build")
    return compliance.check_folders(kernel, folders, complete=complete, workflows=True)


def said(report: Report, slug: str) -> list[str]:
    """What the report says about one rule: ``path:line: message``."""
    return [
        f"{one.where.path.name}:{one.where.line or ''}: {one.message}"
        for one in report.findings
        if one.rule.slug == slug
    ]
