"""Inputs of the operators, for `kernel-actions test --opcheck`."""

from collections.abc import Iterator
from typing import Any

import torch


def samples(op: str, device: str) -> Iterator[tuple[Any, ...]]:
    """Arguments to call the operator `op` with on `device`; with keywords, a tuple and a dictionary."""
    images = (
        torch.randint(256, (2, 3, 8, 10), dtype=torch.uint8, device=device),
        torch.rand(2, 3, 8, 10, device=device).to(memory_format=torch.channels_last),
        torch.rand(3, 9, 12, dtype=torch.float64, device=device)[..., 1:, 1:-1],
    )
    if op == "rgb_to_grayscale":
        for image in images:
            yield (image,)
    elif op == "rgb_to_grayscale_out":
        for image in images:
            yield (image,), {"out": torch.empty_like(image[..., :1, :, :])}
    elif op == "rgb_to_grayscale_backward":
        yield torch.rand(2, 1, 8, 10, device=device), [0, 1, 2, 3]
        yield torch.rand(2, 1, 8, 10, device=device), [0, 2, 3, 1]
