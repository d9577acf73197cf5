"""Virtual environments with locked requirements, made on first use.

An environment is named by what it holds: the hash of its lock file, the build of Torch, the
interpreter and the platform. It is made in place (a virtual environment cannot be moved) under a
file lock, and its ready mark is written last: one that was left half-made is made again, and of
two commands that start at once the second waits for the first.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_actions import console, process
from kernel_actions.errors import EXIT_DONE, WrongInput, WrongSurroundings
from kernel_actions.options import Command, Environment

if TYPE_CHECKING:
    from kernel_actions.cli import Options

REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
_READY = "kernel-actions-ready"


@dataclass(frozen=True)
class Plan:
    """An environment to be: its folder, its lock file, and the build of Torch it gets.

    ``torch`` is ``cpu``, ``default`` (what the package index offers, which on Linux is a build
    for CUDA of some gigabytes) or ``none``; ``torch_index`` is the index to take it from, empty for the
    configured one.
    """

    folder: Path
    lock: Path
    torch: str
    torch_index: str


def run(options: Options) -> int:
    """The command ``environment``."""
    print(make(plan(getattr(options, "for"))))
    return EXIT_DONE


def is_needed(command: Command, options: Options) -> bool:
    """Whether ``command`` needs packages that a bare Python lacks."""
    # Python 3.10 has no parser of TOML, which every command on a kernel needs.
    return command.needs_environment(options) or sys.version_info < (3, 11)


def restart_in(command: Command, arguments: Sequence[str]) -> None:
    """Replace this process by the same command in the environment that it needs.

    Raises ``WrongInput`` or ``WrongSurroundings`` when there is no such environment; otherwise
    it does not return.
    """
    python = os.environ.get("KA_PYTHON")
    if not python:
        python = str(make(plan(command.environment or "hub", command.holds_token)))
    if shutil.which(python) is None:
        raise WrongInput(f"KA_PYTHON is {python!r}, which cannot be run")
    program = str(Path(__file__).resolve().parent)
    sys.stdout.flush()
    os.execv(shutil.which(python) or python, [python, "-I", program, *arguments])


def plan(purpose: Environment, holds_token: bool = False) -> Plan:
    """The environment for ``purpose`` on this machine. Makes nothing."""
    lock = REQUIREMENTS / f"{purpose}.txt"
    torch = _torch_build() if purpose in ("kernel", "dev") else "none"
    torch_index = os.environ.get("KA_TORCH_INDEX", "")
    content = lock.read_bytes()
    if torch != "none":
        content += (REQUIREMENTS / "torch.in").read_bytes() + f"{torch} {torch_index}".encode()
    tag = f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}"
    digest = hashlib.sha256(content + f"{tag} {sys.base_prefix}".encode()).hexdigest()[:16]
    return Plan(
        folder=_root(holds_token) / f"{purpose}-{tag}-{digest}",
        lock=lock,
        torch=torch,
        torch_index=torch_index,
    )


def make(wanted: Plan) -> Path:
    """Make the environment ``wanted`` unless it is ready, and return its interpreter.

    Raises ``WrongSurroundings`` when a package cannot be installed.
    """
    python = wanted.folder / "bin" / "python"
    if _is_ready(wanted):
        return python
    wanted.folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = wanted.folder.with_suffix(".lock")
    with process.interruptible(), process.locked(lock, "Another command is making the same environment"):
        if _is_ready(wanted):
            return python
        started = time.monotonic()
        console.say(f"Making the environment {wanted.folder} (once; it is kept)")
        shutil.rmtree(wanted.folder, ignore_errors=True)
        _step(
            "virtual environment",
            [sys.executable, "-I", "-m", "venv", str(wanted.folder)],
        )
        pip = [str(python), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input"]
        install = [*pip, "install", "--no-compile", "--progress-bar=off"]
        _step(
            f"packages of {wanted.lock.name}",
            [*install, "--no-deps", "--require-hashes", "--only-binary=:all:", "-r", str(wanted.lock)],
        )
        if wanted.torch != "none":
            _install_torch(install, wanted)
        mark = wanted.folder / _READY
        mark.write_text(wanted.folder.name + "\n")
        console.say(f"The environment is ready ({console.duration(time.monotonic() - started)})")
    return python


def _is_ready(wanted: Plan) -> bool:
    # An interpreter that was removed (an updated system) leaves a dangling link behind.
    return (wanted.folder / _READY).is_file() and (wanted.folder / "bin" / "python").exists()


def _root(holds_token: bool) -> Path:
    """The folder of environments: the user's cache, or the job's own for a command with a token."""
    job = os.environ.get("RUNNER_TEMP")
    if holds_token and job:
        return Path(job) / "kernel-actions" / "environments"
    cache = os.environ.get("XDG_CACHE_HOME") or ""
    root = Path(cache) if os.path.isabs(cache) else Path.home() / ".cache"
    return root / "kernel-actions" / "environments"


def _torch_build() -> str:
    choice = os.environ.get("KA_TORCH_BUILD") or "auto"
    if choice not in {"auto", "cpu", "default", "none"}:
        raise WrongInput(f"KA_TORCH_BUILD is {choice!r}, which is not auto, cpu, default or none")
    if choice != "auto":
        return choice
    has_driver = os.path.exists("/proc/driver/nvidia/version") or shutil.which("nvidia-smi")
    return "default" if has_driver else "cpu"


def _install_torch(install: list[str], wanted: Plan) -> None:
    """Install Torch, whose builds share a version and differ in size by gigabytes.

    The requirements of the CPU build are in the lock file. The build for CUDA has more, which pip
    resolves.
    """
    requirement = (REQUIREMENTS / "torch.in").read_text().split("\n")[-2].strip()
    index = ["--index-url", wanted.torch_index] if wanted.torch_index else []
    if wanted.torch == "cpu" and platform.system() == "Linux":
        local = f"{requirement}+cpu"
        attempts = [[*index, local]]
        if not index:
            attempts.append(["--index-url", TORCH_CPU_INDEX, "--retries=1", "--timeout=10", local])
        for attempt in attempts:
            arguments = [*install, "--no-deps", *attempt]
            if _try_step("Torch, CPU build", arguments):
                return
        console.say(
            "  no index at hand has the CPU build of Torch: taking the default build, which may be "
            "several GB (KA_TORCH_INDEX names an index that has it)"
        )
    _step("Torch", [*install, *index, requirement])


def _step(title: str, arguments: Sequence[str]) -> None:
    finished, seconds = _timed(arguments)
    if finished.returncode != 0:
        lines = [line for line in finished.output.splitlines() if line.strip()]
        reason = next((line for line in reversed(lines) if "error" in line.lower()), None)
        raise WrongSurroundings(
            f"cannot install {title}: {reason or (lines or ['no output'])[-1]}",
            repair="check the network and the free disk space; KA_PYTHON names a ready interpreter instead",
        )
    console.say(f"  {title}: {console.duration(seconds)}")


def _try_step(title: str, arguments: Sequence[str]) -> bool:
    finished, seconds = _timed(arguments)
    if finished.returncode == 0:
        console.say(f"  {title}: {console.duration(seconds)}")
    return finished.returncode == 0


def _timed(arguments: Sequence[str]) -> tuple[process.Finished, float]:
    started = time.monotonic()
    echo = console.say if console.is_verbose() else None
    with tempfile.TemporaryDirectory(prefix="kernel-actions-") as nowhere:
        # pip run in a project's folder must not read that project's files.
        finished = process.run(arguments, directory=Path(nowhere), environment=_for_installer(), on_line=echo)
    return finished, time.monotonic() - started


def _for_installer() -> dict[str, str]:
    """The variables that pip gets: no secrets but those of package indexes and proxies."""
    return process.without_secrets(os.environ) | {
        name: value
        for name, value in os.environ.items()
        if name.startswith("PIP_") or name.lower().endswith("_proxy")
    }
