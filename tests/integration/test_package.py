"""The package: what `pip install` gives has its data, and the light commands run from it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import ROOT, copy_repository, environment, git


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


def test_init_sets_a_repository_up_without_a_checkout(installed: Path, tmp_path: Path) -> None:
    for name in ("build.toml", "flake.lock", "flake.nix"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    git(tmp_path, "init", "--quiet")
    finished = _run(installed, "init", str(tmp_path), "--uses=acme/kernel-actions@v1", "--yes")
    assert finished.returncode == 0, finished.stderr
    release = tmp_path / ".github" / "workflows" / "release.yml"
    assert "uses: acme/kernel-actions/release@v1" in release.read_text()


def test_report_makes_its_page_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    finished = _run(installed, "report", str(ROOT), "--output", str(tmp_path / "page.html"))
    assert finished.returncode == 0, finished.stderr
    assert "<style>" in (tmp_path / "page.html").read_text()


def test_the_program_has_the_name_of_the_project(installed: Path) -> None:
    (entry,) = installed.glob("kernel_actions-*.dist-info/entry_points.txt")
    assert "kernel-actions = kernel_actions.cli:entry" in entry.read_text()


@pytest.mark.parametrize(
    ("noted", "expected"),
    [
        (
            {
                "url": "https://github.com/acme/kernel-actions",
                "vcs_info": {"vcs": "git", "commit_id": "c" * 40},
            },
            "c" * 40,
        ),
        (
            {
                "url": "https://github.com/acme/kernel-actions.git",
                "vcs_info": {"vcs": "git", "requested_revision": "v1.2.0", "commit_id": "c" * 40},
            },
            "v1.2.0",
        ),
        (
            {
                "url": "https://github.com/acme/kernel-actions.git",
                "vcs_info": {"vcs": "git", "requested_revision": "main", "commit_id": "c" * 40},
            },
            "c" * 40,
        ),
        ({"url": "file:///tmp/x.whl", "archive_info": {}}, None),
    ],
)
def test_init_uses_what_it_was_installed_from(
    installed: Path, tmp_path: Path, noted: dict[str, object], expected: str | None
) -> None:
    (folder,) = installed.glob("kernel_actions-*.dist-info")
    (tmp_path / "build.toml").write_bytes((ROOT / "build.toml").read_bytes())
    note = folder / "direct_url.json"
    before = note.read_bytes() if note.exists() else None
    note.write_text(json.dumps(noted))
    try:
        finished = _run(installed, "init", str(tmp_path), "--yes")
    finally:
        note.unlink() if before is None else note.write_bytes(before)
    if expected is None:
        assert finished.returncode == 2 and "--uses OWNER/kernel-actions@v1" in finished.stderr
    else:
        assert finished.returncode == 0, finished.stderr
        text = (tmp_path / ".github" / "workflows" / "release.yml").read_text()
        assert f"acme/kernel-actions/release@{expected}" in text


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
