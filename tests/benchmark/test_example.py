"""The example's own benchmarks, and the page that its reports fill."""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from kernel_actions.benchmark import cases, document, model
from kernels.cli.benchmark import discover_benchmark_classes

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"


def test_both_commands_find_the_same_workloads() -> None:
    listed = cases.discover(ROOT)
    [theirs] = discover_benchmark_classes(ROOT / "benchmarks" / "benchmark_grayscale.py", ROOT)
    names = {name.removeprefix("benchmark_") for name in dir(theirs) if name.startswith("benchmark_")}
    assert {case.workload for case in listed} == names
    assert len(names) == len(listed) > 20
    for case in listed:
        assert callable(getattr(case.owner, f"setup_{case.workload}"))
        assert callable(getattr(case.owner, f"verify_{case.workload}"))
        assert case.peers == ("torch_eager", "torch_compile", "torchvision", "opencv", "least_operator")


def test_dtypes_layouts_sizes_and_directions() -> None:
    names = {case.workload for case in cases.discover(ROOT)}
    for name in (
        "uint8_channels_last_4k", "float16_planar_224", "bfloat16_planar_8192", "float32_planar_4k_backward",
    ):  # fmt: skip
        assert name in names
    assert not [name for name in names if name.startswith("uint8") and name.endswith("backward")]


def test_the_page_shows_the_reports() -> None:
    link = os.path.relpath(RESULTS, PAGE.parent)
    assert document.filled(PAGE.read_text(), RESULTS, link) == PAGE.read_text(), "run `make bench-docs`"


def test_every_report_is_of_a_run_without_failures() -> None:
    for path in RESULTS.glob("*.json"):
        report = model.read(json.loads(path.read_text()))
        assert report.complete and not report.failures
        assert (RESULTS / f"{path.stem}.svg").is_file() and (RESULTS / f"{path.stem}.png").is_file()


def test_a_place_without_a_report_is_said(tmp_path: Path) -> None:
    page = "a\n<!-- benchmarks: gpu -->\nold\nlines\n<!-- /benchmarks -->\nb <!-- benchmarks: x --> c\n"
    expected = page.replace("old\nlines\n", "Not measured yet.\n")
    assert document.filled(page, tmp_path, "results") == expected
    assert document.filled(expected, tmp_path, "results") == expected
    (tmp_path / "gpu.json").write_text("{}")
    with pytest.raises(ValueError, match=r"gpu\.json"):
        document.filled(page, tmp_path, "results")


def test_a_peer_keeps_its_result_as_the_kernel_does() -> None:
    class Result:
        """Of a peer's call."""

    made: list[weakref.ref[Result]] = []

    class Owner:
        """A benchmark, as far as this needs one."""

        def peer_good(self) -> Callable[[], object]:
            def work() -> Result:
                result = Result()
                made.append(weakref.ref(result))
                return result

            return work

        def peer_bad(self) -> object:
            return 3

    case = cases.Case(Path("benchmark_it.py"), Owner, "it")
    call = case.peer("good", Owner())
    for _ in range(3):
        call()
        assert [one() is not None for one in made] == [*[False] * (len(made) - 1), True]
    with pytest.raises(NotImplementedError, match="peer_bad returns nothing to call"):
        case.peer("bad", Owner())
