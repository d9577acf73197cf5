"""The command line: options from three places, exit codes, one line for each error."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from kernel_actions import cli, process, usage
from kernel_actions.app import venv
from kernel_actions.errors import Interrupted, KernelFailed, Place, WrongInput
from kernel_actions.options import COMMANDS, Command


def test_command_line_wins_over_environment_over_default() -> None:
    def scope(arguments: list[str], environment: dict[str, str]) -> object:
        parsed = cli.parse(["matrix", *arguments], environment)
        assert parsed is not None
        return parsed[1].scope

    assert scope([], {}) == "release"
    assert scope([], {"KA_SCOPE": "pr"}) == "pr"
    assert scope([], {"KA_SCOPE": ""}) == "release"
    assert scope(["--scope", "all"], {"KA_SCOPE": "pr"}) == "all"


def test_lists_are_separated_by_white_space() -> None:
    parsed = cli.parse(["matrix"], {"KA_ONLY": "*-cpu-*\n  *-cu130-*"})
    assert parsed is not None
    assert parsed[1].only == ["*-cpu-*", "*-cu130-*"]


def test_kernel_folder_comes_from_the_input() -> None:
    parsed = cli.parse(["matrix"], {"KA_KERNEL_DIR": "kernels/a b"})
    assert parsed is not None
    assert parsed[1].kernel_dir == Path("kernels/a b")


def test_secrets_are_no_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS.values():
        for option in command.options:
            if option.secret:
                for given in ([f"--{option.name}", "hf_x"], [f"--{option.name}=hf_x"]):
                    assert cli.main([command.name, *given]) == 2
                    said = capsys.readouterr().err
                    assert option.variable in said
                    assert "hf_x" not in said
    parsed = cli.parse(["upload"], {"KA_TOKEN": "hf_x"})
    assert parsed is not None
    assert parsed[1].token == "hf_x"


@pytest.mark.parametrize(
    ("arguments", "repair"),
    [
        (["matrx"], "did you mean matrix?"),
        (["matrix", "--scpoe", "pr"], "did you mean --scope?"),
        (["matrix", "--scpoe=pr"], "did you mean --scope?"),
        (["hub", "--dta", "x"], "did you mean --data?"),
        (["matrix", "--zzzz"], "see: kernel-actions matrix --help"),
        (["matrix", "explain"], "kernel-actions matrix explain VARIANT"),
    ],
)
def test_a_mistyped_command_line_says_what_may_be_meant(arguments: list[str], repair: str) -> None:
    with pytest.raises(WrongInput) as raised:
        cli.parse(arguments, {})
    assert repair in (raised.value.repair or "")


def test_no_command_says_how_to_begin(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "kernel-actions pipeline" in said
    assert "kernel-actions init" in said


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KernelFailed("x"), 1),
        (Interrupted(2), 130),
        (Interrupted(15), 143),
        (OSError(28, "No space left on device", "/x"), 3),
        (ValueError("x"), 3),
    ],
)
def test_errors_are_one_line_and_a_code(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> int:
        raise error

    assert cli.guarded(fail) == code
    assert capsys.readouterr().err.count("\n") == 1


def test_errors_that_were_found_together_are_a_line_and_an_annotation_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> int:
        second = WrongInput("b\n::error::b", where=Place(Path("x.toml"), 2, 3), repair="mend it")
        raise WrongInput("a", where=Place(Path("x.toml"), 1, 2), others=(second,))

    assert cli.guarded(fail) == 2
    lines = ["kernel-actions: x.toml:1:2: a", "kernel-actions: x.toml:2:3: b ::error::b (mend it)"]
    assert capsys.readouterr().err.splitlines() == lines
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert cli.guarded(fail) == 2
    assert capsys.readouterr().err.splitlines() == [
        "::error title=kernel-actions,file=x.toml,line=1,col=2::a",
        lines[0],
        "::error title=kernel-actions,file=x.toml,line=2,col=3::b%0A::error::b (mend it)",
        lines[1],
    ]


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "KA_TOKEN", "CACHIX_AUTH_TOKEN", "CACHIX_SIGNING_KEY",
        "AWS_SECRET_ACCESS_KEY", "ACCESS_KEY_ID", "SSH_AUTH_SOCK", "GPG_PASSPHRASE", "MYSQL_PWD",
        "OPENAI_APIKEY", "PAT", "GH_PAT", "SIGNING_KEY_B64", "DB_PASS", "CREDS", "KEY", "SSH_PRIVATE",
        "SLACK_WEBHOOK", "my_password", "GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT",
    ],
)  # fmt: skip
def test_secrets_do_not_reach_children(name: str) -> None:
    assert process.without_secrets({name: "x"}) == {}


def test_what_children_need_reaches_them() -> None:
    kept = {
        "PATH": "/bin", "HOME": "/root", "PWD": "/x", "OLDPWD": "/y", "GIT_AUTHOR_NAME": "A",
        "KEYBOARD": "us",
        "PIP_INDEX_URL": "https://host/", "LD_LIBRARY_PATH": "/lib", "XAUTHORITY": "/x", "COMPASS": "n",
        "PATTERN": "p",
    }  # fmt: skip
    assert process.without_secrets(kept | {"PIP_EXTRA_INDEX_URL": "https://u:p@host/"}) == kept


def test_a_command_with_a_token_makes_its_environment_for_the_job_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("RUNNER_TEMP", str(tmp_path / "job"))
    for command in COMMANDS.values():
        if command.environment:
            path = venv.plan(command.environment, command.holds_token).path
            expected = "job" if command.holds_token else "cache"
            assert path.is_relative_to(tmp_path / expected), command.name
    assert COMMANDS["upload"].holds_token and not COMMANDS["test"].holds_token


def test_the_pipeline_takes_no_hub_from_a_variable() -> None:
    parsed = cli.parse(["pipeline"], {"KA_HUB": "https://huggingface.co"})
    assert parsed is not None
    assert parsed[1].hub == ""


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_plain_arguments_are_read_as_argparse_reads_them(command: Command) -> None:
    words = ["a", "b/c", "", "x=y", "1"]
    for option in command.options:
        words += [f"--{option.name}", f"--no-{option.name}", f"--{option.name}=pr", f"--{option.name}="]
    words += ["--", "-x", "--unknown", "-1", "--form", "-"]
    choose = random.Random(command.name)
    plain = 0
    for _ in range(1000):
        arguments = choose.choices(words, k=choose.randrange(6))
        found = cli.plain(command, arguments)
        if found is not None:
            plain += 1
            assert found == vars(usage.command_parser(command).parse_args(arguments)), arguments
    assert plain > 20


def test_a_job_that_fails_says_so_in_its_summary(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    summary = tmp_path / "summary"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert cli.main(["matrix", str(tmp_path / "a|b<i>")]) == 2
    text = summary.read_text()
    assert text.startswith("### ❌ ")
    assert "a\\|b&lt;i&gt;" in text
    # Where a command has told it itself, it is told once.
    assert cli.main(["matrix", str(tmp_path / "c")]) == 2
    assert summary.read_text() == text
