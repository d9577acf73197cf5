"""build.toml: what is read, and what is said about what is wrong."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kernel_actions import manifest
from kernel_actions.errors import WrongInput

from tests.unit.kernels import CUDA


def test_all_fields_are_read(kernel_dir: Callable[..., Path]) -> None:
    text = CUDA.replace(
        'repo-id = "kernels-test/edge"\n',
        'repo-id = "kernels-test/edge"\n\n[general.cuda]\nminver = "12.6"\nmaxver = "13.0"\n'
        'python-depends = ["nvidia-cutlass-dsl"]\n'
        'kernel-depends = [{ repo-id = "a/b", version = 2 }, { repo-id = "a/c", revision = "main" }]\n',
    )
    kernel = manifest.load(kernel_dir(text))
    assert (kernel.name, kernel.python_name, kernel.version, kernel.edition) == ("edge", "edge", 1, 5)
    assert (kernel.cuda_minver, kernel.cuda_maxver) == ("12.6", "13.0")
    assert kernel.all_python_depends("cuda") == ("nvidia-cutlass-dsl",)
    assert kernel.all_python_depends("cpu") == ()
    first, second = kernel.all_kernel_depends("cuda")
    assert (first.repo_id, first.version, first.revision) == ("a/b", 2, None)
    assert (second.repo_id, second.version, second.revision) == ("a/c", None, "main")
    assert kernel.components[0].src == ("k/k.cu",)
    assert kernel.compiled_for("cuda") and not kernel.compiled_for("cpu")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "edge"\n', "", "build.toml:1:1: [general] has no name"),
        ('name = "edge"', 'name = "Edge"', "build.toml:2:1: name 'Edge' is not a kernel's name"),
        ('name = "edge"', "name = 3", "build.toml:2:1: general.name is 3, which is not a string"),
        ("version = 1", "version = -1", "build.toml:3:1: general.version is -1"),
        ("version = 1", "version = true", "build.toml:3:1: general.version is True"),
        ("edition = 5", "edition = 6", "build.toml:5:1: edition 6 is not known"),
        ('["cuda"]', '"cuda"', "build.toml:6:1: general.backends is 'cuda', which is not a list of strings"),
        ('["cuda"]', '["cudda"]', "build.toml:6:1: backend 'cudda' is not known (did you mean cuda?)"),
        (
            "license",
            "licence",
            "build.toml:4:1: key 'general.licence' is not known (did you mean license?; also ",
        ),
        ('repo-id = "kernels-test/edge"', 'repo-id = "edge"', "build.toml:9:1: repo-id 'edge' is not of the"),
        (
            "[torch]",
            "[torch]\nminver = 2.10",
            'torch.minver is 2.1, which is not a version in quotes (write "2',
        ),
        ("[torch]", '[torch]\nstable-abi = { coda = "2.10" }', "key 'torch.stable-abi.coda' is not known"),
        ("[torch]", "[tvm-ffi]\nsrc = []\n[torch]", "has [torch] and [tvm-ffi]"),
        ('[torch]\nsrc = ["torch-ext/torch_binding.cpp"]', "", "has none of [torch], [torch-noarch]"),
        ('backend = "cuda"\n', "", "build.toml:14:1: [kernel.k] has no backend"),
        ('backend = "cuda"\n', 'backend = "tpu"\n', "build.toml:15:1: kernel.k.backend is 'tpu'"),
        ('depends = ["torch"]\n', "", "[kernel.k] has no depends"),
        ('src = ["k/k.cu"]', 'src = ["k/k.cu", 1]', "kernel.k.src is ['k/k.cu', 1]"),
        ('src = ["k/k.cu"]', "src = []\nsycl-flags = []", "key 'kernel.k.sycl-flags' is not known"),
        ("[kernel.k]", "[kernels.k]", "key 'kernels' is not known (did you mean kernel?)"),
        ("version = 1", "version = 1\nkernel-depends = [{}]", "which is not a list of kernels"),
        ("[general]", "[[general]]", "has no [general] section"),
        (
            "edition = 5",
            'edition = "5"',
            "build.toml:5:1: general.edition is '5', which is not a whole number",
        ),
        ("version = 1", f"version = {'1' * 5000}", "build.toml:3: has a number that is too long"),
        ("version = 1", f"version = 0x{'f' * 5000}", "build.toml:3: has a number that is too long"),
        (
            "version = 1",
            f"version = {2**63}",
            "build.toml:3:1: general.version is 9223372036854775808, which",
        ),
        ('"edge"', f'"{"e" * 65}"', "build.toml:2:1: the name has 65 characters (use 64 or fewer"),
        ("[torch]", '[torch]\nminver = "²"', "build.toml:12:1: torch.minver is '²', which is not a version"),
        ("[torch]", f'[torch]\nmaxver = "{"1" * 5000}"', "build.toml:12:1: torch.maxver is '111"),
        ("[torch]", '[torch]\nstable-abi = "abc"', "build.toml:12:1: torch.stable-abi is 'abc'"),
        ("[torch]", '[torch]\nstable-abi = { cuda = "2.a" }', "torch.stable-abi.cuda is '2.a', which is not"),
        ('depends = ["torch"]', 'depends = []\ncuda-capabilities = [""]', "which is not a list of compute"),
        ("[kernel.k]", "[kernel.'k k']", "build.toml:14:1: [kernel] has 'k k', which is not a section's"),
        ("[kernel.k]", '[kernel."k\\nmessage()"]', r"build.toml:14:1: [kernel] has 'k\nmessage()', which"),
        ("version = 1", "version = 1\npython-depends = ['a\"]']", "is not a list of names of packages"),
        (
            'src = ["k/k.cu"]',
            'src = ["k/k.cu"]\ncuda-flags = ["a\\nb"]',
            "cuda-flags has the control character",
        ),
        ('"Apache-2.0"', '"""Apache\n2.0"""', "build.toml:4:1: general.license has the control character"),
        (
            "version = 1",
            "version = 1\nkernel-depends = [{ repo-id = 'a/b', version = -1 }]",
            "a list of kernels",
        ),
    ],
)
def test_each_error_says_what_and_where(
    kernel_dir: Callable[..., Path], old: str, new: str, message: str
) -> None:
    assert old in CUDA
    with pytest.raises(WrongInput) as error:
        manifest.load(kernel_dir(CUDA.replace(old, new, 1)))
    assert message in str(error.value)
    assert str(error.value).count("\n") == 0


def test_further_errors_are_counted(kernel_dir: Callable[..., Path]) -> None:
    text = CUDA.replace("version = 1", "version = -1").replace("license", "licence")
    with pytest.raises(WrongInput, match=r"-1, .* \(also line 4: .*licence.*; also line 1: .*has no license"):
        manifest.load(kernel_dir(text))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[general\nname = 1", "build.toml:1:9: is not valid TOML"),
        (b"[general]\nname = 'a", "build.toml:2:"),
        (b"[general]\nname = \xff", "build.toml:2: is not UTF-8"),
        (b"a = 1\n" * 300_000, "larger than 1 MB"),
        (b"a = " + b"[" * 50_000, "nested too deeply"),
        (b"[general]\nname = '\x1b[31m'", r"\x1b"),
        (b"[general" + b".a" * 3000 + b"]", "nested too deeply"),
        (b"[general]\na" + b".a" * 300_000 + b" = 1", "build.toml:2: is nested too deeply"),
        (b"[general]\nx" + b" " * 4000 + b"\n[ " + b" " * 900_000 + b"\n", "is not valid TOML"),
    ],
)
def test_broken_files(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "build.toml").write_bytes(data)
    with pytest.raises(WrongInput) as error:
        manifest.load(tmp_path)
    assert message in str(error.value)
    assert "\x1b" not in str(error.value)


def test_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match=r"build\.toml: there is no such file \(give the folder"):
        manifest.load(tmp_path)


def test_folder_in_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "build.toml").mkdir()
    with pytest.raises(WrongInput, match="cannot be read"):
        manifest.load(tmp_path)


def test_reading_takes_no_longer_for_odd_lines(kernel_dir: Callable[..., Path]) -> None:
    odd = ["#" + " " * 200_000, "[" * 200_000 + "#", "x" + " " * 4000 + "#"]
    started = time.monotonic()
    for text in (CUDA + "\n".join(f"# {line}" for line in odd), CUDA + " " * 800_000):
        assert manifest.load(kernel_dir(text)).name == "edge"
    with pytest.raises(WrongInput, match="and 46 more"):
        manifest.load(kernel_dir(CUDA + "".join(f"a{number} = 1\n" for number in range(20_000))))
    assert time.monotonic() - started < 5


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "build.toml")
    with pytest.raises(WrongInput, match="cannot be read: it is not a regular file"):
        manifest.load(tmp_path)


def test_a_folder_that_no_output_can_name_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"kernel\xff")
    folder.mkdir()
    (folder / "build.toml").write_text(CUDA)
    with pytest.raises(WrongInput, match="the path of the kernel's folder is not UTF-8") as error:
        manifest.load(folder)
    assert str(error.value).encode()


@pytest.mark.parametrize("header", ['["kernel".k]', "[ kernel . k ] # it", "['kernel'.\"\\u006b\"]"])
def test_tables_are_placed_whichever_way_they_are_written(
    kernel_dir: Callable[..., Path], header: str
) -> None:
    text = CUDA.replace("[kernel.k]", header).replace('src = ["k/k.cu"]', 'src = [\n  ["k"],\n]')
    with pytest.raises(WrongInput, match=r"build\.toml:17:1: kernel\.k\.src is \[\['k'\]\]"):
        manifest.load(kernel_dir(text))


def test_what_the_builder_ignores_is_a_warning(kernel_dir: Callable[..., Path]) -> None:
    text = CUDA.replace('["cuda"]', '["cuda", "cann"]')
    text = text.replace('[torch]\nsrc = ["torch-ext/torch_binding.cpp"]', '[torch-noarch]\nminver = "2.9"')
    warnings = manifest.load(kernel_dir(text)).warnings
    assert "no build sets for cann" in warnings[0]
    assert "does not read torch-noarch.minver" in warnings[1]
