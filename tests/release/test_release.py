"""The command `release`, from commits to the Hub and back, with real git, Hub and clients."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import CommitOperationAdd, HfApi, _commit_api
from kernel_actions import git as git_module
from kernel_actions import release
from kernel_actions.errors import KernelFailed, WrongInput, WrongSurroundings
from kernel_actions.hub import client
from kernel_actions.release import protocol, record, rollback

from tests.hub.faulty import Faulty
from tests.release.helpers import CPU, CUDA, Kernel, command, git

Tree = Callable[[str, str], dict[str, str]]


def heads(api: HfApi, repo_id: str) -> dict[str, str]:
    refs = api.list_repo_refs(repo_id, repo_type="kernel")
    return {one.name: one.target_commit for one in refs.branches}


def hub_tags(api: HfApi, repo_id: str) -> dict[str, str]:
    refs = api.list_repo_refs(repo_id, repo_type="kernel")
    return {one.name: one.target_commit for one in refs.tags}


def titles(api: HfApi, repo_id: str, revision: str) -> list[str]:
    commits = api.list_repo_commits(repo_id, repo_type="kernel", revision=revision)
    return [one.title for one in commits]


def recorded(api: HfApi, repo_id: str, revision: str, tmp_path: Path) -> Any:
    path = api.hf_hub_download(
        repo_id, record.FILE_NAME, repo_type="kernel", revision=revision, cache_dir=tmp_path / "cache"
    )
    return json.loads(Path(path).read_bytes())


def put(api: HfApi, repo_id: str, revision: str, path: str, content: bytes) -> None:
    """Commit a file, as somebody else."""
    api.create_commit(
        repo_id,
        [CommitOperationAdd(path, content)],
        commit_message="other",
        repo_type="kernel",
        revision=revision,
    )


# All of it, as a user runs it.


def test_from_commits_to_the_hub(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, tmp_path: Path, tree: Tree
) -> None:
    """In processes, with the real verification; the planted secrets are nowhere in what is printed."""
    kernel.build()
    secrets = {"KA_TOKEN": "hf_planted_one", "HF_TOKEN": "hf_planted_two"}
    finished = command(kernel.root, "release", "--hub", address, **secrets)
    assert finished.returncode == 0, finished.stderr
    assert "relu 1.0.0: the first release" in finished.stdout
    assert "Verified 2 variants; loaded torch-cpu" in finished.stdout
    assert "is not pushed" not in finished.stderr  # Since origin is on this machine, as the Hub is.
    assert "hf_planted" not in finished.stdout + finished.stderr

    # Everybody sees one commit, on both branches; nothing of the way is left.
    assert titles(api, repo_id, "v1") == ["Release 1.0.0", "initial commit"]
    assert titles(api, repo_id, "main") == ["Update the card to 1.0.0", "initial commit"]
    head = heads(api, repo_id)
    assert head.keys() == {"main", "v1"}
    assert hub_tags(api, repo_id) == {"v1.0.0": head["v1"]}
    assert kernel.tags() == kernel.tags(kernel.origin) == {"v1.0.0": kernel.head}
    assert git(kernel.root, "cat-file", "-t", "v1.0.0") == "tag"
    assert head["v1"] in git(kernel.root, "tag", "--list", "--format=%(contents)", "v1.0.0")
    assert "README.md" in tree(repo_id, "main")
    files = tree(repo_id, "v1")
    assert {path.split("/")[1] for path in files if path.startswith("build/")} == {CPU, CUDA}
    assert "README.md" not in files

    value = recorded(api, repo_id, "v1.0.0", tmp_path)
    assert (value["release"], value["commit"], value["dirty"]) == ("1.0.0", kernel.head, False)
    assert value["builder"]["commit"]
    assert value["variants"][CPU]["tests"] == {"passed": 3, "failed": 0, "skipped": 1, "gpu": None}

    again = command(kernel.root, "release", "--hub", address)
    assert again.returncode == 0, again.stderr
    assert "1.0.0 is released already" in again.stdout
    assert heads(api, repo_id) == head


def test_stage_and_promote_as_jobs_of_their_own(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, tmp_path: Path
) -> None:
    """Only the first has the variants; only the version and the commit are handed over."""
    kernel.build()
    output = tmp_path / "output"
    variables = {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
    first = command(kernel.root, "release", "--stage", "--hub", address, "--format", "github", **variables)
    assert first.returncode == 0, first.stderr
    outputs = _outputs(output)
    assert outputs["staged"] == heads(api, repo_id)["release-1.0.0"]
    assert (outputs["version"], outputs["tag"], outputs["commit"]) == ("1.0.0", "v1.0.0", "")
    assert "v1" not in heads(api, repo_id)
    assert kernel.tags() == {}
    summary = (tmp_path / "summary").read_text()
    assert summary.startswith("### ✅ relu 1.0.0: the first release")
    # The page is beside what was released, and is no part of it.
    assert outputs["report"].endswith("build/report.html")
    assert "Content-Security-Policy" in (kernel.root / "build" / "report.html").read_text()

    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(kernel.root), str(clone))
    second = command(
        clone,
        "release",
        "--promote",
        "--bump",
        outputs["version"],
        "--hub",
        address,
        "--no-git-tag",
        "--format",
        "json",
    )
    assert second.returncode == 0, second.stderr
    value = json.loads(second.stdout)
    assert value["released_commit"] == heads(api, repo_id)["v1"]
    assert value["sent"] == 0
    assert [one["action"] for one in value["variants"]] == ["add", "add"]
    assert kernel.tags() == {}
    assert titles(api, repo_id, "main")[0] == "Update the card to 1.0.0"


def _outputs(path: Path) -> dict[str, str]:
    """What an action's step sets, of which each run of the command may set some again."""
    lines = path.read_text().splitlines()
    found: dict[str, str] = {}
    while lines:
        name, _, delimiter = lines.pop(0).partition("<<")
        end = lines.index(delimiter)
        found[name] = "\n".join(lines[:end])
        del lines[: end + 1]
    return found


# The plan.


def test_a_dry_run_needs_no_build_and_changes_nothing(
    kernel: Kernel,
    address: str,
    api: HfApi,
    repo_id: str,
    quick: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    finished = command(kernel.root, "release", "--dry-run", "--hub", address, "--format", "json")
    assert finished.returncode == 0, finished.stderr
    value = json.loads(finished.stdout)
    assert (value["version"], value["current"], value["commit"]) == ("1.0.0", None, kernel.head)
    assert [(one["variant"], one["action"]) for one in value["variants"]] == [
        (CPU, "missing"),
        (CUDA, "missing"),
    ]
    assert not api.repo_exists(repo_id, repo_type="kernel")

    kernel.build()
    kernel.release(address)
    before = (heads(api, repo_id), hub_tags(api, repo_id), kernel.tags())
    kernel.commit("feat(api): add gelu", gelu="x = 1\n")
    kernel.build(CPU)
    finished = command(kernel.root, "release", "--dry-run", "--hub", address)
    assert finished.returncode == 0, finished.stderr
    assert "relu 1.0.0 → 1.1.0: 1 commit with a new feature" in finished.stdout
    assert "torch-cpu   replace" in finished.stdout
    assert "- **api**: add gelu" in finished.stdout
    assert finished.stdout.endswith("\nDry run, nothing was changed\nReport: build/report.html\n")
    assert (heads(api, repo_id), hub_tags(api, repo_id), kernel.tags()) == before


def test_only_what_changed_is_sent_and_a_promotion_sends_nothing(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, quick: list[str], monkeypatch: pytest.MonkeyPatch,
    tree: Tree,
) -> None:  # fmt: skip
    sent: list[str] = []
    real = _commit_api.lfs_upload

    def lfs_upload(operation: CommitOperationAdd, *arguments: Any, **options: Any) -> None:
        sent.append(operation.path_in_repo)
        real(operation, *arguments, **options)

    monkeypatch.setattr(_commit_api, "lfs_upload", lfs_upload)
    kernel.build()
    kernel.release(address)
    assert sorted(sent) == [f"build/{CPU}/table.bin", f"build/{CUDA}/table.bin"]
    old = tree(repo_id, "v1")
    sent.clear()
    # The variants say their commit: only what is built anew changes.
    kernel.commit("fix: round", rounding="x = 1\n")
    kernel.build(table=b"\0" + bytes(5000))
    done = kernel.release(address)
    assert str(done.plan.version) == "1.0.1"
    # Once, when it was staged; the promotion used it again on the server.
    assert sent == [f"build/{CPU}/table.bin"]
    assert [(one.name, one.action, one.changed, one.files) for one in done.plan.variants] == [
        (CPU, "replace", 4, 6), (CUDA, "replace", 3, 6),
    ]  # fmt: skip
    new = tree(repo_id, "v1")
    assert new[f"build/{CUDA}/table.bin"] == old[f"build/{CUDA}/table.bin"]
    assert titles(api, repo_id, "v1") == ["Release 1.0.1", "Release 1.0.0", "initial commit"]
    assert titles(api, repo_id, "main") == ["Update the card to 1.0.0", "initial commit"]
    assert kernel.tags(kernel.origin).keys() == {"v1.0.0", "v1.0.1"}


def test_a_hub_that_shows_what_was_done_a_moment_later(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, quick: list[str]
) -> None:
    """Another one than an embedded Hub, whose machines hear of a branch, a commit or a tag one by one."""
    proxy = Faulty(address, is_foreign=True, lag=0.05)
    try:
        kernel.build()
        kernel.release(proxy.url)
        kernel.commit("fix: round", rounding="x = 1\n")
        kernel.build()
        done = kernel.release(proxy.url)
        assert done.commit == heads(api, repo_id)["v1"] == hub_tags(api, repo_id)["v1.0.1"]
        assert kernel.release(proxy.url).is_unchanged
        hub = client.connect(proxy.url)
        rollback.carry_out(rollback.prepare(hub, repo_id, "v1.0.0"))
    finally:
        proxy.close()
    # Each was staged and verified once.
    assert len(quick) == 3
    assert titles(api, repo_id, "v1") == [
        "Roll back to 1.0.0",
        "Release 1.0.1",
        "Release 1.0.0",
        "initial commit",
    ]


def test_a_hub_that_lists_the_objects_of_annotated_tags(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, quick: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = HfApi.list_repo_refs

    def list_repo_refs(self: HfApi, *arguments: Any, **options: Any) -> Any:
        found = real(self, *arguments, **options)
        for one in found.tags:
            one.target_commit = one.target_commit[::-1]
        return found

    kernel.build()
    with monkeypatch.context() as patched:
        patched.setattr(HfApi, "list_repo_refs", list_repo_refs)
        kernel.release(address)
        kernel.commit("fix: round", rounding="x = 1\n")
        kernel.build()
        kernel.release(address, pre="rc")
        kernel.release(address)
        again = kernel.release(address)
        hub = client.connect(address)
        back = rollback.prepare(hub, repo_id, "v1.0.0")
        rollback.carry_out(back)
    assert again.is_unchanged
    assert again.commit == hub_tags(api, repo_id)["v1.0.1"]
    assert [(one.release, one.commit) for one in back.taken] == [("1.0.1", again.commit)]
    assert titles(api, repo_id, "v1")[0] == "Roll back to 1.0.0"


def test_the_major_version_comes_before_anything_else(kernel: Kernel) -> None:
    git(kernel.root, "tag", "v1.0.0")
    kernel.commit("feat!: drop relu")
    with pytest.raises(
        WrongInput, match=r"build.toml:3:1: version is 1, .* 2.0.0 .*write version = 2"
    ) as caught:
        kernel.release("http://127.0.0.1:9")  # Where nothing answers.
    assert "drop relu" in str(caught.value)


def test_a_new_major_version_has_a_branch_of_its_own(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, quick: list[str]
) -> None:
    kernel.build()
    kernel.release(address)
    kernel.write_build_toml(2)
    kernel.commit("feat!: drop relu")
    kernel.build()
    done = kernel.release(address)
    assert str(done.plan.version) == "2.0.0"
    assert [one.action for one in done.plan.variants] == ["add", "add"]
    assert titles(api, repo_id, "v2") == ["Release 2.0.0", "initial commit"]
    assert titles(api, repo_id, "v1") == ["Release 1.0.0", "initial commit"]


def test_a_release_without_a_git_tag_is_counted_on_from(
    kernel: Kernel, address: str, repo_id: str, quick: list[str]
) -> None:
    kernel.build()
    kernel.release(address, git_tag=False)
    assert kernel.tags() == {}
    kernel.commit("fix: round", rounding="x = 1\n")
    kernel.build()
    assert str(kernel.release(address, git_tag=False).plan.version) == "1.0.1"


def test_only_commits_to_the_kernel_count_in_a_repository_of_several(
    kernel: Kernel, address: str, repo_id: str, quick: list[str]
) -> None:
    folder = kernel.root / "kernels" / "relu"
    folder.mkdir(parents=True)
    for name in ("build.toml", "flake.lock", "flake.nix", "torch-ext", "tests", "CARD.md", ".gitignore"):
        (kernel.root / name).rename(folder / name)
    (folder / "kernel-actions.toml").write_text('[release]\ntag-prefix = "relu/"\n')
    top, kernel.root = kernel.root, folder
    kernel.commit("Move relu")
    kernel.build()
    assert kernel.release(address).plan.git_tag == "relu/v1.0.0"
    git(top, "tag", "v7.0.0")
    git(top, "tag", "gelu/v3.0.0")
    (top / "other.txt").write_text("x")
    kernel.root = top
    kernel.commit("feat!: something else")
    kernel.root = folder
    assert kernel.release(address).is_unchanged
    kernel.commit("fix: round", rounding="x = 1\n")
    kernel.build()
    scratch = kernel.origin.parent / "scratch"
    git_module.scratch(kernel.root, scratch)
    assert release.prepare(kernel.root, address=address, git_dir=scratch).plan.git_tag == "relu/v1.0.1"
    done = kernel.release(address)
    assert done.plan.git_tag == "relu/v1.0.1"
    assert [one.subject for one in done.plan.commits] == ["round"]
    assert kernel.tags(kernel.origin).keys() == {"relu/v1.0.0", "relu/v1.0.1"}


HOSTILE = (
    "feat(`x`|<b>): <script>alert(1)</script> | [x](javascript:y) `a` **b** @all #1\n\n"
    "::set-output name=x::y\n##[error]z\n\n\x1b[31mred\x1b[0m"
)


def test_hostile_commit_messages_are_shown_as_text(
    kernel: Kernel, address: str, quick: list[str], tmp_path: Path
) -> None:
    kernel.build()
    kernel.release(address)
    kernel.commit(HOSTILE)
    kernel.commit("::error file=x::fix\x07: not a command")
    summary = tmp_path / "summary"
    finished = command(
        kernel.root, "release", "--dry-run", "--hub", address, "--format", "github",
        GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(summary),
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    assert "\x1b" not in finished.stdout and "\x07" not in finished.stdout
    # The runner is told to obey nothing until the plan is printed.
    assert finished.stderr.startswith("::stop-commands::")
    text = summary.read_text()
    for raw in ("<script>", "<b>", "[x](javascript", "`a`", "**b**", " @all", " | [x]"):
        assert raw not in text
    assert "&lt;script&gt;" in text
    # Each row of a table stays one row.
    columns = 0
    for line in text.splitlines():
        found = line.replace("\\|", "").count("|") if line.startswith("|") else 0
        assert not columns or not found or found == columns, line
        columns = found
    value = json.loads(
        command(kernel.root, "release", "--dry-run", "--hub", address, "--format", "json").stdout
    )
    assert value["version"] == "1.1.0"
    assert "<script>" not in value["changelog"]


# Git.


def test_a_shallow_clone_is_told_how_to_get_its_history(
    kernel: Kernel, address: str, tmp_path: Path, quick: list[str]
) -> None:
    kernel.commit("fix: x")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{kernel.root}", str(clone))
    finished = command(clone, "release", "--dry-run", "--hub", address)
    assert finished.returncode == 3
    assert "fetch-depth: 0" in finished.stderr
    finished = command(clone, "release", "--dry-run", "--hub", address, "--bump", "1.4.0")
    assert finished.returncode == 0, finished.stderr
    assert "relu 1.4.0" in finished.stdout


def test_lightweight_and_foreign_tags(kernel: Kernel, address: str) -> None:
    git(kernel.root, "tag", "v1.9.0")
    # A tag of a tag.
    git(kernel.root, "tag", "--annotate", "--message=x", "inner")
    git(kernel.root, "tag", "--annotate", "--message=x", "v1.10.0", "inner")
    for name in ("v1", "v1.2", "vnext", "1.99.0", "other/v1.99.0", "v1.99.0+build"):
        git(kernel.root, "tag", name)
    blob = git(kernel.root, "hash-object", "-w", "build.toml")
    git(kernel.root, "tag", "v1.98.0", blob)
    kernel.commit("fix: x")
    git(kernel.root, "switch", "--quiet", "--create", "side")
    kernel.commit("feat: y")
    git(kernel.root, "tag", "v1.11.0")
    git(kernel.root, "switch", "--quiet", "--detach", "main")
    assert str(release.prepare(kernel.root, address=address).plan.version) == "1.10.1"


@pytest.mark.parametrize("place", ["here", "origin", "hub"])
def test_a_tag_on_another_commit_is_refused_before_anything_is_done(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, quick: list[str], place: str
) -> None:
    kernel.build()
    if place == "hub":
        api.create_repo(repo_id, repo_type="kernel")
        api.create_tag(repo_id, tag="v1.0.0", repo_type="kernel")
    else:
        git(kernel.root, "switch", "--quiet", "--create", "side")
        kernel.commit("on another branch")
        git(kernel.root, "tag", "v1.0.0")
        git(kernel.root, "push", "--quiet", "origin", "v1.0.0")
        git(kernel.root, "switch", "--quiet", "main")
        if place == "origin":
            git(kernel.root, "tag", "--delete", "v1.0.0")
    with pytest.raises(WrongInput, match=r"tag v1.0.0 .*is on .*give a higher version|is on"):
        kernel.release(address)
    assert place == "hub" or not api.repo_exists(repo_id, repo_type="kernel")


def test_a_tag_that_was_made_by_hand_is_released(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, quick: list[str]
) -> None:
    git(kernel.root, "tag", "v1.4.0")
    kernel.build()
    done = kernel.release(address)
    assert str(done.plan.version) == "1.4.0"
    assert hub_tags(api, repo_id) == {"v1.4.0": done.commit}
    assert kernel.tags(kernel.origin) == {"v1.4.0": kernel.head}


def test_a_push_that_fails_is_told_when_the_hub_is_done(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, quick: list[str]
) -> None:
    hook = kernel.origin / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    kernel.build()
    with pytest.raises(WrongSurroundings, match="cannot be pushed to origin") as caught:
        kernel.release(address)
    assert "contents: write" in str(caught.value)
    assert heads(api, repo_id).keys() == {"main", "v1"}
    assert hub_tags(api, repo_id).keys() == {"v1.0.0"}
    hook.unlink()
    done = kernel.release(address)
    assert done.tagged is not None
    assert done.tagged.done == ("the tag v1.0.0 in origin",)
    assert kernel.tags(kernel.origin) == {"v1.0.0": kernel.head}


def test_a_tag_that_another_run_pushes_at_the_same_time_is_as_good(
    kernel: Kernel, address: str, quick: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = git_module.push_tag

    def slower(*arguments: Any) -> None:
        real(*arguments)
        hook = kernel.origin / "hooks" / "pre-receive"
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
        raise WrongSurroundings("cannot lock ref 'refs/tags/v1.0.0': reference already exists")

    monkeypatch.setattr(git_module, "push_tag", slower)
    kernel.build()
    kernel.release(address)
    assert kernel.tags(kernel.origin) == {"v1.0.0": kernel.head}


def test_a_release_on_an_embedded_hub_is_not_told_to_an_origin_elsewhere(
    kernel: Kernel, address: str, quick: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    git(kernel.root, "remote", "set-url", "origin", "http://someone:ghp_planted@127.0.0.1:9/x.git")
    kernel.build()
    assert kernel.release(address).tagged is not None
    assert kernel.tags() == {"v1.0.0": kernel.head}
    said = capsys.readouterr().err
    assert "the git tag v1.0.0 stays here, and is not pushed to http://" in said
    assert "ghp_planted" not in said
    # What counts is where a push goes.
    git(
        kernel.root,
        "config",
        f"url.{kernel.origin}.pushInsteadOf",
        "http://someone:ghp_planted@127.0.0.1:9/x.git",
    )
    assert git_module.push_addresses(kernel.root, "origin") == (str(kernel.origin),)
    assert git_module.push_addresses(kernel.root, "elsewhere") == ()


def test_a_rehearsal_tells_nothing_to_an_origin_of_which_a_part_is_elsewhere(
    kernel: Kernel, address: str, quick: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for one in (str(kernel.origin), "http://127.0.0.1:9/x.git"):
        git(kernel.root, "remote", "set-url", "--push", "--add", "origin", one)
    kernel.build()
    assert kernel.release(address, moving_tags=True).tagged is not None
    assert kernel.tags().keys() == {"v1.0.0", "v1", "v1.0"}
    assert kernel.tags(kernel.origin) == {}
    assert f"is not pushed to {kernel.origin} and http://127.0.0.1:9/x.git" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("remote", "is_here"),
    [
        ("/srv/git/x.git", True), ("../x.git", True), ("x.git", True), ("file:///x.git", True),
        ("./a:b", True), ("https://github.com/a/b.git", False), ("git@github.com:a/b.git", False),
        ("ssh://host/x", False), ("host:x", False),
    ],
)  # fmt: skip
def test_where_a_remote_is(remote: str, is_here: bool) -> None:
    assert git_module.is_on_this_machine(remote) == is_here


def test_credentials_in_the_address_of_origin_are_not_shown(
    kernel: Kernel, address: str, quick: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_module, "is_on_this_machine", lambda remote: True)
    git(kernel.root, "remote", "set-url", "origin", "http://someone:ghp_planted@127.0.0.1:9/x.git")
    kernel.build()
    with pytest.raises(WrongSurroundings, match="cannot be pushed") as caught:
        kernel.release(address)
    assert "ghp_planted" not in str(caught.value)


def test_git_that_does_not_know_who_the_user_is(
    kernel: Kernel, address: str, quick: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    git(kernel.root, "config", "user.useConfigOnly", "true")
    kernel.build()
    kernel.release(address)
    assert git(kernel.root, "tag", "--list", "--format=%(taggername)", "v1.0.0") == "kernel-actions"


def test_without_an_origin_the_tag_stays_here(kernel: Kernel, address: str, quick: list[str]) -> None:
    git(kernel.root, "remote", "remove", "origin")
    kernel.build()
    assert kernel.release(address).tagged is not None
    assert kernel.tags() == {"v1.0.0": kernel.head}


@pytest.mark.parametrize("is_shallow", [False, True], ids=["whole", "shallow"])
def test_the_tag_may_go_to_a_scratch_repository_and_the_users_stays_as_it_was(
    kernel: Kernel, address: str, quick: list[str], tmp_path: Path, is_shallow: bool
) -> None:
    git(kernel.root, "tag", "v1.3.0")
    kernel.commit("fix: x", rounding="x = 1\n")
    if is_shallow:
        clone = tmp_path / "a clone"
        git(tmp_path, "clone", "--quiet", "--depth=1", "--no-tags", f"file://{kernel.root}", str(clone))
        kernel.root = clone
    kernel.build()
    before = _state(kernel.root)
    scratch = tmp_path / "scratch"
    options = {"git_dir": scratch, "rehearsal": True}
    git_module.scratch(kernel.root, scratch)
    first = "1.0.0" if is_shallow else "1.3.1"
    assert str(kernel.release(address, **options).plan.version) == first
    assert kernel.tags(scratch)[f"v{first}"] == kernel.head
    assert _state(kernel.root) == before
    git_module.scratch(kernel.root, scratch)
    assert kernel.release(address, **options).is_unchanged
    kernel.commit("feat: y", rounding="x = 2\n")
    kernel.build()
    git_module.scratch(kernel.root, scratch)
    following = "1.1.0" if is_shallow else "1.4.0"
    assert str(kernel.release(address, **options).plan.version) == following
    assert kernel.tags(scratch)[f"v{following}"] == kernel.head
    assert kernel.tags().keys() == (set() if is_shallow else {"v1.3.0"})


def _state(root: Path) -> object:
    folder = root / ".git"
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "index")
    return [(path, path.stat().st_mtime_ns) for path in files]


# Rehearsals: an embedded Hub takes what no other Hub does.


def test_uncommitted_changes_are_marked_and_get_no_git_tag(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, quick: list[str], tmp_path: Path
) -> None:
    (kernel.root / "torch-ext" / "relu" / "__init__.py").write_text("__all__ = []\n")
    kernel.build(dirty=True)
    done = kernel.release(address)
    assert done.plan.dirty
    assert recorded(api, repo_id, "v1", tmp_path)["dirty"] is True
    assert kernel.tags() == {}
    assert kernel.release(address).is_unchanged
    (kernel.root / "torch-ext" / "relu" / "__init__.py").write_text("__all__ = []\nx = 2\n")
    kernel.build(dirty=True)
    assert str(kernel.release(address).plan.version) == "1.0.1"
    git(kernel.root, "checkout", "--quiet", "--", ".")
    kernel.build()
    assert str(kernel.release(address).plan.version) == "1.0.2"
    assert kernel.tags().keys() == {"v1.0.2"}


def test_a_rehearsal_follows_whatever_is_checked_out(kernel: Kernel, address: str, quick: list[str]) -> None:
    first = kernel.head
    kernel.commit("fix: x", rounding="x = 1\n")
    kernel.build()
    kernel.release(address, rehearsal=True)
    git(kernel.root, "commit", "--quiet", "--amend", "--message=fix: x, said better")
    kernel.build()
    with pytest.raises(WrongInput, match="was released from another commit"):
        kernel.release(address, git_tag=False)
    assert str(kernel.release(address, rehearsal=True).plan.version) == "1.0.1"
    git(kernel.root, "checkout", "--quiet", first)
    kernel.build()
    assert str(kernel.release(address, rehearsal=True).plan.version) == "1.0.2"
    assert kernel.release(address, rehearsal=True).is_unchanged


def test_a_partial_release_keeps_the_other_variants(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, quick: list[str], tmp_path: Path
) -> None:
    kernel.build(CUDA)
    kernel.release(address, partial=True)
    kernel.commit("fix: x", rounding="x = 1\n")
    kernel.build(CPU, builder="local")
    done = kernel.release(address, partial=True, names=(CPU,))
    assert [(one.name, one.action) for one in done.plan.variants] == [(CPU, "add"), (CUDA, "keep")]
    value = recorded(api, repo_id, "v1", tmp_path)
    assert {name: one["release"] for name, one in value["variants"].items()} == {CPU: "1.0.1", CUDA: "1.0.0"}


def test_outside_of_git(
    kernel: Kernel, address: str, quick: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.build()
    (kernel.root / ".git").rename(kernel.root / "git")
    for name in (CPU, CUDA):
        path = kernel.root / "build" / name / "metadata.json"
        value = json.loads(path.read_bytes())
        del value["provenance"]["kernel"]
        path.write_text(json.dumps(value))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(kernel.root.parent))
    assert str(kernel.release(address).plan.version) == "1.0.0"
    assert kernel.release(address).is_unchanged
    monkeypatch.setattr(client, "_says_it_is_embedded", lambda url: False)
    with pytest.raises(WrongInput, match="not in a git repository"):
        kernel.release(address)


# The branch of a version, which others write to as well.


def test_variants_of_before_releases_are_kept_as_they_are(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, quick: list[str], tmp_path: Path, tree: Tree
) -> None:
    api.create_repo(repo_id, repo_type="kernel")
    put(api, repo_id, "main", "build/torch-xpu/__init__.py", b"old")
    api.create_branch(repo_id, branch="v1", repo_type="kernel")
    put(api, repo_id, "v1", "build/torch-universal/__init__.py", b"")
    metadata = {"name": "relu", "id": "relu_1", "version": 1, "license": "MIT", "python-depends": [],
                "backend": {"type": "xpu"}}  # fmt: skip
    for name in ("torch-xpu", "torch-universal"):
        put(api, repo_id, "v1", f"build/{name}/metadata.json", json.dumps(metadata).encode())
    put(api, repo_id, "v1", f"build/{CPU}/stale.py", b"x")
    put(api, repo_id, "v1", "README.md", b"# old\n")
    kernel.build()
    kernel.release(address)
    files = tree(repo_id, "v1")
    assert {path.split("/")[1] for path in files if path.startswith("build/")} == {
        CPU, CUDA, "torch-universal", "torch-xpu",
    }  # fmt: skip
    assert f"build/{CPU}/stale.py" not in files
    assert "README.md" in files
    assert recorded(api, repo_id, "v1", tmp_path)["unknown"] == ["torch-universal", "torch-xpu"]


def _meanwhile(monkeypatch: pytest.MonkeyPatch, branch: str, act: Callable[[], None], times: int = 1) -> None:
    """Have somebody else act right before each of the next commits to ``branch``."""
    real = client.commit
    left = [act] * times

    def commit(hub: Any, repo_id: str, to: str, *arguments: Any, **options: Any) -> str | None:
        if to == branch and left:
            left.pop()()
        return real(hub, repo_id, to, *arguments, **options)

    monkeypatch.setattr(client, "commit", commit)


def test_what_others_commit_beside_the_release_is_kept(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, quick: list[str], monkeypatch: pytest.MonkeyPatch,
    tree: Tree,
) -> None:  # fmt: skip
    kernel.build()
    kernel.release(address)
    kernel.commit("fix: x", rounding="x = 1\n")
    kernel.build()
    _meanwhile(monkeypatch, "v1", lambda: put(api, repo_id, "v1", "notes.txt", b"theirs"))
    kernel.release(address)
    assert titles(api, repo_id, "v1")[:3] == ["Release 1.0.1", "other", "Release 1.0.0"]
    assert "notes.txt" in tree(repo_id, "v1")
    assert len(quick) == 2


def test_a_variant_of_others_has_the_release_staged_and_verified_anew(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, quick: list[str], monkeypatch: pytest.MonkeyPatch,
    tree: Tree, tmp_path: Path,
) -> None:  # fmt: skip
    """What is promoted is what was verified, down to the last variant."""
    kernel.build()
    kernel.release(address)
    kernel.commit("fix: x", rounding="x = 1\n")
    kernel.build()
    metadata = {"name": "relu", "id": "relu_1", "version": 1, "license": "MIT", "python-depends": [],
                "backend": {"type": "xpu"}}  # fmt: skip
    path = "build/torch-xpu/metadata.json"
    _meanwhile(monkeypatch, "v1", lambda: put(api, repo_id, "v1", path, json.dumps(metadata).encode()))
    done = kernel.release(address)
    assert len(quick) == 3
    assert quick[-1] == done.staged
    assert path in tree(repo_id, done.commit)
    assert recorded(api, repo_id, "v1", tmp_path)["unknown"] == ["torch-xpu"]


def test_a_promotion_alone_does_not_stage_anew(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, quick: list[str]
) -> None:
    kernel.build()
    kernel.release(address)
    kernel.commit("fix: x", rounding="x = 1\n")
    kernel.build()
    kernel.release(address, stages=("stage",))
    put(api, repo_id, "v1", f"build/{CPU}/theirs.py", b"x")
    before = heads(api, repo_id)
    with pytest.raises(
        WrongSurroundings, match=r"v1 of .* was changed since 1.0.1 was staged .*release --stage"
    ):
        kernel.release(address, stages=("promote",))
    assert heads(api, repo_id) == before


def test_others_who_never_stop_end_the_attempt(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, quick: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.build()
    numbers = iter(range(100))
    act = lambda: put(api, repo_id, "release-1.0.0", "notes.txt", str(next(numbers)).encode())  # noqa: E731
    _meanwhile(monkeypatch, "release-1.0.0", act, times=100)
    with pytest.raises(WrongSurroundings, match="keep committing"):
        kernel.release(address)


def test_of_two_releases_at_once_one_wins_and_the_other_says_so(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, quick: list[str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    kernel.build()
    rival = Kernel(tmp_path / "rival", repo_id)
    rival.commit("Another commit")
    rival.build()

    def win() -> None:
        with monkeypatch.context() as undone:
            undone.setattr(client, "commit", real)
            rival.release(address)

    real = client.commit
    _meanwhile(monkeypatch, "v1", win)
    with pytest.raises(WrongInput, match=r"1\.0\.0 of .* was released from another commit"):
        kernel.release(address)
    assert titles(api, repo_id, "v1") == ["Release 1.0.0", "initial commit"]
    assert kernel.tags(kernel.origin) == {}


def test_what_was_not_verified_is_not_promoted(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, quick: list[str]
) -> None:
    kernel.build()
    prepared = release.prepare(kernel.root, address=address)
    first = release.stage(prepared)
    verified = release.verify(prepared, first)
    put(api, repo_id, "release-1.0.0", f"build/{CPU}/theirs.py", b"x")
    with pytest.raises(release.Moved):
        release.promote(prepared, first, verified)
    second = release.stage(prepared)
    with pytest.raises(KernelFailed, match="was not verified as it is staged"):
        release.promote(prepared, second, verified)
    assert heads(api, repo_id).keys() == {"main", "release-1.0.0"}
    assert release.stage(prepared) == protocol.Staged(second.commit, second.record)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_commit_that_claims_the_version_is_not_tagged(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, quick: list[str], is_known: bool
) -> None:
    """Somebody else's commit, with the record and the title of the release, and other files."""
    kernel.build()
    staged = kernel.release(address, stages=("stage",)).staged
    api.create_branch(repo_id, branch="v1", repo_type="kernel", revision=staged)
    operation = CommitOperationAdd(f"build/{CPU}/__init__.py", b"import theirs\n")
    api.create_commit(repo_id, [operation], commit_message="Release 1.0.0", repo_type="kernel", revision="v1")
    with pytest.raises(KernelFailed, match=r"claims to be 1\.0\.0, and does not hold what was verified"):
        kernel.release(address, stages=("promote",), verified_before=staged if is_known else "0" * 40)
    assert kernel.tags(kernel.origin) == {} and api.list_repo_refs(repo_id, repo_type="kernel").tags == []


def test_a_promotion_without_a_stage(kernel: Kernel, address: str, quick: list[str]) -> None:
    with pytest.raises(WrongInput, match=r"1.0.0 is not staged .*release --stage"):
        kernel.release(address, stages=("promote",))
    kernel.build()
    kernel.release(address, stages=("stage",))
    kernel.commit("later")
    with pytest.raises(WrongInput, match=r"what is staged for 1\.0\.0 is of commit"):
        kernel.release(address, stages=("promote",))


def test_an_older_release_is_left_alone(kernel: Kernel, address: str, quick: list[str]) -> None:
    kernel.build()
    kernel.release(address)
    kernel.commit("fix: x", rounding="x = 1\n")
    kernel.build()
    kernel.release(address)
    git(kernel.root, "checkout", "--quiet", "v1.0.0")
    done = kernel.release(address)
    assert (str(done.plan.version), done.is_unchanged) == ("1.0.0", True)


# The end of everything: killed.

_WRITES = (
    "create_repository", "create_branch", "commit", "create_tag", "delete_branch",
)  # fmt: skip


def _killed_at(kernel: Kernel, address: str, point: int) -> bool:
    """Release in a process that is killed right after its ``point``-th change to the Hub or to git;
    false when it got to its end before."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _kill_after(point)
            kernel.release(address)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.waitstatus_to_exitcode(status) == 0
    return False


def _kill_after(point: int) -> None:
    left = [point]

    def killing(real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            answer = real(*arguments, **options)
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        return wrapped

    for name in _WRITES:
        setattr(client, name, killing(getattr(client, name)))
    for name in ("add_tag", "push_tag"):
        setattr(git_module, name, killing(getattr(git_module, name)))


def _finishes(kernel: Kernel, address: str, api: HfApi, version: str, count: int) -> None:
    """The next run finishes the release ``version``, the ``count``-th, and the one after that has
    nothing to do."""
    done = kernel.release(address)
    assert str(done.plan.version) == version
    assert titles(api, kernel.repo_id, "v1").count(f"Release {version}") == 1
    assert len(titles(api, kernel.repo_id, "v1")) == count + 1
    assert heads(api, kernel.repo_id).keys() == {"main", "v1"}
    assert hub_tags(api, kernel.repo_id)[f"v{version}"] == heads(api, kernel.repo_id)["v1"] == done.commit
    assert kernel.tags() == kernel.tags(kernel.origin)
    assert kernel.tags()[f"v{version}"] == kernel.head
    assert titles(api, kernel.repo_id, "main")[0] == f"Update the card to {version}"
    assert kernel.release(address).is_unchanged


def _is_whole(api: HfApi, repo_id: str, files: dict[str, str], tmp_path: Path) -> bool:
    """Whether v1 has a release, which then is whole."""
    found = {path.split("/")[1] for path in files if path.startswith("build/")}
    if found:
        assert found == recorded(api, repo_id, "v1", tmp_path)["variants"].keys() == {CPU, CUDA}
    return bool(found)


@pytest.mark.slow
def test_killed_after_any_change_the_next_run_finishes(
    tmp_path: Path, address: str, api: HfApi, repo_id: str, quick: list[str], tree: Tree
) -> None:
    point, is_killed = 0, True
    while is_killed:
        point += 1
        kernel = Kernel(tmp_path / str(point), f"{repo_id}-{point}")
        kernel.build()
        is_killed = _killed_at(kernel, address, point)
        if "v1" in heads(api, kernel.repo_id):
            _is_whole(api, kernel.repo_id, tree(kernel.repo_id, "v1"), tmp_path)
        _finishes(kernel, address, api, "1.0.0", 1)
    # The repository, the staging branch and its commit, the branch and its commit, the Hub's tag, the card,
    # the git tag here and in origin, and the staging branch again.
    assert point - 1 == 10


@pytest.mark.parametrize(("point", "what"), [(2, "staged"), (3, "promoted"), (5, "tagged, with its card")])
def test_a_later_release_that_was_killed_is_finished(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, quick: list[str], tree: Tree, tmp_path: Path,
    point: int, what: str,
) -> None:  # fmt: skip
    kernel.build()
    kernel.release(address)
    kernel.commit("fix: x", rounding="x = 1\n")
    (kernel.root / "CARD.md").write_text("# relu, mended\n")
    kernel.commit("docs: mend the card")
    kernel.build()
    assert _killed_at(kernel, address, point)
    assert _is_whole(api, repo_id, tree(repo_id, "v1"), tmp_path)
    assert recorded(api, repo_id, "v1", tmp_path)["release"] == ("1.0.0" if what == "staged" else "1.0.1")
    _finishes(kernel, address, api, "1.0.1", 2)
