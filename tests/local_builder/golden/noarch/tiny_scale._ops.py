import torch


def _backend() -> str:
    """The backend of the Torch that imports this, which the operators are named by."""
    if hasattr(torch.backends, "tpu"):
        return "tpu"
    if hasattr(torch, "neuron"):
        return "neuron"
    if torch.version.cuda is not None:
        return "cuda"
    if torch.version.hip is not None:
        return "rocm"
    if torch.backends.mps.is_available():
        return "metal"
    if getattr(torch.version, "xpu", None) is not None:
        return "xpu"
    return "cpu"


_NAME = f"_tiny_scale_{_backend()}_0123abc"

ops = getattr(torch.ops, _NAME)


def add_op_namespace_prefix(op_name: str) -> str:
    """The full name of an operator of this kernel."""
    return f"{_NAME}::{op_name}"
