"""Tests run as code that nobody has looked at: what they see, and what is left of them."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest
from kernel_actions.errors import WrongInput
from kernel_actions.test import confined, running
from kernel_actions.test.progress import Progress

from tests.test_command.helpers import LOADED, MARKED, PASSING, finish, is_alive, run, start

# What a hostile kernel might tell in place of events.
JUNK = [
    b"{",
    b"[]",
    b"null",
    b"\xff",
    b"[" * 100_000,
    b'{"event": 1}',
    b'{"event": "phase", "test": [], "seconds": {}}',
    b'{"event": "collected", "tests": -1e99}',
    b'{"event": "end", "is_loaded": 3}',
    b'{"event": "collection-error", "places": [[1, 2], ["\\u0000", 1]]}',
]


@pytest.mark.parametrize(
    "leave",
    [
        "pid = subprocess.Popen(['sleep', '600']).pid",
        # Twice forked, in a session of its own, with other variables and its parent gone.
        "pid = int(subprocess.check_output(['sh', '-c', 'env -i setsid sleep 600 >/dev/null & echo $!']))",
        # Deaf to being asked, and holding the output open.
        "pid = subprocess.Popen(['sh', '-c', 'trap \"\" TERM; echo on; while :; do sleep 1; done'], "
        "start_new_session=True).pid",
    ],
    ids=["a child", "an orphan", "a deaf one"],
)
def test_what_tests_leave_running_is_ended_and_named(kernel: Path, tmp_path: Path, leave: str) -> None:
    mark = tmp_path / "pid"
    tests = (
        PASSING
        + f"def test_leaves():\n    import subprocess\n    {leave}\n"
        + f"    open({str(mark)!r}, 'w').write(str(pid))\n"
    )
    started = time.monotonic()
    finished = run(kernel, tests, "--pytest-args=-s")
    assert time.monotonic() - started < 30
    assert (finished.returncode, finished.counts) == (0, (2, 0, 0, 0)), finished.errors
    assert not is_alive(int(mark.read_text()))
    assert finished.report is not None
    assert any("sleep" in name or name.startswith("sh") for name in finished.report["left_running"])
    assert "note: the tests left running, and it was ended: s" in finished.output


def test_a_hung_test_is_ended_with_its_children(kernel: Path, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    tests = LOADED + (
        "def test_hangs():\n    import subprocess, signal\n"
        "    child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"    open({str(mark)!r}, 'w').write(str(child.pid))\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    tiny.native().spin()\n"
    )
    finished = run(kernel, tests, "--test-time-limit", "2")
    assert (finished.returncode, finished.kind) == (1, "test-time-limit")
    assert not is_alive(int(mark.read_text()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_all_of_it(kernel: Path, tmp_path: Path, number: int) -> None:
    mark = tmp_path / "pid"
    (kernel / "tests" / "test_tiny.py").write_text(
        MARKED + "def test_a():\n    import subprocess, time\n"
        "    child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"    open({str(mark)!r}, 'w').write(str(child.pid))\n    time.sleep(600)\n"
    )
    process = start(kernel)
    deadline = time.monotonic() + 60
    while not mark.exists() or not mark.read_text():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    finished = finish(process, kernel)
    assert finished.returncode == 128 + number
    assert finished.last == f"kernel-actions: interrupted by {signal.Signals(number).name}"
    assert not is_alive(int(mark.read_text()))


def test_what_tests_see_of_the_environment(kernel: Path) -> None:
    tests = PASSING + (
        "def test_environment():\n"
        "    names = set(os.environ)\n"
        "    assert not [name for name in names if 'TOKEN' in name or 'SECRET' in name]\n"
        "    assert not names & {'HARMLESS', 'HF_HUB_DISABLE_TELEMETRY'}\n"
        "    assert not [name for name in names if name.startswith('GITHUB_') or name.startswith('KA_')]\n"
        "    assert os.environ['MY_SIZE'] == '3' and os.environ['CUDA_VISIBLE_DEVICES'] == '7'\n"
        "    assert not os.listdir(os.path.expanduser('~')), 'a home with tokens in it'\n"
        "    assert os.getsid(0) == os.getpid() or os.getsid(0) != os.getsid(os.getppid())\n"
        "    opened = [int(name) for name in os.listdir('/proc/self/fd') if int(name) > 2]\n"
        "    opened = [one for one in opened if os.path.exists(f'/proc/self/fd/{one}')]\n"
        "    assert not [one for one in opened if os.get_inheritable(one)]\n"
    )
    (kernel / "kernel-actions.toml").write_text('[test]\nenvironment-variables = ["MY_SIZE"]\n')
    finished = run(
        kernel, tests, HF_TOKEN="hf_x", KA_VERBOSE="1", MY_SECRET="x", HARMLESS="x", MY_SIZE="3",
        CUDA_VISIBLE_DEVICES="7", GITHUB_ENV="/tmp/x", GITHUB_TOKEN="x",
    )  # fmt: skip
    assert finished.returncode == 0, finished.output + finished.errors


def test_no_variable_with_a_secret_is_passed(tmp_path: Path) -> None:
    variables = {"MY_TOKEN": "x", "INDEX": "https://user:secret@host/simple", "HTTPS_PROXY": "http://u:p@h"}
    assert "HTTPS_PROXY" not in confined.variables(variables, tmp_path)
    for name in ("MY_TOKEN", "INDEX"):
        with pytest.raises(WrongInput, match=f"the variable {name} holds a secret"):
            confined.variables(variables, tmp_path, [name])
    assert "ABSENT" not in confined.variables(variables, tmp_path, ["ABSENT"])


def test_workflow_commands_are_not_obeyed(kernel: Path, tmp_path: Path) -> None:
    summary, outputs = tmp_path / "summary.md", tmp_path / "outputs"
    summary.touch()
    outputs.touch()
    tests = LOADED + (
        "def test_a():\n    print('::error::forged\\n##[error]forged')\n"
        "    assert 0, '::set-output name=passed::9 <script>|`x`'\n"
        "@pytest.mark.parametrize('name', ['**<b>|`\\n::error::forged', '\\x1b[31mred'])\n"
        "def test_b(name): assert 0, '![x](http://host/x)'\n"
    )
    finished = run(
        kernel, tests, "--format", "github", "--pytest-args=-s", GITHUB_ACTIONS="true",
        GITHUB_STEP_SUMMARY=str(summary), GITHUB_OUTPUT=str(outputs),
    )  # fmt: skip
    assert finished.returncode == 1
    lines = finished.errors.splitlines()
    stop = next(index for index, line in enumerate(lines) if line.startswith("::stop-commands::"))
    resume = lines.index(f"::{lines[stop].removeprefix('::stop-commands::')}::")
    commands = [line for line in [*lines[:stop], *lines[resume + 1 :]] if line.startswith("::")]
    assert all(re.match(r"::(group|endgroup|error title=|notice title=)", line) for line in commands)
    assert "##[" not in finished.errors and "\x1b" not in finished.errors + finished.output
    text = summary.read_text()
    assert "<script>" not in text and "<b>" not in text and "![x](" not in text and "\x1b" not in text
    # Failures come before the slowest tests.
    assert text.index("| failed |") < text.index("Slowest tests")
    assert "passed<<" in outputs.read_text() and "\nverdict<<" in outputs.read_text()


def test_what_is_told_may_be_anything(kernel: Path) -> None:
    # The tests share their process with what tells of them: they can spoil their own report, and no more.
    tests = f"JUNK = {JUNK!r}\n{PASSING}" + (
        "def test_liar():\n"
        "    import gc\n"
        "    teller = next(one for one in gc.get_objects() if type(one).__name__ == 'Teller')\n"
        "    for line in JUNK: os.write(teller._events, line + b'\\n')\n"
    )
    finished = run(kernel, tests)
    assert finished.returncode == 1 and finished.report is not None
    assert "Traceback" not in finished.errors and "unexpected" not in finished.errors


def test_too_much_is_told(tmp_path: Path) -> None:
    progress = Progress(tmp_path)
    events = confined._Events(progress)
    for _ in range(300):
        events.add(bytes(1_000_000))
    events.add(b'{"event": "end", "is_loaded": true, "status": 0}\n')
    assert progress.end is None and "more was told of the tests" in progress.trouble


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        ("", "no output"), ("a\n=== 1 passed in 1.0s ===\n\n", "1 passed in 1.0s"),
        ("E   OSError: gone\nmore", "OSError: gone"),
        ("usage: x\nERROR: not found: tests/x.py::test_a\n\nlast", "not found: tests/x.py::test_a"),
    ],
)  # fmt: skip
def test_what_pytest_said_last(tail: str, said: str) -> None:
    assert running.last_said(tail) == said


def test_no_core_files(kernel: Path) -> None:
    run(kernel, LOADED + "def test_a(): tiny.native().crash()\n")
    assert not list(kernel.rglob("core*"))
