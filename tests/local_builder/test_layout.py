"""A variant's folder is whole or not there, and is what its metadata.json says."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from kernel_actions import build, manifest
from kernel_actions.git import GitState
from kernel_actions.local_builder import layout, sources
from kernel_actions.local_builder.target import Target

from tests.local_builder.helpers import BUILD_TOML, edited, write_kernel

TARGET = Target("torch213-cxx11-cpu-x86_64-linux", "cpu", is_compiled=True)
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
        kernel, target, "_tiny_scale_cuda_0123456", GitState(COMMIT, False, tmp_path), ("9.0", "12.1+PTX")
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
    found = layout.metadata(manifest.load(kernel_dir), TARGET, "_x", None, ())
    assert "kernel" not in found["provenance"]


def test_modes_and_files_are_the_same_for_everyone(kernel_dir: Path, tmp_path: Path) -> None:
    kernel = manifest.load(kernel_dir)
    (kernel_dir / "torch-ext" / "tiny_scale" / "__init__.py").chmod(0o700)
    extension = tmp_path / "built.so"
    extension.write_bytes(b"code")
    listed = layout.files(kernel, TARGET, sources.read(kernel, "cpu"), "_tiny_scale_cpu_x", extension)
    folder = tmp_path / "variant"
    layout.write(folder, listed, layout.metadata(kernel, TARGET, "_tiny_scale_cpu_x", None, ()))
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
        "tiny_scale": 0o755,
        "tiny_scale/__init__.py": 0o644,
    }
    assert layout.is_intact(folder)
    (folder / "data" / "note.json").write_text("changed")
    assert not layout.is_intact(folder)
    (folder / "metadata.json").write_text("{")
    assert not layout.is_intact(folder)


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
    assert json.loads(json.dumps(report.as_json())) == values
