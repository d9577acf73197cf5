"""The templates, as authors copy them, run by act through org/kernel-actions/<name>@v1: on pushes, on pull
requests of branches and of forks, and from the Actions tab. Kernels are built by Nix, in its sandbox."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.integration.conftest import ROOT
from tests.integration.workflows import KERNEL, REPLACED, SECRETS, Author, Run, pull_request
from tests.nix.conftest import CPU_NEW, CUDA, nix_is_missing

REVIEWED = "required_reviewers\n"
PUSH = {"ref": "refs/heads/main", "repository": {"full_name": "me/tiny"}}
SPY = """
import os
import pathlib


@pytest.mark.kernels_ci
def test_spy():
    pathlib.Path({seen!r}).write_text(str(dict(os.environ)))
"""
needs_nix = pytest.mark.skipif(nix_is_missing(), reason="Nix is not installed")


def ran(run: Run, job: str) -> set[str]:
    """The names that jobs of a matrix had, of those that began with ``job``."""
    return set(re.findall(rf"^\[[^/\]]+/{job} (\S+?)(?:-\d)?\s*\]", run.log, re.MULTILINE))


def assert_no_secret(run: Run) -> None:
    """Nothing that was logged or handed over has a secret in it."""
    kept = "".join(path.read_text(errors="replace") for path in run.artifacts.rglob("*") if path.is_file())
    for secret in SECRETS.values():
        assert secret not in run.log and secret not in kept


@needs_nix
def test_a_push_is_built_by_nix_and_tested(tmp_path: Path) -> None:
    author = Author(tmp_path, "build-and-test")
    run = author.run("build-and-test", "push", payload=PUSH)
    assert run.returncode == 0, run.log
    # Nobody has to approve a push.
    assert run.results == {name: "success" for name in ("plan", "build", "test", "tested")}
    assert ran(run, "Build") == ran(run, "Test") == {CPU_NEW, CUDA}
    for name in (CPU_NEW, CUDA):
        assert run.artifact(f"built-tiny-{name}") == [f"{name}.tar"]
    (path,) = (run.artifacts / f"tested-tiny-{CPU_NEW}").iterdir()
    report = json.loads(path.read_text())
    assert (report["verdict"], report["passed"]) == ("passed", 1)
    assert "untested, as kernel-actions.toml allows" in run.log
    assert_no_secret(run)


@needs_nix
@pytest.mark.slow
def test_a_test_that_fails_fails_the_gate_and_is_reported(tmp_path: Path) -> None:
    author = Author(tmp_path, "build-and-test")
    author.change({"tests/test_tiny.py": KERNEL["tests/test_tiny.py"].replace("== 6", "== 7")})
    run = author.run("build-and-test", "pull_request", payload=pull_request(fork=False))
    assert run.returncode == 1
    assert run.results["tested"] == run.results["test"] == "failure"
    assert "assert 6 == 7" in run.log and "test failure" in run.log
    # The report of the failure is handed over all the same.
    (path,) = (run.artifacts / f"tested-tiny-{CPU_NEW}").iterdir()
    assert json.loads(path.read_text())["verdict"] == "failed"


@needs_nix
@pytest.mark.slow
def test_what_does_not_compile_is_not_tested_and_fails_the_gate(tmp_path: Path) -> None:
    author = Author(tmp_path, "build-and-test")
    author.change({"csrc/luma.cpp": "int broken(\n"})
    run = author.run("build-and-test", "push", payload=PUSH)
    assert run.returncode == 1
    assert run.results["build"] == run.results["tested"] == "failure"
    assert "test" not in run.started and "csrc/luma.cpp" in run.log
    assert "build failure, test skipped" in run.log


@needs_nix
@pytest.mark.slow
def test_a_fork_gets_hosted_runners_and_no_secret(tmp_path: Path) -> None:
    author = Author(tmp_path, "build-and-test")
    seen = tmp_path / "seen"
    author.change({"tests/test_tiny.py": KERNEL["tests/test_tiny.py"] + SPY.format(seen=str(seen))})
    run = author.run("build-and-test", "pull_request", payload=pull_request(fork=True))
    # What hosted runners can do is done; the job for the GPU's runner is not even started.
    assert run.results["approve"] == run.results["build"] == run.results["test"] == "success"
    assert ran(run, "Build") == {CPU_NEW, CUDA} and ran(run, "Test") == {CPU_NEW}
    # That is not enough to be merged.
    assert run.returncode == 1 and run.results["tested"] == "failure"
    assert "1 variants need a runner that a fork gets when its run was approved" in run.log
    assert_no_secret(run)
    assert not any(secret in seen.read_text() for secret in SECRETS.values())


@needs_nix
@pytest.mark.slow
def test_a_fork_gets_all_runners_once_somebody_had_to_approve(tmp_path: Path) -> None:
    author = Author(tmp_path, "build-and-test")
    run = author.run("build-and-test", "pull_request", payload=pull_request(fork=True), rules=REVIEWED)
    assert run.returncode == 0, run.log
    assert ran(run, "Test") == {CPU_NEW, CUDA}
    assert "api repos/" in author.gh_log.read_text()
    assert_no_secret(run)


@needs_nix
@pytest.mark.slow
def test_the_reusable_workflow_does_what_its_template_does(tmp_path: Path) -> None:
    author = Author(tmp_path)
    text = (ROOT / ".github" / "workflows" / "build-and-test.yml").read_text()
    # act does not know `$/`, nor another repository's workflow.
    text = re.sub(r"\$/([a-z-]+)", r"org/kernel-actions/\1@v1", text)
    text = text.replace("free-disk: true", REPLACED["free-disk: true"])
    caller = f"""\
name: Mine
on: push
permissions: {{}}
jobs:
  kernel:
    permissions: {{contents: read, actions: read}}
    uses: ./.github/workflows/called.yml
    with:
      kernel-dir: .
      scope: release
      only: {CPU_NEW}
      test-environment: current
"""
    author.change({".github/workflows/called.yml": text, ".github/workflows/mine.yml": caller})
    run = author.run("mine", "push", payload=PUSH)
    assert run.returncode == 0, run.log
    assert run.artifact(f"built-tiny-{CPU_NEW}") and not run.artifact(f"built-tiny-{CUDA}")
    (path,) = (run.artifacts / f"tested-tiny-{CPU_NEW}").iterdir()
    assert json.loads(path.read_text())["environment"]["kind"] == "current"
