"""Virtual environments with locked packages, made on first use: the one way to make any.

An environment is named by what it holds: the hash of its lock file, the build of Torch, the interpreter and
the platform. It is made in place (a virtual environment cannot be moved) under a file lock; of two commands
that start at once the second waits for the first. Each attempt has a folder of its own, as an installer of a
killed command may go on writing into its folder for a while, and the ready mark, which names the folder, is
written last, when the packages have been imported.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_actions import built, console, process, signals
from kernel_actions.errors import WrongInput, WrongSurroundings, printable
from kernel_actions.options import Command, Environment

TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# In the repository, or in the installed package.
_PACKAGE = Path(__file__).resolve().parents[1]
_INSTALLED = _PACKAGE / "requirements"
REQUIREMENTS = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parents[1] / "requirements"
# What is imported before an environment counts as ready: what the commands that it is for import.
_HUB = ("huggingface_hub", "socksio")
_LOADER = (*_HUB, "kernels", "kernels_data", "sigstore")
_SERVE = (*_HUB, "starlette", "uvicorn")
_CHECK = (*_LOADER, "kernel_abi_check")
_KERNEL = (*_SERVE, *_CHECK, "cmake", "numpy", "PIL", "pytest")
MODULES: dict[Environment, tuple[str, ...]] = {
    "hub": _HUB,
    "loader": _LOADER,
    "serve": _SERVE,
    "check": _CHECK,
    "kernel": _KERNEL,
    "dev": (*_KERNEL, "hypothesis", "mypy", "pip"),
}
# Seconds for a first import of all of them, on a machine with much else to do.
_IMPORT_LIMIT = 600.0


@dataclass(frozen=True)
class Packages:
    """Packages that are installed in one step.

    They are those of a ``lock`` file with hashes, or ``names`` with versions; of those that the file
    ``constraints`` lists, the versions there are taken, and by uv their hashes are compared. ``index`` is
    taken in place of the user's, ``further_index`` beside it. ``is_attempt``: others will be tried where this
    fails, and soon.
    """

    title: str
    lock: Path | None = None
    names: tuple[str, ...] = ()
    constraints: Path | None = None
    index: str = ""
    further_index: str = ""
    with_dependencies: bool = False
    is_attempt: bool = False


@dataclass(frozen=True)
class Plan:
    """An environment to be.

    ``path`` is that of the ready mark; folders of attempts are beside it, with its name first. ``steps`` are
    done in turn; each is a list of which the first that can be installed is. ``modules`` are imported at the
    end. ``is_shared``: it is kept for other jobs, which may run other people's code. ``repair`` is what to do
    when it cannot be made, ``check`` has the last word about its interpreter.
    """

    path: Path
    steps: tuple[tuple[Packages, ...], ...]
    modules: tuple[str, ...] = ()
    is_shared: bool = True
    title: str = ""
    repair: str = "check the network and the free disk space; KA_PYTHON names a ready interpreter instead"
    check: Callable[[Path], None] = lambda python: None


def plan(purpose: Environment, holds_token: bool = False) -> Plan:
    """The environment for ``purpose`` on this machine. Makes nothing.

    Raises ``WrongInput`` for a build of Torch that there is not.
    """
    lock = REQUIREMENTS / f"{purpose}.txt"
    torch = _torch_build() if purpose in ("kernel", "dev") else "none"
    index = os.environ.get("KA_TORCH_INDEX", "")
    content = lock.read_bytes()
    steps: list[tuple[Packages, ...]] = [(Packages(f"packages of {lock.name}", lock=lock),)]
    if torch != "none":
        content += (REQUIREMENTS / "torch.in").read_bytes() + f"{torch} {index}".encode()
        steps.append(_torch(torch, index))
    return Plan(
        path=mark(purpose, content, holds_token),
        steps=tuple(steps),
        modules=(*MODULES[purpose], "torch") if torch != "none" else MODULES[purpose],
        is_shared=not _is_jobs_own(holds_token),
    )


def mark(name: str, content: bytes, holds_token: bool) -> Path:
    """The path of the ready mark of an environment that holds ``content``."""
    tag = f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}"
    digest = hashlib.sha256(content + f"{tag} {sys.base_prefix}".encode()).hexdigest()[:16]
    return cache_root(holds_token) / "environments" / f"{name}-{tag}-{digest}.ready"


def restart_in(
    command: Command, arguments: Sequence[str], purpose: Environment, check: Callable[[], None] = lambda: None
) -> None:
    """Replace this process by the same command in the environment for ``purpose``; ``check`` is called before
    that is made, and not where there is one.

    Raises ``WrongInput`` or ``WrongSurroundings`` when there is no such environment; otherwise
    it does not return.
    """
    python = os.environ.get("KA_PYTHON")
    if not python:
        # Also one that was given a token that it could do without.
        given = any(os.environ.get(option.variable) for option in command.options if option.secret)
        wanted = plan(purpose, command.holds_token or given)
        if ready(wanted) is None:
            check()
        python = str(make(wanted))
    program = str(Path(__file__).resolve().parents[1])
    # A command that needs no secret keeps none, where the code that it runs could look for it.
    needs_secret = any(option.secret for option in command.options) or command.name == "pipeline"
    variables = dict(os.environ) if needs_secret else process.without_secrets(os.environ) | _step_files()
    os.execve(shutil.which(python) or python, [python, "-I", program, *arguments], variables)


def _step_files() -> dict[str, str]:
    """The variables by which this command, though not its children, sets outputs and the summary."""
    return {name: os.environ[name] for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY") if name in os.environ}


def make(wanted: Plan) -> Path:
    """Make the environment ``wanted`` unless it is ready, and return its interpreter.

    Raises ``WrongSurroundings`` when a package cannot be installed, or cannot be imported then.
    """
    if (python := ready(wanted)) is not None:
        return python
    root = own_folder(wanted.path.parent)
    name = wanted.path.stem
    with (
        signals.interruptible(),
        process.locked(root / f"{name}.lock", "Another command is making the same environment"),
    ):
        if (python := ready(wanted)) is not None:
            return python
        started = time.monotonic()
        wanted.path.unlink(missing_ok=True)
        for abandoned in root.glob(f"{name}.*.d"):
            shutil.rmtree(abandoned, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{name}.", suffix=".d", dir=root))
        console.say(wanted.title or f"Making the environment {folder} (once; it is kept)")
        try:
            python = _install(wanted, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        built.write_whole(wanted.path, f"{folder.name}\n".encode())
        console.say(f"The environment is ready ({console.duration(time.monotonic() - started)})")
    return python


def ready(wanted: Plan) -> Path | None:
    """The interpreter of the environment that is ready; ``None`` when none is."""
    try:
        name = wanted.path.read_text(encoding="utf-8").strip()
        status = os.lstat(wanted.path.with_name(name))
    except OSError:
        return None
    python = wanted.path.with_name(name) / "bin" / "python"
    # An interpreter that was removed (an updated system) leaves a dangling link behind; and a folder of
    # somebody else, in a cache that others can write, is not an environment that this user has made.
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    return python if name and is_own and python.exists() else None


def own_folder(path: Path) -> Path:
    """``path`` as a folder of this user's own, which is made unless it is there.

    Raises ``WrongSurroundings`` where it cannot be made, or where others can write to it: who can change an
    environment runs code as the user who uses it.
    """
    cure = "let XDG_CACHE_HOME name a folder that only you can write to"
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = os.lstat(path)
        is_writable = os.access(path, os.W_OK)
    except OSError as error:
        raise WrongSurroundings(
            f"cannot keep environments in {path}: {error.strerror}", repair=cure
        ) from error
    if not is_writable:
        raise WrongSurroundings(f"cannot keep environments in {path}: it cannot be written to", repair=cure)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise WrongSurroundings(
            f"cannot keep environments in {path}: it is not yours alone to write to",
            repair=f"remove it, or {cure}",
        )
    return path


def cache_root(holds_token: bool) -> Path:
    """The folder of what is kept: in the user's cache, or the job's own for a command with a token."""
    if _is_jobs_own(holds_token):
        return Path(os.environ["RUNNER_TEMP"]) / "kernel-actions"
    cache = os.environ.get("XDG_CACHE_HOME") or ""
    try:
        root = Path(cache) if os.path.isabs(cache) else Path.home() / ".cache"
    except RuntimeError as error:
        raise WrongSurroundings(
            "there is no home folder to keep environments in", repair="let XDG_CACHE_HOME name a folder"
        ) from error
    return root / "kernel-actions"


def _is_jobs_own(holds_token: bool) -> bool:
    return holds_token and bool(os.environ.get("RUNNER_TEMP"))


def _torch_build() -> str:
    choice = os.environ.get("KA_TORCH_BUILD") or "auto"
    if choice not in {"auto", "cpu", "default", "none"}:
        raise WrongInput(f"KA_TORCH_BUILD is {choice!r}, which is not auto, cpu, default or none")
    if choice != "auto":
        return choice
    has_driver = os.path.exists("/proc/driver/nvidia/version") or shutil.which("nvidia-smi")
    return "default" if has_driver else "cpu"


def _torch(build: str, index: str) -> tuple[Packages, ...]:
    """The step that installs Torch, whose builds share a version and differ in size by gigabytes.

    The requirements of the CPU build are in the lock file. The build for CUDA has more, which the installer
    resolves.
    """
    requirement = (REQUIREMENTS / "torch.in").read_text().split("\n")[-2].strip()
    default = Packages("Torch", names=(requirement,), index=index, with_dependencies=True)
    if build != "cpu" or sys.platform != "linux":
        return (default,)
    local = Packages("Torch, CPU build", names=(f"{requirement}+cpu",), index=index, is_attempt=True)
    if index:
        return (local, default)
    return (local, Packages(local.title, names=local.names, index=TORCH_CPU_INDEX, is_attempt=True), default)


def _install(wanted: Plan, folder: Path) -> Path:
    """Make the environment in ``folder``, and return its interpreter."""
    from kernel_actions.app import installers

    installer = installers.choose(cache_root(not wanted.is_shared), REQUIREMENTS, is_shared=wanted.is_shared)
    _raise_for(installer.create(folder), "a virtual environment", wanted)
    python = folder / "bin" / "python"
    for attempts in wanted.steps:
        for packages in attempts:
            started = time.monotonic()
            finished = installer.install(python, packages)
            if finished.returncode == 0:
                console.say(f"  {packages.title}: {console.duration(time.monotonic() - started)}")
                break
            if not packages.is_attempt:
                _raise_for(finished, packages.title, wanted)
            if packages is attempts[-2]:
                console.say(
                    "  no index at hand has the CPU build of Torch: taking the default build, which may be "
                    "several GB (KA_TORCH_INDEX names an index that has it)"
                )
    _import(wanted, python)
    wanted.check(python)
    return python


def _import(wanted: Plan, python: Path) -> None:
    """Raise ``WrongSurroundings`` unless all modules of the environment can be imported."""
    program = "import sys, importlib\nfor name in sys.argv[1:]: print(name); importlib.import_module(name)"
    with tempfile.TemporaryDirectory(prefix="kernel-actions-") as nowhere:
        finished = process.run(
            [python, "-I", "-c", program, *wanted.modules], directory=Path(nowhere), time_limit=_IMPORT_LIMIT
        )
    if finished.returncode != 0:
        lines = [line for line in finished.output.splitlines() if line.strip()] or ["it ended without a word"]
        raise WrongSurroundings(
            f"the environment's packages are installed, but cannot be imported: {printable(lines[-1])[:200]}",
            repair=wanted.repair,
        )


def _raise_for(finished: process.Finished, title: str, wanted: Plan) -> None:
    """Raise ``WrongSurroundings`` when an installer failed, with the line of its output that says why."""
    if finished.returncode == 0:
        return
    lines = [line.strip() for line in finished.output.splitlines() if line.strip()] or ["no output"]
    # uv says what failed first, and then each cause of it; pip says it last.
    first = next((line for line in lines if line.startswith("error: ")), None)
    causes = [line.removeprefix("cause: ") for line in lines if line.startswith("cause: ")]
    last = next((line for line in reversed(lines) if "error" in line.lower()), lines[-1])
    reason = f"{first.removeprefix('error: ')}: {causes[-1]}" if first and causes else first or last
    reason = process.without_credentials(printable(reason))
    raise WrongSurroundings(f"cannot install {title}: {reason[:400]}", repair=wanted.repair)
