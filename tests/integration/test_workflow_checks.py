"""Every workflow and action of this repository, as GitHub's own parser and zizmor see them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml
from kernel_actions import __version__, settings

from tests.integration.conftest import ROOT, copy_repository, git
from tests.tools import ask

PROGRAMS = Path(sysconfig.get_path("scripts"))
PARSER = ROOT / "tests" / "workflow_parser"
WORKFLOWS = sorted(
    [
        *ROOT.glob("templates/workflows/**/*.yml"),
        *ROOT.glob(".github/workflows/*.yml"),
        ROOT / "docs" / "examples" / "reusable.yml",
        ROOT / "docs" / "examples" / "workflow.yml",
    ]
)
ACTIONS = sorted([*ROOT.glob("action.yml"), *ROOT.glob("*/action.yml"), *ROOT.glob("actions/*/action.yml")])
# Each with what follows it in its line, or stands above it: the reason.
INLINE_IGNORE = re.compile(r"zizmor: *ignore")


def parsed(*paths: Path) -> list[dict[str, object]]:
    """What GitHub's parser finds."""
    ask("node")
    finished = subprocess.run(
        ["node", PARSER / "check.mjs", ROOT, *paths], text=True, capture_output=True, check=False, timeout=120
    )
    assert finished.returncode == 0, finished.stderr
    return [json.loads(line) for line in finished.stdout.splitlines()]


def test_githubs_own_parser_finds_nothing_wrong() -> None:
    assert len(WORKFLOWS) > 20 and len(ACTIONS) > 20
    assert parsed(*WORKFLOWS, *ACTIONS) == []


def test_githubs_own_parser_takes_a_runner_as_the_matrix_has_it(tmp_path: Path) -> None:
    def workflow(runner: object) -> Path:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.yml"
        job = {"runs-on": runner, "steps": [{"run": "true"}]}
        path.write_text(yaml.safe_dump({"on": "push", "jobs": {"build": job}}).replace("'on'", "on"))
        return path

    runners = [
        settings.Runner(("self-hosted", "gpu")),
        settings.Runner((), "gpus"),
        settings.Runner(("h100", "x64"), "organization/gpus"),
    ]
    assert parsed(*(workflow(one.as_json()) for one in runners)) == []
    # It does look: none of these is one.
    wrong = [{"gruop": "gpus"}, {"group": "team/gpus"}, {"group": ["a", "b"]}]
    assert {one["path"] for one in parsed(*(workflow(one) for one in wrong))} == {
        str(tmp_path / f"{number}.yml") for number in (3, 4, 5)
    }


def test_githubs_own_parser_sees_what_is_wrong(tmp_path: Path) -> None:
    workflow = tmp_path / ".github" / "workflows" / "wrong.yml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text(
        "on: push\njobs:\n  one:\n    runs-on: ubuntu-latest\n    steps:\n"
        "      - run: echo ${{ nothing.of_the_kind }}\n"
        "      - uses: org/kernel-actions/matrix@v1\n        with:\n          scoop: pr\n"
        "  two:\n    uses: ./.github/workflows/release.yml\n    with:\n      bunp: minor\n"
    )
    action = tmp_path / "action.yml"
    action.write_text("name: a\ndescription: b\nruns:\n  using: composite\n  steps:\n    - run: true\n")
    said = {
        (Path(str(one["path"])).name, one["line"]): str(one["message"]) for one in parsed(workflow, action)
    }
    assert "nothing" in said["wrong.yml", 6] and "scoop" in said["wrong.yml", 9]
    assert "bunp" in said["wrong.yml", 13]
    assert "shell" in said["action.yml", 6]


@pytest.mark.parametrize(
    ("schema", "paths"), [("vendor.github-workflows", WORKFLOWS), ("vendor.github-actions", ACTIONS)]
)
def test_all_are_as_their_schema_says(schema: str, paths: list[Path]) -> None:
    finished = subprocess.run(
        [PROGRAMS / "check-jsonschema", "--builtin-schema", schema, *paths],
        text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_zizmor_finds_nothing_at_its_strictest() -> None:
    command = [
        "--persona",
        "pedantic",
        "--offline",
        "--no-progress",
        "--config",
        "zizmor.yml",
        "--format",
        "json",
    ]
    finished = subprocess.run(
        [PROGRAMS / "zizmor", *command, *WORKFLOWS, *ACTIONS],
        cwd=ROOT, text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert json.loads(finished.stdout) == [], finished.stdout
    # Few things are let through in the files themselves; the configuration lets the suite's own tag through.
    ignored = [
        path.relative_to(ROOT)
        for path in [*WORKFLOWS, *ACTIONS, *ROOT.glob("tests/integration/stubs/*/action.yml")]
        for line in path.read_text().splitlines()
        if INLINE_IGNORE.search(line)
    ]
    assert len(ignored) <= 3, ignored
    policy = yaml.safe_load((ROOT / "zizmor.yml").read_text())["rules"]
    assert policy == {
        "unpinned-uses": {"config": {"policies": {"org/kernel-actions/*": "ref-pin", "*": "hash-pin"}}}
    }


def test_the_gate_of_this_repository_needs_every_job() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    gate = jobs.pop("gate")
    assert set(gate["needs"]) == set(jobs)
    assert gate["if"] == "always()"
    # The step of the gate, with the results of the jobs in place of theirs.
    (step,) = gate["steps"]
    assert step["env"] == {"RESULTS": "${{ join(needs.*.result, ' ') }}"}
    for results, expected in (
        ("success success", 0), ("success skipped", 1), ("failure success", 1), ("cancelled success", 1),
        ("", 1),
    ):  # fmt: skip
        finished = subprocess.run(["bash", "-e", "-c", step["run"]], env={"RESULTS": results}, check=False)
        assert finished.returncode == expected, results


@pytest.mark.parametrize("path", [one for one in WORKFLOWS if one.stem == "build-and-test"], ids=str)
def test_the_gate_of_builds_passes_when_all_was_built_and_tested(path: Path) -> None:
    gate = yaml.safe_load(path.read_text())["jobs"]["tested"]
    step = gate["steps"][0]
    all_done = {"PLAN": "success", "BUILD": "success", "TEST": "success", "HELD_BACK": "0", "COUNT": "2"}

    def said(**results: str) -> str:
        """What the step says; empty when it passes."""
        given = {name: (all_done | results)[name] for name in step["env"]}
        finished = subprocess.run(
            ["bash", "-e", "-c", step["run"]], env=given, text=True, capture_output=True, check=False
        )
        assert (finished.returncode == 0) == (finished.stdout == "")
        return finished.stdout

    assert said() == ""
    for job in ("PLAN", "BUILD", "TEST"):
        for result in ("failure", "cancelled", "skipped", ""):
            assert f"{job.lower()} {result}" in said(**{job: result})
    assert "build failure, test skipped" in said(BUILD="failure", TEST="skipped")
    assert "variants that need a runner which a fork gets when its run was approved: 1: give" in said(
        HELD_BACK="1"
    )
    # Where the plan failed there is no number.
    assert "plan failure, build skipped" in said(PLAN="failure", BUILD="skipped", HELD_BACK="", COUNT="")
    nothing = said(BUILD="skipped", TEST="skipped", COUNT="0")
    # Only in a monorepo there may be nothing to build.
    assert nothing == "" if "monorepo" in path.parts else "build skipped" in nothing


def test_a_release_of_the_suite_is_planned_by_a_bare_python(tmp_path: Path) -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "suite-release.yml").read_text())["jobs"]
    (script,) = [step["run"] for step in jobs["plan"]["steps"] if step.get("id") == "plan"]
    copy_repository(tmp_path / "root")
    programs = tmp_path / "bin"
    programs.mkdir()
    # As the job has it: without this environment's packages.
    (programs / "python").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    (programs / "python").chmod(0o755)
    root, outputs, summary = tmp_path / "root", tmp_path / "outputs", tmp_path / "summary"
    changelog = (root / "CHANGELOG.md").read_text()
    (root / "CHANGELOG.md").write_text(
        changelog.replace("\n## ", f"\n## [{__version__}] - 2026-12-01\n\n- All of it.\n\n## ", 1)
    )
    for tag in ("v0.0.1", "v0.0.2-rc.1", "grayscale/v9.0.0"):
        git(root, "tag", tag)

    def plan(version: str) -> int:
        variables = {
            "PATH": f"{programs}:{os.environ['PATH']}", "VERSION": version, "HOME": str(tmp_path),
            "GITHUB_OUTPUT": str(outputs), "GITHUB_STEP_SUMMARY": str(summary), "GITHUB_ACTIONS": "true",
        }  # fmt: skip
        # As GitHub runs a step that names the shell bash.
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        return subprocess.run(shell, cwd=root, env=variables, check=False, capture_output=True).returncode

    assert plan("1.2") != 0 and not outputs.exists()
    assert plan(__version__) == 0
    assert summary.read_text() == "- All of it.\n"
    assert "moving<<" in outputs.read_text()
    assert f"v{__version__.rpartition('.')[0]}" in outputs.read_text()


def test_a_release_of_the_suite_tags_and_moves_what_users_refer_to(tmp_path: Path) -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "suite-release.yml").read_text())["jobs"]
    (script,) = [step["run"] for step in jobs["tag"]["steps"] if "run" in step]
    root, origin, programs = tmp_path / "root", tmp_path / "origin.git", tmp_path / "bin"
    git(tmp_path, "init", "--quiet", "--bare", str(origin))
    git(tmp_path, "init", "--quiet", "--initial-branch=main", str(root))
    git(root, "remote", "add", "origin", str(origin))
    programs.mkdir()
    # No release is there; making one succeeds.
    (programs / "gh").write_text('#!/bin/sh\n[ "$2" = create ]\n')
    (programs / "gh").chmod(0o755)

    def release(version: str, moving: str) -> int:
        commit = git(root, "rev-parse", "HEAD").strip()
        variables = {
            "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(tmp_path), "RUNNER_TEMP": str(tmp_path),
            "VERSION": version, "MOVING": moving, "GITHUB_SHA": commit,
            "GIT_COMMITTER_NAME": "Test", "GIT_COMMITTER_EMAIL": "test@example.org",
        }  # fmt: skip
        finished = subprocess.run(
            ["bash", "-e", "-c", script], cwd=root, env=variables, check=False, capture_output=True
        )
        return finished.returncode

    def commit() -> str:
        git(root, "commit", "--quiet", "--allow-empty", "--message=More")
        return git(root, "rev-parse", "HEAD").strip()

    def tags() -> dict[str, str]:
        names = git(origin, "tag", "--list").split()
        return {name: git(origin, "rev-parse", f"{name}^{{commit}}").strip() for name in names}

    first = commit()
    assert release("1.0.0", "v1 v1.0") == 0
    assert tags() == {"v1.0.0": first, "v1": first, "v1.0": first}
    # Again: all of it is done.
    assert release("1.0.0", "v1 v1.0") == 0
    second = commit()
    # The version is that of another commit.
    assert release("1.0.0", "v1 v1.0") != 0
    assert tags() == {"v1.0.0": first, "v1": first, "v1.0": first}
    assert release("1.1.0", "v1 v1.1") == 0
    assert tags() == {"v1.0.0": first, "v1.1.0": second, "v1": second, "v1.0": first, "v1.1": second}


def test_the_settings_that_the_page_shows_are_taken(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "workflows.md").read_text()
    (block,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "kernel-actions.toml").write_text(block)
    own = settings.load(tmp_path)
    assert own.test_runner("x86_64-linux", "rocm").as_json() == ["ubuntu-latest"]
    assert own.test_runner("x86_64-linux", "cuda").as_json() == {"group": "gpus", "labels": ["h100"]}
    reason = "none of our runners has such a GPU"
    assert own.allow_untested == {"*-cu*-aarch64-linux": reason, "*-rocm*": reason}


def test_the_page_names_every_template_and_every_setting() -> None:
    page = (ROOT / "docs" / "workflows.md").read_text()
    texts = {path: path.read_text() for path in ROOT.glob("templates/workflows/*.yml")}
    for path, text in texts.items():
        assert f"../templates/workflows/{path.name}" in page
        for name in re.findall(r"\b(?:vars|secrets)\.(\w+)", text):
            assert f"`{name}`" in page, f"{path.name} asks for {name}"
        for name in re.findall(r"\benvironment: ([a-z-]+)$", text, re.MULTILINE):
            assert f"`{name}`" in page, f"{path.name} runs in the environment {name}"
