"""``rollback``: take a release back, by making its branch what an earlier release was."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kernel_actions import console, github, manifest, markdown, settings
from kernel_actions.errors import EXIT_DONE, WrongInput, printable
from kernel_actions.hub import client
from kernel_actions.release import rollback
from kernel_actions.release.rollback import Done, Rollback

if TYPE_CHECKING:
    from kernel_actions.cli import Options

_HEADER = ("variant", "what", "files", "size")


def check_options(options: Options) -> tuple[str, str]:
    """The repository, and the prefix of its git tags. Raises ``WrongInput`` where it, or the release, is not
    given."""
    if not options.to:
        raise WrongInput("nothing to go back to", repair="give --to: a tag or a commit on the Hub")
    repo_id, prefix = options.repo_id, ""
    if not repo_id:
        kernel = manifest.load(options.kernel_dir)
        repo_id, prefix = kernel.repository("roll back"), settings.load(options.kernel_dir).tag_prefix
    client.check_repo_id(repo_id)
    return repo_id, prefix


def run(options: Options) -> int:
    """The command ``rollback``.

    Raises ``WrongInput``, ``KernelFailed`` (what to go back to is not as it should be) and
    ``WrongSurroundings``.
    """
    repo_id, prefix = check_options(options)
    hub = client.connect(options.hub, options.token)
    made = rollback.prepare(hub, repo_id, options.to, prefix=prefix)
    if options.format != "json":
        _print_plan(options.format, made)
    done = None if options.dry_run else rollback.carry_out(made, options.trust_config)
    _print_outcome(options.format, made, done)
    return EXIT_DONE


def _title(made: Rollback) -> str:
    current = made.current or "what no release recorded"
    return (
        f"{made.branch} of {made.repo_id}: {current} → {made.version}, as {made.target.commit[:12]} held it"
    )


def _rows(made: Rollback) -> list[tuple[str, str, str, str]]:
    return [(one.name, one.action, str(one.files), console.size(one.size)) for one in made.variants]


def _print_plan(form: str, made: Rollback) -> None:
    rows = _rows(made)
    with github.untrusted_output():
        print(printable(_title(made)))
        print(f"\n{console.table(_HEADER, rows)}\n", flush=True)


def _outcome(made: Rollback, done: Done | None) -> list[str]:
    taken = ", ".join(one.release for one in made.taken)
    if made.changes.is_empty:
        return [f"{made.branch} holds {made.version} already, as {made.head}: nothing to do"]
    if done is None:
        marks = [f"{taken} would be marked as rolled back"] if taken else []
        return ["Dry run, nothing was changed", *marks]
    marks = [f"Marked as rolled back: {taken}. The tags stay"] if taken else []
    return [f"{made.branch} of {made.repo_id} is {made.version} again, as {done.commit}", *marks]


def _print_outcome(form: str, made: Rollback, done: Done | None) -> None:
    commit = done.commit if done else ""
    if form == "json":
        loaded = done.verified.loaded if done and done.verified else ""
        value: dict[str, Any] = {**made.as_json(), "commit": commit, "loaded": loaded}
        with github.untrusted_output():
            print(json.dumps(value, indent=2))
        return
    lines = _outcome(made, done)
    for line in lines:
        print(printable(line))
    if form == "github":
        github.set_outputs(
            {
                "release": str(made.version),
                "commit": commit,
                "rolled-back": json.dumps([one.release for one in made.taken]),
            }
        )
        verdict: markdown.Verdict = "passed" if done or made.changes.is_empty else "planned"
        github.add_summary(
            markdown.join(
                markdown.heading(verdict, f"Roll back {_title(made)}"),
                markdown.lines(lines),
                markdown.table(_HEADER, _rows(made)),
            )
        )
