"""Which git commit a built variant is from, by its metadata.json or by the report of its build.

The builder writes ``provenance`` since 81580bb9 (2026-07-07): ``{"kernel": {"sha", "dirty"}}``, which is
``{"commit", "dirty"}`` since dbc322a3 (2026-08-17), and the loader reads both (huggingface/kernels,
kernels-data/src/metadata.rs and git.rs, 8ac69fc5). Before that, metadata.json has no commit. Then the build
report of this suite counts, which names the commit that the flake was built at. It lies beside the variant
and could be of another build, so the operators' name has to agree: Nix puts the first seven digits of the
commit there, and ``_dirty`` after them (``revUnderscored`` in nix-builder/lib/gen-flake-outputs.nix, and
``--unique-id`` in lib/extension/torch/arch.nix, at ae36559c and 8ac69fc5).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# An object id of git, SHA-1 or SHA-256, as `Oid` of kernels-data/src/git.rs takes it.
_OBJECT = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})", re.IGNORECASE)
# The end of the operators' name. The local builder adds a hash of the sources to `_dirty`.
_UNIQUE = re.compile(r"_(?P<start>[0-9a-f]{7,64})(?P<dirty>_dirty(?:_[0-9a-f]+)?)?")

# What helps a variant of an older builder. `build` writes into its report what metadata.json lacks.
SAYS_COMMIT = (
    "build it with `kernel-actions build`, whose report names the commit, or lock builder 81580bb9 "
    "(2026-07-07) or newer"
)
LISTS_HASHES = (
    "build it with `kernel-actions build`, whose report lists them, or lock builder ae36559c (2026-06-05) or "
    "newer"
)


@dataclass(frozen=True)
class Provenance:
    """The state of the kernel's sources: ``commit`` is empty where nothing names one that can be believed,
    and ``problem`` says why something that does is not. What does not say that it is clean is ``dirty``."""

    commit: str
    dirty: bool
    problem: str = ""


def read(metadata: Mapping[str, Any], report: Mapping[str, Any]) -> Provenance:
    """The provenance of a variant: what its metadata.json says, else what its build report does.

    Both may hold anything.
    """
    described = metadata.get("provenance")
    kernel = described.get("kernel") if isinstance(described, dict) else None
    is_reported_dirty = report.get("dirty") is True
    if isinstance(kernel, dict):
        commit = _object(kernel.get("commit") or kernel.get("sha"))
        return Provenance(commit, kernel.get("dirty") is not False or is_reported_dirty)
    commit = _object(report.get("commit"))
    if not commit:
        return Provenance("", True)
    unique = _UNIQUE.fullmatch(_unique_part(metadata))
    if unique is None or not commit.startswith(unique["start"]):
        return Provenance("", True, f"its build report names commit {commit[:12]}, which is not in its id")
    return Provenance(commit, report.get("dirty") is not False or bool(unique["dirty"]))


def _object(value: object) -> str:
    return value.lower() if isinstance(value, str) and _OBJECT.fullmatch(value) else ""


def _unique_part(metadata: Mapping[str, Any]) -> str:
    """What the id has after the kernel's name and its backend: ``_name_backend`` (kernel-builder's
    ``KernelIdentifier::to_string_for_backend``)."""
    backend = metadata.get("backend")
    kind = backend.get("type") if isinstance(backend, dict) else None
    return str(metadata.get("id", "")).removeprefix(
        f"_{str(metadata.get('name', '')).replace('-', '_')}_{kind}"
    )
