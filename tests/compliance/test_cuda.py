"""The code for GPUs inside extensions, on real fat binaries of nvcc."""

from __future__ import annotations

import json
import random
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from kernel_actions.compliance import cuda_code, elf

from tests.compliance import fatbins
from tests.compliance.cases import built_with, signed
from tests.compliance.fatbins import LIBRARIES
from tests.compliance.helpers import ID, MACHINE, check, edit, said, sign, write
from tests.tools import needs

NAME = f"torch213-cxx11-cu130-{MACHINE}-linux"


class Case(NamedTuple):
    """A library, the capabilities that metadata.json declares, and those that build.toml asks for; the
    source, and another section of build.toml."""

    library: str
    archs: list[str] | None = None
    capabilities: list[str] | None = None
    source: str = "csrc/scale.cu"
    section: str = ""


# A section with capabilities of its own, and nothing for nvcc.
HOST = """
[kernel.host]
backend = "cuda"
src = ["csrc/host.cpp"]
cuda-capabilities = ["12.0"]
depends = []
"""


BREAKS: dict[str, list[tuple[Case, str]]] = {
    "binary-cuda-archs": [
        (
            Case("mixed", ["8.0", "9.0a", "10.0f", "9.0+PTX"]),
            "holds no sm_90, which metadata.json declares",
        ),
        (Case("mixed", ["8.0", "9.0a"]), "holds sm_100f, which metadata.json does not declare"),
        (Case("mixed", ["8.0", "9.0a", "10.0f", "12.0"]), "holds no sm_120, which metadata.json declares"),
        (Case("none", ["8.0"]), "holds no sm_80, which metadata.json declares"),
        (
            Case("mixed", ["8.0", "8.9", "9.0a", "10.0f", "12.0"], section=HOST),
            "holds no sm_89, which metadata.json declares",
        ),
    ],
    "binary-cuda-required": [
        # The PTX of 9.0 serves all that is newer.
        (Case("mixed"), "runs on no GPU of compute capability 7.5"),
        (Case("wide", None, ["7.0"]), "runs on no GPU of compute capability 7.0"),
    ],
}
KEEPS: dict[str, list[Case]] = {
    "binary-cuda-archs": [
        Case("mixed", ["8.0", "9.0a", "10.0f"]),
        Case("wide", ["7.5+PTX", "12.1"]),
        Case("mixed"),
        # The builder declares capabilities where there is nothing to compile for them, too.
        Case("none", ["7.5", "8.0", "12.1+PTX"], source="csrc/scale.cpp"),
        Case("mixed", ["8.0", "9.0a", "10.0f", "12.0"], section=HOST),
    ],
    "binary-cuda-required": [
        Case("mixed", None, ["8.0", "9.0a"], section=HOST),
        Case("wide"),
        Case("ptx"),
        Case("none"),
        Case("mixed", None, ["8.0", "9.0a"]),
    ],
}
pytestmark = [
    pytest.mark.integration,
    needs("nvcc"),
]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Extensions with code for GPUs."""
    folder = tmp_path_factory.mktemp("cuda")
    made = fatbins.make(folder)
    made["stripped"] = folder / "stripped.so"
    subprocess.run(["strip", "-o", made["stripped"], made["mixed"]], check=True)
    # As a build with separate compilation has it.
    made["separate"] = folder / "separate.so"
    subprocess.run(
        ["nvcc", "--shared", "-rdc=true", "-Xcompiler", "-fPIC", "-cudart", "none", "-o", made["separate"],
         "source.cu", "-gencode=arch=compute_80,code=sm_80"],
        cwd=folder, check=True,
    )  # fmt: skip
    subprocess.run(
        ["g++", "-shared", "-fPIC", "-o", folder / "none.so", "-x", "c++", "-"],
        input=f'extern "C" void* PyInit_{ID}() {{ return 0; }}', text=True, check=True,
    )  # fmt: skip
    made["none"] = folder / "none.so"
    return made


@pytest.fixture
def cuda(kernel: Path) -> Path:
    """A kernel with a section for CUDA."""
    edit(kernel / "build.toml", 'backends = ["cpu"]', 'backends = ["cuda"]')
    edit(kernel / "build.toml", 'backend = "cpu"', 'backend = "cuda"')
    return kernel


def _codes(path: Path) -> list[str]:
    return [str(code) for code in cuda_code.read(elf.read_header(path))]


def _build(kernel: Path, compiled: dict[str, Path], case: Case) -> None:
    built_with(case.library, NAME)(kernel, compiled)
    backend: dict[str, object] = {"type": "cuda"}
    sign(kernel / "build" / NAME, backend=backend | ({"archs": case.archs} if case.archs is not None else {}))
    if case.capabilities:
        wanted = f'backend = "cuda"\ncuda-capabilities = {json.dumps(case.capabilities)}'
        edit(kernel / "build.toml", 'backend = "cuda"', wanted)
    write(kernel / case.source, "")
    edit(kernel / "build.toml", "csrc/scale.cpp", case.source)
    if case.section:
        write(kernel / "csrc/host.cpp", "")
        write(kernel / "build.toml", (kernel / "build.toml").read_text() + case.section)


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_code_is_what_cuobjdump_lists(name: str, compiled: dict[str, Path]) -> None:
    assert _codes(compiled[name]) == LIBRARIES[name][1]


def test_stripped_and_separately_compiled_libraries(compiled: dict[str, Path]) -> None:
    assert _codes(compiled["stripped"]) == LIBRARIES["mixed"][1]
    assert _codes(compiled["separate"]) == ["sm_80"]
    assert _codes(compiled["none"]) == []


@pytest.mark.parametrize(
    ("slug", "case", "expected"),
    [(slug, case, message) for slug, cases in BREAKS.items() for case, message in cases],
)
def test_broken(slug: str, case: Case, expected: str, cuda: Path, compiled: dict[str, Path]) -> None:
    _build(cuda, compiled, case)
    assert said(check(cuda), slug) == [f"{ID}.abi3.so:: {expected}"]


@pytest.mark.parametrize(("slug", "case"), [(slug, case) for slug, cases in KEEPS.items() for case in cases])
def test_kept(slug: str, case: Case, cuda: Path, compiled: dict[str, Path]) -> None:
    _build(cuda, compiled, case)
    assert said(check(cuda), slug) == []


def test_a_library_for_the_cpu_declares_nothing(kernel: Path, compiled: dict[str, Path]) -> None:
    built_with("none")(kernel, compiled)
    signed(backend={"type": "cpu"})(kernel, compiled)
    assert said(check(kernel), "binary-cuda-archs") == []


def test_damaged_fat_binaries_never_raise_and_end_soon(compiled: dict[str, Path], tmp_path: Path) -> None:
    whole = compiled["mixed"].read_bytes()
    section = next(one for one in elf.read_header(compiled["mixed"]).sections if one.name == ".nv_fatbin")
    chance = random.Random(3)
    started = time.monotonic()
    path = tmp_path / "damaged.so"
    for number in range(300):
        data = bytearray(whole)
        for _ in range(4):
            at = section.offset + chance.choice([chance.randrange(80), chance.randrange(section.size)])
            data[at] = chance.choice([0, 255, chance.randrange(256)])
        if number % 5 == 0:
            del data[section.offset + chance.randrange(section.size) :]
        path.write_bytes(data)
        cuda_code.read(elf.Header(path, "x86_64", (section,), (), (), False))
    assert time.monotonic() - started < 10


def test_two_gigabytes_of_nothing(tmp_path: Path, compiled: dict[str, Path]) -> None:
    path = tmp_path / "sparse.so"
    path.write_bytes(compiled["mixed"].read_bytes())
    with path.open("r+b") as file:
        file.truncate(2_000_000_000)
    real = next(one for one in elf.read_header(path).sections if one.name == ".nv_fatbin")
    section = elf.Section(real.name, real.kind, real.offset, 1 << 62, 0)
    started = time.monotonic()
    found = cuda_code.read(elf.Header(path, "x86_64", (section,), (), (), False))
    assert [str(code) for code in found] == LIBRARIES["mixed"][1]
    assert time.monotonic() - started < 5
