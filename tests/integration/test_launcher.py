"""The launcher and the light commands: on a bare Python, from anywhere, one line for each error."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.conftest import ROOT, environment, kernel_actions

LAUNCHER = ROOT / "scripts" / "kernel-actions"


def test_matrix_needs_no_package_and_no_environment(tmp_path: Path) -> None:
    # Without site-packages (-S) an import of anything but the standard library fails.
    variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    finished = subprocess.run(
        [LAUNCHER, "matrix", ROOT, "--format", "json"],
        env=variables, cwd=tmp_path, text=True, capture_output=True, check=True,
    )  # fmt: skip
    assert json.loads(finished.stdout)["count"] == 18
    assert finished.stderr == ""
    assert not (tmp_path / "cache").exists()


def test_it_is_found_through_a_link_and_from_the_path(tmp_path: Path) -> None:
    (tmp_path / "ka").symlink_to(LAUNCHER)
    variables = environment(PATH=f"{tmp_path}:{os.environ['PATH']}")
    for command in ([tmp_path / "ka"], ["ka"], ["sh", LAUNCHER]):
        finished = subprocess.run(
            [*command, "--version"], env=variables, cwd=tmp_path, text=True, capture_output=True, check=True
        )
        assert finished.stdout == "0.1.0\n"


def test_without_a_python_it_says_what_to_do(tmp_path: Path) -> None:
    for variables in ({"PATH": str(tmp_path)}, environment(KA_PYTHON="/no/python")):
        finished = subprocess.run(
            ["/bin/sh", LAUNCHER, "matrix"], env=variables, text=True, capture_output=True, check=False
        )
        assert finished.returncode == 3
        assert "install Python 3.11 or newer" in finished.stderr
        assert finished.stderr.count("\n") == 1


def test_a_python_that_is_too_old_looks_for_a_newer_one(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    # What such a Python does with the entry file is the same, but for its version.
    program = (
        "import sys, runpy; sys.version_info = (3, 8, 0); sys.argv = sys.argv[1:]; "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    old.write_text(f'#!/bin/sh\nshift 2\nexec "{sys.executable}" -c "{program}" "$@"\n')
    old.chmod(0o755)
    (tmp_path / "python3.11").symlink_to(sys.executable)
    for name, code in (("python3.11", 0), (None, 3)):
        if name is None:
            (tmp_path / "python3.11").unlink()
        finished = subprocess.run(
            [LAUNCHER, "--version"], env={"PATH": str(tmp_path)},
            text=True, capture_output=True, check=False,
        )  # fmt: skip
        assert finished.returncode == code, finished.stderr


def _shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command, str(LAUNCHER)], env=environment(), text=True, capture_output=True, check=False
    )


def test_output_that_nobody_reads_changes_nothing() -> None:
    for reader in ("head -1", "true"):
        finished = _shell(f"\"$0\" matrix '{ROOT}' --format json | {reader}; exit ${{PIPESTATUS[0]}}")
        assert (finished.returncode, finished.stderr) == (0, "")
    finished = _shell('"$0" matrix /nowhere | true; exit ${PIPESTATUS[0]}')
    assert finished.returncode == 2


def test_a_result_that_cannot_be_written_is_no_success() -> None:
    finished = _shell(f"\"$0\" matrix '{ROOT}' >/dev/full")
    assert finished.returncode == 3
    assert finished.stderr == "kernel-actions: cannot write the result: No space left on device\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_closed_streams_are_no_trouble(closed: str) -> None:
    assert _shell(f"\"$0\" matrix '{ROOT}' {closed}").returncode == 0
    finished = _shell(f'"$0" build /nowhere {closed}')
    assert finished.returncode == 2
    assert "kernel-actions:" not in finished.stdout


def test_an_interrupt_at_any_moment_is_no_traceback() -> None:
    for milliseconds in range(0, 120, 8):
        process = subprocess.Popen(
            [LAUNCHER, "matrix", ROOT], env=environment(), text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        time.sleep(milliseconds / 1000)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
        # While Python itself starts, the answer to Ctrl-C is Python's own.
        is_pythons = "Traceback" in errors and ("/kernel_actions/" not in errors or ", line 0," in errors)
        is_ours = not is_pythons
        assert "Traceback" not in errors or not is_ours, errors
        assert process.returncode in (0, 130, -signal.SIGINT) or not is_ours


def test_a_named_python_that_is_too_old_is_refused(tmp_path: Path) -> None:
    old = tmp_path / "old-python"
    program = (
        "import sys, runpy; sys.version_info = (3, 8, 0); sys.argv = sys.argv[1:]; "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    old.write_text(f'#!/bin/sh\nshift 2\nexec "{sys.executable}" -c "{program}" "$@"\n')
    old.chmod(0o755)
    finished = kernel_actions(ROOT, "build", "/nowhere", variables={"KA_PYTHON": str(old)}, timeout=20)
    assert finished.returncode == 3
    assert "KA_PYTHON is Python 3.8, which is too old" in finished.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["matrx"], 2, "no command is named 'matrx' (did you mean matrix?)"),
        (["matrix", "/nowhere"], 2, "/nowhere/build.toml: there is no such file"),
        (["build", "/nowhere"], 2, "/nowhere/build.toml: there is no such file"),
        (["test", "/nowhere"], 2, "/nowhere"),
        (["pipeline", "/nowhere"], 2, "/nowhere/build.toml: there is no such file"),
        (["matrix", "--builder-rev", "0" * 40], 3, "is not in this version's data"),
    ],
)
def test_wrong_input_is_one_line(arguments: list[str], code: int, message: str) -> None:
    finished = kernel_actions(ROOT, *arguments)
    assert finished.returncode == code
    assert message in finished.stderr
    assert finished.stderr.count("\n") == 1
    assert finished.stdout == ""


def test_a_plan_imports_only_what_it_needs(tmp_path: Path) -> None:
    # What each of these takes to import, every quick command would wait for.
    slow = {
        "argparse", "ast", "dataclasses", "difflib", "hashlib", "heapq", "inspect", "random", "shutil",
        "signal", "subprocess", "tempfile", "threading",
    }  # fmt: skip
    changed = tmp_path / "changed"
    changed.mkdir()
    for name in ("build.toml", "flake.lock"):
        shutil.copy(ROOT / name, changed)
    (changed / "flake.nix").write_text(
        "{ outputs = { self, kernel-builder }: kernel-builder.lib.genKernelFlakeOutputs {\n"
        '  inherit self; path = ./.; torchVersions = builtins.filter (v: v.torchVersion == "2.13"); }; }\n'
    )
    for arguments in (
        ["--version"],
        ["matrix", ROOT],
        ["matrix", changed, "--format=json"],
        ["matrix", "--discover", tmp_path, "--only", "*-cpu-*"],
    ):
        program = ROOT / "scripts" / "kernel_actions" / "__main__.py"
        finished = subprocess.run(
            [sys.executable, "-I", "-S", "-X", "importtime", program, *arguments],
            env=environment(), text=True, capture_output=True, check=True,
        )  # fmt: skip
        imported = {line.rpartition("|")[2].strip() for line in finished.stderr.splitlines()}
        assert "kernel_actions.options" in imported
        assert not slow & imported, arguments


# A case of each kind at every commit; the others take a process each, too.
WRONG = [
    (["hub", "--port", "99999"], "--port is 99999, which is not from 0 to 65535"),
    (["pipeline"], "build.toml: there is no such file"),
    (["verify", ROOT], "give --revision: a commit, a branch or a tag"),
    (["lock"], "pyproject.toml"),
]
MORE_WRONG: list[tuple[list[object], str]] = [
    (["test"], "build.toml: there is no such file"),
    (["test", ROOT, "--build-dir", "docs"], "docs has no built variant"),
    (["test", ROOT, "--time-limit", "0"], "--time-limit is 0, which is not 1 or more"),
    (["benchmark", ROOT, "--threshold", "x"], "--threshold is 'x'"),
    (["benchmark", ROOT, "--rounds", "7"], "--rounds is 7, which is not from 8 to 400"),
    (["compliance"], "build.toml: there is no such file"),
    (["compliance", ROOT, "--build-dir", "docs"], "docs has no built variant"),
    (["upload", ROOT, "--build-dir", "docs"], "docs has no built variant"),
    (["release", "/nowhere"], "/nowhere/build.toml: there is no such file"),
    (["verify", "--revision", "v1"], "build.toml: there is no such file"),
    (["rollback", "--repo-id", "a/b"], "give --to: a tag or a commit on the Hub"),
    (["download"], "pyproject.toml"),
    (["wheel", "--repo-id", "a/b"], "give --revision: a tag, a branch or a commit"),
    (["wheel", ROOT, "--build-dir", "docs"], "docs has no built variant"),
    (["freshness", "/nowhere"], "/nowhere/build.toml: there is no such file"),
    (["freshness", "--max-age", "0"], "--max-age is 0, which is not 1 or more"),
]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [*WRONG, *(pytest.param(*one, marks=pytest.mark.slow) for one in MORE_WRONG)],
)
def test_no_environment_is_made_for_wrong_input(
    tmp_path: Path, arguments: list[object], message: str
) -> None:
    variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    (tmp_path / "empty").mkdir()
    finished = subprocess.run(
        [LAUNCHER, *arguments], env=variables, cwd=tmp_path / "empty", text=True, capture_output=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert (finished.returncode, finished.stdout, finished.stderr.count("\n")) == (2, "", 1)
    assert message in finished.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
    assert list((tmp_path / "empty").iterdir()) == []
