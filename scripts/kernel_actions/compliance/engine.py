"""The engine: rules from the data file, findings from rule functions, and the report on them.

A rule is one small function, which yields a ``Problem`` for each thing that breaks it, and one entry of
``data/rules.toml``, which holds all that is said about the rule. The function's name is the rule's slug.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from kernel_actions import console, toml_file
from kernel_actions.errors import KernelActionsError, Place, printable

Severity = Literal["error", "warning"]
Subject = TypeVar("Subject")
Function = Callable[[Subject], Iterable["Problem"]]

DATA = Path(__file__).resolve().parents[1] / "data" / "rules.toml"
# What is checked comes from a pull request: whatever there is of it, a report stays readable. More are looked
# at than are told, as some of them may be known.
MOST_FINDINGS = 20
_MOST_LOOKED_AT = 200
_LONGEST_MESSAGE = 500


@dataclass(frozen=True)
class Rule:
    """A rule: its number and its short name, and what is said to who breaks it. What breaks one of the
    ``scope`` ``repository`` is the same in each of its kernels, and told once."""

    id: str
    slug: str
    title: str
    severity: Severity
    reason: str
    repair: str
    link: str
    scope: Literal["kernel", "repository"] = "kernel"


@lru_cache(maxsize=1)
def rules() -> Mapping[str, Rule]:
    """All rules by their slugs, in the order of their numbers."""
    values = toml_file.read(DATA).values
    listed = (Rule(id=number, **values[number]) for number in sorted(values))
    return {rule.slug: rule for rule in listed}


@dataclass(frozen=True)
class Problem:
    """What a rule's function found. An empty ``repair`` stands for the rule's own. ``key`` is what stays the
    same of the message as long as the problem does, such as without a number of days; empty: all of it."""

    message: str
    where: Place
    repair: str = ""
    key: str = ""

    @classmethod
    def of(cls, error: KernelActionsError, where: Place) -> Problem:
        """The problem that ``error`` describes, at ``where`` if it does not say."""
        return cls(error.what, error.where or where, error.repair)


@dataclass(frozen=True)
class Finding:
    """A broken rule: ``message`` says how, ``where`` in which file. ``variant`` is the name of the built
    variant that it is about, and empty for the sources. ``key`` is what stays the same of the message."""

    rule: Rule
    message: str
    where: Place
    repair: str
    variant: str
    key: str = ""

    def as_json(self) -> dict[str, Any]:
        """The finding for programs."""
        return {
            "rule": self.rule.id,
            "slug": self.rule.slug,
            "severity": self.rule.severity,
            "path": self.where.path.as_posix(),
            "line": self.where.line,
            "column": self.where.column,
            "message": self.message,
            "reason": self.rule.reason,
            "repair": self.repair,
            "link": self.rule.link,
            "variant": self.variant or None,
        }


@dataclass(frozen=True)
class Waived:
    """A finding that kernel-actions.toml accepts for a time, which is no error and no warning meanwhile."""

    finding: Finding
    reason: str
    until: str
    where: Place

    def as_json(self) -> dict[str, Any]:
        """The waived finding for programs."""
        waiver = {"reason": self.reason, "until": self.until, "path": self.where.path.as_posix()}
        return {**self.finding.as_json(), "waiver": {**waiver, "line": self.where.line}}


@dataclass(frozen=True)
class Known:
    """A finding that was there before, which fails nothing: ``since`` says where it is known from."""

    finding: Finding
    since: str

    def as_json(self) -> dict[str, Any]:
        """The known finding for programs."""
        return {**self.finding.as_json(), "known": self.since}


@dataclass(frozen=True)
class Changed:
    """A rule whose severity kernel-actions.toml changes: ``rule`` has the new one."""

    rule: Rule
    before: Severity

    def __str__(self) -> str:
        now, before = self.rule.severity, self.before
        return f"{self.rule.id} {self.rule.slug}: {now} in place of {before}, by kernel-actions.toml"


@dataclass(frozen=True)
class Report:
    """All findings, in the order of their places; ``variants`` are the names of those that were checked.

    ``waived`` are the findings that count for nothing, ``known`` those that were there before, and
    ``changed`` the rules with another severity. ``day`` is the one by which ages are counted and waivers end,
    and empty for today. ``kernels`` is the number of those that were checked.
    """

    findings: tuple[Finding, ...]
    variants: tuple[str, ...]
    waived: tuple[Waived, ...] = ()
    changed: tuple[Changed, ...] = ()
    day: str = ""
    known: tuple[Known, ...] = ()
    kernels: int = 1

    @classmethod
    def of(
        cls,
        findings: Iterable[Finding],
        variants: Iterable[str],
        waived: Iterable[Waived] = (),
        changed: Iterable[Changed] = (),
        day: str = "",
        known: Iterable[Known] = (),
        kernels: int = 1,
    ) -> Report:
        """The report on ``findings``, which may come in any order."""
        return cls(
            findings=tuple(sorted(findings, key=_order)),
            variants=tuple(variants),
            waived=tuple(sorted(waived, key=lambda one: _order(one.finding))),
            changed=tuple(changed),
            day=day,
            known=tuple(sorted(known, key=lambda one: _order(one.finding))),
            kernels=kernels,
        )

    @property
    def errors(self) -> int:
        """The number of findings that are errors."""
        return sum(one.rule.severity == "error" for one in self.findings)

    @property
    def warnings(self) -> int:
        """The number of findings that are warnings."""
        return len(self.findings) - self.errors

    @property
    def is_passed(self) -> bool:
        """Whether there is no error."""
        return self.errors == 0

    @property
    def verdict(self) -> str:
        """The outcome in one line."""
        names = (("error", self.errors), ("warning", self.warnings))
        counts = " and ".join(console.counted(count, name) for name, count in names if count) or "no findings"
        checked = "the sources" if self.kernels == 1 else f"the sources of {self.kernels} kernels"
        if self.variants:
            checked += f" and {console.counted(len(self.variants), 'variant')}"
        known = f", {len(self.known)} more known" if self.known else ""
        waived = f", {len(self.waived)} more waived" if self.waived else ""
        day = f", as of {self.day}" if self.day else ""
        return (
            f"{'compliant' if self.is_passed else 'not compliant'}: {counts} in {checked}{known}{waived}{day}"
        )

    def as_json(self) -> dict[str, Any]:
        """The report for programs."""
        return {
            "verdict": "passed" if self.is_passed else "failed",
            "errors": self.errors,
            "warnings": self.warnings,
            "variants": list(self.variants),
            "findings": [one.as_json() for one in self.findings],
            "known": [one.as_json() for one in self.known],
            "waived": [one.as_json() for one in self.waived],
            "day": self.day or None,
            "severities": {one.rule.id: one.rule.severity for one in self.changed},
        }


def _order(finding: Finding) -> tuple[object, ...]:
    where = finding.where
    return (str(where.path), where.line or 0, where.column or 0, finding.rule.id, finding.message)


class Family(Generic[Subject]):
    """The rules of one kind, which are all about the same subject: a kernel's sources, a built variant."""

    def __init__(self) -> None:
        self.functions: dict[str, Function[Subject]] = {}

    def rule(self, function: Function[Subject]) -> Function[Subject]:
        """Make ``function`` the rule that its name says, with dashes for underscores.

        One that has the name of a module is written with an underscore behind it.
        """
        self.functions[function.__name__.strip("_").replace("_", "-")] = function
        return function

    def check(self, subject: Subject, where: Place, variant: str = "") -> Iterator[Finding]:
        """The findings of all rules on ``subject``, which is at ``where``: some of each rule at most."""
        for slug, function in self.functions.items():
            rule = rules()[slug]
            for count, problem in enumerate(_problems(function, subject, where)):
                is_last = count == _MOST_LOOKED_AT
                if is_last:
                    problem = Problem(f"there is more of this: only {count} were looked at", where)
                message = _cut(printable(problem.message))
                key = _cut(printable(problem.key)) or message
                yield Finding(rule, message, problem.where, problem.repair or rule.repair, variant, key)
                if is_last:
                    break


def told(findings: Iterable[Finding], where: Place) -> Iterator[Finding]:
    """Of each rule and variant so many of ``findings`` that somebody reads them; ``where`` is of the rest."""
    counts: Counter[tuple[str, str]] = Counter()
    for one in findings:
        kind = (one.rule.id, one.variant)
        counts[kind] += 1
        if counts[kind] <= MOST_FINDINGS:
            yield one
        elif counts[kind] == MOST_FINDINGS + 1:
            message = f"there is more of this: only {MOST_FINDINGS} are listed"
            yield replace(one, message=message, where=where, key=message)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_MESSAGE else text[:_LONGEST_MESSAGE] + "…"


def _problems(function: Function[Subject], subject: Subject, where: Place) -> Iterator[Problem]:
    """What the function finds; what keeps it from looking is a problem too."""
    try:
        yield from function(subject)
    except KernelActionsError as error:
        if error.exit_code > 128:  # Interrupted: not about the kernel.
            raise
        yield Problem.of(error, where)
    except OSError as error:
        path = Path(error.filename) if isinstance(error.filename, str) else where.path
        yield Problem(f"cannot be checked: {error.strerror or error}", Place(path))
    except RecursionError:
        yield Problem("cannot be checked: it is nested too deeply", where)
