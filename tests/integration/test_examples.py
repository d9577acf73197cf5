"""Every example of the documentation is run as it stands, by act, and does what its page says.

All of them are jobs of one workflow of an author's repository. What an example needs of another comes
to it the way it would on GitHub: by `needs`, by artifacts, and by an embedded Hub.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from kernel_actions.options import COMMANDS

from tests.hub.helpers import REPO as CONSUMED
from tests.hub.helpers import write_kernel
from tests.integration.conftest import (
    ACT,
    ROOT,
    act,
    author_repository,
    embedded_hub,
    git,
    kernel_actions,
)
from tests.tools import ask

EXAMPLES = ROOT / "docs" / "examples"
PAGES = ROOT / "docs" / "actions"
REPOSITORY = "kernel-actions/grayscale"
VARIANT = "torch213-cxx11-cpu-x86_64-linux"
SECRET = "hf_planted"
# The commit of the last release, and what this one is after it: a feature was added.
BEFORE = "grayscale/v1.1.0"
TAG = "grayscale/v1.2.0"

# What a reader would replace, and by what it is replaced here. All else runs word for word; where an
# example names no Hub, HF_ENDPOINT does.
REPLACED = {
    # A few rounds of the smallest images: it is tried, and nothing is decided.
    "benchmark": {
        "hub: https://huggingface.co": "\n      ".join(
            (
                "hub: ${{ vars.HUB }}",
                'only: "*uint8_planar_224"',
                "rounds: 8",
                "max-rounds: 8",
                "threshold: 900",
            )
        ),
    },
    # The builder's cache cannot be reached from a test.
    "setup-nix": {
        "https://cache.example.org": "file://${{ env.NIX_CACHE }}\n      builder-cache: false",
    },
    "upload": {"hub: https://huggingface.co": "hub: ${{ vars.HUB }}"},
    # One machine makes one variant, and an embedded Hub takes that for a release.
    "release": {"hub: https://huggingface.co": "hub: ${{ vars.HUB }}\n          partial: true"},
    "verify": {"kernels-community/relu": REPOSITORY},
    # What the release before it made: the branch holds it already.
    "rollback": {
        "kernels-community/relu": REPOSITORY,
        "to: v1.1.0": "to: v1.2.0",
        "hub: https://huggingface.co": "hub: ${{ vars.HUB }}",
    },
    "wheel": {"kernels-community/relu": REPOSITORY},
    # There is no GitHub here: tests/integration/test_freshness.py has one that stands in.
    "freshness": {"issue: true": "issue: false"},
    "lock": {"project: .": "project: consumer"},
    "download": {
        "project: .": "project: consumer",
        "torch2.13-cu13.0-x86_64-linux": "torch2.13-cpu-x86_64-linux",
    },
    # Nix would take named variants, and the builder's packages cannot be had here.
    "seal": {"archive: build/archives\n": "archive: build/archives\n          backend-tool: local\n"},
}
# The examples that are jobs of the one workflow, and which of them each one waits for.
NEEDS: dict[str, tuple[str, ...]] = {
    "setup-nix": (),
    "matrix": (),
    "compliance": (),
    "build": (),
    "root": (),
    # Its last job is what the page of `unpack` shows.
    "seal": (),
    "test": (),
    "report": ("test",),
    "upload": ("test",),
    "release": ("upload",),
    "verify": ("release",),
    "rollback": ("verify",),
    "benchmark": ("release",),
    "wheel": ("release",),
    "freshness": ("release",),
    "lock": (),
    "download": (),
}


# Steps of a job that `seal` shows as a whole.
SHOWN_ELSEWHERE = {"unpack"}


def example(name: str) -> Any:
    """An example of the documentation, with the reader's own values."""
    text = (EXAMPLES / f"{name}.yml").read_text()
    for old, new in REPLACED.get(name, {}).items():
        assert text.count(old) == 1, f"{name}.yml does not say {old!r} once"
        text = text.replace(old, new)
    return yaml.safe_load(text)


def jobs_of(name: str) -> dict[str, Any]:
    """The jobs of an example by names that no other example has; bare steps are the steps of a job."""
    found = example(name)
    if "jobs" not in found:
        return {name: {"runs-on": "ubuntu-latest", **found}}
    text = json.dumps(found["jobs"]).replace("needs.", f"needs.{name}-")
    jobs = {f"{name}-{job}": content for job, content in json.loads(text).items()}
    for content in jobs.values():
        if "needs" in content:
            needed = [content["needs"]] if isinstance(content["needs"], str) else content["needs"]
            content["needs"] = [f"{name}-{job}" for job in needed]
    return jobs


def workflow(names: dict[str, tuple[str, ...]]) -> str:
    """A workflow with all jobs of the examples ``names``. Each job keeps its folder in the end."""
    jobs: dict[str, Any] = {}
    for name, needed in names.items():
        for job, content in jobs_of(name).items():
            if needed:
                assert "needs" not in content
                content["needs"] = [other for one in needed for other in jobs_of(one)]
            content["steps"].append({"run": 'cp -r . "$KEPT/$GITHUB_JOB"', "if": "always()"})
            jobs[job] = content
    return yaml.safe_dump(
        {"name": "Examples", "on": "push", "permissions": {}, "jobs": jobs}, sort_keys=False
    )


def nix_of_its_own(folder: Path) -> list[str]:
    """Arguments of act by which Nix uses a store, a configuration and a cache of its own."""
    (folder / "cache").mkdir(parents=True)
    (folder / "cache" / "nix-cache-info").write_text("StoreDir: /nix/store\n")
    (folder / "conf").mkdir()
    # The machine's own shell, as Debian's Nix has none of its own for a sandbox.
    (folder / "conf" / "nix.conf").write_text(
        "build-users-group =\nsubstituters =\nsandbox-paths = /bin /usr /lib /lib64\n"
    )
    names = {"NIX_CONF_DIR": "conf", "NIX_STATE_DIR": "state", "NIX_STORE_DIR": "store", "NIX_LOG_DIR": "log"}
    variables = {name: folder / place for name, place in (names | {"NIX_CACHE": "cache"}).items()}
    return [part for name, value in variables.items() for part in ("--env", f"{name}={value}")]


@dataclass(frozen=True)
class Run:
    """What became of a workflow. ``outputs`` and ``results`` are those of each job, ``log`` is all that
    was printed; ``kept`` has the folder of each job, and ``origin`` is the repository on GitHub."""

    log: str
    returncode: int
    results: dict[str, str]
    outputs: dict[str, dict[str, str]]
    hub: str
    author: Path
    origin: Path
    kept: Path
    artifacts: Path

    def files_on_hub(self, revision: str) -> set[str]:
        """The paths of a revision on the Hub."""
        from huggingface_hub import HfApi

        api = HfApi(endpoint=self.hub, token=False)
        return set(api.list_repo_files(REPOSITORY, repo_type="kernel", revision=revision))


def run(author: Path, work: Path, hub: str, event: str, name: str) -> Run:
    """Commit what is in the author's repository, push it, and run its workflow ``name``."""
    git(author, "add", "--all")
    git(author, "commit", "--quiet", "--message=feat: try what the documentation shows")
    origin = work / "origin.git"
    git(author, "clone", "--quiet", "--bare", str(author), str(origin))
    kept = work / "kept"
    kept.mkdir(parents=True)
    finished = act(
        author, work, event, "--json", "--no-skip-checkout",
        "--env", f"ORIGIN=file://{origin}", "--env", f"KEPT={kept}", "--env", f"HF_ENDPOINT={hub}",
        "--var", f"HUB={hub}", "--secret", f"HF_TOKEN={SECRET}", *nix_of_its_own(work / "nix"), workflow=name,
    )  # fmt: skip
    printed = (finished.stdout + finished.stderr).splitlines()
    entries = [json.loads(line) for line in printed if line.startswith("{")]
    outputs: dict[str, dict[str, str]] = {}
    for one in entries:
        if one.get("command") == "set-output":
            outputs.setdefault(one["jobID"], {})[one["name"]] = one["arg"]
    return Run(
        log="\n".join(f"[{one.get('jobID', '')}] {one['msg'].rstrip()}" for one in entries),
        returncode=finished.returncode,
        results={one["jobID"]: one["jobResult"] for one in entries if "jobResult" in one},
        outputs=outputs,
        hub=hub,
        author=author,
        origin=origin,
        kept=kept,
        artifacts=work / "artifacts",
    )


def add_consumer(project: Path, kernel: Path, hub: str) -> None:
    """A project that uses a kernel of ``hub``, which is published and locked."""
    project.mkdir()
    (project / "pyproject.toml").write_text(f'[tool.kernels.dependencies]\n"{CONSUMED}" = 1\n')
    write_kernel(kernel)
    for arguments in (
        ["upload", str(kernel), "--hub", hub],
        ["lock", "--mode", "update", "--project", str(project), "--hub", hub],
    ):
        finished = kernel_actions(ROOT, *arguments)
        assert finished.returncode == 0, finished.stderr


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """One workflow of all examples, which was run, and its Hub."""
    # `setup-nix` is among the examples; what act starts cannot be seen from here.
    ask("nix")
    folder = tmp_path_factory.mktemp("examples")
    author = author_repository(folder / "author")
    git(author, "tag", BEFORE)
    (author / ".github" / "workflows" / "examples.yml").write_text(workflow(NEEDS))
    with embedded_hub(folder / "hub") as hub:
        add_consumer(author / "consumer", folder / "relu", hub)
        done = run(author, folder / "act", hub, "push", "examples")
        assert done.returncode == 0, done.log
        assert set(done.results.values()) == {"success"}, done.log
        assert SECRET not in done.log
        yield done


def test_the_setup_nix_example_configures_nix_and_plans(tried: Run) -> None:
    outputs = tried.outputs["setup-nix"]
    settings = json.loads(outputs["settings"])
    assert (outputs["sandbox"], outputs["store"]) == ("on", "local")
    assert settings["substituters"] == f"file://{tried.artifacts.parent / 'nix' / 'cache'}"
    assert settings["trusted-public-keys"].endswith(
        example("setup-nix")["steps"][1]["with"]["trusted-public-keys"]
    )
    # What a hosted image carries is not removed here.
    assert "free-disk removes nothing here" in tried.log
    assert json.loads(outputs["matrix"])["include"]


def test_the_report_example_tells_of_what_was_tested(tried: Run) -> None:
    page = (tried.kept / "report" / "build" / "report.html").read_text()
    assert VARIANT in page and "tested" in page
    # The plan is that of all variants, and the examples build one.
    assert tried.outputs["report"]["verdict"] == "failed"
    (artifact,) = tried.artifacts.glob("report-*")
    assert (artifact / "report.html").read_text() == page


def test_the_matrix_example_plans_a_job_and_builds_it(tried: Run) -> None:
    outputs = tried.outputs["matrix-plan"]
    (job,) = json.loads(outputs["matrix"])["include"]
    assert (outputs["count"], job["variant"]) == ("1", VARIANT)
    left_out = {one["variant"] for one in json.loads(outputs["filtered"])}
    assert "torch213-cxx11-cpu-aarch64-linux" in left_out and VARIANT not in left_out
    assert tried.outputs["matrix-build"]["variant"] == VARIANT
    assert (tried.kept / "matrix-build" / "build" / VARIANT / "metadata.json").is_file()


def test_the_build_example_makes_the_variant_that_it_names(tried: Run) -> None:
    asked = example("build")["steps"][-1]["with"]["variant"]
    outputs = tried.outputs["build"]
    assert outputs["variant"] == asked
    built = tried.kept / "build" / outputs["path"]
    assert list(built.glob("_grayscale_cpu_*.abi3.so"))
    provenance = json.loads((built / "metadata.json").read_text())["provenance"]["kernel"]
    assert (provenance["commit"], provenance["dirty"]) == (head(tried), False)


def test_the_test_example_hands_over_what_passed(tried: Run) -> None:
    assert int(tried.outputs["test"]["passed"]) > 10
    artifact = tried.artifacts / f"{VARIANT}-1"
    assert {path.name for path in artifact.iterdir()} == {
        VARIANT, f"{VARIANT}.build-report.json", f"{VARIANT}.test-report.json",
    }  # fmt: skip
    report = json.loads((artifact / f"{VARIANT}.test-report.json").read_text())
    assert (report["verdict"], report["passed"]) == ("passed", int(tried.outputs["test"]["passed"]))


def test_the_compliance_example_passes_sources_without_a_build(tried: Run) -> None:
    assert tried.outputs["compliance"]["errors"] == "0"
    assert not (tried.kept / "compliance" / "build" / VARIANT).exists()


def test_the_compliance_example_fails_at_the_line_that_is_wrong(tmp_path: Path) -> None:
    author = author_repository(tmp_path / "author")
    source = author / "torch-ext" / "grayscale" / "__init__.py"
    source.write_text(f"{source.read_text()}\nimport numpy\n")
    (author / ".github" / "workflows" / "examples.yml").write_text(workflow({"compliance": ()}))
    done = run(author, tmp_path / "act", "http://127.0.0.1:1", "push", "examples")
    assert (done.returncode, done.results) == (1, {"compliance": "failure"}), done.log
    (finding,) = [one for one in json.loads(done.outputs["compliance"]["findings"]) if one["rule"] == "KA311"]
    assert finding["path"] == "torch-ext/grayscale/__init__.py"


def test_the_seal_example_hands_a_build_over(tried: Run) -> None:
    assert {f"seal-{job}": tried.results[f"seal-{job}"] for job in ("plan", "build", "seal", "check")} == {
        f"seal-{job}": "success" for job in ("plan", "build", "seal", "check")
    }
    (digest,) = json.loads(tried.outputs["seal-seal"]["sealed"]).values()
    (archive,) = tried.artifacts.glob("built-*/*.tar")
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == digest


def test_the_root_example_checks_builds_and_tests(tried: Run) -> None:
    assert tried.outputs["root"]["variant"] == VARIANT
    assert int(tried.outputs["root"]["passed"]) > 10


@pytest.mark.slow
def test_the_workflow_example_is_enough_for_a_pull_request(tmp_path: Path) -> None:
    author = author_repository(tmp_path / "author")
    (author / ".github" / "workflows" / "smallest.yml").write_text((EXAMPLES / "workflow.yml").read_text())
    done = run(author, tmp_path / "act", "http://127.0.0.1:1", "pull_request", "smallest")
    assert (done.returncode, done.results) == (0, {"build": "success"}), done.log
    for title in ("✅ Compliant: ", "✅ Build: ", f"✅ {VARIANT}: "):
        assert f"Summary - ### {title}" in done.log.replace("\\", "")


def test_the_workflow_example_has_the_steps_of_the_root_example() -> None:
    (job,) = example("workflow")["jobs"].values()
    assert job["steps"] == example("root")["steps"]


def test_the_upload_example_puts_the_variant_and_the_card_on_the_hub(tried: Run) -> None:
    commit = tried.outputs["upload-upload"]["commit"]
    files = tried.files_on_hub(commit)
    assert {path.split("/")[1] for path in files if path.startswith("build/")} == {VARIANT}
    assert {f"build/{path}" for path in artifact_files(tried)} <= files
    assert "README.md" in tried.files_on_hub("main")


def test_the_release_example_counts_from_the_last_tag_and_pushes_the_next(tried: Run) -> None:
    outputs = tried.outputs["release-release"]
    assert (outputs["version"], outputs["tag"]) == ("1.2.0", TAG)
    assert set(git(tried.origin, "tag", "--list").split()) == {BEFORE, TAG}
    assert git(tried.origin, "rev-parse", f"{TAG}^{{commit}}").strip() == head(tried)
    assert tried.files_on_hub(outputs["commit"]) == tried.files_on_hub("v1") == tried.files_on_hub("v1.2.0")
    assert {f"build/{path}" for path in artifact_files(tried)} <= tried.files_on_hub("v1")
    assert "kernel-actions.json" in tried.files_on_hub("v1")


def test_the_verify_example_loads_what_was_released(tried: Run) -> None:
    assert json.loads(tried.outputs["verify"]["variants"]) == [VARIANT]
    shown = [line for line in tried.log.splitlines() if line.startswith(f"[verify] {VARIANT}")]
    assert any(re.search(r"\bloaded\b", line) for line in shown), tried.log
    assert f"{REPOSITORY} at {tried.outputs['release-release']['commit']}, release 1.2.0" in tried.log


def test_the_rollback_example_finds_the_release_that_it_names(tried: Run) -> None:
    outputs = tried.outputs["rollback-rollback"]
    assert (outputs["release"], outputs["rolled-back"]) == ("1.2.0", "[]")
    # The branch never held anything else.
    assert outputs["commit"] == tried.outputs["release-release"]["commit"]


def test_the_lock_example_finds_the_lock_as_it_should_be(tried: Run) -> None:
    assert tried.outputs["lock"] == {"changed": "false", "outdated": "[]", "diff": ""}
    assert f"[lock] {CONSUMED}" in tried.log


def test_the_download_example_fills_a_cache(tried: Run) -> None:
    cache = tried.kept / "download" / tried.outputs["download"]["cache"].rpartition("/")[2]
    (snapshot,) = (cache / "kernels--acme--relu" / "snapshots").iterdir()
    assert {path.name for path in snapshot.glob("build/*/*")} == {
        "__init__.py", "metadata.json", "table.bin",
    }  # fmt: skip


def test_the_wheel_example_makes_the_wheel_of_the_release(tried: Run) -> None:
    (path,) = json.loads(tried.outputs["wheel"]["wheels"])
    assert path == "dist/grayscale-1.2.0+torch213cpucxx11-cp39-abi3-manylinux_2_28_x86_64.whl"
    assert (tried.kept / "wheel" / path).is_file()
    page = (tried.kept / "wheel" / tried.outputs["wheel"]["index"]).with_name("grayscale") / "index.html"
    assert "grayscale-1.2.0%2Btorch213cpucxx11" in page.read_text()


def test_the_benchmark_example_compares_with_what_was_released(tried: Run) -> None:
    outputs = tried.outputs["benchmark"]
    assert outputs["verdict"] == "passed"
    report = json.loads((tried.kept / "benchmark" / "benchmark" / "report.json").read_text())
    assert report["baseline"]["source"].endswith("@v1")
    assert [one["against_baseline"] != [] for one in report["workloads"]] == [True]


def test_the_freshness_example_finds_what_is_not_published(tried: Run) -> None:
    outputs = tried.outputs["freshness-freshness"]
    assert (outputs["fresh"], outputs["issue"]) == ("false", "")
    (found,) = json.loads(outputs["findings"])
    assert found["what"].startswith(f"not published on v1 of {REPOSITORY}: ")
    # The one that was released is there. The text lists a dozen names, the key all of them.
    missing = set(found["key"].partition(": missing ")[2].split(","))
    assert len(missing) == 17 and VARIANT not in missing and "torch213-cxx11-cu130-x86_64-linux" in missing


def test_the_reusable_example_calls_what_there_is(tmp_path: Path) -> None:
    for job in example("reusable")["jobs"].values():
        name = job["uses"].removeprefix("org/kernel-actions/").removesuffix("@v1")
        called = yaml.safe_load((ROOT / name).read_text())
        # PyYAML takes `on` for true.
        assert set(job.get("with", {})) <= set(called[True]["workflow_call"]["inputs"])
        # A called job may not more than the one that calls it.
        for inner in called["jobs"].values():
            assert inner["permissions"].items() <= job["permissions"].items()


def test_the_examples_are_jobs_by_the_schema_of_github(tmp_path: Path) -> None:
    # act takes keys that GitHub refuses.
    (tmp_path / "examples.yml").write_text(workflow(NEEDS))
    checker = ACT.parent / "check-jsonschema"
    finished = subprocess.run(
        [checker, "--builtin-schema", "vendor.github-workflows", tmp_path / "examples.yml"],
        text=True,
        capture_output=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_no_example_is_left_untried() -> None:
    files = {path.stem for path in EXAMPLES.iterdir()}
    names = [re.match(r"test_the_(\w+?)_example_", name) for name in globals()]
    assert {found[1].replace("_", "-") for found in names if found} == files - SHOWN_ELSEWHERE
    assert {*NEEDS, *SHOWN_ELSEWHERE, "workflow", "reusable"} == files


def test_every_action_has_a_page_with_its_example() -> None:
    actions = {command.name for command in COMMANDS.values() if command.is_action}
    assert {page.stem for page in PAGES.iterdir()} == {"root", *actions}
    for page in PAGES.iterdir():
        path = EXAMPLES / f"{page.stem}.yml"
        assert path.is_file(), f"{page.name} has no example"
        assert f"```yaml\n{path.read_text()}```" in page.read_text(), f"{page.name} shows another example"


def head(tried: Run) -> str:
    """The commit of the author's repository that was run."""
    return git(tried.author, "rev-parse", "HEAD").strip()


def artifact_files(tried: Run) -> set[str]:
    """The paths of the variant's files that the test example handed over."""
    artifact = tried.artifacts / f"{VARIANT}-1"
    return {
        path.relative_to(artifact).as_posix() for path in artifact.glob(f"{VARIANT}/**/*") if path.is_file()
    }
