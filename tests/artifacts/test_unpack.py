"""What other jobs uploaded, and what comes out of it: the builds of the plan, or nothing."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from kernel_actions.artifacts import archive, seal, sealed, unpack
from kernel_actions.errors import KernelFailed, WrongInput
from kernel_actions.github import Artifact, Job
from kernel_actions.nix import results

CPU = "torch213-cxx11-cpu-x86_64-linux"
CUDA = "torch213-cxx11-cu130-x86_64-linux"
Member = tuple[str, bytes | None, dict[str, object]]


def packed(folder: Path, variant: str = CPU, text: str = "it = 1\n") -> Path:
    """An archive as ``build --archive`` writes it, in the folder of its artifact."""
    built = folder / "build" / variant
    (built / "layers").mkdir(parents=True)
    (built / "__init__.py").write_text(text)
    (built / "layers" / "one.py").write_text("")
    (built / "_it.abi3.so").write_bytes(b"\x7fELF")
    (built / "_it.abi3.so").chmod(0o755)
    (folder / "build" / f"{variant}.build-report.json").write_text("{}")
    path = folder / "archives" / f"built-tiny.{variant}" / f"{variant}.tar"
    path.parent.mkdir(parents=True)
    results.pack(built, path)
    return path


def tar(path: Path, members: Sequence[Member]) -> Path:
    """An archive with ``members``: name, data (``None``: none), and attributes of the entry."""
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as file:
        for name, data, attributes in members:
            entry = tarfile.TarInfo(name)
            entry.mode = 0o755 if data is None else 0o644
            if data is None:
                entry.type = tarfile.DIRTYPE
            else:
                entry.size = len(data)
            for attribute, value in attributes.items():
                setattr(entry, attribute, value)
            file.addfile(entry, None if data is None else io.BytesIO(data))
    return path


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return archive.sha256(file)


def took(archives: Path, wanted: dict[str, str], into: Path, **options: bool) -> list[str]:
    """What ``unpack`` leaves in ``into``, as the command calls it."""
    with unpack._fresh(into) as (work, target):
        unpack.take(archives, wanted, work, **options)
    return sorted(path.relative_to(target).as_posix() for path in target.rglob("*"))


def test_a_build_comes_out_as_it_was_packed(tmp_path: Path) -> None:
    path = packed(tmp_path)
    names = took(tmp_path / "archives", {CPU: sha256(path)}, tmp_path / "into")
    assert names == [
        CPU,
        f"{CPU}.build-report.json",
        *(f"{CPU}/{name}" for name in ("__init__.py", "_it.abi3.so", "layers", "layers/one.py")),
    ]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "into" / CPU).iterdir()}
    assert modes == {"__init__.py": 0o644, "_it.abi3.so": 0o755, "layers": 0o755}


def test_the_umask_of_a_builder_does_not_reach_the_archive(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        path = packed(tmp_path)
    finally:
        os.umask(umask)
    assert took(tmp_path / "archives", {CPU: sha256(path)}, tmp_path / "into")


def test_reports_of_tests_come_along_when_asked_for(tmp_path: Path) -> None:
    path = packed(tmp_path)
    tested = tmp_path / "archives" / f"tested-tiny.{CPU}"
    tested.mkdir()
    (tested / f"{CPU}.test-report.json").write_text('{"verdict": "passed"}')
    names = took(tmp_path / "archives", {CPU: sha256(path)}, tmp_path / "into", with_reports=True)
    assert f"{CPU}.test-report.json" in names


ATTACKS: dict[str, Sequence[Member]] = {
    "a link out of the folder": [
        (CPU, None, {}),
        (f"{CPU}/zz", b"", {"type": tarfile.SYMTYPE, "linkname": "../../.git"}),
        (f"{CPU}/zz/config", b"[core]\n", {}),
    ],
    "a link beside the variant": [
        (CPU, None, {}),
        ("zz", b"", {"type": tarfile.SYMTYPE, "linkname": "../.git"}),
    ],
    "a hard link": [(CPU, None, {}), (f"{CPU}/a", b"", {"type": tarfile.LNKTYPE, "linkname": "/etc/passwd"})],
    "a device": [(CPU, None, {}), (f"{CPU}/a", b"", {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 5})],
    "a pipe": [(CPU, None, {}), (f"{CPU}/a", b"", {"type": tarfile.FIFOTYPE})],
    "a contiguous file": [(CPU, None, {}), (f"{CPU}/a", b"", {"type": tarfile.CONTTYPE})],
    "the parent": [(CPU, None, {}), (f"{CPU}/../../config", b"", {})],
    "an absolute path": [(CPU, None, {}), ("/tmp/config", b"", {})],
    "an absolute path of the variant": [(f"/{CPU}", None, {})],
    "a dot": [(CPU, None, {}), (f"{CPU}/./a", b"", {})],
    "two slashes": [(CPU, None, {}), (f"{CPU}//a", b"", {})],
    "another variant": [(CPU, None, {}), (CUDA, None, {})],
    "another variant's report": [(CPU, None, {}), (f"{CUDA}.build-report.json", b"{}", {})],
    "a test report": [(CPU, None, {}), (f"{CPU}.test-report.json", b"{}", {})],
    "a file for the variant": [(CPU, b"", {})],
    "a folder for the report": [(CPU, None, {}), (f"{CPU}.build-report.json", None, {})],
    "the same file twice": [(CPU, None, {}), (f"{CPU}/a", b"1", {}), (f"{CPU}/a", b"2", {})],
    "names that differ by case": [(CPU, None, {}), (f"{CPU}/a", b"1", {}), (f"{CPU}/A", b"2", {})],
    "names that differ by form": [(CPU, None, {}), (f"{CPU}/é", b"1", {}), (f"{CPU}/e\u0301", b"2", {})],
    "a file as a folder": [(CPU, None, {}), (f"{CPU}/a", b"1", {}), (f"{CPU}/a/b", b"2", {})],
    "no folder before its file": [(CPU, None, {}), (f"{CPU}/a/b", b"2", {})],
    "set-uid": [(CPU, None, {}), (f"{CPU}/a", b"", {"mode": 0o4755})],
    "writable by all": [(CPU, None, {}), (f"{CPU}/a", b"", {"mode": 0o666})],
    "a sticky folder": [(CPU, None, {"mode": 0o1755})],
    "an owner": [(CPU, None, {}), (f"{CPU}/a", b"", {"uid": 1001})],
    "an owner's name": [(CPU, None, {}), (f"{CPU}/a", b"", {"uname": "runner"})],
    "an attribute": [(CPU, None, {}), (f"{CPU}/a", b"", {"pax_headers": {"SCHILY.xattr.user.x": "1"}})],
    "git's folder": [(CPU, None, {}), (f"{CPU}/.GIT", None, {})],
    "a device of Windows": [(CPU, None, {}), (f"{CPU}/nul.py", b"", {})],
    "a stream of Windows": [(CPU, None, {}), (f"{CPU}/a:b", b"", {})],
    "a backslash": [(CPU, None, {}), (f"{CPU}/..\\a", b"", {})],
    "a line break": [(CPU, None, {}), (f"{CPU}/a\n::error::b", b"", {})],
    "a space at the end": [(CPU, None, {}), (f"{CPU}/a ", b"", {})],
    "a part that is too long": [(CPU, None, {}), (f"{CPU}/{'a' * 256}", b"", {})],
    "a long extended header": [
        (CPU, None, {}),
        (f"{CPU}/a", b"", {"pax_headers": {"comment": "a" * 70_000}}),
    ],
    "nothing": [],
    "no variant": [(f"{CPU}.build-report.json", b"{}", {})],
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_is_unpacked_of_an_archive_with(attack: str, tmp_path: Path) -> None:
    (tmp_path / "archives").mkdir()
    path = tar(tmp_path / "archives" / f"{CPU}.tar", ATTACKS[attack])
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(KernelFailed) as caught:
        took(tmp_path / "archives", {CPU: sha256(path)}, tmp_path / "into")
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1500])


def _compressed(path: Path) -> None:
    import gzip

    path.write_bytes(gzip.compress(path.read_bytes()))


def _garbage(path: Path) -> None:
    path.write_bytes(os.urandom(4096))


@pytest.mark.parametrize("change", [_truncated, _compressed, _garbage])
def test_what_is_no_tar_file_is_refused(change: Callable[[Path], None], tmp_path: Path) -> None:
    path = packed(tmp_path)
    change(path)
    with pytest.raises(KernelFailed, match=r"tar file|cut short|no folder"):
        took(tmp_path / "archives", {CPU: sha256(path)}, tmp_path / "into")
    assert not (tmp_path / "into").exists()


@pytest.mark.parametrize("limits", [archive.Limits(members=3), archive.Limits(bytes=5)])
def test_an_archive_is_bounded(limits: archive.Limits, tmp_path: Path) -> None:
    path = packed(tmp_path)
    (tmp_path / "into").mkdir()
    with path.open("rb") as file, pytest.raises(KernelFailed, match=r"more than 3|larger than 5"):
        archive.unpack(file, CPU, tmp_path / "into", path, limits)


def test_a_sparse_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "archives").mkdir()
    headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9000000000000"}
    members: list[Member] = [(CPU, None, {}), (f"{CPU}/a", b"0\n" + b"\0" * 510, {"pax_headers": headers})]
    path = tar(tmp_path / "archives" / f"{CPU}.tar", members)
    with pytest.raises(KernelFailed):
        took(tmp_path / "archives", {CPU: sha256(path)}, tmp_path / "into")
    assert not (tmp_path / "into").exists()


def test_an_archive_that_a_test_rewrote_is_refused(tmp_path: Path) -> None:
    digests = {CPU: sha256(packed(tmp_path))}
    again = packed(tmp_path / "again", text="it = 2\n")
    again.replace(tmp_path / "archives" / f"built-tiny.{CPU}" / f"{CPU}.tar")
    with pytest.raises(KernelFailed, match="is not what a build job of this run uploaded"):
        took(tmp_path / "archives", digests, tmp_path / "into")
    assert not (tmp_path / "into").exists()


@pytest.mark.parametrize("name", ["built-tiny/more.tar", "kernel-actions", "tested-x/other.test-report.json"])
def test_another_file_among_the_artifacts_is_refused(name: str, tmp_path: Path) -> None:
    digests = {CPU: sha256(packed(tmp_path))}
    path = tmp_path / "archives" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"")
    with pytest.raises(KernelFailed, match="is not what a build job"):
        took(tmp_path / "archives", digests, tmp_path / "into", with_reports=True)
    assert not (tmp_path / "into").exists()


@pytest.mark.parametrize("kind", ["link", "pipe", "folder's link"])
def test_neither_a_link_nor_a_pipe_is_followed(kind: str, tmp_path: Path) -> None:
    digests = {CPU: sha256(packed(tmp_path))}
    path = tmp_path / "archives" / f"tested-{CPU}.test-report.json"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/proc/self/environ" if kind == "link" else "/proc/self")
    with pytest.raises(KernelFailed, match="neither a plain file nor a folder"):
        took(tmp_path / "archives", digests, tmp_path / "into", with_reports=True)


def test_a_missing_archive_leaves_nothing(tmp_path: Path) -> None:
    digests = {CPU: sha256(packed(tmp_path)), CUDA: "0" * 64}
    with pytest.raises(KernelFailed, match=f"the archive of {CUDA} is missing"):
        took(tmp_path / "archives", digests, tmp_path / "into")
    assert not (tmp_path / "into").exists()


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_is_there_is_kept(kind: str, tmp_path: Path) -> None:
    digests = {CPU: sha256(packed(tmp_path))}
    into = tmp_path / "into"
    if kind == "link":
        into.symlink_to(tmp_path)
    elif kind == "file":
        into.write_text("mine")
    else:
        into.mkdir()
        (into / "mine").write_text("")
    with pytest.raises(WrongInput, match="not an empty folder"):
        took(tmp_path / "archives", digests, into)
    assert os.path.lexists(into)


def test_a_fresh_folder_is_outside_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNER_TEMP", str(tmp_path))
    with unpack._fresh(None) as (work, target):
        (work / "file").write_text("")
    assert target.parent == tmp_path and [path.name for path in target.iterdir()] == ["file"]
    assert list(tmp_path.iterdir()) == [target]


def test_sealing_takes_the_archives_of_the_plan(tmp_path: Path) -> None:
    path = packed(tmp_path)
    digests, sizes = seal.take(tmp_path / "archives", {f"tiny.{CPU}": [f"tiny/{CPU}"]})
    assert digests == {f"tiny/{CPU}": sha256(path)} and sizes == {f"tiny/{CPU}": path.stat().st_size}
    assert sealed.loads(sealed.dumps(digests)) == digests


def test_sealing_takes_a_single_artifact_as_it_is_downloaded(tmp_path: Path) -> None:
    """Of one artifact that matches, actions/download-artifact makes no folder."""
    path = packed(tmp_path)
    flat = tmp_path / "flat"
    flat.mkdir()
    path.replace(flat / path.name)
    digests, _ = seal.take(flat, {f"tiny.{CPU}": [f"tiny/{CPU}"]})
    assert digests == {f"tiny/{CPU}": sha256(flat / path.name)}
    with pytest.raises(KernelFailed, match=rf"built-tiny\.{CUDA}/{CUDA}\.tar is missing"):
        seal.take(flat, {f"tiny.{name}": [f"tiny/{name}"] for name in (CPU, CUDA)})
    (flat / "more.tar").write_bytes(b"")
    with pytest.raises(KernelFailed, match=r"more\.tar is no archive of the plan"):
        seal.take(flat, {f"tiny.{CPU}": [f"tiny/{CPU}"]})


def test_sealing_wants_all_archives_of_the_plan(tmp_path: Path) -> None:
    packed(tmp_path)
    planned = {f"tiny.{name}": [f"tiny/{name}"] for name in (CPU, CUDA)}
    with pytest.raises(KernelFailed, match=rf"built-tiny\.{CUDA}/{CUDA}\.tar is missing"):
        seal.take(tmp_path / "archives", planned)


@pytest.mark.parametrize("name", [f"built-tiny.{CPU}/more.tar", "built-other/a.tar", f"{CPU}.tar"])
def test_sealing_takes_no_other_file(name: str, tmp_path: Path) -> None:
    packed(tmp_path)
    path = tmp_path / "archives" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"")
    with pytest.raises(KernelFailed, match="is no archive of the plan"):
        seal.take(tmp_path / "archives", {f"tiny.{CPU}": [f"tiny/{CPU}"]})


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "{", '{"tiny/x": "0"}', f'{{"../{CPU}": "{"0" * 64}"}}', f'{{"a/{CPU}": "{"g" * 64}"}}'],
)
def test_only_digests_are_taken_for_digests(text: str) -> None:
    with pytest.raises(WrongInput, match="--sealed"):
        sealed.loads(text)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"a": "b"}', '{"a": []}', '{"../a": ["a/b"]}', '{"a": ["b"]}']
)
def test_only_a_plan_is_taken_for_one(text: str) -> None:
    with pytest.raises(WrongInput, match="--planned"):
        sealed.planned(text)


# Attempt 1 builds, and a test of it runs; attempt 2 builds one of the two again.
JOBS = (
    Job("Plan", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"),
    Job("Mine / Build one", "2026-01-01T00:02:00Z", "2026-01-01T00:10:00Z"),
    Job("Build two", "2026-01-01T00:02:00Z", "2026-01-01T00:05:00Z"),
    Job("Test one", "2026-01-01T00:11:00Z", "2026-01-01T00:20:00Z"),
    Job("Build two", "2026-01-01T01:00:00Z", "2026-01-01T01:05:00Z"),
    Job("Build three", "", ""),
)


@pytest.mark.parametrize("created", ["2026-01-01T00:09:59Z", "2026-01-01T00:05:00Z", "2026-01-01T01:04:00Z"])
def test_an_artifact_of_a_build_is_one_in_every_attempt(created: str) -> None:
    seal.check_origin([Artifact("built-one", created)], JOBS, ["built-one"])


@pytest.mark.parametrize(
    "created", ["2026-01-01T00:12:00Z", "2026-01-01T00:10:30Z", "2026-01-01T02:00:00Z", ""]
)
def test_an_artifact_that_a_test_of_an_earlier_attempt_replaced_is_refused(created: str) -> None:
    with pytest.raises(KernelFailed, match="was not made by a job 'Build'"):
        seal.check_origin([Artifact("built-one", created)], JOBS, ["built-one"])


def test_an_artifact_that_github_does_not_list_is_refused() -> None:
    with pytest.raises(KernelFailed, match="lists no artifact built-one"):
        seal.check_origin([], JOBS, ["built-one"])
