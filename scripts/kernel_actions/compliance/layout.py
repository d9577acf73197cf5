"""Rules about the files of a built variant: KA5xx."""

from __future__ import annotations

import os
import stat
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kernel_actions import console
from kernel_actions.compliance import files
from kernel_actions.compliance.engine import Family, Problem
from kernel_actions.compliance.files import Entry
from kernel_actions.compliance.kernel import Kernel
from kernel_actions.compliance.variant import Variant
from kernel_actions.errors import Place

# The largest public kernels have some hundred megabytes for a variant, and everyone who uses one loads it.
LARGEST_VARIANT = 1_000_000_000


@dataclass(frozen=True)
class Built:
    """All variants that were checked, by the paths of their folders. ``is_complete``: there should be all
    that a release publishes."""

    kernel: Kernel
    folders: tuple[Path, ...]
    is_complete: bool


RULES: Family[Variant] = Family()
SET_RULES: Family[Built] = Family()
# About what is in the place of a variant, and is none that anything else can be said of.
LINK_RULES: Family[Path] = Family()

_BYTECODE = (".pyc", ".pyo")


@RULES.rule
def layout_name(variant: Variant) -> Iterator[Problem]:
    if variant.name is None:
        yield Problem(f"{variant.path.name} is not the name of a variant", variant.where)


@RULES.rule
def layout_init(variant: Variant) -> Iterator[Problem]:
    if not (variant.path / "__init__.py").is_file():
        yield Problem("there is no __init__.py", variant.where)


@RULES.rule
def layout_compatibility(variant: Variant) -> Iterator[Problem]:
    if variant.kernel is None or variant.output is None or not variant.output.makes_package_folder:
        return
    name = variant.kernel.python_name
    if not (variant.path / name / "__init__.py").is_file():
        yield Problem(f"there is no {name}/__init__.py", variant.where)


@RULES.rule
def layout_bytecode(variant: Variant) -> Iterator[Problem]:
    for entry in variant.listing.entries:
        if not entry.is_folder and (
            entry.name.endswith(_BYTECODE) or "__pycache__" in PurePosixPath(entry.name).parts
        ):
            yield Problem("is Python bytecode", Place(entry.path))


@RULES.rule
def layout_links(variant: Variant) -> Iterator[Problem]:
    for entry in variant.listing.entries:
        if entry.is_link and (reason := _broken(variant, entry)):
            yield Problem(reason, Place(entry.path))


@LINK_RULES.rule
def layout_links_(folder: Path) -> Iterator[Problem]:
    yield Problem(f"is a link to {os.readlink(folder)}, and was not checked", Place(folder))


@RULES.rule
def layout_special(variant: Variant) -> Iterator[Problem]:
    for entry in variant.listing.entries:
        if not (entry.is_file or entry.is_folder or entry.is_link):
            yield Problem("is neither a file nor a folder", Place(entry.path))


@RULES.rule
def layout_writable(variant: Variant) -> Iterator[Problem]:
    for entry in variant.listing.entries:
        if entry.mode & stat.S_IWOTH and (entry.is_file or entry.is_folder):
            mode = stat.S_IMODE(entry.mode)
            yield Problem(f"can be written to by everyone (mode {mode:o})", Place(entry.path))


@RULES.rule
def layout_case(variant: Variant) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for entry in variant.listing.entries:
        folded = unicodedata.normalize("NFC", entry.name).casefold()
        first = seen.setdefault(folded, entry.name)
        # When folders collide, so does all that is in them; they are enough.
        if first != entry.name and PurePosixPath(first).parent == PurePosixPath(entry.name).parent:
            yield Problem(f"differs from {first} only in case", Place(entry.path))


@RULES.rule
def layout_characters(variant: Variant) -> Iterator[Problem]:
    for entry in variant.listing.entries:
        name = PurePosixPath(entry.name).name
        if not name.isprintable() or "\\" in name:
            yield Problem("has a name that not every system can have", Place(entry.path))


@RULES.rule
def layout_size(variant: Variant) -> Iterator[Problem]:
    if variant.listing.cut:
        yield Problem(f"{variant.listing.cut}: not all of them were checked", variant.where)
    for entry in variant.listing.entries:
        if entry.is_file and entry.size > files.LARGEST_FILE:
            yield Problem(f"is larger than {files.LARGEST_FILE} bytes and was not read", Place(entry.path))


@RULES.rule
def layout_total(variant: Variant) -> Iterator[Problem]:
    total = sum(entry.size for entry in variant.listing.entries if entry.is_file)
    if total > LARGEST_VARIANT:
        yield Problem(f"has {console.size(total)} in all", variant.where)


@SET_RULES.rule
def layout_planned(built: Built) -> Iterator[Problem]:
    if built.kernel.plan is None:
        return
    names = {variant.name for variant in built.kernel.plan.variants.variants}
    for folder in built.folders:
        if folder.name not in names:
            yield Problem(f"{folder.name} is not in the plan of the locked builder", Place(folder))


@SET_RULES.rule
def layout_complete(built: Built) -> Iterator[Problem]:
    if built.kernel.plan is None or not built.is_complete:
        return
    there = {folder.name for folder in built.folders}
    wanted = {one.name for one in built.kernel.plan.variants.variants if one.bundled}
    for name in sorted(wanted - there):
        yield Problem(f"{name} is not there, and a release publishes it", built.kernel.where)


def _broken(variant: Variant, entry: Entry) -> str:
    """What is wrong with a symbolic link; empty for one that stays in the variant."""
    try:
        target = entry.path.resolve(strict=True)
    except (OSError, RuntimeError):  # RuntimeError: a loop, before Python 3.13.
        return "is a link to nowhere"
    return "" if target.is_relative_to(variant.path.resolve()) else "is a link out of the variant"
