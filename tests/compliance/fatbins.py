"""Fat binaries, as nvcc makes them, and what cuobjdump lists of them.

``PYTHONPATH=.:scripts python3 -m tests.compliance.fatbins FILE`` makes them, and writes what cuobjdump says;
both programs have to be there. ``data/cuobjdump.json`` is what it said once.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.compliance.helpers import ID

SOURCE = f"""
__global__ void twice(float* x) {{ x[0] = x[1] * 2; }}
extern "C" void go(float* x) {{ twice<<<1, 1>>>(x); }}
extern "C" void* PyInit_{ID}() {{ return 0; }}
"""
# Name → what nvcc is asked for, and what is in it, as cuobjdump lists it too (sm_100f as sm_100).
LIBRARIES: dict[str, tuple[list[str], list[str]]] = {
    "mixed": (
        ["compute_80,code=sm_80", "compute_90a,code=sm_90a", "compute_100f,code=sm_100f",
         "compute_90,code=compute_90"],
        ["sm_80", "compute_90", "sm_90a", "sm_100f"],
    ),
    "wide": (
        ["compute_75,code=sm_75", "compute_75,code=compute_75", "compute_121,code=sm_121"],
        ["sm_75", "compute_75", "sm_121"],
    ),
    "ptx": (["compute_75,code=compute_75"], ["compute_75"]),
}  # fmt: skip
# What cuobjdump puts into the names of the files that it lists.
_LISTED = re.compile(r"file\s+\d+: \S+?\.(sm_\w+)\.(cubin|ptx)$", re.MULTILINE)


def make(folder: Path) -> dict[str, Path]:
    """Compile ``LIBRARIES``."""
    (folder / "source.cu").write_text(SOURCE)
    made = {}
    for name, (wanted, _) in LIBRARIES.items():
        made[name] = folder / f"{name}.so"
        command = [
            "nvcc",
            "--shared",
            "-Xcompiler",
            "-fPIC",
            "-cudart",
            "none",
            "-o",
            made[name],
            "source.cu",
        ]
        command += [f"-gencode=arch={one}" for one in wanted]
        subprocess.run(command, cwd=folder, check=True)
    return made


def record(folder: Path) -> Iterator[tuple[str, object]]:
    """What the programs of this machine say."""
    for program in ("nvcc", "cuobjdump"):
        yield program, re.findall(r"release .*", _said(program, "--version"))[0]
    for name, path in make(folder).items():
        said = _said("cuobjdump", "--list-elf", path) + _said("cuobjdump", "--list-ptx", path)
        yield name, said.replace(f"{folder}/", "").splitlines()


def listed(said: list[str]) -> set[str]:
    """The code that cuobjdump lists: ``sm_80`` for machine code, and ``compute_90`` for PTX."""
    found = _LISTED.findall("\n".join(said))
    return {arch.replace("sm_", "compute_") if kind == "ptx" else arch for arch, kind in found}


def _said(*command: str | Path) -> str:
    # It ends with an error where there is nothing to list.
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        answers = dict(record(Path(scratch)))
    Path(sys.argv[1]).write_text(json.dumps(answers, indent=2) + "\n")
