"""What the local builder makes keeps every rule that a local build can keep."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_actions import build, built, compliance

from tests.compliance.helpers import FILES, ROOT, said, write
from tests.local_builder.helpers import BUILD_TOML, commit
from tests.local_builder.helpers import write_kernel as write_tiny_kernel

NOARCH = '[torch-noarch]\npyext = ["py", "json"]\n'
pytestmark = pytest.mark.integration


@pytest.fixture(params=["compiled", "noarch"])
def kernel_dir(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A kernel that compiles in seconds, or not at all."""
    text = BUILD_TOML.replace("[torch]", '[general.hub]\nrepo-id = "acme/tiny-scale"\n\n[torch]')
    if request.param == "noarch":
        text = text[: text.index("[torch]")] + NOARCH
    folder = write_tiny_kernel(tmp_path / "kernel", text)
    write(folder / "flake.lock", (ROOT / "flake.lock").read_text())
    write(folder / "tests/test_scale.py", FILES["tests/test_scale.py"])
    write(folder / ".gitignore", "/build/\n")
    return folder


def test_a_build_of_a_commit_has_no_findings(kernel_dir: Path) -> None:
    commit(kernel_dir)
    build.build(kernel_dir)
    report = compliance.check(kernel_dir, built.find(kernel_dir / "build"))
    assert [(one.rule.id, one.message) for one in report.findings] == []
    assert len(report.variants) == 1
    # What was built is no longer what is there.
    write(kernel_dir / "README.md", "Something new.\n")
    commit(kernel_dir)
    report = compliance.check(kernel_dir, built.find(kernel_dir / "build"))
    assert [one.rule.slug for one in report.findings] == ["metadata-commit"]
    assert report.is_passed


def test_a_build_outside_of_git_is_a_warning(tmp_path: Path) -> None:
    text = BUILD_TOML[: BUILD_TOML.index("[torch]")] + NOARCH
    folder = write_tiny_kernel(tmp_path / "kernel", text)
    build.build(folder)
    report = compliance.check(folder, built.find(folder / "build"))
    assert said(report, "metadata-provenance") == [
        "metadata.json:19: does not say which commit it was built from"
    ]
    assert {one.rule.slug for one in report.findings if one.variant} == {"metadata-provenance"}
