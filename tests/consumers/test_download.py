"""``download``: a cache that loads without a network, the same each time."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import HfApi
from kernel_actions import download
from kernel_actions.errors import WrongInput
from kernel_actions.lock import platforms

from tests.consumers.helpers import (
    CPU,
    CUDA,
    ROCM,
    commits,
    program,
    project,
    publish,
    run,
    user_environment,
)
from tests.integration.conftest import ROOT

# Loads the locked kernel of the arguments, converts an image, and lists what it tried to connect to.
LOAD = """
import json, socket, sys, time
from pathlib import Path

tried = []
connect = socket.socket.connect
socket.socket.connect = lambda self, address: (tried.append(str(address)), connect(self, address))[1]
socket.getaddrinfo = lambda *arguments, **_: (tried.append(str(arguments)), [])[1]

import kernels, torch

how, repo_id, lock = sys.argv[1:]
started = time.monotonic()
try:
    if how == "get_kernel":
        kernel = kernels.get_kernel(repo_id, version=1)
    else:
        kernel = getattr(kernels, how)(repo_id, lockfile=Path(lock))
    image = torch.arange(3 * 4 * 5, dtype=torch.uint8).view(3, 4, 5)
    gray = kernel.gray(image)
    answer = {"shape": list(gray.shape), "first": round(float(gray[0, 0, 0]), 3), "release": kernel.RELEASE}
except Exception as error:
    answer = {"error": f"{type(error).__name__}: {error}"}
print(json.dumps(answer | {"tried": tried, "seconds": time.monotonic() - started}))
"""
# The luma of (0, 20, 40).
EXPECTED = {"shape": [1, 4, 5], "first": 16.3}

Locked = Callable[..., Path]


@pytest.fixture
def locked(api: HfApi, hub: str, repo: str, tmp_path: Path) -> Locked:
    """Publishes a kernel and locks a project that uses it: the project's folder."""

    def make(*variants: str, own: str = "", **changed: object) -> Path:
        publish(api, repo, variants or (CPU, CUDA), release="1.0.0", **changed)  # type: ignore[arg-type]
        folder = project(tmp_path / "project", {repo: 1}, own)
        assert run("lock", "--mode", "update", "--project", folder, "--hub", hub) == 0
        return folder

    return make


def load(prefix: list[str], how: str, repo: str, folder: Path, cache: Path, **more: str) -> dict[str, object]:
    """What a process without a network gets from ``cache``."""
    finished = subprocess.run(
        [*prefix, program("python"), "-c", LOAD, how, repo, folder / "kernels.lock"],
        env=user_environment(HF_HUB_CACHE=str(cache), **more),
        text=True,
        capture_output=True,
        timeout=300,
        check=True,
    )
    answer: dict[str, object] = json.loads(finished.stdout)
    return answer


def listed(root: Path) -> list[tuple[object, ...]]:
    """Everything below ``root``, in order: its path, mode, time, and bytes or target."""
    found = []
    for path in sorted([root, *root.rglob("*")]):
        status = path.lstat()
        content: object = None
        if path.is_symlink():
            content = os.readlink(path)
        elif path.is_file():
            content = path.read_bytes()
        mode = 0 if path.is_symlink() else stat.S_IMODE(status.st_mode)
        found.append((path.relative_to(root).as_posix(), mode, status.st_mtime_ns, content))
    return found


def test_what_is_locked_loads_without_a_network(
    locked: Locked, hub: str, repo: str, tmp_path: Path, no_network: list[str]
) -> None:
    folder = locked(CPU, CUDA, own='platforms = ["torch2.13-cpu-x86_64-linux"]')
    cache = tmp_path / "cache"
    assert run("download", "--project", folder, "--hub", hub, "--cache", cache) == 0
    for how, more in (
        ("load_kernel", {}),
        ("get_locked_kernel", {"HF_HUB_OFFLINE": "1"}),
        ("get_kernel", {"HF_HUB_OFFLINE": "1"}),
    ):
        answer = load(no_network, how, repo, folder, cache, **more)
        assert answer | EXPECTED == answer, (how, answer)
        assert (answer["release"], answer["tried"]) == ("1.0.0", []), how


def test_what_is_not_there_is_an_error_at_once_and_opens_no_connection(
    locked: Locked, hub: str, repo: str, tmp_path: Path, no_network: list[str]
) -> None:
    folder = locked(CPU, CUDA)
    cache = tmp_path / "cache"
    # Nothing was downloaded; then, only what this machine cannot load.
    cache.mkdir()
    answers = [load(no_network, "load_kernel", repo, folder, cache)]
    chosen = ("--platforms", "torch2.13-cu13.0-x86_64-linux")
    assert run("download", "--project", folder, "--hub", hub, "--cache", cache, *chosen) == 0
    answers.append(load(no_network, "load_kernel", repo, folder, cache))
    assert "Cannot find a local snapshot" in str(answers[0]["error"])
    assert "Cannot find a build variant for this system" in str(answers[1]["error"])
    for answer in answers:
        assert answer["tried"] == []
        assert float(str(answer["seconds"])) < 10


@pytest.mark.slow
def test_kernels_that_others_need_are_there_too_in_each_version(
    api: HfApi, hub: str, repo: str, tmp_path: Path, no_network: list[str]
) -> None:
    publish(api, repo, release="1.0.0")
    publish(api, repo, version=2, release="2.0.0")
    publish(api, f"{repo}-top", release="3.0.0", **{"kernel-depends": [{"repo-id": repo, "version": 2}]})
    folder = project(tmp_path / "project", {f"{repo}-top": 1, repo: 1})
    assert run("lock", "--mode", "update", "--project", folder, "--hub", hub) == 0
    cache = tmp_path / "cache"
    assert run("download", "--project", folder, "--hub", hub, "--cache", cache, "--prune") == 0
    assert len(list(cache.glob("*/snapshots/*"))) == 3
    for name, release in ((repo, "1.0.0"), (f"{repo}-top", "3.0.0")):
        answer = load(no_network, "load_kernel", name, folder, cache)
        assert answer | EXPECTED == answer and answer["tried"] == []
        assert answer["release"] == release


def test_only_the_variants_of_the_platforms_are_fetched(
    locked: Locked, hub: str, repo: str, tmp_path: Path
) -> None:
    folder = locked(CPU, CUDA, ROCM)
    both = "torch2.13-cu13.2-x86_64-linux torch2.13-rocm7.2-x86_64-linux"
    assert (
        run("download", "--project", folder, "--hub", hub, "--cache", tmp_path / "c", "--platforms", both)
        == 0
    )
    (snapshot,) = (tmp_path / "c").glob("*/snapshots/*")
    assert snapshot.name == commits(folder)[repo]
    assert {path.name for path in (snapshot / "build").iterdir()} == {CUDA, ROCM}


def test_nothing_is_written_when_a_platform_has_no_variant(
    locked: Locked, hub: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = locked(CUDA)
    wanted = "torch2.13-cu13.0-x86_64-linux torch2.13-cpu-x86_64-linux torch2.12-cu13.0-x86_64-linux"
    asked = ("download", "--project", folder, "--hub", hub, "--cache", tmp_path / "c", "--platforms", wanted)
    assert run(*asked) == 1
    said = capsys.readouterr().err
    assert said.count("has no variant for") == 2 and f"(it has {CUDA})" in said
    assert not (tmp_path / "c").exists()


def test_the_cache_is_the_same_each_time(
    locked: Locked, hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = locked()
    for name, mask in (("a", 0o022), ("b", 0o077)):
        before = os.umask(mask)
        try:
            assert run("download", "--project", folder, "--hub", hub, "--cache", tmp_path / name) == 0
        finally:
            os.umask(before)
    first = listed(tmp_path / "a")
    assert first == listed(tmp_path / "b")
    assert {entry[2] for entry in first} == {download.EPOCH * 10**9}
    # Again, nothing changes.
    assert run("download", "--project", folder, "--hub", hub, "--cache", tmp_path / "a") == 0
    assert listed(tmp_path / "a") == first
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert run("download", "--project", folder, "--hub", hub, "--cache", tmp_path / "c") == 0
    assert {entry[2] for entry in listed(tmp_path / "c")} == {1700000000 * 10**9}


@pytest.mark.parametrize("value", ["x", "-1", "1e9", "99999999999", "٣"])
def test_a_source_date_that_is_none_is_wrong_input(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", value)
    with pytest.raises(WrongInput, match="SOURCE_DATE_EPOCH"):
        download.source_date()


def test_a_half_downloaded_cache_is_completed(
    locked: Locked, hub: str, repo: str, tmp_path: Path, no_network: list[str]
) -> None:
    folder = locked()
    cache = tmp_path / "cache"
    asked = ("download", "--project", folder, "--hub", hub, "--cache", cache)
    # What `kernels download` leaves, which load_kernel refuses.
    subprocess.run(
        [program("kernels"), "download", "."],
        cwd=folder,
        env=user_environment(HF_ENDPOINT=hub, HF_HUB_DISABLE_XET="1", HF_HUB_CACHE=str(cache)),
        check=True,
        capture_output=True,
    )
    assert "Cannot find a local snapshot" in str(
        load(no_network, "load_kernel", repo, folder, cache)["error"]
    )
    assert run(*asked) == 0
    whole = [entry for entry in listed(cache) if "/" in str(entry[0])]
    # A file that was cut off, one that was changed, a link that is missing, and the rest of a killed process.
    (inside,) = cache.glob("kernels--*")
    blobs = sorted((inside / "blobs").iterdir())
    blobs[0].write_bytes(blobs[0].read_bytes()[:-1])
    blobs[1].write_bytes(bytes(len(blobs[1].read_bytes())))
    blobs[2].unlink()
    next(inside.glob(f"snapshots/*/build/{CPU}/__init__.py")).unlink()
    (inside / ".kernel-actions-left").mkdir()
    assert run(*asked) == 0
    assert [entry for entry in listed(cache) if "/" in str(entry[0])] == whole
    answer = load(no_network, "load_kernel", repo, folder, cache)
    assert answer | EXPECTED == answer and answer["tried"] == []


def test_a_cache_that_can_only_be_read_is_enough_when_it_is_complete(
    locked: Locked, hub: str, tmp_path: Path, no_network: list[str]
) -> None:
    folder = locked()
    cache = tmp_path / "cache"
    assert run("download", "--project", folder, "--hub", hub, "--cache", cache) == 0

    def read_only() -> subprocess.CompletedProcess[str]:
        script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
        command = [ROOT / "scripts" / "kernel-actions", "download", "--project", folder, "--hub", hub]
        return subprocess.run(
            [
                "unshare",
                "--map-root-user",
                "--mount",
                "sh",
                "-c",
                script,
                "sh",
                cache,
                *command,
                "--cache",
                cache,
            ],
            env=user_environment(),
            text=True,
            capture_output=True,
            check=False,
        )

    finished = read_only()
    assert finished.returncode == 0, finished.stderr
    next(cache.glob("*/blobs/*")).unlink()
    finished = read_only()
    assert finished.returncode == 3, finished.stderr
    lines = [line for line in finished.stderr.splitlines() if not line.startswith("Fetching")]
    assert len(lines) == 1 and "Read-only file system" in lines[0]


def test_a_cache_that_is_a_file_is_an_error_of_one_line(
    locked: Locked, hub: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = locked()
    (tmp_path / "file").write_text("")
    capsys.readouterr()
    assert run("download", "--project", folder, "--hub", hub, "--cache", tmp_path / "file") == 3
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_lock_that_names_nothing_on_the_hub_is_wrong_input(
    locked: Locked, hub: str, repo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = locked()
    lock = folder / "kernels.lock"
    text = lock.read_text()
    for changed, words in (
        (text.replace(commits(folder)[repo], "f" * 40), f"kernels.lock: {repo} has no commit ffffffffffff ("),
        (text.replace(repo, f"{repo}-none"), f"{repo}-none does not exist on {hub}, or the token may not"),
        ("{}", "kernels.lock"),
    ):
        lock.write_text(changed)
        project(folder, {f"{repo}-none" if "-none" in changed else repo: 1})
        capsys.readouterr()
        assert run("download", "--project", folder, "--hub", hub, "--cache", tmp_path / "c") == 2
        said = capsys.readouterr().err
        assert len(said.strip().splitlines()) == 1 and words in said
    lock.unlink()
    assert run("download", "--project", folder, "--hub", hub, "--cache", tmp_path / "c") == 2
    assert not (tmp_path / "c").exists()


def test_a_hub_that_is_away_is_an_error_of_one_line(
    locked: Locked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = locked()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
        capsys.readouterr()
        assert run("download", "--project", folder, "--hub", address, "--cache", tmp_path / "c") == 3
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "a/../../x",
        "/etc/passwd",
        "a\\b",
        "C:x",
        "a\nb",
        "a\x1b[2J",
        "a//b",
        "./a",
        "a/.",
        "",
        "x" * 300,
        "a\u202eb",
    ],
)
def test_hostile_names_of_files_are_refused(name: str) -> None:
    with pytest.raises(WrongInput, match="whose name no builder makes"):
        download.check_path(name, "acme/gray")


@pytest.mark.parametrize("name", ["build/torch-cpu/__init__.py", "README.md", ".gitattributes", "a b/ü.py"])
def test_plain_names_of_files_are_taken(name: str) -> None:
    download.check_path(name, "acme/gray")


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("torch2.13-cu13.0-x86_64-linux", "torch213-cxx11-cu130-x86_64-linux"),
        ("torch213-cxx11-cu130-x86_64-linux", "torch213-cxx11-cu130-x86_64-linux"),
        ("torch2.13-cu13.2-x86_64-linux", "torch213-cxx11-cu130-x86_64-linux"),
        ("torch2.13-cu12.9-x86_64-linux", ""),
        ("torch2.12-cu13.0-x86_64-linux", "torch-stable-abi211-cu130-x86_64-linux"),
        ("torch2.10-cu13.0-x86_64-linux", ""),
        ("torch2.13-cxx98-cpu-x86_64-linux", "torch-cpu"),
        ("torch2.13-rocm7.2-x86_64-linux", "torch213-cxx11-rocm72-x86_64-linux"),
        ("torch2.13-xpu2026.0-x86_64-linux", "torch213-cxx11-xpu20260-x86_64-linux"),
        ("torch2.13-metal-aarch64-darwin", "torch213-metal-aarch64-darwin"),
        ("tvm-ffi0.1-cu13.2-x86_64-linux", "tvm-ffi01-cu132-x86_64-linux"),
    ],
)
def test_a_platform_gets_the_variant_that_the_loader_takes_there(name: str, chosen: str) -> None:
    names = [
        "torch-cpu", "torch213-cxx11-rocm72-x86_64-linux", "torch213-cxx11-xpu20260-x86_64-linux",
        "torch213-metal-aarch64-darwin", "tvm-ffi01-cu132-x86_64-linux", "no-variant",
    ]  # fmt: skip
    if "stable" in chosen or name.startswith("torch2.10"):
        names.append("torch-stable-abi211-cu130-x86_64-linux")
    else:
        names.append("torch213-cxx11-cu130-x86_64-linux")
    assert platforms.chosen(platforms.parse(name), names) == chosen


@pytest.mark.parametrize(
    "name",
    ["linux", "cu13.0-x86_64-linux", "torch2-cpu-x86_64-linux", "torch2.13-cpu-riscv-linux", "", "../x"],
)
def test_what_is_no_platform_is_wrong_input(name: str) -> None:
    with pytest.raises(WrongInput, match="is not the name of a platform"):
        platforms.parse(name)
