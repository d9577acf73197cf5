"""What a variant's name means for a wheel: its tag, its local version and what it requires.

Names are those that the loader knows (``kernels.variants.parse_variant``), and tags those of
https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/. The local version is
that of the former ``kernels to-wheel``: the name without the system, as in ``torch213cu130cxx11``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernel_actions.errors import WrongInput
from kernel_actions.nix_version import dotted

# What the builder builds for: `check_manylinux`, `check_macos` and `check_python_abi` of kernel-abi-check.
MANYLINUX = "manylinux_2_28"
MACOS = "15.0"
# The loader takes kernels for Metal from this version on.
MACOS_OF_METAL = "26.0"
PYTHON = "3.9"

_ARCH = re.compile(
    r"(?:torch(?P<torch>\d{2,})(?:-(?P<abi>cxx11|cxx98))?|torch-stable-abi(?P<stable>\d{2,})"
    r"|tvm-ffi(?P<ffi>\d{2,}))"
    r"-(?P<compute>cpu|metal|neuron|tpu|(?:cann|cu|rocm|xpu)\d{2,})"
    r"-(?P<machine>x86_64|aarch64)-(?P<os>linux|darwin|windows)"
)
_NOARCH = re.compile(r"torch-(?P<compute>cann|cpu|cuda|metal|neuron|npu|rocm|tpu|universal|xpu)")
_TITLES = {
    "cann": "CANN", "cpu": "CPU", "cu": "CUDA", "cuda": "CUDA", "metal": "Metal", "neuron": "Neuron",
    "npu": "NPU", "rocm": "ROCm", "tpu": "TPU", "xpu": "XPU",
}  # fmt: skip


@dataclass(frozen=True)
class Identity:
    """A variant as a wheel has it.

    ``local`` is the local version, empty for the one variant of a universal kernel. ``platform`` is the
    platform's part of the tag, ``any`` for a noarch variant. ``requires`` is the framework, as METADATA
    says it. ``title`` names it for people.
    """

    variant: str
    local: str
    platform: str
    requires: tuple[str, ...]
    title: str

    @property
    def is_compiled(self) -> bool:
        """Whether the variant has an extension."""
        return self.platform != "any"

    def tag(self, *, uses_python: bool) -> str:
        """The wheel's tag. ``uses_python``: the extension is one of Python's stable ABI."""
        if not self.is_compiled:
            return "py3-none-any"
        python = f"cp{PYTHON.replace('.', '')}-abi3" if uses_python else "py3-none"
        return f"{python}-{self.platform}"


def identify(variant: str) -> Identity:
    """What the name of a variant means. Raises ``WrongInput`` for one that is none."""
    if found := _NOARCH.fullmatch(variant):
        compute = found["compute"]
        if compute == "universal":
            return Identity(variant, "", "any", ("torch",), "for all backends of Torch")
        return Identity(variant, f"torch{compute}", "any", ("torch",), f"for Torch, {_TITLES[compute]}")
    found = _ARCH.fullmatch(variant)
    if found is None:
        raise WrongInput(
            f"{variant!r} is not the name of a variant", repair="as in torch213-cxx11-cu130-x86_64-linux"
        )
    compute, machine, os = found["compute"], found["machine"], found["os"]
    abi = found["abi"] or ""
    if found["ffi"]:
        framework, requires = f"tvmffi{found['ffi']}", f"apache-tvm-ffi~={dotted(found['ffi'])}.0"
        title = f"tvm-ffi {dotted(found['ffi'])}"
    elif found["stable"]:
        # The stable ABI of a version is that of all later ones.
        framework, requires = f"torchstableabi{found['stable']}", f"torch>={dotted(found['stable'])}"
        title = f"Torch {dotted(found['stable'])} or newer"
    else:
        # The C++ interface of Torch is another in each minor version.
        framework, requires = f"torch{found['torch']}", f"torch~={dotted(found['torch'])}.0"
        title = f"Torch {dotted(found['torch'])}"
    return Identity(
        variant=variant,
        local=f"{framework}{compute}{abi}",
        platform=_platform(compute, machine, os),
        requires=(requires,),
        title=f"for {title}, {_compute_title(compute)}, on {machine} {os}",
    )


def _compute_title(compute: str) -> str:
    kind = compute.rstrip("0123456789")
    digits = compute.removeprefix(kind)
    return f"{_TITLES[kind]} {digits[:-1]}.{digits[-1]}" if digits else _TITLES[kind]


def _platform(compute: str, machine: str, os: str) -> str:
    if os == "linux":
        return f"{MANYLINUX}_{machine}"
    if os == "darwin":
        version = (MACOS_OF_METAL if compute == "metal" else MACOS).replace(".", "_")
        return f"macosx_{version}_{'arm64' if machine == 'aarch64' else machine}"
    return "win_arm64" if machine == "aarch64" else "win_amd64"
