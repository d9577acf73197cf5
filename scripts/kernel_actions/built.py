"""Built variants on disk: finding them, and writing beside them."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_actions.errors import Place, WrongInput

GPU_BACKENDS = ("cuda", "rocm", "xpu")
# A metadata.json has some kilobytes; one that is larger was not written by a builder.
_LARGEST_METADATA = 5_000_000


@dataclass(frozen=True)
class BuiltVariant:
    """A folder with a built variant. ``backend`` and ``digest`` are from its metadata.json;
    ``digest`` is one hash over the hashes of all its files, ``None`` where it lists none."""

    path: Path
    backend: str
    digest: str | None

    @property
    def name(self) -> str:
        """The variant's name, which is that of its folder."""
        return self.path.name


def read(path: Path) -> BuiltVariant:
    """The variant in the folder ``path``. Raises ``WrongInput`` when its metadata.json is amiss."""
    file = path / "metadata.json"
    where = Place(file)
    try:
        with file.open("rb") as opened:
            data = opened.read(_LARGEST_METADATA + 1)
        metadata = json.loads(data) if len(data) <= _LARGEST_METADATA else None
    except OSError as error:
        raise WrongInput(f"cannot be read: {error.strerror}", where=where) from error
    except (ValueError, RecursionError) as error:
        raise WrongInput("is not JSON", where=where, repair="build the variant again") from error
    backend = metadata.get("backend") if isinstance(metadata, dict) else None
    kind = backend.get("type") if isinstance(backend, dict) else None
    if not isinstance(metadata, dict) or not isinstance(kind, str):
        raise WrongInput("names no backend", where=where, repair="build the variant again")
    return BuiltVariant(path=path, backend=kind, digest=_digest(metadata))


def find(build_dir: Path) -> tuple[BuiltVariant, ...]:
    """The variants in ``build_dir``, by name. Folders without metadata.json are none."""
    if not build_dir.is_dir():
        return ()
    folders = sorted(one for one in build_dir.iterdir() if not one.name.startswith("."))
    return tuple(read(folder) for folder in folders if (folder / "metadata.json").is_file())


def choose(build_dir: Path, name: str) -> BuiltVariant:
    """The variant ``name`` in ``build_dir``; the only one there when ``name`` is empty.

    Raises ``WrongInput`` when there is no such variant, or several and no name.
    """
    if name and (build_dir / name / "metadata.json").is_file() and "/" not in name:
        return read(build_dir / name)
    names = [variant.name for variant in find(build_dir)]
    if not names:
        raise WrongInput(f"{build_dir} has no built variant", repair="build one first: kernel-actions build")
    if name:
        close = difflib.get_close_matches(name, names, n=3, cutoff=0.3)
        raise WrongInput(f"{build_dir} has no variant {name!r}", repair=f"it has {', '.join(close or names)}")
    if len(names) > 1:
        raise WrongInput(
            f"{build_dir} has {len(names)} variants: {', '.join(names)}", repair="choose one with --variant"
        )
    return read(build_dir / names[0])


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or not at all, whenever this process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _digest(metadata: dict[str, Any]) -> str | None:
    digest = metadata.get("digest")
    if not isinstance(digest, dict):
        return None
    return hashlib.sha256(json.dumps(digest, sort_keys=True).encode()).hexdigest()
