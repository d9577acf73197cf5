"""The wheel itself: a ZIP file whose bytes follow from what is in it, and nothing else."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import stat
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

from kernel_actions import built

_CHUNK = 1 << 20


def write(path: Path, files: Mapping[str, Path | bytes], info: str, seconds: int) -> str:
    """Write a wheel of ``files`` by their names in it, whole or not at all, and return its SHA-256.

    RECORD is added to the folder ``info``. Names are sorted, with those of ``info`` last, as the format
    recommends; modes are 755 for extensions and 644 for the rest; the time of all is ``seconds`` since
    1970, in UTC.
    """
    with built.written_whole(path) as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            _add_all(archive, files, info, time.gmtime(seconds)[:6])
        file.seek(0)
        digest = hashlib.sha256()
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _add_all(
    archive: zipfile.ZipFile,
    files: Mapping[str, Path | bytes],
    info: str,
    moment: tuple[int, int, int, int, int, int],
) -> None:
    rows: list[tuple[str, str, str]] = []
    for name in sorted(files, key=lambda one: (one.startswith(f"{info}/"), one)):
        digest, size = _add(archive, name, files[name], moment)
        rows.append((name, f"sha256={digest}", str(size)))
    record = f"{info}/RECORD"
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([*rows, (record, "", "")])
    _add(archive, record, text.getvalue().encode(), moment)


def _add(
    archive: zipfile.ZipFile,
    name: str,
    content: Path | bytes,
    moment: tuple[int, int, int, int, int, int],
) -> tuple[str, int]:
    """Add a file, and return its hash as RECORD has it (base64 for URLs, without padding) and its size."""
    entry = zipfile.ZipInfo(name, moment)
    entry.create_system = 3  # Unix, also where this runs on another system.
    mode = 0o755 if name.endswith((".so", ".dylib")) else 0o644
    entry.external_attr = (stat.S_IFREG | mode) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.file_size = len(content) if isinstance(content, bytes) else content.stat().st_size
    digest, size = hashlib.sha256(), 0
    with archive.open(entry, "w") as target:
        if isinstance(content, bytes):
            digest.update(content)
            size = len(content)
            target.write(content)
        else:
            with content.open("rb") as source:
                while chunk := source.read(_CHUNK):
                    digest.update(chunk)
                    size += len(chunk)
                    target.write(chunk)
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode(), size
