"""Whether the build that the builder's ciTests are of is the variant that will be published.

They are two derivations of the builder: ``redistributable`` has its extensions' search paths removed, and
ciTests have not (``same_extension`` says where). So the extensions' bytes differ, their hashes in
metadata.json, and nothing else: the id of the operators (which names the commit), the provenance, and every
other file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernel_actions import built, digests
from kernel_actions.errors import KernelFailed
from kernel_actions.test import same_extension

_METADATA = "metadata.json"
# `find $out/ -name '*.so'` is what patchelf is run on.
_EXTENSION = ".so"


def stand_ins(tested: Path, variant: Path) -> dict[str, str]:
    """The SHA-256, in hexadecimal, of each file that is tested in place of the variant's own, by its path.

    ``tested`` is the folder of the variant that ciTests are of, and ``variant`` the one that was built. Empty
    where they are the same, byte for byte.

    Raises ``KernelFailed`` when they differ in anything but the search paths of extensions.
    """
    built.check_intact(tested)
    other = next(_differences(tested, variant), "")
    if other:
        raise KernelFailed(f"their build {other}")
    return {
        name: _hash(path)
        for name, path in built.files_in_digest(tested)
        if name.endswith(_EXTENSION) and _hash(path) != _hash(variant / name)
    }


def _differences(tested: Path, variant: Path) -> Iterator[str]:
    """What differs, as a clause of which the tested build is the subject."""
    mine, theirs = (dict(built.files_in_digest(folder)) for folder in (tested, variant))
    for name in sorted(mine.keys() ^ theirs.keys()):
        yield f"has no {name}" if name in theirs else f"has {name}, which the variant has not"
        return
    yield from _metadata_differences(*(built.read_json(folder / _METADATA) for folder in (tested, variant)))
    for name, path in mine.items():
        if path.is_symlink() or theirs[name].is_symlink() or not name.endswith(_EXTENSION):
            if _hash(path) != _hash(theirs[name]):
                yield f"has another {name}"
        elif differing := same_extension.difference(path, theirs[name]):
            yield f"has another {name}: {differing}"


def _metadata_differences(tested: dict[str, Any], variant: dict[str, Any]) -> Iterator[str]:
    """What differs in metadata.json but for the hashes of extensions."""
    for key in sorted(tested.keys() | variant.keys()):
        first, second = tested.get(key), variant.get(key)
        if key == "digest":
            first, second = _without_extensions(first), _without_extensions(second)
        if first != second:
            yield f"has another {key} in its {_METADATA}"


def _without_extensions(digest: Any) -> Any:
    files = digest.get("files") if isinstance(digest, dict) else None
    if not isinstance(files, dict):
        return digest
    kept = {name: None if name.endswith(_EXTENSION) else value for name, value in files.items()}
    return {**digest, "files": kept}


def _hash(path: Path) -> str:
    return digests.of(path).sha256
