"""What is read here is read as the loader and the builder read it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kernel_actions.compliance import variant
from kernels.variants import parse_variant
from kernels_data import Digest, DigestAlgorithm

from tests.compliance.helpers import NAME, check, said, sign, write

NAMES = [
    "torch213-cxx11-cu130-x86_64-linux", "torch26-cxx98-cu118-x86_64-linux", "torch213-cpu-aarch64-darwin",
    "torch213-metal-aarch64-darwin", "torch-stable-abi211-cu130-x86_64-linux", "tvm-ffi01-cu132-x86_64-linux",
    "torch29-cxx11-rocm64-x86_64-linux", "torch29-cxx11-xpu20252-x86_64-linux", "torch-cpu", "torch-cuda",
    "torch-rocm", "torch-tpu", "torch-universal", "torch213-cu128-x86_64-windows",
]  # fmt: skip
WRONG = [
    "torch2-cpu-x86_64-linux", "torch213-cxx12-cpu-x86_64-linux", "torch213-cuda-x86_64-linux",
    "torch213-cu13-linux", "torch213-cxx11-cu130-x86_64-linux-old", "jax01-cu130-x86_64-linux",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_of_variants_are_those_of_the_loader(name: str) -> None:
    parsed = variant.parse_name(name)
    assert parsed is not None
    loaded = parse_variant(name)
    assert loaded.variant_str == name
    if parsed.is_compiled:
        assert loaded.arch.backend.name == parsed.backend
        assert (loaded.arch.platform, loaded.arch.os) == (parsed.machine, parsed.os)
    else:
        assert loaded.arch.backend_name == parsed.backend or name == "torch-universal"


@pytest.mark.parametrize("name", WRONG)
def test_names_that_the_loader_refuses_are_refused(name: str) -> None:
    assert variant.parse_name(name) is None
    with pytest.raises(ValueError):
        parse_variant(name)


def test_the_digest_is_the_one_of_the_builder(kernel: Path) -> None:
    folder = kernel / "build" / NAME
    write(folder / "deep" / "er" / "metadata.json", "{}")
    write(folder / "metadata.json.sigstore", "{}")
    write(folder / "__pycache__" / "x.pyc", "")
    for algorithm in (DigestAlgorithm.SHA256, DigestAlgorithm.SHA512):
        files = Digest.hash_variant(algorithm, folder).files
        sign(folder, digest={"algorithm": str(algorithm).rpartition(".")[2].lower(), "files": files})
        assert json.loads((folder / "metadata.json").read_text())["digest"]["files"] == files
        assert said(check(kernel), "metadata-digest") == []
