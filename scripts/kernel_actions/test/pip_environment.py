"""A virtual environment for the tests of one variant: the Torch that its users have, and no more.

It is named by all that it holds, and made and kept as those of the suite's own commands are.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_actions import nix_version, process
from kernel_actions.app import venv
from kernel_actions.app.venv import Packages, Plan
from kernel_actions.built import BuiltVariant
from kernel_actions.errors import Place, WrongInput, WrongSurroundings, printable
from kernel_actions.manifest import Manifest
from kernel_actions.test import packages

# PyTorch's own indexes, by what a build of Torch is for: https://pytorch.org/get-started/locally.
TORCH_INDEX = "https://download.pytorch.org/whl"
# The versions and hashes of packages that tests take by name.
_CONSTRAINTS = venv.REQUIREMENTS / "tests.txt"
# What the tests of any kernel take; the versions are those of the suite's own lock, as far as it has them.
_COMMON = ("kernels", "numpy", "pytest")
_PINNED = ("kernels", "pytest")
# torch213-cxx11-cu130-x86_64-linux, torch-stable-abi29-cpu-…, torch-cuda.
_TORCH = re.compile(r"torch(?:-stable-abi)?(\d)(\d+)(?:-|$)")
_COMPUTE = re.compile(r"-(cpu|cu\d{3}|rocm\d{2,}|xpu\d{5})(?:-|$)")
# A name with versions (PEP 508), and nothing that has pip look elsewhere or run something.
_REQUIREMENT = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:\[[A-Za-z0-9,._-]+\])?"
    r"(?:\s*(?:[=!<>~]=|[<>])\s*[A-Za-z0-9.*+!_-]+(?:\s*,\s*(?:[=!<>~]=|[<>])\s*[A-Za-z0-9.*+!_-]+)*)?"
)
_PROBE = "import json, torch; print(json.dumps([torch.__version__, torch.version.cuda, torch.version.hip]))"
_PATIENCE = 120.0


@dataclass(frozen=True)
class Wanted:
    """What an environment is to hold.

    ``torch`` is its minor version, empty for the newest; ``compute`` is what it is for, as in
    ``cu130``, and empty where the variant does not say. ``index`` is a package index that has that Torch.
    """

    torch: str
    compute: str
    index: str
    requirements: tuple[str, ...]

    @property
    def torch_requirement(self) -> str:
        """The requirement that pip gets."""
        return f"torch=={self.torch}.*" if self.torch else "torch"


def plan(variant: BuiltVariant, kernel: Manifest, further: Sequence[str]) -> Wanted:
    """The environment of a variant's tests; ``further`` are the requirements of kernel-actions.toml.

    Raises ``WrongInput`` for a requirement that is more than a name with versions, and as
    ``packages.needed`` does.
    """
    version = _TORCH.match(variant.name)
    found = _COMPUTE.search(variant.name)
    compute = found[1] if found else {"cpu": "cpu"}.get(variant.backend, "")
    for name in further:
        if not _REQUIREMENT.fullmatch(name):
            raise WrongInput(
                f"the tests' requirement {name!r} is not the name of a package, with versions or without",
                where=Place(kernel.directory),
                repair='as in requirements = ["einops>=0.8"]',
            )
    names = [*_common(), *(one.name for one in packages.needed(kernel, variant.backend, further)), *further]
    index = os.environ.get("KA_TORCH_INDEX") or f"{TORCH_INDEX}/{_index_folder(compute)}"
    return Wanted(f"{version[1]}.{version[2]}" if version else "", compute, index, tuple(sorted(set(names))))


def make(wanted: Wanted) -> Path:
    """The interpreter of the environment, which is made unless it is there.

    Raises ``WrongSurroundings`` when it cannot be made, or when the index has another Torch.
    """
    locked = _CONSTRAINTS.read_text(encoding="utf-8")
    content = json.dumps([wanted.torch_requirement, wanted.index, wanted.requirements, locked])
    # In one step, so that nothing puts another Torch in the place of this. Of the same version a build with a
    # local label, as the PyTorch indexes have them, is preferred.
    tests = Packages(
        "Torch and the tests' requirements",
        names=(wanted.torch_requirement, *wanted.requirements),
        constraints=_CONSTRAINTS,
        # Beside the configured index, which has what Torch requires.
        further_index=wanted.index,
        with_dependencies=True,
    )
    return venv.make(
        Plan(
            path=venv.mark("tests", content.encode(), holds_token=False),
            # PyTorch's own index may be out of reach where the user's has the same builds.
            steps=((replace(tests, is_attempt=True), replace(tests, further_index="")),),
            title="Making an environment for the tests: "
            f"{wanted.torch_requirement} for {wanted.compute or 'any'}",
            repair="KA_TORCH_INDEX names another index for Torch; --environment current takes what is here",
            check=lambda python: _check(wanted, python),
        )
    )


def _check(wanted: Wanted, python: Path) -> None:
    """Raise ``WrongSurroundings`` when the index gave another Torch than the variant is for."""
    finished = process.run([python, "-I", "-c", _PROBE], time_limit=_PATIENCE)
    try:
        version, cuda, rocm = json.loads(finished.output.splitlines()[-1])
    except (ValueError, IndexError) as error:
        raise WrongSurroundings(
            f"the Torch of {wanted.index} cannot be imported: {printable(finished.output)[-300:]}"
        ) from error
    what = f"cu{cuda.replace('.', '')}" if cuda else f"rocm{'.'.join(rocm.split('.')[:2])}" if rocm else "cpu"
    is_other = wanted.compute.startswith(("cpu", "cu")) and what != wanted.compute
    if is_other or not str(version).startswith(wanted.torch):
        raise WrongSurroundings(
            f"{wanted.index} and the configured package index gave Torch {version} for {what}, and the "
            f"variant is for {wanted.torch or 'any'}, {wanted.compute}",
            repair="let KA_TORCH_INDEX name an index that has it",
        )


def _common() -> list[str]:
    """The packages that all tests take, at the versions that the suite itself is tested with."""
    lock = (venv.REQUIREMENTS / "kernel.txt").read_text(encoding="utf-8")
    pins = dict(re.findall(r"^([a-z0-9_-]+)==([^\s\\;]+)", lock, re.MULTILINE))
    return [f"{name}=={pins[name]}" if name in _PINNED and name in pins else name for name in _COMMON]


def _index_folder(compute: str) -> str:
    """The folder of a PyTorch index: ``cpu``, ``cu130``, ``rocm6.4``, ``xpu``."""
    if compute.startswith("rocm"):
        return f"rocm{nix_version.dotted(compute.removeprefix('rocm'))}"
    if compute.startswith("xpu"):
        return "xpu"
    return compute or "cpu"
