"""An upload against `HfApi.upload_folder`, on the same Hub in the same run."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kernel_actions import upload
from kernel_actions.hub import patience

from tests.hub.helpers import Server, write_kernel, write_variant

pytestmark = pytest.mark.slow

COUNT = 18
SIZE = 20_000_000
ROUNDS = 5


def write(kernel: Path) -> None:
    """All variants, of random bytes: the Hub keeps equal objects once, whoever sends them."""
    for index in range(COUNT):
        folder = write_variant(kernel / "build", variant=f"torch{210 + index}-cxx11-cu130-x86_64-linux")
        (folder / "table.bin").write_bytes(b"\0" + os.urandom(SIZE - 1))


def timed(act: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the clock, and of this process on the processor."""
    wall, cpu = time.perf_counter(), time.process_time()
    act()
    return time.perf_counter() - wall, time.process_time() - cpu


def test_as_fast_as_upload_folder_and_faster_where_nothing_changed(
    shared: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "PAUSE", 1.0)
    kernel = write_kernel(tmp_path / "kernel")
    api = shared.api()
    api.create_repo("acme/speed-theirs", repo_type="kernel")

    def ours() -> object:
        return upload.publish(kernel, Path("build"), address=shared.url, repo_id="acme/speed-ours")

    def theirs() -> object:
        return api.upload_folder(
            repo_id="acme/speed-theirs",
            repo_type="kernel",
            folder_path=kernel / "build",
            path_in_repo="build",
        )

    first: dict[Callable[[], object], list[tuple[float, float]]] = {ours: [], theirs: []}
    # In turn, as the disk and other programs have their moods.
    for act in (ours, theirs) * 3:
        write(kernel)
        first[act].append(timed(act))
    theirs()
    time.sleep(2.1)  # A file that was just written is not remembered.
    ours()
    again: dict[Callable[[], object], list[tuple[float, float]]] = {ours: [], theirs: []}
    for act in (ours, theirs) * ROUNDS:
        again[act].append(timed(act))
    lines = []
    ratios = {}
    for title, measured, middle in (("first", first, min), ("no change", again, statistics.median)):
        for index, unit in enumerate(("wall", "processor")):
            mine, other = (middle([one[index] for one in measured[act]]) for act in (ours, theirs))
            ratios[title, unit] = other / mine
            lines.append(f"{title}, {unit}: {mine:.3f} s, upload_folder {other:.3f} s: {other / mine:.2f} x")
    with capsys.disabled():
        print(f"\n{COUNT} variants of {SIZE // 1_000_000} MB", *lines, sep="\n")
    assert ratios["no change", "processor"] >= 5
    assert ratios["no change", "wall"] >= 5
    # Most of it is the server's work and the disk's, which other programs disturb.
    assert ratios["first", "wall"] >= 0.8
