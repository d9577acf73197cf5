"""The planner: which variants the builder makes of a kernel. Values in, values out.

The rules are those of the builder's own Nix code (``filterApplicableBuildSets`` and the variant
names) at the revision in question.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from kernel_actions import nix_version
from kernel_actions.builder import BuilderRevision, BuildSet, Rules
from kernel_actions.errors import Place, WrongInput
from kernel_actions.manifest import UPDATE, Manifest
from kernel_actions.named_tuple import NamedTuple
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
    (``cu130``). ``torch`` is the version that it is tested with, the newest of ``torches``, all that
    it serves. ``bundled``: the builder publishes it. ``chosen_for_ci``: it is the one of its
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
    torches: tuple[str, ...] = ()


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


class _Reason(NamedTuple):
    """Why a build set does not apply, and where that is said: a key of build.toml, or another place."""

    text: str
    said: str | Place
    is_of_backend: bool = False


def plan(manifest: Manifest, builder: BuilderRevision, override: Override | None = None) -> VariantPlan:
    """The variants of the kernel at that revision of the builder.

    Raises ``WrongInput`` when the revision refuses this edition of build.toml.
    """
    kept: dict[str, list[BuildSet]] = {system: [] for system in SYSTEMS}
    left_out: list[LeftOut] = []
    places: dict[str | Place, Place] = {}
    for build_set, system, reason in _judged(manifest, builder, override):
        if reason is None:
            kept[system].append(build_set)
        elif not reason.is_of_backend:
            if reason.said not in places:
                places[reason.said] = _place(manifest, reason)
            name = _arch_name(build_set, system, manifest, builder.rules)
            left_out.append(LeftOut(name, system, reason.text, places[reason.said]))
    variants = [
        one for system in SYSTEMS for one in _name_variants(manifest, builder.rules, kept[system], system)
    ]
    return VariantPlan(_in_order(variants), tuple(left_out))


def judge(manifest: Manifest, builder: BuilderRevision, override: Override | None) -> list[Judgement]:
    """What becomes of every build set on every system, in the order of ``SYSTEMS`` and of the list.

    Raises ``WrongInput`` when the revision refuses this edition of build.toml.
    """
    return [
        Judgement(
            build_set=build_set,
            system=system,
            name=_name(manifest, builder.rules, build_set, system, arch_name),
            arch_name=arch_name,
            reason=reason.text if reason else None,
            where=_place(manifest, reason) if reason else None,
            is_backend_wanted=not (reason and reason.is_of_backend),
        )
        for build_set, system, reason in _judged(manifest, builder, override)
        for arch_name in (_arch_name(build_set, system, manifest, builder.rules),)
    ]


def _judged(
    manifest: Manifest, builder: BuilderRevision, override: Override | None
) -> Iterator[tuple[BuildSet, str, _Reason | None]]:
    """Every build set on every system, with the reason why it does not apply if there is one."""
    _check_edition(manifest, builder.rules)
    own = builder.build_sets
    build_sets = own if override is None else override.build_sets
    # They do not depend on the system.
    reasons = [_reason_against(manifest, one, builder.rules) for one in build_sets]
    for system in SYSTEMS:
        if override is not None:
            kept = {one.identity for one in build_sets if system in one.systems}
            for build_set in own:
                if system in build_set.systems and build_set.identity not in kept:
                    # What is left out for another reason anyway would be so without flake.nix.
                    found = _reason_against(manifest, build_set, builder.rules)
                    removed = _Reason("torchVersions of flake.nix leaves it out", override.where)
                    yield build_set, system, found or removed
        sets = [pair for pair in zip(build_sets, reasons, strict=True) if system in pair[0].systems]
        newest = _newest_for_stable_abi(manifest, builder.rules, [one for one, reason in sets if not reason])
        for build_set, reason in sets:
            if reason is None and id(build_set) not in newest:
                reason = _Reason("torch.stable-abi: a newer Torch covers it", "torch.stable-abi")
            yield build_set, system, reason


def _place(manifest: Manifest, reason: _Reason) -> Place:
    return manifest.place(reason.said) if isinstance(reason.said, str) else reason.said


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


def _reason_against(manifest: Manifest, build_set: BuildSet, rules: Rules) -> _Reason | None:
    """Why the build set does not apply to the kernel; ``None`` when it does."""
    if not _is_backend_wanted(manifest, build_set, rules):
        if rules.requires_backends:
            return _Reason(f"{build_set.backend} is not in general.backends", "general.backends", True)
        return _Reason(f"no [kernel.*] section is for {build_set.backend}", "kernel", True)
    if build_set.backend == "cuda":
        key = "general.cuda-" if rules.old_cuda_bounds else "general.cuda."
        bounds = (manifest.cuda_minver, manifest.cuda_maxver)
        if found := _outside(build_set.compute_version, bounds, "CUDA", key):
            return found
    if rules.torch_bounds:
        bounds = (manifest.binding.minver, manifest.binding.maxver)
        if found := _outside(build_set.torch, bounds, "Torch", "torch."):
            return found
    if rules.tvm_ffi and manifest.binding.framework == "tvm-ffi" and build_set.tvm_ffi is None:
        return _Reason("the builder has no tvm-ffi for it", "tvm-ffi")
    return None


def _outside(version: str, bounds: tuple[str | None, str | None], what: str, key: str) -> _Reason | None:
    minver, maxver = bounds
    if minver is not None and nix_version.compare(version, minver) < 0:
        return _Reason(f'{what} {version} is below {key}minver = "{minver}"', f"{key}minver")
    if maxver is not None and nix_version.compare(version, maxver) > 0:
        return _Reason(f'{what} {version} is above {key}maxver = "{maxver}"', f"{key}maxver")
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


def _name_variants(
    manifest: Manifest, rules: Rules, build_sets: list[BuildSet], system: str
) -> Iterator[Variant]:
    """The variants of build sets on ``system``; several sets can share one name."""
    arch_names = {id(one): _arch_name(one, system, manifest, rules) for one in build_sets}
    by_name: dict[str, list[BuildSet]] = {}
    for build_set in build_sets:
        name = _name(manifest, rules, build_set, system, arch_names[id(build_set)])
        by_name.setdefault(name, []).append(build_set)
    preferred = _by_preference(build_sets)
    ranks = {id(build_set): rank for rank, build_set in enumerate(preferred)}
    # The build set of each backend in ``backendCi``, which holds nothing when it is not bundled.
    chosen: dict[str, BuildSet] = {}
    for build_set in preferred:
        chosen.setdefault(build_set.backend, build_set)
    for name, shared in by_name.items():
        # Tests run with the build set that the builder prefers.
        best = min(shared, key=lambda one: ranks[id(one)])
        yield Variant(
            name=name,
            arch_name=arch_names[id(best)],
            arch_names=tuple(dict.fromkeys(arch_names[id(one)] for one in shared)),
            backend=best.backend,
            compute=compute(best),
            torch=best.torch,
            system=system,
            bundled=any(one.bundled for one in shared),
            chosen_for_ci=any(one.bundled and one is chosen[one.backend] for one in shared),
            torches=tuple(dict.fromkeys(one.torch for one in shared)),
        )


def _by_preference(build_sets: list[BuildSet]) -> list[BuildSet]:
    """The builder's order: bundled, then the newest Torch, then the oldest compute version."""
    computes = nix_version.keys(one.compute_version or "0.0" for one in build_sets)
    torches = nix_version.keys(one.torch for one in build_sets)
    ordered = sorted(build_sets, key=lambda one: computes[one.compute_version or "0.0"])
    ordered.sort(key=lambda one: torches[one.torch], reverse=True)
    ordered.sort(key=lambda one: not one.bundled)
    return ordered


def compute(build_set: BuildSet) -> str:
    """The compute part of a variant's name: ``cpu``, ``cu130``, ``rocm72``, ``xpu20260``."""
    prefix = _COMPUTE_PREFIX.get(build_set.backend)
    return prefix + flat(build_set.compute_version) if prefix else build_set.backend


def _name(manifest: Manifest, rules: Rules, build_set: BuildSet, system: str, arch_name: str) -> str:
    if rules.universal_noarch and manifest.universal:
        return "torch-universal"
    if rules.tvm_ffi and manifest.binding.framework == "tvm-ffi":
        return arch_name
    if not manifest.compiled_for(build_set.backend):
        return f"torch-{build_set.backend}"
    stable_abi = _stable_abi(manifest, rules, build_set.backend)
    if stable_abi is not None:
        return f"torch-stable-abi{flat(stable_abi)}-{compute(build_set)}-{system}"
    return arch_name


def _arch_name(build_set: BuildSet, system: str, manifest: Manifest, rules: Rules) -> str:
    if manifest.binding.framework == "tvm-ffi" and build_set.tvm_ffi is not None:
        return f"tvm-ffi{flat(build_set.tvm_ffi)}-{compute(build_set)}-{system}"
    parts = [f"torch{flat(build_set.torch)}", compute(build_set), system]
    if not system.endswith("-darwin") and rules.abi_in_names != "never":
        is_old = rules.abi_in_names == "by-set" and not build_set.cxx11_abi
        parts.insert(1, "cxx98" if is_old else "cxx11")
    return "-".join(parts)


def _in_order(variants: Collection[Variant]) -> tuple[Variant, ...]:
    """By backend, Torch, compute version and system."""
    torches = nix_version.keys(one.torch for one in variants)

    def order(one: Variant) -> tuple[object, ...]:
        system = _system_order(one.system)
        return (_BACKENDS.index(one.backend), torches[one.torch], len(one.compute), one.compute, system)

    return tuple(sorted(variants, key=order))


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
        if first is not variant:
            merged[variant.name] = first._replace(
                bundled=first.bundled or variant.bundled,
                chosen_for_ci=first.chosen_for_ci or variant.chosen_for_ci,
            )
    return _in_order(merged.values())
