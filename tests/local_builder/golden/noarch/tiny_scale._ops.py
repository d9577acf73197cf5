import torch

ops = torch.ops._tiny_scale_cpu_0123abc


def add_op_namespace_prefix(op_name: str) -> str:
    """The full name of an operator of this kernel."""
    return f"_tiny_scale_cpu_0123abc::{op_name}"
