"""What an upload changes is planned by values alone, without a Hub."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_actions.errors import WrongInput
from kernel_actions.hub import client
from kernel_actions.hub.client import LocalFile, Refs, RemoteFile, plan

OLD, NEW = "build/torch-cpu", "build/torch-cuda"


def local(oid: str, sha256: str = "") -> LocalFile:
    return LocalFile(Path("unused"), 1, oid, sha256)


def test_new_files_are_added() -> None:
    result = plan({}, {f"{NEW}/a.py": local("1")}, [NEW])
    assert (result.added, result.kept, result.deleted) == ((f"{NEW}/a.py",), (), ())


def test_unchanged_files_are_not_sent() -> None:
    remote = {f"{NEW}/a.py": RemoteFile("1"), f"{NEW}/b.so": RemoteFile("pointer", sha256="f00")}
    result = plan(remote, {f"{NEW}/a.py": local("1"), f"{NEW}/b.so": local("2", "f00")}, [NEW])
    assert result.is_empty
    assert result.kept == (f"{NEW}/a.py", f"{NEW}/b.so")


def test_a_file_kept_as_lfs_is_compared_by_its_sha256() -> None:
    remote = {f"{NEW}/b.so": RemoteFile("2", sha256="f00")}
    assert plan(remote, {f"{NEW}/b.so": local("2", "bad")}, [NEW]).added == (f"{NEW}/b.so",)


def test_changed_files_are_replaced_not_deleted() -> None:
    result = plan({f"{NEW}/a.py": RemoteFile("1")}, {f"{NEW}/a.py": local("2")}, [NEW])
    assert (result.added, result.kept, result.deleted) == ((f"{NEW}/a.py",), (), ())


def test_stale_files_inside_given_variants_are_deleted() -> None:
    remote = {f"{NEW}/a.py": RemoteFile("1"), f"{NEW}/old/x.py": RemoteFile("3")}
    result = plan(remote, {f"{NEW}/a.py": local("1")}, [NEW])
    assert result.deleted == (f"{NEW}/old/x.py",)


def test_variants_not_given_are_kept() -> None:
    remote = {f"{OLD}/a.py": RemoteFile("1"), f"{NEW}-longer/a.py": RemoteFile("1")}
    result = plan(remote, {f"{NEW}/a.py": local("1")}, [NEW])
    assert result.kept == (f"{OLD}/a.py", f"{NEW}-longer/a.py")
    assert not result.deleted


def test_a_new_version_branch_inherits_no_variants() -> None:
    remote = {f"{OLD}/a.py": RemoteFile("1"), ".gitattributes": RemoteFile("2")}
    result = plan(remote, {f"{NEW}/a.py": local("1")}, [NEW], keeps_others=False)
    assert result.deleted == (f"{OLD}/a.py",)
    assert result.kept == (".gitattributes",)


def test_a_file_in_the_place_of_a_folder_is_stale() -> None:
    result = plan({NEW: RemoteFile("1")}, {f"{NEW}/a.py": local("1")}, [NEW])
    assert result.deleted == (NEW,)


def test_local_files_have_the_ids_of_git_and_no_bytecode(tmp_path: Path) -> None:
    (tmp_path / "sub" / "__pycache__").mkdir(parents=True)
    (tmp_path / "sub" / "a.txt").write_bytes(b"hello\n")
    (tmp_path / "sub" / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"")
    files = client.local_files(tmp_path, NEW)
    assert list(files) == [f"{NEW}/sub/a.txt"]
    # `printf 'hello\n' | git hash-object --stdin` and `| sha256sum`.
    assert files[f"{NEW}/sub/a.txt"].oid == "ce013625030ba8dba906f756967f9e9ca394464a"
    assert files[f"{NEW}/sub/a.txt"].sha256.startswith("5891b5b522d5df086d0ff0b110fbd9d2")


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_link_out_of_a_variant_is_refused(tmp_path: Path, is_folder: bool) -> None:
    outside = tmp_path / "secret"
    if is_folder:
        outside.mkdir()
    else:
        outside.write_text("secret")
    (tmp_path / "variant").mkdir()
    (tmp_path / "variant" / "innocent").symlink_to(outside)
    with pytest.raises(WrongInput, match="link out of its variant"):
        client.local_files(tmp_path / "variant", NEW)


@pytest.mark.parametrize(
    "address", ["nonsense", "ftp://127.0.0.1", "http://user:pw@127.0.0.1:1", "http://[", "http://127.0.0.1:x"]
)
def test_an_address_that_is_none_is_wrong_input(address: str) -> None:
    with pytest.raises(WrongInput, match="not the address of a Hub"):
        client.connect(address)


def test_a_token_is_not_sent_unencrypted() -> None:
    with pytest.raises(WrongInput, match="not encrypted"):
        client.connect("http://hub.example.org", "hf_secret")


@pytest.mark.parametrize("repo_id", ["relu", "a/b/c", "a/../b", "a--b/c", "/b", "a/b\n"])
def test_a_repository_has_an_owner_and_a_name(repo_id: str) -> None:
    with pytest.raises(WrongInput, match="owner/name"):
        client.check_repo_id(repo_id)


@pytest.mark.parametrize(
    ("tags", "branches", "listed"),
    [
        ([], [], "no branch and no tag"),
        (["v1.0.0"], ["main"], "tags v1.0.0; branches main"),
        (
            ["v1.9.0", "v1.10.0-rc.2", "v1.10.0", "v1.10.0-rc.10", "other"],
            ["main", "v2", "v10"],
            "tags v1.10.0, v1.10.0-rc.10, v1.10.0-rc.2, v1.9.0, other; branches v10, v2, main",
        ),
        (
            [f"v1.{minor}.0" for minor in range(9)],
            [],
            "tags v1.8.0, v1.7.0, v1.6.0, v1.5.0, v1.4.0 and 4 more",
        ),
    ],
)
def test_what_a_repository_has_is_listed_newest_first(
    tags: list[str], branches: list[str], listed: str
) -> None:
    assert Refs(dict.fromkeys(branches, "c"), dict.fromkeys(tags, "c")).listed() == listed
