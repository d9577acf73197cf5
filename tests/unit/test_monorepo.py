"""Several kernels in one repository: which there are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kernel_actions.errors import WrongInput
from kernel_actions.matrix import monorepo

from tests.unit.kernels import CUDA


def _kernel(folder: Path, text: str = CUDA) -> None:
    folder.mkdir(parents=True)
    (folder / "build.toml").write_text(text)


def test_kernels_are_discovered(tmp_path: Path) -> None:
    for name in ("b/two", "a", "c/d/e"):
        _kernel(tmp_path / name)
    # Inside of a kernel, in results of builds, in hidden folders and behind links there are none.
    for name in ("a/tests/fixture", "build/x", "b/node_modules/y", ".venv/z", "b/.direnv/w"):
        _kernel(tmp_path / name)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "build.toml").symlink_to(tmp_path / "a" / "build.toml")
    assert [path.relative_to(tmp_path).as_posix() for path in monorepo.discover(tmp_path)] == [
        "a",
        "b/two",
        "c/d/e",
    ]


def test_nothing_to_discover_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match="no folder below"):
        monorepo.discover(tmp_path)


def test_a_very_deep_folder_is_no_trouble(tmp_path: Path) -> None:
    folder = tmp_path
    for _ in range(200):
        folder = folder / "d"
        os.mkdir(folder)
    with pytest.raises(WrongInput):
        monorepo.discover(tmp_path)
