"""kernel-actions.toml."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_actions import settings
from kernel_actions.errors import WrongInput


def test_defaults_without_a_file(tmp_path: Path) -> None:
    found = settings.load(tmp_path)
    assert found.build_runner("x86_64-linux", "cuda") == ("ubuntu-latest",)
    assert found.test_runner("x86_64-linux", "cuda") == ("self-hosted", "linux", "x64", "cuda")
    assert found.test_runner("aarch64-darwin", "metal") == ("macos-15",)


def test_backend_wins_over_system(tmp_path: Path) -> None:
    (tmp_path / "kernel-actions.toml").write_text(
        '[runners.test]\n"x86_64-linux" = "big"\n"x86_64-linux.cuda" = ["self-hosted", "h200"]\n'
    )
    found = settings.load(tmp_path)
    assert found.test_runner("x86_64-linux", "cuda") == ("self-hosted", "h200")
    assert found.test_runner("x86_64-linux", "cpu") == ("big",)


def test_file_of_the_repository_is_found_from_a_kernel_inside(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".github").mkdir()
    (tmp_path / ".github" / "kernel-actions.toml").write_text('[pipeline]\ndemo = "d.py"\n')
    (tmp_path / "kernels" / "one").mkdir(parents=True)
    assert settings.load(tmp_path / "kernels" / "one").demo == "d.py"


def test_file_outside_of_the_repository_is_not_read(tmp_path: Path) -> None:
    (tmp_path / ".github").mkdir()
    (tmp_path / ".github" / "kernel-actions.toml").write_text("[wrong]\n")
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    assert settings.load(tmp_path / "repo") == settings.Settings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[runner]\n", "kernel-actions.toml:1:1: key 'runner' is not known (did you mean runners?)"),
        ("[runners]\ntset = {}\n", "key 'runners.tset' is not known (did you mean test?)"),
        ("runners = 1\n", "runners is not a table"),
        ('[runners.test]\n"x86" = ["a"]\n', "'x86' is not a system"),
        ('[runners.test]\n"x86_64-linux" = []\n', "is not a list of runner labels"),
        ("[pipeline]\ndemo = 1\n", "pipeline.demo is not a string"),
    ],
)
def test_each_error_says_what_and_where(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "kernel-actions.toml").write_text(text)
    with pytest.raises(WrongInput) as error:
        settings.load(tmp_path)
    assert message in str(error.value)


def test_limits_of_a_backend_come_before_those_of_all(tmp_path: Path) -> None:
    (tmp_path / "kernel-actions.toml").write_text(
        "[limits]\ntimeout = 90\ncores = 8\n[limits.cuda]\ntimeout = 700\njobs = 2\n"
    )
    found = settings.load(tmp_path)
    assert found.limit("cuda").as_json() == {"timeout": 700, "cores": 8, "jobs": 2}
    assert found.limit("cpu").as_json() == {"timeout": 90, "cores": 8}
    assert settings.Settings().limit("cuda").as_json() == {}


def test_the_kernels_own_file_comes_before_that_of_the_repository(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".github").mkdir()
    (tmp_path / ".github" / "kernel-actions.toml").write_text(
        '[limits]\ntimeout = 90\ncores = 4\n[matrix]\nskip = ["*-cu126-*"]\ntorch = ["2.13"]\n'
        '[runners.build]\n"x86_64-linux" = "big"\n'
    )
    own = tmp_path / "kernels" / "one"
    own.mkdir(parents=True)
    (own / "kernel-actions.toml").write_text(
        '[limits]\ntimeout = 30\n[matrix]\ntorch = "2.12"\n[runners.test]\n"x86_64-linux" = "gpu"\n'
    )
    found = settings.load(own)
    assert found.limit("cpu").as_json() == {"timeout": 30, "cores": 4}
    assert {name: one.values for name, one in found.selectors.items()} == {
        "skip": ("*-cu126-*",),
        "torch": ("2.12",),
    }
    assert found.build_runner("x86_64-linux", "cpu") == ("big",)
    assert found.test_runner("x86_64-linux", "cpu") == ("gpu",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[limits]\ntimeout = 0\n",
            "toml:2:1: limits.timeout is 0, which is not a whole number of minutes from 1",
        ),
        ("[limits]\ntimeout = true\n", "limits.timeout is True"),
        ('[limits]\ncores = "4"\n', "limits.cores is 4, which is not a whole number of cores"),
        ("[limits.cuda]\ntime = 3\n", "key 'limits.cuda.time' is not known (did you mean timeout?)"),
        ("[limits.coda]\n", "key 'limits.coda' is not known (did you mean cuda?)"),
        ("[limits]\ncuda = 3\n", "limits.cuda is not a table"),
        ("[matrix]\nskip = [1]\n", "matrix.skip is not a list of strings"),
        ("[matrix]\nskp = []\n", "key 'matrix.skp' is not known (did you mean skip?)"),
    ],
)
def test_each_error_in_limits_and_selectors_says_what_and_where(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "kernel-actions.toml").write_text(text)
    with pytest.raises(WrongInput) as error:
        settings.load(tmp_path)
    assert message in str(error.value)
