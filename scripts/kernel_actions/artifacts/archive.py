"""Unpacking the tar file of a variant that another job uploaded.

Any job of a workflow run can replace any artifact of that run, and a build packs files that the kernel's
author wrote. So an archive is hostile. Only the plain files and folders of one variant come out of it; if a
single member is not what ``build --archive`` writes, nothing does.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kernel_actions.base import files
from kernel_actions.errors import KernelFailed, Place, printable

# Far more than any published variant has: the largest public kernel has 2,340 files in a whole release.
MOST_MEMBERS = 20_000
# In bytes. Storage of artifacts costs money, and a runner's disk has 14 GB.
MOST_BYTES = 12_000_000_000
# An extended header holds a name, or the size of a file over 8 GB.
_LARGEST_HEADER = 65_536
_LONGEST_NAME = 1_000
_LONGEST_PART = 255
_BLOCK = 512
_CHUNK = 1 << 20
_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_KNOWN_HEADERS = frozenset({"path", "size"})
# Windows opens a device for each of these, whatever the extension:
# https://learn.microsoft.com/windows/win32/fileio/naming-a-file
_DEVICES = frozenset(
    {"con", "prn", "aux", "nul", *(f"{name}{digit}" for name in ("com", "lpt") for digit in "123456789¹²³")}
)
_FORBIDDEN = frozenset('\\:*?"<>|')


@dataclass(frozen=True)
class Limits:
    """How many members an archive may have, and how many bytes its files may have together."""

    members: int = MOST_MEMBERS
    bytes: int = MOST_BYTES


def open_plain(path: Path) -> BinaryIO:
    """Open a regular file for reading: no link is followed, and no pipe or device is waited for.

    Raises ``KernelFailed`` for anything else, and where it cannot be read.
    """
    try:
        return files.open_plain(path)
    except OSError as error:
        raise KernelFailed(f"cannot be read: {error.strerror}", where=Place(path)) from error


def sha256(file: BinaryIO) -> str:
    """The SHA-256 of an open file from its beginning, in hexadecimal."""
    file.seek(0)
    hashed = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        hashed.update(chunk)
    return hashed.hexdigest()


def unpack(file: BinaryIO, variant: str, into: Path, where: Path, limits: Limits | None = None) -> None:
    """Write the folder of ``variant``, and ``<variant>.build-report.json`` beside it, into ``into``.

    Raises ``KernelFailed`` at the first member that does not belong there, with the archive's path ``where``;
    the caller then removes ``into``.
    """
    limits = limits or Limits()
    try:
        _check_headers(file, where, limits)
        file.seek(0)
        with tarfile.open(fileobj=file, mode="r:", errorlevel=2) as archive:
            for member in _members(archive, variant, where, limits):
                _write(archive, member, into)
    except (tarfile.TarError, UnicodeError, EOFError, ValueError, OverflowError) as error:
        raise _refused(where, f"is not a tar file that `build --archive` wrote: {error}") from error
    if not (into / variant).is_dir():
        raise _refused(where, f"has no folder {variant}")


def _check_headers(file: BinaryIO, where: Path, limits: Limits) -> None:
    """Raise ``KernelFailed`` for an extended header that is larger than any honest one: ``tarfile`` reads
    these into memory as a whole."""
    size = file.seek(0, os.SEEK_END)
    if size > limits.bytes + (limits.members + 2) * 4 * _BLOCK:
        raise _refused(where, f"is larger than {limits.bytes} bytes")
    at = 0
    headers = 0
    while at + _BLOCK <= size:
        file.seek(at)
        block = file.read(_BLOCK)
        if not block.strip(b"\0"):
            return  # The end of the archive; whatever follows is never read.
        header = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        headers += 1
        if headers > 2 * limits.members:
            raise _refused(where, f"has more than {limits.members} members")
        if header.type in _HEADERS and header.size > _LARGEST_HEADER:
            raise _refused(where, f"has an extended header of {header.size} bytes")
        if header.size < 0:
            raise _refused(where, "has a member of a negative size")
        at += _BLOCK + -(-header.size // _BLOCK) * _BLOCK


def _members(
    archive: tarfile.TarFile, variant: str, where: Path, limits: Limits
) -> Iterator[tarfile.TarInfo]:
    """The members of an archive that may be written. Raises ``KernelFailed`` at one that may not."""
    report = f"{variant}.build-report.json"
    seen: set[str] = set()
    total = 0
    for count, member in enumerate(archive, start=1):
        archive.members = []  # type: ignore[attr-defined]  # Else all of them stay in memory.
        total += member.size
        problem = _problem(member, archive.pax_headers)
        if not problem and not (member.name == report and member.isreg()):
            first, _, rest = member.name.partition("/")
            if first != variant or not (rest or member.isdir()):
                problem = f"is not part of {variant}"
        folded = unicodedata.normalize("NFKC", member.name).casefold()
        if not problem and folded in seen:
            problem = "has a name that some systems take for another one's"
        if not problem and count > limits.members:
            problem = f"is one of more than {limits.members} members"
        if not problem and total > limits.bytes:
            problem = f"makes it larger than {limits.bytes} bytes"
        if problem:
            raise _refused(where, f"{printable(member.name)[:200]} {problem}")
        seen.add(folded)
        yield member


def _problem(member: tarfile.TarInfo, shared: object) -> str:
    """Why a member may not be written, whatever else the archive holds; empty where it may."""
    if member.type not in (tarfile.REGTYPE, tarfile.DIRTYPE) or member.issparse():
        return "is neither a plain file nor a folder"
    if member.linkname:
        return "has the target of a link"
    if shared or not _KNOWN_HEADERS.issuperset(member.pax_headers):
        return "has attributes that no variant has"
    if member.uid or member.gid or member.uname or member.gname:
        return "has an owner"
    if member.mode & ~0o755 or not member.mode & 0o400:
        return f"has the mode {member.mode:o}"
    if member.isdir() and (member.size or member.mode & 0o700 != 0o700):
        return "is a folder that cannot be used as one"
    return _name_problem(member.name)


def _name_problem(name: str) -> str:
    """What is wrong with a member's path; empty if every system reads it as the same path."""
    parts = name.split("/")
    if len(name.encode("utf-8", "surrogatepass")) > _LONGEST_NAME:
        return f"has a name of more than {_LONGEST_NAME} bytes"
    for part in parts:
        if part in ("", ".", "..") or len(part.encode("utf-8", "surrogatepass")) > _LONGEST_PART:
            return "has a path that leads elsewhere, or nowhere"
        if not part.isprintable() or _FORBIDDEN.intersection(part) or part[-1] in " .":
            return "has a name that not every system takes"
        if part.split(".")[0].strip().casefold() in _DEVICES:
            return "has the name of a device"
        if unicodedata.normalize("NFKC", part).casefold() in (".git", "git~1"):
            return "has the name of git's own folder"
    return ""


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, into: Path) -> None:
    """Write one member. ``build`` packs a folder before its files, so a missing folder is an error."""
    path = into / member.name
    try:
        if member.isdir():
            path.mkdir(mode=0o755)
            return
        data = archive.extractfile(member)
        assert data is not None
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "wb") as file:
            shutil.copyfileobj(data, file, _CHUNK)
            if file.tell() != member.size:
                raise tarfile.ReadError(f"{printable(member.name)} is cut short")
            os.fchmod(file.fileno(), 0o755 if member.mode & 0o100 else 0o644)
    except (FileExistsError, FileNotFoundError, NotADirectoryError) as error:
        raise tarfile.ExtractError(f"{printable(member.name)} has no folder, or is there twice") from error


def _refused(where: Path, what: str) -> KernelFailed:
    return KernelFailed(
        printable(what), where=Place(where), repair="nothing was unpacked: run all jobs of the workflow again"
    )
