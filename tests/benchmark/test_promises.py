"""What the benchmark is for: a slowdown of 10 % is caught, unchanged code passes ten times in a row.

Real runs, on whatever machine this is and however busy it is, against a build of another name. The kernel
is a loop of instructions. `python -m tests.benchmark.test_promises` prints how often each outcome was seen.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.benchmark.conftest import LOOPS, Kernel, write_variant


def test_a_slowdown_of_ten_percent_is_caught(kernel: Kernel, baseline: Callable[..., Path]) -> None:
    write_variant(kernel.build, round(1.1 * LOOPS))
    finished = kernel.run("--baseline", baseline(), "--max-rounds", "200")
    assert finished.returncode == 1, finished.stdout
    last = finished.stderr.splitlines()[-1]
    assert "by more than 5 %: loop (1." in last
    [comparison] = kernel.read()["workloads"][0]["against_baseline"]
    assert comparison["verdict"] == "slower" and comparison["low"] > 1.05


@pytest.mark.slow
def test_unchanged_code_passes_ten_times_in_a_row(kernel: Kernel, baseline: Callable[..., Path]) -> None:
    folder = baseline()
    for _ in range(10):
        finished = kernel.run("--baseline", folder)
        assert finished.returncode == 0, finished.stderr


def test_less_than_the_threshold_passes(kernel: Kernel, baseline: Callable[..., Path]) -> None:
    write_variant(kernel.build, round(1.1 * LOOPS))
    finished = kernel.run("--baseline", baseline(), "--threshold", "25")
    assert finished.returncode == 0, finished.stderr


def count(folder: Path, runs: int) -> None:
    """Print the outcomes of ``runs`` runs of unchanged code, and as many of code that is 10 % slower."""
    kernel = Kernel(folder / "kernel")
    write_variant(folder / "baseline", id="_tiny_cpu_0")
    for factor in (1.0, 1.1):
        write_variant(kernel.build, round(factor * LOOPS))
        outcomes = []
        for _ in range(runs):
            finished = kernel.run("--baseline", folder / "baseline")
            [one] = json.loads(kernel.report.read_text())["workloads"][0]["against_baseline"]
            outcomes.append((finished.returncode, one["verdict"], one["rounds"], round(one["ratio"], 3)))
        print(f"{factor} × the work: {outcomes}")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        count(Path(name), 10)
