"""What a hostile or broken Hub, cache, variant or project does to those who use kernels: nothing."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import CommitOperationAdd, HfApi
from kernel_actions import built, lock
from kernel_actions.hub import client
from kernel_actions.lock.on_hub import Snapshot
from kernel_actions.lock.update import Change

from tests.consumers.conftest import Proxy
from tests.consumers.helpers import (
    CPU,
    CUDA,
    program,
    project,
    publish,
    run,
    user_environment,
    variant_files,
    write_variant,
)
from tests.consumers.test_download import listed
from tests.integration.conftest import git


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """What was said, which has to be one line, but for what was fetched."""
    lines = [
        line for line in capsys.readouterr().err.splitlines() if not line.startswith(("Fetching", "warning"))
    ]
    assert len(lines) == 1 and "Traceback" not in lines[0] and "this is a bug" not in lines[0], lines
    return lines[0]


@pytest.mark.parametrize("mode", ["check", "update"])
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_a_lock_that_is_no_file_is_neither_waited_for_nor_replaced(
    api: HfApi, hub: str, repo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str, kind: str
) -> None:
    publish(api, repo)
    folder = project(tmp_path, {repo: 1})
    lock = folder / "kernels.lock"
    os.mkfifo(lock) if kind == "pipe" else lock.mkdir()
    assert run("lock", "--mode", mode, "--project", folder, "--hub", hub) == 2
    assert "is not a regular file" in one_line(capsys)
    assert lock.is_fifo() or lock.is_dir()


def test_a_hub_that_cannot_say_whom_it_trusts_is_not_taken_for_one_that_does_not(
    api: HfApi, proxied: Proxy, repo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(api, repo)
    folder = project(tmp_path, {repo: 1})
    for status, code, said in (
        (503, 3, "503"),
        (401, 3, "401"),
        (404, 2, "not of a publisher that the Hub lists as trusted"),
    ):

        def edit(path: str, true: int, body: bytes, status: int = status) -> tuple[int, bytes]:
            return (status, b"") if path.startswith("/api/organizations/") else (true, body)

        assert run("lock", "--mode", "update", "--project", folder, "--hub", proxied(edit)) == code
        assert said in one_line(capsys)


def test_a_difference_of_any_size_fits_into_a_pull_request() -> None:
    def change(number: int, variants: int) -> Change:
        after = Snapshot(
            "b" * 40, tuple(f"torch213-cxx11-cu{one}-x86_64-linux" for one in range(variants)), ""
        )
        return Change(
            f"acme/kernel-{number:04}", "1", "a" * 40, Snapshot("a" * 40, ("torch-cpu",), ""), after
        )

    assert lock._diff([]) == ""
    small = lock._diff([change(1, 3)])
    assert "cu2-x86" in small and "more" not in small
    assert "and 48 more" in lock._diff([change(1, 60)])
    large = lock._diff([change(number, 60) for number in range(1000)])
    assert len(large) < 65_536
    shown = large.count("acme/kernel")
    assert 20 < shown < 1000 and large.endswith(f"\n\n{1000 - shown} kernels more changed.\n")


@pytest.mark.parametrize("variable", ["KA_TOKEN", "HF_TOKEN"])
def test_a_token_that_cannot_be_sent_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    folder = project(tmp_path, {"acme/gray": 1})
    locked = {"dependency": {"repo-id": "acme/gray", "version": 1}, "lock": {"commit": "f" * 40}}
    (folder / "kernels.lock").write_text(json.dumps([locked]))
    for token in ("hf_planted\x01", "hf_planted secret", "hf_planted\u00e9"):
        monkeypatch.setenv(variable, token)
        for command in (("lock",), ("lock", "--mode", "update"), ("download",)):
            assert run(*command, "--project", folder, "--hub", "https://hub.invalid") == 2
            said = one_line(capsys)
            assert "that no token has" in said and "planted" not in said
    # What is pasted with a line's end is meant without.
    monkeypatch.setenv(variable, "hf_planted\n")
    hub = client.connect("https://hub.invalid", "hf_planted\r\n" if variable == "KA_TOKEN" else "")
    assert hub.token == "hf_planted"


def test_a_kernel_that_another_one_needs_is_named_where_it_is_not_trusted(
    api: HfApi, distrustful: str, repo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(api, repo)
    publish(api, f"{repo}-a", **{"kernel-depends": [{"repo-id": repo, "version": 1}]})
    asked = ("lock", "--mode", "update", "--project", tmp_path, "--hub", distrustful)
    project(tmp_path, {f"{repo}-a": 1}, f'trust-remote-code = ["{repo}-a"]')
    assert run(*asked) == 2
    said = one_line(capsys)
    assert f"{repo}, which another kernel needs, is not of a publisher" in said
    assert f'trust-remote-code = ["{repo}"]' in said


def test_what_kernels_says_names_no_temporary_folder(
    api: HfApi, hub: str, repo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(api, repo, **{"python-depends": 3})
    folder = project(tmp_path, {repo: 1})
    assert run("lock", "--mode", "update", "--project", folder, "--hub", hub) == 2
    said = one_line(capsys)
    assert (
        "Cannot parse metadata" in said and "pyproject.toml:2" in said and "/tmp/kernel-actions-" not in said
    )


def test_commits_that_hold_no_kernel_are_told_of(
    api: HfApi, hub: str, repo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api.create_repo(repo, repo_type="kernel")
    api.create_branch(repo, branch="v1", repo_type="kernel")
    folder = project(tmp_path, {repo: 1})
    assert run("lock", "--mode", "update", "--project", folder, "--hub", hub) == 2
    said = one_line(capsys)
    assert "pyproject.toml:2" in said and f"kernels cannot lock {repo}: " in said
    addition = CommitOperationAdd(f"build/{CPU}/__init__.py", b"")
    info = api.create_commit(repo, [addition], commit_message="x", repo_type="kernel", revision="v1")
    locked = {"dependency": {"repo-id": repo, "version": 1}, "lock": {"commit": info.oid}}
    (folder / "kernels.lock").write_text(json.dumps([locked]))
    assert run("lock", "--project", folder, "--hub", hub) == 1
    said = one_line(capsys)
    assert f"{repo}: {CPU} cannot be loaded: " in said and "/tmp/kernel-actions-" not in said


def test_a_folder_in_place_of_a_file_of_the_cache_is_named(
    api: HfApi, hub: str, repo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = publish(api, repo)
    folder = project(tmp_path / "p", {repo: 1})
    locked = {"dependency": {"repo-id": repo, "version": 1}, "lock": {"commit": commit}}
    (folder / "kernels.lock").write_text(json.dumps([locked]))
    place = tmp_path / "c" / f"kernels--{repo.replace('/', '--')}" / "refs" / "v1"
    place.mkdir(parents=True)
    assert run("download", "--project", folder, "--hub", hub, "--cache", tmp_path / "c") == 3
    assert f"{place}: Is a directory" in one_line(capsys)


def test_a_lock_of_something_else_than_is_declared_is_not_downloaded(
    api: HfApi, hub: str, repo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(api, repo)
    publish(api, repo, version=2)
    folder = project(tmp_path, {repo: 1})
    assert run("lock", "--mode", "update", "--project", folder, "--hub", hub) == 0
    project(tmp_path, {repo: 2, f"{repo}-more": 1})
    capsys.readouterr()
    assert run("download", "--project", folder, "--hub", hub, "--cache", tmp_path / "c") == 1
    said = capsys.readouterr().err
    assert f"{repo} is locked at version 1, not 2" in said and f"{repo}-more is not locked" in said
    assert not (tmp_path / "c").exists()


def test_a_folder_is_pruned_to_what_is_locked(
    api: HfApi, hub: str, repo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(api, repo, [CPU, CUDA], release="1.0.0")
    publish(api, f"{repo}-b")
    folder = project(tmp_path / "p", {repo: 1, f"{repo}-b": 1})
    cache = tmp_path / "cache"
    asked = ("download", "--project", folder, "--hub", hub)
    assert run("lock", "--mode", "update", "--project", folder, "--hub", hub) == 0
    assert run(*asked, "--cache", cache) == 0
    publish(api, repo, [CPU], release="1.1.0")
    project(tmp_path / "p", {repo: 1})
    assert run("lock", "--mode", "update", "--project", folder, "--hub", hub) == 0
    assert run(*asked, "--cache", tmp_path / "fresh") == 0
    # What an import leaves behind goes as well, and what is not of a kernel stays.
    (bytecode,) = cache.glob(f"*{repo.rpartition('/')[2]}/snapshots/*/build/{CPU}")
    (bytecode / "__pycache__").mkdir()
    (bytecode / "__pycache__" / "x.pyc").write_bytes(b"x")
    assert run(*asked, "--cache", cache) == 0
    assert len(list(cache.glob("*/snapshots/*"))) == 3
    assert run(*asked, "--cache", cache, "--prune") == 0
    assert listed(cache) == listed(tmp_path / "fresh")
    (cache / "other").write_text("x")
    assert run(*asked, "--cache", cache, "--prune") == 0
    assert (cache / "other").exists()
    capsys.readouterr()
    assert run(*asked, "--prune") == 2
    assert "--prune is for a folder of its own" in one_line(capsys)


def tree(change: Any) -> Any:
    """Answers of a Hub whose lists of files are changed."""

    def edit(path: str, status: int, body: bytes) -> tuple[int, bytes]:
        if "/tree/" not in path:
            return status, body
        files = json.loads(body)
        change(files)
        return status, json.dumps(files).encode()

    return edit


def _each(**values: object) -> Any:
    return lambda files: [one.update(values) for one in files if one["type"] == "file"]


def _more(path: object) -> Any:
    return lambda files: files.append({**files[-1], "path": path, "type": "file"})


LIES: dict[str, Any] = {
    "a size": _each(size=3),
    "no size": _each(size=None),
    "a negative size": _each(size=-1),
    "a hash": _each(oid="f" * 40),
    "no hash": _each(oid=None),
    "a path for a hash": _each(oid="../" * 13 + "x"),
    "a number for a path": _more(7),
    "a way out": _more(f"build/{CPU}/../../../../evil"),
    "a way out by a variant": _more("build/../evil"),
    "an absolute path": _more("/tmp/evil"),
    "a terminal's orders": _more(f"build/{CPU}/\x1b[2J"),
    "a file below a file": _more(f"build/{CPU}/__init__.py/evil.py"),
    "a file that is not there": _more(f"build/{CPU}/missing.py"),
    "no list": lambda files: files.clear(),
}


# Those that are told apart at another place each.
QUICK = ("a size", "no size", "a hash", "a path for a hash", "a way out", "a file below a file")


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(lie, id=name, marks=() if name in QUICK else pytest.mark.slow)
        for name, lie in LIES.items()
    ],
)
def test_a_hub_that_lies_about_its_files_is_found_out(
    api: HfApi, proxied: Proxy, repo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], lie: Any
) -> None:
    commit = publish(api, repo, release="1.0.0")
    folder = project(tmp_path / "p", {repo: 1})
    locked = {"dependency": {"repo-id": repo, "version": 1}, "lock": {"commit": commit}}
    (folder / "kernels.lock").write_text(json.dumps([locked]))
    liar = proxied(tree(lie))
    asked = ("--project", folder, "--hub", liar)
    assert run("download", *asked, "--cache", tmp_path / "c" / "cache") in (1, 2, 3)
    one_line(capsys)
    wheel = ("wheel", "--repo-id", repo, "--hub", liar, "--revision", commit)
    assert run(*wheel, "--output", tmp_path / "dist") in (1, 2, 3)
    one_line(capsys)
    assert not (tmp_path / "dist").exists()
    # Nothing that loads, no half of anything, and nothing outside.
    assert not list((tmp_path / "c").rglob("__init__.py"))
    assert not list(tmp_path.rglob("*evil*")) and not list(tmp_path.rglob(".kernel-actions-*"))
    run("lock", *asked)
    said = capsys.readouterr()
    assert "Traceback" not in said.err and "this is a bug" not in said.err and "\x1b" not in said.out


def kernel_folder(folder: Path, variant: str = CPU, name: str = "gray", **more: bytes) -> Path:
    """A kernel's folder with a variant, which has ``more`` files by their paths."""
    write_variant(folder / "build", variant, variant_files(name, variant=variant, digest=None) | more)
    return folder


def test_a_link_in_place_of_a_licence_publishes_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KA_TOKEN", "hf_planted")
    root = tmp_path / "repository"
    folder = kernel_folder(root / "kernels" / "gray")
    git(root, "init", "--quiet")
    (root / "LICENSE").write_text("Do what you want.\n")
    (folder / "LICENSE").symlink_to("../../LICENSE")  # As repositories with many kernels do.
    (folder / "COPYING").symlink_to("/proc/self/environ")
    (folder / "NOTICE").symlink_to("../../.git/config")  # Where a checkout may keep its token.
    (folder / "AUTHORS").symlink_to(tmp_path / "AUTHORS")
    (tmp_path / "AUTHORS").write_text("secret")
    assert run("wheel", folder, "--output", tmp_path / "dist") == 0
    assert capsys.readouterr().err.count("is a link to no licence of the repository") == 3
    (path,) = (tmp_path / "dist").iterdir()
    with zipfile.ZipFile(path) as wheel:
        names = [name for name in wheel.namelist() if "/licenses/" in name]
        assert [name.rpartition("/")[2] for name in names] == ["LICENSE"]
        assert wheel.read(names[0]) == b"Do what you want.\n"


def test_a_disk_that_is_full_is_told_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as caught, built.written_whole(tmp_path / "a.whl"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.filename == str(tmp_path / "a.whl") and not list(tmp_path.iterdir())


def test_names_with_special_meanings_stay_inside_of_the_package(tmp_path: Path) -> None:
    names = [
        "RECORD", "gray-1.2.0+torchcpu.dist-info/RECORD", "x.data/scripts/evil", "evil.pth", "a, b", "ü.py",
    ]  # fmt: skip
    folder = kernel_folder(tmp_path / "k", **dict.fromkeys(names, b"x"))
    assert run("wheel", folder, "--output", tmp_path / "dist", "--wheel-version", "1.2.0") == 0
    (path,) = (tmp_path / "dist").iterdir()
    target = tmp_path / "target"
    pip = [program("python"), "-m", "pip", "--isolated", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--target", target, path], check=True, env=user_environment(), capture_output=True)
    assert {one.name for one in target.iterdir()} == {"gray", "gray-1.2.0+torchcpu.dist-info"}
    assert all((target / "gray" / name).read_bytes() == b"x" for name in names)


def test_a_variant_for_old_loaders_puts_nothing_beside_its_package(
    api: HfApi, hub: str, repo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = repo.partition("/")[2].replace("-", "_")
    files = variant_files(repo.partition("/")[2], digest=None)
    folded = {f"build/{CPU}/{package}/__init__.py": files["__init__.py"]}
    folded[f"build/{CPU}/metadata.json"] = files["metadata.json"]
    api.create_repo(repo, repo_type="kernel")

    def made(more: dict[str, bytes]) -> int:
        operations = [CommitOperationAdd(path, data) for path, data in (folded | more).items()]
        info = api.create_commit(repo, operations, commit_message="x", repo_type="kernel")
        asked = ("wheel", "--repo-id", repo, "--hub", hub, "--revision", info.oid)
        return run(*asked, "--wheel-version", "1.0.0", "--output", tmp_path / "dist")

    assert made({}) == 0
    (path,) = (tmp_path / "dist").iterdir()
    assert {f"{package}/__init__.py", f"{package}/metadata.json"} <= set(zipfile.ZipFile(path).namelist())
    for evil in ("evil.pth", "torch/__init__.py", f"{package}-1.0.0+torchcpu.dist-info/RECORD"):
        capsys.readouterr()
        assert made({f"build/{CPU}/{evil}": b"import os"}) == 1
        said = one_line(capsys)
        assert f"build/{CPU} of {repo} at" in said and f"which is not in its package {package}" in said
        api.delete_file(f"build/{CPU}/{evil}", repo, repo_type="kernel")


def test_names_that_are_one_on_other_systems_make_no_wheel_for_those(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, (one, other) in enumerate((("A.py", "a.py"), ("\u00fc.py", "u\u0308.py"))):
        folder = kernel_folder(tmp_path / str(number), **{one: b"", other: b""})
        assert run("wheel", folder, "--output", tmp_path / "dist") == 1
        assert "which are one file on macOS and Windows" in capsys.readouterr().err
    assert not (tmp_path / "dist").exists()


def test_a_name_with_two_dashes_is_one_that_installers_read(tmp_path: Path) -> None:
    from packaging.utils import parse_wheel_filename

    folder = kernel_folder(tmp_path / "k", name="layer--norm")
    assert run("wheel", folder, "--output", tmp_path / "dist", "--index") == 0
    (path,) = (tmp_path / "dist").glob("*.whl")
    assert parse_wheel_filename(path.name)[0] == "layer-norm"
    assert (tmp_path / "dist" / "simple" / "layer-norm" / "index.html").is_file()
    with zipfile.ZipFile(path) as wheel:
        assert "layer__norm/__init__.py" in wheel.namelist()


@pytest.mark.parametrize("version", [True, -1, 10**30])
def test_a_version_that_no_kernel_has_makes_no_wheel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], version: int
) -> None:
    write_variant(tmp_path / "build", CPU, variant_files("gray", version=version))
    assert run("wheel", tmp_path, "--output", tmp_path / "dist") == 2
    assert "is no version of a wheel" in capsys.readouterr().err
    assert not (tmp_path / "dist").exists()


def test_files_that_are_no_wheels_are_told_of_whatever_is_in_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = kernel_folder(tmp_path / "k")
    dist = tmp_path / "dist"
    assert run("wheel", folder, "--output", dist, "--wheel-version", "1.0.0") == 0
    (path,) = dist.iterdir()
    whole = path.read_bytes()
    kinds = random.Random(1)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(kinds.randint(1, 8)):
            data[kinds.randrange(len(data))] = kinds.randrange(256)
        path.write_bytes(data[: kinds.choice((len(data), kinds.randrange(len(data))))])
        capsys.readouterr()
        assert run("wheel", "index", "--output", dist) in (0, 2)
        assert "this is a bug" not in capsys.readouterr().err
    path.unlink()
    for make in (os.mkfifo, os.mkdir):
        make(path)
        capsys.readouterr()
        assert run("wheel", "index", "--output", dist) == 2
        assert "is no file" in one_line(capsys)
        path.unlink() if path.is_fifo() else path.rmdir()
    assert run("wheel", "index", "--output", dist) == 2
    assert "has no wheels" in one_line(capsys)
