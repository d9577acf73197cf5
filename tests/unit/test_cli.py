"""The command line: options from three places, exit codes, one line for each error."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_actions import cli, process
from kernel_actions.errors import Interrupted, KernelFailed
from kernel_actions.options import COMMANDS


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
                assert cli.main([command.name, f"--{option.name}", "x"]) == 2
    parsed = cli.parse(["upload"], {"KA_TOKEN": "hf_x"})
    assert parsed is not None
    assert parsed[1].token == "hf_x"
    capsys.readouterr()


def test_no_command_says_how_to_begin(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert "kernel-actions pipeline" in capsys.readouterr().out


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
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> int:
        raise error

    assert cli.guarded(fail) == code
    assert capsys.readouterr().err.count("\n") == 1


def test_variables_with_secrets_do_not_reach_children() -> None:
    kept = {"PATH": "/bin", "GIT_AUTHOR_NAME": "A", "PIP_INDEX_URL": "https://host/", "KEYBOARD": "us"}
    secrets = {
        "HF_TOKEN": "1", "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "2", "KA_TOKEN": "3", "CACHIX_AUTH_TOKEN": "4",
        "CACHIX_SIGNING_KEY": "5", "AWS_SECRET_ACCESS_KEY": "6", "PIP_EXTRA_INDEX_URL": "https://u:p@host/",
        "SSH_AUTH_SOCK": "/x",
    }  # fmt: skip
    assert process.without_secrets(kept | secrets) == kept
