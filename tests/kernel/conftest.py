"""The kernel's own tests: they need torch, kernels and pytest, and nothing else.

kernel-builder runs them with `pytest tests -m kernels_ci`, and with LOCAL_KERNELS set so that `get_kernel`
finds the build at hand; without that variable they test what is published.
"""

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch

REPO_ID = "kernel-actions/grayscale"
VERSION = 1

# The suite around this kernel is tested on machines without torch as well.
collect_ignore_glob = [] if find_spec("torch") and find_spec("kernels") else ["test_*.py"]


def pytest_configure(config: pytest.Config) -> None:
    # kernel-builder copies the tests without pyproject.toml.
    config.addinivalue_line("markers", "kernels_ci: the kernel's tests, run on every build of it")


@pytest.fixture(scope="session")
def kernel() -> ModuleType:
    """The loaded kernel: on first use and not on import, so that tests are collected without a build."""
    import kernels

    loaded: ModuleType = kernels.get_kernel(REPO_ID, version=VERSION, trust_remote_code=True)
    return loaded


@pytest.fixture(scope="session")
def backend(kernel: ModuleType) -> str:
    """The backend that the loaded variant was built for."""
    assert kernel.__file__
    metadata = json.loads(Path(kernel.__file__).with_name("metadata.json").read_text())
    name: str = metadata["backend"]["type"]
    return name


@pytest.fixture(scope="session")
def expected() -> "Callable[[torch.Tensor], torch.Tensor]":
    """The result to the last bit: torch rounds after each operation, as the kernel does."""
    import torch

    def convert(image: torch.Tensor) -> torch.Tensor:
        if image.dtype == torch.uint8:
            red, green, blue = image.to(torch.int32).unbind(-3)
            gray = (299 * red + 587 * green + 114 * blue + 500) // 1000
        else:
            red, green, blue = (image.float() if image.element_size() == 2 else image).unbind(-3)
            gray = 0.299 * red + 0.587 * green + 0.114 * blue
        return gray.to(image.dtype).unsqueeze(-3)

    return convert


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        import torch

        devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
        metafunc.parametrize("device", devices, indirect=True)


@pytest.fixture
def device(request: pytest.FixtureRequest, backend: str) -> str:
    """Every device of this machine that the build serves: one for CUDA serves the CPU too."""
    name: str = request.param
    if name not in ("cpu", backend):
        pytest.skip(f"this build is for {backend}")
    return name
