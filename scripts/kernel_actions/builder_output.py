"""What a revision of the builder puts into a variant, and what it runs a kernel's tests with.

The bundled data has these traits for each of its revisions (``data/builder/outputs.json``);
``traits`` reads them from the builder's own files, never from dates, and does so for a
revision that is not in the data. huggingface/kernels has changed them in these commits:

=========  ==========  =====================================================================
f83b4da6   2026-01-21  the two repositories merge: ``<name>/__init__.py`` loads the one above it
5a70f5e0   2026-02-06  the backend is part of the operators' name
76762634   2026-02-14  ``ciTests`` (``lib/build.nix``, ``mkCiTests``)
1fb18d40   2026-04-20  metadata.json has ``id``
ae36559c   2026-06-05  metadata.json has ``digest`` (``pkgs/hash-kernel-hook``)
81580bb9   2026-07-07  metadata.json has ``provenance``, with ``sha``
e9152aa2   2026-07-30  no ``<name>/__init__.py``; ``ciTests`` have ``kernels`` and ``LOCAL_KERNELS``
3b5a3d27   2026-07-30  ``-fno-gnu-unique``
2c40e10d   2026-08-07  metadata.json has ``kernel-depends``
dbc322a3   2026-08-17  ``provenance`` has ``commit`` in place of ``sha``
=========  ==========  =====================================================================
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kernel_actions import builder
from kernel_actions.errors import WrongSurroundings
from kernel_actions.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kernel_actions.builder_rules import Reader

SOURCES = "sources"
LOADER = "loader"
NO_FOLDER = "none"

# Where the templates were in the course of time, the newest place first; those of Torch have had a
# folder of their own since dcfcd94c (2026-03-16).
_TEMPLATES = (
    "kernel-builder/src/pyproject/templates/",
    "kernels-templates/src/templates/",
    "kernel-builder/src/templates/",
    "build2cmake/src/templates/",
)
_METADATA = (
    "kernels-data/src/metadata.rs",
    "kernel-builder/src/pyproject/metadata.rs",
    "kernel-builder/src/metadata.rs",
    "build2cmake/src/metadata.rs",
)
_GIT = "kernels-data/src/git.rs"
_EXTENSION = (
    "lib/extension/torch/arch.nix",
    "lib/torch-extension/arch.nix",
    "lib/torch-extension/default.nix",
)
_BUILD = "lib/build.nix"
_SOURCE_SET = "lib/source-set.nix"
_CMAKE_EXTENSION = ("torch/torch-extension.cmake", "torch-extension.cmake", "cuda/torch-extension.cmake")
_VARIANTS = ("torch/build-variants.cmake", "build-variants.cmake")
_PREAMBLE = ("torch/preamble.cmake", "preamble.cmake", "cuda/preamble.cmake")
# A struct of the builder's Rust code, and its fields. serde writes them in their order.
_STRUCT = r"pub struct {name}(?:<[^>]*>)? \{{(?P<fields>.*?)\n\}}"
_FIELD = re.compile(r"^\s*(?:pub(?:\(crate\))? )?(?P<name>\w+): ", re.MULTILINE)
_CI_TESTS = re.compile(r"^  mkCiTests =(?P<body>.*?)(?=^  \w+ =$|\Z)", re.DOTALL | re.MULTILINE)


class Output(NamedTuple):
    """What a revision of the builder puts into a variant, and what its ``ciTests`` run with.

    ``package_folder`` is what the folder ``<variant>/<name>/`` has: all of the package (``sources``), an
    ``__init__.py`` that loads the one above it (``loader``), or nothing, as there is no such folder
    (``none``). ``metadata`` are the keys that metadata.json can have, in the order in which they are
    written; empty for a revision without that file. ``commit_key`` is the key of a commit in
    ``provenance``: ``sha``, ``commit``, or empty where there is no provenance.

    ``backend_in_ops``: the operators' name has the backend. ``unique_symbols``: C++ is compiled
    without ``-fno-gnu-unique``. ``noarch_pyext``: ``pyext`` of ``[torch-noarch]`` decides about the
    source set. ``lock_file``: kernels.lock is in the source set. ``fills_card``: the bundle has the
    filled-in CARD.md.

    ``ci_tests``: the flake has ``ciTests``. ``ci_has_kernels``: they have the package ``kernels``;
    ``ci_has_local_kernels``: and ``LOCAL_KERNELS``, by which ``get_kernel`` loads the build.
    """

    package_folder: str
    metadata: tuple[str, ...]
    commit_key: str
    backend_in_ops: bool
    unique_symbols: bool
    noarch_pyext: bool
    lock_file: bool
    fills_card: bool
    ci_tests: bool
    ci_has_kernels: bool
    ci_has_local_kernels: bool

    @property
    def makes_package_folder(self) -> bool:
        """Whether a variant has ``<name>/__init__.py``."""
        return self.package_folder != NO_FOLDER

    @property
    def writes_digest(self) -> bool:
        """Whether metadata.json has the digest of each file."""
        return "digest" in self.metadata

    @property
    def writes_provenance(self) -> bool:
        """Whether metadata.json has the commits of the kernel and of the builder."""
        return "provenance" in self.metadata

    @property
    def writes_kernel_depends(self) -> bool:
        """Whether metadata.json has the kernels that this one loads."""
        return "kernel-depends" in self.metadata


def from_json(value: Mapping[str, Any]) -> Output:
    """The traits that an entry of ``outputs.json`` describes."""
    return Output(**{**value, "metadata": tuple(value["metadata"])})


def bundled(commit: str) -> Output | None:
    """The traits of the builder at ``commit``, if the bundled data has it."""
    number = builder.output_number(commit)
    return None if number is None else _outputs()[number]


def newest() -> Output:
    """The traits of the newest revision of the builder's main branch in the bundled data."""
    found = bundled(builder.newest()[0])
    assert found is not None
    return found


@lru_cache(maxsize=1)
def _outputs() -> tuple[Output, ...]:
    return tuple(from_json(value) for value in json.loads((builder.DATA / "outputs.json").read_bytes()))


def paths(versions_path: str) -> tuple[str, ...]:
    """The files that ``traits`` may read, for a builder that has ``versions_path``: the first of its kind
    counts."""
    base, rust = _bases(versions_path)
    names = (*_EXTENSION, _BUILD, _SOURCE_SET)
    templates = [root + name for root in _TEMPLATES for name in (*_CMAKE_EXTENSION, *_VARIANTS, *_PREAMBLE)]
    return (
        *(base + name for name in names),
        *(prefix + name for prefix in rust for name in (*_METADATA, _GIT, *templates)),
    )


def traits(versions_path: str, read: Reader) -> dict[str, Any]:
    """The traits of a revision, as an entry of ``outputs.json``.

    Raises ``WrongSurroundings`` for code in other places than any revision in the data has it: a fork's.
    """
    base, rust = _bases(versions_path)

    def first(names: Iterable[str]) -> str:
        return next((text for name in names if (text := read(name)) is not None), "")

    def template(names: tuple[str, ...]) -> str:
        return first(prefix + root + name for prefix in rust for root in _TEMPLATES for name in names)

    extension = first(base + name for name in _EXTENSION)
    build = read(base + _BUILD) or ""
    source_set = read(base + _SOURCE_SET) or ""
    structs = first(prefix + name for prefix in rust for name in _METADATA)
    structs += first(prefix + _GIT for prefix in rust)
    cmake = template(_CMAKE_EXTENSION)
    if not (extension and build and cmake):
        raise WrongSurroundings("what it puts into a variant is not where the builder has it")
    ci_tests = _CI_TESTS.search(build)
    ci_body = ci_tests["body"] if ci_tests else ""
    metadata = _metadata(structs, extension)
    has_provenance = "provenance" in metadata
    return {
        "package_folder": _package_folder(extension, template(_VARIANTS)),
        "metadata": metadata,
        "commit_key": _commit_key(structs) if has_provenance else "",
        "backend_in_ops": "_${BACKEND}_" in template(_PREAMBLE),
        "unique_symbols": "-fno-gnu-unique" not in cmake,
        "noarch_pyext": "torch-noarch" in source_set,
        "lock_file": '"kernels.lock"' in source_set,
        "fills_card": "fill-card" in build,
        "ci_tests": ci_tests is not None,
        "ci_has_kernels": re.search(r"^\s+kernels$", ci_body, re.MULTILINE) is not None,
        "ci_has_local_kernels": "LOCAL_KERNELS" in ci_body,
    }


def _bases(versions_path: str) -> tuple[str, tuple[str, ...]]:
    """The folder of the Nix code, and the folders that may hold the Rust code."""
    base = versions_path.removesuffix("versions.nix")
    return base, tuple(dict.fromkeys(("", base)))


def _package_folder(extension: str, variants: str) -> str:
    if "compat.py" in extension + variants:
        return LOADER
    return SOURCES if re.search(r"cp -r torch-ext/\$\{\w+\} \$out", extension) else NO_FOLDER


def _metadata(structs: str, extension: str) -> list[str]:
    """The keys of metadata.json: the fields of the struct, but for what no code fills in at this revision."""
    if not structs:
        # For some weeks (7a24559, 2025-11-18 to 0253b68) the Nix code wrote the file.
        return ["python-depends"] if "metadata.json" in extension else []
    keys = _fields(structs, "Metadata")
    if "hash-kernel-hook" not in extension:
        keys = [key for key in keys if key != "digest"]
    return keys


def _commit_key(structs: str) -> str:
    for name in ("GitStatus", "GitHash"):
        keys = [key for key in _fields(structs, name) if key != "dirty"]
        if keys:
            return keys[0]
    return ""


def _fields(text: str, struct: str) -> list[str]:
    found = re.search(_STRUCT.format(name=struct), text, re.DOTALL)
    return [name.replace("_", "-") for name in _FIELD.findall(found["fields"])] if found else []
