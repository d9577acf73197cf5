"""The tests of setup-nix run the real Nix on stores, configurations and homes of their own: nothing of the
machine's changes. What needs Nix is skipped with the reason where there is none, but not in the CI."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.tools import ask, leave_out

ROOT = Path(__file__).parents[2]
NOBODY = 65534
VARIANT = "torch213-cxx11-cpu-x86_64-linux"
# What lets a sandbox build with the machine's own shell: Debian's Nix has none of its own for it.
BASE = """\
experimental-features = nix-command flakes
build-users-group =
substituters =
sandbox = true
sandbox-fallback = false
sandbox-paths = /bin /usr /lib /lib64
"""
FLAKE = """\
{
  outputs = { self }:
    let
      make = name: deps: derivation {
        inherit name deps;
        system = "x86_64-linux";
        builder = "/bin/sh";
        args = [ "-c" "echo $name $deps > $out" ];
      };
      torch = make "python3.13-torch-2.13.0" [ ];
    in
    {
      packages.x86_64-linux = {
        inherit torch;
        redistributable = {
          "torch213-cxx11-cpu-x86_64-linux" = make "relu-torch-ext" [ torch ];
          "torch213-cxx11-cu130-x86_64-linux" = make "relu-torch-ext" [ torch ];
        };
      };
    };
}
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent and item.path.name not in ("test_pure.py",):
            item.add_marker("integration")


class Private:
    """A machine's worth of Nix in one folder: its configuration, state, store and log, and a home."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf = folder / "etc" / "nix.conf"
        self.home = folder / "home"
        self.job = folder / "job"
        for name in ("etc", "state", "store", "log", "home", "job", "bin"):
            (folder / name).mkdir()
            (folder / name).chmod(0o755)
        self.conf.write_text(BASE)
        self.socket = folder / "socket"
        self.daemon_pid: int | None = None

    @property
    def variables(self) -> dict[str, str]:
        """The variables that have Nix use this folder alone."""
        return {
            "NIX_CONF_DIR": str(self.conf.parent),
            "NIX_STATE_DIR": str(self.folder / "state"),
            "NIX_STORE_DIR": str(self.folder / "store"),
            "NIX_LOG_DIR": str(self.folder / "log"),
            "NIX_DAEMON_SOCKET_PATH": str(self.socket),
        }

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a user's shell there."""
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return {"PATH": path, "HOME": str(self.home), "LANG": "C.UTF-8", **self.variables}

    @property
    def of_job(self) -> dict[str, str]:
        """The variables of a step of a job there."""
        for name in ("env", "path", "output", "summary"):
            (self.job / name).touch()
            (self.job / name).chmod(0o666)
        return {
            "GITHUB_ACTIONS": "true",
            "RUNNER_TEMP": str(self.job),
            "GITHUB_ENV": str(self.job / "env"),
            "GITHUB_PATH": str(self.job / "path"),
            "GITHUB_OUTPUT": str(self.job / "output"),
            "GITHUB_STEP_SUMMARY": str(self.job / "summary"),
        }

    @property
    def job_conf(self) -> Path:
        """What setup-nix writes in a job."""
        return self.job / "kernel-actions" / "nix" / "kernel-actions.conf"

    def command(self, *arguments: str, as_nobody: bool = False) -> list[str]:
        """The command line of setup-nix there."""
        launcher = ROOT / "scripts" / "kernel-actions"
        before: list[str] = []
        if as_nobody:
            # The repository may be in a folder that nobody else can enter.
            copy = self.folder / "suite"
            if not copy.exists():
                shutil.copytree(ROOT / "scripts", copy, ignore=shutil.ignore_patterns("__pycache__"))
                subprocess.run(["chmod", "-R", "a+rX", copy], check=True)
            launcher = copy / "kernel-actions"
            before = nobody()
        return [*before, str(launcher), "setup-nix", *arguments]

    def run(
        self,
        *arguments: str,
        as_nobody: bool = False,
        in_job: bool = False,
        builder_cache: bool = False,
        **variables: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run setup-nix there, without the builder's cache, which no test can reach."""
        environment = self.environment | (self.of_job if in_job else {}) | variables
        if as_nobody:
            environment["KA_PYTHON"] = python_of_nobody()
            self.home.chmod(0o777)
            self.job.chmod(0o777)
        given = arguments if builder_cache or "--find" in arguments else ("--no-builder-cache", *arguments)
        return subprocess.run(
            self.command(*given, as_nobody=as_nobody),
            cwd=self.folder, env=environment, text=True, capture_output=True, timeout=120, check=False,
        )  # fmt: skip

    def nix(self, *arguments: str, **variables: str) -> str:
        """Run Nix there, and return what it prints."""
        return subprocess.run(
            ["nix", *arguments], env=self.environment | variables, cwd=self.folder, text=True,
            check=True, capture_output=True,
        ).stdout  # fmt: skip

    def start_daemon(self) -> None:
        """Start the daemon, or start it again."""
        self.stop_daemon()
        self.socket.unlink(missing_ok=True)
        with (self.folder / "daemon.log").open("ab") as log:
            daemon = subprocess.Popen(
                ["nix-daemon"], env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        self.daemon_pid = daemon.pid
        deadline = time.monotonic() + 10
        while not self.socket.exists():
            assert daemon.poll() is None and time.monotonic() < deadline, "the daemon does not start"
            time.sleep(0.02)

    def stop_daemon(self) -> None:
        if self.daemon_pid is not None:
            os.killpg(self.daemon_pid, signal.SIGKILL)
            os.waitpid(self.daemon_pid, 0)
            self.daemon_pid = None

    def program(self, name: str, script: str) -> Path:
        """Put a program of that name first on the PATH."""
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    @contextmanager
    def sudo(self) -> Iterator[list[str]]:
        """A ``sudo`` that asks for no password, and a service manager; the commands that they ran.

        No program here could make somebody root, so this process runs the commands for them.
        """
        requests = self.folder / "requests"
        requests.mkdir(mode=0o777)
        requests.chmod(0o777)
        wait = f'id={requests}/$$; printf "%s\\n" "$@" > $id.new; mv $id.new $id.ask'
        answer = "while [ ! -e $id.done ]; do sleep 0.02; done; code=$(cat $id.done); rm $id.done; exit $code"
        self.program("sudo", f"shift; {wait}; {answer}")
        ran: list[str] = []
        stopped = threading.Event()

        def serve() -> None:
            while not stopped.is_set():
                for request in requests.glob("*.ask"):
                    command = request.read_text().splitlines()
                    request.unlink()
                    ran.append(" ".join(command))
                    if command[0] == "systemctl":
                        self.start_daemon()
                        code = 0
                    else:
                        code = subprocess.run(command, check=False).returncode
                    done = request.with_suffix(".done")
                    done.with_suffix(".part").write_text(str(code))
                    done.with_suffix(".part").chmod(0o666)
                    done.with_suffix(".part").rename(done)
                time.sleep(0.01)

        self.program("systemctl", "exit 1")
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield ran
        finally:
            stopped.set()
            thread.join()


def nobody() -> list[str]:
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]


def python_of_nobody() -> str:
    """An interpreter that everybody can start."""
    for python in (sys.executable, "/usr/bin/python3"):
        test = "import sys; sys.exit(sys.version_info < (3, 11))"
        # By a shell: what starts it here may still do what root can.
        check = [*nobody(), "sh", "-c", f'"{python}" -c "{test}"']
        if subprocess.run(check, capture_output=True, check=False).returncode == 0:
            return python
    leave_out("a Python 3.11 that another user can start")


@pytest.fixture
def private() -> Iterator[Private]:
    """Nix in a folder of its own, which other users can enter."""
    ask("nix")
    folder = Path(tempfile.mkdtemp(prefix="setup-nix-"))
    folder.chmod(0o755)
    machine = Private(folder)
    try:
        yield machine
    finally:
        machine.stop_daemon()
        subprocess.run(["chmod", "-R", "u+w", folder], check=False)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def kernel(private: Private) -> Path:
    """A kernel whose flake has the builder's output names, and needs a torch."""
    folder = private.folder / "kernel"
    folder.mkdir()
    (folder / "flake.nix").write_text(FLAKE)
    return folder


@pytest.fixture
def cache(private: Private, kernel: Path) -> Cache:
    """A binary cache that has the kernel's torch, signed, which this machine has not."""
    return Cache(private, kernel)


class Cache:
    """A binary cache in a folder, with the torch of a kernel."""

    def __init__(self, private: Private, kernel: Path) -> None:
        self.private = private
        self.folder = private.folder / "cache"
        self.key = self.make_key("good-1")
        private.nix("build", "--no-link", f"path:{kernel}#torch")
        self.torch = private.nix("eval", "--raw", f"path:{kernel}#torch.outPath")
        private.nix("store", "sign", "--key-file", str(private.folder / "good-1.secret"), self.torch)
        self.push()

    def make_key(self, name: str) -> str:
        """The public key of a new pair."""
        secret, public = self.private.folder / f"{name}.secret", self.private.folder / f"{name}.public"
        subprocess.run(
            ["nix-store", "--generate-binary-cache-key", name, secret, public],
            check=True, env=self.private.environment,
        )  # fmt: skip
        return public.read_text().strip()

    def push(self) -> None:
        self.private.nix("copy", "--to", f"file://{self.folder}", self.torch)
        self.private.nix("store", "delete", self.torch)

    def unsign(self) -> None:
        """Take the signatures off all that it has."""
        for path in self.folder.glob("*.narinfo"):
            lines = path.read_text().splitlines(keepends=True)
            path.write_text("".join(line for line in lines if not line.startswith("Sig:")))

    @property
    def options(self) -> tuple[str, ...]:
        return ("--substituters", f"file://{self.folder}", "--trusted-public-keys", self.key)


@contextmanager
def served(folder: Path, answer: str = "files") -> Iterator[str]:
    """The address of a cache on loopback that serves ``folder``, or answers ``hang``, ``404`` or ``500``."""
    released = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if answer == "hang":
                released.wait(60)
                return
            path = folder / self.path.lstrip("/")
            code = 200 if answer == "files" and path.is_file() else 404 if answer == "files" else int(answer)
            data = path.read_bytes() if code == 200 else b"no"
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data if self.command == "GET" else b"")

        do_HEAD = do_GET

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        released.set()
        server.shutdown()
        server.server_close()


def step_values(path: Path) -> dict[str, str]:
    """The values in a file by which a step sets outputs or variables."""
    values: dict[str, str] = {}
    lines = iter(path.read_text().splitlines())
    for line in lines:
        name, _, end = line.partition("<<")
        values[name] = "\n".join(iter(lambda: next(lines), end))
    return values
