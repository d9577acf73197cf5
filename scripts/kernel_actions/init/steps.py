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
from kernel_actions.init.detection import WORKFLOWS, GitHub, Repository, Workflow
from kernel_actions.init.plan import File
from kernel_actions.init.runners import Choice
from kernel_actions.settings import Runner

_HUB = "https://huggingface.co"
# So many are named in a sentence, or have a command each.
_MANY = 4
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


def left(repository: Repository, files: Sequence[File], choices: Sequence[Choice]) -> tuple[Step, ...]:
    """The steps that are left once ``files`` are written."""
    texts = {one.path: one.before if one.state == "edited" else one.after for one in files}
    workflows = "\n".join(
        text for path, text in texts.items() if text is not None and path.is_relative_to(WORKFLOWS)
    )
    place = repository.github or _NO_PLACE
    return (
        *_lock(repository),
        *_commit(repository, files, place),
        *_hub(repository, workflows, place),
        *_runners(repository, files, choices, place),
        *_settings(workflows, place),
        *_others(repository, texts),
    )


def _lock(repository: Repository) -> Iterator[Step]:
    """What is not locked can be neither planned nor built: it is the first thing to do."""
    folders = [kernel.folder for kernel in repository.kernels if not kernel.is_locked]
    if not folders:
        return
    names = _listed([kernel.name for kernel in repository.kernels if not kernel.is_locked])
    without = [folder for folder in folders if not (repository.root / folder / "flake.nix").is_file()]
    what = "flake.lock" if not without else "flake.lock (nor flake.nix, which docs/tutorial.md shows)"
    if len(folders) > _MANY:
        commands: tuple[str, ...] = (
            "for folder in " + shlex.join(map(str, folders)) + '; do nix flake lock "./$folder"; done',
        )
    else:
        commands = tuple(f"nix flake lock {shlex.quote(f'./{folder}')}" for folder in folders)
    yield Step(
        "Lock the builder, and commit flake.lock",
        f"{names} {'has' if len(folders) == 1 else 'have'} no {what}. It names the revision of the builder: "
        "without it, nothing can be planned or built. Nix writes it, once flake.nix is in git.",
        commands,
    )


def _listed(names: Sequence[str]) -> str:
    """``names`` in a sentence."""
    shown = list(names[:_MANY]) + ([f"{len(names) - _MANY} more"] if len(names) > _MANY else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _commit(repository: Repository, files: Sequence[File], place: GitHub) -> Iterator[Step]:
    if not repository.is_git:
        yield Step("Make it a git repository", "Nix and the release see what git has.", ("git init",))
    if repository.github is None:
        why = (
            f"origin is {repository.origin}, which is not on GitHub, and these workflows run nowhere else"
            if repository.origin
            else "It has no remote named origin"
        )
        remote = " --remote github" if repository.origin else ""
        yield Step(
            "Put the repository on GitHub",
            f"{why}: put its owner and name in place of OWNER/REPO below.",
            (f"gh repo create OWNER/REPO --source .{remote} --push --private",),
        )
    elif repository.is_github_assumed:
        yield Step(
            f"See that {repository.github.host} is a GitHub Enterprise Server",
            "Its name does not tell. These workflows run on no other server: there, put the repository on "
            "GitHub as well.",
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
    unnamed = [str(kernel.folder / "build.toml") for kernel in repository.kernels if not kernel.repo_id]
    if unnamed:
        yield Step(
            f"Name the repository on the Hub in {_listed(unnamed)}",
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
    repository: Repository, files: Sequence[File], choices: Sequence[Choice], place: GitHub
) -> Iterator[Step]:
    is_new = any(one.path.name == settings.FILE_NAME and one.is_written for one in files)
    own = settings.Settings()
    if not is_new and repository.kernels:
        # What is wrong in it is said by every command that needs it.
        with contextlib.suppress(KernelActionsError):
            own = settings.load(repository.root / repository.kernels[0].folder)
    wanted: dict[Runner, list[str]] = {}
    unnamed = []
    for choice in choices:
        runner = choice.runner if is_new else own.test_runner(choice.system, choice.backend)
        if runner is None:
            unnamed += [] if choice.is_named else [choice]
        elif runner.group or "self-hosted" in runner.labels:
            wanted.setdefault(runner, []).append(f"{choice.backend} on {choice.system}")
    for runner, targets in wanted.items():
        yield _runner(runner, targets, place)
    for choice in unnamed:
        yield Step(
            f"Name a runner that tests {choice.backend} on {choice.system}, if you have one",
            "Until then its variants are built and published untested: kernel-actions.toml says so in "
            f'[test.allow-untested]. Write "{choice.key}" = [labels] or {{ group = "name" }} below '
            "[runners.test], and take the line of its variants out.",
        )


def _runner(runner: Runner, targets: Sequence[str], place: GitHub) -> Step:
    why = (
        f"It runs the tests for {_listed(targets)}: docs/runners.md sets one up that keeps nothing between "
        "jobs. If you have none: docs/workflows.md says how to leave them out."
    )
    if runner.group:
        labels = f" with the labels {', '.join(runner.labels)}" if runner.labels else ""
        return Step(
            f"Have a runner in the group {runner.group}{labels} that this repository may use",
            f"{why} In the organization's settings: Actions, Runner groups.",
            (),
            f"https://{place.host}/organizations/{place.owner}/settings/actions/runner-groups",
        )
    said = ",".join(label for label in runner.labels if label not in ("self-hosted", "linux", "x64", "arm64"))
    name = f" --labels {shlex.quote(said)}" if said else ""
    return Step(
        f"Have a runner with the labels {', '.join(runner.labels)}",
        why,
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
        found = [one for one in repository.workflows if one.kind == kind and one.path not in texts]
        going = _going(found)
        if going:
            named = ", ".join(path.name for path in going)
            yield Step(
                f"Retire those that {what}, when the new workflows have run",
                f"{named}: docs/migration.md says what takes the place of what.",
                (f"git rm -- {shlex.join(map(str, going))}",),
            )
        for one in found:
            if one.path not in going:
                starters = [path.name for path in one.started_by if path not in going]
                yield Step(
                    f"Keep {one.path.name} until nothing starts it",
                    f"It is one of those that {what}, and {_listed(starters)} {_start(starters)} it: change "
                    f"{'that' if len(starters) == 1 else 'those'} first.",
                )


def _going(workflows: Sequence[Workflow]) -> list[PurePosixPath]:
    """Those that can be removed together: nothing starts them but others of them."""
    going = [one.path for one in workflows]
    while True:
        kept = [
            one.path
            for one in workflows
            if one.path in going and all(path in going for path in one.started_by)
        ]
        if kept == going:
            return going
        going = kept


def _start(starters: Sequence[str]) -> str:
    return "starts" if len(starters) == 1 else "start"
