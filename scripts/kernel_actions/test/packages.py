"""The Python packages that a kernel's tests take, by their names on the package index.

The builder's names are not those of the index: nobody has ``tvm-ffi`` there, and ``onednn`` is another
package. So an installer gets a name only if the table in data/python_packages.toml, or the owner in
kernel-actions.toml, says which package it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_actions import toml_file
from kernel_actions.errors import Place, WrongInput
from kernel_actions.kernel import python_packages
from kernel_actions.kernel.python_packages import Kind
from kernel_actions.manifest import Manifest

_LARGEST_FLAKE = 1_000_000
# `pythonCheckInputs = ps: with ps; [ einops ps.rich ];`: an attribute that genKernelFlakeOutputs takes
# (nix-builder/lib/gen-flake-outputs.nix of huggingface/kernels at 8ac69fc5), as public kernels write it.
_CHECK_INPUTS = re.compile(
    r"\bpythonCheckInputs\s*=\s*(?P<set>[A-Za-z_][\w'-]*)\s*:\s*(?:with\s+(?P=set)\s*;\s*)?"
    r"\[(?P<names>[^\[\](){}\"]*)\]\s*;"
)
_MENTION = re.compile(r"\bpythonCheckInputs\b")
_COMMENT = re.compile(r"#[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class Package:
    """A package: its name on the index, the module that it brings (empty: none), and the place that asks for
    it."""

    name: str
    module: str
    where: Place


def needed(kernel: Manifest, backend: str, further: Sequence[str]) -> tuple[Package, ...]:
    """What the tests of a variant for ``backend`` take beside Torch, the loader and pytest:
    ``python-depends`` of build.toml, and ``pythonCheckInputs`` of flake.nix.

    ``further`` are the requirements of kernel-actions.toml, which replace those of the same name. Raises
    ``WrongInput`` for a name without a known package.
    """
    given = {_normal(re.split(r"[\s\[<>=!~]", one, maxsplit=1)[0]) for one in further}
    packages = []
    for kind, name, where in (*_depends(kernel, backend), *_check_inputs(kernel.directory)):
        entry = python_packages.table(kind).get(name)
        if entry is not None:
            packages.append(Package(entry.name, entry.module, where))
        elif _normal(name) not in given:
            raise WrongInput(
                f"{name}: its package on the index is not known",
                where=where,
                repair=f'name it in kernel-actions.toml, below [test]: requirements = ["{name}==1.0"]',
            )
    return tuple(one for one in packages if _normal(one.name) not in given)


def _depends(kernel: Manifest, backend: str) -> Iterator[tuple[Kind, str, Place]]:
    for name in kernel.all_python_depends(backend):
        yield "depends", name, kernel.file.place(("general", "python-depends"))


def _check_inputs(directory: Path) -> Iterator[tuple[Kind, str, Place]]:
    """The names in ``pythonCheckInputs``. Raises ``WrongInput`` where it is no plain list of them."""
    path = directory / "flake.nix"
    try:
        text = toml_file.read_bytes(path, _LARGEST_FLAKE).decode(errors="replace")
    except OSError:
        return  # Without a flake there is nothing that the builder would add.
    # As long as before, so that places stay what they are.
    code = _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    mention = _MENTION.search(code)
    if mention is None:
        return
    found = _CHECK_INPUTS.search(code)
    where = Place(path, text.count("\n", 0, mention.start()) + 1)
    if found is None:
        raise WrongInput(
            "pythonCheckInputs is no plain list of packages, which is all that can be read without Nix",
            where=where,
            repair="write it as in pythonCheckInputs = ps: [ ps.einops ]; or test with --environment nix",
        )
    for name in found["names"].split():
        yield "checks", name.removeprefix(f"{found['set']}."), where


def _normal(name: str) -> str:
    """A name as the index compares them (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
