"""The builder's own templates, run: the answers are what they make, and so is what our local builder makes.

``KA_BUILDER_REPOSITORY`` names a checkout of huggingface/kernels with its whole history. The package says
what nobody has seen of the builder here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kernel_actions import build

from tests.tools import needs

REPOSITORY = os.environ.get("KA_BUILDER_REPOSITORY", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    needs("KA_BUILDER_REPOSITORY", "Torch"),
]
if all(importlib.util.find_spec(name) for name in ("kernels_data", "minijinja")):
    from tests.reference_builder import answers, comparison, kernels, ours, variant
    from tests.reference_builder.answers import Answer
    from tests.reference_builder.project import Builder
    from tests.reference_builder.variant import Variant

ROOT = Path(__file__).resolve().parents[2]
# Each revision at which anything of a compiled variant changed, and the newest; noarch ones take a second.
COMPILED = ("b79face3", "81580bb9", "e9152aa2", "3b5a3d27", "8ac69fc5")
CASES = [
    (name, revision)
    for name in ("compiled", "plain", "noarch", "noarch-with-data")
    for revision in (
        "ae36559c", "b79face3", "81580bb9", "19aaa642", "ce92bd77", "e9152aa2", "3b5a3d27", "d0610aa5",
        "a6564d1f", "ebfa584e", "2c40e10d", "dbc322a3", "18c4d686", "8ac69fc5",
    )
    if name.startswith("noarch") or revision in COMPILED
]  # fmt: skip
# What Torch is like to the code that asks it for its backend.
TORCHES = {
    "cuda": {"version": {"cuda": "13.0", "hip": None}},
    "rocm": {"version": {"cuda": None, "hip": "7.2"}},
    "metal": {"mps": True},
    "xpu": {"version": {"cuda": None, "hip": None, "xpu": "2025.3"}},
    "cpu": {},
    "neuron": {"neuron": True, "version": {"cuda": "13.0", "hip": None}},
}


def make(name: str, revision: str, folder: Path) -> tuple[Path, Variant]:
    """The kernel, and what the builder makes of it."""
    kernel = kernels.KERNELS[name](folder / "kernel")
    builder = Builder.find(Path(REPOSITORY), revision)
    return kernel, variant.build(builder, kernel, kernels.COMMIT, folder / "out", folder / "work")


@pytest.mark.parametrize(("name", "revision"), CASES)
def test_the_answers_are_what_the_builder_makes(tmp_path: Path, name: str, revision: str) -> None:
    import torch

    kernel, made = make(name, revision, tmp_path)
    release, kept = answers.read(name)
    answer = Answer.of(made)
    if torch.__version__.partition("+")[0] == release:
        assert answer == kept[revision]
    variant_name, files, metadata = ours.describe(kernel, kernels.COMMIT, revision)
    assert (variant_name, files) == (made.folder.name, answer.files)
    assert comparison.without_digest(metadata) == comparison.without_digest(answer.metadata)
    if made.compiled:
        work = tmp_path / "ours"
        work.mkdir()
        compiled, linked = ours.options(kernel, kernels.COMMIT, revision, work)
        assert comparison.of_options(answer, compiled, linked) == {}


def _torch(backends: dict[str, Any], **names: Any) -> Any:
    version = SimpleNamespace(**backends.get("version", {"cuda": None, "hip": None}))
    mps = SimpleNamespace(is_available=lambda: "mps" in backends)
    found = SimpleNamespace(version=version, backends=SimpleNamespace(mps=mps), **names)
    if "neuron" in backends:
        found.neuron = object()
    return found


class _Operators:
    """``torch.ops``: any name is a namespace."""

    def __getattr__(self, name: str) -> str:
        return name


@pytest.mark.parametrize("revision", ["ae36559c", "81580bb9", "d0610aa5", "a6564d1f", "8ac69fc5"])
def test_ops_py_names_operators_as_the_builders_does(
    tmp_path: Path, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, made = make("noarch", revision, tmp_path)
    ours_text = ours.ops_text(kernel, kernels.COMMIT, revision)
    for backend, like in TORCHES.items():
        monkeypatch.setitem(sys.modules, "torch", _torch(like, ops=_Operators()))
        found = []
        for text in ((made.folder / "_ops.py").read_text(), ours_text):
            scope: dict[str, Any] = {}
            exec(text, scope)
            found.append((scope["ops"], scope["add_op_namespace_prefix"]("f")))
        assert found[0] == found[1]
        assert found[0][0] == f"_tiny_scale_{backend}_{kernels.COMMIT[:7]}"


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Builds by both, for a revision: the extensions."""

    def both(revision: str) -> tuple[Path, Path]:
        folder = tmp_path / revision
        folder.mkdir()
        kernel, made = make("compiled", revision, folder)
        monkeypatch.setenv("KA_BUILDER_REV", _full(revision))
        report = build.build(kernel)
        (theirs,), (own,) = made.folder.glob("*.so"), report.path.glob("*.so")
        return theirs, own

    yield both


def _full(revision: str) -> str:
    command = ["git", "-C", REPOSITORY, "rev-parse", revision]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _said(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_extensions_need_the_same_libraries_and_have_unique_symbols_by_revision(built: Any) -> None:
    unique = {}
    for revision in ("81580bb9", "8ac69fc5"):
        needed, symbols = [], []
        for extension in built(revision):
            dynamic = _said("readelf", "-d", extension)
            needed.append(set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)))
            assert "RUNPATH" not in dynamic and "RPATH" not in dynamic
            table = _said("readelf", "--dyn-syms", "-W", extension)
            symbols.append(" UNIQUE " in table)
            assert re.search(rf"PyInit_{extension.name.partition('.')[0]}\b", table)
        assert needed[0] == needed[1]
        unique[revision] = symbols
    assert unique == {"81580bb9": [True, True], "8ac69fc5": [False, False]}


def test_the_loader_loads_both(tmp_path: Path) -> None:
    _, made = make("compiled", "8ac69fc5", tmp_path)
    code = (
        "from pathlib import Path; import torch; from kernels import get_local_kernel\n"
        f"kernel = get_local_kernel(Path({str(made.folder.parent)!r}), backend='cpu')\n"
        "print(kernel.twice(torch.ones(3)).tolist())"
    )
    assert _said(sys.executable, "-c", code).strip() == "[2.0, 2.0, 2.0]"


def test_a_header_in_no_list_is_not_there(tmp_path: Path) -> None:
    kernel = kernels.KERNELS["plain"](tmp_path / "kernel")
    text = (kernel / "build.toml").read_text()
    (kernel / "build.toml").write_text(text.replace('  "csrc/scale.h",\n', ""))
    builder = Builder.find(Path(REPOSITORY), "8ac69fc5")
    with pytest.raises(AssertionError, match=r"scale\.h: No such file or directory"):
        variant.build(builder, kernel, kernels.COMMIT, tmp_path / "out", tmp_path / "work")


def test_pyext_without_py_and_a_backend_without_a_section_fail(tmp_path: Path) -> None:
    kernel = kernels.KERNELS["noarch"](tmp_path / "kernel")
    (kernel / "build.toml").write_text((kernel / "build.toml").read_text() + 'pyext = ["json"]\n')
    builder = Builder.find(Path(REPOSITORY), "8ac69fc5")
    with pytest.raises(AssertionError, match="must contain __init__"):
        variant.build(builder, kernel, kernels.COMMIT, tmp_path / "out", tmp_path / "work")
    # As no-arch.nix calls it for a backend that no [kernel.*] is for: of the setup.py of [torch].
    other = kernels.KERNELS["plain"](tmp_path / "other")
    project = tmp_path / "project"
    variant.prepare(builder, other, kernels.COMMIT, project)
    ended = subprocess.run(
        [sys.executable, "setup.py", "build_kernel", "--backend", "rocm"],
        cwd=project, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode != 0 and "option --backend not recognized" in ended.stderr


def test_the_example_is_what_its_lock_makes(tmp_path: Path) -> None:
    lock = json.loads((ROOT / "flake.lock").read_text())
    (revision,) = {
        node["locked"]["rev"]
        for node in lock["nodes"].values()
        if node.get("locked", {}).get("repo", "") == "kernels"
    }
    builder = Builder.find(Path(REPOSITORY), revision)
    made = variant.build(builder, ROOT, kernels.COMMIT, tmp_path / "out", tmp_path / "work")
    answer = Answer.of(made)
    variant_name, files, metadata = ours.describe(ROOT, kernels.COMMIT, revision)
    assert (variant_name, files) == (made.folder.name, answer.files)
    assert comparison.without_digest(metadata) == comparison.without_digest(answer.metadata)
    (tmp_path / "ours").mkdir()
    compiled, linked = ours.options(ROOT, kernels.COMMIT, revision, tmp_path / "ours")
    assert comparison.of_options(answer, compiled, linked) == {}
