"""What a repository is: its kernels, the workflows that it has, and where it is on GitHub."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from kernel_actions import git, manifest, toml_file
from kernel_actions.errors import KernelActionsError, Place, WrongInput
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
_WINDOWS = re.compile(r"^\s+runs-on:.*\bwindows\b", re.MULTILINE)


@dataclass(frozen=True)
class Workflow:
    """A workflow of the repository, and what it works with."""

    path: PurePosixPath
    kind: Kind


@dataclass(frozen=True)
class Kernel:
    """A kernel: its folder from the repository's root (``.`` for the root itself), its name, backends and
    repository on the Hub, and whether it has benchmarks."""

    folder: PurePosixPath
    name: str
    backends: tuple[str, ...]
    repo_id: str
    has_benchmarks: bool


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
    is the default one."""

    root: Path
    is_git: bool
    kernels: tuple[Kernel, ...]
    workflows: tuple[Workflow, ...]
    github: GitHub | None
    uses: str
    uses_kernels: bool
    unread: tuple[str, ...]
    branch: str

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
    return Repository(
        root=root,
        is_git=top is not None,
        kernels=tuple(kernels),
        workflows=workflows,
        github=parse_address(git.remote_address(root, "origin")) if top is not None else None,
        uses=uses,
        uses_kernels=_uses_kernels(root),
        unread=tuple(str(error) for error in errors),
        branch=git.default_branch(root) if top is not None else "main",
    )


def parse_address(address: str) -> GitHub | None:
    """The repository on GitHub that a remote's ``address`` names; ``None`` for an address of another form."""
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
    return Kernel(
        folder=PurePosixPath(folder.resolve().relative_to(root).as_posix()),
        name=read.name,
        backends=read.backends or tuple(dict.fromkeys(one.backend for one in read.components)),
        repo_id=read.repo_id or "",
        has_benchmarks=any((folder / "benchmarks").glob("*.py")),
    )


def _workflows(root: Path) -> tuple[tuple[Workflow, ...], str]:
    """The repository's workflows, and the reference to this suite that all of those that use it have."""
    found: list[Workflow] = []
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
        references |= {f"{match[1]}@{match[2]}" for match in USES.finditer(text)}
    return tuple(found), references.pop() if len(references) == 1 else ""


def _uses_kernels(root: Path) -> bool:
    """Whether a pyproject.toml declares kernels that the project loads."""
    try:
        values = toml_file.read(root / "pyproject.toml").values
    except (KernelActionsError, OSError):
        return False
    tool = values.get("tool")
    kernels = tool.get("kernels") if isinstance(tool, dict) else None
    return isinstance(kernels, dict) and bool(kernels.get("dependencies"))
