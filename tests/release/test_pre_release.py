"""Pre-releases, which nobody loads who does not ask for them, and moving git tags."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi
from kernel_actions import git as git_module
from kernel_actions.errors import WrongInput, WrongSurroundings
from kernel_actions.hub import client
from kernel_actions.release import protocol, rollback

from tests.release.helpers import Kernel, command, git
from tests.release.test_release import heads, hub_tags, put, recorded, titles

Tree = Callable[[str, str], dict[str, str]]


@pytest.fixture
def released(kernel: Kernel, address: str, quick: list[str]) -> Kernel:
    """1.0.0, and a new feature after it."""
    kernel.build()
    kernel.release(address)
    kernel.commit("feat: add gelu", gelu="x = 1\n")
    kernel.build()
    return kernel


def test_a_pre_release_moves_nobody(
    released: Kernel, address: str, api: HfApi, repo_id: str, tree: Tree, tmp_path: Path
) -> None:
    before = heads(api, repo_id)
    (released.root / "CARD.md").write_text("# relu, of tomorrow\n")
    released.commit("docs: look ahead")
    released.build()
    done = released.release(address, pre="rc", moving_tags=True)
    assert str(done.plan.version) == "1.1.0-rc.1"
    # Both branches, the card on main included, are what they were; the staging branch is gone.
    assert heads(api, repo_id) == before
    assert hub_tags(api, repo_id) == {"v1.0.0": before["v1"], "v1.1.0-rc.1": done.commit}
    assert titles(api, repo_id, "v1.1.0-rc.1")[0] == "Pre-release 1.1.0-rc.1"
    assert any(path.endswith("/gelu.py") for path in tree(repo_id, "v1.1.0-rc.1"))
    assert recorded(api, repo_id, "v1.1.0-rc.1", tmp_path)["release"] == "1.1.0-rc.1"
    assert released.tags(released.origin).keys() == {"v1.0.0", "v1.1.0-rc.1"}
    assert done.verified is not None and done.verified.commit == done.commit
    # Again: it is done.
    assert released.release(address, pre="rc").is_unchanged
    # The next one, of another commit, is the second; and then the release itself.
    released.commit("fix: gelu", gelu="x = 2\n")
    released.build()
    assert str(released.release(address, pre="rc").plan.version) == "1.1.0-rc.2"
    done = released.release(address)
    assert (str(done.plan.version), heads(api, repo_id)["v1"]) == ("1.1.0", done.commit)
    assert [one.subject for one in done.plan.commits] == ["gelu", "look ahead", "add gelu"]
    with pytest.raises(WrongInput, match="there is nothing to make a pre-release of"):
        released.release(address, pre="rc")


@pytest.mark.slow
def test_a_kernel_may_begin_with_a_pre_release(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, quick: list[str]
) -> None:
    kernel.build()
    finished = command(kernel.root, "release", "--pre", "beta", "--dry-run", "--hub", address)
    assert finished.returncode == 0, finished.stderr
    assert "relu 1.0.0-beta.1: the first release; a pre-release of 1.0.0" in finished.stdout
    assert "release-1.0.0-beta.1, then the tag v1.0.0-beta.1; v1 stays as it is" in finished.stdout
    done = kernel.release(address, pre="beta")
    assert heads(api, repo_id).keys() == {"main"}
    assert hub_tags(api, repo_id) == {"v1.0.0-beta.1": done.commit}
    assert str(kernel.release(address).plan.version) == "1.0.0"


@pytest.mark.slow
def test_a_pre_release_in_two_steps_as_the_jobs_have_it(
    released: Kernel, address: str, api: HfApi, repo_id: str
) -> None:
    staged = released.release(address, pre="rc", stages=("stage",))
    done = released.release(address, bump=str(staged.plan.version), stages=("promote",))
    assert (str(done.plan.version), done.commit) == ("1.1.0-rc.1", staged.staged)
    assert hub_tags(api, repo_id)["v1.1.0-rc.1"] == staged.staged


@pytest.mark.slow
def test_numbers_are_used_once_whatever_branch_and_side_they_are_on(
    released: Kernel, address: str, api: HfApi, repo_id: str
) -> None:
    released.release(address, pre="rc", git_tag=False)  # On the Hub alone.
    git(released.root, "switch", "--quiet", "--create", "side")
    released.commit("fix: of another branch", gelu="x = 3\n")
    released.build()
    assert str(released.release(address, pre="rc").plan.version) == "1.1.0-rc.2"
    git(released.root, "switch", "--quiet", "main")
    released.commit("fix: of this one", gelu="x = 4\n")
    released.build()
    assert str(released.release(address, pre="rc").plan.version) == "1.1.0-rc.3"
    # A higher pre-release of another branch decides nothing here.
    git(released.root, "switch", "--quiet", "side")
    released.commit("fix: more", gelu="x = 5\n")
    released.build()
    released.release(address, bump="1.7.0-rc.1")
    git(released.root, "switch", "--quiet", "main")
    released.build()
    assert str(released.release(address).plan.version) == "1.1.0"


@pytest.mark.slow
def test_a_pre_release_of_another_commit_is_refused_and_none_is_gone_back_to(
    released: Kernel, address: str, api: HfApi, repo_id: str
) -> None:
    released.release(address, bump="1.1.0-rc.1")
    released.commit("fix: x", gelu="x = 2\n")
    released.build()
    with pytest.raises(WrongInput, match=r"1\.1\.0-rc\.1 was released already"):
        released.release(address, bump="1.1.0-rc.1")
    with pytest.raises(WrongInput, match=r"never held \(give one of v1\.0\.0\)"):
        rollback.prepare(client.connect(address), repo_id, "v1.1.0-rc.1")


@pytest.mark.slow
def test_what_others_change_in_between_is_staged_and_verified_anew(
    released: Kernel, address: str, api: HfApi, repo_id: str, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = protocol.verify
    seen: list[str] = []

    def verify(prepared: Any, staged: protocol.Staged, before: str) -> Any:
        found = real(prepared, staged, before)
        if not seen:
            put(api, repo_id, "release-1.1.0-rc.1", "build/torch-cpu/theirs.py", b"x")
        seen.append(staged.commit)
        return found

    monkeypatch.setattr("kernel_actions.release.verify", verify)
    done = released.release(address, pre="rc")
    assert len(seen) == 2
    assert hub_tags(api, repo_id)["v1.1.0-rc.1"] == done.commit == seen[-1]
    assert "build/torch-cpu/theirs.py" not in tree(repo_id, "v1.1.0-rc.1")


# Moving tags.


def test_moving_tags_follow_the_latest_release(
    released: Kernel, address: str, api: HfApi, repo_id: str
) -> None:
    first = git(released.root, "rev-parse", "v1.0.0^{commit}")
    git(released.root, "tag", "v1", first)  # As somebody made it by hand.
    git(released.root, "push", "--quiet", "origin", "v1")
    done = released.release(address, moving_tags=True)
    assert done.tagged is not None
    assert done.tagged.done[-5:-1] == (
        "the tag v1 moved", "the tag v1 moved in origin",
        "the tag v1.1 moved", "the tag v1.1 moved in origin",
    )  # fmt: skip
    for tags in (released.tags(), released.tags(released.origin)):
        assert tags == {"v1.0.0": first, "v1.1.0": released.head, "v1.1": released.head, "v1": released.head}
    assert git(released.root, "cat-file", "-t", "v1") == "tag"
    assert released.release(address, moving_tags=True).is_unchanged
    # An older release that is run again takes nothing back but what is its own.
    git(released.root, "checkout", "--quiet", "v1.0.0")
    released.release(address, moving_tags=True)
    tags = released.tags(released.origin)
    assert (tags["v1"], tags["v1.0"], tags["v1.1"]) == (done.plan.commit, first, done.plan.commit)


@pytest.mark.slow
def test_moving_tags_that_cannot_be_moved_are_told_when_all_else_is_done(
    released: Kernel, address: str, api: HfApi, repo_id: str
) -> None:
    hook = released.origin / "hooks" / "update"
    hook.write_text('#!/bin/sh\ncase "$1" in refs/tags/v1) echo protected >&2; exit 1;; esac\n')
    hook.chmod(0o755)
    with pytest.raises(WrongSurroundings, match=r"the git tag v1 .*cannot be pushed to origin"):
        released.release(address, moving_tags=True)
    assert hub_tags(api, repo_id).keys() == {"v1.0.0", "v1.1.0"}
    assert released.tags(released.origin).keys() == {"v1.0.0", "v1.1.0"}
    hook.unlink()
    done = released.release(address, moving_tags=True)
    assert done.tagged is not None and "the tag v1 moved in origin" in done.tagged.done
    assert git_module.remote_tags(released.root, "origin", "v1.1") == {
        "v1.1": released.head, "v1.1.0": released.head,
    }  # fmt: skip
