"""``verify``: what a revision on the Hub holds, seen as a user without a token sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_actions import built, console, github, manifest, markdown
from kernel_actions.errors import EXIT_DONE, WrongInput, printable
from kernel_actions.hub import client
from kernel_actions.release import verification
from kernel_actions.release.signing import Expected
from kernel_actions.release.verification import Verified

if TYPE_CHECKING:
    from kernel_actions.cli import Options

_HEADER = ("variant", "files", "size", "result", "signed by", "what is wrong")


def check_options(options: Options) -> str:
    """The repository. Raises ``WrongInput`` where it, or the revision, is not given."""
    if not options.revision:
        raise WrongInput("no revision to verify", repair="give --revision: a commit, a branch or a tag")
    repo_id: str = options.repo_id or manifest.load(options.kernel_dir).repository("verify")
    client.check_repo_id(repo_id)
    return repo_id


def run(options: Options) -> int:
    """The command ``verify``.

    Raises ``KernelFailed`` when something is not as it should be, ``WrongInput`` and
    ``WrongSurroundings``.
    """
    repo_id = check_options(options)
    expected = Expected(options.identity, options.issuer) if options.identity else None
    verified = verification.verify(
        repo_id,
        options.revision,
        address=options.hub,
        expected=expected,
        trust_config=options.trust_config,
        loads=options.load,
    )
    if options.report:
        built.write_json(Path(options.report), verified.as_json())
    _print(options.format, verified)
    verification.check(verified)
    return EXIT_DONE


def _print(form: str, verified: Verified) -> None:
    if form == "json":
        print(json.dumps(verified.as_json(), indent=2))
        return
    rows = [
        (one.name, str(one.files), console.size(one.bytes), one.result, one.signer, one.problem)
        for one in verified.variants
    ]
    release = f", release {verified.release}" if verified.release else ""
    title = f"{verified.repo_id} at {verified.commit}{release}"
    with github.untrusted_output():
        print(console.table(_HEADER, rows))
        print()
        print(title)
        for problem in verified.problems:
            print(printable(problem))
    if form == "github":
        github.set_outputs({"variants": json.dumps([one.name for one in verified.variants])})
        broken = [f"{one.name}: {one.problem}" for one in verified.variants if one.problem]
        said = "as released" if verified.is_passed else "not as released"
        github.add_summary(
            markdown.join(
                markdown.heading("passed" if verified.is_passed else "failed", f"{title}: {said}"),
                markdown.bullets([*verified.problems, *broken]),
                markdown.table(_HEADER, rows),
            )
        )
