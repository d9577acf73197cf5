"""Which commit a variant is from, as the builder writes it at each revision, and as our build report does."""

from __future__ import annotations

from typing import Any

import pytest
from kernel_actions import provenance
from kernel_actions.provenance import Provenance

COMMIT = "d45addadb0c380f3d7cc2813310b3bcd75f8aa9a"
OTHER = "0" * 40
# A variant that was published: kernels-data/tests/data/legacy-sha-provenance.json of huggingface/kernels at
# 8ac69fc5.
EINOPS: dict[str, Any] = {
    "name": "einops",
    "id": "_einops_cpu_d45adda",
    "backend": {"type": "cpu"},
    "provenance": {
        "kernel-builder": {
            "version": "0.17.0-dev0",
            "sha": "d0610aa58db33b142c86b59598a2a1c730f52996",
            "dirty": False,
        },
        "kernel": {"sha": COMMIT, "dirty": False},
    },
}
OLD = {key: value for key, value in EINOPS.items() if key != "provenance"}
REPORT = {"builder": "nix", "commit": COMMIT, "dirty": False}
NOT_IN_ID = f"its build report names commit {OTHER[:12]}, which is not in its id"


def kernel(**state: Any) -> dict[str, Any]:
    return {**OLD, "provenance": {"kernel-builder": {"version": "1"}, "kernel": state}}


@pytest.mark.parametrize(
    ("metadata", "report", "expected"),
    [
        (EINOPS, {}, Provenance(COMMIT, False)),
        (kernel(commit=COMMIT, dirty=False), {}, Provenance(COMMIT, False)),
        (kernel(commit=COMMIT.upper(), dirty=False), {}, Provenance(COMMIT, False)),
        (kernel(commit="a" * 64, dirty=False), {}, Provenance("a" * 64, False)),
        (kernel(sha=COMMIT, dirty=True), {}, Provenance(COMMIT, True)),
        (kernel(sha=COMMIT), {}, Provenance(COMMIT, True)),
        # metadata.json comes first; that what was there was dirty is in the report of the build alone.
        (EINOPS, {**REPORT, "commit": OTHER}, Provenance(COMMIT, False)),
        (EINOPS, {**REPORT, "dirty": True}, Provenance(COMMIT, True)),
        # No object ids.
        (kernel(commit="main", dirty=False), {}, Provenance("", False)),
        (kernel(commit=COMMIT[:12], dirty=False), {}, Provenance("", False)),
        (kernel(commit=["x"], dirty=False), {}, Provenance("", False)),
        # Before 81580bb9.
        (OLD, {}, Provenance("", True)),
        (OLD, REPORT, Provenance(COMMIT, False)),
        (OLD, {**REPORT, "dirty": True}, Provenance(COMMIT, True)),
        (OLD, {"commit": COMMIT}, Provenance(COMMIT, True)),
        (OLD | {"id": f"_einops_cpu_{COMMIT[:7]}_dirty"}, REPORT, Provenance(COMMIT, True)),
        (OLD | {"id": f"_einops_cpu_{COMMIT[:7]}_dirty_0123abc"}, REPORT, Provenance(COMMIT, True)),
        # A report of another build, and one beside what no git repository was built to.
        (OLD, {**REPORT, "commit": OTHER}, Provenance("", True, NOT_IN_ID)),
        (OLD | {"id": "_einops_cpu_mfzwi4dbo"}, {**REPORT, "commit": OTHER}, Provenance("", True, NOT_IN_ID)),
        (OLD | {"id": "_einops_cpu_d45ad"}, {**REPORT, "commit": OTHER}, Provenance("", True, NOT_IN_ID)),
        ({}, {**REPORT, "commit": OTHER}, Provenance("", True, NOT_IN_ID)),
        ({"provenance": "x", "backend": 3}, {}, Provenance("", True)),
        # A kernel of a name with dashes.
        (
            {"name": "causal-conv1d", "id": f"_causal_conv1d_cuda_{COMMIT[:7]}", "backend": {"type": "cuda"}},
            REPORT,
            Provenance(COMMIT, False),
        ),
    ],
)  # fmt: skip
def test_a_commit(metadata: dict[str, Any], report: dict[str, Any], expected: Provenance) -> None:
    assert provenance.read(metadata, report) == expected
