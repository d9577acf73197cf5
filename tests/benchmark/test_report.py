"""The report: its JSON, its tables and its plots, also of names that were chosen to do harm."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from kernel_actions.benchmark import model, plot, show
from kernel_actions.benchmark.model import Report, Series, Skipped, Workload
from PIL import Image

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "a</text><script>alert(1)</script>\n::error::|`![x](y)\x1b[31m"


def _series(name: str, kind: model.Kind, seconds: float, clock: model.Clock = "wall") -> Series:
    return Series(name, kind, clock, tuple((seconds, seconds * 1.001) for _ in range(12)))


def _report(**changed: Any) -> Report:
    series = (
        _series("kernel", "kernel", 1e-3),
        _series("baseline", "baseline", 0.99e-3),
        _series("torch eager", "peer", 8e-3),
        _series("copy", "copy", 0.5e-3),
    )
    workload = Workload(
        "Gray.planar", "benchmarks/benchmark_gray.py", 40_000_000, 1, True, 25_000_000, series,
        missing=(("opencv", "it is not installed"),),
    )  # fmt: skip
    values: dict[str, Any] = {
        "kernel": "gray",
        "variant": "torch-cpu",
        "digest": "0" * 64,
        "commit": "1" * 40,
        "dirty": False,
        "device": "cpu",
        "started": "2026-01-01T00:00:00+00:00",
        "seconds": 12.5,
        "threshold": 0.05,
        "baseline": model.Baseline("org/gray@v1", "torch-cpu", None, "2" * 40, False),
        "machine": {"cpu": "A CPU", "threads": 2, "torch": "2.13.0"},
        "workloads": (workload, replace(workload, name="Gray.interleaved", missing=())),
        "skipped": (Skipped("Gray.half", "benchmarks/benchmark_gray.py", "refused"),),
    }
    return Report(**{**values, **changed})


def test_the_json_is_read_as_it_was_written() -> None:
    report = _report()
    written = json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert model.read(written) == report
    assert written["verdict"] == "passed"
    first = written["workloads"][0]
    # 40 MB in a millisecond, of a copy that moves 25 MB in half of one.
    assert first["series"][0]["share_of_copy"] == pytest.approx(0.8)
    assert first["peers"][0]["ratio"] == pytest.approx(8)
    assert first["against_baseline"][0]["verdict"] == "as fast"


def test_an_interval_without_ends_is_json_too() -> None:
    few = tuple((1e-3, 1e-3) for _ in range(2))
    series = (Series("k", "kernel", "wall", few), Series("b", "baseline", "wall", few))
    report = _report(workloads=(Workload("A.a", "f", None, 1, True, 1, series),))
    text = json.dumps(report.as_json(), allow_nan=False)
    assert json.loads(text)["workloads"][0]["against_baseline"][0]["high"] is None


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"workloads": [{"name": 1}]},
        {"workloads": 3},
        {"machine": []},
        {"baseline": {"x": 1}},
        {"threshold": "much"},
    ],
)
def test_what_is_no_report_is_said(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        model.read({**_report().as_json(), **change})
    for value in (None, [], {}, "x"):
        with pytest.raises(ValueError):
            model.read(value)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e9])
def test_impossible_times_are_refused(seconds: float) -> None:
    data = _report().as_json()
    data["workloads"][0]["series"][0]["rounds"][3][0] = seconds
    with pytest.raises(ValueError, match="impossible"):
        model.read(data)


def test_the_table() -> None:
    header, rows = show.table(_report())
    assert header == (
        "workload", "time", "spread", "of copy", "torch eager", "opencv", "× baseline", "verdict",
    )  # fmt: skip
    assert rows[0][:6] == ("planar", "1.00 ms", "0 %", "0.80", "8.00 ×", "–")
    assert rows[0][7] == "as fast"
    notes = list(show.notes(_report()))
    assert "skipped: half: refused" in notes
    assert "without opencv: it is not installed (planar)" in notes


def test_the_summary_has_bars() -> None:
    assert show.bar(1.0) == "█" * 16
    assert show.bar(0.5) == "█" * 8
    assert show.bar(0.49) == "█" * 7 + "▉"
    assert show.bar(None) == ""
    assert "█" in show.as_markdown(_report())


def test_the_plot_follows_the_scheme_and_can_be_read_aloud() -> None:
    drawing = plot.draw(_report())
    assert drawing is not None
    root = ElementTree.fromstring(plot.svg(drawing))
    assert root.get("role") == "img"
    assert root.findtext(f"{SVG}title") == "gray: share of the copy rate"
    description = root.findtext(f"{SVG}desc")
    assert description is not None and "planar: gray 0.80, baseline (gray@v1) 0.81" in description
    style = root.findtext(f"{SVG}style")
    assert style is not None and "prefers-color-scheme:dark" in style
    picture = plot.png(drawing)
    assert picture is not None
    assert Image.open(io.BytesIO(picture)).size == (2 * drawing.width, 2 * drawing.height)


def test_the_picture_has_a_micro_sign_and_both_ends_of_a_long_name() -> None:
    def drawn(text: str) -> bytes:
        made = plot.png(plot.Drawing(120, 40, (plot.Text(100, 24, text, anchor="end"),), "", ""))
        assert made is not None
        return Image.open(io.BytesIO(made)).tobytes()

    assert len({drawn(text) for text in ("1.5 µs", "1.5 us", "1.5 ?s", "1.5 …", "1.5 ?")}) == 5
    name = "float32_channels_last_of_a_large_batch_4k_backward"
    drawing = plot.draw(_report(workloads=(replace(_report().workloads[0], name=name),)))
    assert drawing is not None
    assert "float32_channels_…_batch_4k_backward" in plot.svg(drawing)


def test_nothing_measured_is_no_plot() -> None:
    assert plot.draw(_report(workloads=())) is None


def test_without_bytes_the_plot_is_of_speeds() -> None:
    workloads = tuple(replace(one, bytes=None) for one in _report().workloads)
    drawing = plot.draw(_report(workloads=workloads))
    assert drawing is not None
    assert drawing.title == "gray: speed, in units of this kernel's"
    assert "torch eager 0.12" in drawing.description


def test_hostile_names_stay_text() -> None:
    workload = _report().workloads[0]
    report = _report(
        workloads=(replace(workload, name=HOSTILE, missing=((HOSTILE, HOSTILE),)),),
        skipped=(Skipped(HOSTILE, "f", HOSTILE),),
        machine={"cpu": HOSTILE},
    )
    drawing = plot.draw(report)
    assert drawing is not None
    text = plot.svg(drawing)
    assert "<script" not in text and "\x1b" not in text
    ElementTree.fromstring(text)
    markdown = show.as_markdown(report)
    assert "<script" not in markdown and "![x]" not in markdown and "\x1b" not in markdown
    assert plot.png(drawing)


def test_many_workloads_make_a_plot_that_ends() -> None:
    workload = _report().workloads[0]
    many = tuple(replace(workload, name=f"A.{number}") for number in range(500))
    drawing = plot.draw(_report(workloads=many))
    assert drawing is not None and drawing.height < 4000


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.5, "1.50 s"), (0.0123, "12.3 ms"), (9.999e-6, "10.0 µs"), (250e-9, "250 ns")]
)
def test_durations(seconds: float, text: str) -> None:
    assert show.duration(seconds) == text
