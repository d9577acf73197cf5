"""What kernel-actions.toml makes of the rules, and rules about what it says: KA9xx.

It gives rules another severity, and waives findings for a time. Both are shown in every report.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from kernel_actions import schema, settings
from kernel_actions.compliance import clock
from kernel_actions.compliance.baseline import Baseline
from kernel_actions.compliance.before import Before
from kernel_actions.compliance.engine import (
    Changed,
    Family,
    Finding,
    Known,
    Problem,
    Report,
    Rule,
    Waived,
    rules,
)
from kernel_actions.compliance.known import Identity
from kernel_actions.errors import Place
from kernel_actions.settings import Settings, Waiver

# The first digit of the number of a rule, after the letters.
_FAMILY = 2


@dataclass(frozen=True)
class Policy:
    """What is said about the rules, and on which day. ``used`` are the waivers that waived something;
    ``families`` those whose rules were checked, and ``variants`` the names of the variants that were.
    ``stale`` are the entries of the ``baseline`` that nothing was found for."""

    said: Settings
    today: str
    families: Collection[str]
    variants: Collection[str]
    used: Collection[Waiver] = ()
    baseline: Baseline | None = None
    stale: Collection[Identity] = ()


RULES: Family[Policy] = Family()


@RULES.rule
def policy_expired(policy: Policy) -> Iterator[Problem]:
    for waiver in policy.said.waivers:
        if waiver.is_own and waiver.until < policy.today:
            yield Problem(f"the waiver of {waiver.rule} has ended on {waiver.until}", waiver.where)


@RULES.rule
def policy_unused(policy: Policy) -> Iterator[Problem]:
    for waiver in policy.said.waivers:
        is_over = waiver.until < policy.today
        if not is_over and waiver not in policy.used and _is_looked_at(policy, waiver):
            yield Problem(f"the waiver of {waiver.rule} waives nothing", waiver.where)


@RULES.rule
def policy_rule(policy: Policy) -> Iterator[Problem]:
    named = [(name, where) for name, (_, where) in policy.said.severities.items()]
    named += [(waiver.rule, waiver.where) for waiver in policy.said.waivers]
    for name, where in named:
        if find_rule(name) is None:
            known = [one for rule in rules().values() for one in (rule.id, rule.slug)]
            close = schema.nearest(name, known)
            yield Problem(f"{name} is no rule", where, f"perhaps you meant {close}" if close else "")
    seen: dict[str, str] = {}
    for name, (_, where) in policy.said.severities.items():
        rule = find_rule(name)
        if rule is not None and (first := seen.setdefault(rule.id, name)) != name:
            yield Problem(f"{name} is {first}, which has a severity already", where, "remove one of the two")


@RULES.rule
def policy_baseline(policy: Policy) -> Iterator[Problem]:
    for entry in policy.stale if policy.baseline is not None else ():
        assert policy.baseline is not None
        what = f"{entry.path} breaks {entry.rule} no longer: {entry.what}"
        repair = f"take it out: kernel-actions compliance --write-baseline {policy.baseline.path}"
        yield Problem(what, policy.baseline.place(entry), repair)


def apply(
    findings: Iterable[Finding],
    kernel_dir: Path,
    families: Collection[str],
    variants: Collection[str],
    before: Before | None = None,
    baseline: Baseline | None = None,
) -> Report:
    """The report on ``findings``, as kernel-actions.toml says. What was there ``before``, and what the
    ``baseline`` lists, is known.

    Raises ``WrongInput`` when kernel-actions.toml cannot be read.
    """
    said = settings.load(kernel_dir)
    today = clock.today().isoformat()
    severities = {one.rule.slug: one for one in _changed(said)}
    left: list[Finding] = []
    waived: list[Waived] = []
    used: set[Waiver] = set()
    for finding in findings:
        finding = _with_severity(finding, severities)
        waiver = next((one for one in said.waivers if _waives(one, finding, kernel_dir, today)), None)
        if waiver is None:
            left.append(finding)
        else:
            used.add(waiver)
            waived.append(Waived(finding, waiver.reason, waiver.until, waiver.where))
    known: list[Known] = []
    if baseline is not None:
        # Before the other: an entry is not stale as what it lists was there before, too.
        left = _part(baseline.part(left), str(baseline.path), known)
    if before is not None:
        left = _part(before.part(left), before.reference, known)
    where = Place(kernel_dir / settings.FILE_NAME)
    stale = baseline.stale(kernel_dir, families, variants) if baseline is not None else []
    for finding in RULES.check(Policy(said, today, families, variants, used, baseline, stale), where):
        left.append(_with_severity(finding, severities))
    day = today if clock.is_set() else ""
    return Report.of(left, variants, waived, severities.values(), day, known)


def _part(findings: Iterable[tuple[Finding, bool]], since: str, known: list[Known]) -> list[Finding]:
    """Those of ``findings`` that are not known; the others are added to ``known``."""
    left = []
    for finding, is_known in findings:
        if is_known:
            known.append(Known(finding, since))
        else:
            left.append(finding)
    return left


def find_rule(name: str) -> Rule | None:
    """The rule of that number or name."""
    if name in rules():
        return rules()[name]
    return next((rule for rule in rules().values() if rule.id == name), None)


def _changed(said: Settings) -> Iterator[Changed]:
    for name, (severity, _) in said.severities.items():
        rule = find_rule(name)
        if rule is not None and rule.severity != severity:
            yield Changed(dataclasses.replace(rule, severity=severity), rule.severity)


def _with_severity(finding: Finding, severities: Mapping[str, Changed]) -> Finding:
    changed = severities.get(finding.rule.slug)
    return finding if changed is None else dataclasses.replace(finding, rule=changed.rule)


def _waives(waiver: Waiver, finding: Finding, kernel_dir: Path, today: str) -> bool:
    if waiver.rule not in (finding.rule.id, finding.rule.slug) or waiver.until < today:
        return False
    if waiver.variant and not fnmatchcase(finding.variant, waiver.variant):
        return False
    if not waiver.path:
        return True
    # Some are from the current folder on, and some from that of the machine: what git or zizmor names.
    name = os.path.relpath(os.path.abspath(finding.where.path), os.path.abspath(kernel_dir))
    return fnmatchcase(name, waiver.path)


def _is_looked_at(policy: Policy, waiver: Waiver) -> bool:
    """Whether this run would have used the waiver: one for variants of another runner waits for that, and
    one of all kernels of a repository for the others."""
    rule = find_rule(waiver.rule)
    if rule is None or not waiver.is_own or rule.id[_FAMILY] not in policy.families:
        return False
    return not waiver.variant or any(fnmatchcase(name, waiver.variant) for name in policy.variants)
