"""build.toml: what is read, and what is said about what is wrong."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_actions import manifest
from kernel_actions.errors import WrongInput
from kernel_actions.settings import load as load_settings

from tests.unit.kernels import CUDA, EDITION_3


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
        ('name = "edge"\n', "", '1:1: [general] has no name (as in name = "my-kernel")'),
        ('"edge"', '"Edge"', "2:8: general.name is 'Edge', which is not a kernel's name (use small letters,"),
        ('"edge"', '"e"', "2:8: general.name is 'e', which is not a kernel's name"),
        ('"edge"', "3", "2:8: general.name is 3, which is not a kernel's name (use small letters,"),
        ('"edge"', f'"{"e" * 65}"', "2:8: general.name has 65 characters (use 64 or fewer)"),
        ("version = 1", "version = -1", "3:11: general.version is -1, which is not a whole number of 0 or"),
        ("version = 1", "version = true", "3:11: general.version is true, which is not a whole number"),
        ("version = 1", "version = 1.0", "3:11: general.version is 1.0, which is not a whole number"),
        (
            "version = 1",
            'version = "1"',
            "3:11: general.version is '1', which is not a whole number of 0 or more (write 1 without quotes)",
        ),
        (
            "version = 1",
            f"version = {2**63}",
            "3:11: general.version is 9223372036854775808, which is not 9223372036854775807 or less",
        ),
        ("version = 1", f"version = {'1' * 5000}", "3:11: has a number that is too long"),
        ("version = 1", f"version = 0x{'f' * 5000}", "3:11: has a number that is too long"),
        ("edition = 5", "edition = 6", "5:11: general.edition is 6, which is not 5, the only edition that"),
        ("edition = 5", "edition = 4", "5:11: general.edition is 4, which is not 5, the only edition that"),
        (
            "edition = 5",
            'edition = "5"',
            "5:11: general.edition is '5', which is not 5, the only edition that "
            "a file can name (write 5 without quotes)",
        ),
        ('"Apache-2.0"', "2024-01-01", "4:11: general.license is 2024-01-01, which is not a string"),
        ('"Apache-2.0"', '"""Apache\n2.0"""', r"4:11: general.license has the control character '\n'"),
        (
            '["cuda"]',
            '"cuda"',
            "6:12: general.backends is 'cuda', which is not a list of strings (write [\"cuda\"])",
        ),
        (
            '["cuda"]',
            '["cudda"]',
            "6:13: general.backends has 'cudda', which is not a backend (did you mean cuda?)",
        ),
        (
            '["cuda"]',
            '[\n  "cuda", # [\n  "CPU",\n]',
            "8:3: general.backends has 'CPU', which is not a backend (did you mean cpu?)",
        ),
        (
            '["cuda"]',
            '["x", "cuda"]',
            "6:13: general.backends has 'x', which is not a backend (one of cann, ",
        ),
        ("license", "licence", "4:1: key 'general.licence' is not known (did you mean license?)"),
        ("[general.hub]", "[general.hubb]", "8:1: key 'general.hubb' is not known (did you mean hub?)"),
        ("[general.hub]\nrepo-id", "hub.repoid", "8:5: key 'general.hub.repoid' is not known (did you mean "),
        (
            'repo-id = "kernels-test/edge"',
            'repo-id = "edge"',
            "9:11: general.hub.repo-id is 'edge', which is not a repository of the form owner/name",
        ),
        (
            "version = 1",
            'version = 1\nupstream = "github.com/a/b"',
            "4:12: general.upstream is 'github.com/a/b', "
            "which is not the address of a git repository (as in https://github.com/owner/name or ",
        ),
        ("version = 1", 'version = 1\nsource = "ftp://host/x.git"', "4:10: general.source is"),
        (
            "version = 1",
            "version = 1\nuniversal = true",
            "4:1: key 'general.universal' is of edition 3 (say so by [torch-noarch])",
        ),
        ("version = 1", "version = 1\ncuda-minver = '12'", "(write minver in [general.cuda])"),
        ("version = 1", "version = 1\npython-depends = ['a\"]']", "4:19: general.python-depends has "),
        ("version = 1", "version = 1\nkernel-depends = [{}]", "4:19: general.kernel-depends has no repo-id"),
        (
            "version = 1",
            "version = 1\nkernel-depends = [{ repo-id = 'a/b', version = -1 }]",
            "4:48: general.kernel-depends.version is -1, which is not a whole number",
        ),
        (
            "version = 1",
            "version = 1\nkernel-depends = [{ repo-id = 'a/b', version = 1, revision = 'x' }]",
            "4:51: general.kernel-depends has version and revision (give one of version and revision)",
        ),
        (
            "version = 1",
            "version = 1\nkernel-depends = [{ repo-id = 'a/b' }]",
            "4:19: general.kernel-depends has none of version, revision",
        ),
        (
            "version = 1",
            "version = 1\nkernel-depends = [{ repo-id = 'a/b', version = 1, tag = 'x' }]",
            "4:51: key 'general.kernel-depends.tag' is not known",
        ),
        (
            "version = 1",
            "version = 1\nkernel-depends = ['a/b']",
            "4:19: general.kernel-depends has 'a/b', which is not a table",
        ),
        (
            "[torch]",
            "[torch]\nminver = 2.10",
            "12:10: torch.minver is 2.10, which is not a version in quotes "
            '(write "2.10": without quotes it is the number 2.1)',
        ),
        ("[torch]", "[torch]\nmaxver = 2", 'torch.maxver is 2, which is not a version in quotes (write "2")'),
        ("[torch]", '[torch]\nminver = "²"', "12:10: torch.minver is '²', which is not a version"),
        ("[torch]", f'[torch]\nmaxver = "{"1" * 5000}"', "12:10: torch.maxver is '111"),
        (
            "[torch]",
            '[torch]\nstable-abi = "abc"',
            "12:14: torch.stable-abi is 'abc', which is not a version of",
        ),
        (
            "[torch]",
            '[torch]\nstable-abi = { coda = "2.10" }',
            "12:16: key 'torch.stable-abi.coda' is not known (did you mean cuda?)",
        ),
        (
            "[torch]",
            '[torch]\nstable-abi = { cuda = "2.a" }',
            "12:23: torch.stable-abi.cuda is '2.a', which is",
        ),
        ("[torch]", "[tvm-ffi]\nsrc = []\n[torch]", "13:1: has [tvm-ffi] and [torch] (a kernel has one of "),
        ("[torch]\nsrc", "[tvm-ffi]\npyext", "11:1: [tvm-ffi] has no src"),
        (
            '[torch]\nsrc = ["torch-ext/torch_binding.cpp"]',
            "",
            "1:1: has none of [torch], [torch-noarch], [tvm",
        ),
        (
            '[torch]\nsrc = ["torch-ext/torch_binding.cpp"]',
            "[torch-noarch]\ncuda-capabilities = []",
            "12:1: key 'torch-noarch.cuda-capabilities' is not known (did you mean cuda_capabilities?)",
        ),
        ('backend = "cuda"\n', "", "14:1: [kernel.k] has no backend"),
        (
            'backend = "cuda"\n',
            'backend = "tpu"\n',
            "15:11: kernel.k.backend is 'tpu', which is not a backend that is compiled for",
        ),
        ('depends = ["torch"]\n', "", "14:1: [kernel.k] has no depends"),
        (
            'depends = ["torch"]',
            'depends = ["torch", "cutlass_4_1"]',
            "16:21: kernel.k.depends has "
            "'cutlass_4_1', which is not a library that the builder has (did you mean cutlass_4_",
        ),
        (
            'depends = ["torch"]',
            'depends = []\ncuda-capabilities = [""]',
            "17:22: kernel.k.cuda-capabilities has '', which is not a compute capability such as",
        ),
        (
            'src = ["k/k.cu"]',
            'src = ["k/k.cu", 1]',
            '17:18: kernel.k.src has 1, which is not a string (write "1")',
        ),
        (
            'src = ["k/k.cu"]',
            'src = ["k/k.cu", ["a"]]',
            "17:18: kernel.k.src has a list, which is not a string",
        ),
        (
            'src = ["k/k.cu"]',
            "src = []\nsycl-flags = []",
            "18:1: key 'kernel.k.sycl-flags' is for backend xpu alone (remove it: this backend is cuda)",
        ),
        (
            'src = ["k/k.cu"]',
            'src = ["k/k.cu"]\ncuda-flags = ["a\\nb"]',
            r"18:15: kernel.k.cuda-flags has the "
            r"control character '\n'",
        ),
        ("[kernel.k]", "[kernels.k]", "14:1: key 'kernels' is not known (did you mean kernel?)"),
        ("[kernel.k]", "[kernel.'k k']", "14:1: [kernel] has 'k k', which is not a section's name"),
        (
            "[kernel.k]",
            '[kernel."k\\nmessage()"]',
            r"14:1: [kernel] has 'k\nmessage()', which is not a section's",
        ),
        ("[kernel.k]", "[kernel]", "15:11: kernel.backend is 'cuda', which is not a table"),
        ("[kernel.k]", "[[kernel.k]]", "14:1: kernel.k is a list, which is not a table"),
        ("[general]", "[[general]]", "1:1: general is a list, which is not a table"),
        ("[general]", "[genral]", "1:1: key 'genral' is not known (did you mean general?)"),
    ],
)
def test_each_error_says_what_and_where(
    kernel_dir: Callable[..., Path], old: str, new: str, message: str
) -> None:
    assert old in CUDA
    with pytest.raises(WrongInput) as error:
        manifest.load(kernel_dir(CUDA.replace(old, new, 1)))
    assert any(f"build.toml:{message}" in str(one) or message in str(one) for one in error.value.all)
    assert all(str(one).count("\n") == 0 for one in error.value.all)


def test_a_repository_that_is_needed_and_missing_is_named(kernel_dir: Callable[..., Path]) -> None:
    folder = kernel_dir(CUDA.replace('[general.hub]\nrepo-id = "kernels-test/edge"\n', ""))
    with pytest.raises(WrongInput, match=r"build\.toml:1.*: no repository to upload to \(give --repo-id"):
        manifest.load(folder).repository("upload to")


def _all(folder: Path) -> list[str]:
    """All errors of a file, without its path."""
    with pytest.raises(WrongInput) as error:
        manifest.load(folder)
    return [str(one).partition("build.toml:")[2] for one in error.value.all]


def test_all_errors_are_said_at_once_in_the_order_of_their_places(kernel_dir: Callable[..., Path]) -> None:
    text = CUDA.replace("version = 1", "version = -1").replace("license", "licence").replace("cuda", "coda")
    text = text.replace("[torch]", "[torch]\nminver = 2.9")
    errors = _all(kernel_dir(text))
    assert [error.partition(": ")[0] for error in errors] == ["3:11", "4:1", "6:13", "12:10", "16:11"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("license", "licence"),  # Nor is the license missing.
        ("[torch]", "[troch]"),
        ("[general]", "[genral]"),
        ('backend = "cuda"', 'bakend = "cuda"\ncuda-flags = []'),
        ('backend = "cuda"', 'backend = "coda"\ncuda-flags = []'),  # Whose flags these are is not known.
        ("edition = 5", "editoin = 5\nkernel-depends = []"),
        ("edition = 5", "edition = 6\nnew-key = []"),
        ('"edge"', '"Edge\\n"'),
        ("[general]", "[[general]]"),
    ],
)
def test_what_follows_from_an_error_is_no_error(kernel_dir: Callable[..., Path], old: str, new: str) -> None:
    assert len(_all(kernel_dir(CUDA.replace(old, new, 1)))) == 1


def test_of_very_many_errors_the_first_are_said_and_the_rest_counted(
    kernel_dir: Callable[..., Path],
) -> None:
    errors = _all(kernel_dir(CUDA + "".join(f"a{number} = 1\n" for number in range(20_000))))
    assert len(errors) == 51
    assert errors[0].startswith("18:1: key 'kernel.k.a0' is not known")
    with pytest.raises(WrongInput, match="a0") as error:
        manifest.load(kernel_dir(CUDA + "".join(f"a{number} = 1\n" for number in range(20_000))))
    assert str(error.value.others[-1]).endswith(
        "build.toml: has 19950 more errors than the 50 that are listed"
    )


def test_an_edition_has_its_own_keys(kernel_dir: Callable[..., Path]) -> None:
    """As in v4.rs and v5.rs of kernels-data: a file of edition 4 names no edition."""
    edition_4 = CUDA.replace("edition = 5\n", "")
    loaded = manifest.load(kernel_dir(edition_4))
    assert loaded.edition == 4
    assert "is of edition 4, which kernel-builder upgrades in memory" in loaded.warnings[0]
    for added, message in [
        ("version = 1\nkernel-depends = []",
         "4:1: key 'general.kernel-depends' is of edition 5, and this file "
         "is of edition 4 (run `kernel-builder update-build`)"),
        ("version = 1\ntpu = {}", "4:1: key 'general.tpu' is of edition 5"),
        ("version = 1\ncuda.kernel-depends = []", "4:6: key 'general.cuda.kernel-depends' is of edition 5"),
    ]:  # fmt: skip
        (error,) = _all(kernel_dir(edition_4.replace("version = 1", added)))
        assert error.startswith(message)
    (error,) = _all(kernel_dir(edition_4.replace("[torch]", "[torch]\nstable-abi = { cuda = '2.9' }")))
    assert error.startswith("11:14: torch.stable-abi is a table, which is of edition 5")
    abi = manifest.load(kernel_dir(edition_4.replace("[torch]", "[torch]\nstable-abi = '2.9'"))).binding
    assert abi.stable_abi is not None and abi.stable_abi["rocm"] == "2.9"
    assert manifest.load(kernel_dir(EDITION_3)).is_edition_3
    assert manifest.load(kernel_dir(CUDA)).warnings == ()


@pytest.mark.parametrize(
    "address",
    [
        "https://github.com/org/repo", "http://github.com/org/repo.git", "git://github.com/org/repo.git",
        "ssh://git@github.com/org/repo.git", "git+ssh://git@github.com/org/repo.git",
        "git+https://github.com/vllm-project/vllm.git", "git@github.com:org/repo.git",
        "user@gitlab.com:group/project.git",
    ],
)  # fmt: skip
def test_addresses_that_the_builder_takes_are_taken(kernel_dir: Callable[..., Path], address: str) -> None:
    text = CUDA.replace("version = 1", f'version = 1\nupstream = "{address}"')
    assert manifest.load(kernel_dir(text)).upstream == address


def test_packages_that_the_builder_does_not_know_are_a_warning(kernel_dir: Callable[..., Path]) -> None:
    text = CUDA.replace(
        "version = 1",
        'version = 1\npython-depends = ["einops", "enops"]\nneuron.python-depends = ["nki"]\n'
        'tpu = { python-depends = ["jax"] }\nxpu.python-depends = ["onednn"]',
    )
    kernel = manifest.load(kernel_dir(text))
    first, second = kernel.warnings
    assert (
        "4:29: kernel-builder knows no Python package 'enops' for all backends (did you mean einops?)"
        in first
    )
    assert "6:27: kernel-builder knows no Python package 'jax' for tpu (it has none)" in second
    # The builder does not read those of neuron.
    assert kernel.all_python_depends("neuron") == ("einops", "enops")
    assert kernel.all_python_depends("xpu") == ("einops", "enops", "onednn")


def test_a_bound_that_the_builders_parser_refuses_is_planned_with_a_warning(
    kernel_dir: Callable[..., Path],
) -> None:
    kernel = manifest.load(kernel_dir(CUDA.replace("[torch]", '[torch]\nminver = "2.13rc1"')))
    assert kernel.binding.minver == "2.13rc1"
    assert "12:10: torch.minver is '2.13rc1', and kernel-builder's parser takes numbers" in kernel.warnings[0]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[general\nname = 1", "build.toml:1:9: is not valid TOML"),
        (b"[general]\nname = 'a", "build.toml:2:10: is not valid TOML: "),
        (
            b"[general]\r\nname = 1 2\r\n",
            "build.toml:2:10: is not valid TOML: Expected newline or end of document "
            "after a statement: name = 1 2",
        ),
        (b"[general]\nname = \xff", "build.toml:2:8: is not UTF-8"),
        (b"a = 1\n" * 300_000, "larger than 1 MB"),
        (b"#" * 10_000_000, "build.toml: is larger than 1 MB, which no such file needs"),
        (b"a = " + b"[" * 50_000, "nested too deeply"),
        (b"[general]\nname = '\x1b[31m'", r"\x1b"),
        (b"[general" + b".a" * 3000 + b"]", "nested too deeply"),
        (b"[general]\na" + b".a" * 300_000 + b" = 1", "build.toml:2:1: is nested too deeply"),
        (b"[general]\nx" + b" " * 4000 + b"\n[ " + b" " * 900_000 + b"\n", "is not valid TOML"),
    ],
)
def test_broken_files(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "build.toml").write_bytes(data)
    with pytest.raises(WrongInput) as error:
        manifest.load(tmp_path)
    assert message in str(error.value)
    assert "\x1b" not in str(error.value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300)
@given(st.data())
def test_of_any_text_comes_a_manifest_or_errors_with_their_places(
    tmp_path: Path, data: st.DataObject
) -> None:
    text = data.draw(st.sampled_from([CUDA, EDITION_3, CUDA.replace("edition = 5\n", "")]))
    pieces = st.one_of(
        st.sampled_from(["[", "]", "[[", "{", "}", '"', "'", "=", ".", "#", "\n", "1", "\\", "cuda", "\x00"]),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    )
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        text = text[:start] + data.draw(pieces) + text[start + data.draw(st.integers(0, 12)) :]
    (tmp_path / "build.toml").write_bytes(text.encode())
    try:
        manifest.load(tmp_path)
    except WrongInput as error:
        said = [str(one) for one in error.all]
        assert len(set(said)) == len(said)
        places = [(one.where.line, one.where.column) for one in error.all if one.where is not None]
        assert len(places) == len(said) and None not in [part for place in places for part in place]
        assert places == sorted(places)


def test_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match=r"build\.toml: there is no such file \(give the folder"):
        manifest.load(tmp_path)


def test_folder_in_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "build.toml").mkdir()
    with pytest.raises(WrongInput, match="cannot be read"):
        manifest.load(tmp_path)


def test_reading_takes_no_longer_for_odd_lines(kernel_dir: Callable[..., Path]) -> None:
    odd = ["#" + " " * 200_000, "[" * 200_000 + "#", "x" + " " * 4000 + "#"]
    started = time.process_time()
    for text in (CUDA + "\n".join(f"# {line}" for line in odd), CUDA + " " * 800_000):
        assert manifest.load(kernel_dir(text)).name == "edge"
    for line in ("a{} = 1\n", "'a{}.{}' = {{ b = [1, [2]] }}\n", "[kernel.a{}]\nsrc = [1]\nbackend = 'x'\n"):
        many = "".join(line.format(number, number) for number in range(10_000))
        assert len(_all(kernel_dir(CUDA + many))) == 51
    assert time.process_time() - started < 10


@pytest.mark.parametrize("before", ["", "# a comment\n"])
def test_a_key_of_very_many_parts_is_refused_before_it_is_parsed(tmp_path: Path, before: str) -> None:
    (tmp_path / "build.toml").write_text(f"{before}{'a.' * 300_000}a = 1\n")
    with pytest.raises(WrongInput, match="nested too deeply"):
        manifest.load(tmp_path)


def test_a_link_is_not_followed_to_a_file_that_an_error_would_show(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a-secret-of-the-runner\n")
    for name, load in (("build.toml", manifest.load), ("kernel-actions.toml", load_settings)):
        (tmp_path / name).symlink_to("secret")
        with pytest.raises(WrongInput, match="it is a symbolic link") as caught:
            load(tmp_path)
        assert "a-secret" not in str(caught.value)
        (tmp_path / name).unlink()


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
    with pytest.raises(WrongInput, match=r"build\.toml:18:3: kernel\.k\.src has a list, which is not"):
        manifest.load(kernel_dir(text))


def test_what_the_builder_ignores_is_a_warning(kernel_dir: Callable[..., Path]) -> None:
    text = CUDA.replace('["cuda"]', '["cuda", "cann"]')
    text = text.replace('[torch]\nsrc = ["torch-ext/torch_binding.cpp"]', '[torch-noarch]\nminver = "2.9"')
    warnings = manifest.load(kernel_dir(text)).warnings
    assert "no build sets for cann" in warnings[0]
    assert "does not read torch-noarch.minver" in warnings[1]
