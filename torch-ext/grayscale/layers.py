"""Layers for `kernels.kernelize`: stateless, and with a `forward` to take the place of a model's own."""

import torch
from torch import nn

from ._ops import ops

__all__ = ["RgbToGrayscale"]


class RgbToGrayscale(nn.Module):
    """A layer that converts RGB images to grayscale, as `rgb_to_grayscale` does."""

    can_torch_compile: bool = True
    has_backward: bool = True

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return ops.rgb_to_grayscale(image)
