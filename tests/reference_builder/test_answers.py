"""The local builder makes what the builder's own templates made, at each revision that kernels lock."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.tools import leave_out, needs

pytestmark = [pytest.mark.integration, needs("Torch")]
if importlib.util.find_spec("kernels_data") and importlib.util.find_spec("minijinja"):
    from tests.reference_builder import answers, comparison, kernels, ours


@pytest.mark.parametrize("name", ["compiled", "plain", "noarch", "noarch-with-data"])
def test_files_and_metadata_are_the_builders(tmp_path: Path, name: str) -> None:
    folder = kernels.KERNELS[name](tmp_path / "kernel")
    _, expected = answers.read(name)
    assert tuple(expected) and set(expected) == set(kernels.REVISIONS)
    for revision, answer in expected.items():
        _, files, metadata = ours.describe(folder, kernels.COMMIT, revision)
        assert files == answer.files, revision
        assert comparison.without_digest(metadata) == comparison.without_digest(answer.metadata), revision
        digest = {"digest"} & answer.metadata.keys()
        assert list(metadata) == [key for key in answer.metadata if key not in digest], revision
        assert ours.output_of(revision).writes_digest is bool(digest), revision
        # All but metadata.json itself.
        assert set(answer.metadata.get("digest", ())) in (set(), set(files) - {"metadata.json"}), revision


@pytest.mark.parametrize("name", ["compiled", "plain"])
def test_options_of_compiler_and_linker_are_the_builders(tmp_path: Path, name: str) -> None:
    import torch

    release, expected = answers.read(name)
    if torch.__version__.partition("+")[0] != release:
        leave_out(f"Torch {release}, of which the answers are")
    folder = kernels.KERNELS[name](tmp_path / "kernel")
    for revision in ("81580bb9", "8ac69fc5"):
        work = tmp_path / revision
        work.mkdir()
        compiled, linked = ours.options(folder, kernels.COMMIT, revision, work)
        assert comparison.of_options(expected[revision], compiled, linked) == {}, revision


def test_what_changed_is_in_the_answers() -> None:
    _, compiled = answers.read("compiled")
    assert "-fno-gnu-unique" not in compiled["e9152aa2"].compiled["csrc/scale.cpp"]
    assert "-fno-gnu-unique" in compiled["3b5a3d27"].compiled["csrc/scale.cpp"]
    assert "tiny_scale/__init__.py" in compiled["ce92bd77"].files
    assert "tiny_scale/__init__.py" not in compiled["e9152aa2"].files
    kernel = {
        revision: answer.metadata.get("provenance", {}).get("kernel") for revision, answer in compiled.items()
    }
    assert kernel["b79face3"] is None
    assert kernel["81580bb9"] == {"sha": kernels.COMMIT, "dirty": False}
    assert kernel["dbc322a3"] == {"commit": kernels.COMMIT, "dirty": False}
