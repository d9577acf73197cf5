"""Which GPUs the code inside an extension is for.

nvcc puts fat binaries into the section ``.nv_fatbin`` of an ELF file: each a header and entries, an
entry for the machine code of an architecture, or for PTX, which the driver compiles for newer ones.
The layout of their headers is not documented; it was read off what nvcc 13.0 writes, and agrees with
what cuobjdump lists.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ELF = b"\x7fELF\x02\x01"
_ELF_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_MAGIC = 0xBA55ED50
# Magic, version, size of this header, size of the entries after it.
_FATBIN = struct.Struct("<IHHQ")
# Kind, version, size of this header, size of what follows; at 28 the architecture, at 40 the flags.
_ENTRY = struct.Struct("<HHIQ")
_ARCHITECTURE = struct.Struct("<I8xQ")
_PTX, _MACHINE_CODE = 1, 2
# For this very architecture alone (sm_90a), and for this family of architectures (sm_100f).
_ALONE, _FAMILY = 1 << 20, 1 << 21
_LARGEST = 4 << 30


@dataclass(frozen=True, order=True)
class Code:
    """Code for ``capability`` (90 is 9.0): PTX, or machine code. ``suffix`` is ``a`` where it is for
    that one alone, ``f`` where it is for its family, else empty."""

    capability: int
    suffix: str
    is_ptx: bool

    def __str__(self) -> str:
        return f"{'compute' if self.is_ptx else 'sm'}_{self.capability}{self.suffix}"

    def runs_on(self, capability: int) -> bool:
        """Whether a GPU of this capability runs it.

        Machine code runs on the same major version from its minor version on, PTX on anything newer.
        Source: CUDA C++ Programming Guide, "Compute Capability" and "Family-Specific Features".
        """
        if self.suffix == "a":
            return self.capability == capability
        if self.suffix == "f" or not self.is_ptx:
            return self.capability // 10 == capability // 10 and self.capability <= capability
        return self.capability <= capability


def codes(folder: Path) -> tuple[Code, ...]:
    """What the extensions in ``folder`` hold; empty when there is no code for GPUs of NVIDIA."""
    found: set[Code] = set()
    for path in sorted(folder.rglob("*.so")):
        if path.is_file() and not path.is_symlink():
            found |= set(read(path))
    return tuple(sorted(found))


def read(path: Path) -> tuple[Code, ...]:
    """The code in one ELF file; empty for another kind of file, or one that is damaged."""
    try:
        if path.stat().st_size > _LARGEST:
            return ()
        data = _section(path, ".nv_fatbin")
    except (OSError, struct.error):
        return ()
    return tuple(sorted(set(_codes(data))))


def _codes(data: bytes) -> Iterator[Code]:
    at = 0
    while at + _FATBIN.size <= len(data):
        magic, _version, header, size = _FATBIN.unpack_from(data, at)
        if magic != _MAGIC or header < _FATBIN.size:
            at += 8  # Fat binaries are aligned, and what is between them is zeros.
            continue
        entry, end = at + header, min(at + header + size, len(data))
        while entry + 64 <= end:
            kind, _version, entry_header, entry_size = _ENTRY.unpack_from(data, entry)
            architecture, flags = _ARCHITECTURE.unpack_from(data, entry + 28)
            if entry_header < 64:
                break
            if kind in (_PTX, _MACHINE_CODE):
                suffix = "a" if flags & _ALONE else "f" if flags & _FAMILY else ""
                yield Code(architecture, suffix, kind == _PTX)
            entry += entry_header + entry_size
        at = max(end, at + 8)
        at += -at % 8


def _section(path: Path, wanted: str) -> bytes:
    """The bytes of a section of an ELF file of 64 bits; empty when it has none."""
    with path.open("rb") as file:
        start = file.read(_ELF_HEADER.size)
        if not start.startswith(_ELF) or len(start) < _ELF_HEADER.size:
            return b""
        fields = _ELF_HEADER.unpack(start)
        offset, size, count, names = fields[6], fields[11], fields[12], fields[13]
        if size != _SECTION.size:
            return b""
        file.seek(offset)
        sections = [_SECTION.unpack(file.read(size)) for _ in range(count)]
        if names >= len(sections):
            return b""
        file.seek(sections[names][4])
        table = file.read(min(sections[names][5], 1 << 20))
        for section in sections:
            end = table.find(b"\0", section[0])
            if table[section[0] : end].decode(errors="replace") == wanted:
                file.seek(section[4])
                return file.read(min(section[5], _LARGEST))
    return b""
