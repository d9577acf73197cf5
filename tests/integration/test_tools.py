"""The tests of the tests: no test starts a program that it did not ask for, and what is left out is told."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import tools
from tests.integration.conftest import ROOT

HEAD = "import os, shutil, subprocess\nimport pytest\nfrom tests import tools\n\n"
# The kernel's tests run without the suite; the others are run by hand, or run by tests as they stand.
NOT_OURS = (
    "tests/kernel/",
    "tests/bench/",
    "tests/oracle/",
    "tests/gpu/faulty/",
    "tests/local_builder/golden/",
)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder of programs in which each of `tools.TOOLS` is installed, and says so."""
    folder = tmp_path / "machine"
    folder.mkdir()
    for tool in tools.TOOLS.values():
        for name in tool.programs:
            if "*" not in name:
                (folder / name).write_text(f"#!/bin/sh\necho {name} of the machine\n")
                (folder / name).chmod(0o755)
    (folder / "rsync").symlink_to(folder / "jq")
    return folder


def outcome(tmp_path: Path, code: str, path: str, *options: str, **variables: str) -> tuple[int, list[str]]:
    """The exit code and the lines of pytest for a file of tests, in a project with our conftest."""
    project = tmp_path / "project"
    (project / "tests").mkdir(parents=True, exist_ok=True)
    for name in ("conftest.py", "tools.py"):
        (project / "tests" / name).write_bytes((ROOT / "tests" / name).read_bytes())
    (project / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    (project / "tests" / "test_it.py").write_text(HEAD + code)
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS")}
    finished = subprocess.run(
        [sys.executable, "-I", "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "tests"],
        cwd=project, env=kept | {"PATH": path} | variables, text=True, capture_output=True, check=False,
    )  # fmt: skip
    return finished.returncode, finished.stdout.splitlines()


def bare_path() -> str:
    """The programs that every machine has: the PATH of a test that asks for nothing."""
    return os.environ["PATH"]


ASKING = """
def run(): return subprocess.run(["jq"], text=True, capture_output=True).stdout

@tools.needs("jq")
def test_marker(): assert run() == "jq of the machine\\n"

def test_bare_again(): assert shutil.which("jq") is None

def test_call():
    tools.ask("jq")
    assert run() == "jq of the machine\\n" and shutil.which("curl") is None

def test_path(): assert subprocess.run([tools.program("curl")], capture_output=True).returncode == 0

@tools.needs("jq")
def test_child(): assert subprocess.run(["sh", "-c", "jq"]).returncode == 0

def test_optional(): assert tools.optional("helm") is not None
"""


def test_a_test_finds_what_it_asks_for_and_nothing_else(tmp_path: Path, machine: Path) -> None:
    code, lines = outcome(tmp_path, ASKING, f"{machine}:{bare_path()}")
    assert (code, lines[-1].split(" in ")[0]) == (0, "6 passed"), lines


STARTS = """
@pytest.mark.parametrize("start", [
    'subprocess.run(["jq"])',
    'subprocess.run([os.environ["MACHINE"] + "/jq"])',
    'subprocess.run(["rsync"])',
    'subprocess.run(["x"], executable=os.environ["MACHINE"] + "/jq")',
    'subprocess.run(["jq"], env={"PATH": os.environ["MACHINE"]})',
    'subprocess.run(["sh", "-c", "jq"], check=True)',
    'subprocess.run("jq", shell=True, check=True)',
    'tools.ask("curl"); subprocess.run(["jq"])',
    'assert shutil.which("jq")',
    'assert os.system("jq") == 0',
    'assert os.spawnlp(os.P_WAIT, "jq", "jq") == 0',
])
def test_it(start): exec(start)

@tools.needs("emacs")
def test_unknown(): pass
"""


def test_a_test_that_does_not_ask_fails_where_the_program_is_installed(tmp_path: Path, machine: Path) -> None:
    code, lines = outcome(tmp_path, STARTS, f"{machine}:{bare_path()}", MACHINE=str(machine))
    assert (code, lines[-1].split(" in ")[0]) == (1, "11 failed, 1 error"), lines
    text = "\n".join(lines)
    assert "starts rsync, which not every machine has: ask for it by tests/tools.py (an entry of" in text
    assert "starts jq, which not every machine has: ask for it by tests/tools.py (needs('jq'))" in text
    assert "KeyError: 'emacs'" in text


MISSING = """
@pytest.fixture
def asks(): tools.ask("kubectl")

@tools.needs("jq")
def test_one(): pass

@tools.needs("jq", "kubectl")
@pytest.mark.parametrize("number", [1, 2])
def test_two(number): pass

def test_three(asks): pass

@tools.needs("nvcc")
def test_four(): pass

def test_five(): tools.leave_out("a second GPU")

@tools.needs("curl")
def test_six(): assert subprocess.run(["curl"]).returncode == 0
"""


@pytest.fixture
def with_curl(machine: Path) -> str:
    """The PATH of a machine on which of all tools there is curl."""
    for program in machine.iterdir():
        if program.name != "curl":
            program.unlink()
    return f"{machine}:{bare_path()}"


def test_the_last_lines_say_what_was_left_out_and_how_to_install_it(tmp_path: Path, with_curl: str) -> None:
    # As `make test` does, whose first process runs no test.
    code, lines = outcome(tmp_path, MISSING, with_curl, "-n", "1")
    assert code == 0
    first = next(number for number, line in enumerate(lines) if line.startswith("left out"))
    assert lines[first:-1] == [
        "left out: 6 tests, as this machine lacks",
        "  jq            3 tests  (scripts/install-test-tools)",
        "  kubectl       3 tests  (scripts/install-test-tools)",
        "  nvcc          1 test  (to be installed by you)",
        "  a second GPU  1 test",
        "to install what is missing: scripts/install-test-tools",
    ]
    assert lines[-1].startswith("1 passed, 6 skipped in ")


def test_in_the_ci_nothing_is_left_out_that_can_be_installed(tmp_path: Path, with_curl: str) -> None:
    code, lines = outcome(tmp_path, MISSING, with_curl, CI="true")
    assert code == 1
    # What asks in a fixture or by a marker fails before the test; what nobody can install is left out.
    assert re.match("1 passed, 2 skipped, 4 errors in", lines[-1]), lines
    assert any("needs jq (scripts/install-test-tools installs jq)" in line for line in lines)


def test_the_installer_installs_what_tests_ask_for() -> None:
    script = (ROOT / tools.INSTALLER).read_text()
    for name, tool in tools.TOOLS.items():
        for package in tool.packages:
            assert re.search(rf"missing\+=\([^)]*{re.escape(package)}[ )]|\b{package}\b", script), (
                name,
                package,
            )
        if tool.packages:
            assert re.search(rf"command -v (\"\$\w+\"|{re.escape(tool.programs[0])})", script)
    assert "export CI=true" in (ROOT / ".ci" / "run").read_text()


def modules() -> Iterator[Path]:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if not path.relative_to(ROOT).as_posix().startswith(NOT_OURS) and "node_modules" not in path.parts:
            yield path


def test_nothing_is_left_out_by_another_way() -> None:
    """What is left out otherwise is counted nowhere, and the CI would not see it."""
    others = {"skip", "skipif", "importorskip", "xfail"}
    for path in modules():
        if path.name == "tools.py" and path.parent == ROOT / "tests":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.Attribute) and node.attr in others), f"{path}:{node.lineno}"
