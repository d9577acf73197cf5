"""The templates, as authors copy them, run by act through org/kernel-actions/<name>@v1: on pushes, on pull
requests of branches and of forks, and from the Actions tab. Kernels are built by Nix, in its sandbox."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.integration.conftest import embedded_hub, git
from tests.integration.github_api import TOKEN, GitHub, github
from tests.integration.workflows import KERNEL, PARTIAL, REPLACED, SECRETS, Author, Run, pull_request
from tests.nix.conftest import CPU_NEW, CUDA
from tests.tools import needs

REVIEWED = "required_reviewers\n"
ITSELF = {"repository": {"full_name": "me/tiny", "visibility": "public"}}
PUSH = ITSELF | {"ref": "refs/heads/main"}
SPY = """
import os
import pathlib


@pytest.mark.kernels_ci
def test_spy():
    pathlib.Path({seen!r}).write_text(str(dict(os.environ)))
"""


def ran(run: Run, job: str) -> set[str]:
    """The names that jobs of a matrix had, of those that began with ``job``."""
    return set(re.findall(rf"^\[[^\]]*/{job} (?:\S+ for )?(\S+?)(?:-\d)?\s*\]", run.log, re.MULTILINE))


def assert_no_secret(run: Run) -> None:
    """Nothing that was logged or handed over has a secret in it."""
    kept = "".join(path.read_text(errors="replace") for path in run.artifacts.rglob("*") if path.is_file())
    for secret in SECRETS.values():
        assert secret not in run.log and secret not in kept


@needs("nix")
def test_a_push_is_built_by_nix_and_tested(tmp_path: Path) -> None:
    author = Author(tmp_path, "build-and-test")
    run = author.run("build-and-test", "push", payload=PUSH)
    assert run.returncode == 0, run.log
    # Nobody has to approve a push.
    assert run.results == {name: "success" for name in ("plan", "build", "seal", "test", "tested")}
    assert ran(run, "Build") == ran(run, "Test") == {CPU_NEW, CUDA}
    for name in (CPU_NEW, CUDA):
        assert run.artifact(f"built-tiny.{name}") == [f"{name}.tar"]
    (path,) = (run.artifacts / f"tested-tiny.{CPU_NEW}").iterdir()
    report = json.loads(path.read_text())
    assert (report["verdict"], report["passed"]) == ("passed", 1)
    assert "untested, as kernel-actions.toml allows" in run.log
    assert "### ⚠️ Tests of 2 variants: 1 passed" in run.summary
    assert_no_secret(run)


@needs("nix")
@pytest.mark.slow
def test_a_test_that_fails_fails_the_gate_and_is_reported(tmp_path: Path) -> None:
    author = Author(tmp_path, "build-and-test")
    author.change({"tests/test_tiny.py": KERNEL["tests/test_tiny.py"].replace("== 6", "== 7")})
    run = author.run("build-and-test", "pull_request", payload=pull_request(fork=False))
    assert run.returncode == 1
    assert run.results["tested"] == run.results["test"] == "failure"
    assert "assert 6 == 7" in run.log
    # The table of all is there above all when something failed.
    assert "### ❌ Tests of 2 variants: 0 passed" in run.summary
    # The report of the failure is handed over all the same.
    (path,) = (run.artifacts / f"tested-tiny.{CPU_NEW}").iterdir()
    assert json.loads(path.read_text())["verdict"] == "failed"


@needs("nix")
@pytest.mark.slow
def test_what_does_not_compile_is_not_tested_and_fails_the_gate(tmp_path: Path) -> None:
    author = Author(tmp_path, "build-and-test")
    author.change({"csrc/luma.cpp": "int broken(\n"})
    run = author.run("build-and-test", "push", payload=PUSH)
    assert run.returncode == 1
    assert run.results["build"] == run.results["tested"] == "failure"
    assert "test" not in run.started and "csrc/luma.cpp" in run.log


@needs("nix")
@pytest.mark.slow
@pytest.mark.parametrize("template", ["build-and-test", "monorepo/build-and-test", "called"])
def test_a_fork_gets_hosted_runners_and_no_secret(tmp_path: Path, template: str) -> None:
    is_called = template == "called"
    kernel = "kernels/tiny" if template.startswith("monorepo") else "."
    author = Author(tmp_path, *([] if is_called else [template]), kernels=[kernel] if kernel != "." else [])
    if is_called:
        inputs = {"scope": "release", "test-environment": "current"}
        author.add_caller("build-and-test", "pull_request", inputs)
    base = git(author.root, "rev-parse", "HEAD").strip()
    seen = tmp_path / "seen"
    spying = KERNEL["tests/test_tiny.py"] + SPY.format(seen=str(seen))
    author.change({f"{kernel}/tests/test_tiny.py": spying})
    payload = pull_request(fork=True, base=base)
    run = author.run("mine" if is_called else "build-and-test", "pull_request", payload=payload)
    # What hosted runners can do is done; the job for the GPU's runner is not even started.
    assert run.results["approve"] == run.results["build"] == run.results["test"] == "success", run.log
    assert ran(run, "Build") == {CPU_NEW, CUDA} and ran(run, "Test") == {CPU_NEW}
    # That is not enough to be merged.
    assert run.returncode == 1 and run.results["tested"] == "failure"
    assert run.outputs["plan"]["held-back"] == "1"
    assert f"tiny/{CUDA}: was not tested" in run.summary.replace("\\", "")
    assert_no_secret(run)
    assert not any(secret in seen.read_text() for secret in SECRETS.values())


@needs("nix")
@pytest.mark.slow
def test_a_fork_gets_all_runners_once_somebody_had_to_approve(tmp_path: Path) -> None:
    author = Author(tmp_path, "build-and-test")
    run = author.run("build-and-test", "pull_request", payload=pull_request(fork=True), rules=REVIEWED)
    assert run.returncode == 0, run.log
    assert ran(run, "Test") == {CPU_NEW, CUDA}
    assert "api repos/" in author.gh_log.read_text()
    assert_no_secret(run)


@needs("nix")
@pytest.mark.slow
def test_what_a_caller_gives_the_reusable_workflow_counts(tmp_path: Path) -> None:
    author = Author(tmp_path)
    inputs = {"kernel-dir": ".", "scope": "release", "only": CPU_NEW, "test-environment": "current"}
    author.add_caller("build-and-test", "push", inputs)
    run = author.run("mine", "push", payload=PUSH)
    assert run.returncode == 0, run.log
    assert run.artifact(f"built-tiny.{CPU_NEW}") and not run.artifact(f"built-tiny.{CUDA}")
    (path,) = (run.artifacts / f"tested-tiny.{CPU_NEW}").iterdir()
    assert json.loads(path.read_text())["environment"]["kind"] == "current"


@pytest.mark.parametrize("is_called", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_sources_of_a_pull_request_are_checked(tmp_path: Path, is_called: bool) -> None:
    author = Author(tmp_path, *([] if is_called else ["pr-compliance"]))
    if is_called:
        author.add_caller("pr-compliance", "pull_request")
    workflow = "mine" if is_called else "pr-compliance"
    base = git(author.root, "rev-parse", "HEAD").strip()
    source = KERNEL["torch-ext/tiny/__init__.py"]
    author.change(
        {"torch-ext/tiny/__init__.py": source + "\n\ndef thrice(value: int) -> int:\n    return 3 * value\n"}
    )
    for fork in (False, True):
        run = author.run(workflow, "pull_request", payload=pull_request(fork=fork, base=base))
        assert run.returncode == 0, run.log
        assert_no_secret(run)
    # A public name that is gone while the version stays: what the base is looked at for.
    author.change({"torch-ext/tiny/__init__.py": source.replace("twice", "thrice")})
    events = [("pull_request", pull_request(fork=fork, base=base)) for fork in (False, True)]
    if not is_called:
        # What is compared with where no pull request says it.
        git(author.root, "update-ref", "refs/remotes/origin/main", base)
        events.append(("merge_group", ITSELF))
    for event, payload in events:
        run = author.run(workflow, event, payload=payload)
        assert run.returncode == 1 and run.results == {"compliance": "failure"}, run.log
        assert "KA4" in run.summary and "torch-ext/tiny/__init__.py" in run.log
        assert_no_secret(run)


def test_in_a_monorepo_each_kernel_that_is_concerned_is_checked(tmp_path: Path) -> None:
    author = Author(tmp_path, "monorepo/pr-compliance", kernels=("kernels/one", "kernels/other"))

    def checked(files: dict[str, str]) -> Run:
        base = git(author.root, "rev-parse", "HEAD").strip()
        author.change(files)
        return author.run("pr-compliance", "pull_request", payload=pull_request(fork=True, base=base))

    run = checked({"kernels/one/torch-ext/one/more.py": '"""More."""\n'})
    assert run.returncode == 0, run.log
    assert "Compliance of one" in run.log and "Compliance of other" not in run.log
    # Nothing to check is not the same as a job that was skipped since another one failed.
    run = checked({"README.md": "# Many kernels\n"})
    assert run.returncode == 0 and run.results == {"plan": "success", "compliant": "success"}
    run = checked({"kernels/other/build.toml": "[general]\n"})
    assert run.returncode == 1 and run.results["plan"] == run.results["compliant"] == "failure"
    assert_no_secret(run)


@needs("nix")
@pytest.mark.slow
def test_in_a_monorepo_the_kernels_that_changed_are_built(tmp_path: Path) -> None:
    author = Author(tmp_path, "monorepo/build-and-test", kernels=("kernels/one", "kernels/other"))
    base = git(author.root, "rev-parse", "HEAD").strip()
    author.change({"kernels/one/torch-ext/one/more.py": '"""More."""\n'})
    run = author.run("build-and-test", "pull_request", payload=pull_request(fork=False, base=base))
    assert run.returncode == 0, run.log
    assert run.artifact(f"tested-one.{CPU_NEW}") and run.artifact(f"built-one.{CUDA}")
    assert not run.artifact(f"built-other.{CPU_NEW}")
    base = git(author.root, "rev-parse", "HEAD").strip()
    author.change({"README.md": "# Many kernels\n"})
    run = author.run("build-and-test", "push", payload=PUSH | {"before": base})
    assert run.returncode == 0 and "build" not in run.started, run.log
    # Of both, and a test of one fails: one summary has all, with that one first.
    failing = (author.root / "kernels/other/tests/test_other.py").read_text().replace("== 6", "== 7")
    author.change(
        {"kernels/other/tests/test_other.py": failing, "kernels/one/torch-ext/one/more.py": '"""Most."""\n'}
    )
    run = author.run("build-and-test", "pull_request", payload=pull_request(fork=False, base=base))
    assert run.returncode == 1 and run.results["test"] == run.results["tested"] == "failure"
    _, found, table = run.summary.partition("### ❌ Tests of 4 variants of 2 kernels: 1 passed")
    assert found, run.summary
    failed, passed = (table.index(one) for one in ("❌ other: 2 variants, 0 passed", "⚠️ one: 2 variants"))
    assert table.index("other/") < failed < passed


def dispatched(author: Author, workflow: str, hub: str, server: GitHub, *more: str, **inputs: str) -> Run:
    """What becomes of a workflow that was started from the Actions tab."""
    named = {name.replace("_", "-"): value for name, value in inputs.items()}
    run = author.run(
        workflow, "workflow_dispatch", *more, payload=ITSELF, inputs=named, hub=hub, api=server.address
    )
    assert_no_secret(run)
    return run


@needs("nix")
@pytest.mark.slow
def test_a_release_is_staged_verified_promoted_and_taken_back(tmp_path: Path) -> None:
    from huggingface_hub import HfApi

    author = Author(tmp_path, "release", "rollback", "benchmark", replaced=REPLACED | PARTIAL)
    with embedded_hub(tmp_path / "hub") as hub, github() as server:
        api = HfApi(endpoint=hub, token=False)

        def dispatch(workflow: str, *more: str, **inputs: str) -> Run:
            return dispatched(author, workflow, hub, server, *more, **inputs)

        dry = dispatch("release", bump="auto", dry_run="true")
        assert dry.returncode == 0, dry.log
        assert set(dry.results) == {"plan", "build", "seal", "test", "compliance"}
        assert not api.repo_exists("kernel-actions/tiny", repo_type="kernel")
        # Nobody signed it: it stays where it was staged.
        pre = dispatch(
            "release",
            "--var",
            "KERNEL_SIGNER=me/tiny",
            bump="auto",
            pre="rc",
            dry_run="false",
            moving_tags="true",
        )
        assert pre.results["stage"] == "success" and pre.results["verify"] == "failure", pre.log
        assert "is not signed" in pre.log and "promote" not in pre.started
        pre = dispatch("release", bump="auto", pre="rc", dry_run="false", moving_tags="true")
        assert pre.returncode == 0, pre.log
        # A pre-release gets its tags, and nothing else moves.
        refs = api.list_repo_refs("kernel-actions/tiny", repo_type="kernel")
        assert [branch.name for branch in refs.branches] == ["main"]
        assert [tag.name for tag in refs.tags] == ["v1.0.0-rc.1"]
        assert (
            refs.tags[0].target_commit == pre.outputs["stage"]["staged"] == pre.outputs["promote"]["commit"]
        )
        assert git(author.origin, "tag", "--list").split() == ["v1.0.0-rc.1"]
        released = dispatch("release", bump="auto", dry_run="false")
        assert released.returncode == 0, released.log
        assert set(released.results.values()) == {"success"} and len(released.results) == 8
        # What the job without a token has loaded is compared beside the token, and not loaded there.
        assert re.search(rf"/Verify\s*\].* {CPU_NEW} .* loaded$", released.log, re.MULTILINE)
        assert re.search(r"/Promote and tag\s*\].*Verified 2 variants; loaded none", released.log)
        refs = api.list_repo_refs("kernel-actions/tiny", repo_type="kernel")
        assert {branch.name for branch in refs.branches} == {"main", "v1"}
        assert {tag.name for tag in refs.tags} == {"v1.0.0", "v1.0.0-rc.1"}
        files = api.list_repo_files("kernel-actions/tiny", repo_type="kernel", revision="v1")
        assert {f"build/{name}/metadata.json" for name in (CPU_NEW, CUDA)} <= set(files)
        # Every file was signed for, and the tag was pushed from the job that may.
        attested = (released.artifacts / "attested.txt").read_text()
        assert f"/{CPU_NEW}/metadata.json" in attested and "archives" not in attested
        assert git(author.origin, "tag", "--list").split() == ["v1.0.0", "v1.0.0-rc.1"]
        made = [(one["tag_name"], one["prerelease"]) for one in server.releases]
        assert made == [("v1.0.0-rc.1", True), ("v1.0.0", False)]
        # As if it had been ended once it was promoted: another run of all of it makes the tags.
        api.delete_tag("kernel-actions/tiny", tag="v1.0.0", repo_type="kernel")
        git(author.origin, "tag", "--delete", "v1.0.0")
        again = dispatch("release", bump="minor", dry_run="false", moving_tags="true")
        assert again.returncode == 0 and set(again.results.values()) == {"success"}, again.log
        assert git(author.origin, "tag", "--list").split() == ["v1", "v1.0", "v1.0.0", "v1.0.0-rc.1"]
        refs = api.list_repo_refs("kernel-actions/tiny", repo_type="kernel")
        assert {one.name: one.target_commit for one in (*refs.branches, *refs.tags)}["v1.0.0"] == (
            released.outputs["promote"]["commit"]
        )
        # What was released is what is measured against; how fast that is here is not decided.
        measured = dispatch("benchmark", baseline="v1", only=CPU_NEW, workloads="*")
        assert measured.results["build"] == "success" and "measure" in measured.started, measured.log
        (path,) = (measured.artifacts / f"benchmark-tiny.{CPU_NEW}").glob("*.json")
        report = json.loads(path.read_text())
        assert report["baseline"]["source"].endswith("@v1") and len(report["workloads"]) == 1
        # What only the job that measures is given is obeyed in nothing there either.
        measured = dispatch("benchmark", baseline=HOSTILE, only=CPU_NEW, workloads=HOSTILE)
        assert measured.results["build"] == "success" and measured.results["measure"] == "failure"
        assert_harmless(measured, tmp_path)
        wrong = KERNEL["benchmarks/benchmark_tiny.py"].replace("return 2 *", "return 3 *")
        author.change({"benchmarks/benchmark_tiny.py": wrong})
        measured = dispatch("benchmark", baseline="v1", only=CPU_NEW, workloads="*")
        assert measured.returncode == 1 and measured.results["measure"] == "failure"
        # A variant that fails its tests: nothing of the next version gets to the Hub.
        before = api.list_repo_commits("kernel-actions/tiny", repo_type="kernel", revision="v1")[0].commit_id
        author.change({"tests/test_tiny.py": KERNEL["tests/test_tiny.py"].replace("== 6", "== 7")})
        failed = dispatch("release", bump="minor", dry_run="false")
        assert failed.returncode == 1 and failed.results["test"] == "failure"
        assert not {"compliance", "stage", "verify", "promote"} & failed.started
        refs = api.list_repo_refs("kernel-actions/tiny", repo_type="kernel")
        assert [one.target_commit for one in refs.branches if one.name == "v1"] == [before]
        assert {branch.name for branch in refs.branches} == {"main", "v1"}
        # The only release is what the branch holds; one that is not there is told before anybody is asked.
        back = dispatch("rollback", to="v1.0.0", dry_run="false")
        assert back.returncode == 0, back.log
        assert "holds 1.0.0 already" in back.log
        back = dispatch("rollback", to="v9.9.9", dry_run="false")
        assert back.returncode == 1 and set(back.results) == {"plan"}


@needs("nix")
@pytest.mark.slow
def test_in_a_monorepo_one_kernel_is_released_measured_and_rolled_back(tmp_path: Path) -> None:
    from huggingface_hub import HfApi

    templates = ("monorepo/release", "monorepo/benchmark", "monorepo/rollback")
    author = Author(
        tmp_path, *templates, kernels=("kernels/one", "kernels/other"), replaced=REPLACED | PARTIAL
    )
    settings = (author.root / "kernels/one/kernel-actions.toml").read_text()
    package = "kernels/one/torch-ext/one/__init__.py"
    source = (author.root / package).read_text()
    # So slow that the next version is faster on any machine, however busy.
    slow = source.replace("    return 2", "    time.sleep(0.02)\n    return 2")
    author.change(
        {
            "kernels/one/kernel-actions.toml": settings + '\n[release]\ntag-prefix = "one/"\n',
            package: slow.replace("\n\n__all__", "\n\nimport time\n\n__all__", 1),
        }
    )
    with embedded_hub(tmp_path / "hub") as hub, github() as server:
        api = HfApi(endpoint=hub, token=False)

        def dispatch(workflow: str, **inputs: str) -> Run:
            run = dispatched(author, workflow, hub, server, kernel="kernels/one", **inputs)
            assert run.returncode == 0, run.log
            assert set(run.results.values()) == {"success"}, run.log
            return run

        def refs() -> dict[str, str]:
            found = api.list_repo_refs("kernel-actions/one", repo_type="kernel")
            return {one.name: one.target_commit for one in (*found.branches, *found.tags)}

        def loaded() -> str:
            path = api.hf_hub_download(
                "kernel-actions/one",
                f"build/{CPU_NEW}/__init__.py",
                repo_type="kernel",
                revision="v1",
                cache_dir=tmp_path / "cache",
            )
            return Path(path).read_text()

        run = dispatch("release", bump="auto", dry_run="false", target="")
        files = api.list_repo_files("kernel-actions/one", repo_type="kernel", revision="v1")
        assert f"build/{CPU_NEW}/metadata.json" in files
        assert not api.repo_exists("kernel-actions/other", repo_type="kernel")
        assert git(author.origin, "tag", "--list").split() == ["one/v1.0.0"]
        attested = (run.artifacts / "attested.txt").read_text()
        assert f"/{CPU_NEW}/metadata.json" in attested
        assert run.artifact("plan") == run.artifact("report") == ["report.html"]
        # The next version is measured against the one that was released.
        author.change({package: source})
        run = dispatch("benchmark", baseline="v1", only=CPU_NEW, workloads="")
        assert set(run.results) == {"plan", "build", "seal", "measure"}
        assert run.outputs["measure"]["verdict"] == "passed"
        (path,) = (run.artifacts / f"benchmark-one.{CPU_NEW}").glob("*.json")
        report = json.loads(path.read_text())
        assert report["baseline"]["source"].endswith("/one@v1")
        (workload,) = report["workloads"]
        assert [one["verdict"] for one in workload["against_baseline"]] == ["faster"]
        # It is released, and taken back: who loads the version gets the first release again.
        dispatch("release", bump="auto", dry_run="false", target="")
        released = refs()
        assert {"v1.0.0", "v1.1.0"} <= set(released) and "sleep" not in loaded()
        run = dispatch("rollback", to="one/v1.0.0", dry_run="true", target="")
        assert "rollback" not in run.started and refs() == released
        run = dispatch("rollback", to="one/v1.0.0", dry_run="false", target="")
        assert set(run.results) == {"plan", "rollback"}
        outputs = run.outputs["rollback"]
        assert (outputs["release"], json.loads(outputs["rolled-back"])) == ("1.0.0", ["1.1.0"])
        assert refs()["v1"] == outputs["commit"] and "sleep" in loaded()
        assert not api.repo_exists("kernel-actions/other", repo_type="kernel")
    assert git(author.origin, "tag", "--list").split() == ["one/v1.0.0", "one/v1.1.0"]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [".", "kernels/tiny"], ids=["one", "monorepo"])
@pytest.mark.parametrize(
    ("workflow", "inputs", "said"),
    [
        (
            "release",
            {"bump": "major"},
            "build.toml,line=3,col=1::version is 1, and the next release is 2.0.0",
        ),
        ("release", {"bump": "auto", "target": "tiny"}, "repository 'tiny' is not of the form owner/name"),
        ("rollback", {"to": "v9.9.9"}, "kernel-actions/tiny has no release 'v9.9.9'"),
        ("benchmark", {"baseline": "v1", "only": "*-rocm*"}, "build.toml is selected"),
    ],
    ids=["another-major", "no-repository", "no-release", "no-variant"],
)
def test_what_cannot_be_done_ends_in_the_plan(
    tmp_path: Path, workflow: str, inputs: dict[str, str], said: str, kernel: str
) -> None:
    from huggingface_hub import HfApi

    is_alone = kernel == "."
    author = Author(
        tmp_path, workflow if is_alone else f"monorepo/{workflow}", kernels=() if is_alone else (kernel,)
    )
    git(author.root, "tag", "v1.0.0" if is_alone else "tiny/v1.0.0")
    settings = KERNEL["kernel-actions.toml"] + ("" if is_alone else '[release]\ntag-prefix = "tiny/"\n')
    author.change({f"{kernel}/kernel-actions.toml": f"{settings}# Something new\n"})
    with embedded_hub(tmp_path / "hub") as hub, github() as server:
        api = HfApi(endpoint=hub, token="hf_of_somebody")
        api.create_repo("kernel-actions/tiny", repo_type="kernel")
        api.create_branch("kernel-actions/tiny", branch="v1", repo_type="kernel")
        more = {} if is_alone else {"kernel": kernel}
        run = dispatched(author, workflow, hub, server, **inputs, **more)
    # Before anything is built, and before anybody is asked.
    assert run.returncode == 1 and run.results == {"plan": "failure"}, run.log
    assert re.search(rf"::error [^\n]*{re.escape(said)}", run.log), run.log


@needs("nix")
@pytest.mark.slow
def test_the_reusable_workflows_release_measure_and_take_back(tmp_path: Path) -> None:
    from huggingface_hub import HfApi

    author = Author(tmp_path)
    with embedded_hub(tmp_path / "hub") as hub, github() as server:
        api = HfApi(endpoint=hub, token="hf_of_somebody")

        def called(workflow: str, **inputs: object) -> Run:
            given = {name.replace("_", "-"): value for name, value in inputs.items()}
            author.add_caller(workflow, "workflow_dispatch", given | {"hub": hub}, REPLACED | PARTIAL)
            return dispatched(author, "mine", "", server)

        # What the notes of the release are made of.
        git(author.root, "tag", "v0.9.0")
        author.change({"docs/more.md": "More.\n"}, message=f"feat: {HOSTILE}")
        released = called("release", test_environment="current", bump="major", moving_tags=True)
        assert released.returncode == 0, released.log
        assert_harmless(released, tmp_path)
        assert set(released.results.values()) == {"success"} and len(released.results) == 8
        refs = api.list_repo_refs("kernel-actions/tiny", repo_type="kernel")
        assert {branch.name for branch in refs.branches} == {"main", "v1"}
        (tag,) = refs.tags
        assert tag.name == "v1.0.0" and tag.target_commit == released.outputs["promote"]["commit"]
        assert re.search(r"/Promote and tag\s*\].*Verified 2 variants; loaded none", released.log)
        assert git(author.origin, "tag", "--list").split() == ["v1", "v1.0", "v1.0.0"]
        (made,) = server.releases
        assert made["tag_name"] == "v1.0.0" and "touch PLANTED" in made["body"] and "<img" not in made["body"]
        assert f"/{CPU_NEW}/metadata.json" in (released.artifacts / "attested.txt").read_text()
        assert released.artifact("plan") == released.artifact("report") == ["report.html"]
        measured = called("benchmark", baseline="v1", only=CPU_NEW)
        assert measured.results["build"] == "success" and "measure" in measured.started, measured.log
        (path,) = (measured.artifacts / f"benchmark-tiny.{CPU_NEW}").glob("*.json")
        assert json.loads(path.read_text())["baseline"]["source"].endswith("@v1")
        api.upload_file(
            path_or_fileobj=b"raise SystemExit\n",
            path_in_repo=f"build/{CPU_NEW}/__init__.py",
            repo_id="kernel-actions/tiny",
            repo_type="kernel",
            revision="v1",
        )
        back = called("rollback", to="v1.0.0")
        assert back.returncode == 0 and set(back.results) == {"plan", "rollback"}, back.log
        files = [
            {one.path: one.blob_id for one in tree if hasattr(one, "blob_id")}
            for tree in (
                api.list_repo_tree(
                    "kernel-actions/tiny", "build", repo_type="kernel", recursive=True, revision=name
                )
                for name in ("v1", "v1.0.0")
            )
        ]
        assert files[0] == files[1]


def looked(author: Author, hub: str, server: GitHub, workflow: str = "freshness") -> Run:
    """What becomes of the workflow that the clock starts each week."""
    run = author.run(
        workflow, "schedule", payload=ITSELF, hub=hub, api=server.address, secrets={"GITHUB_TOKEN": TOKEN}
    )
    assert TOKEN not in run.log
    return run


@pytest.mark.parametrize("workflow", ["freshness", pytest.param("mine", marks=pytest.mark.slow)])
def test_freshness_keeps_an_issue(tmp_path: Path, workflow: str) -> None:
    author = Author(tmp_path, *(["freshness"] if workflow == "freshness" else []))
    with embedded_hub(tmp_path / "hub") as hub, github() as server:
        if workflow == "mine":
            author.add_caller("freshness", "schedule", {"kernel-dir": "."})
        done = looked(author, hub, server, workflow)
        assert done.returncode == 0, done.log
        assert done.outputs["look"]["fresh"] == "false"
        (issue,) = server.issues
        assert done.outputs["look"]["issue"] == issue["html_url"]
        assert "kernel-actions/tiny is not on the Hub" in issue["body"] and "not on the Hub" in done.summary
        server.failing = 403
        done = looked(author, hub, server, workflow)
        assert done.returncode == 1 and "give the job `issues: write`" in done.log


@pytest.mark.slow
def test_in_a_monorepo_freshness_keeps_one_issue_about_all_kernels(tmp_path: Path) -> None:
    author = Author(tmp_path, "monorepo/freshness", kernels=("kernels/one", "kernels/other"))
    with embedded_hub(tmp_path / "hub") as hub, github() as server:
        done = looked(author, hub, server)
        assert done.returncode == 0 and done.results == {"look": "success"}, done.log
        assert done.outputs["look"]["fresh"] == "false"
        (issue,) = server.issues
        assert done.outputs["look"]["issue"] == issue["html_url"]
        for name in ("one", "other"):
            assert f"kernel-actions/{name} is not on the Hub" in issue["body"]
            assert f"kernel-actions/{name} is not on the Hub" in done.summary
        # One kernel that cannot be read fails the run, and says which.
        author.change({"kernels/other/build.toml": "[general]\n"})
        done = looked(author, hub, server)
        assert done.returncode == 1 and done.results == {"look": "failure"}, done.log
        assert "kernels/other/build.toml" in done.log
        assert len(server.issues) == 1


def test_a_lock_that_cannot_be_updated_is_proposed_to_nobody(tmp_path: Path) -> None:
    # tests/consumers/test_template.py has what is proposed; this repository declares no kernels.
    author = Author(tmp_path, "kernels-lock")
    run = author.run("kernels-lock", "schedule", payload=ITSELF)
    assert run.returncode == 1 and run.results["update"] == "failure"
    assert "propose" not in run.started and not author.gh_log.exists()
    assert "pyproject.toml" in run.log
    assert_no_secret(run)


# Shell, expressions, workflow commands, Markdown, HTML, YAML and escape sequences, in one text.
HOSTILE = (
    "\"'; touch PLANTED; $(touch PLANTED) `touch PLANTED` ${{ github.token }} | & \n"
    "::error title=forged::forged\n::set-output name=matrix::forged\n"
    "# <img src=x onerror=alert(1)> [x](javascript:alert(1)) ](x) | a |\n- key: {a: &b [*b]}\x1b[31m\u202e"
)
# As the name of a file, which has no slash.
HOSTILE_NAME = "'$(touch PLANTED)`touch PLANTED`; touch PLANTED\n::error::forged\n<img src=x>\x1b[31m"


def assert_harmless(run: Run, folder: Path) -> None:
    """Nothing of the hostile texts was run, was obeyed, or stands in a summary as Markdown."""
    assert not [path for path in folder.rglob("PLANTED") if path.name == "PLANTED"]
    assert not re.search(r"❗ +::error[^:]*::forged", run.log)
    assert "forged" not in [value for outputs in run.outputs.values() for value in outputs.values()]
    assert "<img" not in run.summary and "\x1b" not in run.summary
    assert not re.search(r"(?<!\\)\]\(javascript", run.summary)
    assert_no_secret(run)


@pytest.mark.parametrize("template", ["pr-compliance", "monorepo/pr-compliance"])
def test_a_hostile_pull_request_is_checked_and_obeyed_in_nothing(tmp_path: Path, template: str) -> None:
    # Where the plan reads build.toml it refuses what is hostile there; without one, folders are all that is.
    kernels = ["kernels/$(touch PLANTED);a/tiny"] if template.startswith("monorepo") else []
    author = Author(tmp_path, template, kernels=kernels)
    base = git(author.root, "rev-parse", "HEAD").strip()
    kernel = kernels[0] if kernels else "."
    files = {
        f"{kernel}/torch-ext/tiny/{HOSTILE_NAME}.py": "import nothing\n",
        f"{kernel}/csrc/{HOSTILE_NAME}.cpp": "// Listed nowhere\n",
    }
    if not kernels:
        license = f"license = {json.dumps(HOSTILE)}"
        files["build.toml"] = KERNEL["build.toml"].replace('license = "Apache-2.0"', license)
    author.change(files, message=HOSTILE)
    run = author.run(
        "pr-compliance", "pull_request", payload=pull_request(fork=True, base=base, text=HOSTILE)
    )
    # An import that nobody declared is a warning; a license of several lines is an error, and told alone.
    assert run.results["compliance"] == ("success" if kernels else "failure"), run.log
    assert ("KA314" if kernels else "KA101") in run.summary
    assert_harmless(run, tmp_path)


@needs("nix")
@pytest.mark.slow
@pytest.mark.parametrize("kernel", [".", "kernels/$(touch PLANTED);a/tiny"], ids=["one", "monorepo"])
def test_a_hostile_kernel_is_built_and_tested_and_obeyed_in_nothing(tmp_path: Path, kernel: str) -> None:
    author = (
        Author(tmp_path, "build-and-test")
        if kernel == "."
        else Author(tmp_path, "monorepo/build-and-test", kernels=[kernel])
    )
    base = git(author.root, "rev-parse", "HEAD").strip()
    settings = KERNEL["kernel-actions.toml"].replace(
        # Characters that control something are refused there before anything is planned.
        '"the machine of the tests has no GPU"',
        json.dumps("".join(filter(str.isprintable, HOSTILE))),
    )
    test = f"""
HOSTILE = {HOSTILE!r}


@pytest.mark.kernels_ci
@pytest.mark.parametrize("what", [HOSTILE], ids=[HOSTILE])
def test_hostile(what):
    print(what)
    assert not what, what
"""
    author.change(
        {
            f"{kernel}/kernel-actions.toml": settings,
            f"{kernel}/tests/test_tiny.py": KERNEL["tests/test_tiny.py"] + test,
            f"{kernel}/docs/{HOSTILE_NAME}.md": "Read by nobody.\n",
        },
        message=HOSTILE,
    )
    payload = pull_request(fork=False, base=base, text=HOSTILE)
    run = author.run("build-and-test", "pull_request", payload=payload, rules=REVIEWED)
    assert run.returncode == 1 and run.results["build"] == "success", run.log
    assert run.results["test"] == run.results["tested"] == "failure"
    assert_harmless(run, tmp_path)


@pytest.mark.parametrize(
    ("workflow", "inputs"),
    [
        ("release", {"bump": HOSTILE, "dry-run": "false", "target": ""}),
        ("release", {"bump": "auto", "dry-run": "false", "target": HOSTILE}),
        ("release", {"bump": "auto", "pre": HOSTILE, "dry-run": "false", "target": ""}),
        ("rollback", {"to": HOSTILE, "dry-run": "false", "target": ""}),
        ("rollback", {"to": "v1.0.0", "dry-run": "false", "target": HOSTILE}),
        ("benchmark", {"baseline": "v1", "only": HOSTILE, "workloads": HOSTILE}),
        ("monorepo/release", {"kernel": HOSTILE, "bump": "auto", "dry-run": "false", "target": ""}),
        ("monorepo/rollback", {"kernel": HOSTILE, "to": "v1.0.0", "dry-run": "false", "target": ""}),
        ("monorepo/benchmark", {"kernel": HOSTILE, "baseline": "v1", "only": "*", "workloads": ""}),
    ],
    ids=lambda value: (
        value if isinstance(value, str) else next((n for n in value if value[n] == HOSTILE), "")
    ),
)
@pytest.mark.slow
def test_hostile_inputs_end_in_the_plan(tmp_path: Path, workflow: str, inputs: dict[str, str]) -> None:
    author = Author(tmp_path, workflow)
    with embedded_hub(tmp_path / "hub") as hub:
        run = author.run(Path(workflow).name, "workflow_dispatch", payload=ITSELF, inputs=inputs, hub=hub)
    assert run.returncode == 1 and run.results == {"plan": "failure"}, run.log
    assert_harmless(run, tmp_path)
