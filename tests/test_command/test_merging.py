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
        path.parent.mkdir()
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


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": "passed", "passed": 0}, {"verdict": "untested"}, {"passed": "9"}, {"passed": True},
        {"schema": 9}, {"variant": None}, {"failed": 1}, {"verdict": "fine"},
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
