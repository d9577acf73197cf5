"""The release on GitHub: the notes of a version and the checksums of what was published.

It is made where a job gives its token (GITHUB_TOKEN) and says its repository (GITHUB_REPOSITORY), once the
git tag is pushed; one that is there already stays as it is.
"""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote, urlsplit

from kernel_actions.errors import WrongSurroundings, printable
from kernel_actions.release.plan import ReleasePlan
from kernel_actions.release.record import Record

_API = "https://api.github.com"
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}
_PATIENCE = 30.0
# GitHub refuses a body of more than 125000 characters.
_LONGEST_NOTES = 100_000


def publish(made: ReleasePlan, recorded: Record | None, commit: str) -> list[str]:
    """Make the release on GitHub; says what had to be done: nothing where it is there, or no token is.

    Raises ``WrongSurroundings``.
    """
    token = os.environ.get("GITHUB_TOKEN", "")
    repository = os.environ.get("GITHUB_REPOSITORY", "")
    api = os.environ.get("GITHUB_API_URL") or _API
    parts = urlsplit(api)
    is_safe = parts.scheme == "https" or parts.hostname in _LOOPBACK
    if not token or not _REPOSITORY.fullmatch(repository) or not is_safe:
        return []
    place = f"{api.rstrip('/')}/repos/{repository}/releases"
    if _ask(f"{place}/tags/{quote(made.git_tag, safe='')}", token) is not None:
        return []
    _ask(
        place,
        token,
        {
            "tag_name": made.git_tag,
            "target_commitish": made.commit,
            "name": f"{made.kernel} {made.version}",
            "body": notes(made, recorded, commit),
            "prerelease": made.is_pre,
        },
    )
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


def _ask(address: str, token: str, value: dict[str, Any] | None = None) -> object | None:
    """Ask the API of GitHub; ``None`` when there is no such thing."""
    data = None if value is None else json.dumps(value).encode()
    request = urllib.request.Request(address, data=data, method="GET" if data is None else "POST")
    request.add_header("Accept", "application/vnd.github+json")
    request.add_header("X-GitHub-Api-Version", "2022-11-28")
    # Not to where a redirect leads.
    request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
            found: object = json.loads(answer.read(10_000_000))
            return found
    except urllib.error.HTTPError as error:
        if error.code == 404 and data is None:
            return None
        repair = "run again to make it"
        if error.code in (401, 403, 404):
            repair = "give the job `contents: write`, then run again"
        said = f"HTTP {error.code} {printable(error.reason)}"
    except (OSError, ValueError) as error:
        said, repair = printable(str(getattr(error, "reason", error))), "run again to make it"
    raise WrongSurroundings(f"all is published, but there is no release on GitHub: {said}", repair=repair)
