"""``test``: what counts as tested. A tiny noarch variant stands in for a built kernel."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.integration.conftest import ROOT, environment, kernel_actions

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
PASSING = """\
import pytest
from kernels import get_kernel

@pytest.mark.kernels_ci
def test_it():
    kernel = get_kernel("test/tiny", version=1, trust_remote_code=True)
    assert kernel.__file__.endswith("build/torch-cpu/__init__.py")
    assert kernel.ANSWER == 42
"""
MARKED = "import pytest\npytestmark = pytest.mark.kernels_ci\n"
LOADED = MARKED + (
    "from kernels import get_kernel\nkernel = get_kernel('test/tiny', version=1, trust_remote_code=True)\n"
)


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A kernel with a built variant, and no tests."""
    root = tmp_path / "a: kernel"  # LOCAL_KERNELS separates by colons.
    variant = root / "build" / "torch-cpu"
    variant.mkdir(parents=True)
    (root / "build.toml").write_text(BUILD)
    (variant / "__init__.py").write_text("ANSWER = 42\n")
    (variant / "metadata.json").write_text(json.dumps(METADATA))
    (root / "tests").mkdir()
    return root


def _run(
    kernel: Path, tests: str | None, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    if tests is not None:
        (kernel / "tests" / "test_tiny.py").write_text(tests)
    return kernel_actions(ROOT, "test", str(kernel), *arguments, variables=variables)


def test_passing(kernel: Path, tmp_path: Path) -> None:
    junit = tmp_path / "out" / "junit.xml"
    finished = _run(kernel, PASSING, "--junit", str(junit))
    assert finished.returncode == 0, finished.stderr
    assert "torch-cpu: 1 passed in" in finished.stdout
    report = json.loads((kernel / "build" / "torch-cpu.test-report.json").read_text())
    assert (report["verdict"], report["passed"], report["failed"]) == ("passed", 1, 0)
    assert b"<testcase" in junit.read_bytes()
    # Nothing but the report was written into the kernel's folder.
    assert sorted(str(path.relative_to(kernel)) for path in kernel.rglob("*") if path.is_file()) == [
        "build.toml",
        "build/torch-cpu.test-report.json",
        "build/torch-cpu/__init__.py",
        "build/torch-cpu/metadata.json",
        "tests/test_tiny.py",
    ]


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        (MARKED + "def test_a(): assert 1 == 2\n", "test_tiny.py:3: torch-cpu: 1 of 1 tests failed; "),
        (
            MARKED + "def test_a(): pytest.skip('no')\n",
            "all 1 tests were skipped, so that nothing was tested",
        ),
        ("def test_a(): pass\n", "0 tests ran (mark the kernel's tests with @pytest.mark.kernels_ci)"),
        (None, "has no tests (add tests/test_tiny.py with tests marked"),
        ("import missing_module\n", "No module named 'missing_module'"),
        (MARKED + "def test_a(: pass\n", "invalid syntax"),
        (MARKED + "import os\ndef test_a(): os.abort()\n", "the tests ended early: killed by SIGABRT (6) in tests/test_tiny.py::test_a"),
        (MARKED + "import os\ndef test_a(): os._exit(0)\n", "the tests ended early: exit code 0"),
        (MARKED + "import sys\ndef test_a(): sys.exit(0)\n", "1 of 1 tests failed"),
        (MARKED + "raise KeyboardInterrupt\n", "the tests ended early"),
        (
            MARKED + "def test_a(): pass\n",
            "the tests passed without loading the kernel (load it by get_kernel(",
        ),
    ],
)
def test_whatever_is_not_tested_fails(kernel: Path, tests: str | None, message: str) -> None:
    finished = _run(kernel, tests)
    assert finished.returncode == 1
    assert message in finished.stderr.splitlines()[-1]
    assert "Traceback (most recent call last)" not in finished.stderr.splitlines()[-1]


def test_a_gpu_variant_without_a_gpu(kernel: Path) -> None:
    metadata = METADATA | {"backend": {"type": "cuda"}}
    (kernel / "build" / "torch-cpu" / "metadata.json").write_text(json.dumps(metadata))
    finished = _run(kernel, PASSING)
    assert finished.returncode == 3
    assert "torch-cpu needs a GPU and there is no GPU: this machine has no driver of NVIDIA" in finished.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--variant", "torch-cpi"], "has no variant 'torch-cpi' (it has torch-cpu)"),
        (["--variant", "../build/torch-cpu"], "has no variant"),
        (["--build-dir", "dist"], "dist has no built variant (build one first: kernel-actions build)"),
    ],
)
def test_a_variant_that_is_not_there(kernel: Path, arguments: list[str], message: str) -> None:
    finished = _run(kernel, PASSING, *arguments)
    assert finished.returncode == 2
    assert message in finished.stderr


def test_tests_see_no_secret_and_give_no_commands(kernel: Path) -> None:
    tests = LOADED + (
        "import os\n"
        "def test_a():\n"
        "    assert not [name for name in os.environ if 'TOKEN' in name]\n"
        "    print('::error::forged')\n"
    )
    finished = _run(kernel, tests, "--format", "github", HF_TOKEN="hf_x", KA_TOKEN="x", GITHUB_ACTIONS="true")
    assert finished.returncode == 0, finished.stderr
    lines = finished.stderr.splitlines()
    stop = next(index for index, line in enumerate(lines) if line.startswith("::stop-commands::"))
    token = lines[stop].removeprefix("::stop-commands::")
    resume = lines.index(f"::{token}::")
    assert all(stop < index < resume for index, line in enumerate(lines) if "forged" in line)


def test_tests_that_delete_what_they_find_change_no_build(kernel: Path) -> None:
    tests = PASSING + "    import pathlib\n    pathlib.Path(kernel.__file__).unlink()\n"
    assert _run(kernel, tests).returncode == 0
    assert (kernel / "build" / "torch-cpu" / "__init__.py").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_tests_too(kernel: Path, tmp_path: Path, number: int) -> None:
    mark = tmp_path / "pid"
    (kernel / "tests" / "test_tiny.py").write_text(
        MARKED + f"import os, pathlib, time\ndef test_a():\n"
        f"    pathlib.Path({str(mark)!r}).write_text(str(os.getpid()))\n    time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [ROOT / "scripts" / "kernel-actions", "test", kernel],
        env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not mark.exists() or not mark.read_text():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert errors.splitlines()[-1] == f"kernel-actions: interrupted by {signal.Signals(number).name}"
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


def test_the_marker_is_known_without_any_configuration(kernel: Path) -> None:
    finished = _run(kernel, PASSING)
    assert "PytestUnknownMarkWarning" not in finished.stderr


def test_another_kernel_is_not_taken_for_the_variant(kernel: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "build" / "torch-cpu"
    shutil.copytree(kernel / "build" / "torch-cpu", other)
    tests = MARKED + (
        "from pathlib import Path\nfrom kernels import get_local_kernel\n"
        f"def test_a(): assert get_local_kernel(Path({str(other.parents[1])!r})).ANSWER == 42\n"
    )
    finished = _run(kernel, tests)
    assert finished.returncode == 1
    assert f"without loading the kernel (they loaded {other})" in finished.stderr


def test_the_reason_is_what_went_wrong_first(kernel: Path) -> None:
    (kernel / "build" / "torch-cpu" / "__init__.py").write_text("import missing_module\n")
    finished = _run(kernel, PASSING)
    assert finished.returncode == 1
    assert "No module named 'missing_module'" in finished.stderr.splitlines()[-1]
