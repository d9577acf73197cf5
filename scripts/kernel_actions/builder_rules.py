"""Which rules a revision of the builder follows, as its own Nix code says.

The bundled data has them for every revision up to its date. For a revision after it, or of a
fork, they are told from the code that selects and names variants: the traits that are looked for
give the bundled answer for all of the revisions in the data (a test of ``update_builder_data``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from kernel_actions import builder

# Where versions.nix was in the course of time, the newest place first.
VERSIONS_PATHS = ("nix-builder/versions.nix", "builder/versions.nix", "versions.nix")
# The code that selects and names variants, beside versions.nix; its parts moved between these files.
SELECTING = (
    "lib/build.nix",
    "lib/kernel-config.nix",
    "lib/torch-version-utils.nix",
    "lib/variants/torch.nix",
    "lib/variants/tvm-ffi.nix",
)
_NAMING = ("lib/build-variants.nix", "lib/build-version.nix", "lib/gen-flake-outputs.nix")

Reader = Callable[[str], "str | None"]
"""Gives the text of a file of the builder by its path, ``None`` when there is none."""


def paths(versions_path: str) -> tuple[str, ...]:
    """The files that ``traits`` reads, for a builder that has ``versions_path``."""
    base = versions_path.removesuffix("versions.nix")
    return ("flake.nix", *(base + name for name in (*SELECTING, *_NAMING)))


def traits(versions_path: str, read: Reader) -> dict[str, Any]:
    """The rules of a revision, as an entry of ``rules.json``."""
    base = versions_path.removesuffix("versions.nix")
    selecting = "".join(read(base + name) or "" for name in SELECTING[:2])
    flake = read("flake.nix") or ""
    everything = "".join(read(path) or "" for path in paths(versions_path))
    stable_abi = None
    if "stable-abi" in selecting:
        stable_abi = "per-backend" if "ForBackend" in selecting else "string"
    is_old = "general.cuda-minver" in selecting
    names = read(f"{base}lib/variants/torch.nix")
    abi = "always" if names is None or "cxx11" in names else "never"
    if any("cxx11Abi" in (read(base + name) or "") for name in _NAMING):
        abi = "by-set"
    return {
        "noarch": "torch-universal" if "torch-universal" in everything else "torch-<backend>",
        "cuda_bounds": f"general.{'cuda-minver/maxver' if is_old else 'cuda.minver/maxver'}",
        "torch_bounds": "toml.torch.minver" in selecting.replace("buildToml", "toml"),
        "tvm_ffi": "frameworkSupported" in selecting,
        "stable_abi": stable_abi,
        "backend_bundle": "backendBundle" in everything,
        "backend_ci": "backendCi" in everything,
        "torch_versions_arg": "function" if "torchVersions ? _:" in flake else "list",
        "requires_backends": "? backends" in everything,
        "abi_in_names": abi,
    }


def fingerprint(text: str) -> str:
    """What a file's text is recognised by in ``reviewed.txt``."""
    import hashlib  # Not at the top: a plan for a known builder does without.

    return hashlib.sha256(text.encode()).hexdigest()[:16]


def unreviewed(texts: Mapping[str, str | None]) -> list[str]:
    """Those of the selecting files in ``texts`` that are of no revision in the bundled data: their rules
    may be new."""
    return [
        path
        for path, text in texts.items()
        if text is not None and path.endswith(SELECTING) and fingerprint(text) not in _reviewed()
    ]


@lru_cache(maxsize=1)
def _reviewed() -> frozenset[str]:
    return frozenset((builder.DATA / "reviewed.txt").read_text(encoding="ascii").split())
