"""Times builds by Nix against plain Nix, and copying and packing against cp and tar. Needs Nix, nothing else.

    python tests/bench/bench_nix_builds.py

Times are of this machine and this moment; each is measured in turns with its peer, and what counts are the
difference of the first pair, in seconds, and the ratio of the second.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
from kernel_actions.nix import results  # noqa: E402
from kernel_actions.nix.results import Tree  # noqa: E402

from tests.nix.conftest import CPU, Machine, make_kernel  # noqa: E402

ROUNDS = 15
# As a variant with kernels for many architectures: some large files among many small ones.
LARGE, LARGE_BYTES = 4, 60 << 20
SMALL, SMALL_BYTES = 500, 4096


def main() -> None:
    """Measure both pairs, and print medians."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _layer(folder)
        _copying(folder)


def _layer(folder: Path) -> None:
    machine = Machine(folder / "machine")
    kernel = make_kernel(folder / "tiny")
    first = machine.build(kernel, CPU)
    assert first.returncode == 0, first.stderr
    reference = f"git+file://{kernel}#packages.x86_64-linux.redistributable.{CPU}"
    plain = [
        "nix",
        "build",
        "--no-link",
        "--json",
        "--no-update-lock-file",
        "--no-write-lock-file",
        reference,
    ]

    def nix() -> None:
        subprocess.run(plain, cwd=kernel, env=machine.environment, check=True, capture_output=True)

    def ours() -> None:
        finished = machine.build(kernel, CPU)
        assert finished.returncode == 0, finished.stderr

    with_nix, with_ours = _in_turns(nix, ours)
    print(f"nix build, warm:            {with_nix:.3f} s")
    print(f"kernel-actions build, warm: {with_ours:.3f} s")
    print(f"the layer between them:     {with_ours - with_nix:.3f} s")


def _copying(folder: Path) -> None:
    store = folder / "store"
    result = store / "result"
    result.mkdir(parents=True)
    for number in range(LARGE):
        (result / f"{number}.abi3.so").write_bytes(os.urandom(LARGE_BYTES))
    for number in range(SMALL):
        path = result / f"d{number % 20}" / f"{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(os.urandom(SMALL_BYTES))
    size = LARGE * LARGE_BYTES + SMALL * SMALL_BYTES
    tree = Tree(result, str(store), "")
    # The names are in turn, so that nobody profits from the file of the round before.
    counter = iter(range(10**6))

    def peer() -> None:
        target = folder / f"p{next(counter)}"
        subprocess.run(["cp", "-rL", "--no-preserve=mode", result, target], check=True)
        subprocess.run(["tar", "-cf", f"{target}.tar", "-C", folder, target.name], check=True)
        subprocess.run(["rm", "-rf", target, f"{target}.tar"], check=True)

    def ours() -> None:
        target = folder / f"o{next(counter)}"
        results.copy(tree, target)
        results.pack(target, folder / f"{target.name}.tar")
        subprocess.run(["rm", "-rf", target, folder / f"{target.name}.tar"], check=True)

    with_peer, with_ours = _in_turns(peer, ours)
    print(f"cp -rL and tar: {size / with_peer / 1e6:.0f} MB/s")
    print(f"copy and pack:  {size / with_ours / 1e6:.0f} MB/s, {with_peer / with_ours:.2f} × cp and tar")


def _in_turns(first: Callable[[], None], second: Callable[[], None]) -> tuple[float, float]:
    """The median seconds of each, which are run in turns."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for one, times in zip((first, second), seconds, strict=True):
            started = time.perf_counter()
            one()
            times.append(time.perf_counter() - started)
    return statistics.median(seconds[0]), statistics.median(seconds[1])


if __name__ == "__main__":
    main()
