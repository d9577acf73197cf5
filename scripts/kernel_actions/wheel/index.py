"""A package index of a folder of wheels, as static files: HTML and JSON.

Formats: https://packaging.python.org/en/latest/specifications/simple-repository-api/ (1.1), and its
``core-metadata``: METADATA lies beside each wheel, so that an installer need not fetch wheels to choose one.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
import zipfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, urlsplit

from kernel_actions import built
from kernel_actions.errors import Place, WrongInput

FOLDER = "simple"
# The METADATA of a wheel has some kilobytes.
_LARGEST_METADATA = 5_000_000
_WHEEL = re.compile(r"([A-Za-z0-9_.]+)-([A-Za-z0-9_.!+]+)(-\d[^-]*)?-([^-]+)-([^-]+)-([^-]+)\.whl")


@dataclass(frozen=True)
class Entry:
    """A wheel of the index. Hashes are SHA-256."""

    path: Path
    project: str
    version: str
    size: int
    hash: str
    metadata: bytes
    requires_python: str

    @property
    def metadata_hash(self) -> str:
        """The hash of its METADATA."""
        return hashlib.sha256(self.metadata).hexdigest()


def write(folder: Path, address: str) -> Path:
    """Write the index of all wheels in ``folder``, and return its page.

    ``address`` is where the wheels will be served; empty: where they are, relative to the index.
    What an earlier index had of wheels that are gone is removed.

    Raises ``WrongInput`` for a folder without wheels, a file that is none, or an address that is none.
    """
    if address and (urlsplit(address).scheme not in ("http", "https") or not urlsplit(address).netloc):
        raise WrongInput(f"{address!r} is no address", repair="as in https://example.org/wheels")
    entries = [_read(path) for path in sorted(folder.glob("*.whl"))]
    if not entries:
        raise WrongInput("has no wheels", where=Place(folder), repair="give their folder by --output")
    projects: dict[str, list[Entry]] = {}
    for entry in entries:
        projects.setdefault(entry.project, []).append(entry)
        built.write_whole(entry.path.with_name(f"{entry.path.name}.metadata"), entry.metadata)
    root = folder / FOLDER
    names = sorted(projects)
    built.write_whole(root / "index.html", _root_page(names).encode())
    built.write_whole(
        root / "index.json", _json({"meta": _META, "projects": [{"name": name} for name in names]})
    )
    for name, some in projects.items():
        base = f"{address.rstrip('/')}/" if address else "../../"
        built.write_whole(root / name / "index.html", _page(name, some, base).encode())
        built.write_whole(root / name / "index.json", _json(_listing(name, some, base)))
    _remove_stale(folder, root, projects)
    return root / "index.html"


def _remove_stale(folder: Path, root: Path, projects: Collection[str]) -> None:
    """Remove the METADATA of wheels that are gone, and the pages of projects that have none any more."""
    for path in folder.glob("*.whl.metadata"):
        if not path.with_suffix("").exists():
            path.unlink()
    for page in root.glob("*/index.json"):
        if page.parent.name not in projects:
            page.unlink()
            page.with_suffix(".html").unlink(missing_ok=True)
            with suppress(OSError):  # Where somebody put more there.
                page.parent.rmdir()


_META = {"api-version": "1.1"}


def _json(value: Mapping[str, object]) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def _read(path: Path) -> Entry:
    found = _WHEEL.fullmatch(path.name)
    if found is None:
        raise WrongInput("has a name that is not that of a wheel", where=Place(path), repair="remove it")
    if not path.is_file():
        raise WrongInput("is no file", where=Place(path), repair="remove it")
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
            metadata = _metadata(file, f"{found[1]}-{found[2]}.dist-info/METADATA")
    except Exception as error:  # A ZIP file that is damaged raises whatever was come upon.
        raise WrongInput(f"is no wheel: {error}", where=Place(path), repair="remove it") from error
    if len(metadata) > _LARGEST_METADATA:
        raise WrongInput("has a METADATA of more than 5 MB", where=Place(path), repair="remove it")
    requires = re.search(rb"^Requires-Python: ([^\r\n]*)", metadata.partition(b"\n\n")[0], re.MULTILINE)
    return Entry(
        path=path,
        project=re.sub(r"[-_.]+", "-", found[1]).lower(),
        version=found[2],
        size=path.stat().st_size,
        hash=digest.hexdigest(),
        metadata=metadata,
        requires_python=requires[1].decode(errors="replace") if requires else "",
    )


def _metadata(file: BinaryIO, name: str) -> bytes:
    """The file ``name`` of a wheel, or as much of it as shows that it is too large."""
    with zipfile.ZipFile(file) as archive, archive.open(name) as inner:
        return inner.read(_LARGEST_METADATA + 1)


def _root_page(names: Sequence[str]) -> str:
    links = [f'<a href="{name}/">{html.escape(name)}</a><br>' for name in names]
    return _document("Wheels", links)


def _page(name: str, entries: Sequence[Entry], base: str) -> str:
    links = []
    for entry in entries:
        attributes = f'href="{html.escape(base + quote(entry.path.name))}#sha256={entry.hash}"'
        if entry.requires_python:
            attributes += f' data-requires-python="{html.escape(entry.requires_python)}"'
        attributes += f' data-core-metadata="sha256={entry.metadata_hash}"'
        links.append(f"<a {attributes}>{html.escape(entry.path.name)}</a><br>")
    return _document(f"Wheels of {html.escape(name)}", links)


def _document(title: str, links: Sequence[str]) -> str:
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="pypi:repository-version" content="1.1">',
        f"<title>{title}</title>",
        "</head>",
        "<body>",
        f"<h1>{title}</h1>",
        *links,
        "</body>",
        "</html>",
    ]
    return "\n".join(lines) + "\n"


def _listing(name: str, entries: Sequence[Entry], base: str) -> dict[str, object]:
    return {
        "meta": _META,
        "name": name,
        "versions": sorted({entry.version for entry in entries}),
        "files": [
            {
                "filename": entry.path.name,
                "url": base + quote(entry.path.name),
                "hashes": {"sha256": entry.hash},
                "size": entry.size,
                **({"requires-python": entry.requires_python} if entry.requires_python else {}),
                "core-metadata": {"sha256": entry.metadata_hash},
            }
            for entry in entries
        ],
    }
