"""The embedded Hub's store: ids as git makes them, and paths that stay inside."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kernel_actions.errors import WrongInput, WrongSurroundings
from kernel_actions.hub import storage
from kernel_actions.hub.storage import Add, Delete, Refused


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "../x", "a/../x", "a//x", "a/./x", "a/", "a\\x", "a\nx", "a\0x", ".git/x", "a/.GIT/x",
     "a\x7fx", "x" * 2000, "a/" * 512 + "x", "a/" + "x" * 256, "ü" * 128, "\ud800", None, 3],
)  # fmt: skip
def test_paths_that_leave_the_repository_are_refused(path: object) -> None:
    with pytest.raises(Refused):
        storage.check_path(path)


@pytest.mark.parametrize(
    "path", ["a", "build/torch-cpu/__init__.py", ".gitattributes", "a/ü b.txt", "a..b", "ü" * 127]
)
def test_other_paths_are_taken(path: str) -> None:
    assert storage.check_path(path) == path


@pytest.mark.parametrize(
    "name",
    [
        "refs/heads/",
        "refs/heads/a..b",
        "refs/heads/-a",
        "refs/tags/a b",
        "refs/tags/x.lock",
        "refs/tags/" + "x" * 256,
    ],
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
    with pytest.raises(WrongInput, match=r"is not a folder"), storage.open_store(tmp_path / "thesis.tex"):
        pass


def test_the_data_is_nothing_for_git_to_ask_about(tmp_path: Path) -> None:
    for _ in range(2):
        with storage.open_store(tmp_path / "hub-data"):
            pass
    assert (tmp_path / "hub-data" / ".gitignore").read_text() == "*\n"


def test_a_damaged_database_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "hub.sqlite3").write_bytes(b"not a database" * 100)
    with pytest.raises(WrongSurroundings, match="cannot be used"), storage.open_store(tmp_path):
        pass


def test_a_folder_that_only_looks_like_one_of_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "letter").write_text("…")
    with pytest.raises(WrongInput, match="holds no embedded Hub"), storage.open_store(tmp_path):
        pass
    assert (tmp_path / "incoming" / "letter").read_text() == "…"


# Ends at any moment.


def test_what_a_killed_server_was_receiving_is_gone_at_its_next_start(tmp_path: Path) -> None:
    with storage.open_store(tmp_path):
        pass
    (tmp_path / "incoming" / "torn").write_bytes(b"half of a fi")
    (tmp_path / "incoming" / "empty").touch()
    with storage.open_store(tmp_path) as store:
        assert not list((tmp_path / "incoming").iterdir())
        assert store.put(b"x").size == 1


def test_a_content_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with storage.open_store(tmp_path) as store:
        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space left"):
            store.put(b"x")
        assert not list((tmp_path / "incoming").iterdir())
        # Nothing is in its place before it is safe.
        assert not list((tmp_path / "objects").rglob("*"))
        monkeypatch.undo()
        assert store.has_object(store.put(b"x").sha256, 1)


def killed_at(step: int, folder: Path, act: Callable[[storage.Store], object]) -> bool:
    """Whether a process that does ``act`` was killed at its ``step``-th change of a file or SQL statement."""
    child = os.fork()
    if child == 0:
        try:
            with storage.open_store(folder) as store:
                left = step

                def count(event: str, *_: object) -> None:
                    nonlocal left
                    if event in {"open", "os.rename", "os.mkdir", "os.remove", "sql"}:
                        left -= 1
                        if left == 0:
                            os.kill(os.getpid(), signal.SIGKILL)

                store._database.set_trace_callback(lambda statement: count("sql"))
                sys.addaudithook(count)
                act(store)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_kill_at_any_step_leaves_each_commit_whole_or_absent(tmp_path: Path) -> None:
    def commit(store: storage.Store) -> str:
        operations: list[storage.Operation] = [
            Add("x", store.put(b"new")),
            Add("y/z", store.put(b"newer")),
            Delete("old", False),
        ]
        made, _ = store.add_commit("acme/x", "main", operations, title="second")
        return made.id

    with storage.open_store(tmp_path / "start") as store:
        store.create_repository("acme/x")
        store.add_commit("acme/x", "main", [Add("old", store.put(b"old"))], title="first")
        before = store.resolve("acme/x", "main").id
    outcomes = []
    step = 1
    while killed_at(step, shutil.copytree(tmp_path / "start", tmp_path / str(step)), commit):
        with storage.open_store(tmp_path / str(step)) as store:
            head = store.resolve("acme/x", "main")
            files = store.files(head)
            outcomes.append(head.id != before)
            changed = {"x", "y/z"} if outcomes[-1] else {"old"}
            assert files.keys() == {".gitattributes"} | changed
            for file in files.values():
                content = store.object_path(file.sha256).read_bytes()
                assert (len(content), hashlib.sha256(content).hexdigest()) == (file.size, file.sha256)
            assert not list((tmp_path / str(step) / "incoming").iterdir())
            if head.id == before:
                assert commit(store) == store.resolve("acme/x", "main").id
        step += 1
    # It was killed before the commit was in the database, and after.
    assert outcomes == sorted(outcomes)
    assert outcomes.count(False) > 10
