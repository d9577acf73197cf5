"""A report as SARIF 2.1.0, which code scanning of GitHub and many editors read.

The format: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kernel_actions import __version__
from kernel_actions.compliance.engine import Finding, Known, Report, Rule, Waived, rules
from kernel_actions.errors import Place

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

# Code scanning takes 25,000 results, and shows 5,000 of them.
MOST_RESULTS = 5000


def document(report: Report, root: Path) -> dict[str, Any]:
    """The report as SARIF, with paths relative to ``root``, which is that of the repository."""
    numbers = {rule.id: index for index, rule in enumerate(rules().values())}
    # The errors first: a file with too many results is refused as a whole.
    findings = sorted(report.findings, key=lambda one: one.rule.severity != "error")
    shown = findings if len(findings) > MOST_RESULTS else report.findings
    results = [_result(one, numbers, root) for one in shown[:MOST_RESULTS]]
    results += [_known(one, numbers, root) for one in report.known[: MOST_RESULTS - len(results)]]
    results += [_waived(one, numbers, root) for one in report.waived[: MOST_RESULTS - len(results)]]
    run = {
        "tool": {
            "driver": {
                "name": "kernel-actions",
                "semanticVersion": __version__,
                "rules": [_descriptor(rule) for rule in rules().values()],
            }
        },
        "automationDetails": {"id": "kernel-actions/compliance/"},
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _descriptor(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "name": rule.slug,
        "shortDescription": {"text": f"{rule.title}."},
        "fullDescription": {"text": rule.reason},
        "help": {"text": f"{rule.reason} What to do: {rule.repair}."},
        "helpUri": rule.link,
        "defaultConfiguration": {"level": rule.severity},
    }


def _result(finding: Finding, numbers: dict[str, int], root: Path) -> dict[str, Any]:
    path = _address(finding.where.path, root)
    # The same finding in the next commit is the same one, on whichever line it is then.
    told = "\0".join((finding.rule.id, path, finding.key or finding.message, finding.variant))
    return {
        "ruleId": finding.rule.id,
        "ruleIndex": numbers[finding.rule.id],
        "level": finding.rule.severity,
        "message": {"text": f"{finding.message} ({finding.repair})"},
        "locations": [{"physicalLocation": _location(finding.where, path)}],
        "partialFingerprints": {"finding/v1": hashlib.sha256(os.fsencode(told)).hexdigest()},
        "properties": {"variant": finding.variant} if finding.variant else {},
    }


def _known(one: Known, numbers: dict[str, int], root: Path) -> dict[str, Any]:
    suppression = {
        "kind": "external",
        "status": "accepted",
        "justification": f"known: it is in {one.since}",
    }
    return {**_result(one.finding, numbers, root), "suppressions": [suppression]}


def _waived(one: Waived, numbers: dict[str, int], root: Path) -> dict[str, Any]:
    suppression = {
        "kind": "external",
        "status": "accepted",
        "justification": f"{one.reason} (until {one.until})",
        "location": {"physicalLocation": _location(one.where, _address(one.where.path, root))},
    }
    return {**_result(one.finding, numbers, root), "suppressions": [suppression]}


def _location(where: Place, path: str) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": {"uri": path}}
    if where.line is not None:
        location["region"] = {"startLine": max(where.line, 1)}
        if where.column is not None:
            location["region"]["startColumn"] = max(where.column, 1)
    return location


def _address(path: Path, root: Path) -> str:
    """The path as a URI, relative to ``root`` where it is below it."""
    whole = os.path.abspath(path)
    relative = os.path.relpath(whole, os.path.abspath(root))
    if relative == ".." or relative.startswith("../"):
        return "file://" + quote(os.fsencode(whole))
    # The name of a file may hold anything, also what is not UTF-8. A colon would be read as a scheme.
    return quote(os.fsencode(relative))
