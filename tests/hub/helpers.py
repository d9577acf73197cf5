"""An embedded Hub in a process of its own, and built kernels to upload to it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from huggingface_hub import HfApi
from kernel_actions.cli import Options

PROGRAM = Path(__file__).resolve().parents[2] / "scripts" / "kernel_actions"
REPO = "acme/relu"
VARIANT = "torch-cpu"


class Server:
    """An embedded Hub as its users start it: by the command, in a process."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", str(PROGRAM), "hub", "--data", str(self.data), "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        self.url = self.line.split()[3] if self.line else ""

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Signal the server; its exit code and what it said on stderr."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=20)
        return self.process.returncode, errors

    def api(self) -> HfApi:
        """The real client, unpatched."""
        return HfApi(endpoint=self.url, token="unused")


class ForeignHub:
    """Answers every request with ``status`` and ``message``, and remembers who asked."""

    def __init__(self) -> None:
        self.status = 403
        self.message = "Forbidden"
        self.tokens: list[str] = []
        foreign = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                foreign.tokens.append(self.headers.get("Authorization", ""))
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                is_known = not self.path.endswith("embedded-hub")
                self.send_response(foreign.status if is_known else 404)
                self.send_header("X-Error-Message", foreign.message)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_POST = do_GET

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def write_kernel(folder: Path, version: int = 1, variant: str = VARIANT, builder: str = "nix") -> Path:
    """A kernel of Python alone, built: its folder."""
    folder.mkdir(exist_ok=True)
    (folder / "build.toml").write_text(
        f'[general]\nname = "relu"\nversion = {version}\nedition = 5\nlicense = "Apache-2.0"\n'
        f'backends = ["cpu"]\n\n[general.hub]\nrepo-id = "{REPO}"\n\n[torch-noarch]\n'
    )
    write_variant(folder / "build", version, variant, builder)
    return folder


def write_variant(build_dir: Path, version: int = 1, variant: str = VARIANT, builder: str = "nix") -> Path:
    """A built variant with a text file and a binary one."""
    target = build_dir / variant
    target.mkdir(parents=True, exist_ok=True)
    metadata = {
        "name": "relu",
        "id": f"_relu_cpu_{version}",
        "version": version,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": "cpu"},
    }
    (target / "metadata.json").write_text(json.dumps(metadata))
    (target / "__init__.py").write_text(
        f"VARIANT = {variant!r}\n\n\ndef relu(values):\n    return [max(value, 0) for value in values]\n"
    )
    (target / "table.bin").write_bytes(bytes(range(256)) * 8)
    if builder:
        (build_dir / f"{variant}.build-report.json").write_text(json.dumps({"builder": builder}))
    return target


def upload_options(kernel: Path, hub: str, **changed: object) -> Options:
    """Options of the command `upload`, with their defaults."""
    values: dict[str, object] = {
        "kernel_dirs": [kernel],
        "build_dir": "build",
        "repo_id": "",
        "branch": "",
        "create_pr": False,
        "dry_run": False,
        "hub": hub,
        "allow_local_build": False,
        "token": "",
        "format": "json",
    }
    return Options(**{**values, **changed})
