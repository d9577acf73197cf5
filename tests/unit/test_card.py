"""What a card is filled in with, as kernel-builder/src/card.rs of huggingface/kernels (8ac69fc5) has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kernel_actions import card, manifest

BUILD = """\
[general]
name = "two-words"
version = 3
edition = 5
license = "BSD-3-Clause"
backends = ["cpu"]

[general.hub]
repo-id = "acme/two-words"

[torch-noarch]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "build.toml").write_text(BUILD)
    (tmp_path / "torch-ext" / "two_words").mkdir(parents=True)
    return tmp_path


def values(folder: Path, init: str | None = None, **others: str) -> dict[str, Any]:
    """What the card is filled in with, of a package with ``__init__.py`` and ``others``."""
    package = folder / "torch-ext" / "two_words"
    if init is not None:
        (package / "__init__.py").write_text(init)
    for name, text in others.items():
        path = package / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return card.values(manifest.load(folder), "acme/elsewhere")


def test_what_build_toml_says(folder: Path) -> None:
    assert values(folder) == {
        "repo_id": "acme/elsewhere",
        "version": 3,
        "functions": None,
        "layers": None,
        "has_benchmark": False,
        "upstream": None,
        "source": None,
        "license": "bsd-3-clause",
    }


@pytest.mark.parametrize(
    ("init", "functions"),
    [
        ('__all__ = ["f", "g"]', ["f", "g"]),
        ('__all__ = [\n    "f",\n    "g",\n]', ["f", "g"]),
        ('__all__ = ["layers", "f"]', ["f"]),
        ('__all__ = ["layers"]', None),
        ('x = __all__ = ["f" "g", 3, f"h", k]', ["fg"]),
        # The builder looks no further than at lists that are assigned.
        ('__all__ = ("f", "g")', None),
        ('__all__: list[str] = ["f"]', None),
        ('__all__ = ["f"]\n__all__ += ["g"]', ["f"]),
        ('__all__ = []\n__all__ = ["f"]\n__all__ = ["g"]', ["f"]),
        ('if True:\n    __all__ = ["f"]', None),
        ("__all__ = [", None),
        ('__all__ = ["a\\ud800b"]', ["a?b"]),
    ],
)
def test_functions(folder: Path, init: str, functions: list[str] | None) -> None:
    assert values(folder, init)["functions"] == functions


LAYERS = "import torch\n\nclass A(torch.nn.Module):\n    class B: ...\n\nclass C: ...\n"


@pytest.mark.parametrize("name", ["layers", "layers/__init__"])
def test_layers(folder: Path, name: str) -> None:
    assert values(folder, '__all__ = ["layers", "f"]', **{name: LAYERS})["layers"] == ["A", "C"]


def test_layers_that_are_not_public(folder: Path) -> None:
    assert values(folder, '__all__ = ["f"]', layers=LAYERS)["layers"] is None
    assert values(folder, '__all__ = ["layers"]', layers="def f(): ...\n")["layers"] is None


def test_a_benchmark(folder: Path) -> None:
    (folder / "benchmarks").mkdir()
    (folder / "benchmarks" / "benchmark_relu.py").write_text("")
    assert not values(folder)["has_benchmark"]
    (folder / "benchmarks" / "benchmark.py").write_text("")
    assert values(folder)["has_benchmark"]


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("git@github.com:drbh/yamoe.git", "ssh://git@github.com/drbh/yamoe.git"),
        ("https://github.com/org/repo", "https://github.com/org/repo"),
        ("https://GitHub.com", "https://github.com/"),
        ("git+https://github.com/org/repo.git", "git+https://github.com/org/repo.git"),
    ],
)
def test_addresses(folder: Path, address: str, shown: str) -> None:
    text = BUILD.replace("backends", f'upstream = "{address}"\nsource = "{address}"\nbackends')
    (folder / "build.toml").write_text(text)
    found = values(folder)
    assert (found["upstream"], found["source"]) == (shown, shown)


def test_sources_out_of_the_kernel_are_not_read(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other") / "__init__.py"
    other.write_text('__all__ = ["secret"]')
    (folder / "torch-ext" / "two_words" / "__init__.py").symlink_to(other)
    assert values(folder)["functions"] is None
