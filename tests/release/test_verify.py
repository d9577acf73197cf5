"""What is verified before it is promoted, against revisions on a real Hub that were tampered with."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from kernel_actions.errors import WrongInput, WrongSurroundings
from kernel_actions.release import record, verification

from tests.release.helpers import CPU, CUDA, Kernel, command


@pytest.fixture
def staged(kernel: Kernel, address: str, quick: list[str]) -> Kernel:
    kernel.build()
    kernel.release(address, stages=("stage",))
    return kernel


def change(api: HfApi, repo_id: str, files: Mapping[str, bytes | None]) -> None:
    """Commit to the staging branch; ``None`` deletes a file."""
    operations = [
        CommitOperationDelete(path) if content is None else CommitOperationAdd(path, content)
        for path, content in files.items()
    ]
    api.create_commit(repo_id, operations, commit_message="x", repo_type="kernel", revision="release-1.0.0")


def changed_record(api: HfApi, repo_id: str, tmp_path: Path, act: Callable[[dict[str, Any]], Any]) -> bytes:
    path = api.hf_hub_download(
        repo_id, record.FILE_NAME, repo_type="kernel", revision="release-1.0.0", cache_dir=tmp_path / "cache"
    )
    value = json.loads(Path(path).read_bytes())
    act(value)
    return json.dumps(value).encode()


def test_the_command_in_a_process(staged: Kernel, address: str, repo_id: str, tmp_path: Path) -> None:
    """A real load in a fresh process: what is loaded and what was tested elsewhere."""
    report = tmp_path / "report.json"
    finished = command(
        staged.root, "verify", "--revision", "release-1.0.0", "--hub", address, "--report", str(report),
        HF_TOKEN="hf_planted",
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    value = json.loads(report.read_bytes())
    assert value["verdict"] == "passed"
    assert {one["name"]: one["result"] for one in value["variants"]} == {CPU: "loaded", CUDA: "tested"}
    assert (value["loaded"], value["names"], value["release"]) == (CPU, ["relu"], "1.0.0")
    assert "hf_planted" not in finished.stdout + finished.stderr + report.read_text()


def test_a_kernel_that_does_not_load_is_not_promoted(
    kernel: Kernel, address: str, api: HfApi, repo_id: str
) -> None:
    kernel.commit("fix: break", broken="x = 1\n")
    init = kernel.root / "torch-ext" / "relu" / "__init__.py"
    init.write_text(
        init.read_text()
        + "\nraise RuntimeError('no luck, ' + __import__('os').environ.get('HF_TOKEN', 'no token'))\n"
    )
    kernel.commit("fix: break it more")
    kernel.build()
    finished = command(kernel.root, "release", "--hub", address, HF_TOKEN="hf_planted")
    assert finished.returncode == 1
    assert "does not load: RuntimeError: no luck, no token" in finished.stderr
    refs = api.list_repo_refs(repo_id, repo_type="kernel")
    assert sorted(one.name for one in refs.branches) == ["main", "release-1.0.0"]


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({f"build/{CPU}/extra.py": b"x"}, "Unknown file"),
        ({f"build/{CPU}/relu/__init__.py": None}, "Missing file"),
        ({f"build/{CPU}/table.bin": b"\0other"}, "table.bin"),
        ({f"build/{CPU}/metadata.json": None}, "has no metadata.json"),
        ({f"build/{CPU}/metadata.json": b"{"}, "the loader cannot read"),
        ({"build/torch-xpu/__init__.py": b""}, "torch-xpu: has no metadata.json"),
    ],
)
def test_files_that_are_not_what_metadata_says(
    staged: Kernel, address: str, api: HfApi, repo_id: str, files: dict[str, bytes | None], problem: str
) -> None:
    change(api, repo_id, files)
    verified = verification.verify(repo_id, "release-1.0.0", address=address)
    assert not verified.is_passed
    said = [*verified.problems, *(f"{one.name}: {one.problem}" for one in verified.variants if one.problem)]
    assert any(problem in one for one in said), said


@pytest.mark.parametrize(
    ("act", "problem"),
    [
        (lambda value: value["variants"].pop(CUDA), f"{CUDA}: is not in kernel-actions.json"),
        (lambda value: value["variants"][CUDA].update(digest="0"), "has another digest"),
        (lambda value: value["variants"][CUDA].update(metadata="0"), "has another metadata.json"),
        (lambda value: value["variants"][CUDA].update(tests=None), "no tests of it are recorded"),
        (lambda value: value["variants"][CUDA]["tests"].update(failed=1), "no tests of it are recorded"),
        (
            lambda value: value["variants"].update(gone=value["variants"][CUDA]),
            "gone is recorded, but not there",
        ),
        (lambda value: value.update(release="x"), "'x' is not a version"),
        (lambda value: value.clear(), "kernel-actions.json"),
    ],
)
def test_a_record_that_does_not_match(
    staged: Kernel, address: str, api: HfApi, repo_id: str, tmp_path: Path,
    act: Callable[[dict[str, Any]], Any], problem: str,
) -> None:  # fmt: skip
    change(api, repo_id, {record.FILE_NAME: changed_record(api, repo_id, tmp_path, act)})
    verified = verification.verify(repo_id, "release-1.0.0", address=address)
    assert not verified.is_passed
    said = [*verified.problems, *(f"{one.name}: {one.problem}" for one in verified.variants if one.problem)]
    assert any(problem in one for one in said), said


def test_what_was_uploaded_without_a_release(staged: Kernel, address: str, api: HfApi, repo_id: str) -> None:
    change(api, repo_id, {record.FILE_NAME: None})
    verified = verification.verify(repo_id, "release-1.0.0", address=address)
    assert verified.problems == ("there is no kernel-actions.json: no release was recorded",)
    assert verification.verify(repo_id, "main", address=address).problems[0] == "there is no variant"


def test_what_is_not_there(address: str, staged: Kernel, repo_id: str) -> None:
    with pytest.raises(WrongInput, match=rf"{repo_id} has no branch, tag or commit 'nothing'") as caught:
        verification.verify(repo_id, "nothing", address=address)
    assert caught.value.repair == "it has branches main, release-1.0.0"
    with pytest.raises(WrongInput, match="acme/nothing does not exist on "):
        verification.verify("acme/nothing", "main", address=address)
    with pytest.raises(WrongSurroundings, match="no Hub answers"):
        verification.verify(repo_id, "main", address="http://127.0.0.1:9")
    finished = command(staged.root, "verify", "--hub", address)
    assert finished.returncode == 2
    assert "give --revision" in finished.stderr


def test_a_verification_that_cannot_run_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WrongSurroundings, match=r"cannot be verified: no Hub answers at http://127.0.0.1:9"):
        verification.in_fresh_process("acme/relu", "0" * 40, "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        ({"expected": CPU, "variant": CUDA, "file": "/x/c0/y"}, "the loader took torch-cuda, not torch-cpu"),
        ({"expected": CPU, "variant": CPU, "file": "/x/c1/y"}, "was loaded from elsewhere than this commit"),
        (
            {"expected": "torch-x", "variant": "torch-x", "file": "/c0"},
            "the loader took torch-x, not torch-x",
        ),
        ({"error": "RuntimeError: no"}, "does not load: RuntimeError: no"),
        ({"expected": "", "variant": ""}, ""),
        ({"expected": CPU, "variant": CPU, "file": "/x/c0/y", "names": ["relu"]}, ""),
    ],
)
def test_what_the_loader_answers(
    monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], failure: str
) -> None:
    monkeypatch.setattr(verification.loading, "load", lambda arguments, environment: answer)
    assert verification._load("http://hub", "acme/relu", "c0", [CPU, CUDA])[2] == failure


def test_what_another_job_verified_is_compared_and_not_run_again(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, tmp_path: Path
) -> None:
    """In processes: the code of the kernel leaves a mark wherever it is loaded."""
    mark = tmp_path / "mark"
    init = kernel.root / "torch-ext" / "relu" / "__init__.py"
    init.write_text(init.read_text() + f"\nimport pathlib\npathlib.Path({str(mark)!r}).write_text('here')\n")
    kernel.commit("fix: leave a mark")
    kernel.build()
    finished = command(kernel.root, "release", "--stage", "--hub", address)
    assert finished.returncode == 0, finished.stderr
    refs = api.list_repo_refs(repo_id, repo_type="kernel")
    staged = {one.name: one.target_commit for one in refs.branches}["release-1.0.0"]
    promote = ("release", "--promote", "--hub", address, "--no-git-tag", "--verified")
    finished = command(kernel.root, *promote, "0" * 40)
    assert finished.returncode == 2
    assert f"is at {staged[:12]}, and 000000000000 was verified" in finished.stderr
    finished = command(kernel.root, *promote, staged)
    assert finished.returncode == 0, finished.stderr
    assert not mark.exists()
    finished = command(kernel.root, "verify", "--revision", "v1", "--hub", address)
    assert finished.returncode == 0, finished.stderr
    assert mark.exists()


def test_large_files_are_read_in_pieces(kernel: Kernel, tmp_path: Path) -> None:
    kernel.build(CPU, table=bytes(1000))
    folder = kernel.root / "build" / CPU
    assert list(verification._digest_problems(folder, is_required=True)) == []
    with (folder / "table.bin").open("ab") as file:
        file.truncate(300_000_000)
    tracemalloc.start()
    (problem,) = verification._digest_problems(folder, is_required=True)
    assert problem.startswith("Hash mismatch: table.bin")
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()
