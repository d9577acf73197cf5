"""The embedded Hub's store: ids as git makes them, and paths that stay inside."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from kernel_actions.errors import WrongInput, WrongSurroundings
from kernel_actions.hub import storage
from kernel_actions.hub.storage import Add, Delete, Refused


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "../x", "a/../x", "a//x", "a/./x", "a/", "a\\x", "a\nx", "a\0x", ".git/x", "a/.GIT/x",
     "a\x7fx", "x" * 2000, None, 3],
)  # fmt: skip
def test_paths_that_leave_the_repository_are_refused(path: object) -> None:
    with pytest.raises(Refused):
        storage.check_path(path)


@pytest.mark.parametrize("path", ["a", "build/torch-cpu/__init__.py", ".gitattributes", "a/ü b.txt", "a..b"])
def test_other_paths_are_taken(path: str) -> None:
    assert storage.check_path(path) == path


@pytest.mark.parametrize(
    "name", ["refs/heads/", "refs/heads/a..b", "refs/heads/-a", "refs/tags/a b", "refs/tags/x.lock"]
)
def test_names_that_git_refuses_are_refused(name: str) -> None:
    with pytest.raises(Refused):
        storage.check_ref(name)


@pytest.mark.parametrize(
    ("sample", "expected"),
    [(b"", False), (b"text\n", False), ("ü".encode(), False), ("ü".encode()[:1], False),
     ("x🙂".encode()[:-1], False), (b"\x7fELF\0", True), (b"\xff\xfe", True), (b"\xc3text after", True)],
)  # fmt: skip
def test_binary_files_are_told_by_their_start(sample: bytes, expected: bool) -> None:
    assert storage.is_binary(sample) is expected


@pytest.mark.skipif(shutil.which("git") is None, reason="compares with git")
def test_ids_are_those_of_git(tmp_path: Path) -> None:
    contents = {"a.b/x": b"1\n", "a/z": b"2\n", "a/b/c": b"3\n", "a-b": b"4\n", "ü": b"5\n"}
    work = tmp_path / "work"
    for path, content in contents.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_bytes(content)

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=work, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "--quiet")
    git("add", ".")
    with storage.open_store(tmp_path / "data") as store:
        files = {path: store.put(content) for path, content in contents.items()}
    ids = storage.folder_ids(files)
    tree = git("write-tree")
    assert ids[""] == tree
    assert ids["a/b"] == git("rev-parse", f"{tree}:a/b")
    assert files["a-b"].oid == git("rev-parse", f"{tree}:a-b")


def test_operations_are_done_in_their_order(tmp_path: Path) -> None:
    with storage.open_store(tmp_path / "data") as store:
        file = store.put(b"x")
    result = storage.apply(
        {"a/x": file, "b": file}, [Delete("a", True), Add("a/y", file), Delete("b", False)]
    )
    assert list(result) == ["a/y"]
    with pytest.raises(Refused, match="a file and a folder at once"):
        storage.apply({"a": file}, [Add("a/b", file)])


def test_a_content_that_is_not_kept_leaves_nothing(tmp_path: Path) -> None:
    with storage.open_store(tmp_path / "data") as store:
        with pytest.raises(Refused, match="SHA-256"), store.receive() as receiver:
            receiver.write(b"something")
            receiver.keep("0" * 64)
        assert not list((tmp_path / "data" / "incoming").iterdir())
        assert not list((tmp_path / "data" / "objects").iterdir())


def test_two_stores_cannot_share_a_folder(tmp_path: Path) -> None:
    reason = "another embedded Hub"
    with (
        storage.open_store(tmp_path),
        pytest.raises(WrongSurroundings, match=reason),
        storage.open_store(tmp_path),
    ):
        pass


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("…")
    with pytest.raises(WrongInput, match="holds no embedded Hub"), storage.open_store(tmp_path):
        pass
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_damaged_database_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "hub.sqlite3").write_bytes(b"not a database" * 100)
    with pytest.raises(WrongSurroundings, match="cannot be used"), storage.open_store(tmp_path):
        pass
