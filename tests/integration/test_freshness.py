"""`freshness` on a real kernel, an embedded Hub, and a server that stands in for GitHub's API."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.integration.conftest import ROOT, embedded_hub, kernel_actions
from tests.release.helpers import CPU, CUDA, Kernel

TOKEN = "ghs_planted"


class GitHub(ThreadingHTTPServer):
    """Issues of the repository me/tiny, and what was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.issues: list[dict[str, Any]] = []
        self.comments: list[str] = []
        self.asked: list[str] = []
        self.failing = 0


class _Handler(BaseHTTPRequestHandler):
    server: GitHub

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(200, self.server.issues[::-1])

    def do_POST(self) -> None:
        value = self._read()
        if self.path.endswith("/comments"):
            self.server.comments.append(value["body"])
            self._answer(201, {})
            return
        number = len(self.server.issues) + 1
        made = {"number": number, "state": "open", "html_url": f"https://github.com/me/tiny/issues/{number}"}
        self.server.issues.append(made | value)
        self._answer(201, self.server.issues[-1])

    def do_PATCH(self) -> None:
        (issue,) = [one for one in self.server.issues if self.path.endswith(f"/issues/{one['number']}")]
        issue |= self._read()
        self._answer(200, issue)

    def _read(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, code: int, value: object) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        assert self.path.startswith("/repos/me/tiny/issues")
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            code, value = 403, {"message": "no"}
        code = self.server.failing or code
        data = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def github() -> Iterator[GitHub]:
    """A server that stands in for GitHub."""
    with GitHub() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_one_issue_is_opened_kept_and_closed(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, "acme/relu")
    with embedded_hub(tmp_path / "hub") as hub, github() as server:
        variables = {
            "GITHUB_API_URL": f"http://127.0.0.1:{server.server_port}",
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
