"""Secrets are planted wherever a job has them, and looked for wherever a release leaves something."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from kernel_actions.app import venv
from kernel_actions.hub.embedded import embedded
from kernel_actions.options import COMMANDS

from tests.release.helpers import PROGRAM, Kernel
from tests.tools import needs

PLANTED = "planted0secret"
VARIABLES = (
    "KA_TOKEN", "HF_TOKEN", "GITHUB_TOKEN", "GH_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "ACTIONS_RUNTIME_TOKEN", "CACHIX_AUTH_TOKEN", "AWS_SECRET_ACCESS_KEY", "PIP_INDEX_URL",
)  # fmt: skip


class Watch:
    """Reads the arguments of all processes below this one while a block runs."""

    def __enter__(self) -> Watch:
        self.arguments: set[bytes] = set()
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_unused: object) -> None:
        self._is_done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._is_done.wait(0.01):
            for child in _below(os.getpid()):
                try:
                    self.arguments.add(Path(f"/proc/{child}/cmdline").read_bytes())
                except OSError:
                    continue


def _below(parent: int) -> list[int]:
    found: list[int] = []
    try:
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    except OSError:
        return []
    for child in map(int, children):
        found += [child, *_below(child)]
    return found


@needs("Linux")
def test_no_secret_is_left_anywhere(tmp_path: Path) -> None:
    home, scratch, out = (tmp_path / name for name in ("home", "scratch", "out"))
    for folder in (home, scratch, out):
        folder.mkdir()
    variables = {name: f"{PLANTED}-{name.lower()}" for name in VARIABLES}
    variables["PIP_INDEX_URL"] = f"https://user:{PLANTED}@packages.example.org/simple"
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG")}
    with embedded(tmp_path / "hub") as address:
        kernel = Kernel(tmp_path / "kernel", "acme/secrets")
        kernel.build()
        said = ""
        with Watch() as watch:
            for arguments in (
                ("release", "--sign", "never"),
                ("rollback", "--to", "v1.0.0"),
                ("upload",),
                ("rollback", "--to", "nothing"),
            ):
                finished = subprocess.run(
                    [sys.executable, "-I", str(PROGRAM), *arguments, "--hub", address, "--format", "github"],
                    cwd=kernel.root,
                    env={
                        **kept, **variables, "HOME": str(home), "TMPDIR": str(scratch), "KA_VERBOSE": "1",
                        "GIT_CONFIG_NOSYSTEM": "1", "GITHUB_OUTPUT": str(out / "output"),
                        "GITHUB_STEP_SUMMARY": str(out / "summary"), "GITHUB_ENV": str(out / "env"),
                    },
                    capture_output=True, text=True, timeout=120, check=False,
                )  # fmt: skip
                assert finished.returncode == (2 if "nothing" in arguments else 0), finished.stderr
                said += finished.stdout + finished.stderr
    assert PLANTED not in said
    assert len(watch.arguments) > 5  # git, the verification and the loader among them.
    assert not any(PLANTED.encode() in one for one in watch.arguments)
    looked_at = 0
    # What was printed, sent, cached, tagged or forgotten in a folder for temporary files; and core dumps.
    for path in tmp_path.rglob("*"):
        if path.is_file() and not path.is_symlink():
            looked_at += 1
            assert PLANTED.encode() not in path.read_bytes(), path
    assert looked_at > 50
    assert list(scratch.iterdir()) == []


@needs("Linux")
def test_the_memory_of_who_holds_a_token_is_not_dumped() -> None:
    program = (
        "import ctypes, resource, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from kernel_actions import process\n"
        "process.keep_memory_private()\n"
        "print(resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))\n"
        # What it starts can look at itself, and others.
        "print(process.run(['cat', '/proc/self/environ']).returncode)\n"
    )
    command = [sys.executable, "-I", "-c", program, str(PROGRAM.parent)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert finished.stdout.splitlines() == ["(0, 0) 0", "0"], finished.stderr


def test_an_environment_of_a_job_that_holds_a_token_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a fork's job could have put into a folder that jobs share is never run with a token."""
    monkeypatch.setenv("RUNNER_TEMP", str(tmp_path / "job"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "shared"))
    made: list[Path] = []
    monkeypatch.setattr(venv, "make", lambda plan: made.append(plan.path) or Path("python"))
    monkeypatch.setattr("os.execve", lambda *_unused: None)
    for name, command in COMMANDS.items():
        if not command.environment:
            continue
        for secret in (one for one in command.options if one.secret):
            with monkeypatch.context() as patched:
                patched.setenv(secret.variable, "x")
                venv.restart_in(command, [], command.environment)
            assert made.pop().is_relative_to(tmp_path / "job"), (name, secret.name)
        venv.restart_in(command, [], command.environment)
        assert made.pop().is_relative_to(tmp_path / ("job" if command.holds_token else "shared")), name
    assert venv.cache_root(True).is_relative_to(tmp_path / "job")
