"""Tests, and configurations of pytest, that would pass without having tested: none of them is green."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Literal
from xml.etree import ElementTree

import pytest
from kernel_actions import built, manifest
from kernel_actions.test import nix_tests, running, sanitizer, show
from kernel_actions.test.confined import Ended
from kernel_actions.test.model import Reason, TestReport
from kernel_actions.test.progress import Progress, junit_with_reason, read_junit, stack_places
from kernel_actions.test.running import Outcome, Request

from tests.integration.conftest import ROOT, environment
from tests.test_command.helpers import LOADED, PASSING, is_alive, run
from tests.tools import needs

FLIPPED = """\
import pytest
@pytest.hookimpl(wrapper=True{order})
def pytest_runtest_makereport(item, call):
    report = yield
    report.outcome = "passed"
    return report
"""


def ini(options: str) -> dict[str, str]:
    return {"pytest.ini": f"[pytest]\naddopts = {options}\n"}


def conftest(text: str) -> dict[str, str]:
    return {"tests/conftest.py": text}


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("more", "files", "kind", "counts"),
    [
        pytest.param(
            "def test_b(): pytest.exit('enough', returncode=0)\ndef test_c(): assert 0\n",
            {}, "ended-early", (1, 0, 0, 2), id="pytest.exit",
        ),
        pytest.param("", ini("--setup-only"), "ended-early", (0, 0, 0, 1), id="fixtures alone"),
        pytest.param(
            "def test_b(): assert 0\n", conftest(FLIPPED.format(order=", trylast=True")),
            "failed", (1, 1, 0, 0), id="failures made successes",
        ),
        pytest.param(
            "def test_b(): assert 0\n", conftest(FLIPPED.format(order="")),
            "failed", (1, 1, 0, 0), id="failures made successes later", marks=SLOW,
        ),
        pytest.param("", ini("--collect-only"), "ended-early", (0, 0, 0, 1), id="collected", marks=SLOW),
        pytest.param("", ini("--help"), "ended-early", (0, 0, 0, 0), id="help", marks=SLOW),
        pytest.param("", ini("-k nothing"), "none-selected", (0, 0, 0, 0), id="addopts", marks=SLOW),
        pytest.param(
            "", conftest("def pytest_collection_modifyitems(items): items[:] = []\n"),
            "none-selected", (0, 0, 0, 0), id="all removed", marks=SLOW,
        ),
        pytest.param(
            "", conftest("def pytest_runtestloop(session): return True\n"),
            "ended-early", (0, 0, 0, 1), id="another loop", marks=SLOW,
        ),
        pytest.param(
            "", conftest("def pytest_runtest_protocol(item, nextitem): return True\n"),
            "ended-early", (0, 0, 0, 1), id="another protocol", marks=SLOW,
        ),
        pytest.param(
            "def test_b(): assert 0\n",
            conftest("def pytest_sessionfinish(session): session.exitstatus = 0\n"),
            "failed", (1, 1, 0, 0), id="another exit code", marks=SLOW,
        ),
        pytest.param(
            "def test_b(request): request.session.shouldstop = 'enough'\ndef test_c(): assert 0\n",
            {}, "ended-early", (2, 0, 0, 1), id="told to stop", marks=SLOW,
        ),
        pytest.param(
            "def test_b(): os.closerange(3, 4096)\n", {}, "ended-early", (1, 1, 0, 0),
            id="all files closed", marks=SLOW,
        ),
        pytest.param(
            "", conftest("import os; os._exit(0)\n"), "ended-early", (0, 0, 0, 0),
            id="exit of conftest.py", marks=SLOW,
        ),
        pytest.param(
            "def test_b(subtests):\n    with subtests.test(): assert 0\n    with subtests.test(): pass\n",
            {}, "failed", (1, 1, 0, 0), id="a part of a test", marks=SLOW,
        ),
    ],
)  # fmt: skip
def test_what_was_not_tested_is_not_green(
    kernel: Path, more: str, files: dict[str, str], kind: str, counts: tuple[int, ...]
) -> None:
    for name, text in files.items():
        (kernel / name).write_text(text)
    junit = kernel / "junit.xml"
    finished = run(kernel, PASSING + more, "--junit", str(junit))
    assert finished.returncode == 1, finished.errors
    assert (finished.kind, finished.counts) == (kind, counts), finished.errors
    assert finished.report is not None and finished.report["verdict"] == "failed"
    # Nor is it green to those who read JUnit alone.
    root = ElementTree.parse(junit).getroot()
    assert any(case.find("error") is not None or case.find("failure") is not None for case in root.iter())


def test_what_pytest_offers_works(kernel: Path) -> None:
    # pytest-xdist, options of plug-ins that need pytest's cache and fault handler, and names of any length.
    (kernel / "pytest.ini").write_text(
        "[pytest]\naddopts = -n 2 --strict-config --lf\ncache_dir = .cache\nfaulthandler_timeout = 60\n"
    )
    tests = PASSING + (
        "@pytest.mark.parametrize('name', [f'{\"x\" * 1000}{n}' for n in range(3)])\n"
        "def test_long(name): assert '2' not in name\n"
        "def test_parts(subtests):\n"
        "    with subtests.test(): pytest.skip('not this part')\n"
        "    with subtests.test(): pass\n"
    )
    finished = run(kernel, tests)
    assert (finished.kind, finished.counts) == ("failed", (4, 1, 0, 0)), finished.errors
    assert not (kernel / ".cache").exists()
    (kernel / "tests" / "test_tiny.py").unlink()
    finished = run(kernel, LOADED + "def test_crash(): tiny.native().crash()\n")
    assert (finished.kind, finished.counts) == ("crashed", (0, 1, 0, 0)), finished.errors
    assert "test_tiny.py:9: " in finished.last


def test_nothing_is_left_when_the_command_is_killed(kernel: Path, tmp_path: Path) -> None:
    assert run(kernel, PASSING).returncode == 0
    mark = tmp_path / "left"
    tests = LOADED + (
        "def test_a():\n    import signal, subprocess, time\n"
        "    child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"    open({str(mark)!r}, 'w').write(f'{{child.pid}} {{os.getpid()}} {{folder}}')\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\n    time.sleep(600)\n"
    )
    finished = run(kernel, tests)
    # A report is on the last run: of one that has not ended there is none.
    assert (finished.returncode, finished.report) == (-9, None)
    child, program, folder = mark.read_text().split()
    deadline = time.monotonic() + 10
    while Path(folder).exists() or is_alive(int(child)) or is_alive(int(program)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
@needs("mounts")
def test_a_disk_that_is_full(kernel: Path, tmp_path: Path) -> None:
    (kernel / "build" / "torch-cpu" / "large").write_bytes(bytes(3_000_000))
    (kernel / "tests" / "test_tiny.py").write_text(PASSING)
    small = tmp_path / "small"
    small.mkdir()
    mounted = 'mount -t tmpfs -o size=1m none "$1" && export TMPDIR="$1" && shift && exec "$@"'
    finished = subprocess.run(
        ["unshare", "-m", "sh", "-c", mounted, "sh", small, sys.executable, "-I",
         ROOT / "scripts" / "kernel_actions", "test", kernel],
        cwd=kernel, env=environment(), text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 3
    assert re.search(r"the variant cannot be copied into .*No space left on device", finished.stderr)
    assert len(finished.stderr.splitlines()[-1]) < 600


def test_what_is_told_of_a_test_that_never_ran(tmp_path: Path) -> None:
    progress = Progress(tmp_path)
    progress.hear({"event": "collected", "tests": 3})
    for test in ("a", "b"):
        progress.hear({"event": "start", "test": test})
        progress.hear(
            {"event": "phase", "test": test, "when": "setup", "outcome": "passed", "seconds": 1e999}
        )
        progress.hear({"event": "finish", "test": test})
    assert (progress.count("passed"), progress.not_run) == (0, 3)
    progress.hear({"event": "phase", "test": "b", "when": "call", "outcome": "passed", "seconds": 2})
    assert (progress.count("passed"), progress.not_run) == (1, 2)
    assert progress.slowest[0].seconds == 2
    assert b'name="a"' not in progress.junit("x") and b'name="b"' in progress.junit("x")


def test_what_junit_says_of_a_run_without_tests(kernel: Path, tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    junit.write_text("<testsuites><testcase name='of the run before'/></testsuites>")
    assert run(kernel, None, "--junit", str(junit)).kind == "no-tests"
    assert re.search(r'<testcase .*name="no-tests".*<error message="[^"]* has no tests"', junit.read_text())
    assert "before" not in junit.read_text()
    (kernel / "kernel-actions.toml").write_text('[test.allow-untested]\n"torch-*" = "no card"\n')
    assert run(kernel, None, "--junit", str(junit)).returncode == 0
    assert '<skipped message="untested: no card"' in junit.read_text()
    finished = run(kernel, None, "--junit", str(tmp_path))
    assert (finished.returncode, finished.last) == (
        2, f"kernel-actions: {tmp_path}: --junit names a folder (name a file)"
    )  # fmt: skip


def test_a_reason_in_a_junit_report_of_pytests_own() -> None:
    report = TestReport("v", None, 1, 0, 0, 1.0, None, (), reason=Reason("changed", "v <changed>"))
    told = b'<testsuite><testcase name="a"/></testsuite>'
    assert junit_with_reason(told, replace(report, reason=None)) == told
    root = ElementTree.fromstring(junit_with_reason(told, report))
    assert [case.get("name") for case in root.iter("testcase")] == ["a", "changed"]


def test_what_pytest_prints_when_it_writes_no_report(tmp_path: Path) -> None:
    progress = Progress(tmp_path)
    seen = nix_tests._Verbose(progress, lambda line: None)
    for line in (
        "tests/a.py::test_a PASSED [ 9%]",
        "tests/a.py::test_b FAILED",
        "tests/a.py::test_c SKIPPED (x)",
    ):
        seen.partial(line.split()[0])
        seen.line(line)
    seen.partial("tests/a.py::test_d ")
    assert [progress.count(one) for one in ("passed", "failed", "skipped")] == [1, 1, 1]
    assert progress.running == ("tests/a.py::test_d",)


@pytest.mark.parametrize(
    ("told", "passed", "not_run"),
    [
        ("", 0, 0),
        # As pytest writes it with --setup-only, after pytest.exit(returncode=0), and with parts of tests.
        ('<testsuite tests="0"><testcase name="a"/></testsuite>', 0, 1),
        ('<testsuite tests="1"><testcase name="a"/><testcase/></testsuite>', 1, 1),
        ('<testsuite tests="5"><testcase name="a"/><testcase name="b" time="1e999"/></testsuite>', 2, 0),
        ('<testsuite><testcase name="a"><failure/></testcase><testcase name="a"/></testsuite>', 0, 0),
    ],
)
def test_what_pytest_reports_of_tests_that_it_did_not_run(
    tmp_path: Path, told: str, passed: int, not_run: int
) -> None:
    progress = Progress(tmp_path)
    read_junit(f"<testsuites>{told}</testsuites>".encode(), progress, nix_tests._STORE_PATH)
    assert (progress.count("passed"), progress.not_run) == (passed, not_run)
    assert all(case.seconds == 0 for case in progress.cases.values())


@pytest.mark.parametrize("number", ["²", "9" * 5000, "-1", "", "3x"])
def test_what_is_no_line_of_a_stack_or_a_log(tmp_path: Path, number: str) -> None:
    (tmp_path / "x.cu").touch()
    stack = f'Current thread 0x1:\n  File "y.py", line 3 in g\n  File "x.py", line {number} in f\n'
    assert stack_places(stack) == [["y.py", 3]]
    log = f"========= Invalid write\n=========     at f()+0x1 in x.cu:{number}\n"
    assert [(one.path, one.line) for one in sanitizer.parse(log, tmp_path)] == [(None, None)]
    assert sanitizer.trouble(f"========= ERROR SUMMARY: {number} errors\n", 0)


# What a test process may tell of itself in any place.
NASTY: list[object] = [
    "tests/test_tiny.py::test_it", "passed", "failed", "skipped", "call", "setup", "", "\n::error::forged",
    "\r::stop-commands::x", "::set-output name=a::b", "\x1b[31m", "\udcff", "##[error]x", "<b>|`*_[a](http://x)",
    "a\0b", "\u202eevil", "\u2028::error::x", "]]>", "\ufffe", "../../etc/passwd", "é" * 600, 1, None, [], {},
    True, 1e308, -1, 10**30, float("nan"), float("inf"), [["/etc/passwd", 1]], [["tests", -1], [None, "x"]],
]  # fmt: skip
KEYS = (
    "test", "path", "line", "when", "outcome", "seconds", "reason", "text", "output", "broken", "tests",
    "deselected", "places", "python", "pytest", "torch", "cuda", "kernels", "is_loaded", "status", "others",
)  # fmt: skip
EVENTS = (
    "start", "phase", "finish", "again", "collected", "collection-error", "skip", "internal-error",
    "start-session", "end", 1,
)  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_told_is_shown_as_text(
    kernel: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (kernel / "tests" / "test_tiny.py").touch()
    variant = built.read(kernel / "build" / "torch-cpu")
    random = Random(seed)
    for _ in range(100):
        progress = Progress(kernel)
        for _ in range(random.randint(0, 12)):
            facts = {key: random.choice(NASTY) for key in KEYS if random.random() < 0.6}
            progress.hear({"event": random.choice(EVENTS), **facts})
        said, code = str(random.choice(NASTY)), random.choice([0, 1, 2, 5, -9, -11, 134])
        limit: Literal["", "test", "run"] = random.choice(["", "", "test", "run"])
        ended = Ended(code, said, said, 0.1, limit, (said,))
        report = running._judged(
            kernel, manifest.load(kernel), variant, Request(),
            TestReport("torch-cpu", None, 0, 0, 0, 0.0, None, ()), Outcome(progress, ended, "current"),
        )  # fmt: skip
        json.dumps(report.as_json(), allow_nan=False)
        ElementTree.fromstring(junit_with_reason(progress.junit("x"), report))
        show.show("table", report, kernel, kernel / "report.json")
        summary = show.summary(report)
        for line in (capsys.readouterr().out + summary).split("\n"):
            line.encode()
            assert line.isprintable() and not line.startswith("::") and "##[" not in line
        assert "<b>" not in summary
        assert not report.is_passed or (progress.end or {})["is_loaded"] is True
