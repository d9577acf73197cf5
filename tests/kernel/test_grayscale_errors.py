"""What cannot be converted is refused with an error that says what was wrong."""

from types import ModuleType

import pytest
import torch

pytestmark = pytest.mark.kernels_ci


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.int32, torch.float16, torch.bfloat16, torch.float64, torch.bool]
)
def test_wrong_dtype(kernel: ModuleType, device: str, dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match="expected an image of uint8 or float32"):
        kernel.rgb_to_grayscale(torch.zeros(3, 4, 4, dtype=dtype, device=device))


@pytest.mark.parametrize(
    "shape", [(), (3,), (3, 4), (1, 4, 4), (4, 4, 4), (2, 4, 4, 3), (3, 1, 4, 4), (0, 4, 4)]
)
def test_wrong_shape(kernel: ModuleType, device: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected an image of shape \[\.\.\., 3, H, W\], got"):
        kernel.rgb_to_grayscale(torch.zeros(shape, device=device))


def test_not_a_tensor(kernel: ModuleType) -> None:
    with pytest.raises((TypeError, RuntimeError), match=r"rgb_to_grayscale"):
        kernel.rgb_to_grayscale([[[1.0]], [[2.0]], [[3.0]]])


def test_sparse(kernel: ModuleType, device: str) -> None:
    with pytest.raises(NotImplementedError, match=r"rgb_to_grayscale: .* the image is a Sparse tensor"):
        kernel.rgb_to_grayscale(torch.zeros(3, 4, 4, device=device).to_sparse())


def test_cuda_image_for_a_cpu_build(kernel: ModuleType, backend: str) -> None:
    if backend != "cpu" or not torch.cuda.is_available():
        pytest.skip("needs a CUDA device, and a build for the CPU")
    with pytest.raises(
        NotImplementedError, match=r"strided tensors on the CPU, and the image is .* on cuda:0"
    ):
        kernel.rgb_to_grayscale(torch.zeros(3, 4, 4, device="cuda"))


def test_fake_implementation_refuses_the_same(kernel: ModuleType) -> None:
    with pytest.raises(TypeError, match="expected an image of uint8 or float32"):
        kernel.rgb_to_grayscale(torch.zeros(3, 4, 4, dtype=torch.int32, device="meta"))
    with pytest.raises(ValueError, match="expected an image of shape"):
        kernel.rgb_to_grayscale(torch.zeros(4, 4, 4, device="meta"))
