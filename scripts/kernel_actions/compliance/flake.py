"""Rules about flake.lock: KA2xx."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_actions import builder
from kernel_actions.compliance import files
from kernel_actions.compliance.engine import Family, Problem
from kernel_actions.compliance.kernel import Kernel
from kernel_actions.errors import KernelActionsError, Place, WrongInput, WrongSurroundings

RULES: Family[Kernel] = Family()


@RULES.rule
def flake_lock(kernel: Kernel) -> Iterator[Problem]:
    error = _error(kernel)
    if isinstance(error, WrongInput):
        yield Problem.of(error, _where(kernel))


@RULES.rule
def flake_builder(kernel: Kernel) -> Iterator[Problem]:
    error = _error(kernel)
    if isinstance(error, WrongSurroundings):
        yield Problem(error.what, _where(kernel))


def _error(kernel: Kernel) -> KernelActionsError | None:
    """What keeps flake.lock from saying which builder is used: the file, or that it is not known here."""
    try:
        files.check_kind(kernel.directory / "flake.lock")
        builder.locked(kernel.directory)
    except (WrongInput, WrongSurroundings) as error:
        return error
    return None


def _where(kernel: Kernel) -> Place:
    return Place(kernel.directory / "flake.lock")
