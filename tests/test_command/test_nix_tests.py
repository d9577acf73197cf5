"""The builder's ciTests, built and run by real Nix: pytest's exit code 5 is swallowed there.

The store is mounted in a namespace of its own, so that programs in it find their paths.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import ROOT
from tests.nix.conftest import CPU_NEW, Machine, change, make_kernel
from tests.tools import needs

PASSING = """\
import os, pytest
@pytest.mark.kernels_ci
def test_it():
    assert os.path.exists(os.environ["PYTHONPATH"] + "/metadata.json")
"""
IN_NAMESPACE = 'mkdir -p /nix && mount --bind "$1" /nix && shift && exec "$@"'

pytestmark = [pytest.mark.slow, pytest.mark.integration, needs("nix", "mounts")]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Machine, Path]:
    """A machine, and a kernel with the variant that Nix built there."""
    folder = tmp_path_factory.mktemp("nix")
    return Machine(folder / "machine"), make_kernel(folder / "tiny")


def run(built: tuple[Machine, Path], tests: str, *arguments: str) -> tuple[int, str, dict[str, Any]]:
    """Commit the tests, build the variant, and test it: exit code, errors and report."""
    machine, kernel = built
    change(kernel, {"tests/test_tiny.py": tests})
    made = machine.build(kernel, CPU_NEW)
    assert made.returncode == 0, made.stderr
    return again(built, *arguments)


def again(built: tuple[Machine, Path], *arguments: str) -> tuple[int, str, dict[str, Any]]:
    """Test the variant as it was built."""
    machine, kernel = built
    variables = {name: value for name, value in machine.environment.items() if name != "NIX_REMOTE"}
    # The fixture's program runs the Python of the PATH.
    variables["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    finished = subprocess.run(
        [
            "unshare", "-m", "sh", "-c", IN_NAMESPACE, "sh", machine.store / "nix",
            ROOT / "scripts" / "kernel-actions", "test", "--environment", "nix", "--variant", CPU_NEW,
            *arguments,
        ],
        cwd=kernel, env=variables, text=True, capture_output=True, timeout=240, check=False,
    )  # fmt: skip
    path = kernel / "build" / f"{CPU_NEW}.test-report.json"
    return finished.returncode, finished.stderr, json.loads(path.read_text()) if path.exists() else {}


def test_passing(built: tuple[Machine, Path], tmp_path: Path) -> None:
    code, errors, report = run(built, PASSING, "--junit", str(tmp_path / "junit.xml"))
    assert code == 0, errors
    assert (report["verdict"], report["passed"], report["environment"]["kind"]) == ("passed", 1, "nix")
    assert "<testcase" in (tmp_path / "junit.xml").read_text()


def test_no_test_selected_is_a_failure_although_the_builder_swallows_it(built: tuple[Machine, Path]) -> None:
    code, errors, report = run(built, "def test_it(): pass\n")
    assert (code, report["reason"]["kind"]) == (1, "none-selected"), errors


def test_tests_that_were_only_prepared_are_a_failure(built: tuple[Machine, Path]) -> None:
    change(built[1], {"tests/pytest.ini": "[pytest]\naddopts = --setup-only\n"})
    code, errors, report = run(built, PASSING)
    change(built[1], {"tests/pytest.ini": "[pytest]\n"})
    assert (code, report["reason"]["kind"], report["passed"]) == (1, "ended-early", 0), errors


def test_a_failure_has_its_line_in_the_repository(built: tuple[Machine, Path]) -> None:
    code, errors, report = run(built, PASSING + "    assert 1 == 2\n")
    assert (code, report["reason"]["kind"], report["failed"]) == (1, "failed", 1)
    assert "tests/test_tiny.py:5: " in errors.splitlines()[-1]


def test_a_crash_and_a_hang_are_told_of_their_test(built: tuple[Machine, Path]) -> None:
    crash = PASSING + "@pytest.mark.kernels_ci\ndef test_crash(): os.abort()\n"
    code, errors, report = run(built, crash)
    assert (code, report["passed"]) == (1, 1), errors
    assert report["failures"][0]["test"].endswith("test_tiny.py::test_crash")
    hang = PASSING + "@pytest.mark.kernels_ci\ndef test_hang():\n    while True: pass\n"
    code, errors, report = run(built, hang, "--test-time-limit", "4")
    assert (code, report["reason"]["kind"]) == (1, "test-time-limit"), errors
    assert report["failures"][0]["test"].endswith("test_tiny.py::test_hang")


def test_tests_of_another_build_are_refused(built: tuple[Machine, Path], tmp_path: Path) -> None:
    code, errors, _ = run(built, PASSING)
    assert code == 0, errors
    machine, kernel = built
    shutil.copytree(kernel / "build", tmp_path / "build")
    # Without it nobody knows which sources it was built from.
    (tmp_path / "build" / f"{CPU_NEW}.build-report.json").unlink()
    change(kernel, {"csrc/luma.cpp": "// another\n" + (kernel / "csrc" / "luma.cpp").read_text()})
    made = machine.build(kernel, CPU_NEW)
    assert made.returncode == 0, made.stderr
    code, errors, _ = again(built, "--build-dir", str(tmp_path / "build"))
    assert code == 1 and "are of another build than the variant" in errors, errors


def test_tests_that_were_exported_run_on_another_machine(built: tuple[Machine, Path], tmp_path: Path) -> None:
    machine, kernel = built
    change(kernel, {"tests/test_tiny.py": PASSING + "@pytest.mark.kernels_ci\ndef test_more(): pass\n"})
    file = tmp_path / "tests.nar.zst"
    made = machine.build(kernel, CPU_NEW, options=["--export-tests", file])
    assert made.returncode == 0, made.stderr
    # The other machine has the variant as an artifact, and nothing of it in its store.
    other = Machine(tmp_path / "other")
    code, errors, report = again((other, kernel), "--nix-tests", str(file))
    assert code == 0, errors
    assert (report["verdict"], report["passed"], report["environment"]["kind"]) == ("passed", 2, "nix")
    (tmp_path / "none").write_text("nothing")
    code, errors, report = again((other, kernel), "--nix-tests", str(tmp_path / "none"))
    assert (code, report) == (3, {}) and f"cannot import {tmp_path / 'none'}" in errors
    code, errors, report = again((other, kernel), "--nix-tests", str(tmp_path / "missing"))
    assert (code, report) == (2, {}) and "there is no such path in the store" in errors
