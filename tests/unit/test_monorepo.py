"""Several kernels in one repository: which there are, and which a change concerns."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import pytest
from kernel_actions.errors import WrongInput
from kernel_actions.matrix import monorepo

from tests.unit.kernels import CUDA

KERNELS = {PurePosixPath(name): Path(name) for name in ("vision/gray", "vision/blur", "text/gelu", "gray")}


@pytest.mark.parametrize(
    ("changed", "kernels"),
    [
        (["vision/gray/csrc/a.cu"], {"vision/gray"}),
        (["vision/gray/README.md"], {"vision/gray"}),
        (["gray/build.toml"], {"gray"}),
        # Shared files concern the kernels of the nearest folder that has any.
        (["vision/common/x.h"], {"vision/gray", "vision/blur"}),
        (["text/flake.lock"], {"text/gelu"}),
        (["flake.lock"], {"vision/gray", "vision/blur", "text/gelu", "gray"}),
        ([".github/workflows/build.yml"], {"vision/gray", "vision/blur", "text/gelu", "gray"}),
        (["CMakeLists.txt"], {"vision/gray", "vision/blur", "text/gelu", "gray"}),
        # Texts outside of the kernels concern none.
        (["README.md", "LICENSE", "docs/guide.md", "vision/NOTICE", ".gitignore"], set()),
        # A source is no text, whatever it is called.
        (["vision/notice.h", "text/copying.cuh"], {"vision/gray", "vision/blur", "text/gelu"}),
        (["vision/LICENSE.txt"], set()),
        # What build.toml names by its path concerns that kernel too.
        (["text/shared.h"], {"text/gelu", "gray"}),
        # A removed kernel takes its files along.
        (["old/build.toml", "old/csrc/a.cu"], set()),
        # Renamed: the old folder is gone, the new one is a kernel.
        (["grey/build.toml", "grey/a.cu", "gray/build.toml", "gray/a.cu"], {"gray"}),
        ([], set()),
        (["vision/gray"], {"vision/blur", "vision/gray"}),
    ],
)
def test_what_a_change_concerns(changed: list[str], kernels: set[str]) -> None:
    references = {PurePosixPath("text/shared.h"): {Path("gray")}}
    assert {path.as_posix() for path in monorepo._reached(changed, KERNELS, references)} == kernels


def test_a_removed_build_toml_of_the_root_takes_nothing_along() -> None:
    reached = monorepo._reached(["build.toml", "common/x.h"], KERNELS, {})
    assert reached == set(KERNELS.values())


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


def test_sources_outside_of_the_folder(tmp_path: Path) -> None:
    text = CUDA.replace('"k/k.cu"', '"k/k.cu", "../common/x.h"').replace(
        '"torch-ext/torch_binding.cpp"', '"../common/y.h"'
    )
    _kernel(tmp_path / "k", text)
    assert monorepo.outside_sources(tmp_path / "k") == ("../common/y.h", "../common/x.h")
    _kernel(tmp_path / "bad", "[")
    assert monorepo.outside_sources(tmp_path / "bad") == ()
