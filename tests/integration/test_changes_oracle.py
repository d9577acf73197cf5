"""``matrix --changed-since`` against what the builder can see of each kernel (tests/oracle/changes.py)."""

from __future__ import annotations

import importlib.util
import os
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.integration.conftest import ROOT, git
from tests.tools import needs
from tests.unit.kernels import CUDA

# A checkout of huggingface/kernels-community, or of another repository with many kernels.
CHECKOUT = os.environ.get("KA_TEST_KERNELS_COMMUNITY", "")
LOCK = (ROOT / "flake.lock").read_text()
FLAKE = """\
{
  outputs = { self, kernel-builder }:
    kernel-builder.lib.genKernelFlakeOutputs { inherit self;%s path = ./.; };
}
"""


@pytest.fixture(scope="module")
def oracle() -> ModuleType:
    specification = importlib.util.spec_from_file_location("changes_oracle", ROOT / "tests/oracle/changes.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["changes_oracle"] = module
    specification.loader.exec_module(module)
    return module


def _files() -> dict[str, str]:
    """Kernels that read no more than their folder, and one each that reads Nix code, a source and a
    folder."""
    files = {
        "nix/torch.nix": "list: import ./more.nix list",
        "nix/more.nix": "list: list",
        "common/x.h": '#include "y.h"\n',
        "common/y.h": "",
        "flake.nix": "{ outputs = _: { }; }\n",
        "scripts/check.py": "",
        ".github/workflows/build.yml": "on: push\n",
        "README.md": "# Kernels\n",
    }
    for name in ("plain", "nixed", "data"):
        build = CUDA.replace('"edge"', f'"{name}"')
        if name == "data":
            build = build.replace("[torch]\n", '[torch]\npyext = ["py", "json"]\n')
        flake = FLAKE % (" torchVersions = import ../nix/torch.nix;" if name == "nixed" else "")
        files |= {
            f"{name}/build.toml": build,
            f"{name}/flake.nix": flake,
            f"{name}/flake.lock": LOCK,
            f"{name}/k/k.cu": "",
            f"{name}/k/notes.md": "",
            f"{name}/torch-ext/torch_binding.cpp": "",
            f"{name}/torch-ext/{name}/__init__.py": "",
            f"{name}/torch-ext/{name}/table.json": "{}",
            f"{name}/tests/test_k.py": "",
            f"{name}/benchmarks/benchmark.py": "",
            f"{name}/README.md": "",
        }
    return files


def _repository(root: Path, commits: int) -> None:
    """A repository in which each commit changes a few files at random, and now and then adds or removes
    one."""
    files = _files()
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "init", "--quiet", "--initial-branch=main")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message=first")
    choice = random.Random(20261201)
    comments = {".nix": "#", ".toml": "#", ".py": "#", ".yml": "#", ".md": "#"}
    for number in range(commits):
        for name in choice.sample(sorted(files), choice.randint(1, 3)):
            path = root / name
            if path.suffix in (".lock", ".json"):
                path.write_text(path.read_text() + " ")
            elif path.suffix in (".py", ".md") and choice.random() < 0.2:
                path.rename(path.with_stem(f"{path.stem}{number}")) if path.exists() else path.write_text("")
            elif path.exists():
                path.write_text(f"{path.read_text()}\n{comments.get(path.suffix, '//')} {number}\n")
        git(root, "add", "--all", ".")
        git(root, "commit", "--quiet", "--allow-empty", f"--message=commit {number}")


def test_whatever_a_build_can_see_is_planned(oracle: ModuleType, tmp_path: Path) -> None:
    _repository(tmp_path / "kernels", 12)
    rows = oracle.compare(tmp_path / "kernels", 12)
    assert [row.error for row in rows] == [""] * 12
    assert [(row.commit, row.missed) for row in rows if row.missed] == []
    # What it asks is answered differently for different commits: it can fail.
    assert 0 < sum(len(row.planned) for row in rows) < 12 * 3
    assert any(row.seen for row in rows) and any(not row.seen for row in rows)


def test_one_that_is_missed_is_found(oracle: ModuleType, tmp_path: Path) -> None:
    _repository(tmp_path / "kernels", 3)
    planner = tmp_path / "planner"
    planner.write_text('#!/bin/sh\necho \'{"kernels": [], "count": 0}\'\n')
    planner.chmod(0o755)
    assert any(row.missed for row in oracle.compare(tmp_path / "kernels", 3, planner=planner))


@pytest.mark.slow
@needs("KA_TEST_KERNELS_COMMUNITY")
def test_no_kernel_of_the_public_ones_is_missed(oracle: ModuleType) -> None:
    rows = oracle.compare(Path(CHECKOUT), 60)
    assert [(row.commit, sorted(row.missed)) for row in rows if row.missed] == []
    assert [row.error for row in rows if row.error] == []
    # Only a commit that changes all kernels plans all of them.
    assert [row.commit for row in rows if row.kernels and len(row.planned) > len(row.seen) + 2] == []
