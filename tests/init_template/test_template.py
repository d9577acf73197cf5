"""The official template goes from ``kernel-builder init`` to a Hub, with a lock and with nothing edited.

``data/`` holds what the command writes at two revisions of the builder, as ``render.py`` says. Set
``KA_BUILDER_REPOSITORY`` to a checkout of huggingface/kernels, and the data is compared with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kernel_actions import compliance, planning
from public_kernels import layout, rehearsal

from tests.init_template import render
from tests.tools import needs

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "scripts" / "kernel_actions"
REVISIONS = sorted(path.stem for path in render.DATA.glob("*.json"))
# The backends that the builder bundles. It has no build sets for cann and neuron, and the one for tpu is not
# in the bundle, as torch_tpu may not be published (nix-builder/versions.nix, 8ac69fc5).
BUNDLED = {"cpu", "cuda", "metal", "rocm", "xpu"}
REPOSITORY = "KA_BUILDER_REPOSITORY"


@pytest.fixture(params=REVISIONS)
def revision(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def kernel(tmp_path: Path, revision: str) -> Path:
    """The template as ``init`` writes it, with the lock that ``nix flake lock`` adds, in one commit."""
    folder, value = tmp_path / render.NAME, recorded(revision)
    for name, text in value["files"].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    lock = json.loads((ROOT / "flake.lock").read_bytes())
    lock["nodes"]["kernel-builder"]["locked"]["rev"] = value["commit"]
    (folder / "flake.lock").write_text(json.dumps(lock, indent=2) + "\n")
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
    git(folder, *identity, "commit", "--quiet", "--message", "feat: init")
    return folder


def recorded(revision: str) -> dict[str, Any]:
    """The data of a revision."""
    value: dict[str, Any] = json.loads((render.DATA / f"{revision}.json").read_bytes())
    return value


def variables() -> dict[str, str]:
    """The environment of a developer with no configuration of their own."""
    kept = ("PATH", "HOME", "LANG", "XDG_CACHE_HOME")
    return {"GIT_CONFIG_NOSYSTEM": "1", **{name: os.environ[name] for name in kept if name in os.environ}}


def git(folder: Path, *arguments: str) -> str:
    """What a git command prints."""
    finished = subprocess.run(
        ["git", *arguments], cwd=folder, env=variables(), capture_output=True, text=True, check=True
    )
    return finished.stdout.strip()


def python(kernel: Path, *arguments: str) -> dict[str, Any]:
    """What a Python program prints as JSON. It has to succeed."""
    finished = subprocess.run(
        [sys.executable, "-I", *arguments], cwd=kernel, env=variables(), capture_output=True, text=True,
        check=False, timeout=900,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr + finished.stdout
    answer: dict[str, Any] = json.loads(finished.stdout)
    return answer


def command(kernel: Path, *arguments: str) -> dict[str, Any]:
    """What a command of the suite prints as JSON. It has to succeed."""
    return python(kernel, str(PROGRAM), *arguments, "--format", "json")


@needs(REPOSITORY)
def test_the_data_is_what_the_builder_writes(revision: str) -> None:
    value = render.rendered(Path(os.environ[REPOSITORY]), revision)
    assert json.loads(json.dumps(value)) == recorded(revision)


def test_every_backend_that_the_builder_bundles_is_planned(kernel: Path) -> None:
    bundled = [variant for variant in planning.planned_variants(kernel) if variant.bundled]
    assert {variant.backend for variant in bundled} == BUNDLED


def test_its_sources_are_compliant(kernel: Path) -> None:
    report = compliance.check_folders(kernel, [])
    assert [str(one) for one in report.findings if one.rule.severity == "error"] == []


@pytest.mark.slow
def test_it_is_built_tested_and_released(kernel: Path, revision: str, tmp_path: Path) -> None:
    """The variant of this CPU is compiled, tested and loaded; others have stand-ins for their extensions."""
    built = command(kernel, "build", "--backend-tool", "local")
    assert built["backend"] == "cpu" and built["planned"]
    tests = command(kernel, "test", "--variant", built["variant"])
    assert (tests["verdict"], tests["passed"], tests["failed"]) == ("passed", 1, 0)
    kinds = laid_out(kernel, revision, built["variant"], tmp_path / "release" / "build")
    assert list(kinds.values()).count("compiled here") == 1
    released = python(kernel, *rehearsal.program(kernel, tmp_path / "release"))
    assert released["repository"] == "acme/my-kernel" and released["branch"] == "v1"
    assert released["loaded"] == built["variant"] and "my_kernel" in released["names"]
    assert git(kernel, "status", "--porcelain") == ""


def laid_out(kernel: Path, revision: str, built: str, build_dir: Path) -> dict[str, str]:
    """Lay out all planned variants by the templates of ``revision``; what the extension of each is."""
    value = recorded(revision)["builder"]
    templates = layout.Templates(**{**value, "metadata": tuple(value["metadata"])})
    source = layout.Source.read(kernel, git(kernel, "rev-parse", "HEAD"))
    (extension,) = (kernel / "build" / built).glob("*.abi3.so")
    return rehearsal.lay_out(source, templates, {built: extension}, build_dir)
