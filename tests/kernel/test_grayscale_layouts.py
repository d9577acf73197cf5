"""Images are read where they lie, and their layout carries over to the result."""

import os
from collections.abc import Callable
from types import ModuleType

import pytest
import torch

pytestmark = pytest.mark.kernels_ci

Size = tuple[int, ...]
Convert = Callable[[torch.Tensor], torch.Tensor]

DTYPES = [torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64]

# How an image of shape [4, 3, 20, 36] can lie in memory, and the strides of its result.
LAYOUTS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], Size]] = {
    "contiguous": (lambda image: image, (720, 720, 36, 1)),
    "channels_last": (lambda image: image.to(memory_format=torch.channels_last), (720, 1, 36, 1)),
    "crop": (lambda image: padded(image)[..., 2:22, 5:41], (720, 720, 36, 1)),
    "aligned_crop": (lambda image: padded(image)[..., 2:22, 16:52], (720, 720, 36, 1)),
    "channels_last_crop": (
        lambda image: padded(image).to(memory_format=torch.channels_last)[..., 2:22, 5:41],
        (720, 1, 36, 1),
    ),
    "aligned_channels_last_crop": (
        lambda image: padded(image).to(memory_format=torch.channels_last)[..., 2:22, 16:52],
        (720, 1, 36, 1),
    ),
    "every_second_column": (lambda image: image.repeat_interleave(2, -1)[..., ::2], (720, 720, 36, 1)),
    "every_second_row": (lambda image: image.repeat_interleave(2, -2)[..., ::2, :], (720, 720, 36, 1)),
    "every_second_image": (lambda image: image.repeat_interleave(2, 0)[::2], (720, 720, 36, 1)),
    "transposed": (lambda image: image.mT.contiguous().mT, (720, 720, 1, 20)),
    "channels_first": (lambda image: image.transpose(0, 1).contiguous().transpose(0, 1), (720, 2880, 36, 1)),
    "batch_last": (
        lambda image: image.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2),
        (1, 2880, 144, 4),
    ),
    "channels_reversed": (lambda image: image.flip(-3), (720, 720, 36, 1)),
    "rgba": (lambda image: torch.cat([image, image[:, :1]], 1)[:, :3], (720, 720, 36, 1)),
    "rgba_channels_last": (
        lambda image: torch.cat([image, image[:, :1]], 1).to(memory_format=torch.channels_last)[:, :3],
        (720, 1, 36, 1),
    ),
}


def padded(image: torch.Tensor) -> torch.Tensor:
    """A larger image, 64 wide, out of which the tests cut."""
    *batch, height, width = image.shape
    larger = image.new_zeros(*batch, height + 6, 64)
    larger[..., 2 : 2 + height, 5 : 5 + width] = image
    larger[..., 2 : 2 + height, 64 - width :] = image
    return larger


@pytest.fixture
def check(kernel: ModuleType, expected: Convert) -> Convert:
    """Converts, and compares the result to the bit."""

    def convert(image: torch.Tensor) -> torch.Tensor:
        before = image.clone()
        gray: torch.Tensor = kernel.rgb_to_grayscale(image)
        assert torch.equal(gray, expected(image))
        assert torch.equal(image, before)
        return gray

    return convert


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout(check: Convert, device: str, dtype: torch.dtype, layout: str) -> None:
    make, strides = LAYOUTS[layout]
    image = make(torch.randint(256, (4, 3, 20, 36), device=device).to(dtype))
    assert image.shape == (4, 3, 20, 36)
    assert check(image).stride() == strides


@pytest.mark.parametrize("dim", range(4))
def test_expanded(check: Convert, device: str, dim: int) -> None:
    shape = [4, 3, 20, 36]
    expanded = torch.Size(shape)
    shape[dim] = 1
    gray = check(torch.rand(shape, device=device).mul(255).round().expand(expanded))
    # Each pixel of the result has its own memory.
    assert gray.untyped_storage().nbytes() == gray.numel() * gray.element_size()


def test_interleaved_image_of_three_dims(check: Convert, device: str) -> None:
    # As decoders give it: height, width, channel.
    image = torch.randint(256, (20, 36, 3), dtype=torch.uint8, device=device).permute(2, 0, 1)
    assert check(image).is_contiguous()


def test_video(check: Convert, device: str) -> None:
    frames = torch.randint(256, (2, 5, 20, 36, 3), dtype=torch.uint8, device=device).permute(0, 1, 4, 2, 3)
    assert check(frames).is_contiguous()
    # Time before batch in memory, and a part of each frame.
    check(frames.transpose(0, 1).contiguous().transpose(0, 1)[..., 3:-2, 1::3])


def test_dims_that_do_not_merge(check: Convert, device: str) -> None:
    image = torch.randint(256, (*[3] * 8, 3, 3, 3), dtype=torch.uint8, device=device)
    for dim in (0, 1, 2, 3, 4, 5, 6, 7, 9, 10):
        image = image.narrow(dim, 0, 2)
    check(image)
    check(image.permute(7, 2, 5, 0, 3, 6, 1, 4, 8, 10, 9))


def test_most_dims(kernel: ModuleType, check: Convert, device: str) -> None:
    # Strides of 1 alone, overlapping: no two dimensions can be walked as one.
    memory = torch.randint(256, (32,), dtype=torch.uint8, device=device)
    check(memory.as_strided((*[2] * 14, 3, 2, 2), [1] * 17))
    with pytest.raises(ValueError, match="take more than 16 nested loops"):
        kernel.rgb_to_grayscale(memory.as_strided((*[2] * 15, 3, 2, 2), [1] * 18))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", range(1, 17))
def test_storage_offset(check: Convert, device: str, dtype: torch.dtype, offset: int) -> None:
    # No address but an element's own alignment can be relied upon.
    memory = torch.randint(256, (3 * 16 * 32 + 16,), device=device).to(dtype)
    check(memory[offset : offset + 3 * 16 * 32].reshape(3, 16, 32))
    check(memory[offset : offset + 3 * 16 * 32].reshape(16, 32, 3).permute(2, 0, 1))


OUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "same": torch.empty_like,
    "contiguous": lambda gray: torch.empty_like(gray, memory_format=torch.contiguous_format),
    "transposed": lambda gray: torch.empty_like(gray.mT, memory_format=torch.contiguous_format).mT,
    "shifted": lambda gray: gray.new_empty(gray.numel() + 1)[1:].reshape(gray.shape),
    "crop": lambda gray: gray.new_empty(*gray.shape[:-1], gray.shape[-1] + 3)[..., 2:-1],
    "every_second_column": lambda gray: gray.new_empty(*gray.shape, 2)[..., 0],
    "batch_last": lambda gray: gray.new_empty(*gray.shape[1:], gray.shape[0]).movedim(-1, 0),
}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("out_layout", OUTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_out(
    kernel: ModuleType, check: Convert, device: str, dtype: torch.dtype, layout: str, out_layout: str
) -> None:
    image = LAYOUTS[layout][0](torch.randint(256, (4, 3, 20, 36), device=device).to(dtype))
    gray = check(image)
    out = OUTS[out_layout](gray)
    strides, version = out.stride(), out._version
    assert kernel.rgb_to_grayscale(image, out=out) is out
    assert torch.equal(out, gray)
    assert out.stride() == strides and out._version == version + 1


def test_out_beside_the_image(kernel: ModuleType, check: Convert, device: str) -> None:
    # The same memory, but none in common: the fourth channel of an image.
    image = torch.randint(256, (4, 20, 36), dtype=torch.uint8, device=device)
    gray = check(image[:3])
    kernel.rgb_to_grayscale(image[:3], out=image[3:])
    assert torch.equal(image[3:], gray)


def test_negative_view(kernel: ModuleType, device: str) -> None:
    # A lazy negation: torch resolves it before the kernel sees the tensor.
    image = torch.randint(256, (3, 8, 8), device=device).to(torch.float32)
    assert torch.equal(kernel.rgb_to_grayscale(torch._neg_view(image)), -kernel.rgb_to_grayscale(image))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_image_is_not_copied(kernel: ModuleType, device: str, layout: str) -> None:
    if device == "cuda" and "PYTORCH_NO_CUDA_MEMORY_CACHING" in os.environ:
        pytest.skip("a sanitizer does without torch's allocator, whose memory the profiler counts")
    make, _ = LAYOUTS[layout]
    image = make(torch.randint(256, (4, 3, 20, 36), dtype=torch.uint8, device=device))
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        gray = kernel.rgb_to_grayscale(image)
    assert gray.nbytes == 2880
    events = profile.key_averages()
    allocated = sum(event.self_cpu_memory_usage + event.self_device_memory_usage for event in events)
    # The result, which CUDA's allocator rounds up to 512 bytes.
    assert 2880 <= allocated <= 3072
