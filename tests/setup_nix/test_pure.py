"""What setup-nix decides, without Nix: values in, values out."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_actions import setup_nix
from kernel_actions.errors import Place, WrongSurroundings
from kernel_actions.nix import configuration, diagnostics, disk, namespaces, preflight
from kernel_actions.nix.configuration import Found, Machine, Setting

HOSTED = Machine(cores=4, memory=16_000_000_000, disk=75_000_000_000)


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.conf").write_text(text)
    return folder / "nix.conf"


def test_a_nix_conf_is_read_as_nix_does(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "deep.conf").write_text("cores = 2\n!include not-there.conf\n")
    conf = write(
        tmp_path,
        nix="# a comment\n\nsandbox   =  true # why\nsubstituters = a   b\ninclude sub/deep.conf\n"
        "extra-substituters = c\n!include gone.conf\nmax-jobs =\n",
    )
    settings = configuration.read(conf)
    assert [(one.name, one.value, one.place.line) for one in settings] == [
        ("sandbox", "true", 3), ("substituters", "a b", 4), ("cores", "2", 1), ("extra-substituters", "c", 6),
        ("max-jobs", "", 8),
    ]  # fmt: skip
    assert settings[2].place.path == tmp_path / "sub" / "deep.conf"
    assert configuration.folded(settings) == {
        "sandbox": "true", "substituters": "a b c", "cores": "2", "max-jobs": "",
    }  # fmt: skip
    assert configuration.origin(settings, "substituters") == Place(conf, 6)
    assert configuration.origin(settings, "keep-going") is None


def test_what_stands_later_wins_and_replaces_what_was_appended() -> None:
    place = Place(Path("x"))
    lines = [("extra-substituters", "a"), ("substituters", "b"), ("extra-substituters", "c")]
    assert configuration.folded(Setting(*one, place) for one in lines) == {"substituters": "b c"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sandbox\n", "nix.conf:1: Nix refuses this line"),
        ("ok = 1\nsandbox: true\n", "nix.conf:2: Nix refuses this line"),
        ("include gone.conf\n", "gone.conf, which is not there"),
        ("include nix.conf\n", "includes itself"),
    ],
)
def test_a_nix_conf_that_nix_refuses_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(WrongSurroundings) as caught:
        configuration.read(write(tmp_path, nix=text))
    assert message in str(caught.value)


def test_a_nix_conf_that_cannot_be_read_is_empty(tmp_path: Path) -> None:
    assert configuration.read(tmp_path / "gone.conf") == []


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"HOME": "/h"}, ["/h/.config/nix/nix.conf", "/etc/xdg/nix/nix.conf"]),
        ({"HOME": "/h", "XDG_CONFIG_HOME": "/c", "XDG_CONFIG_DIRS": "/x:/y"},
         ["/c/nix/nix.conf", "/x/nix/nix.conf", "/y/nix/nix.conf"]),
        ({"HOME": "/h", "NIX_USER_CONF_FILES": "/a:/b"}, ["/a", "/b"]),
        ({"HOME": "/h", "NIX_USER_CONF_FILES": ""}, []),
        ({}, ["/etc/xdg/nix/nix.conf"]),
    ],
)  # fmt: skip
def test_the_users_files_are_those_of_nix(variables: dict[str, str], expected: list[str]) -> None:
    assert [str(one) for one in configuration.user_confs(variables)] == expected


@pytest.mark.parametrize(
    ("cores", "gigabytes", "expected"),
    [
        (4, 16, (1, 3)),  # a hosted runner: the memory is enough for three threads of nvcc
        (2, 7, (1, 1)),
        (1, 1, (1, 1)),
        (16, 64, (1, 12)),
        (32, 256, (2, 16)),
        (96, 768, (6, 16)),
        (192, 100, (1, 20)),
        (8, 1000, (1, 8)),
    ],
)
def test_threads_fit_into_memory_and_cores(cores: int, gigabytes: int, expected: tuple[int, int]) -> None:
    memory = gigabytes * 1_000_000_000
    jobs, of_each = configuration.jobs_and_cores(cores, memory)
    assert (jobs, of_each) == expected
    assert jobs * of_each <= cores
    assert jobs * of_each == 1 or jobs * of_each * 5_000_000_000 <= memory


def test_what_is_wanted_makes_nobody_trusted() -> None:
    lines = dict(configuration.wanted(HOSTED, {}, ["https://c"], ["k:1"]))
    assert not [name for name in lines if "trusted-user" in name]
    assert lines["extra-substituters"] == "https://c" and lines["extra-trusted-public-keys"] == "k:1"
    assert (lines["sandbox"], lines["sandbox-fallback"]) == ("true", "false")
    assert (lines["max-jobs"], lines["cores"]) == ("1", "3")
    assert (lines["min-free"], lines["max-free"]) == ("3750000000", "7500000000")


def test_what_others_have_set_is_kept() -> None:
    others = {
        "max-jobs": "auto", "cores": "2", "min-free": "1", "sandbox": "false", "keep-going": "false",
        "substituters": "https://theirs", "connect-timeout": "3",
    }  # fmt: skip
    lines = dict(configuration.wanted(HOSTED, others, [], []))
    assert not {"min-free", "keep-going", "connect-timeout", "substituters", "extra-substituters"} & set(
        lines
    )
    # Lower numbers stay, and `auto` is all cores, for which there is no memory.
    assert (lines["max-jobs"], lines["cores"]) == ("1", "2")
    assert lines["sandbox"] == "true"
    asked = dict(configuration.wanted(HOSTED, others, [], [], jobs=7, cores=9))
    assert (asked["max-jobs"], asked["cores"]) == ("7", "9")


def test_on_macos_the_sandbox_is_relaxed_for_the_compiler_of_metal() -> None:
    assert dict(configuration.wanted(HOSTED._replace(is_macos=True), {}, [], []))["sandbox"] == "relaxed"


def test_the_system_gets_no_more_than_a_daemon_refuses_from_a_client() -> None:
    lines = configuration.for_system(configuration.wanted(HOSTED, {}, ["https://c"], ["k:1"]))
    assert {"extra-substituters", "sandbox"} <= {name for name, _ in lines}
    assert not {"max-jobs", "cores", "keep-going"} & {name for name, _ in lines}


def test_what_another_job_has_asked_for_stays() -> None:
    before = {"substituters": "https://a https://b", "sandbox": "true"}
    lines = configuration.united([("extra-substituters", "https://b https://c"), ("sandbox", "true")], before)
    assert lines == [("extra-substituters", "https://a https://b https://c"), ("sandbox", "true")]


@pytest.mark.parametrize("content", ["", "a = 1", "a = 1\n", "!include mine.conf\na = 1\n"])
def test_an_include_is_added_once(content: str) -> None:
    once = configuration.with_include(content, "mine.conf")
    assert once.startswith(content) and once.endswith("\n")
    assert once.count("!include mine.conf\n") == 1
    assert configuration.with_include(once, "mine.conf") == once


def test_a_token_is_taken_out_with_its_line() -> None:
    content = "a = 1\naccess-tokens = github.com=secret\nb = 2"
    assert configuration.without_token(content, "secret") == "a = 1\nb = 2"
    assert configuration.without_token(content, "other") == content


@pytest.mark.parametrize(
    ("trusted", "expected"),
    [("root", False), ("root ann", True), ("@wheel", True), ("@other", False), ("*", True), ("", False)],
)
def test_who_is_trusted(trusted: str, expected: bool) -> None:
    assert configuration.is_trusted(trusted, "ann", ["users", "wheel"]) is expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.8.0", (2, 8)),
        ("2.35.1", (2, 35)),
        ("2.91.0", (2, 91)),
        ("2.24pre20240910", (2, 24)),
        ("3", (3, 0)),
    ],
)
def test_versions(version: str, expected: tuple[int, int]) -> None:
    assert Found(Path("/bin"), "Nix", version, True).number == expected


HASH = "a39gziyrb77zz8ckcffw1wbxpr6jq4rz"
DRY_RUNS = {
    "2.8": (
        f"these 2 derivations will be built:\n  /nix/store/{HASH}-gcc-14.3.0.drv\n"
        f"  /nix/store/{HASH}-relu-torch-ext.drv\n"
        "these 2 paths will be fetched (1.50 MiB download, 10.25 MiB unpacked):\n"
        f"  /nix/store/{HASH}-glibc-2.28\n  /nix/store/{HASH}-python3.13-torch-2.13.0\n",
        (2, 2, 1572864, 10747904),
    ),
    "one of each": (
        f"warning: Git tree '/k' is dirty\nthis derivation will be built:\n  /nix/store/{HASH}-x.drv\n"
        f"this path will be fetched (0.00 MiB download, 0.03 MiB unpacked):\n  /nix/store/{HASH}-y\n",
        (1, 1, 0, 31457),
    ),
    "2.30, in units that fit": (
        "these 3 paths will be fetched (2.4 GiB download, 7.0 GiB unpacked):\n"
        f"  /nix/store/{HASH}-a\n  /nix/store/{HASH}-b\n  /nix/store/{HASH}-c\n",
        (0, 3, 2576980378, 7516192768),
    ),
    "kilobytes": (
        f"this path will be fetched (12.0 KiB download, 1.0 KiB unpacked):\n  /nix/store/{HASH}-a\n",
        (0, 1, 12288, 1024),
    ),
    "with messages between": (
        f"evaluating file\nthese 1 derivations will be built:\n  /nix/store/{HASH}-x.drv\n"
        f"warning: error: unable to download; retrying\n  /nix/store/{HASH}-not-of-the-list\n",
        (1, 0, 0, 0),
    ),
    "nothing": ("", (0, 0, 0, 0)),
}


@pytest.mark.parametrize("name", DRY_RUNS)
def test_dry_runs_of_every_nix_are_read(name: str) -> None:
    output, expected = DRY_RUNS[name]
    build = preflight.parse_dry_run(output)
    assert (len(build.built), len(build.fetched), build.download, build.unpacked) == expected


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("python3.13-torch-2.13.0", "torch"),
        ("python3.12-torch-2.9.1+cu128", "torch"),
        ("torch-2.13.0", "torch"),
        ("python3.13-triton-3.4.0", "triton"),
        ("gcc-14.3.0", "gcc"),
        ("gcc13-unwrapped-13.4", "gcc"),
        ("glibc-2.28-164", "glibc"),
        ("llvm-19.1.7", "a compiler"),
        ("cuda13.0-cuda_nvcc-13.0.88", "CUDA"),
        # The kernel's own, and what is made in seconds.
        ("relu-torch-ext", ""),
        ("torch-ext-bundle", ""),
        ("torch-kernels-torch-ext", ""),
        ("gcc-wrapper-14.3.0", ""),
        ("python3.13-torchvision-0.24", ""),
        ("torch-2.13.0-cp313-cp313-manylinux_2_28_x86_64.whl", ""),
        ("gcc-14.3.0.tar.xz", ""),
        ("glibc-2.28.patch", ""),
    ],
)
def test_what_would_take_hours_is_told_from_what_does_not(name: str, kind: str) -> None:
    found = preflight.heavy([f"/nix/store/{HASH}-{name}.drv"])
    assert found == ([(name, kind)] if kind else [])


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ("kernel/apparmor_restrict_unprivileged_userns", "0", "--privileged"),
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces="),
        ("user/max_user_namespaces", "63000", "--privileged"),
        ("user/max_mnt_namespaces", "0", "user.max_mnt_namespaces="),
        ("other", "1", "--privileged"),
    ],
)
def test_what_refuses_a_sandbox_is_named_with_what_to_do(
    tmp_path: Path, setting: str, value: str, expected: str
) -> None:
    (tmp_path / setting).parent.mkdir(exist_ok=True)
    (tmp_path / setting).write_text(f"{value}\n")
    assert expected in namespaces.repair(tmp_path, may_administer=False, is_container=False)
    # What Ubuntu's AppArmor refuses to others it does not refuse to root, nor to a daemon.
    is_for_all = setting == "user/max_mnt_namespaces"
    for may, inside in ((True, False), (False, True)):
        said = namespaces.repair(tmp_path, may_administer=may, is_container=inside)
        assert (expected if is_for_all else "--privileged") in said


@pytest.mark.parametrize(
    "said",
    [
        "error: this system does not support the kernel namespaces that are required for sandboxing",
        "error: setting up a private mount namespace: Operation not permitted",
        "error: unable to make '/' private: Permission denied",
        "error: writing to file '/proc/4711/uid_map': Operation not permitted",
        "error: mounting /proc: Permission denied",
        "error: unable to start build process",
    ],
)
def test_a_sandbox_that_is_refused_is_told_by_every_nix(said: str) -> None:
    assert preflight._NAMESPACES.search(said)
    assert diagnostics.cause([said], {}).cause == "sandbox"


def test_torch_is_named_first() -> None:
    found = preflight.heavy([f"/nix/store/{HASH}-{name}.drv" for name in ("gcc-14.3.0", "torch-2.13.0")])
    assert [kind for _, kind in found] == ["torch", "gcc"]


def test_path_infos_of_every_nix_are_read() -> None:
    signed = '{"narHash":"sha256-x","signatures":["k:s"]}'
    path = f"/nix/store/{HASH}-x"
    for output in (
        f'[{{"path":"{path}","narHash":"sha256-x","signatures":["k:s"]}},{{"path":"/y","valid":false}}]don\'t',
        f'{{"{path}":{signed},"/y":null}}',
        f'{{"version":3,"storeDir":"/nix/store","info":{{"{HASH}-x":{signed},"y":null}}}}',
    ):
        infos = preflight.parse_path_info(f"warning: x\n{output}\n")
        assert list(infos) == [path]
        assert infos[path]["signatures"] == ["k:s"]
    assert preflight.parse_path_info("error: no") == {}


def test_the_disk_is_compared_with_the_plan(tmp_path: Path) -> None:
    needs = disk.needs(
        10, 2, 3, store=tmp_path / "not" / "there", build_dir=tmp_path, kernel_dir=tmp_path, jobs=2
    )
    assert [(one.what, one.size) for one in needs] == [
        ("store", 10 + 2 * disk.RESULT), ("builds", 2 * disk.BUILD_TREE), ("results", 2 * disk.RESULT),
    ]  # fmt: skip
    (space,) = disk.spaces(needs)
    assert space.needed == sum(one.size for one in needs)
    full = [space._replace(free=1), space._replace(free=space.needed - 1)]
    for is_hosted, was_freed, repair in (
        (True, False, "free-disk: true"), (True, True, "fewer variants"), (False, False, "fewer variants"),
    ):  # fmt: skip
        with pytest.raises(WrongSurroundings, match="would be full") as caught:
            disk.check(full, is_hosted=is_hosted, was_freed=was_freed)
        assert repair in str(caught.value) and len(caught.value.all) == 2
    disk.check([space._replace(free=space.needed)], is_hosted=True, was_freed=False)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"GITHUB_ACTIONS": "true", "RUNNER_ENVIRONMENT": "github-hosted", "RUNNER_OS": "Linux"}, True),
        ({"GITHUB_ACTIONS": "true", "RUNNER_ENVIRONMENT": "github-hosted", "RUNNER_OS": "macOS"}, False),
        ({"GITHUB_ACTIONS": "true", "RUNNER_ENVIRONMENT": "self-hosted", "RUNNER_OS": "Linux"}, False),
        ({"GITHUB_ACTIONS": "true", "RUNNER_OS": "Linux"}, False),
        ({"RUNNER_ENVIRONMENT": "github-hosted", "RUNNER_OS": "Linux"}, False),
        ({}, False),
    ],
)
def test_only_runners_of_github_are_cleared(variables: dict[str, str], expected: bool) -> None:
    assert disk.is_hosted(variables) is expected


def test_every_folder_that_is_removed_is_told_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "setup-nix.md").read_text()
    assert all(f"`/{folder}`" in page for folder, _ in disk.CARRIED)


def test_a_key_or_cache_that_is_none_is_refused() -> None:
    assert setup_nix._KEY.fullmatch(configuration.BUILDER_KEY)
    for key in ("name-1", "name:short=", "a b:" + "A" * 43 + "=", ""):
        assert not setup_nix._KEY.fullmatch(key)
    for address in ("https://a.example", "file:///x", "/mnt/cache", "s3://b?region=x"):
        assert setup_nix._ADDRESS.fullmatch(address)
    for address in ("cache.example.org", "--option", "javascript:x"):
        assert not setup_nix._ADDRESS.fullmatch(address)
