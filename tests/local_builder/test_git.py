"""What git says about a folder, whoever asks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from kernel_actions import git
from kernel_actions.errors import WrongSurroundings

from tests.local_builder.helpers import commit
from tests.tools import needs

pytestmark = pytest.mark.integration


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / "kernel").mkdir(parents=True)
    (folder / "kernel" / "file with ü").write_text("1")
    commit(folder)
    return folder


def test_a_commit_and_its_root(repository: Path) -> None:
    latest = commit(repository)
    assert git.state(repository / "kernel") == git.GitState(latest, False, repository.resolve())


def test_dirty_is_a_change_of_a_tracked_file(repository: Path) -> None:
    (repository / "untracked").write_text("")
    assert not git.state(repository).dirty  # type: ignore[union-attr]
    (repository / "kernel" / "file with ü").write_text("2")
    assert git.state(repository).dirty  # type: ignore[union-attr]


def test_tracked_files_are_relative_to_the_folder(repository: Path) -> None:
    (repository / "kernel" / "untracked").write_text("")
    assert git.tracked(repository / "kernel") == {"file with ü"}


def test_no_repository_no_commit_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    (tmp_path / "plain").mkdir()
    assert git.state(tmp_path / "plain") is None
    subprocess.run(["git", "init", "-q", str(tmp_path / "new")], check=True)
    assert git.state(tmp_path / "new") is None
    commit(tmp_path / "new")
    assert git.state(tmp_path / "new") is not None
    monkeypatch.setenv("PATH", "/nowhere")
    assert git.state(tmp_path / "new") is None


def test_variables_of_another_repository_are_ignored(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = git.state(repository)
    (tmp_path / "other").mkdir()
    commit(tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere")
    assert git.state(repository) == expected


@needs("root")
def test_a_repository_of_another_user_is_refused_but_in_the_jobs_workspace(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["chown", "-R", "12345", str(repository)], check=True)
    with pytest.raises(WrongSurroundings, match="belongs to another user") as caught:
        git.state(repository)
    assert f"safe.directory {repository.resolve()}" in caught.value.repair
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(repository))
    assert git.state(repository / "kernel") is not None
