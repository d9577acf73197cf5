"""A proxy before an embedded Hub that does one thing wrong, at one request."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

_IS_WRITE = re.compile("/repos/create$|/(branch|tag|commit)/")
_NAMES = re.compile(r"[0-9a-f]{40,64}")
_STATUS = {
    "500": (500, {}),
    "429": (429, {"Retry-After": "0"}),
    "429-date": (429, {}),
    "412": (412, {"X-Error-Message": "A commit has happened since"}),
    "401": (401, {"X-Error-Message": "Invalid credentials"}),
    "403": (403, {"X-Error-Message": "You may not write here"}),
}
# What can go wrong: before the Hub hears of the request, or after it has done what was asked.
BEFORE = ("reset", "timeout", "500", "429", "429-date", "412", "401", "kill")
AFTER = ("reset-after", "reset-within", "truncated", "wrong-hash", "slow", "kill-after")
FAULTS = BEFORE + AFTER


@dataclass
class Faulty:
    """Passes requests on to ``target``. The one of number ``at`` (from 0) meets ``fault``, as often as
    ``times`` says, counting every request after it; ``seen`` has what was asked for, without ids. Where
    ``match`` is a pattern, it is the first request that it matches in place of a number.

    It can stand for another Hub than an embedded one: ``is_foreign``, it does not say that it is one, and
    with ``lag``, branches and tags are listed as they were until so many seconds after each write."""

    target: str
    at: int = -1
    fault: str = ""
    times: int = 1
    match: str = ""
    seen: list[str] = field(default_factory=list)
    victim: int = 0
    hold: float = 1.5
    is_foreign: bool = False
    lag: float = 0.0
    # The bytes of objects that were sent.
    objects: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._refs: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self._lags_until = 0.0
        parts = urlsplit(self.target)
        host, port = parts.hostname or "", parts.port or 0
        faulty = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                faulty._serve(self, host, port)

            do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _serve

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_unused: None  # type: ignore[method-assign]
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def arm(self, at: int = -1, fault: str = "", times: int = 1, match: str = "") -> None:
        """Count anew, and do ``fault`` at the request ``at``, or at the first that ``match`` matches."""
        with self._lock:
            self.at, self.fault, self.times, self.match = at, fault, times, match
            self.seen = []

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, handler: Any, host: str, port: int) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        if "chunked" in handler.headers.get("Transfer-Encoding", ""):
            body = _chunks(handler.rfile)
        if handler.command == "PUT":
            with self._lock:
                self.objects += len(body)
        fault = self._fault(handler)
        if fault == "kill":
            self._kill()
        if fault in ("reset", "kill"):
            return _reset(handler)
        if fault == "timeout":
            time.sleep(self.hold)
            return _reset(handler)
        if fault in _STATUS:
            status, headers = _STATUS[fault]
            if fault == "429-date":
                headers = {"Retry-After": formatdate(time.time() - 1, usegmt=True)}
            return _answer(handler, status, headers, json.dumps({"error": "no"}).encode())
        if self.is_foreign and handler.path == "/api/embedded-hub":
            return _answer(handler, 404, {}, b"")
        if time.monotonic() < self._lags_until and handler.path in self._refs:
            return _answer(handler, *self._refs[handler.path])
        if fault == "wrong-hash" and handler.command == "PUT":
            body = body[:-1] + bytes([body[-1] ^ 1])
        connection = http.client.HTTPConnection(host, port, timeout=60)
        headers = {name: value for name, value in handler.headers.items() if name.lower() not in _HOP}
        if body or handler.command in ("POST", "PUT"):
            headers["Content-Length"] = str(len(body))
        connection.request(handler.command, handler.path, body, headers)
        answer = connection.getresponse()
        data = answer.read()
        kept = {name: value for name, value in answer.getheaders() if name.lower() not in _HOP}
        if handler.command == "HEAD":
            kept["Content-Length"] = answer.getheader("Content-Length", "0")
        connection.close()
        if handler.path.endswith("/refs"):
            self._refs[handler.path] = (answer.status, kept, data)
        if _IS_WRITE.search(handler.path) and handler.command != "GET":
            self._lags_until = time.monotonic() + self.lag
        if fault == "kill-after":
            self._kill()
        if fault in ("reset-after", "kill-after"):
            return _reset(handler)
        if fault == "wrong-hash" and handler.command == "GET" and data:
            data = data[:-1] + bytes([data[-1] ^ 1])
        _answer(handler, answer.status, kept, data, fault)

    def _kill(self) -> None:
        assert self.victim > 0, "nobody to be killed"
        os.kill(self.victim, signal.SIGKILL)

    def _fault(self, handler: Any) -> str:
        if handler.path == "/api/embedded-hub":
            return ""
        with self._lock:
            number = len(self.seen)
            path = _NAMES.sub("*", handler.path.partition("?")[0])
            self.seen.append(f"{handler.command} {path}")
            if self.at < 0 and self.match and re.search(self.match, self.seen[-1]):
                self.at = number
            is_now = self.at >= 0 and self.at <= number < self.at + self.times
            return self.fault if is_now else ""


_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive", "expect"}


def _chunks(stream: Any) -> bytes:
    data = b""
    while size := int(stream.readline(), 16):
        data += stream.read(size)
        stream.readline()
    stream.readline()
    return data


def _answer(handler: Any, status: int, headers: dict[str, str], data: bytes, fault: str = "") -> None:
    handler.send_response_only(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    if "Content-Length" not in headers:
        handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    if handler.command == "HEAD":
        return
    if fault in ("truncated", "reset-within"):
        handler.wfile.write(data[: len(data) // 2])
        handler.wfile.flush()
        return _reset(handler, is_hard=fault == "reset-within")
    if fault == "slow":
        step = max(1, len(data) // 10)
        for start in range(0, len(data), step):
            handler.wfile.write(data[start : start + step])
            handler.wfile.flush()
            time.sleep(0.02)
        return None
    handler.wfile.write(data)
    return None


def _reset(handler: Any, *, is_hard: bool = True) -> None:
    """Close the connection; hard: by a packet that says so (RST)."""
    handler.close_connection = True
    if is_hard:
        linger = struct.pack("ii", 1, 0)
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    handler.connection.shutdown(socket.SHUT_RDWR) if not is_hard else handler.connection.close()


def in_child(act: Callable[[], None], faulty: Faulty) -> int:
    """Run ``act`` in a forked process that ``faulty`` may kill: its exit code, negative for a signal."""
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            from huggingface_hub.utils._http import close_session

            # The connections that this process has are the other one's.
            close_session()
            os.read(ready, 1)
            act()
            code = 0
        finally:
            os._exit(code)
    faulty.victim = child
    os.write(go, b"x")
    _, status = os.waitpid(child, 0)
    faulty.victim = 0
    os.close(ready)
    os.close(go)
    return os.waitstatus_to_exitcode(status)
