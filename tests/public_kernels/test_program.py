"""The command that takes a checkout of kernels through the suite: what it runs, keeps and prints."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_actions.errors import WrongInput
from public_kernels import page, stages, workplace
from public_kernels.results import KernelOutcomes, Machine, Outcome, Revision, Run
from public_kernels.stages import Target

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "scripts" / "public_kernels"
MACHINE = Machine("a laptop", "x86_64-linux", 2, "", "3.11.7", "2.13.0+cpu", "", "0.17.2")


def run_of(*kernels: KernelOutcomes, machine: Machine = MACHINE) -> Run:
    revision = Revision("huggingface/kernels-community", "4" * 40)
    suite = Revision("kernel-actions", "5" * 40, dirty=True)
    return Run("2026-12-01", machine, revision, suite, None, {one.name: one for one in kernels})


RELU = KernelOutcomes(
    "relu",
    "18c4d686" * 5,
    {"plan": Outcome("passed", "26 variants"), "test": Outcome("failed", "1 failed", "a | b: <no>")},
)


@pytest.mark.parametrize(
    ("names", "backends", "gpu", "expected"),
    [
        (["torch213-cxx11-cpu-x86_64-linux"], ["cpu", "cuda"], False, Target("", "cpu", True)),
        (["torch213-cxx11-cu130-x86_64-linux"], ["cpu", "cuda"], True, Target("", "cuda", True)),
        (["torch213-cxx11-cu130-x86_64-linux"], ["cuda"], False, None),
        (["torch-cuda", "torch-rocm"], ["cuda", "rocm"], False, Target("torch-cuda", "cuda", False)),
        (["torch-cuda", "torch-rocm"], ["cuda", "rocm"], True, Target("torch-cuda", "cuda", True)),
        (["torch213-metal-aarch64-darwin"], ["metal"], True, None),
    ],
)
def test_a_machine_builds_what_it_can_load_first(
    names: list[str], backends: list[str], gpu: bool, expected: Target | None
) -> None:
    assert stages.target(names, backends, gpu) == expected


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    run = dataclasses.replace(run_of(RELU), builder=Revision("huggingface/kernels", "6" * 40))
    run.write(tmp_path / "results.json")
    assert Run.read(tmp_path / "results.json") == run


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 2}'])
def test_a_file_without_results_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(WrongInput, match=r"results\.json.*does not hold the outcomes"):
        Run.read(tmp_path / "results.json")


def test_an_unknown_verdict_is_not_taken(tmp_path: Path) -> None:
    run_of(RELU).write(tmp_path / "results.json")
    text = (tmp_path / "results.json").read_text().replace('"failed"', '"fine"')
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(WrongInput, match="fine"):
        Run.read(tmp_path / "results.json")


def test_the_table_counts_what_was_tried() -> None:
    rotary = RELU.with_stage("test", Outcome("elsewhere", "needs cuda"))
    text = page.as_table(run_of(RELU, dataclasses.replace(rotary, name="rotary")))
    header, _, *rows, total = text.splitlines()
    assert header.split() == ["kernel", "builder", "plan", "test"]
    assert [row.split()[0] for row in rows] == ["relu", "rotary"]
    assert total.split() == ["total", "2", "of", "2", "0", "of", "1"]


def test_a_page_gets_a_table_for_each_machine(tmp_path: Path) -> None:
    gpu = dataclasses.replace(MACHINE, label="an H200", gpu="NVIDIA H200", cuda="13.0")
    path = tmp_path / "page.md"
    path.write_text("before\n<!-- public-kernels -->\nold\n<!-- /public-kernels -->\nafter\n")
    page.write(path, [run_of(RELU), run_of(RELU, machine=gpu)])
    text = path.read_text()
    assert text.startswith("before\n<!-- public-kernels -->\n") and text.endswith(
        "<!-- /public-kernels -->\nafter\n"
    )
    assert "old" not in text and "## a laptop" in text and "## an H200" in text
    assert "kernels-community at 44444444" in text and "with uncommitted changes" in text
    # What a kernel says cannot break the table.
    assert r"a \| b: &lt;no&gt;" in text
    page.write(path, [run_of(RELU), run_of(RELU, machine=gpu)])
    assert path.read_text() == text


def test_runs_on_one_machine_are_one_table(tmp_path: Path) -> None:
    rotary = dataclasses.replace(RELU, name="rotary", stages={"plan": Outcome("passed", "24 variants")})
    newer = RELU.with_stage("test", Outcome("passed", "2 passed"))
    (united,) = page.united([run_of(RELU), run_of(rotary, newer)])
    assert list(united.kernels) == ["relu", "rotary"]
    assert united.kernels["relu"].stages["test"].verdict == "passed"
    gpu = dataclasses.replace(MACHINE, gpu="NVIDIA H200")
    assert len(page.united([run_of(RELU), run_of(RELU, machine=gpu)])) == 2


def test_what_a_machine_lacks_is_not_a_failure_of_the_kernel() -> None:
    finished = workplace.Finished(3, "", "kernel-actions: the local builder has no cutlass_4_0\n", 1.0)
    outcome = stages.unsuccessful(finished)
    assert outcome.verdict == "elsewhere" and "cutlass_4_0" in outcome.detail
    assert stages.unsuccessful(dataclasses.replace(finished, code=1)).verdict == "failed"
    assert stages.unsuccessful(dataclasses.replace(finished, code=None)).verdict == "time limit"


def test_a_page_without_a_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match="no place"):
        page.write(tmp_path / "page.md", [run_of(RELU)])


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one kernel of Python alone, and one whose build.toml is wrong."""
    root = tmp_path_factory.mktemp("checkout")
    for name, text in (("good", '[general]\nname = "good"\n'), ("wrong", "[general]\n")):
        (root / name / "torch-ext" / name).mkdir(parents=True)
        (root / name / "build.toml").write_text(
            text + 'version = 1\nedition = 5\nlicense = "Apache-2.0"\nbackends = ["cpu"]\n'
            '[general.hub]\nrepo-id = "acme/good"\n[torch-noarch]\n'
        )
        (root / name / "torch-ext" / name / "__init__.py").write_text(
            "__all__ = ['one']\n\n\ndef one():\n    return 1\n"
        )
        for flake in ("flake.lock", "flake.nix"):
            (root / name / flake).write_bytes((ROOT / flake).read_bytes())
    for command in (
        ["init", "--quiet"],
        ["add", "--all"],
        ["-c", "user.name=Test", "-c", "user.email=a@example.org", "commit", "--quiet", "-m", "feat: one"],
    ):
        subprocess.run(["git", *command], cwd=root, check=True)
    return root


def program(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(PROGRAM), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_it_goes_on_where_it_was_ended(checkout: Path, tmp_path: Path) -> None:
    given = (checkout, "--work", tmp_path, "--stages", "plan,compliance", "--only", "good")
    first = program(*given)
    assert first.returncode == 0, first.stderr
    assert "good plan: passed, 1 variant" in first.stderr and "good" in first.stdout
    results = json.loads((tmp_path / "results.json").read_bytes())
    again = program(*given, "--format", "json")
    # The outcomes are the same ones, to the tenth of a second that they took.
    assert json.loads(again.stdout)["kernels"] == results["kernels"]
    more = program(checkout, "--work", tmp_path, "--stages", "plan,test", "--only", "good")
    assert "good test: absent, no tests" in more.stderr
    kept = json.loads((tmp_path / "results.json").read_bytes())["kernels"]["good"]["stages"]
    assert set(kept) == {"plan", "compliance", "test"}
    assert kept["compliance"] == results["kernels"]["good"]["stages"]["compliance"]


def test_a_kernel_that_cannot_be_planned_is_a_row(checkout: Path, tmp_path: Path) -> None:
    finished = program(checkout, "--work", tmp_path, "--stages", "plan,build")
    assert finished.returncode == 1, finished.stderr
    stages_of = json.loads((tmp_path / "results.json").read_bytes())["kernels"]["wrong"]["stages"]
    assert stages_of["plan"]["verdict"] == "failed" and "build.toml" in stages_of["plan"]["detail"]
    assert stages_of["build"]["summary"] == "plan did not pass"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "DIR=<folder>"),
        (["x", "--stages", "plan,bild"], "'bild' is not a stage"),
        (["x", "--limit", "build=soon"], "not STAGE=SECONDS"),
    ],
)
def test_wrong_options_are_named(arguments: list[str], words: str) -> None:
    finished = program(*arguments)
    assert finished.returncode == 2 and words in finished.stderr, finished.stderr
    assert "Traceback" not in finished.stderr


def test_a_folder_outside_git_is_named(tmp_path: Path) -> None:
    finished = program(tmp_path, "--work", tmp_path / "work")
    assert finished.returncode == 2 and "is not a git repository" in finished.stderr
