"""templates/workflows/kernels-lock.yml, copied or called, by act: a newer commit becomes a pull request."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from huggingface_hub import HfApi

from tests.consumers.helpers import CPU, CUDA, project, publish, run
from tests.integration.conftest import ROOT, act, caller, git

# In place of gh: writes down what it was asked, and what the text of the pull request was.
GH = """#!/usr/bin/env bash
printf '%s\\n' "$*" >> "$GH_LOG"
[ "$1 $2" = "pr list" ] && [ -e "$GH_LOG.open" ] && echo 7
for argument in "$@"; do [ -f "$argument" ] && cat "$argument" >> "$GH_LOG"; done
[ "$1 $2" = "pr create" ] && touch "$GH_LOG.open"
exit 0
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_called", [False, True])
def test_the_template_opens_a_pull_request_and_keeps_it_up_to_date(
    api: HfApi, hub: str, repo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_called: bool
) -> None:
    publish(api, repo, [CPU, CUDA], release="1.0.0")
    author = project(tmp_path / "author", {repo: 1})
    assert run("lock", "--mode", "update", "--project", author, "--hub", hub) == 0
    workflows = author / ".github" / "workflows"
    workflows.mkdir(parents=True)
    if is_called:
        (workflows / "kernels-lock.yml").write_text(caller("kernels-lock", "workflow_dispatch", {"hub": hub}))
    else:
        shutil.copy(ROOT / "templates" / "workflows" / "kernels-lock.yml", workflows)
    git(author, "init", "--quiet", "--initial-branch=main")
    git(author, "add", "--all")
    git(author, "commit", "--quiet", "--message=All")
    origin = tmp_path / "origin.git"
    git(author, "clone", "--quiet", "--bare", str(author), str(origin))
    log = tmp_path / "gh.log"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gh").write_text(GH)
    (tmp_path / "bin" / "gh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")

    def tried(name: str) -> str:
        finished = act(
            author, tmp_path / name, "workflow_dispatch", "--no-skip-checkout",
            "--env", f"ORIGIN=file://{origin}", "--env", f"GH_LOG={log}", "--env", f"HF_ENDPOINT={hub}",
            "--var", f"KERNEL_HUB={hub}", "--secret", "GITHUB_TOKEN=ghs_planted", workflow="kernels-lock",
        )  # fmt: skip
        assert finished.returncode == 0, finished.stdout + finished.stderr
        assert "ghs_planted" not in finished.stdout
        return log.read_text() if log.exists() else ""

    # Nothing is newer: no pull request.
    assert tried("first") == ""
    newer = publish(api, repo, [CPU], release="1.1.0")
    said = tried("second")
    assert "pr create --head kernels-lock --title Update kernels.lock" in said
    assert f"{newer[:12]} (1.1.0)" in said and CUDA in said.replace("\\", "")
    locked = json.loads(git(origin, "show", "kernels-lock:kernels.lock"))
    assert locked[0]["lock"]["commit"] == newer
    assert git(origin, "diff", "--name-only", "main", "kernels-lock").split() == ["kernels.lock"]
    newest = publish(api, repo, [CPU, CUDA], release="1.2.0")
    said = tried("third")
    assert said.count("pr create") == 1 and "pr edit kernels-lock" in said
    locked = json.loads(git(origin, "show", "kernels-lock:kernels.lock"))
    assert locked[0]["lock"]["commit"] == newest
