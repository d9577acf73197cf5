"""What this machine can build, by the builder's names."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_actions import builder_output, manifest
from kernel_actions.errors import WrongInput, WrongSurroundings
from kernel_actions.local_builder import target
from kernel_actions.local_builder.target import Target
from kernel_actions.local_builder.toolchain import Toolchain
from kernel_actions.manifest import Manifest

from tests.local_builder.helpers import BUILD_TOML, edited, toolchain, write_kernel

CUDA_SECTION = """

[kernel.scale_cuda]
backend = "cuda"
depends = ["torch"]
src = ["csrc/scale.cpp"]
"""
BOTH = edited(BUILD_TOML, ('backends = ["cpu"]', 'backends = ["cpu", "cuda"]')) + CUDA_SECTION
STABLE = edited(BOTH, ('pyext = ["py", "json"]', 'stable-abi = "2.11"'))
PYTHON_ALONE = edited(
    BUILD_TOML.partition("[torch]")[0] + "[torch-noarch]\n",
    ('backends = ["cpu"]', 'backends = ["cpu", "cuda", "rocm"]'),
)
CUDA_MACHINE = toolchain(torch="2.11.0+cu130", cuda="13.0", nvcc="13.0")


def load(folder: Path, text: str) -> Manifest:
    return manifest.load(write_kernel(folder, text))


@pytest.mark.parametrize(
    ("text", "machine", "variant"),
    [
        (BOTH, toolchain(), "torch213-cxx11-cpu-x86_64-linux"),
        (BOTH, toolchain(system="aarch64-linux", torch="2.9.1"), "torch29-cxx11-cpu-aarch64-linux"),
        (BOTH, toolchain(system="aarch64-darwin"), "torch213-cpu-aarch64-darwin"),
        (BOTH, CUDA_MACHINE, "torch211-cxx11-cu130-x86_64-linux"),
        (BOTH, toolchain(torch="2.11.0+cu130", cuda="13.0"), "torch211-cxx11-cpu-x86_64-linux"),
        (STABLE, toolchain(), "torch-stable-abi211-cpu-x86_64-linux"),
        (STABLE, CUDA_MACHINE, "torch-stable-abi211-cu130-x86_64-linux"),
        (STABLE, toolchain(system="aarch64-darwin"), "torch-stable-abi211-cpu-aarch64-darwin"),
        (PYTHON_ALONE, toolchain(torch=None, compiler=None), "torch-cpu"),
        (PYTHON_ALONE, CUDA_MACHINE, "torch-cuda"),
    ],
)
def test_the_variant_that_the_machine_loads_is_chosen(
    tmp_path: Path, text: str, machine: Toolchain, variant: str
) -> None:
    assert target.choose(load(tmp_path, text), machine).variant == variant


def test_a_variant_can_be_named(tmp_path: Path) -> None:
    kernel = load(tmp_path, BOTH)
    chosen = target.choose(kernel, CUDA_MACHINE, "torch211-cxx11-cpu-x86_64-linux")
    assert chosen == Target("torch211-cxx11-cpu-x86_64-linux", "cpu", is_compiled=True)
    assert target.choose(load(tmp_path, PYTHON_ALONE), toolchain(), "torch-rocm").backend == "rocm"


def test_a_backend_without_a_section_is_not_built_since_the_builder_fails(tmp_path: Path) -> None:
    kernel = load(tmp_path, edited(BUILD_TOML, ('backends = ["cpu"]', 'backends = ["cpu", "rocm"]')))
    with pytest.raises(WrongInput, match=r"build\.toml:6:1: cannot build torch-rocm: no \[kernel"):
        target.choose(kernel, toolchain(), "torch-rocm")
    before = builder_output.newest()._replace(without_component=True)
    assert target.choose(kernel, toolchain(), "torch-rocm", before) == Target(
        "torch-rocm", "rocm", is_compiled=False
    )


def test_a_name_that_is_none_here_says_which_are_and_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(WrongInput) as caught:
        target.choose(load(tmp_path, BOTH), CUDA_MACHINE, "torch210-cxx11-cu130-x86_64-linux")
    assert "torch211-cxx11-cpu-x86_64-linux, torch211-cxx11-cu130-x86_64-linux" in caught.value.what
    assert caught.value.repair == "did you mean torch211-cxx11-cu130-x86_64-linux?"


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        (toolchain(), "Torch 2.13.0+cpu is not a build for CUDA"),
        (toolchain(torch="2.11.0", cuda="13.0"), "nvcc is not installed"),
        (toolchain(torch="2.11.0", cuda="13.0", nvcc="12.8"), "and nvcc is of CUDA 12.8"),
        (toolchain(torch=None), "Torch is not installed for this Python"),
    ],
    ids=["no CUDA Torch", "no nvcc", "other nvcc", "no Torch"],
)
def test_what_is_missing_for_cuda_is_said(tmp_path: Path, machine: Toolchain, reason: str) -> None:
    name = "torch211-cxx11-cu130-x86_64-linux"
    with pytest.raises(WrongSurroundings, match=f"cannot build {name} here") as caught:
        target.choose(load(tmp_path, BOTH), machine, name)
    assert reason in caught.value.what


def test_without_torch_nothing_is_wrong_with_build_toml(tmp_path: Path) -> None:
    with pytest.raises(WrongSurroundings, match="Torch is not installed for this Python") as caught:
        target.choose(load(tmp_path, BOTH), toolchain(torch=None), "")
    assert caught.value.where is None
    assert caught.value.repair is not None and caught.value.repair.startswith("unset KA_PYTHON")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (('pyext = ["py", "json"]', 'minver = "2.14"'), 'Torch 2.13 is older than torch.minver = "2.14"'),
        (('pyext = ["py", "json"]', 'maxver = "2.12"'), 'Torch 2.13 is newer than torch.maxver = "2.12"'),
        (
            ('pyext = ["py", "json"]', 'stable-abi = "2.14"'),
            'Torch 2.13 is older than torch.stable-abi = "2.14"',
        ),
        (('backend = "cpu"', 'backend = "metal"'), "the local builder builds cpu and cuda, not metal"),
        (('pyext = ["py", "json"]', 'maxver = "2.13"'), ""),
    ],
)
def test_bounds_and_backends_of_build_toml_hold(tmp_path: Path, change: tuple[str, str], reason: str) -> None:
    text = edited(BUILD_TOML, change)
    if "metal" in text:
        text = edited(text, ('backends = ["cpu"]', 'backends = ["metal"]'))
    kernel = load(tmp_path, text)
    if not reason:
        assert target.choose(kernel, toolchain()).variant == "torch213-cxx11-cpu-x86_64-linux"
        return
    with pytest.raises(WrongSurroundings, match="can build no variant that it can load") as caught:
        target.choose(kernel, toolchain())
    assert reason in caught.value.what


def test_a_dependency_that_only_the_builder_has_is_named_with_its_line(tmp_path: Path) -> None:
    kernel = load(tmp_path, edited(BUILD_TOML, ('depends = ["torch"]', 'depends = ["torch", "cutlass_4_0"]')))
    with pytest.raises(WrongSurroundings, match="the local builder has no cutlass_4_0") as caught:
        target.check_dependencies(kernel, target.choose(kernel, toolchain()))
    assert str(caught.value.where).endswith("build.toml:14:1")


def test_what_is_compiled_for_other_backends_needs_the_builder(tmp_path: Path) -> None:
    text = edited(BOTH, ('backends = ["cpu", "cuda"]', 'backends = ["cpu", "rocm"]'))
    text = edited(text, ('"cuda"\n', '"rocm"\n'))
    with pytest.raises(WrongSurroundings, match="the local builder builds cpu and cuda, not rocm"):
        target.choose(load(tmp_path, text), toolchain(), "torch213-cxx11-rocm72-x86_64-linux")


def test_kernels_for_tvm_ffi_and_of_edition_3_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongSurroundings, match="tvm-ffi"):
        target.choose(load(tmp_path, edited(BUILD_TOML, ("[torch]", "[tvm-ffi]"))), toolchain())
    old = '[general]\nname = "tiny-scale"\n[torch]\nsrc = []\n'
    with pytest.raises(WrongInput, match="edition 3"):
        target.choose(load(tmp_path, old), toolchain())
