"""Tests that import the kernel by its name, as 31 of 37 public kernels' do: the module that was loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_command.helpers import MARKED, run

# Twice would be an error in a kernel that registers operators.
ONCE = """\
import os
if "TINY_IS_LOADED" in os.environ:
    raise RuntimeError("the kernel is executed twice")
os.environ["TINY_IS_LOADED"] = str(os.getpid())
from . import layers
ANSWER = 42
"""
LAYERS = "from . import deep\nclass Layer: pass\n"
GET = 'import kernels\nloaded = kernels.get_kernel("test/tiny", version=1, trust_remote_code=True)\n'
SAME = """\
def test_it():
    import sys
    assert tiny is loaded and tiny.ANSWER == 42
    assert Layer is loaded.layers.Layer and leaf is loaded.layers.deep.leaf
    assert sys.modules["tiny.layers"] is loaded.layers
    assert loaded.__spec__.name == loaded.__name__ == "_tiny_cpu_0000000"
"""


@pytest.fixture
def packaged(kernel: Path) -> Path:
    """A kernel with modules below its package, whose ``__init__.py`` may be executed once."""
    variant = kernel / "build" / "torch-cpu"
    (variant / "__init__.py").write_text(ONCE)
    (variant / "layers").mkdir()
    (variant / "layers" / "__init__.py").write_text(LAYERS)
    (variant / "layers" / "deep.py").write_text("def leaf(): pass\n")
    return kernel


NAMES = "import tiny\nfrom tiny.layers import Layer\nfrom tiny.layers.deep import leaf\n"


@pytest.mark.parametrize("imports", [NAMES + GET, GET + NAMES], ids=["name first", "get_kernel first"])
def test_a_name_is_the_module_that_was_loaded(packaged: Path, imports: str) -> None:
    finished = run(packaged, MARKED + imports + SAME)
    assert finished.returncode == 0 and finished.counts == (1, 0, 0, 0), finished.errors


def test_the_name_alone_counts_as_loading(packaged: Path) -> None:
    finished = run(packaged, MARKED + "from tiny.layers.deep import leaf\ndef test_it(): leaf()\n")
    assert finished.returncode == 0, finished.errors


def test_it_wins_over_folders_of_the_name(packaged: Path) -> None:
    """As `rotary/rotary`, a folder with sources beside the tests, which pytest puts on the path."""
    (packaged / "tests" / "__init__.py").touch()
    (packaged / "tests" / "utils.py").write_text("HELP = 1\n")
    (packaged / "conftest.py").touch()
    for folder in ("tiny", "tests/tiny"):
        (packaged / folder).mkdir()
        (packaged / folder / "tiny.cu").touch()
    tests = MARKED + "from tests.utils import HELP\n" + NAMES + GET + SAME
    finished = run(packaged, tests)
    assert finished.returncode == 0 and finished.counts == (1, 0, 0, 0), finished.errors
    (packaged / "tiny" / "__init__.py").write_text("raise RuntimeError('these are the sources')\n")
    again = run(packaged, tests)
    assert again.returncode == 0 and again.counts == (1, 0, 0, 0), again.errors


def test_a_package_of_tests_may_have_the_name(packaged: Path) -> None:
    (packaged / "tests" / "tiny").mkdir()
    (packaged / "tests" / "tiny" / "__init__.py").touch()
    (packaged / "tests" / "tiny" / "test_inner.py").write_text(
        MARKED + GET + "def test_it(): assert loaded.ANSWER == 42\n"
    )
    finished = run(packaged, None)
    assert finished.returncode == 0 and finished.counts == (1, 0, 0, 0), finished.errors


def test_processes_of_the_tests_import_it_too(packaged: Path) -> None:
    tests = (
        MARKED
        + """\
import os, subprocess, sys
from tiny.layers.deep import leaf
def child(script):
    clean = {name: value for name, value in os.environ.items() if name != "TINY_IS_LOADED"}
    return subprocess.run([sys.executable, "-c", script], env=clean, capture_output=True, text=True)
def use(): leaf()
def test_program():
    ended = child("from tiny.layers import Layer; import tiny; print(tiny.__name__, Layer.__module__)")
    assert ended.stdout.split() == ["_tiny_cpu_0000000", "_tiny_cpu_0000000.layers"], ended.stderr
def test_spawned():
    import multiprocessing
    del os.environ["TINY_IS_LOADED"]
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=use)
    process.start()
    process.join()
    assert process.exitcode == 0
"""
    )
    finished = run(packaged, tests)
    assert finished.returncode == 0 and finished.counts == (2, 0, 0, 0), finished.errors + finished.output


def test_the_kernel_itself_cannot_do_so(packaged: Path) -> None:
    """It would fail where users load it."""
    (packaged / "build" / "torch-cpu" / "layers" / "deep.py").write_text("from tiny import ANSWER\n")
    finished = run(packaged, MARKED + GET + "def test_it(): pass\n")
    assert finished.returncode == 1 and finished.kind == "collection"
    assert "No module named 'tiny'" in finished.last


def test_what_is_not_in_it_is_said(packaged: Path) -> None:
    finished = run(packaged, MARKED + "import tiny\nfrom tiny.missing import f\ndef test_it(): pass\n")
    assert finished.returncode == 1 and "No module named 'tiny.missing'" in finished.last
    tests = MARKED + "missing = pytest.importorskip('tiny.missing')\n"
    assert run(packaged, tests).kind == "all-skipped"
    tests = MARKED + "tiny = pytest.importorskip('tiny')\ndef test_it(): assert tiny.ANSWER == 42\n"
    assert run(packaged, tests).returncode == 0


def test_a_variant_that_is_for_another_torch_is_an_import_error(packaged: Path) -> None:
    (packaged / "build" / "torch-cpu").rename(packaged / "build" / "torch21-cxx11-cpu-x86_64-linux")
    tests = "import tiny\ndef test_it(): pass\n"
    finished = run(packaged, MARKED + tests)
    assert finished.returncode == 1
    assert "ImportError: kernels does not load the variant" in finished.errors
