"""Fixtures of the tests of compliance."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kernel_actions import github
from kernel_actions.compliance import clock

from tests.compliance.helpers import DAY, compile_libraries, write_kernel, write_variant

os.environ["GIT_CONFIG_GLOBAL"] = os.devnull


@pytest.fixture(autouse=True)
def _no_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "GITHUB_ACTIONS", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "KA_VERBOSE", "GIT_DIR",
        "GIT_INDEX_FILE",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    # Nobody answers there: unknown revisions of the builder stay unknown, and soon.
    monkeypatch.setenv("KA_GITHUB_RAW", "http://127.0.0.1:9")
    monkeypatch.setattr(github, "_PAUSE", 0.0)
    # The day after the lock of this repository was made, which all tests use: no test gets old.
    monkeypatch.setattr(clock, "today", lambda: DAY)


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Compiled libraries, good and bad ones."""
    return compile_libraries(tmp_path_factory.mktemp("libraries"))


@pytest.fixture
def kernel(tmp_path: Path, libraries: dict[str, Path]) -> Path:
    """A kernel with one built variant, which keep every rule."""
    folder = write_kernel(tmp_path / "kernel")
    write_variant(folder, libraries["good"])
    return folder
