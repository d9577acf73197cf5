"""The few facts about an ELF file that the ABI checker does not give."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from kernel_actions.errors import Place, WrongInput

# e_machine, by the name of the machine in a variant's name. Source: elf.h.
MACHINES = {62: "x86_64", 183: "aarch64"}
# ELF64, little-endian: the byte order and word size of all systems that the builder builds for.
_IDENTIFICATION = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL_TABLE = 2


@dataclass(frozen=True)
class Header:
    """``machine`` is a name of ``MACHINES``, else a number; ``has_symbols``: there is a symbol table, which
    is not the one for the dynamic linker."""

    machine: str
    has_symbols: bool


def read_header(path: Path) -> Header:
    """The header of the ELF file ``path``. Raises ``WrongInput`` when it is none or is cut off."""
    with path.open("rb") as file:
        start = file.read(_HEADER.size)
        if not start.startswith(_IDENTIFICATION) or len(start) < _HEADER.size:
            raise WrongInput("is not an ELF file of 64 bits, low byte first", where=Place(path))
        fields = _HEADER.unpack(start)
        machine, offset, entry_size, count = fields[2], fields[6], fields[11], fields[12]
        file.seek(offset)
        table = file.read(entry_size * count) if offset and entry_size == _SECTION.size else b""
    whole = len(table) - len(table) % _SECTION.size
    kinds = {fields[1] for fields in _SECTION.iter_unpack(table[:whole])}
    return Header(MACHINES.get(machine, str(machine)), _SYMBOL_TABLE in kinds)
