"""The command ``benchmark``: what is measured, and what follows from it."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_actions import built, console, git, github, manifest, process
from kernel_actions.benchmark import baseline, cases, model, show
from kernel_actions.benchmark.model import Report
from kernel_actions.built import BuiltVariant
from kernel_actions.errors import EXIT_DONE, KernelFailed, Place, WrongInput, WrongSurroundings, printable
from kernel_actions.local_builder import sources
from kernel_actions.manifest import Manifest

if TYPE_CHECKING:
    from kernel_actions.cli import Options

_WORKER = Path(__file__).resolve().parent / "worker.py"
_LARGEST_ANSWER = 100_000_000
# Torch's name of a backend's device, as in kernels' own benchmark command.
_DEVICES = {"cpu": "cpu", "cuda": "cuda", "rocm": "cuda", "xpu": "xpu", "metal": "mps"}
_PACKAGES = ("kernels", "torch")


@dataclass(frozen=True)
class Settings:
    """How to measure. ``threshold`` is a share, as 0.05; ``time_limit`` is in seconds."""

    threshold: float
    rounds: int
    max_rounds: int
    time_limit: int
    device: str
    only: tuple[str, ...]


def run(options: Options) -> int:
    """The command ``benchmark``.

    Raises ``KernelFailed`` when a result is wrong, nothing was measured, or something is slower than the
    baseline past the threshold; ``WrongInput``; ``WrongSurroundings``, also when time ran out.
    """
    kernel_dir = options.kernel_dir
    settings = read_settings(options)
    variant = built.choose(kernel_dir, options.build_dir, options.variant)
    with github.group(f"Benchmarks of {variant.name}"), github.untrusted_output():
        report = measure(
            kernel_dir,
            variant,
            settings,
            source=options.baseline,
            repo_id=options.repo_id,
            address=options.hub,
        )
    written = show.write(report, variant.path, options.report, options.plot)
    show.show(report, options.format, written, kernel_dir)
    check(report, kernel_dir, settings)
    return EXIT_DONE


def read_settings(options: Options) -> Settings:
    """The settings of the options. Raises ``WrongInput``."""
    text = options.threshold.strip().removesuffix("%").strip()
    try:
        threshold = float(text) / 100
    except ValueError:
        threshold = math.nan
    if not 0 < threshold < 10:
        raise WrongInput(
            f"--threshold is {options.threshold!r}, which is no percentage above 0 and below 1000",
            repair="as in --threshold 5",
        )
    if options.max_rounds < options.rounds:
        raise WrongInput(f"--max-rounds is {options.max_rounds}, and --rounds {options.rounds}: that is more")
    return Settings(
        threshold=threshold,
        rounds=options.rounds,
        max_rounds=options.max_rounds,
        time_limit=options.time_limit,
        device=options.device,
        only=tuple(options.only),
    )


def measure(
    kernel_dir: Path,
    variant: BuiltVariant,
    settings: Settings,
    *,
    source: str = "",
    repo_id: str = "",
    address: str = "",
) -> Report:
    """Run the kernel's benchmarks with ``variant``, and with the baseline that ``source`` names.

    Raises ``KernelFailed`` when there are no benchmarks or they ended early, ``WrongInput`` and
    ``WrongSurroundings``. When time ran out, the report is not complete.
    """
    kernel = manifest.load(kernel_dir)
    _check_packages()
    _check_written(kernel_dir, kernel)
    built.check_intact(variant.path)
    if variant.sources and variant.sources != sources.read(kernel, variant.backend).hash:
        raise KernelFailed(
            f"{variant.name} was built from other sources than those in {kernel_dir}",
            where=Place(variant.path),
            repair="build it again, then measure it",
        )
    started, clock = datetime.now(timezone.utc), time.monotonic()
    with _folder() as work:
        found = None
        if source:
            found = baseline.find(
                source, variant, kernel, repo_id=repo_id, address=address, folder=work / "downloaded"
            )
        # Now, as a variant of the Hub goes with the folder.
        compared = None if found is None else _described(found, variant)
        answer, is_complete = _answer(kernel_dir, kernel, variant, found, settings, work)
    state = git.state(kernel_dir)
    try:
        workloads, skipped, failures = model.read_measured(answer)
        machine = model.read_machine(answer.get("machine", {}))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KernelFailed(
            f"{variant.name}: the benchmarks' answer is not as it has to be: {error}"
        ) from error
    return Report(
        kernel=kernel.name,
        variant=variant.name,
        digest=variant.digest,
        commit=state.commit if state else None,
        dirty=state is None or state.dirty,
        device=_device(variant, settings),
        started=started.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - clock, 1),
        threshold=settings.threshold,
        baseline=compared,
        machine=machine,
        workloads=workloads,
        skipped=skipped,
        failures=failures,
        complete=is_complete,
    )


def check(report: Report, kernel_dir: Path, settings: Settings) -> None:
    """Raise ``KernelFailed`` or ``WrongSurroundings`` unless all was measured and is as it should be."""
    if report.failures:
        first = report.failures[0]
        more = f"; {len(report.failures) - 1} more" if len(report.failures) > 1 else ""
        raise KernelFailed(
            f"{report.variant}: {report.name_of(first)}: {first.reason}{more}",
            where=Place(kernel_dir / first.file, first.line),
        )
    slower = [
        f"{show.label(report, workload, clock)} ({comparison.ratio:.2f} × the time, "
        f"{comparison.low:.2f} to {comparison.high:.2f})"
        for workload, clock, comparison, verdict in report.decisions()
        if verdict == "slower"
    ]
    if slower:
        assert report.baseline is not None
        raise KernelFailed(
            f"{report.variant} is slower than {report.baseline.source} by more than "
            f"{100 * report.threshold:g} %: {', '.join(slower)}",
            repair="make it as fast, or allow it with --threshold",
        )
    if not report.complete:
        raise WrongSurroundings(
            f"{report.variant}: the benchmarks took longer than {console.duration(settings.time_limit)}; "
            f"measured: {console.counted(len(report.workloads), 'workload')}",
            repair="give them more with --time-limit, or choose some with --only",
        )
    if not report.workloads:
        if report.skipped:
            first_skipped = report.skipped[0]
            skipped = console.counted(len(report.skipped), "workload")
            raise KernelFailed(
                f"{report.variant}: nothing measured, {skipped} skipped; "
                f"{report.name_of(first_skipped)}: {first_skipped.reason}"
            )
        raise WrongInput(
            f"{report.variant}: no workload is selected by {' '.join(settings.only)}",
            repair="as in --only '*float32*'",
        )


def _described(found: baseline.Found, variant: BuiltVariant) -> model.Baseline:
    return model.Baseline(
        source=found.source,
        variant=found.variant.name,
        digest=found.variant.digest,
        commit=found.commit,
        apart=_is_apart(found, variant),
    )


def _is_apart(found: baseline.Found, variant: BuiltVariant) -> bool:
    """Whether the two cannot be loaded into one process: they would register the same operators."""
    return baseline.identifier(found.variant) == baseline.identifier(variant)


def _device(variant: BuiltVariant, settings: Settings) -> str:
    if settings.device != "auto":
        return settings.device
    device = _DEVICES.get(variant.backend)
    if device is None:
        raise WrongInput(f"{variant.name} is for {variant.backend}, which has no clocks here")
    return device


def _check_packages() -> None:
    for name in _PACKAGES:
        if importlib.util.find_spec(name) is None:
            raise WrongSurroundings(
                f"the Python package {name} is not installed in {sys.prefix}",
                repair="unset KA_PYTHON, or install the packages of requirements/kernel.txt there",
            )


def _check_written(kernel_dir: Path, kernel: Manifest) -> None:
    """Raise ``KernelFailed`` when the kernel has no benchmarks."""
    if not any((kernel_dir / cases.FOLDER).glob(cases.PATTERN)):
        raise KernelFailed(
            f"{kernel_dir / cases.FOLDER} has no benchmarks",
            repair=f"add {cases.FOLDER}/benchmark_{kernel.python_name}.py: see docs/benchmarks.md",
        )


@contextmanager
def _folder() -> Iterator[Path]:
    # No colon: LOCAL_KERNELS separates by them.
    parent = None if ":" not in tempfile.gettempdir() else "/tmp"
    with tempfile.TemporaryDirectory(prefix="kernel-actions-benchmark-", dir=parent) as name:
        yield Path(name).resolve()


def _staged(variant: BuiltVariant, folder: Path) -> Path:
    """A folder that holds a copy of the variant alone, as a repository on the Hub would."""
    shutil.copytree(variant.path, folder / "build" / variant.name)
    return folder


def _answer(
    kernel_dir: Path,
    kernel: Manifest,
    variant: BuiltVariant,
    found: baseline.Found | None,
    settings: Settings,
    work: Path,
) -> tuple[dict[str, Any], bool]:
    """What the worker wrote, and whether it came to its end."""
    repo_id = kernel.repo_id or f"local/{kernel.name}"
    staged = _staged(variant, work / "kernel")
    file = work / "answer.json"
    job = {
        "kernel_dir": str(kernel_dir.resolve()),
        "repo_id": repo_id,
        "version": kernel.version,
        "folder": str(staged),
        "backend": "cpu" if variant.backend == "cpu" else None,
        "device": _device(variant, settings),
        "baseline": None if found is None else str(_staged(found.variant, work / "baseline")),
        "apart": found is not None and _is_apart(found, variant),
        "threshold": settings.threshold,
        "rounds": settings.rounds,
        "max_rounds": settings.max_rounds,
        "only": list(settings.only),
        "answer": str(file),
    }
    built.write_json(work / "job.json", job)
    finished = None
    with _limited(settings.time_limit) as is_over:
        finished = process.run(
            [sys.executable, "-IuB", _WORKER, work / "job.json"],
            directory=kernel_dir,
            environment=_environment(f"{repo_id}={staged}"),
            on_line=lambda line: console.say(printable(line)),
        )
    answer = _read(file)
    if is_over.is_set() and "error" not in answer and "no_device" not in answer:
        empty: dict[str, Any] = {"workloads": [], "skipped": [], "failures": []}
        return (answer if "workloads" in answer else empty), answer.get("complete") is True
    _check_answer(answer, variant, kernel_dir, finished)
    return answer, True


def _check_answer(
    answer: dict[str, Any], variant: BuiltVariant, kernel_dir: Path, finished: process.Finished | None
) -> None:
    if "no_device" in answer:
        raise WrongSurroundings(
            f"{variant.name} needs a GPU and Torch sees none",
            repair="run on a machine with one, or with --device cpu if the variant serves the CPU too",
        )
    if "error" in answer:
        file, line = answer.get("file"), answer.get("line")
        where = None
        if isinstance(file, str):
            where = Place(kernel_dir / file, line if isinstance(line, int) else None)
        raise KernelFailed(f"{variant.name}: {answer['error']}", where=where)
    if answer.get("complete") is not True or finished is None or finished.returncode != 0:
        raise KernelFailed(f"{variant.name}: the benchmarks ended early: {_ending(finished)}")


def _ending(finished: process.Finished | None) -> str:
    if finished is None:
        return "no output"
    if finished.returncode < 0:
        return f"killed by signal {-finished.returncode}"
    lines = [line for line in finished.output.splitlines() if line.strip()]
    return f"exit code {finished.returncode}: {lines[-1] if lines else 'no output'}"


def _read(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > _LARGEST_ANSWER:
            return {}
        answer = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _environment(local_kernels: str) -> dict[str, str]:
    """The variables that benchmarks get: no secrets, and the built variant in place of the Hub's."""
    environment = process.without_secrets(os.environ)
    environment.pop("PYTHONPATH", None)
    return environment | {
        "LOCAL_KERNELS": local_kernels,
        # Its pool of compilers would outlive the benchmarks, and disturb them.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # glibc gives large blocks back to the system, or not, by where they happen to lie; getting them anew,
        # page by page, takes longer than most kernels do. For all that is timed, it keeps what it has.
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    }


class _TimeIsOver(Exception):
    """Raised where this process waits for the worker, which is then ended."""


@contextmanager
def _limited(seconds: int) -> Iterator[threading.Event]:
    """End what is done here after ``seconds``; the event is set then. Only the main thread can."""
    is_over = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield is_over
        return

    def expire(_number: int, _frame: object) -> None:
        raise _TimeIsOver

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield is_over
    except _TimeIsOver:
        is_over.set()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
