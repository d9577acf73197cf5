"""Submodules in a repository with several kernels: which have to be fetched, and who fetches them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kernel_actions import git as git_
from kernel_actions import manifest
from kernel_actions.compliance import check
from kernel_actions.errors import WrongInput, WrongSurroundings
from kernel_actions.local_builder import sources
from kernel_actions.nix import checks

from tests.integration.conftest import git
from tests.unit.kernels import CUDA

FLAKE = "{ outputs = _: { }; }\n"
FETCHES = "{ inputs.self.submodules = true; outputs = _: { }; }\n"


@pytest.fixture
def repository(tmp_path: Path) -> Callable[..., Path]:
    """Makes a clone, without its submodules, of a repository with two kernels, one with a submodule."""

    def make(flake: str = FLAKE, submodule: str = "blur/third") -> Path:
        library = tmp_path / "library"
        library.mkdir()
        (library / "x.h").write_text("#pragma once\n")
        origin = tmp_path / "origin"
        for name, text in (("blur", flake), ("gray", FLAKE)):
            build = CUDA.replace('"edge"', f'"{name}"')
            if name == "blur":
                build = build.replace('"k/k.cu"', '"k/k.cu", "third/x.h"')
            for path, content in {
                "build.toml": build,
                "flake.nix": text,
                "k/k.cu": "",
                "torch-ext/torch_binding.cpp": "",
                f"torch-ext/{name}/__init__.py": "__all__ = []\n",
            }.items():
                (origin / name / path).parent.mkdir(parents=True, exist_ok=True)
                (origin / name / path).write_text(content)
        for folder in (library, origin):
            git(folder, "init", "--quiet", "--initial-branch=main")
            git(folder, "add", ".")
            git(folder, "commit", "--quiet", "--message=first")
        allow = ("-c", "protocol.file.allow=always")
        git(origin, *allow, "submodule", "--quiet", "add", str(library), submodule)
        git(origin, "commit", "--quiet", "--message=second")
        clone = tmp_path / "clone"
        git(tmp_path, "clone", "--quiet", str(origin), str(clone))
        return clone

    return make


def _fetch(repository: Path) -> None:
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init")


def _query(kernel: Path) -> str:
    state = git_.state(kernel)
    assert state is not None
    return checks._source(kernel, state).query


def test_another_kernels_submodule_is_no_concern(repository: Callable[..., Path]) -> None:
    clone = repository()
    assert _query(clone / "gray") == "?dir=gray"
    # Nor are Nix told to fetch it, which costs a download.
    _fetch(clone)
    assert _query(clone / "gray") == "?dir=gray"


def test_ones_own_has_to_be_fetched_where_nix_does_not(repository: Callable[..., Path]) -> None:
    clone = repository()
    with pytest.raises(WrongInput, match="the submodule blur/third was not fetched") as error:
        _query(clone / "blur")
    assert "git submodule update --init blur/third, or submodules: recursive" in str(error.value)
    _fetch(clone)
    assert _query(clone / "blur") == "?dir=blur&submodules=1"


def test_what_flake_nix_has_nix_fetch_need_not_be_here(repository: Callable[..., Path]) -> None:
    clone = repository(FETCHES)
    assert _query(clone / "blur") == "?dir=blur"


def test_of_uncommitted_changes_nix_takes_all_as_they_are_here(repository: Callable[..., Path]) -> None:
    clone = repository(FETCHES)
    (clone / "blur" / "k" / "k.cu").write_text("// changed\n")
    with pytest.raises(WrongInput, match="the submodule blur/third was not fetched"):
        _query(clone / "blur")
    assert _query(clone / "gray") == "?dir=gray"


def test_a_nix_that_is_too_old_says_so(repository: Callable[..., Path]) -> None:
    clone = repository(FETCHES)
    state = git_.state(clone)
    assert state is not None
    source = checks._source(clone / "blur", state)
    with (
        pytest.raises(WrongSurroundings, match=r"Nix 2\.26\.1 does not know `inputs\.self\.submodules`"),
        source.address("2.26.1"),
    ):
        pass
    with source.address("2.27.0") as address:
        assert address.endswith("/clone?dir=blur")


def test_the_local_build_names_the_submodule(repository: Callable[..., Path]) -> None:
    clone = repository(FETCHES)
    with pytest.raises(WrongInput, match=r"third/x\.h of kernel\.k\.src is in the submodule blur/third"):
        sources.read(manifest.load(clone / "blur"), "cuda")
    _fetch(clone)
    assert "third/x.h" in sources.read(manifest.load(clone / "blur"), "cuda").hashes


def _said(kernel: Path, slug: str) -> list[str]:
    found = check(kernel, source_only=True).findings
    return [one.message for one in found if one.rule.slug == slug]


def test_compliance_reads_gitmodules_of_the_repository(repository: Callable[..., Path]) -> None:
    clone = repository()
    assert _said(clone / "blur", "flake-submodules") == [
        "third/x.h is in the submodule third, which flake.nix does not fetch"
    ]
    # That it is not here is no fault of the kernel's.
    assert _said(clone / "blur", "manifest-sources") == []
    assert _said(clone / "gray", "flake-submodules") == []


def test_compliance_has_nothing_against_one_that_nix_fetches(repository: Callable[..., Path]) -> None:
    clone = repository(FETCHES)
    assert _said(clone / "blur", "flake-submodules") == []
    assert _said(clone / "blur", "manifest-sources") == []


def test_one_among_the_python_files_is_read_as_well(repository: Callable[..., Path]) -> None:
    clone = repository(submodule="gray/torch-ext/gray/third")
    assert _said(clone / "gray", "flake-submodules") == [
        "the submodule torch-ext/gray/third is read, and flake.nix does not fetch it"
    ]
