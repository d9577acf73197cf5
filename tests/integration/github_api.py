"""A server that stands in for GitHub's API."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "ghs_planted"


class GitHub(ThreadingHTTPServer):
    """The issues and releases of the repository me/tiny, and what was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.issues: list[dict[str, Any]] = []
        self.comments: list[str] = []
        self.releases: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.failing = 0

    @property
    def address(self) -> str:
        """Where it is asked."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: GitHub

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        if "/releases/" in self.path:
            made = [one for one in self.server.releases if self.path.endswith(f"/tags/{one['tag_name']}")]
            self._answer(200 if made else 404, made[0] if made else {})
            return
        self._answer(200, self.server.issues[::-1])

    def do_POST(self) -> None:
        value = self._read()
        if self.path.endswith("/comments"):
            self.server.comments.append(value["body"])
            self._answer(201, {})
            return
        if self.path.endswith("/releases"):
            self.server.releases.append(value)
            self._answer(201, value)
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
        assert self.path.startswith("/repos/me/tiny/")
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
