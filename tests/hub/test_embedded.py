"""An embedded Hub for a block of code: it starts, and it ends in every case."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest
from huggingface_hub import HfApi
from kernel_actions.errors import WrongSurroundings
from kernel_actions.hub import client
from kernel_actions.hub.embedded import embedded

from tests.hub.helpers import PROGRAM


def is_up(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/api/embedded-hub").status_code == 200
    except httpx2.TransportError:
        return False


def test_it_serves_and_ends(tmp_path: Path) -> None:
    with embedded(tmp_path / "data") as url:
        assert client.connect(url).is_embedded
        HfApi(endpoint=url, token="unused").create_repo("acme/x", repo_type="kernel")
    assert not is_up(url)
    with embedded(tmp_path / "data") as url:
        assert HfApi(endpoint=url, token="unused").repo_exists("acme/x", repo_type="kernel")


def test_it_ends_with_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError), embedded(tmp_path / "data") as url:
        raise KeyError
    assert not is_up(url)


def test_its_error_is_told(tmp_path: Path) -> None:
    reason = "did not start: another embedded Hub"
    with embedded(tmp_path), pytest.raises(WrongSurroundings, match=reason), embedded(tmp_path):
        pass


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_a_parent_that_is_ended(tmp_path: Path, number: int) -> None:
    program = (
        "import sys, time; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "from kernel_actions.cli import guarded\nfrom kernel_actions.hub.embedded import embedded\n"
        "def action():\n    with embedded(Path(sys.argv[2])) as url:\n"
        "        print(url, flush=True); time.sleep(60)\n    return 0\n"
        "sys.exit(guarded(action))\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-I", "-c", program, str(PROGRAM.parent), str(tmp_path / "data")],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert parent.stdout is not None
    url = parent.stdout.readline().strip()
    assert is_up(url)
    os.kill(parent.pid, number)
    parent.communicate(timeout=20)
    assert parent.returncode == (-number if number == signal.SIGKILL else 128 + number)
    deadline = time.monotonic() + 10
    while is_up(url) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_up(url)
