"""Actions are generated, thin, and in step with the options; third parties are pinned as agreed."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from kernel_actions.options import COMMANDS

ROOT = Path(__file__).parents[2]
# The commit of each release that the workflows and examples use, checked against its repository.
PINS = {
    "actions/checkout": "3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1",
    "actions/upload-artifact": "043fb46d1a93c77aae656e7c1c64a875d1fc6a0a # v7.0.1",
    "actions/setup-python": "5fda3b95a4ea91299a34e894583c3862153e4b97 # v7.0.0",
    "actions/download-artifact": "3e5f45b2cfb9172054b4087a40e8e0b5a5461e7c # v8.0.1",
    "cachix/install-nix-action": "630ae543ea3a38a9a4166f03376c02c50f408342 # v31.11.0",
}
# The jobs of templates that write: the git tag of a release, and the pull request of a new lock.
WRITERS = {
    ("release.yml", "Promote and tag"): {"contents": "write"},
    ("kernels-lock.yml", "Open the pull request"): {"contents": "write", "pull-requests": "write"},
}
ACTIONS = [command for command in COMMANDS.values() if command.is_action]


def _generate() -> Any:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "scripts" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", sorted(_generate().generated_files()), ids=str)
def test_generated_files_are_up_to_date(path: Path) -> None:
    assert (ROOT / path).read_text() == _generate().generated_files()[path], "run `make generate`"


def test_no_action_is_left_over() -> None:
    places = ("action.yml", "*/action.yml", "actions/*/*.yml")
    found = {path.relative_to(ROOT) for place in places for path in ROOT.glob(place)}
    assert found == {path for path in _generate().generated_files() if path.name == "action.yml"}


@pytest.mark.parametrize("command", ACTIONS, ids=lambda command: command.name)
def test_no_expression_stands_in_a_script(command: Any) -> None:
    action = yaml.safe_load((ROOT / command.name / "action.yml").read_text())
    for step in action["runs"]["steps"]:
        if "uses" in step:
            name, _, pin = step["uses"].partition("@")
            assert PINS[name].startswith(f"{pin} #")
            continue
        assert "${{" not in step["run"]
        # A secret travels in the environment, where other users of the machine cannot read it.
        assert "token" not in step["run"].lower()
    kernel = {"kernel-dir"} if command.takes_kernel else set()
    assert set(action["inputs"]) == kernel | {one.name for one in command.options if one.is_input}
    assert all("default" in one for one in action["inputs"].values())


@pytest.mark.parametrize(
    "path",
    sorted([*ROOT.glob("templates/workflows/*.yml"), *ROOT.glob("docs/examples/*.yml")]),
    ids=lambda p: p.name,
)
def test_third_parties_are_pinned_by_commit(path: Path) -> None:
    for line in path.read_text().splitlines():
        if found := re.search(r"uses: (\S+?)@(.*)$", line):
            name, pin = found.groups()
            if name.startswith("org/kernel-actions"):
                assert pin == "v1"
                assert name == "org/kernel-actions" or name.rpartition("/")[2] in COMMANDS
            else:
                assert pin == PINS[name]


@pytest.mark.parametrize("path", sorted(ROOT.glob("templates/workflows/*.yml")), ids=lambda path: path.name)
def test_templates_ask_for_little_and_end_in_time(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {}
    assert "concurrency" in workflow
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 360
        assert job["permissions"] == WRITERS.get((path.name, job["name"]), {"contents": "read"})
        for step in job["steps"]:
            assert "${{" not in step.get("run", "")


@pytest.mark.parametrize(
    "path",
    sorted([*ROOT.glob("templates/workflows/*.yml"), *ROOT.glob("docs/examples/*.yml")]),
    ids=lambda p: p.name,
)
def test_inputs_and_outputs_that_are_used_exist(path: Path) -> None:
    document = yaml.safe_load(path.read_text())
    jobs = document.get("jobs", {"example": document})
    for job in jobs.values():
        actions = {}
        for step in job["steps"]:
            name = step.get("uses", "").partition("@")[0]
            if name.startswith("org/kernel-actions/"):
                command = COMMANDS[name.rpartition("/")[2]]
                known = {one.name for one in command.options if one.is_input}
                known |= {"kernel-dir"} if command.takes_kernel else set()
                assert set(step.get("with", {})) <= known
                actions[step.get("id")] = {output.name for output in command.outputs}
        for step_id, output in re.findall(r"steps\.([\w-]+)\.outputs\.([\w-]+)", str(job)):
            assert output in actions[step_id]


def test_examples_in_the_readme_are_the_files_that_are_checked() -> None:
    found = re.findall(
        r"<!-- example: (\S+) -->\n```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert found
    for path, text in found:
        assert (ROOT / path).read_text() == text


def test_links_in_the_documentation_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_the_readme_lists_every_action() -> None:
    readme = (ROOT / "README.md").read_text()
    for command in ACTIONS:
        assert f"docs/actions/{command.name}.md" in readme


def test_the_gate_of_this_repository_needs_every_job() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    assert set(jobs["gate"]["needs"]) == set(jobs) - {"gate"}
    assert jobs["gate"]["if"] == "always()"


def test_the_release_template_shows_no_token_to_what_it_verifies() -> None:
    jobs = yaml.safe_load((ROOT / "templates" / "workflows" / "release.yml").read_text())["jobs"]
    holding = {name for name, job in jobs.items() if "secrets." in str(job)}
    assert holding == {"stage", "promote"}
    assert all(jobs[name]["environment"] == "hub" for name in holding)
    assert set(jobs["promote"]["needs"]) == {"stage", "verify"}
