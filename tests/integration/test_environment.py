"""Environments: made once, by one of several commands at a time, and again after a kill."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from tests.integration.conftest import ROOT, environment

MAKE = """
import sys
sys.path.insert(0, {scripts!r})
from pathlib import Path
from kernel_actions.app import venv
from kernel_actions.cli import guarded
lock = venv.Packages("packages of tiny.txt", lock=Path(sys.argv[2]))
plan = venv.Plan(Path(sys.argv[1]), ((lock,),), ("tiny",))
sys.exit(guarded(lambda: print(venv.make(plan)) or 0))
"""


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """A lock file with one package, a wheel made here."""
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "x = 1\n")
        archive.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr(
            "tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    path = tmp_path / "tiny.txt"
    path.write_text(f"tiny @ file://{wheel} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    return path


def _start(folder: Path, lock: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-I", "-c", MAKE.format(scripts=str(ROOT / "scripts")), folder, lock],
        env=environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _import(python: str) -> int:
    return subprocess.run([python.strip(), "-I", "-c", "import tiny"], check=False).returncode


def test_two_at_once_make_one_environment(tmp_path: Path, lock: Path) -> None:
    first, second = (_start(tmp_path / "environments" / "one.ready", lock) for _ in range(2))
    (first_out, first_err), (second_out, second_err) = first.communicate(), second.communicate()
    assert (first.returncode, second.returncode) == (0, 0), first_err + second_err
    assert first_out == second_out
    assert _import(first_out) == 0
    assert (first_err + second_err).count("Making the environment") == 1
    assert (first_err + second_err).count("waiting for it") == 1


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        ),
    ],
)
def test_the_next_command_makes_it_again_after_a_kill(tmp_path: Path, lock: Path, number: int) -> None:
    mark = tmp_path / "environments" / "one.ready"
    killed = _start(mark, lock)
    deadline = time.monotonic() + 60
    while not list(mark.parent.glob("one.*.d/bin")):
        assert killed.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(killed.pid, number)
    _, errors = killed.communicate()
    assert killed.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    assert "Traceback" not in errors
    assert not mark.exists()
    again = _start(mark, lock)
    out, errors = again.communicate()
    assert again.returncode == 0, errors
    assert _import(out) == 0
    # What the killed command left behind is gone, and its installer with it.
    assert len(list(mark.parent.glob("one.*.d"))) == 1
    time.sleep(1)
    assert len(list(mark.parent.glob("one.*.d"))) == 1


def test_an_environment_whose_interpreter_is_gone_is_made_again(tmp_path: Path, lock: Path) -> None:
    mark = tmp_path / "environments" / "one.ready"
    made, _ = _start(mark, lock).communicate()
    Path(made.strip()).unlink()
    out, errors = _start(mark, lock).communicate()
    assert "Making the environment" in errors
    assert _import(out) == 0


def test_a_package_that_does_not_match_its_hash_is_one_line(tmp_path: Path, lock: Path) -> None:
    lock.write_text(lock.read_text()[:-65] + "0" * 64 + "\n")
    process = _start(tmp_path / "environments" / "one.ready", lock)
    _, errors = process.communicate()
    assert process.returncode == 3
    assert "cannot install packages of tiny.txt" in errors.splitlines()[-1]
    assert "Traceback" not in errors
