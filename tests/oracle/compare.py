"""Compares the planner with the builder's own Nix code, for folders of kernels.

It needs Nix, a checkout of the builder with the revisions that the kernels lock, and nixpkgs' ``lib``;
none of them is part of this project. The answers are printed as a table, and the exit code is 1 when any
differs::

    python tests/oracle/compare.py --builder ../kernels --lib ../nixpkgs/lib ../kernels-community
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from kernel_actions import planning  # noqa: E402
from kernel_actions.matrix import monorepo  # noqa: E402
from kernel_actions.planning import KernelPlan  # noqa: E402
from kernel_actions.variants import SYSTEMS  # noqa: E402


def main(arguments: list[str]) -> int:
    """Compare every kernel below the given folders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--builder", required=True, type=Path, help="checkout of the builder")
    parser.add_argument("--lib", required=True, type=Path, help="the folder lib of nixpkgs")
    options = parser.parse_args(arguments)
    differing = 0
    nix_seconds = 0.0
    kernels = [kernel for folder in options.folders for kernel in monorepo.discover(folder)]
    with tempfile.TemporaryDirectory() as scratch:
        checkouts: dict[str, Path] = {}
        for kernel in kernels:
            plan = planning.plan(kernel)
            commit = plan.builder.commit
            if commit not in checkouts:
                checkouts[commit] = _extract(options.builder, commit, Path(scratch) / commit)
            started = time.perf_counter()
            expected = _ask(checkouts[commit], options.lib.resolve(), kernel.resolve(), Path(scratch))
            nix_seconds += time.perf_counter() - started
            found = _answer(plan)
            is_equal = found == expected
            differing += not is_equal
            count = sum(len(names["bundle"]) for names in found.values())
            print(
                f"{kernel.name:<32} {commit[:12]} {count:>4} bundled  {'equal' if is_equal else 'DIFFERENT'}"
            )
            if not is_equal:
                print(f"  planner: {json.dumps(found)}\n  builder: {json.dumps(expected)}")
    print(
        f"{len(kernels)} kernels, {differing} different; Nix took {nix_seconds / len(kernels):.3f} s for each"
    )
    return 1 if differing else 0


def _answer(plan: KernelPlan) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    for system in SYSTEMS:
        own = [one for one in plan.variants.variants if one.system == system]
        answer[system] = {
            "redistributable": sorted(one.name for one in own),
            "bundle": sorted(one.name for one in own if one.bundled),
            "arch": sorted(name for one in own for name in one.arch_names),
            "ci": {one.backend: one.name for one in own if one.chosen_for_ci},
        }
    return answer


def _ask(builder: Path, lib: Path, kernel: Path, home: Path) -> dict[str, Any]:
    command = ["nix-instantiate", "--eval", "--strict", "--json", str(Path(__file__).parent / "answer.nix")]
    for name, path in (("builder", builder), ("lib", lib), ("kernel", kernel)):
        command += ["--arg", name, str(path)]
    environment = {**os.environ, "NIX_PATH": "", "HOME": str(home)}
    answer = json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)
    for names in answer.values():
        for kind in ("redistributable", "bundle", "arch"):
            names[kind] = sorted(names[kind])
        # One that is not bundled is no choice: backendCi then builds nothing.
        names["ci"] = {backend: one for backend, one in names["ci"].items() if one in names["bundle"]}
    return dict(answer)


def _extract(checkout: Path, commit: str, target: Path) -> Path:
    command = ["git", "-C", str(checkout), "archive", commit, "nix-builder", "kernel-builder/src"]
    archive = subprocess.run(command, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(target, filter="data")
    return target


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
