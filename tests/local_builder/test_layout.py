"""A variant's folder is whole or not there, and is what its metadata.json says."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from kernel_actions import build, builder, builder_output, manifest
from kernel_actions.builder_output import Output
from kernel_actions.errors import WrongSurroundings
from kernel_actions.git import GitState
from kernel_actions.local_builder import layout, sources
from kernel_actions.local_builder.target import Target

from tests.local_builder.helpers import BUILD_TOML, edited, write_kernel

TARGET = Target("torch213-cxx11-cpu-x86_64-linux", "cpu", is_compiled=True)
NEWEST = builder_output.newest()
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_metadata_has_all_that_build_toml_says(tmp_path: Path) -> None:
    text = edited(
        BUILD_TOML,
        (
            'backends = ["cpu"]',
            'backends = ["cpu", "cuda"]\nupstream = "https://example.com/up"\npython-depends = ["einops"]\n'
            'kernel-depends = [{ repo-id = "org/a", version = 2 }, { repo-id = "org/b", revision = "main" }]',
        ),
    )
    kernel = manifest.load(write_kernel(tmp_path, text))
    target = Target("torch211-cxx11-cu130-x86_64-linux", "cuda", is_compiled=True)
    found = layout.metadata(
        kernel,
        target,
        "_tiny_scale_cuda_0123456",
        GitState(COMMIT, False, tmp_path),
        ("9.0", "12.1+PTX"),
        NEWEST,
    )
    assert found == {
        "name": "tiny-scale",
        "id": "_tiny_scale_cuda_0123456",
        "version": 3,
        "license": "Apache-2.0",
        "upstream": "https://example.com/up",
        "python-depends": ["einops"],
        "kernel-depends": [{"repo-id": "org/a", "version": 2}, {"repo-id": "org/b", "revision": "main"}],
        "backend": {"type": "cuda", "archs": ["12.1+PTX", "9.0"]},
        "provenance": {
            "kernel-builder": {"version": layout.BUILDER_VERSION},
            "kernel": {"commit": COMMIT, "dirty": False},
        },
    }


def test_outside_of_git_no_commit_is_claimed(kernel_dir: Path) -> None:
    found = layout.metadata(manifest.load(kernel_dir), TARGET, "_x", None, (), NEWEST)
    assert "kernel" not in found["provenance"]


def test_modes_and_files_are_the_same_for_everyone(kernel_dir: Path, tmp_path: Path) -> None:
    kernel = manifest.load(kernel_dir)
    (kernel_dir / "torch-ext" / "tiny_scale" / "__init__.py").chmod(0o700)
    extension = tmp_path / "built.so"
    extension.write_bytes(b"code")
    listed = layout.files(kernel, TARGET, sources.read(kernel, "cpu"), "_tiny_scale_cpu_x", extension, NEWEST)
    folder = tmp_path / "variant"
    described = layout.metadata(kernel, TARGET, "_tiny_scale_cpu_x", None, (), NEWEST)
    layout.write(folder, listed, described, NEWEST)
    found = {
        str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in sorted(folder.rglob("*"))
    }
    assert found == {
        "__init__.py": 0o644,
        "_ops.py": 0o644,
        "_tiny_scale_cpu_x.abi3.so": 0o755,
        "data": 0o755,
        "data/note.json": 0o644,
        "metadata.json": 0o644,
    }
    assert layout.is_intact(folder)
    (folder / "data" / "note.json").write_text("changed")
    assert not layout.is_intact(folder)
    (folder / "metadata.json").write_text("{")
    assert not layout.is_intact(folder)


def _output(start: str) -> Output:
    lines = (builder.DATA / "revisions.txt").read_text().splitlines()
    found = builder_output.bundled(next(line[:40] for line in lines if line.startswith(start)))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("revision", "keys", "provenance"),
    [
        ("8ac69fc5", {"kernel-depends", "digest", "provenance"}, {"commit": COMMIT, "dirty": False}),
        ("a6564d1f", {"digest", "provenance"}, {"sha": COMMIT, "dirty": False}),
        ("81580bb9", {"digest", "provenance"}, {"sha": COMMIT, "dirty": False}),
        ("b79face3", {"digest"}, None),
        ("a9a6139a", set(), None),
    ],
)
def test_metadata_has_the_keys_of_the_locked_builder(
    kernel_dir: Path, tmp_path: Path, revision: str, keys: set[str], provenance: dict[str, Any] | None
) -> None:
    output = _output(revision)
    state = GitState(COMMIT, False, tmp_path)
    described = layout.metadata(manifest.load(kernel_dir), TARGET, "_x", state, (), output)
    folder = tmp_path / "variant"
    layout.write(folder, {"__init__.py": ""}, described, output)
    written = json.loads((folder / "metadata.json").read_bytes())
    always = {"name", "id", "version", "license", "python-depends", "backend"}
    assert set(written) == always | keys
    assert list(written) == [key for key in output.metadata if key in written]
    assert written.get("provenance", {}).get("kernel") == provenance


@pytest.mark.parametrize(("revision", "has_folder"), [("81580bb9", True), ("d0610aa5", False)])
def test_a_folder_of_the_kernels_name_is_made_until_the_builder_stopped(
    kernel_dir: Path, revision: str, has_folder: bool
) -> None:
    kernel, output = manifest.load(kernel_dir), _output(revision)
    listed = layout.files(kernel, TARGET, sources.read(kernel, "cpu", output), "_x", None, output)
    assert ("tiny_scale/__init__.py" in listed) is has_folder


@pytest.mark.parametrize("point", ["writing", "between", "swapped"])
def test_a_build_that_was_killed_is_undone_by_the_next(tmp_path: Path, point: str) -> None:
    folder, new, old = tmp_path / "v", tmp_path / "work" / "v.new", tmp_path / "work" / "v.new.old"
    new.parent.mkdir()
    for path, text in ((folder, "kept"), (new, "half")):
        path.mkdir()
        (path / "state").write_text(text)
    if point == "between":
        folder.rename(old)
    elif point == "swapped":
        folder.rename(old)
        new.rename(folder)
    layout.recover(new, folder)
    assert (folder / "state").read_text() == ("half" if point == "swapped" else "kept")
    assert not new.exists()
    assert not old.exists()


def test_names_of_states_differ() -> None:
    clean = GitState(COMMIT, False, Path("/"))
    dirty = GitState(COMMIT, True, Path("/"))
    assert build.unique_id(clean, "aaaaaaaaaa") == "0123456"
    assert build.unique_id(dirty, "aaaaaaaaaa") == "0123456_dirty_aaaaaaa"
    assert build.unique_id(None, "aaaaaaaaaa") == "local_aaaaaaa"


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    values = {
        "variant": "torch-cpu", "builder": "local", "sandbox": False, "planned": None, "backend": "cpu",
        "id": "_x_cpu_1", "commit": None, "dirty": True, "torch": None, "compiler": None, "nvcc": None,
        "seconds": 1.5, "bytes": 10, "files": 2, "sources": "s", "fingerprint": "f",
    }  # fmt: skip
    report = build.BuildReport(**values, path=tmp_path)
    assert json.loads(json.dumps(report.as_json())) == {**values, "digest": None}


def test_what_hashes_a_variant_is_asked_for_before_anything_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kernels_data", None)
    monkeypatch.setattr(build.toolchain, "detect", lambda: pytest.fail("it looked for a compiler"))
    kernel = write_kernel(tmp_path / "kernel")
    with pytest.raises(WrongSurroundings, match="kernels-data is not installed"):
        build.build(kernel)
