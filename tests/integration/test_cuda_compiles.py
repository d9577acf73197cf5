"""The CUDA sources of the example kernel compile for every architecture, with the CPU build of torch too.

No GPU is needed: that they give the right pixels is tested by tests/kernel/ where there is one.
"""

import re
import subprocess
from pathlib import Path

import pytest
import tomllib

from tests.tools import needs, program

ROOT = Path(__file__).resolve().parents[2]
ARCHITECTURES = ("75", "80", "86", "89", "90", "100", "120")

# In the place of the header that the builder generates: the extension is not loaded here.
REGISTRATION = """\
#pragma once
#define TORCH_LIBRARY_EXPAND(name, module) TORCH_LIBRARY(name, module)
#define REGISTER_EXTENSION(name)
"""


@pytest.fixture
def nvcc() -> str:
    return program("nvcc")


def sources(suffix: str) -> list[Path]:
    """What goes into a CUDA variant, according to build.toml."""
    build = tomllib.loads((ROOT / "build.toml").read_text())
    sections = [build["torch"], *(part for part in build["kernel"].values() if part["backend"] == "cuda")]
    return [ROOT / name for section in sections for name in section["src"] if name.endswith(suffix)]


def flags(key: str) -> list[str]:
    """What a CUDA variant is compiled with, according to build.toml."""
    build = tomllib.loads((ROOT / "build.toml").read_text())
    parts = [part for part in build["kernel"].values() if part["backend"] == "cuda"]
    return [flag for part in parts for flag in part.get(key, ())]


def run(*command: str | Path) -> str:
    result = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert result.returncode == 0, result.stderr or result.stdout
    return result.stdout + result.stderr


@pytest.mark.parametrize(
    "wanted",
    # Every architecture takes a quarter of a minute of processor time.
    [("90",), pytest.param(ARCHITECTURES, marks=pytest.mark.slow)],
    ids=["one", "all"],
)
@pytest.mark.parametrize("source", sources(".cu"), ids=lambda source: source.name)
def test_kernel(nvcc: str, tmp_path: Path, source: Path, wanted: tuple[str, ...]) -> None:
    known = set(re.findall(r"compute_(\d+)", run(nvcc, "--list-gpu-arch")))
    architectures = [name for name in wanted if name in known]
    assert architectures, f"this nvcc knows none of {', '.join(wanted)}"

    report = run(
        nvcc, "-c", source, "-o", tmp_path / "kernel.o", "-std=c++17", "-O3", "--threads", "2",
        "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-fPIC", "-Xptxas", "-v",
        *flags("cuda-flags"), *(f"-gencode=arch=compute_{name},code=sm_{name}" for name in architectures),
    )  # fmt: skip

    # Each kernel of each architecture: everything in registers, nothing in memory that was not asked for.
    assert set(re.findall(r"for '(sm_\d+)\w?'", report)) == {f"sm_{name}" for name in architectures}
    memory = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", report)
    assert memory
    assert set(memory) == {("0", "0", "0")}, report


@needs("Torch")
@pytest.mark.parametrize("source", sources(".cpp"), ids=lambda source: source.name)
def test_binding(nvcc: str, tmp_path: Path, source: Path) -> None:
    import torch
    from torch.utils.cpp_extension import include_paths

    (tmp_path / "registration.h").write_text(REGISTRATION)
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    # By nvcc, which hands C++ to the C++ compiler and knows where the headers of CUDA are.
    run(
        nvcc, "-c", source, "-o", tmp_path / "binding.o",
        f"-std=c++{20 if (major, minor) >= (2, 12) else 17}", "-Xcompiler", "-Wall,-Wextra,-Werror,-fPIC",
        *(f"-Xcompiler={flag}" for flag in flags("cxx-flags")),
        "-DCUDA_KERNEL", "-DUSE_CUDA=1", "-DTORCH_EXTENSION_NAME=_grayscale_cuda_test",
        "-I", tmp_path, "-I", ROOT / "csrc",
        *(f"-isystem={path}" for path in include_paths()),
    )  # fmt: skip
