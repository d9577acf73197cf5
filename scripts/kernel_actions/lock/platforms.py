"""Where a kernel is to run, and which variant the loader takes there: the loader's own rules."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from kernel_actions import nix_version
from kernel_actions.errors import WrongInput, WrongSurroundings

EXAMPLE = "torch2.13-cu13.0-x86_64-linux"

# In a variant's name, versions have no dots: 213 is 2.13, and 130 of CUDA is 13.0.
_PLATFORM = re.compile(
    r"(?:torch(?P<torch>\d\.?\d+)(?:-(?P<abi>cxx11|cxx98))?-)?"
    r"(?:tvm-ffi(?P<ffi>\d\.?\d+)-)?"
    r"(?P<compute>cpu|metal|neuron|tpu|(?:cann|cu|rocm|xpu)\d+\.?\d)"
    r"-(?P<machine>x86_64|aarch64)-(?P<os>linux|darwin|windows)"
)
# The loader takes variants for Metal from this version on; a platform's name has no version of macOS.
_MACOS = "26.0"


@dataclass(frozen=True)
class Platform:
    """A machine as the loader sees it: versions are as in ``2.13``, and empty where there is none.

    ``compute`` is as in a variant's name: ``cpu``, ``cu130``, ``rocm72``, ``xpu20260``, ``metal``.
    """

    name: str
    torch: str
    is_cxx11: bool
    tvm_ffi: str
    compute: str
    machine: str
    os: str


def parse(name: str) -> Platform:
    """The platform of that name, as in ``torch2.13-cu13.0-x86_64-linux``; the dots can be left out, so that
    the name of a variant for Torch is the name of a platform too.

    Raises ``WrongInput``.
    """
    found = _PLATFORM.fullmatch(name)
    if found is None or not (found["torch"] or found["ffi"]):
        raise WrongInput(f"{name!r} is not the name of a platform", repair=f"as in {EXAMPLE}")
    return Platform(
        name=name,
        torch=_dotted(found["torch"] or ""),
        is_cxx11=found["abi"] != "cxx98",
        tvm_ffi=_dotted(found["ffi"] or ""),
        compute=found["compute"].replace(".", ""),
        machine=found["machine"],
        os=found["os"],
    )


def _dotted(version: str) -> str:
    return version if "." in version or not version else nix_version.dotted(version)


def chosen(platform: Platform, names: Collection[str]) -> str:
    """Which of the variants ``names`` the loader takes on ``platform``; empty when none is for it.

    Raises ``WrongSurroundings`` when this version of kernels has no such rules.
    """
    try:
        from kernels.backends import parse_backend
        from kernels.variants import _resolve_variant_for_system, parse_variant
        from packaging.version import Version
    except ImportError as error:
        raise WrongSurroundings(
            f"the installed version of kernels chooses variants in another way: {error}",
            repair="install kernels 0.17",
        ) from error
    variants: list[Any] = []
    # Sorted, as the loader takes the first of those that are equally good.
    for name in sorted(names):
        try:
            variants.append(parse_variant(name))
        except ValueError:
            continue  # As the loader does.
    logger = logging.getLogger("kernels.variants")
    level = logger.level
    # What it warns of is this interpreter, on which nothing will be loaded.
    logger.setLevel(logging.ERROR)
    try:
        accepted, _ = _resolve_variant_for_system(
            variants=variants,
            selected_backend=parse_backend(platform.compute),
            cpu=platform.machine,
            os=platform.os,
            torch_version=Version(platform.torch) if platform.torch else None,
            torch_cxx11_abi=platform.is_cxx11 if platform.os == "linux" else None,
            tvm_ffi_version=Version(platform.tvm_ffi) if platform.tvm_ffi else None,
            macos_version=Version(_MACOS) if platform.os == "darwin" else None,
        )
    finally:
        logger.setLevel(level)
    return str(accepted[0].variant_str) if accepted else ""
