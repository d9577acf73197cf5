"""The program: ``make public-kernels DIR=<checkout> [BUILDER=<checkout>] [ARGS="--only relu"]``.

It takes each kernel of a checkout of huggingface/kernels-community through the suite's commands, and prints a
row for each. Every stage runs in a process of its own with a time limit, and its outcome is kept at once in
``<work>/results.json``: run again, it goes on where it was ended. An outcome is tried again when something it
depends on has changed: this suite, the kernels' commit, the builder's checkout, the machine.

``--write PAGE`` runs nothing: it fills a page of the documentation with the outcomes of several machines.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import fnmatch
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernel_actions import console, flake_lock
from kernel_actions.errors import EXIT_DONE, EXIT_KERNEL_FAILED, KernelActionsError, WrongInput

from public_kernels import page, stages, workplace
from public_kernels.results import STAGES, KernelOutcomes, Outcome, Revision, Run
from public_kernels.workplace import Workplace

# Seconds, by stage.
LIMITS = {
    "plan": 60.0, "compliance": 120.0, "build": 3600.0, "test": 3600.0, "benchmark": 900.0, "release": 900.0,
    "builder": 3600.0,
}  # fmt: skip
_DEFAULT_STAGES = ("plan", "compliance", "build", "test", "benchmark", "release")


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """The options. Exits with 2 for wrong ones."""
    parser = argparse.ArgumentParser(
        prog="make public-kernels", description=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("checkout", nargs="?", type=Path, help="checkout of huggingface/kernels-community")
    parser.add_argument("--builder", type=Path, help="checkout or bare git directory of huggingface/kernels")
    parser.add_argument(
        "--work", type=Path, default=Path("build/public-kernels"), help="default: %(default)s"
    )
    parser.add_argument("--only", action="append", default=[], metavar="GLOB", help="kernels to take")
    parser.add_argument("--skip", action="append", default=[], metavar="GLOB", help="kernels to leave out")
    parser.add_argument(
        "--stages", default=",".join(_DEFAULT_STAGES), help=f"of {','.join(STAGES)}; default: %(default)s"
    )
    parser.add_argument(
        "--limit", action="append", default=[], metavar="STAGE=SECONDS", help="time limit of a stage"
    )
    parser.add_argument("--again", action="store_true", help="try outcomes again that are up to date")
    parser.add_argument("--keep", action="store_true", help="keep outcomes of another revision of the suite")
    parser.add_argument("--suite-commit", default="", help="commit of this suite, in a copy without git")
    parser.add_argument("--label", default="", help="name of this machine in the table")
    parser.add_argument(
        "--repository", default="", help="owner/name of the checkout; default: that of its origin"
    )
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="fill this page with outcomes")
    parser.add_argument(
        "--results", action="append", default=[], type=Path, metavar="FILE", help="outcomes for --write"
    )
    options = parser.parse_args(given)
    options.stages = _stages(parser, options.stages)
    options.limits = {**LIMITS, **_limits(parser, options.limit)}
    if options.checkout is None and options.write is None:
        parser.error("give the folder of a checkout of huggingface/kernels-community (DIR=<folder>)")
    return options


def _stages(parser: argparse.ArgumentParser, text: str) -> tuple[str, ...]:
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    for name in wanted:
        if name not in STAGES:
            parser.error(f"--stages: {name!r} is not a stage (use {', '.join(STAGES)})")
    return tuple(name for name in STAGES if name in wanted)


def _limits(parser: argparse.ArgumentParser, given: Sequence[str]) -> dict[str, float]:
    limits = {}
    for text in given:
        stage, _, seconds = text.partition("=")
        if stage not in STAGES or not seconds.isdigit() or int(seconds) == 0:
            parser.error(f"--limit: {text!r} is not STAGE=SECONDS (as in build=1800)")
        limits[stage] = float(seconds)
    return limits


def main(given: Sequence[str]) -> int:
    """Run the program and return its exit code: 1 when a stage failed that was run."""
    options = arguments(given)
    try:
        if options.write is not None:
            page.write(options.write, [Run.read(path) for path in options.results])
            return EXIT_DONE
        run = take_all(options)
    except KernelActionsError as error:
        console.say(f"public-kernels: {error}")
        return error.exit_code
    if options.format == "json":
        print((options.work / "results.json").read_text(encoding="utf-8"), end="")
    else:
        print(page.as_table(run))
    bad = ("failed", "time limit")
    failed = any(one.verdict in bad for kernel in run.kernels.values() for one in kernel.stages.values())
    return EXIT_KERNEL_FAILED if failed else EXIT_DONE


def take_all(options: argparse.Namespace) -> Run:
    """Take the selected kernels through the selected stages. Raises ``WrongInput``, ``WrongSurroundings``."""
    options.work.mkdir(parents=True, exist_ok=True)
    (options.work / ".gitignore").write_text("*\n", encoding="ascii")
    results = options.work.resolve() / "results.json"
    clone, revision = workplace.clone(options.checkout, options.work.resolve(), options.repository)
    builder = _builder(options.builder)
    place = Workplace(
        folder=options.work.resolve(),
        kernels=clone,
        revision=revision,
        machine=workplace.machine(options.label or "this machine"),
        limits=options.limits,
        builder=options.builder.resolve() if options.builder else None,
    )
    run = Run(_today(), place.machine, revision, workplace.suite_revision(options.suite_commit), builder)
    before = Run.read(results) if results.is_file() else run
    run = dataclasses.replace(run, kernels=dict(before.kernels))
    names = _selected(clone, options.only, options.skip)
    for number, name in enumerate(names, 1):
        kernel = run.kernels.get(name) or _kernel(clone, name)
        for stage in options.stages:
            outcome = _stage(place, run, kernel, stage, options)
            kernel = kernel.with_stage(stage, outcome)
            run = dataclasses.replace(run, date=_today(), kernels={**run.kernels, name: kernel})
            run.write(results)
            spent = f" ({console.duration(outcome.seconds)})" if outcome.seconds else ""
            line = f"[{number}/{len(names)}] {name} {stage}: {outcome.verdict}, {outcome.summary}{spent}"
            console.say(line)
            if outcome.detail:
                console.say(f"      {outcome.detail[:300]}")
    return dataclasses.replace(run, kernels={name: run.kernels[name] for name in names})


def _stage(
    place: Workplace, run: Run, kernel: KernelOutcomes, stage: str, options: argparse.Namespace
) -> Outcome:
    """The outcome of a stage: the one that is up to date, or a new one."""
    function, needed = stages.FUNCTIONS[stage]
    inputs = _inputs(run, kernel, stage, options.keep)
    known = kernel.stages.get(stage)
    is_there = stage != "build" or known is None or stages.is_built(place, known, kernel.name)
    if known is not None and known.inputs == inputs and is_there and not options.again:
        return known
    passed = {name for name, outcome in kernel.stages.items() if outcome.verdict == "passed"}
    lacking = [name for name in needed if name not in passed]
    outcome = Outcome("elsewhere", f"{lacking[0]} did not pass") if lacking else function(place, kernel)
    return dataclasses.replace(outcome, inputs=inputs, seconds=round(outcome.seconds, 1))


def _inputs(run: Run, kernel: KernelOutcomes, stage: str, keep: bool) -> str:
    """A hash of what an outcome depends on: with ``keep``, whatever the suite's files are."""
    needs_build = stage in ("test", "benchmark", "release")
    before = kernel.stages.get("build") if needs_build else None
    parts = [
        stage, kernel.name, run.kernels_repository.commit, run.builder.commit if run.builder else "",
        "" if keep else workplace.suite_hash(), dataclasses.asdict(run.machine),
        [before.verdict, before.summary] if before else None,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _selected(clone: Path, only: Sequence[str], skip: Sequence[str]) -> list[str]:
    names = sorted(path.parent.name for path in clone.glob("*/build.toml"))
    if not names:
        raise WrongInput(f"{clone} has no folders with a build.toml", repair="give a checkout of kernels")
    taken = [name for name in names if not only or any(fnmatch.fnmatchcase(name, one) for one in only)]
    taken = [name for name in taken if not any(fnmatch.fnmatchcase(name, one) for one in skip)]
    if not taken:
        raise WrongInput(f"--only and --skip leave none of {len(names)} kernels", repair="widen them")
    return taken


def _kernel(clone: Path, name: str) -> KernelOutcomes:
    """A kernel before its first stage. An unreadable lock fails in `plan`, which says why."""
    try:
        return KernelOutcomes(name, flake_lock.read(clone / name / "flake.lock").commit or "")
    except KernelActionsError:
        return KernelOutcomes(name, "")


def _builder(path: Path | None) -> Revision | None:
    if path is None:
        return None
    try:
        commit = workplace.git(path, "rev-parse", "HEAD")
    except Exception as error:
        raise WrongInput(
            f"{path} is not a git repository",
            repair="give a checkout of huggingface/kernels, with its history",
        ) from error
    return Revision(workplace.origin(path), commit)


def _today() -> str:
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
