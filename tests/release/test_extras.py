"""What a release brings along and looks at before: benchmarks, the release on GitHub, who may push."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from huggingface_hub import HfApi
from kernel_actions import built, release
from kernel_actions import git as git_module
from kernel_actions.errors import KernelFailed, WrongSurroundings
from kernel_actions.hub import client
from kernel_actions.release import gate, plan

from tests.release.helpers import CPU, CUDA, Kernel, command, git
from tests.release.test_release import heads, put, recorded

Tree = Callable[[str, str], dict[str, str]]


# Benchmarks.


def test_benchmarks_travel_and_stale_ones_go(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, quick: list[str], tree: Tree
) -> None:
    folder = kernel.root / "benchmarks"
    (folder / "results").mkdir(parents=True)
    for name in ("benchmark_relu.py", "benchmark_old.py", "helper.py", "results/benchmark_x.py"):
        (folder / name).write_text(f"# {name}\n")
    kernel.commit("feat: measure")
    api.create_repo(repo_id, repo_type="kernel")
    kernel.build()
    kernel.release(address)

    def there(branch: str) -> set[str]:
        return {path for path in tree(repo_id, branch) if path.startswith("benchmarks/")}

    assert there("v1") == {"benchmarks/benchmark_relu.py", "benchmarks/benchmark_old.py"}
    put(api, repo_id, "v1", "benchmarks/theirs.txt", b"kept")
    (folder / "benchmark_old.py").unlink()
    kernel.commit("fix: x", rounding="x = 1\n")
    kernel.build()
    kernel.release(address)
    assert there("v1") == {"benchmarks/benchmark_relu.py", "benchmarks/theirs.txt"}
    assert kernel.release(address).is_unchanged


def test_benchmarks_stay_where_the_kernel_has_no_folder_of_them(
    kernel: Kernel,
    address: str,
    quick: list[str],
    api: HfApi,
    tree: Callable[..., dict[str, str]],
    repo_id: str,
) -> None:
    """As with the builder's `upload`, which deletes none then."""
    kernel.build()
    kernel.release(address)
    put(api, repo_id, "v1", "benchmarks/benchmark_theirs.py", b"x = 1\n")
    kernel.commit("fix: again", extra="x = 1\n")
    kernel.build()
    kernel.release(address)
    assert "benchmarks/benchmark_theirs.py" in tree(repo_id, "v1")
    assert "benchmarks/benchmark_theirs.py" in tree(repo_id, "v1.0.1")
    (kernel.root / "benchmarks").mkdir()
    (kernel.root / "benchmarks" / "benchmark.py").write_text("x = 2\n")
    kernel.commit("Add a benchmark")
    kernel.build()
    kernel.release(address)
    assert {path for path in tree(repo_id, "v1") if path.startswith("benchmarks/")} == {
        "benchmarks/benchmark.py"
    }


def test_a_new_version_inherits_no_benchmarks() -> None:
    remote = {
        path: client.RemoteFile("1") for path in ("benchmarks/data.txt", "benchmarks/benchmark_a.py", "x")
    }
    new = client.plan(remote, {}, [], keeps_others=False)
    assert (new.deleted, new.kept) == (("benchmarks/benchmark_a.py", "benchmarks/data.txt"), ("x",))
    old = client.plan(remote, {}, [])
    assert (old.deleted, old.kept) == (("benchmarks/benchmark_a.py",), ("benchmarks/data.txt", "x"))


# Git.


def test_who_may_not_push_the_tag_is_told_before_anything_is_published(
    kernel: Kernel,
    address: str,
    api: HfApi,
    repo_id: str,
    quick: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(git_module, "is_on_this_machine", lambda remote: True)
    git(kernel.root, "remote", "set-url", "--push", "origin", "http://someone:ghp_planted@127.0.0.1:9/x.git")
    kernel.build()
    with pytest.raises(WrongSurroundings, match=r"the git tag v1\.0\.0 cannot be pushed to origin") as caught:
        kernel.release(address)
    for words in ("persist-credentials: true", "contents: write", "--no-git-tag"):
        assert words in str(caught.value)
    assert "ghp_planted" not in str(caught.value)
    assert not api.repo_exists(repo_id, repo_type="kernel")
    # Who stages needs no such right.
    assert kernel.release(address, stages=("stage",)).staged
    assert heads(api, repo_id).keys() == {"main", "release-1.0.0"}


# The gate.


def test_what_may_go_untested_is_recorded(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, quick: list[str], tmp_path: Any
) -> None:
    (kernel.root / "kernel-actions.toml").write_text(f'[test.allow-untested]\n"{CUDA}" = "no GPU at hand"\n')
    kernel.commit("fix: allow it")
    kernel.build()
    kernel.test(CUDA, verdict="untested", passed=0)
    kernel.release(address)
    value = recorded(api, repo_id, "v1", tmp_path)["variants"]
    assert (value[CUDA]["tests"], value[CUDA]["untested"]) == (None, "no GPU at hand")
    assert "untested" not in value[CPU]


@pytest.mark.parametrize(
    ("allowed", "changed", "words"),
    [
        ({}, {"verdict": "untested", "passed": 0}, "goes untested, which kernel-actions.toml does not allow"),
        ({"*": "x"}, {"verdict": "failed", "failed": 1}, "failed its tests"),
        ({"*": "x"}, {"verdict": "untested", "digest": "0"}, "was tested before it was built"),
        ({"*": "x"}, {"verdict": "untested", "passed": 0}, ""),
    ],
)
def test_both_have_to_say_that_a_variant_goes_untested(
    kernel: Kernel, allowed: dict[str, str], changed: dict[str, object], words: str
) -> None:
    kernel.build(CPU)
    kernel.test(CPU, **changed)
    (one,) = gate.candidates(built.find(kernel.root / "build"), allowed)
    assert one.untested.startswith(words) and bool(one.untested) == bool(words)


def test_a_build_without_a_sandbox_or_of_changes_is_named(kernel: Kernel) -> None:
    kernel.build(CPU)
    path = built.build_report_path(kernel.root / "build" / CPU)
    built.write_json(path, {"builder": "nix-unsandboxed", "dirty": True})
    (one,) = gate.candidates(built.find(kernel.root / "build"))
    assert one.dirty
    assert gate.built_how(one.variant.builder) == "was built by Nix without a sandbox"


ADDED = "__all__ = ['relu', 'gelu']\n"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (b"__all__ = ['a', 'b']", {"a", "b"}),
        (b"__all__: list[str] = ('a',)\n__all__ += ['b']", {"a", "b"}),
        (b"__all__ = ['a']\n__all__.extend(['b'])", {"a", "b"}),
        (b"__all__ = [name for name in dir()]", None),
        (b"__all__ = other.__all__", None),
        (b"x = 1", None),
        (b"(", None),
    ],
)
def test_public_names_are_read_and_not_run(source: bytes, names: set[str] | None) -> None:
    found = gate.public_names(source)
    assert found == (None if names is None else frozenset(names))


def test_a_name_is_added_to_every_published_variant_or_to_none(
    kernel: Kernel, address: str, api: HfApi, repo_id: str, quick: list[str]
) -> None:
    kernel.build()
    kernel.release(address)
    # A variant that an earlier builder published, and this one does not make.
    put(api, repo_id, "v1", "build/torch-xpu/__init__.py", b"__all__ = ['relu']\n")
    metadata = {"name": "relu", "id": "relu_1", "version": 1, "license": "MIT", "python-depends": [],
                "backend": {"type": "xpu"}}  # fmt: skip
    put(api, repo_id, "v1", "build/torch-xpu/metadata.json", json.dumps(metadata).encode())
    kernel.commit("fix: round", rounding="x = 1\n")
    kernel.build()
    assert str(kernel.release(address).plan.version) == "1.0.1"
    init = kernel.root / "torch-ext" / "relu" / "__init__.py"
    init.write_text(init.read_text().replace("['relu']", "['relu', 'gelu']") + "\n\ngelu = relu\n")
    kernel.commit("feat: add gelu")
    kernel.build()
    # Told before anything is built, too.
    shutil.rmtree(kernel.root / "build")
    planned = command(kernel.root, "release", "--dry-run", "--hub", address)
    assert planned.returncode == 1
    assert "torch-xpu stays as it is and lacks gelu" in planned.stderr
    kernel.build()
    with pytest.raises(KernelFailed, match="torch-xpu stays as it is and lacks gelu") as caught:
        kernel.release(address)
    assert "raise the major version" in str(caught.value)
    put(api, repo_id, "v1", "build/torch-xpu/__init__.py", ADDED.encode())
    assert str(kernel.release(address).plan.version) == "1.1.0"


# GitHub.


class FakeApi:
    """GitHub's API, as far as releases go."""

    def __init__(self) -> None:
        self.releases: dict[str, Any] = {}
        self.tokens: list[str] = []
        self.status = 201
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                tag = self.path.rpartition("/tags/")[2].replace("%2F", "/")
                self._answer(200 if tag in fake.releases else 404, fake.releases.get(tag, {}))

            def do_POST(self) -> None:
                fake.tokens.append(self.headers["Authorization"])
                value = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if fake.status == 201:
                    assert self.path == "/repos/acme/kernels/releases"
                    fake.releases[value["tag_name"]] = value
                self._answer(fake.status, value)

            def _answer(self, status: int, value: Any) -> None:
                data = json.dumps(value).encode()
                if not status:
                    self.wfile.write(b"no HTTP at all\r\n\r\n")
                    return
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def on_github(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    fake = FakeApi()
    monkeypatch.setenv("GITHUB_API_URL", fake.url)
    monkeypatch.setenv("GITHUB_REPOSITORY", "acme/kernels")
    monkeypatch.setenv("GITHUB_TOKEN", "ghs_planted")
    yield fake
    fake.close()


def test_the_release_on_github_has_notes_and_checksums(
    kernel: Kernel, address: str, repo_id: str, quick: list[str], on_github: FakeApi
) -> None:
    kernel.build()
    on_github.status = 403
    with pytest.raises(
        WrongSurroundings, match="all is published, but there is no release on GitHub"
    ) as caught:
        kernel.release(address)
    assert "contents: write" in str(caught.value) and "ghs_planted" not in str(caught.value)
    on_github.status = 0
    with pytest.raises(WrongSurroundings, match=r"no HTTP at all \(run again to make it"):
        kernel.release(address)
    on_github.status = 201
    done = kernel.release(address)
    assert done.tagged is not None and done.tagged.done == ("the release v1.0.0 on GitHub",)
    made = on_github.releases["v1.0.0"]
    assert (made["target_commitish"], made["name"]) == (kernel.head, "relu 1.0.0")
    variant = built.read(kernel.root / "build" / CPU)
    assert f"| `{CPU}` | `{variant.digest}` |" in made["body"]
    assert done.commit in made["body"]
    assert set(on_github.tokens) == {"Bearer ghs_planted"}
    assert kernel.release(address).is_unchanged
    assert isinstance(done, release.Released)


# Identity.


def test_a_missing_identity_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_OIDC_RESOURCE", "kernels/acme/relu")
    with pytest.raises(WrongSurroundings, match="id-token: write"):
        client.connect("https://hub.example.org")


def test_a_record_that_the_hub_keeps_as_lfs_is_the_same_record() -> None:
    data = b"{}"
    kept = client.RemoteFile("the git id of a pointer", hashlib.sha256(data).hexdigest(), len(data))
    assert plan.changes({"kernel-actions.json": kept}, {"kernel-actions.json": data}).is_empty
    assert not plan.changes({"kernel-actions.json": kept}, {"kernel-actions.json": b"{ }"}).is_empty
