"""Built variants on disk: finding them, and writing beside them."""

from __future__ import annotations

import base64
import contextlib
import difflib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from kernel_actions import console, manifest
from kernel_actions.base import files
from kernel_actions.errors import KernelFailed, Place, WrongInput

Difference = Literal["changed", "unknown", "missing"]

GPU_BACKENDS = ("cuda", "rocm", "xpu")

# Framework, then backend and platform: torch212-cxx11-cu130-x86_64-linux, torch-cuda.
_NAME = re.compile(r"(?:torch(?:\d+|-stable-abi\d+)?|tvm-ffi\d+)(?:-[a-z0-9_.]+)+")
# A metadata.json has some kilobytes; one that is larger was not written by a builder.
_LARGEST_JSON = 5_000_000
# A Sigstore bundle of metadata.json, which is made after it.
SIGNATURE = "metadata.json.sigstore"
_OUTSIDE_DIGEST = ("metadata.json", SIGNATURE)
_AGAIN = "build the variant again, or remove it"
# Of a digest: kernels-data/src/digest.rs of huggingface/kernels (8ac69fc5).
ALGORITHMS = ("sha256", "sha512")


@dataclass(frozen=True)
class BuiltVariant:
    """A folder with a built variant.

    ``backend`` and ``version`` (the kernel's major version) are from its metadata.json. ``digest`` is one
    hash over the hashes of all its files, which metadata.json lists, or the build report where the builder
    lists none; ``None`` where neither does. ``builder`` is ``nix`` or ``local``, and empty when no report of
    a builder is beside it; ``sources`` is that report's hash of what it was built from, empty where it has
    none.
    """

    path: Path
    backend: str
    version: int
    digest: str | None
    builder: str
    sources: str

    @property
    def name(self) -> str:
        """The variant's name, which is that of its folder."""
        return self.path.name

    @property
    def path_in_repo(self) -> str:
        """The variant's folder on the Hub."""
        return f"build/{self.name}"


def is_name(name: str) -> bool:
    """Whether a folder of this name is taken for a variant."""
    return _NAME.fullmatch(name) is not None


def build_report_path(folder: Path) -> Path:
    """Where a builder leaves its report on the variant in ``folder``: beside it."""
    return folder.with_name(f"{folder.name}.build-report.json")


def read(folder: Path) -> BuiltVariant:
    """The variant in ``folder``. Raises ``KernelFailed`` when it is half-made."""
    for name in ("metadata.json", "__init__.py"):
        if not (folder / name).is_file():
            raise KernelFailed(f"the variant has no {name}", where=Place(folder), repair=_AGAIN)
    where = Place(folder / "metadata.json")
    metadata = read_json(where.path)
    backend = metadata.get("backend")
    kind = backend.get("type") if isinstance(backend, dict) else None
    version = metadata.get("version")
    if not isinstance(kind, str):
        raise KernelFailed("has no backend", where=where, repair=_AGAIN)
    if not isinstance(version, int):
        raise KernelFailed("has no version", where=where, repair=_AGAIN)
    report = build_report_path(folder)
    said = read_json(report) if os.path.lexists(report) else {}
    hashes = listed_digest(metadata) or listed_digest(said)
    return BuiltVariant(
        path=folder,
        backend=kind,
        version=version,
        digest=None if hashes is None else digest_of(hashes),
        builder=str(said.get("builder", "")),
        sources=str(said.get("sources", "")),
    )


def find(build_dir: Path, names: Collection[str] = ()) -> tuple[BuiltVariant, ...]:
    """The variants in ``build_dir``, or those of ``names``, in the order of their names.

    Folders whose names are not those of variants are none.
    Raises ``KernelFailed`` for one that is half-made.
    """
    folders = sorted(build_dir.iterdir()) if build_dir.is_dir() else []
    return tuple(
        read(folder)
        for folder in folders
        if folder.is_dir() and _NAME.fullmatch(folder.name) and (not names or folder.name in names)
    )


def check_intact(folder: Path, hashes: Mapping[str, str] | None = None) -> None:
    """Raise ``KernelFailed`` unless a variant's files are those that its metadata.json lists, byte for byte,
    or its build report, where metadata.json is of a builder that lists none.

    The digest is the builder's: of every file but metadata.json, its signature and bytecode, in
    base64. A variant of which neither lists any is not checked. ``hashes`` are those of ``differences``.
    """
    where = Place(folder / "metadata.json")
    digest = listed_digest(read_json(where.path))
    if digest is None:
        where = Place(build_report_path(folder))
        digest = listed_digest(read_json(where.path)) if where.path.is_file() else None
    if digest is None:
        return
    listed, algorithm = digest.get("files"), str(digest.get("algorithm"))
    if not isinstance(listed, dict) or algorithm not in ALGORITHMS:
        raise KernelFailed("has a digest that cannot be checked", where=where, repair=_AGAIN)
    for name, how in differences(folder, algorithm, listed, hashes):
        if how == "missing":
            raise KernelFailed(f"{name} is missing", where=Place(folder), repair=_AGAIN)
        where = Place(folder / name)
        raise KernelFailed(f"{name} is not the file that was built", where=where, repair=_AGAIN)


def differences(
    folder: Path, algorithm: str, listed: Mapping[str, str], hashes: Mapping[str, str] | None = None
) -> Iterator[tuple[str, Difference]]:
    """Which files in ``folder`` are not those that its metadata.json has ``listed``, with their hashes by
    ``algorithm`` (``sha256`` or ``sha512``) in base64; and how they differ.

    ``hashes`` are SHA-256, in hexadecimal, of files that were read already. Names are paths in ``folder``.
    """
    known = {name: base64.b64encode(bytes.fromhex(one)).decode() for name, one in (hashes or {}).items()}
    names = set()
    for name, path in files_in_digest(folder):
        names.add(name)
        found = known.get(name) if algorithm == "sha256" else None
        if name not in listed:
            yield name, "unknown"
        elif not path.is_file() or listed[name] != (found or file_hash(path, algorithm)):
            yield name, "changed"
    for name in sorted(listed.keys() - names):
        yield name, "missing"


def files_in_digest(folder: Path) -> Iterator[tuple[str, Path]]:
    """What a builder hashes of the variant in ``folder``, by its name there: every file and link but
    metadata.json, its signature and bytecode."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name in _OUTSIDE_DIGEST or "__pycache__" in path.parts or path.suffix == ".pyc":
            continue
        if not path.is_dir() or path.is_symlink():
            yield name, path


def file_hash(path: Path, algorithm: str) -> str:
    """The hash of a file in base64, as metadata.json has it. It is read in pieces, however large it is."""
    with path.open("rb") as file:
        hashed = hashlib.new(algorithm)
        while chunk := file.read(1 << 20):
            hashed.update(chunk)
    return base64.b64encode(hashed.digest()).decode()


def missing_digest(folder: Path) -> dict[str, Any] | None:
    """The hashes of the files of a variant whose metadata.json lists none, for the report of its build;
    ``None`` where it lists them.

    The builder writes ``digest`` since ae36559c (2026-06-05). These are the hashes that it would write, in
    the same form: a test compares them with those of kernels-data. metadata.json itself stays as it was
    built.
    """
    if listed_digest(read_json(folder / "metadata.json")) is not None:
        return None
    hashes = {
        name: file_hash(path, ALGORITHMS[0]) for name, path in files_in_digest(folder) if path.is_file()
    }
    return {"algorithm": ALGORITHMS[0], "files": hashes}


def listed_digest(described: Mapping[str, Any]) -> dict[str, Any] | None:
    """The digest that a metadata.json or a build report holds."""
    digest = described.get("digest")
    return digest if isinstance(digest, dict) else None


def digest_of(hashes: Mapping[str, Any]) -> str:
    """One hash over ``hashes``: an algorithm and the hash of each file, as metadata.json has them."""
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()


def choose(kernel_dir: Path, build_dir: str, name: str) -> BuiltVariant:
    """The variant ``name`` in ``build_dir`` of the kernel; the only one there when ``name`` is empty.

    Raises ``WrongInput`` when there is no such variant, or several and no name, or no kernel.
    """
    folder = kernel_dir / build_dir
    if _NAME.fullmatch(name) and (folder / name).is_dir():
        return read(folder / name)
    names = [variant.name for variant in find(folder)]
    if not names:
        if not folder.is_dir():
            manifest.load(kernel_dir)  # Where there is no kernel either, that is what is wrong.
        raise WrongInput(f"{folder} has no built variant", repair="build one first: kernel-actions build")
    if name:
        close = difflib.get_close_matches(name, names, n=3, cutoff=0.3)
        raise WrongInput(f"{folder} has no variant {name!r}", repair=f"it has {', '.join(close or names)}")
    if len(names) > 1:
        raise WrongInput(
            f"{folder} has {console.counted(len(names), 'variant')}: {', '.join(names)}",
            repair="choose one with --variant",
        )
    return read(folder / names[0])


def write_whole(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file so that it is there whole or not at all, whenever this process ends."""
    with written_whole(path, mode) as file:
        file.write(data)


def write_changed(path: Path, text: str) -> None:
    """Write a file whole, unless it holds ``text`` already."""
    try:
        if path.read_text(encoding="utf-8") == text:
            return
    except (OSError, UnicodeDecodeError):
        pass
    write_whole(path, text.encode())


def hide_from_git(folder: Path) -> None:
    """Have git take nothing in a folder of what was made for a change, unless its author has said what it
    is to take."""
    if not (folder / ".gitignore").exists():
        write_whole(folder / ".gitignore", b"*\n")


@contextlib.contextmanager
def written_whole(path: Path, mode: int = 0o644) -> Iterator[BinaryIO]:
    """A file to write and to read again, which is ``path`` once that is done; until then only this user can
    read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        # A name may have 255 bytes, and this one is longer.
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name[:100]}-", dir=path.parent)
    except OSError as error:
        error.filename = str(path)  # Of a name that nobody has chosen no more than that is said.
        raise
    try:
        with open(descriptor, "w+b") as file:
            yield file
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # A full disk does not say of which file.
        raise


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write ``value`` as JSON, whole or not at all."""
    write_whole(path, (json.dumps(value, indent=2) + "\n").encode())


def read_json(path: Path, repair: str = _AGAIN) -> dict[str, Any]:
    """The object in a small JSON file. Raises ``KernelFailed`` when there is none."""
    try:
        data = files.read_plain(path, _LARGEST_JSON)
        value = json.loads(data) if len(data) <= _LARGEST_JSON else None
    except OSError as error:
        raise KernelFailed(f"cannot be read: {error.strerror}", where=Place(path)) from error
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise KernelFailed("is not a JSON object", where=Place(path), repair=repair)
    return value
