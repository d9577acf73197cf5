"""A header that no ``src`` lists is not there where the builder compiles."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_actions import manifest
from kernel_actions.errors import WrongInput
from kernel_actions.local_builder import headers

from tests.local_builder.helpers import BUILD_TOML, edited, write_kernel

NINJA = """\
CMakeFiles/kernel.dir/kernel/csrc/scale.cpp.o: #deps 3, deps mtime 1785000000000000000 (VALID)
    /kernel/csrc/scale.cpp
    ../../csrc/scale.h
    /usr/include/c++/12/memory

CMakeFiles/kernel.dir/compatibility.cpp.o: #deps 1, deps mtime 1785000000000000000 (STALE)
    /work/compatibility.cpp

"""


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A kernel in a repository, with a header that is in no list and includes another one that is in none."""
    (tmp_path / ".git").mkdir()
    folder = write_kernel(tmp_path / "kernel", edited(BUILD_TOML, ('  "csrc/scale.h",\n', "")))
    (folder / "csrc" / "detail").mkdir()
    (folder / "csrc" / "detail" / "deep.cuh").write_text("")
    (folder / "csrc" / "scale.h").write_text("#pragma once\n  #  include <detail/deep.cuh>\n")
    return folder


def unlisted(folder: Path, *names: str, elsewhere: tuple[Path, ...] = ()) -> list[tuple[str, str, str]]:
    """What is reported of a source that was compiled of ``names``: the header, its section, the place."""
    paths = tuple((folder.resolve() / name) for name in names)
    found = headers.unlisted(manifest.load(folder), {str(paths[0]): paths}, elsewhere)
    return [
        (header.name, header.key, f"{header.where.path.relative_to(folder)}:{header.where.line}")
        for header in found
    ]


def test_ninja_says_what_a_source_was_compiled_of() -> None:
    assert headers.parse_dependencies(NINJA, Path("/kernel/build/.cmake")) == {
        "/kernel/csrc/scale.cpp": (
            Path("/kernel/csrc/scale.cpp"),
            Path("/kernel/csrc/scale.h"),
            Path("/usr/include/c++/12/memory"),
        ),
        "/work/compatibility.cpp": (Path("/work/compatibility.cpp"),),
    }


def test_a_header_in_no_list_is_reported_where_it_is_included(kernel: Path) -> None:
    names = ("csrc/scale.cpp", "csrc/scale.h", "csrc/detail/deep.cuh")
    assert unlisted(kernel, *names) == [
        ("csrc/scale.h", "kernel.scale", "csrc/scale.cpp:1"),
        ("csrc/detail/deep.cuh", "kernel.scale", "csrc/scale.h:2"),
    ]


def test_any_list_will_do_as_the_builder_takes_them_all(kernel: Path) -> None:
    other = '\n[kernel.other]\nbackend = "cuda"\ndepends = []\nsrc = ["csrc/./scale.h"]\n'
    text = (kernel / "build.toml").read_text()
    (kernel / "build.toml").write_text(
        edited(text, ('backends = ["cpu"]', 'backends = ["cpu", "cuda"]')) + other
    )
    assert unlisted(kernel, "csrc/scale.cpp", "csrc/scale.h") == []


def test_what_is_not_the_kernels_is_not_asked_for(kernel: Path) -> None:
    (kernel / "csrc" / "scale.cpp").write_text("#define NAME <site/torch.h>\n#include NAME\n")
    others = ("torch-ext/registration.h", "site/torch.h", ".venv/include/x.h", "../../usr/include/y.h")
    assert unlisted(kernel, "csrc/scale.cpp", *others, elsewhere=(kernel / "site",)) == []
    # By a macro: no line says so.
    assert unlisted(kernel, "csrc/scale.cpp", "site/torch.h") == [
        ("site/torch.h", "kernel.scale", "csrc/scale.cpp:None")
    ]


def test_a_header_beside_the_kernel_is_not_there_either(kernel: Path) -> None:
    (kernel / "torch-ext" / "torch_binding.cpp").write_text('\n#include "../../shared/a.h"\n')
    path = kernel.parent / "shared" / "a.h"
    path.parent.mkdir()
    path.write_text("")
    source = kernel.resolve() / "torch-ext" / "torch_binding.cpp"
    found = list(headers.unlisted(manifest.load(kernel), {str(source): (source, path.resolve())}, ()))
    assert [(header.name, header.key, header.where.line) for header in found] == [
        ("../shared/a.h", "torch", 2)
    ]


def test_the_error_names_the_line_to_write(kernel: Path) -> None:
    paths = tuple(kernel.resolve() / "csrc" / name for name in ("scale.cpp", "scale.h", "detail/deep.cuh"))
    with pytest.raises(WrongInput) as caught:
        headers.check(manifest.load(kernel), {str(paths[0]): paths}, ())
    line = (kernel / "build.toml").read_text().splitlines().index("src = [") + 1
    assert str(caught.value) == (
        f"{kernel}/csrc/scale.cpp:1: includes csrc/scale.h, which is in no src of build.toml, so that the "
        'builder does not have it (add "csrc/scale.h" to src of [kernel.scale], '
        f"{kernel}/build.toml:{line}:1)"
    )
    assert ["csrc/detail/deep.cuh" in error.what for error in caught.value.others] == [True]
