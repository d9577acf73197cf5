"""Which GPUs of NVIDIA the code inside an extension is for, read piece by piece.

The sections with fat binaries are most of an extension, and hostile ones are as large as a file can be: only
the headers in them are read. Their layout is described in ``test/fatbin.py``, whose ``Code`` this gives.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import BinaryIO

from kernel_actions.compliance.elf import Header
from kernel_actions.test.fatbin import Code

_SECTIONS = (".nv_fatbin", "__nv_relfatbin")
_MAGIC = struct.pack("<I", 0xBA55ED50)
_FATBIN = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQ")
_ARCHITECTURE = struct.Struct("<I8xQ")
_LARGEST_ENTRY_HEADER = 64
_PTX, _MACHINE_CODE = 1, 2
_ALONE, _FAMILY = 1 << 20, 1 << 21
_ALIGNED = 8
# Between two fat binaries there are some zeros at most.
_PIECE = 1 << 16
# Torch itself has some thousand.
_MOST_ENTRIES = 200_000


def read(header: Header) -> tuple[Code, ...]:
    """The code in an ELF file, sorted, each once; empty where there is none."""
    found: set[Code] = set()
    with header.path.open("rb") as file:
        whole = os.fstat(file.fileno()).st_size
        for section in header.sections:
            if section.name in _SECTIONS:
                end = min(section.offset + section.size, whole)
                found.update(_codes(file, section.offset, end))
    return tuple(sorted(found))


def _codes(file: BinaryIO, at: int, end: int) -> Iterator[Code]:
    left = _MOST_ENTRIES
    start = at
    while left > 0 and (found := _next_magic(file, start, at, end)) >= 0:
        _, _version, size, following = _FATBIN.unpack(_read(file, found, _FATBIN.size))
        if size < _FATBIN.size:
            at = found + _ALIGNED
            continue
        entry, last = found + size, min(found + size + following, end)
        while entry + _LARGEST_ENTRY_HEADER <= last and left > 0:
            left -= 1
            data = _read(file, entry, _LARGEST_ENTRY_HEADER)
            if len(data) < _LARGEST_ENTRY_HEADER:
                break
            kind, _version, entry_size, payload = _ENTRY.unpack_from(data)
            if entry_size < _LARGEST_ENTRY_HEADER:
                break
            if kind in (_PTX, _MACHINE_CODE):
                capability, flags = _ARCHITECTURE.unpack_from(data, 28)
                yield Code(
                    capability, "a" if flags & _ALONE else "f" if flags & _FAMILY else "", kind == _PTX
                )
            entry += entry_size + payload
        left -= 1
        at = max(last, found + _ALIGNED)


def _next_magic(file: BinaryIO, start: int, at: int, end: int) -> int:
    """Where the next fat binary begins; -1 if there is none near. They are aligned, from ``start`` on."""
    at += -(at - start) % _ALIGNED
    data = _read(file, at, max(0, min(_PIECE, end - at)))
    found = data.find(_MAGIC)
    while found >= 0 and found % _ALIGNED:
        found = data.find(_MAGIC, found + 1)
    return at + found if 0 <= found <= len(data) - _FATBIN.size else -1


def _read(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    return file.read(size)
