"""The planner: which variants the builder makes of a kernel. Values in, values out.

The rules are those of the builder's own Nix code (``filterApplicableBuildSets`` and the variant
names) at the revision in question.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from kernel_actions import nix_version
from kernel_actions.builder import BuilderRevision, BuildSet, Rules
from kernel_actions.errors import WrongInput
from kernel_actions.manifest import UPDATE, Manifest
from kernel_actions.nix_version import flat

# The order of systems in tables, and which of several builds a variant that they share.
SYSTEMS = ("x86_64-linux", "aarch64-linux", "aarch64-darwin")
_BACKENDS = ("cpu", "cuda", "rocm", "xpu", "metal", "tpu")
_COMPUTE_PREFIX = {"cuda": "cu", "rocm": "rocm", "xpu": "xpu"}


@dataclass(frozen=True)
class Variant:
    """A variant of a kernel on one system.

    ``name`` is its folder on the Hub and its name in the flake's ``redistributable``;
    ``arch_name`` is its name in ``ciTests`` and ``devShells``, which several build sets can
    share one ``name`` for (``arch_names``). ``compute`` is the part of the name for the backend's version
    (``cu130``). ``bundled``: the builder publishes it. ``chosen_for_ci``: it is the one of its
    backend and system in ``backendCi``.
    """

    name: str
    arch_name: str
    arch_names: tuple[str, ...]
    backend: str
    compute: str
    torch: str
    system: str
    bundled: bool
    chosen_for_ci: bool


@dataclass(frozen=True)
class LeftOut:
    """A variant that was not taken, and why."""

    name: str
    system: str
    reason: str


@dataclass(frozen=True)
class VariantPlan:
    """All variants that the builder can make, and the build sets that do not apply."""

    variants: tuple[Variant, ...]
    left_out: tuple[LeftOut, ...]


def plan(manifest: Manifest, builder: BuilderRevision) -> VariantPlan:
    """The variants of the kernel at that revision of the builder.

    Raises ``WrongInput`` when the revision refuses this edition of build.toml.
    """
    _check_edition(manifest, builder.rules)
    variants: list[Variant] = []
    left_out: list[LeftOut] = []
    for system in _systems(builder.build_sets):
        applicable: list[BuildSet] = []
        for build_set in builder.build_sets:
            if system not in build_set.systems:
                continue
            reason = _reason_against(manifest, build_set, builder.rules)
            if reason is None:
                applicable.append(build_set)
            elif _is_backend_wanted(manifest, build_set, builder.rules):
                left_out.append(LeftOut(_arch_name(build_set, system, manifest), system, reason))
        kept, superseded = _newest_for_stable_abi(manifest, builder.rules, applicable)
        left_out += [
            LeftOut(_arch_name(old, system, manifest), system, "Torch's stable ABI: a newer Torch covers it")
            for old in superseded
        ]
        variants += _name_variants(manifest, builder.rules, kept, system)
    return VariantPlan(tuple(sorted(variants, key=_order)), tuple(left_out))


def _check_edition(manifest: Manifest, rules: Rules) -> None:
    if manifest.is_edition_3 and rules.requires_backends:
        raise WrongInput(
            "is of an edition that the locked builder refuses: it has no general.backends",
            where=manifest.place("general"),
            repair=UPDATE,
        )
    if not manifest.is_edition_3 and not rules.requires_backends:
        raise WrongInput(
            f"is of edition {manifest.edition}, which the locked builder does not know",
            where=manifest.place("general"),
            repair="lock a newer builder: nix flake update",
        )


def _systems(build_sets: Iterable[BuildSet]) -> list[str]:
    found = dict.fromkeys(system for build_set in build_sets for system in build_set.systems)
    return sorted(found, key=_system_order)


def _is_backend_wanted(manifest: Manifest, build_set: BuildSet, rules: Rules) -> bool:
    if rules.requires_backends:
        return build_set.backend in manifest.backends
    # Before general.backends, what is compiled decided; a universal kernel ran on all.
    return manifest.universal or manifest.compiled_for(build_set.backend)


def _reason_against(manifest: Manifest, build_set: BuildSet, rules: Rules) -> str | None:
    """Why the build set does not apply to the kernel; ``None`` when it does."""
    if not _is_backend_wanted(manifest, build_set, rules):
        return f"{build_set.backend} is not in general.backends"
    if build_set.backend == "cuda":
        key = "general.cuda-" if rules.old_cuda_bounds else "general.cuda."
        reason = _outside(build_set.compute_version, manifest.cuda_minver, manifest.cuda_maxver, "CUDA", key)
        if reason:
            return reason
    if rules.torch_bounds:
        binding = manifest.binding
        reason = _outside(build_set.torch, binding.minver, binding.maxver, "Torch", "torch.")
        if reason:
            return reason
    if rules.tvm_ffi and manifest.binding.framework == "tvm-ffi" and build_set.tvm_ffi is None:
        return "the builder has no tvm-ffi for it"
    return None


def _outside(version: str, minver: str | None, maxver: str | None, what: str, key: str) -> str | None:
    if minver is not None and nix_version.compare(version, minver) < 0:
        return f'{what} {version} is below {key}minver = "{minver}"'
    if maxver is not None and nix_version.compare(version, maxver) > 0:
        return f'{what} {version} is above {key}maxver = "{maxver}"'
    return None


def _stable_abi(manifest: Manifest, rules: Rules, backend: str) -> str | None:
    """The stable ABI version that the kernel targets for ``backend``."""
    if rules.stable_abi is None or manifest.binding.stable_abi is None:
        return None
    return manifest.binding.stable_abi.get(backend)


def _newest_for_stable_abi(
    manifest: Manifest, rules: Rules, build_sets: list[BuildSet]
) -> tuple[list[BuildSet], list[BuildSet]]:
    """For backends with the stable ABI, only the newest Torch of each compute version is built."""
    newest: dict[tuple[str, str], BuildSet] = {}
    for build_set in build_sets:
        if _stable_abi(manifest, rules, build_set.backend) is None:
            continue
        group = (build_set.backend, build_set.compute_version)
        if group not in newest or nix_version.compare(build_set.torch, newest[group].torch) > 0:
            newest[group] = build_set
    kept: list[BuildSet] = []
    superseded: list[BuildSet] = []
    for build_set in build_sets:
        has_stable_abi = _stable_abi(manifest, rules, build_set.backend) is not None
        is_newest = build_set is newest.get((build_set.backend, build_set.compute_version))
        (superseded if has_stable_abi and not is_newest else kept).append(build_set)
    return kept, superseded


def _name_variants(
    manifest: Manifest, rules: Rules, build_sets: list[BuildSet], system: str
) -> Iterator[Variant]:
    """The variants of ``build_sets`` on ``system``; several sets can share one name."""
    chosen = _chosen_for_ci(build_sets)
    by_name: dict[str, list[BuildSet]] = {}
    for build_set in build_sets:
        by_name.setdefault(_name(manifest, rules, build_set, system), []).append(build_set)
    for name, sets in by_name.items():
        # Tests run with the build set that the builder prefers.
        best = sorted(sets, key=_preference)[0]
        yield Variant(
            name=name,
            arch_name=_arch_name(best, system, manifest),
            arch_names=tuple(dict.fromkeys(_arch_name(one, system, manifest) for one in sets)),
            backend=best.backend,
            compute=compute(best),
            torch=best.torch,
            system=system,
            bundled=any(one.bundled for one in sets),
            chosen_for_ci=any(one is chosen.get(one.backend) for one in sets),
        )


def _chosen_for_ci(build_sets: list[BuildSet]) -> dict[str, BuildSet]:
    """The build set of each backend in ``backendCi``, which holds nothing when it is not bundled."""
    chosen: dict[str, BuildSet] = {}
    for build_set in sorted(build_sets, key=_preference):
        chosen.setdefault(build_set.backend, build_set)
    return {backend: one for backend, one in chosen.items() if one.bundled}


def _preference(build_set: BuildSet) -> tuple[object, ...]:
    """The builder's order: bundled, then the newest Torch, then the oldest compute version."""
    return (
        not build_set.bundled,
        nix_version.newest_first(build_set.torch),
        nix_version.key(build_set.compute_version or "0.0"),
    )


def compute(build_set: BuildSet) -> str:
    """The compute part of a variant's name: ``cpu``, ``cu130``, ``rocm72``, ``xpu20260``."""
    prefix = _COMPUTE_PREFIX.get(build_set.backend)
    return prefix + flat(build_set.compute_version) if prefix else build_set.backend


def _name(manifest: Manifest, rules: Rules, build_set: BuildSet, system: str) -> str:
    if rules.universal_noarch and manifest.universal:
        return "torch-universal"
    if rules.tvm_ffi and manifest.binding.framework == "tvm-ffi":
        return _arch_name(build_set, system, manifest)
    if not manifest.compiled_for(build_set.backend):
        return f"torch-{build_set.backend}"
    stable_abi = _stable_abi(manifest, rules, build_set.backend)
    if stable_abi is not None:
        return f"torch-stable-abi{flat(stable_abi)}-{compute(build_set)}-{system}"
    return _arch_name(build_set, system, manifest)


def _arch_name(build_set: BuildSet, system: str, manifest: Manifest) -> str:
    if manifest.binding.framework == "tvm-ffi" and build_set.tvm_ffi is not None:
        return f"tvm-ffi{flat(build_set.tvm_ffi)}-{compute(build_set)}-{system}"
    parts = [f"torch{flat(build_set.torch)}", compute(build_set), system]
    if not system.endswith("-darwin"):
        parts.insert(1, "cxx11" if build_set.cxx11_abi else "cxx98")
    return "-".join(parts)


def _order(variant: Variant) -> tuple[object, ...]:
    return (
        _BACKENDS.index(variant.backend),
        nix_version.key(variant.torch),
        len(variant.compute),
        variant.compute,
        _system_order(variant.system),
    )


def _system_order(system: str) -> tuple[int, str]:
    return (SYSTEMS.index(system) if system in SYSTEMS else len(SYSTEMS), system)


def build_once(variants: Iterable[Variant]) -> tuple[Variant, ...]:
    """One entry for each name: a noarch variant that several systems share is built once.

    It is built on the first of ``SYSTEMS`` that has it. It is bundled, and chosen for CI, if it
    is so on any system.
    """
    merged: dict[str, Variant] = {}
    for variant in sorted(variants, key=lambda one: _system_order(one.system)):
        first = merged.setdefault(variant.name, variant)
        merged[variant.name] = replace(
            first,
            bundled=first.bundled or variant.bundled,
            chosen_for_ci=first.chosen_for_ci or variant.chosen_for_ci,
        )
    return tuple(sorted(merged.values(), key=_order))
