"""Digests of files that were read before: what is never trusted is what could have changed."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

import pytest
from kernel_actions import digests


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the memory, and a clock by which every file has been at rest for a while."""
    real = time.time_ns
    monkeypatch.setattr("kernel_actions.digests.time.time_ns", lambda: real() + 5_000_000_000)
    return tmp_path / "memory"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the files that were read."""
    seen: list[int] = []
    real = digests._read

    def read(file: object, size: int) -> digests.Digest:
        seen.append(size)
        return real(file, size)  # type: ignore[arg-type]

    monkeypatch.setattr(digests, "_read", read)
    return seen


def digest_of(folder: Path, path: Path) -> digests.Digest:
    """As a process of its own would: what is kept is read from the disk."""
    memory = digests.Memory(folder)
    found = memory.of(path)
    memory.save()
    return found


def test_what_a_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for data in (b"", b"hello", bytes(digests.LARGEST_IN_GIT), bytes(digests.LARGEST_IN_GIT + 1)):
        path.write_bytes(data)
        found = digests.of(path)
        assert found.sha256 == hashlib.sha256(data).hexdigest()
        blob = hashlib.sha1(f"blob {len(data)}\0".encode() + data, usedforsecurity=False).hexdigest()
        assert (found.size, found.oid) == (len(data), blob if len(data) <= digests.LARGEST_IN_GIT else "")


def test_a_file_is_read_once(tmp_path: Path, memory: Path, reads: list[int]) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"hello")
    first = digest_of(memory, path)
    assert digest_of(memory, path) == first == digests.of(path)
    assert reads == [5, 5]
    assert os.stat(memory / "digests.json").st_mode & 0o777 == 0o600


@pytest.mark.parametrize("how", ["other content", "in place", "another file", "a link"])
def test_a_file_that_changed_is_read_though_its_size_and_time_are_put_back(
    tmp_path: Path, memory: Path, reads: list[int], how: str
) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"hello")
    os.utime(path, ns=(10**18, 10**18))
    digest_of(memory, path)
    time.sleep(0.02)
    if how == "in place":
        with path.open("r+b") as file:
            file.write(b"H")
    elif how == "another file":
        (tmp_path / "y").write_bytes(b"Hello")
        os.utime(tmp_path / "y", ns=(10**18, 10**18))
        os.replace(tmp_path / "y", path)
    elif how == "a link":
        (tmp_path / "y").write_bytes(b"Hello")
        path.unlink()
        path.symlink_to("y")
    else:
        path.write_bytes(b"Hello")
    os.utime(path, ns=(10**18, 10**18))
    assert os.stat(path).st_size == 5
    assert digest_of(memory, path).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert reads == [5, 5]


def test_a_file_that_was_just_written_is_not_remembered(tmp_path: Path, reads: list[int]) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"hello")
    for _ in range(2):
        digest_of(tmp_path / "memory", path)
    assert reads == [5, 5]
    assert not (tmp_path / "memory").exists()


def test_a_file_that_changes_while_it_is_read_is_not_remembered(
    tmp_path: Path, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"hello")
    real = digests._read

    def read(file: object, size: int) -> digests.Digest:
        found = real(file, size)  # type: ignore[arg-type]
        with path.open("ab") as other:
            other.write(b"!")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(digests, "_read", read)
        digest_of(memory, path)
    assert digest_of(memory, path).sha256 == hashlib.sha256(b"hello!").hexdigest()


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{", '{"schema": 2, "files": {}}', '{"schema": 1, "files": []}',
        '{"schema": 1, "files": {"x": 1}}',
        '{"schema": 1, "files": {"x": [1, 2, 3, 4, 5, "", "short"]}}', "[" * 100_000,
    ],
)  # fmt: skip
def test_a_memory_that_cannot_be_read_is_none(
    tmp_path: Path, memory: Path, reads: list[int], text: str
) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"hello")
    memory.mkdir()
    (memory / "digests.json").write_text(text)
    assert digest_of(memory, path) == digests.of(path)
    assert reads[0] == 5


def test_what_another_user_may_have_written_is_not_believed(tmp_path: Path, memory: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"hello")
    digest_of(memory, path)
    kept = memory / "digests.json"
    value = json.loads(kept.read_bytes())
    value["files"][str(path)][-1] = "0" * 64
    kept.write_text(json.dumps(value))
    os.chmod(kept, 0o622)
    assert digest_of(memory, path) == digests.of(path)


def test_what_is_gone_is_forgotten_and_a_folder_that_cannot_be_written_is_no_error(
    tmp_path: Path, memory: Path
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(b"old")
    digest_of(memory, old)
    old.unlink()
    new.write_bytes(b"new")
    digest_of(memory, new)
    assert json.loads((memory / "digests.json").read_bytes())["files"].keys() == {str(new)}
    blocked = tmp_path / "blocked"
    blocked.write_text("a file")
    assert digest_of(blocked, new) == digests.of(new)
