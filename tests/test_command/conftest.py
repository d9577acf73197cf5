"""Fixtures of the tests of ``test``."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.test_command.helpers import NATIVE, make_kernel


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A native library that crashes, spins and gives up, compiled once for all tests."""
    folder = tmp_path_factory.mktemp("native")
    (folder / "native.c").write_text(NATIVE)
    subprocess.run(
        ["cc", "-O0", "-shared", "-fPIC", "-o", folder / "native.so", folder / "native.c"], check=True
    )
    return folder / "native.so"


@pytest.fixture
def kernel(tmp_path: Path, native: Path) -> Path:
    """A kernel with a built variant, and no tests; its path has what separates paths elsewhere."""
    return make_kernel(tmp_path / "a: kernel", native)
