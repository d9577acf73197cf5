"""``download``: what a lock locks, into a cache from which ``kernels`` loads it without a network.

``kernels download`` leaves a cache that ``load_kernel`` refuses: it fetches the files of ``build/``, but
records the list of all files of the commit (``trees/<commit>.json``), and the loader takes a snapshot that
lacks one of that list, be it .gitattributes, for a download that was cut off. Here whole variants are
written, each file compared with its hash on the Hub, and no such list, without which the loader takes the
snapshot as it is.

The layout is that of huggingface_hub: ``blobs`` by hash, and ``snapshots`` of links to them. Nothing in it
depends on when or where it was written: files are of mode 644, folders of mode 755, all with one time.
"""

from __future__ import annotations

import fcntl
import fnmatch
import glob
import json
import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from kernel_actions import console, github, lock, markdown
from kernel_actions.errors import (
    EXIT_DONE,
    KernelFailed,
    Place,
    WrongInput,
    WrongSurroundings,
    raise_all,
)
from kernel_actions.hub import client
from kernel_actions.hub.client import Hub, RemoteFile
from kernel_actions.lock import check, lockfile, platforms, project
from kernel_actions.lock.lockfile import Locked
from kernel_actions.lock.platforms import Platform
from kernel_actions.lock.project import Project
from kernel_actions.release import plan

if TYPE_CHECKING:
    from kernel_actions.cli import Options

# 1980-01-01, the first time that every archive can hold; see https://reproducible-builds.org/specs/source-date-epoch/
EPOCH = 315532800
# As the loader does, which never fetches bytecode.
_IGNORED = ("*.pyc", "**/__pycache__/**")
_HEADER = ("kernel", "commit", "variants", "files", "size", "fetched")
_LONGEST_NAME = 255
_TEMPORARY = ".kernel-actions-"
# What the folder of a repository in the cache begins with, as huggingface_hub names it.
_FOLDER = "kernels--"


@dataclass(frozen=True)
class Wanted:
    """What of a locked kernel is to be there: the ``variants`` for the platforms (of none: all), and their
    ``files`` by path in the repository."""

    locked: Locked
    variants: tuple[str, ...]
    files: Mapping[str, RemoteFile]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files.values())


def check_options(options: Options) -> tuple[Project, tuple[Platform, ...]]:
    """The project, and the platforms. Raises ``WrongInput`` for what cannot be one, and where there is no
    lock."""
    found = project.read(Path(options.project))
    wanted_platforms = lock.wanted_platforms(options.platforms, found)
    if options.prune and not options.cache:
        raise WrongInput("--prune is for a folder of its own", repair="name it with --cache")
    if lockfile.read_bytes(found.lock_path) is None:
        raise lockfile.missing(found.lock_path)
    return found, wanted_platforms


def run(options: Options) -> int:
    """The command ``download``.

    Raises ``KernelFailed`` where there is no variant for a platform, ``WrongInput`` and
    ``WrongSurroundings``.
    """
    found, wanted_platforms = check_options(options)
    locked = lockfile.read(found.lock_path)
    check.raise_all(found.lock_path, tuple(check.declared(found, locked)))
    cache = cache_folder(options.cache)
    time = source_date()
    hub = client.connect(options.hub, options.token)
    wanted = choose(hub, locked, wanted_platforms, found.lock_path)
    fetched = [_store(hub, one, cache, time) for one in wanted]
    removed = _prune(cache, wanted, time) if options.prune else 0
    if (any(fetched) or removed) and all(path.name.startswith(_FOLDER) for path in cache.iterdir()):
        # It was made for this, and is a layer as it is.
        os.utime(cache, (time, time))
    _print(options.format, cache, wanted, fetched)
    return EXIT_DONE


def cache_folder(given: str) -> Path:
    """The cache: the one given, else the one that kernels uses in this environment."""
    home = os.environ.get("HF_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache"), "huggingface"
    )
    chosen = (
        given
        or os.environ.get("KERNELS_CACHE")
        or os.environ.get("HF_HUB_CACHE")
        or os.path.join(home, "hub")
    )
    return Path(os.path.abspath(os.path.expanduser(chosen)))


def source_date() -> int:
    """The time of everything that is written, in seconds since 1970: SOURCE_DATE_EPOCH, else 1980.

    Raises ``WrongInput`` when the variable is no such number.
    """
    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not text:
        return EPOCH
    # 2107 is where the time of an archive's entry ends.
    if not text.isascii() or not text.isdigit() or len(text) > 10 or int(text) >= 4354819200:
        raise WrongInput(f"SOURCE_DATE_EPOCH is {text!r}, which is no number of seconds since 1970")
    return max(int(text), EPOCH)


def choose(hub: Hub, locked: Sequence[Locked], wanted: Sequence[Platform], path: Path) -> tuple[Wanted, ...]:
    """What to download for the platforms; all variants, and what else is in the commit, where there is
    none.

    Raises ``KernelFailed`` with every platform that a kernel has no variant for, ``WrongInput`` for a
    commit that the Hub does not have.
    """
    found: list[Wanted] = []
    missing: list[KernelFailed] = []
    for one in locked:
        files = _listed(hub, one, path)
        names = plan.variants_in(files)
        chosen = set(names)
        if wanted:
            by_platform = {platform.name: platforms.chosen(platform, names) for platform in wanted}
            chosen = set(filter(None, by_platform.values()))
            files = {name: file for name, file in files.items() if plan.variant_of(name) in chosen}
            missing += [
                KernelFailed(
                    f"{one.repo_id} has no variant for {platform} at {one.commit[:12]}",
                    where=Place(path),
                    repair=f"it has {', '.join(sorted(names)) or 'none at all'}",
                )
                for platform, variant in by_platform.items()
                if not variant
            ]
        elif not names:
            what = f"{one.repo_id} has no variant at {one.commit[:12]}"
            missing.append(KernelFailed(what, where=Place(path), repair=lockfile.UPDATE))
        found.append(Wanted(one, tuple(sorted(chosen)), files))
    raise_all(missing)
    return tuple(found)


def _listed(hub: Hub, one: Locked, path: Path) -> dict[str, RemoteFile]:
    """The files of a locked commit that can be wanted, by path."""
    try:
        files = client.remote_files(hub, one.repo_id, one.commit)
    except WrongInput as error:
        if client.refs(hub, one.repo_id) is None:
            missing = client.missing_repository(hub, one.repo_id)
            raise WrongInput(missing.what, where=Place(path), repair=missing.repair) from error
        raise WrongInput(
            f"{one.repo_id} has no commit {one.commit[:12]}", where=Place(path), repair=lockfile.UPDATE
        ) from error
    for name in files:
        check_path(name, one.repo_id)
    return {
        name: file
        for name, file in sorted(files.items())
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in _IGNORED)
    }


def check_path(name: str, repo_id: str) -> None:
    """Raise ``WrongInput`` unless ``name`` is a relative path that stays in its folder, on any system."""
    parts = PurePosixPath(name).parts
    is_plain = (
        bool(parts)
        and "/".join(parts) == name
        and not name.startswith("/")
        and ".." not in parts
        and all(character.isprintable() and character not in '\\:*?"<>|' for character in name)
        and all(len(part.encode()) <= _LONGEST_NAME for part in parts)
    )
    if not is_plain:
        raise WrongInput(
            f"{repo_id} has a file {name!r}, whose name no builder makes",
            repair="do not use this commit, and tell its publisher",
        )


def _store(hub: Hub, wanted: Wanted, cache: Path, time: int) -> int:
    """Have everything that is wanted in ``cache``, and return how many files had to be fetched."""
    one = wanted.locked
    folder = _folder(cache, one)
    blobs = folder / "blobs"
    snapshot = folder / "snapshots" / one.commit
    if not _missing(wanted, blobs) and _is_complete(folder, wanted):
        return 0  # Also in a cache that can only be read.
    _make_folder(blobs)
    with _alone_in(folder):
        # Asked again, as another process may have been at it until now.
        missing = _missing(wanted, blobs)
        with tempfile.TemporaryDirectory(prefix=_TEMPORARY, dir=folder) as name:
            temporary = Path(name)
            if missing:
                console.say(
                    f"Fetching {console.size(sum(file.size for file in missing.values()))} of {one.repo_id} "
                    f"at {one.commit[:12]}"
                )
                _fetch(hub, one, missing, blobs, temporary)
            for unit in sorted({_unit(path) for path in wanted.files}):
                part = {path: file for path, file in wanted.files.items() if _unit(path) == unit}
                _link(snapshot, unit, part, blobs, temporary)
            if one.branch:
                _write_ref(folder / "refs" / one.branch, one.commit, temporary)
        # With the list of all files, a snapshot without some of them would count as cut off.
        listing = folder / "trees" / f"{one.commit}.json"
        if not _holds_all(listing, snapshot):
            listing.unlink(missing_ok=True)
            with suppress(OSError):
                listing.parent.rmdir()
        _stamp(folder, wanted, time)
        if not _is_complete(folder, wanted):
            # Where two names of files are one, most likely: a file system that takes `A` for `a`.
            raise WrongSurroundings(
                f"{folder} does not hold {one.repo_id} as it was written there",
                repair="give a folder on another file system by --cache",
            )
    return len(missing)


def _folder(cache: Path, one: Locked) -> Path:
    """The folder of a repository in the cache."""
    return cache / f"{_FOLDER}{one.repo_id.replace('/', '--')}"


def _prune(cache: Path, wanted: Sequence[Wanted], time: int) -> int:
    """Remove from the cache of kernels what is not wanted, and return how much that was."""
    kept = {path for one in wanted for path in _ours(_folder(cache, one.locked), one)}
    removed = 0
    for folder in sorted(cache.glob(f"{_FOLDER}*")):
        if folder.is_symlink() or not folder.is_dir():
            continue
        with _alone_in(folder):
            # What is inside of a folder before the folder itself.
            for path in sorted({folder, *folder.rglob("*")} - kept, reverse=True):
                if path.is_dir() and not path.is_symlink():
                    path.rmdir()
                else:
                    path.unlink()
                removed += 1
    if removed:
        for one in wanted:
            _stamp(_folder(cache, one.locked), one, time)
    return removed


def _missing(wanted: Wanted, blobs: Path) -> dict[str, RemoteFile]:
    """The files whose bytes the cache does not have."""
    return {path: file for path, file in wanted.files.items() if not _is_blob(blobs / _blob_name(file), file)}


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep other processes that write here waiting, and remove what those left behind that were killed.

    The folder itself is what is locked: a lock's file would be one more in the image.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        for abandoned in folder.glob(f"{_TEMPORARY}*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        yield
    finally:
        os.close(descriptor)


def _unit(path: str) -> str:
    """What is put in place at once: a variant's folder, or the file ``path`` outside of them."""
    variant = plan.variant_of(path)
    return f"build/{variant}" if variant is not None else path


def _blob_name(file: RemoteFile) -> str:
    """The name of a file's bytes in the cache: the ETag that the Hub serves it with."""
    name = file.sha256 or file.oid
    if not name.isalnum() or len(name) < 40:
        raise WrongSurroundings(f"the Hub lists a file by {name!r}, which is no hash")
    return name


def _is_blob(path: Path, file: RemoteFile) -> bool:
    """Whether the cache has exactly these bytes, by their hash and not by their name alone."""
    try:
        return not path.is_symlink() and _is_same(path, file)
    except OSError:
        return False


def fetch(hub: Hub, repo_id: str, commit: str, files: Mapping[str, RemoteFile], folder: Path) -> None:
    """Download ``files``, which are by path in the repository, into ``folder``.

    Raises ``WrongSurroundings`` for one that is not, byte for byte, what the Hub lists.
    """
    client.download(hub, repo_id, commit, [glob.escape(path) for path in sorted(files)], folder)
    for path, file in sorted(files.items()):
        found = folder / path
        if found.is_symlink() or not found.is_file() or not _is_same(found, file):
            raise WrongSurroundings(
                f"{path} of {repo_id} did not arrive as the Hub lists it", repair="run again"
            )


def _is_same(path: Path, file: RemoteFile) -> bool:
    return path.stat().st_size == file.size and client.local_file(path).is_same(file)


def _fetch(hub: Hub, one: Locked, missing: Mapping[str, RemoteFile], blobs: Path, temporary: Path) -> None:
    """Download the files into ``blobs``, each checked before it gets its name there."""
    target = temporary / "files"
    fetch(hub, one.repo_id, one.commit, missing, target)
    for path, file in sorted(missing.items()):
        (target / path).chmod(0o644)
        # Where two paths have the same bytes, the second replaces the first.
        os.replace(target / path, blobs / _blob_name(file))
    shutil.rmtree(target)


def _link(snapshot: Path, unit: str, files: Mapping[str, RemoteFile], blobs: Path, temporary: Path) -> None:
    """Put links to the blobs in place: a variant as a whole where it is not there yet."""
    target = snapshot / unit
    links = {
        path: os.path.relpath(blobs / _blob_name(file), (snapshot / path).parent)
        for path, file in files.items()
    }
    if unit in files or target.exists():
        for path, link in sorted(links.items()):
            _replace_link(snapshot / path, link, temporary)
        return
    made = temporary / "variant"
    for path, link in sorted(links.items()):
        place = made / PurePosixPath(path).relative_to(unit)
        _make_folder(place.parent)
        place.symlink_to(link)
    _make_folder(target.parent)
    os.rename(made, target)


def _replace_link(path: Path, link: str, temporary: Path) -> None:
    if path.is_symlink() and os.readlink(path) == link:
        return
    _make_folder(path.parent)
    made = temporary / "link"
    made.symlink_to(link)
    os.replace(made, path)


def _write_ref(path: Path, commit: str, temporary: Path) -> None:
    """Name the locked commit as the version's: where the network is off, ``get_kernel(version=…)`` looks
    there."""
    with suppress(OSError):
        if path.read_text() == commit:
            return
    _make_folder(path.parent)
    made = temporary / "ref"
    made.write_text(commit)
    os.replace(made, path)


def _make_folder(path: Path) -> None:
    for parent in reversed([path, *path.parents]):
        if not parent.is_dir():
            parent.mkdir(exist_ok=True)
            parent.chmod(0o755)


def _holds_all(listing: Path, snapshot: Path) -> bool:
    """Whether a list of all files that somebody else left is one that the snapshot keeps to."""
    try:
        entries = json.loads(listing.read_bytes())
    except FileNotFoundError:
        return True
    except (OSError, ValueError, RecursionError):
        return False
    names = _names(entries)
    return bool(names) and all((snapshot / name).exists() for name in names)


def _names(entries: object) -> list[str]:
    """The paths of a list of files, in any of the forms that huggingface_hub gave it."""
    if isinstance(entries, dict):
        inner = next((entries[key] for key in ("entries", "files", "tree") if key in entries), entries)
        return _names(inner) if inner is not entries else [str(name) for name in entries]
    if isinstance(entries, list):
        return [str(one.get("path", "")) for one in entries if isinstance(one, dict)]
    return []


def _ours(folder: Path, wanted: Wanted) -> Iterable[Path]:
    """What of a repository's folder is this command's, files before the folders that they are in."""
    snapshot = folder / "snapshots" / wanted.locked.commit
    if wanted.locked.branch:
        yield folder / "refs" / wanted.locked.branch
        yield folder / "refs"
    for path, file in wanted.files.items():
        yield folder / "blobs" / _blob_name(file)
        yield snapshot / path
    folders = {parent for path in wanted.files for parent in (snapshot / path).parents}
    inside = [path for path in folders if path.is_relative_to(folder / "snapshots")]
    yield from sorted(inside, key=lambda path: len(path.parts), reverse=True)
    yield folder / "blobs"
    yield folder


def _stamp(folder: Path, wanted: Wanted, time: int) -> None:
    """Give everything the same time and mode, so that the same lock gives the same layer of an image."""
    for path in _ours(folder, wanted):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
        os.utime(path, (time, time), follow_symlinks=False)


def _is_complete(folder: Path, wanted: Wanted) -> bool:
    """Whether nothing is left to be done but for times and modes, which a cache can keep as they are."""
    snapshot = folder / "snapshots" / wanted.locked.commit
    ref = folder / "refs" / wanted.locked.branch
    try:
        if wanted.locked.branch and ref.read_text() != wanted.locked.commit:
            return False
        if not _holds_all(folder / "trees" / f"{wanted.locked.commit}.json", snapshot):
            return False
        return all(
            os.path.samefile(snapshot / path, folder / "blobs" / _blob_name(file))
            and stat.S_ISLNK(os.lstat(snapshot / path).st_mode)
            for path, file in wanted.files.items()
        )
    except OSError:
        return False


def _print(form: str, cache: Path, wanted: Sequence[Wanted], fetched: Sequence[int]) -> None:
    if form == "json":
        value = {
            "cache": str(cache),
            "kernels": [
                {
                    "repo_id": one.locked.repo_id,
                    "commit": one.locked.commit,
                    "variants": list(one.variants),
                    "files": len(one.files),
                    "bytes": one.size,
                    "fetched": count,
                }
                for one, count in zip(wanted, fetched, strict=True)
            ],
        }
        print(json.dumps(value, indent=2))
        return
    rows = [
        (
            one.locked.repo_id, one.locked.commit[:12], " ".join(one.variants), str(len(one.files)),
            console.size(one.size), str(count),
        )
        for one, count in zip(wanted, fetched, strict=True)
    ]  # fmt: skip
    with github.untrusted_output():
        print(console.table(_HEADER, rows))
        print()
        print(f"Load it without a network by: HF_HUB_CACHE={shlex.quote(str(cache))} HF_HUB_OFFLINE=1")
    if form == "github":
        github.set_outputs({"cache": str(cache)})
        title = f"{console.counted(len(wanted), 'locked kernel')} in the cache"
        github.add_summary(markdown.join(markdown.heading("passed", title), markdown.table(_HEADER, rows)))
