"""Every pixel has the right value, whatever the colour, the size and the place in memory."""

from types import ModuleType

import pytest
import torch

pytestmark = pytest.mark.kernels_ci

WEIGHTS = (0.299, 0.587, 0.114)


def expected_bytes(image: torch.Tensor) -> torch.Tensor:
    red, green, blue = image.to(torch.int32).unbind(-3)
    gray = ((299 * red + 587 * green + 114 * blue + 500) // 1000).to(torch.uint8)
    return gray.unsqueeze(-3)


def assert_accurate(gray: torch.Tensor, image: torch.Tensor) -> None:
    """The bound of a sum in float32 with four roundings a term, against the same sum in float64."""
    weights = torch.tensor(WEIGHTS, dtype=torch.float64, device=image.device).reshape(3, 1, 1)
    terms = weights * image.double()
    error = (gray.double() - terms.sum(-3, keepdim=True)).abs()
    bound = 4 * 2.0**-24 * terms.abs().sum(-3, keepdim=True)
    assert bool((error <= bound).all())


def test_every_color(kernel: ModuleType, device: str) -> None:
    # 256 images, one for each red; green along the rows, blue along the columns.
    levels = torch.arange(256, dtype=torch.uint8, device=device)
    cube = torch.empty(256, 3, 256, 256, dtype=torch.uint8, device=device)
    cube[:, 0] = levels.reshape(256, 1, 1)
    cube[:, 1] = levels.reshape(256, 1)
    cube[:, 2] = levels
    gray = kernel.rgb_to_grayscale(cube)
    for image, result in zip(cube.chunk(8), gray.chunk(8), strict=True):
        assert torch.equal(result, expected_bytes(image))


def test_gray_stays_gray(kernel: ModuleType, device: str) -> None:
    levels = torch.arange(256, dtype=torch.uint8, device=device).reshape(1, 16, 16)
    assert torch.equal(kernel.rgb_to_grayscale(levels.expand(3, 16, 16)), levels)


@pytest.mark.parametrize("scale", [1.0, 255.0, 1e-30, 1e30])
@pytest.mark.parametrize("channels_last", [False, True])
def test_float_accuracy(kernel: ModuleType, device: str, scale: float, channels_last: bool) -> None:
    # Values of both signs, so that terms cancel; more of them than a thread takes at once.
    image = torch.randn(2, 3, 211, 307, generator=torch.Generator().manual_seed(1)).mul(scale).to(device)
    if channels_last:
        image = image.to(memory_format=torch.channels_last)
    assert_accurate(kernel.rgb_to_grayscale(image), image)


def test_float_special_values(kernel: ModuleType, device: str) -> None:
    inf, nan = float("inf"), float("nan")
    image = torch.tensor(
        [[inf, inf, nan, 0.0, -0.0], [1.0, -inf, 1.0, 0.0, -0.0], [1.0, 1.0, 1.0, 0.0, -0.0]]
    )
    gray = kernel.rgb_to_grayscale(image.to(device).reshape(3, 1, 5)).flatten().cpu()
    assert gray[0] == inf
    assert gray[1].isnan() and gray[2].isnan()
    assert gray[3] == 0 and gray[4] == 0


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("height", [1, 2, 5])
def test_widths(
    kernel: ModuleType, device: str, dtype: torch.dtype, channels_last: bool, height: int
) -> None:
    # Every remainder of a division by the 16 pixels, at most, that are moved at once.
    for width in range(1, 50):
        image = torch.randint(256, (2, 3, height, width), device=device).to(dtype)
        if channels_last:
            image = image.to(memory_format=torch.channels_last)
        gray = kernel.rgb_to_grayscale(image)
        if dtype == torch.uint8:
            assert torch.equal(gray, expected_bytes(image)), width
        else:
            assert_accurate(gray, image)


@pytest.mark.parametrize("shape", [(3, 1, 1), (3, 7, 5), (1, 3, 4, 4), (2, 3, 33, 65), (2, 1, 4, 3, 6, 10)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_batches(kernel: ModuleType, device: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    image = torch.randint(256, shape, device=device).to(dtype)
    gray = kernel.rgb_to_grayscale(image)
    assert gray.shape == (*shape[:-3], 1, *shape[-2:])
    assert gray.dtype == dtype and gray.device == image.device
    if dtype == torch.uint8:
        assert torch.equal(gray, expected_bytes(image))
    else:
        assert_accurate(gray, image)


@pytest.mark.parametrize("shape", [(3, 0, 0), (3, 0, 4), (3, 4, 0), (0, 3, 4, 4), (2, 0, 3, 4, 4)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_empty(kernel: ModuleType, device: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    gray = kernel.rgb_to_grayscale(torch.empty(shape, dtype=dtype, device=device))
    assert gray.shape == (*shape[:-3], 1, *shape[-2:])
    assert gray.dtype == dtype and gray.device.type == device


def need_gpu_memory(device: str, gib: int) -> None:
    if device == "cuda" and torch.cuda.mem_get_info()[0] < gib * 2**30:
        pytest.skip(f"needs {gib} GiB of free GPU memory")


def test_more_elements_than_32_bits_count(kernel: ModuleType, device: str) -> None:
    # A row repeated by a stride of 0: the image takes no memory, only the result does. The slice is not
    # aligned, so that a GPU takes pixel by pixel; there the result alone has over 2^31 of them.
    need_gpu_memory(device, 3)
    row = torch.randint(256, (3, 1, 8192), dtype=torch.uint8, device=device)[..., 1:]
    rows = 2**31 // (8191 * (1 if device == "cuda" else 3)) + 1
    gray = kernel.rgb_to_grayscale(row.expand(3, rows, 8191))
    assert 3 * gray.numel() > 2**31
    for part in gray.chunk(64, dim=1):
        assert torch.equal(part, expected_bytes(row).expand_as(part))


def test_strides_beyond_32_bits(kernel: ModuleType, device: str) -> None:
    # Memory that is not touched costs nothing on the CPU.
    need_gpu_memory(device, 3)
    memory = torch.empty(2**31 + 2**16, dtype=torch.uint8, device=device)
    image = memory.as_strided((3, 64, 64), (2**30 + 2**12, 64, 1))
    image.copy_(torch.randint(256, (3, 64, 64), dtype=torch.uint8))
    assert torch.equal(kernel.rgb_to_grayscale(image), expected_bytes(image))
