"""kernel-actions.json: what a release holds, kept with it on the Hub.

It lies beside ``build/`` on the branch of a version (and on the staging branch before), so that
whoever has a revision can tell which release it is, from which commit each variant was built, and
by which tests it passed. The loader does not read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kernel_actions import built
from kernel_actions.errors import KernelFailed
from kernel_actions.release.version import Version, parse

FILE_NAME = "kernel-actions.json"
_SCHEMA = 1


@dataclass(frozen=True)
class Tests:
    """What became of a variant's tests: how many passed, failed and were skipped, and on which GPU."""

    passed: int
    failed: int
    skipped: int
    gpu: str | None

    @property
    def is_passed(self) -> bool:
        """Whether something was tested, and nothing failed."""
        return self.passed > 0 and self.failed == 0


@dataclass(frozen=True)
class VariantRecord:
    """A variant: the release that it is from, the git commit it was built from, and by which builder
    (``nix``, ``local``; empty: not known).

    ``dirty``: it holds more than that commit. ``digest`` is one hash over the hashes of its files;
    ``metadata`` is the SHA-256 of metadata.json itself. ``tests`` are of the files with that digest;
    ``None``: not tested, of which ``untested`` is the reason that kernel-actions.toml gives for it.
    ``hashes`` are those of the files, in the form of metadata.json, where that is of a builder before
    ae36559c and lists none: this record is then all that lists them.
    """

    release: str
    commit: str
    dirty: bool
    builder: str
    digest: str
    metadata: str
    tests: Tests | None
    untested: str = ""
    hashes: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class RolledBack:
    """A release that was taken off the version's branch: the commit on the Hub that it was (its tag stays
    there), the git commit it was made from, and when it was taken back, in UTC."""

    release: str
    commit: str
    source: str
    when: str


@dataclass(frozen=True)
class Record:
    """A release: its version, the git commit, and the variants by name.

    ``base`` is the commit of the version's branch on the Hub that it was made for, empty for the
    first release of a major version. ``unknown`` are variants that were on that branch before, of
    which no release tells anything. ``rolled_back`` are the releases of this major version that were
    taken back, on whose tags nobody should stay. ``branch`` is the one on the Hub that the release was
    promoted to, ``v`` and the major version unless build.toml names another.
    """

    kernel: str
    release: Version
    commit: str
    dirty: bool
    base: str
    builder: Mapping[str, str] = field(default_factory=dict)
    variants: Mapping[str, VariantRecord] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    rolled_back: tuple[RolledBack, ...] = ()
    branch: str = ""

    def __post_init__(self) -> None:
        if not self.branch:
            object.__setattr__(self, "branch", self._default_branch)

    @property
    def _default_branch(self) -> str:
        return f"v{self.release.major}"

    @property
    def own(self) -> dict[str, VariantRecord]:
        """The variants of this very release, without those that are kept from earlier ones."""
        return {name: one for name, one in self.variants.items() if one.release == str(self.release)}

    def as_bytes(self) -> bytes:
        """The file. The same release has the same bytes, whenever and wherever it is made."""
        value: dict[str, Any] = {
            "schema": _SCHEMA,
            "kernel": self.kernel,
            "release": str(self.release),
            "commit": self.commit,
            "dirty": self.dirty,
            "base": self.base,
            "builder": dict(self.builder),
            "variants": {name: _as_json(one) for name, one in sorted(self.variants.items())},
            "unknown": sorted(self.unknown),
        }
        if self.branch != self._default_branch:
            value["branch"] = self.branch
        if self.rolled_back:
            # `lock` takes each text in it for the name of a release or a commit that was taken back.
            value["rolled_back"] = [asdict(one) for one in self.rolled_back]
        return (json.dumps(value, indent=2) + "\n").encode()


def _as_json(one: VariantRecord) -> dict[str, Any]:
    value = asdict(one)
    if not one.untested:
        del value["untested"]
    if one.hashes is None:
        del value["hashes"]
    return value


def read(data: bytes, where: str) -> Record:
    """The record in a file. Raises ``KernelFailed`` when it is none; ``where`` says of what."""
    try:
        value = json.loads(data)
        if value["schema"] != _SCHEMA:
            raise ValueError(f"schema {value['schema']} is not known")
        release = parse(value["release"])
        if release is None:
            raise ValueError(f"{value['release']!r} is not a version")
        return Record(
            kernel=_text(value["kernel"]),
            release=release,
            commit=_text(value["commit"]),
            dirty=value["dirty"] is True,
            base=_text(value["base"]),
            builder={_text(name): _text(one) for name, one in value["builder"].items()},
            variants={_text(name): _variant(one) for name, one in value["variants"].items()},
            unknown=tuple(_text(name) for name in value["unknown"]),
            rolled_back=_rolled_back(value.get("rolled_back")),
            branch=_text(value.get("branch", "")),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise KernelFailed(
            f"{FILE_NAME} of {where} cannot be read: {type(error).__name__}: {error}",
            repair="it is written by `release`: delete it on the Hub, then release again",
        ) from error


def _variant(value: dict[str, Any]) -> VariantRecord:
    tests = value["tests"]
    return VariantRecord(
        release=_text(value["release"]),
        commit=_text(value["commit"]),
        dirty=value["dirty"] is True,
        builder=_text(value["builder"]),
        digest=_text(value["digest"]),
        metadata=_text(value["metadata"]),
        tests=None
        if tests is None
        else Tests(
            int(tests["passed"]),
            int(tests["failed"]),
            int(tests["skipped"]),
            None if tests["gpu"] is None else _text(tests["gpu"]),
        ),
        untested=_text(value.get("untested", "")),
        hashes=_hashes(value.get("hashes")),
    )


def _hashes(value: Any) -> dict[str, Any] | None:
    """The hashes of a variant's files, as the builder would have written them into metadata.json."""
    if value is None:
        return None
    if value["algorithm"] not in built.ALGORITHMS:
        raise ValueError(f"algorithm {value['algorithm']!r} is not known")
    files = {_text(name): _text(one) for name, one in value["files"].items()}
    return {"algorithm": value["algorithm"], "files": files}


def _rolled_back(value: object) -> tuple[RolledBack, ...]:
    """The releases that are marked; what is no mark, as others may have written it, is none."""
    found: list[RolledBack] = []
    for one in value if isinstance(value, list) else ():
        said = one if isinstance(one, dict) else {"release": one}
        release, *rest = (said.get(name) for name in ("release", "commit", "source", "when"))
        if isinstance(release, str) and parse(release.removeprefix("v")) is not None:
            texts = (text if isinstance(text, str) else "" for text in rest)
            found.append(RolledBack(release.removeprefix("v"), *texts))
    return tuple(found)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string")
    return value
