"""One run of a kernel's tests: from a built variant to the report on it."""

from __future__ import annotations

import fnmatch
import importlib.util
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from kernel_actions import built, console, digests, manifest, settings
from kernel_actions.base import files
from kernel_actions.built import BuiltVariant
from kernel_actions.errors import KernelFailed, Place, WrongInput, WrongSurroundings, printable
from kernel_actions.local_builder import sources
from kernel_actions.manifest import Manifest
from kernel_actions.settings import Settings
from kernel_actions.test import confined, gpu, kernel_import, model, sanitizer
from kernel_actions.test.confined import Channels, Ended, Limits
from kernel_actions.test.gpu import Before
from kernel_actions.test.model import Reason, Selection, Surroundings, TestReport
from kernel_actions.test.progress import Progress, junit_with_reason, signal_name, stack_places

# The marker that the builder's ciTests select by.
MARKER = "kernels_ci"
# In bytes: of a longer file the beginning is looked at.
_LARGEST_TEST = 10_000_000
# Seconds that one test, and a whole run, may take unless something else is said.
TEST_LIMIT = 600.0
RUN_LIMIT = 3600.0
# What is shown of the tests' output while they run, in characters: the log of a job is for reading.
MOST_SHOWN = 4_000_000
_PROGRAM = Path(__file__).with_name("program.py")
# pytest: all passed; tests failed; none selected.
_PASSED, _FAILED, _NONE = 0, 1, 5
_SAMPLES = "samples.py"


@dataclass(frozen=True)
class Request:
    """What is asked of a run; see the options of ``test``. Limits are in seconds."""

    require_gpu: str = "auto"
    environment: Literal["current", "pip", "nix"] = "current"
    marker: str = MARKER
    paths: tuple[str, ...] = ("tests",)
    arguments: tuple[str, ...] = ()
    limits: Limits = field(default_factory=lambda: Limits(TEST_LIMIT, RUN_LIMIT))
    junit: Path | None = None
    opcheck: bool = False
    sanitizer: str | None = None
    nix_tests: str = ""


@dataclass(frozen=True)
class Outcome:
    """What a run of the tests gave, in whichever environment."""

    progress: Progress
    ended: Ended
    kind: Literal["current", "pip", "nix"]
    junit: bytes | None = None
    log: Path | None = None
    notes: tuple[str, ...] = ()
    stand_ins: Mapping[str, str] = field(default_factory=dict)


def arguments_of(text: str) -> tuple[str, ...]:
    """Further arguments of pytest, as a shell would take them apart. Raises ``WrongInput``."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise WrongInput(f"--pytest-args is {text!r}, whose quotes do not match") from error


def report_path(variant: BuiltVariant) -> Path:
    """Where the report on ``variant`` is written: beside its folder, which stays as it was built."""
    return variant.path.with_name(f"{variant.name}.test-report.json")


def run(kernel_dir: Path, variant: BuiltVariant, request: Request) -> TestReport:
    """Test ``variant``, and write the report beside it, whatever became of the tests.

    Raises ``WrongInput`` for a request that cannot be meant, ``KernelFailed`` for a variant that is not
    what was built, or was built from other sources, and ``WrongSurroundings`` where the environment of
    the tests cannot be made.
    """
    kernel = manifest.load(kernel_dir)
    own = settings.load(kernel_dir)
    # Before the tests, which may change what is there.
    files = file_digests(variant)
    built.check_intact(variant.path, files)
    check_current(variant, kernel)
    _check_request(kernel_dir, variant, request)
    request, unmarked = _with_tests(kernel_dir, request)
    # A report is on the last run, also when that comes to no end.
    report_path(variant).unlink(missing_ok=True)
    if request.junit is not None:
        request.junit.parent.mkdir(parents=True, exist_ok=True)
        request.junit.unlink(missing_ok=True)
    selection = Selection(request.marker, request.paths, request.arguments)
    empty = TestReport(
        variant.name, variant.digest, 0, 0, 0, 0.0, None, (),
        environment=Surroundings(request.environment), selection=selection, opcheck=request.opcheck,
        sanitizer=request.sanitizer, files=files, kernel=kernel.name, notes=unmarked,
    )  # fmt: skip
    report, outcome = _report(kernel_dir, kernel, variant, request, own, empty)
    if report.reason is not None and report.reason.kind in model.ALLOWABLE:
        report = replace(report, allowed=allowed(own, variant.name))
    built.write_json(report_path(variant), report.as_json())
    if request.junit is not None:
        progress = outcome.progress if outcome is not None else Progress(kernel_dir)
        told = outcome.junit if outcome is not None else None
        built.write_whole(request.junit, junit_with_reason(told or progress.junit(variant.name), report))
    return report


def _with_tests(kernel_dir: Path, request: Request) -> tuple[Request, tuple[str, ...]]:
    """The request, which asks for all tests where none of the kernel has the builder's marker; and a note on
    that.

    The template of ``kernel-builder init`` has a test without one (kernel-builder/src/init/templates at
    8ac69fc5): the builder's ciTests then select nothing, and take that for success.
    """
    if request.marker != MARKER or request.environment == "nix":
        return request, ()
    for path in request.paths:
        tests = kernel_dir / path.partition("::")[0]
        for file in [tests] if tests.is_file() else sorted(tests.rglob("*.py")):
            if _has_marker(file):
                return request, ()
    note = f"no test has the marker {MARKER}, so all of them were run; the builder's own ciTests run none"
    return replace(request, marker=""), (note,)


def _has_marker(file: Path) -> bool:
    try:
        return MARKER.encode() in files.read_plain(file, _LARGEST_TEST, follows_link=True)
    except OSError:
        return False


def _report(
    kernel_dir: Path,
    kernel: Manifest,
    variant: BuiltVariant,
    request: Request,
    own: Settings,
    empty: TestReport,
) -> tuple[TestReport, Outcome | None]:
    """The report, and what the tests gave, if they ran."""
    if (reason := _without_tests(kernel_dir, kernel, request)) is not None:
        return replace(empty, reason=reason), None
    with staged(variant) as folder:
        home = folder / "home"
        home.mkdir()
        variables = confined.variables(os.environ, home, own.test_variables)
        python = _python(variant, kernel, request, own)
        before = Before(())
        if request.require_gpu == "never" and variant.backend in built.GPU_BACKENDS:
            note = "no GPU was asked for (--require-gpu never): a release takes the variant for untested"
            empty = replace(empty, notes=(*empty.notes, note))
        if request.require_gpu == "always" or (
            request.require_gpu == "auto" and variant.backend in built.GPU_BACKENDS
        ):
            before = gpu.look(variant, python, variables)
            empty = replace(
                empty,
                gpu=before.gpus[0].name if before.gpus else None,
                gpus=before.gpus,
                notes=(*empty.notes, *before.notes),
            )
            if before.reason is not None:
                return replace(empty, reason=before.reason), None
        outcome = _run(kernel_dir, kernel, variant, request, folder, python, variables)
        report = _judged(kernel_dir, kernel, variant, request, empty, outcome)
    # A note and no failure: what the tests started is gone, and another job may use the same GPU by now.
    gpus, held = gpu.after(before.gpus, variables)
    report = replace(report, gpus=gpus, notes=(*report.notes, *outcome.notes, *held))
    if report.is_passed or report.reason is None:
        report = _check_unchanged(variant, report)
    return report, outcome


def _run(
    kernel_dir: Path,
    kernel: Manifest,
    variant: BuiltVariant,
    request: Request,
    folder: Path,
    python: Path,
    variables: dict[str, str],
) -> Outcome:
    """Run the tests where they are asked for."""
    on_line = _shower()
    if request.environment == "nix":
        from kernel_actions.test import nix_tests

        return nix_tests.run(kernel_dir, kernel, variant, request, folder, variables, on_line)
    repo_id = kernel.repo_id or f"local/{kernel.name}"
    log = folder / "sanitizer.log" if request.sanitizer else None
    around: list[str | Path] = []
    if request.sanitizer and log is not None:
        around = sanitizer.command(sanitizer.program(os.environ), request.sanitizer, log)
        variables = variables | sanitizer.variables()
    samples = _samples(kernel_dir, request.paths) if request.opcheck else None
    staged_variant = folder / "build" / variant.name
    importable = kernel_import.write_shim(folder / "python", kernel.python_name, staged_variant, folder)

    def command(channels: Channels) -> Sequence[str | Path]:
        asked = {
            "variant": str(staged_variant),
            "name": kernel.python_name,
            "repository": str(folder),
            "importable": str(importable),
            "repo_id": repo_id,
            "version": kernel.version,
            "marker": request.marker or MARKER,
            "events": channels.events,
            "stacks": channels.stacks,
            "samples": str(samples) if samples else None,
            "arguments": [
                *request.paths, *(("-m", request.marker) if request.marker else ()),
                # The kernel's folder stays as it is.
                "-o", f"cache_dir={folder / 'cache'}", *request.arguments,
            ],
        }  # fmt: skip
        (folder / "request.json").write_text(json.dumps(asked))
        # Isolated from the user's own modules, and unbuffered.
        return [*around, python, "-Iu", _PROGRAM, folder / "request.json"]

    progress = Progress(kernel_dir)
    ended = confined.run(
        command,
        directory=kernel_dir,
        environment=variables | {"LOCAL_KERNELS": f"{repo_id}={folder}", "PYTHONPATH": str(importable)},
        limits=request.limits,
        watched=progress,
        on_line=on_line,
        scratch=folder,
    )
    kind: Literal["current", "pip"] = "pip" if request.environment == "pip" else "current"
    return Outcome(progress, ended, kind, log=log)


def _judged(
    kernel_dir: Path,
    kernel: Manifest,
    variant: BuiltVariant,
    request: Request,
    empty: TestReport,
    outcome: Outcome,
) -> TestReport:
    """The report on a run that has ended."""
    progress, ended = outcome.progress, outcome.ended
    reason = _ending(variant, request, progress, ended)
    log = sanitizer.read(outcome.log) if outcome.log is not None else ""
    findings = sanitizer.parse(log, kernel_dir)
    if outcome.log is not None:
        built.write_whole(variant.path.with_name(variant.name + sanitizer.SUFFIX), log.encode())
    report = replace(
        empty,
        passed=progress.count("passed"),
        failed=len(progress.collection) + progress.count("failed", "error", "crashed", "time-limit", "rerun"),
        skipped=len(progress.skipped_files) + progress.count("skipped"),
        not_run=progress.not_run,
        deselected=progress.deselected,
        seconds=round(ended.seconds, 3),
        failures=progress.failures,
        skips=progress.skips,
        slowest=progress.slowest,
        left_running=ended.left,
        findings=findings,
        environment=Surroundings(outcome.kind, **_strings(progress.facts)),
        stand_ins=dict(outcome.stand_ins),
    )
    if ended.unstoppable:
        text = (
            f"{variant.name}: processes {', '.join(map(str, ended.unstoppable))} of the tests cannot be ended"
        )
        reason = Reason("unstoppable", text, "restart the machine: the driver does not let go of them")
    if reason is None:
        reason = _nothing_tested(kernel, variant, request, progress, report)
    if findings and (reason is None or reason.kind in ("failed", "crashed", "ended-early")):
        first = findings[0]
        text = f"{variant.name}: {request.sanitizer} found {len(findings)}: {first.what}"
        where = f" in {first.function}" if first.function else ""
        reason = Reason("sanitizer", text + where, path=first.path, line=first.line)
    elif reason is None and request.sanitizer and (said := sanitizer.trouble(log, ended.returncode)):
        kept = variant.name + sanitizer.SUFFIX
        reason = Reason("not-sanitized", f"{variant.name}: {said}", f"see {kept}, beside the variant")
    return replace(report, reason=reason)


def _ending(variant: BuiltVariant, request: Request, progress: Progress, ended: Ended) -> Reason | None:
    """Why the run did not come to its end; ``None`` when it did."""
    name, code = variant.name, ended.returncode
    running = ", ".join(progress.running[:3])
    if ended.limit:
        limit = request.limits.test if ended.limit == "test" else request.limits.run
        at = f" in {running}" if running else " before any test was started"
        said = f"took longer than {console.duration(limit)}"
        progress.interrupt(
            "time-limit",
            f"was ended: it {said}" if ended.limit == "test" else f"was ended with the run, which {said}",
            ended.stacks,
        )
        failed = next((one for one in progress.failures if one.kind == "time-limit"), None)
        place = (failed.path, failed.line) if failed else (None, None)
        if ended.limit == "test":
            left = console.counted(progress.not_run, "test")
            text = f"{name}: {running} {said}, and was ended; not run: {left}"
            return Reason("test-time-limit", text, "see --test-time-limit", *place)
        text = f"{name}: the tests took longer than {console.duration(limit)}, and were ended{at}"
        return Reason("run-time-limit", text, "see --time-limit", *place)
    if progress.broken:
        crashed = next((one for one in progress.failures if one.kind == "crashed"), None)
        test = crashed.test if crashed else "a test"
        text = f"{name}: {test} broke the GPU for the tests after it (not run: {progress.not_run}): "
        place = (crashed.path, crashed.line) if crashed else (None, None)
        return Reason("crashed", text + progress.broken, "", *place)
    if code < 0:
        return _signalled(name, progress, ended)
    if progress.collection:
        first = progress.collection[0]
        return Reason("collection", f"{name}: {first.test}: {first.reason}", "", first.path, first.line)
    if progress.trouble:
        return Reason("ended-early", f"{name}: the tests ended early: pytest: {progress.trouble}")
    known = (_PASSED, _FAILED, _NONE, sanitizer.EXIT_CODE if request.sanitizer else _PASSED)
    if progress.end is None or code not in known or (code == _FAILED and not progress.failures):
        if code in (_FAILED, *known) and progress.failures and progress.end is not None:
            return None
        progress.interrupt("crashed", f"ended the process: exit code {code}", ended.stacks)
        text = f"{name}: the tests ended early: exit code {code}: {last_said(ended.tail)}"
        at = f", in {running}" if running else ""
        return Reason("ended-early", text + at)
    return None


def _signalled(name: str, progress: Progress, ended: Ended) -> Reason:
    """Why a process was ended by a signal: by what it did, or by somebody else."""
    number, running = -ended.returncode, ", ".join(progress.running[:3])
    said = f"killed by {signal_name(number)}"
    places = stack_places(ended.stacks)
    progress.interrupt("crashed", said, ended.stacks)
    crashed = next((one for one in progress.failures if one.kind == "crashed"), None)
    place = (crashed.path, crashed.line) if crashed else progress._place(places)
    left = f"; not run: {console.counted(progress.not_run, 'test')}" if progress.not_run else ""
    if running:
        at = f" in {running}"
    elif progress.end is not None:
        at = " after the last test, while Python ended"
    else:
        at = " while the tests were collected"
    if number in (9, 15) and not places:
        # Nothing in the process does this to itself: the machine's memory is all, or somebody ended it.
        text = f"{name}: the tests were {said}{at}{left}"
        return Reason("killed", text, "the machine may be out of memory: see its log", *place)
    return Reason("crashed", f"{name}: the tests ended early: {said}{at}{left}", "", *place)


def _nothing_tested(
    kernel: Manifest, variant: BuiltVariant, request: Request, progress: Progress, report: TestReport
) -> Reason | None:
    """Why a run that came to its end has not tested the variant; ``None`` when it has."""
    name = variant.name
    end = progress.end or {}
    repo_id = kernel.repo_id or f"local/{kernel.name}"
    load = f'load it by get_kernel("{repo_id}", version={kernel.version}, trust_remote_code=True)'
    if report.failed:
        first = report.failures[0]
        total = console.counted(report.passed + report.failed, "test")
        text = f"{name}: {report.failed} of {total} failed; {first.test}: {first.reason}"
        # As with another repository's name, which is looked for on the Hub.
        is_unloaded = not report.passed and end.get("is_loaded") is not True
        repair = f"none of them loaded the kernel: {load}" if is_unloaded else ""
        return Reason("failed", text, repair, first.path, first.line)
    passed = progress.count("passed", own=True)
    if report.not_run:
        # As after pytest.exit(returncode=0), and with --collect-only, --setup-only and the like.
        at = f", in {progress.running[0]}" if progress.running else ""
        count = f"{report.not_run} of {console.counted(progress.selected or 0, 'selected test')}"
        text = f"{name}: {count} did not run, and pytest ended well"
        return Reason("ended-early", text + at, "see pytest.exit, and options in addopts and --pytest-args")
    if not passed and report.skipped:
        why = report.skips[0].reason if report.skips else ""
        text = f"{name}: nothing was tested, {console.counted(report.skipped, 'test')} skipped"
        return Reason("all-skipped", f"{text} ({why})" if why else text)
    if not passed:
        text = f"{name}: 0 tests ran"
        repair = f"mark the kernel's tests with @pytest.mark.{request.marker}" if request.marker else ""
        return Reason("none-selected", text, repair, "tests" if request.paths == ("tests",) else None)
    if end.get("is_loaded") is not True:
        others = end.get("others")
        instead = f" (they loaded {others[0]})" if isinstance(others, list) and others else ""
        text = f"{name}: the tests passed without loading the kernel{instead}"
        return Reason("not-loaded", text, load, "tests")
    if report.gpus and end.get(f"uses_{variant.backend}") is False:
        if end.get(f"sees_{variant.backend}") is False:
            text = f"{name} needs a GPU and Torch {report.environment.torch} sees none, though there is one"
            return Reason("no-gpu", text, "see that Torch is built for it, and fits the driver")
        text = f"{name}: the tests passed without using the GPU"
        return Reason(
            "gpu-not-used", text, "have them use tensors on the GPU, or run with --require-gpu never"
        )
    return None


def _check_request(kernel_dir: Path, variant: BuiltVariant, request: Request) -> None:
    """Raise ``WrongInput`` for a request that cannot be meant."""
    if request.junit is not None and request.junit.is_dir():
        raise WrongInput("--junit names a folder", where=Place(request.junit), repair="name a file")
    for path in request.paths:
        inside = (kernel_dir / path.partition("::")[0]).resolve()
        if path.startswith("-") or not inside.is_relative_to(kernel_dir.resolve()):
            raise WrongInput(f"{path!r} is no path in the kernel's folder")
        if path != "tests" and not inside.exists():
            raise WrongInput("there are no such tests", where=Place(kernel_dir / path), repair="see --tests")
    if request.environment == "nix" and (request.opcheck or request.sanitizer or request.arguments):
        raise WrongInput(
            "the builder's ciTests take no further arguments",
            repair="leave out --opcheck, --sanitize and --pytest-args, or use --environment pip",
        )
    if request.environment == "nix" and (request.marker != MARKER or request.paths != ("tests",)):
        raise WrongInput(
            f"the builder's ciTests are those of tests, marked {MARKER}", repair="leave out --marker, --tests"
        )
    if request.sanitizer and variant.backend != "cuda":
        raise WrongInput(f"--sanitize is for variants for CUDA, and {variant.name} is for {variant.backend}")
    if request.opcheck and _samples(kernel_dir, request.paths) is None:
        raise WrongInput(
            "there is no samples.py, which gives --opcheck the inputs of operators",
            where=Place(kernel_dir / "tests"),
            repair="add one with a function samples(op, device): see docs/testing.md",
        )


def _without_tests(kernel_dir: Path, kernel: Manifest, request: Request) -> Reason | None:
    for path in request.paths:
        tests = kernel_dir / path.partition("::")[0]
        if tests.is_file() or any(tests.glob("**/test_*.py")) or any(tests.glob("**/*_test.py")):
            return None
    return Reason(
        "no-tests",
        f"{kernel_dir / request.paths[0]} has no tests",
        f"add tests/test_{kernel.python_name}.py with tests marked @pytest.mark.{MARKER}",
    )


def _samples(kernel_dir: Path, paths: Sequence[str]) -> Path | None:
    """The author's file with the inputs of operators: the first below the tests' folders."""
    for path in paths:
        folder = kernel_dir / path.partition("::")[0]
        folder = folder if folder.is_dir() else folder.parent
        found = sorted(folder.rglob(_SAMPLES), key=lambda one: (len(one.parts), str(one)))
        if found:
            return found[0].resolve()
    return None


def _python(variant: BuiltVariant, kernel: Manifest, request: Request, own: Settings) -> Path:
    """The interpreter that runs the tests."""
    if request.environment == "pip":
        from kernel_actions.test import pip_environment

        return pip_environment.make(pip_environment.plan(variant, kernel, own.test_requirements))
    if request.environment == "current":
        for name in ("pytest", "kernels", "torch"):
            if importlib.util.find_spec(name) is None:
                raise WrongSurroundings(
                    f"the Python package {name} is not installed in {sys.prefix}",
                    repair="unset KA_PYTHON, or install the packages of requirements/kernel.txt there",
                )
        _check_packages(kernel, variant, own)
    return Path(sys.executable)


def _check_packages(kernel: Manifest, variant: BuiltVariant, own: Settings) -> None:
    """Raise ``WrongSurroundings`` for packages that the builder gives the tests and that are missing here."""
    from kernel_actions.test import packages

    asked = packages.needed(kernel, variant.backend, own.test_requirements)
    missing = [one for one in asked if one.module and importlib.util.find_spec(one.module) is None]
    if missing:
        names = " ".join(dict.fromkeys(one.name for one in missing))
        raise WrongSurroundings(
            f"missing in {sys.prefix}, and the tests take it: {names}",
            where=missing[0].where,
            repair="use --environment pip, which installs it for the tests alone",
        )


def check_current(variant: BuiltVariant, kernel: Manifest) -> None:
    """Raise ``KernelFailed`` when the variant was built from other sources than those at hand."""
    if variant.sources and variant.sources != sources.read(kernel, variant.backend).hash:
        raise KernelFailed(
            f"{variant.name} was built from other sources than those in {kernel.directory}",
            where=Place(variant.path),
            repair="build it again, then test it",
        )


def _check_unchanged(variant: BuiltVariant, report: TestReport) -> TestReport:
    """The report; with a reason when the tests have changed what they were about."""
    if variant.path.is_dir() and file_digests(variant) == report.files:
        return report
    text = f"{variant.name}: the tests have changed the files of the variant itself"
    return replace(report, reason=Reason("changed", text, "have them write to tmp_path; then build it again"))


def file_digests(variant: BuiltVariant) -> dict[str, str]:
    """The SHA-256 of each file of the variant, by its path."""
    return {
        path.relative_to(variant.path).as_posix(): digests.of(path).sha256
        for path in sorted(variant.path.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def allowed(own: Settings, name: str) -> str | None:
    """Why kernel-actions.toml lets a variant go untested; ``None`` when it does not."""
    return next(
        (why for pattern, why in own.allow_untested.items() if fnmatch.fnmatchcase(name, pattern)), None
    )


def last_said(tail: str) -> str:
    """The line of pytest's output that says most about why it ended."""
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    for mark in ("E ", "ERROR"):
        said = [line for line in lines if line.startswith(mark)]
        if said:
            return said[-1].removeprefix(mark).lstrip(": ")
    return lines[-1].strip("= ") if lines else "no output"


def _strings(facts: Mapping[str, object]) -> dict[str, str]:
    return {name: value for name, value in facts.items() if isinstance(value, str) and value}


def _shower() -> Callable[[str], None]:
    """Shows lines of the tests' output, as far as people will read them."""
    shown = 0

    def show(line: str) -> None:
        nonlocal shown
        if shown > MOST_SHOWN:
            return
        shown += len(line)
        console.say(visible(line))
        if shown > MOST_SHOWN:
            console.say("(The tests have printed more than is shown here.)")

    return show


def visible(line: str) -> str:
    """``line`` without what a terminal, or the runner, would obey."""
    line = line.rstrip("\r").replace("##[", "# #[")
    if line.isprintable():
        return line
    return "".join(one if one.isprintable() or one == "\t" else repr(one)[1:-1] for one in line)


@contextmanager
def staged(variant: BuiltVariant) -> Iterator[Path]:
    """A folder that holds a copy of the variant alone, as a repository on the Hub would.

    So the loader chooses it by its name as it would for a user, tests cannot change what is
    published, and no colon of the real path ends up in LOCAL_KERNELS, which separates by colons.
    """
    parent = None if ":" not in tempfile.gettempdir() else "/tmp"
    with tempfile.TemporaryDirectory(
        prefix="kernel-actions-test-", dir=parent, ignore_cleanup_errors=True
    ) as name:
        try:
            shutil.copytree(variant.path, Path(name) / "build" / variant.name)
        except shutil.Error as error:
            # Its text is a list of all files that could not be copied.
            why = error.args[0][0][2] if error.args and error.args[0] else error
            raise WrongSurroundings(
                f"the variant cannot be copied into {name}: {printable(str(why))[:300]}",
                repair="free some space, or have TMPDIR name a folder that has it",
            ) from error
        yield Path(name)
