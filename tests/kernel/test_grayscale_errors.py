"""What cannot be converted is refused with an error that says what was wrong."""

from types import ModuleType

import pytest
import torch

pytestmark = pytest.mark.kernels_ci


EXPECTED = "expected an image of uint8, float16, bfloat16, float32 or float64, got"


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.int32, torch.uint16, torch.bool, torch.complex64, torch.float8_e5m2]
)
def test_wrong_dtype(kernel: ModuleType, device: str, dtype: torch.dtype) -> None:
    image = torch.zeros(3, 4, 4, dtype=torch.uint8, device=device).to(dtype)
    with pytest.raises(TypeError, match=EXPECTED):
        kernel.rgb_to_grayscale(image)
    with pytest.raises(TypeError, match=EXPECTED):
        kernel.rgb_to_grayscale(image, out=torch.zeros(1, 4, 4, device=device))


@pytest.mark.parametrize(
    "shape", [(), (3,), (3, 4), (1, 4, 4), (4, 4, 4), (2, 4, 4, 3), (3, 1, 4, 4), (0, 4, 4)]
)
def test_wrong_shape(kernel: ModuleType, device: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected an image of shape \[\.\.\., 3, H, W\], got"):
        kernel.rgb_to_grayscale(torch.zeros(shape, device=device))
    with pytest.raises(ValueError, match=r"expected an image of shape \[\.\.\., 3, H, W\], got"):
        kernel.rgb_to_grayscale(torch.zeros(shape, device=device), out=torch.zeros(1, 4, 4, device=device))


def test_not_a_tensor(kernel: ModuleType) -> None:
    with pytest.raises((TypeError, RuntimeError), match=r"rgb_to_grayscale"):
        kernel.rgb_to_grayscale([[[1.0]], [[2.0]], [[3.0]]])


def test_sparse(kernel: ModuleType, device: str) -> None:
    with pytest.raises(NotImplementedError, match=r"rgb_to_grayscale: .* the image is a Sparse tensor"):
        kernel.rgb_to_grayscale(torch.zeros(3, 4, 4, device=device).to_sparse())
    with pytest.raises(NotImplementedError, match=r"rgb_to_grayscale: .* the out is a Sparse tensor"):
        kernel.rgb_to_grayscale(
            torch.zeros(3, 4, 4, device=device), out=torch.zeros(1, 4, 4, device=device).to_sparse()
        )


def test_cuda_image_for_a_cpu_build(kernel: ModuleType, backend: str) -> None:
    if backend != "cpu" or not torch.cuda.is_available():
        pytest.skip("needs a CUDA device, and a build for the CPU")
    with pytest.raises(
        NotImplementedError, match=r"strided tensors on the CPU, and the image is .* on cuda:0"
    ):
        kernel.rgb_to_grayscale(torch.zeros(3, 4, 4, device="cuda"))


def image_and_out(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(2, 3, 4, 4, device=device), torch.zeros(2, 1, 4, 4, device=device)


# On the meta device, the fake implementations check: they have to refuse the same.
@pytest.fixture(params=["real", "meta"])
def place(request: pytest.FixtureRequest, device: str) -> str:
    return device if request.param == "real" else "meta"


def test_fake_image(kernel: ModuleType) -> None:
    with pytest.raises(TypeError, match=EXPECTED):
        kernel.rgb_to_grayscale(torch.zeros(3, 4, 4, dtype=torch.int32, device="meta"))
    with pytest.raises(ValueError, match="expected an image of shape"):
        kernel.rgb_to_grayscale(torch.zeros(4, 4, 4, device="meta"))


def test_out_of_another_dtype(kernel: ModuleType, place: str) -> None:
    image, out = image_and_out(place)
    with pytest.raises(TypeError, match=r"expected an out of .* like the image, got"):
        kernel.rgb_to_grayscale(image, out=out.double())


@pytest.mark.parametrize("shape", [(), (1, 4, 4), (2, 3, 4, 4), (1, 1, 4, 4), (2, 1, 4, 5), (2, 1, 2, 8)])
def test_out_of_another_shape(kernel: ModuleType, place: str, shape: tuple[int, ...]) -> None:
    # No broadcasting, and no resizing.
    image, out = image_and_out(place)
    with pytest.raises(ValueError, match=r"expected an out of shape \[2, 1, 4, 4\], got \["):
        kernel.rgb_to_grayscale(image, out=out.new_zeros(shape))


def test_out_on_another_device(kernel: ModuleType, device: str, backend: str) -> None:
    if device != "cuda":
        pytest.skip("needs a second device")
    for here, there in (("cpu", "cuda"), ("cuda", "cpu")):
        with pytest.raises(
            ValueError, match=f"expected an out on {here}.* like the image, got one on {there}"
        ):
            kernel.rgb_to_grayscale(image_and_out(here)[0], out=image_and_out(there)[1])


def test_out_that_overlaps_itself(kernel: ModuleType, device: str) -> None:
    image, out = image_and_out(device)
    for overlapping in (out[:1].expand(2, 1, 4, 4), out.flatten().as_strided((2, 1, 4, 4), (1, 1, 4, 1))):
        with pytest.raises(RuntimeError, match="elements of out share memory with each other"):
            kernel.rgb_to_grayscale(image, out=overlapping)


def test_out_that_overlaps_the_image(kernel: ModuleType, device: str) -> None:
    image, _ = image_and_out(device)
    memory = image.flatten()
    for overlapping in (
        image[:, :1], image[:, 2:], memory[1:33].reshape(2, 1, 4, 4), memory[64:].reshape(2, 1, 4, 4),
        memory[::3].reshape(2, 1, 4, 4),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="out may share memory with the image"):
            kernel.rgb_to_grayscale(image, out=overlapping)


def test_gradient_through_out(kernel: ModuleType, device: str) -> None:
    image, out = image_and_out(device)
    message = r"out=\.\.\. arguments don't support automatic differentiation"
    with pytest.raises(RuntimeError, match=message):
        kernel.rgb_to_grayscale(image.clone().requires_grad_(), out=out)
    with pytest.raises(RuntimeError, match=message):
        kernel.rgb_to_grayscale(image, out=out.clone().requires_grad_())
    with torch.autograd.forward_ad.dual_level(), pytest.raises(RuntimeError, match=message):
        kernel.rgb_to_grayscale(torch.autograd.forward_ad.make_dual(image, image), out=out)
    with torch.no_grad():
        assert kernel.rgb_to_grayscale(image.clone().requires_grad_(), out=out) is out


def test_out_that_a_gradient_needs(kernel: ModuleType, device: str) -> None:
    # The version counter tells torch that what it saved is gone.
    image, out = image_and_out(device)
    weight = torch.ones((), device=device, requires_grad=True)
    product = (weight * out).sum()
    kernel.rgb_to_grayscale(image, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_vmap_over_out(kernel: ModuleType, device: str) -> None:
    image, out = image_and_out(device)
    with pytest.raises(RuntimeError):
        torch.vmap(lambda one, into: kernel.rgb_to_grayscale(one, out=into))(image, out)


def test_backward_operator(kernel: ModuleType, place: str) -> None:
    backward = kernel._ops.ops.rgb_to_grayscale_backward
    gradient = torch.zeros(1, 4, 4, device=place)
    with pytest.raises(TypeError, match="expected a gradient of floats, got"):
        backward(gradient.to(torch.uint8), [0, 1, 2])
    for shape in ((), (4, 4), (3, 4, 4)):
        with pytest.raises(ValueError, match=r"expected a gradient of shape \[\.\.\., 1, H, W\], got"):
            backward(torch.zeros(shape, device=place), list(range(len(shape))))
    for order in ([0, 1], [0, 1, 1], [0, 1, 3], [-3, -2, -1], [0, 1, 2, 3]):
        with pytest.raises(ValueError, match="expected an order of 3 dimensions, got"):
            backward(gradient, order)
