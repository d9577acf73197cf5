"""Fixtures of the tests of the local builder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.local_builder.helpers import write_kernel

os.environ["GIT_CONFIG_GLOBAL"] = os.devnull


@pytest.fixture(autouse=True)
def _no_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the job's variables nor the machine's build settings play a part."""
    for name in (
        "GITHUB_ACTIONS", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "CXX", "CXXFLAGS",
        "CUDACXX", "CUDA_HOME", "MAX_JOBS", "TORCH_CUDA_ARCH_LIST", "KA_VERBOSE", "GIT_DIR", "GIT_INDEX_FILE",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def kernel_dir(tmp_path: Path) -> Path:
    """A kernel outside of git, for tests that compile nothing."""
    return write_kernel(tmp_path / "kernel")
