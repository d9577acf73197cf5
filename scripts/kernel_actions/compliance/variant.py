"""A built variant, read once for all rules about it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_actions.builder_output import Output
from kernel_actions.compliance import files
from kernel_actions.compliance.engine import Problem
from kernel_actions.compliance.files import Listing
from kernel_actions.errors import KernelActionsError, Place, WrongSurroundings
from kernel_actions.manifest import BACKENDS, Manifest

METADATA = "metadata.json"
# A metadata.json has some kilobytes; one that is larger was not written by a builder.
_LARGEST_METADATA = 5_000_000

_AT = re.compile(r" at line (\d+) column (\d+)$")

# The names that the loader knows: `kernels.variants.parse_variant`. Its noarch names take any backend.
_ARCH = re.compile(
    r"(?:torch\d{2,}(?:-cxx11|-cxx98)?|torch-stable-abi\d{2,}|tvm-ffi\d{2,})"
    r"-(?P<compute>cpu|metal|neuron|tpu|(?:cann|cu|rocm|xpu)\d{2,})"
    r"-(?P<machine>x86_64|aarch64)-(?P<os>linux|darwin|windows)"
)
_NOARCH = re.compile(rf"torch-(?P<compute>{'|'.join(BACKENDS)}|universal)")


@dataclass(frozen=True)
class VariantName:
    """What a variant's name says. ``backend`` is empty for ``torch-universal``, which is for all;
    ``machine`` and ``os`` are empty for a noarch variant."""

    backend: str
    machine: str = ""
    os: str = ""

    @property
    def is_compiled(self) -> bool:
        """Whether the variant has an extension."""
        return bool(self.os)


def parse_name(name: str) -> VariantName | None:
    """What ``name`` says; ``None`` when it is not a variant's name."""
    if found := _NOARCH.fullmatch(name):
        compute = found["compute"]
        return VariantName("" if compute == "universal" else compute)
    if found := _ARCH.fullmatch(name):
        compute = found["compute"].rstrip("0123456789")
        return VariantName("cuda" if compute == "cu" else compute, found["machine"], found["os"])
    return None


@dataclass(frozen=True)
class Variant:
    """The folder of a built variant.

    ``name`` is ``None`` where the folder's name is not one of a variant. ``metadata`` are the values of
    metadata.json as the loader's parser takes them, and empty where it does not, which ``unread`` says
    why. ``kernel`` is its build.toml, if that can be read, and ``output`` what the locked builder puts into a
    variant, if that is known.
    """

    path: Path
    name: VariantName | None
    kernel: Manifest | None
    listing: Listing
    metadata: Mapping[str, Any]
    text: str
    unread: tuple[Problem, ...]
    output: Output | None = None

    @property
    def where(self) -> Place:
        """The place of what is about the variant as a whole."""
        return Place(self.path)

    @property
    def id(self) -> str:
        """The name of its operators and its extension."""
        return str(self.metadata.get("id", ""))

    @property
    def backend(self) -> str:
        """The backend that its metadata name."""
        return str(self.metadata.get("backend", {}).get("type", ""))

    def place(self, key: str) -> Place:
        """Where ``key``, one of the topmost, stands in metadata.json."""
        found = re.search(rf'^([ \t]*)"{re.escape(key)}"\s*:', self.text, re.MULTILINE)
        if found is None:
            return Place(self.path / METADATA)
        line = self.text.count("\n", 0, found.end()) + 1
        return Place(self.path / METADATA, line, len(found[1]) + 1)


def read(path: Path, kernel: Manifest | None, output: Output | None = None) -> Variant:
    """Read the variant in the folder ``path``. Raises ``WrongSurroundings`` without the loader."""
    where = Place(path / METADATA)
    text = ""
    metadata: dict[str, Any] = {}
    unread: tuple[Problem, ...] = ()
    try:
        data = files.read(path / METADATA, _LARGEST_METADATA)
        _parse(data)
        text = data.decode()
        metadata = json.loads(text)
    except WrongSurroundings:
        raise
    except KernelActionsError as error:
        unread = (Problem.of(error, where),)
    except RecursionError:
        unread = (Problem("is nested too deeply", where),)
    except ValueError as error:
        what = str(error).removeprefix("Cannot parse metadata: ")
        if at := _AT.search(what):
            what, where = what[: at.start()], Place(where.path, int(at[1]), int(at[2]) or None)
        unread = (Problem(f"the loader cannot read it: {what}", where),)
    return Variant(path, parse_name(path.name), kernel, files.walk(path), metadata, text, unread, output)


def check_loader() -> None:
    """Raises ``WrongSurroundings`` when the loader is not installed, whose parser is asked."""
    _parser()


def _parse(data: bytes) -> None:
    """Parse metadata.json as the loader does. Raises ``ValueError`` where that would."""
    _parser().from_bytes(data)


def _parser() -> Any:
    # The class that `kernels.importer` reads metadata.json with (kernels 0.17.2). The package kernels-data
    # has one of that name too, whose releases know less: 0.16.2 refuses tpu, and takes a commit that is none.
    try:
        from kernels._rust import Metadata
    except ModuleNotFoundError as error:
        raise WrongSurroundings(
            "the Python package kernels, whose parser reads metadata.json, is not installed",
            repair='python -m pip install "kernels>=0.17"',
        ) from error
    return Metadata
