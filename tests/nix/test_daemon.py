"""Builds by a daemon that does not trust who asks for them, as on most runners."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nix.conftest import BUILDER, CPU, change, last_line, make_kernel, report
from tests.setup_nix.conftest import BASE, Private, nobody, private, python_of_nobody
from tests.tools import ask

__all__ = ["private"]  # the fixture


class Untrusted:
    """Somebody with a kernel, on a machine with a daemon."""

    def __init__(self, machine: Private) -> None:
        self.machine = machine
        machine.nix("store", "add-path", "--name", "source", str(BUILDER))
        self.kernel = make_kernel(machine.folder / "tiny")
        machine.command(as_nobody=True)  # makes a copy of the suite that everybody can read
        machine.home.chmod(0o777)
        machine.start_daemon()

    def build(self, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run ``build`` as that user, with these variables."""
        program = self.machine.folder / "suite" / "kernel-actions"
        subprocess.run(["chown", "-R", "65534:65534", self.kernel], check=True)
        environment = self.machine.environment | {"KA_PYTHON": python_of_nobody()} | variables
        return subprocess.run(
            [*nobody(), program, "build", "--backend-tool=nix", *arguments],
            cwd=self.kernel, env=environment, text=True, capture_output=True, timeout=120, check=False,
        )  # fmt: skip


@pytest.fixture
def untrusted(private: Private, monkeypatch: pytest.MonkeyPatch) -> Iterator[Untrusted]:
    ask("root")
    # This process commits to what is somebody else's.
    for name, value in (("COUNT", "1"), ("KEY_0", "safe.directory"), ("VALUE_0", "*")):
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    yield Untrusted(private)


def test_somebody_whom_the_daemon_does_not_trust_builds_and_exports(untrusted: Untrusted) -> None:
    ask("zstd")
    tests = untrusted.machine.home / "tests.nar.zst"
    finished = untrusted.build(f"--variant={CPU}", "--check-reproducible", "--export-tests", tests)
    assert finished.returncode == 0, finished.stderr
    said = report(untrusted.kernel, CPU)
    assert (said["origin"], said["sandbox"], said["reproducible"]) == ("built", True, True)
    # What it is not trusted with is no warning at each build.
    assert "restricted" not in finished.stderr and "untrusted" not in finished.stderr
    refused = untrusted.build("--import-tests", tests)
    assert refused.returncode == 3 and "lacks a valid signature" in last_line(refused)
    assert "trusted-users" in last_line(refused)


@pytest.mark.parametrize("sandbox", ["false", "relaxed"])
def test_it_is_the_daemon_s_sandbox_that_counts(untrusted: Untrusted, sandbox: str) -> None:
    # A kernel's flake can make derivations that leave a relaxed one, by __noChroot.
    untrusted.machine.conf.write_text(BASE.replace("sandbox = true", f"sandbox = {sandbox}"))
    untrusted.machine.start_daemon()
    # What the user has set is what Nix shows to the user, and nothing to the daemon.
    own = {"NIX_CONFIG": "sandbox = true"}
    refused = untrusted.build(f"--variant={CPU}", **own)
    assert refused.returncode == 3, refused.stderr
    assert "Nix would build without a sandbox (its daemon has none)" in last_line(refused)
    if sandbox == "false":
        change(untrusted.kernel, {"sees-the-machine": ""})
    finished = untrusted.build(f"--variant={CPU}", "--allow-unsandboxed", **own)
    assert finished.returncode == 0, finished.stderr
    said = report(untrusted.kernel, CPU)
    assert (said["builder"], said["sandbox"]) == ("nix-unsandboxed", False)
