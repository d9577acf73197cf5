"""Building variants of a kernel by Nix: what is published.

Variants are built one after the other, each with all that the machine gives: what they share is built or
fetched with the first, the log is of one variant at a time, and a variant is copied out, and to the cache,
before the next one begins.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kernel_actions import build_folder, built, console, github, manifest, markdown, process
from kernel_actions.errors import (
    EXIT_DONE,
    KernelActionsError,
    KernelFailed,
    Place,
    WrongInput,
    WrongSurroundings,
    printable,
)
from kernel_actions.local_builder import layout, sources
from kernel_actions.manifest import Manifest
from kernel_actions.nix import checks, cli, diagnostics, disk, memory, namespaces, results, store
from kernel_actions.nix.checks import Source, Wanted
from kernel_actions.nix.log import Event, Log, Progress, short_name
from kernel_actions.nix.results import NixBuildReport, Tree
from kernel_actions.nix.store import Settings, Target

if TYPE_CHECKING:
    from kernel_actions.cli import Options

# What a build may print, in bytes, where nix.conf has no limit: without end it fills the disk.
_LARGEST_LOG = "500000000"
# GitHub shows ten errors and ten warnings of a step.
_SHOWN = 10
# The last lines of a failed derivation's log that are shown again, where the eye falls.
_LOG_END = 20
# Of a line there, in characters.
_LONGEST_SHOWN = 1000
_SHOWN_REGISTERS = 20
# Seconds between two lines of progress: in a job's log, and for somebody who waits.
_PROGRESS_EVERY = 30.0
_PROGRESS_EVERY_HERE = 10.0
# What Nix says of settings that it is given here, and a daemon takes from trusted users alone; and of what it
# does about a network that fails.
_NO_NEWS = re.compile(
    r"ignoring the client-specified setting '(?:sandbox-fallback|max-build-log-size)'|; retrying in \d+"
)
_DURATION = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,5})m(?:in)?)?(?:(\d{1,6})s?)?")
_STEP = re.compile(r"\[\d+/\d+\] ")
_BUILD = (
    "build", "--json", "--no-update-lock-file", "--no-write-lock-file", "--log-format", "internal-json", "-v",
    *cli.NO_SETTINGS_OF_FLAKES,
    # Where a sandbox cannot be had, a build fails rather than go on without.
    "--option", "sandbox-fallback", "false",
)  # fmt: skip


class Request(NamedTuple):
    """What ``build`` is asked for; see its options."""

    kernel_dir: Path
    variants: tuple[str, ...]
    output: Path
    archive: Path | None = None
    push_to: str = ""
    token: str = ""
    time_limit: float = 5 * 3600 + 40 * 60
    check_reproducible: bool = False
    allow_dirty: bool = False
    allow_unsandboxed: bool = False
    export_tests: Path | None = None
    is_job: bool = False


class _Built(NamedTuple):
    """What Nix made of one attribute."""

    derivation: str
    path: str
    log: Log
    peak_memory: int | None
    seconds: float


class _TimeIsUp(Exception):
    """The time limit ended what was going on."""


def run(options: Options) -> int:
    """The command ``build`` with Nix."""
    if options.import_tests:
        return _import(options)
    archive = options.kernel_dir / options.archive if options.archive else None
    reports = build(
        Request(
            kernel_dir=options.kernel_dir,
            variants=tuple(options.variant),
            output=Path(options.output),
            archive=archive,
            push_to=options.push_to,
            token=options.push_token or os.environ.get("CACHIX_AUTH_TOKEN", ""),
            time_limit=seconds(options.time_limit),
            check_reproducible=options.check_reproducible,
            allow_dirty=options.allow_dirty,
            allow_unsandboxed=options.allow_unsandboxed,
            export_tests=Path(options.export_tests) if options.export_tests else None,
            is_job=options.format == "github",
        )
    )
    _print(options.format, reports)
    return EXIT_DONE


def seconds(text: str) -> float:
    """A time limit as people write it: ``5h40m``, ``90m``, ``30s``; a number alone is seconds.

    Raises ``WrongInput``.
    """
    found = _DURATION.fullmatch(text.strip().replace(" ", ""))
    parts = [int(part or 0) for part in found.groups()] if found else []
    total = parts[0] * 3600 + parts[1] * 60 + parts[2] if parts else 0
    if total <= 0:
        raise WrongInput(
            f"--time-limit is {text[:40]!r}, which is no duration", repair="give one as 5h40m or 90m"
        )
    return float(total)


def build(request: Request) -> list[NixBuildReport]:
    """Build the variants into ``output/<variant>``; ``output`` is relative to the kernel's folder.

    All are tried, also when one fails: what is finished is kept, copied and pushed at once.

    Raises ``KernelFailed`` (a compile error, or a result that differs when it is built again), ``WrongInput``
    and ``WrongSurroundings``; the errors of further variants are its ``others``.
    """
    started = time.monotonic()
    kernel = manifest.load(request.kernel_dir)
    found = checks.source(request.kernel_dir, allow_dirty=request.allow_dirty)
    settings = store.settings()
    # A name that is none is told before what is wrong with this machine.
    planned = checks.planned(request.kernel_dir, request.variants)
    is_sandboxed = checks.check_sandbox(settings, is_required=not request.allow_unsandboxed)
    target = store.target(request.push_to) if request.push_to else None
    if target is not None and not is_sandboxed:
        raise WrongInput("what is built without a sandbox is not pushed", repair="leave out --push-to")
    if target is not None and target.needs_token and not request.token:
        # So are the pull requests of forks, which get no secrets.
        console.say(f"No token: what is built is not copied to {target.shown}")
        target = None
    output = request.kernel_dir / request.output
    _check_folders(kernel, output, request.archive)
    if found.state.dirty:
        console.say(
            "The working tree has uncommitted changes: what is built is marked, and no release takes it"
        )
    version = store.version()
    with found.address(version) as address:
        names = checks.wanted(request.kernel_dir, address, request.variants, settings, planned)
        deadline = started + request.time_limit
        work = build_folder.prepare(output)
        return _Job(
            request, kernel, found, address, settings, is_sandboxed, target, output, work, deadline, version
        ).run(names)


def _check_folders(kernel: Manifest, output: Path, archive: Path | None) -> None:
    """Raise ``WrongInput`` for folders that are no place for what is built."""
    listed: set[str] = set()
    # Sources that are not as they have to be are missed by the build, which says so better.
    with contextlib.suppress(KernelActionsError):
        listed.update(name for backend in kernel.backends for name in sources.folders(kernel, backend))
    for option, folder in (("--output", output), ("--archive", archive)):
        if folder is not None:
            checks.check_folder(kernel.directory, folder, option)
            build_folder.check(
                kernel.directory, folder, sorted(listed), option, may_hold_others=option == "--archive"
            )
    inside = os.path.relpath(archive.resolve(), output.resolve()).split(os.sep) if archive else []
    if any(built.is_name(part) for part in inside[:1]):
        raise WrongInput(f"--archive is {archive}, which is a variant's own folder")


@dataclass
class _Job:
    """One run of ``build``: its variants, what became of them, and what went wrong."""

    _request: Request
    _kernel: Manifest
    _source: Source
    _address: str
    _settings: Settings
    _is_sandboxed: bool
    _target: Target | None
    _output: Path
    _work: Path
    _deadline: float
    _nix: str
    _reports: list[NixBuildReport] = field(default_factory=list)
    _errors: list[KernelActionsError] = field(default_factory=list)

    def run(self, names: Sequence[Wanted]) -> list[NixBuildReport]:
        left: list[str] = []
        for number, wanted in enumerate(names):
            try:
                self._check_time()
                self._variant(wanted)
            except _TimeIsUp:
                built_ones = {report.variant for report in self._reports}
                left = [
                    f"{one.name}, a second time" if one.name in built_ones else one.name
                    for one in names[number:]
                ]
                break
            except KernelActionsError as error:
                self._errors += error.all
        if self._request.export_tests is not None and not left and not self._errors:
            try:
                self._export(names, self._request.export_tests)
            except _TimeIsUp:
                left = ["the tests' closure"]
        if left:
            done = f"built {len(self._reports)} of {console.counted(len(names), 'variant')}"
            done += f"; left: {', '.join(left)}"
            self._errors.append(
                WrongSurroundings(
                    f"the time limit of {_long(self._request.time_limit)} is up: {done}",
                    repair="run again: what is finished is found in the store, or in the cache of --push-to",
                )
            )
        if self._errors:
            self._fail()
        return self._reports

    def _fail(self) -> None:
        """Raise the errors as one: a kernel that failed before surroundings that did."""
        if self._reports:
            # What was finished is shown nevertheless.
            print(console.table(_HEADER, [_row(one) for one in self._reports]))
        unique: dict[str, KernelActionsError] = {str(error): error for error in self._errors}
        ordered = sorted(unique.values(), key=lambda error: error.exit_code)
        if self._request.is_job:
            github.add_summary(_summary(self._reports, ordered))
        first, others = ordered[0], ordered[1:]
        if len(others) >= _SHOWN:
            more = len(others) - _SHOWN + 1
            others = others[: _SHOWN - 1]
            console.say(f"{console.counted(more, 'more error')} in the log: {self._work}")
        raise type(first)(first.what, where=first.where, repair=first.repair, others=tuple(others))

    def _check_time(self) -> float:
        """The seconds that are left. Raises ``_TimeIsUp``."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise _TimeIsUp
        return left

    # --- One variant ---

    def _variant(self, wanted: Wanted) -> None:
        """Build a variant, and put it where it is wanted; what it came to is the last of the reports."""
        lock = self._work / f"{wanted.name}.lock"
        held = f"Another command is building {wanted.name}"
        with contextlib.ExitStack() as stack:
            stack.enter_context(build_folder.on_disk(self._output))
            try:
                stack.enter_context(process.locked(lock, held, self._deadline))
            except TimeoutError:
                raise _TimeIsUp from None
            started = time.monotonic()
            log_file = self._work / f"{wanted.name}.nix.log"
            done = stack.enter_context(self._built(wanted.name, wanted.attribute, log_file))
            report = self._copied(wanted, done, started)
            self._reports.append(report)
            self._show(report, done)
            report = self._handed_over(report)
            if self._request.check_reproducible:
                # Not before what is finished is kept.
                difference = self._difference(wanted, done)
                report = replace(report, reproducible=not difference)
                self._write(report)
                self._handed_over(report)
                if difference:
                    raise KernelFailed(
                        f"{wanted.name} is not reproducible: built again, {difference}",
                        where=Place(self._request.kernel_dir),
                        repair="look for times, paths, random numbers and the order of files in what differs",
                    )

    def _copied(self, wanted: Wanted, done: _Built, started: float) -> NixBuildReport:
        """Copy a result to the variant's folder, unless it is there, and write its report."""
        folder = self._output / wanted.name
        new = self._work / f"{wanted.name}.new"
        layout.recover(new, folder)
        result = Tree(self._settings.real(done.path), self._settings.store_dir, self._settings.root)
        tree = result.variant(wanted.name)
        is_current = results.is_current(folder, done.path)
        if not is_current:
            try:
                results.copy(tree, new)
                # What is not a whole variant takes no other's place.
                built.check_intact(built.read(new).path)
                layout.swap_in(new, folder)
            finally:
                shutil.rmtree(new, ignore_errors=True)
        report = self._describe(wanted, done, folder)
        took = round(time.monotonic() - started, 1)
        report = replace(report, reused=is_current, seconds=took)
        self._write(report)
        return report

    def _handed_over(self, report: NixBuildReport) -> NixBuildReport:
        """Take a variant to the cache and into an archive, as they are wanted; its report says so."""
        self._reports[-1] = report
        if self._target is not None and report.pushed != self._target.shown:
            report = self._push(report, self._target)
        if self._request.archive is not None:
            archive = self._request.archive / f"{report.variant}.tar"
            with build_folder.on_disk(self._request.archive, "--archive"):
                results.pack(report.path, archive)
            report = replace(report, archive=archive)
        self._reports[-1] = report
        return report

    def _describe(self, wanted: Wanted, done: _Built, folder: Path) -> NixBuildReport:
        variant = built.read(folder)
        described = built.read_json(folder / "metadata.json")
        listed = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
        log = done.log
        before = results.read_report(folder)
        is_same = before.get("store_path") == done.path
        if done.derivation in log.built:
            origin, cache = "built", None
        elif done.path in log.fetched:
            origin, cache = "fetched", log.fetched[done.path]
        else:
            origin, cache = "present", None
        info = store.path_info(done.path) if not is_same or before.get("closure_bytes") is None else None
        return NixBuildReport(
            variant=wanted.name,
            builder="nix" if self._is_sandboxed else "nix-unsandboxed",
            # Metal needs a relaxed one, which any derivation can leave, not only those of the builder.
            sandbox=self._is_sandboxed and self._settings.sandbox == "true",
            planned=wanted.planned,
            backend=variant.backend,
            id=str(described.get("id", "")),
            commit=self._source.state.commit,
            dirty=self._source.state.dirty,
            torch=wanted.torch,
            system=wanted.system,
            seconds=0.0,
            bytes=sum(listed),
            files=len(listed),
            sources=self._sources_hash(variant.backend),
            store_path=done.path,
            derivation=done.derivation,
            origin=origin,
            cache=cache,
            built=len(log.built),
            fetched=len(log.fetched),
            fetched_bytes=log.progress.bytes if log.fetched else 0,
            nar_bytes=info.size if info else before.get("nar_bytes"),
            closure_bytes=info.closure_size if info else before.get("closure_bytes"),
            peak_memory=done.peak_memory if log.built else None,
            nix=self._nix,
            pushed=before.get("pushed") if is_same else None,
            reproducible=None,
            path=folder,
            digest=built.missing_digest(folder),
        )

    def _sources_hash(self, backend: str) -> str:
        # A source that is not in the working tree is missed by the build, which says so better.
        with contextlib.suppress(KernelActionsError):
            return sources.read(self._kernel, backend).hash
        return ""

    def _write(self, report: NixBuildReport) -> None:
        built.write_json(built.build_report_path(report.path), report.as_json())

    def _push(self, report: NixBuildReport, to: Target) -> NixBuildReport:
        """Copy the variant to the cache at once. That it fails is no reason to lose the others."""
        try:
            took = store.push(to, report.store_path, self._request.token, self._deadline)
        except KernelActionsError as error:
            self._errors.append(
                WrongSurroundings(
                    f"{report.variant} is built, but not pushed: {error.what}", repair=error.repair
                )
            )
            return report
        console.say(f"Copied {report.variant} to {to.shown} in {console.duration(took)}")
        report = replace(report, pushed=to.shown)
        self._write(report)
        return report

    # --- Running Nix ---

    @contextlib.contextmanager
    def _built(self, title: str, attribute: str, log_file: Path) -> Iterator[_Built]:
        """What an attribute of the flake is built to; meanwhile no collection of garbage takes it away.

        Raises ``_TimeIsUp``, and what ``_why`` finds.
        """
        root = log_file.with_suffix(".root").absolute()
        try:
            yield self._build(title, attribute, log_file, "--out-link", str(root))
        finally:
            root.unlink(missing_ok=True)

    def _build(self, title: str, attribute: str, log_file: Path, *extra: str) -> _Built:
        """Build one attribute of the flake, with further attempts where the network failed."""
        pauses = iter(store.PAUSES)
        while True:
            log, peak, took, code = self._once(title, attribute, log_file, *extra)
            if code == 0:
                return self._result(attribute, log, peak, took)
            if code < 0 and not log.errors:
                raise self._killed(title, -code, log_file)
            failure = diagnostics.cause([*log.errors, *log.output[-5:]], log.lines)
            pause = next(pauses, None)
            if failure.cause != "network" or pause is None:
                raise self._why(title, failure, log, log_file)
            console.say(
                f"The network failed ({printable(failure.text)[:200]}): again in {console.duration(pause)}"
            )
            time.sleep(min(pause, self._check_time()))

    def _once(
        self, title: str, attribute: str, log_file: Path, *extra: str
    ) -> tuple[Log, int | None, float, int]:
        """Run Nix once: its log, the memory it took, the seconds, and its exit code."""
        left = self._check_time()
        log = Log()
        started = time.monotonic()
        display = _Display(title, log, self._request.is_job or console.is_verbose())
        reference = f"{self._address}#{attribute}"
        with contextlib.ExitStack() as stack:
            if self._request.is_job:
                stack.enter_context(github.group(f"Nix: {title}"))
            else:
                console.say(f"Building {title} of {self._kernel.name} with Nix")
            # Also where a step of a job calls the command by itself.
            stack.enter_context(github.untrusted_output())
            log_file.unlink(missing_ok=True)
            file = stack.enter_context(log_file.open("x", encoding="utf-8", errors="backslashreplace"))
            peak = stack.enter_context(memory.watched())

            def on_line(line: str) -> None:
                event = log.feed(line)
                if event is not None and event.kind != "other":
                    file.write(
                        f"{short_name(event.subject)}> {event.text}\n" if event.subject else f"{event.text}\n"
                    )
                display.show(event)

            limit = ["--option", "max-build-log-size", self._settings.max_log or _LARGEST_LOG]
            try:
                finished = process.run(
                    [*cli.NIX, *_BUILD, *limit, *extra, reference],
                    directory=self._request.kernel_dir,
                    environment=cli.environment(),
                    on_line=on_line,
                    time_limit=left,
                    is_kept=False,
                    # It ends its builders then.
                    orphaned=signal.SIGTERM,
                )
            except WrongSurroundings:
                if time.monotonic() >= self._deadline:
                    raise _TimeIsUp from None
                raise
            display.end()
        self._warn(log)
        return log, peak.bytes, time.monotonic() - started, finished.returncode

    def _killed(self, title: str, number: int, log_file: Path) -> KernelActionsError:
        """Nix itself was ended by a signal. What kills it is nearly always that the memory is used up."""
        return WrongSurroundings(
            f"the memory did not suffice for {title}: Nix itself was killed (signal {number})"
            if number == signal.SIGKILL
            else f"Nix crashed while it built {title} (signal {number})",
            where=Place(log_file),
            repair=f"take a machine with more memory, as evaluating takes gigabytes; or {self._lower}"
            if number == signal.SIGKILL
            else "run again; should it happen again, try another version of Nix",
        )

    @property
    def _lower(self) -> str:
        """What to do where memory is short."""
        return (
            "let Nix do less at once: lower max-jobs and cores of nix.conf "
            f"(max-jobs = {self._settings.max_jobs}, cores = {self._settings.cores} now); "
            "a thread of nvcc takes about 5 GB"
        )

    def _result(self, attribute: str, log: Log, peak: int | None, took: float) -> _Built:
        for line in reversed(log.output):
            with contextlib.suppress(ValueError, KeyError, IndexError, TypeError):
                entry = json.loads(line)[0]
                path = str(entry["outputs"]["out"])
                derivation = str(entry["drvPath"])
                if not derivation.startswith("/"):
                    # Since Nix 2.33 it is without the store's folder.
                    derivation = f"{self._settings.store_dir}/{derivation}"
                return _Built(derivation, path, log, peak, took)
        raise WrongSurroundings(f"Nix does not say what it built for {attribute}")

    def _warn(self, log: Log) -> None:
        """Show what Nix warned of, above all caches that are not used: they are why it builds."""
        unsigned = [text for text in log.warnings if "not signed by" in text or "signature" in text]
        others = [text for text in log.warnings if text not in unsigned and not _NO_NEWS.search(text)]
        if unsigned:
            cache = re.search(r"(?:from|substituter) '([^']+)'", unsigned[0])
            of = f" of {cache[1]}" if cache else ""
            count = f"{console.counted(len(unsigned), 'path')}{of}"
            others.insert(
                0, f"{count} not taken from the cache: no key of trusted-public-keys has signed them"
            )
        for text in others[:_SHOWN]:
            text = printable(text)[:500]
            if self._request.is_job:
                github.annotate("warning", text, title="Nix")
            else:
                console.say(f"Nix warns: {text}")

    def _why(self, title: str, failure: diagnostics.Failure, log: Log, log_file: Path) -> KernelActionsError:
        """The error of a failed build, and what goes with it, for people."""
        lines = list(log.lines.get(failure.derivation, ()))
        if failure.derivation and lines:
            with github.untrusted_output():
                console.say(f"The end of the log of {short_name(failure.derivation)} ({title}):")
                for line in lines[-_LOG_END:]:
                    console.say(f"  {printable(line)[:_LONGEST_SHOWN]}")
        of = f" of {short_name(failure.derivation)}" if failure.derivation else ""
        text = printable(failure.text)[:300]
        cause = failure.cause
        where = Place(log_file)
        if cause == "disk":
            full = self._fullest()
            return WrongSurroundings(
                f"the disk is full: {full}, while Nix built {title}",
                where=where,
                repair="free some space (free-disk of setup-nix, nix store gc), or set min-free in nix.conf",
            )
        if cause == "memory":
            return WrongSurroundings(
                f"the memory did not suffice for {title}: the build{of} was killed ({text})",
                where=where,
                repair=self._lower,
            )
        if cause == "network":
            return WrongSurroundings(
                f"the network failed {len(store.PAUSES) + 1} times: {text}",
                where=where,
                repair="run again later",
            )
        if cause == "sandbox":
            return WrongSurroundings(
                f"Nix cannot make a sandbox here: {text}",
                where=where,
                repair=namespaces.repair(),
            )
        if cause == "attribute":
            return WrongInput(
                f"its outputs have no {title}",
                where=Place(self._request.kernel_dir / "flake.nix"),
                repair="let them be those of the builder's genKernelFlakeOutputs; nix flake show lists them",
            )
        if cause == "daemon":
            full = self._fullest()
            return WrongSurroundings(
                f"the Nix daemon went away while it built {title}: it was killed, as where memory is "
                f"short, or its disk is full; {full}",
                where=where,
                repair="see journalctl -u nix-daemon, and run again: what is finished is kept",
            )
        if cause == "surroundings":
            return WrongSurroundings(f"Nix cannot build {title}: {text}", where=where)
        if cause == "evaluation":
            return WrongInput(
                f"Nix cannot evaluate {title}: {text}", where=Place(self._request.kernel_dir / "flake.nix")
            )
        if cause == "builder":
            return self._compile_error(title, failure, lines, log_file)
        return WrongSurroundings(f"Nix failed without a reason while it built {title}", where=where)

    def _compile_error(
        self, title: str, failure: diagnostics.Failure, lines: Sequence[str], log_file: Path
    ) -> KernelActionsError:
        found = diagnostics.errors(lines, self._request.kernel_dir.resolve(), self._settings.build_dir)
        listed: list[KernelActionsError] = [
            KernelFailed(
                error.message,
                where=self._place(error.path, error.line, error.column) if error.path else None,
                repair=f"in {title}; the whole log is {log_file}",
            )
            for error in found[:_SHOWN]
        ]
        if len(found) > _SHOWN:
            listed[-1].repair += f", with {console.counted(len(found) - _SHOWN, 'more error')}"
        if not listed:
            last = next((line for line in reversed(lines) if line.strip()), "it printed nothing")
            listed = [
                KernelFailed(
                    f"the build of {short_name(failure.derivation)} {_how(failure.text)}: "
                    f"{printable(last)[:300]}",
                    repair=f"in {title}; the whole log is {log_file}",
                )
            ]
        first = listed[0]
        return KernelFailed(first.what, where=first.where, repair=first.repair, others=tuple(listed[1:]))

    def _place(self, path: str, line: int | None, column: int | None) -> Place:
        """A place in the kernel, as annotations want it: from the repository's root, where that is known."""
        full = self._request.kernel_dir / path
        workspace = os.environ.get("GITHUB_WORKSPACE")
        if github.is_actions() and workspace:
            with contextlib.suppress(ValueError):
                return Place(full.resolve().relative_to(Path(workspace).resolve()), line, column)
        return Place(full, line, column)

    def _fullest(self) -> str:
        """Which of the disks that a build writes to has the least space."""
        places = {
            "the store": self._settings.real(self._settings.store_dir),
            "the folder for builds": Path(os.environ.get("TMPDIR") or "/tmp"),
            "the output": self._output,
        }
        free = {}
        for name, path in places.items():
            path = disk.existing(path)
            with contextlib.suppress(OSError):
                free[f"{name}, {path}"] = shutil.disk_usage(path).free
        name = min(free, key=lambda name: free[name])
        return f"{name} has {console.size(free[name])} left"

    # --- Built twice ---

    def _difference(self, wanted: Wanted, done: _Built) -> str:
        """Build it a second time and compare: what differs, in words; empty when nothing does."""
        log_file = self._work / f"{wanted.name}.nix-again.log"
        log, _, _, code = self._once(
            f"{wanted.name}, a second time", wanted.attribute, log_file,
            "--no-link", "--rebuild", "--keep-failed",
        )  # fmt: skip
        if code == 0:
            return ""
        text = "\n".join(log.errors)
        if "may not be deterministic" not in text and "not deterministic" not in text:
            raise self._why(wanted.name, diagnostics.cause(log.errors, log.lines), log, log_file)
        again = re.search(r"differs from '([^']+)'", text)
        second = self._settings.real(again[1]) if again else self._settings.real(f"{done.path}.check")
        if not second.exists():
            return "something differs"
        trees = [
            Tree(folder, self._settings.store_dir, self._settings.root)
            for folder in (self._settings.real(done.path), second)
        ]
        found = [name.removeprefix(f"{wanted.name}/") for name in results.differing(*trees)]
        console.say(f"{wanted.name} differs when it is built again:")
        for name in found[:50]:
            console.say(f"  {printable(name)}")
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        if self._request.is_job:
            rows = [(name,) for name in found[:200]]
            heading = markdown.heading("failed", f"{wanted.name} is not reproducible")
            github.add_summary(markdown.join(heading, markdown.table(("file that differs",), rows)))
        return f"{', '.join(map(printable, found[:3])) or 'modes or links'}{more} differ"

    # --- Tests for other machines ---

    def _export(self, names: Sequence[Wanted], file: Path) -> None:
        if len(names) != 1:
            raise WrongInput(
                "--export-tests is for one variant", repair="run it once for each, with a file for each"
            )
        wanted = names[0]
        title = f"the tests of {wanted.arch_name}"
        with build_folder.on_disk(file.parent, "--export-tests"):
            log_file = self._work / f"{wanted.name}.tests.log"
            with self._built(title, wanted.test_attribute, log_file) as done:
                size = store.export([done.path], file)
        console.say(f"Exported {title}: {file}, {console.size(size)} compressed, {done.path}")
        if self._request.is_job:
            github.set_outputs({"tests": done.path})

    # --- What people see of a variant ---

    def _show(self, report: NixBuildReport, done: _Built) -> None:
        lines = list(done.log.lines.get(done.derivation, ()))
        if not self._request.is_job or not lines:
            return
        found = diagnostics.warnings(lines, self._request.kernel_dir.resolve(), self._settings.build_dir)
        for one in found[:_SHOWN]:
            github.annotate(
                "warning",
                one.message,
                where=self._place(one.path, one.line, one.column),
                title="compiler warning",
            )
        if len(found) > _SHOWN:
            console.say(f"{console.counted(len(found) - _SHOWN, 'more warning')} in the log")
        if used := diagnostics.registers(lines):
            rows = [
                (
                    one.name, one.architecture, str(one.registers), console.size(one.stack),
                    console.size(one.spill_stores), console.size(one.spill_loads),
                )
                for one in used[:_SHOWN_REGISTERS]
            ]  # fmt: skip
            header = ("kernel", "architecture", "registers", "stack", "spill stores", "spill loads")
            rest = len(used) - len(rows)
            more = f"And {rest} more, with fewer spills." if rest else ""
            table = markdown.join(markdown.table(header, rows), more)
            github.add_summary(markdown.details(f"Registers of {report.variant}", table))


def _how(text: str) -> str:
    """How a builder ended, as a part of a sentence."""
    return f"failed {text}" if text.startswith(("with ", "due ")) else f"was ended, {text}"


class _Display:
    """Shows what Nix is at: in a job every line of the builds, else the steps and how far it is."""

    def __init__(self, title: str, log: Log, is_whole: bool) -> None:
        self._title = title
        self._log = log
        self._is_whole = is_whole
        self._every = _PROGRESS_EVERY if is_whole else _PROGRESS_EVERY_HERE
        self._last = time.monotonic()
        self._shown = Progress()

    def show(self, event: Event | None) -> None:
        """Show an event, if it is one to be shown, and the progress from time to time."""
        if event is not None:
            self._event(event)
        now = time.monotonic()
        if now - self._last >= self._every:
            self._last = now
            self._progress()

    def end(self) -> None:
        """Show where Nix ended, if there was anything to do."""
        progress = self._log.progress
        if progress.built or progress.fetched:
            fetched = (
                f", fetched {progress.fetched} ({console.size(progress.bytes)})" if progress.fetched else ""
            )
            console.say(f"  built {progress.built}{fetched}")

    def _event(self, event: Event) -> None:
        if event.kind in ("building", "fetching"):
            if event.kind == "building" or self._is_whole:
                console.say(f"  {printable(event.text)}")
        elif event.kind == "phase" and self._is_whole:
            console.say(f"  {short_name(event.subject)}: {printable(event.text)}")
        elif event.kind == "line":
            if self._is_whole:
                # Several can be built at once; a name tells their lines apart.
                name = f"{short_name(event.subject)}> " if len(self._log.building) > 1 else ""
                # `##[` is obeyed anywhere in a line, and also while commands are stopped.
                console.say(f"{name}{event.text}".replace("##[", "# #["))
            elif _STEP.match(event.text):
                console.say(f"  {printable(event.text)[:150]}")
        elif event.kind == "error" and self._is_whole:
            for line in event.text.splitlines()[:50]:
                console.say(line.replace("##[", "# #["))

    def _progress(self) -> None:
        progress = self._log.progress
        if progress == self._shown and not self._is_whole:
            return
        self._shown = progress
        parts = [f"built {progress.built} of {progress.to_build}"]
        if progress.to_fetch:
            moved = f"{console.size(progress.bytes)} of {console.size(progress.to_bytes)}"
            parts.append(f"fetched {progress.fetched} of {progress.to_fetch} ({moved})")
        now = [
            f"{short_name(name)} in {self._log.phases[name]}"
            if name in self._log.phases
            else short_name(name)
            for name in self._log.building[:3]
        ]
        at = f"; at {', '.join(now)}" if now else ""
        console.say(f"  {self._title}: {', '.join(parts)}, {progress.remaining} remaining{at}")


_HEADER = ("variant", "how", "files", "size", "closure", "built", "fetched", "memory", "time")


def _row(report: NixBuildReport) -> tuple[str, ...]:
    how = {"fetched": f"fetched from {report.cache}", "present": "was in the store"}.get(
        report.origin, "built"
    )
    return (
        report.variant,
        f"{how}, up to date" if report.reused else how,
        str(report.files),
        console.size(report.bytes),
        _size(report.closure_bytes),
        str(report.built),
        f"{report.fetched} ({console.size(report.fetched_bytes)})" if report.fetched else "0",
        _size(report.peak_memory),
        console.duration(report.seconds),
    )


def _print(form: str, reports: Sequence[NixBuildReport]) -> None:
    if form == "json":
        listed = [
            {
                **one.as_json(), "path": str(one.path), "reused": one.reused,
                "archive": str(one.archive) if one.archive else None,
            }
            for one in reports
        ]  # fmt: skip
        print(json.dumps(listed[0] if len(listed) == 1 else listed, indent=2))
        return
    rows = [_row(one) for one in reports]
    print(console.table(_HEADER, rows))
    if form == "github":
        github.set_outputs(
            {
                "variant": " ".join(one.variant for one in reports),
                "path": "\n".join(str(one.path) for one in reports),
                "archive": "\n".join(str(one.archive) for one in reports if one.archive),
            }
        )
        github.add_summary(_summary(reports))


def _summary(reports: Sequence[NixBuildReport], errors: Sequence[KernelActionsError] = ()) -> str:
    """The verdict, why, what was built all the same, and what took how long."""
    took = console.duration(sum(one.seconds for one in reports))
    count = reports[0].variant if len(reports) == 1 else console.counted(len(reports), "variant")
    title = f"Build: {errors[0].what}" if errors else f"Build: {count} in {took}"
    listed = [(one.what, str(one.where or ""), one.repair) for one in errors[: _SHOWN * 5]]
    steps: list[markdown.Step] = []
    start = 0.0
    for one in reports:
        steps.append(markdown.Step("", one.variant, start, one.seconds))
        start += one.seconds
    return markdown.join(
        markdown.heading("failed" if errors else "passed", title),
        markdown.table(("what", "where", "what to do"), listed) if listed else "",
        markdown.table(_HEADER, map(_row, reports)) if reports else "",
        markdown.timeline(steps),
    )


def _import(options: Options) -> int:
    """Put a closure of tests into the store, and print the path of its last entry, the tests themselves."""
    paths = store.import_closure(Path(options.import_tests))
    root = store.settings().real(paths[-1])
    console.say(f"Imported {console.counted(len(paths), 'path')} of {options.import_tests}")
    print(json.dumps({"tests": str(root), "paths": len(paths)}) if options.format == "json" else root)
    if options.format == "github":
        github.set_outputs({"tests": str(root)})
    return EXIT_DONE


def _size(count: int | None) -> str:
    return "" if count is None else console.size(count)


def _long(amount: float) -> str:
    """A time limit in words: ``5 h 40 min``."""
    hours, rest = divmod(round(amount), 3600)
    minutes, left = divmod(rest, 60)
    parts = [f"{hours} h" if hours else "", f"{minutes} min" if minutes else "", f"{left} s" if left else ""]
    return " ".join(part for part in parts if part)
