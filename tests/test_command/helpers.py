"""A tiny kernel in Python, with a native library that goes wrong on demand, and runs of ``test`` on it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.conftest import ROOT, environment

BUILD = """\
[general]
name = "tiny"
version = 1
license = "Apache-2.0"
edition = 5
backends = ["cpu"]

[general.hub]
repo-id = "test/tiny"

[torch-noarch]
"""
METADATA = {
    "name": "tiny",
    "id": "_tiny_cpu_0000000",
    "version": 1,
    "license": "Apache-2.0",
    "python-depends": [],
    "backend": {"type": "cpu"},
}
MARKED = "import pytest\npytestmark = pytest.mark.kernels_ci\n"
# Loads the staged variant as the loader does, but without Torch, which takes seconds to import.
LOADED = (
    MARKED
    + """\
import importlib.util, os, sys
folder = os.environ["LOCAL_KERNELS"].partition("=")[2] + "/build/torch-cpu"
spec = importlib.util.spec_from_file_location("tiny", folder + "/__init__.py")
tiny = importlib.util.module_from_spec(spec)
sys.modules["tiny"] = tiny
spec.loader.exec_module(tiny)
"""
)
PASSING = LOADED + "def test_it(): assert tiny.ANSWER == 42\n"
# Native code that holds the interpreter's lock, as an extension does.
NATIVE = """\
#include <stdlib.h>
int crash(void) { *(volatile int *)0 = 1; return 0; }
int spin(void) { for (volatile int turn = 1; turn; turn = 1) {} return 0; }
int give_up(void) { abort(); }
"""
INIT = """\
import ctypes, os
ANSWER = 42
def native():
    return ctypes.PyDLL(os.path.join(os.path.dirname(__file__), "native.so"))
"""


@dataclass(frozen=True)
class Run:
    """A run that has ended: its exit code, what was printed, and the report (``None`` without one)."""

    returncode: int
    output: str
    errors: str
    report: dict[str, Any] | None

    @property
    def kind(self) -> str | None:
        """The kind of the reason, if there is one."""
        assert self.report is not None, self.errors
        reason = self.report["reason"]
        return reason["kind"] if reason is not None else None

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """How many tests passed, failed, were skipped and did not run."""
        assert self.report is not None, self.errors
        found = [self.report[name] for name in ("passed", "failed", "skipped", "not_run")]
        return found[0], found[1], found[2], found[3]

    @property
    def last(self) -> str:
        """The last line of the errors."""
        return self.errors.splitlines()[-1] if self.errors else ""


def make_kernel(root: Path, native: Path | None = None, backend: str = "cpu") -> Path:
    """A kernel in ``root`` with a built variant, and no tests."""
    variant = root / "build" / "torch-cpu"
    variant.mkdir(parents=True)
    (root / "build.toml").write_text(BUILD)
    (variant / "__init__.py").write_text(INIT)
    (variant / "metadata.json").write_text(json.dumps(METADATA | {"backend": {"type": backend}}))
    (root / "tests").mkdir()
    if native is not None:
        (variant / "native.so").write_bytes(native.read_bytes())
    return root


def run(
    kernel: Path, tests: str | None, *arguments: str, python: Path | None = None, **variables: str
) -> Run:
    """Run ``test`` on ``kernel``, whose test file has the text ``tests``."""
    if tests is not None:
        (kernel / "tests" / "test_tiny.py").write_text(tests)
    return finish(start(kernel, *arguments, variables=variables, python=python), kernel)


def start(
    kernel: Path, *arguments: str, variables: Mapping[str, str] = {}, python: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start ``test`` on ``kernel``."""
    return subprocess.Popen(
        # The command itself, as the launcher starts it: looking for a Python is tested elsewhere.
        [python or sys.executable, "-I", ROOT / "scripts" / "kernel_actions", "test", kernel, *arguments],
        cwd=kernel.parent, env=environment(**variables), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(process: subprocess.Popen[bytes], kernel: Path) -> Run:
    """What a run that was started gives."""
    output, errors = process.communicate(timeout=500)
    path = kernel / "build" / "torch-cpu.test-report.json"
    report = json.loads(path.read_text()) if path.exists() else None
    return Run(process.returncode, output.decode(), errors.decode(), report)


def is_alive(pid: int) -> bool:
    """Whether the process runs."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
