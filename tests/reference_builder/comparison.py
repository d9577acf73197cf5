"""Where the options of our local builder differ from the builder's, and why they may."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.reference_builder.answers import Answer

# Of the builder alone: the name of the extension also where a source does not mention it (we compile nothing
# again when only the commit has changed), the macro that CMake names after a target, the folders of a library
# that Torch's configuration asks for, and libtorch once more.
_BUILDER_ALONE = ("-DTORCH_EXTENSION_NAME=OPS", "-DOPS_EXPORTS", "-L/lib/", "TORCH/lib/libtorch.so")
# Of ours alone: no path of this machine in the binary, where Nix's sandbox has one path everywhere; the
# generated registration.h in a folder of its own, as nothing is written beside the author's files.
_OURS_ALONE = ("-Dkernel_EXPORTS", "-ffile-prefix-map=", "-IPROJECT/")
# Ours alone: manylinux_2_28's libc has no __libc_single_threaded, this machine's may.
_SOURCES_ALONE = {"PROJECT/compatibility.cpp"}

Differences = dict[str, tuple[tuple[str, ...], tuple[str, ...]]]
"""For each source, and the linker, the options of the builder alone and of ours alone."""


def without_digest(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """metadata.json without hashes and without the name of the builder."""
    found = {key: value for key, value in metadata.items() if key != "digest"}
    if "provenance" in found:
        found["provenance"] = {
            key: value for key, value in found["provenance"].items() if key != "kernel-builder"
        }
    return found


def of_options(answer: Answer, compiled: Mapping[str, Iterable[str]], linked: Iterable[str]) -> Differences:
    """The differences that none of the reasons above explains; empty where there are none."""
    found: Differences = {}
    for source in sorted({*answer.compiled, *compiled} - _SOURCES_ALONE):
        theirs = {option.removesuffix("/.") for option in answer.compiled.get(source, ())}
        own = set(compiled.get(source, ()))
        found[source] = (_unexplained(theirs - own, _BUILDER_ALONE), _unexplained(own - theirs, _OURS_ALONE))
    theirs, own = set(answer.linked), set(linked)
    found["(linker)"] = (_unexplained(theirs - own, _BUILDER_ALONE), _unexplained(own - theirs, _OURS_ALONE))
    return {source: options for source, options in found.items() if any(options)}


def _unexplained(options: set[str], explained: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(option for option in options if not option.startswith(explained)))
