"""Which events give code a runner of one's own, for every event that GitHub has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import check_jsonschema
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = [
    *sorted(ROOT.glob("templates/workflows/**/build-and-test.yml")),
    ROOT / ".github/workflows/build-and-test.yml",
]
SCHEMA = Path(check_jsonschema.__file__).parent / "builtin_schemas" / "vendor" / "github-workflows.json"
EVENTS = sorted({*json.loads(SCHEMA.read_text())["definitions"]["event"]["enum"], "schedule"})
# Only people who can write to the repository cause these, and their code is that of the repository.
TRUSTED = {"push", "merge_group", "workflow_dispatch", "schedule"}


def holds(condition: str, event: str, repository: str, head: str | None) -> bool:
    """Whether the condition of a job holds, by the rules of GitHub's expressions for what is used of them."""
    values = {
        "github.event_name": event,
        "github.repository": repository,
        "github.event.pull_request.head.repo.full_name": head,
    }
    text = re.sub(r"contains\(fromJSON\('([^']*)'\), ([\w.]+)\)", r"(\2 in \1)", condition)
    text = re.sub(r"github(?:\.\w+)+", lambda found: repr(values[found[0]]), text)
    text = text.replace("||", " or ").replace("&&", " and ").replace("!(", "not (")
    assert re.fullmatch(r"""(?:\s|not|and|or|in|==|None|[()\[\],]|'[\w./-]*'|"[\w-]*")+""", text), text
    return bool(eval(" ".join(text.split()), {"__builtins__": {}}))


def plans_untrusted(path: Path, event: str, head: str | None, approved: str) -> bool:
    """Whether the plan of a run is that for untrusted code; ``approved`` is what ``approve`` puts out."""
    jobs: dict[str, Any] = yaml.safe_load(path.read_text())["jobs"]
    asks = holds(jobs["approve"]["if"], event, "me/tiny", head)
    (plan,) = [step for step in jobs["plan"]["steps"] if step.get("id") == "matrix"]
    assert plan["with"]["untrusted"] == (
        "${{ needs.approve.result != 'skipped' && needs.approve.outputs.approved != 'true' }}"
    )
    return asks and approved != "true"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: str(path.relative_to(ROOT)))
@pytest.mark.parametrize("event", [*EVENTS, "one_that_does_not_exist_yet", ""])
def test_only_listed_events_are_trusted(path: Path, event: str) -> None:
    for head in ("stranger/tiny", None):
        assert plans_untrusted(path, event, head, "false") == (event not in TRUSTED)
        assert not plans_untrusted(path, event, head, "true")
    # A pull request whose head is this repository, and nothing else that comes from one.
    is_own = event == "pull_request"
    assert plans_untrusted(path, event, "me/tiny", "false") == (event not in TRUSTED and not is_own)


def test_the_list_of_events_is_githubs() -> None:
    assert {"pull_request_review", "pull_request_review_comment", "workflow_run", *TRUSTED} <= set(EVENTS)
    assert len(EVENTS) > 30
