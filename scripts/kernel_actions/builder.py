"""The builder revision that a kernel's flake.lock pins: what it can build, and by which rules."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernel_actions import toml_file
from kernel_actions.errors import Place, WrongInput, WrongSurroundings

DATA = Path(__file__).resolve().parent / "data" / "builder"
# The repository of the builder, and the one it had before 2026-01.
REPOSITORIES = ("huggingface/kernels", "huggingface/kernel-builder")

_COMMIT = re.compile(r"[0-9a-f]{40}")
_LARGEST_LOCK = 4_000_000
_LOCK_COMMAND = "run `nix flake lock` in the kernel's folder and commit flake.lock"
_WITHOUT_NIX = (
    f"{_LOCK_COMMAND}; without Nix, copy the one of a kernel that is built with the same revision, "
    "or plan for a revision with --builder-rev"
)
# Keys of a build set that name its backend, in the order in which the builder looks at them.
_BACKEND_KEYS = (
    ("cpu", "cpu"),
    ("cudaVersion", "cuda"),
    ("metal", "metal"),
    ("rocmVersion", "rocm"),
    ("tpu", "tpu"),
    ("xpuVersion", "xpu"),
)


@dataclass(frozen=True)
class Rules:
    """Which rules a revision of the builder follows.

    ``universal_noarch``: a kernel without compiled sources is named ``torch-universal`` and says
    ``general.universal`` (else ``torch-<backend>``); ``old_cuda_bounds``: the bounds are
    ``general.cuda-minver`` and ``-maxver``; ``stable_abi``: Torch's stable ABI is known, as a
    version for all backends (``string``) or also by backend (``per-backend``).
    """

    universal_noarch: bool
    old_cuda_bounds: bool
    torch_bounds: bool
    tvm_ffi: bool
    stable_abi: str | None
    requires_backends: bool


@dataclass(frozen=True)
class BuildSet:
    """One Torch and compute version that the builder builds for, on some systems.

    ``compute_version`` is empty for cpu, metal and tpu. ``tvm_ffi`` is the version of tvm-ffi,
    ``None`` where the set does not support it.
    """

    torch: str
    backend: str
    compute_version: str
    systems: tuple[str, ...]
    bundled: bool
    tvm_ffi: str | None
    cxx11_abi: bool


@dataclass(frozen=True)
class BuilderRevision:
    """A commit of the builder: ``source`` is the path of its ``versions.nix``."""

    repository: str
    commit: str
    source: str
    build_sets: tuple[BuildSet, ...]
    rules: Rules

    def as_json(self) -> dict[str, str]:
        """The revision's identity, for programs."""
        return {"repository": self.repository, "commit": self.commit}


def locked(kernel_dir: Path) -> BuilderRevision:
    """The revision that ``kernel_dir/flake.lock`` pins.

    Raises ``WrongInput`` when flake.lock is missing, unreadable or pins no builder, and
    ``WrongSurroundings`` for a revision that is not in the bundled data.
    """
    path = kernel_dir / "flake.lock"
    return revision(_locked_commit(path), where=Place(path))


def revision(commit: str, *, where: Place | None = None) -> BuilderRevision:
    """The builder at ``commit`` (40 hexadecimal digits), from the bundled data.

    Raises ``WrongInput`` when it is no commit, ``WrongSurroundings`` when the data lacks it.
    """
    if not _COMMIT.fullmatch(commit):
        raise WrongInput(
            f"builder revision {commit[:80]!r} is not a commit",
            where=where,
            repair="give its 40 hexadecimal digits",
        )
    found = _find(commit)
    if found is None:
        raise WrongSurroundings(
            f"builder revision {commit} is not in this version's data",
            where=where,
            repair="update this suite, lock a released revision of the builder, or plan for another "
            "one with --builder-rev",
        )
    table, rules, source, repository = found.split(" ")
    return BuilderRevision(
        repository=repository,
        commit=commit,
        source=source,
        build_sets=_table(table),
        rules=_rules()[int(rules)],
    )


def _find(commit: str) -> str | None:
    """The rest of the line of ``commit`` in the list of revisions."""
    data = (DATA / "revisions.txt").read_text(encoding="ascii")
    start = data.find(f"{commit} ")
    if start < 0 or (start and data[start - 1] != "\n"):
        return None
    return data[start + len(commit) + 1 : data.index("\n", start)]


@lru_cache(maxsize=64)
def _table(name: str) -> tuple[BuildSet, ...]:
    values = json.loads((DATA / "tables" / f"{name}.json").read_bytes())
    return tuple(build_set(value) for value in values)


@lru_cache(maxsize=1)
def _rules() -> tuple[Rules, ...]:
    return tuple(
        Rules(
            universal_noarch=value["noarch"] == "torch-universal",
            old_cuda_bounds=value["cuda_bounds"] == "general.cuda-minver/maxver",
            torch_bounds=value["torch_bounds"],
            tvm_ffi=value["tvm_ffi"],
            stable_abi=value["stable_abi"],
            requires_backends=value["requires_backends"],
        )
        for value in json.loads((DATA / "rules.json").read_bytes())
    )


def build_set(value: Mapping[str, Any]) -> BuildSet:
    """The build set that an entry of ``versions.nix`` describes."""
    key, backend = next((key, backend) for key, backend in _BACKEND_KEYS if value.get(key))
    return BuildSet(
        torch=value["torchVersion"],
        backend=backend,
        compute_version=value[key] if key.endswith("Version") else "",
        systems=tuple(value["systems"]),
        # upstreamVariant is what bundleBuild was called before 2025-09.
        bundled=value.get("bundleBuild", value.get("upstreamVariant", False)),
        # Revisions that only say whether, and not which, all have 0.1.
        tvm_ffi=value.get("tvmFfiVersion", "0.1" if value.get("tvmFfi") else None),
        cxx11_abi=value.get("cxx11Abi", True),
    )


def _locked_commit(path: Path) -> str:
    """The commit of the builder in a flake.lock.

    The input may have any name: the lock's root says which nodes are the kernel's own inputs, and
    the builder is the one that is locked to one of its repositories.
    """
    nodes, root = _read_lock(path)
    where = Place(path)
    candidates: dict[str, Mapping[str, Any]] = {}
    inputs = root.get("inputs", {})
    for name, target in inputs.items() if isinstance(inputs, dict) else ():
        node = _follow(nodes, root, target)
        locked = node.get("locked") if isinstance(node, dict) else None
        if isinstance(locked, dict) and _repository(locked) in REPOSITORIES:
            candidates[name] = locked
    if not candidates:
        forks = ", ".join(_forks(nodes))
        raise WrongInput(
            f"no input is the builder ({' or '.join(REPOSITORIES)})" + (f", only {forks}" if forks else ""),
            where=where,
            repair="give the commit that it is built on with --builder-rev" if forks else _LOCK_COMMAND,
        )
    commits = {str(locked.get("rev")) for locked in candidates.values()}
    if len(commits) > 1:
        raise WrongInput(
            f"several inputs are the builder: {', '.join(candidates)}",
            where=where,
            repair="keep one of them, or choose with --builder-rev",
        )
    return commits.pop()


def _read_lock(path: Path) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """The nodes of a flake.lock, and its root node."""
    where = Place(path)
    try:
        data = toml_file.read_bytes(path, _LARGEST_LOCK)
        if len(data) > _LARGEST_LOCK:
            raise WrongInput("is larger than 4 MB, which no flake.lock is", where=where)
        lock = json.loads(data)
    except FileNotFoundError as error:
        raise WrongInput("there is no flake.lock", where=where, repair=_WITHOUT_NIX) from error
    except json.JSONDecodeError as error:
        place = Place(path, error.lineno, error.colno)
        raise WrongInput(f"is not JSON: {error.msg}", where=place, repair=_LOCK_COMMAND) from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise WrongInput("is not JSON", where=where, repair=_LOCK_COMMAND) from error
    except ValueError as error:
        # Of ``int``, which reads no number of thousands of digits.
        raise WrongInput("has a number that is too long", where=where, repair=_LOCK_COMMAND) from error
    except OSError as error:
        raise WrongInput(f"cannot be read: {error.strerror}", where=where) from error
    version = lock.get("version") if isinstance(lock, dict) else None
    if version not in (5, 6, 7):
        raise WrongInput(f"has version {version!r}, not 5 to 7", where=where, repair=_LOCK_COMMAND)
    nodes = lock.get("nodes")
    name = lock.get("root")
    root = nodes.get(name) if isinstance(nodes, dict) and isinstance(name, str) else None
    if not isinstance(nodes, dict) or not isinstance(root, dict):
        raise WrongInput("has no root node", where=where, repair=_LOCK_COMMAND)
    return nodes, root


def _follow(nodes: Mapping[str, Any], root: Mapping[str, Any], target: object) -> object:
    """The node that an input names: by its name, or as a path of inputs from the root."""
    if isinstance(target, str):
        return nodes.get(target)
    node: object = root
    for _, name in zip(range(32), target, strict=False) if isinstance(target, list) else ():
        inputs = node.get("inputs") if isinstance(node, dict) else None
        following = inputs.get(name) if isinstance(inputs, dict) and isinstance(name, str) else None
        if isinstance(following, list):
            # A path that leads to a path: such chains may be circular, and no kernel has one.
            return None
        node = nodes.get(following) if isinstance(following, str) else None
    return node if node is not root else None


def _repository(locked: Mapping[str, Any]) -> str | None:
    """``owner/name`` on GitHub of a locked input, whichever way it is written."""
    if locked.get("type") == "github":
        return f"{locked.get('owner')}/{locked.get('repo')}".lower()
    url = locked.get("url")
    if isinstance(url, str):
        found = re.search(r"github\.com[/:]([\w.-]+/[\w.-]+?)(\.git)?/?$", url)
        return found.group(1).lower() if found else None
    return None


def _forks(nodes: Mapping[str, Any]) -> Iterator[str]:
    names = {repository.partition("/")[2] for repository in REPOSITORIES}
    for node in nodes.values():
        locked = node.get("locked") if isinstance(node, dict) else None
        repository = _repository(locked) if isinstance(locked, dict) else None
        if repository and repository.partition("/")[2] in names:
            yield repository
