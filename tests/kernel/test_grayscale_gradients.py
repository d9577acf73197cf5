"""Gradients of any order, in both modes, exact and without a copy."""

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch.autograd import forward_ad

pytestmark = pytest.mark.kernels_ci

WEIGHTS = (0.299, 0.587, 0.114)
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]

LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda image: image,
    "channels_last": lambda image: image.contiguous(memory_format=torch.channels_last),
    "transposed": lambda image: image.mT.contiguous().mT,
    "batch_last": lambda image: image.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2),
    "time_first": lambda image: image.transpose(0, 1).contiguous().transpose(0, 1),
    "single": lambda image: image[0].permute(1, 2, 0).contiguous().permute(2, 0, 1),
}

GRADIENTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "same": lambda gray: torch.randn_like(gray),
    "sum": lambda gray: torch.randn((), dtype=gray.dtype, device=gray.device).expand_as(gray),
    "rows": lambda gray: torch.randn_like(gray[..., :1]).expand_as(gray),
    "columns": lambda gray: torch.randn_like(gray[..., :1, :]).expand_as(gray),
    "shifted": lambda gray: torch.randn(
        gray.numel() + 1, dtype=gray.dtype, device=gray.device
    )[1:].reshape(gray.shape),
    "transposed": lambda gray: torch.randn_like(gray.mT.contiguous()).mT,
}  # fmt: skip


def expected(gradient: torch.Tensor) -> torch.Tensor:
    wide = gradient.float() if gradient.element_size() == 2 else gradient
    return torch.cat([weight * wide for weight in WEIGHTS], dim=-3).to(gradient.dtype)


@pytest.mark.parametrize("size", [(8, 16), (7, 9), (33, 65), (1, 1)])
@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradient(kernel: ModuleType, device: str, layout: str, name: str, size: tuple[int, int]) -> None:
    for dtype in FLOATS:
        image = LAYOUTS[layout](torch.randn(3, 3, *size, device=device).to(dtype)).requires_grad_()
        gray = kernel.rgb_to_grayscale(image)
        gradient = GRADIENTS[name](gray)
        (result,) = torch.autograd.grad(gray, image, gradient)
        assert torch.equal(result, expected(gradient))
        # So that torch keeps it as it is.
        assert result.stride() == image.stride()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradcheck(kernel: ModuleType, device: str, layout: str) -> None:
    image = LAYOUTS[layout](torch.randn(2, 3, 3, 5, dtype=torch.float64, device=device)).requires_grad_()
    torch.autograd.gradcheck(
        kernel.rgb_to_grayscale, image, check_forward_ad=True, check_batched_grad=True,
        check_batched_forward_grad=True,
    )  # fmt: skip
    torch.autograd.gradgradcheck(
        kernel.rgb_to_grayscale, image, check_fwd_over_rev=True, check_rev_over_rev=True
    )


def test_second_order(kernel: ModuleType, device: str) -> None:
    # Of a function that is not linear, the gradient of the gradient.
    image = torch.randn(3, 4, 5, dtype=torch.float64, device=device, requires_grad=True)
    (first,) = torch.autograd.grad(kernel.rgb_to_grayscale(image).pow(3).sum(), image, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), image)
    weights = torch.tensor(WEIGHTS, dtype=torch.float64, device=device).reshape(3, 1, 1)
    torch.testing.assert_close(second, 6 * weights * weights.sum() * kernel.rgb_to_grayscale(image))


def test_forward_mode(kernel: ModuleType, device: str) -> None:
    image, tangent = torch.randn(2, 2, 3, 4, 5, device=device)
    with forward_ad.dual_level():
        gray = kernel.rgb_to_grayscale(forward_ad.make_dual(image, tangent))
        assert torch.equal(forward_ad.unpack_dual(gray).tangent, kernel.rgb_to_grayscale(tangent))


def test_functional_transforms(kernel: ModuleType, device: str) -> None:
    convert = kernel.rgb_to_grayscale
    images = torch.randn(6, 3, 4, 5, device=device)

    def loss(image: torch.Tensor) -> torch.Tensor:
        gray: torch.Tensor = convert(image)
        return gray.square().sum()

    gradient = expected(2 * convert(images))
    torch.testing.assert_close(torch.func.grad(loss)(images), gradient)
    torch.testing.assert_close(torch.vmap(torch.func.grad(loss))(images), gradient)
    primal, tangent = torch.func.jvp(convert, (images,), (images,))
    assert torch.equal(primal, convert(images)) and torch.equal(tangent, convert(images))
    jacobian = torch.func.jacrev(convert)(images[0, :, :1, :1])
    torch.testing.assert_close(jacobian.flatten(), torch.tensor(WEIGHTS, device=device))
    torch.testing.assert_close(torch.func.jacfwd(convert)(images[0, :, :1, :1]), jacobian)
    hessian = torch.func.hessian(loss)(images[0, :, :1, :1]).reshape(3, 3)
    weights = torch.tensor(WEIGHTS, device=device)
    torch.testing.assert_close(hessian, 2 * torch.outer(weights, weights))


@pytest.mark.parametrize("dim", [0, 1, 2, 3])
def test_vmap(kernel: ModuleType, device: str, dim: int) -> None:
    for dtype in (torch.uint8, torch.float32):
        images = torch.randint(256, (5, 3, 4, 6), device=device).to(dtype)
        gray = torch.vmap(kernel.rgb_to_grayscale, in_dims=dim)(images.movedim(0, dim))
        assert torch.equal(gray, kernel.rgb_to_grayscale(images))


def test_nothing_is_recorded_without_need(kernel: ModuleType, device: str) -> None:
    image = torch.randn(3, 4, 5, device=device, requires_grad=True)
    assert kernel.rgb_to_grayscale(image).requires_grad
    assert not kernel.rgb_to_grayscale(image.detach()).requires_grad
    with torch.no_grad():
        assert not kernel.rgb_to_grayscale(image).requires_grad
    with torch.inference_mode():
        assert kernel.rgb_to_grayscale(image).is_inference()


def test_the_image_is_not_kept(kernel: ModuleType, device: str) -> None:
    # The gradient needs no pixel: the image may change, as it may not if the graph held it.
    image = torch.randn(3, 4, 5, device=device, requires_grad=True)
    gray = kernel.rgb_to_grayscale(image)
    with torch.no_grad():
        image.zero_()
    gray.sum().backward()
    assert image.grad is not None and bool((image.grad != 0).all())


def test_gradient_through_a_chain(kernel: ModuleType, device: str) -> None:
    # A graph as deep as this would overflow the stack if its nodes freed each other.
    image = torch.randn(3, 1, 1, device=device, requires_grad=True)
    value = image
    for _ in range(20_000):
        value = kernel.rgb_to_grayscale(value).expand(3, 1, 1)
    del value
