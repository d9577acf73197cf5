"""``pipeline``: a kernel from source to a Hub and back into a Python process, on this machine.

It needs no GPU, no Nix and no account: it builds with the local builder and publishes to an
embedded Hub on loopback. Another Hub is used only when ``--hub`` names it.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kernel_actions import (
    build,
    build_folder,
    built,
    compliance,
    console,
    git,
    github,
    loading,
    manifest,
    markdown,
    planning,
    process,
    release,
    report,
    settings,
    test,
)
from kernel_actions.errors import EXIT_DONE, Interrupted, KernelFailed, Place, WrongInput, printable
from kernel_actions.hub.embedded import embedded
from kernel_actions.manifest import Manifest
from kernel_actions.report import of_release

if TYPE_CHECKING:
    from kernel_actions.cli import Options

_STAGES = ("plan", "build", "test", "compliance", "stage", "verify", "promote", "load")
_CONFIGURATION = ("conftest.py", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
# What became of a stage that did not end well.
_ENDED = ("failed", "interrupted")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Outcome:
    """What a stage did: ``result`` in a word or two, and ``made``, what there is now.

    ``seconds`` is for a stage whose work was done, and timed, in a process of an earlier one.
    """

    result: str
    made: str
    seconds: float | None = None


@dataclass(frozen=True)
class Stage:
    """A stage that ended, with the seconds that it took."""

    name: str
    outcome: Outcome
    seconds: float


@dataclass
class Progress:
    """The stages so far, shown as they go."""

    names: tuple[str, ...]
    done: list[Stage] = field(default_factory=list)
    #: The page of the release, once there is one.
    page: Path | None = None

    def run(self, name: str, action: Callable[[], tuple[Outcome, Made]]) -> Made:
        """Run one stage and return what it made. One that fails is in the table too, as the last."""
        started = time.monotonic()
        try:
            console.say(f"[{len(self.done) + 1}/{len(self.names)}] {name}")
            outcome, made = action()
        except BaseException as error:
            word = _ENDED[isinstance(error, Interrupted)]
            self.done.append(Stage(name, Outcome(word, ""), time.monotonic() - started))
            raise
        seconds = time.monotonic() - started if outcome.seconds is None else outcome.seconds
        self.done.append(Stage(name, outcome, seconds))
        console.say(f"      {outcome.result} ({console.duration(seconds)})")
        return made

    @property
    def is_done(self) -> bool:
        """Whether all stages were done."""
        return len(self.done) == len(self.names) and self.done[-1].outcome.result not in _ENDED

    def steps(self) -> list[markdown.Step]:
        """The stages one after the other, for a timeline."""
        found: list[markdown.Step] = []
        start = 0.0
        for one in self.done:
            found.append(markdown.Step("", one.name, start, one.seconds, one.outcome.result in _ENDED))
            start += one.seconds
        return found

    def rows(self) -> list[tuple[str, str, str, str]]:
        """The table's rows, one for each stage; paths are shown from the working directory on."""
        here = f"{Path.cwd()}/"
        rows = [
            (one.name, one.outcome.result, console.duration(one.seconds), one.outcome.made.removeprefix(here))
            for one in self.done
        ]
        return rows + [(name, "not reached", "", "") for name in self.names[len(rows) :]]


def check_options(options: Options) -> Manifest:
    """The kernel. Raises ``WrongInput`` for one that has nowhere to go to, and for an output folder that is
    not for what is built."""
    kernel_dir = options.kernel_dir.resolve()
    kernel = manifest.load(kernel_dir)
    if kernel.repo_id is None or kernel.version is None:
        raise WrongInput(
            "has no general.hub.repo-id" if kernel.repo_id is None else "has no version",
            where=kernel.place("general"),
            repair="the pipeline publishes to that repository and version",
        )
    build_folder.check(kernel_dir, kernel_dir / options.output, ())
    return kernel


def run(options: Options) -> int:
    """The command ``pipeline``."""
    kernel = check_options(options)
    kernel_dir = options.kernel_dir.resolve()
    output = kernel_dir / options.output
    demo = settings.load(kernel_dir).demo
    progress = Progress((*_STAGES, "picture") if demo else _STAGES)
    work = output / ".pipeline"
    work.mkdir(parents=True, exist_ok=True)
    built.hide_from_git(output)
    try:
        # One at a time in a folder: they would share the variant, the reports and the Hub's data.
        with process.locked(work / "lock", "Another pipeline is running in this folder"):
            _run_stages(kernel, kernel_dir, output, options.hub, demo, progress)
    finally:
        _print(options.format, progress)
    if progress.page is not None:
        console.say(printable(f"Report: {str(progress.page).removeprefix(f'{Path.cwd()}/')}"))
    return EXIT_DONE


def _run_stages(
    kernel: Manifest, kernel_dir: Path, output: Path, hub: str, demo: str | None, progress: Progress
) -> None:
    """All stages. Each hands what it made to the next."""
    progress.run("plan", lambda: _plan(kernel_dir))
    variant = progress.run("build", lambda: _build(kernel_dir, output))
    progress.run("test", lambda: _test(kernel_dir, variant))
    progress.run("compliance", lambda: _check(kernel_dir, variant))
    with nullcontext(hub) if hub else embedded(output / ".pipeline" / "hub") as address:
        _release(kernel_dir, output, variant, address, progress)
        script = kernel_dir / demo if demo else None
        answer = progress.run("load", lambda: _load(kernel, address, script, output))
    if script is not None:
        progress.run("picture", lambda: _picture(script, answer))


def _plan(kernel_dir: Path) -> tuple[Outcome, None]:
    bundled = [variant for variant in planning.planned_variants(kernel_dir) if variant.bundled]
    backends = ", ".join(dict.fromkeys(variant.backend for variant in bundled))
    return Outcome(console.counted(len(bundled), "variant"), f"the builder's bundle for {backends}"), None


def _build(kernel_dir: Path, output: Path) -> tuple[Outcome, built.BuiltVariant]:
    report = build.build(kernel_dir, "", output)
    word = "unchanged" if report.reused else "built"
    if report.commit is None:
        word += ", not in git"
    elif report.dirty:
        word += ", uncommitted changes"
    made = Outcome(word, str(output / report.variant))
    return made, built.read(output / report.variant)


def _test(kernel_dir: Path, variant: built.BuiltVariant) -> tuple[Outcome, None]:
    inputs = _test_inputs(kernel_dir, variant)
    mark = variant.path.parent / ".pipeline" / f"{variant.name}.tested.json"
    before = _read_json(mark)
    if before.get("inputs") == inputs:
        return Outcome(f"unchanged, {before.get('summary')}", str(test.report_path(variant))), None
    mark.unlink(missing_ok=True)
    report = test.run_tests(kernel_dir, variant)
    test.check(report, kernel_dir)
    built.write_whole(mark, json.dumps({"inputs": inputs, "summary": report.summary}).encode())
    return Outcome(report.summary, str(test.report_path(variant))), None


def _test_inputs(kernel_dir: Path, variant: built.BuiltVariant) -> str:
    """A hash of all that the tests' outcome depends on: the variant, the tests, the environment."""
    hashed = hashlib.sha256(f"{variant.name} {variant.digest} {sys.prefix} {sys.version}".encode())
    # pytest is configured by files around the tests too.
    around = [path for name in _CONFIGURATION for path in kernel_dir.glob(name)]
    for path in [*sorted(around), *sorted((kernel_dir / "tests").rglob("*"))]:
        if path.is_file() and "__pycache__" not in path.parts:
            hashed.update(f"\0{path.relative_to(kernel_dir)}\0".encode())
            hashed.update(path.read_bytes())
    return hashed.hexdigest()


def _check(kernel_dir: Path, variant: built.BuiltVariant) -> tuple[Outcome, None]:
    report = compliance.check(kernel_dir, [variant])
    if not report.is_passed:
        worst = next(one for one in report.findings if one.rule.severity == "error")
        more = f"; {report.errors - 1} more" if report.errors > 1 else ""
        raise KernelFailed(f"{worst.rule.id}: {worst.message}{more}", where=worst.where, repair=worst.repair)
    warnings = f", {console.counted(report.warnings, 'warning')}" if report.warnings else ""
    return Outcome(f"no errors{warnings}", "kernel-actions compliance shows all rules"), None


def _release(
    kernel_dir: Path, output: Path, variant: built.BuiltVariant, address: str, progress: Progress
) -> None:
    """The release protocol: stage, verify, promote. It is a rehearsal: this variant alone, and the git
    tag goes to a scratch repository, so that the user's stays as it is."""
    prepared, staged = progress.run("stage", lambda: _stage(kernel_dir, output, variant, address))
    made = prepared.plan
    if staged is None:
        there = Outcome("unchanged", f"{made.version} is on {made.branch} already")
        progress.run("verify", lambda: (there, None))
        progress.run("promote", lambda: _tag(prepared, made.promoted))
        return
    verified = progress.run("verify", lambda: _verify(prepared, staged))
    commit = progress.run("promote", lambda: _tag(prepared, release.promote(prepared, staged, verified)))
    done = release.Released(made, staged.commit, commit, record=staged.record)
    # What was built and tested has reports that tell the same of it.
    first, *others = progress.steps()[_STAGES.index("compliance") :]
    steps = [one._replace(start=one.start - first.start) for one in (first, *others)]
    progress.page = report.write(of_release.made(prepared, done, (), steps, ""), output)


def _stage(
    kernel_dir: Path, output: Path, variant: built.BuiltVariant, address: str
) -> tuple[Outcome, tuple[release.Release, release.Staged | None]]:
    """Plan the release, and stage it unless it was promoted before."""
    is_in_git = git.state(kernel_dir) is not None
    scratch = output / ".pipeline" / "git"
    if is_in_git:
        git.scratch(kernel_dir, scratch)
    prepared = release.prepare(
        kernel_dir,
        output,
        names=(variant.name,),
        address=address,
        partial=True,
        rehearsal=True,
        git_dir=scratch if is_in_git else None,
    )
    made = prepared.plan
    if made.promoted:
        return Outcome("unchanged", f"{made.version} is on {made.branch} already"), (prepared, None)
    release.check_gate(prepared, release.lacks(prepared))
    staged = release.stage(prepared)
    word = (
        f"{console.counted(staged.changed, 'file')}, {console.size(staged.size)}"
        if staged.changed
        else "unchanged"
    )
    return Outcome(word, f"{made.repo_id} {made.staging} @ {staged.commit[:12]}"), (prepared, staged)


def _verify(prepared: release.Release, staged: release.Staged) -> tuple[Outcome, release.Verified]:
    verified = release.verify(prepared, staged)
    return Outcome("as built and tested", "every file's digest, and the loader's choice"), verified


def _tag(prepared: release.Release, commit: str) -> tuple[Outcome, str]:
    made = prepared.plan
    tagged = release.tag(prepared, commit)
    word = f"released {made.version}" if tagged.done or not made.promoted else "unchanged"
    return Outcome(word, f"{made.repo_id} {made.branch} @ {commit[:12]}, tag {tagged.hub_tag}"), commit


def _load(kernel: Manifest, address: str, demo: Path | None, output: Path) -> tuple[Outcome, dict[str, Any]]:
    """Load the kernel from the Hub in a fresh process with an empty cache, as a user would.

    The demo, which is the kernel's author's code, runs in that process too.
    """
    arguments = ["--repo-id", str(kernel.repo_id), "--version", str(kernel.version)]
    if demo is not None:
        arguments += ["--demo", str(demo), "--output", str(output)]
    answer = loading.load(arguments, {"HF_ENDPOINT": address})
    if "error" in answer:
        raise KernelFailed(f"{kernel.repo_id} version {kernel.version} does not load: {answer['error']}")
    made = f"{answer['variant']}, from an empty cache"
    return Outcome(", ".join(answer["names"]), made, answer["load_seconds"]), answer


def _picture(demo: Path, answer: dict[str, Any]) -> tuple[Outcome, None]:
    if "demo_error" in answer:
        raise KernelFailed(f"the demo failed: {answer['demo_error']}", where=Place(demo))
    return Outcome("written", str(answer["made"]), answer["demo_seconds"]), None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _print(form: str, progress: Progress) -> None:
    header = ("stage", "result", "time", "what it made")
    if form == "json":
        stages = [
            asdict(one.outcome) | {"stage": one.name, "seconds": round(one.seconds, 3)}
            for one in progress.done
        ]
        print(json.dumps({"stages": stages}, indent=2))
        return
    print(console.table(header, progress.rows()))
    if form == "github":
        took = console.duration(sum(one.seconds for one in progress.done))
        is_done = progress.is_done
        title = (
            f"Pipeline: all of it in {took}" if is_done else f"Pipeline: ended in {progress.done[-1].name}"
        )
        github.add_summary(
            markdown.join(
                markdown.heading("passed" if is_done else "failed", title),
                markdown.table(header, progress.rows()),
                markdown.timeline(progress.steps()),
            )
        )
