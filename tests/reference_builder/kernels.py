"""The kernels that both builders are asked to build, and the revisions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.local_builder.helpers import BUILD_TOML, edited, write_kernel

COMMIT = "0123456789abcdef0123456789abcdef01234567"
# What the 52 kernels of huggingface/kernels-community lock at 40d4194f, the changes that a variant shows, and
# this project's own lock (8ac69fc5).
REVISIONS = (
    "ae36559c", "b79face3", "81580bb9", "19aaa642", "ce92bd77", "e9152aa2", "3b5a3d27", "d0610aa5",
    "a6564d1f", "ebfa584e", "2c40e10d", "dbc322a3", "18c4d686", "8ac69fc5",
)  # fmt: skip
_DESCRIBED = ('license = "Apache-2.0"', 'license = "MIT"\nupstream = "https://example.com/ü"')
_NOARCH = edited(BUILD_TOML.partition("[torch]")[0], _DESCRIBED) + "[torch-noarch]\n"


def _compiled(folder: Path) -> Path:
    """Data, stubs and flags: of the data what pyext names, of the stubs none."""
    text = edited(
        BUILD_TOML,
        _DESCRIBED,
        ('src = ["torch-ext/torch_binding.cpp"]', 'src = ["torch-ext/torch_binding.cpp"]\ninclude = ["."]'),
        ('backend = "cpu"', 'backend = "cpu"\ninclude = ["csrc", "torch-ext"]\ncxx-flags = ["-DSAY=1"]'),
    )
    (write_kernel(folder, text) / "torch-ext" / "tiny_scale" / "types.pyi").write_text("")
    return folder


def _plain(folder: Path) -> Path:
    """No pyext: no data, and no stubs."""
    text = edited(BUILD_TOML, ('pyext = ["py", "json"]\n', ""))
    (write_kernel(folder, text) / "torch-ext" / "tiny_scale" / "types.pyi").write_text("")
    return folder


def _noarch(folder: Path) -> Path:
    """Without pyext, so with stubs and without data, and with a package that it needs."""
    text = edited(_NOARCH, ("edition = 5", 'edition = 5\npython-depends = ["einops"]'))
    (write_kernel(folder, text) / "torch-ext" / "tiny_scale" / "types.pyi").write_text("")
    return folder


def _noarch_with_data(folder: Path) -> Path:
    """With a pyext, and a module of the kernel's own name."""
    package = write_kernel(folder, f'{_NOARCH}pyext = ["py", "json"]\n') / "torch-ext" / "tiny_scale"
    (package / "tiny_scale.py").write_text((package / "__init__.py").read_text())
    (package / "__init__.py").write_text("from .tiny_scale import twice\n")
    return folder


KERNELS: dict[str, Callable[[Path], Path]] = {
    "compiled": _compiled,
    "plain": _plain,
    "noarch": _noarch,
    "noarch-with-data": _noarch_with_data,
}
