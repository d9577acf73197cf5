"""Fixtures of the tests of releases: one embedded Hub for all, and a kernel of its own for each."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
# An embedded Hub speaks LFS; huggingface_hub reads this once, at import.
os.environ["HF_HUB_DISABLE_XET"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

from huggingface_hub import HfApi
from kernel_actions.hub.embedded import embedded
from kernel_actions.release import verification
from kernel_actions.release.verification import Verified

from tests.release.helpers import Kernel


@pytest.fixture(autouse=True)
def no_identity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither the developer's own token, configuration and identity nor the job's play a part."""
    for name in list(os.environ):
        if name.startswith(("KA_", "GIT_", "GITHUB_", "HF_TOKEN", "HF_ENDPOINT", "HF_OIDC", "ACTIONS_")):
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("RUNNER_TEMP", raising=False)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with embedded(tmp_path_factory.mktemp("hub") / "data") as url:
        yield url


@pytest.fixture
def api(address: str) -> HfApi:
    return HfApi(endpoint=address, token="unused")


@pytest.fixture
def repo_id(request: pytest.FixtureRequest) -> str:
    """A repository that does not exist yet."""
    return f"acme/relu-{hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]}"


@pytest.fixture
def kernel(tmp_path: Path, repo_id: str) -> Kernel:
    return Kernel(tmp_path / "kernel", repo_id)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Verification without a process and without loading, which take seconds; the commits verified.

    All that is downloaded and compared stays real.
    """
    seen: list[str] = []

    def verified(
        repo_id: str, commit: str, address: str, trust_config: str = "", loads: bool = True
    ) -> Verified:
        seen.append(commit)
        return verification.verify(repo_id, commit, address=address, trust_config=trust_config, loads=loads)

    monkeypatch.setattr(verification, "in_fresh_process", verified)
    monkeypatch.setattr(
        verification,
        "_load",
        lambda address, repo_id, commit, names: (names[0], ("relu",), ""),
    )
    return seen


@pytest.fixture
def tree(api: HfApi) -> Callable[..., dict[str, str]]:
    """Lists a revision: the id of each file by its path."""

    def read(repo_id: str, revision: str) -> dict[str, str]:
        entries: Any = api.list_repo_tree(repo_id, recursive=True, repo_type="kernel", revision=revision)
        return {entry.path: entry.blob_id for entry in entries if hasattr(entry, "blob_id")}

    return read
