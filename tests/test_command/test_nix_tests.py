"""The builder's ciTests, built and run by real Nix: pytest's exit code 5 is swallowed there.

The store is mounted in a namespace of its own, so that programs in it find their paths.
"""

from __future__ import annotations

import base64
import hashlib
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
import tiny
@pytest.mark.kernels_ci
def test_it():
    assert os.environ["PYTHONPATH"] == os.path.dirname(tiny.__file__)
"""
# What the builder's compat.py does until e9152aa2 (kernel-builder/src/pyproject/templates): it loads the
# package around it under another name, and takes over all of its variables, __path__ and __name__ too.
OLD = """\
import importlib.util, os, sys
main = os.path.join(os.path.dirname(os.path.dirname(__file__)), "__init__.py")
spec = importlib.util.spec_from_file_location("of_its_own", main)
sys.modules["of_its_own"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
globals().update(vars(module))
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
    commit_tests(kernel, tests)
    made = machine.build(kernel, CPU_NEW)
    assert made.returncode == 0, made.stderr
    return again(built, *arguments)


def commit_tests(kernel: Path, tests: str) -> None:
    """Commit the tests, unless they are those of the last commit."""
    if (kernel / "tests" / "test_tiny.py").read_text() != tests:
        change(kernel, {"tests/test_tiny.py": tests})


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
    assert report["environment"]["kernels"] and report["environment"]["torch"].startswith("2.13")


def test_what_was_tested_is_the_variant_with_search_paths(built: tuple[Machine, Path]) -> None:
    """The builder strips them of what is published, and not of what it tests."""
    code, errors, report = run(built, PASSING)
    assert code == 0, errors
    (name,) = report["stand_ins"]
    variant = built[1] / "build" / CPU_NEW
    assert name.endswith(".abi3.so") and (variant / name).is_file()
    assert report["stand_ins"][name] != report["files"][name]
    assert len(report["files"]) > 2
    assert any(
        "with its search path (RUNPATH), which the published one lacks" in one for one in report["notes"]
    )


def test_tests_that_do_not_load_the_kernel_are_a_failure(built: tuple[Machine, Path]) -> None:
    code, errors, report = run(
        built,
        PASSING.replace("import tiny", "").replace(
            "os.path.dirname(tiny.__file__)", 'os.environ["PYTHONPATH"]'
        ),
    )
    assert (code, report["reason"]["kind"], report["passed"]) == (1, "not-loaded", 1), errors


def test_get_kernel_and_the_name_are_one_module(built: tuple[Machine, Path]) -> None:
    tests = """\
import kernels, pytest
loaded = kernels.get_kernel("kernel-actions/tiny", version=1, trust_remote_code=True)
import tiny
from tiny import part
@pytest.mark.kernels_ci
def test_it():
    assert tiny is loaded and part is loaded.part
"""
    change(built[1], {"torch-ext/tiny/part.py": "", "torch-ext/tiny/__init__.py": "from . import part\n"})
    code, errors, _ = run(built, tests)
    assert code == 0, errors


def test_the_folder_of_older_builders_is_taken(built: tuple[Machine, Path]) -> None:
    """Until e9152aa2 the variant holds <name>/__init__.py, which PYTHONPATH leads to."""
    add = f"mkdir -p $out/$variant/tiny; cat > $out/$variant/tiny/__init__.py <<'PYTHON'\n{OLD}PYTHON\n"
    change(built[1], {"after-install.sh": add, "torch-ext/tiny/part.py": "ANSWER = 42\n"})
    tests = "import pytest, tiny\nfrom tiny.part import ANSWER\n" + (
        "@pytest.mark.kernels_ci\ndef test_it():\n    assert tiny.__name__ == 'of_its_own' and ANSWER == 42\n"
    )
    code, errors, _ = run(built, tests)
    change(built[1], {"after-install.sh": ""})
    assert code == 0, errors


def test_a_test_that_changed_since_is_told(built: tuple[Machine, Path], tmp_path: Path) -> None:
    machine, kernel = built
    commit_tests(kernel, PASSING)
    file = tmp_path / "tests.nar.zst"
    made = machine.build(kernel, CPU_NEW, options=["--export-tests", file])
    assert made.returncode == 0, made.stderr
    (kernel / "tests" / "test_tiny.py").write_text("# A line that moves all others.\n" + PASSING)
    code, errors, _ = again(built, "--nix-tests", str(file))
    assert code == 1 and "tests/test_tiny.py: is not the file that the builder's ciTests have" in errors, (
        errors
    )


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
    assert "tests/test_tiny.py:6: " in errors.splitlines()[-1]


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


def test_a_changed_byte_of_code_is_another_build(built: tuple[Machine, Path], tmp_path: Path) -> None:
    code, errors, _ = run(built, PASSING)
    assert code == 0, errors
    shutil.copytree(built[1] / "build", tmp_path / "build")
    folder = tmp_path / "build" / CPU_NEW
    (tmp_path / "build" / f"{CPU_NEW}.build-report.json").unlink()
    (extension,) = folder.glob("*.abi3.so")
    data = bytearray(extension.read_bytes())
    # The luma of red: 299.
    at = data.index((299).to_bytes(4, "little"))
    data[at] ^= 1
    extension.chmod(0o644)
    extension.write_bytes(data)
    metadata = json.loads((folder / "metadata.json").read_text())
    hashed = base64.b64encode(hashlib.sha256(data).digest()).decode()
    metadata["digest"]["files"][extension.name] = hashed
    (folder / "metadata.json").chmod(0o644)
    (folder / "metadata.json").write_text(json.dumps(metadata))
    code, errors, _ = again(built, "--build-dir", str(tmp_path / "build"))
    assert code == 1 and "their build has another" in errors and "section .text" in errors, errors


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
