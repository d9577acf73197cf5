"""Every pixel has the right value, whatever the colour, the size and the place in memory."""

import os
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import pytest
import torch

pytestmark = pytest.mark.kernels_ci

Convert = Callable[[torch.Tensor], torch.Tensor]

WEIGHTS = (0.299, 0.587, 0.114)
HALVES = [torch.float16, torch.bfloat16]
FLOATS = [*HALVES, torch.float32, torch.float64]
DTYPES = [torch.uint8, *FLOATS]
BITS = {torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32}


def make(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    """Bytes, or values of both signs, so that terms cancel."""
    generator = torch.Generator().manual_seed(1)
    if dtype == torch.uint8:
        return torch.randint(256, shape, dtype=dtype, generator=generator).to(device)
    return torch.randn(shape, generator=generator).to(device, dtype)


def interleaved(image: torch.Tensor) -> torch.Tensor:
    """The same pixels as RGBRGB…, whatever the batch."""
    return image.movedim(-3, -1).contiguous().movedim(-1, -3)


def assert_same(result: torch.Tensor, expected: torch.Tensor) -> None:
    """To the bit, but for the sign of a zero and what a NaN holds."""
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("channels_last", [False, True])
def test_every_color(kernel: ModuleType, device: str, expected: Convert, channels_last: bool) -> None:
    # 256 images, one for each red; green along the rows, blue along the columns.
    levels = torch.arange(256, dtype=torch.uint8, device=device)
    cube = torch.empty(256, 3, 256, 256, dtype=torch.uint8, device=device)
    cube[:, 0] = levels.reshape(256, 1, 1)
    cube[:, 1] = levels.reshape(256, 1)
    cube[:, 2] = levels
    gray = kernel.rgb_to_grayscale(interleaved(cube) if channels_last else cube)
    for image, result in zip(cube.chunk(8), gray.chunk(8), strict=True):
        assert torch.equal(result, expected(image))


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", HALVES)
def test_every_half(
    kernel: ModuleType, device: str, expected: Convert, dtype: torch.dtype, channels_last: bool
) -> None:
    # Each number there is, infinite ones and those that are none too, as each channel and as all of them,
    # alone and together with others: correctly rounded from the float32 result.
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype).to(device)
    nothing = torch.zeros_like(every)
    mixed = [every[torch.randperm(2**16, generator=torch.Generator().manual_seed(i))] for i in range(3)]
    images = [
        (every, nothing, nothing), (nothing, every, nothing), (nothing, nothing, every),
        (every, every, every), (every, mixed[0], mixed[1]), (mixed[1], every, mixed[2]), mixed,
    ]  # fmt: skip
    image = torch.stack([torch.stack(list(channels)) for channels in images]).reshape(7, 3, 256, 256)
    image = interleaved(image) if channels_last else image
    assert_same(kernel.rgb_to_grayscale(image), expected(image))


@pytest.mark.parametrize("dtype", BITS)
def test_any_bits(kernel: ModuleType, device: str, expected: Convert, dtype: torch.dtype) -> None:
    bits = torch.randint(-(2**31), 2**31, (4, 3, 128, 251), generator=torch.Generator().manual_seed(2))
    image = bits.to(BITS[dtype]).view(dtype).to(device)
    assert_same(kernel.rgb_to_grayscale(image), expected(image))
    assert_same(kernel.rgb_to_grayscale(interleaved(image)), expected(image))


def test_gray_stays_gray(kernel: ModuleType, device: str) -> None:
    levels = torch.arange(256, dtype=torch.uint8, device=device).reshape(1, 16, 16)
    assert torch.equal(kernel.rgb_to_grayscale(levels.expand(3, 16, 16)), levels)


@pytest.mark.parametrize("scale", [1.0, 255.0, 1e-30, 1e30])
@pytest.mark.parametrize("channels_last", [False, True])
def test_float_accuracy(kernel: ModuleType, device: str, scale: float, channels_last: bool) -> None:
    # The bound of a sum in float32 with four roundings a term, against the same sum in float64.
    image = make((2, 3, 211, 307), torch.float32, device).mul(scale)
    gray = kernel.rgb_to_grayscale(interleaved(image) if channels_last else image)
    terms = torch.tensor(WEIGHTS, dtype=torch.float64, device=device).reshape(3, 1, 1) * image.double()
    error = (gray.double() - terms.sum(-3, keepdim=True)).abs()
    assert bool((error <= 4 * 2.0**-24 * terms.abs().sum(-3, keepdim=True)).all())


def test_double_accuracy(kernel: ModuleType, device: str) -> None:
    # The same for float64, against a sum without any rounding.
    image = torch.randn(3, 20, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    gray = kernel.rgb_to_grayscale(image.to(device)).flatten().tolist()
    weights = Fraction(299, 1000), Fraction(587, 1000), Fraction(114, 1000)
    for result, *channels in zip(gray, *image.flatten(1).tolist(), strict=True):
        terms = [weight * Fraction(channel) for weight, channel in zip(weights, channels, strict=True)]
        assert abs(Fraction(result) - sum(terms)) <= Fraction(4, 2**53) * sum(map(abs, terms))


@pytest.mark.parametrize("dtype", FLOATS)
def test_special_values(kernel: ModuleType, device: str, dtype: torch.dtype) -> None:
    inf, nan = float("inf"), float("nan")
    image = torch.tensor(
        [[inf, inf, nan, 0.0, -0.0], [1.0, -inf, 1.0, 0.0, -0.0], [1.0, 1.0, 1.0, 0.0, -0.0]], dtype=dtype
    )
    gray = kernel.rgb_to_grayscale(image.to(device).reshape(3, 1, 5)).flatten().cpu()
    assert gray[0] == inf
    assert gray[1].isnan() and gray[2].isnan()
    assert gray[3] == 0 and gray[4] == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("height", [1, 2, 5])
def test_widths(
    kernel: ModuleType, device: str, expected: Convert, dtype: torch.dtype, channels_last: bool, height: int
) -> None:
    # Every remainder of a division by the 16 pixels, at most, that a GPU moves at once; planes that begin at
    # every address. By the 64 of a vector unit too.
    for width in (*range(1, 50), 63, 64, 65, 127, 129, 191):
        image = make((2, 3, height, width), dtype, device)
        image = interleaved(image) if channels_last else image
        assert_same(kernel.rgb_to_grayscale(image), expected(image))


@pytest.mark.parametrize("offset", [0, 1, 7])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_large(
    kernel: ModuleType, device: str, expected: Convert, dtype: torch.dtype, channels_last: bool, offset: int
) -> None:
    # Results above the 4 MiB from which the CPU writes past its caches, from and to any address.
    height, width = 1031, 4219 // dtype.itemsize
    memory = make((3 * height * width + offset,), dtype, device)[offset:]
    image = (
        memory.reshape(height, width, 3).movedim(-1, 0) if channels_last else memory.reshape(3, height, width)
    )
    gray = kernel.rgb_to_grayscale(image)
    assert gray.nbytes > 4 * 2**20
    assert_same(gray, expected(image))
    out = torch.zeros(height * width + 2 * offset, dtype=dtype, device=device)
    inside = out[offset : offset + height * width].reshape(1, height, width)
    kernel.rgb_to_grayscale(image, out=inside)
    assert torch.equal(inside, gray)
    # Nothing is written before or behind it.
    assert not out[:offset].any() and not out[offset + height * width :].any()


@pytest.mark.parametrize("shape", [(3, 1, 1), (3, 7, 5), (1, 3, 4, 4), (2, 3, 33, 65), (2, 1, 4, 3, 6, 10)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_batches(
    kernel: ModuleType, device: str, expected: Convert, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    image = make(shape, dtype, device)
    gray = kernel.rgb_to_grayscale(image)
    assert gray.shape == (*shape[:-3], 1, *shape[-2:])
    assert gray.dtype == dtype and gray.device == image.device
    assert_same(gray, expected(image))


@pytest.mark.parametrize("shape", [(3, 0, 0), (3, 0, 4), (3, 4, 0), (0, 3, 4, 4), (2, 0, 3, 4, 4)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_empty(kernel: ModuleType, device: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    image = torch.empty(shape, dtype=dtype, device=device, requires_grad=dtype != torch.uint8)
    gray = kernel.rgb_to_grayscale(image)
    assert gray.shape == (*shape[:-3], 1, *shape[-2:])
    assert gray.dtype == dtype and gray.device.type == device
    out = torch.empty_like(gray)
    assert kernel.rgb_to_grayscale(image.detach(), out=out) is out
    if gray.requires_grad:
        gray.sum().backward()
        assert image.grad is not None and image.grad.shape == shape


def slower_levels() -> list[str]:
    """Of the vector units that torch knows here, those below the one that all other tests use."""
    levels = ["DEFAULT", "AVX2", "AVX512"]
    here = torch.backends.cpu.get_cpu_capability()
    return levels[: levels.index(here)] if here in levels else []


@pytest.mark.parametrize("level", slower_levels())
def test_vector_units(kernel: ModuleType, level: str) -> None:
    # Torch reads the variable once, when it is loaded. These tests compare with the last bit.
    here = Path(__file__)
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
         here, here.with_name("test_grayscale_gradients.py"), "-k", "not vector_units and not 32_bits"],
        env={**os.environ, "ATEN_CPU_CAPABILITY": level.lower(), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr


def test_vector_unit_is_the_one_asked_for() -> None:
    asked = os.environ.get("ATEN_CPU_CAPABILITY")
    assert asked is None or torch.backends.cpu.get_cpu_capability() == asked.upper()


def need_gpu_memory(device: str, gib: int) -> None:
    if device == "cuda" and torch.cuda.mem_get_info()[0] < gib * 2**30:
        pytest.skip(f"needs {gib} GiB of free GPU memory")


def test_more_elements_than_32_bits_count(kernel: ModuleType, device: str, expected: Convert) -> None:
    # A row repeated by a stride of 0: the image takes no memory, only the result does, which on a GPU alone
    # has over 2^31 elements. The slice is not aligned.
    need_gpu_memory(device, 3)
    row = torch.randint(256, (3, 1, 8192), dtype=torch.uint8, device=device)[..., 1:]
    rows = 2**31 // (8191 * (1 if device == "cuda" else 3)) + 1
    gray = kernel.rgb_to_grayscale(row.expand(3, rows, 8191))
    assert 3 * gray.numel() > 2**31
    for part in gray.chunk(64, dim=1):
        assert torch.equal(part, expected(row).expand_as(part))


@pytest.mark.parametrize("stride", [3, 4])
def test_rows_of_more_elements_than_32_bits_count(
    kernel: ModuleType, device: str, expected: Convert, stride: int
) -> None:
    # A GPU counts within a row by 64 bits then; pixels in a row, and with a fourth channel in between.
    if device != "cuda":
        pytest.skip("the CPU counts everything by 64 bits")
    need_gpu_memory(device, 8)
    pixels = 2**31 // 3 + 100
    image = torch.randint(256, (1, pixels, stride), dtype=torch.uint8, device=device)[..., :3].permute(
        2, 0, 1
    )
    gray = kernel.rgb_to_grayscale(image)
    for some, part in zip(image.chunk(64, dim=2), gray.chunk(64, dim=2), strict=True):
        assert torch.equal(part, expected(some))


def test_strides_beyond_32_bits(kernel: ModuleType, device: str, expected: Convert) -> None:
    # Memory that is not touched costs nothing on the CPU.
    need_gpu_memory(device, 3)
    memory = torch.empty(2**31 + 2**16, dtype=torch.uint8, device=device)
    image = memory.as_strided((3, 64, 64), (2**30 + 2**12, 64, 1))
    image.copy_(torch.randint(256, (3, 64, 64), dtype=torch.uint8))
    assert torch.equal(kernel.rgb_to_grayscale(image), expected(image))
