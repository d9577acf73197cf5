"""Rules about flake.lock and flake.nix: KA2xx."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath

from kernel_actions import builder, flake_lock, git, nix_version, reads, submodules
from kernel_actions.compliance import clock, files
from kernel_actions.compliance.engine import Family, Problem
from kernel_actions.compliance.kernel import Kernel, sources
from kernel_actions.errors import KernelActionsError, Place, WrongInput, WrongSurroundings
from kernel_actions.flake_lock import LockedBuilder

RULES: Family[Kernel] = Family()

# In days: the builder has a release for each Torch, of which there are four or more a year.
OLDEST = 365
_DAY = 86_400
_EPOCH = datetime.date(1970, 1, 1)
_LARGEST = 1_000_000
# The public cache of the builder, and the key that signs what is in it: nix/configuration.py.
_CACHE, _CACHE_NAME = "huggingface.cachix.org", "huggingface.cachix.org-1:"
_CACHE_KEY = "huggingface.cachix.org-1:ynTPbLS0W8ofXd9fDjk1KvoFky9K2jhxe6r4nXAkc/o="
_READ_BY_NIX = ("build.toml", "flake.nix", "flake.lock")


@RULES.rule
def flake_lock_(kernel: Kernel) -> Iterator[Problem]:
    if isinstance(kernel.builder, WrongInput):
        yield Problem.of(kernel.builder, _where(kernel))


@RULES.rule
def flake_builder(kernel: Kernel) -> Iterator[Problem]:
    if isinstance(kernel.builder, WrongSurroundings):
        yield Problem(kernel.builder.what, _where(kernel))


@RULES.rule
def flake_fork(kernel: Kernel) -> Iterator[Problem]:
    found = _locked(kernel)
    if found is not None and not found.is_official:
        what = f"input {found.input_name} is {found.repository}, and not {flake_lock.REPOSITORIES[0]}"
        yield Problem(what, _revision_place(kernel, found))


@RULES.rule
def flake_renamed(kernel: Kernel) -> Iterator[Problem]:
    found = _locked(kernel)
    old, new = flake_lock.REPOSITORIES[1], flake_lock.REPOSITORIES[0]
    if found is not None and found.repository == old:
        what = f"input {found.input_name} is {old}, which is {new} since 2026-01"
        yield Problem(what, _revision_place(kernel, found))


@RULES.rule
def flake_age(kernel: Kernel) -> Iterator[Problem]:
    found = _locked(kernel)
    made = found.node.get("lastModified") if found is not None else None
    if found is None or not isinstance(made, int):
        return
    days = (clock.today() - _EPOCH).days - made // _DAY
    if days > OLDEST:
        key = "the builder's revision is old"
        yield Problem(f"the builder's revision is {days} days old", _revision_place(kernel, found), key=key)


@RULES.rule
def flake_torch(kernel: Kernel) -> Iterator[Problem]:
    if kernel.plan is None:
        return
    covered: dict[str, str] = {}
    for variant in kernel.plan.variants.variants:
        # Those without Torch in their names, and those for its stable ABI, are for later ones too.
        if "-stable-abi" in variant.name or not variant.name.startswith("torch2"):
            continue
        newest = covered.get(variant.backend, "0")
        covered[variant.backend] = max(newest, variant.torch, key=nix_version.key)
    for backend, torch in sorted(covered.items()):
        newest = _newest_torch().get(backend, torch)
        if nix_version.compare(torch, newest) < 0:
            what = f"the newest Torch with a variant for {backend} is {torch}, and there is {newest}"
            yield Problem(what, _where(kernel), key=f"there is a newer Torch for {backend}")


@RULES.rule
def flake_committed(kernel: Kernel) -> Iterator[Problem]:
    names = [name for name in _READ_BY_NIX if (kernel.directory / name).exists()]
    tracked = git.tracked(kernel.directory, *names) if names else frozenset()
    left = [name for name in names if name not in tracked]
    # Most have all of them there, and git is asked once.
    if left and git.state(kernel.directory) is not None:
        for name in left:
            what = "is not in git, so that the builder does not see it"
            yield Problem(what, Place(kernel.directory / name))


@RULES.rule
def flake_cache(kernel: Kernel) -> Iterator[Problem]:
    text = kernel.flake
    at = text.find(_CACHE)
    if at >= 0 and _CACHE_KEY not in text:
        what = f"names the cache {_CACHE}, " + (
            "with another key than its own" if _CACHE_NAME in text else "without its key"
        )
        line = text.count("\n", 0, at) + 1
        yield Problem(what, Place(kernel.directory / "flake.nix", line))


@RULES.rule
def flake_submodules(kernel: Kernel) -> Iterator[Problem]:
    if kernel.manifest is None or submodules.nix_fetches(kernel.directory):
        return
    directory = kernel.directory.resolve()
    root = next((one for one in (directory, *directory.parents) if (one / ".git").exists()), directory)
    listed = submodules.listed(root)
    if not listed:
        return
    named = [
        (("kernel", one.name, "include"), name) for one in kernel.manifest.components for name in one.include
    ]
    told = set()
    for key, name in [*sources(kernel.manifest), *named]:
        path = PurePosixPath(os.path.relpath(directory / name, root))
        inside = next((one for one in listed if path.is_relative_to(one)), None)
        if inside is not None:
            told.add(inside)
            what = (
                f"{name} is in the submodule {_from(directory, root, inside)}, which flake.nix does not fetch"
            )
            yield Problem(what, kernel.manifest.file.place(key))
    # Of torch-ext and tests the builder takes what is there, whether or not build.toml names it.
    found = reads.of_kernel(directory, root)
    for path in listed:
        if path not in told and found.uses_submodule(path):
            what = f"the submodule {_from(directory, root, path)} is read, and flake.nix does not fetch it"
            yield Problem(what, Place(kernel.directory / "flake.nix"))


def _from(directory: Path, root: Path, path: PurePosixPath) -> str:
    """A path from the repository's root as one from the kernel's folder."""
    return PurePosixPath(os.path.relpath(root / path, directory)).as_posix()


@lru_cache(maxsize=1)
def _newest_torch() -> dict[str, str]:
    """The newest Torch that a known revision of the builder builds for, by backend; no candidates of it."""
    newest: dict[str, str] = {}
    for path in sorted((builder.DATA / "tables").glob("*.json")):
        for one in builder.build_sets(json.loads(path.read_bytes())):
            if one.torch.replace(".", "").isdigit() and one.bundled:
                newest[one.backend] = max(newest.get(one.backend, "0"), one.torch, key=nix_version.key)
    return newest


def _locked(kernel: Kernel) -> LockedBuilder | None:
    if isinstance(kernel.builder, WrongInput):
        return None
    try:
        return flake_lock.read(kernel.directory / "flake.lock")
    except KernelActionsError:
        return None


def _where(kernel: Kernel) -> Place:
    return Place(kernel.directory / "flake.lock")


def _revision_place(kernel: Kernel, found: LockedBuilder) -> Place:
    """Where the revision stands in flake.lock."""
    path = kernel.directory / "flake.lock"
    try:
        lines = files.read(path, 4 * _LARGEST).decode(errors="replace").split("\n")
    except WrongInput:
        return Place(path)
    for number, line in enumerate(lines, 1):
        if found.commit and (column := line.find(f'"{found.commit}"')) >= 0:
            return Place(path, number, column + 1)
    return Place(path)
