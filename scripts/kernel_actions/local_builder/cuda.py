"""Which compute capabilities a CUDA source is compiled for.

The rules are those of kernel-builder's CMake code (``cuda_archs_loose_intersection`` and the
default lists in its preamble).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kernel_actions import nix_version
from kernel_actions.local_builder.toolchain import Nvcc

# The builder's default capabilities, by the lowest version of nvcc that they apply to.
_DEFAULTS = (
    ("13.0", "7.5 8.0 8.6 8.7 8.9 9.0 10.0 11.0 12.0 12.1+PTX"),
    ("12.8", "7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0 10.0 10.1 12.0+PTX"),
    ("0", "7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0+PTX"),
)
_PTX = "+PTX"


def defaults(nvcc: Nvcc) -> tuple[str, ...]:
    """The builder's default capabilities for this version of nvcc, as far as it knows them."""
    listed = next(text for lowest, text in _DEFAULTS if nix_version.compare(nvcc.version, lowest) >= 0)
    return tuple(one for one in listed.split() if not nvcc.capabilities or _base(one) in nvcc.capabilities)


def capabilities(declared: Sequence[str] | None, at_hand: Sequence[str], nvcc: Nvcc) -> tuple[str, ...]:
    """The capabilities to compile for.

    ``declared`` are the component's ``cuda-capabilities``. Without any, those of the GPUs ``at_hand``
    are enough for a local build, and without GPUs it is the builder's default.
    Empty when the declared ones and those of nvcc have nothing in common.
    """
    known = defaults(nvcc)
    if declared:
        return loose_intersection(declared, [_base(one) for one in known])
    usable = [one for one in at_hand if not nvcc.capabilities or _plain(one) in nvcc.capabilities]
    return tuple(sorted(usable, key=_order)) if usable else known


def loose_intersection(declared: Iterable[str], wanted: Iterable[str]) -> tuple[str, ...]:
    """For each of the ``wanted`` capabilities the highest declared one that serves it.

    A declared capability serves those of the same major version that are not lower, with
    ``+PTX`` also those of higher ones; one for a certain architecture (``9.0a``) serves that alone.
    """
    with_ptx = {_base(one) for one in declared if one.endswith(_PTX)}
    found: dict[str, None] = {}
    left = list(dict.fromkeys(wanted))
    plain: list[str] = []
    for one in dict.fromkeys(_base(one) for one in declared):
        if one[-1] not in "af":
            plain.append(one)
        elif one[:-1] in left:
            left.remove(one[:-1])
            found[one] = None
    for target in left:
        serving = [
            one
            for one in plain
            if nix_version.compare(one, target) <= 0
            and (one in with_ptx or one.split(".")[0] == target.split(".")[0])
        ]
        if serving:
            found[max(serving, key=nix_version.key)] = None
    return tuple(sorted((one + _PTX if one in with_ptx else one for one in found), key=_order))


def flags(capability: str) -> tuple[str, ...]:
    """nvcc's flags for one capability: machine code, and with ``+PTX`` intermediate code too."""
    number = _base(capability).replace(".", "")
    machine = f"-gencode=arch=compute_{number},code=sm_{number}"
    if not capability.endswith(_PTX):
        return (machine,)
    return (machine, f"-gencode=arch=compute_{number},code=compute_{number}")


def _base(capability: str) -> str:
    return capability.removesuffix(_PTX)


def _plain(capability: str) -> str:
    return _base(capability).rstrip("af")


def _order(capability: str) -> tuple[list[int], str]:
    return [int(number) for number in re.findall(r"\d+", capability)], capability
