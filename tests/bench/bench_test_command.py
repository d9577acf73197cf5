"""Times ``kernel-actions test`` against plain pytest: ``python tests/bench/bench_test_command.py``.

Both are whole processes, in turns, on a kernel whose test imports no Torch, so that what is compared is not
lost in it. What counts is the difference of the shortest times: it has to be under a second.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.test_command.helpers import PASSING, make_kernel  # noqa: E402

ROUNDS = 10
MOST = 1.0


def main() -> int:
    """Print the shortest times and their difference; fail when it is a second or more."""
    with tempfile.TemporaryDirectory() as scratch:
        kernel = make_kernel(Path(scratch) / "kernel")
        variant = kernel / "build" / "torch-cpu" / "__init__.py"
        variant.write_text("ANSWER = 42\n")
        (kernel / "tests" / "test_tiny.py").write_text(PASSING)
        python = [sys.executable, "-I"]
        commands = {
            "plain pytest": [
                *python,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "tests",
                "-m",
                "kernels_ci",
            ],
            "kernel-actions test": [str(ROOT / "scripts" / "kernel-actions"), "test", "."],
        }
        environment = {**os.environ, "KA_PYTHON": sys.executable, "LOCAL_KERNELS": f"test/tiny={kernel}"}
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(ROUNDS):
            for name, command in commands.items():
                before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
                subprocess.run(command, cwd=kernel, env=environment, check=True, capture_output=True)
                took = time.perf_counter() - started
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                seconds[name].append((took, used))
    shortest = {}
    for name, times in seconds.items():
        wall, used = (min(column) for column in zip(*times, strict=True))
        shortest[name] = wall
        print(f"{name:<20} {wall:6.2f} s, of the processor {used:6.2f} s")
    more = shortest["kernel-actions test"] - shortest["plain pytest"]
    print(f"over plain pytest    {more:6.2f} s")
    return 0 if more < MOST else 1


if __name__ == "__main__":
    sys.exit(main())
