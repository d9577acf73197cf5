"""The workflows of the kernel's repository, as zizmor sees them."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_actions import compliance
from kernel_actions.cli import main
from kernel_actions.compliance import workflows
from kernel_actions.compliance.engine import Report

from tests.compliance.cases import WORKFLOW
from tests.compliance.helpers import said, write


def _check(kernel: Path, text: str) -> Report:
    write(kernel / ".github/workflows/check.yml", text)
    return compliance.check_folders(kernel, workflows=True)


def test_a_workflow_of_this_suite_passes(kernel: Path) -> None:
    report = _check(kernel, WORKFLOW)
    assert [one.message for one in report.findings if one.rule.id.startswith("KA8")] == []


def test_what_others_can_run_is_an_error(kernel: Path) -> None:
    text = WORKFLOW + "      - run: echo ${{ github.event.pull_request.title }}\n"
    report = _check(kernel, text)
    assert said(report, "workflows-danger") == [
        "check.yml:18: code injection via template expansion (template-injection)"
    ]
    assert not report.is_passed
    finding = next(one for one in report.findings if one.rule.slug == "workflows-danger")
    assert finding.where.path == kernel / ".github/workflows/check.yml"
    assert finding.repair.startswith("see https://docs.zizmor.sh/")


def test_a_fork_of_this_suite_is_this_suite_where_it_runs(
    kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked = WORKFLOW.replace("org/kernel-actions", "acme/kernel-actions")
    unpinned = ["check.yml:17: unpinned action reference (unpinned-uses)"]
    assert said(_check(kernel, forked), "workflows-danger") == unpinned
    monkeypatch.setenv("GITHUB_ACTION_REPOSITORY", "acme/kernel-actions")
    assert said(_check(kernel, forked), "workflows-danger") == []
    assert said(_check(kernel, WORKFLOW), "workflows-danger") == []
    evil = WORKFLOW.replace("org/kernel-actions", "evil/kernel-actions")
    for name in ("", "*", "evil", 'evil/kernel-actions": ref-pin\n        "evil', "acme/kernel-actions"):
        monkeypatch.setenv("GITHUB_ACTION_REPOSITORY", name)
        assert said(_check(kernel, evil), "workflows-danger") == unpinned, name


def test_the_repositorys_own_configuration_waives_nothing(kernel: Path) -> None:
    write(kernel / ".github/zizmor.yml", "rules:\n  template-injection:\n    disable: true\n")
    text = WORKFLOW + "      - run: echo ${{ github.event.pull_request.title }}\n"
    assert said(_check(kernel, text), "workflows-danger") != []


def test_it_is_not_part_of_source_only(kernel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(
        kernel / ".github/workflows/check.yml",
        WORKFLOW.replace("permissions: {}\n", "").replace("@3d3c", "@v3d3c"),
    )
    assert main(["compliance", str(kernel), "--source-only"]) == 0
    assert main(["compliance", str(kernel)]) == 1
    assert "KA801" in capsys.readouterr().out


def test_without_zizmor_or_without_workflows(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert workflows.read(kernel) is None
    write(kernel / ".github/workflows/check.yml", "on: push\n")
    assert workflows.read(kernel) is not None
    monkeypatch.setattr(workflows, "find_program", lambda: None)
    assert workflows.read(kernel) is None


@pytest.mark.parametrize("text", ["", "[" * 5000, "jobs: 3\n", "a: \x1b[2J"])
def test_a_workflow_that_is_none_is_a_finding_at_most(text: str, kernel: Path) -> None:
    write(kernel / ".github/workflows/a.yml", WORKFLOW)
    for finding in _check(kernel, text).findings:
        assert finding.rule.id.startswith("KA8") and finding.message.isprintable()
