"""Reports of many variants as one table: what is missing, or contradicts itself, is a failure."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from kernel_actions.errors import KernelFailed, WrongInput
from kernel_actions.test import merging, schema
from kernel_actions.test.model import Failure, Reason, TestReport

PASSED = TestReport("torch213-cxx11-cu130-x86_64-linux", "d1", 9, 0, 1, 2.0, "NVIDIA H200", ())
FAILED = replace(
    PASSED, gpu="NVIDIA T4", passed=8, failed=1, not_run=3,
    failures=(Failure("t", "failed", "no", None, None),),
    reason=Reason("failed", "cu130 failed its test"),
)  # fmt: skip
UNTESTED = TestReport(
    "torch213-cxx11-rocm64-x86_64-linux", "d2", 0, 0, 0, 0.0, None, (),
    reason=Reason("no-gpu", "no GPU"), allowed="no such card",
)  # fmt: skip
CPU = TestReport("torch213-cxx11-cpu-x86_64-linux", "d3", 5, 0, 0, 1.0, None, ())


def put(folder: Path, *reports: TestReport) -> Path:
    for number, report in enumerate(reports):
        path = folder / f"job{number}" / f"{report.variant}.test-report.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(report.as_json()))
    return folder


def test_a_table_of_variants_and_gpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, PASSED, replace(PASSED, gpu="NVIDIA T4"), UNTESTED, CPU)
    assert merging.merge(tmp_path, [PASSED.variant, CPU.variant], "table") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ")[0] == "variant" and lines[0].rstrip().endswith("NVIDIA T4")
    assert [line.split()[0] for line in lines[2:5]] == sorted([PASSED.variant, UNTESTED.variant, CPU.variant])
    assert lines[3].count("✅ 9 passed") == 2
    assert "is untested, as kernel-actions.toml allows: no such card" in lines[-1]
    merged = json.loads((tmp_path / "test-reports.json").read_text())
    assert merged["verdict"] == "passed" and len(merged["reports"]) == 4


def test_what_fails_a_merge(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match="no such folder"):
        merging.merge(tmp_path / "none", [], "table")
    with pytest.raises(KernelFailed, match="holds no test reports, so that nothing was tested"):
        merging.merge(tmp_path, [], "table")
    put(tmp_path, PASSED, FAILED, replace(CPU, digest="x"), CPU)
    with pytest.raises(KernelFailed) as raised:
        merging.merge(tmp_path, [PASSED.variant, UNTESTED.variant], "json")
    said = [error.what for error in raised.value.all]
    assert said == [
        "cu130 failed its test",
        f"{UNTESTED.variant}: was not tested",
        f"{CPU.variant}: its reports are about different files",
    ]
    assert json.loads((tmp_path / "test-reports.json").read_text())["verdict"] == "failed"


def test_the_reports_of_several_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "outputs"))
    # Variants of different kernels have the same names, and are of different files.
    alone = replace(CPU, kernel="add")
    put(tmp_path / "reports", alone, replace(CPU, kernel="mul", digest="d9"), replace(FAILED, kernel="mul"))
    wanted = [f"add/{CPU.variant}", f"mul/{CPU.variant}", f"mul/{PASSED.variant}", f"sub/{CPU.variant}"]
    with pytest.raises(KernelFailed) as raised:
        merging.merge(tmp_path / "reports", wanted, "github")
    assert [error.what for error in raised.value.all] == [
        "mul/cu130 failed its test",
        f"sub/{CPU.variant}: was not tested",
    ]
    # What has to be looked at comes first.
    summary = (tmp_path / "summary").read_text()
    said = [line for line in summary.splitlines() if line and line[0] in "#❌✅-"]
    assert said == [
        "### ❌ Tests of 4 variants of 3 kernels: 18 passed",
        "- mul/cu130 failed its test",
        f"- sub/{CPU.variant}: was not tested".replace("_", r"\_"),
        "❌ mul: 2 variants, 13 passed",
        "❌ sub: 1 variant, 0 passed",
        "✅ add: 1 variant, 5 passed",
    ]
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]]
    assert rows == [f"mul/{CPU.variant}", f"mul/{PASSED.variant}", f"sub/{CPU.variant}", f"add/{CPU.variant}"]
    # One of that name was tested, but it is another kernel's; where there is one, its name need not be given.
    put(tmp_path / "one", alone)
    assert merging.merge(tmp_path / "one", [CPU.variant], "table") == 0
    with pytest.raises(KernelFailed, match=f"mul/{CPU.variant}: was not tested"):
        merging.merge(tmp_path / "one", [f"mul/{CPU.variant}"], "table")


def test_the_grids_of_many_kernels_are_folded_unless_something_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "outputs"))
    reports = [replace(CPU, kernel=f"kernel-{number}") for number in range(4)]
    put(tmp_path / "reports", *reports, replace(FAILED, kernel="kernel-9"))
    with pytest.raises(KernelFailed):
        merging.merge(tmp_path / "reports", [], "github")
    summary = (tmp_path / "summary").read_text()
    assert "\n❌ kernel-9: 1 variant, 8 passed\n" in summary
    assert summary.count("<details><summary>✅ kernel-") == 4
    assert summary.index("kernel-9") < summary.index("✅ kernel-0")


def test_what_hostile_reports_say_is_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # They come from jobs that ran a stranger's code.
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "outputs"))
    hostile = "<img src=x>\n::error::forged\x1b[31m"
    reports = [
        replace(CPU, kernel=hostile), replace(CPU, kernel="b", gpu=hostile),
        replace(UNTESTED, kernel="c", allowed=hostile), replace(UNTESTED, kernel="d", variant="torch-cpu"),
    ]  # fmt: skip
    put(tmp_path / "reports", *reports)
    assert merging.merge(tmp_path / "reports", [], "github") == 0
    printed, summary = capsys.readouterr().out, (tmp_path / "summary").read_text()
    assert "\n::" not in printed and "\x1b" not in printed
    assert "<img" not in summary and "\x1b" not in summary and "\n::" not in summary
    assert "<summary>⚠️ d: 1 variant, 0 passed" in summary


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": "passed", "passed": 0}, {"verdict": "untested"}, {"passed": "9"}, {"passed": True},
        {"schema": 9}, {"variant": None}, {"kernel": 7}, {"failed": 1}, {"verdict": "fine"},
    ],
)  # fmt: skip
def test_a_report_that_contradicts_itself(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "x.test-report.json"
    path.write_text(json.dumps(PASSED.as_json() | change))
    with pytest.raises(KernelFailed):
        merging.read(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", "nul", "[" * 100_000, '{"schema": 1}'])
def test_what_is_no_report(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.test-report.json"
    path.write_text(text)
    with pytest.raises(KernelFailed):
        merging.read(path)


def test_the_schema_is_the_models() -> None:
    import jsonschema

    made = schema.schema("https://host/report.json")
    jsonschema.Draft202012Validator.check_schema(made)
    for report in (PASSED, FAILED, UNTESTED, CPU):
        jsonschema.validate(json.loads(json.dumps(report.as_json())), made)
