"""Times builds by Nix against plain Nix, and copying and packing against cp and tar. Needs Nix, nothing else.

    python tests/bench/bench_nix_builds.py

Times are of this machine and this moment; each is measured in turns with its peer, and what counts are the
difference of the first pair, in seconds, and the ratio of the second. Beside the time by the clock stands
that of the processors, which other work on the machine lengthens less.
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
from typing import NamedTuple

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
    for name, one in (("nix build", with_nix), ("kernel-actions build", with_ours)):
        print(f"{name + ', warm:':<27} {one.wall:.3f} s, {one.cpu:.3f} s of processors")
    wall, cpu = with_ours.wall - with_nix.wall, with_ours.cpu - with_nix.cpu
    print(f"the layer between them:     {wall:.3f} s, {cpu:.3f} s of processors")


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
    for name, one in (("cp -rL and tar", with_peer), ("copy and pack", with_ours)):
        print(f"{name + ':':<15} {size / one.wall / 1e6:.0f} MB/s, {one.cpu:.3f} s of processors")
    wall, cpu = with_peer.wall / with_ours.wall, with_peer.cpu / with_ours.cpu
    print(f"copy and pack:  {wall:.2f} × cp and tar, {cpu:.2f} × by the time of processors")


class Took(NamedTuple):
    """Median seconds: by the clock, and of the processors, of this process and those that it started."""

    wall: float
    cpu: float


def _in_turns(first: Callable[[], None], second: Callable[[], None]) -> tuple[Took, Took]:
    """What each takes, which are run in turns."""
    seconds: tuple[list[Took], list[Took]] = ([], [])
    for _ in range(ROUNDS):
        for one, took in zip((first, second), seconds, strict=True):
            started, used = time.perf_counter(), _processors()
            one()
            took.append(Took(time.perf_counter() - started, _processors() - used))
    medians = [Took(*(statistics.median(values) for values in zip(*took, strict=True))) for took in seconds]
    return medians[0], medians[1]


def _processors() -> float:
    """The seconds of processors that this process and its children have used."""
    return sum(os.times()[:4])


if __name__ == "__main__":
    main()
