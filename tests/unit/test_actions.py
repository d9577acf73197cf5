"""Actions are generated, thin, and in step with the options; third parties are pinned as agreed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import generate
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
    "actions/attest": "1e69f48acb82d1966a394da916b4c1698aa569d6 # v4.2.2",
    "cachix/install-nix-action": "630ae543ea3a38a9a4166f03376c02c50f408342 # v31.11.0",
}
# The jobs of templates that may more than check out, where they do: each with all that it may, and why.
MAY_MORE = {
    # To see whom the environment asks.
    ("build-and-test", "approve"): {"actions": "read"},
    # To prove who publishes, and to sign for the files.
    ("release", "stage"): {"contents": "read", "id-token": "write", "attestations": "write"},
    # The git tag, and the release on GitHub.
    ("release", "promote"): {"contents": "write", "id-token": "write"},
    # To see when each artifact was made.
    **{(name, "seal"): {"actions": "read"} for name in ("benchmark", "build-and-test", "release")},
    ("rollback", "rollback"): {"contents": "read", "id-token": "write"},
    ("freshness", "look"): {"contents": "read", "issues": "write"},
    ("kernels-lock", "propose"): {"contents": "write", "pull-requests": "write"},
}
LIMIT = "${{ matrix.timeout || 355 }}"
TEMPLATES = sorted(ROOT.glob("templates/workflows/**/*.yml"))
# Generated of the templates, to be called.
REUSABLE = [
    ROOT / ".github" / "workflows" / path.name for path in TEMPLATES if path.parent.name == "workflows"
]
ACTIONS = [command for command in COMMANDS.values() if command.is_action]
GENERATED = generate.generated_files()


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", sorted(GENERATED), ids=str)
def test_generated_files_are_up_to_date(path: Path) -> None:
    assert (ROOT / path).read_text() == GENERATED[path], "run `make generate`"


def test_no_action_is_left_over() -> None:
    places = ("action.yml", "*/action.yml", "actions/*/*.yml")
    found = {path.relative_to(ROOT) for place in places for path in ROOT.glob(place)}
    assert found == {path for path in GENERATED if path.name == "action.yml"}


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
    "path", [*TEMPLATES, *REUSABLE, *sorted(ROOT.glob("docs/examples/*.yml"))], ids=_name
)
def test_third_parties_are_pinned_by_commit(path: Path) -> None:
    for line in path.read_text().splitlines():
        if found := re.search(r"^[^#]*uses: (\S+?)@(.*)$", line):
            name, pin = found.groups()
            if name.startswith("org/kernel-actions"):
                assert pin == "v1" and path not in REUSABLE
                assert name == "org/kernel-actions" or name.rpartition("/")[2] in (
                    *COMMANDS,
                    *(one.name for one in REUSABLE),
                )
            else:
                assert pin == PINS[name]


@pytest.mark.parametrize("path", [*TEMPLATES, *REUSABLE], ids=_name)
def test_templates_ask_for_little_and_end_in_time(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {}
    assert isinstance(workflow["concurrency"]["cancel-in-progress"], bool)
    for name, job in workflow["jobs"].items():
        limit = job["timeout-minutes"]
        # What kernel-actions.toml says, else less than the 6 hours after which GitHub ends a job.
        assert limit == LIMIT or limit <= 120
        checks_out = any("actions/checkout@" in step.get("uses", "") for step in job["steps"])
        least = {"contents": "read"} if checks_out else {}
        assert job["permissions"] == MAY_MORE.get((path.stem, name), least)
        for step in job["steps"]:
            assert "${{" not in step.get("run", "")
            if re.search(r"(kernel-actions|\$)/build\b", step.get("uses", "")):
                # It stops before the job is ended, and keeps what is finished.
                assert (limit, step["with"]["time-limit"]) == (LIMIT, "${{ matrix.time_limit }}")


@pytest.mark.parametrize("path", [*TEMPLATES, *REUSABLE], ids=_name)
def test_only_jobs_that_publish_hold_what_publishes(path: Path) -> None:
    for name, job in yaml.safe_load(path.read_text())["jobs"].items():
        text = str(job)
        holds = "HF_TOKEN" in text or "id-token" in text or "write" in str(job["permissions"])
        assert ("HF_TOKEN" in text or "HF_OIDC_RESOURCE" in text) == (job.get("environment") == "hub")
        if holds:
            # Neither a compiler nor a test runs there, and no runner of one's own.
            assert job["runs-on"] == "ubuntu-latest"
            assert not re.search(r"(kernel-actions|\$)/(build|test|benchmark|verify)\b", text), name
        # A secret is passed to an action, never to a shell.
        for step in job["steps"]:
            assert "run" not in step or "secrets." not in str(step)


def test_the_guide_names_what_callers_have_to_permit() -> None:
    """GitHub refuses a called workflow whose jobs ask for more than the job that calls it has."""
    guide = (ROOT / "docs" / "workflows.md").read_text()
    (paragraph,) = [part for part in guide.split("\n\n") if part.startswith("Copy the template where")]
    for name in ("release", "benchmark"):
        jobs = yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text())["jobs"].values()
        asked: dict[str, str] = {}
        for job in jobs:
            for permission, level in job["permissions"].items():
                asked[permission] = "write" if "write" in (level, asked.get(permission)) else level
        for permission, level in asked.items():
            assert f"`{permission}: {level}`" in paragraph, name


@pytest.mark.parametrize("path", TEMPLATES, ids=_name)
def test_what_strangers_can_start_has_no_secret(path: Path) -> None:
    # PyYAML takes `on` for true.
    events = set(yaml.safe_load(path.read_text())[True])
    if path.stem in ("build-and-test", "pr-compliance"):
        assert events <= {"push", "pull_request", "merge_group"}
        for expression in re.findall(r"\$\{\{[^}]*\}\}", path.read_text()):
            assert "secrets." not in expression or "github.event_name == 'push' && secrets." in expression
    else:
        # Of these, the people who can push here start one kind, and the clock the other.
        assert events <= {"workflow_dispatch", "schedule"}


@pytest.mark.parametrize(
    "path",
    [one for one in (*TEMPLATES, *REUSABLE) if one.stem in ("build-and-test", "pr-compliance")],
    ids=_name,
)
def test_strangers_start_nothing_on_a_runner_of_ones_own(path: Path) -> None:
    jobs = yaml.safe_load(path.read_text())["jobs"]
    runners = {job["runs-on"] for job in jobs.values()}
    if runners != {"ubuntu-latest"}:
        assert runners == {"ubuntu-latest", "${{ matrix.runner }}", "${{ matrix.test_runner }}"}
        # The plan names hosted ones alone then, unless somebody was asked.
        (plan,) = [step for step in jobs["plan"]["steps"] if step.get("id") == "matrix"]
        is_stranger = "needs.approve.result != 'skipped' && needs.approve.outputs.approved != 'true'"
        assert plan["with"]["untrusted"] == f"${{{{ {is_stranger} }}}}"
        # A list of what is trusted: see tests/unit/test_events.py.
        assert "contains(fromJSON(" in jobs["approve"]["if"]


# What differs between the templates that have the same step, or a job of the same name: each is written out
# where it runs, to be read there. What is for a monorepo, or to be called, is generated of these.
DIFFERENCES: dict[str, set[str]] = {
    "step actions/checkout": {"with.fetch-depth", "with.persist-credentials", "with.submodules"},
    "step org/kernel-actions/matrix": {
        "with.kernel-dir", "with.scope", "with.only", "with.untrusted",
        "with.discover", "with.changed-since", "with.allow-empty",
    },
    # Pushes to main fill the cache, releases do, and measurements do not.
    "step org/kernel-actions/build": {"with.push-to", "with.push-token"},
    "step org/kernel-actions/unpack": {"with.kernel-dir", "with.variant", "with.reports"},
    "step org/kernel-actions/compliance": {
        "with.kernel-dir", "with.build-dir", "with.complete", "with.source-only", "with.base",
    },
    # Of a variant, or of all that were tested.
    "step org/kernel-actions/test": {
        "if", "with.kernel-dir", "with.build-dir", "with.variant",
        "with.environment", "with.merge", "with.expect",
    },
    # Plans, stages and promotes.
    "step org/kernel-actions/release": {
        "id", "env.GITHUB_TOKEN", "env.HF_OIDC_RESOURCE", "with.build-dir", "with.bump", "with.pre",
        "with.dry-run",
        "with.stage", "with.promote", "with.verified", "with.moving-tags", "with.token",
    },
    "step org/kernel-actions/rollback": {"env.HF_OIDC_RESOURCE", "with.dry-run", "with.token"},
    "step actions/upload-artifact": {
        "if", "with.name", "with.path", "with.if-no-files-found", "with.retention-days",
    },
    "step actions/download-artifact": {
        "if", "with.name", "with.path", "with.pattern",
    },
    "job plan": {"timeout-minutes"},
    # For forks, what hosted runners test.
    "job test": {"strategy.matrix"},
    # Of sources, of sources of many kernels, and of all variants of a release.
    "job compliance": {"timeout-minutes", "strategy.fail-fast", "strategy.matrix"},
}  # fmt: skip


def test_what_several_templates_do_they_do_alike() -> None:
    found: dict[str, list[dict[str, object]]] = {}
    by_hand = [one for one in TEMPLATES if one.relative_to(ROOT) not in GENERATED]
    assert len(by_hand) == 8
    for path in by_hand:
        for name, job in yaml.safe_load(path.read_text())["jobs"].items():
            # What ties jobs together is of their workflow.
            alone = {key: job[key] for key in job.keys() - {"name", "needs", "if", "outputs", "steps"}}
            found.setdefault(f"job {name}", []).append(_leaves(alone))
            for step in job["steps"]:
                # A gate is of its own workflow.
                if step.get("name") != "Nothing was skipped":
                    title = step.get("name") or step["uses"].partition("@")[0]
                    found.setdefault(f"step {title}", []).append(_leaves(step))
    differences = {}
    for title, listed in found.items():
        keys = {key for one in listed for key in one}
        if varying := {key for key in keys if any(one.get(key) != listed[0].get(key) for one in listed)}:
            differences[title] = varying
    assert differences == DIFFERENCES


def _leaves(value: dict[str, Any]) -> dict[str, object]:
    """The values of a job or a step, by where they stand."""
    flat: dict[str, object] = {}
    for key, one in value.items():
        flat |= (
            {f"{key}.{inner}": each for inner, each in one.items()} if isinstance(one, dict) else {key: one}
        )
    return flat


@pytest.mark.parametrize("path", [*TEMPLATES, *REUSABLE], ids=_name)
def test_a_job_that_was_skipped_is_not_taken_for_one_that_passed(path: Path) -> None:
    jobs = yaml.safe_load(path.read_text())["jobs"]
    for name, job in jobs.items():
        condition = str(job.get("if", ""))
        if "always()" in condition:
            # A gate: it looks at the result of each job that it needs.
            looked_at = set(re.findall(r"needs\.([\w-]+)\.result", str(job)))
            assert looked_at == set(job["needs"]), name
        elif "cancelled()" in condition:
            # GitHub's own rule is off: the result of what it needs last is asked for.
            needs = job["needs"] if isinstance(job["needs"], list) else [job["needs"]]
            assert f"needs.{needs[-1]}.result" in condition, name


def test_templates_for_monorepos_and_properties_are_complete() -> None:
    for folder in (ROOT / "templates" / "workflows", ROOT / "templates" / "workflows" / "monorepo"):
        for path in folder.glob("*.yml"):
            properties = json.loads(path.with_suffix("").with_suffix(".properties.json").read_text())
            assert list(properties) == ["name", "description", "iconName", "categories"]
            assert properties["iconName"].startswith("octicon ") and properties["categories"]
        assert {path.name.partition(".")[0] for path in folder.glob("*.json")} == {
            path.stem for path in folder.glob("*.yml")
        }
    names = [json.loads(path.read_text())["name"] for path in ROOT.glob("templates/**/*.properties.json")]
    assert len(names) == len(set(names))


def test_each_kernel_of_a_monorepo_is_checked_as_one_in_a_repository_of_its_own() -> None:
    # The only template for monorepos that is written by hand, as most of it is not in the other one.
    folder = ROOT / "templates" / "workflows"
    one, many = ((folder / name).read_text() for name in ("pr-compliance.yml", "monorepo/pr-compliance.yml"))
    head, _, jobs = one.partition("\nname: ")[2].partition("\njobs:\n")
    assert f"\nname: {head}\njobs:\n" in many
    # Its one job, but for the name: the runner, the limit and the permissions, and then the steps.
    job, _, steps = jobs.partition("    runs-on: ")[2].partition("    steps:\n")
    assert f"    runs-on: {job}    strategy:\n" in many
    assert f"    steps:\n{steps}" in many.replace("${{ matrix.dir }}", ".")


@pytest.mark.parametrize(
    "path", [*TEMPLATES, *REUSABLE, *sorted(ROOT.glob("docs/examples/*.yml"))], ids=_name
)
def test_inputs_and_outputs_that_are_used_exist(path: Path) -> None:
    document = yaml.safe_load(path.read_text())
    jobs = document.get("jobs", {"example": document})
    for job in jobs.values():
        actions = {}
        # A job that calls a workflow has no steps: GitHub's parser knows its inputs.
        for step in job.get("steps", []):
            name = step.get("uses", "").partition("@")[0]
            if name.startswith(("org/kernel-actions/", "$/")):
                command = COMMANDS[name.rpartition("/")[2]]
                known = {one.name for one in command.options if one.is_input}
                known |= {"kernel-dir"} if command.takes_kernel else set()
                assert set(step.get("with", {})) <= known
                actions[step.get("id")] = {output.name for output in command.outputs}
            elif "run" in step:
                actions[step.get("id")] = set(re.findall(r'echo "([\w-]+)=.*GITHUB_OUTPUT', step["run"]))
        for step_id, output in re.findall(r"steps\.([\w-]+)\.outputs\.([\w-]+)", str(job)):
            assert output in actions[step_id]
        for needed, output in re.findall(r"needs\.([\w-]+)\.outputs\.([\w-]+)", str(job)):
            if needed not in jobs:
                # Steps alone, whose other jobs are in the example of the action that has the output.
                assert "jobs" not in document and output in {one.name for one in COMMANDS[needed].outputs}
                continue
            assert needed in job["needs"] and output in jobs[needed]["outputs"]


def test_whole_workflows_in_the_documentation_are_the_files_that_are_checked() -> None:
    pages = (ROOT / "README.md").read_text() + (ROOT / "docs" / "workflows.md").read_text()
    found = re.findall(r"<!-- example: (\S+) -->\n```yaml\n(.*?)```", pages, re.DOTALL)
    assert len(found) >= 2
    for path, text in found:
        assert (ROOT / path).read_text() == text


def test_the_readme_lists_every_action() -> None:
    readme = (ROOT / "README.md").read_text()
    for command in ACTIONS:
        assert f"docs/actions/{command.name}.md" in readme


def test_the_release_template_shows_no_token_to_what_it_verifies() -> None:
    jobs = yaml.safe_load((ROOT / "templates" / "workflows" / "release.yml").read_text())["jobs"]
    holding = {name for name, job in jobs.items() if "secrets.HF_TOKEN" in str(job)}
    assert holding == {"stage", "promote"}
    assert all(jobs[name]["environment"] == "hub" for name in holding)
    assert set(jobs["promote"]["needs"]) == {"stage", "verify"}


@pytest.mark.parametrize("path", [one for one in (*TEMPLATES, *REUSABLE) if one.stem == "release"], ids=_name)
def test_what_is_promoted_is_what_was_staged_and_verified(path: Path) -> None:
    jobs = yaml.safe_load(path.read_text())["jobs"]

    def given(job: str) -> dict[str, Any]:
        (step,) = [
            one for one in jobs[job]["steps"] if re.search(r"/(release|verify)\b", one.get("uses", ""))
        ]
        return dict(step["with"])

    assert jobs["promote"]["needs"] == ["stage", "verify"] and jobs["verify"]["needs"] == "stage"
    staged = "${{ needs.stage.outputs.staged }}"
    # With it nothing of the kernel is run beside the token.
    assert given("verify")["revision"] == given("promote")["verified"] == staged
    assert given("promote")["bump"] == "${{ needs.stage.outputs.version }}" and "pre" not in given("promote")
    for job in ("stage", "verify", "promote"):
        assert (
            given(job)["hub"] == given("stage")["hub"] and given(job)["repo-id"] == given("stage")["repo-id"]
        )
