"""``lock``: what users of kernels are told about their lock, and what an update does to it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from huggingface_hub import HfApi

from tests.consumers.helpers import (
    CPU,
    CUDA,
    ROCM,
    commits,
    program,
    project,
    publish,
    run,
    user_environment,
)


def test_a_lock_is_made_outdated_rolled_forward_and_found_rolled_back(
    api: HfApi, hub: str, repo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(api, repo, [CPU, CUDA], release="1.0.0")
    folder = project(tmp_path, {repo: 1})
    asked = ("lock", "--project", folder, "--hub", hub)

    assert run(*asked) == 1
    assert "there is no lock" in capsys.readouterr().err
    assert run(*asked, "--mode", "update") == 0
    assert run(*asked) == 0
    assert "newest" in capsys.readouterr().out
    before = (folder / "kernels.lock").read_bytes()
    assert run(*asked, "--mode", "update") == 0
    assert "is as it was" in capsys.readouterr().out
    assert (folder / "kernels.lock").read_bytes() == before

    newer = publish(api, repo, [CPU, ROCM], release="1.1.0")
    assert run(*asked) == 0
    assert "outdated: 1.1.0 is newer" in capsys.readouterr().out
    assert run(*asked, "--newest") == 1
    assert "1 is outdated" in capsys.readouterr().err
    assert run(*asked, "--mode", "update", "--format", "json") == 0
    (change,) = json.loads(capsys.readouterr().out)["kernels"]
    assert (change["gained"], change["lost"]) == ([ROCM], [CUDA])
    assert (change["from_release"], change["to_release"]) == ("1.0.0", "1.1.0")
    assert commits(folder) == {repo: newer}
    assert run(*asked, "--newest") == 0
    capsys.readouterr()

    # The branch goes back to what it was, in a commit of its own; later there is another release.
    publish(api, repo, [CPU, CUDA], release="1.0.0")
    assert run(*asked) == 1
    assert "1.1.0 was rolled back: v1 went back to 1.0.0" in capsys.readouterr().err
    publish(api, repo, [CPU, CUDA], release="1.2.0")
    assert run(*asked) == 1
    assert "1.1.0 was rolled back" in capsys.readouterr().err
    assert run(*asked, "--mode", "update") == 0
    assert run(*asked, "--newest") == 0


@pytest.mark.parametrize(
    "marks", [[{"release": "1.1.0", "reason": "wrong"}], ["1.1.0"], [{"release": "v1.1.0"}]]
)
def test_a_release_that_the_record_marks_is_rolled_back(
    api: HfApi, hub: str, repo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], marks: object
) -> None:
    publish(api, repo, release="1.1.0")
    folder = project(tmp_path, {repo: 1})
    assert run("lock", "--mode", "update", "--project", folder, "--hub", hub) == 0
    publish(api, repo, release="1.2.0", marks=marks)
    assert run("lock", "--project", folder, "--hub", hub) == 1
    assert "1.1.0 was rolled back" in capsys.readouterr().err


@pytest.mark.parametrize("marks", [[], {}, "1.1.0", [1, None, {"release": 3}], [{"release": "1.0.0"}]])
def test_a_record_that_marks_nothing_of_it_is_no_matter(
    api: HfApi, hub: str, repo: str, tmp_path: Path, marks: object
) -> None:
    publish(api, repo, release="1.1.0", marks=marks)
    folder = project(tmp_path, {repo: 1})
    assert run("lock", "--mode", "update", "--project", folder, "--hub", hub) == 0
    assert run("lock", "--project", folder, "--hub", hub) == 0


def test_a_release_that_is_there_again_is_none_that_was_rolled_back(
    api: HfApi, hub: str, repo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(api, repo, release="1.1.0")
    folder = project(tmp_path, {repo: 1})
    assert run("lock", "--mode", "update", "--project", folder, "--hub", hub) == 0
    publish(api, repo, release="1.0.0")
    assert run("lock", "--project", folder, "--hub", hub) == 1
    publish(api, repo, [CPU, CUDA], release="1.1.0")
    assert run("lock", "--project", folder, "--hub", hub) == 0
    assert run("lock", "--newest", "--project", folder, "--hub", hub) == 1
    # The same release with the same variants is nothing newer.
    publish(api, repo, release="1.0.0")
    publish(api, repo, release="1.1.0")
    assert run("lock", "--newest", "--project", folder, "--hub", hub) == 0


def test_a_release_whose_tag_is_marked_is_rolled_back(
    api: HfApi, hub: str, repo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = publish(api, repo, release="1.1.0")
    folder = project(tmp_path, {repo: 1})
    assert run("lock", "--mode", "update", "--project", folder, "--hub", hub) == 0
    api.create_tag(repo, tag="v1.1.0-rolled-back", revision=bad, repo_type="kernel")
    assert run("lock", "--project", folder, "--hub", hub) == 1
    assert "v1.1.0-rolled-back" in capsys.readouterr().err


def test_the_lock_is_the_file_that_kernels_writes(api: HfApi, hub: str, repo: str, tmp_path: Path) -> None:
    publish(api, repo)
    publish(api, f"{repo}-b", version=3)
    publish(
        api,
        f"{repo}-a",
        **{"kernel-depends": [{"repo-id": repo, "version": 1}, {"repo-id": f"{repo}-b", "version": 3}]},
    )
    ours = project(tmp_path / "ours", {f"{repo}-a": 1})
    theirs = project(tmp_path / "theirs", {f"{repo}-a": 1})
    assert run("lock", "--mode", "update", "--project", ours, "--hub", hub) == 0
    subprocess.run(
        [program("kernels"), "lock", "."],
        cwd=theirs,
        env=user_environment(HF_ENDPOINT=hub, HF_HUB_DISABLE_XET="1", HF_HOME=str(tmp_path / "home")),
        check=True,
        capture_output=True,
    )
    assert (ours / "kernels.lock").read_bytes() == (theirs / "kernels.lock").read_bytes()
    assert set(commits(ours)) == {repo, f"{repo}-a", f"{repo}-b"}
    assert run("lock", "--project", ours, "--hub", hub) == 0


def test_a_kernel_that_a_locked_one_needs_has_to_be_locked(
    api: HfApi, hub: str, repo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(api, repo)
    publish(api, f"{repo}-a", **{"kernel-depends": [{"repo-id": repo, "version": 1}]})
    folder = project(tmp_path, {f"{repo}-a": 1})
    assert run("lock", "--mode", "update", "--project", folder, "--hub", hub) == 0
    lock = folder / "kernels.lock"
    whole = json.loads(lock.read_text())
    lock.write_text(json.dumps([one for one in whole if one["dependency"]["repo-id"] != repo]))
    assert run("lock", "--project", folder, "--hub", hub) == 1
    assert f"{repo} 1 is not locked, and a locked kernel needs it" in capsys.readouterr().err
    project(tmp_path, {repo: 1})
    lock.write_text(json.dumps(whole))
    assert run("lock", "--project", folder, "--hub", hub) == 1
    assert f"{repo}-a 1 is locked, but neither declared nor needed" in capsys.readouterr().err


@pytest.mark.parametrize("trust", ['["{repo}"]', "true"])
def test_publishers_that_the_hub_does_not_trust_need_the_projects_word(
    api: HfApi, distrustful: str, repo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], trust: str
) -> None:
    publish(api, repo)
    folder = project(tmp_path, {repo: 1})
    assert run("lock", "--mode", "update", "--project", folder, "--hub", distrustful) == 2
    said = capsys.readouterr().err
    assert "not of a publisher that the Hub lists as trusted" in said
    assert f'trust-remote-code = ["{repo}"]' in said and "pyproject.toml:2" in said
    assert not (folder / "kernels.lock").exists()
    project(tmp_path, {repo: 1}, f"trust-remote-code = {trust.format(repo=repo)}")
    assert run("lock", "--mode", "update", "--project", folder, "--hub", distrustful) == 0
    assert run("lock", "--project", folder, "--hub", distrustful) == 0


def test_each_declared_platform_needs_a_variant(
    api: HfApi, hub: str, repo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(api, repo, [CUDA])
    # CUDA 13.2 takes what is built for 13.0.
    folder = project(tmp_path, {repo: 1}, 'platforms = ["torch2.13-cu13.2-x86_64-linux"]')
    asked = ("lock", "--project", folder, "--hub", hub)
    assert run(*asked, "--mode", "update") == 0
    assert run(*asked) == 0
    before = (folder / "kernels.lock").read_bytes()
    capsys.readouterr()
    assert run(*asked, "--platforms", "torch2.12-cu13.0-x86_64-linux torch213-cpu-x86_64-linux") == 1
    said = capsys.readouterr().err
    assert said.count("has no variant for") == 2 and CUDA in said
    publish(api, repo, [CPU])
    assert run(*asked, "--mode", "update") == 1
    assert "has no variant for torch2.13-cu13.2-x86_64-linux" in capsys.readouterr().err
    assert (folder / "kernels.lock").read_bytes() == before


def test_a_lock_that_was_edited_by_hand_is_told_of(
    api: HfApi, hub: str, repo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = publish(api, repo)
    other = publish(api, repo, version=2)
    folder = project(tmp_path, {repo: 1})

    def check(text: str) -> str:
        (folder / "kernels.lock").write_text(text)
        code = run("lock", "--project", folder, "--hub", hub)
        said = capsys.readouterr().err
        assert "Traceback" not in said
        return f"{code} {said}"

    def locked(commit: str, version: int = 1, repo_id: str = repo) -> str:
        return json.dumps(
            [{"dependency": {"repo-id": repo_id, "version": version}, "lock": {"commit": commit}}]
        )

    assert check(locked(commit)).startswith("0 ")
    assert "is not a commit of v1" in check(locked(other))
    assert f"has no commit {'f' * 12}" in check(locked("f" * 40))
    assert "locked at version 2, not 1" in check(locked(other, 2))
    assert "has no version 9" in check(locked(commit, 9))
    assert f"{repo}-none does not exist" in check(locked(commit, repo_id=f"{repo}-none"))
    assert f"1 {folder}/kernels.lock: {repo} is not locked".replace("1 ", "1 kernel-actions: ", 1) in check(
        "[]"
    )
    for text in (
        '{"version": 2, "locks": []}',  # of a later format
        locked("abc"),
        locked(commit)[:-5],
        locked(commit).replace("commit", "sha"),
        locked(commit, repo_id="../../etc/passwd"),
        "\0",
        "",
        "[" * 100_000,
    ):
        answer = check(text)
        assert answer.startswith("2 ") and len(answer.strip().splitlines()) == 1, answer
    (folder / "kernels.lock").write_bytes(b"\xff\xfe")
    assert run("lock", "--project", folder, "--hub", hub) == 2
    (folder / "kernels.lock").unlink()
    (folder / "kernels.lock").mkdir()
    assert run("lock", "--project", folder, "--hub", hub) == 2


def test_an_update_replaces_a_lock_that_cannot_be_read(
    api: HfApi, hub: str, repo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = publish(api, repo)
    folder = project(tmp_path, {repo: 1})
    (folder / "kernels.lock").write_text("{")
    assert run("lock", "--mode", "update", "--project", folder, "--hub", hub) == 0
    assert "is written anew" in capsys.readouterr().err
    assert commits(folder) == {repo: commit}


def test_unknown_repositories_and_versions_are_wrong_input(
    api: HfApi, hub: str, repo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(api, repo)
    cannot = ", or the token may not read it (check its name, or give a token that may)"
    trusted = f'trust-remote-code = ["{repo}-none"]'
    for name, version, own, words in (
        (f"{repo}-none", 1, "", cannot),
        (f"{repo}-none", 1, trusted, cannot),
        (repo, 7, "", f"kernels cannot lock {repo}: Version 7 not found, available versions: 1"),
    ):
        folder = project(tmp_path, {name: version}, own)
        assert run("lock", "--mode", "update", "--project", folder, "--hub", hub) == 2
        said = capsys.readouterr().err
        assert len(said.strip().splitlines()) == 1 and words in said
        assert not (folder / "kernels.lock").exists()


def test_without_a_hub_the_surroundings_are_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = project(tmp_path, {"acme/gray": 1})
    assert run("lock", "--mode", "update", "--project", folder, "--hub", "http://127.0.0.1:9") == 3
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


BROKEN = {
    "no table": ("[tool.black]\n", "declares no kernels"),
    "empty table": ("[tool.kernels.dependencies]\n", "declares no kernels"),
    "no TOML": ("[tool.kernels.dependencies\n", "is not valid TOML"),
    "a list": ("[tool.kernels]\ndependencies = []\n", "tool.kernels.dependencies is not a table"),
    "a text for a table": ('tool = "x"\n', "tool is not a table"),
    "an old range": (
        '[tool.kernels.dependencies]\n"kernels-community/relu" = ">=0.0.2"\n',
        "pyproject.toml:2:28: kernels-community/relu: '>=0.0.2' is a range, which",
    ),
    "a version as text": ('[tool.kernels.dependencies]\n"a/b" = "1"\n', "is a text, not a number"),
    "a fraction": ('[tool.kernels.dependencies]\n"a/b" = 1.5\n', "is not a whole number"),
    "a boolean": ('[tool.kernels.dependencies]\n"a/b" = true\n', "is not a whole number"),
    "a negative": ('[tool.kernels.dependencies]\n"a/b" = -1\n', "is no version"),
    "a large one": ('[tool.kernels.dependencies]\n"a/b" = 99999999999\n', "is no version"),
    "no owner": ("[tool.kernels.dependencies]\nrelu = 1\n", "is not of the form owner/name"),
    "a path": ('[tool.kernels.dependencies]\n"../x" = 1\n', "is not of the form owner/name"),
    "an escape": ('[tool.kernels.dependencies]\n"a/b\\u001b[2J" = 1\n', "is not of the form owner/name"),
    "an unknown key": (
        '[tool.kernels.dependencies]\n"a/b" = 1\n[tool.kernel-actions]\ntrust = true\n',
        "no key 'trust'",
    ),
    "a wrong trust": (
        '[tool.kernels.dependencies]\n"a/b" = 1\n[tool.kernel-actions]\ntrust-remote-code = "a/b"\n',
        "neither true, false nor a list",
    ),
    "a wrong platform": (
        '[tool.kernels.dependencies]\n"a/b" = 1\n[tool.kernel-actions]\nplatforms = ["linux"]\n',
        "'linux' is not the name of a platform",
    ),
}


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN)
def test_what_is_wrong_in_pyproject_is_told_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    for command in (("lock",), ("lock", "--mode", "update"), ("download",)):
        assert run(*command, "--project", tmp_path, "--hub", "http://127.0.0.1:9") == 2
        said = capsys.readouterr().err
        assert message in said and "\x1b" not in said and "Traceback" not in said


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project(tmp_path, '"a/b" = ">=1"\nc = 1\n"d/e" = 1\n', 'platforms = ["x"]')
    assert run("lock", "--project", tmp_path) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 3


def test_a_folder_without_pyproject_is_no_project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("lock", "--project", tmp_path) == 2
    assert "there is no such file (give the folder of a project" in capsys.readouterr().err
