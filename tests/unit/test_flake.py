"""flake.nix: the torchVersions that a kernel gives to the builder, and the builder's own versions.nix."""

# ruff: noqa: E501 - a case of a table is easier to read on one line

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as given_any
from hypothesis import strategies as st
from kernel_actions.errors import WrongInput
from kernel_actions.flake import NeedsNix, read_versions, torch_versions

LINUX = ["x86_64-linux", "aarch64-linux"]
CPU = {"torchVersion": "2.12", "cpu": True, "systems": ["aarch64-darwin", *LINUX], "bundleBuild": True}
CUDA = {"torchVersion": "2.12", "cudaVersion": "12.6", "systems": LINUX, "bundleBuild": True}
OLD_XPU = {"torchVersion": "2.8", "xpuVersion": "2025.1.3", "systems": ["x86_64-linux"]}
NEW_XPU = {
    "torchVersion": "2.12",
    "xpuVersion": "2026.0",
    "systems": ["x86_64-linux"],
    "tvmFfiVersion": "0.1",
}
DEFAULTS: list[dict[str, Any]] = [CPU, CUDA, OLD_XPU, NEW_XPU]


def outputs(expression: str, formals: str = "{ self, kernel-builder }") -> str:
    """A flake whose outputs are ``expression``."""
    return f"""{{
  description = "A kernel";
  inputs.kernel-builder.url = "github:huggingface/kernels";
  outputs = {formals}:
    {expression};
}}
"""


def given(torch: str) -> str:
    """A flake that gives ``torch`` as torchVersions."""
    return outputs(
        "kernel-builder.lib.genKernelFlakeOutputs {\n"
        f"path = ./.; inherit self; torchVersions = {torch}; pythonCheckInputs = pkgs: with pkgs; [ numpy ]; }}"
    )


def result(tmp_path: Path, text: str, argument: Any = "function") -> list[dict[str, Any]] | None:
    """The build sets that the flake ``text`` makes of ``DEFAULTS``."""
    path = tmp_path / "flake.nix"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    override = torch_versions(path, DEFAULTS, argument)
    return None if override is None else override.build_sets


# The functions of public kernels, in words of our own

PUBLIC = {
    "all systems but x86_64-linux dropped": (
        'versions: builtins.map (v: v // { systems = builtins.filter (s: s == "x86_64-linux") v.systems; }) versions',
        [{**one, "systems": ["x86_64-linux"]} for one in DEFAULTS],
    ),
    "CPU on x86_64-linux alone": (
        'let keep = v: s: !(v ? "cpu") || s == "x86_64-linux"; in\n'
        "versions: map (v: v // { systems = builtins.filter (keep v) v.systems; }) versions",
        [{**CPU, "systems": ["x86_64-linux"]}, CUDA, OLD_XPU, NEW_XPU],
    ),
    "no old Torch for XPU": (
        'versions: let keep = v: s: !(v ? "cpu") || s == "x86_64-linux"; fewer = builtins.map\n'
        "(v: v // { systems = builtins.filter (keep v) v.systems; }) versions; in builtins.filter\n"
        '(v: !(v ? xpuVersion) || builtins.compareVersions v.torchVersion "2.9" >= 0) fewer',
        [{**CPU, "systems": ["x86_64-linux"]}, CUDA, NEW_XPU],
    ),
    "another ptxas": (
        "versions: builtins.map (v:\n"
        'if (v.cudaVersion or null) == "12.6" then v // { ptxasVersion = "12.8"; } else v) versions',
        [CPU, {**CUDA, "ptxasVersion": "12.8"}, OLD_XPU, NEW_XPU],
    ),
    "a set of its own": (
        '_defaults: [ { torchVersion = "2.12"; cudaVersion = "12.6"; bundleBuild = true;\n'
        'systems = [ "x86_64-linux" "aarch64-linux" ]; } ]',
        [CUDA],
    ),
}


@pytest.mark.parametrize(("torch", "expected"), PUBLIC.values(), ids=PUBLIC.keys())
def test_public_kernels(tmp_path: Path, torch: str, expected: list[dict[str, Any]]) -> None:
    assert result(tmp_path, given(torch)) == expected


CALL = (
    "kernel-builder.lib.genKernelFlakeOutputs { path = ./.; torchVersions = builtins.filter (v: v ? cpu); }"
)


@pytest.mark.parametrize(
    "text",
    [
        outputs(CALL),
        outputs(CALL.replace("genKernel", "gen")),
        outputs(CALL.replace("kernel-builder", "any-name"), "{ self, any-name, ... }"),
        outputs(CALL.replace("kernel-builder", "inputs.kernel-builder"), "inputs"),
        outputs(CALL.replace("kernel-builder", "inputs.kernel-builder"), "{ self, ... }@inputs"),
        outputs(f"let made = {CALL}; in made"),
        outputs(f"{CALL} // {{ formatter = self.none; }}"),
        outputs(f"{{ formatter = self.none; }} // {CALL}"),
        outputs(f"let made = {CALL}; in {{ inherit (made) packages devShells; }}"),
        outputs(f"let made = {CALL}; in {{ packages.x86_64-linux = made.packages.x86_64-linux // {{ a = 1; }}; }}"),
        outputs(CALL.replace("kernel-builder.lib.", "with kernel-builder.lib; ")),
        outputs("let inherit (kernel-builder.lib) genKernelFlakeOutputs; torchVersions = builtins.filter (v: v ? cpu);"
                " in genKernelFlakeOutputs { path = ./.; inherit torchVersions; }"),
        outputs("kernel-builder.lib.genKernelFlakeOutputs ({ path = ./.; } // nixpkgs.lib.optionalAttrs true"
                " { torchVersions = nixpkgs.lib.filter (v: v.cpu or false); })", "{ self, nixpkgs, kernel-builder }"),
        outputs("let inherit (nixpkgs) lib; in kernel-builder.lib.genKernelFlakeOutputs { torchVersions = all: with lib;"
                " filter (v: hasAttr \"cpu\" v) all; }", "{ self, nixpkgs, kernel-builder }"),
    ],
)  # fmt: skip
def test_forms_of_flakes(tmp_path: Path, text: str) -> None:
    assert result(tmp_path, text) == [CPU]


@pytest.mark.parametrize(
    "text",
    [
        outputs("kernel-builder.lib.genKernelFlakeOutputs { inherit self; path = ./.; }"),
        outputs("kernel-builder.lib.genKernelFlakeOutputs { path = ./${self.name}; rev = self.rev or null; }"),
        # What is not understood cannot give what is never named.
        outputs("flake-utils.lib.eachSystem [ ] (system: kernel-builder.lib.x.${system})", "{ self, flake-utils, kernel-builder }"),
    ],
)  # fmt: skip
def test_no_torch_versions(tmp_path: Path, text: str) -> None:
    assert result(tmp_path, text) is None


def test_no_flake(tmp_path: Path) -> None:
    assert torch_versions(tmp_path / "flake.nix", DEFAULTS, "function") is None


def test_place_is_told(tmp_path: Path) -> None:
    path = tmp_path / "flake.nix"
    path.write_text(outputs(CALL.replace("torchVersions", "\n\ntorchVersions")))
    override = torch_versions(path, DEFAULTS, "function")
    assert override is not None
    assert str(override.place) == f"{path}:7"


def test_list_for_the_oldest_builders(tmp_path: Path) -> None:
    text = given('[ { torchVersion = "2.12"; cudaVersion = "12.6"; systems = [ "x86_64-linux" ]; } ]')
    assert result(tmp_path, text, "list") == [
        {"torchVersion": "2.12", "cudaVersion": "12.6", "systems": ["x86_64-linux"]}
    ]
    with pytest.raises(WrongInput, match="torchVersions is not a function"):
        result(tmp_path, text)
    with pytest.raises(WrongInput, match="is a function, but the locked builder takes a list"):
        result(tmp_path, given("all: all"), "list")


ONE = '{{ torchVersion = "{}"; cpu = true; systems = [ "{}" ]; }}'


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("{ outputs = ", WrongInput, "flake.nix:1:13: is not valid Nix: unexpected end of the file"),
        ("[ ]", WrongInput, "is no attribute set"),
        ("{ }", WrongInput, "has no outputs"),
        ("\udcff", WrongInput, "flake.nix:1: is not UTF-8"),
        (" " * 1_000_001, WrongInput, "is larger than 1 MB"),
        (given("null"), WrongInput, "torchVersions is not a function"),
        (given("all: map (v: v.systms) all"), WrongInput, "attribute 'systms' missing"),
        (given("all: throw ''no\n::error::x''"), WrongInput, "the text throws: no ::error::x"),
        (given("all: let f = x: f x; in f 1"), WrongInput, "nested too deeply"),
        (given("all: { }"), WrongInput, "flake.nix:6: the build sets are not a list"),
        (given("all: [ 1 ]"), WrongInput, "build set 1 is not an attribute set"),
        (given("all: [ { } ]"), WrongInput, "a build set has no torchVersion"),
        (given("map (v: removeAttrs v [ \"cpu\" ])"), WrongInput, "build set of Torch 2.12 has no backend"),
        (given("map (v: v // { cpu = \"a\"; })"), WrongInput, "cpu of a build set is not true or false"),
        (given("map (v: v // { torchVersion = 2.9; })"), WrongInput, "torchVersion of a build set is not a string"),
        (given("map (v: v // { systems = \"a\"; })"), WrongInput, "systems of a build set is not a list"),
        (given("map (v: v // { systems = [ 1 ]; })"), WrongInput, "systems of a build set is not a list of strings"),
        (given("map (v: v // { f = x: x; })"), WrongInput, "a function where data is expected"),
        (given("all: builtins.genList (x: builtins.head all) 1001"), WrongInput, "there are 1001 build sets"),
        (given("all: builtins.genList (x: builtins.head all) 100000"), WrongInput, "flake.nix"),
        *((given(f"all: [ {ONE.format(bad, 'x86_64-linux')} ]"), WrongInput, "torchVersion of a build set has")
          for bad in ("2.9;rm", "2.9\\n", "../2", "$(id)", "", "-a", "2 9", "é", "2..9", "9" * 101)),
        *((given(f"all: [ {ONE.format('2.9', bad)} ]"), WrongInput, "systems of a build set has")
          for bad in ("x86_64-linux\\n", "a/../b", "`id`", "", "a b", "\\\\")),
        (given("import ./versions.nix"), NeedsNix, "flake.nix:6:43: import cannot be evaluated without Nix"),
        (given("all: builtins.filter (v: builtins.match \"2.*\" v.torchVersion != null) all"), NeedsNix,
         "builtins.match cannot be evaluated without Nix (install Nix, which is then asked, or write it with"),
        (outputs("flake-utils.lib.eachDefaultSystem (s: { torchVersions = 1; })", "{ self, flake-utils }"), NeedsNix,
         "lib.eachDefaultSystem"),
        (outputs("kernel-builder.lib.genKernelFlakeOutputs (import ./arguments.nix)"), NeedsNix, "import"),
        (outputs(f"{{ packages.a = ({CALL}).packages; packages.b = (kernel-builder.lib.genFlakeOutputs "
                 "{ }).packages; }"), NeedsNix, "several calls"),
        (outputs(f"{CALL} // {{ packages = {{ a = 1; }}; }}"), NeedsNix, "packages that are not the builder's"),
        (given("all: if self ? rev then all else [ ]"), NeedsNix, "the input self.rev"),
    ],
)  # fmt: skip
def test_errors(tmp_path: Path, text: str, kind: type[WrongInput], message: str) -> None:
    with pytest.raises((WrongInput, NeedsNix)) as caught:
        result(tmp_path, text)
    assert type(caught.value) is kind
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == (3 if kind is NeedsNix else 2)


TEXTS = [given(torch) for torch, _ in PUBLIC.values()] + [
    outputs(f"let made = {CALL}; in made // {{ a = 1; }}")
]
PIECES = [
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    '"',
    "''",
    "${",
    ";",
    ":",
    "=",
    ".",
    " ",
    "\n",
    "rec ",
    "with ",
    "//",
    "++",
    "a",
    "é",
    "\0",
]


@settings(
    max_examples=150,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given_any(
    st.sampled_from(TEXTS),
    st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 30), st.sampled_from(PIECES) | st.text(max_size=3)),
        max_size=4,
    ),
)
def test_changed_flakes_give_build_sets_or_an_error(
    tmp_path: Path, text: str, changes: list[tuple[float, int, str]]
) -> None:
    for where, removed, piece in changes:
        start = int(where * len(text))
        text = text[:start] + piece + text[start + removed :]
    try:
        result(tmp_path, text)
    except (WrongInput, NeedsNix) as error:
        assert "flake.nix" in str(error)


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "flake.nix")
    with pytest.raises(WrongInput, match="not a regular file"):
        torch_versions(tmp_path / "flake.nix", DEFAULTS, "function")


def test_is_fast(tmp_path: Path) -> None:
    path = tmp_path / "flake.nix"
    path.write_text(given(PUBLIC["no old Torch for XPU"][0]))
    times = []
    for _ in range(20):
        start = time.process_time()
        torch_versions(path, DEFAULTS * 8, "function")
        times.append(time.process_time() - start)
    # About 2 ms.
    assert min(times) < 0.02


VERSIONS = """# The builder's
[
  {
    torchVersion = "2.12";
    cpu = true;
    # why
    systems = [ "x86_64-linux" "aarch64-linux" ];
    bundleBuild = false;
  }
  { torchVersion = "2.12"; cudaVersion = "13.0"; systems = [ ]; }
]
"""


def test_versions_are_read() -> None:
    assert read_versions(VERSIONS, Path("versions.nix")) == [
        {"torchVersion": "2.12", "cpu": True, "systems": LINUX, "bundleBuild": False},
        {"torchVersion": "2.12", "cudaVersion": "13.0", "systems": []},
    ]


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("{ lib }: [ ]", NeedsNix, "versions.nix:1: is a function, as in builders before 2025-06-27"),
        ("version: [ ]", NeedsNix, "is a function"),
        ("", WrongInput, "versions.nix:1:1: is not valid Nix"),
        ("{ }", WrongInput, "versions.nix:1:1: is not a plain list"),
        (VERSIONS.replace("cpu = true;", ""), WrongInput, "versions.nix:3: build set of Torch 2.12 has no backend"),
        (VERSIONS.replace("true", "1"), WrongInput, "versions.nix:5: cpu of a build set is not true or false"),
        (VERSIONS.replace("x86_64-linux", "a;b"), WrongInput, "versions.nix:7: systems of a build set has 'a;b'"),
        (VERSIONS.replace('"13.0"', '"1${"3"}"'), WrongInput, "versions.nix:10:42: is not a plain list"),
        (VERSIONS.replace("{ t", "rec { t"), WrongInput, "versions.nix:10:3: is not a plain list"),
        (VERSIONS.replace("true", "yes"), WrongInput, "a value that has to be evaluated"),
        ("[" + ONE.format("2", "a") * 1001 + "]", WrongInput, "there are 1001 build sets, more than 1000"),
        ("[" * 100_000, WrongInput, "more than 40000 tokens"),
    ],
)  # fmt: skip
def test_wrong_versions(text: str, kind: type[WrongInput], message: str) -> None:
    with pytest.raises((WrongInput, NeedsNix)) as caught:
        read_versions(text, Path("versions.nix"))
    assert isinstance(caught.value, kind)
    assert message in str(caught.value)


def test_a_line_is_named_only_if_there_is_one_that_it_can_be(tmp_path: Path) -> None:
    decoy = "let unused = { torchVersions = 1; }; in"
    text = (
        '{ inputs.kb.url = "x";\n outputs = { self, kb }: DECOY\n'
        " kb.lib.genKernelFlakeOutputs {\n torchVersions = all: [ ]; }; }\n"
    )
    path = tmp_path / "flake.nix"
    for added, line in (("", 4), (decoy, None)):
        path.write_text(text.replace("DECOY", added))
        found = torch_versions(path, [], "function")
        assert found is not None and found.place.line == line
