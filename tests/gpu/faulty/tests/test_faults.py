"""Run by test_gpu.py, each by its name: all but the first go wrong on purpose."""

import kernels
import pytest
import torch

pytestmark = pytest.mark.kernels_ci


@pytest.fixture(scope="session")
def ops():
    return kernels.get_kernel("kernel-actions/faulty", version=1, trust_remote_code=True).ops


def ones(ops, beyond):
    out = torch.zeros(1000, device="cuda")
    ops.fill(out, beyond)
    assert out.sum().item() == 1000


def test_fill(ops):
    ones(ops, 0)


def test_beyond(ops):
    ones(ops, 4)


def test_hang(ops):
    ops.hang(torch.zeros(1, device="cuda"))
    torch.cuda.synchronize()


# These two start what fails, and end well: the error comes later.
def test_illegal(ops):
    # Sizes say more than there is memory: 4 TiB.
    ops.fill(torch.zeros(1, device="cuda").expand(1 << 30), 0)


def test_assert(ops):
    ops.fail(torch.zeros(1, device="cuda"))


def test_later(ops):
    ones(ops, 0)
