"""Builds that cannot finish: nothing is lost, nothing is half-made, and one line says what happened."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.conftest import git
from tests.nix.conftest import (
    CPU,
    CPU_NEW,
    Machine,
    change,
    commit,
    ends,
    last_line,
    make_kernel,
    report,
    running,
    start_sleeping,
    wait_for,
)
from tests.tools import needs

WAIT = "while [ -e /signal/wait ]; do sleep 0.1; done\n"


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own with little space."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


# --- Memory ---


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 137\n", "with exit code 137"),
        ("exit 143\n", "with exit code 143"),
        # As the kernel's own killer does: the compiler alone, and its caller says so.
        ("echo 'g++: fatal error: Killed signal terminated program cc1plus'; exit 1\n", "exit code 1"),
    ],
    ids=["137", "143", "compiler killed"],
)  # fmt: skip
def test_a_kill_for_memory_is_named_with_the_settings_to_lower(
    machine: Machine, tmp_path: Path, script: str, said: str
) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    change(kernel, {"before-build.sh": script})
    machine.lines += ["max-jobs = 3", "cores = 7"]
    finished = machine.build(kernel, CPU)
    assert finished.returncode == 3, finished.stderr
    last = last_line(finished)
    assert f"the memory did not suffice for {CPU}" in last and said in last
    assert "max-jobs = 3, cores = 7 now" in last and "nvcc takes about 5 GB" in last


def test_a_builder_that_is_killed_is_named(machine: Machine, tmp_path: Path) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    child, mark = start_sleeping(machine, kernel)
    (sleeper,) = running(mark)
    builder = int(Path(f"/proc/{sleeper}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(builder, signal.SIGKILL)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 3, said
    assert "was killed (due to signal 9 (Killed))" in said.splitlines()[-1]


# --- Disks ---


@needs("mounts")
def test_a_full_store_is_named(tmp_path: Path) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    script = 'mkdir -p "$out/$variant"; head -c 30000000 /dev/zero > "$out/$variant/large"\n'
    change(kernel, {"after-install.sh": script})
    with small_disk(tmp_path / "small", "12m") as store:
        machine = Machine(tmp_path / "machine", store)
        finished = machine.build(kernel, CPU)
    assert finished.returncode == 3, finished.stderr
    last = last_line(finished)
    assert "the disk is full: the store, " in last and "min-free" in last
    assert not (kernel / "build" / CPU).exists()


@needs("mounts")
def test_a_full_output_is_named_and_the_variant_that_was_there_stays(
    machine: Machine, tmp_path: Path
) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    with small_disk(tmp_path / "small", "2m") as output:
        first = machine.build(kernel, CPU, options=[f"--output={output}"])
        assert first.returncode == 0, first.stderr
        before = (output / CPU / "metadata.json").read_bytes()
        change(kernel, {"after-install.sh": 'head -c 3000000 /dev/zero > "$out/$variant/large"\n'})
        finished = machine.build(kernel, CPU, options=[f"--output={output}"])
        assert finished.returncode == 3
        assert f"the disk of {output} is full" in last_line(finished)
        assert (output / CPU / "metadata.json").read_bytes() == before
        assert not (output / ".local" / f"{CPU}.new").exists()


@needs("mounts")
def test_a_store_that_cannot_be_written_is_one_line(machine: Machine, tmp_path: Path) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    subprocess.run(["mount", "--bind", machine.store, machine.store], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", machine.store], check=True)
        finished = machine.build(kernel, CPU)
    finally:
        subprocess.run(["umount", "--lazy", machine.store], check=True)
    assert finished.returncode == 3, finished.stderr
    assert "Nix cannot use its store: " in last_line(finished) and "/nix/" in last_line(finished)


# --- Sandbox ---


@needs("mounts")
def test_where_no_sandbox_can_be_made_nothing_is_built(machine: Machine, tmp_path: Path) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    # The setting that setup-nix writes is not even needed.
    machine.lines += ["sandbox-fallback = true"]
    (tmp_path / "zero").write_text("0\n")
    script = f"mount --bind {tmp_path}/zero /proc/sys/user/max_user_namespaces && exec setpriv "
    script += '--bounding-set=-sys_admin --inh-caps=-sys_admin "$@"'
    limited = ["unshare", "--mount", "sh", "-c", script, "sh"]
    finished = machine.build(kernel, CPU, before=limited)
    assert finished.returncode == 3, finished.stderr
    assert "Nix cannot make a sandbox here" in last_line(finished)


# --- Time, signals, and two at once ---


def test_the_time_limit_keeps_what_is_finished_and_the_next_run_finds_it(
    machine: Machine, tmp_path: Path
) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    change(kernel, {"before-build.sh": f'if [ "$variant" = {CPU_NEW} ]; then\n{WAIT}fi\n'})
    (machine.signal / "wait").touch()
    started = time.monotonic()
    first = machine.build(kernel, CPU, CPU_NEW, options=["--time-limit=12s"])
    assert first.returncode == 3, first.stderr
    assert time.monotonic() - started < 30
    last = last_line(first)
    assert f"the time limit of 12 s is up: built 1 of 2 variants; left: {CPU_NEW}" in last
    assert "run again" in last and CPU in first.stdout
    assert not (kernel / "build" / CPU_NEW).exists()
    (machine.signal / "wait").unlink()
    second = machine.build(kernel, CPU, CPU_NEW)
    assert second.returncode == 0, second.stderr
    assert report(kernel, CPU)["origin"] == "present" and report(kernel, CPU_NEW)["origin"] == "built"
    wrong = machine.build(kernel, CPU, options=["--time-limit=soon"])
    assert wrong.returncode == 2 and "is no duration" in last_line(wrong)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_in_the_middle_ends_nix_and_leaves_nothing_half_made(
    machine: Machine, tmp_path: Path, number: int, code: int
) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    child, mark = start_sleeping(machine, kernel)
    child.send_signal(number)
    _, said = child.communicate(timeout=30)
    assert child.returncode == code, said
    assert said.strip().splitlines()[-1] == f"kernel-actions: interrupted by {signal.Signals(number).name}"
    assert ends(mark, within=5)
    assert sorted(path.name for path in (kernel / "build").iterdir()) == [".gitignore", ".local"]
    change(kernel, {"before-build.sh": ""})
    again = machine.build(kernel, CPU)
    assert again.returncode == 0, again.stderr


def test_two_at_once_build_once(machine: Machine, tmp_path: Path) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    change(kernel, {"before-build.sh": WAIT})
    (machine.signal / "wait").touch()
    children = [machine.start(kernel, "--backend-tool=nix", f"--variant={CPU}") for _ in range(2)]
    # Another checkout of the same commit, which shares the store alone.
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", kernel, clone], check=True)
    children.append(machine.start(clone, "--backend-tool=nix", f"--variant={CPU}"))
    time.sleep(3)
    (machine.signal / "wait").unlink()
    said = [child.communicate(timeout=120)[1] for child in children]
    assert [child.returncode for child in children] == [0, 0, 0], said
    assert sum(f"Another command is building {CPU}: waiting for it" in text for text in said) == 1
    assert sum("Building cpp object" in text for text in said) == 1
    assert (kernel / "build" / CPU).is_dir() and (clone / "build" / CPU).is_dir()


# --- What is told before Nix is started ---


def test_what_nix_needs_of_the_repository(machine: Machine, tmp_path: Path) -> None:
    kernel = make_kernel(tmp_path / "tiny")

    def refusal(code: int) -> str:
        finished = machine.build(kernel, CPU)
        assert finished.returncode == code, finished.stderr
        assert len(finished.stderr.strip().splitlines()) == 1
        return last_line(finished)

    (kernel / "flake.lock").write_text((kernel / "flake.lock").read_text() + "\n")
    assert "flake.lock: is not as it was committed (commit it)" in refusal(2)
    git(kernel, "rm", "--quiet", "--force", "--cached", "flake.lock")
    git(kernel, "commit", "--quiet", "--message=no lock")
    assert (
        "flake.lock: is not in git, and Nix sees only what is (git add flake.lock, and commit it)"
        in refusal(2)
    )
    (kernel / "flake.lock").unlink()
    assert "flake.lock: there is no such file (run `nix flake lock`, and commit it)" in refusal(2)
    shutil.rmtree(kernel / ".git")
    assert "is not in a git repository with a commit" in refusal(2)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "git"):
        (programs / name).symlink_to(shutil.which(name) or "")
    machine.variables = {"PATH": str(programs)}
    assert "Nix is not installed (use the action setup-nix before, or --backend-tool local)" in refusal(3)


def test_a_submodule_that_the_kernel_does_not_read_is_no_concern(machine: Machine, tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / "scale.h").write_text("#define SCALE 2\n")
    git(library, "init", "--quiet", "--initial-branch=main")
    commit(library)
    kernel = make_kernel(tmp_path / "tiny")
    allow = ("-c", "protocol.file.allow=always")
    git(kernel, *allow, "submodule", "--quiet", "add", str(library), "other/library")
    commit(kernel)
    # Neither here nor by Nix is it fetched, which git forbids for a file's address.
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", kernel, clone], check=True)
    finished = machine.build(clone, CPU)
    assert finished.returncode == 0, finished.stderr


def test_a_submodule_that_was_not_fetched(machine: Machine, tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / "scale.h").write_text("#define SCALE 2\n")
    git(library, "init", "--quiet", "--initial-branch=main")
    commit(library)
    kernel = make_kernel(tmp_path / "tiny")
    change(
        kernel,
        {"csrc/luma.cpp": f'#include "../library/scale.h"\n{(kernel / "csrc" / "luma.cpp").read_text()}'},
    )
    git(kernel, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "library")
    commit(kernel)
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", kernel, clone], check=True)
    finished = machine.build(clone, CPU)
    assert finished.returncode == 2
    assert "the submodule library was not fetched (git submodule update --init library, or" in last_line(
        finished
    )
    # One that was is built in.
    (tmp_path / "gitconfig").write_text("[protocol.file]\n\tallow = always\n")
    machine.variables = {
        "GIT_CONFIG_GLOBAL": str(tmp_path / "gitconfig"),
        # A part of these has a name of a secret's, and the rest alone would be an error to git.
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "somebody",
    }  # fmt: skip
    finished = machine.build(kernel, CPU)
    assert finished.returncode == 0, finished.stderr


def test_a_shallow_clone_is_enough(machine: Machine, tmp_path: Path) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    change(kernel, {"csrc/more.h": ""})
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{kernel}", clone], check=True)
    finished = machine.build(clone, CPU)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.slow
def test_who_waits_for_another_build_does_not_wait_longer_than_it_may(
    machine: Machine, tmp_path: Path
) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    change(kernel, {"before-build.sh": f"touch /signal/begun\n{WAIT}"})
    (machine.signal / "wait").touch()
    first = machine.start(kernel, "--backend-tool=nix", f"--variant={CPU}")
    wait_for(machine.signal / "begun")
    second = machine.build(kernel, CPU, options=["--time-limit=2s"])
    (machine.signal / "wait").unlink()
    assert second.returncode == 3, second.stderr
    assert f"Another command is building {CPU}: waiting for it" in second.stderr
    assert f"the time limit of 2 s is up: built 0 of 1 variant; left: {CPU}" in last_line(second)
    _, said = first.communicate(timeout=60)
    assert first.returncode == 0, said
