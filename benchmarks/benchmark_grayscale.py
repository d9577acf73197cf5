"""The benchmarks of grayscale, for `kernels benchmark` and for `kernel-actions benchmark`.

Every dtype and layout, forward and backward, from a small image to more than any cache holds. The bytes that
a workload has to move are those of its input and its output, each once.
"""

from collections.abc import Callable

import torch
from kernels.benchmark import Benchmark

WEIGHTS = (0.299, 0.587, 0.114)
DTYPES = (torch.uint8, torch.float16, torch.bfloat16, torch.float32)
LAYOUTS = {"planar": torch.contiguous_format, "channels_last": torch.channels_last}
SIZES = {
    "224": (1, 224, 224),
    "4k": (1, 2160, 3840),
    "8192": (1, 8192, 8192),
    "16x4096": (16, 4096, 4096),
}
# What a CPU gets through in some minutes.
CPU_SIZES = ("224", "4k", "8192")
CPU_BACKWARD_SIZES = ("224", "4k")
# Up to so many pixels, what an operator costs is more than what moving the image does.
LEAST_PIXELS = 224 * 224


def eager(image: torch.Tensor) -> torch.Tensor:
    """What the kernel computes, by Torch alone, as one would write it."""
    red, green, blue = image.unbind(-3)
    if image.dtype == torch.uint8:
        luma = (299 * red.int() + 587 * green.int() + 114 * blue.int() + 500) // 1000
        return luma.to(torch.uint8).unsqueeze(-3)
    return (WEIGHTS[0] * red + WEIGHTS[1] * green + WEIGHTS[2] * blue).unsqueeze(-3)


class GrayscaleBenchmark(Benchmark):
    """Images to luma. The workloads are added below."""

    seed = 0

    def prepare(self, dtype: torch.dtype, layout: torch.memory_format, size: tuple[int, int, int]) -> None:
        """Make the images."""
        count, height, width = size
        shape = (count, 3, height, width)
        if dtype == torch.uint8:
            image = torch.randint(0, 256, shape, dtype=dtype, device=self.device)
        else:
            image = torch.rand(shape, device=self.device).to(dtype)
        self.image = image.contiguous(memory_format=layout)
        self.gradient: torch.Tensor | None = None

    def prepare_backward(self) -> None:
        """Run the forward pass, which the backward pass is measured after."""
        self.image.requires_grad_()
        self.gray = self.kernel.rgb_to_grayscale(self.image)
        self.gradient = torch.rand_like(self.gray)

    def forward(self) -> None:
        """The operator."""
        self.out = self.kernel.rgb_to_grayscale(self.image)

    def backward(self) -> None:
        """Its backward pass alone."""
        (self.out,) = torch.autograd.grad(self.gray, self.image, self.gradient, retain_graph=True)

    def expected(self) -> torch.Tensor:
        """What `forward` has to give."""
        if self.image.dtype == torch.uint8:
            return eager(self.image)
        return eager(self.image.float()).to(self.image.dtype)

    def expected_gradient(self) -> torch.Tensor:
        """What `backward` has to give."""
        assert self.gradient is not None
        return torch.cat([weight * self.gradient.float() for weight in WEIGHTS], dim=-3).to(self.image.dtype)

    def bytes_moved(self) -> int:
        """The image is read and a third of it written, or the other way round."""
        return self.image.numel() * self.image.element_size() * 4 // 3

    def peer_torch_eager(self) -> Callable[[], object]:
        """Torch, operator by operator."""
        return self.by(eager)

    def peer_torch_compile(self) -> Callable[[], object]:
        """Torch's compiler, for this very shape."""
        return self.by(torch.compile(eager, dynamic=False))

    def peer_torchvision(self) -> Callable[[], object]:
        """torchvision's function of the same name."""
        from torchvision.transforms.v2 import functional

        return self.by(functional.rgb_to_grayscale)

    def peer_opencv(self) -> Callable[[], object]:
        """OpenCV, which has interleaved images on the CPU, one by one, with as many threads as Torch."""
        import cv2

        is_one = self.image.device.type == "cpu" and self.image.shape[0] == 1
        is_interleaved = self.image.is_contiguous(memory_format=torch.channels_last)
        if not is_one or not is_interleaved or self.image.dtype not in (torch.uint8, torch.float32):
            raise NotImplementedError("one interleaved image of uint8 or float32 on the CPU alone")
        if self.gradient is not None:
            raise NotImplementedError("has no backward pass")
        cv2.setNumThreads(torch.get_num_threads())
        image = self.image[0].permute(1, 2, 0).numpy()
        return lambda: cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)

    def peer_least_operator(self) -> Callable[[], object]:
        """The least that any operator costs: the dispatcher, a new tensor, and one simple loop over it.

        Large images take the time of their bytes, and this has fewer to move.
        """
        if self.image.numel() > LEAST_PIXELS * 3 or self.gradient is not None:
            raise NotImplementedError("small images and the forward pass alone")
        gray = eager(self.image)
        return lambda: torch.neg(gray)

    def by(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], object]:
        """The work of this workload, by another function."""
        image, gradient = self.image, self.gradient
        if gradient is None:
            return lambda: function(image)
        gray = function(image)
        return lambda: torch.autograd.grad(gray, image, gradient, retain_graph=True)


def add(dtype: torch.dtype, layout: str, size: str, *, is_backward: bool = False) -> None:
    """Add one workload to the class."""

    def setup(self: GrayscaleBenchmark) -> None:
        self.prepare(dtype, LAYOUTS[layout], SIZES[size])
        if is_backward:
            self.prepare_backward()

    suffix = "_backward" if is_backward else ""
    name = f"{str(dtype).removeprefix('torch.')}_{layout}_{size}{suffix}"
    setattr(GrayscaleBenchmark, f"setup_{name}", setup)
    forward, backward = GrayscaleBenchmark.forward, GrayscaleBenchmark.backward
    setattr(GrayscaleBenchmark, f"benchmark_{name}", backward if is_backward else forward)
    verify = GrayscaleBenchmark.expected_gradient if is_backward else GrayscaleBenchmark.expected
    setattr(GrayscaleBenchmark, f"verify_{name}", verify)


ON_GPU = torch.cuda.is_available()
for one_dtype in DTYPES:
    for one_layout in LAYOUTS:
        for one_size in SIZES if ON_GPU else CPU_SIZES:
            add(one_dtype, one_layout, one_size)
for one_dtype in DTYPES[1:]:
    for one_layout in LAYOUTS:
        for one_size in SIZES if ON_GPU else CPU_BACKWARD_SIZES:
            add(one_dtype, one_layout, one_size, is_backward=True)
