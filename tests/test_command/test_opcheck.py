"""``--opcheck``: every operator of the kernel, with the author's inputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_command.helpers import make_kernel, run

INIT = """\
import torch
from ._ops import add_op_namespace_prefix

ANSWER = 42

@torch.library.custom_op(add_op_namespace_prefix("double"), mutates_args=())
def double(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    return x * factor

@double.register_fake
def _(x, factor=2.0):
    return torch.empty_like(x)
"""
WRONG = """
@torch.library.custom_op(add_op_namespace_prefix("cut"), mutates_args=())
def cut(x: torch.Tensor) -> torch.Tensor:
    return x[:1].clone()

@cut.register_fake
def _(x):
    return torch.empty_like(x)

@torch.library.custom_op(add_op_namespace_prefix("blind"), mutates_args=())
def blind(x: torch.Tensor) -> torch.Tensor:
    return x.clone()
"""
OPS = """\
def add_op_namespace_prefix(name):
    return f"_tiny_cpu_0000000::{name}"
"""
SAMPLES = """\
import torch
def samples(op, device):
    assert device == "cpu"
    if op == "later":
        return
    yield (torch.rand(4, 3, device=device),)
    if op == "double":
        yield (torch.rand(2, device=device),), {"factor": 3.0}
"""
LOADED = """\
import pytest
from kernels import get_kernel
@pytest.mark.kernels_ci
def test_it(): assert get_kernel("test/tiny", version=1, trust_remote_code=True).ANSWER == 42
"""

# Torch takes seconds to import, and more to compile.
pytestmark = [pytest.mark.slow, pytest.mark.integration]


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A kernel with an operator in Python, and samples for it."""
    root = make_kernel(tmp_path / "kernel")
    (root / "build" / "torch-cpu" / "__init__.py").write_text(INIT)
    (root / "build" / "torch-cpu" / "_ops.py").write_text(OPS)
    (root / "tests" / "samples.py").write_text(SAMPLES)
    return root


def test_operators_that_are_right(kernel: Path) -> None:
    finished = run(kernel, LOADED, "--opcheck")
    assert finished.returncode == 0, finished.errors
    # The test, and two checks of each of the two samples.
    assert finished.counts == (5, 0, 0, 0)
    assert finished.report is not None and finished.report["opcheck"] is True


def test_operators_that_are_wrong(kernel: Path) -> None:
    (kernel / "build" / "torch-cpu" / "__init__.py").write_text(INIT + WRONG)
    finished = run(kernel, LOADED, "--opcheck")
    assert (finished.returncode, finished.kind) == (1, "failed"), finished.errors
    assert finished.report is not None
    failed = {one["test"] for one in finished.report["failures"]}
    assert {"opcheck::cut[default-cpu-0]::opcheck", "opcheck::blind[default-cpu-0]::compile"} <= failed
    assert not [name for name in failed if "double" in name]


def test_an_operator_without_samples_is_a_failure(kernel: Path) -> None:
    more = INIT[INIT.index("@torch") :].replace('"double"', '"later"').replace("double", "later")
    (kernel / "build" / "torch-cpu" / "__init__.py").write_text(INIT + more)
    finished = run(kernel, LOADED, "--opcheck")
    assert (finished.returncode, finished.counts) == (1, (5, 1, 0, 0)), finished.errors
    assert "samples.py: samples('later', 'cpu') gives none" in finished.last


def test_checks_of_operators_are_no_tests(kernel: Path) -> None:
    finished = run(kernel, "def test_it(): pass\n", "--opcheck")
    assert (finished.returncode, finished.kind) == (1, "none-selected"), finished.errors
