"""SARIF 2.1.0, as code scanning takes it.

By the published schema, and beyond it by hand: which keys there are, and the form of their values.
"""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from kernel_actions.cli import main
from kernel_actions.compliance import clock, engine, sarif

from tests.compliance.cases import BINDING, INIT, VARIANT, appended, linked
from tests.compliance.helpers import NAME, check, edit, write

SCHEMA = jsonschema.Draft4Validator(
    json.loads(Path(__file__).with_name("data").joinpath("sarif-schema-2.1.0.json").read_text())
)
# For each object of the format: what it must have, and what else of it we write.
FORM = {
    "log": ({"version", "runs"}, {"$schema"}),
    "run": ({"tool"}, {"automationDetails", "columnKind", "results"}),
    "driver": ({"name"}, {"semanticVersion", "rules"}),
    "rule": (
        {"id"},
        {"name", "shortDescription", "fullDescription", "help", "helpUri", "defaultConfiguration"},
    ),
    "result": (
        {"message"},
        {
            "ruleId", "ruleIndex", "level", "locations", "partialFingerprints", "properties", "suppressions",
        },
    ),
    "suppression": ({"kind"}, {"status", "justification", "location"}),
    "region": (set(), {"startLine", "startColumn"}),
}  # fmt: skip
URI = re.compile(r"(file://)?[A-Za-z0-9/._~%-]+")


def _has(kind: str, value: dict[str, Any]) -> None:
    must, may = FORM[kind]
    assert must <= set(value) <= must | may, kind


def _place(location: dict[str, Any]) -> None:
    assert set(location) <= {"physicalLocation"}
    physical = location["physicalLocation"]
    assert set(physical) <= {"artifactLocation", "region"}
    assert set(physical["artifactLocation"]) == {"uri"}
    assert URI.fullmatch(physical["artifactLocation"]["uri"])
    if "region" in physical:
        _has("region", physical["region"])
        assert all(isinstance(one, int) and one >= 1 for one in physical["region"].values())
        assert "startLine" in physical["region"]


def check_sarif(log: dict[str, Any]) -> None:
    """Assert that ``log`` is SARIF 2.1.0, of the keys that are written."""
    SCHEMA.validate(log)
    _has("log", log)
    assert log["version"] == "2.1.0" and log["$schema"].endswith("sarif-schema-2.1.0.json")
    (run,) = log["runs"]
    _has("run", run)
    assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
    driver = run["tool"]["driver"]
    _has("driver", driver)
    rules = driver["rules"]
    assert len({json.dumps(rule) for rule in rules}) == len(rules)
    for rule in rules:
        _has("rule", rule)
        assert rule["defaultConfiguration"]["level"] in ("error", "warning")
        assert rule["helpUri"].startswith("https://")
        assert all(rule[key]["text"] for key in ("shortDescription", "fullDescription", "help"))
    for result in run["results"]:
        _has("result", result)
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("none", "note", "warning", "error")
        assert result["message"]["text"] and set(result["message"]) == {"text"}
        assert all(isinstance(one, str) for one in result["partialFingerprints"].values())
        for location in result["locations"]:
            _place(location)
        for suppression in result.get("suppressions", ()):
            _has("suppression", suppression)
            assert suppression["kind"] in ("inSource", "external")
            assert suppression["status"] in ("accepted", "underReview", "rejected")
            _place(suppression["location"])


@pytest.fixture
def broken(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a kernel with findings, with odd names, and with one that is waived."""
    monkeypatch.setattr(clock, "today", lambda: datetime.date(2027, 3, 10))
    monkeypatch.chdir(kernel.parent)
    appended(BINDING, "TORCH_LIBRARY(scale, m) {}\n")(kernel, {})
    edit(kernel / INIT, '__all__ = ["twice"]', "")
    linked("/etc/hostname")(kernel, {})
    write(kernel / VARIANT / "a b%\x1b:ö.pyc", "")
    write(
        kernel / "kernel-actions.toml",
        '[[compliance.waivers]]\nrule = "KA302"\nreason = "in spring"\nuntil = "2027-04-01"\n',
    )
    return kernel


def test_the_findings_as_sarif(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compliance", "kernel", "--format", "sarif", "--sarif", "out/found.sarif"]) == 1
    log = json.loads(capsys.readouterr().out)
    check_sarif(log)
    assert json.loads(Path("out/found.sarif").read_text()) == log
    run = log["runs"][0]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == [
        rule.id for rule in engine.rules().values()
    ]
    found = {one["ruleId"]: one for one in run["results"]}
    assert found["KA305"]["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "kernel/torch-ext/binding.cpp"},
        "region": {"startLine": 8, "startColumn": 1},
    }
    assert found["KA505"]["properties"] == {"variant": NAME}
    assert found["KA504"]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith(
        "/a%20b%25%1B%3A%C3%B6.pyc"
    )
    assert found["KA302"]["suppressions"][0]["justification"] == "in spring (until 2027-04-01)"
    assert "suppressions" not in found["KA305"]


def test_a_finding_keeps_its_fingerprint_when_its_line_moves(
    broken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fingerprints() -> set[str]:
        main(["compliance", "kernel", "--source-only", "--format", "sarif"])
        results = json.loads(capsys.readouterr().out)["runs"][0]["results"]
        return {one["partialFingerprints"]["finding/v1"] for one in results}

    before = fingerprints()
    path = broken / BINDING
    path.write_text("\n\n" + path.read_text())
    assert fingerprints() == before


def test_paths_are_those_of_the_repository(
    broken: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(broken))
    main(["compliance", "kernel", "--source-only", "--format", "sarif"])
    results = json.loads(capsys.readouterr().out)["runs"][0]["results"]
    uris = {one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in results}
    assert "torch-ext/binding.cpp" in uris


def test_code_scanning_takes_no_more_than_so_many_results(
    broken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = check(broken)
    assert len(report.findings) > 3
    monkeypatch.setattr(sarif, "MOST_RESULTS", 3)
    log = sarif.document(report, broken)
    check_sarif(log)
    assert [one["level"] for one in log["runs"][0]["results"]] == ["error"] * 3
