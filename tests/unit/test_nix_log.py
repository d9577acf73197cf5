"""What Nix says while it builds, and what a build's output means: from recorded samples."""

# ruff: noqa: E501 - what Nix says is easier to read on one line

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from kernel_actions.errors import WrongInput
from kernel_actions.nix import building, diagnostics, store
from kernel_actions.nix.log import Log, plain, short_name

SAMPLES = Path(__file__).parent / "golden" / "nix"
STORE = "/nix/store/"


def _fed(name: str) -> Log:
    log = Log()
    for line in (SAMPLES / name).read_text().splitlines():
        log.feed(line)
    return log


# --- The log of Nix ---


def test_a_build_with_what_it_needs() -> None:
    log = _fed("built.log")
    assert [short_name(one) for one in log.built] == ["torch", "tiny-torch-ext"]
    assert (log.progress.built, log.progress.to_build, log.progress.remaining) == (2, 2, 0)
    assert log.building == [] and not log.fetched and not log.errors
    own = list(log.built)[1]
    assert log.phases[own] == "installPhase"
    assert "[1/2] Building cpp object csrc/luma.cpp.o" in log.lines[own]
    assert json.loads(log.output[-1])[0]["drvPath"] == own


def test_what_was_fetched_from_where() -> None:
    log = _fed("fetched.log")
    assert [(short_name(path), cache) for path, cache in log.fetched.items()] == [
        ("tiny-torch-ext", "file:///cache")
    ]
    assert (log.progress.fetched, log.progress.to_fetch, log.progress.bytes) == (1, 1, 16384)
    assert not log.built


def test_an_unsigned_path_is_warned_of_once_and_an_error_is_without_colours() -> None:
    log = _fed("failed.log")
    (warning,) = log.warnings
    assert warning.endswith("is not signed by any of the keys in 'trusted-public-keys'")
    assert log.errors[0].startswith("error: builder for '/nix/store/")
    assert "\x1b" not in log.errors[0] + "".join(log.lines[next(iter(log.lines))])


@pytest.mark.parametrize(
    "line",
    ["@nix ", "@nix {", "@nix []", '@nix {"action":"result"}', '@nix {"action":"start","id":"x","type":1}',
     '@nix {"action":"result","id":1,"type":101,"fields":[]}', '@nix {"action":"msg"}', "@nix " + "[" * 100_000],
)  # fmt: skip
def test_a_line_that_is_not_understood_is_no_error(line: str) -> None:
    log = Log()
    log.feed('@nix {"action":"start","id":1,"type":105,"fields":["/nix/store/x.drv"]}')
    assert log.feed(line) is None


def test_a_line_that_was_written_over_is_what_a_terminal_shows() -> None:
    assert plain("10 %\r20 %\r\x1b[1mdone\x1b[0m\r") == "done"
    assert plain("\x1b]0;title\x07text") == "text"


def test_of_what_is_printed_without_end_the_last_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernel_actions.nix.log._KEPT", 10_000)
    log = Log()
    log.feed('@nix {"action":"start","id":1,"type":105,"fields":["/nix/store/x.drv"]}')
    for number in range(1000):
        log.feed(f'@nix {{"action":"result","id":1,"type":101,"fields":["line {number}"]}}')
    kept = log.lines["/nix/store/x.drv"]
    assert kept[-1] == "line 999" and 100 < len(kept) < 200


def test_nothing_that_a_terminal_obeys_is_left_of_a_line() -> None:
    text = "\x1bc\x1b(Ba\x08\x07\x9b2J\x1b]0;t\tb"
    assert plain(text) == "\\x1bc\\x1b(Ba\\x08\\x07\\x9b2J0;t\tb"


def test_a_password_in_the_address_of_a_cache_is_not_told() -> None:
    log = Log()
    event = log.feed('@nix {"action":"start","id":1,"type":108,"fields":["/nix/store/x","https://a:b@h"]}')
    assert event is not None and event.text == "fetching /nix/store/x from https://***@h"
    assert log.fetched == {"/nix/store/x": "https://***@h"}
    log.feed('@nix {"action":"msg","level":1,"msg":"unable to download \'https://a:b@h/nar\'"}')
    assert list(log.warnings) == ["unable to download 'https://***@h/nar'"]


@pytest.mark.parametrize(
    ("text", "is_news"),
    [
        ("ignoring the client-specified setting 'sandbox-fallback', because it is a restricted setting and you "
         "are not a trusted user", False),
        ("ignoring the client-specified setting 'max-build-log-size', because it is a restricted setting", False),
        ("ignoring the client-specified setting 'sandbox', because it is a restricted setting", True),
        ("unable to download 'https://x/y': HTTP error 502; retrying in 263 ms", False),
        ("unable to download 'https://x/y': Couldn't connect to server (7)", True),
    ],
)  # fmt: skip
def test_what_a_daemon_says_of_our_own_settings_is_no_warning(text: str, is_news: bool) -> None:
    assert (building._NO_NEWS.search(text) is None) is is_news


# --- Compilers ---


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    for name in ("csrc/scale.cu", "csrc/luma.h", "torch-ext/b.cpp"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


@pytest.mark.parametrize(
    "folder",
    [
        "/build/source",
        "/build/0f9s9ma4vzcfb6wk5nh7g2dij3l8qxyp-source",
        "/tmp/nix-build-tiny-torch-ext.drv-0/source",
        "/private/tmp/nix-build-tiny-torch-ext.drv-12/source",
        "/nix/var/nix/builds/nix-build-tiny.drv-7-123/source",
        "/nix/var/nix/builds/nix-123-456/build/source",
        "/nix/store/0f9s9ma4vzcfb6wk5nh7g2dij3l8qxyp-source",
        "/tmp/chroot/nix/store/0f9s9ma4vzcfb6wk5nh7g2dij3l8qxyp-source",
        "/elsewhere/source",
        "/build/source/build/..",
    ],
)
def test_errors_are_at_the_kernel_s_lines_wherever_nix_builds(kernel: Path, folder: str) -> None:
    lines = [
        f'{folder}/csrc/scale.cu(3): error: identifier "x" is undefined',
        f"{folder}/torch-ext/b.cpp:4:5: error: expected ';'",
        f"In file included from {folder}/torch-ext/b.cpp:1:",
        "/nix/store/0f9s9ma4vzcfb6wk5nh7g2dij3l8qxyp-torch/include/ATen/x.h:9:1: error: no",
        f"{folder}/build/generated.cpp:1:1: error: of a generated file",
    ]
    found = diagnostics.errors(lines, kernel, "/elsewhere")
    assert [(one.path, one.line, one.column) for one in found] == [
        ("csrc/scale.cu", 3, None), ("torch-ext/b.cpp", 4, 5), ("torch-ext/b.cpp", 1, None), (None, None, None),
    ]  # fmt: skip
    assert str(kernel) not in "".join(one.message for one in found)


def test_relative_paths_are_those_of_the_kernel(kernel: Path) -> None:
    lines = [
        "../csrc/scale.cu(3): error: no",
        "csrc/luma.h:1:2: warning: hm [-Wall]",
        "other.cu(3): error: x",
    ]
    assert [one.path for one in diagnostics.errors(lines, kernel)] == ["csrc/scale.cu", None]
    assert diagnostics.warnings([*lines, lines[1]], kernel) == (
        diagnostics.Warned("hm [-Wall]", "csrc/luma.h", 1, 2),
    )
    old = ["/build/source/csrc/scale.cu(7): warning #177-D: variable was declared but never referenced"]
    assert diagnostics.warnings(old, kernel)[0].line == 7


def test_a_long_line_takes_no_long_time_and_no_file_s_name(kernel: Path) -> None:
    started = time.process_time()
    for part in ("/", "/store/", "/var/folders/", "a/", "../", "/build/source", "a:1:", "a(1): ", "\x1b["):
        line = part * (20_000 // len(part))
        for lines in (
            [line],
            [f"{line}:1:1: error: x"],
            [line, "/x/y.h:1:1: error: x"],
            [f"{line}: warning: x"],
        ):
            diagnostics.errors(lines, kernel)
            diagnostics.warnings(lines, kernel)
    assert time.process_time() - started < 5
    name, digits = "a" * 3000, "1" * 3000
    for line in (f"{name}:1: error: x", f"a.cu:{digits}: error: x", f"{kernel}/{name}(1): warning: x"):
        assert [one for one in diagnostics.errors([line], kernel) if one.path] == []
        assert diagnostics.warnings([line], kernel) == ()
    lines = ["ptxas info : Compiling entry function 'x' for 'sm_80'", f"ptxas info : Used {digits} registers"]
    assert diagnostics.registers(lines) == ()


def test_registers_are_told_with_those_that_spill_first() -> None:
    text = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5scalePfi' for 'sm_80'
ptxas info    : Function properties for _Z5scalePfi
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 24 registers, used 0 barriers, 360 bytes cmem[0]
ptxas info    : Compiling entry function '_ZN2ns12_GLOBAL__N_14fastILi4EEEvPf' for 'sm_90a'
ptxas info    : Function properties for _ZN2ns12_GLOBAL__N_14fastILi4EEEvPf
    64 bytes stack frame, 40 bytes spill stores, 44 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers
ptxas info    : Compile time = 5.123 ms
"""
    first, second = diagnostics.registers(text.splitlines())
    assert first == diagnostics.Registers("ns::(anonymous)::fast<…>", "sm_90a", 255, 64, 40, 44)
    assert second == diagnostics.Registers("scale", "sm_80", 24, 0, 0, 0)


def test_what_nvcc_13_says(tmp_path: Path) -> None:
    for name in ("helper.h", "broken.cu", "fine.cu"):
        (tmp_path / "csrc").mkdir(exist_ok=True)
        (tmp_path / "csrc" / name).write_text("")
    lines = (SAMPLES / "nvcc-13.0.log").read_text().splitlines()
    assert [(one.path, one.line, one.message) for one in diagnostics.errors(lines, tmp_path)] == [
        ("csrc/helper.h", 2, 'identifier "undefined_thing" is undefined'),
        ("csrc/broken.cu", 4, 'identifier "factor" is undefined'),
    ]
    message = 'variable "never" was declared but never referenced'
    assert diagnostics.warnings(lines, tmp_path) == (diagnostics.Warned(message, "csrc/fine.cu", 5, None),)
    assert [(one.name, one.architecture, one.registers) for one in diagnostics.registers(lines)] == [
        ("ns::scale<…>", "sm_80", 32), ("ns::(anonymous)::hidden", "sm_80", 23), ("plain", "sm_90", 8),
    ]  # fmt: skip


# --- Why it failed ---


@pytest.mark.parametrize(
    ("cause", "said", "lines"),
    [
        ("builder", "error: builder for '{drv}' failed with exit code 1;", ["error: no"]),
        ("builder", "error: Cannot build '{drv}'.\n       Reason: builder failed with exit code 2.\n", ["no"]),
        ("memory", "error: builder for '{drv}' failed with exit code 137;", []),
        ("memory", "error: builder for '{drv}' failed due to signal 9 (Killed)", []),
        ("memory", "error: Cannot build '{drv}'.\n       Reason: builder failed due to signal 9 (Killed).\n", []),
        ("memory", "error: builder for '{drv}' failed with exit code 1;", ["nvcc error   : 'cicc' died due to signal 9"]),
        ("disk", "error: builder for '{drv}' failed with exit code 1;", ["x: No space left on device"]),
        ("disk", "error: writing to file: No space left on device", []),
        ("disk", "error: executing SQLite statement: database or disk is full", []),
        ("network", "error: unable to download 'https://x': HTTP error 503", []),
        ("network", "error: unable to download 'https://x': Couldn't resolve host name (6)", []),
        ("network", "error: builder for '{drv}' failed with exit code 1;", ["curl: (56) Recv failure"]),
        ("builder", "error: builder for '{drv}' failed with exit code 1;", ["x.cu(1): error: curl"]),
        ("sandbox", "error: cloning builder process: No space left on device", []),
        ("sandbox", "error: this system does not support the kernel namespaces that are required for sandboxing", []),
        ("attribute", "error: flake 'x' does not provide attribute 'packages.x'", []),
        ("surroundings", "error: cannot connect to socket at '/nix/var/nix/daemon-socket/socket'", []),
        ("surroundings", "error: a 'aarch64-linux' with features {{}} is required to build '/x.drv'", []),
        ("evaluation", "error: attribute 'y' missing\n\n       at /x.nix:1:1", []),
        ("unknown", "", []),
    ],
)  # fmt: skip
def test_why_nix_failed(cause: str, said: str, lines: list[str]) -> None:
    drv = f"{STORE}0f9s9ma4vzcfb6wk5nh7g2dij3l8qxyp-tiny.drv"
    assert diagnostics.cause([said.format(drv=drv)], {drv: lines}).cause == cause


def test_an_error_of_the_evaluation_is_its_last_reason() -> None:
    said = "error:\n       … while calling the 'derivationStrict' builtin\n\n       error: undefined variable 'x'"
    assert diagnostics.cause([said], {}).text == "undefined variable 'x'"


# --- Options ---


@pytest.mark.parametrize(
    ("text", "seconds"), [("5h40m", 20400), ("90m", 5400), ("30s", 30), ("45", 45), ("1h 5min 3s", 3903)]
)
def test_time_limits(text: str, seconds: int) -> None:
    assert building.seconds(text) == seconds


@pytest.mark.parametrize(
    ("address", "cachix", "shown", "needs_token"),
    [
        ("file:///cache?secret-key=/k", "", "file:///cache", False),
        ("https://me:pw@host/x", "", "https://***@host/x", True),
        ("mine", "mine", "mine", True),
        ("cachix:mine", "mine", "cachix:mine", True),
        ("s3://bucket?region=x", "", "s3://bucket", False),
    ],
)
def test_caches_to_copy_to(address: str, cachix: str, shown: str, needs_token: bool) -> None:
    target = store.Target(address)
    assert (target.cachix, target.shown, target.needs_token) == (cachix, shown, needs_token)


# --- Addresses of caches ---


@pytest.mark.parametrize(
    "address",
    [
        "https://[::1",
        "https://host:99999",
        "file:///",
        "s3://",
        "http://",
        "https://me:hunter2@cache.example.org",
    ],
)
def test_an_address_that_is_none_or_has_a_password(address: str) -> None:
    with pytest.raises(WrongInput) as caught:
        store.target(address)
    assert "--push-to " in str(caught.value) and "hunter2" not in str(caught.value)


def test_an_address_may_name_a_user() -> None:
    found = store.target("https://me@cache.example.org/x")
    assert found.needs_token and not found.cachix and found.shown == "https://***@cache.example.org/x"
    with store._credentials(found, "hunter2") as (options, variables):
        netrc = Path(options[-1])
        assert netrc.read_text() == "machine cache.example.org\nlogin me\npassword hunter2\n"
        assert netrc.stat().st_mode & 0o777 == 0o600 and variables == {}
    assert not netrc.exists()
