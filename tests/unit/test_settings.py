"""kernel-actions.toml."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from kernel_actions import matrix, settings, toml_file
from kernel_actions.cli import Options
from kernel_actions.errors import WrongInput
from kernel_actions.nix import building
from kernel_actions.options import COMMANDS

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "kernel-actions.schema.json").read_text())
FULL = """\
[limits]
timeout = 90
cores = 8
[limits.cuda]
jobs = 1024
[matrix]
only = "*-cu130-*"
skip = ["*-aarch64-*", "*-cpu-*"]
backends = []
systems = ["x86_64-linux"]
torch = ["2.13"]
[pipeline]
demo = "examples/photograph.py"
[release]
tag-prefix = "kernels/relu/"
[runners.build]
"x86_64-linux" = "big"
[runners.test]
"aarch64-darwin.metal" = ["self-hosted", "m4"]
"""


def test_defaults_without_a_file(tmp_path: Path) -> None:
    found = settings.load(tmp_path)
    assert found.build_runner("x86_64-linux", "cuda").labels == ("ubuntu-latest",)
    assert found.test_runner("x86_64-linux", "cuda").labels == ("self-hosted", "linux", "x64", "cuda")
    assert found.test_runner("aarch64-darwin", "metal").labels == ("macos-15",)


def test_backend_wins_over_system(tmp_path: Path) -> None:
    (tmp_path / "kernel-actions.toml").write_text(
        '[runners.test]\n"x86_64-linux" = "big"\n"x86_64-linux.cuda" = ["self-hosted", "h200"]\n'
    )
    found = settings.load(tmp_path)
    assert found.test_runner("x86_64-linux", "cuda").labels == ("self-hosted", "h200")
    assert found.test_runner("x86_64-linux", "cpu").labels == ("big",)


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
        ("runners = 1\n", "toml:1:11: runners is 1, which is not a table"),
        (
            '[runners.test]\n"x86" = ["a"]\n',
            "toml:2:1: [runners.test] has 'x86', which is not a system, or a system and a backend",
        ),
        (
            '[runners.test]\n"x86_64-linux" = []\n',
            "runners.test.x86_64-linux is an empty list, which is not a list of runner labels",
        ),
        (
            '[runners.test]\n"x86_64-linux".cuda = ["gpu"]\n',
            "runners.test.x86_64-linux is a table, which is not a list of runner labels, or a table with a "
            'group (as in "x86_64-linux.cuda" = ["self-hosted", "gpu"], with the quotes, or',
        ),
        (
            '[runners.test]\n"x86_64-linux" = { gruop = "gpus" }\n',
            "key 'runners.test.x86_64-linux.gruop' is not known (did you mean group?)",
        ),
        (
            '[runners.test]\n"x86_64-linux" = { labels = ["gpu"] }\n',
            '[runners.test.x86_64-linux] has no group (as in group = "gpus")',
        ),
        (
            '[runners.build]\n"x86_64-linux" = { group = "team/gpus" }\n',
            "runners.build.x86_64-linux.group is 'team/gpus', which is not the name of a runner group",
        ),
        ("[pipeline]\ndemo = 1\n", "pipeline.demo is 1, which is not a string"),
    ],
)
def test_each_error_says_what_and_where(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "kernel-actions.toml").write_text(text)
    with pytest.raises(WrongInput) as error:
        settings.load(tmp_path)
    assert message in str(error.value)


def test_a_runner_group_is_a_mapping_to_runs_on(tmp_path: Path) -> None:
    (tmp_path / "kernel-actions.toml").write_text(
        '[runners.build]\n"x86_64-linux" = { group = "aws-highmemory-32-plus-nix" }\n'
        '[runners.test]\n"x86_64-linux.cuda" = { group = "organization/gpus", labels = ["h100", "x64"] }\n'
    )
    found = settings.load(tmp_path)
    builds, tests = found.build_runner("x86_64-linux", "cpu"), found.test_runner("x86_64-linux", "cuda")
    assert builds.as_json() == {"group": "aws-highmemory-32-plus-nix"}
    assert tests.as_json() == {"group": "organization/gpus", "labels": ["h100", "x64"]}
    assert str(tests) == "group organization/gpus, h100, x64"
    # A backend without a GPU is tested where it is built.
    assert found.test_runner("x86_64-linux", "cpu") == builds
    # A group may have runners of one's own, whatever their labels are.
    assert not settings.is_hosted(settings.Runner(("ubuntu-latest",), "all"))


@pytest.mark.parametrize("name", ["gpus", "org/gpus", "enterprise/a b", "GPU_1"])
def test_names_of_runner_groups_that_github_takes(tmp_path: Path, name: str) -> None:
    (tmp_path / "kernel-actions.toml").write_text(
        f'[runners.test]\n"x86_64-linux" = {{ group = "{name}" }}\n'
    )
    assert settings.load(tmp_path).test_runner("x86_64-linux", "cuda").group == name


@pytest.mark.parametrize("name", ["", "org/", "/gpus", "org/a/b", "other/gpus"])
def test_names_that_it_does_not_take(tmp_path: Path, name: str) -> None:
    (tmp_path / "kernel-actions.toml").write_text(
        f'[runners.test]\n"x86_64-linux" = {{ group = "{name}" }}\n'
    )
    with pytest.raises(WrongInput, match="not the name of a runner group"):
        settings.load(tmp_path)


def test_globs_of_both_files_count_each_from_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".github").mkdir()
    (tmp_path / ".github" / "kernel-actions.toml").write_text('[changes]\nignore = ["tools/**"]\n')
    kernel = tmp_path / "relu"
    kernel.mkdir()
    (kernel / "kernel-actions.toml").write_text('[changes]\nignore = "demo"\nplan = ["CARD.md"]\n')
    found = settings.load(kernel)
    assert [(one.folder, one.pattern) for one in found.changes_ignore] == [
        (kernel, "demo"),
        (tmp_path, "tools/**"),
    ]
    assert [(one.folder, one.pattern) for one in found.changes_plan] == [(kernel, "CARD.md")]


def test_limits_of_a_backend_come_before_those_of_all(tmp_path: Path) -> None:
    (tmp_path / "kernel-actions.toml").write_text(
        "[limits]\ntimeout = 90\ncores = 8\n[limits.cuda]\ntimeout = 700\njobs = 2\n"
    )
    found = settings.load(tmp_path)
    assert found.limit("cuda").as_json() == {"timeout": 700, "cores": 8, "jobs": 2, "time_limit": "685m"}
    assert found.limit("cpu").as_json() == {"timeout": 90, "cores": 8, "time_limit": "75m"}
    assert settings.Settings().limit("cuda").as_json() == {}


@pytest.mark.parametrize("timeout", [1, 3, 4, 20, 60, 61, 355, 7200])
def test_a_build_stops_before_its_job_is_ended(timeout: int) -> None:
    limit = settings.Limits(timeout=timeout).as_json()["time_limit"]
    left = timeout - building.seconds(str(limit)) / 60
    # As the default of build, 5h40m, for the job of 355 minutes.
    assert left == min(timeout // 4, 15) and left < timeout


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
    assert found.limit("cpu").as_json() == {"timeout": 30, "cores": 4, "time_limit": "23m"}
    assert {name: one.values for name, one in found.selectors.items()} == {
        "skip": ("*-cu126-*",),
        "torch": ("2.12",),
    }
    assert found.build_runner("x86_64-linux", "cpu").labels == ("big",)
    assert found.test_runner("x86_64-linux", "cpu").labels == ("gpu",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[limits]\ntimeout = 0\n",
            "toml:2:11: limits.timeout is 0, which is not a whole number of minutes from 1",
        ),
        ("[limits]\ntimeout = true\n", "limits.timeout is true"),
        (
            '[limits]\ncores = "4"\n',
            "limits.cores is '4', which is not a whole number of cores from 1 to 1024 (write 4 without",
        ),
        ("[limits.cuda]\ntime = 3\n", "key 'limits.cuda.time' is not known (did you mean timeout?)"),
        ("[limits.coda]\n", "key 'limits.coda' is not known (did you mean cuda?)"),
        ("[limits]\ncuda = 3\n", "limits.cuda is 3, which is not a table"),
        ("[matrix]\nskip = [1]\n", "toml:2:9: matrix.skip has 1, which is not a string that is not empty"),
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


def _errors(folder: Path, text: str) -> list[str]:
    (folder / "kernel-actions.toml").write_text(text)
    try:
        settings.load(folder)
    except WrongInput as error:
        return [str(one).partition("kernel-actions.toml:")[2] for one in error.all]
    return []


def _is_valid(text: str) -> bool:
    # The kinds of numbers apart, as in TOML.
    types = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _checker, value: isinstance(value, int) and not isinstance(value, bool)
    )
    validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=types)
    return bool(validator(SCHEMA).is_valid(toml_file.tomllib.loads(text)))


def test_all_errors_are_told_at_once(tmp_path: Path) -> None:
    text = '[limits]\ntimeout = 7201\n[limits.coda]\n[matrix]\nskip = ["a", 2]\n[release]\ntag-prefix = "-"\n'
    assert _errors(tmp_path, text) == [
        "2:11: limits.timeout is 7201, which is not a whole number of minutes from 1 to 7200",
        "3:1: key 'limits.coda' is not known (did you mean cuda?)",
        '5:14: matrix.skip has 2, which is not a string that is not empty (write "2")',
        "7:14: release.tag-prefix is '-', which is not the start of a tag's name "
        '(as in "relu/": letters, digits and dashes, with slashes between)',
    ]


def test_the_schema_says_what_the_checker_says(tmp_path: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert _errors(tmp_path, FULL) == [] and _is_valid(FULL)
    changes = [
        ("timeout = 90", "timeout = 0"),
        ("timeout = 90", "timeout = 90.0"),
        ("timeout = 90", "timeout = true"),
        ("cores = 8", "core = 8"),
        ("jobs = 1024", "jobs = 1025"),
        ("limits.cuda", "limits.coda"),
        ('only = "*-cu130-*"', 'only = ""'),
        ('only = "*-cu130-*"', 'only = "a\\tb"'),
        ('only = "*-cu130-*"', "only = 1"),
        ('only = "*-cu130-*"', f'only = "{"[" * 100_000}"'),
        ('systems = ["x86_64-linux"]', "systems = [[]]"),
        ("[pipeline]", "[pipelines]"),
        ('demo = "examples/photograph.py"', "demo = []"),
        ("kernels/relu/", "kernels//relu/"),
        ("kernels/relu/", "x" * 101),
        ('"x86_64-linux" = "big"', '"x86_64-linux" = []'),
        ('"x86_64-linux" = "big"', '"x86_64-linux".cuda = ["big"]'),
        ("aarch64-darwin.metal", "aarch64-darwin.mteal"),
        ("aarch64-darwin.metal", "aarch64-drawin"),
    ]
    for before, after in changes:
        assert before in FULL
        text = FULL.replace(before, after)
        assert len(_errors(tmp_path, text)) == 1, after
        assert not _is_valid(text), after


def test_every_selector_is_an_option() -> None:
    assert set(settings.SELECTORS) <= {one.name for one in COMMANDS["matrix"].options}


def _described(part: dict[str, Any]) -> int:
    found = 0
    for inner in part.get("properties", {}).values():
        assert inner["description"].endswith("."), inner
        for example in inner.get("examples", ()):
            jsonschema.Draft202012Validator(inner).validate(example)
        found += 1 + _described(inner)
    return found


def test_every_key_is_described_and_every_example_is_right() -> None:
    assert _described(SCHEMA) > 40


def test_the_file_of_the_repository_is_read_once_and_its_errors_are_told_once(
    tmp_path: Path,
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".github").mkdir()
    shared = tmp_path / ".github" / "kernel-actions.toml"
    shared.write_text("[limits]\ntimeout = 0\n")
    for name in "ab":
        (tmp_path / name).mkdir()
    known: dict[Path, Any] = {}
    with pytest.raises(WrongInput):
        settings.load(tmp_path / "a", known)
    shared.write_text("[limits]\ntimeout = 9\n")
    assert settings.load(tmp_path / "a", known).limit("cpu").timeout == 9
    shared.unlink()
    shared.write_text("")
    assert settings.load(tmp_path / "b", known).limit("cpu").timeout == 9
    assert settings.load(tmp_path / "b").limit("cpu").timeout is None
    shared.write_text("[limits]\ntimeout = 0\n")
    with pytest.raises(WrongInput) as error:
        matrix._plan_all([tmp_path / "a", tmp_path / "b"], Options(builder_rev="", builder_dir=""))
    assert len(error.value.all) == 1


def test_what_lies_above_a_folder_outside_of_a_repository_is_not_read(tmp_path: Path) -> None:
    (tmp_path / ".github").mkdir()
    (tmp_path / ".github" / "kernel-actions.toml").write_text('[pipeline]\ndemo = "d.py"\n')
    (tmp_path / "kernel").mkdir()
    assert settings.load(tmp_path / "kernel").demo is None
    assert settings.load(tmp_path).demo == "d.py"


def test_what_the_kernel_says_in_general_comes_before_what_the_repository_says_of_a_backend(
    tmp_path: Path,
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".github").mkdir()
    (tmp_path / ".github" / "kernel-actions.toml").write_text(
        '[limits.cuda]\ntimeout = 700\ncores = 4\n[runners.test]\n"x86_64-linux.cuda" = "shared"\n'
    )
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "kernel-actions.toml").write_text(
        '[limits]\ntimeout = 30\n[runners.test]\n"x86_64-linux" = "own"\n'
    )
    found = settings.load(tmp_path / "one")
    assert found.limit("cuda").as_json() == {"timeout": 30, "cores": 4, "time_limit": "23m"}
    assert found.test_runner("x86_64-linux", "cuda").labels == ("own",)


def test_a_link_to_nowhere_is_no_absent_file(tmp_path: Path) -> None:
    (tmp_path / "kernel-actions.toml").symlink_to(tmp_path / "nowhere")
    with pytest.raises(WrongInput):
        settings.load(tmp_path)
