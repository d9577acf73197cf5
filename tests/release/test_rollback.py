"""The command `rollback`: the branch is what an earlier release was, and says what was taken back."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi, _commit_api
from kernel_actions.errors import KernelFailed, WrongInput, WrongSurroundings
from kernel_actions.hub import client
from kernel_actions.hub.client import Hub
from kernel_actions.lock import on_hub as lock_on_hub
from kernel_actions.lock.lockfile import Locked
from kernel_actions.release import record, rollback

from tests.release.helpers import CPU, CUDA, Kernel, command, git
from tests.release.test_release import heads, hub_tags, put, recorded, titles

Tree = Callable[[str, str], dict[str, str]]


@pytest.fixture
def bad(kernel: Kernel, address: str, quick: list[str]) -> Kernel:
    """1.0.0, then 1.0.1, which turns out to be bad."""
    kernel.build()
    kernel.release(address)
    kernel.commit("fix: make it worse", worse="x = 1\n")
    kernel.build(table=b"\0" + bytes(5000))
    kernel.release(address)
    return kernel


@pytest.fixture
def hub(address: str) -> Hub:
    return client.connect(address)


def content(files: dict[str, str]) -> dict[str, str]:
    """A tree without the record."""
    return {path: oid for path, oid in files.items() if path != record.FILE_NAME}


def back(hub: Hub, repo_id: str, to: str) -> rollback.Done:
    return rollback.carry_out(rollback.prepare(hub, repo_id, to))


def test_the_command_takes_a_release_back(
    bad: Kernel, address: str, api: HfApi, repo_id: str, tree: Tree, tmp_path: Path
) -> None:
    """In processes, with the real verification; the planted secret is nowhere in what is printed."""
    before = heads(api, repo_id)
    tags = (hub_tags(api, repo_id), bad.tags(bad.origin))
    dry = command(bad.root, "rollback", "--to", "v1.0.0", "--hub", address, "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "v1 of" in dry.stdout and "1.0.1 → 1.0.0" in dry.stdout
    assert "1.0.1 would be marked as rolled back" in dry.stdout
    assert heads(api, repo_id) == before

    output = tmp_path / "output"
    finished = command(
        bad.root, "rollback", "--to", "v1.0.0", "--hub", address, "--format", "github",
        HF_TOKEN="hf_planted", KA_TOKEN="hf_planted", GITHUB_OUTPUT=str(output),
        GITHUB_STEP_SUMMARY=str(tmp_path / "summary"),
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    assert "Marked as rolled back: 1.0.1. The tags stay" in finished.stdout
    everything = finished.stdout + finished.stderr + output.read_text() + (tmp_path / "summary").read_text()
    assert "hf_planted" not in everything
    head = heads(api, repo_id)["v1"]
    assert f"\n{head}\n" in output.read_text()
    assert titles(api, repo_id, "v1") == [
        "Roll back to 1.0.0", "Release 1.0.1", "Release 1.0.0", "initial commit",
    ]  # fmt: skip
    assert content(tree(repo_id, "v1")) == content(tree(repo_id, "v1.0.0"))
    value = recorded(api, repo_id, "v1", tmp_path)
    (mark,) = value.pop("rolled_back")
    assert value == recorded(api, repo_id, "v1.0.0", tmp_path)
    assert (mark["release"], mark["commit"], mark["source"]) == ("1.0.1", before["v1"], bad.head)
    assert mark["when"].endswith("Z")
    assert (hub_tags(api, repo_id), bad.tags(bad.origin)) == tags
    # The card of main is the card of all versions.
    assert heads(api, repo_id)["main"] == before["main"]

    again = command(bad.root, "rollback", "--to", "1.0.0", "--hub", address, "--format", "json")
    assert again.returncode == 0, again.stderr
    value = json.loads(again.stdout)
    assert (value["commit"], value["rolled_back"], value["copied"]) == (head, [], [])
    assert heads(api, repo_id)["v1"] == head


def test_no_object_is_sent_and_what_others_put_there_is_gone(
    bad: Kernel, hub: Hub, api: HfApi, repo_id: str, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(_commit_api, "lfs_upload", lambda operation, *a, **k: sent.append(operation))
    put(api, repo_id, "v1", "notes.txt", b"theirs")
    put(api, repo_id, "v1", "build/torch-xpu/__init__.py", b"theirs")
    made = rollback.prepare(hub, repo_id, "v1.0.0")
    assert {one.name: one.action for one in made.variants} == {
        CPU: "replace", CUDA: "replace", "torch-xpu": "delete",
    }  # fmt: skip
    done = rollback.carry_out(made)
    assert sent == []
    assert tuple(made.changes.added) == (record.FILE_NAME,)
    assert content(tree(repo_id, done.commit)) == content(tree(repo_id, "v1.0.0"))


@pytest.mark.parametrize("form", ["{tag}", "{number}", "{commit}", "{short}", "relu/{tag}"])
def test_what_can_be_given(bad: Kernel, hub: Hub, api: HfApi, repo_id: str, form: str) -> None:
    commit = hub_tags(api, repo_id)["v1.0.0"]
    to = form.format(tag="v1.0.0", number="1.0.0", commit=commit, short=commit[:10])
    made = rollback.prepare(hub, repo_id, to, prefix="relu/")
    assert (made.target.commit, str(made.version), str(made.current)) == (commit, "1.0.0", "1.0.1")


def test_what_is_refused(bad: Kernel, hub: Hub, api: HfApi, repo_id: str, tmp_path: Path) -> None:
    def refused(to: str, words: str) -> None:
        with pytest.raises(WrongInput, match=words):
            rollback.prepare(hub, repo_id, to)

    before = heads(api, repo_id)
    refused("v9.9.9", r"has no release 'v9\.9\.9' .*give one of v1\.0\.1, v1\.0\.0")
    refused("main", "has no release 'main'")
    # A git commit, a commit of another branch, and one that holds no release.
    refused(bad.head, "ever held a commit")
    refused(before["main"], "ever held a commit")
    first = api.list_repo_commits(repo_id, repo_type="kernel", revision="v1")[-1].commit_id
    refused(first, "no release that was recorded")
    # A tag that somebody put elsewhere.
    api.create_tag(repo_id, tag="v1.2.0", revision="v1.0.0", repo_type="kernel")
    refused("v1.2.0", r"which is release 1\.0\.0")
    # A release that was never promoted.
    bad.commit("fix: y", rounding="x = 2\n")
    bad.build()
    done = bad.release(hub.address, stages=("stage",), bump="1.3.0")
    refused(done.staged, "ever held a commit")
    api.create_tag(repo_id, tag="v1.3.0", revision=done.staged, repo_type="kernel")
    refused("v1.3.0", "never held")
    assert heads(api, repo_id)["v1"] == before["v1"]
    with pytest.raises(WrongInput, match="does not exist"):
        rollback.prepare(hub, "acme/nothing", "v1.0.0")


def test_what_does_not_verify_is_not_gone_back_to(
    bad: Kernel, hub: Hub, api: HfApi, repo_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = heads(api, repo_id)
    problems = lambda *_unused, **_more: iter(["is not what was built"])  # noqa: E731
    monkeypatch.setattr(rollback.verification, "_digest_problems", problems)
    with pytest.raises(KernelFailed, match="is not what was built"):
        back(hub, repo_id, "v1.0.0")
    assert heads(api, repo_id) == before


def test_the_next_release_counts_on_and_keeps_the_mark(
    bad: Kernel, hub: Hub, api: HfApi, repo_id: str, tmp_path: Path
) -> None:
    back(hub, repo_id, "v1.0.0")
    with pytest.raises(WrongInput, match=r"1\.0\.1 of .* was rolled back .*rollback --to v1\.0\.1"):
        bad.release(hub.address)
    bad.commit("fix: mend it", worse="x = 2\n")
    bad.build()
    assert str(bad.release(hub.address).plan.version) == "1.0.2"
    value = recorded(api, repo_id, "v1", tmp_path)
    assert [one["release"] for one in value["rolled_back"]] == ["1.0.1"]
    # Two at once, of which one is marked already.
    back(hub, repo_id, "v1.0.0")
    value = recorded(api, repo_id, "v1", tmp_path)
    assert [one["release"] for one in value["rolled_back"]] == ["1.0.1", "1.0.2"]
    # And forward again, to what was no worse.
    back(hub, repo_id, "v1.0.2")
    value = recorded(api, repo_id, "v1", tmp_path)
    assert (value["release"], [one["release"] for one in value["rolled_back"]]) == ("1.0.2", ["1.0.1"])


def test_a_release_without_any_tag_is_taken_back(
    kernel: Kernel, hub: Hub, api: HfApi, repo_id: str, quick: list[str], tmp_path: Path
) -> None:
    kernel.build()
    first = kernel.release(hub.address, git_tag=False).commit
    kernel.commit("fix: x", rounding="x = 1\n")
    kernel.build()
    second = kernel.release(hub.address, git_tag=False).commit
    for tag in ("v1.0.0", "v1.0.1"):
        api.delete_tag(repo_id, tag=tag, repo_type="kernel")
    put(api, repo_id, "v1", "notes.txt", b"theirs")
    with pytest.raises(WrongInput, match="there is no tag of a release"):
        back(hub, repo_id, "v1.0.0")
    back(hub, repo_id, first)
    (mark,) = recorded(api, repo_id, "v1", tmp_path)["rolled_back"]
    assert (mark["release"], mark["commit"]) == ("1.0.1", second)
    with pytest.raises(WrongInput, match="was rolled back"):
        kernel.release(hub.address, git_tag=False)
    kernel.commit("fix: mend it", rounding="x = 2\n")
    kernel.build()
    assert str(kernel.release(hub.address, git_tag=False).plan.version) == "1.0.2"


def test_a_lock_on_what_was_taken_back_is_told(bad: Kernel, hub: Hub, api: HfApi, repo_id: str) -> None:
    tags = hub_tags(api, repo_id)
    back(hub, repo_id, "v1.0.0")
    state = lock_on_hub.read(hub, Locked(repo_id, 1, "", tags["v1.0.1"]))
    assert state.rolled_back == "1.0.1 was rolled back"
    state = lock_on_hub.read(hub, Locked(repo_id, 1, "", tags["v1.0.0"]))
    assert (state.rolled_back, state.is_on_branch) == ("", True)


def test_a_record_that_is_broken_does_not_keep_anybody(
    bad: Kernel, hub: Hub, api: HfApi, repo_id: str, tmp_path: Path
) -> None:
    put(api, repo_id, "v1", record.FILE_NAME, b"{")
    back(hub, repo_id, "v1.0.0")
    assert [one["release"] for one in recorded(api, repo_id, "v1", tmp_path)["rolled_back"]] == ["1.0.1"]


def _meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None], times: int = 1) -> None:
    real = client.commit
    left = [act] * times

    def commit(*arguments: Any, **options: Any) -> str | None:
        if left:
            left.pop()()
        return real(*arguments, **options)

    monkeypatch.setattr(client, "commit", commit)


def test_what_others_do_meanwhile(
    bad: Kernel, hub: Hub, api: HfApi, repo_id: str, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = iter(range(100))
    note = lambda: put(api, repo_id, "v1", "notes.txt", str(next(numbers)).encode())  # noqa: E731
    with monkeypatch.context() as patched:
        _meanwhile(patched, lambda: put(api, repo_id, "v1", f"build/{CPU}/theirs.py", b"x"))
        with pytest.raises(WrongSurroundings, match="was changed meanwhile"):
            back(hub, repo_id, "v1.0.0")
    with monkeypatch.context() as patched:
        _meanwhile(patched, note, times=100)
        with pytest.raises(WrongSurroundings, match="keep committing"):
            back(hub, repo_id, "v1.0.0")
    with monkeypatch.context() as patched:
        _meanwhile(patched, note)
        back(hub, repo_id, "v1.0.0")
    assert content(tree(repo_id, "v1")) == content(tree(repo_id, "v1.0.0"))


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_its_commit_the_next_run_finishes(
    bad: Kernel, hub: Hub, api: HfApi, repo_id: str, tree: Tree, when: str
) -> None:
    child = os.fork()
    if child == 0:
        real = client.commit

        def killing(*arguments: Any, **options: Any) -> str | None:
            if when == "after":
                real(*arguments, **options)
            os.kill(os.getpid(), signal.SIGKILL)
            return None

        try:
            setattr(client, "commit", killing)  # noqa: B010
            back(hub, repo_id, "v1.0.0")
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    held = "v1.0.0" if when == "after" else "v1.0.1"
    assert content(tree(repo_id, "v1")) == content(tree(repo_id, held))
    back(hub, repo_id, "v1.0.0")
    assert content(tree(repo_id, "v1")) == content(tree(repo_id, "v1.0.0"))
    assert titles(api, repo_id, "v1").count("Roll back to 1.0.0") == 1


def test_nothing_to_go_back_to(bad: Kernel, address: str) -> None:
    finished = command(bad.root, "rollback", "--hub", address)
    assert (finished.returncode, finished.stdout) == (2, "")
    assert "give --to" in finished.stderr
    assert git(bad.root, "status", "--porcelain") == ""
