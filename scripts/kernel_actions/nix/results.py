"""Results of Nix builds as folders that people can use: copied out of the store, described, packed."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernel_actions import built
from kernel_actions.errors import KernelFailed, Place

# How much is copied at once where the kernel cannot copy by itself, in bytes.
_CHUNK = 1 << 20
# What files in the store are dated; an archive of the same files is the same.
_STORE_DATE = 1
# No variant has so many files; links that lead to folders of links can stand for any number of them.
_MOST_FILES = 100_000


@dataclass(frozen=True)
class NixBuildReport:
    """How a variant came to be; it is kept beside the variant, in ``<variant>.build-report.json``.

    It has the fields of the local builder's report that are known here, with the same meaning, and:
    ``store_path`` and ``derivation``, as Nix names them; ``origin``: ``built`` here, ``fetched`` from a cache
    (``cache``), or ``present`` in the store before; ``fetched`` and ``built`` count the paths and the
    derivations that were needed for it, ``fetched_bytes`` what came over the network. ``nar_bytes`` and
    ``closure_bytes`` are sizes in the store, ``None`` where Nix does not tell. ``peak_memory`` is the most
    that all processes of the build had at a time, in bytes, ``None`` where nothing was built or it cannot be
    seen. ``pushed`` is the cache it was copied to. ``reproducible``: a second build gave the same; ``None``:
    not tried. ``digest`` has the hashes of the files where the builder's metadata.json lists none, ``None``
    elsewhere. ``reused``: the folder was there already.
    """

    variant: str
    builder: str
    sandbox: bool
    planned: bool | None
    backend: str
    id: str
    commit: str
    dirty: bool
    torch: str | None
    system: str
    seconds: float
    bytes: int
    files: int
    sources: str
    store_path: str
    derivation: str
    origin: str
    cache: str | None
    built: int
    fetched: int
    fetched_bytes: int
    nar_bytes: int | None
    closure_bytes: int | None
    peak_memory: int | None
    nix: str
    pushed: str | None
    reproducible: bool | None
    path: Path
    digest: dict[str, Any] | None = None
    reused: bool = False
    archive: Path | None = None

    def as_json(self) -> dict[str, Any]:
        """The report for programs, as it stands in the file beside the variant."""
        return {
            name: value for name, value in asdict(self).items() if name not in ("path", "reused", "archive")
        }


class Tree:
    """A folder in a store, read without following links out of the store.

    A link in a result is what a build wrote, which may be anybody's: one to a file of this machine would
    put that file into what is published.
    """

    def __init__(self, folder: Path, store_dir: str, root: str) -> None:
        self.folder = folder
        self._store_dir = store_dir
        self._root = root
        self._real_store = os.path.realpath(f"{root}{store_dir}")
        self._count = 0

    def variant(self, name: str) -> Tree:
        """The variant in a result: builders since 2025 make a folder of its name in it, older ones are it.

        Either may be a link in the store. Raises ``KernelFailed`` when there is none, or a link leads out.
        """
        result = self._resolved(str(self.folder), "the folder")
        inside = os.path.join(result, name)
        if os.path.lexists(inside):
            inside = self._resolved(inside, name)
        if not os.path.isdir(inside):
            inside = result
            if not any(os.path.isfile(os.path.join(result, one)) for one in ("metadata.json", "__init__.py")):
                raise KernelFailed(f"what Nix built has no folder {name}", where=Place(self.folder))
        return Tree(Path(inside), self._store_dir, self._root)

    def walk(self) -> Iterator[tuple[str, str, os.stat_result]]:
        """Relative path, real path and status of every folder (before what is in it) and file, by name.

        Raises ``KernelFailed`` for a link that leads nowhere, in a circle, or out of the store, and for more
        files than a variant can have.
        """
        self._count = 0
        yield from self._walk(self._resolved(str(self.folder), "the folder"), "", ())

    def _walk(
        self, folder: str, name: str, above: tuple[str, ...]
    ) -> Iterator[tuple[str, str, os.stat_result]]:
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            relative = f"{name}{entry.name}"
            self._count += 1
            if self._count > _MOST_FILES:
                raise self._wrong(relative, f"is one of more than {_MOST_FILES} files")
            real = self._resolved(entry.path, relative) if entry.is_symlink() else entry.path
            status = os.stat(real, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                if real in above:
                    raise self._wrong(relative, "is a link in a circle")
                yield relative, real, status
                yield from self._walk(real, f"{relative}/", (*above, real))
            elif stat.S_ISREG(status.st_mode):
                yield relative, real, status
            else:
                raise self._wrong(relative, "is neither a file nor a folder")

    def _resolved(self, path: str, relative: str) -> str:
        for _ in range(40):
            if not os.path.islink(path):
                break
            target = os.readlink(path)
            if target.startswith(f"{self._store_dir}/"):
                target = f"{self._root}{target}"
            path = os.path.join(os.path.dirname(path), target)
        real = os.path.realpath(path)
        if not real.startswith(f"{self._real_store}{os.sep}"):
            raise self._wrong(relative, "is a link to outside of the Nix store")
        if not os.path.exists(real):
            raise self._wrong(relative, "is a link to nothing")
        return real

    def _wrong(self, relative: str, what: str) -> KernelFailed:
        return KernelFailed(f"{relative} of the result {what}", where=Place(self.folder))


def copy(tree: Tree, target: Path) -> None:
    """Copy a result into the new folder ``target``: no links, writable, and modes that are the same for all.

    Raises ``KernelFailed`` for what cannot be in a variant, ``OSError`` when the disk is full.
    """
    target.mkdir(parents=True)
    target.chmod(0o755)
    for name, real, status in tree.walk():
        path = f"{target}/{name}"
        if stat.S_ISDIR(status.st_mode):
            os.mkdir(path)
            # What this user leaves to others by default is no matter of what was built.
            os.chmod(path, 0o755)
            continue
        _copy_file(real, path, status.st_size, 0o755 if status.st_mode & 0o111 else 0o644)


def _copy_file(source: str, target: str, size: int, mode: int) -> None:
    reader = os.open(source, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        writer = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            os.fchmod(writer, mode)
            _copy_bytes(reader, writer, size)
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def _copy_bytes(reader: int, writer: int, size: int) -> None:
    done = 0
    if hasattr(os, "copy_file_range"):
        try:
            while done < size:
                # Shares the blocks where the file system can.
                count = os.copy_file_range(reader, writer, size - done)
                if count == 0:
                    break
                done += count
        except OSError:
            # Between two file systems, or on one that cannot: from where it stopped, by hand. A full disk
            # says so again.
            pass
    while done < size:
        data = os.read(reader, _CHUNK)
        if not data:
            raise OSError(f"a file of the result ended after {done} of {size} bytes")
        view = memoryview(data)
        while view:
            view = view[os.write(writer, view) :]
        done += len(data)


def is_current(folder: Path, store_path: str) -> bool:
    """Whether the variant in ``folder`` is that store path, as its report says, byte for byte."""
    report = read_report(folder)
    if report.get("builder") not in ("nix", "nix-unsandboxed") or report.get("store_path") != store_path:
        return False
    try:
        variant = built.read(folder)
        built.check_intact(variant.path)
    except KernelFailed:
        return False
    return variant.digest is not None


def read_report(folder: Path) -> dict[str, Any]:
    """The report beside a variant; an empty one where there is none that can be read."""
    try:
        return built.read_json(built.build_report_path(folder))
    except KernelFailed:
        return {}


def pack(folder: Path, archive: Path) -> None:
    """Write the variant in ``folder`` and its report as the tar file ``archive``.

    Names start with the variant's. Modes are kept; owners and dates are the same for the same variant, and so
    is the file. It is there whole or not at all.
    """
    report = built.build_report_path(folder)
    with (
        built.written_whole(archive) as file,
        tarfile.TarFile(
            archive.name, mode="w", fileobj=file, format=tarfile.PAX_FORMAT, copybufsize=_CHUNK
        ) as tar,
    ):
        for path in (folder, *sorted(folder.rglob("*")), *([report] if report.is_file() else [])):
            _add(tar, path, path.relative_to(folder.parent).as_posix())


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    status = path.lstat()
    entry = tarfile.TarInfo(name)
    entry.mtime = _STORE_DATE
    # What unpacks it takes no others: a umask of the machine that builds is nobody's business.
    entry.mode = 0o755 if status.st_mode & 0o111 else 0o644
    if stat.S_ISDIR(status.st_mode):
        entry.type = tarfile.DIRTYPE
        tar.addfile(entry)
        return
    entry.size = status.st_size
    with path.open("rb", buffering=0) as file:
        tar.addfile(entry, file)


def differing(first: Tree, second: Tree) -> list[str]:
    """The files that are not the same in two results, or are in one of them alone."""
    trees = [{name: (real, status) for name, real, status in tree.walk()} for tree in (first, second)]
    found = []
    for name in sorted(trees[0].keys() | trees[1].keys()):
        one, other = trees[0].get(name), trees[1].get(name)
        if one is None or other is None:
            found.append(f"{name} (in one of them alone)")
            continue
        is_file = stat.S_ISREG(one[1].st_mode)
        if is_file != stat.S_ISREG(other[1].st_mode) or (is_file and not _is_same(one[0], other[0])):
            found.append(name)
    return found


def _is_same(first: str, second: str) -> bool:
    with open(first, "rb") as one, open(second, "rb") as other:
        while True:
            data = one.read(_CHUNK)
            if data != other.read(_CHUNK):
                return False
            if not data:
                return True
