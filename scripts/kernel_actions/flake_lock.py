"""flake.lock: which revision of the builder a kernel is built with.

The format is that of Nix: https://nix.dev/manual/nix/latest/command-ref/new-cli/nix3-flake#lock-files
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernel_actions import toml_file
from kernel_actions.errors import Place, WrongInput
from kernel_actions.named_tuple import NamedTuple

# The repository of the builder, and the one it had before 2026-01.
REPOSITORIES = ("huggingface/kernels", "huggingface/kernel-builder")

_VERSION = 7
_LARGEST = 4_000_000
_COMMAND = "run `nix flake lock` in the kernel's folder and commit flake.lock"
_WITHOUT_NIX = (
    f"{_COMMAND}; without Nix, copy the one of a kernel that is built with the same revision, "
    "or plan for a revision with --builder-rev"
)
# As many steps as a chain of `follows` may take. Nix writes them resolved: a real one has one or two.
_LONGEST_CHAIN = 64
# Compiled when they are first used: a lock of the builder's own repository needs neither.
_GITHUB_URL = (
    r"(?ai)(?:git\+)?(?:(?:https|ssh|git)://(?:git@)?(?:www\.)?github\.com(?::\d+)?/|git@github\.com:)"
    r"([\w.-]+/[\w.-]+?)(?:\.git)?/?(?:\?.*)?"
)
_OWNER_AND_NAME = r"(?a)[\w.-]{1,100}/[\w.-]{1,100}"


class LockedBuilder(NamedTuple):
    """The input of a flake.lock that is the builder.

    ``repository`` is ``owner/name`` on GitHub, or the address or folder of another source;
    ``commit`` is ``None`` for a folder, which has none. ``node`` is what Nix locked, as it stands there.
    """

    input_name: str
    repository: str
    commit: str | None
    is_official: bool
    is_on_github: bool
    where: Place
    node: Mapping[str, Any]


def read(path: Path) -> LockedBuilder:
    """The builder that a flake.lock pins.

    The input may have any name: the lock's root says which nodes are the kernel's own inputs, and
    the builder is the one that is locked to one of its repositories; if there is none, the one
    whose name, or whose source's name, is that of the builder (a fork or a folder).

    Raises ``WrongInput`` when the file is missing, unreadable, or pins no builder or several.
    """
    where = Place(path)
    found = [_described(name, locked, where) for name, locked in inputs(path).items()]
    candidates = [one for one in found if one.is_official] or [one for one in found if _is_likely(one)]
    if not candidates:
        raise WrongInput(
            f"no input is the builder ({' or '.join(REPOSITORIES)})", where=where, repair=_COMMAND
        )
    if len({(one.commit, None if one.commit else one.repository) for one in candidates}) > 1:
        raise WrongInput(
            f"several inputs are the builder: {', '.join(one.input_name for one in candidates)}",
            where=where,
            repair="keep one of them, or choose with --builder-rev",
        )
    chosen = candidates[0]
    if chosen.commit is not None and not is_commit(chosen.commit):
        raise WrongInput(
            f"the builder's revision {chosen.commit[:80]!r} is not a commit", where=where, repair=_COMMAND
        )
    return chosen


def inputs(path: Path) -> dict[str, Mapping[str, Any]]:
    """What each input of a flake.lock is locked to, by its name. Raises ``WrongInput``."""
    nodes, root_name = _read_nodes(path)
    named = nodes[root_name].get("inputs", {})
    found: dict[str, Mapping[str, Any]] = {}
    for name, target in named.items() if isinstance(named, dict) else ():
        node = _follow(nodes, root_name, target, Place(path), iter(range(_LONGEST_CHAIN)))
        locked = node.get("locked") if isinstance(node, dict) else None
        if isinstance(locked, dict):
            found[name] = locked
    return found


def is_commit(text: str) -> bool:
    """Whether ``text`` is a whole commit: 40 hexadecimal digits, the letters small."""
    return len(text) == 40 and not text.strip("0123456789abcdef")


def _described(name: str, locked: Mapping[str, Any], where: Place) -> LockedBuilder:
    repository = _github_repository(locked)
    # A folder has no commit, whatever its lock claims: Nix takes any for it.
    commit = None if locked.get("type") in ("path", "indirect") else locked.get("rev")
    return LockedBuilder(
        input_name=name,
        repository=repository or str(locked.get("url") or locked.get("path") or locked.get("type")),
        commit=None if commit is None else str(commit),
        is_official=repository in REPOSITORIES,
        is_on_github=repository is not None,
        where=where,
        node=locked,
    )


def _is_likely(one: LockedBuilder) -> bool:
    names = {repository.partition("/")[2] for repository in REPOSITORIES}
    source = one.repository.partition("?")[0].rstrip("/").removesuffix(".git").rpartition("/")[2]
    return source in names or one.input_name in names


def _github_repository(locked: Mapping[str, Any]) -> str | None:
    """``owner/name`` on GitHub of a locked input, whichever way it is written."""
    if locked.get("type") == "github" and not locked.get("host"):
        name = f"{locked.get('owner')}/{locked.get('repo')}".lower()
        return name if name in REPOSITORIES or re.fullmatch(_OWNER_AND_NAME, name) else None
    url = locked.get("url")
    found = re.fullmatch(_GITHUB_URL, url[:1000]) if isinstance(url, str) else None
    return found.group(1).lower() if found else None


def _follow(
    nodes: Mapping[str, Any], root_name: str, target: object, where: Place, steps: Iterator[int]
) -> object:
    """The node that an input names: by its name, or as a path of inputs from the root (``follows``)."""
    if isinstance(target, str):
        return nodes.get(target)
    name = root_name
    node: object = nodes[root_name]
    for part in target if isinstance(target, list) else ():
        if next(steps, None) is None:
            raise WrongInput("has a chain of follows that never ends", where=where, repair=_COMMAND)
        named = node.get("inputs") if isinstance(node, dict) else None
        following = named.get(part) if isinstance(named, dict) and isinstance(part, str) else None
        if following is None:
            return None
        node = _follow(nodes, name, following, where, steps)
    return node if isinstance(target, list) and target else None


def _read_nodes(path: Path) -> tuple[dict[str, Any], str]:
    """The nodes of a flake.lock, and the name of its root."""
    where = Place(path)
    try:
        data = toml_file.read_bytes(path, _LARGEST)
        if len(data) > _LARGEST:
            raise WrongInput("is larger than 4 MB, which no flake.lock is", where=where)
        lock = json.loads(data)
    except FileNotFoundError as error:
        raise WrongInput("there is no flake.lock", where=where, repair=_WITHOUT_NIX) from error
    except json.JSONDecodeError as error:
        place = Place(path, error.lineno, error.colno)
        raise WrongInput(f"is not JSON: {error.msg}", where=place, repair=_COMMAND) from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise WrongInput("is not JSON", where=where, repair=_COMMAND) from error
    except ValueError as error:
        # Of ``int``, which reads no number of thousands of digits.
        raise WrongInput("has a number that is too long", where=where, repair=_COMMAND) from error
    except OSError as error:
        raise WrongInput(f"cannot be read: {error.strerror}", where=where) from error
    version = lock.get("version") if isinstance(lock, dict) else None
    if version != _VERSION or isinstance(version, bool):
        shown = repr(version)[:40]
        raise WrongInput(
            f"has version {shown}, and every Nix since 2.4 writes {_VERSION}", where=where, repair=_COMMAND
        )
    nodes = lock.get("nodes")
    name = lock.get("root")
    root = nodes.get(name) if isinstance(nodes, dict) and isinstance(name, str) else None
    if not isinstance(nodes, dict) or not isinstance(root, dict) or not isinstance(name, str):
        raise WrongInput("has no root node", where=where, repair=_COMMAND)
    return nodes, name
