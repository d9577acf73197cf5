"""general.hub.branch of build.toml: the branch on the Hub in place of v and the major version."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi
from kernel_actions import freshness, release
from kernel_actions.errors import WrongInput
from kernel_actions.hub import client
from kernel_actions.release import record, rollback

from tests.release.helpers import CPU, CUDA, Kernel, command

Tree = Callable[..., dict[str, str]]
# As kernels-community/sonic-moe has it at 40d4194f.
BRANCH = "ep-support"


@pytest.fixture
def branched(kernel: Kernel) -> Kernel:
    """The kernel, whose build.toml names a branch."""
    set_branch(kernel, BRANCH)
    kernel.build()
    return kernel


def set_branch(kernel: Kernel, branch: str) -> None:
    path = kernel.root / "build.toml"
    text = path.read_text().replace("\n[torch-noarch]", f'branch = "{branch}"\n\n[torch-noarch]')
    path.write_text(text)
    kernel.commit(f"Publish to {branch}")


def branches(api: HfApi, repo_id: str) -> set[str]:
    return {one.name for one in api.list_repo_refs(repo_id, repo_type="kernel").branches}


def test_a_release_goes_to_the_branch(
    branched: Kernel, address: str, api: HfApi, quick: list[str], tree: Tree
) -> None:
    done = branched.release(address)
    assert done.plan.branch == BRANCH
    assert branches(api, branched.repo_id) == {"main", BRANCH}
    assert api.repo_info(branched.repo_id, revision=BRANCH, repo_type="kernel").sha == done.commit
    tags = api.list_repo_refs(branched.repo_id, repo_type="kernel").tags
    assert [one.name for one in tags] == ["v1.0.0"]
    hub = client.connect(address)
    data = client.read_file(hub, branched.repo_id, BRANCH, record.FILE_NAME)
    assert data is not None and record.read(data, "x").branch == BRANCH
    assert branched.release(address).is_unchanged
    branched.commit("fix: again")
    branched.build()
    second = branched.release(address)
    assert str(second.plan.version) == "1.0.1"
    assert api.repo_info(branched.repo_id, revision=BRANCH, repo_type="kernel").sha == second.commit


def test_the_loader_loads_it_by_its_revision(branched: Kernel, address: str, quick: list[str]) -> None:
    branched.release(address)
    told = command(branched.root, "release", "--hub", address, "--dry-run").stdout
    assert (
        f'get_kernel("{branched.repo_id}", revision="{BRANCH}") loads it; version=1 loads the branch v1'
        in told
    )


def test_a_version_branch_beside_it_stays_as_it_is(
    kernel: Kernel, address: str, api: HfApi, quick: list[str], tree: Tree
) -> None:
    kernel.build()
    first = kernel.release(address)
    set_branch(kernel, BRANCH)
    kernel.build()
    second = kernel.release(address)
    assert api.repo_info(kernel.repo_id, revision="v1", repo_type="kernel").sha == first.commit
    assert api.repo_info(kernel.repo_id, revision=BRANCH, repo_type="kernel").sha == second.commit
    # One history of versions: git and the Hub have one tag of each.
    assert (str(first.plan.version), str(second.plan.version)) == ("1.0.0", "1.0.1")


def test_a_rollback_goes_back_on_the_branch(
    branched: Kernel, address: str, api: HfApi, quick: list[str]
) -> None:
    first = branched.release(address)
    branched.commit("fix: again", extra="x = 1\n")
    branched.build()
    second = branched.release(address)
    hub = client.connect(address)
    for to in ("v1.0.0", first.commit[:12]):
        made = rollback.prepare(hub, branched.repo_id, to)
        assert made.branch == BRANCH and [one.release for one in made.taken] == ["1.0.1"]
    done = rollback.carry_out(made)
    assert api.repo_info(branched.repo_id, revision=BRANCH, repo_type="kernel").sha == done.commit
    data = client.read_file(hub, branched.repo_id, BRANCH, record.FILE_NAME)
    found = record.read(data or b"", "x")
    assert (str(found.release), found.branch) == ("1.0.0", BRANCH)
    assert [one.commit for one in found.rolled_back] == [second.commit]


def test_freshness_looks_at_the_branch(branched: Kernel, address: str, quick: list[str]) -> None:
    branched.release(address)
    hub = client.connect(address, is_anonymous=True)
    found = freshness.read(branched.root, freshness.builder.newest()[0], hub)
    assert (found.branch, found.published) == (BRANCH, {CPU, CUDA})


def test_verification_of_the_branch(branched: Kernel, address: str, quick: list[str]) -> None:
    branched.release(address)
    finished = command(
        branched.root, "verify", "--repo-id", branched.repo_id, "--revision", BRANCH, "--hub", address,
        "--no-load", "--format", "json",
    )  # fmt: skip
    value: dict[str, Any] = json.loads(finished.stdout)
    assert (finished.returncode, value["release"], value["verdict"]) == (0, "1.0.0", "passed")


@pytest.mark.parametrize("branch", ["v2", "v01", "v0", "main", "release-1.0.0"])
def test_branches_that_mean_something_else(kernel: Kernel, address: str, branch: str) -> None:
    set_branch(kernel, branch)
    with pytest.raises(WrongInput, match=f"branch is '{branch}', which") as caught:
        release.prepare(kernel.root, address=address)
    assert caught.value.where is not None and caught.value.where.path == Path(kernel.root / "build.toml")
    assert caught.value.where.line == 10


def test_the_versions_own_branch_may_be_named(kernel: Kernel, address: str, quick: list[str]) -> None:
    set_branch(kernel, "v1")
    kernel.build()
    done = kernel.release(address)
    assert done.record is not None and b'"branch"' not in done.record.as_bytes()
