"""flake.lock: which revision of the builder a kernel pins."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kernel_actions import builder, flake_lock, manifest, variants
from kernel_actions.errors import KernelActionsError, WrongInput

from tests.unit.conftest import REVISION
from tests.unit.kernels import CUDA


def _lock(inputs: dict[str, Any], **nodes: Any) -> str:
    return json.dumps({"nodes": {"root": {"inputs": inputs}, **nodes}, "root": "root", "version": 7})


def _github(owner: str, repo: str, rev: str = REVISION) -> dict[str, Any]:
    return {"locked": {"type": "github", "owner": owner, "repo": repo, "rev": rev}}


BUILDER = _github("huggingface", "kernels")


@pytest.mark.parametrize(
    "lock",
    [
        _lock({"kernel-builder": "kb"}, kb=BUILDER),
        _lock({"any-name": "kb"}, kb=BUILDER),
        _lock({"kb": "kb"}, kb=_github("HuggingFace", "Kernels")),
        _lock({"kb": "kb", "other": "other"}, kb=BUILDER, other=_github("NixOS", "nixpkgs")),
        _lock({"kb": ["a", "kb"], "a": "a"}, a={"inputs": {"kb": "b"}}, b=BUILDER),
        _lock({"one": "one", "two": "two"}, one=BUILDER, two=BUILDER),
        # A chain of follows, as of an input of an input that follows one of the root.
        _lock(
            {"kb": ["a", "b"], "a": "a", "c": "c"},
            a={"inputs": {"b": ["c", "d"]}},
            c={"inputs": {"d": "d"}},
            d=BUILDER,
        ),
        # A commit is what it is in a fork too, and in a folder of one's own.
        _lock({"kb": "kb"}, kb=_github("somebody", "kernels")),
        _lock({"kernels": "k"}, k={"locked": {"type": "git", "url": "file:///src/mine", "rev": REVISION}}),
        _lock(
            {"kb": "kb"},
            kb={
                "locked": {
                    "type": "git",
                    "url": "https://github.com/huggingface/kernels.git",
                    "rev": REVISION,
                }
            },
        ),
    ],
)
def test_builder_is_found(kernel_dir: Callable[..., Path], lock: str) -> None:
    assert builder.locked(kernel_dir(CUDA, lock)).commit == REVISION


@pytest.mark.parametrize(
    ("lock", "code", "message"),
    [
        ("", 2, "flake.lock:1:1: is not JSON"),
        ("{", 2, "is not JSON"),
        ("[" * 100_000, 2, "is not JSON"),
        ("[]", 2, "has version None"),
        ('{"version": 4}', 2, "has version 4"),
        ('{"version": 5}', 2, "has version 5, and every Nix since 2.4 writes 7"),
        ('{"version": true}', 2, "has version True"),
        ('{"version": 7}', 2, "has no root node"),
        ('{"version": 7, "nodes": {}, "root": "root"}', 2, "has no root node"),
        ('{"version": 7, "nodes": {}, "root": []}', 2, "has no root node"),
        ('{"version": 7, "nodes": {}, "root": {}}', 2, "has no root node"),
        (f'{{"version": {"1" * 5000}}}', 2, "has a number that is too long"),
        (_lock({"a": [["x"]]}), 2, "no input is the builder"),
        (_lock({"a": [{}]}), 2, "no input is the builder"),
        (_lock({}), 2, "no input is the builder"),
        (_lock({"a": "missing"}), 2, "no input is the builder"),
        (_lock({"a": ["a"]}, a=BUILDER), 2, "has a chain of follows that never ends"),
        (_lock({"a": ["b"], "b": ["a", "a", "a"]}, a=BUILDER), 2, "has a chain of follows that never ends"),
        (_lock({"a": []}, a=BUILDER), 2, "no input is the builder"),
        (_lock({"a": 3, "b": None}), 2, "no input is the builder"),
        (_lock({"kb": "kb"}, kb=_github("somebody", "kernels", "0" * 40)), 3, "not in this version's data"),
        (_lock({"kb": "kb"}, kb={"locked": {"type": "path", "path": "../x"}}), 2, "no input is the builder"),
        (
            _lock({"kernel-builder": "kb"}, kb={"locked": {"type": "path", "path": "../x"}}),
            2,
            "input kernel-builder is locked to ../x, which has no revision",
        ),
        (
            _lock({"a": "a", "b": "b"}, a=BUILDER, b=_github("huggingface", "kernel-builder", "1" * 40)),
            2,
            "several inputs are the builder: a, b",
        ),
        (_lock({"kb": "kb"}, kb=_github("huggingface", "kernels", "v1")), 2, "'v1' is not a commit"),
        (
            _lock({"kb": "kb"}, kb=_github("huggingface", "kernels", "0" * 40)),
            3,
            "not in this version's data",
        ),
    ],
)
def test_each_error_says_what_and_where(
    kernel_dir: Callable[..., Path], lock: str, code: int, message: str
) -> None:
    with pytest.raises(KernelActionsError) as error:
        builder.locked(kernel_dir(CUDA, lock))
    assert error.value.exit_code == code
    assert "flake.lock" in str(error.value)
    assert message in str(error.value)


def test_missing_lock(tmp_path: Path) -> None:
    with pytest.raises(KernelActionsError, match=r"there is no flake.lock .*nix flake lock"):
        builder.locked(tmp_path)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "flake.lock")
    with pytest.raises(WrongInput, match="it is not a regular file"):
        builder.locked(tmp_path)


def test_a_part_of_a_commit_is_not_found() -> None:
    assert builder._find("table") is None
    assert builder._find(REVISION[:39]) is None
    # The end of a commit, with the table that follows it.
    assert builder._find(REVISION[1:]) is None


def test_the_bundled_data_is_whole() -> None:
    tables = {path.stem for path in (builder.DATA / "tables").glob("*.json")}
    lines = (builder.DATA / "revisions.txt").read_text().splitlines()
    assert lines == sorted(lines)
    used = {line.split(" ")[1] for line in lines}
    assert used == tables


def test_a_folder_has_no_revision_whatever_its_lock_claims(kernel_dir: Callable[..., Path]) -> None:
    lock = _lock({"kernels": "k"}, k={"locked": {"type": "path", "path": "/src/kernels", "rev": REVISION}})
    with pytest.raises(WrongInput, match="is locked to /src/kernels, which has no revision"):
        builder.locked(kernel_dir(CUDA, lock))


@pytest.mark.parametrize(
    ("url", "is_official"),
    [
        ("https://github.com/huggingface/kernels", True),
        ("git+https://github.com/huggingface/kernels.git?ref=main", True),
        ("ssh://git@github.com/huggingface/kernels", True),
        ("git@github.com:huggingface/kernels.git", True),
        ("https://evilgithub.com/huggingface/kernels.git", False),
        ("https://evil.org/github.com/huggingface/kernels", False),
        ("https://github.com.evil.org/huggingface/kernels", False),
        ("https://github.com/huggingface/kernels/evil", False),
    ],
)
def test_only_github_itself_has_the_builder(
    kernel_dir: Callable[..., Path], url: str, is_official: bool
) -> None:
    lock = _lock({"kernels": "k"}, k={"locked": {"type": "git", "url": url, "rev": REVISION}})
    path = kernel_dir(CUDA, lock) / "flake.lock"
    assert flake_lock.read(path).is_official is is_official


def test_names_are_without_the_abi_where_the_builder_left_it_out(kernel_dir: Callable[..., Path]) -> None:
    revision = builder.revision("6504ae5159f7" + _rest_of("6504ae5159f7"))
    names = {one.name for one in variants.plan(manifest.load(kernel_dir(CUDA)), revision).variants}
    assert "torch211-cu130-x86_64-linux" in names


def _rest_of(start: str) -> str:
    lines = (builder.DATA / "revisions.txt").read_text().splitlines()
    return next(line[len(start) : 40] for line in lines if line.startswith(start))
