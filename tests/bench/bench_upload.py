"""Times uploads, against ``HfApi.upload_folder`` on the same embedded Hub in the same run; run it by hand:
``python -I tests/bench/bench_upload.py [--huge GB]``.

Times are of this machine and this moment; what counts are the ratios. ``--huge`` uploads sparse files of that
size in all, in a process of its own, and prints the most memory that it took.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
os.environ["HF_HUB_DISABLE_XET"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

from huggingface_hub import HfApi
from kernel_actions.hub import client
from kernel_actions.hub.embedded import embedded

VARIANTS, MEGABYTES, ROUNDS = 18, 20, 3


def write(folder: Path, name: str) -> None:
    """A variant of 20 MB that no other one equals."""
    target = folder / name
    target.mkdir(parents=True)
    (target / "__init__.py").write_text("__all__ = []\n")
    (target / "metadata.json").write_text("{}\n")
    (target / "kernel.abi3.so").write_bytes(os.urandom(MEGABYTES * 1_000_000))


def ours(address: str, repo_id: str, build: Path) -> int:
    """Upload as the command does; the bytes that had to be sent."""
    hub = client.connect(address)
    names = sorted(path.name for path in build.iterdir())
    local = client.local_folders({f"build/{name}": build / name for name in names})
    folders = [f"build/{name}" for name in names]
    return client.upload(hub, repo_id, "v1", local, folders, message="Upload").size


def theirs(address: str, repo_id: str, build: Path) -> int:
    """Upload as users of huggingface_hub do."""
    api = HfApi(endpoint=address, token="unused")
    api.create_repo(repo_id, repo_type="kernel", exist_ok=True)
    api.create_branch(repo_id, branch="v1", repo_type="kernel", exist_ok=True)
    api.upload_folder(
        repo_id=repo_id, folder_path=build, path_in_repo="build", repo_type="kernel", revision="v1"
    )
    return 0


def timed(act: Callable[[str, str, Path], int], address: str, repo_id: str, build: Path) -> tuple[float, int]:
    started = time.perf_counter()
    sent = act(address, repo_id, build)
    return time.perf_counter() - started, sent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--huge", type=float, default=0, help="GB of sparse files")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        sent = ours(options.one[0], "bench/huge", Path(options.one[1]))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"sent": sent, "memory": peak}))
        return
    with tempfile.TemporaryDirectory() as name, embedded(Path(name) / "hub") as address:
        folder = Path(name)
        if options.huge:
            huge(address, folder, options.huge)
            return
        first: dict[str, list[float]] = {"ours": [], "theirs": []}
        again: dict[str, list[float]] = {"ours": [], "theirs": []}
        for number in range(ROUNDS):
            for who, act in (("ours", ours), ("theirs", theirs)):
                build = folder / f"{who}-{number}"
                for index in range(VARIANTS):
                    write(build, f"torch2{index:02}-cxx11-cpu-x86_64-linux")
                first[who].append(timed(act, address, f"bench/{who}-{number}", build)[0])
                seconds, sent = timed(act, address, f"bench/{who}-{number}", build)
                again[who].append(seconds)
                assert sent == 0
        build = folder / f"ours-{ROUNDS - 1}"
        changed = next(build.iterdir()) / "kernel.abi3.so"
        changed.write_bytes(os.urandom(MEGABYTES * 1_000_000))
        _, sent = timed(ours, address, f"bench/ours-{ROUNDS - 1}", build)
        print(f"{VARIANTS} variants of {MEGABYTES} MB, best of {ROUNDS}")
        for what, times in (("first upload", first), ("nothing changed", again)):
            mine, peer = min(times["ours"]), min(times["theirs"])
            print(f"{what}: {mine:.2f} s, upload_folder {peer:.2f} s: {peer / mine:.2f} times as fast")
        print(f"one object changed: {sent} bytes sent")


def huge(address: str, folder: Path, gigabytes: float) -> None:
    """Upload sparse files of 1 GB each, which differ in their last bytes."""
    build = folder / "huge"
    for index in range(round(gigabytes)):
        target = build / f"torch2{index:02}-cxx11-cpu-x86_64-linux"
        target.mkdir(parents=True)
        with (target / "kernel.abi3.so").open("wb") as file:
            file.seek(1_000_000_000 - 8)
            file.write(index.to_bytes(8, "little"))
    started = time.perf_counter()
    finished = subprocess.run(
        [sys.executable, "-I", __file__, "--one", address, str(build)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(finished.stdout)
    print(
        f"{found['sent'] / 1e9:.1f} GB sent in {time.perf_counter() - started:.0f} s, "
        f"{found['memory'] / 1e6:.0f} MB of memory"
    )


if __name__ == "__main__":
    main()
