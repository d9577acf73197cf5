"""Asking Nix about its settings and its store, and moving paths between stores."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple
from urllib.parse import urlsplit

from kernel_actions import built, console, process
from kernel_actions.errors import Place, WrongInput, WrongSurroundings
from kernel_actions.nix import cli, configuration, diagnostics, preflight
from kernel_actions.nix.log import plain

# Pauses before further attempts where the network failed, in seconds.
PAUSES = (2.0, 8.0)
# What `nix copy` needs to reach a store in an S3 bucket; nothing else gets it.
_CLOUD = re.compile(r"AWS_[A-Z_]+")


class Settings(NamedTuple):
    """Nix's effective settings, as far as builds depend on them.

    ``root`` is where a store that is not at its own path really is: what Nix calls /nix/store/x is at
    root/nix/store/x. ``systems`` are those that can be built for here; ``has_builders``: other machines
    build too. ``max_log`` is what a build may print, in bytes; empty where that has no limit.
    """

    sandbox: str
    build_dir: str
    store_dir: str
    root: str
    systems: tuple[str, ...]
    has_builders: bool
    max_jobs: str
    cores: str
    max_log: str

    def real(self, path: str) -> Path:
        """Where a store path is on this machine."""
        return Path(f"{self.root}{path}") if self.root and not path.startswith(self.root) else Path(path)


class PathInfo(NamedTuple):
    """A path of the store: bytes of it alone, and of all that it needs."""

    size: int
    closure_size: int


def settings() -> Settings:
    """The settings that a build would have. Raises ``WrongSurroundings`` without a Nix that works."""
    values = configuration.effective()

    def value(name: str, default: str = "") -> str:
        return values.get(name, default)

    system = value("system") or cli.this_system()
    return Settings(
        sandbox={"true": "true", "relaxed": "relaxed"}.get(value("sandbox"), "false"),
        build_dir=value("sandbox-build-dir", "/build"),
        store_dir=os.environ.get("NIX_STORE_DIR") or os.environ.get("NIX_STORE") or "/nix/store",
        root=_root(os.environ.get("NIX_REMOTE") or value("store", "auto")),
        systems=(system, *value("extra-platforms").split()),
        has_builders=_has_builders(value("builders")),
        max_jobs=value("max-jobs", "1"),
        cores=value("cores", "0"),
        max_log="" if value("max-build-log-size", "0") == "0" else value("max-build-log-size"),
    )


def version() -> str:
    """The version of Nix, as in ``2.8.0``."""
    found = re.search(r"\d+(?:\.\d+)+\S*", cli.run("--version").output)
    return found.group() if found else ""


def path_info(path: str) -> PathInfo | None:
    """The sizes of a store path; ``None`` when Nix does not tell them."""
    finished = cli.run("path-info", "--json", "--closure-size", path)
    infos = preflight.parse_path_info(finished.output) if finished.returncode == 0 else {}
    try:
        entry = next(iter(infos.values()))
        return PathInfo(int(entry["narSize"]), int(entry["closureSize"]))
    except (ValueError, KeyError, TypeError, StopIteration):
        return None


def closure(paths: Sequence[str]) -> list[str]:
    """``paths`` and all that they need. Raises ``WrongSurroundings``."""
    finished = process.run(["nix-store", "--query", "--requisites", *paths], environment=cli.environment())
    if finished.returncode != 0:
        raise WrongSurroundings(f"Nix cannot list what is needed: {cli.reason(finished.output)}")
    return [line for line in finished.output.splitlines() if line.startswith("/")]


# --- Copying to a cache ---


class Target(NamedTuple):
    """A cache to copy to: the address of a store, or the name of a cache at Cachix."""

    address: str

    @property
    def cachix(self) -> str:
        """The name of the cache at Cachix; empty for a store."""
        return "" if "://" in self.address else self.address.removeprefix("cachix:")

    @property
    def shown(self) -> str:
        """The address without what may be secret in it."""
        return process.without_credentials(self.address).partition("?")[0]

    @property
    def needs_token(self) -> bool:
        """Whether nobody can write there without a token."""
        return bool(self.cachix) or urlsplit(self.address).scheme in ("http", "https")


def target(text: str) -> Target:
    """The cache that ``--push-to`` names. Raises ``WrongInput``, ``WrongSurroundings`` without ``cachix``."""
    found = Target(text)
    if "://" in text:
        _check_address(text)
        return found
    name = found.cachix
    if name and not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", name):
        raise WrongInput(
            f"--push-to is {text[:80]!r}, which is neither the address of a store nor a cache's name",
            repair="give file:///folder, s3://bucket, https://host, ssh-ng://host, or a name at Cachix",
        )
    if name and shutil.which("cachix") is None:
        raise WrongSurroundings(
            "cachix is not installed", repair="install it: nix profile install nixpkgs#cachix"
        )
    return found


def _check_address(text: str) -> None:
    """Raise ``WrongInput`` for an address of a store that none can have, and for one with a password in it:
    arguments of programs are seen by every user of the machine."""
    shown = process.without_credentials(text)[:80]
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - it is read, and refused, when it is asked for
    except ValueError as error:
        raise WrongInput(f"--push-to is {shown!r}, which is no address: {error}") from error
    if parts.password is not None:
        raise WrongInput(
            f"--push-to has a password in it: {shown}",
            repair="give it by push-token, and let the address have the user's name alone",
        )
    if not (parts.path.strip("/") if parts.scheme == "file" else parts.hostname):
        raise WrongInput(f"--push-to is {shown!r}, which names no place", repair="as in file:///folder")


def push(to: Target, path: str, token: str, deadline: float) -> float:
    """Copy a path and all that it needs to a cache, and return the seconds it took.

    The token is in the environment of that one program, or in a file that only this user can read and that
    is removed again. Raises ``WrongSurroundings`` when it cannot be copied.
    """
    started = time.monotonic()
    with _credentials(to, token) as (options, variables):
        if to.cachix:
            command: list[str] = ["cachix", "push", to.cachix, path]
        else:
            command = [*cli.NIX, "copy", "--to", to.address, *options, path]
        finished = retried(
            lambda: process.run(
                command,
                environment=cli.environment() | variables,
                time_limit=max(1.0, deadline - time.monotonic()),
            ),
            is_network=lambda one: one.returncode != 0 and diagnostics.is_network(plain(one.output)),
            what=f"copying to {to.shown}",
        )
    if finished.returncode != 0:
        reason = cli.reason(finished.output).replace(token, "***") if token else cli.reason(finished.output)
        raise WrongSurroundings(f"cannot copy to {to.shown}: {reason}")
    return time.monotonic() - started


@contextlib.contextmanager
def _credentials(to: Target, token: str) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Options and variables by which one program may write to the cache."""
    if to.cachix:
        variables = {"CACHIX_AUTH_TOKEN": token} if token else {}
        key = os.environ.get("CACHIX_SIGNING_KEY")
        yield [], variables | ({"CACHIX_SIGNING_KEY": key} if key else {})
        return
    scheme, host = urlsplit(to.address).scheme, urlsplit(to.address).hostname
    if scheme == "s3":
        yield [], {name: value for name, value in os.environ.items() if _CLOUD.fullmatch(name)}
        return
    if scheme not in ("http", "https") or not token or host is None:
        yield [], {}
        return
    if re.search(r"\s", token):
        raise WrongInput("the token for the cache has white space in it")
    # mkstemp makes files that only this user can read.
    descriptor, name = tempfile.mkstemp(
        prefix="kernel-actions-netrc-", dir=os.environ.get("RUNNER_TEMP") or None
    )
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            login = urlsplit(to.address).username or "kernel-actions"
            file.write(f"machine {host}\nlogin {login}\npassword {token}\n")
        yield ["--option", "netrc-file", name], {}
    finally:
        Path(name).unlink(missing_ok=True)


# --- Closures as files ---


def export(paths: Sequence[str], file: Path) -> int:
    """Write ``paths`` and all that they need into ``file``, compressed, and return its size in bytes.

    The format is that of ``nix-store --export`` in zstd; the last path in it is one that no other needs.
    Raises ``WrongSurroundings``.
    """
    if file.is_dir():
        raise WrongInput("is a folder", where=Place(file), repair="name a file in it, as tests.nar.zst")
    listed = closure(paths)
    with built.written_whole(file) as target:
        _pipe(
            ["nix-store", "--export", *listed],
            [_zstd(), "--quiet", "--threads=0", "--stdout"],
            f"cannot export to {file}",
            target,
        )
        return os.fstat(target.fileno()).st_size


def import_closure(file: Path) -> list[str]:
    """Put what ``export`` wrote into this machine's store, and return the paths, what was exported last.

    Nix takes paths without a signature only from root, or who is as good as root (``trusted-users``).
    Raises ``WrongInput`` for a file that is none, ``WrongSurroundings`` when Nix does not take it.
    """
    if not file.is_file():
        raise WrongInput("there is no such file", where=Place(file), repair="download or export it first")
    output = _pipe(
        [_zstd(), "--quiet", "--decompress", "--stdout", str(file)],
        ["nix-store", "--import"],
        f"cannot import {file}",
    )
    paths = [line for line in output.splitlines() if line.startswith("/")]
    if not paths:
        raise WrongInput("holds no paths of a Nix store", where=Place(file))
    return paths


def _zstd() -> str:
    found = shutil.which("zstd")
    if found is None:
        raise WrongSurroundings("zstd is not installed", repair="install it, then run again")
    return found


def _pipe(first: Sequence[str], second: Sequence[str], failed: str, target: BinaryIO | None = None) -> str:
    """Run ``first | second``, and return what the second prints, unless that is for ``target``. Both end with
    this process's clean-up."""
    variables = cli.environment()
    with tempfile.TemporaryFile() as said:
        source = subprocess.Popen(
            first, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, env=variables,
            start_new_session=True,
        )  # fmt: skip
        try:
            sink = subprocess.Popen(
                second, stdin=source.stdout, stdout=target or subprocess.PIPE, stderr=said,
                env=variables, start_new_session=True,
            )  # fmt: skip
            try:
                assert source.stdout is not None
                source.stdout.close()
                output = (sink.communicate()[0] or b"").decode(errors="replace")
                codes = (source.wait(), sink.returncode)
            finally:
                process.end_group(sink)
        finally:
            process.end_group(source)
        said.seek(0)
        text = plain(said.read().decode(errors="replace"))
    if codes != (0, 0):
        why = cli.reason(text) if text.strip() else "what comes is no export of a Nix store"
        raise WrongSurroundings(f"{failed}: {why}", repair=_repair(text))
    return output


def _repair(text: str) -> str:
    if "signature" in text or "trusted" in text or "privileged" in text:
        return "import as root, or have the runner's user in trusted-users of nix.conf"
    if "No space left" in text:
        return "free some space, then run again"
    return "it is cut off, or no export: get it again" if "end-of-file" in text or not text.strip() else ""


# --- Running Nix ---


def retried(
    run: Callable[[], process.Finished], is_network: Callable[[process.Finished], bool], what: str
) -> process.Finished:
    """What ``run`` gives, again after a pause where the network failed."""
    for number, pause in enumerate(PAUSES):
        finished = run()
        if not is_network(finished):
            return finished
        console.say(
            f"The network failed ({cli.reason(finished.output)}): {what} again in "
            f"{console.duration(pause)}, attempt {number + 2} of {len(PAUSES) + 1}"
        )
        time.sleep(pause)
    return run()


def _root(address: str) -> str:
    """The folder that a store is in which is not at its own path: ``/folder``, or ``local?root=/folder``."""
    if address.startswith("/"):
        return address.partition("?")[0].rstrip("/")
    scheme, _, query = address.partition("?")
    if scheme.removesuffix("://") == "local":
        for part in query.split("&"):
            if part.startswith("root="):
                return part.removeprefix("root=").rstrip("/")
    return ""


def _has_builders(value: str) -> bool:
    """Whether Nix may build on other machines: the setting ``builders`` names them, or a file that does."""
    for part in re.split(r"[;\n]", value):
        if part.strip().startswith("@"):
            with contextlib.suppress(OSError):
                lines = Path(part.strip()[1:]).read_text(encoding="utf-8").splitlines()
                if any(line.strip() and not line.strip().startswith("#") for line in lines):
                    return True
        elif part.strip():
            return True
    return False
