"""The command as its users see it: the table, JSON, what GitHub gets, and the exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_actions import built, compliance
from kernel_actions.cli import main
from kernel_actions.errors import WrongInput

from tests.compliance.cases import BINDING, INIT, VARIANT, appended, built_with, edited, linked, noarch
from tests.compliance.helpers import DAY, NAME, edit, write, write_kernel
from tests.golden import check_golden

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).resolve().parent / "golden"
KEYS = {
    "rule", "slug", "severity", "path", "line", "column", "message", "reason", "repair", "link", "variant",
}  # fmt: skip


@pytest.fixture
def broken(kernel: Path, libraries: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a kernel that breaks some rules."""
    built_with("glibc")(kernel, libraries)
    edited("build.toml", "csrc/scale.cpp", "csrc/gone.cpp")(kernel, libraries)
    appended(BINDING, "TORCH_LIBRARY(scale, m) {}\n")(kernel, libraries)
    edited(INIT, "ops.twice(x)", "torch.ops.scale.twice(x)")(kernel, libraries)
    edited("tests/test_scale.py", "@pytest.mark.kernels_ci", "")(kernel, libraries)
    linked("/etc/hostname")(kernel, libraries)
    monkeypatch.chdir(kernel)
    return kernel


def _stable(text: str) -> str:
    """The text with one name for all machines, and so without what aligns columns to it."""
    return "\n".join(
        line.rstrip() for line in text.replace(NAME, "torch213-cxx11-cpu-x86_64-linux").splitlines()
    )


def test_table(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compliance"]) == 1
    said = capsys.readouterr()
    check_golden(GOLDEN / "table.txt", _stable(said.out) + "\n")
    assert said.err == ""


def test_table_without_findings(
    kernel: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(kernel)
    assert main(["compliance"]) == 0
    assert capsys.readouterr().out == "compliant: no findings in the sources and 1 variant\n"


def test_warnings_alone_pass(kernel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(kernel / "tests/test_scale.py", "@pytest.mark.kernels_ci", "")
    assert main(["compliance", str(kernel)]) == 0
    assert capsys.readouterr().out.endswith("compliant: 1 warning in the sources and 1 variant\n")


def test_json(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compliance", "--format", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "failed"
    assert (report["errors"], report["warnings"]) == (5, 1)
    assert report["variants"] == [NAME]
    for finding in report["findings"]:
        assert set(finding) == KEYS
        assert finding["reason"] and finding["repair"] and finding["link"]
    places = [(one["path"], one["line"] or 0, one["column"] or 0) for one in report["findings"]]
    assert places == sorted(places)
    by_rule = {one["rule"]: one for one in report["findings"]}
    assert (by_rule["KA505"]["variant"], by_rule["KA505"]["line"]) == (NAME, None)
    assert by_rule["KA104"]["variant"] is None
    assert [by_rule["KA104"][key] for key in ("path", "line", "column")] == ["build.toml", 18, 3]


def test_source_only_leaves_variants_out(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compliance", "--source-only"]) == 1
    out = capsys.readouterr().out
    assert "KA5" not in out and "KA7" not in out
    assert out.endswith("not compliant: 3 errors and 1 warning in the sources\n")


def test_github(broken: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    write(broken / VARIANT / "!,b%\n::error::c.pyc", "")
    for number in range(12):
        write(broken / VARIANT / f"{number}.pyc", "")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
        monkeypatch.setenv(name, str(broken.parent / name))
    assert main(["compliance", "--format", "github"]) == 1
    said = capsys.readouterr()
    # What a pull request names cannot be a command: neither in the table nor in an annotation.
    assert "::stop-commands::" in said.err and not any(
        line.startswith("::") for line in said.out.splitlines()
    )
    annotations = [line for line in said.err.splitlines() if line.startswith(("::error", "::warning"))]
    assert sum(line.startswith("::error ") for line in annotations) == 10
    assert sum(line.startswith("::warning ") for line in annotations) == 1
    assert (
        "::error title=KA104 manifest-sources,file=build.toml,line=18,col=3::csrc/gone.cpp does" in said.err
    )
    assert "::warning title=KA309 source-tests,file=tests::no test is marked" in said.err
    outputs = (broken.parent / "GITHUB_OUTPUT").read_text()
    findings = json.loads(next(line for line in outputs.splitlines() if line.startswith("[{")))
    assert {one["rule"] for one in findings} >= {"KA104", "KA305", "KA504", "KA705"}
    assert "!%2Cb%25%0A%3A%3Aerror%3A%3Ac.pyc::is Python bytecode" in said.err
    summary = (broken.parent / "GITHUB_STEP_SUMMARY").read_text()
    assert "### ❌ Not compliant: 19 errors and 1 warning in the sources and 1 variant" in summary
    assert "| KA104 | error | build.toml:18:3 |" in summary


def test_outputs_stay_within_what_the_runner_takes(
    kernel: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number in range(80):
        for name in range(30):
            write(kernel / "build" / f"torch{100 + number}-x" / f"{name:0>99}.pyc", "")
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    assert main(["compliance", str(kernel), "--format", "github"]) == 1
    outputs = (tmp_path / "output").read_text()
    assert len(outputs) < 600_000
    assert json.loads(next(line for line in outputs.splitlines() if line.startswith("[{")))
    assert (tmp_path / "summary").stat().st_size < 1_000_000


def test_nothing_to_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = write_kernel(tmp_path / "kernel")
    assert main(["compliance", str(kernel)]) == 2
    assert "has no built variant" in capsys.readouterr().err
    assert main(["compliance", str(kernel), "--source-only"]) == 0
    for options in ([], ["--source-only"]):
        assert main(["compliance", str(tmp_path), *options]) == 2
        assert "build.toml: there is no such file" in capsys.readouterr().err


def test_a_kernel_of_python_alone(kernel: Path, libraries: dict[str, Path]) -> None:
    edit(kernel / "build.toml", '[torch]\nsrc = ["torch-ext/binding.cpp"]', "[torch-noarch]")
    toml = (kernel / "build.toml").read_text()
    write(kernel / "build.toml", toml[: toml.index("[kernel.scale]")])
    noarch()(kernel, libraries)
    assert compliance.check(kernel, built.find(kernel / "build")).findings == ()


def test_library(kernel: Path) -> None:
    variants = built.find(kernel / "build")
    assert compliance.check(kernel, variants).variants == (NAME,)
    assert compliance.check(kernel, variants, source_only=True).variants == ()
    (kernel / "build.toml").unlink()
    with pytest.raises(WrongInput):
        compliance.check(kernel, variants)


def test_sources_need_nothing_but_python(kernel: Path) -> None:
    """On a bare Python with an empty environment: no site-packages, no PATH."""
    finished = subprocess.run(
        [sys.executable, "-I", "-S", ROOT / "scripts/kernel_actions", "compliance", kernel, "--source-only"],
        env={"KA_TODAY": DAY.isoformat()}, text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout == f"compliant: no findings in the sources, as of {DAY}\n"
    finished = subprocess.run(
        [ROOT / "scripts" / "kernel-actions", "compliance", "--source-only", "--format", "json"],
        cwd=ROOT,
        env={
            "PATH": "/usr/bin:/bin", "KA_PYTHON": os.path.realpath(sys.executable),
            "KA_TODAY": DAY.isoformat(),
        },
        text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout
    assert json.loads(finished.stdout)["findings"] == []


def test_no_name_of_a_file_speaks_to_a_terminal_or_to_the_runner(
    kernel: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [
        "\x1b[2J",
        "\u202e",
        "::error::x",
        "##[error]x",
        "a\r\nb",
        "%0A::error::x",
        "`|<b>",
        "a\x85::error::b",
    ]
    for name in names:
        write(kernel / VARIANT / f"{name}.pyc", "")
    with open(os.fsencode(kernel / VARIANT) + b"/\xff.pyc", "wb"):
        pass
    summary = kernel.parent / "summary"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    for form in ("table", "json", "sarif", "github"):
        assert main(["compliance", str(kernel), "--format", form]) == 1
        said = capsys.readouterr()
        commands = {"::stop-commands", "::error title=", "::warning title="}
        for line in [*said.out.split("\n"), *said.err.split("\n")]:
            assert line.isprintable(), line
            assert not line.startswith("::") or any(map(line.startswith, commands)) or line.count("::") == 2
        assert "##[" not in said.out
        if form == "json":
            assert "##[" in json.dumps(json.loads(said.out))
    text = summary.read_text()
    assert text.replace("\n", "").isprintable() and "<b>" not in text
