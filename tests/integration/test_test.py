"""``test`` with the loader that users have. How runs end is tested in tests/test_command.

A tiny noarch variant stands in for a built kernel.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.conftest import ROOT, kernel_actions
from tests.test_command.helpers import BUILD, MARKED, METADATA

PASSING = """\
import pytest
from kernels import get_kernel

@pytest.mark.kernels_ci
def test_it():
    kernel = get_kernel("test/tiny", version=1, trust_remote_code=True)
    assert kernel.__file__.endswith("build/torch-cpu/__init__.py")
    assert kernel.ANSWER == 42
"""


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


def test_a_folder_that_is_no_kernel_is_told_as_that(kernel: Path) -> None:
    (kernel / "build.toml").unlink()
    finished = _run(kernel, PASSING, "--build-dir", "dist")
    assert finished.returncode == 2
    assert "build.toml: there is no such file (give the folder of a kernel" in finished.stderr


def test_tests_that_delete_what_they_find_change_no_build(kernel: Path) -> None:
    tests = PASSING + "    import pathlib\n    pathlib.Path(kernel.__file__).unlink()\n"
    assert _run(kernel, tests).returncode == 0
    assert (kernel / "build" / "torch-cpu" / "__init__.py").exists()


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
