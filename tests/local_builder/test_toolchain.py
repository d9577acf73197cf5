"""What this machine can build with, and how much of it at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from kernel_actions.errors import WrongInput, WrongSurroundings
from kernel_actions.local_builder import compilation, toolchain
from kernel_actions.local_builder.target import Target

from tests.local_builder.helpers import toolchain as machine
from tests.tools import needs

TARGET = Target("torch213-cxx11-cpu-x86_64-linux", "cpu", is_compiled=True)


@pytest.mark.parametrize(
    ("os_name", "cpu", "system"),
    [
        ("linux", "x86_64", "x86_64-linux"),
        ("linux", "aarch64", "aarch64-linux"),
        ("darwin", "arm64", "aarch64-darwin"),
    ],
)
def test_systems_have_the_builders_names(os_name: str, cpu: str, system: str) -> None:
    assert toolchain.system_name(os_name, cpu) == system


@pytest.mark.parametrize(("os_name", "cpu"), [("linux", "riscv64"), ("darwin", "x86_64"), ("win32", "AMD64")])
def test_other_systems_are_refused(os_name: str, cpu: str) -> None:
    with pytest.raises(WrongSurroundings, match="kernels are not built for"):
        toolchain.system_name(os_name, cpu)


def test_torch_is_looked_at_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "torch"
    (folder / "lib").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise AssertionError('imported')")
    (folder / "version.py").write_text(
        "from typing import Optional\n__version__ = '2.11.0+cu130'\ndebug = False\n"
        "cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n"
    )
    for name in ("libc10.so", "libtorch.so", "libtorch_cpu.so", "libtorch_cuda.so", "libtorch_python.so"):
        (folder / "lib" / name).touch()
    monkeypatch.setattr(toolchain, "_package_folder", lambda name: tmp_path / name)
    monkeypatch.setattr("sys.platform", "linux")
    assert toolchain.find_torch() == toolchain.Torch(
        version="2.11.0+cu130",
        folder=folder,
        libraries=("libc10.so", "libtorch_cpu.so", "libtorch.so", "libtorch_cuda.so"),
        cuda="13.0",
    )
    config = folder / "share" / "cmake" / "Torch" / "TorchConfig.cmake"
    config.parent.mkdir(parents=True)
    config.write_text('set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=0")')
    targets = folder / "share" / "cmake" / "Caffe2" / "Caffe2Targets.cmake"
    targets.parent.mkdir(parents=True)
    targets.write_text(
        '  INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_RPC"\n'
        '  INTERFACE_COMPILE_DEFINITIONS "\\$<TARGET_PROPERTY:torch_cpu,INTERFACE_COMPILE_DEFINITIONS>"\n'
    )
    found = toolchain.find_torch()
    assert found is not None
    assert not found.cxx11_abi
    assert found.definitions == ("USE_DISTRIBUTED", "USE_RPC")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"CXX": "no-such-compiler"}, "CXX is 'no-such-compiler', which cannot be run"),
        ({"CXX": '"'}, "CXX is '\"', which is not a command: No closing quotation"),
        ({"CXX": "sh -m64"}, "which is more than a compiler"),
        ({"CUDACXX": "/no/nvcc"}, "CUDACXX is '/no/nvcc', which cannot be run"),
    ],
)
def test_variables_that_name_no_program_are_an_error(variables: dict[str, str], message: str) -> None:
    with pytest.raises(WrongInput, match=message):
        toolchain.detect(variables)


def test_a_compiler_cache_is_not_the_compiler(tmp_path: Path) -> None:
    compiler = tmp_path / "my-c++"
    compiler.write_text("#!/bin/sh\necho 'my-c++ (Distribution 9.9.9-1) 12.2.0'\n")
    compiler.chmod(0o755)
    found = toolchain.detect({"CXX": f"ccache {compiler}"}).compiler
    assert found == toolchain.Compiler(compiler, "gcc", "12.2.0", launcher="ccache")


@needs("Linux")
@pytest.mark.parametrize(("answer", "expected"), [("libstdc++.so", False), ("/usr/lib/libstdc++.so", True)])
def test_a_compiler_without_a_shared_library_is_noticed(tmp_path: Path, answer: str, expected: bool) -> None:
    compiler = tmp_path / "my-c++"
    compiler.write_text(f"#!/bin/sh\necho '{answer}'\n")
    compiler.chmod(0o755)
    found = toolchain.detect({"CXX": str(compiler)}).compiler
    assert found is not None
    assert found.has_shared_library is expected


def test_capabilities_can_be_asked_for() -> None:
    assert toolchain._wanted_capabilities({"TORCH_CUDA_ARCH_LIST": "8.0;9.0a 12.0+PTX"}) == (
        "8.0", "9.0a", "12.0+PTX"
    )  # fmt: skip
    for wrong in ("Hopper", "٩.٠"):
        with pytest.raises(WrongInput, match=f"TORCH_CUDA_ARCH_LIST has '{wrong}'"):
            toolchain._wanted_capabilities({"TORCH_CUDA_ARCH_LIST": wrong})


def test_what_is_missing_is_said_before_anything_is_compiled(tmp_path: Path) -> None:
    with pytest.raises(WrongSurroundings, match=r"no C\+\+ compiler is installed"):
        compilation.check_toolchain(TARGET, machine(compiler=None))
    static = toolchain.Compiler(Path("/usr/bin/g++"), "gcc", "13.3.0", has_shared_library=False)
    with pytest.raises(WrongSurroundings, match=r"g\+\+ finds no shared libstdc\+\+"):
        compilation.check_toolchain(TARGET, replace(machine(), compiler=static))
    with pytest.raises(WrongSurroundings, match=r"Python's headers are not installed"):
        compilation.check_toolchain(TARGET, replace(machine(), python_include=tmp_path))


@pytest.mark.parametrize(
    ("cores", "gigabytes", "has_cuda", "jobs"),
    [(16, 64, False, 16), (16, 6, False, 4), (16, 1, False, 1), (16, 64, True, 12), (2, 4, True, 1)],
)
def test_cores_and_memory_limit_the_jobs(
    monkeypatch: pytest.MonkeyPatch, cores: int, gigabytes: int, has_cuda: bool, jobs: int
) -> None:
    monkeypatch.setattr(compilation, "_cores", lambda: cores)
    monkeypatch.setattr(compilation, "_memory", lambda: gigabytes * 10**9)
    assert compilation.job_count({}, has_cuda) == jobs
    assert compilation.job_count({"MAX_JOBS": "3"}, has_cuda) == 3


@pytest.mark.parametrize("value", ["0", "many", "-1", "²", "9" * 5000])
def test_max_jobs_is_a_number(value: str) -> None:
    with pytest.raises(WrongInput, match="MAX_JOBS"):
        compilation.job_count({"MAX_JOBS": value}, has_cuda=False)
