"""Results of Nix as folders, from stores that are made here: what is copied, and what leads out."""

from __future__ import annotations

import os
import tarfile
import threading
from pathlib import Path

import pytest
from kernel_actions.errors import KernelFailed
from kernel_actions.nix import results
from kernel_actions.nix.results import Tree

NAME = "torch213-cxx11-cpu-x86_64-linux"
STORE = "/nix/store"


@pytest.fixture
def result(tmp_path: Path) -> Path:
    """A result in a store that is not at its own path."""
    folder = tmp_path / "root/nix/store/x-tiny-torch-ext"
    (folder / NAME).mkdir(parents=True)
    (folder / NAME / "metadata.json").write_text("{}")
    return folder


def _tree(result: Path) -> Tree:
    return Tree(result, STORE, str(result.parents[2]))


def _names(result: Path) -> list[str]:
    return [name for name, _, _ in _tree(result).variant(NAME).walk()]


def test_links_in_the_store_stand_for_what_they_lead_to(result: Path) -> None:
    store = result.parent
    # The variant is a link, as Nix writes it, and so is the whole result, and all that is in it.
    (result / NAME).rename(store / "y-variant")
    (result / NAME).symlink_to(f"{STORE}/y-variant")
    (store / "z-file").write_text("shared")
    (store / "y-variant" / "file").symlink_to(f"{STORE}/z-file")
    (store / "whole").symlink_to(f"{STORE}/{result.name}")
    for one in (result, store / "whole"):
        assert _names(one) == ["file", "metadata.json"]
    results.copy(_tree(result).variant(NAME), store.parent / "copy")
    copied = sorted((store.parent / "copy").iterdir())
    assert [path.name for path in copied] == ["file", "metadata.json"]
    assert not any(path.is_symlink() for path in copied)
    # Builders of before 2025 made no folder of the variant's name.
    old = store / "old"
    old.mkdir()
    (old / "__init__.py").write_text("")
    assert _names(old) == ["__init__.py"]
    (old / "__init__.py").unlink()
    with pytest.raises(KernelFailed, match=f"has no folder {NAME}"):
        _names(old)


@pytest.mark.parametrize("target", ["{outside}", "../../../../outside", "/", "nowhere", "{store}"])
@pytest.mark.parametrize("where", ["", NAME, f"{NAME}/link"])
def test_a_link_that_leads_out_of_the_store_is_refused(
    result: Path, tmp_path: Path, target: str, where: str
) -> None:
    outside = tmp_path / "outside"
    (outside / NAME).mkdir(parents=True)
    for folder in (outside, outside / NAME):
        (folder / "metadata.json").write_text("{}")
    path = result / where if where else result
    if path.exists():
        path.rename(tmp_path / "away")
    path.symlink_to(target.format(outside=outside, store=STORE))
    with pytest.raises(KernelFailed, match="of the result is a link to"):
        _names(result)


def test_circles_and_links_without_number_end(result: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (result / NAME / "circle").symlink_to(".")
    with pytest.raises(KernelFailed, match="is a link in a circle"):
        _names(result)
    (result / NAME / "circle").unlink()
    os.mkfifo(result / NAME / "pipe")
    with pytest.raises(KernelFailed, match="pipe of the result is neither a file nor a folder"):
        _names(result)
    (result / NAME / "pipe").unlink()
    # Thirty folders of two links each to the next are a thousand million files.
    for number in range(30):
        (result / f"{number}").mkdir()
        for name in ("a", "b"):
            (result / f"{number}" / name).symlink_to(result / f"{number + 1}")
    (result / "30").mkdir()
    (result / NAME / "many").symlink_to(result / "0")
    monkeypatch.setattr(results, "_MOST_FILES", 1000)
    with pytest.raises(KernelFailed, match="is one of more than 1000 files"):
        _names(result)


def test_any_name_of_a_file_is_copied_and_packed(result: Path, tmp_path: Path) -> None:
    names = [b"a\nb", b" -rf ", b"\xff\xfe", "ä".encode(), b"::error::x"]
    for name in names:
        Path(os.fsdecode(os.fsencode(result / NAME) + b"/" + name)).write_text("x")
    (result / NAME / "set").write_text("x")
    (result / NAME / "set").chmod(0o6755)
    results.copy(_tree(result).variant(NAME), tmp_path / NAME)
    assert (tmp_path / NAME / "set").stat().st_mode & 0o7777 == 0o755
    results.pack(tmp_path / NAME, tmp_path / "archive.tar")
    with tarfile.open(tmp_path / "archive.tar") as archive:
        found = {os.fsencode(entry.name) for entry in archive}
    assert {NAME.encode() + b"/" + name for name in names} <= found


def test_modes_are_the_same_whoever_copies(result: Path, tmp_path: Path) -> None:
    (result / NAME / "folder").mkdir()
    (result / NAME / "folder" / "file").write_text("x")
    archives = []
    for mask in (0o022, 0o077):
        before = os.umask(mask)
        try:
            results.copy(_tree(result).variant(NAME), tmp_path / f"{mask}" / NAME)
            results.pack(tmp_path / f"{mask}" / NAME, tmp_path / f"{mask}.tar")
        finally:
            os.umask(before)
        archives.append((tmp_path / f"{mask}.tar").read_bytes())
    assert archives[0] == archives[1]


def test_two_that_pack_into_one_archive_leave_a_whole_one(result: Path, tmp_path: Path) -> None:
    (result / NAME / "large").write_bytes(os.urandom(3_000_000))
    archive = tmp_path / "built" / f"{NAME}.tar"
    threads = [threading.Thread(target=results.pack, args=(result / NAME, archive)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with tarfile.open(archive) as whole:
        assert {entry.name for entry in whole} == {NAME, f"{NAME}/large", f"{NAME}/metadata.json"}
    assert os.listdir(archive.parent) == [archive.name]
