"""Kernels to publish on an embedded Hub, and commands to run as their users would."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from kernel_actions import cli
from kernel_actions.release.record import Record
from kernel_actions.release.version import parse

from tests.tools import ask

CPU = "torch-cpu"
CUDA = "torch213-cxx11-cu130-x86_64-linux"
ROCM = "torch213-cxx11-rocm72-x86_64-linux"

# A kernel that needs Torch and nothing else; its release is in what it returns.
SOURCE = """\
import torch

RELEASE = {release!r}


def gray(image: torch.Tensor) -> torch.Tensor:
    weights = torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)
    return (image.float() * weights).sum(-3, keepdim=True)
"""


def variant_files(
    name: str, version: int = 1, variant: str = CPU, text: str = "", **changed: object
) -> dict[str, bytes]:
    """The files of a built variant, by path in it, with their hashes in its metadata.json."""
    files = {"__init__.py": text.encode() or SOURCE.format(release="1.0.0").encode()}
    if variant.count("-") > 1:
        files[f"_{name}.abi3.so"] = f"{variant} of {name}\n".encode() * 50
    kind = variant.split("-")[-1] if variant.count("-") == 1 else "cuda"
    metadata: dict[str, object] = {
        "name": name,
        "id": f"_{name.replace('-', '_')}_{kind}_0123456",
        "version": version,
        "license": "Apache-2.0",
        "python-depends": [],
        "kernel-depends": [],
        "backend": {"type": kind},
        "digest": {
            "algorithm": "sha256",
            "files": {
                path: base64.b64encode(hashlib.sha256(data).digest()).decode() for path, data in files.items()
            },
        },
    }
    files["metadata.json"] = json.dumps(metadata | changed, indent=2).encode()
    return files


def write_variant(build_dir: Path, variant: str, files: Mapping[str, bytes]) -> Path:
    """A variant on disk: its folder."""
    for name, data in files.items():
        path = build_dir / variant / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return build_dir / variant


def publish(
    api: HfApi,
    repo_id: str,
    variants: Iterable[str] = (CPU,),
    *,
    version: int = 1,
    release: str = "",
    marks: object = None,
    text: str = "",
    **changed: object,
) -> str:
    """Make the branch of a version hold exactly these variants, in one commit, which is returned."""
    name = repo_id.rpartition("/")[2]
    branch = f"v{version}"
    api.create_repo(repo_id, repo_type="kernel", exist_ok=True)
    start = api.list_repo_commits(repo_id, repo_type="kernel", revision="main")[-1].commit_id
    api.create_branch(repo_id, branch=branch, revision=start, repo_type="kernel", exist_ok=True)
    text = text or (SOURCE.format(release=release) if release else "")
    files = {
        f"build/{variant}/{path}": data
        for variant in variants
        for path, data in variant_files(name, version, variant, text, **changed).items()
    }
    if release:
        number = parse(release)
        assert number is not None
        value = json.loads(Record(name, number, "0" * 40, False, "").as_bytes())
        if marks is not None:
            value["rolled_back"] = marks
        files["kernel-actions.json"] = json.dumps(value).encode()
    there = set(api.list_repo_files(repo_id, repo_type="kernel", revision=branch))
    info = api.create_commit(
        repo_id,
        [
            *(CommitOperationDelete(path) for path in sorted(there - set(files) - {".gitattributes"})),
            *(CommitOperationAdd(path, data) for path, data in sorted(files.items())),
        ],
        commit_message=f"Release {release}" if release else "Upload",
        repo_type="kernel",
        revision=branch,
    )
    return str(info.oid)


def project(folder: Path, dependencies: Mapping[str, int] | str, own: str = "") -> Path:
    """A project that uses kernels: its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = (
        dependencies
        if isinstance(dependencies, str)
        else "".join(f'"{repo_id}" = {version}\n' for repo_id, version in dependencies.items())
    )
    text = f"[tool.kernels.dependencies]\n{lines}"
    (folder / "pyproject.toml").write_text(text + (f"\n[tool.kernel-actions]\n{own}\n" if own else ""))
    return folder


def commits(folder: Path) -> dict[str, str]:
    """The locked commit of each repository."""
    entries = json.loads((folder / "kernels.lock").read_text())
    return {one["dependency"]["repo-id"]: one["lock"]["commit"] for one in entries}


def run(*arguments: object) -> int:
    """Run a command of the suite in this process; its exit code."""
    return cli.main([str(one) for one in arguments])


def program(name: str) -> str:
    """A program of the environment that runs the tests."""
    return str(Path(sys.executable).parent / name)


def user_environment(**changes: str) -> dict[str, str]:
    """The variables of a user's shell, with an interpreter for the suite."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("KA_", "GITHUB_", "HF_", "KERNELS_", "PYTEST_"))
    }
    return kept | {"KA_PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"} | changes


def unshared() -> list[str]:
    """What runs a command without any network but a loopback that is down."""
    ask("network namespaces")
    return ["unshare", "--map-root-user", "--net"]
