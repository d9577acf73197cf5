"""What the builder's own templates make of a kernel, and the verdict of its own tests of that."""

from __future__ import annotations

from public_kernels.results import KernelOutcomes, Outcome
from public_kernels.workplace import Workplace


def outcome(place: Workplace, kernel: KernelOutcomes) -> Outcome:
    """Not yet."""
    return Outcome("elsewhere", "needs BUILDER")
