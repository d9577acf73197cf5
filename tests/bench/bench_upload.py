"""Times uploads, against ``HfApi.upload_folder`` on the same embedded Hub in the same run.

Part of ``make bench``. Times are of this machine and this moment; what counts are the ratios. With
``--huge GB`` it uploads and releases that much in place of it, and prints the most memory that one of the
processes took.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
os.environ["HF_HUB_DISABLE_XET"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

from huggingface_hub import HfApi
from kernel_actions import upload
from kernel_actions.hub.embedded import embedded

from tests.hub.helpers import write_kernel, write_variant
from tests.release.helpers import ROOT, Kernel, command

VARIANTS, SIZE, ROUNDS = 18, 20_000_000, 5


class Ratio(NamedTuple):
    """Seconds of an upload and of its peer, on the clock or of the client on the processor."""

    what: str
    ours: float
    peer: float

    @property
    def times(self) -> float:
        """How many times as fast as its peer it is."""
        return self.peer / self.ours


def write(kernel: Path) -> None:
    """All variants, of random bytes: the Hub keeps equal objects once, whoever sends them."""
    for index in range(VARIANTS):
        folder = write_variant(kernel / "build", variant=f"torch{210 + index}-cxx11-cu130-x86_64-linux")
        (folder / "table.bin").write_bytes(b"\0" + os.urandom(SIZE - 1))
    # What is still to be written to the disk is nobody's upload.
    os.sync()


def timed(act: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the clock, and of this process on the processor."""
    wall, processor = time.perf_counter(), time.process_time()
    act()
    return time.perf_counter() - wall, time.process_time() - processor


def compare(address: str, folder: Path, rounds: int = ROUNDS) -> list[Ratio]:
    """Upload all, and all of it again, as the command does and as users of huggingface_hub do."""
    kernel = write_kernel(folder / "kernel")
    api = HfApi(endpoint=address, token="unused")
    api.create_repo("bench/theirs", repo_type="kernel")

    def ours() -> object:
        return upload.publish(kernel, Path("build"), address=address, repo_id="bench/ours")

    def theirs() -> object:
        return api.upload_folder(
            repo_id="bench/theirs", repo_type="kernel", folder_path=kernel / "build", path_in_repo="build"
        )

    first: dict[Callable[[], object], list[tuple[float, float]]] = {ours: [], theirs: []}
    # In turns, as the disk and other programs have their moods; the first of each is not counted.
    for number, act in enumerate((ours, theirs) * (rounds + 1)):
        write(kernel)
        measured = timed(act)
        if number > 1:
            first[act].append(measured)
    theirs()
    time.sleep(2.1)  # A file that was just written is not remembered.
    ours()
    again: dict[Callable[[], object], list[tuple[float, float]]] = {ours: [], theirs: []}
    for act in (ours, theirs) * rounds:
        again[act].append(timed(act))
    return [
        Ratio(f"{title}, {unit}", *(statistics.median(one[index] for one in times[act]) for act in times))
        for title, times in (("first upload", first), ("nothing changed", again))
        for index, unit in enumerate(("wall", "processor"))
    ]


def huge(address: str, folder: Path, gigabytes: float) -> dict[str, tuple[float, float]]:
    """Upload and release variants that have so much in all: the seconds that it took, and the bytes of memory
    of the largest process, by command."""
    backends = ("cpu", "cuda", "metal", "rocm", "xpu")
    kernel = Kernel(folder / "huge", "bench/huge", backends)
    for index, backend in enumerate(backends):
        table = bytes([index]) * round(gigabytes * 1_000_000_000 / len(backends))
        kernel.build(f"torch-{backend}", table=table)
    found = {}
    for name, *more in (("upload",), ("release", "--partial")):
        started = time.perf_counter()
        program = "import sys; from tests.bench import bench_upload; bench_upload.in_child(*sys.argv[1:])"
        where = ("--repo-id", f"bench/{name}", "--hub", address)
        finished = subprocess.run(
            [sys.executable, "-c", program, str(kernel.root), name, *where, *more],
            cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        found[name] = (time.perf_counter() - started, float(finished.stdout))
    return found


def in_child(kernel_dir: str, *arguments: str) -> None:
    """Run a command, and print the bytes of memory that it or a process of its own took at the most."""
    finished = command(Path(kernel_dir), *arguments, timeout=3600)
    assert finished.returncode == 0, finished.stderr
    print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--huge", type=float, default=0, help="GB to upload, and to release")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, embedded(Path(name) / "hub") as address:
        if options.huge:
            for what, (seconds, memory) in huge(address, Path(name), options.huge).items():
                print(f"{what} of {options.huge:g} GB: {seconds:.0f} s, {memory / 1e6:.0f} MB of memory")
            return
        print(f"upload of {VARIANTS} variants of {SIZE // 1_000_000} MB, medians of {ROUNDS}")
        for one in compare(address, Path(name)):
            print(f"{one.what}: {one.ours:.3f} s, upload_folder {one.peer:.3f} s: {one.times:.2f} × as fast")


if __name__ == "__main__":
    main()
