"""The pipeline where the Hub, the network or the file system do not play along."""

from __future__ import annotations

import http.client
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.integration.conftest import environment, kernel_actions
from tests.integration.test_workflows import embedded_hub
from tests.tools import needs

pytestmark = pytest.mark.slow

# A fault answers a request in the Hub's place (status and body), or lets it through (``None``).
Fault = Callable[[str, str], "tuple[int, bytes] | None"]


@contextmanager
def faulty_hub(data: Path, fault: Fault) -> Iterator[str]:
    """The address of a proxy before an embedded Hub, which asks ``fault`` about each request."""

    with embedded_hub(data) as address:
        host = address.removeprefix("http://")

        class Proxy(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _handle(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                answer = fault(self.command, self.path)
                if answer is not None:
                    status, text = answer
                    headers = [("Content-Length", str(len(text)))]
                else:
                    # The Host header goes with the rest: the Hub's links lead back through here.
                    hub = http.client.HTTPConnection(host, timeout=60)
                    hub.request(self.command, self.path, body, dict(self.headers))
                    response = hub.getresponse()
                    text, status = response.read(), response.status
                    # What the client gets has no encoding of its own; HEAD tells the length of GET.
                    dropped = {"transfer-encoding", "connection"} | (
                        set() if self.command == "HEAD" else {"content-length"}
                    )
                    headers = [one for one in response.getheaders() if one[0].lower() not in dropped]
                    if self.command != "HEAD":
                        headers.append(("Content-Length", str(len(text))))
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(text)

            do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _handle

            def log_message(self, *_arguments: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def _on_commit(answer: tuple[int, bytes], times: int) -> Fault:
    """Answers the first commits that way."""
    left = [times]

    def fault(method: str, path: str) -> tuple[int, bytes] | None:
        if method == "POST" and "/commit/" in path and left[0]:
            left[0] -= 1
            return answer
        return None

    return fault


def test_a_hub_that_fails_is_one_line_and_the_next_run_finishes(built_copy: Path, tmp_path: Path) -> None:
    fault = _on_commit((500, b"{}"), times=50)
    with faulty_hub(tmp_path / "hub", fault) as address:
        failed = kernel_actions(built_copy, "pipeline", "--hub", address)
    assert failed.returncode == 3
    assert "500" in failed.stderr.splitlines()[-1]
    assert "Traceback" not in failed.stderr
    with embedded_hub(tmp_path / "hub") as address:
        again = kernel_actions(built_copy, "pipeline", "--hub", address)
    assert again.returncode == 0, again.stderr


def test_a_commit_of_somebody_else_is_planned_around(built_copy: Path, tmp_path: Path) -> None:
    fault = _on_commit((412, b'{"error": "A commit has happened since."}'), times=1)
    with faulty_hub(tmp_path / "hub", fault) as address:
        finished = kernel_actions(built_copy, "pipeline", "--hub", address)
    assert finished.returncode == 0, finished.stderr
    assert "planning anew" in finished.stderr


def test_a_slow_hub_is_waited_for(built_copy: Path, tmp_path: Path) -> None:
    def fault(_method: str, _path: str) -> None:
        time.sleep(0.3)

    with faulty_hub(tmp_path / "hub", fault) as address:
        finished = kernel_actions(built_copy, "pipeline", "--hub", address)
    assert finished.returncode == 0, finished.stderr


@needs("root", "mounts", "ip")
def test_no_network_is_needed_once_the_environment_is_made(built_copy: Path) -> None:
    source = built_copy / "torch-ext" / "grayscale" / "__init__.py"
    source.write_text(source.read_text() + "\n# changed\n")
    # A network of its own, in which there is the loopback interface and nothing else.
    finished = subprocess.run(
        ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$0" pipeline',
         built_copy / "scripts" / "kernel-actions"],
        cwd=built_copy, env=environment(), text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr


@needs("mounts")
def test_a_folder_that_cannot_be_written_is_one_line(built_copy: Path) -> None:
    # Root writes anywhere but on a file system that is mounted read-only.
    finished = subprocess.run(
        ["unshare", "--mount", "sh", "-c",
         'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && exec "$0" pipeline "$1"',
         built_copy / "scripts" / "kernel-actions", built_copy],
        cwd="/", env=environment(), text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 3
    assert "Read-only file system" in finished.stderr.splitlines()[-1]
    assert "Traceback" not in finished.stderr
