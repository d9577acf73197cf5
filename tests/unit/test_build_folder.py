"""The folder that variants are built into: what may be one."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path

import pytest
from kernel_actions import build_folder, built
from kernel_actions.errors import WrongInput


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (".", "which holds the kernel"),
        ("..", "which holds the kernel"),
        ("csrc", "csrc is a folder of the kernel's sources"),
        ("torch-ext/new", "torch-ext is a folder of the kernel's sources"),
        # Its .gitignore would hide them from git.
        ("src", "src/cuda is a folder of the kernel's sources"),
    ],
)
def test_sources_are_not_built_into(tmp_path: Path, output: str, said: str) -> None:
    kernel = tmp_path / "kernel"
    kernel.mkdir()
    with pytest.raises(WrongInput) as caught:
        build_folder.check(kernel, kernel / output, ["src/cuda"])
    assert said in caught.value.what and caught.value.what.startswith("--output is ")


def test_a_folder_of_archives_may_have_other_things_in_it(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "src", tmp_path / "built"):
        build_folder.check(tmp_path, folder, ["src/cuda"], "--archive", may_hold_others=True)
    with pytest.raises(WrongInput, match=r"--archive is .*, and src/cuda is"):
        build_folder.check(
            tmp_path, tmp_path / "src" / "cuda", ["src/cuda"], "--archive", may_hold_others=True
        )


def test_git_sees_nothing_of_what_is_built(tmp_path: Path) -> None:
    output = tmp_path / "out" / "build"
    assert build_folder.prepare(output) == output / ".local"
    (output / ".gitignore").write_text("mine\n")
    build_folder.prepare(output)
    assert (output / ".gitignore").read_text() == "mine\n"
    assert (output / ".local" / ".gitignore").read_text() == "*\n"
    (tmp_path / "file").touch()
    with pytest.raises(WrongInput, match="which is not a folder"):
        build_folder.prepare(tmp_path / "file")


def test_a_file_that_cannot_be_written_is_named_as_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", "/of/nobody/.x-abcdefg")

    monkeypatch.setattr(tempfile, "mkstemp", full)
    with pytest.raises(OSError, match="Read-only") as caught:
        built.write_whole(tmp_path / "x", b"")
    assert caught.value.filename == str(tmp_path / "x")
