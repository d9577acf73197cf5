"""The pipeline where the machine does not play along: whatever happens, the next run just works."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.integration.conftest import environment, git, kernel_actions
from tests.tools import needs

# Minutes of real runs: `make test ALL=1` runs them, and a job of the CI of their own.
pytestmark = pytest.mark.slow


def _pipeline(root: Path, *, kill_in: str = "", number: int = signal.SIGKILL) -> int:
    """Start the pipeline and kill it, and nothing but it, in a stage; its exit code."""
    process = subprocess.Popen(
        [root / "scripts" / "kernel-actions", "pipeline"],
        cwd=root, env=environment(), text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if line.endswith(f"] {kill_in}\n"):
            process.send_signal(number)
            break
    process.stderr.close()
    return process.wait(timeout=60)


def _change(root: Path) -> None:
    source = root / "torch-ext" / "grayscale" / "__init__.py"
    source.write_text(source.read_text() + "\n# changed\n")


@pytest.mark.parametrize("stage", ["build", "test", "stage", "verify", "promote"])
def test_killed_in_any_stage_the_next_run_finishes(built_copy: Path, stage: str) -> None:
    _change(built_copy)
    assert _pipeline(built_copy, kill_in=stage) == -signal.SIGKILL
    again = kernel_actions(built_copy, "pipeline")
    assert again.returncode == 0, again.stderr


def test_two_at_once_both_finish(built_copy: Path) -> None:
    _change(built_copy)
    both = [
        subprocess.Popen(
            [built_copy / "scripts" / "kernel-actions", "pipeline"],
            cwd=built_copy, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]  # fmt: skip
    said = [process.communicate(timeout=300)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert sum("Another pipeline is running in this folder: waiting" in text for text in said) == 1


@needs("mounts")
def test_a_full_disk_is_one_line(built_copy: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", small], check=True)
    try:
        finished = kernel_actions(built_copy, "pipeline", "--output", str(small / "out"))
    finally:
        subprocess.run(["umount", small], check=True)
    assert finished.returncode == 3
    last = finished.stderr.splitlines()[-1]
    assert "full" in last or "No space left" in last
    assert "Traceback" not in finished.stderr


@needs("root")
def test_the_clone_of_another_user_is_read_and_not_written(built_copy: Path) -> None:
    folder = Path("/var/tmp") / f"kernel-actions-test-{os.getpid()}"
    shutil.copytree(built_copy, folder, symlinks=True)
    try:
        os.chmod(folder, 0o755)
        finished = subprocess.run(
            ["python3", "-I", "-S", folder / "scripts" / "kernel_actions", "matrix", folder],
            cwd="/", env={"PATH": "/usr/bin:/bin"}, user=pwd.getpwnam("nobody").pw_uid, extra_groups=[],
            text=True, capture_output=True, check=False,
        )  # fmt: skip
        assert finished.returncode == 0, finished.stderr
        assert "18 variants" in finished.stdout
    finally:
        shutil.rmtree(folder)


@needs("root")
def test_a_clone_of_another_user_is_trusted_only_when_told(built_copy: Path, tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody").pw_uid
    for path in [built_copy, *built_copy.rglob("*")]:
        # What the pipeline made before is its user's own.
        if not path.is_relative_to(built_copy / "build"):
            os.chown(path, nobody, -1, follow_symlinks=False)
    configuration = tmp_path / "gitconfig"
    configuration.write_text("")
    variables = {"GIT_CONFIG_GLOBAL": str(configuration)}
    refused = kernel_actions(built_copy, "pipeline", variables=variables)
    assert refused.returncode == 3
    assert "belongs to another user (if you trust it: git config" in refused.stderr.splitlines()[-1]
    # git asks for the second when history is copied from there.
    configuration.write_text(f"[safe]\n\tdirectory = {built_copy}\n\tdirectory = {built_copy}/.git\n")
    trusted = kernel_actions(built_copy, "pipeline", variables=variables)
    assert trusted.returncode == 0, trusted.stderr


def test_a_shallow_clone_without_an_identity_is_enough(built_copy: Path, tmp_path: Path) -> None:
    clone = tmp_path / "shallow"
    subprocess.run(
        ["git", "clone", "--quiet", "--depth=1", f"file://{built_copy}", clone], check=True, cwd=tmp_path
    )
    shutil.copytree(
        built_copy / "build", clone / "build", symlinks=True, dirs_exist_ok=True,
        ignore=shutil.ignore_patterns(".pipeline"),
    )  # fmt: skip
    variables = {"HOME": str(tmp_path / "nobody"), "GIT_CONFIG_NOSYSTEM": "1"}
    for _ in range(2):
        finished = kernel_actions(clone, "pipeline", variables=variables)
        assert finished.returncode == 0, finished.stderr
    assert "released 1.0.0" not in finished.stdout
    assert git(clone, "status", "--porcelain") == ""
