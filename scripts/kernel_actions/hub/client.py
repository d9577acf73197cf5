"""The only module that speaks to the Hub, through huggingface_hub.

What to upload is planned by a pure function (`plan`); `upload` carries a plan out in one guarded
commit. `commit` makes one of any changes, also of files that are on the Hub already, and the smaller
functions read and name commits. Every error of the client becomes one line that says what is missing,
without the token.
"""

from __future__ import annotations

import errno
import http.client
import json
import os
import re
import sys
import tempfile
import time
import urllib.request
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kernel_actions import built, console, digests, github, process
from kernel_actions.errors import Interrupted, KernelActionsError, WrongInput, WrongSurroundings, printable

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete, HfApi
    from huggingface_hub.hf_api import RepoFile

DEFAULT_ADDRESS = "https://huggingface.co"
# Where to ask for the right to publish kernels, which a Hub account does not have from the start.
ASK_TO_PUBLISH = "https://huggingface.co/spaces/kernels-community/README/discussions/new"
MAIN = "main"

# What an embedded Hub is shown. It asks for no token, and is never shown a real one.
_NO_TOKEN = "embedded-hub-needs-no-token"
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}
# How often a commit is planned anew when others commit at the same time.
_ATTEMPTS = 5
_REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
# How long to wait for the Hub to show what it has made, before each look, in seconds.
_PAUSES = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
# Hashing leaves the interpreter alone, so that several threads get several cores.
_HASHING_THREADS = 4
_VERSION = re.compile(r"v[0-9]")
_NUMBER = re.compile(r"[0-9]{1,9}")
# Of the branches and the tags of a repository, so many are named in a message; and so much of what is none.
_MOST_NAMED = 5
_LONGEST_NAME = 100
_BENCHMARK = re.compile(r"benchmarks/benchmark[^/]*\.py")
# How hf_xet, which speaks to the Hub itself, says that it was refused.
_XET_REFUSAL = re.compile(r"HTTP status \w+ error \((\d{3})\b[^)]*\).*/xet-(?:read|write)-token/")
# Left behind by Python where a variant was imported; no part of it, and other on each machine.
_BYTECODE = "__pycache__"


@dataclass(frozen=True)
class RemoteFile:
    """A file on the Hub: its git id, its SHA-256 if it is kept as LFS, and its size in bytes."""

    oid: str
    sha256: str | None = None
    size: int = 0

    def is_same(self, remote: RemoteFile) -> bool:
        """Whether ``remote`` holds the same bytes."""
        return (self.oid, self.sha256) == (remote.oid, remote.sha256)


@dataclass(frozen=True)
class LocalFile:
    """A file to upload: where it is, its size in bytes, its git id (empty for one that is too large to be
    kept in git itself) and its SHA-256."""

    source: Path
    size: int
    oid: str
    sha256: str

    def is_same(self, remote: RemoteFile) -> bool:
        """Whether ``remote`` holds the same bytes."""
        if remote.sha256:
            return self.sha256 == remote.sha256
        if self.oid or self.size != remote.size:
            return self.oid == remote.oid
        # Other Hubs keep larger files in git itself: it is read once more, for the other hash.
        return digests.git_id_of(self.source) == remote.oid


@dataclass(frozen=True)
class Plan:
    """What one commit changes, by path in the repository.

    ``added`` are new and changed files. ``kept`` are those that stay as they are, whether they
    were given or not.
    """

    added: tuple[str, ...]
    kept: tuple[str, ...]
    deleted: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not self.added and not self.deleted


@dataclass(frozen=True)
class Copy:
    """A file that the Hub has: ``path`` at the commit ``revision``."""

    revision: str
    path: str


@dataclass(frozen=True)
class Changes:
    """What a commit changes, by path in the repository.

    ``added`` are files to send, from this machine or by what they hold; ``copied`` are files that
    the Hub has, of which those kept as LFS do not travel.
    """

    added: Mapping[str, LocalFile | bytes] = field(default_factory=dict)
    copied: Mapping[str, Copy] = field(default_factory=dict)
    deleted: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not self.added and not self.copied and not self.deleted


@dataclass(frozen=True)
class Refs:
    """The branches and tags of a repository, and the commit of each."""

    branches: Mapping[str, str]
    tags: Mapping[str, str]

    def listed(self) -> str:
        """What there is, for people: some tags, and some branches, the newest versions first."""
        parts = [
            f"{kind} {', '.join(first)}" + (f" and {len(names) - len(first)} more" if first != names else "")
            for kind, refs in (("tags", self.tags), ("branches", self.branches))
            if (names := sorted(refs, key=_by_version, reverse=True)) and (first := names[:_MOST_NAMED])
        ]
        return "; ".join(parts) or "no branch and no tag"


def _by_version(name: str) -> tuple[bool, list[int], bool, list[int], str]:
    """A key that sorts the names of versions by what they number, pre-releases before their release, and
    other names before all of them."""
    version, dash, pre = name.partition("-")
    numbers, of_pre = ([int(one) for one in _NUMBER.findall(text)] for text in (version, pre))
    return _VERSION.match(name) is not None, numbers, not dash, of_pre, name


@dataclass(frozen=True)
class Uploaded:
    """The outcome of an upload: what changed, the commit (empty in a dry run) and its address."""

    plan: Plan
    size: int
    commit: str
    url: str


@dataclass(frozen=True)
class Hub:
    """A Hub, and how this process is known there. Made by `connect`.

    ``is_anonymous``: as anybody, whatever token there may be.
    """

    address: str
    is_embedded: bool
    api: HfApi
    token: str = ""
    is_anonymous: bool = False

    def url(self, repo_id: str, branch: str) -> str:
        """The address of a branch."""
        return f"{self.address}/kernels/{repo_id}/tree/{branch}"


def plan(
    remote: Mapping[str, RemoteFile],
    local: Mapping[str, LocalFile],
    folders: Iterable[str],
    *,
    keeps_others: bool = True,
    keeps_benchmarks: bool = False,
) -> Plan:
    """What to change so that each of ``folders`` holds exactly the ``local`` files.

    Everything is by path in the repository. Benchmarks that are not given are deleted, unless there is
    nothing to be said about them (``keeps_benchmarks``), and other files are kept; without ``keeps_others``,
    what else is under ``build/`` and ``benchmarks/`` is deleted.
    """
    owned = [f"{folder}/" for folder in folders]
    if not keeps_others:
        owned += ["build/"] if keeps_benchmarks else ["build/", "benchmarks/"]

    def is_stale(path: str) -> bool:
        if path.endswith(f"/{built.SIGNATURE}"):
            # A signature holds as long as what it signs is the same.
            signed = f"{path.rpartition('/')[0]}/metadata.json"
            if path not in local and signed in local and signed in remote:
                return not local[signed].is_same(remote[signed])
        # A file in the place of a folder is stale too.
        is_owned = (is_benchmark(path) and not keeps_benchmarks) or any(
            f"{path}/".startswith(prefix) for prefix in owned
        )
        return path not in local and is_owned

    return Plan(
        added=tuple(
            path
            for path, file in sorted(local.items())
            if path not in remote or not file.is_same(remote[path])
        ),
        kept=tuple(
            path
            for path, file in sorted(remote.items())
            if not is_stale(path) and (path not in local or local[path].is_same(file))
        ),
        deleted=tuple(path for path in sorted(remote) if is_stale(path)),
    )


def local_file(source: Path, memory: digests.Memory | None = None) -> LocalFile:
    """Read and hash the file ``source``, or recall its hashes from ``memory`` where it is still the same."""
    found = digests.of(source) if memory is None else memory.of(source)
    return LocalFile(source, found.size, found.oid, found.sha256)


def local_files(folder: Path, path_in_repo: str) -> dict[str, LocalFile]:
    """The files of ``folder`` but for Python's bytecode, by their path in the repository; see
    ``local_folders``."""
    return local_folders({path_in_repo: folder})


def local_folders(folders: Mapping[str, Path], memory: digests.Memory | None = None) -> dict[str, LocalFile]:
    """The files of ``folders``, which are by their path in the repository, but for Python's bytecode.

    Those that ``memory`` knows are not read again.

    Raises ``WrongInput`` for a link out of its folder, as what a build links to is not published, and for
    what is no plain file or has no plain name.
    """
    found = {path: file for to, folder in folders.items() for path, file in _listed(folder, to)}
    with ThreadPoolExecutor(_HASHING_THREADS) as executor:
        files = executor.map(lambda path: local_file(path, memory), found.values())
        return dict(zip(found, files, strict=True))


def _listed(folder: Path, path_in_repo: str) -> Iterator[tuple[str, Path]]:
    root = folder.resolve()
    for parent, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name != _BYTECODE)
        for name in [*names, *files]:
            path = Path(parent, name)
            # What a build or an archive leaves behind is not always what a Hub can hold, or anybody can read.
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                raise WrongInput(f"{path} is a link out of its variant", repair="put the file itself there")
            if not name.isprintable() or "\\" in name:
                shown = printable(ascii(str(path)))
                raise WrongInput(f"{shown} has a name that a Hub cannot hold", repair="give it another one")
            if path.is_symlink() if name in names else not path.is_file():
                raise WrongInput(f"{path} is no plain file", repair="remove it, or put a file there")
        for name in sorted(files):
            path = Path(parent, name)
            if path.suffix != ".pyc":
                yield f"{path_in_repo}/{path.relative_to(root).as_posix()}", path


def is_benchmark(path: str) -> bool:
    """Whether ``kernels benchmark`` reads what is at ``path`` of a repository."""
    return _BENCHMARK.fullmatch(path) is not None


def has_benchmarks(kernel_dir: Path) -> bool:
    """Whether a kernel has something to say about what is under ``benchmarks/`` of its repository. Where it
    has no such folder, the Hub keeps what it has: ``collect_benchmark_commit_ops`` of
    kernel-builder/src/upload.rs (8ac69fc5)."""
    return (kernel_dir / "benchmarks").is_dir()


def local_benchmarks(kernel_dir: Path) -> dict[str, LocalFile]:
    """The benchmarks of a kernel that are published with it, by their path in the repository.

    Raises ``WrongInput`` for a link: what it leads to is not published.
    """
    found = sorted((kernel_dir / "benchmarks").glob("benchmark*.py"))
    for path in found:
        if path.is_symlink():
            raise WrongInput(f"{path} is a link, and is not published", repair="put the file itself there")
    return {f"benchmarks/{path.name}": local_file(path) for path in found if path.is_file()}


def connect(address: str = "", token: str = "", *, is_anonymous: bool = False) -> Hub:
    """The Hub at ``address``; empty: what HF_ENDPOINT says, else huggingface.co.

    ``token`` may be empty: then huggingface_hub looks for one, but not for a loopback address, where anybody
    may be listening in the place of a Hub. An embedded Hub gets neither. With ``is_anonymous`` there is no
    token at all.

    Raises ``WrongInput`` for an address or a token that cannot be one, ``WrongSurroundings`` when nothing
    answers on a loopback address, or when the job's identity cannot be exchanged for a token.
    """
    address = (address or os.environ.get("HF_ENDPOINT") or DEFAULT_ADDRESS).rstrip("/")
    try:
        parts = urlsplit(address)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or parts.username or parts.path or parts.query:
        raise WrongInput(f"{address!r} is not the address of a Hub", repair="as in http://127.0.0.1:8750")
    is_loopback = parts.hostname in _LOOPBACK
    if not is_loopback and parts.scheme != "https":
        raise WrongInput(
            f"{address} is not encrypted, and everybody on the way could read the token",
            repair="use https://",
        )
    is_embedded = is_loopback and _says_it_is_embedded(address)
    if is_loopback:
        _bypass_proxies()
        _use_lfs()
    from huggingface_hub import HfApi
    from huggingface_hub.utils.tqdm import disable_progress_bars

    from kernel_actions.hub import patience

    disable_progress_bars()
    patience.install()
    if is_anonymous:
        return Hub(address, is_embedded, HfApi(endpoint=address, token=False), is_anonymous=True)
    token = "" if is_embedded else _checked_token(token)
    if not token:
        token = _NO_TOKEN if is_loopback else _checked_token(_default_token(address))
    if token != _NO_TOKEN:
        github.mask(token)
        process.keep_memory_private()
    return Hub(address, is_embedded, HfApi(endpoint=address, token=token or False), token)


def upload(
    hub: Hub,
    repo_id: str,
    branch: str,
    local: Mapping[str, LocalFile],
    folders: Sequence[str],
    *,
    message: str,
    keeps_benchmarks: bool = False,
    create_pr: bool = False,
    dry_run: bool = False,
) -> Uploaded:
    """Make each of ``folders`` of a branch hold exactly the ``local`` files, in one commit.

    The repository and the branch are made when missing (not for a pull request, whose author may not have the
    right to). A new version branch starts from the repository's first commit and inherits no variants. (That
    of the builder's `upload` starts at the head of main, and then all of ``build/`` there is deleted:
    kernel-builder/src/upload.rs, 8ac69fc5.) When others commit at the same time, the change is planned anew.

    Raises ``WrongInput`` and ``WrongSurroundings``.
    """
    check_repo_id(repo_id)
    for _ in range(_ATTEMPTS):
        head, start = _prepare(hub, repo_id, branch, may_create=not create_pr, dry_run=dry_run)
        remote = remote_files(hub, repo_id, head) if head else {}
        planned = plan(remote, local, folders, keeps_benchmarks=keeps_benchmarks)
        if head and branch != MAIN:
            # Where the repository starts is asked for only if it makes a difference.
            of_new = plan(remote, local, folders, keeps_others=False, keeps_benchmarks=keeps_benchmarks)
            if of_new != planned and head == (start or _start(hub, repo_id)):
                planned = of_new
        size = sum(local[path].size for path in planned.added)
        if dry_run:
            return Uploaded(planned, size, "", hub.url(repo_id, branch))
        if planned.is_empty:
            return Uploaded(planned, 0, head, hub.url(repo_id, branch))
        with _explained(hub, f"write to {repo_id}"), _moved() as moved, _spoken_warnings():
            info = hub.api.create_commit(
                repo_id,
                _operations(planned, local),
                commit_message=message,
                repo_type="kernel",
                revision=branch,
                parent_commit=head or None,
                create_pr=create_pr,
            )
        if not moved:
            if not create_pr:
                _wait_for_commit(hub, repo_id, branch, head, info.oid)
            _check_arrived(hub, repo_id, info.oid, planned, local)
            return Uploaded(planned, size, info.oid, info.pr_url or hub.url(repo_id, branch))
        console.say(f"Somebody else committed to {branch} of {repo_id} meanwhile: planning anew")
    raise WrongSurroundings(
        f"others keep committing to {branch} of {repo_id}", repair="run again when they are done"
    )


def _check_arrived(
    hub: Hub, repo_id: str, commit: str, planned: Plan, local: Mapping[str, LocalFile]
) -> None:
    """Raises ``WrongSurroundings`` unless ``commit`` holds what was planned, byte for byte as far as the Hub
    tells: a .gitignore there has the client leave files out without a word."""
    there = remote_files(hub, repo_id, commit)
    wrong = [path for path in planned.added if path not in there or not local[path].is_same(there[path])]
    wrong += [path for path in planned.deleted if path in there]
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise WrongSurroundings(
            f"{repo_id} at {commit[:12]} does not hold what was sent: {wrong[0]}{more}",
            repair="see whether a .gitignore on the Hub names it, then run again",
        )


def card_errors(hub: Hub, text: str) -> tuple[str, ...]:
    """What the Hub refuses about the header of the card ``text``; warnings of its are said. It is asked
    before anything is sent, as a commit with such a card is refused when others are made. Raises
    ``WrongSurroundings`` when the Hub does not answer."""
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils._headers import build_hf_headers
    from huggingface_hub.utils._http import get_session, hf_raise_for_status

    with _explained(hub, "have the card checked"):
        answer = get_session().post(
            f"{hub.address}/api/validate-yaml",
            json={"content": text, "repoType": "kernel"},
            headers=build_hf_headers(token=hub.api.token),
        )
        try:
            hf_raise_for_status(answer)
        except HfHubHTTPError:
            if answer.status_code != 400:
                raise
    try:
        said = answer.json()
    except ValueError:
        said = None
    found = {name: _messages(said, name) for name in ("warnings", "errors")}
    for message in found["warnings"]:
        console.say(f"warning: {message} (the card)")
    if answer.status_code == 400 and not found["errors"]:
        return (f"{hub.address} refuses the card's header",)
    return found["errors"]


def _messages(said: object, name: str) -> tuple[str, ...]:
    listed = said.get(name) if isinstance(said, dict) else None
    return tuple(printable(str(one.get("message"))) for one in listed or () if isinstance(one, dict))


def check_repo_id(repo_id: str) -> None:
    """Raises ``WrongInput`` unless ``repo_id`` is of the form owner/name."""
    if not _REPO_ID.fullmatch(repo_id) or "--" in repo_id or ".." in repo_id:
        raise WrongInput(f"repository {repo_id!r} is not of the form owner/name")


def _prepare(hub: Hub, repo_id: str, branch: str, *, may_create: bool, dry_run: bool) -> tuple[str, str]:
    """The branch's head, and the repository's first commit where that had to be asked for.

    The branch is made when missing, and the repository. In a dry run, the head is where the
    branch would start; it is empty when there is no repository.
    """
    found = refs(hub, repo_id)
    if found is None:
        if dry_run:
            return "", ""
        if not may_create:
            missing = missing_repository(hub, repo_id)
            raise WrongInput(missing.what, repair="a pull request needs an existing repository")
        found = create_repository(hub, repo_id)
    if branch == MAIN or branch in found.branches:
        # One that is still at the start is as new as one that is made now: an upload that made
        # the branch and then failed is finished by running it again.
        return found.branches.get(branch, ""), ""
    start = _start(hub, repo_id)
    if not dry_run:
        create_branch(hub, repo_id, branch, start)
    return start, start


def _start(hub: Hub, repo_id: str) -> str:
    """The repository's first commit, from which the branch of a new version starts."""
    return history(hub, repo_id, MAIN)[-1][0]


def create_repository(hub: Hub, repo_id: str) -> Refs:
    """Make the repository; it may exist. Returns what is in it."""
    # Its address is not asked for, and not every Hub tells that of one that exists.
    with _explained(hub, f"create {repo_id}", is_creation=True), suppress(KeyError):
        hub.api.create_repo(repo_id, repo_type="kernel", exist_ok=True)
    return _wait_for(hub, repo_id, repo_id, lambda found: MAIN in found.branches)


def create_branch(hub: Hub, repo_id: str, branch: str, start: str) -> None:
    """Make a branch at the commit ``start``; one that exists stays where it is."""
    with _explained(hub, f"create the branch {branch} of {repo_id}"):
        hub.api.create_branch(repo_id, branch=branch, revision=start, repo_type="kernel", exist_ok=True)
    _wait_for(hub, repo_id, f"the branch {branch}", lambda found: branch in found.branches)


def _wait_for_commit(hub: Hub, repo_id: str, branch: str, parent: str, commit: str) -> None:
    if commit != parent:
        what = f"the commit {commit[:12]} on {branch}"
        _wait_for(hub, repo_id, what, lambda found: found.branches.get(branch) != parent)


def _wait_for(hub: Hub, repo_id: str, what: str, is_seen: Callable[[Refs], bool]) -> Refs:
    """The refs, once they show what was done: the next request may be answered by another machine of the Hub
    than the last one, which knows of it a moment later."""
    for pause in _PAUSES:
        time.sleep(pause)
        found = refs(hub, repo_id)
        if found is not None and is_seen(found):
            return found
    if found is None:
        raise missing_repository(hub, repo_id)
    raise WrongSurroundings(
        f"{hub.address} does not show {what} yet, which it has made", repair="run again in a minute"
    )


def delete_branch(hub: Hub, repo_id: str, branch: str) -> None:
    """Delete a branch; it may be gone."""
    from huggingface_hub.errors import RevisionNotFoundError

    with _explained(hub, f"delete the branch {branch} of {repo_id}"), suppress(RevisionNotFoundError):
        hub.api.delete_branch(repo_id, branch=branch, repo_type="kernel")


def create_tag(hub: Hub, repo_id: str, tag: str, target: str, message: str) -> str:
    """Make a tag of the commit ``target``; one that exists stays where it is. Returns the commit it is on."""
    with _explained(hub, f"create the tag {tag} of {repo_id}"):
        hub.api.create_tag(
            repo_id, tag=tag, revision=target, tag_message=message, repo_type="kernel", exist_ok=True
        )
    return _wait_for(hub, repo_id, f"the tag {tag}", lambda found: tag in found.tags).tags[tag]


def refs(hub: Hub, repo_id: str) -> Refs | None:
    """All branches and tags; ``None`` when there is no such repository (to this token)."""
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

    with _explained(hub, f"read {repo_id}"):
        try:
            found = hub.api.list_repo_refs(repo_id, repo_type="kernel")
        except RepositoryNotFoundError:
            return None
        except HfHubHTTPError as error:
            # Who has no token is not told whether there is one; huggingface_hub knows that of models alone.
            is_hidden = error.response.status_code == 401 and hub.token in ("", _NO_TOKEN)
            if is_hidden and not (error.server_message or "").startswith("Invalid credentials"):
                return None
            raise
    return Refs(
        branches={branch.name: branch.target_commit for branch in found.branches},
        tags={tag.name: tag.target_commit for tag in found.tags},
    )


def history(hub: Hub, repo_id: str, revision: str) -> list[tuple[str, str]]:
    """The id and title of every commit that leads to ``revision``, the newest first."""
    with _explained(hub, f"read {repo_id}"):
        commits = hub.api.list_repo_commits(repo_id, repo_type="kernel", revision=revision)
    return [(commit.commit_id, commit.title) for commit in commits]


def resolve(hub: Hub, repo_id: str, revision: str) -> str:
    """The commit of a branch, a tag or a commit's id. Raises ``WrongInput`` when there is none, with what
    there is."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    found: str | None = None
    with _explained(hub, f"find {revision} of {repo_id}"):
        try:
            found = hub.api.repo_info(repo_id, revision=revision, repo_type="kernel").sha
        except RevisionNotFoundError:
            pass
        except GatedRepoError:
            raise
        except RepositoryNotFoundError:
            raise missing_repository(hub, repo_id) from None
    if not found:
        there = refs(hub, repo_id)
        raise WrongInput(
            f"{repo_id} has no branch, tag or commit {revision[:_LONGEST_NAME]!r} on {hub.address}",
            repair=f"it has {there.listed()}" if there else "",
        )
    return found


def missing_repository(hub: Hub, repo_id: str) -> WrongInput:
    """What is wrong where the Hub shows no such repository, which it does to some tokens alone as well."""
    what = f"{repo_id} does not exist on {hub.address}, or "
    if hub.token:
        return WrongInput(
            f"{what}the token may not read it", repair="check its name, or give a token that may"
        )
    return WrongInput(f"{what}is private", repair="check its name")


def read_file(hub: Hub, repo_id: str, revision: str, path: str) -> bytes | None:
    """What the file ``path`` holds at ``revision``; ``None`` when there is no such file."""
    from huggingface_hub.errors import EntryNotFoundError

    with _explained(hub, f"read {path} of {repo_id}"), tempfile.TemporaryDirectory() as folder:
        try:
            file = _read_again(
                lambda: hub.api.hf_hub_download(
                    repo_id, path, revision=revision, repo_type="kernel", cache_dir=folder
                )
            )
        except EntryNotFoundError:
            return None
        return Path(file).read_bytes()


def download(hub: Hub, repo_id: str, revision: str, patterns: Sequence[str], folder: Path) -> None:
    """Write the files at ``revision`` whose paths match one of ``patterns`` into ``folder``."""
    with _explained(hub, f"download {repo_id}", folder), _spoken_warnings():
        _read_again(
            lambda: hub.api.snapshot_download(
                repo_id,
                repo_type="kernel",
                revision=revision,
                allow_patterns=list(patterns),
                local_dir=folder,
                # The files' own cache is read by nobody else, and goes with the folder.
                cache_dir=folder / ".cache",
            )
        )


def _read_again(action: Callable[[], str]) -> str:
    """What ``action`` returns. A file whose connection breaks while it is read is asked for again, which
    huggingface_hub does after other errors alone."""
    import httpx2

    for _ in range(_ATTEMPTS - 1):
        with suppress(httpx2.ReadError):
            return action()
    return action()


def commit(
    hub: Hub,
    repo_id: str,
    branch: str,
    changes: Changes,
    *,
    parent: str,
    message: str,
    description: str = "",
) -> str | None:
    """Commit ``changes`` to a branch that is at the commit ``parent``, and return the new commit;
    ``None`` when the branch has moved on meanwhile, so that nothing was done."""
    with _explained(hub, f"write to {repo_id}"), _moved() as moved, _spoken_warnings():
        info = hub.api.create_commit(
            repo_id,
            _change_operations(changes),
            commit_message=message,
            commit_description=description,
            repo_type="kernel",
            revision=branch,
            parent_commit=parent,
        )
    if moved:
        return None
    _wait_for_commit(hub, repo_id, branch, parent, info.oid)
    return str(info.oid)


def _change_operations(
    changes: Changes,
) -> list[CommitOperationAdd | CommitOperationCopy | CommitOperationDelete]:
    from huggingface_hub import CommitOperationCopy, CommitOperationDelete

    return [
        # Deleted first, so that a folder can take the place of a file.
        *(CommitOperationDelete(path, is_folder=False) for path in changes.deleted),
        *(_addition(path, file) for path, file in changes.added.items()),
        *(
            CommitOperationCopy(copy.path, path, src_revision=copy.revision)
            for path, copy in changes.copied.items()
        ),
    ]


def remote_files(hub: Hub, repo_id: str, revision: str) -> dict[str, RemoteFile]:
    """All files at ``revision``, by path. Raises ``WrongSurroundings`` for a list that cannot be one."""
    from huggingface_hub.hf_api import RepoFile

    with _explained(hub, f"read {repo_id}"):
        try:
            return {
                entry.path: _remote_file(entry)
                for entry in hub.api.list_repo_tree(
                    repo_id, recursive=True, revision=revision, repo_type="kernel"
                )
                if isinstance(entry, RepoFile)
            }
        except (KeyError, TypeError, AttributeError) as error:
            raise WrongSurroundings(
                f"{hub.address} lists the files of {repo_id} in no way that is known: {error}"
            ) from error


def _remote_file(entry: RepoFile) -> RemoteFile:
    sha256 = entry.lfs.sha256 if entry.lfs else None
    # Beside it there may be the size of what git keeps, which only points to the file.
    size = entry.lfs.size if entry.lfs else entry.size
    is_known = isinstance(entry.path, str) and type(size) is int and size >= 0
    if not is_known or not isinstance(entry.blob_id, str) or not isinstance(sha256, str | None):
        raise TypeError(f"{entry.path!r} has {size!r} bytes, and the hash {entry.blob_id!r}")
    return RemoteFile(entry.blob_id, sha256, size)


def _operations(
    planned: Plan, local: Mapping[str, LocalFile]
) -> list[CommitOperationAdd | CommitOperationDelete]:
    from huggingface_hub import CommitOperationDelete

    # Deleted first, so that a folder can take the place of a file.
    return [
        *(CommitOperationDelete(path, is_folder=False) for path in planned.deleted),
        *(_addition(path, local[path]) for path in planned.added),
    ]


def _addition(path: str, file: LocalFile | bytes) -> CommitOperationAdd:
    from huggingface_hub import CommitOperationAdd

    if isinstance(file, bytes):
        return CommitOperationAdd(path, file)
    operation = CommitOperationAdd(path, file.source)
    # It was read to be compared, and need not be read again before it is sent.
    operation.upload_info.sha256 = bytes.fromhex(file.sha256)
    return operation


def _checked_token(token: str) -> str:
    """``token`` without what surrounds it, as a line's end that was pasted with it.

    Raises ``WrongInput``, which does not show it, for one that cannot be sent: the client's own error would.
    """
    token = token.strip()
    if not all("!" <= character <= "~" for character in token):
        raise WrongInput(
            "the token for the Hub has spaces, line ends or letters that no token has",
            repair="copy it once more: it is one word, as in hf_…",
        )
    return token


def _default_token(address: str) -> str:
    """The token of trusted publishing at ``address``, else the one that huggingface_hub finds: HF_TOKEN, or a
    log-in; or none."""
    from huggingface_hub import get_token
    from huggingface_hub._oidc import oidc_login

    resource = os.environ.get("HF_OIDC_RESOURCE", "")
    given = os.environ.get("HF_OIDC_ID_TOKEN") or None
    if resource and not given and not os.environ.get("ACTIONS_ID_TOKEN_REQUEST_URL"):
        raise WrongSurroundings(
            "HF_OIDC_RESOURCE is set, but this job may not ask for its identity",
            repair="add `id-token: write` to the permissions of the job, or unset it and give a token",
        )
    try:
        if resource:
            # By this Hub, and for it: huggingface_hub would ask the one that HF_ENDPOINT names.
            return str(oidc_login(resource=resource, subject_token=given, endpoint=address)["access_token"])
        return get_token() or ""
    except Exception as error:
        # The exchange of the job's identity fails in many ways; none has a token in its message.
        raise WrongSurroundings(
            f"no token for {address}: {printable(str(error))[:300]}",
            repair="HF_OIDC_RESOURCE is kernels/owner/name, and that repository has to name this workflow as "
            "a trusted publisher; or give a token",
        ) from error


def _says_it_is_embedded(address: str) -> bool:
    """Whether a loopback address is of an embedded Hub. Raises ``WrongSurroundings``."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{address}/api/embedded-hub", timeout=10) as answer:
            said = json.loads(answer.read(10_000))
    except urllib.request.HTTPError:
        return False
    except (ValueError, RecursionError):
        return False
    except (OSError, http.client.HTTPException) as error:
        # What listens there may be no server of HTTP.
        reason = getattr(error, "reason", error)
        said = getattr(reason, "strerror", None) or printable(str(reason)) or type(reason).__name__
        raise WrongSurroundings(
            f"no Hub answers at {address}: {said}",
            repair="start one with `kernel-actions hub`, or give another address by --hub",
        ) from error
    return isinstance(said, dict) and said.get("embedded") is True


def _bypass_proxies() -> None:
    """Keep requests to loopback from a proxy, which would look for the Hub on its own machine."""
    for name in ("NO_PROXY", "no_proxy"):
        known = [entry for entry in os.environ.get(name, "").split(",") if entry]
        os.environ[name] = ",".join(dict.fromkeys([*known, "127.0.0.1", "localhost", "::1"]))


def _use_lfs() -> None:
    """Have huggingface_hub send large files by LFS, not by xet: that needs more servers than the Hub of one
    machine has, and where there are none, huggingface_hub does not fall back to LFS.

    The variable is read once, at import; children of this process read it too.
    """
    os.environ["HF_HUB_DISABLE_XET"] = "1"
    constants = sys.modules.get("huggingface_hub.constants")
    if constants is not None:
        setattr(constants, "HF_HUB_DISABLE_XET", True)  # noqa: B010


@contextmanager
def _moved() -> Iterator[list[bool]]:
    """Yields a list, which is not empty afterwards when the branch was not at the given parent."""
    from huggingface_hub.errors import HfHubHTTPError

    moved: list[bool] = []
    try:
        yield moved
    except HfHubHTTPError as error:
        if error.response.status_code != 412:
            raise
        moved.append(True)


@contextmanager
def _spoken_warnings() -> Iterator[None]:
    """Say what the client warns of (about the card, most often) in one line each."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        if issubclass(warning.category, UserWarning):
            console.say(f"warning: {printable(str(warning.message))}")


@contextmanager
def _explained(
    hub: Hub, action: str, folder: Path | None = None, *, is_creation: bool = False
) -> Iterator[None]:
    """Turn the client's errors, while it tries to ``action``, into those of this suite.

    ``folder`` is where it writes.
    """
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError

    try:
        yield
    except KernelActionsError:
        raise
    except Exception as error:
        # The client wraps what goes wrong while it uploads a file.
        for cause in _causes(error):
            if isinstance(cause, Interrupted):
                raise cause from error
            if isinstance(cause, KernelActionsError):
                raise cause from None  # A signal, which the client took for a failed upload.
            if isinstance(cause, HfHubHTTPError):
                status = cause.response.status_code
                said = cause.server_message or f"HTTP {status}"
                raise _refusal(hub, action, status, said, is_creation) from error
            if refused := _XET_REFUSAL.search(str(cause)):
                status, said = int(refused[1]), f"xet, HTTP {refused[1]}"
                if status == 404:
                    raise WrongSurroundings(
                        f"cannot {action}: {hub.address} has no storage by xet",
                        repair="set HF_HUB_DISABLE_XET=1, if it takes large files by LFS",
                    ) from error
                raise _refusal(hub, action, status, said, is_creation) from error
            if isinstance(cause, httpx2.TransportError):
                raise WrongSurroundings(
                    f"cannot {action}: {hub.address} does not answer ({_said(hub, cause)})",
                    repair="check the network and --hub, then run again: what arrived is not sent twice",
                ) from error
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            temporary = tempfile.gettempdir()
            is_elsewhere = folder is not None and not folder.is_relative_to(temporary)
            raise WrongSurroundings(
                f"cannot {action}: the disk is full",
                repair=f"free space for {folder}"
                if is_elsewhere
                else f"free space for {temporary}, or let TMPDIR name a folder with more",
            ) from error
        if isinstance(error, OSError | RuntimeError):
            raise WrongSurroundings(f"cannot {action}: {_said(hub, error)}") from error
        if isinstance(error, ValueError):
            raise WrongInput(f"cannot {action}: {_said(hub, error)}") from error
        if isinstance(error, KeyError | TypeError | AttributeError):
            said = f"{type(error).__name__}: {error}"
            what = f"cannot {action}: {hub.address} answers in no way that is known ({_said(hub, said)})"
            raise WrongSurroundings(what) from error
        raise


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _refusal(hub: Hub, action: str, status: int, said: str, is_creation: bool) -> KernelActionsError:
    """What an answer of the Hub, of HTTP status ``status``, means for who tries to ``action``."""
    what = f"cannot {action} on {hub.address}: {_said(hub, said)}"
    if hub.is_anonymous and status in (401, 403):
        return WrongSurroundings(
            what,
            repair="it is looked at as anybody sees it, without a token: it has to be public, and not gated",
        )
    if status == 401:
        repair = "give a valid token: by HF_TOKEN, the input token, or trusted publishing"
        if hub.token == _NO_TOKEN:
            repair = "a loopback address gets no token but the one that is given for it: by KA_TOKEN"
        elif not hub.token:
            repair = "there is no token: set HF_TOKEN or the input token, or for trusted publishing " + (
                "HF_OIDC_RESOURCE to kernels/owner/name: the job may prove its identity already"
                if os.environ.get("ACTIONS_ID_TOKEN_REQUEST_URL")
                else "HF_OIDC_RESOURCE to kernels/owner/name, and give the job `id-token: write`"
            )
        return WrongSurroundings(what, repair=repair)
    if status == 403 and is_creation:
        return WrongSurroundings(
            what,
            repair="the token needs write permission for the owner, and an account needs approval to "
            f"publish kernels: ask the kernels-community organisation at {ASK_TO_PUBLISH}",
        )
    if status == 403:
        kind = "read" if action.startswith(("read ", "find ", "download ")) else "write"
        repair = f"the token needs {kind} permission for this repository: ask one of its owners"
        if action.startswith("write "):
            repair += ", or open a pull request: upload --create-pr"
        return WrongSurroundings(what, repair=repair)
    if status == 429 or status >= 500:
        return WrongSurroundings(what, repair="run again later: what arrived is not sent twice")
    return WrongInput(what)


def _said(hub: Hub, message: object) -> str:
    """``message`` on one line, without the token."""
    text = printable(str(message))
    return text.replace(hub.token, "***") if hub.token else text
