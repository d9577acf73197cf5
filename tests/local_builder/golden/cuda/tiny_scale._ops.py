import torch

from . import _tiny_scale_cuda_0123abc

ops = torch.ops._tiny_scale_cuda_0123abc


def add_op_namespace_prefix(op_name: str) -> str:
    """The full name of an operator of this kernel."""
    return f"_tiny_scale_cuda_0123abc::{op_name}"
