"""What installs packages into an environment: uv, and pip where uv cannot be had.

Both take wheels alone, since building a source distribution runs its code, and both get the user's
:mod:`sources <kernel_actions.app.sources>` by variables: an index's password must not be an argument. They
run in an empty folder, where no project's files are read.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from kernel_actions import console, process
from kernel_actions.app import network, sources, uv
from kernel_actions.app.sources import Sources
from kernel_actions.app.venv import Packages, own_folder
from kernel_actions.errors import WrongSurroundings

# Without an answer, of an attempt that others follow.
_SOON_SECONDS = "10"


class Installer(Protocol):
    """Makes environments and installs packages; a program that fails is told by what it printed."""

    def create(self, folder: Path) -> process.Finished:
        """Make an environment of this interpreter in ``folder``, which is empty."""

    def install(self, python: Path, packages: Packages) -> process.Finished:
        """Install ``packages`` for an environment's interpreter."""


def choose(root: Path, requirements: Path, *, is_shared: bool) -> Installer:
    """uv as ``requirements`` lock it, kept below ``root``; pip where there is none, which one line says.

    ``is_shared``: other jobs, too, use what is below ``root``.

    Raises ``WrongSurroundings`` where the user's settings cannot be used.
    """
    network.check(os.environ)
    given = sources.read(os.environ)
    folder = own_folder(root / "uv")
    try:
        program = uv.program(requirements, folder, given)
        chosen = Uv(program, own_folder(folder / "cache"), given, is_shared)
        finished = chosen.run(["--version"], given)
        if finished.returncode == 0:
            return chosen
        reason = f"it does not run here: {(finished.output.splitlines() or ['no output'])[-1]}"
    except uv.Unavailable as error:
        reason = str(error)
    except (OSError, WrongSurroundings) as error:
        reason = str(error)
    console.say(f"  without uv, pip takes some times as long ({reason[:300]})")
    return Pip(given)


class Uv:
    """Installs by uv.

    ``is_shared``: files are copied from the cache, as a hard link would let who changes an environment's file
    change what the next environments get. (On btrfs, XFS and APFS a copy takes no time and no space.) An
    environment of one job, in which no kernel's code runs, is linked.
    """

    def __init__(self, program: Path, cache: Path, given: Sources, is_shared: bool) -> None:
        self._program = program
        self._cache = cache
        self._given = given
        self._link_mode = "copy" if is_shared else "hardlink"

    def create(self, folder: Path) -> process.Finished:
        """Make an environment of this interpreter in ``folder``, which is empty."""
        arguments = ["venv", "--no-project", "--no-python-downloads", "--python", sys.executable, str(folder)]
        return self.run([*arguments, "--allow-existing"], self._given)

    def install(self, python: Path, packages: Packages) -> process.Finished:
        """Install ``packages`` for an environment's interpreter, without the network where the cache has
        all."""
        arguments = [
            "pip", "install", "--python", str(python), "--only-binary", ":all:", "--no-progress",
            "--link-mode", self._link_mode,
            # As pip does: of all indexes the best version. uv would take the first that knows the name, where
            # a mirror may lack what is locked. What is locked is held by its hash.
            "--index-strategy", "unsafe-best-match",
        ]  # fmt: skip
        given = _for(packages, self._given)
        if given.without_index:
            arguments.append("--no-index")
        arguments += _requirements(packages)
        if packages.constraints is not None:
            arguments += ["--constraints", str(packages.constraints)]
        if packages.lock is not None and any(self._cache.iterdir()):
            finished = self.run([*arguments, "--offline"], given)
            if finished.returncode == 0:
                return finished
        return self.run(arguments, given)

    def run(self, arguments: Sequence[str], given: Sources) -> process.Finished:
        """Run uv, which reads no file of settings and none of a stranger's variables."""
        own = ["--no-config", "--cache-dir", str(self._cache), "--color", "never"]
        return _run([self._program, *arguments, *own], given.for_uv())


class Pip:
    """Installs by the pip that comes with Python."""

    def __init__(self, given: Sources) -> None:
        self._given = given

    def create(self, folder: Path) -> process.Finished:
        """Make an environment of this interpreter in ``folder``, which is empty."""
        return _run([sys.executable, "-I", "-m", "venv", str(folder)], self._given.for_pip())

    def install(self, python: Path, packages: Packages) -> process.Finished:
        """Install ``packages`` for an environment's interpreter."""
        arguments = [str(python), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
        arguments += ["--no-compile", "--progress-bar=off", "--only-binary=:all:"]
        arguments += _requirements(packages)
        with tempfile.TemporaryDirectory(prefix="kernel-actions-") as folder:
            if packages.constraints is not None:
                # Where one package has a hash, pip wants one of all: only the versions are left.
                versions = Path(folder) / "constraints.txt"
                versions.write_text(_without_hashes(packages.constraints.read_text(encoding="utf-8")))
                arguments += ["--constraint", str(versions)]
            return _run(arguments, _for(packages, self._given).for_pip())


def _for(packages: Packages, given: Sources) -> Sources:
    """The user's sources, as ``packages`` change them."""
    if packages.index:
        given = given._replace(default_index=packages.index)
    if packages.further_index:
        given = given._replace(further=(*given.further, packages.further_index))
    if packages.is_attempt and packages.index:
        given = given._replace(timeout=_SOON_SECONDS, retries="1")
    return given


def _requirements(packages: Packages) -> list[str]:
    """The arguments, which pip and uv share, that say what is installed."""
    arguments = [] if packages.with_dependencies else ["--no-deps"]
    if packages.lock is not None:
        arguments += ["--require-hashes", "-r", str(packages.lock)]
    return [*arguments, *packages.names]


def _without_hashes(lock: str) -> str:
    """The lines of a locked file with their versions and markers alone."""
    lines = (line.rstrip("\\").strip() for line in lock.splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith(("#", "--hash=")))


def _run(arguments: Sequence[str | Path], variables: Mapping[str, str]) -> process.Finished:
    """Run an installer in an empty folder, with ``variables`` alone."""
    echo = console.say if console.is_verbose() else None
    with tempfile.TemporaryDirectory(prefix="kernel-actions-") as nowhere:
        return process.run(arguments, directory=Path(nowhere), environment=variables, on_line=echo)
