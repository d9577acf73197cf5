"""`freshness` on a real kernel, an embedded Hub, and a server that stands in for GitHub's API."""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration.conftest import ROOT, embedded_hub, kernel_actions
from tests.integration.github_api import TOKEN, github
from tests.release.helpers import CPU, CUDA, Kernel


def test_one_issue_is_opened_kept_and_closed(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, "acme/relu")
    with embedded_hub(tmp_path / "hub") as hub, github() as server:
        variables = {
            "GITHUB_API_URL": server.address,
            "GITHUB_REPOSITORY": "me/tiny",
            "KA_GITHUB_TOKEN": TOKEN,
        }

        def asked(*arguments: str, expected: int = 0) -> str:
            finished = kernel_actions(
                ROOT, "freshness", str(kernel.root), "--hub", hub, "--issue", *arguments, variables=variables
            )
            assert finished.returncode == expected, finished.stderr
            assert TOKEN not in finished.stdout + finished.stderr
            return finished.stdout if expected == 0 else finished.stderr

        found = json.loads(asked("--format", "json"))
        assert not found["fresh"] and found["issue"] == "https://github.com/me/tiny/issues/1"
        (issue,) = server.issues
        assert issue["labels"] == ["kernel-freshness"]
        assert "acme/relu is not on the Hub" in issue["body"]
        # Nothing has changed: nothing is written.
        before = len(server.asked)
        assert "https://github.com/me/tiny/issues/1" in asked()
        assert [one.partition(" ")[0] for one in server.asked[before:]] == ["GET"]
        # One of two variants is published: something else is missing, and people are told.
        kernel.build(CPU)
        assert kernel_actions(ROOT, "upload", str(kernel.root), "--hub", hub).returncode == 0
        asked()
        assert len(server.issues) == 1 and CUDA in issue["body"] and CUDA in server.comments[-1]
        kernel.build(CUDA)
        assert kernel_actions(ROOT, "upload", str(kernel.root), "--hub", hub).returncode == 0
        assert json.loads(asked("--format", "json"))["fresh"]
        assert issue["state"] == "closed" and "Nothing is out of date" in issue["body"]
        # GitHub refuses: one line that says what to do.
        server.failing = 403
        assert "give the job `issues: write`" in asked(expected=3).splitlines()[-1]
