"""A noarch kernel's variants, laid out and described as the builder at a revision makes them, by Nix.

What a revision makes is `builder_output`'s to say, which is held to the builder's own files. The order of
metadata.json and its indentation are serde_json's; its last line has no end where `kernel-builder hash` wrote
it (kernel-builder/src/hash.rs, 8ac69fc5). The build report beside a variant is the one of `nix.building`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from kernel_actions import builder_output, built, compliance
from kernel_actions.builder_output import Output
from kernels_data import Digest, DigestAlgorithm

from tests.release.helpers import Kernel

# The locks of the 52 public kernels at kernels-community 40d4194f; those of nine of them are of one kernel or
# two.
PUBLIC = (
    "81580bb92577f2f7228661ca2a221fc052375709",
    "18c4d686a271ca6e56d0110fd36a9a5f58e86215",
    "19aaa6421e674e9fecc352bbae6eab81d19a6bf4",
    "ce92bd77c807ce3a2f4b85d8bab69caf027b51d0",
    "d0610aa58db33b142c86b59598a2a1c730f52996",
    "a6564d1f481adcbd3273099c0f4432e7b833e846",
    "ebfa584ed4d64c90885efc83437f7dd7ba9fe8ac",
    "8ac69fc542a4306eade0759ef7c45b4f2ae57df0",
    "b79face32a072b46e4e95c37869b3d1cc2e7735f",
)
FIRST_WITH_DIGEST = "ae36559c31cc642fceaa7300edbda77a547436bf"
# Its parent: metadata.json lists no hashes and names no commit.
LAST_WITHOUT_DIGEST = "a9a6139ad68377762f28d52da3921144278b75ca"
REVISIONS = (*PUBLIC, FIRST_WITH_DIGEST, LAST_WITHOUT_DIGEST)


def lock(kernel: Kernel, revision: str) -> None:
    """Have the kernel's flake.lock pin the builder at ``revision``."""
    path = kernel.root / "flake.lock"
    value = json.loads(path.read_bytes())
    value["nodes"]["kernel-builder"]["locked"]["rev"] = revision
    path.write_text(json.dumps(value, indent=2) + "\n")


def output(revision: str) -> Output:
    """What the builder at ``revision`` makes."""
    found = builder_output.bundled(revision)
    assert found is not None
    return found


def build(kernel: Kernel, revision: str, *, report: bool = True, tested: bool = True) -> None:
    """Build and test all variants of the kernel at HEAD, as Nix and the builder at ``revision`` would."""
    for backend in kernel.backends:
        write(kernel, revision, backend, report=report)
        if tested:
            kernel.test(f"torch-{backend}")


def write(kernel: Kernel, revision: str, backend: str, *, report: bool = True) -> Path:
    """Write one variant, and the report on its build."""
    made, commit = output(revision), kernel.head
    folder = kernel.root / "build" / f"torch-{backend}"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(kernel.root / "torch-ext" / "relu", folder)
    ops_name = f"_relu_{backend}_{commit[:7]}"
    (folder / "_ops.py").write_text(
        f"import torch\n\nops = torch.ops.{ops_name}\n\n\n"
        f'def add_op_namespace_prefix(name):\n    return f"{ops_name}::{{name}}"\n'
    )
    (folder / "table.bin").write_bytes(bytes(range(256)) + f"{revision} {kernel.repo_id}".encode())
    if made.makes_package_folder:
        (folder / "relu").mkdir()
        (folder / "relu" / "__init__.py").write_text("from .. import *\n")
    values = _metadata(made, folder, kernel.version, ops_name, backend, commit)
    (folder / "metadata.json").write_text(json.dumps(values, indent=2))
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    if report:
        said = {
            "variant": folder.name, "builder": "nix", "sandbox": True, "id": ops_name, "commit": commit,
            "dirty": False, "digest": built.missing_digest(folder),
        }  # fmt: skip
        built.write_json(built.build_report_path(folder), said)
    return folder


def _metadata(
    made: Output, folder: Path, version: int, ops_name: str, backend: str, commit: str
) -> dict[str, Any]:
    state = {made.commit_key: commit, "dirty": False}
    of_builder = {"version": "0.17.0-dev0", made.commit_key: "d" * 40, "dirty": False}
    files = Digest.hash_variant(DigestAlgorithm.SHA256, folder).files
    values: dict[str, Any] = {
        "name": "relu",
        "id": ops_name,
        "version": version,
        "license": "Apache-2.0",
        "python-depends": [],
        "kernel-depends": [],
        "backend": {"type": backend},
        "digest": {"algorithm": "sha256", "files": dict(sorted(files.items()))},
        "provenance": {"kernel-builder": of_builder, "kernel": state},
    }
    return {key: values[key] for key in made.metadata if key in values}


def broken_rules(kernel: Kernel) -> list[str]:
    """The rules that the variants break, but for the one about a folder that builders stopped making."""
    report = compliance.check(kernel.root, built.find(kernel.root / "build"))
    return [f"{one.rule.id} {one.message}" for one in report.findings if one.rule.severity == "error"]
