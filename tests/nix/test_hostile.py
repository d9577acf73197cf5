"""Kernels of strangers, built by Nix: nothing of theirs gets out of the sandbox, into a log that is obeyed,
or into a file that is not the build's."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.integration.conftest import git
from tests.nix.conftest import (
    CPU,
    Machine,
    change,
    ends,
    last_line,
    make_kernel,
    report,
    running,
    start_sleeping,
)
from tests.tools import program


def test_what_a_flake_says_of_nix_counts_for_nothing(machine: Machine, tmp_path: Path) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/reached\n")
    hook.chmod(0o755)
    settings = f'{{ post-build-hook = "{hook}"; sandbox = false; sandbox-paths = "/"; }}'
    text = (kernel / "flake.nix").read_text()
    change(kernel, {"flake.nix": text.replace("outputs =", f"nixConfig = {settings};\n  outputs =", 1)})
    # Who set this wanted the caches of flakes, and not their programs.
    machine.lines += ["accept-flake-config = true"]
    finished = machine.build(kernel, CPU)
    assert finished.returncode == 0, finished.stderr
    assert not (tmp_path / "reached").exists()
    assert "ignoring untrusted flake configuration setting 'post-build-hook'" in finished.stderr


@pytest.mark.parametrize("name", [f"build/.local/{CPU}.nix.log", "build/.local", "build", "tars"])
def test_nothing_is_written_through_a_link_that_comes_with_the_kernel(
    machine: Machine, tmp_path: Path, name: str
) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    target = tmp_path / "of-the-runner"
    target.mkdir()
    (target / "profile").write_text("as it was")
    (kernel / name).parent.mkdir(parents=True, exist_ok=True)
    (kernel / name).symlink_to(target / "profile" if "." in Path(name).name[1:] else target)
    git(kernel, "add", "--force", name)
    git(kernel, "commit", "--quiet", "--message=a gift")
    finished = machine.build(kernel, CPU, options=["--archive=tars"])
    assert finished.returncode == 2, finished.stderr
    assert f"{name}: git tracks it, and --" in last_line(finished)
    assert [path.name for path in target.iterdir()] == ["profile"]
    assert (target / "profile").read_text() == "as it was"


def test_nobody_obeys_what_a_build_prints(machine: Machine, tmp_path: Path) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    script = r"""
printf '::error::told\n  ::add-mask::a\n##[error]told\ncr\r::warning::told\n'
printf '\033[31mred\033[0m \033c \302\233J\n'
printf 'no UTF-8: \377\n%5000s:1: error: long\n%5000s(2): error: long\n' a b
head -c 3000000 /dev/zero | tr '\0' /; echo
echo "/build/source/csrc/luma.cpp:2:1: error: ::error::told%0A::set-output name=a::b"
exit 1
"""
    change(kernel, {"before-build.sh": script})
    # A step that calls the command by itself, in a run that somebody debugs: all is shown.
    machine.variables = {"GITHUB_ACTIONS": "true", "RUNNER_DEBUG": "1", "GITHUB_WORKSPACE": str(kernel)}
    finished = machine.build(kernel, CPU)
    assert finished.returncode == 1, finished.stderr
    obeyed, resume = [], ""
    for line in finished.stderr.splitlines():
        text = line.strip()
        if resume and text == f"::{resume}::":
            resume = ""
        elif text.startswith("::stop-commands::"):
            resume = text.removeprefix("::stop-commands::")
        elif not resume and text.startswith("::"):
            obeyed.append(text)
    place = "::error title=kernel-actions,file=csrc/luma.cpp,line=2,col=1::"
    assert [line[: len(place)] for line in obeyed if "luma" in line] == [place]
    assert "%250A::set-output" in obeyed[-1]
    assert all(line.startswith("::error title=kernel-actions") for line in obeyed)
    assert "##[" not in finished.stderr and not set(finished.stderr) & {"\x1b", "\x9b", "\r"}
    assert "red \\x1bc \\x9bJ" in finished.stderr and "no UTF-8: \ufffd" in finished.stderr
    # The last lines that are shown again are cut.
    assert "/" * 20_000 in finished.stderr and finished.stderr.count("/" * 1001) < 30


def test_a_build_that_prints_without_end_is_ended(machine: Machine, tmp_path: Path) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    change(kernel, {"before-build.sh": "yes\n"})
    machine.lines += ["max-build-log-size = 200000"]
    finished = machine.build(kernel, CPU)
    assert finished.returncode == 1, finished.stderr[-2000:]
    assert "killed after writing more than 200000 bytes of log output" in finished.stderr
    assert (kernel / "build" / ".local" / f"{CPU}.nix.log").stat().st_size < 5_000_000


@pytest.mark.slow
def test_a_million_lines_take_little_memory(machine: Machine, tmp_path: Path) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    change(kernel, {"before-build.sh": "seq -f 'line %.0f of a million' 1000000\n"})
    limited = ["prlimit", f"--data={400_000_000}"]
    finished = machine.build(kernel, CPU, before=limited)
    assert finished.returncode == 0, finished.stderr[-1000:]
    with (kernel / "build" / ".local" / f"{CPU}.nix.log").open() as file:
        assert sum("of a million" in line for line in file) == 1_000_000


def test_nix_that_is_killed_is_named_as_memory(machine: Machine, tmp_path: Path) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    child, mark = start_sleeping(machine, kernel)
    # As the kernel's killer does, and as it does most often while Nix evaluates.
    os.kill(_child_of(child.pid), signal.SIGKILL)
    _, said = child.communicate(timeout=60)
    for sleeper in running(mark):  # which Nix could not end
        os.kill(int(sleeper), signal.SIGKILL)
    assert child.returncode == 3, said
    assert "did not suffice" in said and "Nix itself was killed (signal 9)" in said


def test_nothing_goes_on_when_the_command_is_killed(machine: Machine, tmp_path: Path) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    child, mark = start_sleeping(machine, kernel)
    child.kill()
    child.communicate(timeout=60)
    assert ends(mark, within=20)
    change(kernel, {"before-build.sh": ""})
    again = machine.build(kernel, CPU)
    assert again.returncode == 0, again.stderr


def _child_of(parent: int) -> int:
    """The process that another one started."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                return int(path.parent.name)
        except OSError:
            continue
    raise AssertionError("it has started none")


def test_passwords_in_addresses_are_shown_nowhere(machine: Machine, tmp_path: Path) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    # All of Nix's settings are in this variable, and hold although there is a password in them.
    machine.lines = ["substituters = http://me:hunter2@127.0.0.1:9/", "download-attempts = 1"]
    finished = machine.build(kernel, CPU, options=["--archive", tmp_path / "tars"])
    assert finished.returncode == 0, finished.stderr
    assert "Nix warns: unable to download 'http://***@127.0.0.1:9/" in finished.stderr
    written = [path for path in tmp_path.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    assert "hunter2" not in finished.stdout + finished.stderr and written == []
    # Arguments of programs are seen by all users.
    refused = machine.build(kernel, CPU, options=["--push-to=https://me:hunter2@cache.example.org"])
    assert refused.returncode == 2 and "hunter2" not in refused.stderr
    assert "has a password in it: https://***@cache.example.org (give it by push-token" in last_line(refused)


@pytest.mark.parametrize("name", ["../../../x", ".local"])
def test_a_name_that_is_no_variant_s_is_no_folder(machine: Machine, tmp_path: Path, name: str) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    finished = machine.build(kernel, name)
    assert finished.returncode == 2 and "which is no name of a variant" in last_line(finished)
    assert not list(tmp_path.rglob("*.nix.log"))


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--output=csrc", "--output is csrc, and csrc is a folder of the kernel's sources"),
        ("--output=torch-ext/x", "and torch-ext is a folder of the kernel's sources"),
        (f"--archive=build/{CPU}", "which is a variant's own folder"),
        ("--archive=tests", "and tests is a folder of the kernel's sources"),
    ],
)
def test_a_folder_that_is_the_kernel_s_own_is_not_built_into(
    machine: Machine, tmp_path: Path, option: str, said: str
) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    finished = machine.build(kernel, CPU, options=[option])
    assert finished.returncode == 2 and said in last_line(finished)
    assert git(kernel, "status", "--porcelain", "--ignored") == ""


@pytest.mark.parametrize("folder", ["new\nline", "100%25 'a#b?c=d&e"])
def test_a_kernel_is_built_wherever_it_is(machine: Machine, tmp_path: Path, folder: str) -> None:
    kernel = make_kernel(tmp_path / folder)
    finished = machine.build(kernel, CPU)
    assert finished.returncode == 0, finished.stderr


def test_garbage_that_is_collected_meanwhile_is_not_the_result(machine: Machine, tmp_path: Path) -> None:
    """``setup-nix`` has Nix collect garbage when the disk is nearly full, which another build may begin."""
    kernel = make_kernel(tmp_path / "tiny")
    nix = tmp_path / "programs" / "nix"
    nix.parent.mkdir()
    collect = 'case "$*" in *internal-json*) "$real" store gc >/dev/null 2>&1;; esac; exit $code'
    nix.write_text(f'#!/bin/sh\nreal={program("nix")}\n"$real" "$@"; code=$?\n{collect}\n')
    nix.chmod(0o755)
    machine.variables = {"PATH": f"{nix.parent}:{os.environ['PATH']}"}
    finished = machine.build(kernel, CPU)
    assert finished.returncode == 0, finished.stderr
    # What it held on to is let go.
    machine.nix("--extra-experimental-features", "nix-command", "store", "gc")
    assert not machine.real(report(kernel, CPU)["store_path"]).exists()
    assert not list((kernel / "build" / ".local").glob("*.root"))


@pytest.mark.slow
def test_a_time_limit_in_the_second_build_loses_nothing(machine: Machine, tmp_path: Path) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    script = "if [ -e /signal/second ]; then sleep 100; fi; : > /signal/second\n"
    change(kernel, {"before-build.sh": script})
    given = ["--check-reproducible", "--time-limit=12s", "--archive", tmp_path / "tars"]
    finished = machine.build(kernel, CPU, options=[*given, f"--push-to=file://{tmp_path}/cache"])
    assert finished.returncode == 3, finished.stderr
    assert f"built 1 of 1 variant; left: {CPU}, a second time" in last_line(finished)
    assert report(kernel, CPU)["pushed"] and (tmp_path / "tars" / f"{CPU}.tar").is_file()
    assert report(kernel, CPU)["reproducible"] is None
