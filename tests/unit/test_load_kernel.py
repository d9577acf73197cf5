"""What a loaded kernel is said to offer."""

from __future__ import annotations

from types import ModuleType

import pytest
from kernel_actions import load_kernel


def _double(x: int) -> int:
    return 2 * x


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (["double"], ["double"]),
        # As fp8-fbgemm of kernels-community lists it, which get_kernel takes.
        ([_double], ["_double"]),
        ((_double, "double"), ["_double", "double"]),
        # Nothing that has a name, or nothing at all: what has no underscore.
        ([7], ["double", "layers"]),
        ([], ["double", "layers"]),
    ],
)
def test_public_names(listed: list[object], expected: list[str]) -> None:
    kernel = ModuleType("kernel")
    kernel.double = _double
    kernel.layers = ModuleType("layers")
    kernel.__all__ = listed
    assert load_kernel.public_names(kernel) == expected


def test_a_kernel_without_all() -> None:
    kernel = ModuleType("kernel")
    kernel.double = _double
    assert load_kernel.public_names(kernel) == ["double"]
