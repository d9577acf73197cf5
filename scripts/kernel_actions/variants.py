"""The planner: which variants the builder makes of a kernel. Values in, values out.

The rules are those of the builder's own Nix code (``filterApplicableBuildSets`` and the variant
names) at the revision in question.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kernel_actions import nix_version
from kernel_actions.builder import BuilderRevision, BuildSet, Rules
from kernel_actions.errors import Place, WrongInput
from kernel_actions.manifest import UPDATE, Manifest
from kernel_actions.nix_version import flat

# The order of systems in tables, and which of several builds a variant that they share.
SYSTEMS = ("x86_64-linux", "aarch64-linux", "aarch64-darwin")
_BACKENDS = ("cpu", "cuda", "rocm", "xpu", "metal", "tpu")
_COMPUTE_PREFIX = {"cuda": "cu", "rocm": "rocm", "xpu": "xpu"}


class Variant(NamedTuple):
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


class LeftOut(NamedTuple):
    """A variant that was not taken, why, and where that is said."""

    name: str
    system: str
    reason: str
    where: Place | None = None

    def __str__(self) -> str:
        return f"{self.reason} ({self.where})" if self.where else self.reason


class Override(NamedTuple):
    """The build sets that ``torchVersions`` of flake.nix makes of the builder's own, and where it stands."""

    build_sets: tuple[BuildSet, ...]
    where: Place


class Judgement(NamedTuple):
    """What becomes of a build set on one system: a variant of that name, or the reason why not."""

    build_set: BuildSet
    system: str
    name: str
    arch_name: str
    reason: str | None = None
    where: Place | None = None
    is_backend_wanted: bool = True


class VariantPlan(NamedTuple):
    """All variants that the builder can make, and the build sets that do not apply."""

    variants: tuple[Variant, ...]
    left_out: tuple[LeftOut, ...]


def plan(manifest: Manifest, builder: BuilderRevision, override: Override | None = None) -> VariantPlan:
    """The variants of the kernel at that revision of the builder.

    Raises ``WrongInput`` when the revision refuses this edition of build.toml.
    """
    judgements = judge(manifest, builder, override)
    variants: list[Variant] = []
    for system in SYSTEMS:
        kept = [one for one in judgements if one.system == system and one.reason is None]
        variants += _name_variants(kept, system)
    left_out = [
        LeftOut(one.arch_name, one.system, one.reason, one.where)
        for one in judgements
        if one.reason is not None and one.is_backend_wanted
    ]
    return VariantPlan(tuple(sorted(variants, key=_order)), tuple(left_out))


def judge(manifest: Manifest, builder: BuilderRevision, override: Override | None) -> list[Judgement]:
    """What becomes of every build set on every system, in the order of ``SYSTEMS`` and of the list.

    Raises ``WrongInput`` when the revision refuses this edition of build.toml.
    """
    _check_edition(manifest, builder.rules)
    judgements: list[Judgement] = []
    build_sets = builder.build_sets if override is None else override.build_sets
    # They do not depend on the system.
    reasons = [_reason_against(manifest, one, builder.rules) for one in build_sets]
    for system in SYSTEMS:
        if override is not None:
            judgements += _judge_removed(manifest, builder, override, system)
        sets = [pair for pair in zip(build_sets, reasons, strict=True) if system in pair[0].systems]
        newest = _newest_for_stable_abi(manifest, builder.rules, [one for one, reason in sets if not reason])
        for build_set, reason in sets:
            if reason is None and id(build_set) not in newest:
                key = "torch.stable-abi"
                reason = (f"{key}: a newer Torch covers it", manifest.place(key))
            judgements.append(_judgement(manifest, builder.rules, build_set, system, reason))
    return judgements


def _judge_removed(
    manifest: Manifest, builder: BuilderRevision, override: Override, system: str
) -> Iterator[Judgement]:
    """The builder's own build sets that flake.nix leaves out on ``system``."""
    kept = {one.identity for one in override.build_sets if system in one.systems}
    for build_set in builder.build_sets:
        if system in build_set.systems and build_set.identity not in kept:
            # What is left out for another reason anyway would be so without flake.nix.
            found = _reason_against(manifest, build_set, builder.rules)
            found = found or ("torchVersions of flake.nix leaves it out", override.where)
            yield _judgement(manifest, builder.rules, build_set, system, found)


def _judgement(
    manifest: Manifest, rules: Rules, build_set: BuildSet, system: str, found: tuple[str, Place] | None
) -> Judgement:
    reason, where = found or (None, None)
    return Judgement(
        build_set=build_set,
        system=system,
        name=_name(manifest, rules, build_set, system),
        arch_name=_arch_name(build_set, system, manifest),
        reason=reason,
        where=where,
        is_backend_wanted=_is_backend_wanted(manifest, build_set, rules),
    )


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
    table = manifest.file.values.get("torch", {}).get("stable-abi")
    if rules.stable_abi == "string" and isinstance(table, dict):
        raise WrongInput(
            "torch.stable-abi is by backend, which the locked builder does not know",
            where=manifest.place("torch.stable-abi"),
            repair="give one version for all backends, or lock a newer builder: nix flake update",
        )


def _is_backend_wanted(manifest: Manifest, build_set: BuildSet, rules: Rules) -> bool:
    if rules.requires_backends:
        return build_set.backend in manifest.backends
    # Before general.backends, what is compiled decided; a universal kernel ran on all.
    return manifest.universal or manifest.compiled_for(build_set.backend)


def _reason_against(manifest: Manifest, build_set: BuildSet, rules: Rules) -> tuple[str, Place] | None:
    """Why the build set does not apply to the kernel, and where that is said; ``None`` when it does."""
    if not _is_backend_wanted(manifest, build_set, rules):
        if rules.requires_backends:
            return f"{build_set.backend} is not in general.backends", manifest.place("general.backends")
        return f"no [kernel.*] section is for {build_set.backend}", manifest.place("kernel")
    if build_set.backend == "cuda":
        key = "general.cuda-" if rules.old_cuda_bounds else "general.cuda."
        bounds = (manifest.cuda_minver, manifest.cuda_maxver)
        if found := _outside(manifest, build_set.compute_version, bounds, "CUDA", key):
            return found
    if rules.torch_bounds:
        bounds = (manifest.binding.minver, manifest.binding.maxver)
        if found := _outside(manifest, build_set.torch, bounds, "Torch", "torch."):
            return found
    if rules.tvm_ffi and manifest.binding.framework == "tvm-ffi" and build_set.tvm_ffi is None:
        return "the builder has no tvm-ffi for it", manifest.place("tvm-ffi")
    return None


def _outside(
    manifest: Manifest, version: str, bounds: tuple[str | None, str | None], what: str, key: str
) -> tuple[str, Place] | None:
    minver, maxver = bounds
    if minver is not None and nix_version.compare(version, minver) < 0:
        return f'{what} {version} is below {key}minver = "{minver}"', manifest.place(f"{key}minver")
    if maxver is not None and nix_version.compare(version, maxver) > 0:
        return f'{what} {version} is above {key}maxver = "{maxver}"', manifest.place(f"{key}maxver")
    return None


def _stable_abi(manifest: Manifest, rules: Rules, backend: str) -> str | None:
    """The stable ABI version that the kernel targets for ``backend``."""
    if rules.stable_abi is None or manifest.binding.stable_abi is None:
        return None
    return manifest.binding.stable_abi.get(backend)


def _newest_for_stable_abi(manifest: Manifest, rules: Rules, build_sets: list[BuildSet]) -> set[int]:
    """The ``id`` of those that are built: for backends with the stable ABI, only the newest Torch of each
    compute version."""
    newest: dict[object, BuildSet] = {}
    for build_set in build_sets:
        group: object = id(build_set)
        if _stable_abi(manifest, rules, build_set.backend) is not None:
            group = (build_set.backend, build_set.compute_version)
        if group not in newest or nix_version.compare(build_set.torch, newest[group].torch) > 0:
            newest[group] = build_set
    return {id(one) for one in newest.values()}


def _name_variants(judgements: list[Judgement], system: str) -> Iterator[Variant]:
    """The variants of build sets on ``system``; several sets can share one name."""
    chosen = _chosen_for_ci([one.build_set for one in judgements])
    by_name: dict[str, list[Judgement]] = {}
    for judgement in judgements:
        by_name.setdefault(judgement.name, []).append(judgement)
    for name, shared in by_name.items():
        # Tests run with the build set that the builder prefers.
        best = min(shared, key=lambda one: _preference(one.build_set))
        yield Variant(
            name=name,
            arch_name=best.arch_name,
            arch_names=tuple(dict.fromkeys(one.arch_name for one in shared)),
            backend=best.build_set.backend,
            compute=compute(best.build_set),
            torch=best.build_set.torch,
            system=system,
            bundled=any(one.build_set.bundled for one in shared),
            chosen_for_ci=any(one.build_set is chosen.get(one.build_set.backend) for one in shared),
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
        merged[variant.name] = first._replace(
            bundled=first.bundled or variant.bundled,
            chosen_for_ci=first.chosen_for_ci or variant.chosen_for_ci,
        )
    return tuple(sorted(merged.values(), key=_order))
