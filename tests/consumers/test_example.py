"""The example kernel on its way to those who use it: two releases, a lock, a cache, and no network."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from huggingface_hub import HfApi
from PIL import Image

from tests.consumers.helpers import commits, program, project, run, user_environment
from tests.integration.conftest import ROOT, git, kernel_actions

REPO = "kernel-actions/grayscale"
PLATFORM = "torch2.13-cpu-x86_64-linux"
CONVERT = """
import importlib.util, socket, sys
from pathlib import Path
from kernels import load_kernel

tried = []
socket.socket.connect = lambda self, address: tried.append(address)
kernel = load_kernel("kernel-actions/grayscale", lockfile=Path("kernels.lock"))
spec = importlib.util.spec_from_file_location("photograph", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(module.main(kernel, Path(sys.argv[2])), tried)
"""


def release(root: Path, api: HfApi, hub: str, version: str) -> str:
    """Release the built example; the commit on the Hub."""
    finished = kernel_actions(
        root, "release", "--bump", version, "--partial", "--no-git-tag", "--hub", hub,
        timeout=600,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    (tag,) = [one for one in api.list_repo_refs(REPO, repo_type="kernel").tags if one.name == f"v{version}"]
    return str(tag.target_commit)


@pytest.mark.slow
def test_the_example_is_locked_rolled_forward_and_converts_an_image_without_a_network(
    small_copy: Path,
    api: HfApi,
    hub: str,
    tmp_path: Path,
    no_network: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = tmp_path / "grayscale"
    shutil.copytree(small_copy, root, symlinks=True)
    first = release(root, api, hub, "1.0.0")
    folder = project(tmp_path / "application", {REPO: 1}, f'platforms = ["{PLATFORM}"]')
    asked = ("lock", "--project", folder, "--hub", hub)
    assert run(*asked, "--mode", "update") == 0
    assert run(*asked) == 0

    # The second release is of another commit, so that it holds other files.
    (root / "torch-ext" / "grayscale" / "__init__.py").open("a").write("\nSECOND = True\n")
    git(root, "commit", "--quiet", "--all", "--message=feat: tell the second release from the first")
    for command in ("build", "test"):
        finished = kernel_actions(root, command, timeout=600)
        assert finished.returncode == 0, finished.stderr
    second = release(root, api, hub, "1.1.0")
    assert first != second
    capsys.readouterr()
    assert run(*asked, "--newest") == 1
    assert "1.1.0 is newer" in capsys.readouterr().err
    assert run(*asked, "--mode", "update") == 0
    assert commits(folder) == {REPO: second}

    cache = tmp_path / "cache"
    assert run("download", "--project", folder, "--hub", hub, "--cache", cache) == 0
    picture = tmp_path / "pictures" / "grayscale.png"
    finished = subprocess.run(
        [*no_network, program("python"), "-c", CONVERT, ROOT / "examples" / "photograph.py", picture.parent],
        cwd=folder,
        env=user_environment(HF_HUB_CACHE=str(cache)),
        text=True,
        capture_output=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.strip() == f"{picture} []", finished.stdout
    assert Image.open(picture).size

    finished = kernel_actions(ROOT, "rollback", str(root), "--to", "v1.0.0", "--hub", hub)
    assert finished.returncode == 0, finished.stderr
    assert run(*asked) == 1
    assert "1.1.0 was rolled back" in capsys.readouterr().err
    assert run(*asked, "--mode", "update") == 0
    assert run(*asked, "--newest") == 0
