"""Findings that were there before: at the base of a pull request, or in the baseline of a repository."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kernel_actions import compliance
from kernel_actions.cli import main

from tests.compliance.cases import INIT
from tests.compliance.helpers import edit, said, write
from tests.integration.conftest import git

BREAKS = "import torch\nimport numpy\n"


@pytest.fixture
def repository(kernel: Path) -> Path:
    """A kernel in git that breaks KA311 with its first commit."""
    edit(kernel / INIT, "import torch\n", BREAKS)
    git(kernel, "init", "--quiet", "--initial-branch=main")
    write(kernel / ".gitignore", "/build/\n")
    _commit(kernel, "first")
    git(kernel, "tag", "base")
    return kernel


def _commit(kernel: Path, message: str) -> None:
    git(kernel, "add", "--all")
    git(kernel, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", f"--message={message}")


def _check(kernel: Path, *more: str) -> int:
    return main(["compliance", str(kernel), "--source-only", *more])


def test_a_pull_request_does_not_fail_for_what_was_there(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _check(repository) == 1
    edit(repository / INIT, BREAKS, f"# A comment, which moves the lines.\n{BREAKS}")
    _commit(repository, "second")
    capsys.readouterr()
    assert _check(repository, "--base=base", "--format=json") == 0
    report = json.loads(capsys.readouterr().out)
    assert "KA311" not in {one["rule"] for one in report["findings"]}
    assert "KA311" in {one["rule"] for one in report["known"]}
    # People see it as well.
    assert _check(repository, "--base=base") == 0
    assert "imports numpy" in capsys.readouterr().out


def test_a_pull_request_fails_for_one_more_of_the_same_kind(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(repository / INIT, BREAKS, f"{BREAKS}import pandas\n")
    _commit(repository, "second")
    assert _check(repository, "--base=base", "--format=json") == 1
    report = json.loads(capsys.readouterr().out)
    new = [one["message"] for one in report["findings"] if one["rule"] == "KA311"]
    assert len(new) == 1 and "pandas" in new[0]


def test_what_a_baseline_lists_fails_nothing_and_is_shown(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = repository / "known.json"
    assert _check(repository, f"--write-baseline={path}") == 0
    listed = json.loads(path.read_text())
    assert "KA311" in {one["rule"] for one in listed["findings"]}
    # Written again it is the same file.
    before = path.read_bytes()
    assert _check(repository, f"--write-baseline={path}") == 0
    assert path.read_bytes() == before
    capsys.readouterr()
    assert _check(repository, f"--baseline={path}", "--format=json") == 0
    report = json.loads(capsys.readouterr().out)
    assert "KA311" in {one["rule"] for one in report["known"]} and report["verdict"] == "passed"
    edit(repository / INIT, BREAKS, f"{BREAKS}import pandas\n")
    assert _check(repository, f"--baseline={path}") == 1
    # What is mended does not stay accepted.
    edit(repository / INIT, f"{BREAKS}import pandas\n", "import torch\n")
    capsys.readouterr()
    assert _check(repository, f"--baseline={path}", "--format=json") == 0
    assert "KA904" in {one["rule"] for one in json.loads(capsys.readouterr().out)["findings"]}


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 2, "findings": []}', '{"version": 1, "findings": [1]}', "\0"]
)
def test_what_is_no_baseline_is_one_line(
    repository: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(repository / "known.json", text)
    assert _check(repository, f"--baseline={repository / 'known.json'}") == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "known.json" in line and "--write-baseline" in line


def test_a_baseline_that_is_missing_is_one_line(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _check(repository, "--baseline=nowhere.json") == 2
    assert "there is no such baseline" in capsys.readouterr().err


def test_the_kernels_of_a_repository_share_what_they_share(tmp_path: Path, kernel: Path) -> None:
    """One finding about a file that two kernels have alike is told once."""
    import shutil

    for name in ("one", "two"):
        shutil.copytree(kernel, tmp_path / "all" / name)
        edit(tmp_path / "all" / name / "build.toml", "edition = 5\n", "")
    kernels = [compliance.checking.Checked(tmp_path / "all" / name) for name in ("one", "two")]
    report = compliance.checking.check(kernels, compliance.checking.Request())
    assert len(said(report, "manifest-edition")) == 1
