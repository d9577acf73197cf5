"""Which compute capabilities are compiled for: the builder's rules."""

from __future__ import annotations

import pytest
from kernel_actions.local_builder import cuda

from tests.local_builder.helpers import toolchain

NVCC = toolchain(torch="2.11.0", cuda="13.0", nvcc="13.0").nvcc
assert NVCC is not None
DEFAULT = ["7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "11.0", "12.0", "12.1"]


@pytest.mark.parametrize(
    ("declared", "wanted", "expected"),
    [
        # The two examples in the builder's own comments.
        (["7.5", "8.0", "8.6", "9.0", "9.0a"], ["8.0", "8.9", "9.0"], ["8.0", "8.6", "9.0a"]),
        (["8.0+PTX"], ["9.0"], ["8.0+PTX"]),
        (["9.0a"], DEFAULT, ["9.0a"]),
        (["10.0f", "8.0"], DEFAULT, ["8.0", "10.0f"]),
        (["8.0", "9.0", "12.0"], DEFAULT, ["8.0", "9.0", "12.0"]),
        (["7.0"], ["8.0"], []),
        (["13.0"], DEFAULT, []),
        (["9.0+PTX"], ["8.0", "9.0", "12.0"], ["9.0+PTX"]),
    ],
)
def test_declared_and_known_capabilities_meet(
    declared: list[str], wanted: list[str], expected: list[str]
) -> None:
    assert list(cuda.loose_intersection(declared, wanted)) == expected


def test_without_declared_ones_the_gpus_at_hand_are_enough() -> None:
    assert cuda.capabilities(None, ["9.0"], NVCC) == ("9.0",)
    assert cuda.capabilities(None, ["12.0", "9.0a"], NVCC) == ("9.0a", "12.0")


def test_without_gpus_it_is_the_builders_default() -> None:
    assert list(cuda.capabilities(None, [], NVCC)) == [*DEFAULT[:-1], "12.1+PTX"]
    # A GPU that nvcc is too old for does not count.
    assert list(cuda.capabilities(None, ["13.7"], NVCC)) == [*DEFAULT[:-1], "12.1+PTX"]


def test_declared_ones_are_all_compiled_for() -> None:
    assert cuda.capabilities(["8.0", "9.0a"], ["9.0"], NVCC) == ("8.0", "9.0a")


def test_flags() -> None:
    assert cuda.flags("9.0a") == ("-gencode=arch=compute_90a,code=sm_90a",)
    assert cuda.flags("12.1+PTX") == (
        "-gencode=arch=compute_121,code=sm_121",
        "-gencode=arch=compute_121,code=compute_121",
    )
