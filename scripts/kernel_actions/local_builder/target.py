"""Which variants of a kernel this machine can build, and their names.

The names are the builder's: see ``kernel_actions.variants``.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from kernel_actions import builder_output, nix_version
from kernel_actions.builder_output import Output
from kernel_actions.errors import Place, WrongInput, WrongSurroundings
from kernel_actions.local_builder.toolchain import Toolchain, Torch
from kernel_actions.manifest import UPDATE, Manifest
from kernel_actions.nix_version import flat

# What the local builder compiles. Without anything to compile, every backend is the same to it.
BACKENDS = ("cuda", "cpu")


@dataclass(frozen=True)
class Target:
    """A variant to build. ``is_compiled`` is false for a noarch variant, which is Python alone;
    ``stable_abi`` is the version of Torch's stable ABI that it is compiled against."""

    variant: str
    backend: str
    is_compiled: bool
    stable_abi: str | None = None


def choose(
    manifest: Manifest, toolchain: Toolchain, wanted: str = "", output: Output | None = None
) -> Target:
    """The variant ``wanted``, else the one that this machine can both build and load.

    ``output`` is what the kernel's builder makes (``None``: the newest one).

    Raises ``WrongInput`` when the kernel has no such variant here, ``WrongSurroundings`` when this
    machine lacks what it takes.
    """
    if manifest.is_edition_3:
        raise WrongInput(
            "is of edition 3, which is not built any more", where=manifest.place("general"), repair=UPDATE
        )
    if manifest.binding.framework == "tvm-ffi":
        raise WrongSurroundings(
            "the local builder builds Torch kernels, and this is one for tvm-ffi",
            where=manifest.place("tvm-ffi"),
            repair="build it with Nix",
        )
    targets, reasons = _targets(manifest, toolchain, output or builder_output.newest())
    if wanted:
        return _named(manifest, targets, reasons, wanted)
    for backend in _preferred_backends(manifest, toolchain):
        if backend in targets:
            return targets[backend]
    others = f"; --variant can be {_listed(targets)}" if targets else ""
    raise WrongSurroundings(
        "this machine can build no variant that it can load: "
        + ("; ".join(reasons.values()) or f"the kernel is for {', '.join(manifest.backends)}") + others,
        where=manifest.place("general.backends") if toolchain.torch is not None else None,
        repair="" if toolchain.torch is not None
        else "unset KA_PYTHON, and KA_TORCH_BUILD if it is none, and Torch is installed; or install it there",
    )  # fmt: skip


def _named(manifest: Manifest, targets: dict[str, Target], reasons: dict[str, str], wanted: str) -> Target:
    for target in targets.values():
        if target.variant == wanted:
            return target
    for backend, reason in reasons.items():
        prefix = "cu" if backend == "cuda" else backend
        if any(part.startswith(prefix) for part in wanted.split("-")):
            if not manifest.compiled_for(backend):
                raise WrongInput(
                    f"cannot build {wanted}: {reason}",
                    where=manifest.place("general.backends"),
                    repair=f"add one, or take {backend} out of backends",
                )
            raise WrongSurroundings(f"cannot build {wanted} here: {reason}")
    names = [target.variant for target in targets.values()]
    close = difflib.get_close_matches(wanted, names, n=1)
    raise WrongInput(
        f"this machine cannot build {wanted!r}; it can build {_listed(targets)}",
        where=None if names else manifest.place("general.backends"),
        repair=f"did you mean {close[0]}?" if close else "",
    )


def _listed(targets: dict[str, Target]) -> str:
    return ", ".join(target.variant for target in targets.values()) or "none"


def _preferred_backends(manifest: Manifest, toolchain: Toolchain) -> tuple[str, ...]:
    """The backends that the loader would take here, best first."""
    torch = toolchain.torch
    if torch is not None and torch.cuda is not None and "cuda" in manifest.backends:
        # Without nvcc, what is compiled for the CPU can still be loaded.
        return ("cuda", "cpu")
    if torch is not None and torch.hip is not None:
        return ("rocm", "cpu")
    return ("cpu",)


def _targets(
    manifest: Manifest, toolchain: Toolchain, output: Output
) -> tuple[dict[str, Target], dict[str, str]]:
    """By backend: what can be built, and the reasons against the others."""
    targets: dict[str, Target] = {}
    reasons: dict[str, str] = {}
    # All things compiled come first, since the loader prefers them.
    for backend in sorted(manifest.backends, key=lambda one: not manifest.compiled_for(one)):
        if not manifest.compiled_for(backend):
            if manifest.binding.framework == "torch" and not output.without_component:
                reasons[backend] = (
                    f"no [kernel.*] section is for {backend}, and the builder fails without one"
                )
                continue
            targets[backend] = Target(f"torch-{backend}", backend, is_compiled=False)
            continue
        reason = _reason_against(manifest, toolchain, backend)
        if reason is not None:
            reasons[backend] = reason
            continue
        assert toolchain.torch is not None
        targets[backend] = Target(
            variant=variant_name(manifest, toolchain.system, toolchain.torch, backend),
            backend=backend,
            is_compiled=True,
            stable_abi=(manifest.binding.stable_abi or {}).get(backend),
        )
    return targets, reasons


def variant_name(manifest: Manifest, system: str, torch: Torch, backend: str) -> str:
    """The name of the variant that ``torch`` loads with ``backend`` (``cpu`` or ``cuda``)."""
    if not manifest.compiled_for(backend):
        return f"torch-{backend}"
    compute = f"cu{flat(torch.cuda)}" if backend == "cuda" and torch.cuda else backend
    stable_abi = (manifest.binding.stable_abi or {}).get(backend)
    if stable_abi is not None:
        return f"torch-stable-abi{flat(stable_abi)}-{compute}-{system}"
    parts = [f"torch{flat(torch.release)}", compute, system]
    if not system.endswith("-darwin"):
        parts.insert(1, "cxx11" if torch.cxx11_abi else "cxx98")
    return "-".join(parts)


def _reason_against(manifest: Manifest, toolchain: Toolchain, backend: str) -> str | None:
    """Why this machine cannot compile for ``backend``; ``None`` when it can."""
    if backend not in BACKENDS:
        return f"the local builder builds cpu and cuda, not {backend}"
    torch = toolchain.torch
    if torch is None:
        return "Torch is not installed for this Python"
    if backend == "cuda":
        if torch.cuda is None:
            return f"Torch {torch.version} is not a build for CUDA"
        if toolchain.nvcc is None:
            return "nvcc is not installed, or CUDA_HOME does not say where"
        if toolchain.nvcc.version.split(".")[0] != torch.cuda.split(".")[0]:
            return f"Torch is a build for CUDA {torch.cuda}, and nvcc is of CUDA {toolchain.nvcc.version}"
    return _outside_bounds(manifest, torch, backend)


def _outside_bounds(manifest: Manifest, torch: Torch, backend: str) -> str | None:
    binding = manifest.binding
    lowest = [("torch.minver", binding.minver), ("torch.stable-abi", (binding.stable_abi or {}).get(backend))]
    bounds = [("Torch", torch.release, lowest, [("torch.maxver", binding.maxver)])]
    if backend == "cuda":
        cuda_lowest = [("general.cuda.minver", manifest.cuda_minver)]
        bounds.append(
            ("CUDA", torch.cuda or "", cuda_lowest, [("general.cuda.maxver", manifest.cuda_maxver)])
        )
    for what, version, lowest, highest in bounds:
        for key, bound in lowest:
            if bound is not None and nix_version.compare(version, nix_version.major_minor(bound)) < 0:
                return f'{what} {version} is older than {key} = "{bound}"'
        for key, bound in highest:
            if bound is not None and nix_version.compare(version, nix_version.major_minor(bound)) > 0:
                return f'{what} {version} is newer than {key} = "{bound}"'
    return None


# What the builder provides for compiling; it grows with its versions.
_DEPENDENCIES = (
    "torch", "cutlass_2_10", "cutlass_3_5", "cutlass_3_6", "cutlass_3_8", "cutlass_3_9", "cutlass_4_0",
    "cutlass_4_4", "cutlass_4_5", "metal-cpp", "sycl_tla",
)  # fmt: skip


def check_dependencies(manifest: Manifest, target: Target) -> None:
    """Raise ``WrongSurroundings`` for a ``depends`` that only the builder provides, and
    ``WrongInput`` for one that looks misspelt."""
    for component in manifest.components:
        if component.backend != target.backend:
            continue
        missing = [name for name in component.depends if name != "torch"]
        if missing:
            where: Place = manifest.place(f"kernel.{component.name}.depends")
            close = difflib.get_close_matches(missing[0], _DEPENDENCIES, n=1)
            if close and missing[0] not in _DEPENDENCIES:
                raise WrongInput(
                    f"{missing[0]!r} is not known", where=where, repair=f"did you mean {close[0]}?"
                )
            raise WrongSurroundings(
                f"the local builder has no {missing[0]}", where=where, repair="build it with Nix"
            )
