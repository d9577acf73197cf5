"""What can be known before a build: that the sandbox is on, that the caches answer and their signatures
verify, and what will be fetched and what built. Nix itself is asked for all of it."""

from __future__ import annotations

import contextlib
import difflib
import json
import re
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from kernel_actions import console, process
from kernel_actions.errors import Place, WrongInput, WrongSurroundings, printable
from kernel_actions.nix import cli, diagnostics, evaluation
from kernel_actions.nix.log import short_name

Sandbox = Literal["on", "off", "unavailable"]

# What takes hours to compile, or is a sign that all would be: the builder's cache has it. The names are
# those of nixpkgs and of the builder's own packages, and go on with a version.
HEAVY = (
    (re.compile(r"(?:python3[\d.]*-)?torch-\d"), "torch"),
    (re.compile(r"(?:python3[\d.]*-)?triton(?:-llvm|-rocm|-xpu)?-\d"), "triton"),
    (re.compile(r"gcc(?:\d*-unwrapped)?-\d"), "gcc"),
    (re.compile(r"glibc-\d"), "glibc"),
    (re.compile(r"(?:llvm|clang|rocm-llvm|rocm-merged|aotriton)-\d"), "a compiler"),
    (re.compile(r"(?:cuda_nvcc|cuda\d*[\d.]*-cuda_nvcc|cudatoolkit|cudnn|libcublas|nccl)-\d"), "CUDA"),
)
# Sources of what is heavy, which are fetched by derivations of their own.
_SOURCE = re.compile(r"\.(?:tar(?:\.\w+)?|tgz|zip|whl|rpm|deb|patch|diff|run|exe)$")
_SIZE = re.compile(r"([\d.]+) ([KMGT]?)i?B download, ([\d.]+) ([KMGT]?)i?B unpacked")
_HEADING = re.compile(r"^(?:this|these)\b.*\b(derivations?|paths?) will be (built|fetched)\b")
_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
# How Nix says that the kernel refuses a part of the sandbox.
_NAMESPACES = re.compile(
    r"kernel namespaces|unable to start build process|unable to make '/' private|/uid_map'"
    r"|(?:cloning|unshare|setuid|mounting|user namespace|private mount).*(?:not permitted|denied|Invalid)"
)
# A name that is a folder's, and needs no quotes anywhere.
VARIANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,150}")
# In seconds: how long a cache may take to answer, and the pause before it is asked again.
_CACHE_PATIENCE = 15
_PAUSE = 1.0
_ATTEMPTS = 3
# In seconds. Evaluating nixpkgs takes a minute for each variant on a slow machine, after it was fetched.
_EVALUATION = 3600.0
# Paths on one argument list, which the kernel limits.
_AT_ONCE = 1000


class Build(NamedTuple):
    """What Nix would do: ``built`` are derivations and ``fetched`` store paths; sizes are in bytes."""

    built: tuple[str, ...]
    fetched: tuple[str, ...]
    download: int
    unpacked: int


class Unverified(NamedTuple):
    """A path that a cache has, and that none of the trusted keys has signed."""

    cache: str
    path: str
    signers: tuple[str, ...]


def parse_dry_run(output: str) -> Build:
    """What ``nix build --dry-run`` printed.

    The format is that of ``printMissing`` in Nix's libmain, which has had singular headings since 2.4, and
    sizes in other units than MiB since 2.20.
    """
    built: list[str] = []
    fetched: list[str] = []
    download = unpacked = 0
    into: list[str] | None = None
    for line in output.splitlines():
        if heading := _HEADING.match(line):
            into = built if heading[2] == "built" else fetched
            if into is fetched and (size := _SIZE.search(line)):
                download = round(float(size[1]) * 1024 ** _UNITS[size[2]])
                unpacked = round(float(size[3]) * 1024 ** _UNITS[size[4]])
        elif into is not None and line.startswith("  ") and line.strip().startswith("/"):
            into.append(line.strip())
        else:
            into = None
    return Build(tuple(built), tuple(fetched), download, unpacked)


def heavy(built: Iterable[str]) -> list[tuple[str, str]]:
    """Those of the derivations ``built`` that no job should compile: the name, and what it is.

    Torch comes first.
    """
    found = []
    for path in built:
        name = short_name(path)
        if _SOURCE.search(name):
            continue
        kind = next((kind for pattern, kind in HEAVY if pattern.match(name)), "")
        if kind:
            found.append((name, kind))
    return sorted(found, key=lambda one: one[1] != "torch")


def sandbox(system: str) -> tuple[Sandbox, str]:
    """Whether builds are in a sandbox, by building something, and what Nix said.

    What is built prints the first line of /etc/passwd, which in a sandbox is Nix's own, and fails, so
    that nothing of it stays. On Linux a sandbox that a derivation can leave by ``__noChroot`` is none: that
    is what ``sandbox = relaxed`` means, and a kernel's flake can make such derivations.
    Raises ``WrongSurroundings`` when nothing can be built here at all.
    """
    state, said = _sandbox(system)
    if state == "on" and not system.endswith("-darwin"):
        finished = _probe(system, "__noChroot = true; ")
        # Nix 2.8, libstore/build/local-derivation-goal.cc, and newer: such a derivation is refused.
        if not re.search(r"__noChroot.*not allowed", finished.output):
            return "off", "a derivation leaves it by __noChroot: sandbox = relaxed"
    return state, said


def _probe(system: str, attributes: str = "") -> process.Finished:
    """Build what tells where it is built, with more ``attributes`` of its derivation."""
    script = 'read line < /etc/passwd; echo "sandbox-probe: $line"; exit 1'
    expression = (
        f'derivation {{ name = "kernel-actions-sandbox-probe"; system = "{system}"; builder = "/bin/sh"; '
        f'args = [ "-c" {json.dumps(script).replace("$", chr(92) + "$")} ]; '
        f"preferLocalBuild = true; allowSubstitutes = false; {attributes}}}"
    )
    return cli.run(
        *("build", "--no-link", "--print-build-logs", "--expr", expression),
        *("--option", "builders", "", "--option", "substitute", "false"),
        time_limit=300.0,
    )


def _sandbox(system: str) -> tuple[Sandbox, str]:
    finished = _probe(system)
    found = re.search(r"sandbox-probe: (.*)", finished.output)
    if found is not None:
        return ("on" if "Nix build user" in found[1] else "off"), found[1].strip()
    if _NAMESPACES.search(finished.output):
        return "unavailable", cli.reason(finished.output, 0)
    # Outside of a sandbox every machine has a shell.
    if re.search(r"executing '/bin/sh'.*No such file", finished.output):
        return "on", "/bin/sh is not in it"
    raise WrongSurroundings(
        f"Nix cannot build here: {cli.reason(finished.output)}", repair=_repair_of(finished.output)
    )


def _repair_of(output: str) -> str:
    """What to do about a build that did not start."""
    if "Read-only file system" in output:
        return "mount the store writable, or start a Nix daemon that can write to it"
    if "Permission denied" in output:
        return "start the Nix daemon, or run as the user who owns the store"
    if "No space left" in output:
        return "free some disk space; free-disk does it on runners of GitHub"
    return ""


def cache_failure(cache: str) -> str:
    """Why the cache at ``cache`` does not answer; empty when it does. Asks three times."""
    if cache.startswith(("file://", "/")):
        # Nix makes the folder of a cache that is not there.
        info = Path(cache.removeprefix("file://").partition("?")[0]) / "nix-cache-info"
        return "" if info.is_file() else f"{info} is not there"
    failure = ""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE * 2 ** (attempt - 1))
        failure, is_final = _ask(cache)
        if not failure or is_final:
            break
    return failure


def _ask(cache: str) -> tuple[str, bool]:
    """Why ``cache`` does not answer, and whether asking again is of no use."""
    options = {
        "connect-timeout": str(_CACHE_PATIENCE),
        "stalled-download-timeout": str(_CACHE_PATIENCE),
        "download-attempts": "1",
    }
    with tempfile.TemporaryDirectory(prefix="kernel-actions-") as fresh:
        try:
            finished = cli.run(
                *("store", "ping", "--store", cache),
                *(part for name, value in options.items() for part in ("--option", name, value)),
                # Nix remembers for a week that a cache has answered.
                changes={"XDG_CACHE_HOME": fresh},
                time_limit=_CACHE_PATIENCE + 5,
            )
        except WrongSurroundings:
            return f"it did not answer within {_CACHE_PATIENCE} s", False
    if finished.returncode == 0:
        return "", True
    said = cli.reason(finished.output)
    return said, bool(re.search(r"HTTP error 4\d\d|does not appear to be a binary cache", said))


def dry_run(kernel_dir: Path, variants: Sequence[str], reference: str = ".") -> Build:
    """What Nix would fetch and build for ``variants`` of the kernel in ``kernel_dir``, whose flake is
    ``reference``.

    Raises ``WrongInput`` for a variant or flake that is wrong, and ``WrongSurroundings`` when sources cannot
    be fetched.
    """
    for variant in variants:
        if not VARIANT.fullmatch(variant):
            raise WrongInput(f"--variants has {variant!r}, which is no name of a variant")
    if not (kernel_dir / "flake.nix").is_file():
        raise WrongInput(
            "there is no flake.nix, which tells Nix how to build",
            where=Place(kernel_dir),
            repair="name the kernel's folder by --kernel-dir",
        )
    finished = cli.run(
        *("build", "--dry-run", "--no-link", "--no-write-lock-file", *cli.NO_SETTINGS_OF_FLAKES),
        *(_installable(reference, variant) for variant in variants),
        directory=kernel_dir,
        time_limit=_EVALUATION,
    )
    if finished.returncode == 0:
        return parse_dry_run(finished.output)
    said = cli.reason(finished.output)
    if missing := re.search(r"does not provide attribute .*?redistributable\.\"?([^\"']+)", said):
        names: list[str] = []
        with contextlib.suppress(WrongInput):
            names = evaluation.attribute_names(kernel_dir, reference, _redistributable(missing[1]))
        close = ", ".join(difflib.get_close_matches(missing[1], names, n=3, cutoff=0.4))
        raise WrongInput(
            f"the flake has no variant {missing[1]}",
            where=Place(kernel_dir / "flake.nix"),
            repair=f"did you mean {close}?" if close else "kernel-actions matrix shows all",
        )
    if diagnostics.is_fetch(finished.output):
        limited = "403" in said or "429" in said
        raise WrongSurroundings(
            f"the flake's inputs cannot be fetched: {said}",
            repair="give the job's token by github-token" if limited else "check the network, then run again",
        )
    raise WrongInput(f"Nix cannot evaluate it: {said}", where=Place(kernel_dir / "flake.nix"))


def _installable(reference: str, variant: str) -> str:
    return f'{reference}#{_redistributable(variant)}."{variant}"'


def _redistributable(variant: str) -> str:
    """Where the flake has the variants of the same system, which is the end of the name; this machine's for a
    variant of any."""
    found = re.search(r"(?:x86_64|aarch64)-(?:linux|darwin)$", variant)
    return f"packages.{found[0] if found else cli.this_system()}.redistributable"


def unverified(paths: Sequence[str], caches: Sequence[str], keys: str) -> tuple[list[Unverified], list[str]]:
    """Those of ``paths`` that no cache has with a signature by one of ``keys``, and those that no cache has.

    Nix would compile them, with no more than a warning.
    """
    wrong: dict[str, Unverified] = {}
    open_paths = set(paths)
    for cache in caches:
        infos = path_infos(cache, sorted(open_paths))
        bad = _refused(cache, list(infos), keys)
        for path, info in infos.items():
            if path in bad:
                signatures = [str(one) for one in info.get("signatures") or []]
                names = tuple(dict.fromkeys(one.partition(":")[0] for one in signatures))
                wrong.setdefault(path, Unverified(cache, path, names))
            else:
                open_paths.discard(path)
                wrong.pop(path, None)
    return list(wrong.values()), sorted(open_paths - set(wrong))


def path_infos(cache: str, paths: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What ``cache`` tells of those of ``paths`` that it has."""
    found: dict[str, dict[str, Any]] = {}
    for start in range(0, len(paths), _AT_ONCE):
        some = paths[start : start + _AT_ONCE]
        finished = cli.run("path-info", "--json", "--store", cache, *some, time_limit=_EVALUATION)
        found |= parse_path_info(finished.output)
    return found


def parse_path_info(output: str) -> dict[str, dict[str, Any]]:
    """The paths of ``nix path-info --json``: a list until 2.18, an object since, and one in another later."""
    line = next((line for line in output.splitlines() if line.startswith(("[", "{"))), "")
    try:
        # Messages may follow on the same line.
        value, _ = json.JSONDecoder().raw_decode(line)
    except ValueError:
        return {}
    if isinstance(value, list):
        return {one["path"]: one for one in value if one.get("valid", True) and "narHash" in one}
    folder = ""
    if isinstance(value.get("info"), dict):
        folder = f"{value.get('storeDir', '/nix/store')}/"
        value = value["info"]
    return {
        path if path.startswith("/") else folder + path: info
        for path, info in value.items()
        if isinstance(info, dict)
    }


def _refused(cache: str, paths: Sequence[str], keys: str) -> set[str]:
    """Those of ``paths`` in ``cache`` whose signature is by none of ``keys``."""
    refused: set[str] = set()
    for start in range(0, len(paths), _AT_ONCE):
        some = paths[start : start + _AT_ONCE]
        finished = cli.run(
            *("store", "verify", "--store", cache, "--no-contents", "--sigs-needed", "1"),
            *("--option", "trusted-public-keys", keys, *some),
            time_limit=_EVALUATION,
        )
        if finished.returncode == 0:
            continue
        named = set(re.findall(r"'(/[^']+)' is untrusted", finished.output))
        # A failure that names no path concerns them all.
        refused |= named & set(some) or set(some)
    return refused


def rows(build: Build) -> list[tuple[str, str]]:
    """A plan in words: what is fetched, with its sizes, and what is built."""
    names = [short_name(path) for path in build.built]
    listed = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    sizes = f"{console.size(build.download)} to download, {console.size(build.unpacked)} unpacked"
    return [
        (
            "fetched",
            f"{console.counted(len(build.fetched), 'path')}: {sizes}" if build.fetched else "nothing",
        ),
        ("built", f"{len(names)}: {printable(listed)}" if names else "nothing"),
    ]
