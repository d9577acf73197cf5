"""The packages that tests take: no name of the builder goes to an index as it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from kernel_actions import manifest
from kernel_actions.app import installers, venv
from kernel_actions.errors import WrongInput
from kernel_actions.kernel import python_packages
from kernel_actions.test import packages

from tests.test_command.helpers import BUILD

FLAKE = "{{\n  outputs = x: x.genKernelFlakeOutputs {{\n    inherit self;\n{inputs}  }};\n}}\n"


def needed(tmp_path: Path, inputs: str = "", depends: str = "", further: tuple[str, ...] = ()) -> list[str]:
    build = BUILD.replace("[general]", f"[general]\npython-depends = [{depends}]", 1) if depends else BUILD
    (tmp_path / "build.toml").write_text(build)
    (tmp_path / "flake.nix").write_text(FLAKE.format(inputs=inputs))
    return [one.name for one in packages.needed(manifest.load(tmp_path), "cpu", further)]


@pytest.mark.parametrize(
    ("inputs", "names"),
    [
        # As the public kernels write it (huggingface/kernels-community at 40d4194f).
        ("pythonCheckInputs = pkgs: with pkgs; [ einops ];", ["einops"]),
        ("pythonCheckInputs = ps: [ ps.einops ];", ["einops"]),
        (
            "pythonCheckInputs =\n  ps: with ps; [\n    einops\n    huggingface-hub\n    transformers\n  ];",
            ["einops", "huggingface_hub", "transformers"],
        ),
        (
            "pythonCheckInputs =\n  pkgs: with pkgs; [\n  tqdm\n  py-cpuinfo # why\n  importlib-metadata\n"
            "  torchmetrics ];",
            ["tqdm", "py-cpuinfo", "importlib_metadata", "torchmetrics"],
        ),
        ("# pythonCheckInputs = pkgs: with pkgs; [ einops ];", []),
        ("/* pythonCheckInputs = [ x ]; */", []),
        ("pythonCheckInputs = ps: [ ];", []),
    ],
)
def test_the_builders_inputs_are_those_of_the_tests(tmp_path: Path, inputs: str, names: list[str]) -> None:
    assert needed(tmp_path, inputs) == names


@pytest.mark.parametrize(
    "inputs",
    [
        "pythonCheckInputs = import ./inputs.nix;",
        "pythonCheckInputs = ps: (f ps) ++ [ ps.einops ];",
        "inherit pythonCheckInputs;",
        'pythonCheckInputs = ps: [ ps."einops" ];',
    ],
)
def test_what_cannot_be_read_without_nix_is_said(tmp_path: Path, inputs: str) -> None:
    with pytest.raises(WrongInput, match="is no plain list") as caught:
        needed(tmp_path, inputs)
    assert str(caught.value).startswith(f"{tmp_path}/flake.nix:4: ")


def test_a_name_that_nobody_knows_goes_nowhere(tmp_path: Path) -> None:
    with pytest.raises(
        WrongInput, match=r"flake\.nix:4: not-a-package: its package on the index is not known"
    ):
        needed(tmp_path, "pythonCheckInputs = ps: [ ps.not-a-package ];")
    # Unless its owner says which it is.
    inputs = "pythonCheckInputs = ps: [ ps.not-a-package ps.einops ];"
    assert needed(tmp_path, inputs, further=("not_a.package[x]>=1",)) == ["einops"]
    assert needed(tmp_path, inputs, further=("not-a-package", "einops==0.7")) == []


@pytest.mark.parametrize(("name", "package"), [("tvm-ffi", "apache-tvm-ffi"), ("einops", "einops")])
def test_a_name_of_the_builder_is_not_one_of_the_index(tmp_path: Path, name: str, package: str) -> None:
    assert needed(tmp_path, depends=f'"{name}"') == [package]


def test_what_is_taken_by_name_is_locked() -> None:
    lock = (venv.REQUIREMENTS / "tests.txt").read_text()
    locked = {packages._normal(name) for name in re.findall(r"^([\w.-]+)==", lock, re.MULTILINE)}
    known = {
        packages._normal(entry.name)
        for kind in get_args(python_packages.Kind)
        for entry in python_packages.table(kind).values()
    }
    # Torch and transformers decide about these; the others are for hardware that no lock was made for.
    follows = {"huggingface-hub", "numpy", "packaging", "sympy", "typing-extensions"}
    assert known - locked == follows | {"jax", "libtpu", "nki", "torch-tpu"}
    bare = installers._without_hashes(lock).splitlines()
    assert len(bare) == len(re.findall(r"^[\w.-]+==", lock, re.MULTILINE))
    assert all(re.fullmatch(r"[\w.-]+==\S+( ; .*)?", line) for line in bare)
