"""Fixtures of the tests for those who use kernels."""

from __future__ import annotations

import hashlib
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

# An embedded Hub speaks LFS; huggingface_hub reads this once, at import.
os.environ["HF_HUB_DISABLE_XET"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

from huggingface_hub import HfApi

from tests.consumers.helpers import unshared
from tests.hub.helpers import Server
from tests.integration.conftest import pipeline_copy, small_copy

__all__ = ["pipeline_copy", "small_copy"]


@pytest.fixture(autouse=True)
def no_identity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither the developer's token and cache nor the job's files may play a part in a test."""
    for name in (
        "HF_TOKEN", "HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "KERNELS_CACHE", "KA_TOKEN",
        "GITHUB_ACTIONS", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "SOURCE_DATE_EPOCH",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One embedded Hub for all tests; each takes repositories of its own."""
    started = Server(tmp_path_factory.mktemp("consumers") / "data")
    yield started
    started.process.kill()
    started.process.communicate()


@pytest.fixture
def hub(server: Server) -> str:
    return server.url


@pytest.fixture
def api(server: Server) -> HfApi:
    return server.api()


@pytest.fixture
def repo(request: pytest.FixtureRequest) -> str:
    """The name of a repository that no other test has."""
    return f"acme/gray-{hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:10]}"


@pytest.fixture
def no_network() -> list[str]:
    """What runs a command without a network."""
    return unshared()


Edit = Callable[[str, int, bytes], tuple[int, bytes]]
Proxy = Callable[[Edit], str]


@pytest.fixture
def proxied(server: Server) -> Iterator[Proxy]:
    """The same Hub, some of whose answers are others: by a path, the status and the body of the true one."""
    started: list[ThreadingHTTPServer] = []

    def start(edit: Edit) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                request = urllib.request.Request(
                    server.url + self.path,
                    data=self.rfile.read(length) if length else None,
                    headers=dict(self.headers.items()),
                    method=self.command,
                )
                try:
                    with urllib.request.urlopen(request) as answer:
                        status, headers, body = answer.status, dict(answer.headers.items()), answer.read()
                except urllib.error.HTTPError as error:
                    status, headers, body = error.code, dict(error.headers.items()), error.read()
                status, body = edit(self.path, status, body)
                self.send_response(status)
                for name, value in headers.items():
                    if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                        self.send_header(name, value)
                size = headers.get("content-length", "0") if self.command == "HEAD" else str(len(body))
                self.send_header("Content-Length", size)
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_HEAD = do_GET

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        started.append(proxy)
        threading.Thread(target=proxy.serve_forever, args=(0.02,), daemon=True).start()
        return f"http://127.0.0.1:{proxy.server_port}"

    yield start
    for proxy in started:
        proxy.shutdown()
        proxy.server_close()


@pytest.fixture
def distrustful(proxied: Proxy) -> str:
    """The same Hub, which lists no publisher as trusted."""

    def edit(path: str, status: int, body: bytes) -> tuple[int, bytes]:
        if path.startswith("/api/organizations/"):
            body = body.replace(b'"trustedKernelPublisher":true', b'"trustedKernelPublisher":false')
        return status, body

    return proxied(edit)
