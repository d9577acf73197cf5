"""The pipeline: from source to a Hub and back, again and again, whatever happens on the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from kernel_actions.pipeline import Outcome, Progress
from PIL import Image

from tests.integration.conftest import environment, git, kernel_actions

STAGES = ("plan", "build", "test", "compliance", "stage", "verify", "promote", "load", "picture")


def _table(text: str) -> dict[str, str]:
    """The results by stage, of the table that the pipeline prints."""
    _, _, body = text.partition("\n-")
    rows = [line.split("  ") for line in body.splitlines()[1:] if line]
    return {row[0].strip(): next(cell.strip() for cell in row[1:] if cell.strip()) for row in rows}


def test_the_table_shows_paths_from_the_working_directory_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    progress = Progress(("build", "test"))
    progress.run("build", lambda: (Outcome("built", f"{tmp_path}/build/torch-cpu"), None))
    progress.run("test", lambda: (Outcome("1 passed", "/elsewhere/report.json"), None))
    assert [row[3] for row in progress.rows()] == ["build/torch-cpu", "/elsewhere/report.json"]


def test_the_first_run_makes_everything(pipeline_copy: tuple[Path, str]) -> None:
    root, out = pipeline_copy
    results = _table(out)
    assert tuple(results) == STAGES
    assert results["plan"] == "18 variants"
    assert results["build"] == "built"
    assert results["test"].split()[1] == "passed,"
    assert results["promote"] == "released 1.0.0"
    assert results["load"] == "rgb_to_grayscale"
    page = (root / "build" / "report.html").read_text()
    assert "grayscale 1.0.0" in page and "published" in page and "compliance" in page
    # The git tag went elsewhere.
    assert git(root, "tag") == ""
    # Only what git ignores was written.
    assert git(root, "status", "--porcelain") == ""


def test_the_picture_is_the_photograph_in_gray(pipeline_copy: tuple[Path, str]) -> None:
    root, _ = pipeline_copy
    with Image.open(root / "build" / "grayscale.png") as made:
        gray = made.tobytes()
        assert made.mode == "L"
    with Image.open(root / "examples" / "photograph.jpg") as photograph:
        rgb = photograph.convert("RGB").tobytes()
    pixels = zip(rgb[0::3], rgb[1::3], rgb[2::3], strict=True)
    assert gray == bytes((299 * r + 587 * g + 114 * b + 500) // 1000 for r, g, b in pixels)


def test_the_second_run_uses_what_is_there(built_copy: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    variables = {"HOME": str(home), "XDG_CACHE_HOME": ""}
    finished = kernel_actions(built_copy, "pipeline", "--format", "json", variables=variables)
    assert finished.returncode == 0, finished.stderr
    results = {one["stage"]: one["result"] for one in json.loads(finished.stdout)["stages"]}
    for stage in ("build", "test", "stage", "promote"):
        assert results[stage].startswith("unchanged")
    # Nothing in the user's home: not even a cache, as the environment is given by KA_PYTHON.
    assert [str(path) for path in home.rglob("*") if path.is_file()] == []


@pytest.mark.slow
def test_a_changed_source_is_built_tested_and_published_again(built_copy: Path) -> None:
    source = built_copy / "torch-ext" / "grayscale" / "__init__.py"
    source.write_text(source.read_text() + "\n# changed\n")
    finished = kernel_actions(built_copy, "pipeline")
    assert finished.returncode == 0, finished.stderr
    results = _table(finished.stdout)
    assert results["build"] == "built, uncommitted changes"
    assert not results["test"].startswith("unchanged")
    assert "files" in results["stage"]
    assert results["promote"] == "released 1.0.2"


@pytest.mark.slow
def test_a_compile_error_names_the_line(built_copy: Path) -> None:
    source = built_copy / "csrc" / "grayscale" / "grayscale_cpu.cpp"
    lines = source.read_text().splitlines()
    source.write_text("\n".join([*lines, "int broken = nothing;"]) + "\n")
    finished = kernel_actions(built_copy, "pipeline")
    assert finished.returncode == 1
    last = finished.stderr.splitlines()[-1]
    assert f"csrc/grayscale/grayscale_cpu.cpp:{len(lines) + 1}:" in last
    assert "nothing" in last and "was not declared" in last
    assert _table(finished.stdout)["build"] == "failed"
    assert _table(finished.stdout)["test"] == "not reached"
    # What was built before is still whole.
    assert list((built_copy / "build").glob("torch213-*/metadata.json"))


def test_a_failing_test_is_not_published(built_copy: Path) -> None:
    test = built_copy / "tests" / "kernel" / "test_wrong.py"
    test.write_text("import pytest\n\n@pytest.mark.kernels_ci\ndef test_it():\n    assert 1 == 2\n")
    for _ in range(2):  # A failure is not remembered as a success.
        finished = kernel_actions(built_copy, "pipeline")
        assert finished.returncode == 1
        assert "tests/kernel/test_wrong.py:5: " in finished.stderr.splitlines()[-1]
        # What pytest says is seen while it says it.
        assert "\ntests/kernel/test_wrong.py F" in finished.stderr.partition("[3/9] test\n")[2]
        assert _table(finished.stdout)["compliance"] == "not reached"


@pytest.mark.slow
def test_a_broken_rule_is_not_published(built_copy: Path) -> None:
    source = built_copy / "torch-ext" / "grayscale" / "__init__.py"
    source.write_text(source.read_text().replace("__all__", "__none__"))
    finished = kernel_actions(built_copy, "pipeline")
    assert finished.returncode == 1
    assert "KA302: " in finished.stderr.splitlines()[-1]
    assert _table(finished.stdout)["stage"] == "not reached"


@pytest.mark.slow
def test_no_test_is_a_failure(built_copy: Path) -> None:
    shutil.rmtree(built_copy / "tests")
    finished = kernel_actions(built_copy, "pipeline")
    assert finished.returncode == 1
    assert "has no tests (add tests/test_grayscale.py" in finished.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("file", "old", "new", "code", "message"),
    [
        ("build.toml", "[general]", "[general", 2, "build.toml:"),
        ("build.toml", 'repo-id = "kernel-actions/grayscale"', "", 2, "has no general.hub.repo-id"),
        ("flake.lock", "8ac69fc542a4306eade0759ef7c45b4f2ae57df0", "0" * 40, 3, "not in this version's data"),
        (
            "kernel-actions.toml",
            "demo",
            "dmeo",
            2,
            "kernel-actions.toml:5:1: key 'pipeline.dmeo' is not known",
        ),
        pytest.param(
            "kernel-actions.toml",
            "photograph.py",
            "missing.py",
            1,
            "the demo failed: FileNotFoundError",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_wrong_input_is_one_line(
    built_copy: Path, file: str, old: str, new: str, code: int, message: str
) -> None:
    path = built_copy / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    finished = kernel_actions(built_copy, "pipeline")
    assert finished.returncode == code
    assert message in finished.stderr.splitlines()[-1]
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize("output", [".", "csrc"])
def test_sources_are_no_place_for_what_is_built(built_copy: Path, output: str) -> None:
    finished = kernel_actions(built_copy, "pipeline", "--output", output)
    assert finished.returncode == 2
    assert "choose a folder for what is built" in finished.stderr
    assert finished.stderr.count("\n") == 1
    assert git(built_copy, "status", "--porcelain") == ""


def test_a_hub_that_is_down(built_copy: Path) -> None:
    finished = kernel_actions(built_copy, "pipeline", "--hub", "http://127.0.0.1:9")
    assert finished.returncode == 3
    assert "no Hub answers at http://127.0.0.1:9" in finished.stderr.splitlines()[-1]
    assert _table(finished.stdout)["stage"] == "failed"


@pytest.mark.parametrize(
    ("stage", "number"),
    [
        pytest.param("build", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("build", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("test", signal.SIGINT, marks=pytest.mark.slow),
        ("stage", signal.SIGTERM),
        pytest.param("verify", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("promote", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("load", signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_interrupted_in_any_stage_the_next_run_finishes(built_copy: Path, stage: str, number: int) -> None:
    if stage == "build":
        shutil.rmtree(built_copy / "build" / ".local")
    source = built_copy / "torch-ext" / "grayscale" / "__init__.py"
    source.write_text(source.read_text() + "\n# changed\n")
    process = subprocess.Popen(
        [built_copy / "scripts" / "kernel-actions", "pipeline"],
        cwd=built_copy, env=environment(), text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if line.endswith(f"] {stage}\n"):
            break
    os.killpg(process.pid, number)  # As Ctrl-C does, to all of the group.
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert errors.splitlines()[-1] == f"kernel-actions: interrupted by {signal.Signals(number).name}"
    assert _table(out)[stage] == "interrupted"
    assert git(built_copy, "status", "--porcelain") == " M torch-ext/grayscale/__init__.py\n"
    again = kernel_actions(built_copy, "pipeline")
    assert again.returncode == 0, again.stderr
