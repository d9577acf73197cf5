"""What the builder's own templates made, kept for tests without a checkout of the builder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.reference_builder.variant import Variant

FOLDER = Path(__file__).parent / "answers"
# In place of what differs from one revision to the next without meaning anything here.
BUILDER = {"version": "VERSION"}
_SOURCE = "github.com/huggingface/kernels, its templates run by tests/reference_builder"


@dataclass(frozen=True)
class Answer:
    """A variant without what is another one on every machine: ``digest`` has names of files alone, and the
    commit of the builder is left out."""

    files: tuple[str, ...]
    metadata: Mapping[str, Any]
    compiled: Mapping[str, tuple[str, ...]]
    linked: tuple[str, ...]

    @classmethod
    def of(cls, variant: Variant) -> Answer:
        """What is kept of ``variant``."""
        assert variant.metadata is not None
        return cls(variant.files, neutral(variant.metadata), variant.compiled, variant.linked)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Answer:
        """The answer in an entry of a file."""
        compiled = {source: tuple(options) for source, options in values["compiled"].items()}
        return cls(tuple(values["files"]), values["metadata"], compiled, tuple(values["linked"]))


def neutral(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """metadata.json in its order, without hashes and without who built it."""
    found = {key: value for key, value in metadata.items() if key not in ("digest", "provenance")}
    digest, provenance = metadata.get("digest"), metadata.get("provenance")
    if digest is not None:
        found["digest"] = sorted(digest["files"])
    if provenance is not None:
        found["provenance"] = {**provenance, "kernel-builder": BUILDER}
    return {key: found[key] for key in metadata}


def read(kernel: str) -> tuple[str, dict[str, Answer]]:
    """The Torch that the options of a kernel's answers are for, and the answer of each revision."""
    values = json.loads((FOLDER / f"{kernel}.json").read_bytes())
    answers = {
        revision: Answer.from_json(entry) for entry in values["answers"] for revision in entry["revisions"]
    }
    return values["torch"], answers


def write(kernel: str, torch: str, found: Mapping[str, Answer]) -> None:
    """Keep the answers of a kernel; those of revisions that agree as one."""
    values = {"source": _SOURCE, "torch": torch, "answers": list(_grouped(found.items()))}
    text = json.dumps(values, indent=1, ensure_ascii=False)
    (FOLDER / f"{kernel}.json").write_text(text + "\n", encoding="utf-8")


def _grouped(found: Iterable[tuple[str, Answer]]) -> Iterator[dict[str, Any]]:
    groups: dict[str, list[str]] = {}
    for revision, answer in found:
        groups.setdefault(json.dumps(asdict(answer), ensure_ascii=False), []).append(revision)
    for text, revisions in groups.items():
        yield {"revisions": revisions, **json.loads(text)}
