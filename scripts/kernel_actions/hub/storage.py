"""What an embedded Hub keeps: repositories, branches, commits and files, on disk.

Files are kept by the SHA-256 of what they hold, written aside, synced, and renamed into place.
Everything else is in one SQLite database, which only ever names files that are in place: a server
that is killed at any moment has each commit either whole or not at all.

Ids of files, folders and commits are those that git would give. A file that is kept as LFS has
the id of its pointer, as on the real Hub.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
import re
import shutil
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from kernel_actions import built
from kernel_actions.errors import WrongInput, WrongSurroundings

# From this size on, in bytes, the Hub keeps a file as LFS whatever it holds.
LFS_THRESHOLD = 10_000_000
# Objects of an LFS upload may not be larger, in bytes.
LARGEST_FILE = 50_000_000_000
# Of a path, in characters, and of each name in it, in bytes: what file systems take.
LONGEST_PATH = 1024
LONGEST_NAME = 255
MAIN = "refs/heads/main"

_AUTHOR = "embedded-hub"
_SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE repositories (
    name TEXT PRIMARY KEY COLLATE NOCASE,
    created TEXT NOT NULL,
    pull_requests INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE trees (id TEXT PRIMARY KEY, files TEXT NOT NULL);
CREATE TABLE commits (
    repository TEXT NOT NULL COLLATE NOCASE,
    id TEXT NOT NULL,
    parent TEXT,
    tree TEXT NOT NULL REFERENCES trees (id),
    title TEXT NOT NULL,
    description TEXT NOT NULL,
    date TEXT NOT NULL,
    PRIMARY KEY (repository, id)
);
CREATE TABLE refs (
    repository TEXT NOT NULL COLLATE NOCASE,
    name TEXT NOT NULL,
    target TEXT NOT NULL,
    PRIMARY KEY (repository, name)
);
"""
_REPOSITORY_PART = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_OBJECT_ID = re.compile(r"[0-9a-f]{64}")
# Whole or cut short, as the Hub's clients take it.
_COMMIT_ID = re.compile(r"[0-9a-fA-F]{5,40}")
# What every new repository of the real Hub starts with, cut down to what kernels hold.
_FIRST_FILE = (".gitattributes", b"*.so filter=lfs diff=lfs merge=lfs -text\n")


class Refused(Exception):
    """A request that is refused: the HTTP status, the Hub's error code, and the reason.

    ``commit`` is the commit that was looked into, where the answer names it.
    """

    def __init__(self, status: int, message: str, code: str = "", commit: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.commit = commit


def repository_missing(repository: str) -> Refused:
    return Refused(404, f"Repository not found: {repository}", "RepoNotFound")


def revision_missing(revision: str) -> Refused:
    return Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")


def entry_missing(path: str, commit: str = "") -> Refused:
    return Refused(404, f"A file with this name doesn't exist: {path}", "EntryNotFound", commit)


@dataclass(frozen=True)
class File:
    """A file of a commit: the id that git gives it, its size in bytes, and what it holds."""

    oid: str
    size: int
    sha256: str
    is_lfs: bool

    @property
    def etag(self) -> str:
        """What the Hub answers as the file's ETag."""
        return self.sha256 if self.is_lfs else self.oid


Files = Mapping[str, File]


@dataclass(frozen=True)
class Commit:
    """A commit. ``date`` is in the form that the Hub's clients read, in UTC."""

    id: str
    parent: str | None
    tree: str
    title: str
    description: str
    date: str


@dataclass(frozen=True)
class Add:
    """Put a file at ``path``; its content is in the store already."""

    path: str
    file: File


@dataclass(frozen=True)
class Delete:
    """Delete the file at ``path``, or the folder."""

    path: str
    is_folder: bool


Operation = Add | Delete


class Store:
    """The data folder of one embedded Hub. Its methods may be called from several threads."""

    def __init__(self, folder: Path, lock: BinaryIO) -> None:
        """Use ``open_store``, which takes the lock that keeps other servers away."""
        self._lock_file = lock
        self._objects = folder / "objects"
        self._incoming = folder / "incoming"
        self._lock = threading.RLock()
        self._database = sqlite3.connect(
            folder / "hub.sqlite3", isolation_level=None, check_same_thread=False
        )
        self._database.execute("PRAGMA journal_mode = WAL")
        # The default of WAL may lose the last commits when the machine loses its power.
        self._database.execute("PRAGMA synchronous = FULL")
        self._make_schema(folder)
        # After the database, which says that the folder is an embedded Hub's.
        self._objects.mkdir(exist_ok=True)
        # What a killed server had not finished receiving; the lock says that nobody is writing it.
        shutil.rmtree(self._incoming, ignore_errors=True)
        self._incoming.mkdir()
        self._tree = lru_cache(maxsize=64)(self._read_tree)

    def _make_schema(self, folder: Path) -> None:
        with self._transaction() as database:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version == 0:
                for statement in _SCHEMA.split(";"):
                    database.execute(statement)
                database.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
            elif version != _SCHEMA_VERSION:
                raise WrongInput(
                    f"{folder} holds the data of another version of the embedded Hub",
                    repair="give another folder by --data",
                )

    def close(self) -> None:
        """Close the database and let another server use the folder."""
        with self._lock:
            self._database.close()
        self._lock_file.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                # SQLite has rolled back by itself after some errors, as of a full disk.
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    # Contents of files.

    def object_path(self, sha256: str) -> Path:
        """Where the content with this SHA-256 is kept, once it is."""
        if not _OBJECT_ID.fullmatch(sha256):
            raise Refused(400, f"not a SHA-256: {sha256}")
        return self._objects / sha256[:2] / sha256[2:]

    def has_object(self, sha256: str, size: int | None) -> bool:
        """Whether the content with this SHA-256 (and size in bytes, where known) is kept."""
        path = self.object_path(sha256)
        return path.is_file() and (size is None or path.stat().st_size == size)

    @contextmanager
    def receive(self) -> Iterator[Receiver]:
        """A place to write a content to; nothing remains of one that is not kept in the end."""
        receiver = Receiver(self, self._incoming)
        try:
            yield receiver
        finally:
            receiver.close()

    def put(self, content: bytes) -> File:
        """Keep ``content`` as a regular file."""
        with self.receive() as receiver:
            receiver.write(content)
            sha256 = receiver.keep()
        return File(oid=_git_id("blob", content), size=len(content), sha256=sha256, is_lfs=False)

    def lfs_file(self, sha256: str, size: int | None) -> File:
        """The file kept as LFS whose content was received before. Raises ``Refused``."""
        if not self.has_object(sha256, size):
            raise Refused(400, f"LFS object {sha256} was not uploaded, or has another size")
        real_size = self.object_path(sha256).stat().st_size
        pointer = lfs_pointer(sha256, real_size)
        return File(oid=_git_id("blob", pointer), size=real_size, sha256=sha256, is_lfs=True)

    # Repositories and their names for commits.

    def create_repository(self, repository: str) -> bool:
        """Make a repository with a first commit on ``main``; false when it exists."""
        check_repository(repository)
        path, content = _FIRST_FILE
        files = {path: self.put(content)}
        with self._transaction() as database:
            if database.execute("SELECT 1 FROM repositories WHERE name = ?", (repository,)).fetchone():
                return False
            database.execute("INSERT INTO repositories (name, created) VALUES (?, ?)", (repository, _now()))
            commit = self._insert_commit(database, repository, None, files, "initial commit", "")
            self._set_ref(database, repository, MAIN, commit.id)
        return True

    def repository(self, repository: str) -> str:
        """The repository's name, as it was created. Raises ``Refused`` when there is none."""
        row = self._one("SELECT name FROM repositories WHERE name = ?", repository)
        if row is None:
            raise repository_missing(repository)
        return str(row[0])

    def has_owner(self, owner: str) -> bool:
        """Whether ``owner`` has a repository here."""
        query = "SELECT 1 FROM repositories WHERE substr(name, 1, length(?1)) = ?1 COLLATE NOCASE"
        return self._one(query, f"{owner}/") is not None

    def refs(self, repository: str) -> dict[str, str]:
        """Every full name (``refs/heads/…``, ``refs/tags/…``, ``refs/pr/…``) and its commit."""
        self.repository(repository)
        with self._lock:
            rows = self._database.execute(
                "SELECT name, target FROM refs WHERE repository = ? ORDER BY name", (repository,)
            ).fetchall()
        return dict(rows)

    def resolve(self, repository: str, revision: str) -> Commit:
        """The commit of a branch, tag, pull request or commit id. Raises ``Refused``."""
        refs = self.refs(repository)
        for name in (f"refs/heads/{revision}", f"refs/tags/{revision}", revision):
            if name in refs:
                return self.commit(repository, refs[name])
        return self._commit_by_id(repository, revision)

    def _commit_by_id(self, repository: str, commit_id: str) -> Commit:
        """The commit with this id, which may be cut short. Raises ``Refused``."""
        if _COMMIT_ID.fullmatch(commit_id):
            with self._lock:
                rows = self._database.execute(
                    "SELECT id FROM commits WHERE repository = ? AND id GLOB ? LIMIT 2",
                    (repository, commit_id.lower() + "*"),
                ).fetchall()
            if len(rows) == 1:
                return self.commit(repository, rows[0][0])
        raise revision_missing(commit_id)

    def create_ref(self, repository: str, name: str, commit: str) -> None:
        """Make a branch or tag, by its full name. Raises ``Refused`` when it exists."""
        check_ref(name)
        with self._transaction() as database:
            refs = self.refs(repository)
            if name in refs:
                raise Refused(409, f"Reference already exists: {name}")
            # As in git, where a name cannot be a file and a folder at once.
            if any(other.startswith(name + "/") or name.startswith(other + "/") for other in refs):
                raise Refused(409, f"{name} is in the way of another reference, or behind one")
            self._set_ref(database, repository, name, commit)

    def delete_ref(self, repository: str, name: str) -> None:
        """Delete a branch or tag, by its full name. Raises ``Refused``."""
        if name == MAIN:
            raise Refused(403, "main cannot be deleted")
        with self._transaction() as database:
            if name not in self.refs(repository):
                raise revision_missing(name)
            database.execute("DELETE FROM refs WHERE repository = ? AND name = ?", (repository, name))

    # Commits and their files.

    def commit(self, repository: str, commit_id: str) -> Commit:
        """The commit with this full id."""
        row = self._one(
            "SELECT id, parent, tree, title, description, date FROM commits WHERE repository = ? AND id = ?",
            repository,
            commit_id,
        )
        if row is None:
            raise revision_missing(commit_id)
        return Commit(*row)

    def history(self, repository: str, start: Commit) -> Iterator[Commit]:
        """``start``, its parent, and so on."""
        commit = start
        yield commit
        while commit.parent is not None:
            commit = self.commit(repository, commit.parent)
            yield commit

    def files(self, commit: Commit) -> Files:
        """All files of a commit, by path."""
        return self._tree(commit.tree)

    def add_commit(
        self,
        repository: str,
        revision: str,
        operations: Sequence[Operation],
        *,
        title: str,
        description: str = "",
        parent: str | None = None,
        as_pull_request: bool = False,
    ) -> tuple[Commit, int | None]:
        """Commit to a branch, or open a pull request against it, and return its number too.

        ``parent`` is the commit that the branch must still be at; a pull request starts there.
        Raises ``Refused``: 412 when the branch has moved, 404 for what is not there.
        """
        # An empty one would be the start of any id, and guard nothing.
        if parent is not None and not _COMMIT_ID.fullmatch(parent):
            raise Refused(400, f"the parent is not the id of a commit: {parent}")
        with self._transaction() as database:
            refs = self.refs(repository)
            branch = f"refs/heads/{revision}"
            ref = branch if branch in refs else revision
            if ref not in refs or ref.startswith("refs/tags/"):
                raise revision_missing(revision)
            head = refs[ref]
            if as_pull_request and parent is not None:
                head = self._commit_by_id(repository, parent).id
            elif parent is not None and not head.startswith(parent.lower()):
                raise Refused(412, f"A commit has happened since. Please refresh and try again: {head}")
            files = apply(self.files(self.commit(repository, head)), operations)
            commit = self._insert_commit(database, repository, head, files, title, description)
            number = None
            if as_pull_request:
                database.execute(
                    "UPDATE repositories SET pull_requests = pull_requests + 1 WHERE name = ?",
                    (repository,),
                )
                (number,) = database.execute(
                    "SELECT pull_requests FROM repositories WHERE name = ?", (repository,)
                ).fetchone()
                ref = f"refs/pr/{number}"
            self._set_ref(database, repository, ref, commit.id)
        return commit, number

    def _insert_commit(
        self,
        database: sqlite3.Connection,
        repository: str,
        parent: str | None,
        files: Files,
        title: str,
        description: str,
    ) -> Commit:
        tree = folder_ids(files)[""]
        date = _now()
        text = f"tree {tree}\n" + (f"parent {parent}\n" if parent else "")
        text += f"author {_AUTHOR} {date}\n\n{title}\n\n{description}\n"
        commit = Commit(_git_id("commit", text.encode()), parent, tree, title, description, date)
        listing = json.dumps(
            {path: [file.oid, file.size, file.sha256, file.is_lfs] for path, file in files.items()}
        )
        database.execute("INSERT OR IGNORE INTO trees VALUES (?, ?)", (tree, listing))
        # The same change, made again within the clock's resolution, is the same commit.
        database.execute(
            "INSERT OR IGNORE INTO commits VALUES (?, ?, ?, ?, ?, ?, ?)",
            (repository, commit.id, parent, tree, title, description, date),
        )
        return commit

    @staticmethod
    def _set_ref(database: sqlite3.Connection, repository: str, name: str, target: str) -> None:
        database.execute("INSERT OR REPLACE INTO refs VALUES (?, ?, ?)", (repository, name, target))

    def _read_tree(self, tree: str) -> Files:
        row = self._one("SELECT files FROM trees WHERE id = ?", tree)
        assert row is not None, "a commit's tree is written with it"
        return {path: File(*fields) for path, fields in sorted(json.loads(row[0]).items())}

    def _one(self, query: str, *values: str) -> tuple[str, ...] | None:
        with self._lock:
            row: tuple[str, ...] | None = self._database.execute(query, values).fetchone()
        return row


class Receiver:
    """Receives one content, and keeps it only when it is whole."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._path = folder / os.urandom(16).hex()
        self._file = self._path.open("xb")
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, chunk: bytes) -> None:
        """Append ``chunk``."""
        self._digest.update(chunk)
        self._file.write(chunk)
        self.size += len(chunk)

    def keep(self, expected: str | None = None) -> str:
        """Put the content in place and return its SHA-256, which must be ``expected``."""
        sha256 = self._digest.hexdigest()
        if expected is not None and sha256 != expected:
            raise Refused(422, f"the content's SHA-256 is {sha256}, not {expected}")
        target = self._store.object_path(sha256)
        if not self._store.has_object(sha256, self.size):
            self._file.flush()
            os.fsync(self._file.fileno())
            if not target.parent.is_dir():
                target.parent.mkdir(exist_ok=True)
                _sync_folder(target.parent.parent)
            self._path.replace(target)
            _sync_folder(target.parent)
        return sha256

    def close(self) -> None:
        """Close the file, and remove it unless it was kept."""
        try:
            # Writes what is left in the buffer, for which a full disk has no place.
            self._file.close()
        finally:
            self._path.unlink(missing_ok=True)


@contextmanager
def open_store(folder: Path) -> Iterator[Store]:
    """The store in ``folder``, which is made when missing, for this process alone.

    Raises ``WrongInput`` for a folder of something else, ``WrongSurroundings`` when another
    server has it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (FileExistsError, NotADirectoryError) as error:
        raise WrongInput(f"{folder} is not a folder", repair="give another by --data") from error
    names = {entry.name for entry in folder.iterdir()}
    if "hub.sqlite3" not in names and names - {"lock"}:
        raise WrongInput(
            f"{folder} is not empty and holds no embedded Hub", repair="give another folder by --data"
        )
    lock = (folder / "lock").open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise WrongSurroundings(
            f"another embedded Hub is using {folder}", repair="end it, or give another folder by --data"
        ) from error
    try:
        store = Store(folder, lock)
    except sqlite3.DatabaseError as error:
        lock.close()
        raise WrongSurroundings(f"{folder / 'hub.sqlite3'} cannot be used: {error}") from error
    try:
        # It is in a kernel's folder unless --data says otherwise.
        built.hide_from_git(folder)
        yield store
    finally:
        store.close()


def apply(files: Files, operations: Sequence[Operation]) -> dict[str, File]:
    """``files`` after ``operations``, which are done in their order. Raises ``Refused``."""
    result = dict(files)
    for operation in operations:
        path = operation.path
        if isinstance(operation, Add):
            result[path] = operation.file
        elif not operation.is_folder:
            if result.pop(path, None) is None:
                raise entry_missing(path)
        else:
            inside = [name for name in result if name.startswith(path + "/")]
            if not inside:
                raise entry_missing(path)
            for name in inside:
                del result[name]
    for path in result:
        for parent in parents(path):
            if parent in result:
                raise Refused(400, f"{parent} cannot be a file and a folder at once")
    return result


def parents(path: str) -> list[str]:
    """The folders that ``path`` is in, but for the root: the outermost first."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def folder_ids(files: Files) -> dict[str, str]:
    """The id that git gives each folder of a tree, by its path; the root's path is empty."""
    children: dict[str, list[tuple[str, bool, str]]] = {"": []}
    for path, file in files.items():
        folders = ["", *parents(path)]
        for parent, folder in itertools.pairwise(folders):
            if folder not in children:
                children[folder] = []
                children[parent].append((folder, True, ""))
        children[folders[-1]].append((path, False, file.oid))
    ids: dict[str, str] = {}
    # A folder's id is made of its children's, so the deepest come first.
    for folder in sorted(children, key=lambda name: -name.count("/") if name else 1):
        entries = b""
        for path, is_folder, oid in sorted(
            children[folder], key=lambda child: child[0] + ("/" if child[1] else "")
        ):
            name = path.rpartition("/")[2].encode()
            mode = b"40000" if is_folder else b"100644"
            entries += mode + b" " + name + b"\0" + bytes.fromhex(ids[path] if is_folder else oid)
        ids[folder] = _git_id("tree", entries)
    return ids


def lfs_pointer(sha256: str, size: int) -> bytes:
    """What git keeps in place of an LFS file (https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md)."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()


def is_binary(sample: bytes) -> bool:
    """Whether a file that starts with ``sample`` is not text in UTF-8."""
    if b"\0" in sample:
        return True
    try:
        sample.decode()
    except UnicodeDecodeError as error:
        # The sample may end within a character, which has four bytes at most.
        return len(sample) - error.start > 3 or error.reason != "unexpected end of data"
    return False


def check_path(path: object) -> str:
    """``path`` if it may be a file's path in a repository. Raises ``Refused``."""
    if not isinstance(path, str) or not path or len(path) > LONGEST_PATH:
        raise Refused(400, f"not a path, or one of more than {LONGEST_PATH} characters")
    parts = path.split("/")
    if any(part in {"", ".", ".."} or part.lower() == ".git" for part in parts):
        raise Refused(400, f"not a path inside a repository: {path}")
    if "\\" in path or not all(character.isprintable() for character in path):
        raise Refused(400, f"a path with characters that are not allowed: {path!r}")
    if any(len(part.encode()) > LONGEST_NAME for part in parts):
        raise Refused(400, f"a path with a name of more than {LONGEST_NAME} bytes: {path}")
    return path


def check_repository(repository: str) -> str:
    """``repository`` if it is an owner and a name. Raises ``Refused``."""
    parts = repository.split("/")
    is_valid = (
        len(parts) == 2
        and all(_REPOSITORY_PART.fullmatch(part) and len(part) <= 96 for part in parts)
        and "--" not in repository
        and ".." not in repository
        and not repository.endswith(".git")
    )
    if not is_valid:
        raise Refused(400, f"not the name of a repository: {repository}")
    return repository


def check_ref(name: str) -> str:
    """``name`` if git takes it as a reference's full name. Raises ``Refused``."""
    parts = name.split("/")
    is_valid = (
        len(name) <= 255
        and re.fullmatch(r"[A-Za-z0-9._/+@#=-]+", name)
        and not any(
            not part or part.startswith((".", "-")) or part.endswith((".", ".lock")) for part in parts
        )
        and ".." not in name
        and "@{" not in name
    )
    if not is_valid:
        raise Refused(400, f"not a name for a branch or tag: {name}")
    return name


def _git_id(kind: str, content: bytes) -> str:
    return hashlib.sha1(f"{kind} {len(content)}\0".encode() + content, usedforsecurity=False).hexdigest()


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
