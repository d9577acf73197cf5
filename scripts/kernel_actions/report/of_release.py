"""The report on a release, which knows more than the files that it was made of."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernel_actions.markdown import Step, Verdict
from kernel_actions.report import reading
from kernel_actions.report.model import Finding, Report

if TYPE_CHECKING:
    from kernel_actions.release import Lack, Release, Released


def made(
    prepared: Release, released: Released | None, missing: Sequence[Lack], steps: Sequence[Step], problem: str
) -> Report:
    """The report: what is missing, or ``problem``, is an error; what was promoted is published."""
    plan = prepared.plan
    is_promoted = released is not None and bool(released.commit)
    record = released.record if released is not None and is_promoted else None
    folders = [prepared.build_dir] if prepared.build_dir.is_dir() else []
    found = reading.read(folders, prepared.kernel_dir, json.loads(record.as_bytes()) if record else None)
    findings = [Finding("error", one.what, one.what, "", one.repair, one.variant) for one in missing]
    if problem and not missing:
        findings.append(Finding("error", "the release ended", problem))
    verdict: Verdict = "failed" if problem or missing else "planned" if released is None else "passed"
    return dataclasses.replace(
        found,
        kernel=plan.kernel,
        release=str(plan.version),
        facts=tuple(_facts(prepared, released, found)),
        # What the gate misses says more than what the reports say of it.
        findings=(*findings, *(one for one in found.findings if not findings or one.severity != "error")),
        steps=(*found.steps, *(one._replace(section="release") for one in steps)),
        is_partial=prepared.conditions.is_partial,
        outcome=verdict,
    )


def _facts(prepared: Release, released: Released | None, found: Report) -> list[tuple[str, str]]:
    plan = prepared.plan
    facts = [
        ("repository", f"{plan.repo_id} on {plan.address}"),
        ("tags", f"{plan.hub_tag} on the Hub, {plan.git_tag} in git"),
        ("commit", f"{plan.commit or 'none'}{', with changes that are not committed' if plan.dirty else ''}"),
    ]
    if released is not None and released.staged:
        facts.append(("staged", f"{released.staged} on {plan.staging}"))
    if released is not None and released.commit:
        facts.append(("promoted", f"{released.commit} on {plan.hub_tag if plan.is_pre else plan.branch}"))
    return facts + [(name, value) for name, value in found.facts if name in ("built by", "tested on")]
