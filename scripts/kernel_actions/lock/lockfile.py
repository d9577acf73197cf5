"""kernels.lock, read by the ``kernels`` package's own parser."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernel_actions import toml_file
from kernel_actions.errors import Place, WrongInput
from kernel_actions.hub import client

_LARGEST = 10_000_000
UPDATE = "write it anew: kernel-actions lock --mode update"


@dataclass(frozen=True)
class Locked:
    """A locked kernel: the ``version`` (or, of a kernel that another one needs, the ``revision``) that was
    asked for, and the commit on the Hub that it is."""

    repo_id: str
    version: int | None
    revision: str
    commit: str

    @property
    def branch(self) -> str:
        """The branch on the Hub that has the version; empty for a revision."""
        return "" if self.version is None else f"v{self.version}"

    @property
    def wanted(self) -> str:
        """The version or revision, for people."""
        return self.revision if self.version is None else str(self.version)


def read(path: Path) -> tuple[Locked, ...]:
    """The locked kernels of the file ``path``, in its order.

    Raises ``WrongInput`` when it is missing, or not what the installed version of kernels reads.
    """
    data = read_bytes(path)
    if data is None:
        raise missing(path)
    return decode(data, path)


def missing(path: Path) -> WrongInput:
    """What is wrong where there is no lock."""
    return WrongInput("there is no lock", where=Place(path), repair=UPDATE)


def read_bytes(path: Path) -> bytes | None:
    """What is in the file ``path``; ``None`` where there is none.

    Raises ``WrongInput`` for what cannot be read, or is no file.
    """
    try:
        return toml_file.read_bytes(path, _LARGEST)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise WrongInput(f"cannot be read: {error.strerror}", where=Place(path)) from error


def decode(data: bytes, path: Path) -> tuple[Locked, ...]:
    """The locked kernels in ``data``, which is that of ``path``. Raises ``WrongInput``."""
    where = Place(path)
    if len(data) > _LARGEST:
        raise WrongInput("is larger than 10 MB, which no lock is", where=where, repair=UPDATE)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise WrongInput("is not UTF-8", where=where, repair=UPDATE) from error
    return parse(text, path)


def parse(text: str, path: Path) -> tuple[Locked, ...]:
    """The locked kernels of ``text``, which is that of ``path``. Raises ``WrongInput``."""
    from kernels._rust import KernelLocks, KernelVersion

    try:
        locks = KernelLocks.from_json(text)
    except ValueError as error:
        said = str(error).removeprefix("Cannot parse KernelLocks: ")
        raise WrongInput(
            f"is not a lock that the installed version of kernels reads: {said}",
            where=Place(path),
            repair=f"{UPDATE}; or use the version of kernels that wrote it",
        ) from error
    found: list[Locked] = []
    for dependency, lock in locks.items():
        try:
            client.check_repo_id(dependency.repo_id)
        except WrongInput as error:
            raise WrongInput(error.what, where=Place(path), repair=UPDATE) from error
        version = dependency.version
        is_version = isinstance(version, KernelVersion.Version)
        found.append(
            Locked(
                repo_id=dependency.repo_id,
                version=int(version.version) if is_version else None,
                revision="" if is_version else str(version.revision),
                commit=lock.commit,
            )
        )
    return tuple(found)
