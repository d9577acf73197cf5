"""What a repository is: its kernels, the workflows that it has, and where it is on GitHub."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Literal

from kernel_actions import (
    builder,
    flake_lock,
    git,
    manifest,
    planning,
    reads,
    settings,
    submodules,
    toml_file,
    variants,
)  # fmt: skip
from kernel_actions.errors import KernelActionsError, Place, WrongInput
from kernel_actions.init import starters
from kernel_actions.manifest import Manifest
from kernel_actions.matrix import monorepo

WORKFLOWS = PurePosixPath(".github/workflows")
# More than GitHub reads of a workflow.
_LARGEST_WORKFLOW = 512_000
_MOST_WORKFLOWS = 1000
# How deep kernels are looked for where no repository says where it ends: it may be somebody's home.
LEVELS = 2

Kind = Literal["kernel-actions", "kernel-builder", "hf-jobs", "other"]
_ADDRESS = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^@/]*@)?|(?P<scp>[^@/:]+@))(?P<host>[A-Za-z0-9.-]+)(?::\d+)?"
    r"(?(scp):/?|/)(?P<owner>[A-Za-z0-9_-][A-Za-z0-9_.-]*)/(?P<name>[A-Za-z0-9_.-]+?)(?:\.git)?/?"
)
# `uses:` of this suite: owner/kernel-actions[/action]@ref.
USES = re.compile(
    r"^[ \t-]*uses:[ \t]*[\"']?([A-Za-z0-9_.-]+/kernel-actions)(?:/[A-Za-z0-9_./-]+)?@([A-Za-z0-9_./-]+)",
    re.MULTILINE,
)
_HF_JOBS = re.compile(
    r"uses:\s*[\"']?huggingface/(kernel-builder-job|hf-jobs-action)@|\bhf\s+jobs\s+(uv\s+)?run\b"
)
# Building or uploading by the builder; what only names it, or asks it for something else, is not meant.
_BUILDER = re.compile(
    r"\bnix\s+(build|run)\b[^\n]*#(ci|ci-?tests?|bundle|redistributable|backendBundle|backendCi|"
    r"build-and-(copy|upload))\b"
    r"|\bkernel-builder[\"']?\s+(--\s+)?(build|upload|build-and-(copy|upload))\b"
    r"|\bghcr\.io/huggingface/kernel-builder\b",
    re.IGNORECASE,
)
# Servers that are not GitHub's; any other may be a GitHub Enterprise Server.
_OTHER_FORGE = re.compile(
    r"(^|\.)(bitbucket|codeberg|forgejo|gitea|gitee|gitlab|huggingface|launchpad|sourceforge|sr)\.|dev\.azure\.com$|"
    r"\.visualstudio\.com$|^hf\.co$",
    re.IGNORECASE,
)
_GITHUB = re.compile(r"github|(^|\.)ghe\.com$", re.IGNORECASE)
_WINDOWS = re.compile(r"^\s+runs-on:.*\bwindows\b", re.MULTILINE)


@dataclass(frozen=True)
class Workflow:
    """A workflow of the repository, what it works with, and the files that start it: workflows that call it
    or run after it, and programs that dispatch it."""

    path: PurePosixPath
    kind: Kind
    started_by: tuple[PurePosixPath, ...] = ()


@dataclass(frozen=True)
class Kernel:
    """A kernel: its folder from the repository's root (``.`` for the root itself), its name, backends and
    repository on the Hub, and whether it has benchmarks.

    ``gpu`` are the names of its variants that need a GPU, by system and backend. ``needs_submodules`` says
    that its checkout has to have submodules: those that its builds or tests read, and that Nix does not fetch
    itself.
    """

    folder: PurePosixPath
    name: str
    backends: tuple[str, ...]
    repo_id: str
    has_benchmarks: bool
    gpu: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    is_locked: bool = True
    needs_submodules: bool = False


@dataclass(frozen=True)
class GitHub:
    """Where the repository is: the server, the owner and the name."""

    host: str
    owner: str
    name: str

    @property
    def url(self) -> str:
        """The address of its page."""
        return f"https://{self.host}/{self.owner}/{self.name}"

    @property
    def slug(self) -> str:
        """As ``gh --repo`` takes it."""
        return (
            f"{self.owner}/{self.name}"
            if self.host == "github.com"
            else f"{self.host}/{self.owner}/{self.name}"
        )


@dataclass(frozen=True)
class Repository:
    """A repository with kernels. ``unread`` says of which folders build.toml cannot be read, and why;
    ``uses`` is the reference to this suite in its workflows, where they have one and the same; ``branch``
    is the default one. ``origin`` is the address of the remote of that name, without credentials."""

    root: Path
    is_git: bool
    kernels: tuple[Kernel, ...]
    workflows: tuple[Workflow, ...]
    github: GitHub | None
    uses: str
    uses_kernels: bool
    unread: tuple[str, ...]
    branch: str
    origin: str = ""

    @property
    def is_github_assumed(self) -> bool:
        """Whether the server of ``github`` has a name that tells nothing: it may be a GitHub Enterprise
        Server."""
        return self.github is not None and not _GITHUB.search(self.github.host)

    @property
    def is_monorepo(self) -> bool:
        """Whether a workflow has to be told where the kernels are."""
        return len(self.kernels) + len(self.unread) > 1 or str(self.kernels[0].folder) != "."

    @property
    def backends(self) -> tuple[str, ...]:
        """The backends of all kernels, in the order of build.toml's own list."""
        found = {backend for kernel in self.kernels for backend in kernel.backends}
        return tuple(backend for backend in manifest.BACKENDS if backend in found)


def detect(folder: Path) -> Repository:
    """What the repository around ``folder`` is.

    Raises ``WrongInput`` when it has no kernel whose build.toml can be read.
    """
    if not folder.is_dir():
        raise WrongInput("there is no such folder", where=Place(folder))
    top = git.root(folder)
    root = (top or folder).resolve()
    try:
        folders = monorepo.discover(root, None if top else LEVELS)
    except WrongInput as error:
        what = "no kernel is here: neither this folder nor one below it has a build.toml"
        if not top:
            what += f"; it is in no git repository, and {LEVELS} levels were looked at"
        raise WrongInput(
            what,
            where=Place(folder),
            repair="docs/tutorial.md makes one from an empty folder",
        ) from error
    kernels: list[Kernel] = []
    errors: list[KernelActionsError] = []
    for found in folders:
        try:
            kernels.append(_kernel(root, found))
        except KernelActionsError as error:
            errors.append(error)
    if not kernels:
        raise errors[0]
    workflows, uses = _workflows(root)
    origin = git.remote_address(root, "origin") if top is not None else ""
    return Repository(
        root=root,
        is_git=top is not None,
        kernels=tuple(kernels),
        workflows=workflows,
        github=_on_github(origin),
        uses=uses,
        uses_kernels=_uses_kernels(root),
        unread=tuple(str(error) for error in errors),
        branch=git.default_branch(root) if top is not None else "main",
        origin=origin,
    )


def _on_github(address: str) -> GitHub | None:
    place = parse_address(address)
    return None if place is None or _OTHER_FORGE.search(place.host) else place


def parse_address(address: str) -> GitHub | None:
    """The server, owner and name in a remote's ``address``; ``None`` for an address of another form."""
    match = _ADDRESS.fullmatch(address)
    return GitHub(match["host"], match["owner"], match["name"]) if match else None


def kind_of(text: str) -> Kind:
    """What a workflow works with, by its text."""
    # What a comment says is not what it does.
    code = re.sub(r"(?m)(^|\s)#.*$", "", text)
    if USES.search(code):
        return "kernel-actions"
    if _HF_JOBS.search(code):
        return "hf-jobs"
    # Nothing here builds for Windows, so that what does stays.
    return "kernel-builder" if _BUILDER.search(code) and not _WINDOWS.search(code) else "other"


def _kernel(root: Path, folder: Path) -> Kernel:
    read = manifest.load(folder)
    backends = read.backends or tuple(dict.fromkeys(one.backend for one in read.components))
    return Kernel(
        folder=PurePosixPath(folder.resolve().relative_to(root).as_posix()),
        name=read.name,
        backends=backends,
        repo_id=read.repo_id or "",
        has_benchmarks=any((folder / "benchmarks").glob("*.py")),
        gpu=_gpu_variants(folder, read, backends),
        is_locked=(folder / "flake.lock").is_file(),
        needs_submodules=_needs_submodules(root, folder),
    )


def _gpu_variants(
    folder: Path, kernel: Manifest, backends: tuple[str, ...]
) -> dict[tuple[str, str], tuple[str, ...]]:
    """The names of the variants that need a GPU, by system and backend; where nothing can be planned without
    a network, the systems that backends have had so far."""
    try:
        locked = flake_lock.read(folder / "flake.lock")
        if locked.commit and builder.bundled(locked.commit) is not None:
            planned = [one for one in planning.planned_variants(folder) if one.bundled]
            found: dict[tuple[str, str], list[str]] = {}
            for one in variants.build_once(planned):
                if one.backend in settings.GPU_BACKENDS:
                    found.setdefault((one.system, one.backend), []).append(one.name)
            return {target: tuple(names) for target, names in found.items()}
    except KernelActionsError:
        pass  # It cannot be planned, which `matrix` reports.
    targets = [("x86_64-linux", one) for one in backends if one in settings.GPU_BACKENDS]
    if "cuda" in backends and kernel.compiled_for("cuda"):
        targets.append(("aarch64-linux", "cuda"))
    return dict.fromkeys(targets, ())


def _needs_submodules(root: Path, folder: Path) -> bool:
    listed = submodules.listed(root)
    if not listed:
        return False
    found = reads.of_kernel(folder.resolve(), root)
    used = [one for one in listed if found.uses_submodule(one)]
    if not submodules.nix_fetches(folder):
        return bool(used)
    # Tests run in the checkout, whatever Nix built.
    tests = found.folder / "tests"
    return any(one.is_relative_to(tests) or tests.is_relative_to(one) for one in used)


def _workflows(root: Path) -> tuple[tuple[Workflow, ...], str]:
    """The repository's workflows, and the reference to this suite that all of those that use it have."""
    found: list[Workflow] = []
    texts: dict[PurePosixPath, str] = {}
    references: set[str] = set()
    folder = root / WORKFLOWS
    if not folder.is_dir():
        return (), ""
    for name in sorted(os.listdir(folder))[:_MOST_WORKFLOWS]:
        path = folder / name
        if not name.endswith((".yml", ".yaml")) or not path.is_file():
            continue
        text = toml_file.read_bytes(path, _LARGEST_WORKFLOW)[:_LARGEST_WORKFLOW].decode(errors="replace")
        found.append(Workflow(WORKFLOWS / name, kind_of(text)))
        texts[WORKFLOWS / name] = text
        references |= {f"{match[1]}@{match[2]}" for match in USES.finditer(text)}
    all_texts = texts | starters.programs(root, WORKFLOWS)
    started = [replace(one, started_by=starters.of(one.path, texts[one.path], all_texts)) for one in found]
    return tuple(started), references.pop() if len(references) == 1 else ""


def _uses_kernels(root: Path) -> bool:
    """Whether a pyproject.toml declares kernels that the project loads."""
    try:
        values = toml_file.read(root / "pyproject.toml").values
    except (KernelActionsError, OSError):
        return False
    tool = values.get("tool")
    kernels = tool.get("kernels") if isinstance(tool, dict) else None
    return isinstance(kernels, dict) and bool(kernels.get("dependencies"))
