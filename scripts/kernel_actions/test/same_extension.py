"""Whether two extensions are the same but for their search path, as ``patchelf`` changes it.

The builder makes an extension twice: for ``redistributable`` and ``bundle`` it runs ``patchelf --set-rpath
""`` on it, for ciTests not (``stripRPath`` in nix-builder/lib/build.nix, ``postInstall`` in
nix-builder/lib/extension/torch/arch.nix of huggingface/kernels). Seen with patchelf 0.14.3 and 0.19.3: it
overwrites the old path, in place, with a zero and X's. A path that other strings share, or that is longer
than the old one, goes to the end of the strings; these, the dynamic section and what was before them move to
a new segment, and sections change their order. Nothing of the code, the data and their addresses changes, and
this is what is compared: every section's contents, what the dynamic section points to, the symbols, and bytes
outside of sections.

The build id is left out: linkers hash the path too, which names the derivation itself ($out/lib).
"""

from __future__ import annotations

import mmap
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_IDENTIFICATION = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_SYMBOL = struct.Struct("<IBBHQQ")
# Numbers of elf.h: types of sections, of segments, flags, tags of the dynamic section, types of symbols.
_SYMTAB, _STRTAB, _RELA, _DYNAMIC_SECTION, _NOTE, _NOBITS, _REL, _DYNSYM = 2, 3, 4, 6, 7, 8, 9, 11
_HASHES = (5, 0x6FFFFFF6)
_VERSIONS = (0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF)
# Of these patchelf may change the address: they are looked up by the dynamic section alone.
_MOVABLE = {_STRTAB, _DYNAMIC_SECTION, _NOTE, _DYNSYM, _RELA, _REL, *_HASHES, *_VERSIONS}
_LOAD = 1
# Segments that follow the sections they hold: PT_DYNAMIC, PT_NOTE, PT_PHDR, PT_GNU_PROPERTY.
_FOLLOWING = (2, 4, 6, 0x6474E553)
_EXECUTABLE = 1
_ALLOCATED = 2
_INFO_IS_SECTION = 0x40
_NULL_TAG, _STRINGS, _STRINGS_SIZE, _RPATH, _RUNPATH = 0, 5, 10, 15, 29
# DT_NEEDED, DT_SONAME, DT_AUXILIARY, DT_FILTER, DT_AUDIT, DT_DEPAUDIT.
_STRING_TAGS = (1, 14, 0x7FFFFFFD, 0x7FFFFFFF, 0x6FFFFEFC, 0x6FFFFEFB)
_SPECIAL_SECTION = 0xFF00
# Of tags whose values are addresses these are of sections: DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_INIT,
# DT_FINI, DT_REL, DT_JMPREL, DT_INIT_ARRAY, DT_FINI_ARRAY, DT_GNU_HASH, DT_VERSYM, DT_VERDEF, DT_VERNEED.
_POINTERS = (4, 5, 6, 7, 12, 13, 17, 23, 25, 26, 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFE)
# What patchelf fills a place with that it has emptied.
_FILLERS = b"\0XZ"
_BUILD_ID = ".note.gnu.build-id"
_CHUNK = 1 << 20


class Unreadable(Exception):
    """The file is no ELF file of 64 bits, low byte first, or points outside of itself."""


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    entry: int


@dataclass(frozen=True)
class _Segment:
    kind: int
    flags: int
    offset: int
    address: int
    size: int
    memory: int


class _Elf:
    """The parts of an ELF file. ``data`` is mapped, as an extension may have gigabytes."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        if len(data) < _HEADER.size or data[: len(_IDENTIFICATION)] != _IDENTIFICATION:
            raise Unreadable
        fields = _HEADER.unpack_from(data)
        self.identity = (*fields[:5], fields[7])
        program_offset, section_offset = fields[5], fields[6]
        program_size, programs, section_size, sections, names = fields[9:14]
        if (programs and program_size != _PROGRAM.size) or (sections and section_size != _SECTION.size):
            raise Unreadable
        self.program_table = (program_offset, programs * _PROGRAM.size)
        self.section_table = (section_offset, sections * _SECTION.size)
        self.segments = [
            _Segment(kind, flags, offset, address, size, memory)
            for kind, flags, offset, address, _, size, memory, _ in _PROGRAM.iter_unpack(
                self.part(*self.program_table)
            )
        ]
        raw = list(_SECTION.iter_unpack(self.part(*self.section_table)))
        strings = self.part(raw[names][4], raw[names][5]) if names < len(raw) else b""
        self.tables = self.data[: _HEADER.size] + b"".join(
            self.part(*table) for table in (self.program_table, self.section_table)
        )
        self.names_section = names
        self.sections = [
            _Section(_text(strings, name), kind, flags, address, offset, size, link, info, entry)
            for name, kind, flags, address, offset, size, link, info, _, entry in raw
        ]
        for section in self.sections:
            if section.kind not in (0, _NOBITS) and section.offset + section.size > len(data):
                raise Unreadable
        for segment in self.segments:
            if segment.offset + segment.size > len(data):
                raise Unreadable
        dynamic = [one for one in self.sections if one.kind == _DYNAMIC_SECTION]
        if len(dynamic) > 1 or any(one.link >= len(self.sections) for one in self.sections):
            raise Unreadable
        self.dynamic = list(self._dynamic(dynamic[0])) if dynamic else []
        self.strings = self.sections[dynamic[0].link] if dynamic else None

    def part(self, offset: int, size: int) -> bytes:
        """The bytes at ``offset``. Raises ``Unreadable`` for those outside of the file."""
        if offset + size > len(self.data):
            raise Unreadable
        return self.data[offset : offset + size]

    def _dynamic(self, section: _Section) -> Iterator[tuple[int, int]]:
        data = self.part(section.offset, section.size)
        for tag, value in _DYNAMIC.iter_unpack(data[: len(data) - len(data) % _DYNAMIC.size]):
            if tag == _NULL_TAG:
                return
            yield tag, value

    def contents(self, section: _Section) -> bytes:
        """The bytes of a section."""
        return b"" if section.kind == _NOBITS else self.part(section.offset, section.size)

    def name_of(self, number: int) -> str | int:
        """The name of the section ``number``; the number itself where that has a meaning of its own."""
        if number == 0 or number >= _SPECIAL_SECTION or number >= len(self.sections):
            return number
        return self.sections[number].name

    def section_at(self, address: int) -> str | None:
        """The name of the loaded section that begins at ``address``."""
        for section in self.sections:
            if section.flags & _ALLOCATED and section.address == address and section.size:
                return section.name
        return None

    def permissions(self, section: _Section) -> int | None:
        """The flags of the segment that a section is loaded by."""
        for one in self.segments:
            if one.kind == _LOAD and one.address <= section.address < one.address + max(one.memory, 1):
                return one.flags
        return None

    def is_loaded_as_it_stands(self, section: _Section) -> bool:
        """Whether a segment loads the section's contents to the section's address."""
        for one in self.segments:
            if one.kind == _LOAD and one.address <= section.address < one.address + max(one.memory, 1):
                if section.kind == _NOBITS:
                    return True
                at = section.address - one.address
                return one.offset + at == section.offset and at + section.size <= one.size
        # That of thread-local variables without a value takes no memory of its own.
        return section.kind == _NOBITS

    def search_path(self) -> tuple[int, bytes] | None:
        """Where in the strings the search path is, and what it is."""
        for tag, value in self.dynamic:
            if tag in (_RPATH, _RUNPATH) and self.strings is not None:
                strings = self.contents(self.strings)
                return value, strings[value : max(strings.find(b"\0", value), value)]
        return None


def difference(tested: Path, published: Path) -> str:
    """What differs between two extensions beside their search paths; empty when nothing does."""
    if not tested.stat().st_size or not published.stat().st_size:
        return "" if tested.stat().st_size == published.stat().st_size else "one of them is empty"
    with (
        tested.open("rb") as first,
        published.open("rb") as second,
        mmap.mmap(first.fileno(), 0, access=mmap.ACCESS_READ) as one,
        mmap.mmap(second.fileno(), 0, access=mmap.ACCESS_READ) as other,
    ):
        if len(one) == len(other) and _are_equal(one, 0, other, 0, len(one)):
            return ""
        try:
            pair = (_Elf(one), _Elf(other))
        except Unreadable:
            return "they are not ELF files that can be compared"
        is_in_place = len(one) == len(other) and pair[0].tables == pair[1].tables
        found = _differences_in_place(*pair) if is_in_place else _differences(*pair)
        return next(found, "")


def _differences_in_place(one: _Elf, other: _Elf) -> Iterator[str]:
    """What differs between files of the same layout, byte for byte, but for the path and the build id."""
    yield from _dynamic_problems(one, other)
    yield from _string_problems(one, other)
    left_out = [
        (section.offset, section.offset + section.size)
        for section in one.sections
        if section.name == _BUILD_ID or section.kind == _DYNAMIC_SECTION or section is one.strings
    ]
    at = 0
    for start, end in (*sorted(left_out), (len(one.data), len(one.data))):
        if start > at and not _are_equal(one.data, at, other.data, at, start - at):
            yield next((f"section {name}" for name in _sections_that_differ(one, other)), "the headers")
            return
        at = max(at, end)


def _sections_that_differ(one: _Elf, other: _Elf) -> Iterator[str]:
    for section in one.sections:
        is_left_out = section.kind in (_NOBITS, _DYNAMIC_SECTION) or section is one.strings
        if is_left_out or section.name == _BUILD_ID:
            continue
        if not _are_equal(one.data, section.offset, other.data, section.offset, section.size):
            yield section.name


def _differences(one: _Elf, other: _Elf) -> Iterator[str]:
    if one.identity != other.identity:
        yield "the headers"
    pairs = _pairs(one, other)
    if pairs is None:
        yield "the names of their sections"
        return
    for first, second in pairs:
        if problem := _section_problem(one, first, other, second):
            yield f"section {first.name}: {problem}"
    yield from _dynamic_problems(one, other)
    yield from _string_problems(one, other)
    yield from _segment_problems(one, other)
    yield from _unnamed_problems(one, other)
    yield from _unnamed_problems(other, one)


def _pairs(one: _Elf, other: _Elf) -> list[tuple[_Section, _Section]] | None:
    """The sections of both by name, as their order may differ; ``None`` unless they have the same."""
    first = sorted(one.sections, key=lambda section: section.name)
    second = sorted(other.sections, key=lambda section: section.name)
    if [section.name for section in first] != [section.name for section in second]:
        return None
    return list(zip(first, second, strict=True))


def _section_problem(one: _Elf, first: _Section, other: _Elf, second: _Section) -> str:
    if (first.kind, first.flags, first.entry) != (second.kind, second.flags, second.entry):
        return "its kind"
    if one.name_of(first.link) != other.name_of(second.link):
        return "the section it belongs to"
    if first.flags & _INFO_IS_SECTION:
        if one.name_of(first.info) != other.name_of(second.info):
            return "the section it is about"
    elif first.info != second.info:
        return "its information"
    if first.address != second.address and first.kind not in _MOVABLE:
        return "its address"
    if first.flags & _ALLOCATED and first.size:
        if first.kind not in _MOVABLE and one.permissions(first) != other.permissions(second):
            return "its permissions"
        if not (one.is_loaded_as_it_stands(first) and other.is_loaded_as_it_stands(second)):
            return "where it is loaded"
    is_table = first.kind in (_SYMTAB, _DYNSYM)
    if is_table:
        return _symbols_problem(one, first, other, second)
    if first.kind == _DYNAMIC_SECTION or first is one.strings:
        return ""
    if one.sections.index(first) == one.names_section:
        return ""
    if first.size != second.size:
        return "its size"
    if first.kind == _NOBITS or first.name == _BUILD_ID:
        return ""
    if not _are_equal(one.data, first.offset, other.data, second.offset, first.size):
        return "its contents"
    return ""


def _symbols_problem(one: _Elf, first: _Section, other: _Elf, second: _Section) -> str:
    """What differs between symbols: patchelf renumbers the sections, and moves what is in moved ones."""
    if first.size != second.size:
        return "its size"
    are_numbered_alike = [section.name for section in one.sections] == [
        section.name for section in other.sections
    ]
    if are_numbered_alike and _are_equal(one.data, first.offset, other.data, second.offset, first.size):
        return ""
    pairs = zip(
        _SYMBOL.iter_unpack(one.contents(first)[: first.size - first.size % _SYMBOL.size]),
        _SYMBOL.iter_unpack(other.contents(second)[: first.size - first.size % _SYMBOL.size]),
        strict=True,
    )
    for symbol, counterpart in pairs:
        if symbol == counterpart and one.name_of(symbol[3]) == other.name_of(counterpart[3]):
            continue
        name, info, visibility, section, value, size = symbol
        if (name, info, visibility, size) != (*counterpart[:3], counterpart[5]):
            return "a symbol"
        if one.name_of(section) != other.name_of(counterpart[3]):
            return "the section of a symbol"
        if value != counterpart[4]:
            if not 0 < section < len(one.sections) or counterpart[3] >= len(other.sections):
                return "the value of a symbol"
            homes = one.sections[section].address, other.sections[counterpart[3]].address
            if value - homes[0] != counterpart[4] - homes[1]:
                return "the value of a symbol"
    return ""


def _dynamic_problems(one: _Elf, other: _Elf) -> Iterator[str]:
    """What differs between the dynamic sections but for the search path, and where the strings are."""
    entries = [
        [(tag, value) for tag, value in elf.dynamic if tag not in (_RPATH, _RUNPATH, _STRINGS_SIZE)]
        for elf in (one, other)
    ]
    if [tag for tag, _ in entries[0]] != [tag for tag, _ in entries[1]]:
        yield "the entries of the dynamic section"
        return
    for (tag, value), (_, counterpart) in zip(*entries, strict=True):
        first, second = one.section_at(value), other.section_at(counterpart)
        if value == counterpart and (first == second or tag not in _POINTERS):
            continue
        if first is None or first != second:
            yield f"entry {tag:#x} of the dynamic section"
    for elf in (one, other):
        if elf.strings is None:
            continue
        values = dict(elf.dynamic)
        if (values.get(_STRINGS), values.get(_STRINGS_SIZE)) != (elf.strings.address, elf.strings.size):
            yield "where the strings of the dynamic section are"


def _string_problems(one: _Elf, other: _Elf) -> Iterator[str]:
    """What differs between the strings of the dynamic section but for the search path."""
    if one.strings is None or other.strings is None:
        return
    first, second = one.contents(one.strings), other.contents(other.strings)
    common = min(len(first), len(second))
    for elf, text in ((one, first), (other, second)):
        rest = text[common:].strip(b"\0")
        path = elf.search_path()
        if rest and (path is None or rest != path[1] or path[0] < common - 1):
            yield "the strings of the dynamic section"
    start, end = _path_room(one, other, common)
    if first[:start] != second[:start] or first[end:common] != second[end:common]:
        yield "the strings of the dynamic section"


def _path_room(one: _Elf, other: _Elf, common: int) -> tuple[int, int]:
    """The bytes of the strings that are the search path's: up to the next string that anything names."""
    paths = [(elf, path) for elf in (one, other) if (path := elf.search_path()) and path[0] < common]
    if not paths:
        return common, common
    start = min(path[0] for _, path in paths)
    named = sorted(
        {value for tag, value in one.dynamic if tag in _STRING_TAGS}
        | {
            symbol[0]
            for section in one.sections
            if section.kind == _DYNSYM
            for symbol in _SYMBOL.iter_unpack(
                one.contents(section)[: section.size - section.size % _SYMBOL.size]
            )
        }
    )
    following = named[bisect_right(named, start) :]
    end = start
    for elf, (at, text) in paths:
        assert elf.strings is not None
        strings = elf.contents(elf.strings)
        past = at + len(text)
        # Zeros and X's stand where a longer path was.
        while past + 1 < len(strings) and strings[past] == 0 and strings[past + 1] == ord("X"):
            past += 1
            while past < len(strings) and strings[past] == ord("X"):
                past += 1
        end = max(end, past)
    return start, min([end, common, *following[:1]])


def _segment_problems(one: _Elf, other: _Elf) -> Iterator[str]:
    """What differs between the segments, but for those that hold what has moved."""
    plain = [
        sorted(
            (segment.kind, segment.flags, segment.address, segment.memory)
            for segment in elf.segments
            if segment.kind != _LOAD and segment.kind not in _FOLLOWING
        )
        for elf in (one, other)
    ]
    if plain[0] != plain[1]:
        yield "the segments"
    loads = [
        {(segment.flags, segment.address) for segment in elf.segments if segment.kind == _LOAD}
        for elf in (one, other)
    ]
    if any(flags & _EXECUTABLE for flags, _ in loads[0] ^ loads[1]):
        yield "the segments with code"


def _unnamed_problems(one: _Elf, other: _Elf) -> Iterator[str]:
    """Bytes of ``one`` in no section and no header that are not those at the same place in ``other``."""
    for start, end in _gaps(one):
        for at in range(start, end, _CHUNK):
            mine = one.part(at, min(_CHUNK, end - at))
            theirs = other.data[at : at + len(mine)]
            is_filled = not mine.strip(_FILLERS)
            if not is_filled and (mine[: len(theirs)] != theirs or mine[len(theirs) :].strip(_FILLERS)):
                yield f"the bytes at {at:#x}, which are in no section"
                return


def _gaps(elf: _Elf) -> Iterator[tuple[int, int]]:
    """The parts of the file that are neither a section nor the headers."""
    taken = [
        (section.offset, section.offset + section.size)
        for section in elf.sections
        if section.kind not in (0, _NOBITS)
    ]
    taken += [(0, _HEADER.size)]
    taken += [(at, at + size) for at, size in (elf.program_table, elf.section_table)]
    past = 0
    for start, end in (*sorted(taken), (len(elf.data), len(elf.data))):
        if start > past:
            yield past, start
        past = max(past, end)


def _are_equal(one: mmap.mmap, start: int, other: mmap.mmap, other_start: int, size: int) -> bool:
    for at in range(0, size, _CHUNK):
        count = min(_CHUNK, size - at)
        if one[start + at : start + at + count] != other[other_start + at : other_start + at + count]:
            return False
    return True


def _text(strings: bytes, at: int) -> str:
    end = strings.find(b"\0", at)
    return strings[at : end if end >= 0 else len(strings)].decode(errors="replace")
