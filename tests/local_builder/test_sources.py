"""What is read as a kernel's sources, and what never is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kernel_actions import builder, builder_output, manifest
from kernel_actions.errors import WrongInput
from kernel_actions.local_builder import sources
from kernel_actions.local_builder.sources import Sources

from tests.local_builder.helpers import BUILD_TOML, edited, write_kernel

PACKAGE = "torch-ext/tiny_scale"


def read(kernel_dir: Path) -> Sources:
    return sources.read(manifest.load(kernel_dir), "cpu")


@pytest.fixture
def in_repository(tmp_path: Path) -> Path:
    """A kernel in a repository with others, in a folder with more."""
    repository = tmp_path / "repository"
    (repository / ".git").mkdir(parents=True)
    (repository / ".git" / "config").write_text("a token")
    (repository / "shared" / "detail").mkdir(parents=True)
    (repository / "shared" / "common.cpp").write_text("int common;\n")
    (repository / "shared" / "detail" / "common.h").write_text("")
    (repository / "top.h").write_text("")
    (repository / "README.md").write_text("")
    (repository / "other" / "csrc").mkdir(parents=True)
    (repository / "other" / "csrc" / "other.cpp").write_text("")
    (tmp_path / "outside.cpp").write_text("")
    (tmp_path / "outside.json").write_text("")
    return write_kernel(repository / "kernel")


def rewrite(kernel_dir: Path, *replacements: tuple[str, str]) -> None:
    (kernel_dir / "build.toml").write_text(edited(BUILD_TOML, *replacements))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/etc/passwd", "is an absolute path"),
        ("../../outside.cpp", "is outside of the kernel's repository"),
        ("csrc/../../../outside.cpp", "is outside of the kernel's repository"),
        ("../.git/config", "is outside of the kernel's repository"),
        ("csrc/linked.cpp", "is outside of the kernel's repository"),
        ("csrc", "is not a file"),
        ("csrc/pipe.cpp", "is not a file"),
        ("csrc/" + "x" * 300, "does not exist"),
        ("csrc/a;b.cpp", "has the character ';', which CMake cannot take"),
        ("csrc/$<1:a>.cpp", "has the character '$', which"),
    ],
)
def test_a_source_is_a_file_of_the_repository(in_repository: Path, name: str, message: str) -> None:
    rewrite(in_repository, ("csrc/scale.cpp", name))
    (in_repository / "csrc" / "linked.cpp").symlink_to("../../../outside.cpp")
    os.mkfifo(in_repository / "csrc" / "pipe.cpp")
    with pytest.raises(WrongInput) as error:
        read(in_repository)
    assert f"/build.toml:17:3: {name} of kernel.scale.src {message}" in str(error.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/", "is an absolute path"),
        ("../..", "is outside of the kernel's repository"),
        ("../.git", "is outside of the kernel's repository"),
        ("csrc/linked", "is outside of the kernel's repository"),
        ('a\\"b', "has the character '\"'"),
    ],
)
def test_an_included_folder_is_one_of_the_repository(in_repository: Path, name: str, message: str) -> None:
    rewrite(in_repository, ('backend = "cpu"', f'backend = "cpu"\ninclude = ["{name}"]'))
    (in_repository / "csrc" / "linked").symlink_to("/")
    with pytest.raises(WrongInput, match=r"build\.toml:14:") as error:
        read(in_repository)
    assert f"of kernel.scale.include {message}" in str(error.value)


NOARCH = BUILD_TOML.partition("[torch]")[0] + "[torch-noarch]\n"


@pytest.mark.parametrize(
    ("text", "revision", "package"),
    [
        (BUILD_TOML, "8ac69fc5", {"__init__.py", "data/note.json"}),
        (edited(BUILD_TOML, ('pyext = ["py", "json"]', "")), "8ac69fc5", {"__init__.py"}),
        (edited(BUILD_TOML, ('"py", "json"', '"py", "pyi"')), "8ac69fc5", {"__init__.py"}),
        (NOARCH, "8ac69fc5", {"__init__.py", "types.pyi"}),
        (NOARCH + 'pyext = ["py", "json"]\n', "8ac69fc5", {"__init__.py", "data/note.json"}),
        # The commit before it took pyext from [torch] alone.
        (NOARCH + 'pyext = ["py", "json"]\n', "f093250f", {"__init__.py", "types.pyi"}),
        (NOARCH + 'pyext = ["json"]\n', "f093250f", {"__init__.py", "types.pyi"}),
    ],
)
def test_the_package_has_the_files_that_the_builder_takes(
    tmp_path: Path, text: str, revision: str, package: set[str]
) -> None:
    kernel = write_kernel(tmp_path, text)
    (kernel / PACKAGE / "types.pyi").write_text("")
    lines = (builder.DATA / "revisions.txt").read_text().splitlines()
    output = builder_output.bundled(next(line[:40] for line in lines if line.startswith(revision)))
    assert set(sources.read(manifest.load(kernel), "cpu", output).package) == package
    # What a build was made of is the same question for every builder.
    hashes = sources.read(manifest.load(kernel), "cpu", output).hashes
    assert {f"{PACKAGE}/types.pyi", f"{PACKAGE}/__init__.py"} <= hashes.keys()


@pytest.mark.parametrize("section", ["torch", "torch-noarch"])
def test_pyext_without_py_leaves_out_all_that_is_python(tmp_path: Path, section: str) -> None:
    text = BUILD_TOML if section == "torch" else NOARCH + 'pyext = ["py", "json"]\n'
    kernel = write_kernel(tmp_path, edited(text, ('"py", "json"', '"json"')))
    with pytest.raises(WrongInput, match=rf"build\.toml:\d+:1: {section}\.pyext is without py"):
        read(kernel)


def test_outside_of_git_nothing_but_the_kernels_folder_is_read(kernel_dir: Path) -> None:
    (kernel_dir.parent / "x.cpp").write_text("")
    rewrite(kernel_dir, ("csrc/scale.cpp", "../x.cpp"))
    with pytest.raises(WrongInput, match=r"build\.toml:17:3: \.\./x\.cpp .* outside of the kernel's folder"):
        read(kernel_dir)


def test_sources_shared_in_the_repository_are_read_and_nothing_beside_them(in_repository: Path) -> None:
    rewrite(
        in_repository,
        ("csrc/scale.cpp", "../shared/common.cpp"),
        ('backend = "cpu"', 'backend = "cpu"\ninclude = ["..", "../shared"]'),
    )
    outside = {name for name in read(in_repository).hashes if name.startswith("../")}
    # The folder around the kernel holds other kernels too: it is not gone into.
    assert outside == {"../shared/common.cpp", "../shared/detail/common.h", "../top.h"}


def test_links_in_the_repository_are_followed(in_repository: Path) -> None:
    package = in_repository / PACKAGE
    (in_repository / "tables").mkdir()
    (in_repository / "tables" / "one.json").write_text("1")
    (package / "linked").symlink_to("../../tables")
    (package / "two.json").symlink_to("../../tables/one.json")
    (in_repository / "csrc" / "shared").symlink_to("../../shared")
    found = read(in_repository)
    assert {"linked/one.json", "two.json"} <= set(found.package)
    assert "csrc/shared/detail/common.h" in found.hashes


@pytest.mark.parametrize("folder", [PACKAGE, "csrc"])
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("{outside}/outside.json", "is a link that leads out of the repository"),
        ("{outside}", "is a link that leads out of the repository"),
        ("{outside}/repository/.git/config", "is a link that leads out of the repository"),
        ("{outside}/repository", "is a link to a folder that it is in"),
        (".", "is a link to a folder that it is in"),
        ("nothing.json", "is a link to nothing"),
        ("a.json", "is a link to nothing"),
    ],
)
def test_other_links_are_refused(in_repository: Path, folder: str, target: str, message: str) -> None:
    link = in_repository / folder / "a.json"
    link.symlink_to(target.format(outside=in_repository.parents[1]))
    with pytest.raises(WrongInput) as error:
        read(in_repository)
    assert str(error.value).startswith(f"{link}: {message}")


def test_a_package_that_is_elsewhere_is_refused(in_repository: Path, tmp_path: Path) -> None:
    (in_repository / "torch-ext" / "tiny_scale").rename(tmp_path / "tiny_scale")
    (in_repository / "torch-ext" / "tiny_scale").symlink_to(tmp_path / "tiny_scale")
    with pytest.raises(WrongInput, match="torch-ext/tiny_scale: leads out of the repository"):
        read(in_repository)


@pytest.mark.parametrize("folder", [PACKAGE, "csrc"])
@pytest.mark.parametrize(
    ("name", "message"),
    [(b"\xff.py", "has a name that is not UTF-8"), (b"a\nb.py", "has a control character in its name")],
)
def test_names_that_no_listing_can_hold_are_refused(
    kernel_dir: Path, folder: str, name: bytes, message: str
) -> None:
    (kernel_dir / folder / os.fsdecode(name)).write_text("")
    with pytest.raises(WrongInput, match=message) as error:
        read(kernel_dir)
    assert len(str(error.value).encode().splitlines()) == 1


def test_more_than_a_kernel_has_is_not_read(kernel_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (kernel_dir / "csrc" / "large.bin").write_bytes(b"x" * 3_000_000)
    monkeypatch.setattr(sources, "MOST_BYTES", 2_000_000)
    with pytest.raises(WrongInput, match=r"build\.toml:2:1: .* more than 2 MB"):
        read(kernel_dir)
    monkeypatch.setattr(sources, "MOST_FILES", 5)
    with pytest.raises(WrongInput, match="more than 5 files"):
        read(kernel_dir)


@pytest.mark.parametrize("name", ["_ops.py", "metadata.json"])
def test_what_the_builder_would_overwrite_is_refused(kernel_dir: Path, name: str) -> None:
    (kernel_dir / PACKAGE / name).write_text("'the author wrote this'\n")
    with pytest.raises(WrongInput) as error:
        read(kernel_dir)
    assert f"/{PACKAGE}/{name}:1: the builder puts a {name} of its own there" in str(error.value)


def test_the_name_of_the_extension_is_found_wherever_it_stands(kernel_dir: Path) -> None:
    for offset in (0, 10, 1_048_570, 1_048_576):
        (kernel_dir / "csrc" / "scale.cpp").write_bytes(b"/" * offset + b"TORCH_EXTENSION_NAME")
        assert "csrc/scale.cpp" in read(kernel_dir).name_users
