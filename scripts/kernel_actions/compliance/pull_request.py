"""Rules about what a pull request changes: KA4xx. They need ``--base``."""

from __future__ import annotations

import ast
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kernel_actions import console, manifest, settings
from kernel_actions.compliance import api, files
from kernel_actions.compliance.api import Difference
from kernel_actions.compliance.changes import Change, Comparison
from kernel_actions.compliance.engine import Family, Problem
from kernel_actions.compliance.kernel import Kernel, package_dir
from kernel_actions.errors import Place, WrongInput
from kernel_actions.manifest import Manifest

# What GitHub shows as a difference; most sources are a hundredth of it.
LARGEST_FILE = 1_000_000
_LARGEST_PYTHON = 1_000_000
# As much of a file as git looks at to tell whether it is text.
_HEAD = 8000
# This suite has an action of that name; an action is no built file.
_NOT_BUILT = "build/action.yml"
# The first bytes of pictures, documents and fonts, which are binary and run nowhere.
_MEDIA = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"%PDF", b"\0\0\1\0", b"wOFF", b"wOF2", b"\0\1\0\0")
_ABOUT_WORKFLOWS = (".github/workflows/", ".github/actions/")
_BASE_NAMES_OF_ACTIONS = ("action.yml", "action.yaml")


@dataclass(frozen=True)
class PullRequest:
    """The changes of a pull request to a kernel."""

    kernel: Kernel
    comparison: Comparison

    @property
    def there(self) -> Iterator[Change]:
        """The changed files that were not deleted."""
        return (change for change in self.comparison.changes if change.is_there)

    @cached_property
    def before(self) -> Manifest | None:
        """The build.toml as it was; ``None`` where there was none that can be read."""
        text = self.comparison.before("build.toml")
        if text is None:
            return None
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "build.toml").write_text(text, encoding="utf-8")
            try:
                return manifest.load(Path(folder))
            except WrongInput:
                return None

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        """How the public API differs, unless the version was raised with it or the kernel is unstable."""
        now, before = self.kernel.manifest, self.before
        if now is None or before is None or now.version is None or before.version is None:
            return ()
        if now.version > before.version or now.version == 0:
            return ()
        package = package_dir(now).relative_to(now.directory).as_posix()
        if not any(change.own.startswith(f"{package}/") for change in self.comparison.changes):
            return ()
        old, new = api.read(_Before(self.comparison, package)), api.read(_Now(package_dir(now)))
        if old is None or new is None:
            return ()  # There is a rule about __all__.
        return tuple(sorted(api.compare(old, new), key=lambda one: one.what))

    @property
    def replaces_all(self) -> bool:
        """Whether a release replaces every published variant: where nothing is compiled, or all of it for
        Torch's stable ABI, no build of an older Torch stays behind."""
        now = self.kernel.manifest
        if now is None:
            return False
        compiled = {component.backend for component in now.components}
        return all(backend in (now.binding.stable_abi or {}) for backend in compiled)

    def place_of_api(self) -> Place:
        """Where the public names are listed."""
        init = self.kernel.init
        for node in init.tree.body if init is not None else ():
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if init and any(isinstance(one, ast.Name) and one.id == "__all__" for one in targets):
                return init.place(node)
        return Place(init.path) if init is not None else self.kernel.where


RULES: Family[PullRequest] = Family()


@RULES.rule
def pull_request_build(request: PullRequest) -> Iterator[Problem]:
    for change in request.there:
        if change.own.startswith("build/") and change.own != _NOT_BUILT:
            yield Problem("is in the folder of built variants", change.where)


@RULES.rule
def pull_request_binaries(request: PullRequest) -> Iterator[Problem]:
    for change in request.there:
        if change.is_file and not change.own.startswith("build/"):
            try:
                if _is_binary(_head(change.path)):
                    yield Problem("is a binary file", change.where)
            except OSError as error:
                # It may be any: its name is not UTF-8, for one.
                yield Problem(f"cannot be looked at: {error.strerror}", change.where)


@RULES.rule
def pull_request_links(request: PullRequest) -> Iterator[Problem]:
    for change in request.there:
        if change.is_link:
            try:
                target = os.readlink(change.path)
            except OSError:
                target = "what git keeps"
            yield Problem(f"is a symbolic link to {target}", change.where)


@RULES.rule
def pull_request_submodules(request: PullRequest) -> Iterator[Problem]:
    for change in request.comparison.changes:
        if change.is_submodule:
            yield Problem(_moved("the submodule", change), change.where)
        elif change.name == ".gitmodules":
            yield Problem("changes where submodules come from", change.where)


@RULES.rule
def pull_request_lock(request: PullRequest) -> Iterator[Problem]:
    change = next((one for one in request.there if one.own == "flake.lock"), None)
    if change is None:
        return
    before = _revisions(request.comparison.before("flake.lock") or "")
    try:
        now = _revisions(files.read(change.path, _LARGEST_PYTHON * 4).decode(errors="replace"))
    except WrongInput:
        return  # Of the rule about flake.lock.
    told = False
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name, "nothing"), now.get(name, "nothing")
        if old != new:
            told = True
            yield Problem(f"locks {name} to {new} in place of {old}", change.where)
    if not told:
        yield Problem("differs, with the same revisions", change.where)


@RULES.rule
def pull_request_workflows(request: PullRequest) -> Iterator[Problem]:
    for change in request.comparison.changes:
        name = change.name.rpartition("/")[2]
        if change.name.startswith(_ABOUT_WORKFLOWS) or name in _BASE_NAMES_OF_ACTIONS:
            verb = "changes" if change.is_there else "removes"
            yield Problem(f"{verb} what runs in jobs", change.where)


@RULES.rule
def pull_request_size(request: PullRequest) -> Iterator[Problem]:
    for change in request.there:
        if change.is_file and (size := _size(change.path)) > LARGEST_FILE:
            yield Problem(f"has {console.size(size)}", change.where)


@RULES.rule
def pull_request_api(request: PullRequest) -> Iterator[Problem]:
    if not request.replaces_all:
        for difference in request.differences:
            yield _api_problem(request, difference)


@RULES.rule
def pull_request_api_replaced(request: PullRequest) -> Iterator[Problem]:
    if request.replaces_all:
        for difference in request.differences:
            if not difference.is_addition:
                yield _api_problem(request, difference)


@RULES.rule
def pull_request_policy(request: PullRequest) -> Iterator[Problem]:
    baseline = _baseline(request.kernel.directory)
    for change in request.comparison.changes:
        if change.name.rpartition("/")[2] == settings.FILE_NAME:
            yield Problem("changes which rules count, or what else this suite does", change.where)
        elif baseline is not None and os.path.abspath(change.path) == baseline:
            yield Problem("changes which findings are known", change.where)


def _baseline(kernel_dir: Path) -> str | None:
    """The path of the file of known findings, if kernel-actions.toml names one."""
    try:
        path = settings.load(kernel_dir).baseline
    except WrongInput:
        return None  # It is told before.
    return None if path is None else os.path.abspath(path)


def _api_problem(request: PullRequest, difference: Difference) -> Problem:
    now = request.kernel.manifest
    version = now.version if now is not None and now.version is not None else 0
    return Problem(f"version {version} is kept, but {difference.what}", request.place_of_api())


class _Before:
    """Loads the package as it was."""

    def __init__(self, comparison: Comparison, package: str) -> None:
        self._comparison = comparison
        self._package = package
        self._known: dict[str, ast.Module | None] = {}

    def __call__(self, name: str) -> ast.Module | None:
        if name not in self._known:
            text = self._comparison.before(f"{self._package}/{name}")
            self._known[name] = None if text is None else _parse(Path(name), text.encode())
        return self._known[name]


class _Now:
    """Loads the package as it is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, ast.Module | None] = {}

    def __call__(self, name: str) -> ast.Module | None:
        if name not in self._known:
            try:
                data = files.read(self._folder / name, _LARGEST_PYTHON)
                self._known[name] = _parse(self._folder / name, data)
            except WrongInput:
                self._known[name] = None
        return self._known[name]


def _parse(path: Path, data: bytes) -> ast.Module | None:
    try:
        return files.parse_python(path, data)
    except WrongInput:
        return None  # There is a rule about it.


def _moved(what: str, change: Change) -> str:
    if not change.is_there:
        return f"removes {what}"
    if change.mode_before == "000000":
        return f"adds {what}"
    before = change.id_before[:12]
    after = change.id[:12] if change.id.strip("0") else "another commit"
    return f"moves {what} from {before} to {after}"


def _revisions(text: str) -> Mapping[str, str]:
    """The revision of each node of a flake.lock, as far as it can be read."""
    try:
        nodes = json.loads(text)["nodes"]
        locked = {name: node["locked"] for name, node in nodes.items() if "locked" in node}
        return {str(name): str(one.get("rev") or one.get("narHash"))[:12] for name, one in locked.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _is_binary(head: bytes) -> bool:
    return b"\0" in head and not head.startswith(_MEDIA)


def _head(path: Path) -> bytes:
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        return file.read(_HEAD) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""


def _size(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
