"""What a revision of the builder can build, and by which rules: from the bundled data, or from its files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernel_actions import flake_lock
from kernel_actions.errors import Place, WrongInput, WrongSurroundings
from kernel_actions.named_tuple import NamedTuple

DATA = Path(__file__).resolve().parent / "data" / "builder"

# In place of an index into outputs.json.
NOT_RECOGNISED = "-"
# Keys of a build set that name its backend, in the order in which the builder looks at them.
_BACKEND_KEYS = (
    ("cpu", "cpu"),
    ("cudaVersion", "cuda"),
    ("metal", "metal"),
    ("rocmVersion", "rocm"),
    ("tpu", "tpu"),
    ("xpuVersion", "xpu"),
)


class Rules(NamedTuple):
    """Which rules a revision of the builder follows.

    ``universal_noarch``: a kernel without compiled sources is named ``torch-universal`` and says
    ``general.universal`` (else ``torch-<backend>``); ``old_cuda_bounds``: the bounds are
    ``general.cuda-minver`` and ``-maxver``; ``stable_abi``: Torch's stable ABI is known, as a
    version for all backends (``string``) or also by backend (``per-backend``); ``abi_in_names``:
    whether names for Linux have ``cxx11`` (``always``, ``never``), or as the build set says (``by-set``);
    ``torch_versions_list``: ``torchVersions`` of flake.nix is a list, and not a function.
    """

    universal_noarch: bool
    old_cuda_bounds: bool
    torch_bounds: bool
    tvm_ffi: bool
    stable_abi: str | None
    requires_backends: bool
    torch_versions_list: bool
    abi_in_names: str = "always"


class BuildSet(NamedTuple):
    """One Torch and compute version that the builder builds for, on some systems.

    ``compute_version`` is empty for cpu, metal and tpu. ``tvm_ffi`` is the version of tvm-ffi,
    ``None`` where the set does not support it.
    """

    torch: str
    backend: str
    compute_version: str
    systems: tuple[str, ...]
    bundled: bool
    tvm_ffi: str | None
    cxx11_abi: bool

    @property
    def identity(self) -> tuple[object, ...]:
        """What tells build sets apart, whatever their systems and whether they are bundled."""
        return (self.torch, self.backend, self.compute_version, self.tvm_ffi, self.cxx11_abi)


class BuilderRevision(NamedTuple):
    """A commit of the builder: ``source`` is the path of its ``versions.nix``, ``values`` are the entries
    of its list as they stand there, and ``build_sets`` what they describe, before a kernel changes them.

    ``remarks`` are what a user should know about how the revision was found.
    """

    repository: str
    commit: str
    source: str
    values: tuple[Mapping[str, Any], ...]
    build_sets: tuple[BuildSet, ...]
    rules: Rules
    remarks: tuple[str, ...] = ()

    def as_json(self) -> dict[str, str]:
        """The revision's identity, for programs."""
        return {"repository": self.repository, "commit": self.commit}


def locked(kernel_dir: Path) -> BuilderRevision:
    """The revision that ``kernel_dir/flake.lock`` pins, from the bundled data.

    Raises ``WrongInput`` when flake.lock is missing, unreadable or pins no builder, and
    ``WrongSurroundings`` for a revision that is not in the bundled data.
    """
    builder = flake_lock.read(kernel_dir / "flake.lock")
    if builder.commit is None:
        raise WrongInput(
            f"input {builder.input_name} is locked to {builder.repository}, which has no revision",
            where=builder.where,
            repair="lock a commit of the builder",
        )
    return revision(builder.commit, where=builder.where)


def revision(commit: str, *, where: Place | None = None) -> BuilderRevision:
    """The builder at ``commit`` (40 hexadecimal digits), from the bundled data.

    Raises ``WrongInput`` when it is no commit, ``WrongSurroundings`` when the data lacks it.
    """
    found = bundled(check_commit(commit, where))
    if found is None:
        raise WrongSurroundings(
            f"builder revision {commit} is not in this version's data",
            where=where,
            repair="update this suite, lock a released revision of the builder, or plan for another "
            "one with --builder-rev",
        )
    return found


def check_commit(commit: str, where: Place | None = None) -> str:
    """``commit``. Raises ``WrongInput`` when it is not a full commit."""
    if not flake_lock.is_commit(commit):
        raise WrongInput(
            f"builder revision {commit[:80]!r} is not a commit",
            where=where,
            repair="give its 40 hexadecimal digits",
        )
    return commit


@lru_cache(maxsize=64)
def bundled(commit: str) -> BuilderRevision | None:
    """The builder at ``commit``, if the bundled data has it."""
    found = _find(commit)
    if found is None:
        return None
    table, number, _, source, repository = found.split(" ")
    values = tuple(json.loads((DATA / "tables" / f"{table}.json").read_bytes()))
    return BuilderRevision(
        repository=repository,
        commit=commit,
        source=source,
        values=values,
        build_sets=build_sets(values),
        rules=_rules()[int(number)],
    )


def output_number(commit: str) -> int | None:
    """The index into ``outputs.json`` of the builder at ``commit``; ``None`` for one that is not in the
    bundled data, or that makes variants by code in which nothing was recognised."""
    number = (_find(commit) or f"- - {NOT_RECOGNISED}").split(" ")[2]
    return None if number == NOT_RECOGNISED else int(number)


def newest() -> tuple[str, str]:
    """The newest commit of the builder's main branch in the bundled data, and its day (``2026-08-20``)."""
    commit, day = (DATA / "newest.txt").read_text(encoding="ascii").split()
    return commit, day


def _find(commit: str) -> str | None:
    """The rest of the line of ``commit`` in the list of revisions."""
    data = _revisions()
    start = data.find(f"{commit} ")
    if start < 0 or (start and data[start - 1] != "\n"):
        return None
    return data[start + len(commit) + 1 : data.index("\n", start)]


@lru_cache(maxsize=1)
def _revisions() -> str:
    return (DATA / "revisions.txt").read_text(encoding="ascii")


@lru_cache(maxsize=1)
def _rules() -> tuple[Rules, ...]:
    return tuple(rules(value) for value in json.loads((DATA / "rules.json").read_bytes()))


def rules(value: Mapping[str, Any]) -> Rules:
    """The rules that an entry of ``rules.json`` describes."""
    return Rules(
        universal_noarch=value["noarch"] == "torch-universal",
        old_cuda_bounds=value["cuda_bounds"] == "general.cuda-minver/maxver",
        torch_bounds=value["torch_bounds"],
        tvm_ffi=value["tvm_ffi"],
        stable_abi=value["stable_abi"],
        requires_backends=value["requires_backends"],
        torch_versions_list=value["torch_versions_arg"] == "list",
        abi_in_names=value["abi_in_names"],
    )


def build_sets(values: Sequence[Mapping[str, Any]]) -> tuple[BuildSet, ...]:
    """The build sets that entries of ``versions.nix`` describe."""
    return tuple(build_set(value) for value in values)


def build_set(value: Mapping[str, Any]) -> BuildSet:
    """The build set that an entry of ``versions.nix`` describes."""
    key, backend = next((key, backend) for key, backend in _BACKEND_KEYS if value.get(key))
    return BuildSet(
        torch=value["torchVersion"],
        backend=backend,
        compute_version=value[key] if key.endswith("Version") else "",
        systems=tuple(value["systems"]),
        # upstreamVariant is what bundleBuild was called before 2025-09.
        bundled=value.get("bundleBuild", value.get("upstreamVariant", False)),
        # Revisions that only say whether, and not which, all have 0.1.
        tvm_ffi=value.get("tvmFfiVersion", "0.1" if value.get("tvmFfi") else None),
        cxx11_abi=value.get("cxx11Abi", True),
    )
