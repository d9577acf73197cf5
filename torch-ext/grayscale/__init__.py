"""RGB images to grayscale (BT.601 luma), on the CPU and on CUDA devices."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch

from . import layers
from ._ops import add_op_namespace_prefix, ops

__all__ = ["layers", "rgb_to_grayscale"]


def rgb_to_grayscale(image: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Convert RGB images to grayscale.

    For `uint8` each pixel is `(299 * R + 587 * G + 114 * B + 500) // 1000`. For `float32` and `float64` it is
    `0.299 * R + 0.587 * G + 0.114 * B`, rounded after each operation, whatever the range of the values; for
    `float16` and `bfloat16` the same in `float32`, rounded once more. All are the same bits on every device.
    Works under `torch.compile(fullgraph=True)`, and is differentiable any number of times, in both modes.

    Args:
        image: Tensor of shape `[..., 3, H, W]`, dtype `uint8`, `float16`, `bfloat16`, `float32` or `float64`,
            on the CPU or on a CUDA device. Any strides will do, without a copy; contiguous and channels-last
            images are the fastest.
        out: Where to write the result, of its shape, dtype and device. Any strides will do, but its elements
            may share memory neither with each other nor with `image`. No gradient passes through it.

    Returns:
        A tensor of shape `[..., 1, H, W]`, with the dtype and the device of `image`: `out`, or else a new
        one, which is dense, and has its dimensions in memory in the order of the image's: contiguous gives
        contiguous, channels-last gives channels-last.

    Raises:
        TypeError: The dtype of `image` is another, or that of `out` is not the same.
        ValueError: The shape is another, or `out` has not that of the result, or is on another device.
        RuntimeError: `out` overlaps, or a gradient is asked for through it.
        NotImplementedError: This build has no code for the device or the layout of a tensor.

    Example:
        >>> image = torch.tensor([255, 128, 0], dtype=torch.uint8).reshape(3, 1, 1)
        >>> rgb_to_grayscale(image)
        tensor([[[151]]], dtype=torch.uint8)
    """
    if out is None:
        return ops.rgb_to_grayscale(image)
    ops.rgb_to_grayscale_out(image, out=out)
    return out


# What torch.compile and the meta device see in place of the kernels: the same checks, sizes and strides.

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _check(image: torch.Tensor) -> None:
    if image.dtype not in (torch.uint8, *_FLOATS):
        raise TypeError(
            "rgb_to_grayscale: expected an image of uint8, float16, bfloat16, float32 or float64, "
            f"got {image.dtype}"
        )
    if image.dim() < 3 or image.shape[-3] != 3:
        got = list(image.shape)
        raise ValueError(f"rgb_to_grayscale: expected an image of shape [..., 3, H, W], got {got}")


@torch.library.register_fake(add_op_namespace_prefix("rgb_to_grayscale"))
def _fake(image: torch.Tensor) -> torch.Tensor:
    _check(image)
    shape = (*image.shape[:-3], 1, *image.shape[-2:])
    # Decreasing strides, expanded dimensions first; sorted() is stable, like the sort in torch_binding.cpp.
    order = sorted(range(image.dim()), key=lambda dim: image.stride(dim) or sys.maxsize, reverse=True)
    return torch.empty_permuted(shape, order, dtype=image.dtype, device=image.device)


@torch.library.register_fake(add_op_namespace_prefix("rgb_to_grayscale_out"))
def _fake_out(image: torch.Tensor, *, out: torch.Tensor) -> None:
    _check(image)
    if out.dtype != image.dtype:
        raise TypeError(f"rgb_to_grayscale: expected an out of {image.dtype} like the image, got {out.dtype}")
    shape = [*image.shape[:-3], 1, *image.shape[-2:]]
    if list(out.shape) != shape:
        raise ValueError(f"rgb_to_grayscale: expected an out of shape {shape}, got {list(out.shape)}")
    if out.device != image.device:
        raise ValueError(
            f"rgb_to_grayscale: expected an out on {image.device} like the image, got one on {out.device}"
        )


@torch.library.register_fake(add_op_namespace_prefix("rgb_to_grayscale_backward"))
def _fake_backward(gradient: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    if gradient.dtype not in _FLOATS:
        raise TypeError(f"rgb_to_grayscale_backward: expected a gradient of floats, got {gradient.dtype}")
    if gradient.dim() < 3 or gradient.shape[-3] != 1:
        got = list(gradient.shape)
        raise ValueError(f"rgb_to_grayscale_backward: expected a gradient of shape [..., 1, H, W], got {got}")
    if sorted(order) != list(range(gradient.dim())):
        raise ValueError(
            f"rgb_to_grayscale_backward: expected an order of {gradient.dim()} dimensions, got {list(order)}"
        )
    shape = (*gradient.shape[:-3], 3, *gradient.shape[-2:])
    return torch.empty_permuted(shape, order, dtype=gradient.dtype, device=gradient.device)


# What torch.vmap does: a batch is one dimension more, and goes in front of the others.


@torch.library.register_vmap(add_op_namespace_prefix("rgb_to_grayscale"))
def _vmap(info, in_dims, image: torch.Tensor):
    return ops.rgb_to_grayscale(image.movedim(in_dims[0], 0)), 0


@torch.library.register_vmap(add_op_namespace_prefix("rgb_to_grayscale_backward"))
def _vmap_backward(info, in_dims, gradient: torch.Tensor, order: Sequence[int]):
    batch_order = [0, *(dim + 1 for dim in order)]
    return ops.rgb_to_grayscale_backward(gradient.movedim(in_dims[0], 0), batch_order), 0
