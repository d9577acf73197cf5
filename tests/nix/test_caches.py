"""Builds and binary caches: what is copied there at once, what is taken from there, and what is not."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.nix.conftest import CPU, CPU_NEW, Machine, change, last_line, make_kernel, report

# How long the build of these kernels takes at least, in seconds.
SLOW = 4


class Keys:
    """A key pair for signatures."""

    def __init__(self, folder: Path, name: str) -> None:
        self.secret = folder / f"{name}.secret"
        run = ["nix", "--extra-experimental-features", "nix-command", "key"]
        self.secret.write_bytes(subprocess.check_output([*run, "generate-secret", "--key-name", name]))
        self.public = subprocess.check_output(
            [*run, "convert-secret-to-public"], input=self.secret.read_bytes()
        ).decode()


@pytest.fixture
def slow_kernel(tmp_path: Path) -> Path:
    kernel = make_kernel(tmp_path / "tiny")
    change(kernel, {"before-build.sh": f"sleep {SLOW}\n"})
    return kernel


def test_an_empty_store_is_served_from_the_cache_that_was_pushed_to(
    machine: Machine, slow_kernel: Path, tmp_path: Path
) -> None:
    keys = Keys(tmp_path, "right-1")
    cache = f"file://{tmp_path}/cache"
    first = machine.build(slow_kernel, CPU, options=[f"--push-to={cache}?secret-key={keys.secret}"])
    assert first.returncode == 0, first.stderr
    assert f"Copied {CPU} to {cache} in " in first.stderr and "secret" not in first.stderr
    built = report(slow_kernel, CPU)
    assert (built["origin"], built["pushed"]) == ("built", cache) and built["seconds"] >= SLOW
    metadata = (slow_kernel / "build" / CPU / "metadata.json").read_bytes()

    other = Machine(tmp_path / "other")
    other.lines = [f"substituters = {cache}", f"trusted-public-keys = {keys.public}"]
    (slow_kernel / "build" / f"{CPU}.build-report.json").unlink()
    second = other.build(slow_kernel, CPU)
    assert second.returncode == 0, second.stderr
    fetched = report(slow_kernel, CPU)
    assert (fetched["origin"], fetched["cache"], fetched["built"]) == ("fetched", cache, 0)
    assert fetched["fetched"] == 1 and fetched["fetched_bytes"] > 10_000
    assert fetched["store_path"] == built["store_path"]
    assert f"fetched from {cache}" in second.stdout and "building" not in second.stderr
    assert (slow_kernel / "build" / CPU / "metadata.json").read_bytes() == metadata
    # What took seconds of building takes none of them.
    assert fetched["seconds"] < built["seconds"]


@pytest.mark.parametrize("fault", ["unsigned", "wrong key"])
def test_what_nobody_trusted_has_signed_is_built_and_reported(
    machine: Machine, tmp_path: Path, fault: str
) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    right, wrong = Keys(tmp_path, "right-1"), Keys(tmp_path, "wrong-1")
    signed = f"?secret-key={wrong.secret}" if fault == "wrong key" else ""
    cache = f"file://{tmp_path}/cache"
    assert machine.build(kernel, CPU, options=[f"--push-to={cache}{signed}"]).returncode == 0
    other = Machine(tmp_path / "other")
    other.lines = [f"substituters = {cache}", f"trusted-public-keys = {right.public}"]
    other.variables = {"GITHUB_ACTIONS": "true"}
    finished = other.build(kernel, CPU, options=["--format=github"])
    assert finished.returncode == 0, finished.stderr
    assert report(kernel, CPU)["origin"] == "built"
    warning = (
        f"::warning title=Nix::1 path of {cache} not taken from the cache: no key of trusted-public-keys"
    )
    assert warning in finished.stderr


def test_a_cache_that_does_not_answer_is_reported(machine: Machine, tmp_path: Path) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    machine.lines = ["substituters = http://127.0.0.1:9/", "download-attempts = 1"]
    finished = machine.build(kernel, CPU)
    assert finished.returncode == 0, finished.stderr
    assert "Nix warns: unable to download 'http://127.0.0.1:9/nix-cache-info'" in finished.stderr
    assert report(kernel, CPU)["origin"] == "built"


class _Cache(BaseHTTPRequestHandler):
    """A binary cache over HTTP that takes uploads of who has the token, and can fail."""

    folder: Path
    failures: int
    seen: list[str]

    def do_GET(self) -> None:
        path = self.folder / self.path.lstrip("/")
        kind = type(self)
        if "/nar/" in self.path and kind.failures > 0:
            kind.failures -= 1
            self._answer(503, b"")
        else:
            self._answer(200 if path.is_file() else 404, path.read_bytes() if path.is_file() else b"")

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        allowed = base64.b64encode(b"kernel-actions:hunter2").decode()
        if self.headers.get("Authorization") != f"Basic {allowed}":
            self._answer(401, b"")
            return
        self.seen.append(self.path)
        path = self.folder / self.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self._answer(201, b"")

    def _answer(self, code: int, data: bytes) -> None:
        self.send_response(code)
        if code == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="cache"')
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, type[_Cache]]]:
    handler = type("Cache", (_Cache,), {"folder": tmp_path / "served", "failures": 0, "seen": []})
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "nix-cache-info").write_text("StoreDir: /nix/store\n")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}", handler
        running.shutdown()


def test_a_token_goes_to_the_cache_and_nowhere_else(
    machine: Machine, tmp_path: Path, server: tuple[str, type[_Cache]]
) -> None:
    address, handler = server
    kernel = make_kernel(tmp_path / "tiny")
    # The build looks for what it should not see.
    change(
        kernel,
        {"before-build.sh": "if cat /proc/*/environ | grep -a hunter; then exit 1; fi\n"},
    )
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    machine.variables = {"RUNNER_TEMP": str(temporary)}
    without = machine.build(kernel, CPU, options=[f"--push-to={address}"])
    assert without.returncode == 0, without.stderr
    assert f"No token: what is built is not copied to {address}" in without.stderr and not handler.seen
    machine.variables["KA_PUSH_TOKEN"] = "hunter2"
    finished = machine.build(kernel, CPU, options=[f"--push-to={address}"])
    assert finished.returncode == 0, finished.stderr
    assert any(path.endswith(".narinfo") for path in handler.seen)
    assert "hunter2" not in finished.stdout + finished.stderr
    assert list(temporary.iterdir()) == []
    assert report(kernel, CPU)["pushed"] == address


@pytest.mark.slow
def test_a_cache_that_refuses_loses_no_build(
    machine: Machine, tmp_path: Path, server: tuple[str, type[_Cache]]
) -> None:
    address, handler = server
    kernel = make_kernel(tmp_path / "tiny")
    machine.variables = {"KA_PUSH_TOKEN": "wrong"}
    finished = machine.build(kernel, CPU, CPU_NEW, options=[f"--push-to={address}"])
    assert finished.returncode == 3
    assert finished.stderr.count("is built, but not pushed: cannot copy to") == 2
    assert (kernel / "build" / CPU).is_dir() and (kernel / "build" / CPU_NEW).is_dir() and not handler.seen


def test_a_network_that_fails_is_tried_again(
    machine: Machine, tmp_path: Path, server: tuple[str, type[_Cache]]
) -> None:
    address, handler = server
    kernel = make_kernel(tmp_path / "tiny")
    pushed = machine.build(kernel, CPU, options=[f"--push-to=file://{tmp_path}/served"])
    assert pushed.returncode == 0, pushed.stderr
    other = Machine(tmp_path / "other")
    other.lines = [f"substituters = {address}", "require-sigs = false", "download-attempts = 1"]
    handler.failures = 1
    finished = other.build(kernel, CPU)
    assert finished.returncode == 0, finished.stderr
    assert "The network failed (" in finished.stderr and "again in 2.0 s" in finished.stderr
    assert report(kernel, CPU)["origin"] == "fetched"


def test_an_address_that_is_none(machine: Machine, tmp_path: Path) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    finished = machine.build(kernel, CPU, options=["--push-to=Not a cache"])
    assert finished.returncode == 2 and "neither the address of a store" in last_line(finished)
    machine.variables = {"PATH": _path_without(tmp_path, "cachix")}
    finished = machine.build(kernel, CPU, options=["--push-to=mine"])
    assert finished.returncode == 3 and "cachix is not installed" in last_line(finished)


def test_cachix_gets_its_token(machine: Machine, tmp_path: Path) -> None:
    kernel = make_kernel(tmp_path / "tiny")
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "cachix").write_text(f'#!/bin/sh\necho "$@ $CACHIX_AUTH_TOKEN" >> {tmp_path}/called\n')
    (programs / "cachix").chmod(0o755)
    machine.variables = {"PATH": f"{programs}:{os.environ['PATH']}", "CACHIX_AUTH_TOKEN": "hunter2"}
    finished = machine.build(kernel, CPU, options=["--push-to=mine"])
    assert finished.returncode == 0, finished.stderr
    assert (tmp_path / "called").read_text() == f"push mine {report(kernel, CPU)['store_path']} hunter2\n"


def _path_without(folder: Path, name: str) -> str:
    """The PATH without the folders that have a program."""
    kept = [one for one in os.environ["PATH"].split(":") if not (Path(one) / name).exists()]
    return ":".join(kept)
