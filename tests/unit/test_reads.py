"""Which files of a repository a kernel's build and tests can read."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest
from kernel_actions import reads
from kernel_actions.reads import Reads

from tests.unit.kernels import CUDA

FLAKE = """\
{
  inputs.kernel-builder.url = "github:huggingface/kernels";
  outputs = { self, kernel-builder, ... }:
    kernel-builder.lib.genKernelFlakeOutputs { inherit self; path = ./.; };
}
"""


def _repository(root: Path, files: dict[str, str]) -> None:
    defaults = {
        "gray/build.toml": CUDA,
        "gray/flake.nix": FLAKE,
        "gray/k/k.cu": "",
        "gray/tests/test_k.py": "",
    }
    for name, text in {**defaults, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _read(root: Path, files: dict[str, str] | None = None) -> Reads:
    _repository(root, files or {})
    return reads.of_kernel((root / "gray").resolve(), root.resolve())


def _concerned(found: Reads, *paths: str) -> list[str]:
    return [path for path in paths if found.why(PurePosixPath(path))]


def test_of_its_own_folder_all_counts_but_what_is_for_people(tmp_path: Path) -> None:
    found = _read(tmp_path)
    read = [
        "gray/build.toml", "gray/flake.lock", "gray/k/k.cu", "gray/k/new.h", "gray/nix/x.nix",
        "gray/setup.py", "gray/tests/data/expected.png", "gray/torch-ext/edge/README.md",
        "gray/.gitattributes", "gray/scripts/x.py",
    ]  # fmt: skip
    assert _concerned(found, *read) == read
    others = [
        "gray/README.md", "gray/CARD.md", "gray/LICENSE", "gray/docs/a.png", "gray/benchmarks/benchmark.py",
        "gray/.clang-format", "gray/.github/workflows/x.yml",
    ]  # fmt: skip
    assert _concerned(found, *others) == []


def test_a_text_that_a_build_or_test_names_is_read(tmp_path: Path) -> None:
    build = CUDA.replace('"k/k.cu"', '"k/k.cu", "k/table.md"')
    found = _read(
        tmp_path,
        {
            "gray/build.toml": build,
            "gray/flake.nix": FLAKE.replace("inherit self;", "inherit self; readme = ./README.md;"),
            "gray/tests/test_k.py": "from benchmarks import benchmark\n",
        },
    )
    paths = ["gray/k/table.md", "gray/README.md", "gray/benchmarks/benchmark.py"]
    assert _concerned(found, *paths, "gray/CARD.md", "gray/k/other.md") == paths


IMPORT = FLAKE.replace("path = ./.;", "path = ./.; torchVersions = import ../nix/torch.nix;")
# What a file of the kernel says, and the changed files outside of its folder that then concern it.
OUTSIDE = {
    "an import of flake.nix": (
        {"gray/flake.nix": IMPORT},
        ["nix/torch.nix"],
        ["nix/other.nix", "flake.nix", "flake.lock"],
    ),
    "what that imports": (
        {
            "gray/flake.nix": IMPORT,
            "nix/torch.nix": "import ./more.nix // import ../lib/all.nix",
        },
        ["nix/torch.nix", "nix/more.nix", "lib/all.nix"],
        ["lib/none.nix"],
    ),
    "an input that is a folder": (
        {"gray/flake.nix": FLAKE.replace("inputs.", 'inputs.common.url = "path:../common";\n  inputs.', 1)},
        ["common/flake.nix", "common/a/b.h"],
        ["flake.nix", "commons/x"],
    ),
    "an input that flake.lock names": (
        {"gray/flake.lock": '{"nodes": {"x": {"locked": {"type": "path", "path": "../common"}}}}'},
        ["common/flake.nix"],
        ["flake.lock"],
    ),
    "a path that is put together": (
        {"gray/flake.nix": FLAKE.replace("path = ./.;", 'path = ./.; x = ./. + "/.." + "/common/x.nix";')},
        ["common/x.nix", "scripts/x.py"],
        [],
    ),
    "a path in a value": (
        {"gray/flake.nix": FLAKE.replace("path = ./.;", 'path = ./.; x = ./${"a"}/../../common;')},
        ["common/x.nix"],
        [],
    ),
    "the flake itself as a folder": (
        {"gray/flake.nix": FLAKE.replace("path = ./.;", 'path = ./.; x = "${self}/x";')},
        ["anything.txt"],
        [],
    ),
    "a source of build.toml": (
        {"gray/build.toml": CUDA.replace('"k/k.cu"', '"k/k.cu", "../common/x.h"')},
        ["common/x.h"],
        ["common/y.h"],
    ),
    "an option of the compiler": (
        {"gray/build.toml": CUDA + 'cuda-flags = ["-I../common"]\n'},
        ["common/x.h"],
        ["x.h"],
    ),
    "an include of a source, and what that includes": (
        {
            "gray/k/k.cu": '#include <torch/all.h>\n  # include "../../common/x.h"\n',
            "common/x.h": '#include "inner/y.h"\n#include "../other/z.h"\n',
        },
        ["common/x.h", "common/inner/y.h", "other/z.h"],
        ["common/z.h", "other/y.h"],
    ),
    "an include that leaves the folder and comes back": (
        {"gray/k/k.cu": '#include "../k/x.h"\n', "gray/k/x.h": ""},
        [],
        ["k/x.h", "x.h"],
    ),
    "a folder of headers": (
        {"gray/build.toml": CUDA + 'include = ["../common"]\n', "gray/k/k.cu": "#include <x.h>\n"},
        ["common/x.h"],
        [],
    ),
    "a test": (
        {"gray/tests/test_k.py": 'open(os.path.join(dirname(__file__), "..", "..", "shared", "x.json"))'},
        ["shared/x.json"],
        ["other/x.json"],
    ),
    "a test that runs in the kernel's folder": (
        {"gray/tests/test_k.py": 'open("../shared/x.json")'},
        ["shared/x.json"],
        ["other/x.json"],
    ),
    "a test that climbs": (
        {"gray/tests/deep/test_k.py": "ROOT = Path(__file__).resolve().parents[3]\n"},
        ["shared/x.json"],
        [],
    ),
    "a test that climbs step by step": (
        {"gray/tests/test_k.py": "ROOT = Path(__file__).parent.parent.parent\n"},
        ["shared/x.json"],
        [],
    ),
    "a test that climbs to its kernel": (
        {"gray/tests/test_k.py": "Path(__file__).parents[1]\nos.path.dirname(os.path.dirname(__file__))\n"},
        [],
        ["shared/x.json"],
    ),
    "nothing": (
        {"gray/k/k.cu": "// as in f(a, ...): 1..2 ...\n", "gray/k/__init__.py": "a = x[..., 0]\n"},
        [],
        [".github/workflows/x.yml", "scripts/x.py", "flake.lock", "flake.nix", "README.md", "blur/k.cu"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", list(OUTSIDE))
def test_outside_of_its_folder_what_something_leads_to_counts(tmp_path: Path, case: str) -> None:
    files, read, others = OUTSIDE[case]
    found = _read(tmp_path, files)
    assert _concerned(found, *read, *others) == read


def test_links_lead_out(tmp_path: Path) -> None:
    _repository(tmp_path, {"common/x.h": "", "blur/k/y.h": ""})
    (tmp_path / "gray" / "common").symlink_to("../common")
    (tmp_path / "gray" / "k" / "y.h").symlink_to("../../links/y.h")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "y.h").symlink_to("../blur/k/y.h")
    found = reads.of_kernel(tmp_path / "gray", tmp_path)
    paths = ["common/x.h", "links/y.h", "blur/k/y.h"]
    assert _concerned(found, *paths, "blur/k/z.h") == paths


def test_a_submodule_outside_is_one_entry(tmp_path: Path) -> None:
    found = _read(tmp_path, {"gray/k/k.cu": '#include "../../third_party/lib/include/x.h"\n'})
    assert _concerned(found, "third_party/lib", "third_party/other") == ["third_party/lib"]


def test_what_is_about_all_folders_below_it(tmp_path: Path) -> None:
    found = _read(tmp_path)
    paths = [".gitattributes", "conftest.py", "pytest.ini", "pyproject.toml"]
    assert _concerned(found, *paths, "blur/.gitattributes", "blur/conftest.py", ".gitignore") == paths


def test_a_loop_of_links_and_a_pipe_are_no_trouble(tmp_path: Path) -> None:
    import os

    _repository(tmp_path, {})
    (tmp_path / "gray" / "loop").symlink_to("loop")
    (tmp_path / "gray" / "round").symlink_to(".")
    os.mkfifo(tmp_path / "gray" / "k" / "pipe.h")
    assert _concerned(reads.of_kernel(tmp_path / "gray", tmp_path), "x.h") == []


@pytest.mark.parametrize(
    ("files", "submodule", "is_used"),
    [
        ({"gray/build.toml": CUDA.replace('"k/k.cu"', '"k/k.cu", "third/a.h"')}, "gray/third", True),
        ({"gray/build.toml": CUDA + 'include = ["third/lib/include"]\n'}, "gray/third/lib", True),
        # Of torch-ext and tests the builder takes files by their suffix.
        ({}, "gray/torch-ext/edge/third", True),
        ({}, "gray/tests/data", True),
        ({}, "gray/docs/theme", False),
        ({"gray/k/k.cu": '#include "../library/x.h"\n'}, "gray/library", True),
        ({"gray/k/k.cu": "#include <library/x.h>\n"}, "gray/library", True),
        ({"gray/flake.nix": FLAKE.replace("./.;", "./.; x = ./library/x.nix;")}, "gray/library", True),
        ({"gray/k/k.cu": "#include <other/x.h>\n"}, "gray/library", False),
        ({}, "blur/third", False),
        ({"gray/k/k.cu": '#include "../../third/x.h"\n'}, "third", True),
        ({"gray/flake.nix": FLAKE.replace("./.;", "./.; x = ../third/x.nix;")}, "third", True),
        ({}, "third", False),
    ],
)
def test_which_submodules_are_used(
    tmp_path: Path, files: dict[str, str], submodule: str, is_used: bool
) -> None:
    assert _read(tmp_path, files).uses_submodule(PurePosixPath(submodule)) is is_used
