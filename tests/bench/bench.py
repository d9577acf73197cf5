"""Times whole processes of the planner. Run it by `make bench`.

Times are of this machine and this moment; what counts is the ratio to a bare start of Python,
which is measured in the same run, in turns.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 20
COMMANDS: dict[str, list[str]] = {
    "python -I -S -c pass": [sys.executable, "-I", "-S", "-c", "pass"],
    "kernel-actions --version": [str(ROOT / "scripts" / "kernel-actions"), "--version"],
    "kernel-actions matrix": [
        str(ROOT / "scripts" / "kernel-actions"),
        "matrix",
        str(ROOT),
        "--format",
        "json",
    ],
}


def main() -> None:
    """Time each command in turns, and print medians and ratios."""
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, command in COMMANDS.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            seconds[name].append(time.perf_counter() - started)
    base = statistics.median(next(iter(seconds.values())))
    for name, times in seconds.items():
        median = statistics.median(times)
        print(f"{name:<26} {median * 1000:7.1f} ms  {median / base:5.1f} × a bare Python")


if __name__ == "__main__":
    main()
