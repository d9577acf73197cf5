"""What build.toml comes to. Golden files: UPDATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kernel_actions import builder_output, manifest
from kernel_actions.builder_output import Output
from kernel_actions.errors import WrongInput, WrongSurroundings
from kernel_actions.local_builder import project, sources, target
from kernel_actions.local_builder.project import Project
from kernel_actions.local_builder.toolchain import Toolchain

from tests.golden import check_golden
from tests.local_builder.helpers import BUILD_TOML, edited, toolchain, write_kernel

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GOLDEN = Path(__file__).parent / "golden"
CPU = BUILD_TOML
CUDA = (
    edited(
        BUILD_TOML,
        ('backends = ["cpu"]', 'backends = ["cpu", "cuda"]\npython-depends = ["einops"]'),
        (
            'src = ["torch-ext/torch_binding.cpp"]',
            'src = ["torch-ext/torch_binding.cpp"]\ninclude = ["."]\ncxx-flags = ["-DSAY=\\"a; $b\\""]',
        ),
    )
    + """
[kernel.every]
backend = "cuda"
depends = ["torch"]
src = ["csrc/scale.h", "csrc/scale.cpp", "csrc/every.cu"]
cxx-flags = ["-DON_HOST"]
cuda-flags = ["--use_fast_math"]

[kernel.hopper]
backend = "cuda"
depends = ["torch"]
src = ["csrc/hopper.cu", "csrc/with space.cu"]
include = ["csrc/hopper"]
cuda-capabilities = ["9.0a"]

[kernel.future]
backend = "cuda"
depends = ["torch"]
src = ["csrc/future.cu"]
cuda-minver = "14.0"
"""
)
STABLE = edited(BUILD_TOML, ('pyext = ["py", "json"]', 'stable-abi = "2.11"'))
BUILDERS_OPS = "import torch\n\ndef add_op_namespace_prefix(op_name: str):\n    ...\n"
NOARCH = BUILD_TOML.partition("[torch]")[0] + '[torch-noarch]\npyext = ["py", "json"]\n'
CUDA_MACHINE = toolchain(torch="2.11.0+cu130", cuda="13.0", nvcc="13.0")


def generate(folder: Path, text: str, machine: Toolchain, output: Output | None = None) -> Project:
    write_kernel(folder, text)
    for name in ("every.cu", "hopper.cu", "with space.cu", "future.cu"):
        (folder / "csrc" / name).write_text("")
    (folder / "csrc" / "hopper").mkdir()
    kernel = manifest.load(folder)
    chosen = target.choose(kernel, machine)
    found = sources.read(kernel, chosen.backend)
    name = f"_tiny_scale_{chosen.backend}_0123abc"
    return project.generate(kernel, chosen, machine, name, found, output or builder_output.newest())


@pytest.mark.parametrize(
    ("name", "text", "machine"),
    [
        ("cpu", CPU, toolchain()),
        ("cuda", CUDA, CUDA_MACHINE),
        ("stable-abi", STABLE, toolchain(torch="2.11.0")),
        ("darwin", CPU, toolchain(system="aarch64-darwin", compiler="clang")),
        ("noarch", NOARCH, toolchain()),
    ],
)
def test_the_project_is_as_reviewed(tmp_path: Path, name: str, text: str, machine: Toolchain) -> None:
    made = generate(tmp_path, text, machine)
    # Files that are the same for every kernel are templates, and reviewed as such.
    for path, content in made.files.items():
        if path not in ("compatibility.cpp", "torch-ext/registration.h", "setup.py"):
            shown = content.replace(str(tmp_path.resolve()), "/kernel")
            check_golden(GOLDEN / name / path.replace("/", "."), shown)
    if name == "cuda":
        check_golden(GOLDEN / name / "setup.py", made.files["setup.py"])


@pytest.mark.parametrize(
    ("changes", "torch", "standard", "has_flag"),
    [
        ({}, "2.13.0", "20", True),
        ({}, "2.11.0", "17", True),
        ({"unique_symbols": True}, "2.12.0", "20", False),
        ({"cxx20_since": "0"}, "2.9.1", "20", True),
        ({"cxx20_since": ""}, "2.13.0", "17", True),
    ],
)
def test_flags_are_those_of_the_locked_builder(
    tmp_path: Path, changes: dict[str, Any], torch: str, standard: str, has_flag: bool
) -> None:
    output = builder_output.newest()._replace(**changes)
    text = generate(tmp_path, CPU, toolchain(torch=f"{torch}+cpu"), output).files["CMakeLists.txt"]
    assert f"CXX_STANDARD {standard}\n" in text
    assert ("-fno-gnu-unique" in text) is has_flag


def test_operators_of_noarch_are_named_at_import_since_the_builder_does(tmp_path: Path) -> None:
    name = "tiny_scale/_ops.py"
    old = builder_output.newest()._replace(noarch_backends=())
    text = generate(tmp_path / "a", NOARCH, toolchain(), old).files[name]
    assert "torch.ops._tiny_scale_cpu_0123abc\n" in text
    newer = old._replace(noarch_backends=("neuron", "cuda", "cpu"))
    text = generate(tmp_path / "b", NOARCH, toolchain(), newer).files[name]
    version = SimpleNamespace(cuda=None)
    for fake, backend in (
        (SimpleNamespace(neuron=1, version=version), "neuron"),
        (SimpleNamespace(version=SimpleNamespace(cuda="13.0")), "cuda"),
        (SimpleNamespace(version=version), "cpu"),
    ):
        fake.ops = SimpleNamespace(**{f"_tiny_scale_{backend}_0123abc": "the operators"})
        scope: dict[str, Any] = {"torch": fake}
        exec(text.replace("import torch\n", ""), scope)
        assert scope["ops"] == "the operators"
        assert scope["add_op_namespace_prefix"]("f") == f"_tiny_scale_{backend}_0123abc::f"


def test_capabilities_of_all_sections_are_told(tmp_path: Path) -> None:
    made = generate(tmp_path, CUDA, CUDA_MACHINE)
    assert set(made.capabilities) == {
        "7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "9.0a", "10.0", "11.0", "12.0", "12.1+PTX"
    }  # fmt: skip
    assert "csrc/future.cu" not in made.compiled


def test_a_section_that_nvcc_has_no_capability_for_is_an_error(tmp_path: Path) -> None:
    text = edited(CUDA, ('cuda-capabilities = ["9.0a"]', 'cuda-capabilities = ["6.0"]'))
    with pytest.raises(WrongSurroundings, match=r"compiles for none .*6\.0") as caught:
        generate(tmp_path, text, CUDA_MACHINE)
    line = text.splitlines().index('cuda-capabilities = ["6.0"]') + 1
    assert str(caught.value.where) == f"{tmp_path}/build.toml:{line}:1"


@pytest.mark.parametrize("key", ["torch.cxx-flags", "kernel.scale.cxx-flags"])
@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("$<1:-DX>", "has a generator expression"),
        ("-DX=\\\\", "ends with a backslash"),
        ("-DX=[", "has brackets without"),
    ],
)
def test_flags_that_cmake_would_change_are_refused(tmp_path: Path, key: str, flag: str, message: str) -> None:
    before = 'pyext = ["py", "json"]' if key.startswith("torch") else 'backend = "cpu"'
    with pytest.raises(WrongInput, match=message) as caught:
        generate(tmp_path, edited(CPU, (before, f'{before}\ncxx-flags = ["{flag}"]')), toolchain())
    assert f"build.toml:{11 if key.startswith('torch') else 14}:1: {key} has" in str(caught.value)


def test_strings_are_quoted_for_toml(tmp_path: Path) -> None:
    text = edited(CPU, ('pyext = ["py", "json"]', """pyext = ["py", 'a"] #', 'b\\c']"""))
    made = tomllib.loads(generate(tmp_path, text, toolchain()).files["pyproject.toml"])
    assert made["tool"]["setuptools"]["package-data"] == {"*": ['*.a"] #', "*.b\\c"]}


def test_only_sources_that_mention_the_name_are_compiled_with_it(tmp_path: Path) -> None:
    assert named(generate(tmp_path / "binding", CPU, toolchain())) == ["torch-ext/torch_binding.cpp"]
    folder = write_kernel(tmp_path / "header")
    (folder / "csrc" / "names.h").write_text("#define NAME TORCH_EXTENSION_NAME\n")
    # A header may be included anywhere.
    assert len(named(generate(folder, CPU, toolchain()))) == 3


def named(made: Project) -> list[str]:
    block = re.search(r"SOURCE([^()]*?)APPEND PROPERTY COMPILE_DEFINITIONS", made.files["CMakeLists.txt"])
    assert block is not None
    return re.findall(r"\$\{KERNEL_DIR\}/(\S+)", block.group(1))


def test_a_missing_source_is_named_with_its_line(kernel_dir: Path) -> None:
    (kernel_dir / "csrc" / "scale.cpp").unlink()
    with pytest.raises(WrongInput, match=r"csrc/scale\.cpp of kernel\.scale\.src does not exist") as caught:
        sources.read(manifest.load(kernel_dir), "cpu")
    assert str(caught.value.where) == f"{kernel_dir}/build.toml:17:3"


@pytest.mark.parametrize(
    ("path", "message"), [("__init__.py", "has no torch-ext"), ("tiny_scale", "must not hold tiny_scale")]
)
def test_the_package_has_the_builders_layout(kernel_dir: Path, path: str, message: str) -> None:
    place = kernel_dir / "torch-ext" / "tiny_scale" / path
    if place.exists():
        place.unlink()
    else:
        place.mkdir()
    with pytest.raises(WrongInput, match=message):
        sources.read(manifest.load(kernel_dir), "cpu")


def test_the_hash_is_of_names_and_contents(kernel_dir: Path) -> None:
    kernel = manifest.load(kernel_dir)

    def current() -> str:
        return sources.read(kernel, "cpu").hash

    first = current()
    (kernel_dir / "README.md").write_text("not a source")
    (kernel_dir / "torch-ext" / "tiny_scale" / "__pycache__").mkdir()
    (kernel_dir / "torch-ext" / "tiny_scale" / "__pycache__" / "x.pyc").write_text("")
    (kernel_dir / "torch-ext" / "tiny_scale" / "_ops.py").write_text(BUILDERS_OPS)
    assert current() == first
    (kernel_dir / "csrc" / "not-listed.h").write_text("")
    second = current()
    assert second != first
    (kernel_dir / "csrc" / "not-listed.h").rename(kernel_dir / "csrc" / "other.h")
    assert current() not in (first, second)
