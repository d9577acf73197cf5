"""Extensions that differ by their search path alone, as the real patchelf leaves them, and others."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from kernel_actions.errors import KernelFailed
from kernel_actions.test import same_build
from kernel_actions.test.same_extension import difference

from tests.test_command.helpers import METADATA
from tests.tools import needs

pytestmark = needs("patchelf")

SOURCE = """\
#include <string>
#include <iostream>
#include <stdexcept>
thread_local int count = 3;
static int table[] = {1, 2, 3, 5, 8};
int add(int x) {
  std::string text(x, 'a');
  std::cout << text << table[x % 5];
  if (x == count) throw std::runtime_error("no");
  return 1000003 * x;
}
"""
PATHS = f"/nix/store/{'a' * 32}-torch/lib:/nix/store/{'b' * 32}-tiny-torch-ext/lib"


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two libraries: one with a search path, as the linker of nixpkgs leaves it, and one without."""
    folder = tmp_path_factory.mktemp("libraries")
    (folder / "add.cpp").write_text(SOURCE)
    for name, options in (("path.so", [f"-Wl,-rpath,{PATHS}"]), ("plain.so", [])):
        subprocess.run(
            ["g++", "-shared", "-fPIC", "-g", "-O1", "add.cpp", "-Wl,--build-id", *options, "-o", name],
            cwd=folder, check=True,
        )  # fmt: skip
    return folder


def changed(library: Path, target: Path, *commands: list[str]) -> Path:
    """A copy of a library that the commands have changed."""
    shutil.copy(library, target)
    for command in commands:
        subprocess.run([*command, target], check=True)
    return target


STRIP_PATH = ["patchelf", "--set-rpath", ""]
# fixupPhase of nixpkgs runs both on every extension.
FIXUP = (["patchelf", "--shrink-rpath"], ["strip", "-S", "-p"])


def test_a_path_that_is_removed_is_no_difference(libraries: Path, tmp_path: Path) -> None:
    tested = changed(libraries / "path.so", tmp_path / "tested.so", *FIXUP)
    published = changed(libraries / "path.so", tmp_path / "published.so", STRIP_PATH, *FIXUP)
    whole = changed(libraries / "path.so", tmp_path / "whole.so", STRIP_PATH)
    assert whole.read_bytes() != (libraries / "path.so").read_bytes()
    assert difference(libraries / "path.so", whole) == ""
    assert difference(tested, published) == ""
    # patchelf 0.19 leaves one without any path alone, 0.14 adds an empty path.
    plain = changed(libraries / "plain.so", tmp_path / "plain.so", STRIP_PATH)
    assert difference(libraries / "plain.so", plain) == ""


def test_a_path_that_moves_sections_is_no_difference(libraries: Path, tmp_path: Path) -> None:
    """As where the old path is shared with another string, or shorter: they go to a new segment."""
    added = changed(libraries / "plain.so", tmp_path / "added.so", ["patchelf", "--set-rpath", PATHS])
    assert added.stat().st_size != (libraries / "plain.so").stat().st_size
    assert difference(libraries / "plain.so", added) == ""
    assert difference(added, libraries / "plain.so") == ""
    old = ["patchelf", "--force-rpath", "--set-rpath", "/nix"]
    assert difference(changed(libraries / "path.so", tmp_path / "old.so", old), libraries / "path.so") == ""


def test_another_build_id_is_no_difference(libraries: Path, tmp_path: Path) -> None:
    """The linker hashes the path, which names the derivation."""
    options = [f"-Wl,-rpath,{PATHS.replace('b', 'c')}", "-Wl,--build-id"]
    command = ["g++", "-shared", "-fPIC", "-g", "-O1", "add.cpp", *options, "-o", tmp_path / "other.so"]
    subprocess.run(command, cwd=libraries, check=True)
    assert (tmp_path / "other.so").read_bytes() != (libraries / "path.so").read_bytes()
    assert difference(libraries / "path.so", tmp_path / "other.so") == ""


def sections(library: Path) -> dict[str, tuple[int, int]]:
    """The offset and size of each section, by readelf."""
    found = {}
    for line in subprocess.check_output(["readelf", "-SW", library], text=True).splitlines():
        fields = line.partition("] ")[2].split()
        if len(fields) > 8 and fields[0].startswith("."):
            found[fields[0]] = (int(fields[3], 16), int(fields[4], 16))
    return found


@pytest.mark.parametrize("base", ["path.so", "plain.so"], ids=["in place", "moved"])
@pytest.mark.parametrize(
    "section",
    [
        ".text", ".plt", ".init", ".rodata", ".data", ".eh_frame", ".init_array", ".rela.dyn", ".rela.plt",
        ".dynsym", ".gnu.hash", ".gnu.version", ".tdata", ".symtab", ".strtab", ".debug_info",
    ],
)  # fmt: skip
def test_every_byte_counts(libraries: Path, tmp_path: Path, base: str, section: str) -> None:
    path = "" if base == "path.so" else PATHS
    published = changed(libraries / base, tmp_path / "x.so", ["patchelf", "--set-rpath", path])
    data = published.read_bytes()
    offset, size = sections(published)[section]
    for at in {offset, offset + size // 2, offset + size - 1}:
        published.write_bytes(data[:at] + bytes([data[at] ^ 0x21]) + data[at + 1 :])
        assert difference(libraries / base, published), f"{section} at {at - offset}"


def test_other_differences(libraries: Path, tmp_path: Path) -> None:
    path = libraries / "path.so"
    for name, command in (
        ("needed", ["patchelf", "--add-needed", "libstrange.so"]),
        ("replaced", ["patchelf", "--replace-needed", "libc.so.6", "libz.so.6"]),
        ("soname", ["patchelf", "--set-soname", "strange.so"]),
        ("stack", ["patchelf", "--set-execstack"]),
        ("stripped", ["strip"]),
        ("section", ["objcopy", "--add-section", f".new={libraries / 'add.cpp'}"]),
    ):
        if name == "stack" and "execstack" not in subprocess.check_output(
            ["sh", "-c", "patchelf --help 2>&1"], text=True
        ):
            continue
        assert difference(path, changed(path, tmp_path / "x.so", command)), name
    data = path.read_bytes()
    for other in (data + b"appended", data[:-1], data[:100], b"", b"\x7fELF\x02\x01" + b"\xff" * 500):
        (tmp_path / "x.so").write_bytes(other)
        assert difference(path, tmp_path / "x.so")
        assert difference(tmp_path / "x.so", path)


def build(folder: Path, files: dict[str, bytes], metadata: dict[str, object]) -> Path:
    """A variant's folder, as old builders made it: metadata.json lists no digest."""
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    (folder / "metadata.json").write_text(json.dumps(metadata))
    return folder


def test_a_build_is_the_same_but_for_its_extensions(libraries: Path, tmp_path: Path) -> None:
    stripped = changed(libraries / "path.so", tmp_path / "x.so", STRIP_PATH).read_bytes()
    whole = (libraries / "path.so").read_bytes()
    tested = build(tmp_path / "tested", {"a.so": whole, "__init__.py": b""}, METADATA)
    variant = build(tmp_path / "variant", {"a.so": stripped, "__init__.py": b""}, METADATA)
    assert list(same_build.stand_ins(tested, variant)) == ["a.so"]
    assert same_build.stand_ins(tested, tested) == {}
    for name, files, metadata, said in (
        ("python", {"a.so": stripped, "__init__.py": b"1"}, METADATA, "another __init__.py"),
        ("missing", {"__init__.py": b""}, METADATA, "has a.so, which the variant has not"),
        ("more", {"a.so": stripped, "__init__.py": b"", "b.py": b""}, METADATA, "has no b.py"),
        ("id", {"a.so": stripped, "__init__.py": b""}, METADATA | {"id": "_other"}, "another id in its"),
        (
            "commit", {"a.so": stripped, "__init__.py": b""},
            METADATA | {"provenance": {"kernel": {"commit": "0" * 40}}}, "another provenance in its",
        ),
    ):  # fmt: skip
        with pytest.raises(KernelFailed, match=said):
            same_build.stand_ins(tested, build(tmp_path / name, files, metadata))
