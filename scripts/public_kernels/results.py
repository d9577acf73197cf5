"""The outcomes of one run over a checkout of kernels, as a JSON file that a later run continues."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from kernel_actions import built
from kernel_actions.errors import Place, WrongInput

SCHEMA = 1
# The stages, in the order in which they run. `builder` is the builder's own result, beside ours.
STAGES = ("plan", "compliance", "build", "test", "benchmark", "release", "builder")

#: ``passed``, ``failed``; ``absent``: the kernel has nothing for the stage (no tests, no benchmarks);
#: ``elsewhere``: it needs another machine, or a stage before it did not succeed; ``time limit``.
Verdict = Literal["passed", "failed", "absent", "elsewhere", "time limit"]


@dataclass(frozen=True)
class Outcome:
    """What became of one stage of one kernel.

    ``summary`` fits into a cell; ``detail`` is the first error line, with its place and its fix. ``inputs``
    hashes everything that the outcome depends on: another run keeps an outcome with the same inputs.
    ``seconds`` is wall time. ``facts`` are numbers and names for programs.
    """

    verdict: Verdict
    summary: str
    detail: str = ""
    seconds: float = 0.0
    inputs: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelOutcomes:
    """A kernel, the commit of the builder that its lock pins (empty: unknown), and its stages by name."""

    name: str
    builder: str
    stages: Mapping[str, Outcome] = field(default_factory=dict)

    def with_stage(self, stage: str, outcome: Outcome) -> KernelOutcomes:
        """These outcomes with another one for ``stage``."""
        return replace(self, stages={**self.stages, stage: outcome})


@dataclass(frozen=True)
class Revision:
    """A repository (``owner/name``) at a commit; ``dirty``: with uncommitted changes."""

    repository: str
    commit: str
    dirty: bool = False

    def __str__(self) -> str:
        return f"{self.repository} at {self.commit[:8]}{' with uncommitted changes' if self.dirty else ''}"


@dataclass(frozen=True)
class Machine:
    """Where a run took place. ``gpu`` and ``cuda`` are empty without a GPU."""

    label: str
    system: str
    cores: int
    gpu: str
    python: str
    torch: str
    cuda: str
    kernels: str

    def __str__(self) -> str:
        device = self.gpu or f"{self.cores} CPU cores"
        cuda = f", CUDA {self.cuda}" if self.cuda else ""
        python = f"Python {self.python}, Torch {self.torch}{cuda}, kernels {self.kernels}"
        return f"{device} ({self.system}, {python})"


@dataclass(frozen=True)
class Run:
    """All outcomes of one machine. ``date`` is the day (UTC, ISO 8601) of the last outcome."""

    date: str
    machine: Machine
    kernels_repository: Revision
    suite: Revision
    builder: Revision | None
    kernels: Mapping[str, KernelOutcomes] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write the run to ``path``, whole or not at all."""
        value = asdict(replace(self, kernels={name: self.kernels[name] for name in sorted(self.kernels)}))
        built.write_json(path, {"schema": SCHEMA, **value})

    @classmethod
    def read(cls, path: Path) -> Run:
        """The run in ``path``. Raises ``WrongInput`` for a file that holds none."""
        try:
            value = json.loads(path.read_bytes())
            if value["schema"] != SCHEMA:
                raise ValueError(f"schema {value['schema']} is not {SCHEMA}")
            return cls(
                date=value["date"],
                machine=Machine(**value["machine"]),
                kernels_repository=Revision(**value["kernels_repository"]),
                suite=Revision(**value["suite"]),
                builder=Revision(**value["builder"]) if value["builder"] else None,
                kernels={name: _kernel(one) for name, one in value["kernels"].items()},
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise WrongInput(
                f"does not hold the outcomes of a run: {error}",
                where=Place(path),
                repair="give a results.json that this command wrote, or remove it",
            ) from error


def _kernel(value: Mapping[str, Any]) -> KernelOutcomes:
    stages = {name: Outcome(**one) for name, one in value["stages"].items()}
    for name, outcome in stages.items():
        if name not in STAGES or outcome.verdict not in get_args(Verdict):
            raise ValueError(f"{name} is {outcome.verdict!r}")
    return KernelOutcomes(value["name"], value["builder"], stages)
