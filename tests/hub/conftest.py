"""Fixtures of the tests of the Hub."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
# An embedded Hub speaks LFS; huggingface_hub reads this once, at import.
os.environ["HF_HUB_DISABLE_XET"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

from huggingface_hub import HfApi

from tests.hub.helpers import ForeignHub, Server


@pytest.fixture(autouse=True)
def no_identity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither the developer's own token nor the job's may play a part in a test."""
    for name in ("HF_TOKEN", "HF_ENDPOINT", "KA_TOKEN", "HF_OIDC_RESOURCE", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))
    # Nor may what an upload remembers of files.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("RUNNER_TEMP", raising=False)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers that are killed after the test."""
    servers: list[Server] = []

    def start_one(data: Path = tmp_path / "data") -> Server:
        servers.append(Server(data))
        return servers[-1]

    yield start_one
    for server in servers:
        server.process.kill()
        server.process.communicate()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests that need no other; each takes a repository of its own."""
    server = Server(tmp_path_factory.mktemp("hub") / "data")
    yield server
    server.process.kill()
    server.process.communicate()


@pytest.fixture
def foreign() -> Iterator[ForeignHub]:
    """A Hub that is not an embedded one, though on loopback; it refuses everything."""
    server = ForeignHub()
    yield server
    server.close()


@pytest.fixture
def api(shared: Server) -> HfApi:
    return shared.api()


@pytest.fixture
def repo(api: HfApi, request: pytest.FixtureRequest) -> str:
    """A new repository on the shared server."""
    digest = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]
    name = f"{request.node.originalname}-{digest}".replace("_", "-")
    api.create_repo(f"acme/{name}", repo_type="kernel")
    return f"acme/{name}"
