"""Where kernels are tried: a clone of the checkout, and commands as processes with a time limit."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_actions import console, process
from kernel_actions.errors import WrongInput, WrongSurroundings

from public_kernels.results import Machine, Outcome, Revision

ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = ROOT / "scripts" / "kernel_actions"
_PREFIX = "kernel-actions: "


@dataclass(frozen=True)
class Finished:
    """How a process ended. ``code`` is ``None`` where the time limit ended it; ``seconds`` is wall time."""

    code: int | None
    output: str
    errors: str
    seconds: float

    @property
    def error(self) -> str:
        """The one line that the suite prints for an error; else the last line that there is."""
        lines = [line.strip() for line in self.errors.splitlines() if line.strip()]
        own = [line for line in lines if line.startswith(_PREFIX) and ": warning: " not in line]
        return (own or lines or [""])[-1].removeprefix(_PREFIX)

    def ended(self) -> Outcome:
        """The outcome of a process that its time limit ended."""
        return Outcome("time limit", f"ended after {console.duration(self.seconds)}", seconds=self.seconds)

    @property
    def answer(self) -> dict[str, Any]:
        """The JSON object that it printed; empty where it printed none."""
        try:
            value = json.loads(self.output)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class Workplace:
    """A folder to work in. ``kernels`` is the clone, at the commit of the checkout; ``limits`` are seconds by
    stage; ``builder`` is a checkout or a bare git directory of the builder, if there is one."""

    folder: Path
    kernels: Path
    revision: Revision
    machine: Machine
    limits: Mapping[str, float]
    builder: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def kernel_dir(self, name: str) -> Path:
        """The folder of a kernel in the clone."""
        return self.kernels / name

    def suite(self, stage: str, *arguments: str) -> Finished:
        """Run a command of the suite."""
        return self.python(stage, str(_PROGRAM), *arguments)

    def python(self, stage: str, *arguments: str, directory: Path | None = None) -> Finished:
        """Run a Python program by this interpreter, with the time limit of ``stage``."""
        return run(
            [sys.executable, "-I", *arguments],
            limit=self.limits[stage],
            directory=directory or self.kernels,
            variables=self.environment,
        )


def run(
    arguments: Sequence[str], *, limit: float, directory: Path, variables: Mapping[str, str] | None = None
) -> Finished:
    """Run a program to its end, or for ``limit`` seconds. Nothing that it started is left running."""
    started = time.monotonic()
    environment = {**process.without_secrets(os.environ), **(variables or {})}
    environment.pop("GITHUB_ACTIONS", None)
    try:
        finished = process.run(
            arguments, directory=directory, environment=environment, time_limit=limit, errors_apart=True
        )
    except WrongSurroundings as error:
        seconds = time.monotonic() - started
        return Finished(None if seconds >= limit else 3, "", str(error), seconds)
    return Finished(finished.returncode, finished.output, finished.errors, time.monotonic() - started)


def clone(checkout: Path, folder: Path, repository: str = "") -> tuple[Path, Revision]:
    """A clone of ``checkout`` at its commit, below ``folder``, which needs no network and knows no origin:
    nothing that is tried reaches the checkout. Uncommitted changes are not taken along.

    Raises ``WrongInput`` where there is no git repository with a commit.
    """
    try:
        commit = git(checkout, "rev-parse", "HEAD")
    except subprocess.CalledProcessError as error:
        raise WrongInput(
            f"{checkout} is not a git repository with a commit",
            repair="clone huggingface/kernels-community, and give its folder",
        ) from error
    target = folder / f"kernels-{commit[:12]}"
    if not (target / ".complete").is_file():
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        git(folder, "clone", "--quiet", "--shared", "--no-checkout", str(checkout.resolve()), str(target))
        git(target, "remote", "remove", "origin")
        git(target, "checkout", "--quiet", "--detach", commit)
        (target / ".git" / "info" / "exclude").write_text("/.complete\n", encoding="ascii")
        (target / ".complete").touch()
    return target, Revision(repository or origin(checkout), commit)


def origin(checkout: Path) -> str:
    """``owner/name`` of a checkout's origin; the name of its folder where it has none on a forge."""
    try:
        url = git(checkout, "config", "--get", "remote.origin.url")
    except subprocess.CalledProcessError:
        url = ""
    parts = url.removesuffix("/").removesuffix(".git").replace(":", "/").split("/")
    return "/".join(parts[-2:]) if "://" in url or "@" in url else checkout.resolve().name


def git(folder: Path, *arguments: str) -> str:
    """What a git command prints. Raises ``subprocess.CalledProcessError``."""
    return subprocess.run(
        ["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def suite_revision(commit: str) -> Revision:
    """This repository's commit. A copy without git is given its ``commit``, or it counts as dirty."""
    if commit:
        return Revision("kernel-actions", commit)
    try:
        commit = git(ROOT, "rev-parse", "HEAD")
        dirty = bool(git(ROOT, "status", "--porcelain", "--untracked-files=no", "--", "scripts"))
    except (subprocess.CalledProcessError, FileNotFoundError):
        return Revision("kernel-actions", suite_hash(), dirty=True)
    return Revision("kernel-actions", commit, dirty)


def suite_hash() -> str:
    """One hash over the files of the suite and of this command: 40 hexadecimal digits."""
    hashed = hashlib.sha256()
    for path in sorted((ROOT / "scripts").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            hashed.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return hashed.hexdigest()[:40]


def machine(label: str) -> Machine:
    """This machine, by the packages of this interpreter. Torch is asked in a process of its own."""
    program = (
        "import json, importlib.metadata as metadata\n"
        "def version(name):\n"
        "    try: return metadata.version(name)\n"
        "    except metadata.PackageNotFoundError: return ''\n"
        "value = {'torch': version('torch'), 'kernels': version('kernels'), 'gpu': '', 'cuda': ''}\n"
        "if value['torch']:\n"
        "    import torch\n"
        "    value['torch'] = torch.__version__\n"
        "    value['cuda'] = torch.version.cuda or ''\n"
        "    value['gpu'] = torch.cuda.get_device_name(0) if torch.cuda.is_available() else ''\n"
        "print(json.dumps(value))\n"
    )
    finished = run([sys.executable, "-I", "-c", program], limit=300, directory=ROOT)
    if finished.code != 0:
        raise WrongSurroundings(
            f"Torch does not import: {finished.error}", repair="see KA_PYTHON in README.md"
        )
    return Machine(
        label=label,
        system=f"{platform.machine()}-{sys.platform}",
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        python=platform.python_version(),
        **json.loads(finished.output),
    )
