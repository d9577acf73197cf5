"""Submodules of a repository, and who fetches them."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest
from kernel_actions import submodules

GITMODULES = """\
[submodule "cutlass"]
	path = gray/third-party/cutlass
	url = https://github.com/NVIDIA/cutlass.git
[submodule "theme"]
  path = "docs/theme/"
  url = https://example.org/theme
[submodule "without"]
	url = https://example.org/x
[submodule "outside"]
	path = ../x
"""


def test_what_gitmodules_names(tmp_path: Path) -> None:
    assert submodules.listed(tmp_path) == ()
    (tmp_path / ".gitmodules").write_text(GITMODULES)
    assert [str(path) for path in submodules.listed(tmp_path)] == ["gray/third-party/cutlass", "docs/theme"]
    (tmp_path / ".gitmodules").write_text("\0[")
    assert submodules.listed(tmp_path) == ()


def test_what_was_not_fetched_is_missing(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitmodules").write_text(GITMODULES)
    folder = tmp_path / "gray" / "third-party" / "cutlass"
    folder.mkdir(parents=True)
    cutlass = PurePosixPath("gray/third-party/cutlass")
    assert not submodules.is_fetched(tmp_path, cutlass)
    assert submodules.missing_around(folder / "include" / "x.h") == cutlass
    assert submodules.missing_around(tmp_path / "gray" / "x.h") is None
    (folder / "x.h").write_text("")
    assert submodules.is_fetched(tmp_path, cutlass)
    assert submodules.missing_around(folder / "include" / "x.h") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{ inputs.self.submodules = true; outputs = _: { }; }", True),
        ('{ inputs = { self.submodules = true; x.url = "x"; }; }', True),
        ("{ inputs.self = { lfs = true; submodules = true; }; }", True),
        ("{ inputs.self.submodules = false; }", False),
        ("{ # inputs.self.submodules = true;\n}", False),
        ("{ /* inputs.self.submodules = true; */ }", False),
        ("{ myself.submodules = true; }", False),
        ("{ inputs.x.submodules = true; }", False),
    ],
)
def test_whether_flake_nix_has_nix_fetch_them(tmp_path: Path, text: str, expected: bool) -> None:
    (tmp_path / "flake.nix").write_text(text)
    assert submodules.nix_fetches(tmp_path) is expected


def test_without_flake_nix_nobody_does(tmp_path: Path) -> None:
    assert not submodules.nix_fetches(tmp_path)
