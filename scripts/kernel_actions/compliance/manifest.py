"""Rules about build.toml: KA1xx."""

from __future__ import annotations

import os
from collections.abc import Iterator

from kernel_actions import console, submodules, variants
from kernel_actions.compliance import licenses
from kernel_actions.compliance.engine import Family, Problem
from kernel_actions.compliance.kernel import Kernel, is_inside, package_dir, sources
from kernel_actions.errors import KernelActionsError, Place
from kernel_actions.manifest import EDITION

RULES: Family[Kernel] = Family()

_RENAME = "rename it, or lock e9152aa2 (2026-07-30) of the builder or a later one, which adds no such folder"


@RULES.rule
def manifest_readable(kernel: Kernel) -> Iterator[Problem]:
    yield from kernel.problems
    if kernel.manifest is not None and kernel.manifest.edition == EDITION and _takes_edition(kernel) is False:
        what = f"is of edition {EDITION}, which the locked builder does not know"
        where = kernel.manifest.place("general.edition")
        yield Problem(what, where, "lock a newer builder: `nix flake update`")


@RULES.rule
def manifest_edition(kernel: Kernel) -> Iterator[Problem]:
    if kernel.manifest is None or kernel.manifest.edition >= EDITION:
        return
    what = f"is of edition {kernel.manifest.edition}, and the builder is at {EDITION}"
    repair = ""
    if _takes_edition(kernel) is False:
        # With the new edition alone, the locked builder would refuse the file.
        repair = "lock a newer builder (`nix flake update`), run `kernel-builder update-build`, commit both"
    yield Problem(what, kernel.manifest.place("general"), repair)


@RULES.rule
def manifest_bounds(kernel: Kernel) -> Iterator[Problem]:
    if kernel.manifest is None or kernel.plan is None:
        return
    there = {variant.backend for variant in kernel.plan.variants.variants if variant.bundled}
    known = {one.backend for one in kernel.plan.builder.build_sets if one.bundled}
    for backend in kernel.manifest.backends:
        if backend in known and backend not in there:
            what = f"no variant for {backend} is left that a release publishes"
            yield Problem(what, kernel.manifest.place("general.backends"))


@RULES.rule
def manifest_required(kernel: Kernel) -> Iterator[Problem]:
    plan = kernel.plan
    if plan is None:
        return
    there = {one.name for one in plan.variants.variants if one.bundled}
    served = {(one.backend, one.system) for one in plan.variants.variants if one.bundled}
    missing: dict[Place | None, dict[str, str]] = {}
    for one in variants.judge(plan.manifest, plan.builder, plan.override):
        is_of_served = (one.build_set.backend, one.system) in served
        if one.reason and one.build_set.bundled and is_of_served and one.name not in there:
            missing.setdefault(one.where, {})[one.name] = one.reason
    for where, reasons in missing.items():
        (name, reason), *others = reasons.items()
        more = f", and {console.counted(len(others), 'other variant')}" if others else ""
        # Which variants those are is up to the builder.
        key = f"variants are not published: {reason}"
        yield Problem(f"{name} is not published{more}: {reason}", where or kernel.where, key=key)


@RULES.rule
def manifest_license(kernel: Kernel) -> Iterator[Problem]:
    if kernel.manifest is None:
        return
    found = kernel.manifest.license
    if found is None:
        yield Problem("[general] has no license", kernel.manifest.place("general"))
    elif not licenses.is_known(found):
        meant = licenses.nearest(found)
        repair = f'perhaps you meant "{meant}"; others are at https://spdx.org/licenses/' if meant else ""
        where = kernel.manifest.place("general.license")
        yield Problem(f"{found!r} is no license identifier", where, repair)


@RULES.rule
def manifest_repo_id(kernel: Kernel) -> Iterator[Problem]:
    if kernel.manifest is not None and kernel.manifest.repo_id is None:
        yield Problem("[general.hub] has no repo-id", kernel.manifest.place("general.hub"))


@RULES.rule
def manifest_sources(kernel: Kernel) -> Iterator[Problem]:
    if kernel.manifest is None:
        return
    for key, name in sources(kernel.manifest):
        path = kernel.manifest.directory / name
        if not is_inside(kernel.manifest, name):
            yield Problem(f"{name} is outside of the kernel's folder", kernel.manifest.file.place(key))
        elif not os.path.isfile(path):  # Path.is_file raises for names that no file can have.
            if submodules.missing_around(path):
                continue  # Nothing is known of it here: KA209 says whether a build will have it.
            what = "is not a regular file" if os.path.exists(path) else "does not exist"
            yield Problem(f"{name} {what}", kernel.manifest.file.place(key))


@RULES.rule
def manifest_headers(kernel: Kernel) -> Iterator[Problem]:
    if kernel.manifest is None:
        return
    for one in kernel.includes.missing(kernel.manifest):
        what = f"includes {one.name}, which no src of build.toml lists"
        yield Problem(what, Place(kernel.directory / one.file, one.line))


@RULES.rule
def manifest_pyext(kernel: Kernel) -> Iterator[Problem]:
    if kernel.manifest is None:
        return
    binding = kernel.manifest.binding
    if binding.framework == "torch-noarch" and (kernel.output is None or not kernel.output.noarch_pyext):
        return  # Builders have looked at it there for some time only.
    section = kernel.manifest.file.values.get(binding.framework, {})
    # lib/source-set.nix: what is listed takes the place of py and pyi. A dot before it is one too many.
    if "pyext" in section and "py" not in binding.pyext:
        what = f"pyext of [{binding.framework}] has no py, so that the builder drops all Python files"
        yield Problem(what, kernel.manifest.place(f"{binding.framework}.pyext"))


@RULES.rule
def manifest_components(kernel: Kernel) -> Iterator[Problem]:
    if kernel.manifest is None or kernel.plan is None or kernel.manifest.binding.framework == "torch-noarch":
        return
    # lib/build.nix makes a noarch variant of such a backend, by `setup.py build_kernel --backend`; the
    # setup.py of a compiled kernel (kernel-builder/src/pyproject/mod.rs) knows no such option.
    compiled = {one.backend for one in kernel.manifest.components}
    # Of what is published: the template of `kernel-builder init` lists tpu, which is not in the bundle.
    planned = dict.fromkeys(one.backend for one in kernel.plan.variants.variants if one.bundled)
    for backend in planned:
        if backend not in compiled:
            what = f"no section is compiled for {backend}, and the builder cannot build the others without"
            yield Problem(what, kernel.manifest.place("general.backends"))


@RULES.rule
def manifest_package(kernel: Kernel) -> Iterator[Problem]:
    if kernel.manifest is None:
        return
    package = package_dir(kernel.manifest)
    init = package / "__init__.py"
    name = init.relative_to(kernel.manifest.directory)
    if not is_inside(kernel.manifest, init):
        what = f"{name.as_posix()} is outside of the kernel's folder"
        yield Problem(what, kernel.manifest.place("general.name"))
    elif not init.is_file():
        yield Problem(f"there is no {name.as_posix()}", kernel.manifest.place("general.name"))
    if kernel.output is None or not kernel.output.makes_package_folder:
        return
    inner = package / kernel.manifest.python_name
    if inner.exists():
        what = "the package holds a folder of its own name, where the locked builder puts one of its own"
        yield Problem(what, Place(inner), repair=_RENAME)
    module = inner.with_name(f"{inner.name}.py")
    if module in kernel.imported_files and module.is_file():
        # Of a folder and a file of one name Python takes the folder, which loads the package once more.
        what = "is hidden by the folder of the package's name, which the locked builder adds"
        yield Problem(what, Place(module), repair=_RENAME)


def _takes_edition(kernel: Kernel) -> bool | None:
    """Whether the locked builder takes the current edition; ``None`` where it is not known."""
    if isinstance(kernel.builder, KernelActionsError):
        return None
    # Both came with one commit: 8c4761cf of 2026-07-03.
    return kernel.builder.rules.stable_abi == "per-backend"
