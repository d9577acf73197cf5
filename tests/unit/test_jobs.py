"""Jobs: grouping variants, and packing them into as many jobs as GitHub takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kernel_actions.errors import WrongInput
from kernel_actions.matrix.jobs import Job, Part, group, pack
from kernel_actions.settings import Limits, Runner
from kernel_actions.variants import Variant


def _job(number: int = 0, kernel: str = "relu", **changes: Any) -> Job:
    values = {"backend": "cuda", "torch": "2.13", "system": "x86_64-linux", **changes}
    variant = Variant(
        name=f"torch-{number}-{values['backend']}",
        arch_name=f"arch-{number}",
        arch_names=(f"arch-{number}",),
        backend=values["backend"],
        compute="cu130",
        torch=values["torch"],
        system=values["system"],
        bundled=True,
        chosen_for_ci=False,
    )
    part = Part(kernel, f"kernels/{kernel}", variant)
    return Job((part,), Runner(("builder",)), Runner(("gpu", values["backend"])), Limits())


def _names(jobs: list[Job]) -> list[list[str]]:
    return [[one.name for one in job.variants] for job in jobs]


def test_nothing_is_packed_that_fits() -> None:
    jobs = [_job(number) for number in range(5)]
    assert pack(jobs, 5, {}) == jobs


def test_jobs_are_packed_evenly() -> None:
    packed = pack([_job(number) for number in range(10)], 4, {})
    assert sorted(len(job.variants) for job in packed) == [2, 2, 3, 3]


def test_durations_decide_what_goes_together_and_what_comes_first() -> None:
    jobs = [_job(number) for number in range(4)]
    durations = {"torch-0-cuda": 10.0, "torch-1-cuda": 10.0, "relu/torch-2-cuda": 100.0, "torch-3-cuda": 60.0}
    packed = pack(jobs, 2, durations)
    assert _names(packed) == [["torch-2-cuda"], ["torch-0-cuda", "torch-1-cuda", "torch-3-cuda"]]
    # Without packing the longest still comes first; what is not known counts as the median.
    assert _names(pack(jobs, 9, durations))[0] == ["torch-2-cuda"]


@pytest.mark.parametrize(("grouping", "count"), [("none", 8), ("backend", 4), ("torch", 8)])
def test_grouping(grouping: str, count: int) -> None:
    jobs = [
        _job(number, backend=backend, torch=torch, system=system)
        for number, (backend, torch, system) in enumerate(
            (backend, torch, system)
            for backend in ("cpu", "cuda")
            for torch in ("2.12", "2.13")
            for system in ("x86_64-linux", "aarch64-linux")
        )
    ]
    grouped = group(jobs, grouping)
    assert len(grouped) == count
    assert sum(len(job.variants) for job in grouped) == len(jobs)


def test_a_job_of_several_variants_names_none_of_them_as_its_own() -> None:
    (job,) = group([_job(0), _job(1, torch="2.12")], "backend")
    entry = job.as_json()
    # A workflow that only knows `variant` must fail, and not build the first alone.
    assert "variant" not in entry and "arch_variant" not in entry and "torch" not in entry
    assert entry["variants"] == ["torch-0-cuda", "torch-1-cuda"]
    assert entry["arch_variants"] == ["arch-0", "arch-1"]
    assert entry["backend"] == "cuda" and entry["compute"] == "cu130"


def test_what_cannot_be_one_job_is_told() -> None:
    jobs = [_job(0, system=system) for system in ("x86_64-linux", "aarch64-linux", "aarch64-darwin")]
    with pytest.raises(WrongInput, match=r"--max-jobs is 2, and the variants need 3 kinds of job"):
        pack(jobs, 2, {})


def test_kernels_share_a_job_only_if_nothing_else_helps() -> None:
    jobs = [_job(number, kernel=f"k{number // 2}") for number in range(8)]
    assert [len({part.kernel for part in job.parts}) for job in pack(jobs, 4, {})] == [1, 1, 1, 1]
    (entry, _) = [job.as_json() for job in pack(jobs, 2, {})]
    assert "kernel" not in entry and "dir" not in entry and "variants" not in entry
    assert [part["kernel"] for part in entry["parts"]] == ["k0", "k1", "k2", "k3"]
    assert entry["parts"][1] == {
        "kernel": "k1",
        "dir": "kernels/k1",
        "variant": "torch-2-cuda",
        "arch_variant": "arch-2",
        "variants": ["torch-2-cuda"],
    }
    assert entry["name"] == "cuda torch 2.13 x86_64-linux: k0 torch-0-cuda and 3 more"


def test_backends_share_a_job_only_if_nothing_else_helps() -> None:
    jobs = [_job(number, backend=backend) for backend in ("cpu", "cuda") for number in range(2)]
    # Their test runners differ: never.
    with pytest.raises(WrongInput):
        pack(jobs, 1, {})
    packed = pack(jobs, 2, {})
    assert [{one.backend for one in job.variants} for job in packed] == [{"cpu"}, {"cuda"}]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["cpu", "cuda"]), st.floats(0.1, 1e4)), max_size=60
    ),
    st.integers(8, 40),
)
# As many classes as jobs, and 1 + 1 + 1 + 61.1 less 61.1, 1 and 1 is less than 1.
@example([*[(kernel, one, 1.0) for kernel in range(4) for one in ("cpu", "cuda")] * 3, (0, "cpu", 61.1)], 8)
def test_packing_loses_nothing_and_is_near_the_best(parts: list[tuple[int, str, float]], most: int) -> None:
    jobs = [
        _job(number, kernel=f"k{kernel}", backend=backend)
        for number, (kernel, backend, _) in enumerate(parts)
    ]
    durations = {
        f"k{kernel}/torch-{number}-{backend}": seconds
        for number, (kernel, backend, seconds) in enumerate(parts)
    }
    packed = pack(jobs, most, durations)
    assert len(packed) <= most
    assert sorted(one.name for job in packed for one in job.variants) == sorted(
        one.name for job in jobs for one in job.variants
    )
    for job in packed:
        assert len({one.backend for one in job.variants}) == len({part.directory for part in job.parts}) == 1
    longest = max((sum(durations[_key(part)] for part in job.parts) for job in packed), default=0.0)
    total = sum(seconds for _, _, seconds in parts)
    # No packing is shorter than the longest variant, or than all evenly spread. Kernels and backends do not
    # mix, so that up to 8 classes may each leave a job partly empty.
    bound = max([seconds for _, _, seconds in parts], default=0.0)
    assert longest <= 2 * max(bound, total / max(1, most - 7)) + 1e-6


def _key(part: Part) -> str:
    return f"{part.kernel}/{part.variant.name}"
