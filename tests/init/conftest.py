"""Repositories to set up. Nothing here builds or opens a connection; git is run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

BUILD = """\
[general]
name = "{name}"
version = 1
license = "Apache-2.0"
edition = 5
backends = [{backends}]

[general.hub]
repo-id = "acme/{name}"

[torch]
src = ["torch-ext/torch_binding.cpp"]

[kernel.{name}]
backend = "cpu"
depends = ["torch"]
src = ["csrc/{name}.cpp"]
"""


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.check_output(["git", *identity, *arguments], cwd=folder, text=True)


def add_kernel(
    folder: Path, name: str = "relu", backends: str = '"cpu", "cuda"', *, compiled_for: str = "cpu"
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = BUILD.format(name=name, backends=backends).replace(
        'backend = "cpu"', f'backend = "{compiled_for}"'
    )
    (folder / "build.toml").write_text(text)
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of one kernel, with a remote on GitHub."""
    root = add_kernel(tmp_path / "relu")
    git(root, "init", "--quiet", "--initial-branch=main")
    git(root, "remote", "add", "origin", "git@github.com:acme/relu.git")
    return root


@pytest.fixture
def initialize(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs ``init``; its exit code, and what it prints."""
    from kernel_actions import cli

    for name in ("GITHUB_ACTIONS", "KA_KERNEL_DIR"):
        monkeypatch.delenv(name, raising=False)

    def run(root: Path, *arguments: str) -> tuple[int, str, str]:
        code = cli.main(["init", str(root), *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
