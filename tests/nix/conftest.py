"""Tests that build with real Nix, in a sandbox, each with a store of its own.

The kernel's flake is locked to the builder of Hugging Face, which Nix finds in the store by its hash, as it
would one that was fetched; what is there is the fixture in ``builder/``. So the planner knows the variants,
and nothing needs a network.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import ROOT, environment, git
from tests.tools import needs, optional

BUILDER = Path(__file__).parent / "builder"
REVISION = "8ac69fc542a4306eade0759ef7c45b4f2ae57df0"
CPU = "torch212-cxx11-cpu-x86_64-linux"
CPU_NEW = "torch213-cxx11-cpu-x86_64-linux"
CUDA = "torch213-cxx11-cu130-x86_64-linux"
CONFIGURATION = """\
experimental-features = nix-command flakes
build-users-group =
sandbox = true
sandbox-fallback = false
sandbox-paths = /bin /usr /lib /lib64 /signal={signal}
"""
FILES = {
    "build.toml": """\
[general]
name = "tiny"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu", "cuda"]

[general.hub]
repo-id = "kernel-actions/tiny"

[torch]
src = ["torch-ext/torch_binding.cpp"]

[kernel.tiny_cpu]
backend = "cpu"
depends = ["torch"]
src = ["csrc/luma.cpp", "csrc/luma.h"]

[kernel.tiny_cuda]
backend = "cuda"
depends = ["torch"]
src = ["csrc/luma.cpp", "csrc/luma.h", "csrc/scale.cu"]
""",
    "torch-ext/torch_binding.cpp": "// The fixture links no operators.\n",
    "torch-ext/tiny/__init__.py": '"""A kernel."""\n',
    "tests/test_tiny.py": "def test_nothing_is_selected():\n    pass\n",
    "csrc/luma.h": """\
#pragma once
#include <cstdint>
inline uint8_t luma(uint8_t red, uint8_t green, uint8_t blue) {
  return static_cast<uint8_t>((299u * red + 587u * green + 114u * blue + 500u) / 1000u);
}
""",
    "csrc/luma.cpp": """\
#include "luma.h"
#include <ATen/Parallel.h>

extern "C" void tiny_luma(const uint8_t* rgb, uint8_t* gray, int64_t pixels) {
  at::parallel_for(0, pixels, 32768, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) gray[i] = luma(rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2]);
  });
}
""",
    "csrc/scale.cu": """\
__global__ void scale(float* values, int count) {
  for (int i = 0; i < count; ++i) values[i] *= 2;
}
""",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("integration")
            item.add_marker(needs("nix"))


class Machine:
    """A machine with Nix: its store, its settings and its home, all in one folder."""

    def __init__(self, folder: Path, store: Path | None = None) -> None:
        self.folder = folder
        self.store = store or folder / "root"
        self.signal = folder / "signal"
        for path in (self.signal, folder / "home", self.store):
            path.mkdir(parents=True, exist_ok=True)
        self.lines = ["substituters ="]
        self.variables: dict[str, str] = {}
        # Where a flake that is locked to the builder finds it.
        self.nix("store", "add-path", "--name", "source", BUILDER)

    @property
    def configuration(self) -> str:
        """The whole of nix.conf."""
        return CONFIGURATION.format(signal=self.signal) + "\n".join(self.lines)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a user of this machine."""
        own = {
            "HOME": str(self.folder / "home"),
            "XDG_CACHE_HOME": str(self.folder / "home" / ".cache"),
            "NIX_REMOTE": f"local?root={self.store}",
            "NIX_CONFIG": self.configuration,
            "NIX_CONF_DIR": str(self.folder),
        }
        return environment(**own | self.variables)

    def nix(self, *arguments: str | Path) -> str:
        """What a command of Nix prints."""
        return subprocess.check_output(["nix", *arguments], env=self.environment, text=True).strip()

    def real(self, path: str) -> Path:
        """Where a store path of this machine is."""
        return Path(f"{self.store}{path}")

    def start(
        self, kernel: Path, *arguments: str | Path, before: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        """Start ``kernel-actions build`` in the kernel's folder."""
        return subprocess.Popen(
            [*before, ROOT / "scripts" / "kernel-actions", "build", *arguments],
            cwd=kernel, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def build(
        self, kernel: Path, *variants: str, options: Sequence[str | Path] = (), before: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run ``kernel-actions build`` by Nix for ``variants``."""
        named = [f"--variant={' '.join(variants)}"] if variants else []
        child = self.start(kernel, "--backend-tool=nix", *named, *options, before=before)
        out, err = child.communicate(timeout=240)
        return subprocess.CompletedProcess(child.args, child.returncode, out, err)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine whose store is empty but for the builder."""
    return Machine(tmp_path / "machine")


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A kernel in a repository with one commit; its path has a space and a letter beyond ASCII."""
    return make_kernel(tmp_path / "of Jürgen" / "tiny")


def make_kernel(folder: Path, files: Mapping[str, str] = FILES) -> Path:
    """A kernel in a repository of its own, with one commit."""
    write(folder, files)
    shutil.copy(ROOT / "flake.nix", folder)
    write_lock(folder)
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder)
    return folder


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write files by their relative paths."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def write_lock(folder: Path) -> None:
    """A flake.lock for the builder's revision, with the fixture's hash, where Nix is there to tell it."""
    nix = optional("nix")
    found = f"sha256-{'A' * 43}="
    if nix is not None:
        found = subprocess.check_output(
            [nix, "--extra-experimental-features", "nix-command", "hash", "path", BUILDER], text=True
        ).strip()
    locked = {
        "type": "github", "owner": "huggingface", "repo": "kernels", "rev": REVISION,
        "narHash": found, "lastModified": 1787250351,
    }  # fmt: skip
    original = {"type": "github", "owner": "huggingface", "repo": "kernels"}
    nodes = {
        "kernel-builder": {"locked": locked, "original": original},
        "root": {"inputs": {"kernel-builder": "kernel-builder"}},
    }
    (folder / "flake.lock").write_text(json.dumps({"nodes": nodes, "root": "root", "version": 7}, indent=2))


def commit(folder: Path) -> None:
    """Commit all that is in the folder."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=feat: all")


def change(folder: Path, files: Mapping[str, str]) -> None:
    """Write files and commit them."""
    write(folder, files)
    commit(folder)


def report(kernel: Path, variant: str) -> dict[str, Any]:
    """The report of a build."""
    found: dict[str, Any] = json.loads((kernel / "build" / f"{variant}.build-report.json").read_text())
    return found


def last_line(finished: subprocess.CompletedProcess[str]) -> str:
    """The error of a command: its last line."""
    return finished.stderr.strip().splitlines()[-1]


def start_sleeping(machine: Machine, kernel: Path) -> tuple[subprocess.Popen[str], str]:
    """Start a build that sleeps in its sandbox, and wait until it does: the command, and for ``running`` how
    long it sleeps."""
    # A number of seconds that no other process sleeps.
    mark = f"3{os.getpid()}.{time.time_ns() % 10**6}"
    change(kernel, {"before-build.sh": f"touch /signal/begun; sleep {mark}\n"})
    child = machine.start(kernel, "--backend-tool=nix", f"--variant={CPU}")
    wait_for(machine.signal / "begun")
    assert running(mark)
    return child, mark


def wait_for(path: Path) -> None:
    """Wait until a build has made this file."""
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.2)


def running(mark: str) -> list[str]:
    """The processes that sleep so long."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == f"sleep\0{mark}\0".encode():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def ends(mark: str, within: float) -> bool:
    """Whether the processes that sleep so long end ``within`` seconds."""
    deadline = time.monotonic() + within
    while running(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not running(mark)
