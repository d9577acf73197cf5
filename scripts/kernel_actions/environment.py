"""Virtual environments with locked requirements, made on first use.

An environment is named by what it holds: the hash of its lock file, the build of Torch, the
interpreter and the platform. It is made in place (a virtual environment cannot be moved) under a
file lock; of two commands that start at once the second waits for the first. Each attempt has a
folder of its own, as an installer of a killed command may go on writing into its folder for a
while, and the ready mark, which names the folder, is written last.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_actions import built, console, process, signals
from kernel_actions.errors import EXIT_DONE, WrongInput, WrongSurroundings
from kernel_actions.options import Command, Environment

if TYPE_CHECKING:
    from kernel_actions.cli import Options

REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"


@dataclass(frozen=True)
class Plan:
    """An environment to be: its path, its lock file, and the build of Torch it gets.

    ``path`` is that of the ready mark; folders of attempts are beside it, with its name first.

    ``torch`` is ``cpu``, ``default`` (what the package index offers, which on Linux is a build
    for CUDA of some gigabytes) or ``none``; ``torch_index`` is the index to take it from, empty for the
    configured one.
    """

    path: Path
    lock: Path
    torch: str
    torch_index: str


def run(options: Options) -> int:
    """The command ``environment``."""
    print(make(plan(getattr(options, "for"))))
    return EXIT_DONE


def restart_in(command: Command, arguments: Sequence[str], check: Callable[[], None] = lambda: None) -> None:
    """Replace this process by the same command in the environment that it needs; ``check`` is called before
    that is made, and not where there is one.

    Raises ``WrongInput`` or ``WrongSurroundings`` when there is no such environment; otherwise
    it does not return.
    """
    python = os.environ.get("KA_PYTHON")
    if not python:
        # Also one that was given a token that it could do without.
        given = any(os.environ.get(option.variable) for option in command.options if option.secret)
        wanted = plan(command.environment or "hub", command.holds_token or given)
        if _ready(wanted) is None:
            check()
        python = str(make(wanted))
    program = str(Path(__file__).resolve().parent)
    # A command that needs no secret keeps none, where the code that it runs could look for it.
    needs_secret = any(option.secret for option in command.options) or command.name == "pipeline"
    variables = dict(os.environ) if needs_secret else process.without_secrets(os.environ) | _step_files()
    os.execve(shutil.which(python) or python, [python, "-I", program, *arguments], variables)


def _step_files() -> dict[str, str]:
    """The variables by which this command, though not its children, sets outputs and the summary."""
    return {name: os.environ[name] for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY") if name in os.environ}


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
        path=_root(holds_token) / f"{purpose}-{tag}-{digest}.ready",
        lock=lock,
        torch=torch,
        torch_index=torch_index,
    )


def make(wanted: Plan) -> Path:
    """Make the environment ``wanted`` unless it is ready, and return its interpreter.

    Raises ``WrongSurroundings`` when a package cannot be installed.
    """
    if (python := _ready(wanted)) is not None:
        return python
    wanted.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = wanted.path.stem
    lock = wanted.path.with_name(f"{name}.lock")
    with signals.interruptible(), process.locked(lock, "Another command is making the same environment"):
        if (python := _ready(wanted)) is not None:
            return python
        started = time.monotonic()
        wanted.path.unlink(missing_ok=True)
        for abandoned in wanted.path.parent.glob(f"{name}.*.d"):
            shutil.rmtree(abandoned, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{name}.", suffix=".d", dir=wanted.path.parent))
        console.say(f"Making the environment {folder} (once; it is kept)")
        python = _install(wanted, folder)
        built.write_whole(wanted.path, f"{folder.name}\n".encode())
        console.say(f"The environment is ready ({console.duration(time.monotonic() - started)})")
    return python


def _install(wanted: Plan, folder: Path) -> Path:
    """Make the environment in ``folder``, and return its interpreter."""
    python = folder / "bin" / "python"
    _step("virtual environment", [sys.executable, "-I", "-m", "venv", str(folder)])
    pip = [str(python), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input"]
    install = [*pip, "install", "--no-compile", "--progress-bar=off"]
    _step(
        f"packages of {wanted.lock.name}",
        [*install, "--no-deps", "--require-hashes", "--only-binary=:all:", "-r", str(wanted.lock)],
    )
    if wanted.torch != "none":
        _install_torch(install, wanted)
    return python


def _ready(wanted: Plan) -> Path | None:
    """The interpreter of the environment that is ready; ``None`` when none is."""
    try:
        name = wanted.path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
    python = wanted.path.with_name(name) / "bin" / "python"
    # An interpreter that was removed (an updated system) leaves a dangling link behind.
    return python if name and python.exists() else None


def _root(holds_token: bool) -> Path:
    return cache_root(holds_token) / "environments"


def cache_root(holds_token: bool) -> Path:
    """The folder of what is kept: in the user's cache, or the job's own for a command with a token."""
    job = os.environ.get("RUNNER_TEMP")
    if holds_token and job:
        return Path(job) / "kernel-actions"
    cache = os.environ.get("XDG_CACHE_HOME") or ""
    try:
        root = Path(cache) if os.path.isabs(cache) else Path.home() / ".cache"
    except RuntimeError as error:
        raise WrongSurroundings(
            "there is no home folder to keep environments in", repair="let XDG_CACHE_HOME name a folder"
        ) from error
    return root / "kernel-actions"


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
