"""The reports of many variants, of one kernel or of many, from many machines, as one table: variant × GPU."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from kernel_actions import built, console, coverage, github, markdown
from kernel_actions.base import files
from kernel_actions.errors import (
    EXIT_DONE,
    KernelActionsError,
    KernelFailed,
    Place,
    WrongInput,
    printable,
    raise_all,
)
from kernel_actions.test.model import SCHEMA, Verdict
from kernel_actions.test.show import VERDICTS

SUFFIX = ".test-report.json"
# The merged reports, in the folder that they were found in.
FILE_NAME = "test-reports.json"
_LARGEST = 50_000_000
_MOST = 10_000
_CPU = "no GPU"
# Of more kernels, the grids of those that passed are folded.
_FEW_KERNELS = 3


@dataclass(frozen=True)
class Entry:
    """A report: of which kernel and variant, the digest of the files that were tested, on which GPU
    (``None``: on none), the verdict, the counts, and why it has not passed or may go untested."""

    kernel: str
    variant: str
    digest: str | None
    gpu: str | None
    verdict: Verdict
    passed: int
    failed: int
    skipped: int
    not_run: int
    why: str
    allowed: str | None
    path: Path

    @property
    def column(self) -> str:
        """Its column of the table."""
        return self.gpu or _CPU


def merge(folder: Path, variants: Sequence[str], form: str) -> int:
    """The command ``test --merge``: read the reports below ``folder``, show one table, and write them as one
    file. ``variants`` are those that have to be there, as ``variant`` or as ``kernel/variant``.

    Raises ``KernelFailed`` when one has not passed, is missing, or when reports are about different files.
    """
    if not folder.is_dir():
        raise WrongInput("there is no such folder", where=Place(folder))
    entries = read_all(folder)
    if not entries:
        raise KernelFailed("holds no test reports, so that nothing was tested", where=Place(folder))
    found = {one.variant for one in entries} | {f"{one.kernel}/{one.variant}" for one in entries}
    missing = sorted(set(variants) - found)
    built.write_json(folder / FILE_NAME, as_json(entries, missing))
    if form == "json":
        print(json.dumps(as_json(entries, missing), indent=2))
    else:
        header, rows = table(entries, missing)
        print(console.table(header, rows))
        for one in _untested(entries, missing):
            print(printable(one))
    if form == "github":
        github.add_summary(summary(entries, missing))
        verdict = "failed" if _errors(entries, missing) else "passed"
        passed = str(sum(one.passed for one in entries))
        github.set_outputs({"passed": passed, "verdict": verdict, "report": str(folder / FILE_NAME)})
    errors = _errors(entries, missing)
    raise_all(errors)
    return EXIT_DONE


def summary(entries: Sequence[Entry], missing: Sequence[str]) -> str:
    """The merged reports as Markdown: the verdict, why, each kernel's grid, and each variant on each GPU."""
    kernels = _by_kernel(entries, missing)
    counted = console.counted(sum(one.count for one in kernels), "variant")
    if len(kernels) > 1:
        counted += f" of {console.counted(len(kernels), 'kernel')}"
    passed = sum(one.passed for one in entries)
    header, rows = table(entries, missing)
    return markdown.join(
        markdown.heading(_verdict(entries, missing), f"Tests of {counted}: {passed} passed"),
        markdown.bullets(one.what for one in _errors(entries, missing)),
        *(_kernel_summary(one, len(kernels)) for one in kernels),
        markdown.bullets(_untested(entries, missing)),
        markdown.details("Each variant", markdown.table(tuple(map(markdown.text, header)), rows)),
    )


@dataclass(frozen=True)
class _Kernel:
    """What there is of a kernel: its reports, and its variants that have none."""

    name: str
    entries: tuple[Entry, ...]
    missing: tuple[str, ...]

    @property
    def count(self) -> int:
        """The number of its variants."""
        return len({one.variant for one in self.entries}) + len(self.missing)

    @property
    def verdict(self) -> markdown.Verdict:
        """``failed`` when anything of it makes a merge fail, ``warned`` when some of it may go untested."""
        return _verdict(self.entries, self.missing)


def _by_kernel(entries: Sequence[Entry], missing: Sequence[str]) -> list[_Kernel]:
    """The kernels, those first of which something failed. A variant that is asked for without its kernel is
    of the only one."""
    names = {one.kernel for one in entries}
    only = names.pop() if len(names) == 1 else ""
    found: dict[str, tuple[list[Entry], list[str]]] = {}
    for one in entries:
        found.setdefault(one.kernel, ([], []))[0].append(one)
    for name in missing:
        kernel, _, variant = name.rpartition("/")
        found.setdefault(kernel or only, ([], []))[1].append(variant)
    kernels = [_Kernel(name, tuple(here), tuple(gone)) for name, (here, gone) in found.items()]
    return sorted(kernels, key=lambda one: (one.verdict != "failed", one.name))


def _kernel_summary(kernel: _Kernel, among: int) -> str:
    grid = coverage.as_markdown(coverage.grid(_places(kernel.entries, kernel.missing)))
    if among == 1:
        return grid
    count = console.counted(kernel.count, "variant")
    passed = sum(one.passed for one in kernel.entries)
    title = f"{markdown.SIGNS[kernel.verdict]} {kernel.name}: {count}, {passed} passed"
    if among > _FEW_KERNELS and kernel.verdict != "failed":
        return markdown.details(title, grid)
    return markdown.join(markdown.lines([title]), grid)


def _places(entries: Sequence[Entry], missing: Sequence[str]) -> Iterator[coverage.Entry]:
    """Each variant's place in the grid; on several GPUs, what failed counts, else all that it passed on."""
    for name in dict.fromkeys([*missing, *(one.variant for one in entries)]):
        found = [one for one in entries if one.variant == name]
        on = {one.verdict: coverage.short_gpu(one.gpu) for one in found}
        if not found:
            yield coverage.of_name(name, "untested")
        elif "failed" in on:
            yield coverage.of_name(name, "failed", on["failed"])
        elif "passed" in on:
            gpus = dict.fromkeys(coverage.short_gpu(one.gpu) for one in found if one.verdict == "passed")
            yield coverage.of_name(name, "tested", ", ".join(gpus))
        else:
            yield coverage.of_name(name, "waived", "untested")


def read_all(folder: Path) -> tuple[Entry, ...]:
    """The reports below ``folder``, by kernel, variant and GPU.

    Raises ``KernelFailed`` for one that is damaged.
    """
    paths = sorted(folder.rglob(f"*{SUFFIX}"))
    if len(paths) > _MOST:
        raise WrongInput(f"holds more than {_MOST} test reports", where=Place(folder))
    found = [read(path) for path in paths]
    return tuple(sorted(found, key=lambda one: (one.kernel, one.variant, one.column, str(one.path))))


def read(path: Path) -> Entry:
    """One report. Raises ``KernelFailed`` when it is none: it may come from anywhere."""
    try:
        data = files.read_plain(path, _LARGEST)
        if len(data) > _LARGEST:
            raise ValueError("is larger than 50 MB")
        value: dict[str, Any] = json.loads(data)
        if value["schema"] != SCHEMA:
            raise ValueError(f"has the schema {value['schema']!r}")
        verdict = value["verdict"]
        counts = [value[name] for name in ("passed", "failed", "skipped", "not_run")]
        if verdict not in get_args(Verdict) or not all(type(one) is int and one >= 0 for one in counts):
            raise ValueError("is not of this form")
        reason = value["reason"]
        entry = Entry(
            kernel=_text(value["kernel"]),
            variant=_text(value["variant"]),
            digest=_text(value["digest"]) if value["digest"] is not None else None,
            gpu=_text(value["gpu"]) if value["gpu"] is not None else None,
            verdict=verdict,
            passed=counts[0],
            failed=counts[1],
            skipped=counts[2],
            not_run=counts[3],
            why=_text(reason["text"]) if reason is not None else "",
            allowed=_text(value["allowed"]) if value["allowed"] is not None else None,
            path=path,
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise KernelFailed(
            f"is no test report: {type(error).__name__}: {error}",
            where=Place(path),
            repair="test the variant again",
        ) from error
    # What it says of itself has to agree with what it counts.
    is_passed = entry.passed > 0 and entry.failed == 0 and reason is None
    if is_passed != (entry.verdict == "passed") or (entry.verdict == "untested" and not entry.allowed):
        raise KernelFailed("contradicts itself", where=Place(path), repair="test the variant again")
    return entry


def table(entries: Sequence[Entry], missing: Sequence[str]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The header and the rows: a variant a row, a GPU a column; of several kernels, those first
    that failed."""
    columns = sorted({one.column for one in entries}, key=lambda name: (name != _CPU, name))
    kernels = _by_kernel(entries, missing)
    rows = []
    for kernel in kernels:
        before = f"{kernel.name}/" if len(kernels) > 1 else ""
        for name in sorted({one.variant for one in kernel.entries} | set(kernel.missing)):
            cells = []
            for column in columns:
                here = [one for one in kernel.entries if one.variant == name and one.column == column]
                cells.append("; ".join(_cell(one) for one in here))
            rows.append((before + name, *(cells if any(cells) else ["❌ not tested", *cells[1:]])))
    return ("variant", *columns), rows


def as_json(entries: Sequence[Entry], missing: Sequence[str]) -> dict[str, Any]:
    """The merged reports for programs. ``verdict`` is ``passed`` when no variant failed or is missing."""
    return {
        "schema": SCHEMA,
        "verdict": "failed" if _errors(entries, missing) else "passed",
        "missing": list(missing),
        "reports": [
            {
                "kernel": one.kernel, "variant": one.variant, "digest": one.digest, "gpu": one.gpu,
                "verdict": one.verdict, "passed": one.passed, "failed": one.failed, "skipped": one.skipped,
                "not_run": one.not_run, "reason": one.why or None, "allowed": one.allowed,
                "path": one.path.as_posix(),
            }
            for one in entries
        ],
    }  # fmt: skip


def _cell(one: Entry) -> str:
    counts = f"{one.passed} passed" + (f", {one.failed} failed" if one.failed else "")
    counts += f", {one.not_run} not run" if one.not_run else ""
    return f"{markdown.SIGNS[VERDICTS[one.verdict]]} " + ("untested" if one.verdict == "untested" else counts)


def _verdict(entries: Sequence[Entry], missing: Sequence[str]) -> markdown.Verdict:
    if _errors(entries, missing):
        return "failed"
    return "warned" if _untested(entries, missing) else "passed"


def _untested(entries: Sequence[Entry], missing: Sequence[str]) -> list[str]:
    return [
        f"{name} is untested, as kernel-actions.toml allows: {one.allowed}"
        for name, one in _named(entries, missing)
        if one.verdict == "untested"
    ]


def _errors(entries: Sequence[Entry], missing: Sequence[str]) -> list[KernelActionsError]:
    errors: list[KernelActionsError] = []
    digests: dict[str, set[str | None]] = {}
    for name, one in _named(entries, missing):
        digests.setdefault(name, set()).add(one.digest)
        if one.verdict == "failed":
            # The reason begins with the variant.
            why = name.removesuffix(one.variant) + one.why if one.why else f"{name}: the tests failed"
            errors.append(KernelFailed(why, where=Place(one.path)))
    errors += [
        KernelFailed(f"{name}: was not tested", repair="a skipped job tests nothing") for name in missing
    ]
    errors += [
        KernelFailed(f"{name}: its reports are about different files", repair="test one build")
        for name, found in digests.items()
        if len(found) > 1
    ]
    return errors


def _named(entries: Sequence[Entry], missing: Sequence[str]) -> Iterator[tuple[str, Entry]]:
    """Each report with the name of its variant: ``kernel/variant`` where there are several kernels."""
    kernels = {one.kernel for one in entries} | {name.rpartition("/")[0] for name in missing}
    is_of_many = len(kernels - {""}) > 1
    for one in entries:
        yield f"{one.kernel}/{one.variant}" if is_of_many else one.variant, one


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:40]} is not a string")
    return value[:2_000]
