"""What the documentation says to do is done, word for word."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.integration.conftest import ROOT, git, kernel_actions


@pytest.fixture(scope="module")
def first_kernel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernel of docs/first-kernel.md, of the files that stand there."""
    root = tmp_path_factory.mktemp("first") / "clamp01"
    text = (ROOT / "docs" / "first-kernel.md").read_text()
    files = re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", text, re.DOTALL)
    assert len(files) == 5
    for name, content in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    for name in ("flake.nix", "flake.lock"):
        shutil.copy(ROOT / name, root / name)
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message=feat: clamp to the unit range")
    return root


def test_the_first_kernel_goes_all_the_way(first_kernel: Path) -> None:
    for command in ("matrix", "build", "test", "pipeline"):
        finished = kernel_actions(ROOT, command, str(first_kernel))
        assert finished.returncode == 0, finished.stderr
    assert "clamp01" in finished.stdout
    # The builds are no concern of git's.
    assert git(first_kernel, "status", "--porcelain") == ""
