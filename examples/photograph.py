"""Converts a photograph to grayscale with a loaded kernel."""

from pathlib import Path
from types import ModuleType

import torch
from PIL import Image

PHOTOGRAPH = Path(__file__).with_name("photograph.jpg")


def read_image(path: Path) -> torch.Tensor:
    """Read an image as uint8 of shape [3, H, W]; the memory stays as Pillow has it, channels last."""
    with Image.open(path) as file:
        image = file.convert("RGB")
    pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    return pixels.reshape(image.height, image.width, 3).permute(2, 0, 1)


def write_image(gray: torch.Tensor, path: Path) -> None:
    """Write uint8 of shape [1, H, W] as an image of a single channel."""
    _, height, width = gray.shape
    Image.frombytes("L", (width, height), bytes(gray.contiguous().flatten().tolist())).save(path)


def main(kernel: ModuleType, output: Path) -> Path:
    """Write the photograph in grayscale to `output`, a folder, and return the file.

    Raises:
        ValueError: The kernel gave a wrong pixel.
    """
    image = read_image(PHOTOGRAPH)
    gray = kernel.rgb_to_grayscale(image)

    red, green, blue = image.to(torch.int32)
    wrong = int(((299 * red + 587 * green + 114 * blue + 500) // 1000 != gray[0]).sum())
    if wrong:
        raise ValueError(f"{wrong} of {gray.numel()} pixels of {PHOTOGRAPH.name} differ from the formula")

    output.mkdir(parents=True, exist_ok=True)
    path = output / "grayscale.png"
    write_image(gray, path)
    return path
