"""What the builder puts into a variant, by revision: huggingface/kernels up to 8ac69fc5, read there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kernel_actions import builder, builder_output, builder_source
from kernel_actions.builder_output import Output
from kernel_actions.builder_source import Source
from kernel_actions.errors import WrongSurroundings

Trait = Callable[[Output], Any]

# Each change: the commit before it, the commit, what it is, and its values before and since.
CHANGES: tuple[tuple[str, str, Trait, Any, Any], ...] = (
    ("ce202d6c", "76b691de", lambda it: it.package_folder, "sources", "loader"),
    ("24750e9f", "5a70f5e0", lambda it: it.backend_in_ops, False, True),
    ("b2d628c1", "76762634", lambda it: it.ci_tests, False, True),
    ("c5462f19", "1fb18d40", lambda it: "id" in it.metadata, False, True),
    ("a9a6139a", "ae36559c", lambda it: it.writes_digest, False, True),
    ("1658f651", "f093250f", lambda it: "source" in it.metadata, False, True),
    ("f093250f", "19a568f6", lambda it: it.noarch_pyext, False, True),
    ("b79face3", "81580bb9", lambda it: it.writes_provenance, False, True),
    ("b79face3", "81580bb9", lambda it: it.commit_key, "", "sha"),
    ("3b21db39", "e9152aa2", lambda it: it.makes_package_folder, True, False),
    ("3b21db39", "e9152aa2", lambda it: it.ci_has_kernels, False, True),
    ("3b21db39", "e9152aa2", lambda it: it.ci_has_local_kernels, False, True),
    ("e9152aa2", "3b5a3d27", lambda it: it.unique_symbols, True, False),
    ("1bbe76c6", "2c40e10d", lambda it: it.writes_kernel_depends, False, True),
    ("b5443818", "dbc322a3", lambda it: it.commit_key, "sha", "commit"),
)
# The revisions that the 52 kernels of huggingface/kernels-community lock at 40d4194f.
PUBLIC = (
    ("81580bb9", "loader", True, "sha"),
    ("18c4d686", "none", True, "commit"),
    ("19aaa642", "loader", True, "sha"),
    ("ce92bd77", "loader", True, "sha"),
    ("d0610aa5", "none", True, "sha"),
    ("a6564d1f", "none", True, "sha"),
    ("ebfa584e", "none", True, "sha"),
    ("8ac69fc5", "none", True, "commit"),
    ("b79face3", "loader", True, ""),
)


def _output(start: str) -> Output:
    lines = (builder.DATA / "revisions.txt").read_text().splitlines()
    found = builder_output.bundled(next(line[:40] for line in lines if line.startswith(start)))
    assert found is not None
    return found


@pytest.mark.parametrize(("before", "since", "trait", "old", "new"), CHANGES)
def test_a_trait_changes_in_the_commit_that_changed_it(
    before: str, since: str, trait: Trait, old: Any, new: Any
) -> None:
    assert (trait(_output(before)), trait(_output(since))) == (old, new)


@pytest.mark.parametrize(("start", "folder", "has_digest", "commit_key"), PUBLIC)
def test_the_locks_of_public_kernels(start: str, folder: str, has_digest: bool, commit_key: str) -> None:
    output = _output(start)
    assert (output.package_folder, output.writes_digest, output.commit_key) == (
        folder,
        has_digest,
        commit_key,
    )


def test_every_revision_of_the_data_has_traits() -> None:
    lines = (builder.DATA / "revisions.txt").read_text().splitlines()
    assert all(builder_output.bundled(line[:40]) is not None for line in lines)
    assert builder_output.bundled("0" * 40) is None
    assert builder_output.newest() == _output("8ac69fc5")


def test_the_keys_of_metadata_are_in_the_order_of_the_builders_struct() -> None:
    assert _output("8ac69fc5").metadata == (
        "name", "id", "version", "license", "upstream", "source", "python-depends", "kernel-depends",
        "backend", "digest", "provenance",
    )  # fmt: skip


ARCH = 'nativeBuildInputs = [ hash-kernel-hook ]; src = "create-pyproject ${provenanceFlags}";'
METADATA = """\
pub struct Metadata {
    pub id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    pub provenance: Option<Provenance>,
}

pub struct GitHash {
    pub sha: String,
    pub dirty: bool,
}
"""
BUILD = """\
  mkCiTests =
    { path }:
      [
        kernels
      ];
  mkDevShells =
    { LOCAL_KERNELS }: 1;
"""


def _files(**changes: str | None) -> dict[str, str | None]:
    templates = "kernel-builder/src/pyproject/templates/torch"
    return {
        "nix-builder/versions.nix": "[ ]",
        "nix-builder/lib/build.nix": changes.get("build", BUILD),
        "nix-builder/lib/extension/torch/arch.nix": changes.get("arch", ARCH),
        "nix-builder/lib/source-set.nix": 'src ++ [ "build.toml" "kernels.lock" ]',
        "kernels-data/src/metadata.rs": METADATA,
        f"{templates}/torch-extension.cmake": 'check_cxx_compiler_flag("-fno-gnu-unique" HAS)',
        f"{templates}/build-variants.cmake": changes.get("variants", ""),
        f"{templates}/preamble.cmake": 'set(OPS_NAME "_{{kernel_name}}_${BACKEND}_{{ kernel_unique_id }}")',
    }


def test_an_unknown_revision_is_read_from_its_files() -> None:
    found = builder_output.from_json(builder_output.traits("nix-builder/versions.nix", _files().get))
    assert found.metadata == ("id", "digest", "provenance")
    assert found.commit_key == "sha" and found.lock_file and found.backend_in_ops
    assert found.package_folder == "none" and not found.unique_symbols
    assert found.ci_tests and found.ci_has_kernels and not found.ci_has_local_kernels
    old = _files(arch="", variants="install(FILES compat.py RENAME __init__.py)")
    old["nix-builder/lib/extension/torch/arch.nix"] = "buildPhase"
    found = builder_output.from_json(builder_output.traits("nix-builder/versions.nix", old.get))
    assert found.package_folder == "loader" and not found.writes_digest


def test_code_in_another_place_is_not_guessed_at() -> None:
    with pytest.raises(WrongSurroundings, match="not where the builder has it"):
        builder_output.traits("nix-builder/versions.nix", _files(arch=None).get)


def test_a_builder_in_a_folder_is_read_there_or_taken_for_the_newest(
    kernel_dir: Callable[..., Path], tmp_path: Path
) -> None:
    node = {"locked": {"type": "path", "path": "/src/kernels"}}
    lock = {"nodes": {"root": {"inputs": {"kernel-builder": "kb"}}, "kb": node}, "root": "root", "version": 7}
    kernel = kernel_dir("", json.dumps(lock))
    checkout = Source(checkout=tmp_path)
    output, remark = builder_source.find_output(kernel, checkout)
    assert output == builder_output.newest()
    assert "builder revision /src/kernels is taken to make what 8ac69fc5 makes" in remark
    for name, text in _files().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text or "")
    builder_source._FAILURES.clear()
    output, remark = builder_source.find_output(kernel, checkout)
    assert (output.lock_file, remark) == (True, "")


def test_a_known_lock_is_read_from_the_data_alone(kernel_dir: Callable[..., Path]) -> None:
    assert builder_source.find_output(kernel_dir(""), Source()) == (_output("8ac69fc5"), "")
    locked = _output("81580bb9")
    source = Source("81580bb92577f2f7228661ca2a221fc052375709")
    assert builder_source.find_output(kernel_dir(""), source) == (locked, "")
