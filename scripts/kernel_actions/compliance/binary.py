"""Rules about the extensions of a built variant: KA7xx."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_actions.compliance import elf, files
from kernel_actions.compliance.engine import Family, Problem
from kernel_actions.compliance.variant import Variant, VariantName
from kernel_actions.errors import Place, WrongInput, WrongSurroundings

# What kernel-builder's check-abi checks against.
MANYLINUX = "manylinux_2_28"
PYTHON_ABI = "3.9"
MACOS = "15.0"
# The first bytes of a library: of 64 bits, low byte first, as on every system that the builder builds for.
FORMATS = {b"\x7fELF": "ELF", b"\xcf\xfa\xed\xfe": "Mach-O"}
# What the ABI checker says before what is wrong: which file it was about.
_CHECKER = re.compile(r"^Cannot [^`]*`[^`]*`: ")


@dataclass(frozen=True)
class Binary:
    """An extension: ``object`` is the ABI checker's view of it, ``None`` where that cannot read it, which
    ``unread`` says why. ``format`` is ``ELF`` or ``Mach-O``, and empty then."""

    path: Path
    name: VariantName | None
    object: Any
    format: str
    header: elf.Header | None
    unread: str

    @property
    def where(self) -> Place:
        """The place of what is about it."""
        return Place(self.path)


RULES: Family[Binary] = Family()


@RULES.rule
def binary_readable(binary: Binary) -> Iterator[Problem]:
    if binary.unread:
        yield Problem(binary.unread, binary.where)


@RULES.rule
def binary_system(binary: Binary) -> Iterator[Problem]:
    if binary.object is None or binary.name is None or not binary.name.is_compiled:
        return
    expected = "Mach-O" if binary.name.os == "darwin" else "ELF"
    if binary.format != expected:
        message = f"is of the format {binary.format}, and {binary.name.os} loads {expected}"
        yield Problem(message, binary.where)
    elif binary.header is not None and binary.header.machine != binary.name.machine:
        yield Problem(f"is for {binary.header.machine}, not for {binary.name.machine}", binary.where)


@RULES.rule
def binary_symbols(binary: Binary) -> Iterator[Problem]:
    if binary.header is not None and not binary.header.has_symbols:
        yield Problem("has no symbol table, so that its symbols cannot be checked", binary.where)


@RULES.rule
def binary_python_abi(binary: Binary) -> Iterator[Problem]:
    if binary.object is None:
        return
    for violation in binary.object.check_python_abi(PYTHON_ABI):
        added = getattr(violation, "version_added", None)
        why = f"which Python has since {added}" if added else "which is not in the stable ABI"
        yield Problem(f"uses {violation.name}, {why}", binary.where)


@RULES.rule
def binary_manylinux(binary: Binary) -> Iterator[Problem]:
    if binary.format != "ELF":
        return
    for violation in binary.object.check_manylinux(MANYLINUX):
        yield Problem(f"uses {violation.name} of {violation.dep} {violation.version}", binary.where)


@RULES.rule
def binary_macos(binary: Binary) -> Iterator[Problem]:
    if binary.format != "Mach-O":
        return
    for violation in binary.object.check_macos(MACOS):
        version = getattr(violation, "version", None)
        message = f"needs macOS {version}" if version else "does not say which macOS it needs"
        yield Problem(message, binary.where)


def binaries(variant: Variant) -> Iterator[Binary]:
    """The extensions in a variant, wherever they are.

    Raises ``WrongSurroundings`` without kernel-abi-check.
    """
    for entry in variant.listing.entries:
        # Those that are too large were not read, and there is a rule against them.
        if entry.is_file and entry.name.endswith((".so", ".dylib")) and entry.size <= files.LARGEST_FILE:
            yield read(entry.path, variant.name)


def read(path: Path, name: VariantName | None) -> Binary:
    """Read the extension ``path`` of a variant of that name."""
    try:
        from kernel_abi_check import ObjectFile
    except ModuleNotFoundError as error:
        raise WrongSurroundings(
            "the Python package kernel-abi-check is not installed",
            repair="python -m pip install kernel-abi-check",
        ) from error
    try:
        with path.open("rb") as file:
            form = FORMATS.get(file.read(4), "")
        if not form:
            return Binary(path, name, None, "", None, "is no library of Linux or macOS")
        found = ObjectFile(path)
        # All symbols are read here once, so that what is wrong further back in the file shows.
        found.check_python_abi(PYTHON_ABI)
        if form == "ELF":
            found.check_manylinux(MANYLINUX)
        header = elf.read_header(path) if form == "ELF" else None
    except (ValueError, OSError) as error:
        return Binary(path, name, None, "", None, f"cannot be read: {_CHECKER.sub('', str(error))}")
    except WrongInput as error:
        return Binary(path, name, None, "", None, error.what)
    return Binary(path, name, found, form, header, "")
