"""Integration tests run the real commands, with real tools, on copies of this repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("integration")


def environment(**changes: str) -> dict[str, str]:
    """The variables of a user's shell: none of Actions, and this interpreter for KA_PYTHON."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("KA_", "GITHUB_", "HF_", "RUNNER_", "PYTEST_"))
    }
    return kept | {"KA_PYTHON": sys.executable} | changes


def kernel_actions(
    root: Path, *arguments: str, variables: Mapping[str, str] | None = None, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run the launcher of the repository in ``root``, as a user in that folder would."""
    return subprocess.run(
        [root / "scripts" / "kernel-actions", *arguments],
        cwd=root,
        env=environment(**(variables or {})),
        text=True,
        capture_output=True,
        timeout=timeout,
        check=False,
    )


def git(folder: Path, *arguments: str) -> str:
    """Run git in ``folder`` as a test author, and return what it prints."""
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.check_output(["git", *identity, *arguments], cwd=folder, text=True)


def copy_repository(target: Path) -> Path:
    """A repository with one commit, of the files that git has or would take here."""
    listed = subprocess.check_output(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, text=True
    )
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    git(target, "init", "--quiet", "--initial-branch=main")
    git(target, "add", "--all")
    git(target, "commit", "--quiet", "--message=All")
    return target


@pytest.fixture(scope="session")
def pipeline_copy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A copy of the repository in which the pipeline was run once, and what that printed.

    Its path has a space and a letter that is not ASCII, as some people's do.
    """
    root = copy_repository(tmp_path_factory.mktemp("first") / "a folder of Jürgen" / "grayscale")
    finished = kernel_actions(root, "pipeline", timeout=600)
    assert finished.returncode == 0, finished.stderr
    return root, finished.stdout


@pytest.fixture(scope="session")
def small_copy(pipeline_copy: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with few of the kernel's tests, which take most of the time."""
    root = tmp_path_factory.mktemp("small") / "grayscale"
    shutil.copytree(pipeline_copy[0], root, symlinks=True)
    for path in (root / "tests" / "kernel").glob("test_*.py"):
        if path.name != "test_grayscale_errors.py":
            path.unlink()
    git(root, "commit", "--quiet", "--all", "--message=Keep few tests")
    finished = kernel_actions(root, "pipeline", timeout=600)
    assert finished.returncode == 0, finished.stderr
    return root


@pytest.fixture
def built_copy(small_copy: Path, tmp_path: Path) -> Path:
    """A copy of its own of the repository in which the pipeline was run: it can be changed."""
    shutil.copytree(small_copy, tmp_path / "grayscale", symlinks=True)
    return tmp_path / "grayscale"
