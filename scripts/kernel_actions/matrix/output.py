"""The plan for people, programs and workflows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kernel_actions import console, coverage, github, markdown
from kernel_actions.errors import WrongInput, printable
from kernel_actions.matrix import Matrix, PlannedKernel
from kernel_actions.matrix.jobs import Job
from kernel_actions.variants import LeftOut

# GitHub keeps the outputs of a job up to 1 MiB, counted in UTF-16, and drops what is larger:
# https://docs.github.com/actions/reference/workflows-and-actions/workflow-syntax#jobsjob_idoutputs
_MOST_OUTPUT = 1 << 20
# For what is neither the matrix nor what was filtered.
_SMALL_OUTPUTS = 40_000
_JOB_HEADER = ("variant", "built on", "tested on")
_MANY_JOBS = 60
# Of more, each grid is folded.
_FEW_KERNELS = 3


def _print_json(matrix: Matrix) -> None:
    # A line for each entry: to read, and written in a tenth of the time that `indent` takes.
    members = (f"  {json.dumps(name)}: {_lines(value)}" for name, value in matrix.as_json().items())
    print("{\n" + ",\n".join(members) + "\n}")


def _lines(value: Any) -> str:
    if not isinstance(value, list) or not value:
        return json.dumps(value)
    return "[\n    " + ",\n    ".join(map(json.dumps, value)) + "\n  ]"


def _print_table(matrix: Matrix) -> None:
    for number, kernel in enumerate(matrix.kernels):
        if number:
            print()
        print(_title(kernel))
        if grid := _text_grid(kernel):
            print()
            print(grid)
        if kernel.left_out and len(matrix.kernels) == 1:
            print()
            print(console.table(("left out", "variants", "such as"), _reason_rows(kernel.left_out)))
    if matrix.jobs and len(matrix.jobs) <= _MANY_JOBS:
        print()
        header = _JOB_HEADER if len(matrix.kernels) == 1 else ("kernel", *_JOB_HEADER)
        print(console.table(header, _job_rows(matrix)))
    print()
    print(_counted(matrix))


def _print_github(matrix: Matrix) -> None:
    _print_table(matrix)
    value = matrix.as_json()
    jobs = _compact({"include": value["include"]})
    tests = _compact({"include": [job.as_json() for job in matrix.tests]})
    kernels = _compact({"include": value["checked"]})
    names = dict.fromkeys(f"{part.kernel}/{part.variant.name}" for job in matrix.jobs for part in job.parts)
    variants = " ".join(names)
    archives = _compact(
        {job.artifact: [f"{part.kernel}/{part.variant.name}" for part in job.parts] for job in matrix.jobs}
    )
    room = _MOST_OUTPUT // 2 - sum(map(len, (jobs, tests, kernels, variants, archives))) - _SMALL_OUTPUTS
    if room < 0:
        raise WrongInput(
            f"the matrix of {console.counted(len(matrix.jobs), 'job')} is larger than the 1 MiB of an output",
            repair="narrow the selection, or plan it in parts",
        )
    github.set_outputs(
        {
            # Anything beside "include" would become an axis of the matrix.
            "matrix": jobs,
            "count": str(value["count"]),
            "tests": tests,
            "test-count": str(len(matrix.tests)),
            "held-back": str(matrix.held_back),
            "variants": variants,
            "kernels": kernels,
            "archives": archives,
            "filtered": _fitting(value["filtered"], room),
            "builder": _compact(value["builder"]),
        }
    )
    github.add_summary(_summary(matrix))


def _fitting(entries: Sequence[Mapping[str, Any]], room: int) -> str:
    """``entries`` as a JSON list of at most ``room`` characters; if it is cut, its end says so."""
    text = _compact(entries)
    kept: list[Mapping[str, Any]] = list(entries)
    while len(text) > room and kept:
        kept = kept[: len(kept) * 2 // 3]
        more = {"kernel": "", "variant": "", "system": "", "reason": f"and {len(entries) - len(kept)} more"}
        text = _compact([*kept, more])
    return text


def _summary(matrix: Matrix) -> str:
    header = ("kernel", *_JOB_HEADER) if len(matrix.kernels) > 1 else _JOB_HEADER
    left_out = [one for kernel in matrix.kernels for one in kernel.left_out]
    why = markdown.table(("why", "variants", "such as"), _reason_rows(left_out))
    return markdown.join(
        markdown.heading("planned", f"Plan: {_counted(matrix)}"),
        *(_kernel_summary(one, is_folded=len(matrix.kernels) > _FEW_KERNELS) for one in matrix.kernels),
        markdown.details(console.counted(len(matrix.jobs), "job"), markdown.table(header, _job_rows(matrix))),
        markdown.details(f"{len(left_out)} left out", why) if left_out else "",
    )


def _kernel_summary(kernel: PlannedKernel, *, is_folded: bool) -> str:
    grid = coverage.as_markdown(_grid(kernel))
    if is_folded:
        return markdown.details(_title(kernel), grid)
    return markdown.join(markdown.lines([_title(kernel)]), grid)


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _title(kernel: PlannedKernel) -> str:
    builder = kernel.plan.builder
    changed = ", changed by flake.nix" if kernel.plan.override else ""
    why = f": {kernel.changed}" if kernel.changed else ""
    built = f"built with {builder.repository} {builder.commit[:12]}"
    return printable(f"{kernel.name} ({kernel.directory}), {built}{changed}{why}")


def _counted(matrix: Matrix) -> str:
    variants = sum(len(kernel.selected) for kernel in matrix.kernels)
    left_out = sum(len(kernel.left_out) for kernel in matrix.kernels)
    parts = [f"{console.counted(variants, 'variant')} in {console.counted(len(matrix.jobs), 'job')}"]
    if len(matrix.kernels) != 1:
        parts.append(console.counted(len(matrix.kernels), "kernel"))
    if left_out:
        parts.append(f"{left_out} left out")
    if matrix.unchanged:
        parts.append(f"{console.counted(len(matrix.unchanged), 'kernel')} unchanged")
    if matrix.held_back:
        parts.append(f"{matrix.held_back} kept from runners that are not GitHub's")
    return ", ".join(parts)


def _job_rows(matrix: Matrix) -> list[tuple[str, ...]]:
    def row(job: Job) -> tuple[str, ...]:
        return (job.name, str(job.runner), str(job.test_runner))

    if len(matrix.kernels) == 1:
        return [row(job) for job in matrix.jobs]
    return [(_kernels(job), *row(job)) for job in matrix.jobs]


def _kernels(job: Job) -> str:
    names = list(dict.fromkeys(part.kernel for part in job.parts))
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _reason_rows(left_out: Iterable[LeftOut]) -> list[tuple[str, str, str]]:
    """Each reason with the number of its variants and the first of them."""
    by_reason: dict[str, list[str]] = {}
    for one in left_out:
        by_reason.setdefault(str(one), []).append(one.name)
    return [(reason, str(len(names)), names[0]) for reason, names in by_reason.items()]


def _text_grid(kernel: PlannedKernel) -> str:
    """What is planned and what is left out, by system and Torch downwards and by backend across."""
    made = _grid(kernel)
    if not made.rows:
        return ""
    signs = "  ".join(f"{coverage.SIGNS[state]} {state}" for state in ("planned", "left out"))
    return console.table(("system", "torch", *made.columns), coverage.table_rows(made)) + f"\n\n{signs}"


def _grid(kernel: PlannedKernel) -> coverage.Grid:
    # One that several systems share is built on one of them, and there for all.
    names = {one.name for one in kernel.selected}
    return coverage.grid(
        coverage.of_variant(one, "planned" if one.name in names else "left out")
        for one in kernel.plan.variants.variants
    )


PRINTERS: Mapping[str, Callable[[Matrix], None]] = {
    "json": _print_json,
    "table": _print_table,
    "github": _print_github,
}
