"""From a kernel's folder to its variants: reads build.toml, flake.lock and flake.nix, and plans."""

from __future__ import annotations

from pathlib import Path

from kernel_actions import builder, builder_source, flake_lock, manifest, toml_file, variants
from kernel_actions.builder import BuilderRevision
from kernel_actions.builder_source import Source
from kernel_actions.errors import Place, WrongInput
from kernel_actions.manifest import Manifest
from kernel_actions.named_tuple import NamedTuple
from kernel_actions.variants import Override, Variant, VariantPlan

# More than a flake.nix has; the evaluator takes no more either.
_LARGEST_FLAKE = 1_000_000
# Without any of these a flake.nix gives the builder no torchVersions: neither by name, nor by one that is put
# together, nor from another file.
_MAY_CHANGE_IT = (b"torchVersions", b"import", b"callPackage", b"${")


class KernelPlan(NamedTuple):
    """A kernel, the builder that builds it, and the variants that come of it.

    ``override`` is what flake.nix makes of the builder's list, ``None`` when it takes the list as it is.
    """

    manifest: Manifest
    builder: BuilderRevision
    override: Override | None
    variants: VariantPlan


def plan(kernel_dir: Path, source: Source | None = None) -> KernelPlan:
    """The plan of the kernel in ``kernel_dir``.

    Raises ``WrongInput`` for what is wrong in the kernel's files, and ``WrongSurroundings`` for a builder
    that cannot be read from here or a flake.nix that only Nix can evaluate, where there is none.
    """
    kernel = manifest.load(kernel_dir)
    revision = builder_source.find(kernel_dir, source or builder_source.from_environment())
    override = _override(kernel_dir, revision)
    return KernelPlan(kernel, revision, override, variants.plan(kernel, revision, override))


def planned_variants(kernel_dir: Path) -> tuple[Variant, ...]:
    """All variants that the builder can make of the kernel, bundled or not."""
    return plan(kernel_dir).variants.variants


def _override(kernel_dir: Path, revision: BuilderRevision) -> Override | None:
    """What flake.nix makes of the builder's list; ``None`` when it takes the list as it is."""
    path = kernel_dir / "flake.nix"
    try:
        text = toml_file.read_bytes(path, _LARGEST_FLAKE)
        # Most kernels do: reading their flake.nix starts no evaluator.
        if len(text) <= _LARGEST_FLAKE and not any(word in text for word in _MAY_CHANGE_IT):
            return None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise WrongInput(f"cannot be read: {error.strerror}", where=Place(path)) from error
    from kernel_actions import flake

    defaults = [dict(value) for value in revision.values]
    lock = kernel_dir / "flake.lock"
    inputs = flake_lock.inputs(lock) if lock.is_file() else None
    argument = "list" if revision.rules.torch_versions_list else "function"
    try:
        found = flake.torch_versions(path, defaults, argument, inputs)
        if found is None:
            return None
        values, where = found.build_sets, found.place
    except flake.NeedsNix as error:
        from kernel_actions import nix

        if not nix.is_installed():
            raise
        answer = nix.torch_versions(path, defaults, inputs or {}, flake_lock.read(lock).input_name)
        if answer is None:
            return None
        where = error.where or Place(path)
        values = flake.check_build_sets(answer, where)
    return Override(builder.build_sets(values), where)
