"""The only module that speaks to git: which commit a folder is at, whether it was changed, its
history and its tags."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_actions import github, process
from kernel_actions.errors import WrongInput, WrongSurroundings, printable

# Of git's variables only those that say where its configuration is. The others (GIT_DIR,
# GIT_INDEX_FILE, …) belong to whoever started us, such as a hook, and name another repository.
_KEPT_VARIABLES = frozenset(
    {"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_CEILING_DIRECTORIES"}
)
# What `git push` needs besides to reach a remote: how to connect, and who the user is.
_KEPT_FOR_PUSH = re.compile(
    r"GIT_CONFIG_(COUNT|KEY_\d+|VALUE_\d+)|GIT_SSH(_COMMAND|_VARIANT)?|(GIT|SSH)_ASKPASS|SSH_AUTH_SOCK|"
    r"SSH_AGENT_PID|(GH|GITHUB)_TOKEN|GIT_(AUTHOR|COMMITTER)_(NAME|EMAIL)"
)
# Who makes a tag where git does not know who the user is, as on most runners.
_FALLBACK_IDENTITY = ("-c", "user.name=kernel-actions", "-c", "user.email=kernel-actions@localhost")
# A remote that stops answering ends the command after a minute.
_PATIENCE = ("-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=60")
_COMMIT_LINE = re.compile(r"^([0-9a-f]{40}|[0-9a-f]{64}) ?([0-9a-f ]*)\n", re.MULTILINE)


@dataclass(frozen=True)
class LoggedCommit:
    """A commit of the history: its id and its whole message."""

    id: str
    message: str
    is_merge: bool


@dataclass(frozen=True)
class GitState:
    """The commit that is checked out. ``dirty``: a tracked file differs from that commit.

    Files that git does not track count neither way, as the builder does not see them;
    submodules are not looked into.
    """

    commit: str
    dirty: bool
    root: Path


def state(directory: Path) -> GitState | None:
    """The state of the repository around ``directory``; ``None`` where there is no commit: outside
    of a repository, before its first commit, or on a machine without git.

    Raises ``WrongSurroundings`` when git refuses to read the repository of another user.
    """
    root = _ask(directory, "rev-parse", "--show-toplevel")
    if root is None:
        return None
    status = _ask(
        directory, "status", "--porcelain=v2", "--branch", "--untracked-files=no", "--ignore-submodules=all"
    )
    commit = ""
    dirty = False
    for line in (status or "").splitlines():
        if line.startswith("# branch.oid "):
            commit = line.split()[2]
        elif line.startswith(("1 ", "2 ", "u ")):
            dirty = True
    if not commit or commit == "(initial)":
        return None
    return GitState(commit, dirty, Path(root.removesuffix("\n")))


def tracked(directory: Path, *names: str) -> frozenset[str]:
    """The files below ``directory`` that git tracks, relative to it; of ``names``, where there are some."""
    listed = _ask(directory, "ls-files", "-z", "--", *(f":(literal){name}" for name in names))
    return frozenset(name for name in (listed or "").split("\0") if name)


def is_shallow(directory: Path) -> bool:
    """Whether the clone's history is cut off: then what is older, and its tags, cannot be seen."""
    return (_ask(directory, "rev-parse", "--is-shallow-repository") or "").strip() == "true"


def tags(directory: Path, prefix: str, *, reachable_from: str = "") -> dict[str, str]:
    """The tags that start with ``prefix``, and the commit of each; only those of commits that
    ``reachable_from`` contains, if it is given. Annotated or not makes no difference; tags of
    anything but commits are none."""
    merged = [f"--merged={reachable_from}"] if reachable_from else []
    pattern = "%(refname) %(objecttype) %(objectname) %(*objecttype) %(*objectname)"
    listed = _ask(directory, "for-each-ref", *merged, f"--format={pattern}", "refs/tags")
    found: dict[str, str] = {}
    for line in (listed or "").splitlines():
        name, *fields = line.removeprefix("refs/tags/").split(" ")
        if not line.startswith("refs/tags/") or not name.startswith(prefix) or len(fields) != 4:
            continue
        kind, target, peeled_kind, peeled = fields
        if peeled_kind == "tag":  # A tag of a tag, of which git tells one step.
            commit = _ask(directory, "rev-parse", "--verify", "--quiet", f"refs/tags/{name}^{{commit}}")
            peeled_kind, peeled = ("commit", commit.strip()) if commit else ("", "")
        if kind == "commit" or peeled_kind == "commit":
            found[name] = target if kind == "commit" else peeled
    return found


def has_commit(directory: Path, commit: str) -> bool:
    """Whether the repository has ``commit``, given in full."""
    return _ask(directory, "cat-file", "-e", f"{commit}^{{commit}}") is not None


def is_bare(directory: Path) -> bool:
    """Whether ``directory`` is itself a repository without a work tree."""
    return (_ask(directory, "rev-parse", "--is-bare-repository") or "").strip() == "true"


def file_at(directory: Path, commit: str, path: str) -> str | None:
    """The text of a file at ``commit``, by its path from the repository's root; ``None`` if there is none."""
    return _ask(directory, "cat-file", "blob", f"{commit}:{path}")


def export(directory: Path, commit: str, folder: str, target: Path) -> None:
    """Write the files that ``folder`` (a path from the repository's root, empty for all) has at ``commit``
    into the folder ``target``, as a checkout would, and without what filters would fetch; none where there is
    no such folder.

    Raises ``WrongSurroundings`` when git cannot write them.
    """
    target.mkdir(parents=True, exist_ok=True)
    if _ask(directory, "rev-parse", "--verify", "--quiet", f"{commit}:{folder}") is None:
        return
    # Large files are pointers there, and nothing is fetched for them.
    filters = ("filter.lfs.smudge=", "filter.lfs.process=", "filter.lfs.required=false")
    options = [part for one in filters for part in ("-c", one)]
    with tempfile.TemporaryDirectory(prefix="kernel-actions-index-") as name:
        index = {"GIT_INDEX_FILE": str(Path(name, "index"))}
        # An index of its own, so that neither the repository's nor its work tree is touched.
        read = _ask(directory, "read-tree", f"{commit}:{folder}", variables=index)
        prefix = f"--prefix={target.resolve()}/"
        command = ("checkout-index", "--all", "--force", "--quiet", prefix)
        if read is None or _ask(directory, *options, *command, variables=index) is None:
            raise WrongSurroundings(f"git cannot write the files of {commit[:12]} to {target}")


def changed_since(directory: Path, reference: str) -> tuple[str, ...]:
    """The files that differ between the common ancestor of ``reference`` and the checked-out commit,
    and the folder as it is now, untracked files included: paths from the repository's root.

    A renamed file is there with both of its names. Raises ``WrongInput`` for an unknown reference and
    ``WrongSurroundings`` where a shallow clone has no common ancestor.
    """
    commit = _ask(
        directory, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference}^{{commit}}"
    )
    is_cut = is_shallow(directory)
    deepen = "have the whole history: `fetch-depth: 0` of actions/checkout, or git fetch --unshallow"
    if commit is None:
        if state(directory) is None:
            raise WrongSurroundings(f"{directory} is not in a git repository with a commit")
        raise WrongInput(
            f"there is no commit {reference[:80]!r} here", repair=deepen if is_cut else "fetch it first"
        )
    base = _ask(directory, "merge-base", commit.strip(), "HEAD")
    if base is None:
        raise WrongSurroundings(
            f"{reference[:80]!r} and the checked-out commit have no common ancestor"
            + (" in this shallow clone" if is_cut else ""),
            repair=deepen if is_cut else "",
        )
    changed = _ask(
        directory, "diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", "--ignore-submodules=none",
        base.split()[0], "--", ":/",
    )  # fmt: skip
    untracked = _ask(directory, "ls-files", "-z", "--others", "--exclude-standard", "--full-name", "--", ":/")
    if changed is None or untracked is None:
        raise WrongSurroundings(f"git cannot compare {directory} with {reference[:80]!r}")
    return tuple(dict.fromkeys(name for name in (changed + untracked).split("\0") if name))


def raw_difference(directory: Path, reference: str) -> tuple[str, str] | None:
    """The common ancestor of ``reference`` and the checked-out commit, and how the tracked files of the
    folder differ from it, as ``git diff --raw -z`` lists them; ``None`` where there is none."""
    base = common_ancestor(directory, reference)
    if base is None:
        return None
    listed = _ask(
        directory, "diff", "--raw", "-z", "--no-abbrev", "--no-renames", "--no-ext-diff",
        "--ignore-submodules=dirty", base, "--", ":/",
    )  # fmt: skip
    return None if listed is None else (base, listed)


def common_ancestor(directory: Path, reference: str) -> str | None:
    """The common ancestor of ``reference`` and the checked-out commit; ``None`` where there is none."""
    base = _ask(directory, "merge-base", f"{reference}^{{commit}}", "HEAD")
    return None if base is None else base.split()[0]


def contains(directory: Path, commit: str, ancestor: str) -> bool:
    """Whether ``ancestor`` is ``commit`` or before it. One that is not here is not."""
    return _ask(directory, "merge-base", "--is-ancestor", ancestor, commit) is not None


def log(directory: Path, commit: str, *, since: str = "", folder: str = "") -> tuple[LoggedCommit, ...]:
    """The commits that lead to ``commit`` but not to ``since``, the newest first; only those that
    change something in ``folder`` (a path from the repository's root), if it is given."""
    span = [f"{since}..{commit}"] if since else [commit]
    paths = ["--", f":(top,literal){folder}"] if folder else ["--"]
    listed = _ask(
        directory,
        "-c", "log.showSignature=false",
        "log", "-z", "--no-color", "--encoding=UTF-8", "--format=%H %P%n%B", *span, *paths,
    )  # fmt: skip
    if listed is None:
        raise WrongSurroundings(f"git has no history from {since or 'the start'} to {commit} in {directory}")
    found: list[LoggedCommit] = []
    for record in listed.split("\0"):
        # Warnings of git may stand before the first one; a message stands behind its commit.
        if line := _COMMIT_LINE.search(record):
            is_merge = len(line.group(2).split()) > 1
            found.append(LoggedCommit(line.group(1), record[line.end() :].strip(), is_merge))
    return tuple(found)


def add_tag(directory: Path, name: str, commit: str, message: str, *, moves: bool = False) -> None:
    """Make the annotated tag ``name`` of ``commit``; one that ``moves`` may be there, elsewhere. Raises
    ``WrongSurroundings``."""
    is_known = _do(directory, "var", "GIT_COMMITTER_IDENT").returncode == 0
    identity = () if is_known else _FALLBACK_IDENTITY
    finished = _do(
        directory, *identity, "tag", "--annotate", *(["--force"] if moves else []), "--cleanup=verbatim",
        f"--message={message}", name, commit,
    )  # fmt: skip
    if finished.returncode != 0:
        raise WrongSurroundings(f"cannot make the git tag {name}: {_said(finished)}")


def scratch(directory: Path, target: Path) -> None:
    """Make ``target`` a bare repository with the history and the tags of the one around ``directory``,
    or bring it up to date, so that tags can be made there and ``directory`` stays as it is.

    It borrows the other's objects, and keeps the tags that were made in it. It has no remote.
    Raises ``WrongSurroundings``.
    """
    root = _ask(directory, "rev-parse", "--show-toplevel")
    objects = _ask(directory, "rev-parse", "--path-format=absolute", "--git-path", "objects")
    if root is None or objects is None:
        raise WrongSurroundings(f"{directory} is not in a git repository")
    target.mkdir(parents=True, exist_ok=True)
    # Also over one that is there: an earlier run may have been ended while it made it.
    finished = _do(target, "init", "--quiet", "--bare", ".")
    if finished.returncode != 0:
        raise WrongSurroundings(f"cannot make a git repository in {target}: {_said(finished)}")
    alternates = target / "objects" / "info" / "alternates"
    alternates.write_text(objects.splitlines()[-1] + "\n", encoding="utf-8")
    finished = _do(
        target, "fetch", "--quiet", "--no-auto-gc", "--no-tags", "--no-write-fetch-head", "--update-shallow",
        root.splitlines()[-1], "+HEAD:refs/heads/scratch", "+refs/tags/*:refs/tags/*",
    )  # fmt: skip
    if finished.returncode != 0:
        raise WrongSurroundings(f"cannot copy the history of {directory}: {_said(finished)}")


def root(directory: Path) -> Path | None:
    """The top folder of the repository around ``directory``, which need not have a commit; ``None`` outside
    of one."""
    found = _ask(directory, "rev-parse", "--show-toplevel")
    return None if found is None else Path(found.splitlines()[-1])


def remote_address(directory: Path, remote: str) -> str:
    """The address of ``remote``, without credentials; empty when there is none."""
    found = (_ask(directory, "remote", "get-url", remote) or "").strip()
    return printable(process.without_credentials(found))


def push_addresses(directory: Path, remote: str) -> tuple[str, ...]:
    """Where `git push` takes what is pushed to ``remote``, by the user's own configuration (``pushurl``, of
    which there may be several, ``insteadOf``), without credentials; none where there is no such remote."""
    finished = _do(directory, "remote", "get-url", "--push", "--all", remote, errors_apart=True)
    lines = finished.output.splitlines() if finished.returncode == 0 else []
    return tuple(printable(process.without_credentials(line)) for line in lines)


def is_on_this_machine(address: str) -> bool:
    """Whether a remote's ``address`` is a path here, by git's own rule: a colon before the first slash is of
    a scheme or a host."""
    return address.startswith("file://") or ":" not in address.partition("/")[0]


def default_branch(directory: Path) -> str:
    """The branch that others start from: what ``origin`` said when it was cloned, else ``main``, or
    ``master`` where only that is there."""
    cloned = (_ask(directory, "symbolic-ref", "--short", "refs/remotes/origin/HEAD") or "").strip()
    if cloned.startswith("origin/"):
        return printable(cloned.removeprefix("origin/"))
    known = ("refs/heads/main", "refs/remotes/origin/main", "refs/heads/master", "refs/remotes/origin/master")
    found = (_ask(directory, "for-each-ref", "--format=%(refname)", *known) or "").split()
    # A repository without a commit has no branch yet, but the name of one.
    names = found or [(_ask(directory, "symbolic-ref", "HEAD") or "").strip()]
    has_only_master = all(name.endswith("/master") for name in names)
    return "master" if has_only_master else "main"


def has_remote(directory: Path, remote: str) -> bool:
    """Whether the repository knows ``remote`` by name."""
    return _ask(directory, "remote", "get-url", remote) is not None


def remote_tag(directory: Path, remote: str, name: str) -> str | None:
    """The commit of the tag ``name`` in ``remote``: empty when there is none, ``None`` when it
    cannot be asked."""
    ref = f"refs/tags/{name}"
    finished = _do(directory, *_PATIENCE, "ls-remote", remote, ref, f"{ref}^{{}}")
    if finished.returncode != 0:
        return None
    # The commit of an annotated tag is listed after the tag itself.
    lines = re.findall(r"^([0-9a-f]{40,64})\trefs/tags/", finished.output, re.MULTILINE)
    return lines[-1] if lines else ""


def remote_tags(directory: Path, remote: str, prefix: str) -> dict[str, str]:
    """The tags in ``remote`` that start with ``prefix``, and the commit of each.

    Raises ``WrongSurroundings``."""
    finished = _do(directory, *_PATIENCE, "ls-remote", "--tags", remote)
    if finished.returncode != 0:
        raise WrongSurroundings(f"the tags of {remote} cannot be listed: {_said(finished)}")
    listed = re.findall(r"^([0-9a-f]{40,64})\trefs/tags/(.+)$", finished.output, re.MULTILINE)
    # The commit of an annotated tag is listed after the tag itself.
    found = {name.removesuffix("^{}"): commit for commit, name in listed}
    return {name: commit for name, commit in found.items() if name.startswith(prefix)}


def check_push(directory: Path, remote: str, name: str, commit: str) -> None:
    """See whether a tag ``name`` of ``commit`` may be pushed, without pushing it: ``remote`` asks for who
    may write, and hooks of its own come later. Raises ``WrongSurroundings``."""
    ref = f"{commit}:refs/tags/{name}"
    finished = _do(directory, *_PATIENCE, "push", "--quiet", "--dry-run", remote, ref)
    if finished.returncode != 0:
        raise WrongSurroundings(
            f"the git tag {name} cannot be pushed to {remote}: {_said(finished)}",
            repair="see that `git push` works (in a job: `persist-credentials: true` of actions/checkout, "
            "and `contents: write`), or leave the tag out: --no-git-tag",
        )


def push_tag(directory: Path, remote: str, name: str, *, moves: bool = False) -> None:
    """Push the tag ``name``; one that ``moves`` may be there, elsewhere. Raises ``WrongSurroundings``."""
    ref = f"refs/tags/{name}"
    force = ["--force"] if moves else []
    finished = _do(directory, *_PATIENCE, "push", "--quiet", *force, remote, f"{ref}:{ref}")
    if finished.returncode != 0:
        raise WrongSurroundings(
            f"the git tag {name} was made, but cannot be pushed to {remote}: {_said(finished)}",
            repair=f"give the job `contents: write`, then run again, or push it: git push {remote} {ref}",
        )


def _do(directory: Path, *arguments: str, errors_apart: bool = False) -> process.Finished:
    """Run a git command that writes, or speaks to a remote, as the user's own configuration says."""
    command = ["git"]
    if _is_own_workspace(directory):
        command += ["-c", "safe.directory=*"]
    kept = {name: value for name, value in os.environ.items() if _KEPT_FOR_PUSH.fullmatch(name)}
    return process.run(
        [*command, "-C", directory, *arguments],
        environment=_environment(os.environ) | kept,
        errors_apart=errors_apart,
    )


def _said(finished: process.Finished) -> str:
    """What git says went wrong, without credentials in addresses."""
    lines = [line for line in finished.output.splitlines() if line.strip() and not line.startswith("hint:")]
    telling = [line for line in lines if line.startswith(("fatal:", "error:", " ! "))]
    text = (telling or lines or [f"exit code {finished.returncode}"])[0]
    return printable(process.without_credentials(text))[:300]


def _ask(directory: Path, *arguments: str, variables: Mapping[str, str] | None = None) -> str | None:
    """What git answers, with more ``variables``; ``None`` where it is missing or has no answer."""
    # Neither a program that the repository's configuration names nor a lock is wanted for a look.
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false"]
    if _is_own_workspace(directory):
        command += ["-c", "safe.directory=*"]
    try:
        # Its warnings (of a configuration that it cannot read, say) are no part of the answer.
        finished = process.run(
            [*command, "-C", directory, *arguments],
            environment={**_environment(os.environ), **(variables or {})},
            errors_apart=True,
        )
    except WrongSurroundings:
        return None
    if finished.returncode == 0:
        return finished.output
    if "dubious ownership" in finished.errors or "unsafe repository" in finished.errors:
        raise WrongSurroundings(
            f"git does not read {directory.resolve()}, which belongs to another user",
            repair=f"if you trust it: git config --global --add safe.directory {directory.resolve()}",
        )
    return None


def _is_own_workspace(directory: Path) -> bool:
    """Whether this is the checkout of a job. In a container it often belongs to another user, and
    the configuration by which ``actions/checkout`` says that it is safe is gone with its step."""
    workspace = os.environ.get("GITHUB_WORKSPACE")
    if not github.is_actions() or not workspace:
        return False
    return directory.resolve().is_relative_to(Path(workspace).resolve())


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    kept = {
        name: value
        for name, value in process.without_secrets(environment).items()
        if not name.startswith("GIT_") or name in _KEPT_VARIABLES
    }
    # Messages are read above.
    return {**kept, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
