"""The release on GitHub: the notes of a version and the checksums of what was published.

It is made where a job gives its token (GITHUB_TOKEN) and says its repository (GITHUB_REPOSITORY), once the
git tag is pushed; one that is there already stays as it is.
"""

from __future__ import annotations

import os

from kernel_actions import github
from kernel_actions.errors import WrongSurroundings
from kernel_actions.release.plan import ReleasePlan
from kernel_actions.release.record import Record

# GitHub refuses a body of more than 125000 characters.
_LONGEST_NOTES = 100_000


def publish(made: ReleasePlan, recorded: Record | None, commit: str) -> list[str]:
    """Make the release on GitHub; says what had to be done: nothing where it is there, or no token is.

    Raises ``WrongSurroundings``.
    """
    token = os.environ.get("GITHUB_TOKEN", "")
    if not github.can_ask(token):
        return []
    try:
        if github.has_release(token, made.git_tag):
            return []
        github.make_release(
            token,
            made.git_tag,
            commit=made.commit,
            name=f"{made.kernel} {made.version}",
            body=notes(made, recorded, commit),
            is_pre=made.is_pre,
        )
    except github.Refused as error:
        is_forbidden = error.status in (401, 403, 404)
        raise WrongSurroundings(
            f"all is published, but there is no release on GitHub: {error.said}",
            repair=f"{error.repair}, then run again" if is_forbidden else "run again to make it",
        ) from error
    return [f"the release {made.git_tag} on GitHub"]


def notes(made: ReleasePlan, recorded: Record | None, commit: str) -> str:
    """The changelog, and what was published: the commit on the Hub, and a hash over each variant's files."""
    lines = [made.changelog[:_LONGEST_NOTES].rstrip(), ""] if made.commits else []
    lines += [
        f"[{made.repo_id}]({made.address}/kernels/{made.repo_id}/tree/{made.hub_tag}) at `{commit}`",
        "",
        "| Variant | Digest of its files | SHA-256 of metadata.json |",
        "| --- | --- | --- |",
    ]
    for name, one in sorted(recorded.variants.items()) if recorded else ():
        lines.append(f"| `{name}` | `{one.digest}` | `{one.metadata}` |")
    return "\n".join(lines) + "\n"
