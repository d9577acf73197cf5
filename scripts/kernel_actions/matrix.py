"""``matrix``: the jobs that build and test a kernel, planned without Nix."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_actions import builder, console, github, manifest, settings, variants
from kernel_actions.builder import BuilderRevision
from kernel_actions.errors import EXIT_DONE, WrongInput
from kernel_actions.manifest import Manifest
from kernel_actions.variants import LeftOut, Variant

if TYPE_CHECKING:
    from kernel_actions.cli import Options

# GitHub's limits: https://docs.github.com/actions/reference/limits
LARGEST_MATRIX = 256


@dataclass(frozen=True)
class Job:
    """One entry of the matrix: a variant, and the labels of the runners that build and test it."""

    kernel: str
    directory: str
    variant: Variant
    runner: tuple[str, ...]
    test_runner: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The entry as a workflow sees it, under ``matrix.<key>``."""
        return {
            "kernel": self.kernel,
            "dir": self.directory,
            "variant": self.variant.name,
            "arch_variant": self.variant.arch_name,
            "backend": self.variant.backend,
            "compute": self.variant.compute,
            "torch": self.variant.torch,
            "system": self.variant.system,
            "runner": list(self.runner),
            "test_runner": list(self.test_runner),
        }


@dataclass(frozen=True)
class Matrix:
    """The plan: the jobs, what was left out, and the revision of the builder it is made for."""

    jobs: tuple[Job, ...]
    left_out: tuple[LeftOut, ...]
    builder: BuilderRevision

    def as_json(self) -> dict[str, Any]:
        """The plan for programs."""
        return {
            "include": [job.as_json() for job in self.jobs],
            "filtered": [
                {"variant": one.name, "system": one.system, "reason": one.reason} for one in self.left_out
            ],
            "count": len(self.jobs),
            "builder": self.builder.as_json(),
        }


@dataclass(frozen=True)
class Selection:
    """What the options of ``matrix`` keep. Empty tuples keep everything."""

    scope: str = "release"
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()
    torch: tuple[str, ...] = ()

    def reason_against(self, variant: Variant) -> str | None:
        """Why ``variant`` is not selected; ``None`` when it is."""
        if self.scope == "release" and not variant.bundled:
            return "not in the builder's bundle (scope release)"
        if self.scope == "pr" and not variant.chosen_for_ci:
            return "not the one that the builder's CI builds (scope pr)"
        if self.backends and variant.backend not in self.backends:
            return f"backend {variant.backend} is not in --backends"
        if self.systems and variant.system not in self.systems:
            return f"system {variant.system} is not in --systems"
        if self.torch and variant.torch not in self.torch:
            return f"Torch {variant.torch} is not in --torch"
        names = (variant.name, *variant.arch_names)
        if self.only and not any(_matches(name, self.only) for name in names):
            return "does not match --only"
        for pattern in self.skip:
            if any(_matches(name, (pattern,)) for name in names):
                return f"matches --skip {pattern}"
        return None


def plan_matrix(
    kernel: Manifest,
    revision: BuilderRevision,
    runners: settings.Settings,
    selection: Selection,
    directory: str,
) -> Matrix:
    """The jobs for the selected variants of a kernel. Pure: reads and writes nothing."""
    plan = variants.plan(kernel, revision)
    selected: list[Variant] = []
    left_out = list(plan.left_out)
    for variant in plan.variants:
        reason = selection.reason_against(variant)
        if reason is None:
            selected.append(variant)
        else:
            left_out.append(LeftOut(variant.name, variant.system, reason))
    jobs = tuple(
        Job(
            kernel=kernel.name,
            directory=directory,
            variant=variant,
            runner=runners.build_runner(variant.system, variant.backend),
            test_runner=runners.test_runner(variant.system, variant.backend),
        )
        for variant in variants.build_once(selected)
    )
    return Matrix(jobs, tuple(left_out), revision)


def planned_variants(kernel_dir: Path) -> tuple[Variant, ...]:
    """All variants that the locked builder can make of the kernel, bundled or not."""
    return variants.plan(manifest.load(kernel_dir), builder.locked(kernel_dir)).variants


def run(options: Options) -> int:
    """The command ``matrix``."""
    kernel_dir = options.kernel_dir
    kernel = manifest.load(kernel_dir)
    revision = builder.revision(options.builder_rev) if options.builder_rev else builder.locked(kernel_dir)
    selection = Selection(
        scope=options.scope,
        only=tuple(options.only),
        skip=tuple(options.skip),
        backends=_known("backends", options.backends, manifest.BACKENDS),
        systems=_known("systems", options.systems, variants.SYSTEMS),
        torch=tuple(options.torch),
    )
    for warning in kernel.warnings:
        console.say(f"kernel-actions: warning: {warning}")
    matrix = plan_matrix(kernel, revision, settings.load(kernel_dir), selection, kernel_dir.as_posix())
    _check_size(matrix, options.allow_empty, kernel_dir)
    _PRINTERS[options.format](matrix)
    return EXIT_DONE


def _check_size(matrix: Matrix, allow_empty: bool, kernel_dir: Path) -> None:
    if not matrix.jobs and not allow_empty:
        reasons = dict.fromkeys(one.reason for one in matrix.left_out)
        raise WrongInput(
            f"no variant of {kernel_dir / 'build.toml'} is selected: "
            + ("; ".join(reasons) if reasons else "the builder has no build set for its backends"),
            repair="widen the selection, or allow it with --allow-empty",
        )
    if len(matrix.jobs) > LARGEST_MATRIX:
        raise WrongInput(
            f"{len(matrix.jobs)} jobs are planned, and GitHub takes {LARGEST_MATRIX}",
            repair="narrow the selection with --only, --backends or --systems",
        )


def _print_json(matrix: Matrix) -> None:
    print(json.dumps(matrix.as_json(), indent=2))


def _print_table(matrix: Matrix) -> None:
    print(console.table(_HEADER, _job_rows(matrix)))
    print()
    print(_counted(matrix))
    if matrix.left_out:
        print()
        print(console.table(("left out", "system", "why"), _left_out_rows(matrix)))


def _print_github(matrix: Matrix) -> None:
    _print_table(matrix)
    value = matrix.as_json()
    github.set_outputs(
        {
            # Anything beside "include" would become an axis of the matrix.
            "matrix": _compact({"include": value["include"]}),
            "count": str(value["count"]),
            "filtered": _compact(value["filtered"]),
            "builder": _compact(value["builder"]),
        }
    )
    github.add_summary(
        f"### Build variants\n\n{console.markdown_text(_counted(matrix))}\n\n"
        + console.markdown_table(_HEADER, _job_rows(matrix))
        + "\n<details><summary>Left out</summary>\n\n"
        + console.markdown_table(("variant", "system", "why"), _left_out_rows(matrix))
        + "\n</details>\n"
    )


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


_HEADER = ("variant", "backend", "torch", "system", "built on", "tested on")
_PRINTERS: dict[str, Callable[[Matrix], None]] = {
    "json": _print_json,
    "table": _print_table,
    "github": _print_github,
}


def _job_rows(matrix: Matrix) -> list[tuple[str, ...]]:
    return [
        (
            job.variant.name,
            job.variant.backend,
            job.variant.torch,
            job.variant.system,
            ", ".join(job.runner),
            ", ".join(job.test_runner),
        )
        for job in matrix.jobs
    ]


def _left_out_rows(matrix: Matrix) -> list[tuple[str, str, str]]:
    return [(one.name, one.system, one.reason) for one in matrix.left_out]


def _counted(matrix: Matrix) -> str:
    left_out = f", {len(matrix.left_out)} left out" if matrix.left_out else ""
    return (
        f"{len(matrix.jobs)} variants{left_out}, at {matrix.builder.repository} {matrix.builder.commit[:12]}"
    )


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _known(option: str, values: list[str], known: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if value not in known:
            raise WrongInput(f"--{option} has {value!r}, which is not one of {', '.join(known)}")
    return tuple(values)
