"""The packages of the index that the builder's names stand for, from data/python_packages.toml."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from kernel_actions import toml_file

_TABLE = Path(__file__).resolve().parents[1] / "data" / "python_packages.toml"
# ``depends``: python-depends of build.toml; ``checks``: pythonCheckInputs of flake.nix.
Kind = Literal["depends", "checks"]


class IndexPackage(NamedTuple):
    """A package's name on the index, and the module that it brings; empty where it brings none."""

    name: str
    module: str


@cache
def table(kind: Kind) -> dict[str, IndexPackage]:
    """The packages by the names that ``kind`` uses."""
    entries = toml_file.read(_TABLE).values[kind]
    return {name: IndexPackage(entry["package"], entry.get("module", "")) for name, entry in entries.items()}
