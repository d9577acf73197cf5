"""The package: what `pip install` gives has its data, and the light commands run from it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import ROOT, copy_repository, environment


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed wheel alone."""
    work = tmp_path_factory.mktemp("package")
    source = copy_repository(work / "source")
    pip = [sys.executable, "-I", "-m", "pip", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", work, source],
        env=environment(), check=True,
    )  # fmt: skip
    wheel = next(work.glob("kernel_actions-*.whl"))
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--target", work / "site", wheel], check=True)
    return work / "site"


def _run(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from kernel_actions.cli import entry; entry()"
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, installed, *arguments],
        env=environment(), text=True, capture_output=True, check=False,
    )  # fmt: skip


def test_the_wheel_has_templates_and_data(installed: Path) -> None:
    for name in (
        "kernel_actions/data/builder/revisions.txt",
        "kernel_actions/data/builder/tables",
        "kernel_actions/local_builder/templates/registration.h",
        "kernel_actions/workflow_templates/build-and-test.yml",
    ):
        assert (installed / name).exists(), name
    template = installed / "kernel_actions/workflow_templates/build-and-test.yml"
    assert template.read_text() == (ROOT / "templates/workflows/build-and-test.yml").read_text()


def test_the_wheel_has_every_module(installed: Path) -> None:
    modules = {path.relative_to(ROOT / "scripts") for path in (ROOT / "scripts/kernel_actions").rglob("*.py")}
    assert [str(path) for path in sorted(modules) if not (installed / path).is_file()] == []


def test_matrix_runs_from_the_wheel(installed: Path) -> None:
    finished = _run(installed, "matrix", str(ROOT), "--format", "json")
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["count"] == 18


def test_a_missing_package_is_one_line(installed: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); sys.modules['starlette'] = None\n"
        "from kernel_actions.cli import entry; entry()"
    )
    finished = subprocess.run(
        [sys.executable, "-I", "-c", program, installed, "hub", "--port", "0"],
        env=environment(), text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 3
    assert "the Python package starlette is not installed" in finished.stderr
    assert finished.stderr.count("\n") == 1
