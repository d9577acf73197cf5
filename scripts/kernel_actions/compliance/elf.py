"""What an ELF file says about itself: machine, sections, dynamic section, symbols.

Nothing is read as a whole, and no number in the file is trusted: what it points to outside of the file is
empty. The layout: https://refspecs.linuxfoundation.org/elf/gabi4+/contents.html
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from kernel_actions.errors import Place, WrongInput

# e_machine, by the name of the machine in a variant's name. Source: elf.h.
MACHINES = {62: "x86_64", 183: "aarch64"}
NULL, SYMBOL_TABLE, NO_BITS, DYNAMIC_SYMBOLS = 0, 2, 8, 11
# ELF64, little-endian: the byte order and word size of all systems that the builder builds for.
_IDENTIFICATION = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_NEED = struct.Struct("<HHIII")
_NEED_VERSION = struct.Struct("<IHHII")
_LOAD, _DYNAMIC_SEGMENT, _STACK = 1, 2, 0x6474E551
_NEEDED, _STRINGS, _STRINGS_SIZE, _RPATH, _RUNPATH = 1, 5, 10, 15, 29
_VERSIONS, _NEEDED_VERSIONS = 0x6FFFFFFF, 0x6FFFFFFE
_EXECUTABLE = 1
_HIDDEN = 0x7FFF
# More than any library has; what is beyond is not looked at.
_MOST_ENTRIES = 1_000_000
_LARGEST_TABLE = 64_000_000


@dataclass(frozen=True)
class Section:
    """A section: ``kind`` is its type, ``link`` the number of the one that belongs to it."""

    name: str
    kind: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True)
class Symbol:
    """A dynamic symbol, and the version of another library's that it needs (``GLIBC_2.34``)."""

    name: str
    is_defined: bool
    is_visible: bool
    version: str


@dataclass(frozen=True)
class Header:
    """``machine`` is a name of ``MACHINES``, else a number; ``has_symbols``: there is a symbol table, which
    is not the one for the dynamic linker.

    ``needed`` are the libraries that it is loaded with, ``search`` where they are looked for first.
    ``has_executable_stack`` is ``None`` where it does not say, which systems take for yes. ``is_cut``: there
    is less of the file than its section headers say.
    """

    path: Path
    machine: str
    sections: tuple[Section, ...]
    needed: tuple[str, ...]
    search: tuple[str, ...]
    has_executable_stack: bool | None
    is_cut: bool = False

    @property
    def has_symbols(self) -> bool:
        """Whether there is a symbol table beside the dynamic one."""
        return any(section.kind == SYMBOL_TABLE for section in self.sections)

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """The dynamic symbols."""
        with self.path.open("rb") as file:
            return tuple(_symbols(file, self.sections))


def read_header(path: Path) -> Header:
    """The header of the ELF file ``path``. Raises ``WrongInput`` when it is none or is cut off."""
    with path.open("rb") as file:
        start = file.read(_HEADER.size)
        if not start.startswith(_IDENTIFICATION) or len(start) < _HEADER.size:
            raise WrongInput("is not an ELF file of 64 bits, low byte first", where=Place(path))
        fields = _HEADER.unpack(start)
        machine, program_offset, offset = fields[2], fields[5], fields[6]
        program_size, program_count, entry_size, count, names = fields[9:14]
        table = part(file, offset, entry_size * count) if offset and entry_size == _SECTION.size else b""
        programs = list(_entries(_PROGRAM, part(file, program_offset, program_size * program_count)))
        if program_size != _PROGRAM.size:
            programs = []
        needed, search = _dynamic(file, programs)
        sections = tuple(_sections(file, list(_entries(_SECTION, table)), names))
        whole = os.fstat(file.fileno()).st_size
    flags = [one[1] for one in programs if one[0] == _STACK]
    return Header(
        path=path,
        machine=MACHINES.get(machine, str(machine)),
        sections=sections,
        needed=needed,
        search=search,
        has_executable_stack=bool(flags[0] & _EXECUTABLE) if flags else None,
        is_cut=len(sections) < count
        or any(one.offset + one.size > whole for one in sections if one.kind not in (NULL, NO_BITS)),
    )


def part(file: BinaryIO, offset: int, size: int) -> bytes:
    """What is there of ``size`` bytes at ``offset``; empty for what is outside of the file."""
    whole = os.fstat(file.fileno()).st_size
    if offset >= whole or size <= 0:
        return b""
    file.seek(offset)
    return file.read(min(size, whole - offset, _LARGEST_TABLE))


def symbols_alone(header: Header, kind: int = DYNAMIC_SYMBOLS) -> bytes:
    """An ELF file with the symbols of a table of another one as its symbol table, and nothing else: for
    programs that read that table alone, and files that are too large to be read as a whole.

    Raises ``WrongInput`` when the table is larger than that of any library.
    """
    with header.path.open("rb") as file:
        found = _table(file, header.sections, kind)
    table, strings = found if found else (b"", b"\0")
    if max(len(table), len(strings)) >= _LARGEST_TABLE:
        raise WrongInput(f"has symbols of more than {_LARGEST_TABLE} bytes", where=Place(header.path))
    names = b"\0.symtab\0.strtab\0.shstrtab\0"
    contents = ((1, 2, table, 2, _SYMBOL.size), (9, 3, strings, 0, 0), (17, 3, names, 0, 0))
    made = b""
    sections = _SECTION.pack(*[0] * 10)
    for name, kind, data, link, size in contents:
        made += b"\0" * (-len(made) % 8)
        # One local symbol: the first, which is empty.
        sections += _SECTION.pack(
            name, kind, 0, 0, _HEADER.size + len(made), len(data), link, int(kind == 2), 8, size
        )
        made += data
    made += b"\0" * (-len(made) % 8)
    machine = next((number for number, name in MACHINES.items() if name == header.machine), 62)
    identification, at = _IDENTIFICATION + b"\1", _HEADER.size + len(made)
    sizes = (_HEADER.size, _PROGRAM.size, 0, _SECTION.size, len(contents) + 1, len(contents))
    start = _HEADER.pack(identification, 3, machine, 1, 0, 0, at, 0, *sizes)
    return start + made + sections


def _entries(form: struct.Struct, data: bytes) -> Iterator[tuple[int, ...]]:
    return form.iter_unpack(data[: len(data) - len(data) % form.size])


def _text(strings: bytes, at: int) -> str:
    end = strings.find(b"\0", at)
    return strings[at : end if end >= 0 else len(strings)].decode(errors="replace")


def _sections(file: BinaryIO, table: list[tuple[int, ...]], names: int) -> Iterator[Section]:
    strings = part(file, table[names][4], table[names][5]) if names < len(table) else b""
    for one in table:
        yield Section(_text(strings, one[0]), one[1], one[4], one[5], one[6])


def _dynamic(file: BinaryIO, programs: list[tuple[int, ...]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The needed libraries and the search path, as the loader finds them: without the sections."""
    entries: list[tuple[int, ...]] = []
    for one in programs:
        if one[0] == _DYNAMIC_SEGMENT:
            entries += _entries(_DYNAMIC, part(file, one[2], one[5]))
    del entries[_MOST_ENTRIES:]
    ended = next((index for index, (tag, _) in enumerate(entries) if tag == 0), len(entries))
    entries = entries[:ended]
    values = {one[0]: one[1] for one in entries}
    strings = b""
    for kind, _flags, offset, address, _, size, _, _ in programs:
        if kind == _LOAD and address <= values.get(_STRINGS, -1) < address + size:
            strings = part(file, offset + values[_STRINGS] - address, values.get(_STRINGS_SIZE, 0))
            break
    needed = tuple(_text(strings, at) for tag, at in entries if tag == _NEEDED)
    search = (_text(strings, at) for tag, at in entries if tag in (_RPATH, _RUNPATH))
    return needed, tuple(one for one in search if one)


def _table(file: BinaryIO, sections: tuple[Section, ...], kind: int) -> tuple[bytes, bytes] | None:
    """The symbols of the first table of that kind and their names, as they stand in the file."""
    table = next((one for one in sections if one.kind == kind), None)
    if table is None or table.link >= len(sections):
        return None
    strings = sections[table.link]
    return part(file, table.offset, table.size), part(file, strings.offset, strings.size)


def _symbols(file: BinaryIO, sections: tuple[Section, ...]) -> Iterator[Symbol]:
    found = _table(file, sections, DYNAMIC_SYMBOLS)
    if found is None:
        return
    table, strings = found
    names = _version_names(file, sections)
    versions = b""
    for one in sections:
        if one.kind == _VERSIONS:
            versions = part(file, one.offset, one.size)
    for index, (name, info, other, section, _, _) in enumerate(_entries(_SYMBOL, table)):
        if index >= _MOST_ENTRIES:
            return
        raw = versions[2 * index : 2 * index + 2]
        number = int.from_bytes(raw, "little") & _HIDDEN
        is_visible = other & 3 in (0, 3) and info >> 4 in (1, 2, 10)
        if text := _text(strings, name):
            yield Symbol(text, section != 0, is_visible, names.get(number, ""))


def _version_names(file: BinaryIO, sections: tuple[Section, ...]) -> dict[int, str]:
    """The names of the versions that are needed of other libraries, by the number that symbols give."""
    names: dict[int, str] = {}
    for one in sections:
        if one.kind != _NEEDED_VERSIONS or one.link >= len(sections):
            continue
        data = part(file, one.offset, one.size)
        strings = part(file, sections[one.link].offset, sections[one.link].size)
        at = 0
        # Each entry says where the next one is; one that leads back would never end.
        for _ in range(len(data) // _NEED.size):
            if at + _NEED.size > len(data):
                break
            _, count, _, first, following = _NEED.unpack_from(data, at)
            inner = at + first
            for _ in range(min(count, len(data) // _NEED_VERSION.size)):
                if inner + _NEED_VERSION.size > len(data):
                    break
                _, _, number, name, next_one = _NEED_VERSION.unpack_from(data, inner)
                names[number & _HIDDEN] = _text(strings, name)
                if not next_one:
                    break
                inner += next_one
            if not following:
                break
            at += following
    return names
