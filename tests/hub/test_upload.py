"""The command `upload`, against an embedded Hub."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from huggingface_hub import CommitOperationAdd, HfApi, _commit_api
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils._runtime import is_xet_available
from kernel_actions import built, upload
from kernel_actions.errors import Interrupted, KernelActionsError, KernelFailed, WrongInput, WrongSurroundings
from kernel_actions.hub import client

from tests.hub.helpers import (
    PROGRAM,
    VARIANT,
    ForeignHub,
    Server,
    upload_options,
    write_kernel,
    write_variant,
)

OTHER = "torch-cuda"
# As hf_xet says it, which sends its requests itself.
XET = "Network error: Request error: HTTP status {}, domain: https://hub/api/kernels/acme/relu/xet-write-token/v1"


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused requests are tried again after seconds, which test_patience.py is about."""
    monkeypatch.setattr("kernel_actions.hub.patience.PAUSE", 0.01)


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    return write_kernel(tmp_path / "kernel")


@pytest.fixture
def send(shared: Server, kernel: Path, repo_id: str, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `upload` and returns its JSON result."""

    def run(**changed: object) -> dict[str, Any]:
        capsys.readouterr()
        assert upload.run(upload_options(kernel, shared.url, **{"repo_id": repo_id, **changed})) == 0
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        return result

    return run


@pytest.fixture
def repo_id(request: pytest.FixtureRequest) -> str:
    """A repository that does not exist yet."""
    return f"acme/{request.node.name}".replace("_", "-")


def names(api: HfApi, repo_id: str, revision: str = "v1") -> list[str]:
    entries = api.list_repo_tree(repo_id, recursive=True, repo_type="kernel", revision=revision)
    return [entry.path for entry in entries if isinstance(entry, RepoFile)]


def commit_file(api: HfApi, repo_id: str, revision: str, path: str, content: bytes) -> None:
    operations = [CommitOperationAdd(path, content)]
    api.create_commit(repo_id, operations, commit_message="other", repo_type="kernel", revision=revision)


def test_the_real_loader_loads_what_was_uploaded(
    shared: Server, api: HfApi, send: Any, repo_id: str, tmp_path: Path
) -> None:
    """`kernels.get_kernel`, unpatched, in a new process that has never seen the kernel."""
    result = send()
    api.create_tag(repo_id, tag="v1.0.0", revision="v1", repo_type="kernel")
    program = (
        "import json, sys\nfrom kernels import get_kernel\n"
        "for at in ({'version': 1}, {'revision': 'v1.0.0'}, {'revision': sys.argv[2]}):\n"
        "    kernel = get_kernel(sys.argv[1], backend='cpu', **at)\n"
        "    assert kernel.relu([-1, 2]) == [0, 2]\n"
        "print(kernel.VARIANT, kernel.__file__)\n"
    )
    environment = {
        "PATH": os.environ["PATH"],
        "HF_HOME": str(tmp_path / "home"),
        "HF_ENDPOINT": shared.url,
        "HF_HUB_DISABLE_XET": "1",
    }
    ended = subprocess.run(
        [sys.executable, "-I", "-c", program, repo_id, result["commit"]],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(f"{VARIANT} {tmp_path / 'home'}")


def test_a_first_upload_makes_everything(shared: Server, api: HfApi, send: Any, repo_id: str) -> None:
    result = send()
    files = [f"build/{VARIANT}/{name}" for name in ("__init__.py", "metadata.json", "table.bin")]
    assert result["added"] == files
    assert result["branch"] == "v1"
    assert result["commit"] == api.repo_info(repo_id, revision="v1", repo_type="kernel").sha
    assert result["url"] == f"{shared.url}/kernels/{repo_id}/tree/v1"
    assert names(api, repo_id) == [".gitattributes", *files]
    assert len(api.list_repo_commits(repo_id, repo_type="kernel", revision="v1")) == 2


def test_a_second_upload_changes_nothing(send: Any) -> None:
    first, second = send(), send()
    assert second["commit"] == first["commit"]
    assert (second["added"], second["deleted"], second["bytes"]) == ([], [], 0)


def test_only_what_changed_is_sent(api: HfApi, send: Any, kernel: Path, repo_id: str) -> None:
    send()
    (kernel / "build" / VARIANT / "table.bin").write_bytes(b"\0new")
    (kernel / "build" / VARIANT / "__init__.py").unlink()
    (kernel / "build" / VARIANT / "__init__.py").write_text("")
    (kernel / "build" / VARIANT / "extra").mkdir()
    (kernel / "build" / VARIANT / "extra" / "x.py").write_text("x = 1\n")
    result = send()
    folder = f"build/{VARIANT}"
    assert result["added"] == [f"{folder}/__init__.py", f"{folder}/extra/x.py", f"{folder}/table.bin"]
    assert result["bytes"] == 10
    (kernel / "build" / VARIANT / "extra" / "x.py").unlink()
    assert send()["deleted"] == [f"{folder}/extra/x.py"]
    assert f"{folder}/extra/x.py" not in names(api, repo_id)


def test_variants_that_are_not_given_are_kept(api: HfApi, send: Any, kernel: Path, repo_id: str) -> None:
    send()
    for path in (kernel / "build" / VARIANT).iterdir():
        path.unlink()
    (kernel / "build" / VARIANT).rmdir()
    write_variant(kernel / "build", variant=OTHER)
    result = send()
    assert len(result["kept"]) == 4
    assert {path.split("/")[1] for path in names(api, repo_id)[1:]} == {VARIANT, OTHER}


def test_a_new_version_starts_without_variants(api: HfApi, send: Any, kernel: Path, repo_id: str) -> None:
    send()
    # Old repositories keep variants on main too.
    commit_file(api, repo_id, "main", "build/torch-cpu/old.py", b"x")
    write_kernel(kernel, version=2)
    result = send()
    assert (result["branch"], result["deleted"]) == ("v2", [])
    assert names(api, repo_id, "v2") == names(api, repo_id, "v1")


def test_a_branch_that_is_there_keeps_its_variants(api: HfApi, send: Any, kernel: Path, repo_id: str) -> None:
    """Also one that other tools made from main, where old repositories have their variants."""
    api.create_repo(repo_id, repo_type="kernel")
    commit_file(api, repo_id, "main", f"build/{OTHER}/__init__.py", b"")
    api.create_branch(repo_id, branch="v1", repo_type="kernel")
    result = send()
    assert result["deleted"] == []
    assert f"build/{OTHER}/__init__.py" in names(api, repo_id)


def test_an_upload_that_failed_after_making_the_branch_is_finished(
    api: HfApi, send: Any, repo_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise ConnectionError("the cable was pulled")

    with monkeypatch.context() as patched:
        patched.setattr(HfApi, "create_commit", fail)
        with pytest.raises(WrongSurroundings, match="the cable was pulled"):
            send()
    assert names(api, repo_id) == [".gitattributes"]
    assert len(send()["added"]) == 3


def test_uploads_at_once_do_not_lose_each_other(
    shared: Server, api: HfApi, repo_id: str, tmp_path: Path
) -> None:
    variants = [f"torch21{number}-cxx11-cpu-x86_64-linux" for number in range(4)]
    errors: list[BaseException] = []

    def attempt(variant: str) -> None:
        kernel = write_kernel(tmp_path / variant, variant=variant)
        try:
            upload.run(upload_options(kernel, shared.url, repo_id=repo_id))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=attempt, args=(variant,)) for variant in variants]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert {path.split("/")[1] for path in names(api, repo_id)[1:]} == set(variants)


def test_a_commit_in_between_is_planned_anew(
    shared: Server, api: HfApi, send: Any, kernel: Path, repo_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send()
    stale = f"build/{VARIANT}/stale.py"
    real = HfApi.create_commit
    others = iter([b"1", b"2"])

    def create_commit(self: HfApi, *arguments: Any, **options: Any) -> Any:
        content = next(others, None)
        if content is not None:
            real(api, repo_id, [CommitOperationAdd(stale, content)], commit_message="other",
                 repo_type="kernel", revision="v1")  # fmt: skip
        return real(self, *arguments, **options)

    monkeypatch.setattr(HfApi, "create_commit", create_commit)
    (kernel / "build" / VARIANT / "table.bin").write_bytes(b"\0new")
    assert send()["deleted"] == [stale]
    others = iter([str(number).encode() for number in range(100)])
    (kernel / "build" / VARIANT / "table.bin").write_bytes(b"\0newer")
    with pytest.raises(WrongSurroundings, match="keep committing"):
        send()


def test_a_pull_request_leaves_the_branch_alone(api: HfApi, send: Any, kernel: Path, repo_id: str) -> None:
    with pytest.raises(WrongInput, match="does not exist"):
        send(create_pr=True)
    send()
    (kernel / "build" / VARIANT / "table.bin").write_bytes(b"\0new")
    before = api.repo_info(repo_id, revision="v1", repo_type="kernel").sha
    result = send(create_pr=True)
    assert result["url"].endswith(f"/kernels/{repo_id}/discussions/1")
    assert api.repo_info(repo_id, revision="v1", repo_type="kernel").sha == before
    assert names(api, repo_id, "refs/pr/1") == names(api, repo_id)


def test_a_dry_run_changes_nothing(api: HfApi, send: Any, kernel: Path, repo_id: str) -> None:
    assert len(send(dry_run=True)["added"]) == 3
    assert not api.repo_exists(repo_id, repo_type="kernel")
    send()
    write_kernel(kernel, version=2)
    (kernel / "CARD.md").write_text("# relu\n")
    result = send(dry_run=True)
    assert (result["commit"], result["card"]["changed"]) == ("", True)
    refs = api.list_repo_refs(repo_id, repo_type="kernel")
    assert [branch.name for branch in refs.branches] == ["main", "v1"]
    assert names(api, repo_id, "main") == [".gitattributes"]


def test_the_card_goes_to_main(api: HfApi, send: Any, kernel: Path, repo_id: str, tmp_path: Path) -> None:
    (kernel / "CARD.md").write_text("---\nlicense: apache-2.0\n---\n# relu\n")
    assert send()["card"]["changed"] is True
    assert send()["card"]["changed"] is False
    (kernel / "build" / "CARD.md").write_text("# filled in by the builder\n")
    assert send()["card"]["changed"] is True
    path = api.hf_hub_download(repo_id, "README.md", repo_type="kernel", cache_dir=tmp_path / "cache")
    assert Path(path).read_text() == "# filled in by the builder\n"
    assert len(api.list_repo_commits(repo_id, repo_type="kernel")) == 3
    assert "README.md" not in names(api, repo_id, "v1")


def test_outputs_and_summary_of_an_action(
    shared: Server, kernel: Path, repo_id: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    upload.run(upload_options(kernel, shared.url, repo_id=repo_id, format="github"))
    assert capsys.readouterr().out.startswith("variant    added  kept  deleted\n")
    output = (tmp_path / "output").read_text()
    assert output.startswith("commit<<")
    assert f"\n{shared.url}/kernels/{repo_id}/tree/v1\n" in output
    assert (tmp_path / "summary").read_text().startswith("### ✅ Upload to v1 of acme/")


# Gates.


@pytest.mark.parametrize("builder", ["local", ""])
def test_local_builds_are_not_published(
    foreign: ForeignHub, shared: Server, tmp_path: Path, repo_id: str, builder: str
) -> None:
    kernel = write_kernel(tmp_path / "kernel", builder=builder)
    with pytest.raises(KernelFailed, match="only builds of Nix are published") as caught:
        upload.run(upload_options(kernel, foreign.url))
    assert "--allow-local-build" in str(caught.value)
    with pytest.raises(WrongSurroundings):
        upload.run(upload_options(kernel, foreign.url, allow_local_build=True))
    assert upload.run(upload_options(kernel, shared.url, repo_id=f"acme/local-{builder or 'none'}")) == 0


def test_mixed_versions_are_refused(shared: Server, kernel: Path) -> None:
    write_variant(kernel / "build", version=2, variant=OTHER)
    with pytest.raises(
        KernelFailed, match=r"torch-cuda/metadata.json: is of version 2, but build.toml says 1"
    ):
        upload.run(upload_options(kernel, shared.url))


@pytest.mark.parametrize("name", ["metadata.json", "__init__.py"])
def test_half_made_variants_are_refused(shared: Server, kernel: Path, name: str) -> None:
    (kernel / "build" / VARIANT / name).unlink()
    with pytest.raises(KernelFailed, match=f"has no {re.escape(name)}"):
        upload.run(upload_options(kernel, shared.url))


@pytest.mark.parametrize("text", ["", "[]", "{", '{"version": "1"}', "[" * 100_000])
def test_unreadable_metadata_is_refused(shared: Server, kernel: Path, text: str) -> None:
    (kernel / "build" / VARIANT / "metadata.json").write_text(text)
    with pytest.raises(KernelFailed, match=r"metadata\.json"):
        upload.run(upload_options(kernel, shared.url))


def test_other_folders_are_no_variants(shared: Server, kernel: Path, tmp_path: Path) -> None:
    (kernel / "build" / "notes").mkdir()
    assert [variant.name for variant in built.find(kernel / "build")] == [VARIANT]
    with pytest.raises(WrongInput, match="has no built variant"):
        upload.run(upload_options(kernel, shared.url, build_dir="elsewhere"))


# Errors of the Hub.


def test_a_hub_that_is_down_is_one_line(kernel: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-I", str(PROGRAM), "upload", str(kernel), "--hub", "http://127.0.0.1:9"],
        capture_output=True, text=True, timeout=60, check=False, env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (3, "")
    assert ended.stderr.startswith(
        "kernel-actions: no Hub answers at http://127.0.0.1:9: Connection refused ("
    )
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "said", [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz"]
)
def test_what_is_no_hub_is_one_line(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(WrongSurroundings, match=r"no Hub answers at http://127\.0\.0\.1:") as caught:
            client.connect(f"http://127.0.0.1:{server.getsockname()[1]}")
        thread.join()
    assert str(caught.value).isprintable()


def test_a_repository_that_exists_need_not_have_its_address_told(
    shared: Server, repo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = client.connect(shared.url)
    monkeypatch.setattr(httpx2.Response, "json", _without_url(httpx2.Response.json))
    assert client.create_repository(hub, repo).branches.keys() == {"main"}


def _without_url(real: Callable[..., Any]) -> Callable[..., Any]:
    def json(self: httpx2.Response, **options: Any) -> Any:
        value = real(self, **options)
        if isinstance(value, dict):
            value.pop("url", None)
        return value

    return json


def test_a_hub_that_goes_down_is_one_line(kernel: Path, tmp_path: Path) -> None:
    server = Server(tmp_path / "data")
    hub = client.connect(server.url)
    server.process.kill()
    server.process.communicate()
    with pytest.raises(WrongSurroundings, match="does not answer"):
        client.upload(hub, "acme/x", "v1", {}, [], message="x")


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (
            401,
            WrongSurroundings,
            r"cannot create .* gets no token but the one that is given for it: by KA_TOKEN",
        ),
        (403, WrongSurroundings, "read permission"),
        (429, WrongSurroundings, "run again later"),
        (500, WrongSurroundings, "run again later"),
        (400, WrongInput, "Forbidden"),
    ],
)
def test_what_the_hub_refuses_is_explained(
    foreign: ForeignHub, kernel: Path, status: int, error: type[KernelActionsError], words: str
) -> None:
    foreign.status = status
    with pytest.raises(error, match=words) as caught:
        upload.run(upload_options(kernel, foreign.url))
    assert "\n" not in str(caught.value)


def test_who_may_not_create_is_told_where_to_ask(foreign: ForeignHub, kernel: Path) -> None:
    hub = client.connect(foreign.url)
    with (
        pytest.raises(WrongSurroundings, match="kernels-community"),
        client._explained(hub, "create acme/relu", is_creation=True),
    ):
        hub.api.create_repo("acme/relu", repo_type="kernel")


def test_an_interruption_stays_one() -> None:
    """The client wraps what happens while it sends a file, a signal's exception too."""
    hub = client.Hub("http://unused", False, HfApi())
    with pytest.raises(Interrupted), client._explained(hub, "upload"):
        try:
            raise Interrupted(15)
        except Interrupted as error:
            raise RuntimeError("Error while uploading") from error


def test_loopback_gets_no_token_but_the_one_that_is_given_for_it(
    foreign: ForeignHub, shared: Server, kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may be listening there; and an embedded Hub needs none."""
    monkeypatch.setattr("kernel_actions.process.keep_memory_private", lambda: None)
    monkeypatch.setenv("HF_TOKEN", "hf_environment")
    with pytest.raises(WrongSurroundings):
        upload.run(upload_options(kernel, foreign.url))
    assert foreign.tokens
    assert not any("hf_" in token for token in foreign.tokens)
    foreign.status = 401
    with pytest.raises(WrongSurroundings, match="give a valid token"):
        upload.run(upload_options(kernel, foreign.url, token="hf_given"))
    assert foreign.tokens[-1] == "Bearer hf_given"
    assert "hf_given" not in client.connect(shared.url, "hf_given").token


def test_whether_there_is_a_repository_is_not_told_to_everybody(foreign: ForeignHub) -> None:
    foreign.status, foreign.message = 401, "Invalid username or password."
    hub = client.connect(foreign.url, is_anonymous=True)
    assert client.refs(hub, "acme/relu") is None
    with pytest.raises(WrongSurroundings, match=r"as anybody sees it, without a token: it has to be public"):
        client.history(hub, "acme/relu", "main")
    foreign.message = "Invalid credentials in Authorization header"
    with pytest.raises(WrongSurroundings, match="Invalid credentials"):
        client.refs(hub, "acme/relu")


def test_a_hub_may_keep_large_files_in_git_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large.py").write_bytes(b"x = 1\n")
    kept = client.RemoteFile(client.local_file(tmp_path / "large.py").oid, size=6)
    monkeypatch.setattr("kernel_actions.digests.LARGEST_IN_GIT", 3)
    large = client.local_file(tmp_path / "large.py")
    assert (large.oid, large.is_same(kept)) == ("", True)
    (tmp_path / "large.py").write_bytes(b"x = 2\n")
    assert not client.local_file(tmp_path / "large.py").is_same(kept)


def test_the_size_of_a_file_is_not_that_of_its_pointer() -> None:
    lfs = {"oid": "0" * 64, "size": 5000, "pointerSize": 129}
    assert client._remote_file(RepoFile(path="x.so", size=129, oid="1" * 40, lfs=lfs)).size == 5000


def test_any_hub_of_this_machine_is_sent_large_files_by_lfs(
    foreign: ForeignHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "0")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", False)
    assert not client.connect(foreign.url).is_embedded
    assert os.environ["HF_HUB_DISABLE_XET"] == "1"
    assert not is_xet_available()


def test_the_token_is_in_no_message(foreign: ForeignHub) -> None:
    foreign.message = "token hf_given is not welcome"
    hub = client.Hub(foreign.url, False, HfApi(endpoint=foreign.url, token="hf_given"), "hf_given")
    with pytest.raises(WrongSurroundings, match=r"token \*\*\* is not welcome") as caught:
        client.upload(hub, "acme/x", "v1", {}, [], message="x")
    assert "hf_given" not in str(caught.value)
    assert foreign.tokens[-1] == "Bearer hf_given"


def test_files_that_the_client_leaves_out_without_a_word_are_told(
    send: Any, api: HfApi, repo_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does for what a .gitignore on the Hub names: of another client or another day."""
    real = _commit_api._fetch_upload_modes

    def modes(additions: Any, **options: Any) -> None:
        real(additions, **options)
        for one in additions:
            one._should_ignore = one.path_in_repo.endswith("table.bin")

    with monkeypatch.context() as patched:
        patched.setattr(_commit_api, "_fetch_upload_modes", modes)
        with pytest.raises(
            WrongSurroundings, match=r"does not hold what was sent: .*table\.bin.*\.gitignore"
        ):
            send()
    assert send()["added"] == [f"build/{VARIANT}/table.bin"]


def test_what_did_not_change_is_not_read_again(
    send: Any, kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time_ns
    monkeypatch.setattr("kernel_actions.digests.time.time_ns", lambda: real() + 5_000_000_000)
    send()
    monkeypatch.setattr("kernel_actions.digests._read", lambda *_unused: pytest.fail("it was read"))
    (kernel / "CARD.md").unlink(missing_ok=True)
    assert send()["added"] == []


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: os.mkfifo(folder / "pipe"), "pipe is no plain file"),
        (lambda folder: (folder / "link").symlink_to("."), "link is no plain file"),
        (lambda folder: (folder / "new\nline.py").write_text(""), "has a name that a Hub cannot hold"),
        (lambda folder: (folder / "a\\b.py").write_text(""), "has a name that a Hub cannot hold"),
        (lambda folder: (folder / "\x1b[31m").mkdir(), "has a name that a Hub cannot hold"),
        (lambda folder: open(os.fsencode(folder) + b"/\xff.py", "w").close(), "that a Hub cannot hold"),
    ],
)
def test_what_an_archive_may_hold_and_no_hub_can(
    send: Any, kernel: Path, make: Callable[[Path], object], words: str
) -> None:
    make(kernel / "build" / VARIANT)
    with pytest.raises(WrongInput, match=words) as caught:
        send()
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("action", "kind", "words"),
    [
        ("write to acme/relu", OSError(28, "No space left on device"), r"disk is full .*TMPDIR"),
        ("read acme/relu", 403, r"needs read permission for this repository: ask one of its owners\)$"),
        ("write to acme/relu", 403, r"needs write permission .*upload --create-pr"),
        ("create the tag v1.0.0 of acme/relu", 403, r"needs write permission .*owners\)$"),
        (
            "read acme/relu",
            KeyError("converts"),
            r"answers in no way that is known \(KeyError: 'converts'\)$",
        ),
        (
            "write to acme/relu",
            XET.format("client error (403 Forbidden)"),
            r"HTTP 403 \(.*needs write permission",
        ),
        ("write to acme/relu", XET.format("client error (404 Not Found)"), r"\(set HF_HUB_DISABLE_XET=1"),
        ("write to acme/relu", XET.format("server error (503 Busy)"), r"HTTP 503 \(run again later"),
    ],
)
def test_what_is_missing_is_named(shared: Server, action: str, kind: Any, words: str) -> None:
    hub = client.connect(shared.url)
    error = ConnectionError(kind) if isinstance(kind, str) else kind
    if isinstance(kind, int):
        request = httpx2.Request("GET", shared.url)
        error = HfHubHTTPError("no", response=httpx2.Response(kind, request=request))
    with pytest.raises(WrongSurroundings, match=words):  # noqa: SIM117
        with client._explained(hub, action):
            raise error
