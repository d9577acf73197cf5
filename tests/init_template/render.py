"""Renders the template of ``kernel-builder init`` from a checkout of huggingface/kernels, as init.rs does.

``PYTHONPATH=.:scripts python -m tests.init_template.render CHECKOUT REVISION`` writes ``data/REVISION.json``
anew. It needs ``minijinja``, the Python package of the builder's own template engine.

What init.rs does (``kernel-builder/src/init.rs`` at 81580bb9 and at 8ac69fc5, where nothing of this differs):
``run_init`` has minijinja trim blocks, and strip what is left of them; ``RepoInfo::from_str`` makes the
names; ``resolve_backends`` takes ``all`` for ``Backend::all()`` (``kernels-data/src/config/mod.rs``), and
``build_init_fileset`` says which template becomes which file. LICENSE of huggingface/kernels is Apache-2.0,
as is this project's.
"""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from public_kernels import layout

DATA = Path(__file__).resolve().parent / "data"
OWNER, NAME, LICENSE = "acme", "my-kernel", "Apache-2.0"
_TEMPLATES = "kernel-builder/src/init/templates"
_BACKENDS = re.compile(r"pub const fn all\(\) -> \[Backend; \d+\] \{\s*\[(.*?)\]", re.DOTALL)


def files(normalized: str) -> dict[str, str]:
    """The template of each file that all backends get: ``build_init_fileset``."""
    return {
        ".gitignore": ".gitignore",
        ".gitattributes": ".gitattributes",
        "flake.nix": "flake.nix",
        "tests/__init__.py": "tests/__init__.py",
        "CARD.md": "CARD.md",
        "build.toml": "build.toml",
        "example.py": "example.py",
        "benchmarks/benchmark.py": "benchmarks/benchmark.py",
        f"torch-ext/{normalized}/__init__.py": "torch-ext/__init__.py",
        "torch-ext/torch_binding.cpp": "torch-ext/torch_binding.cpp",
        "torch-ext/torch_binding.h": "torch-ext/torch_binding.h",
        f"tests/test_{normalized}.py": "tests/test_kernel.py",
        f"{normalized}_cpu/{normalized}_cpu.cpp": "kernel_cpu/kernel_cpu.cpp",
        f"{normalized}_cuda/{normalized}.cu": "kernel_cuda/kernel.cu",
        f"{normalized}_metal/{normalized}.metal": "kernel_metal/kernel.metal",
        f"{normalized}_metal/{normalized}.mm": "kernel_metal/kernel.mm",
        f"{normalized}_xpu/{normalized}.cpp": "kernel_xpu/kernel.cpp",
    }


def rendered(checkout: Path, revision: str) -> dict[str, Any]:
    """What ``kernel-builder init acme/my-kernel --backends all`` writes, with its source."""
    import minijinja

    def read(path: str) -> str:
        command = ["git", "-C", str(checkout), "show", f"{revision}:{path}"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    listed = _BACKENDS.search(read("kernels-data/src/config/mod.rs"))
    assert listed is not None
    backends = [name.lower() for name in re.findall(r"Backend::(\w+)", listed[1])]
    normalized = NAME.lower().replace("-", "_")
    context = {
        "kernel_name": NAME,
        "kernel_name_normalized": normalized,
        "kernel_name_class": "".join(part.capitalize() for part in re.split("[-_]", NAME)),
        "license": LICENSE,
        "repo_id": f"{OWNER}/{NAME}",
        "backends": backends,
        **{f"has_{name}": name in backends for name in ("cpu", "cuda", "rocm", "metal", "xpu")},
    }
    environment = minijinja.Environment(trim_blocks=True, lstrip_blocks=True)
    texts = {
        path: environment.render_str(read(f"{_TEMPLATES}/{template}"), template, **context)
        for path, template in files(normalized).items()
    }
    commit = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", revision], check=True, capture_output=True, text=True
    ).stdout.strip()
    return {
        "source": f"https://github.com/huggingface/kernels/tree/{commit}/{_TEMPLATES}",
        "license": "Apache-2.0",
        "commit": commit,
        "command": f"kernel-builder init {OWNER}/{NAME} --backends all",
        "files": texts,
        "builder": dataclasses.asdict(layout.Templates.read(checkout, commit)),
    }


if __name__ == "__main__":
    value = rendered(Path(sys.argv[1]), sys.argv[2])
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    (DATA / f"{value['commit'][:8]}.json").write_text(text, encoding="utf-8")
