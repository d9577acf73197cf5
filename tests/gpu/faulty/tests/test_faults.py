"""Run by test_gpu.py, each by its name: those that are named for a fault have it, on purpose."""

import kernels
import pytest
import torch

pytestmark = pytest.mark.kernels_ci
THREADS = 128


@pytest.fixture(scope="session")
def ops():
    return kernels.get_kernel("kernel-actions/faulty", version=1, trust_remote_code=True).ops


def ones(ops, beyond):
    out = torch.zeros(1000, device="cuda")
    ops.fill(out, beyond)
    assert out.cpu().sum().item() == 1000


def test_fill(ops):
    ones(ops, 0)


def test_reverse(ops):
    out = torch.arange(THREADS).float().cuda()
    ops.reverse(out, True)
    assert out.cpu().tolist() == list(reversed(range(THREADS)))


def test_copy(ops):
    given = torch.arange(1000).float().cuda()
    out = torch.empty_like(given)
    ops.copy(given, out)
    assert out.cpu().tolist() == list(range(1000))


def test_meet(ops):
    out = torch.zeros(THREADS, device="cuda")
    ops.meet(out, 1)
    assert out.cpu().tolist() == [1.0] * THREADS


# What these do is not seen in what they give.
def test_beyond(ops):
    ones(ops, 4)


def test_race(ops):
    ops.reverse(torch.zeros(THREADS, device="cuda"), False)


def test_uninitialized(ops):
    ops.copy(torch.empty(1000, device="cuda"), torch.zeros(1000, device="cuda"))


def test_diverging(ops):
    ops.meet(torch.zeros(THREADS, device="cuda"), 2)


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
