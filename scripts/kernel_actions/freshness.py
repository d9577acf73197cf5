"""``freshness``: what has moved on since a kernel was built, as a table, as JSON, and as one issue.

Three things are compared: what the locked builder builds with what the newest one that this version's data
has would build; the day of the locked builder with today; and what is planned with what the Hub has. Being
out of date is no failure: the exit code is 0.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, time, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kernel_actions import builder, console, flake_lock, github, manifest, markdown, planning
from kernel_actions.builder_source import Source
from kernel_actions.compliance import clock
from kernel_actions.errors import EXIT_DONE
from kernel_actions.github import Issue
from kernel_actions.hub import client
from kernel_actions.planning import KernelPlan

if TYPE_CHECKING:
    from kernel_actions.cli import Options

# The label by which the issue is found again; only who may write to the repository can give it to one.
LABEL = "kernel-freshness"
TITLE = "Kernels are out of date"
_MARKER = "<!-- kernel-actions freshness: "
_HEADER = ("kernel", "what is out of date", "what to do")
_DAY = 24 * 60 * 60
# GitHub takes 65536 characters.
_MOST_SHOWN = 100
_LONGEST_LIST = 12


@dataclass(frozen=True)
class Finding:
    """Something that is out of date: of which kernel, ``what`` it is, and the ``repair``.

    ``key`` is the same for as long as it is the same finding, whatever the words.
    """

    kernel: str
    key: str
    what: str
    repair: str

    @property
    def mark(self) -> str:
        """What stands for it in the issue: a hash of the key, which may hold anything."""
        return hashlib.sha256(self.key.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Kernel:
    """What a kernel is built with, and what of it is published.

    ``planned`` are the variants that the builder publishes, ``newest`` those that the newest builder would;
    by name, with their Torch versions. ``published`` are those on the Hub; ``None``: its repository is not
    there, or the kernel names none. ``locked`` is the commit of the builder, and ``locked_at`` its time in
    seconds, 0 where it is not known.
    """

    name: str
    directory: str
    input_name: str
    locked: str
    locked_at: float
    planned: dict[str, tuple[str, ...]]
    newest: dict[str, tuple[str, ...]]
    published: frozenset[str] | None
    repo_id: str | None
    branch: str


def run(options: Options) -> int:
    """The command ``freshness``. Raises ``WrongInput`` and ``WrongSurroundings``."""
    folders = _folders(options)
    hub = client.connect(options.hub, options.token, is_anonymous=not options.token)
    newest, day = builder.newest()
    kernels = [read(folder, newest, hub) for folder in folders]
    now = datetime.combine(clock.today(), time(), timezone.utc).timestamp()
    findings = [one for kernel in kernels for one in look(kernel, newest, day, now, options.max_age)]
    issue = tell(options.github_token, findings, f"builder {newest[:12]} of {day}") if options.issue else None
    _print(options.format, kernels, findings, issue)
    return EXIT_DONE


def check_options(options: Options) -> None:
    """Raises ``WrongInput`` for a folder that is no kernel, and where there is none to be found."""
    for folder in _folders(options):
        manifest.load(folder)


def _folders(options: Options) -> list[Path]:
    if not options.discover:
        return options.kernel_dirs
    from kernel_actions.matrix import monorepo

    return monorepo.discover(Path(options.discover))


def read(folder: Path, newest: str, hub: client.Hub) -> Kernel:
    """What is to be compared, of the kernel in ``folder``; ``newest`` is a commit of the builder.

    Raises ``WrongInput`` and ``WrongSurroundings``.
    """
    plan = planning.plan(folder)
    lock = flake_lock.read(folder / "flake.lock")
    modified = lock.node.get("lastModified")
    repo_id = plan.manifest.repo_id
    branch = plan.manifest._replace(version=plan.manifest.version or 1).version_branch
    published = None
    if repo_id:
        client.check_repo_id(repo_id)
        published = _published(hub, repo_id, branch)
    return Kernel(
        name=plan.manifest.name,
        directory=folder.as_posix(),
        input_name=lock.input_name,
        locked=plan.builder.commit,
        locked_at=float(modified) if isinstance(modified, int) and modified > 0 else 0.0,
        planned=_bundle(plan),
        newest=_bundle(planning.plan(folder, Source(newest))),
        published=published,
        repo_id=repo_id,
        branch=branch,
    )


def _bundle(plan: KernelPlan) -> dict[str, tuple[str, ...]]:
    return {one.name: one.torches for one in plan.variants.variants if one.bundled}


def _published(hub: client.Hub, repo_id: str, branch: str) -> frozenset[str] | None:
    refs = client.refs(hub, repo_id)
    if refs is None:
        return None
    if branch not in refs.branches:
        return frozenset()
    parts = [path.split("/") for path in client.remote_files(hub, repo_id, refs.branches[branch])]
    return frozenset(
        one[1] for one in parts if len(one) == 3 and one[0] == "build" and one[2] == "metadata.json"
    )


def look(kernel: Kernel, newest: str, day: str, now: float, max_age: int) -> list[Finding]:
    """What is out of date of a kernel. Pure.

    ``newest`` and ``day`` are the newest builder that is known, ``now`` is in seconds, ``max_age`` in days.
    """
    found: list[Finding] = []

    def add(key: str, what: str, repair: str) -> None:
        found.append(Finding(kernel.name, f"{kernel.directory}: {key}", what, repair))

    update = (
        f"run `nix flake update {kernel.input_name}` in {kernel.directory}, commit flake.lock, then release"
    )
    built = {torch for torches in kernel.planned.values() for torch in torches}
    added = {name: torches for name, torches in kernel.newest.items() if name not in kernel.planned}
    by_torch: dict[str, list[str]] = {}
    for name, torches in added.items():
        for torch in [one for one in torches if one not in built] or [""]:
            by_torch.setdefault(torch, []).append(name)
    for torch, names in by_torch.items():
        what = f"Torch {torch}: not built" if torch else "not built"
        add(
            f"torch {torch or ','.join(sorted(names))}",
            f"{what}: {_listed(names)} (builder of {day})",
            update,
        )
    age = int((now - kernel.locked_at) / _DAY)
    if kernel.locked_at and age > max_age and kernel.locked != newest:
        add(
            "lock",
            f"flake.lock is {age} days old: builder {kernel.locked[:12]}, newest {newest[:12]}",
            update,
        )
    # The kernel of a repository of its own needs no name.
    publish = "run the release workflow" + (f" for {kernel.directory}" if kernel.directory != "." else "")
    if kernel.repo_id and kernel.published is None:
        add("unpublished", f"{kernel.repo_id} is not on the Hub, or not to be seen", publish)
    elif kernel.published is not None:
        missing = sorted(kernel.planned.keys() - kernel.published)
        if missing:
            what = f"not published on {kernel.branch} of {kernel.repo_id}: {_listed(missing)}"
            add(f"missing {','.join(missing)}", what, publish)
    return found


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LONGEST_LIST} more" if len(names) > _LONGEST_LIST else ""
    return f"{', '.join(names[:_LONGEST_LIST])}{more}"


@dataclass(frozen=True)
class Step:
    """What becomes of the issue, with its text and a comment that people are told of."""

    kind: Literal["none", "open", "change", "close"]
    body: str = ""
    comment: str = ""


def step(issue: Issue | None, findings: Sequence[Finding], known: str) -> Step:
    """What is to be done about the issue. Pure.

    One that a person has closed says "not now": it stays closed until something else is out of date.
    ``known`` says what was compared with.
    """
    before = _marks(issue.body) if issue else set()
    new = [one for one in findings if one.mark not in before]
    text = body(findings, known)
    if issue is None or not issue.is_open:
        return Step("open", text) if new else Step("none")
    if not findings:
        return Step("close", text, "Nothing is out of date any more.")
    if text == issue.body.replace("\r\n", "\n"):
        return Step("none")
    return Step("change", text, f"New since the last time:\n\n{_table(new)}" if new else "")


def body(findings: Sequence[Finding], known: str) -> str:
    """The text of the issue."""
    marks = " ".join(one.mark for one in findings)
    if findings:
        text = f"Compared with {known} and with the Hub:\n\n{_table(findings)}"
    else:
        text = f"Nothing is out of date, compared with {known} and with the Hub.\n"
    return f"{text}\nThe workflow that opened this keeps it up to date.\n\n{_MARKER}{marks} -->\n"


def _table(findings: Sequence[Finding]) -> str:
    rows = [(one.kernel, one.what, one.repair) for one in findings[:_MOST_SHOWN]]
    more = f"\nand {len(findings) - _MOST_SHOWN} more\n" if len(findings) > _MOST_SHOWN else ""
    return markdown.table(_HEADER, rows) + more


def _marks(text: str) -> set[str]:
    """What stands for the findings of an issue when it was last written; nothing where it was edited away."""
    return set(text.partition(_MARKER)[2].partition("-->")[0].split())


def tell(token: str, findings: Sequence[Finding], known: str) -> Issue | None:
    """Open, change or close the issue, as ``step`` says. Raises ``WrongSurroundings``."""
    issue = github.find_issue(token, LABEL, _MARKER)
    do = step(issue, findings, known)
    if do.kind == "open":
        return github.open_issue(token, TITLE, do.body, LABEL)
    if do.kind == "none" or issue is None:
        return issue
    return github.change_issue(
        token, issue.number, body=do.body, comment=do.comment, close=do.kind == "close"
    )


def _print(form: str, kernels: Sequence[Kernel], findings: Sequence[Finding], issue: Issue | None) -> None:
    value: list[dict[str, Any]] = [asdict(one) for one in findings]
    address = issue.address if issue and issue.is_open else ""
    if form == "json":
        listed = [
            {"kernel": one.name, "dir": one.directory, "builder": one.locked, "repo_id": one.repo_id}
            for one in kernels
        ]
        print(
            json.dumps(
                {"fresh": not findings, "kernels": listed, "findings": value, "issue": address}, indent=2
            )
        )
        return
    rows = [(one.kernel, one.what, one.repair) for one in findings]
    with github.untrusted_output():
        print(console.table(_HEADER, rows) if rows else "Nothing is out of date.")
        if address:
            print(address)
    if form == "github":
        fresh = "false" if findings else "true"
        github.set_outputs({"fresh": fresh, "findings": json.dumps(value), "issue": address})
        title = (
            f"Out of date: {console.counted(len(findings), 'thing')}"
            if findings
            else "Nothing is out of date"
        )
        github.add_summary(
            markdown.join(
                markdown.heading("warned" if findings else "passed", title),
                _table(findings) if findings else "",
                markdown.link(address),
            )
        )
