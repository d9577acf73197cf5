"""A small kernel of Python alone, built, whose work can be set; and a way to run its benchmarks."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import ROOT, kernel_actions
from tests.test_command.helpers import BUILD

# A loop of Python's: bound by instructions, in one thread, so that a busy machine disturbs it little.
CODE = """\
def work(x):
    total = 0
    for number in range({loops}):
        total += number
    return x + 1
"""
HEAD = "import torch\nfrom kernels.benchmark import Benchmark\n\n\n"
BENCHMARK = (
    HEAD
    + """\
class Tiny(Benchmark):
    seed = 0

    def setup(self):
        self.x = torch.rand(1000)

    def benchmark_loop(self):
        self.out = self.kernel.work(self.x)

    def verify_loop(self):
        return self.x + 1

    def bytes_moved(self):
        return 8000
"""
)
LOOPS = 40_000


def write_variant(folder: Path, loops: int = LOOPS, *, id: str = "_tiny_cpu_1", code: str = "") -> Path:
    """A built variant ``torch-cpu`` in ``folder``."""
    variant = folder / "torch-cpu"
    variant.mkdir(parents=True, exist_ok=True)
    metadata = {
        "name": "tiny",
        "id": id,
        "version": 1,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": "cpu"},
    }
    (variant / "metadata.json").write_text(json.dumps(metadata))
    (variant / "__init__.py").write_text(code or CODE.format(loops=loops))
    return variant


class Kernel:
    """A kernel's folder, and what its benchmarks say."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.build = root / "build"
        self.report = self.build / "torch-cpu.benchmark-report.json"
        root.mkdir(parents=True)
        (root / "build.toml").write_text(BUILD)
        write_variant(self.build)
        self.write(BENCHMARK)

    def write(self, text: str, name: str = "benchmark_tiny.py") -> Path:
        """Write a benchmark file."""
        path = self.root / "benchmarks" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def run(self, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the command."""
        return kernel_actions(
            ROOT, "benchmark", str(self.root), *map(str, arguments), variables=variables, timeout=600
        )

    def read(self) -> dict[str, Any]:
        """The report."""
        report: dict[str, Any] = json.loads(self.report.read_text())
        return report


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    """A kernel with one workload, in a folder that has what paths may have."""
    return Kernel(tmp_path / "a: kernel")


@pytest.fixture
def baseline(tmp_path: Path) -> Callable[..., Path]:
    """Makes a folder with another build of the kernel, the same code unless told otherwise."""

    def make(loops: int = LOOPS, **changed: str) -> Path:
        write_variant(tmp_path / "baseline", loops, **{"id": "_tiny_cpu_0", **changed})
        return tmp_path / "baseline"

    return make
