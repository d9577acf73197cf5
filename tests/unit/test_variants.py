"""The planner gives the builder's own answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from kernel_actions import builder, manifest, nix_version, variants
from kernel_actions.builder import Rules
from kernel_actions.errors import KernelActionsError, Place, WrongInput
from kernel_actions.variants import Override

from tests.unit.kernels import CUDA, EDITION_3

ORACLE = Path(__file__).parent / "oracle"
EXPECTED = json.loads((ORACLE / "expected.json").read_text())


@pytest.mark.parametrize("case", sorted(EXPECTED["cases"]))
def test_answer_is_that_of_the_builder(case: str) -> None:
    expected = EXPECTED["cases"][case]
    revision = builder.revision(EXPECTED["builder_rev"])
    if expected.get("error"):
        with pytest.raises(KernelActionsError) as error:
            variants.plan(manifest.load(ORACLE / "cases" / case), revision)
        assert error.value.exit_code == 2
        return
    plan = variants.plan(manifest.load(ORACLE / "cases" / case), revision)
    for system, answer in expected["systems"].items():
        found = [variant for variant in plan.variants if variant.system == system]
        assert sorted(one.name for one in found) == sorted(answer["redistributable"])
        assert sorted(one.name for one in found if one.bundled) == sorted(answer["bundle"])
        arch_names = [name for one in found for name in one.arch_names]
        assert sorted(arch_names) == sorted(answer["arch_variants"])
        chosen = {one.backend: one.name for one in found if one.chosen_for_ci}
        assert {backend: chosen.get(backend) for backend in answer["ci"]} == answer["ci"]
        assert set(chosen) <= set(answer["ci"])


def test_every_revision_of_the_data_can_be_planned_for(kernel_dir: Callable[..., Path]) -> None:
    lines = (builder.DATA / "revisions.txt").read_text().splitlines()
    new = manifest.load(kernel_dir(CUDA))
    counts: dict[tuple[str, ...], int] = {}
    for line in lines:
        commit, *rest = line.split(" ")
        revision = builder.revision(commit)
        if not revision.rules.requires_backends:
            continue
        key = tuple(rest[:2])
        if key not in counts:
            counts[key] = len(variants.plan(new, revision).variants)
            assert counts[key] > 0, line
    assert len(counts) > 10


def test_edition_3_is_planned_by_the_rules_of_its_builder(kernel_dir: Callable[..., Path]) -> None:
    old = builder.revision("594618e9e175bd733ad91cb3010cf587e1b68306")
    bounded = EDITION_3.replace("universal = false", 'universal = false\ncuda-minver = "12.8"')
    plan = variants.plan(manifest.load(kernel_dir(bounded)), old)
    assert {one.compute for one in plan.variants} <= {"cu128", "cu129", "cu130"}
    assert {one.backend for one in plan.variants} == {"cuda"}
    assert {one.reason for one in plan.left_out} == {'CUDA 12.6 is below general.cuda-minver = "12.8"'}


def test_universal_kernel_of_edition_3_is_one_variant(kernel_dir: Callable[..., Path]) -> None:
    old = builder.revision("594618e9e175bd733ad91cb3010cf587e1b68306")
    text = '[general]\nname = "edge"\nuniversal = true\n\n[torch]\n'
    plan = variants.plan(manifest.load(kernel_dir(text)), old)
    assert {one.name for one in plan.variants} == {"torch-universal"}
    assert len(variants.build_once(plan.variants)) == 1


def test_edition_that_the_builder_refuses_is_an_error(kernel_dir: Callable[..., Path]) -> None:
    new = builder.revision(EXPECTED["builder_rev"])
    with pytest.raises(WrongInput, match="kernel-builder update-build"):
        variants.plan(manifest.load(kernel_dir(EDITION_3)), new)
    old = builder.revision("594618e9e175bd733ad91cb3010cf587e1b68306")
    with pytest.raises(WrongInput, match="nix flake update"):
        variants.plan(manifest.load(kernel_dir(CUDA)), old)


def test_noarch_variant_shared_by_systems_is_built_once_on_x86_64() -> None:
    plan = variants.plan(
        manifest.load(ORACLE / "cases" / "noarch-no-kernel"), builder.revision(EXPECTED["builder_rev"])
    )
    merged = {one.name: one for one in variants.build_once(plan.variants)}
    assert merged["torch-cpu"].system == "x86_64-linux"
    assert merged["torch-metal"].system == "aarch64-darwin"
    assert len([one for one in plan.variants if one.name == "torch-cpu"]) == 3


def _rules(**changes: object) -> Rules:
    newest = builder.revision(EXPECTED["builder_rev"]).rules
    return newest._replace(**changes)


def _plan(text: str, folder: Callable[..., Path], rules: Rules) -> set[str]:
    sets = tuple(
        {"torchVersion": torch, "cudaVersion": cuda, "systems": ["x86_64-linux"], "bundleBuild": True}
        for torch in ("2.12", "2.13")
        for cuda in ("12.6", "13.0")
    )
    made = builder.build_sets(sets)
    revision = builder.BuilderRevision("huggingface/kernels", "0" * 40, "versions.nix", sets, made, rules)
    return {one.name for one in variants.plan(manifest.load(folder(text)), revision).variants}


def test_rule_torch_bounds(kernel_dir: Callable[..., Path]) -> None:
    text = CUDA.replace("[torch]\n", '[torch]\nminver = "2.13"\n')
    assert len(_plan(text, kernel_dir, _rules())) == 2
    assert len(_plan(text, kernel_dir, _rules(torch_bounds=False))) == 4


def test_rule_stable_abi(kernel_dir: Callable[..., Path]) -> None:
    text = CUDA.replace("[torch]\n", '[torch]\nstable-abi = "2.11"\n')
    assert _plan(text, kernel_dir, _rules()) == {
        "torch-stable-abi211-cu126-x86_64-linux",
        "torch-stable-abi211-cu130-x86_64-linux",
    }
    assert len(_plan(text, kernel_dir, _rules(stable_abi=None))) == 4


def test_rule_stable_abi_by_backend(kernel_dir: Callable[..., Path]) -> None:
    text = CUDA.replace("[torch]\n", '[torch]\nstable-abi = { cuda = "2.11" }\n')
    assert len(_plan(text, kernel_dir, _rules())) == 2
    with pytest.raises(
        WrongInput, match=r"build.toml:12:1: torch.stable-abi is by backend, which the locked"
    ):
        _plan(text, kernel_dir, _rules(stable_abi="string"))
    other = CUDA.replace("[torch]\n", '[torch]\nstable-abi = { cpu = "2.11" }\n')
    assert len(_plan(other, kernel_dir, _rules())) == 4


def test_rule_universal_noarch_and_edition_3(kernel_dir: Callable[..., Path]) -> None:
    old = _rules(universal_noarch=True, requires_backends=False, old_cuda_bounds=True)
    universal = EDITION_3.replace("universal = false", "universal = true")
    assert _plan(universal, kernel_dir, old) == {"torch-universal"}
    bounded = EDITION_3.replace("universal = false", 'cuda-minver = "13.0"')
    assert _plan(bounded, kernel_dir, old) == {
        "torch212-cxx11-cu130-x86_64-linux",
        "torch213-cxx11-cu130-x86_64-linux",
    }


def test_flake_nix_changes_the_list_and_is_named_for_it(kernel_dir: Callable[..., Path]) -> None:
    kernel = manifest.load(kernel_dir(CUDA))
    revision = builder.revision(EXPECTED["builder_rev"])
    where = Place(Path("flake.nix"), 9, 3)
    kept = tuple(
        one._replace(systems=("x86_64-linux", "riscv64-linux"))
        for one in revision.build_sets
        if one.torch == "2.13"
    )
    plan = variants.plan(kernel, revision, Override(kept, where))
    assert {(one.torch, one.system) for one in plan.variants} == {("2.13", "x86_64-linux")}
    removed = {one.name: one for one in plan.left_out}
    assert str(removed["torch212-cxx11-cu130-x86_64-linux"]) == (
        "torchVersions of flake.nix leaves it out (flake.nix:9:3)"
    )
    assert "torch213-cxx11-cu130-aarch64-linux" in removed
    assert not any("rocm" in name for name in removed)


def test_reasons_say_where(kernel_dir: Callable[..., Path]) -> None:
    folder = kernel_dir(CUDA.replace("[torch]\n", '[torch]\nmaxver = "2.12"\n'))
    plan = variants.plan(manifest.load(folder), builder.revision(EXPECTED["builder_rev"]))
    (reason,) = {str(one) for one in plan.left_out if one.name.startswith("torch213")}
    assert reason == f'Torch 2.13 is above torch.maxver = "2.12" ({folder}/build.toml:12:1)'


def test_rule_tvm_ffi(kernel_dir: Callable[..., Path]) -> None:
    text = CUDA.replace("[torch]\n", "[tvm-ffi]\n")
    assert _plan(text, kernel_dir, _rules()) == set()


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("2.12", "2.12.0", -1),
        ("13", "13.0", -1),
        ("2.13rc1", "2.13", 1),
        ("2.13pre1", "2.13", -1),
        ("2.9", "2.12", -1),
        ("2.12", "2.12", 0),
        ("2.a", "2.1", -1),
        ("2.a", "2.b", -1),
        ("2.3-1", "2.3.1", 0),
        ("", "1", -1),
        ("pre", "", -1),
        ("007", "7", 0),
        ("9" * 5000, "1" + "0" * 5000, -1),
        ("0" * 5000 + "7", "7", 0),
        ("²", "1", -1),
    ],
)
def test_versions_compare_as_in_nix(left: str, right: str, expected: int) -> None:
    assert nix_version.compare(left, right) == expected
    assert nix_version.compare(right, left) == -expected


def test_the_example_is_planned_as_the_builder_itself_answers() -> None:
    # The answer of the builder's own Nix code at the locked revision, evaluated for this kernel.
    answers = json.loads((Path(__file__).parent / "golden" / "builder-answer.json").read_text())
    root = Path(__file__).parents[2]
    plan = variants.plan(manifest.load(root), builder.locked(root))
    for system, answer in answers.items():
        found = [variant for variant in plan.variants if variant.system == system]
        assert sorted(one.name for one in found) == sorted(answer["redistributable"])
        assert sorted(one.name for one in found if one.bundled) == sorted(answer["bundle"])
    assert sum(len(answer["bundle"]) for answer in answers.values()) == 18


@pytest.mark.parametrize(
    ("version", "name"),
    [("13.0", "130"), ("13", "130"), ("7.1.2", "71"), ("2.13rc1", "213"), ("2.12-pre1", "212"), ("2", "20")],
)
def test_versions_in_names_are_as_in_nix(version: str, name: str) -> None:
    assert nix_version.flat(version) == name
