"""``init``: sets a kernel's repository up with workflows and kernel-actions.toml.

It shows what it would change before it changes anything.

detection   what the repository is: its kernels, its workflows, where it is on GitHub
runners     where GPU backends are tested
templates   the workflows to choose from, and the reference to this suite in them
plan        the files that there shall be, against those that there are
writing     all of them or none
steps       what is left to do by hand, with the links and commands of this repository
show        what people see of it
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from kernel_actions import console
from kernel_actions.errors import EXIT_DONE, WrongInput
from kernel_actions.init import detection, plan, runners, show, steps, templates, writing

if TYPE_CHECKING:
    from kernel_actions.cli import Options


def run(options: Options) -> int:
    """The command ``init``.

    Raises ``WrongInput`` where there is no kernel, no terminal to ask on, or a file that must not be written,
    and ``WrongSurroundings`` when it cannot be.
    """
    repository = detection.detect(options.kernel_dir)
    uses = options.uses or repository.uses or templates.own_reference()
    reference = templates.reference(uses)
    is_asked = options.format == "table" and not (options.yes or options.dry_run) and _is_terminal()
    choices = runners.choose(
        repository, options.gpu_runner, options.test_runner, _ask_runner if is_asked else None
    )
    chosen = plan.choose(repository, reference, options.workflows, choices)
    files = plan.compare(repository.root, chosen, overwrite=options.overwrite)
    left = steps.left(repository, files, choices)
    to_write = [one for one in files if one.is_written]
    if options.format == "json":
        # A program that wants something written says so by --yes.
        is_written = bool(to_write) and options.yes and not options.dry_run
        if is_written:
            writing.write(repository.root, to_write)
        print(json.dumps(show.as_json(repository, files, left, is_written=is_written), indent=2))
        return EXIT_DONE
    print(show.found(repository))
    print(show.differences(files), flush=True)
    if not to_write:
        print("Nothing to do: all files are as they shall be, or yours.")
    elif options.dry_run:
        print("Dry run: nothing was written.")
    elif options.yes or _is_agreed(len(to_write)):
        writing.write(repository.root, to_write)
        print("\n".join(f"wrote {one.path}" for one in to_write))
    else:
        print("Nothing was written.")
        return EXIT_DONE
    print(show.steps(left))
    return EXIT_DONE


def _is_terminal() -> bool:
    return bool(sys.stdin) and sys.stdin.isatty()


def _ask_runner(system: str, backend: str) -> str:
    """What the user says about the runner that tests ``backend`` on ``system``."""
    print(
        f"Which runner tests {backend} on {system}? Its labels, group:NAME, or nothing (untested): ",
        end="",
        flush=True,
    )
    return sys.stdin.readline().strip()


def _is_agreed(count: int) -> bool:
    """Whether the user says yes. Raises ``WrongInput`` where nobody can be asked."""
    if not _is_terminal():
        raise WrongInput(
            "nothing was written: there is no terminal to ask on",
            repair="look at what is shown above, then run again with --yes",
        )
    console.say("")
    print(f"Write {'this file' if count == 1 else f'these {count} files'}? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
