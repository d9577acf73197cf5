"""RGB images to grayscale (BT.601 luma), on the CPU and on CUDA devices."""

import sys

import torch

from ._ops import add_op_namespace_prefix, ops

__all__ = ["rgb_to_grayscale"]


def rgb_to_grayscale(image: torch.Tensor) -> torch.Tensor:
    """Convert RGB images to grayscale.

    For `uint8` each pixel is `(299 * R + 587 * G + 114 * B + 500) // 1000`, the same byte on every device.
    For `float32` it is `0.299 * R + 0.587 * G + 0.114 * B`, whatever the range of the values, and
    differentiable. Works under `torch.compile(fullgraph=True)`.

    Args:
        image: Tensor of shape `[..., 3, H, W]`, dtype `uint8` or `float32`, on the CPU or on a CUDA device.
            Any strides will do, without a copy; contiguous and channels-last images are the fastest.

    Returns:
        A new tensor of shape `[..., 1, H, W]`, with the dtype and the device of `image`. It is dense, and its
        dimensions lie in memory in the order of the image's: contiguous gives contiguous, channels-last gives
        channels-last.

    Raises:
        TypeError: The dtype is another.
        ValueError: The shape is another.
        NotImplementedError: This build has no code for the device or the layout of `image`.

    Example:
        >>> image = torch.tensor([255, 128, 0], dtype=torch.uint8).reshape(3, 1, 1)
        >>> rgb_to_grayscale(image)
        tensor([[[151]]], dtype=torch.uint8)
    """
    return ops.rgb_to_grayscale(image)


@torch.library.register_fake(add_op_namespace_prefix("rgb_to_grayscale"))
def _fake(image: torch.Tensor) -> torch.Tensor:
    # What torch.compile and the meta device see in place of the kernel: the same checks, sizes and strides.
    if image.dtype not in (torch.uint8, torch.float32):
        raise TypeError(f"rgb_to_grayscale: expected an image of uint8 or float32, got {image.dtype}")
    if image.dim() < 3 or image.shape[-3] != 3:
        got = list(image.shape)
        raise ValueError(f"rgb_to_grayscale: expected an image of shape [..., 3, H, W], got {got}")
    shape = (*image.shape[:-3], 1, *image.shape[-2:])
    # Decreasing strides, expanded dimensions first; sorted() is stable, like the sort in torch_binding.cpp.
    order = sorted(range(image.dim()), key=lambda dim: image.stride(dim) or sys.maxsize, reverse=True)
    return torch.empty_permuted(shape, order, dtype=image.dtype, device=image.device)


def _backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
    return torch.cat([weight * gradient for weight in (0.299, 0.587, 0.114)], dim=-3)


torch.library.register_autograd(add_op_namespace_prefix("rgb_to_grayscale"), _backward)
