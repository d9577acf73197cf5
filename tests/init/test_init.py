"""``init`` shows what it would change, changes all of it or nothing, and never an edited file unasked."""

from __future__ import annotations

import fnmatch
import io
import json
import os
import re
import resource
import shlex
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest
from kernel_actions import settings
from kernel_actions.init import detection, plan, templates, writing

from tests.init.conftest import add_kernel, git
from tests.integration import shown
from tests.tools import needs

Run = Callable[..., tuple[int, str, str]]
USES = "--uses=acme/kernel-actions@v1"


def files(root: Path) -> dict[str, str]:
    """All files but those of git, by path."""
    paths = [
        path for path in root.rglob("*") if path.is_file() and ".git" not in path.relative_to(root).parts
    ]
    return {path.relative_to(root).as_posix(): path.read_text() for path in paths}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_dry_run_shows_and_writes_nothing(repository: Path, initialize: Run) -> None:
    before = files(repository)
    code, said, _ = initialize(repository, USES, "--dry-run")
    assert code == 0
    assert "+++ b/.github/workflows/release.yml" in said
    assert "+++ b/kernel-actions.toml" in said
    assert "Dry run: nothing was written" in said
    assert files(repository) == before


@pytest.mark.parametrize("branch", ["main", "master"])
@pytest.mark.parametrize("has_commit", [False, True])
def test_the_workflows_name_the_default_branch(
    repository: Path, initialize: Run, branch: str, has_commit: bool
) -> None:
    git(repository, "symbolic-ref", "HEAD", f"refs/heads/{branch}")
    if has_commit:
        git(repository, "commit", "--quiet", "--allow-empty", "--message=x")
        git(repository, "checkout", "--quiet", "-b", "other")
    assert initialize(repository, USES, "--yes")[0] == 0
    written = files(repository)
    assert f"    branches: [{branch}]\n" in written[".github/workflows/build-and-test.yml"]
    assert f"'origin/{branch}'" in written[".github/workflows/pr-compliance.yml"]
    assert ("main" in written[".github/workflows/build-and-test.yml"].split()) is (branch == "main")


def test_the_default_branch_is_the_one_of_origin(repository: Path, initialize: Run) -> None:
    git(repository, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")
    assert initialize(repository, USES, "--yes")[0] == 0
    assert "    branches: [trunk]\n" in files(repository)[".github/workflows/build-and-test.yml"]


def test_without_a_terminal_nothing_is_written_unasked(
    repository: Path, initialize: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(repository)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    code, said, error = initialize(repository, USES)
    assert code == 2
    assert "run again with --yes" in error
    assert "+++ b/.github/workflows/release.yml" in said
    assert files(repository) == before


@pytest.mark.parametrize(
    ("answer", "is_written"), [("y\n", True), ("yes\n", True), ("\n", False), ("", False)]
)
def test_it_asks_on_a_terminal(
    repository: Path, initialize: Run, monkeypatch: pytest.MonkeyPatch, answer: str, is_written: bool
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    code, said, _ = initialize(repository, USES)
    assert code == 0
    assert (repository / "kernel-actions.toml").exists() == is_written
    assert ("Nothing was written." in said) != is_written


def test_what_it_writes_is_whole_and_a_second_run_has_nothing_to_do(
    repository: Path, initialize: Run
) -> None:
    assert initialize(repository, USES, "--yes")[0] == 0
    written = files(repository)
    names = {PurePosixPath(name).stem for name in written if name.startswith(".github/workflows/")}
    assert {"pr-compliance", "build-and-test", "release", "rollback"} <= names
    for name, text in written.items():
        if name.startswith(".github/"):
            assert "org/kernel-actions" not in text.replace("acme/kernel-actions", "")
            assert "Copy it to" not in text
    own = settings.load(repository)
    assert own.test_runner("x86_64-linux", "cuda").labels == ("self-hosted", "linux", "x64", "cuda")
    # Neither the reference nor --yes is needed again.
    code, said, _ = initialize(repository)
    assert code == 0
    assert "Nothing to do" in said
    assert files(repository) == written


def test_an_edited_file_is_left_alone_until_it_is_said(repository: Path, initialize: Run) -> None:
    initialize(repository, USES, "--yes")
    edited = repository / ".github/workflows/release.yml"
    edited.write_text(edited.read_text() + "# Our own.\n")
    text = edited.read_text()
    _, said, _ = initialize(repository, "--uses=acme/kernel-actions@v2", "--yes")
    assert edited.read_text() == text
    assert "yours, left alone" in said
    # What nobody edited follows.
    assert "acme/kernel-actions/rollback@v2" in (repository / ".github/workflows/rollback.yml").read_text()
    initialize(repository, "--uses=acme/kernel-actions@v2", "--yes", "--overwrite")
    assert "acme/kernel-actions/release@v2" in edited.read_text()


def test_a_file_of_the_same_name_that_somebody_else_wrote_is_theirs(
    repository: Path, initialize: Run
) -> None:
    theirs = repository / ".github/workflows/release.yml"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("on: push\njobs: {}\n")
    (theirs.parent / "rollback.yaml").write_text("on: push\njobs: {}\n")
    _, said, _ = initialize(repository, USES, "--yes")
    assert theirs.read_text() == "on: push\njobs: {}\n"
    assert not (theirs.parent / "rollback.yml").exists()
    assert "the same name with .yaml is there" in said


def test_line_breaks_of_windows_are_no_edit(repository: Path, initialize: Run) -> None:
    initialize(repository, USES, "--yes")
    path = repository / "kernel-actions.toml"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert "Nothing to do" in initialize(repository, USES)[1]


def test_a_commit_can_be_pinned(repository: Path, initialize: Run) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    initialize(repository, f"--uses=acme/kernel-actions@{commit}", "--yes")
    text = (repository / ".github/workflows/release.yml").read_text()
    assert f"acme/kernel-actions/release@{commit}" in text
    assert "@v1\n" not in text


@pytest.mark.parametrize(
    "uses",
    ["acme", "acme/ka", "acme/ka@", "a b/ka@v1", "acme/ka@v1\nx: y", "acme/ka@../x", "-x/y@v1", "a/b@v1 #"],
)
def test_a_reference_of_another_form_is_refused(repository: Path, initialize: Run, uses: str) -> None:
    code, _, error = initialize(repository, f"--uses={uses}", "--yes")
    assert code == 2
    assert error.count("\n") == 1


def test_several_kernels_get_one_set_of_workflows_and_tags_of_their_own(
    tmp_path: Path, initialize: Run
) -> None:
    git(tmp_path, "init", "--quiet")
    for name in ("gelu", "relu"):
        add_kernel(tmp_path / "kernels" / name, name)
    code, said, error = initialize(tmp_path / "kernels" / "relu", USES, "--yes")
    assert code == 0, error
    assert settings.load(tmp_path / "kernels/gelu").tag_prefix == "gelu/"
    assert settings.load(tmp_path / "kernels/relu").test_runner("x86_64-linux", "cuda").labels[-1] == "cuda"
    assert (tmp_path / ".github/workflows/release.yml").exists()
    assert "gelu" in said


def test_a_kernel_that_cannot_be_read_is_named_and_the_others_go_on(tmp_path: Path, initialize: Run) -> None:
    git(tmp_path, "init", "--quiet")
    add_kernel(tmp_path / "relu")
    add_kernel(tmp_path / "gelu", "gelu")
    (tmp_path / "gelu" / "build.toml").write_text("[general\n")
    code, said, _ = initialize(tmp_path, USES, "--yes")
    assert code == 0
    assert "not read: " in said and "gelu" in said


def test_a_folder_without_a_kernel_is_one_error(tmp_path: Path, initialize: Run) -> None:
    code, _, error = initialize(tmp_path, USES)
    assert code == 2
    assert "no kernel is here" in error
    assert error.count("\n") == 1


def test_a_folder_in_no_repository_is_not_searched_to_its_ground(tmp_path: Path, initialize: Run) -> None:
    """It may be somebody's home."""
    add_kernel(tmp_path / "work" / "kernels" / "relu")
    code, _, error = initialize(tmp_path, USES, "--dry-run")
    assert code == 2
    assert error.rstrip().endswith(
        "it is in no git repository, and 2 levels were looked at (docs/tutorial.md makes one from an "
        "empty folder)"
    )
    code, said, _ = initialize(tmp_path / "work", USES, "--dry-run")
    assert code == 0
    assert f"{tmp_path}/work is in no git repository: looked for kernels in it and 2 levels below\n" in said
    git(tmp_path, "init", "--quiet")
    assert initialize(tmp_path, USES, "--dry-run")[0] == 0


def test_a_link_leads_nowhere(repository: Path, initialize: Run, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (repository / ".github").symlink_to(outside)
    code, _, error = initialize(repository, USES, "--yes")
    assert code == 2
    assert "link" in error
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("failing", range(3))
def test_all_files_or_none(
    repository: Path, initialize: Run, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    initialize(repository, USES, "--yes", "--workflows=release rollback")
    before = files(repository)
    replace, calls = os.replace, []

    def fail(source: str, target: str) -> None:
        calls.append(target)
        if len(calls) == failing + 1:
            raise OSError(28, "No space left on device", str(target))
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail)
    code, _, error = initialize(repository, "--uses=acme/kernel-actions@v2", "--yes")
    assert code == 3
    assert "nothing was" in error and "No space left" in error
    assert files(repository) == before


def test_a_disk_that_takes_no_more_is_one_error_that_names_the_place(
    repository: Path, initialize: Run
) -> None:
    before = files(repository)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        code, _, error = initialize(repository, USES, "--yes")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert code == 3 and error.count("\n") == 1
    assert f"{repository}: cannot be written, and so nothing was: File too large" in error
    assert files(repository) == before
    assert not (repository / ".github").exists()


def test_what_was_changed_after_it_was_shown_is_not_written_over(repository: Path) -> None:
    wanted = (plan.Wanted(PurePosixPath("a/b.yml"), "new\n"),)
    compared = plan.compare(repository, wanted)
    (repository / "a").mkdir()
    (repository / "a/b.yml").write_text("theirs\n")
    with pytest.raises(Exception, match="was changed meanwhile"):
        writing.write(repository, compared)
    assert (repository / "a/b.yml").read_text() == "theirs\n"


def test_the_steps_are_those_of_this_repository(repository: Path, initialize: Run) -> None:
    (repository / ".github/workflows").mkdir(parents=True)
    (repository / ".github/workflows/old.yml").write_text(
        "on: push\njobs:\n  b:\n    steps:\n      - run: nix run .#build-and-copy -L\n"
    )
    code, said, _ = initialize(
        repository, USES, "--yes", "--format=json", "--gpu-runner=self-hosted linux h100"
    )
    assert code == 0
    value = json.loads(said)
    assert value["github"] == "https://github.com/acme/relu"
    assert value["written"]
    steps = {one["title"]: one for one in value["steps"]}
    trusted = steps["Trust this repository on the Hub: then there is no secret to keep"]
    assert trusted["commands"] == [
        "gh variable set HF_OIDC_RESOURCE --repo acme/relu --env hub --body kernels/acme/relu"
    ]
    assert trusted["link"] == "https://huggingface.co/kernels/acme/relu/settings"
    assert steps["Or keep a token"]["commands"] == ["gh secret set HF_TOKEN --repo acme/relu --env hub"]
    made = "gh api --method PUT repos/acme/relu/environments/hub"
    assert steps["Make the environment hub"]["commands"] == [made]
    assert "Make the environment pip" not in steps
    assert steps["Have a runner with the labels self-hosted, linux, h100"]["commands"][0].startswith(
        "./config.sh --url https://github.com/acme/relu --ephemeral --labels h100"
    )
    for command in (one for step in steps.values() for one in step["commands"]):
        # What is typed next is what the programs themselves take.
        for words in shown.simple_commands(command):
            assert Path(words[0]).name in shown.PROGRAMS
            shown.check(words)
    assert "git rm -- .github/workflows/old.yml" in next(
        one["commands"][0] for title, one in steps.items() if title.startswith("Retire")
    )
    assert settings.load(repository).test_runner("x86_64-linux", "cuda").labels == (
        "self-hosted",
        "linux",
        "h100",
    )


def test_json_writes_with_yes_alone(repository: Path, initialize: Run) -> None:
    before = files(repository)
    code, said, _ = initialize(repository, USES, "--format=json")
    assert code == 0
    assert json.loads(said)["written"] is False
    assert files(repository) == before


@pytest.mark.parametrize("name", ["relese", "../../etc/passwd"])
def test_an_unknown_workflow_is_one_error(repository: Path, initialize: Run, name: str) -> None:
    code, _, error = initialize(repository, USES, f"--workflows={name}")
    assert code == 2
    assert "no workflow is named" in error


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("git@github.com:acme/relu.git", "https://github.com/acme/relu"),
        ("https://github.com/acme/relu", "https://github.com/acme/relu"),
        ("https://github.com/acme/relu.git/", "https://github.com/acme/relu"),
        ("https://***@github.com/acme/relu.git", "https://github.com/acme/relu"),
        ("ssh://git@git.example.org:2222/acme/relu.git", "https://git.example.org/acme/relu"),
        ("/srv/git/relu.git", None),
        ("../relu", None),
        ("https://github.com/acme/relu/../../x", None),
        ("git@github.com:acme/re;lu.git", None),
        ("", None),
    ],
)
def test_addresses_of_remotes(address: str, url: str | None) -> None:
    found = detection.parse_address(address)
    assert (found.url if found else None) == url


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("      - uses: huggingface/kernel-builder-job@main\n", "hf-jobs"),
        ("      - uses: huggingface/hf-jobs-action@v1\n", "hf-jobs"),
        ('        run: ( cd "$KERNEL" && nix build -L .#ci && ls -l result/ )\n', "kernel-builder"),
        ("        run: nix run -L github:huggingface/kernels#kernel-builder -- build\n", "kernel-builder"),
        ("        run: nix run .#build-and-copy\n", "kernel-builder"),
        ("      - uses: acme/kernel-actions/build@v1\n", "kernel-actions"),
        ("      - uses: 'acme/kernel-actions@v1'\n", "kernel-actions"),
        ("      # - uses: acme/kernel-actions@v1\n        run: make\n", "other"),
        ("        run: nix build .#docs\n", "other"),
        ('        run: ( cd "$KERNEL" && nix build -L ".#backendBundle.$BACKEND" )\n', "kernel-builder"),
        ("        run: cargo install --git https://example.org/kernels hf-kernel-builder\n", "other"),
        ("        run: nix run -L github:huggingface/kernels#kernel-builder -- hash\n", "other"),
        ("        # kernel-builder build\n        run: make\n", "other"),
        ("    runs-on: windows-2022\n        run: kernel-builder build\n", "other"),
    ],
)
def test_what_a_workflow_works_with(text: str, kind: str) -> None:
    assert detection.kind_of(f"on: push\njobs:\n  a:\n    steps:\n{text}") == kind


def test_hostile_names_are_shown_and_not_obeyed(tmp_path: Path, initialize: Run) -> None:
    git(tmp_path, "init", "--quiet")
    add_kernel(tmp_path)
    folder = tmp_path / ".github/workflows"
    folder.mkdir(parents=True)
    (folder / "a\x1b[31m`$(touch pwned)`;.yml").write_text("jobs: {b: {steps: [{run: nix build .#ci}]}}\n")
    (folder / "release.yml").write_text("\x1b]0;title\x07##[error]x\n::error::y\n")
    code, said, _ = initialize(tmp_path, USES, "--yes", "--overwrite")
    assert code == 0
    assert "\x1b" not in said and "\x07" not in said
    assert not re.search(r"(?m)^::", said)
    assert "git rm -- '.github/workflows/" in said


def test_every_template_is_filled_and_still_one_document() -> None:
    import yaml

    for one in templates.find().values():
        text = templates.filled(one, "acme/kernel-actions@v1")
        assert "org/kernel-actions" not in text
        assert "Copy it to" not in text
        assert yaml.safe_load(text) == yaml.safe_load(
            one.text.replace("org/kernel-actions", "acme/kernel-actions")
        )
        assert all(len(line) < 121 for line in text.splitlines() if line.startswith("#"))


def test_steps_have_nothing_that_a_shell_would_take_amiss(repository: Path, initialize: Run) -> None:
    _, said, error = initialize(repository, USES, "--format=json", "--gpu-runner=self-hosted a;b")
    assert said == ""
    assert "'a;b' is not a label of a runner" in error
    _, said, _ = initialize(repository, USES, "--format=json", "--workflows=release")
    for step in json.loads(said)["steps"]:
        for command in step["commands"]:
            assert shlex.split(command)
            assert not set("`;|<>\n") & set(command)


def test_a_folder_that_no_tag_can_be_named_by_is_named(tmp_path: Path, initialize: Run) -> None:
    for folder in ("a", "b$x"):
        add_kernel(tmp_path / folder)
    code, _, error = initialize(tmp_path, USES, "--dry-run")
    assert code == 2
    assert f"{tmp_path / 'b$x'}: 'b$x' cannot begin the name of a git tag (rename the folder" in error


def test_a_file_of_settings_that_is_there_is_the_one(repository: Path, initialize: Run) -> None:
    shared = repository / ".github" / "kernel-actions.toml"
    shared.parent.mkdir()
    shared.write_text("[limits]\ntimeout = 60\n")
    _, said, _ = initialize(repository, USES, "--yes")
    assert not (repository / "kernel-actions.toml").exists()
    assert shared.read_text() == "[limits]\ntimeout = 60\n"
    assert "yours, left alone" in said


def test_many_kernels_have_short_commands_and_one_check_of_each_kind(tmp_path: Path, initialize: Run) -> None:
    git(tmp_path, "init", "--quiet")
    for number in range(9):
        add_kernel(tmp_path / f"kernel{number}", f"kernel{number}")
    for name in ("a", "b"):
        path = tmp_path / ".github" / "workflows" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("on: push\njobs:\n  b:\n    steps:\n      - run: nix build .#ci\n")
    value = json.loads(initialize(tmp_path, USES, "--format=json")[1])
    steps = {one["title"]: one for one in value["steps"]}
    added = steps["Commit it, on a branch of its own"]["commands"][0]
    assert "':(glob)**/kernel-actions.toml'" in added and "kernel3" not in added
    assert "Require Compliant and Tested for the default branch" in steps
    retired = [one for title, one in steps.items() if title.startswith("Retire")]
    assert [one["commands"] for one in retired] == [
        ["git rm -- .github/workflows/a.yaml .github/workflows/b.yaml"]
    ]


def test_kernels_of_one_name_have_tags_of_their_own(tmp_path: Path, initialize: Run) -> None:
    git(tmp_path, "init", "--quiet")
    for folder in ("a/relu", "b/relu"):
        add_kernel(tmp_path / folder)
    assert initialize(tmp_path, USES, "--yes")[0] == 0
    prefixes = {settings.load(tmp_path / folder).tag_prefix for folder in ("a/relu", "b/relu")}
    assert prefixes == {"a/relu/", "b/relu/"}


@needs("a user who is not root")
def test_a_folder_that_cannot_be_written_is_one_error(repository: Path, initialize: Run) -> None:
    repository.chmod(0o555)
    code, _, error = initialize(repository, USES, "--yes")
    repository.chmod(0o755)
    assert code == 3 and error.count("\n") == 1


# --- Where GPU backends are tested ---

LOCK = (Path(__file__).parents[2] / "flake.lock").read_text()
ARM_CUDA = "torch213-cxx11-cu130-aarch64-linux"


@pytest.fixture
def compiled(repository: Path) -> Path:
    """A repository of one kernel that is compiled for CUDA, and locked: it has variants for two systems."""
    add_kernel(repository, compiled_for="cuda")
    (repository / "flake.lock").write_text(LOCK)
    (repository / "flake.nix").write_text("{ outputs = _: { }; }\n")
    return repository


def _allowed(own: settings.Settings, variant: str) -> list[str]:
    return [why for glob, why in own.allow_untested.items() if fnmatch.fnmatchcase(variant, glob)]


def test_no_job_waits_for_a_runner_that_nobody_has_named(compiled: Path, initialize: Run) -> None:
    _, said, _ = initialize(compiled, USES, "--yes")
    own = settings.load(compiled)
    # What is not named goes untested on a runner that there is, and every summary says why.
    assert settings.is_hosted(own.test_runner("aarch64-linux", "cuda"))
    assert _allowed(own, ARM_CUDA) == ["none of our runners has such a GPU"]
    assert _allowed(own, "torch213-cxx11-cu130-x86_64-linux") == []
    assert "Name a runner that tests cuda on aarch64-linux, if you have one" in said
    assert "Have a runner with the labels self-hosted, linux, x64, cuda" in said
    # A second run keeps what is there.
    before = files(compiled)
    assert initialize(compiled, "--yes")[0] == 0
    assert files(compiled) == before


@pytest.mark.parametrize(
    ("answer", "runner"),
    [
        ("self-hosted linux arm64 gh200", settings.Runner(("self-hosted", "linux", "arm64", "gh200"))),
        ("group:arm-gpus", settings.Runner((), "arm-gpus")),
        ("group:arm-gpus, gh200", settings.Runner(("gh200",), "arm-gpus")),
    ],
)
def test_it_asks_who_tests_on_other_systems_and_writes_the_answer(
    compiled: Path, initialize: Run, monkeypatch: pytest.MonkeyPatch, answer: str, runner: settings.Runner
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\ny\n"))
    code, said, _ = initialize(compiled, USES)
    assert code == 0
    assert "Which runner tests cuda on aarch64-linux?" in said
    own = settings.load(compiled)
    assert own.test_runner("aarch64-linux", "cuda") == runner
    assert _allowed(own, ARM_CUDA) == []
    assert "Name a runner that tests" not in said
    # What was answered is not asked again, and stays.
    monkeypatch.setattr("sys.stdin", Terminal(""))
    code, said, _ = initialize(compiled)
    assert "Which runner" not in said and "Nothing to do" in said


def test_an_answer_can_be_a_reason(compiled: Path, initialize: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal('none: the "Grace" machines come in spring \U0001f331\ny\n'))
    assert initialize(compiled, USES)[0] == 0
    own = settings.load(compiled)
    assert _allowed(own, ARM_CUDA) == ['the "Grace" machines come in spring \U0001f331']


def test_runners_can_be_given(compiled: Path, initialize: Run) -> None:
    code, said, _ = initialize(
        compiled,
        USES,
        "--yes",
        "--gpu-runner=group:h100s",
        "--test-runner=aarch64-linux.cuda=self-hosted,gh200",
    )
    assert code == 0
    own = settings.load(compiled)
    assert own.test_runner("x86_64-linux", "cuda") == settings.Runner((), "h100s")
    assert own.test_runner("aarch64-linux", "cuda") == settings.Runner(("self-hosted", "gh200"))
    assert "Have a runner in the group h100s that this repository may use" in said
    assert "https://github.com/organizations/acme/settings/actions/runner-groups" in said


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--test-runner=aarch64-linux.rocm=gpu", "not SYSTEM.BACKEND=RUNNER of a GPU backend"),
        ("--test-runner=aarch64-linux.cuda", "not SYSTEM.BACKEND=RUNNER of a GPU backend"),
        ("--test-runner=aarch64-linux.cuda=a;b", "'a;b' is not a label of a runner"),
        ("--gpu-runner=group:a/b/c", "has no name of a single runner group"),
        ("--gpu-runner=group:a group:b", "has no name of a single runner group"),
    ],
)
def test_a_runner_that_cannot_be_one_is_one_error(
    compiled: Path, initialize: Run, option: str, message: str
) -> None:
    code, _, error = initialize(compiled, USES, "--yes", option)
    assert (code, error.count("\n")) == (2, 1)
    assert message in error
    assert not (compiled / "kernel-actions.toml").exists()


def test_settings_that_are_edited_say_what_a_runner_is_for(compiled: Path, initialize: Run) -> None:
    (compiled / "kernel-actions.toml").write_text("[limits]\ntimeout = 60\n")
    _, said, _ = initialize(compiled, USES, "--yes")
    # They leave the default, for which a job would wait: that is said.
    assert "Have a runner with the labels self-hosted, linux, arm64, cuda" in said


# --- What there is ---


def test_a_kernel_that_is_not_locked_is_named(repository: Path, initialize: Run) -> None:
    _, said, _ = initialize(repository, USES, "--dry-run")
    assert "without flake.lock, so that nothing can be planned: relu" in said
    assert "1. Lock the builder, and commit flake.lock" in said
    assert "$ nix flake lock ./." in said
    (repository / "flake.lock").write_text(LOCK)
    assert "flake.lock" not in initialize(repository, USES, "--dry-run")[1].partition("What is left")[2]


@pytest.mark.parametrize(
    ("address", "is_said", "is_assumed"),
    [
        ("git@gitlab.com:acme/relu.git", True, False),
        ("https://huggingface.co/acme/relu", True, False),
        ("https://gitlab.example.org/acme/relu", True, False),
        ("https://codeberg.org/acme/relu.git", True, False),
        ("/srv/git/relu.git", True, False),
        ("git@github.com:acme/relu.git", False, False),
        ("https://acme.ghe.com/acme/relu", False, False),
        ("https://github.example.org/acme/relu", False, False),
        ("ssh://git@git.example.org/acme/relu.git", False, True),
    ],
)
def test_an_origin_that_is_not_on_github_is_said(
    repository: Path, initialize: Run, address: str, is_said: bool, is_assumed: bool
) -> None:
    git(repository, "remote", "set-url", "origin", address)
    _, said, _ = initialize(repository, USES, "--dry-run")
    assert (f"origin is {address}, which is not on GitHub" in said) is is_said
    assert ("gh repo create OWNER/REPO --source . --remote github --push" in said) is is_said
    assert ("See that git.example.org is a GitHub Enterprise Server" in said) is is_assumed
    if is_said:
        assert "gitlab.com/acme" not in said.partition("What is left to do")[2].replace(address, "")


AFTER = "on:\n  workflow_run:\n    workflows: {}\n    types: [completed]\n"
BUILDS = "name: Build\non: {event}\njobs:\n  b:\n    steps:\n      - run: nix build .#ci\n"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (".github/workflows/all.yml", "on: push\njobs:\n  x:\n    uses: ./.github/workflows/build.yml\n"),
        (".github/workflows/after.yml", AFTER.format("[Build]")),
        (".github/workflows/after.yml", AFTER.format("\n      - Lint\n      - 'Build'")),
        (".github/workflows/start.yml", "jobs: { x: { steps: [{ run: gh workflow run build.yml }] } }\n"),
        (".github/scripts/dispatch.py", 'start("actions/workflows/build.yml/dispatches")\n'),
        ("scripts/dispatch.py", 'LINUX = "build.yml"\n'),
    ],
)  # fmt: skip
def test_a_workflow_that_others_start_is_not_to_be_removed(
    repository: Path, initialize: Run, path: str, text: str
) -> None:
    write_files(
        repository, {".github/workflows/build.yml": BUILDS.format(event="workflow_dispatch"), path: text}
    )
    _, said, _ = initialize(repository, USES, "--dry-run")
    assert "git rm" not in said
    assert "Keep build.yml until nothing starts it" in said
    assert f"{PurePosixPath(path).name} starts it" in said


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (".github/workflows/other.yml", "on: push\n# uses: ./.github/workflows/build.yml\n"),
        (".github/workflows/after.yml", AFTER.format("[Build Docs]")),
        (
            ".github/workflows/rebuild.yml",
            "on: push\njobs:\n  x:\n    uses: ./.github/workflows/prebuild.yml\n",
        ),
        ("README.md", "![Build](actions/workflows/build.yml/badge.svg)\n"),
        (".github/scripts/test_dispatch.py", 'assert "build.yml"\n'),
    ],
)
def test_one_that_nothing_starts_is(repository: Path, initialize: Run, path: str, text: str) -> None:
    write_files(repository, {".github/workflows/build.yml": BUILDS.format(event="push"), path: text})
    assert "git rm -- .github/workflows/build.yml" in initialize(repository, USES, "--dry-run")[1]


def test_those_that_start_each_other_go_together(repository: Path, initialize: Run) -> None:
    calls = BUILDS.format(event="push") + "  c:\n    uses: ./.github/workflows/build.yml\n"
    write_files(
        repository,
        {
            ".github/workflows/build.yml": BUILDS.format(event="workflow_call"),
            ".github/workflows/calls.yml": calls.replace("name: Build", "name: All"),
        },
    )
    said = initialize(repository, USES, "--dry-run")[1]
    assert "git rm -- .github/workflows/build.yml .github/workflows/calls.yml" in said


def test_files_of_many_kernels_that_come_to_the_same_are_shown_once(tmp_path: Path, initialize: Run) -> None:
    git(tmp_path, "init", "--quiet")
    for number in range(9):
        add_kernel(tmp_path / f"kernel{number}", f"kernel{number}")
    _, said, _ = initialize(tmp_path, USES, "--dry-run")
    assert said.count("\n+tag-prefix = ") == 1
    assert "and 8 more of that name, each with its own kernel's" in said
    assert "kernel0/kernel-actions.toml and 8 more  new" in said
    value = json.loads(initialize(tmp_path, USES, "--format=json")[1])
    assert len([one for one in value["files"] if one["path"].endswith("/kernel-actions.toml")]) == 10
    assert (
        "9 kernels" not in said and "kernel0, kernel1, kernel2, kernel3 and 5 more have no flake.lock" in said
    )


# --- Submodules ---


@pytest.mark.parametrize(
    ("flake", "source", "expected"),
    [
        ("{ outputs = _: { }; }\n", "third/x.cpp", "recursive"),
        ("{ outputs = _: { }; }\n", "csrc/relu.cpp", "false"),
        # Nix fetches them itself.
        ("{ inputs.self.submodules = true; outputs = _: { }; }\n", "third/x.cpp", "false"),
    ],
)
def test_a_checkout_has_the_submodules_that_its_job_needs(
    repository: Path, initialize: Run, flake: str, source: str, expected: str
) -> None:
    build = (repository / "build.toml").read_text().replace("csrc/relu.cpp", source)
    write_files(
        repository,
        {
            ".gitmodules": '[submodule "third"]\n\tpath = third\n\turl = https://example.org/third\n',
            "build.toml": build,
            "flake.nix": flake,
        },
    )
    assert initialize(repository, USES, "--yes")[0] == 0
    written = files(repository)
    for name, jobs in (("build-and-test", 2), ("release", 3), ("pr-compliance", 1)):
        text = written[f".github/workflows/{name}.yml"]
        assert text.count(f"          submodules: {expected}\n") == text.count("submodules:") == jobs


def write_files(root: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
