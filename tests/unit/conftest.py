"""Unit tests run no process and open no connection: what tries to fails its test."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

REVISION = "8ac69fc542a4306eade0759ef7c45b4f2ae57df0"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_keywords: object) -> None:
        raise AssertionError("a unit test started a process or opened a connection")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    for name in ("GITHUB_ACTIONS", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def kernel_dir(tmp_path: Path) -> Callable[..., Path]:
    """Makes a kernel's folder from the text of its build.toml, locked to a known builder."""

    def make(build: str, lock: str | None = None) -> Path:
        (tmp_path / "build.toml").write_text(build)
        default = (Path(__file__).parents[2] / "flake.lock").read_text()
        (tmp_path / "flake.lock").write_text(default if lock is None else lock)
        return tmp_path

    return make
