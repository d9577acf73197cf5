"""What the builder makes at each revision that public kernels lock goes to the Hub, and back."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from kernel_actions import built, provenance, release
from kernel_actions.errors import KernelFailed
from kernel_actions.release import record, rollback, verification

from tests.release import as_built
from tests.release.as_built import LAST_WITHOUT_DIGEST, PUBLIC, REVISIONS
from tests.release.helpers import CPU, CUDA, Kernel
from huggingface_hub import HfApi


@pytest.fixture
def made(kernel: Kernel) -> Callable[..., Kernel]:
    """The kernel, locked to a revision, and built by it."""

    def make(revision: str, *, report: bool = True) -> Kernel:
        as_built.lock(kernel, revision)
        if revision in (as_built.FIRST_WITH_DIGEST, LAST_WITHOUT_DIGEST, PUBLIC[-1]):
            # They know no edition 5.
            path = kernel.root / "build.toml"
            path.write_text(path.read_text().replace("edition = 5\n", ""))
        kernel.commit("Lock the builder")
        as_built.build(kernel, revision, report=report)
        return kernel

    return make


@pytest.mark.parametrize("revision", REVISIONS, ids=lambda one: one[:8])
def test_a_release_of_what_each_builder_makes(
    made: Callable[..., Kernel], address: str, quick: list[str], revision: str, api: HfApi
) -> None:
    """The whole gate, rules included, then stage, verify, promote and tag."""
    kernel = made(revision)
    prepared = release.prepare(kernel.root, address=address)
    assert [str(one) for one in release.lacks(prepared)] == []
    done = release.carry_out(prepared)
    assert done.verified is not None and done.verified.is_passed
    assert {one.name: one.result for one in done.verified.variants} == {CPU: "loaded", CUDA: "tested"}
    # What Nix built is published as it is.
    for name in (CPU, CUDA):
        path = api.hf_hub_download(
            kernel.repo_id, f"build/{name}/metadata.json", revision="v1", repo_type="kernel"
        )
        assert open(path, "rb").read() == (kernel.root / "build" / name / "metadata.json").read_bytes()
    assert kernel.release(address).is_unchanged
