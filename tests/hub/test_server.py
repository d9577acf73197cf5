"""The embedded Hub, through the real client and through plain HTTP."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete, HfApi
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import CommitInfo, RepoFile, RepoFolder
from huggingface_hub.utils import _http
from kernel_actions.hub import patience, storage
from kernel_actions.hub import server as hub_server
from kernel_actions.hub.embedded import LIFELINE

from tests.hub.helpers import PROGRAM, Server
from tests.tools import ask, leave_out


def commit(
    api: HfApi, repo: str, files: dict[str, bytes], revision: str = "main", parent: str | None = None
) -> str:
    info = api.create_commit(
        repo,
        [CommitOperationAdd(path, content) for path, content in files.items()],
        commit_message="test",
        repo_type="kernel",
        revision=revision,
        parent_commit=parent,
    )
    return info.oid


def tree(api: HfApi, repo: str, revision: str = "main") -> dict[str, RepoFile]:
    entries = api.list_repo_tree(repo, recursive=True, repo_type="kernel", revision=revision)
    return {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}


# Files.


def test_files_come_back_as_they_were(api: HfApi, repo: str, tmp_path: Path) -> None:
    contents = {"text.txt": "ünïcödé\n".encode(), "empty": b"", "a/ü b+c#d%?.bin": os.urandom(300_000)}
    oid = commit(api, repo, contents)
    folder = Path(api.snapshot_download(repo, repo_type="kernel", cache_dir=tmp_path))
    assert folder.name == oid
    assert {path: (folder / path).read_bytes() for path in contents} == contents
    files = tree(api, repo)
    assert files["text.txt"].lfs is None
    lfs = files["a/ü b+c#d%?.bin"].lfs
    assert lfs is not None
    assert lfs.sha256 == hashlib.sha256(contents["a/ü b+c#d%?.bin"]).hexdigest()


def test_large_text_is_kept_as_lfs(api: HfApi, repo: str, tmp_path: Path) -> None:
    content = b"x" * 10_000_001
    commit(api, repo, {"large.txt": content, "small.txt": b"x"})
    files = tree(api, repo)
    assert files["large.txt"].lfs is not None
    assert files["small.txt"].lfs is None
    path = api.hf_hub_download(repo, "large.txt", repo_type="kernel", cache_dir=tmp_path)
    assert Path(path).read_bytes() == content


def test_a_download_has_the_headers_that_clients_read(shared: Server, api: HfApi, repo: str) -> None:
    content = os.urandom(1000)
    oid = commit(api, repo, {"x.bin": content, "x.txt": b"text"})
    url = f"{shared.url}/kernels/{repo}/resolve/main"
    head = httpx2.head(f"{url}/x.bin")
    sha256 = hashlib.sha256(content).hexdigest()
    assert head.headers["X-Repo-Commit"] == oid
    assert head.headers["ETag"] == head.headers["X-Linked-Etag"] == f'"{sha256}"'
    assert head.headers["Content-Length"] == head.headers["X-Linked-Size"] == "1000"
    assert head.content == b""
    assert httpx2.head(f"{url}/x.txt").headers["ETag"] == f'"{tree(api, repo)["x.txt"].blob_id}"'
    part = httpx2.get(f"{url}/x.bin", headers={"Range": "bytes=990-"})
    assert (part.status_code, part.content) == (206, content[990:])
    assert part.headers["Content-Range"] == "bytes 990-999/1000"
    assert httpx2.get(f"{url}/x.bin", headers={"Range": "bytes=2000-"}).status_code == 416


def test_files_and_folders_are_deleted(api: HfApi, repo: str) -> None:
    commit(api, repo, {"a/x": b"1", "a/b/y": b"2", "c": b"3", "d": b"4"})
    operations = [CommitOperationDelete("a/"), CommitOperationDelete("c")]
    api.create_commit(repo, operations, commit_message="delete", repo_type="kernel")
    assert list(tree(api, repo)) == [".gitattributes", "d"]
    with pytest.raises(RemoteEntryNotFoundError, match="doesn't exist"):
        api.create_commit(repo, operations, commit_message="again", repo_type="kernel")


def test_copies_reuse_what_is_stored(api: HfApi, repo: str) -> None:
    first = commit(api, repo, {"x.bin": os.urandom(1000), "x.txt": b"text"})
    operations = [
        CommitOperationCopy("x.bin", "y.bin", src_revision=first),
        CommitOperationCopy("x.txt", "y.txt", src_revision=first),
    ]
    api.create_commit(repo, operations, commit_message="copy", repo_type="kernel")
    files = tree(api, repo)
    assert files["x.bin"].lfs == files["y.bin"].lfs
    assert files["x.txt"].blob_id == files["y.txt"].blob_id


def test_listings_come_in_pages(shared: Server, api: HfApi, repo: str) -> None:
    contents = {f"many/{number:04}.txt": b"x" for number in range(1050)}
    commit(api, repo, contents)
    first = httpx2.get(f"{shared.url}/api/kernels/{repo}/tree/main/many")
    assert len(first.json()) == 1000
    assert first.links["next"]["url"].startswith(shared.url)
    entries = list(api.list_repo_tree(repo, "many", repo_type="kernel"))
    assert [entry.path for entry in entries] == list(contents)
    assert set(api.list_repo_files(repo, repo_type="kernel")) == {".gitattributes", *contents}
    expanded = list(api.list_repo_tree(repo, "many", repo_type="kernel", expand=True))
    assert len(expanded) == 1050
    assert {entry.last_commit.title for entry in expanded if entry.last_commit} == {"test"}


def test_history_comes_in_pages(api: HfApi, repo: str) -> None:
    made = [commit(api, repo, {"x": str(number).encode()}) for number in range(52)]
    commits = api.list_repo_commits(repo, repo_type="kernel")
    assert [entry.commit_id for entry in commits[:-1]] == made[::-1]
    assert commits[-1].title == "initial commit"


def test_a_folder_lists_its_own_entries(api: HfApi, repo: str) -> None:
    commit(api, repo, {"build/v1/a": b"1", "build/v2/b": b"2", "build-x/c": b"3"})
    entries = list(api.list_repo_tree(repo, "build", repo_type="kernel"))
    assert [entry.path for entry in entries] == ["build/v1", "build/v2"]
    assert all(isinstance(entry, RepoFolder) for entry in entries)
    info = api.get_paths_info(repo, ["build", "build/v1/a", "nothing"], repo_type="kernel", expand=True)
    assert [entry.path for entry in info] == ["build", "build/v1/a"]
    with pytest.raises(EntryNotFoundError):
        list(api.list_repo_tree(repo, "nothing", repo_type="kernel"))


# References.


def test_branches(api: HfApi, repo: str) -> None:
    first = api.repo_info(repo, repo_type="kernel").sha
    commit(api, repo, {"x": b"1"})
    api.create_branch(repo, branch="v1", revision=first, repo_type="kernel")
    api.create_branch(repo, branch="v1", repo_type="kernel", exist_ok=True)
    with pytest.raises(HfHubHTTPError, match="409"):
        api.create_branch(repo, branch="v1", repo_type="kernel")
    assert list(tree(api, repo, "v1")) == [".gitattributes"]
    api.create_branch(repo, branch="release/1.0", repo_type="kernel")
    commit(api, repo, {"y": b"1"}, revision="release/1.0")
    assert "y" in tree(api, repo, "release/1.0")
    api.delete_branch(repo, branch="release/1.0", repo_type="kernel")
    assert [ref.name for ref in api.list_repo_refs(repo, repo_type="kernel").branches] == ["main", "v1"]
    with pytest.raises(HfHubHTTPError, match="cannot be deleted"):
        api.delete_branch(repo, branch="main", repo_type="kernel")


def test_tags(api: HfApi, repo: str) -> None:
    oid = commit(api, repo, {"x": b"1"})
    api.create_tag(repo, tag="v1.0.0", tag_message="first", repo_type="kernel")
    api.create_tag(repo, tag="v1.0.0", repo_type="kernel", exist_ok=True)
    with pytest.raises(HfHubHTTPError, match="409"):
        api.create_tag(repo, tag="v1.0.0", repo_type="kernel")
    commit(api, repo, {"x": b"2"})
    assert api.repo_info(repo, revision="v1.0.0", repo_type="kernel").sha == oid
    (tag,) = api.list_repo_refs(repo, repo_type="kernel").tags
    assert (tag.name, tag.ref, tag.target_commit) == ("v1.0.0", "refs/tags/v1.0.0", oid)
    with pytest.raises(RevisionNotFoundError):
        commit(api, repo, {"x": b"3"}, revision="v1.0.0")
    api.delete_tag(repo, tag="v1.0.0", repo_type="kernel")
    with pytest.raises(RevisionNotFoundError):
        api.delete_tag(repo, tag="v1.0.0", repo_type="kernel")


def test_pull_requests_leave_the_branch_alone(api: HfApi, repo: str) -> None:
    info = api.create_commit(
        repo, [CommitOperationAdd("x", b"1")], commit_message="pr", repo_type="kernel", create_pr=True
    )
    assert (info.pr_num, info.pr_revision) == (1, "refs/pr/1")
    commit(api, repo, {"y": b"1"}, revision="refs/pr/1")
    assert list(tree(api, repo)) == [".gitattributes"]
    assert list(tree(api, repo, "refs/pr/1")) == [".gitattributes", "x", "y"]
    second = api.create_commit(
        repo, [CommitOperationAdd("x", b"1")], commit_message="pr", repo_type="kernel", create_pr=True
    )
    assert second.pr_num == 2
    refs = api.list_repo_refs(repo, repo_type="kernel", include_pull_requests=True).pull_requests
    assert refs is not None
    assert [(ref.ref, ref.target_commit) for ref in refs] == [
        ("refs/pr/1", api.repo_info(repo, revision="refs/pr/1", repo_type="kernel").sha),
        ("refs/pr/2", second.oid),
    ]
    assert api.list_repo_refs(repo, repo_type="kernel").pull_requests is None


def test_a_pull_request_starts_at_its_parent(api: HfApi, repo: str) -> None:
    first = commit(api, repo, {"x": b"1"})
    commit(api, repo, {"y": b"1"})

    def propose(parent: str) -> CommitInfo:
        operations = [CommitOperationAdd("z", b"1")]
        return api.create_commit(
            repo, operations, commit_message="pr", repo_type="kernel", create_pr=True, parent_commit=parent
        )

    info = propose(first[:7])
    assert info.pr_revision
    assert list(tree(api, repo, info.pr_revision)) == [".gitattributes", "x", "z"]
    with pytest.raises(RevisionNotFoundError):
        propose("0" * 40)


def test_what_is_missing_is_told_apart(api: HfApi, repo: str, tmp_path: Path) -> None:
    with pytest.raises(RepositoryNotFoundError):
        api.repo_info("acme/nothing", repo_type="kernel")
    with pytest.raises(RevisionNotFoundError):
        api.repo_info(repo, revision="v9", repo_type="kernel")
    with pytest.raises(EntryNotFoundError):
        api.hf_hub_download(repo, "nothing", repo_type="kernel", cache_dir=tmp_path)
    with pytest.raises(RevisionNotFoundError):
        commit(api, repo, {"x": b"1"}, revision="v9")


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [("GET", "/api/kernels/acme/nothing", "RepoNotFound"),
     ("GET", "/api/kernels/acme/nothing/refs", "RepoNotFound"),
     ("GET", "/api/kernels/acme/nothing/tree/main", "RepoNotFound"),
     ("HEAD", "/kernels/acme/nothing/resolve/main/x", "RepoNotFound"),
     ("POST", "/api/kernels/acme/nothing/commit/main", "RepoNotFound"),
     ("POST", "/api/kernels/acme/nothing/branch/v1", "RepoNotFound"),
     ("POST", "/api/kernels/acme/nothing/tag/main", "RepoNotFound"),
     ("POST", "/api/kernels/acme/nothing/preupload/main", "RepoNotFound"),
     ("PUT", "/kernels/acme/nothing.git/info/lfs/objects/0", "RepoNotFound"),
     ("GET", "/api/kernels/{repo}/revision/v9", "RevisionNotFound"),
     ("GET", "/api/kernels/{repo}/tree/v9", "RevisionNotFound"),
     ("GET", "/api/kernels/{repo}/commits/v9", "RevisionNotFound"),
     ("POST", "/api/kernels/{repo}/paths-info/v9", "RevisionNotFound"),
     ("POST", "/api/kernels/{repo}/commit/v9", "RevisionNotFound"),
     ("DELETE", "/api/kernels/{repo}/branch/v9", "RevisionNotFound"),
     ("HEAD", "/kernels/{repo}/resolve/v9/x", "RevisionNotFound"),
     ("GET", "/api/kernels/{repo}/tree/main/nothing", "EntryNotFound"),
     ("HEAD", "/kernels/{repo}/resolve/main/nothing", "EntryNotFound"),
     ("GET", "/api/models/{repo}", None),
     ("PATCH", "/api/kernels/{repo}", None)],
)  # fmt: skip
def test_errors_carry_the_code_of_the_real_hub(
    shared: Server, repo: str, method: str, path: str, code: str | None
) -> None:
    content = b'{"tag": "v1", "files": []}' if method == "POST" else None
    answer = httpx2.request(method, shared.url + path.format(repo=repo), content=content)
    assert answer.status_code == (405 if method == "PATCH" else 404)
    assert answer.headers.get("X-Error-Code") == code
    assert answer.headers["X-Error-Message"]
    assert method == "HEAD" or answer.json()["error"] == answer.headers["X-Error-Message"]


def test_creating_twice_is_told(api: HfApi, repo: str) -> None:
    url = api.create_repo(repo, repo_type="kernel", exist_ok=True)
    assert (url.repo_id, url.repo_type) == (repo, "kernel")
    with pytest.raises(HfHubHTTPError, match="409"):
        api.create_repo(repo, repo_type="kernel")
    assert api.create_repo(repo.upper(), repo_type="kernel", exist_ok=True)
    assert api.whoami(token="unused")["name"] == "local"


# Several at once.


def test_of_many_commits_on_one_parent_one_wins(api: HfApi, repo: str) -> None:
    parent = api.repo_info(repo, repo_type="kernel").sha
    outcomes: list[str] = []
    together = threading.Barrier(8)

    def attempt(name: str) -> None:
        together.wait()
        try:
            commit(api, repo, {name: b"x"}, parent=parent)
            outcomes.append(name)
        except HfHubHTTPError as error:
            outcomes.append(str(error.response.status_code))

    threads = [threading.Thread(target=attempt, args=(name,)) for name in "abcdefgh"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = set(outcomes) - {"412"}
    assert sorted(outcomes) == ["412"] * 7 + [winner]
    assert list(tree(api, repo)) == [".gitattributes", winner]


def test_commits_without_a_guard_all_stay(api: HfApi, repo: str) -> None:
    threads = [
        threading.Thread(target=commit, args=(api, repo, {f"{name}.bin": os.urandom(1000)}))
        for name in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tree(api, repo)) == 9
    assert len(api.list_repo_commits(repo, repo_type="kernel")) == 9


# What must be refused.


def test_a_wrong_hash_is_refused(shared: Server, repo: str) -> None:
    content = os.urandom(1000)
    oid = hashlib.sha256(content).hexdigest()
    lfs = f"{shared.url}/kernels/{repo}.git/info/lfs"
    batch = httpx2.post(
        f"{lfs}/objects/batch", json={"operation": "upload", "objects": [{"oid": oid, "size": 1000}]}
    ).json()
    href = batch["objects"][0]["actions"]["upload"]["href"]
    assert href.startswith(shared.url)
    assert httpx2.put(href, content=content[:-1] + b"x").status_code in {413, 422}
    assert httpx2.put(href, content=content[:-1]).status_code == 422
    assert httpx2.put(href, content=content + b"x").status_code == 413
    assert httpx2.post(f"{lfs}/verify", json={"oid": oid, "size": 1000}).status_code == 404
    lines = (
        '{"key": "header", "value": {"summary": "x"}}\n'
        f'{{"key": "lfsFile", "value": {{"path": "x", "algo": "sha256", "oid": "{oid}", "size": 1000}}}}\n'
    )
    answer = httpx2.post(f"{shared.url}/api/kernels/{repo}/commit/main", content=lines)
    assert answer.status_code == 400
    assert "not uploaded" in answer.json()["error"]
    assert httpx2.put(href, content=content).status_code == 200
    assert httpx2.post(f"{lfs}/verify", json={"oid": oid, "size": 1000}).status_code == 200
    assert httpx2.post(f"{shared.url}/api/kernels/{repo}/commit/main", content=lines).status_code == 200


@pytest.mark.parametrize(
    "path", ["../x", "/etc/x", "a/../../x", "a\x00b", ".git/config", "a/" * 512 + "x", "ü" * 128]
)
def test_paths_outside_are_refused(shared: Server, repo: str, path: str) -> None:
    lines = [
        {"key": "header", "value": {"summary": "x"}},
        {"key": "file", "value": {"path": path, "content": "eA==", "encoding": "base64"}},
    ]
    content = "\n".join(json.dumps(line) for line in lines)
    answer = httpx2.post(f"{shared.url}/api/kernels/{repo}/commit/main", content=content)
    assert answer.status_code == 400


@pytest.mark.parametrize(
    "content",
    [b"", b"not json", b"[]", b'{"key": "header"}', b'{"key": "header", "value": {"summary": "x"}}',
     b'{"key": "file", "value": {"path": "x", "content": "eA==", "encoding": "base64"}}',
     b'{"key": "header", "value": {"summary": "x"}}\n{"key": "file", "value": {"path": "x", "content": "!",'
     b'"encoding": "base64"}}', b'{"key": "moved", "value": {"path": "x"}}', b"[" * 100_000],
)  # fmt: skip
def test_what_is_no_commit_is_refused(shared: Server, repo: str, content: bytes) -> None:
    answer = httpx2.post(f"{shared.url}/api/kernels/{repo}/commit/main", content=content)
    assert answer.status_code == 400
    assert answer.json()["error"]


def test_a_regular_file_that_is_too_large_is_refused(shared: Server, repo: str) -> None:
    line = b'{"key": "file", "value": {"path": "x", "content": "' + b"A" * 20_000_000 + b'"}}'
    answer = httpx2.post(f"{shared.url}/api/kernels/{repo}/commit/main", content=line, timeout=30)
    assert answer.status_code == 413


def header(**more: str) -> bytes:
    return json.dumps({"key": "header", "value": {"summary": "x", **more}}).encode() + b"\n"


DELETION = b'{"key": "deletedFile", "value": {"path": "x"}}\n'


def repeated(part: bytes, count: int) -> Iterator[bytes]:
    """A commit that is too long, in parts, as it never is in memory as a whole."""
    yield header()
    for _ in range(count):
        yield part


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [("preupload/main", lambda: b"x" * (hub_server.LARGEST_BODY + 1), "a request may have"),
     ("commit/main", lambda: repeated(b"x" * 60_000, hub_server.LONGEST_LINE // 60_000 + 1), "a line of"),
     ("commit/main", lambda: repeated(DELETION * 100, hub_server.MOST_OPERATIONS // 100 + 1), "operations"),
     ("commit/main", lambda: header(description="x" * hub_server.LONGEST_MESSAGE) + DELETION, "message of"),
     ("commit/main", lambda: b'{"key": "file", "value": {"path": "x", "content": "'
      + b"x" * (storage.LFS_THRESHOLD + 1) + b'"}}', "needs LFS"),
     ("paths-info/main", lambda: b"paths=x&" * (hub_server.MOST_OPERATIONS + 1), "fields")],
    ids=["body", "line", "operations", "message", "file", "fields"],
)  # fmt: skip
def test_what_is_too_large_is_refused(
    shared: Server, repo: str, path: str, content: Callable[[], bytes | Iterable[bytes]], reason: str
) -> None:
    url = f"{shared.url}/api/kernels/{repo}/{path}"
    answer = httpx2.post(url, content=content(), timeout=30)
    assert answer.status_code == 413
    assert reason in answer.headers["X-Error-Message"]


def test_an_upload_that_is_too_large_is_refused(shared: Server, repo: str) -> None:
    body = {"operation": "upload", "objects": [{"oid": "0" * 64, "size": storage.LARGEST_FILE + 1}]}
    answer = httpx2.post(f"{shared.url}/kernels/{repo}.git/info/lfs/objects/batch", json=body)
    assert answer.status_code == 413


def test_only_the_loopback_address_is_listened_at(shared: Server) -> None:
    port = int(shared.url.rpartition(":")[2])
    # Of this machine too, but another address: what listens at all addresses takes it.
    with pytest.raises(OSError), socket.create_connection(("127.0.0.2", port), timeout=5):
        pass


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "10.0.0.1", "127.0.0.2", "[::1].x",
     "localhost:", "127.0.0.1:80:80"],
)  # fmt: skip
def test_names_of_other_hosts_are_refused(shared: Server, host: str) -> None:
    assert httpx2.get(f"{shared.url}/api/embedded-hub", headers={"Host": host}).status_code in {400, 403}


def test_pages_of_other_sites_are_refused(shared: Server) -> None:
    body = '{"name": "x", "organization": "evil", "type": "kernel"}'
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
        headers = {"Origin": origin, "Content-Type": "text/plain"}
        answer = httpx2.post(f"{shared.url}/api/repos/create", content=body, headers=headers)
        assert answer.status_code == 403


def test_it_says_that_it_is_embedded(shared: Server) -> None:
    assert httpx2.get(f"{shared.url}/api/embedded-hub").json()["embedded"] is True
    url = shared.url.replace("127.0.0.1", "localhost")
    assert httpx2.get(f"{url}/api/embedded-hub").json()["embedded"] is True


# Its process.


@pytest.mark.parametrize(("number", "code"), [(15, 143), (2, 130)])
def test_signals_end_it_at_once(start: Callable[..., Server], number: int, code: int) -> None:
    server = start()
    assert server.line == f"Embedded Hub at {server.url} (data in {server.data})\n"
    assert server.process.stdout is not None
    usage = f"Use it by: export HF_ENDPOINT={server.url} HF_HUB_DISABLE_XET=1\n"
    assert server.process.stdout.readline() == usage
    server.api().create_repo("acme/x", repo_type="kernel")
    began = time.monotonic()
    returncode, errors = server.end(number)
    assert returncode == code
    assert time.monotonic() - began < 5
    assert len(errors.splitlines()) == 1


def test_the_server_of_a_command_says_where_it_is_and_no_more(
    start: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIFELINE, "1")
    server = start()
    server.process.terminate()
    said, _ = server.process.communicate(timeout=20)
    assert server.url
    assert said == ""


def unfinished(server: Server, request: str, body: bytes) -> socket.socket:
    """A connection on which a request with ``body`` was begun; its end is still to come."""
    host = server.url.removeprefix("http://")
    connection = socket.create_connection(("127.0.0.1", int(host.partition(":")[2])), timeout=20)
    head = f"{request} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body) + 1}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def wait_for(found: Callable[[], object]) -> None:
    limit = time.monotonic() + 20
    while not found():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_a_stalled_upload_does_not_keep_it(start: Callable[..., Server]) -> None:
    server = start()
    server.api().create_repo("acme/x", repo_type="kernel")
    incoming = server.data / "incoming"
    with unfinished(server, f"PUT /kernels/acme/x.git/info/lfs/objects/{'0' * 64}", b"abc"):
        wait_for(lambda: list(incoming.iterdir()))
        assert server.end() == (143, "kernel-actions: interrupted by SIGTERM\n")
    assert not list(incoming.iterdir())


def test_a_kill_in_the_middle_of_an_upload_leaves_nothing(start: Callable[..., Server]) -> None:
    server = start()
    server.api().create_repo("acme/x", repo_type="kernel")
    content = os.urandom(2_000_000)
    oid = hashlib.sha256(content).hexdigest()
    incoming = server.data / "incoming"
    with unfinished(server, f"PUT /kernels/acme/x.git/info/lfs/objects/{oid}", content[:-1]):
        wait_for(lambda: sum(file.stat().st_size for file in incoming.iterdir()) > 1_000_000)
        server.process.kill()
        server.process.communicate()
    assert list(incoming.iterdir())

    server.start()
    assert not list(incoming.iterdir())
    batch = {"operation": "upload", "objects": [{"oid": oid, "size": len(content)}]}
    answer = httpx2.post(f"{server.url}/kernels/acme/x.git/info/lfs/objects/batch", json=batch)
    assert "upload" in answer.json()["objects"][0]["actions"]
    api = server.api()
    commit(api, "acme/x", {"x.bin": content})
    lfs = tree(api, "acme/x")["x.bin"].lfs
    assert lfs is not None
    assert lfs.sha256 == oid


def test_a_kill_in_the_middle_of_a_commit_leaves_nothing(start: Callable[..., Server]) -> None:
    server = start()
    api = server.api()
    api.create_repo("acme/x", repo_type="kernel")
    before = api.list_repo_commits("acme/x", repo_type="kernel")
    line = b'{"key": "file", "value": {"path": "x", "content": "eA==", "encoding": "base64"}}\n'
    kept = server.data / "objects" / hashlib.sha256(b"x").hexdigest()[:2]
    with unfinished(server, "POST /api/kernels/acme/x/commit/main", header() + line):
        wait_for(kept.exists)
        server.process.kill()
        server.process.communicate()

    server.start()
    api = server.api()
    assert list(tree(api, "acme/x")) == [".gitattributes"]
    assert api.list_repo_commits("acme/x", repo_type="kernel") == before
    commit(api, "acme/x", {"x": b"x"}, parent=before[0].commit_id)
    assert list(tree(api, "acme/x")) == [".gitattributes", "x"]


class SmallDisk(Server):
    """A server on a file system of 2 MB, which no other process sees."""

    def start(self) -> None:
        self.data.mkdir()
        command = [
            sys.executable,
            "-I",
            str(PROGRAM),
            "hub",
            "--data",
            str(self.data / "data"),
            "--port",
            "0",
        ]
        mount = 'mount -t tmpfs -o size=2m tmpfs "$1" && shift && exec "$@"'
        self.process = subprocess.Popen(
            ["unshare", "-Urm", "sh", "-c", mount, "sh", str(self.data), *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        if not self.line:
            _, errors = self.process.communicate()
            assert errors.startswith(("unshare:", "mount:")), errors
            leave_out("user namespaces")
        self.url = self.line.split()[3]
        self.disk = Path(f"/proc/{self.process.pid}/root{self.data}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    ask("user namespaces")
    server = SmallDisk(tmp_path / "small")
    yield server
    server.process.kill()
    server.process.communicate()


def fill(file: Path, most: int) -> None:
    with file.open("wb", buffering=0) as stream:
        for _ in range(most // 1000):
            try:
                stream.write(bytes(1000))
            except OSError:
                break


def test_a_full_disk_is_told_and_survived(small_disk: SmallDisk, tmp_path: Path) -> None:
    server = small_disk
    api = server.api()
    api.create_repo("acme/x", repo_type="kernel")
    fill(server.disk / "other", 500_000)

    # A file that does not fit leaves the space that it took.
    content = os.urandom(3_000_000)
    upload = f"/kernels/acme/x.git/info/lfs/objects/{hashlib.sha256(content).hexdigest()}"
    with httpx2.Client(base_url=server.url, timeout=30) as client:
        answer = client.put(upload, content=content)
    assert answer.status_code == 507
    assert "No space left" in answer.headers["X-Error-Message"]
    assert not list((server.disk / "data" / "incoming").iterdir())
    commit(api, "acme/x", {"small": b"x"})

    # The listings of many files fill the database.
    def add_many(name: str) -> int:
        lines = [
            f'{{"key": "file", "value": {{"path": "{name}/{number}", "content": "x"}}}}'
            for number in range(300)
        ]
        url = f"{server.url}/api/kernels/acme/x/commit/main"
        return httpx2.post(url, content=header() + "\n".join(lines).encode(), timeout=30).status_code

    done = 0
    while (status := add_many(str(done))) == 200:
        done += 1
    assert (status, done > 0) == (507, True)
    fill(server.disk / "rest", 2_000_000)
    assert add_many("full") == 507
    assert len(tree(api, "acme/x")) == 2 + 300 * done
    path = api.hf_hub_download("acme/x", "small", repo_type="kernel", cache_dir=tmp_path / "cache")
    assert Path(path).read_bytes() == b"x"

    # With space again, it goes on, and nothing of what was refused is there.
    for name in ("other", "rest"):
        (server.disk / name).unlink()
    commit(api, "acme/x", {"after": b"y"})
    assert len(tree(api, "acme/x")) == 3 + 300 * done
    code, errors = server.end()
    assert code == 143
    assert len(errors.splitlines()) == 4
    assert "Traceback" not in errors


def test_a_taken_port_is_one_line(start: Callable[..., Server], tmp_path: Path, shared: Server) -> None:
    port = shared.url.rpartition(":")[2]
    arguments = [sys.executable, "-I", str(PROGRAM), "hub", "--data", str(tmp_path / "d"), "--port", port]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=20)
    assert (ended.returncode, ended.stdout) == (3, "")
    assert ended.stderr == f"kernel-actions: port {port} is taken (give another; --port 0 takes a free one)\n"


def test_what_is_no_port_makes_no_folder(tmp_path: Path) -> None:
    arguments = [sys.executable, "-I", str(PROGRAM), "hub", "--data", str(tmp_path / "d"), "--port", "65536"]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=20)
    assert ended.returncode == 2
    assert ended.stderr == "kernel-actions: --port is 65536, which is not from 0 to 65535\n"
    assert not (tmp_path / "d").exists()


def test_a_second_server_on_the_same_data_is_refused(start: Callable[..., Server]) -> None:
    start()
    second = start()
    assert second.line == ""
    _, errors = second.process.communicate(timeout=20)
    assert second.process.returncode == 3
    assert len(errors.splitlines()) == 1
    assert "another embedded Hub is using" in errors


class Hurried:
    """The module ``time``, but nobody sleeps."""

    def __getattr__(self, name: str) -> Any:
        return (lambda seconds: None) if name == "sleep" else getattr(time, name)


def test_what_was_committed_survives_a_kill(
    start: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is killed while clients upload: each commit that was answered is whole afterwards."""
    # Clients that went on trying would close the connections of the tests after this one.
    for module in (_http, patience):
        monkeypatch.setattr(module, "time", Hurried())
    server = start()
    server.api().create_repo("acme/x", repo_type="kernel")
    answered: list[int] = []

    def upload(worker: int) -> None:
        api = server.api()
        for number in range(worker, 10_000, 2):
            try:
                commit(
                    api, "acme/x", {f"{number}.bin": bytes([number % 256]) * 200_000, f"{number}.txt": b"x"}
                )
            except Exception:
                return
            answered.append(number)

    threads = [threading.Thread(target=upload, args=(worker,), daemon=True) for worker in (0, 1)]
    for thread in threads:
        thread.start()
    while len(answered) < 8:
        time.sleep(0.01)
    server.process.kill()
    server.process.communicate()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    done = list(answered)

    server.start()
    api = server.api()
    files = tree(api, "acme/x")
    assert {f"{number}.{kind}" for number in done for kind in ("bin", "txt")} <= files.keys()
    # A commit that was not answered may be there, but then as a whole.
    numbers = {path.partition(".")[0] for path in files if path != ".gitattributes"}
    assert len(files) == 1 + 2 * len(numbers)
    folder = Path(api.snapshot_download("acme/x", repo_type="kernel", cache_dir=tmp_path / "cache"))
    for number in numbers:
        assert (folder / f"{number}.bin").read_bytes() == bytes([int(number) % 256]) * 200_000
    assert not list((server.data / "incoming").iterdir())
    commit(api, "acme/x", {"after": b"x"})
