"""What kernel-actions.toml makes of the rules: other severities, and waivers that end."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest
from kernel_actions import compliance
from kernel_actions.cli import main
from kernel_actions.compliance import clock, policy
from kernel_actions.compliance.engine import Finding, rules
from kernel_actions.errors import Place, WrongInput

from tests.compliance.cases import INIT
from tests.compliance.helpers import NAME, check, edit, said, write

REAL_TODAY = clock.today
WAIVER = '[[compliance.waivers]]\nrule = "{}"\nreason = "it goes in spring"\nuntil = "{}"\n'


@pytest.fixture(autouse=True)
def _today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "today", lambda: datetime.date(2027, 3, 10))


@pytest.fixture
def broken(kernel: Path) -> Path:
    """A kernel that breaks KA309 and KA311, of which the second alone is an error."""
    edit(kernel / INIT, "import torch\n", "import torch\nimport numpy\n")
    edit(kernel / "tests/test_scale.py", "@pytest.mark.kernels_ci", "")
    return kernel


def _settings(kernel: Path, text: str) -> None:
    write(kernel / "kernel-actions.toml", text)


def test_a_severity_of_ones_own(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _settings(
        broken,
        '[compliance.rules]\nKA309 = { severity = "error" }\nsource-imports = { severity = "warning" }\n',
    )
    report = check(broken)
    assert [(one.rule.id, one.rule.severity) for one in report.findings] == [
        ("KA309", "error"),
        ("KA311", "warning"),
    ]
    assert main(["compliance", str(broken), "--source-only"]) == 1
    out = capsys.readouterr().out
    assert "KA309 source-tests: error in place of warning, by kernel-actions.toml" in out
    assert "KA311 source-imports: warning in place of error, by kernel-actions.toml" in out
    assert report.as_json()["severities"] == {"KA309": "error", "KA311": "warning"}


@pytest.mark.parametrize("name", ["KA311", "source-imports"])
def test_a_waiver_takes_a_finding_away_and_is_shown(
    name: str, broken: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _settings(broken, WAIVER.format(name, "2027-03-10"))
    monkeypatch.chdir(broken)
    assert main(["compliance", "--source-only"]) == 0
    out = capsys.readouterr().out
    assert out.endswith("compliant: 1 warning in the sources, 1 more waived\n")
    assert "imports numpy" in out and "it goes in spring" in out and "2027-03-10" in out
    assert main(["compliance", "--source-only", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["rule"] for one in found["findings"]] == ["KA309"]
    assert [(one["rule"], one["waiver"]["reason"]) for one in found["waived"]] == [
        ("KA311", "it goes in spring")
    ]
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(broken.parent / "summary"))
    assert main(["compliance", "--source-only", "--format", "github"]) == 0
    assert "it goes in spring" in (broken.parent / "summary").read_text()
    assert "KA311" not in "".join(
        line for line in capsys.readouterr().err.splitlines() if line.startswith("::error")
    )


def test_the_day_after_its_last_the_findings_are_back(broken: Path) -> None:
    _settings(broken, WAIVER.format("KA311", "2027-03-09"))
    report = check(broken)
    assert said(report, "policy-expired") == [
        "kernel-actions.toml:1: the waiver of KA311 has ended on 2027-03-09"
    ]
    assert said(report, "source-imports") != [] and said(report, "policy-unused") == []
    assert not report.is_passed


def test_a_waiver_of_nothing_is_a_finding(kernel: Path) -> None:
    _settings(kernel, WAIVER.format("KA311", "2027-12-31"))
    report = check(kernel)
    assert said(report, "policy-unused") == ["kernel-actions.toml:1: the waiver of KA311 waives nothing"]
    assert report.is_passed


def test_a_waiver_for_what_is_not_checked_here_waits(kernel: Path) -> None:
    text = WAIVER.format("KA705", "2027-12-31")
    _settings(kernel, text)
    assert said(compliance.check(kernel, source_only=True), "policy-unused") == []
    assert said(check(kernel), "policy-unused") != []
    _settings(kernel, text + 'variant = "*-rocm*"\n')
    assert said(check(kernel), "policy-unused") == []


def test_a_waiver_can_be_for_some_variants_and_some_files(kernel: Path) -> None:
    (kernel / "build" / NAME / "__init__.py").unlink()
    for end, count in (
        ('variant = "torch*"\n', 0),
        ('variant = "*-rocm*"\n', 1),
        (f'path = "build/{NAME}"\n', 0),
        ('path = "torch-ext/*"\n', 1),
    ):
        _settings(kernel, WAIVER.format("layout-init", "2027-12-31") + end)
        assert len(said(check(kernel), "layout-init")) == count, end


def test_a_waiver_by_path_is_from_the_kernels_folder_on_wherever_the_command_runs(
    kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kernel / "build" / NAME / "__init__.py").unlink()
    _settings(kernel, WAIVER.format("layout-init", "2027-12-31") + f'path = "build/{NAME}"\n')
    for folder, argument in (
        (kernel, Path()),
        (kernel.parent, Path("kernel")),
        (kernel / "csrc", Path("..")),
    ):
        monkeypatch.chdir(folder)
        report = check(argument)
        assert said(report, "layout-init") == [] and len(report.waived) == 1
    # What other programs find has the path of the machine.
    found = Finding(rules()["source-imports"], "it", Place(kernel / ".github/workflows/a.yml"), "", "")
    _settings(kernel, WAIVER.format("KA311", "2027-12-31") + 'path = ".github/*"\n')
    monkeypatch.chdir(kernel)
    assert len(policy.apply([found], Path(), "3", []).waived) == 1


def test_a_rule_has_one_severity(kernel: Path) -> None:
    _settings(
        kernel,
        '[compliance.rules]\nKA309 = { severity = "error" }\nsource-tests = { severity = "warning" }\n',
    )
    assert said(check(kernel), "policy-rule") == [
        "kernel-actions.toml:3: source-tests is KA309, which has a severity already"
    ]


def test_the_file_of_all_kernels_is_used_too(broken: Path, tmp_path: Path) -> None:
    (broken.parent / ".git").mkdir()
    write(
        broken.parent / ".github/kernel-actions.toml",
        WAIVER.format("KA311", "2027-12-31") + WAIVER.format("KA304", "2027-12-31"),
    )
    report = check(broken)
    # The other one may waive something of another kernel.
    assert said(report, "source-imports") == said(report, "policy-unused") == []
    assert [one.finding.rule.id for one in report.waived] == ["KA311"]


def test_a_rule_that_there_is_not(kernel: Path) -> None:
    _settings(kernel, WAIVER.format("source-al", "2027-12-31"))
    report = check(kernel)
    assert said(report, "policy-rule") == ["kernel-actions.toml:1: source-al is no rule"]
    finding = next(one for one in report.findings if one.rule.slug == "policy-rule")
    assert finding.repair == "perhaps you meant source-all"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[compliance.waivers]]\nrule = "KA311"\nuntil = "2027-12-31"\n', "has no reason"),
        ('[[compliance.waivers]]\nrule = "KA311"\nreason = "so"\n', "has no until"),
        (WAIVER.format("KA311", "soon"), 'as in until = "2027-03-31"'),
        (WAIVER.format("KA311", "2027-02-30"), 'as in until = "2027-03-31"'),
        (WAIVER.format("KA311", "2027-06-31"), 'as in until = "2027-03-31"'),
        (WAIVER.format("KA311", "9999-12-31"), 'as in until = "2027-03-31"'),
        (WAIVER.format("KA311", "2027-12-31").replace('"it goes in spring"', '" "'), "a reason in words"),
        (WAIVER.format("KA311", "2027-12-31") + 'who = "me"\n', "is not known"),
        (WAIVER.format("\\u001b[2J", "2027-12-31"), "control character '\\x1b'"),
        ('[compliance]\nwaivers = ["KA311"]\n', "is not a table"),
        ('[compliance.rules]\nKA311 = { severity = "off" }\n', "'off'"),
    ],
)
def test_what_is_no_policy_ends_the_command(text: str, message: str, kernel: Path) -> None:
    _settings(kernel, text)
    with pytest.raises(WrongInput) as error:
        check(kernel)
    assert message in str(error.value)


def test_another_day_can_be_asked_for_and_is_shown(
    kernel: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(clock, "today", REAL_TODAY)
    _settings(kernel, WAIVER.format("KA311", "2027-03-09"))
    edit(kernel / INIT, "import torch\n", "import torch\nimport numpy\n")
    monkeypatch.setenv("KA_TODAY", "2027-03-09")
    assert main(["compliance", str(kernel), "--source-only"]) == 0
    assert capsys.readouterr().out.endswith(
        "compliant: no findings in the sources, 1 more waived, as of 2027-03-09\n"
    )
    monkeypatch.setenv("KA_TODAY", "2028-03-09")
    assert main(["compliance", str(kernel), "--source-only", "--format", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert {one["rule"] for one in report["findings"]} == {"KA205", "KA311", "KA901"}
    assert report["day"] == "2028-03-09"
    for text in ("soon", "2027-02-30", "2027-03-09T00:00", "\x1b[2J"):
        monkeypatch.setenv("KA_TODAY", text)
        assert main(["compliance", str(kernel), "--source-only"]) == 2
        error = capsys.readouterr().err
        assert "which is no day" in error and error.rstrip("\n").isprintable()
    monkeypatch.delenv("KA_TODAY")
    main(["compliance", str(kernel), "--source-only", "--format", "json"])
    assert json.loads(capsys.readouterr().out)["day"] is None
