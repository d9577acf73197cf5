"""The operator behaves as one of torch's own: compiled, differentiated, on streams and on any device."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

pytestmark = pytest.mark.kernels_ci

IMAGES: dict[str, Callable[[str], torch.Tensor]] = {
    "contiguous": lambda device: torch.rand(2, 3, 8, 10, device=device),
    "channels_last": lambda device: torch.rand(2, 3, 8, 10, device=device).to(
        memory_format=torch.channels_last
    ),
    "transposed": lambda device: torch.rand(2, 3, 10, 8, device=device).mT,
    "crop": lambda device: torch.rand(2, 3, 9, 12, device=device)[..., 1:, 1:-1],
    "expanded": lambda device: torch.rand(3, 1, 10, device=device).expand(2, 3, 8, 10),
    "single": lambda device: torch.rand(8, 10, 3, device=device).permute(2, 0, 1),
    "one_pixel": lambda device: torch.rand(1, 3, 1, 1, device=device),
    "empty": lambda device: torch.rand(0, 3, 8, 10, device=device),
    "bytes": lambda device: torch.randint(256, (2, 3, 8, 10), dtype=torch.uint8, device=device),
}


def operator(kernel: ModuleType) -> torch._ops.OpOverload:
    overload: torch._ops.OpOverload = kernel._ops.ops.rgb_to_grayscale.default
    return overload


@pytest.mark.parametrize("name", IMAGES)
def test_opcheck(kernel: ModuleType, device: str, name: str) -> None:
    image = IMAGES[name](device)
    torch.library.opcheck(operator(kernel), (image,))
    if image.is_floating_point() and image.numel():
        torch.library.opcheck(operator(kernel), (image.clone().requires_grad_(),))


@pytest.mark.parametrize("name", IMAGES)
def test_opcheck_out(kernel: ModuleType, device: str, name: str) -> None:
    image = IMAGES[name](device)
    out = torch.empty_like(kernel.rgb_to_grayscale(image))
    torch.library.opcheck(kernel._ops.ops.rgb_to_grayscale_out.default, (image,), {"out": out})


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [0, 2, 3, 1], [3, 1, 0, 2]])
def test_opcheck_backward(kernel: ModuleType, device: str, order: list[int]) -> None:
    backward = kernel._ops.ops.rgb_to_grayscale_backward.default
    gradient = torch.rand(2, 1, 8, 10, device=device)
    torch.library.opcheck(backward, (gradient, order))
    torch.library.opcheck(backward, (gradient.requires_grad_(), order))


def test_public_names(kernel: ModuleType) -> None:
    assert kernel.__all__ == ["layers", "rgb_to_grayscale"]
    assert str(operator(kernel)._schema).endswith("::rgb_to_grayscale(Tensor image) -> Tensor")
    schema = str(kernel._ops.ops.rgb_to_grayscale_out.default._schema)
    assert schema.endswith("::rgb_to_grayscale_out(Tensor image, *, Tensor(a!) out) -> ()")


@pytest.mark.parametrize("name", IMAGES)
def test_fake_has_the_same_layout(kernel: ModuleType, device: str, name: str) -> None:
    image = IMAGES[name](device)
    real = kernel.rgb_to_grayscale(image)
    fake = kernel.rgb_to_grayscale(
        torch.empty_strided(image.shape, image.stride(), dtype=image.dtype, device="meta")
    )
    assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)


# The "aot_eager" backend traces like any other, and needs no compiler on the machine.
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ["contiguous", "channels_last", "transposed", "bytes"])
def test_compile(kernel: ModuleType, device: str, name: str, dynamic: bool) -> None:
    def inverted(image: torch.Tensor) -> torch.Tensor:
        gray: torch.Tensor = kernel.rgb_to_grayscale(image)
        return 1 - gray

    torch.compiler.reset()
    compiled = torch.compile(inverted, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for cut in range(3):
        image = IMAGES[name](device)[..., cut:]
        result = compiled(image)
        assert torch.equal(result, inverted(image))
        assert result.stride() == inverted(image).stride()


def test_compiles_once_for_dynamic_shapes(kernel: ModuleType, device: str) -> None:
    graphs = []

    def count(graph: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> Callable[..., object]:
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    compiled = torch.compile(kernel.rgb_to_grayscale, fullgraph=True, dynamic=True, backend=count)
    for size in range(8, 20, 2):
        compiled(torch.rand(2, 3, size, size + 1, device=device))
    assert len(graphs) == 1


def test_compile_with_out(kernel: ModuleType, device: str) -> None:
    def into(image: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        gray: torch.Tensor = kernel.rgb_to_grayscale(image, out=out)
        return gray + 1

    torch.compiler.reset()
    compiled = torch.compile(into, fullgraph=True, dynamic=True, backend="aot_eager")
    for size in range(8, 14, 2):
        image = torch.rand(2, 3, size, size + 1, device=device)
        out = torch.zeros(2, 1, size, size + 1, device=device)
        result = compiled(image, out)
        assert torch.equal(out, kernel.rgb_to_grayscale(image))
        assert torch.equal(result, out + 1)


@pytest.mark.parametrize("name", ["contiguous", "channels_last", "transposed"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_gradient_when_compiled(kernel: ModuleType, device: str, name: str, dynamic: bool) -> None:
    torch.compiler.reset()
    compiled = torch.compile(kernel.rgb_to_grayscale, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for cut in range(3):
        image = IMAGES[name](device)[..., cut:].requires_grad_()
        gradient = torch.rand_like(kernel.rgb_to_grayscale(image))
        (result,) = torch.autograd.grad(compiled(image), image, gradient)
        assert torch.equal(result, torch.autograd.grad(kernel.rgb_to_grayscale(image), image, gradient)[0])


def test_meta_device(kernel: ModuleType) -> None:
    image = torch.empty(2, 3, 8, 10, device="meta", requires_grad=True)
    gray = kernel.rgb_to_grayscale(image)
    assert gray.is_meta and gray.shape == (2, 1, 8, 10)
    gray.sum().backward()
    assert image.grad is not None and image.grad.is_meta
    out = torch.empty(2, 1, 8, 10, device="meta")
    assert kernel.rgb_to_grayscale(image.detach(), out=out) is out


class Grayscale(torch.nn.Module):
    """A model's own layer, whose forward the kernel's takes the place of."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image.mean(-3, keepdim=True)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("compile", [False, True])
def test_layer(kernel: ModuleType, device: str, training: bool, compile: bool) -> None:
    import kernels

    assert kernel.__file__
    mode = kernels.Mode.TRAINING if training else kernels.Mode.INFERENCE
    mode = mode | kernels.Mode.TORCH_COMPILE if compile else mode
    layer = kernels.use_kernel_forward_from_hub("Grayscale")(type("Grayscale", (Grayscale,), {}))
    repository = kernels.LocalLayerRepository(
        Path(kernel.__file__).parent.parent, layer_name="RgbToGrayscale"
    )
    model = torch.nn.Sequential(layer()).to(device).train(training)
    with kernels.use_kernel_mapping({"Grayscale": {device: repository}}):
        model = kernels.kernelize(
            model, mode=mode, device=device, use_fallback=kernels.KernelizeFallback.NONE
        )
    image = torch.rand(2, 3, 8, 10, device=device, requires_grad=training)
    torch.compiler.reset()
    forward = torch.compile(model, fullgraph=True, backend="aot_eager") if compile else model
    gray = forward(image)
    assert torch.equal(gray, kernel.rgb_to_grayscale(image))
    if training:
        gray.sum().backward()
        assert image.grad is not None


def test_current_stream(kernel: ModuleType, device: str) -> None:
    if device != "cuda":
        pytest.skip("the CPU has no streams")
    image = torch.zeros(3, 256, 256, dtype=torch.uint8, device=device)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        # On any other stream the kernel would not wait for the white, and read black.
        torch.cuda._sleep(200_000_000)
        image.fill_(255)
        gray = kernel.rgb_to_grayscale(image)
    stream.synchronize()
    assert bool((gray == 255).all())


def test_cuda_graph(kernel: ModuleType, device: str) -> None:
    if device != "cuda":
        pytest.skip("the CPU has no graphs")
    image = torch.zeros(3, 64, 64, dtype=torch.uint8, device=device)
    kernel.rgb_to_grayscale(image)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gray = kernel.rgb_to_grayscale(image)
    image.fill_(255)
    graph.replay()
    assert bool((gray == 255).all())


def test_device_other_than_the_current(kernel: ModuleType, device: str) -> None:
    if device != "cuda" or torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    image = torch.randint(256, (3, 64, 64), dtype=torch.uint8)
    with torch.cuda.device(0):
        gray = kernel.rgb_to_grayscale(image.to("cuda:1"))
        assert torch.cuda.current_device() == 0
    assert gray.device == torch.device("cuda:1")
    assert torch.equal(gray.cpu(), kernel.rgb_to_grayscale(image))


def test_threads(kernel: ModuleType) -> None:
    # The result does not depend on how many threads share the pixels, nor on where their shares end.
    image = torch.rand(5, 3, 101, 997)
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(kernel.rgb_to_grayscale(image))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_threads_share_the_work(kernel: ModuleType) -> None:
    # at::parallel_for is a loop without threads, and says nothing, in an extension compiled without OpenMP.
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        pytest.skip("needs Linux to see what each thread has done")

    def worked() -> dict[str, int]:
        """Nanoseconds on a processor, by thread."""
        return {task.name: int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()}

    image = torch.randint(256, (3, 2160, 3840), dtype=torch.uint8)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        kernel.rgb_to_grayscale(image)
        before = worked()
        for _ in range(20):
            kernel.rgb_to_grayscale(image)
        shares = sorted(after - before.get(name, after) for name, after in worked().items())
    finally:
        torch.set_num_threads(threads)
    assert shares[-2] > 0.2 * sum(shares)
