"""The matrix: jobs, selection, formats."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from kernel_actions import cli, settings
from kernel_actions.settings import Runner

from tests.golden import check_golden
from tests.unit.kernels import CUDA

ROOT = Path(__file__).parents[2]


def _matrix(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main(["matrix", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_names_of_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _matrix(capsys, str(ROOT), "--format", "json", "--scope", "all")
    assert code == 0
    names = [f"{job['variant']} {job['test_runner']}" for job in json.loads(out)["include"]]
    check_golden(Path(__file__).parent / "golden" / "example-variants.txt", "\n".join(names) + "\n")


def test_table_of_the_example(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    code, out, _ = _matrix(capsys)
    assert code == 0
    check_golden(Path(__file__).parent / "golden" / "example-table.txt", out)


def test_entries_have_what_workflows_need(
    kernel_dir: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = _matrix(capsys, str(kernel_dir(CUDA)), "--format", "json", "--only", "torch213-*-cu130-x86*")
    value = json.loads(out)
    assert value["count"] == 1
    assert value["include"] == [
        {
            "kernel": "edge",
            "dir": str(kernel_dir(CUDA)),
            "name": "torch213-cxx11-cu130-x86_64-linux",
            "artifact": "edge.torch213-cxx11-cu130-x86_64-linux",
            "variant": "torch213-cxx11-cu130-x86_64-linux",
            "arch_variant": "torch213-cxx11-cu130-x86_64-linux",
            "variants": ["torch213-cxx11-cu130-x86_64-linux"],
            "backend": "cuda",
            "compute": "cu130",
            "torch": "2.13",
            "system": "x86_64-linux",
            "runner": ["ubuntu-latest"],
            "test_runner": ["self-hosted", "linux", "x64", "cuda"],
        }
    ]
    assert all(one["reason"] == "does not match --only" for one in value["filtered"])


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ([], 12),
        (["--scope", "pr"], 2),
        (["--systems", "x86_64-linux"], 6),
        (["--torch", "2.13"], 6),
        (["--torch", "2.13", "--systems", "x86_64-linux aarch64-linux"], 6),
        (["--skip", "*-cu126-*"], 8),
        (["--only", "*-cu126-*", "--only", "*-cu130-*"], 8),
        (["--backends", "cuda"], 12),
    ],
)
def test_selection(
    kernel_dir: Callable[..., Path], capsys: pytest.CaptureFixture[str], arguments: list[str], count: int
) -> None:
    _, out, _ = _matrix(capsys, str(kernel_dir(CUDA)), "--format", "json", *arguments)
    assert json.loads(out)["count"] == count


def test_empty_selection_is_an_error_that_says_why(
    kernel_dir: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = kernel_dir(CUDA.replace("[torch]\n", '[torch]\nminver = "9.9"\n'))
    code, out, err = _matrix(capsys, str(folder))
    assert (code, out) == (2, "")
    assert 'is selected: Torch 2.12 is below torch.minver = "9.9"; Torch 2.13 is' in err
    code, out, _ = _matrix(capsys, str(folder), "--allow-empty", "--format", "json")
    assert code == 0
    assert json.loads(out)["include"] == []


def test_outputs_and_summary_in_actions(
    kernel_dir: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    outputs, summary = tmp_path / "outputs", tmp_path / "summary"
    monkeypatch.setenv("GITHUB_OUTPUT", str(outputs))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("KA_SCOPE", "pr")
    code, _, _ = _matrix(capsys, str(kernel_dir(CUDA)), "--format", "github")
    assert code == 0
    text = outputs.read_text()
    line = next(line for line in text.splitlines() if line.startswith('{"include"'))
    # Anything beside "include" would become an axis of the matrix.
    assert list(json.loads(line)) == ["include"]
    assert "count<<end-" in text and "\n2\n" in text
    assert summary.read_text().startswith("### 📋 Plan: 2 variants in 2 jobs")


def test_untrusted_code_gets_hosted_runners_alone(
    kernel_dir: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    kernel = kernel_dir(CUDA.replace('["cuda"]', '["cuda", "cpu"]'))
    # What a pull request says of runners is as little to be trusted.
    (kernel / "kernel-actions.toml").write_text(
        '[runners.build]\n"aarch64-linux" = ["self-hosted", "linux"]\n'
        '"aarch64-darwin" = ["ubuntu-latest", "mine"]\n[runners.test]\n"x86_64-linux.cpu" = "my-scale-set"\n'
    )
    found: dict[str, dict[str, str]] = {}
    for untrusted in ("false", "true"):
        outputs = tmp_path / f"outputs-{untrusted}"
        monkeypatch.setenv("GITHUB_OUTPUT", str(outputs))
        monkeypatch.setenv("KA_UNTRUSTED", untrusted)
        code, out, _ = _matrix(capsys, str(kernel), "--scope", "pr", "--format", "github")
        assert code == 0
        listed = re.findall(r"^(\S+)<<(end-\w+)\n(.*?)\n\2$", outputs.read_text(), re.DOTALL | re.MULTILINE)
        found[untrusted] = {name: value for name, _, value in listed}
    trusted, others = found["false"], found["true"]
    assert trusted["tests"] == trusted["matrix"] and trusted["held-back"] == "0"
    built = {one["variant"]: one for one in json.loads(others["matrix"])["include"]}
    assert {one["system"] for one in built.values()} == {"x86_64-linux"}
    # Compiled on a hosted runner, but its GPU, and the scale set, are the author's own.
    assert {one["backend"] for one in built.values()} == {"cpu", "cuda"}
    assert json.loads(others["tests"]) == {"include": []} and others["test-count"] == "0"
    assert int(others["held-back"]) == int(trusted["count"])
    reasons = {one["reason"] for one in json.loads(others["filtered"])}
    assert "is built on self-hosted, linux, which untrusted code does not get" in reasons
    assert "kept from runners that are not GitHub's" in out
    assert json.loads(others["kernels"])["include"] == [{"kernel": "edge", "dir": str(kernel)}]
    assert others["variants"].split() == [f"edge/{name}" for name in built]


def test_a_runner_group_reaches_the_matrix_as_runs_on_takes_it(
    kernel_dir: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = kernel_dir(CUDA)
    (kernel / "kernel-actions.toml").write_text(
        '[runners.build]\n"x86_64-linux" = { group = "builders" }\n'
        '[runners.test]\n"x86_64-linux.cuda" = { group = "gpus", labels = ["h100"] }\n'
    )
    code, out, _ = _matrix(
        capsys, str(kernel), "--scope", "pr", "--systems", "x86_64-linux", "--format", "json"
    )
    assert code == 0
    (entry,) = json.loads(out)["include"]
    assert entry["runner"] == {"group": "builders"}
    assert entry["test_runner"] == {"group": "gpus", "labels": ["h100"]}
    code, out, _ = _matrix(capsys, str(kernel), "--scope", "pr", "--format", "table")
    assert "group builders" in out and "group gpus, h100" in out
    # A stranger's pull request gets nothing of it.
    code, out, _ = _matrix(
        capsys, str(kernel), "--scope", "pr", "--untrusted", "--allow-empty", "--format", "json"
    )
    reasons = {one["reason"] for one in json.loads(out)["filtered"]}
    assert "is built on group builders, which untrusted code does not get" in reasons


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (("ubuntu-latest",), True), (("ubuntu-24.04-arm",), True), (("macos-15",), True),
        (("windows-2025",), True), (("ubuntu-slim",), True), (("macos-26-intel",), True),
        # Larger runners, what is not there, and what looks like it.
        (("ubuntu-22.04-large",), False), (("windows-99",), False), (("macos-15-xlarge",), False),
        (("ubuntu-\u0662\u0664.\u0660\u0664",), False), (("UBUNTU-LATEST",), False),
        (("ubuntu-latest", "gpu"), False), (("self-hosted",), False), (("ubuntu-gpu",), False),
        (("my-ubuntu-latest",), False), (("ubuntu-latest\n",), False), ((), False),
    ],
)  # fmt: skip
def test_which_runners_are_hosted(labels: tuple[str, ...], expected: bool) -> None:
    assert settings.is_hosted(Runner(labels)) is expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--backends", "coda"], "--backends has 'coda', which is not one of"),
        (["--systems", "x86"], "--systems has 'x86'"),
        (["--torch", "banana"], "(--torch can be 2.12, 2.13; widen the selection"),
        (["--torch", "2.13", "--backends", "rocm"], "(--backends can be cpu, cuda; widen the selection"),
        (["--only", "*-rocm*"], "(the variants have names like torch212-cxx11-cpu-x86_64-linux; widen"),
        (["--builder-rev", "v1"], "'v1' is not a commit"),
        (["--scope", "prs"], "--scope is 'prs', which is not one of release, pr, all (did you mean pr?)"),
        (["--unknown"], "unrecognized arguments: --unknown"),
        (["--max-jobs", "0"], "--max-jobs is 0, which is not from 1 to 256"),
        (["--max-jobs", "257"], "--max-jobs is 257"),
        (["--max-jobs", "many"], "--max-jobs is 'many', which is not a whole number"),
        (["--durations", "/nowhere.json"], "/nowhere.json: cannot be read: No such file"),
        (["--discover", "/nowhere"], "--discover /nowhere is not a folder"),
        (["explain", "a", "one", "two"], "takes one kernel folder"),
        (["--builder-rev", "0" * 40, "--builder-dir", "/nowhere"], "--builder-dir /nowhere is not a folder"),
        (["/nowhere"], "/nowhere/build.toml: there is no such file"),
    ],
)
def test_wrong_options_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, err = _matrix(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
