"""An upload against `HfApi.upload_folder`, on the same Hub in the same run."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_actions.hub import patience

from tests.bench import bench_upload
from tests.hub.helpers import Server

pytestmark = pytest.mark.slow


def test_as_much_work_as_upload_folder_and_a_fifth_where_nothing_changed(
    shared: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "PAUSE", 1.0)
    times = {one.what: one.times for one in bench_upload.compare(shared.url, tmp_path, rounds=3)}
    # Of the processor: other programs disturb the clock.
    assert times["first upload, processor"] >= 0.8
    assert times["nothing changed, processor"] >= 5
