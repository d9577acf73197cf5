"""What is left to do by hand, with the links and commands of this repository.

It is read off the workflows: what they ask for (variables, secrets, environments, identities, runners) is
what has to be set.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from kernel_actions import settings
from kernel_actions.errors import KernelActionsError
from kernel_actions.init.detection import WORKFLOWS, GitHub, Repository
from kernel_actions.init.plan import File

_HUB = "https://huggingface.co"
# A job's own; a step may have an input of this name, further in.
_ENVIRONMENT = re.compile(
    r"^    environment:(?:\s+name:)?[ \t]*([A-Za-z0-9_-]+)[ \t]*(?:#.*)?$", re.MULTILINE
)
_ENVIRONMENTS = {
    "hub": "Its jobs hold what may publish: have it ask for a reviewer, and allow the default branch alone.",
    "fork-pull-requests": "Required reviewers: somebody looks at a fork's code before your runners run it.",
}
_NO_PLACE = GitHub("github.com", "OWNER", "REPO")


@dataclass(frozen=True)
class Step:
    """Something to do: what, why, the commands for it, and the page where it can be done in place of them."""

    title: str
    why: str
    commands: tuple[str, ...] = ()
    link: str = ""


def left(repository: Repository, files: Sequence[File], gpu_runner: tuple[str, ...]) -> tuple[Step, ...]:
    """The steps that are left once ``files`` are written."""
    texts = {one.path: one.before if one.state == "edited" else one.after for one in files}
    workflows = "\n".join(
        text for path, text in texts.items() if text is not None and path.is_relative_to(WORKFLOWS)
    )
    place = repository.github or _NO_PLACE
    return (
        *_commit(repository, files, place),
        *_hub(repository, workflows, place),
        *_runners(repository, files, gpu_runner, place),
        *_settings(workflows, place),
        *_others(repository, texts),
    )


def _commit(repository: Repository, files: Sequence[File], place: GitHub) -> Iterator[Step]:
    if not repository.is_git:
        yield Step("Make it a git repository", "Nix and the release see what git has.", ("git init",))
    if repository.github is None:
        yield Step(
            "Put the repository on GitHub",
            "It has no remote named origin: put its owner and name in place of OWNER/REPO below.",
            ("gh repo create OWNER/REPO --source . --push --private",),
        )
    written = [str(one.path) for one in files if one.is_written]
    if written:
        yield Step(
            "Commit it, on a branch of its own",
            "The pull request runs the new checks on itself.",
            (
                f"git switch --create kernel-actions && git add -- {_paths(written)}",
                'git commit --message "ci: check, build, test and release by kernel-actions"',
                "git push --set-upstream origin kernel-actions",
            ),
            f"{place.url}/compare/kernel-actions?expand=1",
        )


def _paths(written: Sequence[str]) -> str:
    """The files that were written, for git; many of one name by a pattern."""
    inner = [path for path in written if path.endswith(f"/{settings.FILE_NAME}")]
    if len(inner) < 4:
        return shlex.join(written)
    others = [path for path in written if path not in inner]
    return shlex.join([*others, f":(glob)**/{settings.FILE_NAME}"])


def _hub(repository: Repository, workflows: str, place: GitHub) -> Iterator[Step]:
    for kernel in repository.kernels:
        if not kernel.repo_id:
            where = PurePosixPath(kernel.folder) / "build.toml"
            yield Step(
                f"Name the repository on the Hub in {where}",
                'Releases go there: repo-id = "your-name/your-kernel" below [general.hub].',
            )
    environments = list(dict.fromkeys(_ENVIRONMENT.findall(workflows)))
    for name in environments:
        host = "" if place.host == "github.com" else f"--hostname {place.host} "
        why = _ENVIRONMENTS.get(name, "Its jobs wait for those that it names.")
        yield Step(
            f"Make the environment {name}",
            why,
            (f"gh api {host}--method PUT repos/{place.owner}/{place.name}/environments/{name}",),
            f"{place.url}/settings/environments",
        )
    if "fork-pull-requests" in environments:
        yield Step(
            "Have pull requests of forks wait for approval",
            "A fork can change the workflow in its pull request. Actions, General: require approval for all "
            "external contributors.",
            (),
            f"{place.url}/settings/actions",
        )
    environment = "hub" if "hub" in environments else next(iter(environments), "")
    yield from _publisher(repository, workflows, environment, place)


def _publisher(repository: Repository, workflows: str, environment: str, place: GitHub) -> Iterator[Step]:
    """Who publishes: the job itself, by its identity, or a token."""
    env = f" --env {environment}" if environment else ""
    named = [kernel.repo_id for kernel in repository.kernels if kernel.repo_id]
    can_be_trusted = "vars.HF_OIDC_RESOURCE" in workflows and len(named) == 1
    if can_be_trusted:
        of = f", environment {environment}" if environment else ""
        yield Step(
            "Trust this repository on the Hub: then there is no secret to keep",
            f"On the kernel's page there: Settings, Trusted Publishers: GitHub, repository {place.owner}/"
            f"{place.name}, workflow release.yml{of}; the same for rollback.yml. The variable has the "
            "jobs ask.",
            (f"gh variable set HF_OIDC_RESOURCE --repo {place.slug}{env} --body kernels/{named[0]}",),
            f"{_HUB}/kernels/{named[0]}/settings",
        )
    if "secrets.HF_TOKEN" in workflows:
        yield Step(
            "Or keep a token" if can_be_trusted else "Keep a token for the Hub",
            "Fine-grained, with the right to write to the kernel's repository. The command asks for it.",
            (f"gh secret set HF_TOKEN --repo {place.slug}{env}",),
            f"{_HUB}/settings/tokens",
        )


def _runners(
    repository: Repository, files: Sequence[File], gpu_runner: tuple[str, ...], place: GitHub
) -> Iterator[Step]:
    is_new = any(one.path.name == settings.FILE_NAME and one.is_written for one in files)
    wanted: dict[tuple[str, ...], list[str]] = {}
    for kernel in repository.kernels:
        own = settings.Settings()
        if not is_new:
            # What is wrong in it is said by every command that needs it.
            with contextlib.suppress(KernelActionsError):
                own = settings.load(repository.root / kernel.folder)
        for backend in kernel.backends:
            labels = own.test_runner("x86_64-linux", backend)
            if "self-hosted" in labels:
                wanted.setdefault(gpu_runner or labels if is_new else labels, []).append(backend)
    for labels, backends in wanted.items():
        said = ",".join(label for label in labels if label not in ("self-hosted", "linux", "x64"))
        name = f" --labels {shlex.quote(said)}" if said else ""
        yield Step(
            f"Have a runner with the labels {', '.join(labels)}",
            f"It runs the tests for {', '.join(dict.fromkeys(backends))}: docs/runners.md sets one up that "
            "keeps nothing between jobs. If you have none: docs/workflows.md says how to leave them out.",
            (f"./config.sh --url {place.url} --ephemeral{name} --token TOKEN",),
            f"{place.url}/settings/actions/runners/new",
        )


def _settings(workflows: str, place: GitHub) -> Iterator[Step]:
    if "gh pr create" in workflows:
        yield Step(
            "Let workflows open pull requests",
            'The box "Allow GitHub Actions to create and approve pull requests".',
            (),
            f"{place.url}/settings/actions",
        )
    named = [
        name
        for name in ("Compliant", "Compliance", "Tested")
        if re.search(rf"^    name: {name}$", workflows, re.MULTILINE)
    ]
    # Of many kernels, a job of the first name sums up those of the second.
    checks = [name for name in named if name != "Compliance" or "Compliant" not in named]
    if checks:
        yield Step(
            f"Require {' and '.join(checks)} for the default branch",
            "A required check that was skipped counts as passed on GitHub; these always run.",
            (),
            f"{place.url}/settings/rules/new?target=branch",
        )


def _others(repository: Repository, texts: dict[PurePosixPath, str | None]) -> Iterator[Step]:
    does = {
        "kernel-builder": "build with the builder itself",
        "hf-jobs": "build or test on Hugging Face Jobs",
    }
    for kind, what in does.items():
        found = [str(one.path) for one in repository.workflows if one.kind == kind and one.path not in texts]
        if found:
            named = ", ".join(PurePosixPath(path).name for path in found)
            yield Step(
                f"Retire those that {what}, when the new workflows have run",
                f"{named}: docs/migration.md says what takes the place of what.",
                (f"git rm -- {shlex.join(found)}",),
            )
