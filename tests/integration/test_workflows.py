"""The templates, as users copy them, run by act through org/kernel-actions/<name>@v1."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.integration.conftest import act, author_repository, embedded_hub, git


@pytest.fixture
def author(tmp_path: Path) -> Path:
    """An author's repository: the example kernel, with few tests, and the templates copied into it."""
    return author_repository(tmp_path / "author")


def test_build_and_test_publishes_what_passed(author: Path, tmp_path: Path) -> None:
    variant = "torch213-cxx11-cpu-x86_64-linux"
    with embedded_hub(tmp_path / "hub") as address:
        finished = act(author, tmp_path / "act", "push", "--var", f"KERNEL_HUB={address}")
        log = finished.stdout + finished.stderr
        assert finished.returncode == 0, log
        from huggingface_hub import HfApi

        api = HfApi(endpoint=address, token=False)
        files = api.list_repo_files("kernel-actions/grayscale", repo_type="kernel", revision="v1")
        commits = api.list_repo_commits("kernel-actions/grayscale", repo_type="kernel", revision="v1")
        card = api.list_repo_files("kernel-actions/grayscale", repo_type="kernel")
    assert f"build/{variant}/metadata.json" in files
    assert any(re.fullmatch(rf"build/{variant}/_grayscale_cpu_\w+\.abi3\.so", path) for path in files)
    # One commit for the variants, on the repository's first.
    assert len(commits) == 2
    assert "README.md" in card
    # The outputs, as act reads them: the plan of the first job, and the report of the second.
    assert '"include":[{"kernel":"grayscale"' in log
    assert re.search(r"::set-output:: passed=\d\d", log)
    assert re.search(r"::set-output:: commit=[0-9a-f]{40}", log)
    for title in ("Build variants", "Build", f"Tests of {variant}", "Upload to v1 of"):
        assert f"Summary - ### {title}" in log.replace("\\", "")
    artifact = tmp_path / "act" / "artifacts" / f"grayscale-{variant}-1"
    report = json.loads((artifact / f"{variant}.test-report.json").read_text())
    assert report["verdict"] == "passed"
    metadata = json.loads((artifact / variant / "metadata.json").read_text())
    assert metadata["provenance"]["kernel"]["commit"] == git(author, "rev-parse", "HEAD").strip()


@pytest.mark.slow
def test_a_failing_test_stops_the_job_and_nothing_is_published(author: Path, tmp_path: Path) -> None:
    test = author / "tests" / "kernel" / "test_wrong.py"
    test.write_text("import pytest\n\n@pytest.mark.kernels_ci\ndef test_it():\n    assert 1 == 2\n")
    git(author, "add", "--all")
    git(author, "commit", "--quiet", "--message=Add a wrong test")
    with embedded_hub(tmp_path / "hub") as address:
        finished = act(author, tmp_path / "act", "push", "--var", f"KERNEL_HUB={address}")
        log = finished.stdout + finished.stderr
        assert finished.returncode == 1, log
        from huggingface_hub import HfApi

        assert not HfApi(endpoint=address, token=False).repo_exists(
            "kernel-actions/grayscale", repo_type="kernel"
        )
    assert "tests/kernel/test_wrong.py" in log and "assert 1 == 2" in log
    assert not list((tmp_path / "act" / "artifacts").iterdir())


@pytest.mark.slow
def test_a_pull_request_of_a_fork_sees_no_secret_and_publishes_nothing(author: Path, tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    text = f'"; touch {planted}; $(touch {planted}) `touch {planted}`'
    pull_request = {"number": 1, "title": text, "body": text, "head": {"ref": text}}
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": pull_request}))
    # The kernel's tests, which are the fork's code, write down what they see.
    seen = tmp_path / "seen"
    (author / "tests" / "kernel" / "test_spy.py").write_text(
        "import os, pathlib, pytest\n\n@pytest.mark.kernels_ci\ndef test_it():\n"
        f"    pathlib.Path({str(seen)!r}).write_text(str(dict(os.environ)))\n"
    )
    git(author, "add", "--all")
    git(author, "commit", "--quiet", "--message=Spy")
    with embedded_hub(tmp_path / "hub") as address:
        finished = act(
            author, tmp_path / "act", "pull_request", "--eventpath", str(event),
            "--var", f"KERNEL_HUB={address}",
            "--secret", "HF_TOKEN=hf_planted", "--secret", "GITHUB_TOKEN=gh_planted",
        )  # fmt: skip
        log = finished.stdout + finished.stderr
        assert finished.returncode == 0, log
        from huggingface_hub import HfApi

        assert not HfApi(endpoint=address, token=False).repo_exists(
            "kernel-actions/grayscale", repo_type="kernel"
        )
    assert "planted" not in seen.read_text().replace(str(planted), "")
    assert not planted.exists()


def test_a_pull_request_is_checked(author: Path, tmp_path: Path) -> None:
    passed = act(author, tmp_path / "act", "pull_request", workflow="pr-compliance")
    assert passed.returncode == 0, passed.stdout + passed.stderr
    source = author / "torch-ext" / "grayscale" / "__init__.py"
    source.write_text(source.read_text().replace("__all__", "__none__"))
    git(author, "commit", "--quiet", "--all", "--message=Break a rule")
    failed = act(author, tmp_path / "act", "pull_request", workflow="pr-compliance")
    log = failed.stdout + failed.stderr
    assert failed.returncode == 1
    assert "KA302" in log and "torch-ext/grayscale/__init__.py" in log
    assert "Build one variant" not in log.partition("KA302")[2]


@pytest.mark.slow
def test_a_release_is_staged_verified_promoted_and_tagged(author: Path, tmp_path: Path) -> None:
    with embedded_hub(tmp_path / "hub") as address:
        arguments = (
            "--var", f"KERNEL_HUB={address}", "--var", "KERNEL_RELEASE_PARTIAL=true",
            "--input", "bump=auto", "--secret", "HF_TOKEN=hf_planted",
        )  # fmt: skip
        from huggingface_hub import HfApi

        api = HfApi(endpoint=address, token=False)
        dry = act(
            author, tmp_path / "dry", "workflow_dispatch", *arguments, "--input", "dry-run=true",
            workflow="release",
        )  # fmt: skip
        assert dry.returncode == 0, dry.stdout + dry.stderr
        assert not api.repo_exists("kernel-actions/grayscale", repo_type="kernel")
        finished = act(
            author, tmp_path / "act", "workflow_dispatch", *arguments, "--input", "dry-run=false",
            workflow="release",
        )  # fmt: skip
        log = finished.stdout + finished.stderr
        assert finished.returncode == 0, log
        refs = api.list_repo_refs("kernel-actions/grayscale", repo_type="kernel")
        record = api.hf_hub_download(
            "kernel-actions/grayscale", "kernel-actions.json", repo_type="kernel", revision="v1",
            cache_dir=tmp_path / "cache",
        )  # fmt: skip
    assert {branch.name for branch in refs.branches} == {"main", "v1"}
    assert [tag.name for tag in refs.tags] == ["v1.0.0"]
    assert json.loads(Path(record).read_text())["commit"] == git(author, "rev-parse", "HEAD").strip()
    assert "hf_planted" not in log
