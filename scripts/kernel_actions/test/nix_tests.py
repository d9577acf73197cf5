"""The builder's own tests of a variant: ``ciTests.<arch_variant>`` of the kernel's flake.

Its program runs pytest with fixed arguments, in a copy of the kernel's tests, and takes "no tests
selected" for a success. What counts is therefore the JUnit report that pytest is asked for by
PYTEST_ADDOPTS, and which test runs is read off pytest's output. A plug-in, ``kernel_import``, says whether
the kernel was loaded, and has it found by its name.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree.ElementTree import ParseError

from kernel_actions import process
from kernel_actions.built import BuiltVariant
from kernel_actions.errors import KernelFailed, Place, WrongInput, WrongSurroundings, printable
from kernel_actions.manifest import Manifest
from kernel_actions.nix import cli, store
from kernel_actions.test import confined, gpu, kernel_import, same_build
from kernel_actions.test.confined import Channels
from kernel_actions.test.progress import Progress, read_junit

if TYPE_CHECKING:
    from kernel_actions.test.running import Outcome, Request

_LARGEST_JUNIT = 200_000_000
_LARGEST_FACTS = 100_000
# The condition of the program ci-test: mkCiTests in nix-builder/lib/build.nix of huggingface/kernels.
_SOURCE = re.compile(r"\[ -d (/\S+)/tests \]")
# What stands before the paths of files that Nix copied: /nix/store/<hash>-source/.
_STORE_PATH = re.compile(r"(?:\.\./)*[^\s:\"]*?/store/[a-z0-9]{32}-[^/\s]+/")
# "tests/test_it.py::test_a[1] PASSED  [ 50%]", as `pytest -v` prints it: the name when the test starts.
_VERBOSE = re.compile(
    r"^(?P<test>\S+\.py::[^\s\[]+(?:\[.*?\](?=\s|$))?)(?:\s+(?P<outcome>PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b)?"
)


_OUTCOMES = {"PASSED": "passed", "FAILED": "failed", "ERROR": "failed"}


@dataclass
class _Verbose:
    """Hears which test runs, by what pytest prints."""

    progress: Progress
    on_line: Callable[[str], None]
    _running: str = field(default="")

    def line(self, line: str) -> None:
        """Take in a line, which is whole."""
        self.partial(line)
        self.on_line(line)

    def partial(self, text: str) -> None:
        """Take in the beginning of a line: the name of a test without its outcome is one that runs."""
        found = _VERBOSE.match(text)
        if found is None:
            return
        test = _STORE_PATH.sub("", found["test"])
        if test != self._running:
            self._end()
            self._running = test
            self.progress.hear({"event": "start", "test": test})
        if found["outcome"]:
            outcome = _OUTCOMES.get(found["outcome"], "skipped")
            self.progress.hear({"event": "phase", "test": test, "when": "call", "outcome": outcome})
            self._end()

    def _end(self) -> None:
        if self._running:
            self.progress.hear({"event": "finish", "test": self._running})
            self._running = ""


def run(
    kernel_dir: Path,
    kernel: Manifest,
    variant: BuiltVariant,
    request: Request,
    folder: Path,
    variables: dict[str, str],
    on_line: Callable[[str], None],
) -> Outcome:
    """Run the builder's tests of ``variant``, which have to be of the very files that were built.

    Raises ``WrongInput``, ``WrongSurroundings``, and ``KernelFailed`` when the tests cannot be built or
    are of another build.
    """
    from kernel_actions.test.running import Outcome

    root = _tests(kernel_dir, variant, request.nix_tests)
    tested, stand_ins = _tested(variant, root)
    program = _program(root)
    _check_tests(kernel_dir, program)
    junit, told_file = folder / "junit.xml", folder / "told.json"
    # `python -m pytest` has the folder that it is started in on its path.
    shutil.copy(kernel_import.__file__, folder / f"{kernel_import.PLUGIN}.py")
    added = f"-v -p no:cacheprovider -p {kernel_import.PLUGIN} -o junit_family=xunit1 --junitxml={junit}"
    described = {
        "name": kernel.python_name, "variant": str(tested), "repository": str(tested.parent),
        "told": str(told_file),
    }  # fmt: skip
    progress = Progress(kernel_dir)
    seen = _Verbose(progress, on_line)

    def command(_channels: Channels) -> Sequence[str | Path]:
        return [program]

    with gpu.driver_links() if variant.backend == "cuda" else nullcontext(()) as notes:
        ended = confined.run(
            command,
            directory=folder,
            environment=variables
            | {
                "PYTEST_ADDOPTS": added,
                "PYTHONUNBUFFERED": "1",
                kernel_import.VARIABLE: json.dumps(described),
            },
            limits=request.limits,
            watched=progress,
            on_line=seen.line,
            on_partial=seen.partial,
            scratch=folder,
        )
    notes = (*notes, *_said_of(stand_ins, variant))
    data = _read(junit)
    if data is not None and not ended.limit:
        told = Progress(kernel_dir)
        try:
            read_junit(data, told, prefix=_STORE_PATH)
            # What it does not say, it has not seen: then the tests have not loaded the kernel.
            facts = {"is_loaded": False, **_facts(told_file)}
            told.hear({**facts, "event": "start-session"})
            told.hear({**facts, "event": "end", "status": ended.returncode})
            return Outcome(told, ended, "nix", junit=data, notes=notes, stand_ins=stand_ins)
        except (ParseError, ValueError):
            pass
    # It ended before pytest could write one: what was printed has to do.
    progress.selected = None
    return Outcome(progress, ended, "nix", notes=notes, stand_ins=stand_ins)


def _tests(kernel_dir: Path, variant: BuiltVariant, given: str) -> Path:
    """The tests in the store: those that are given, or those of the kernel's flake, which are built."""
    if given and Path(given).is_file():
        return store.settings().real(store.import_closure(Path(given))[-1])
    if given:
        if not Path(given).is_dir():
            raise WrongInput(
                "there is no such path in the store", where=Place(Path(given)), repair="see --nix-tests"
            )
        return Path(given)
    from kernel_actions.nix import checks

    settings = store.settings()
    found = checks.source(kernel_dir, allow_dirty=True)
    with found.address(store.version()) as address:
        names = (variant.name,)
        wanted = checks.wanted(kernel_dir, address, names, settings, checks.planned(kernel_dir, names))[0]
        finished = process.run(
            [
                *cli.NIX, "build", "--no-link", "--json", "--no-update-lock-file", *cli.NO_SETTINGS_OF_FLAKES,
                f"{address}#{wanted.test_attribute}",
            ],
            directory=kernel_dir,
            environment=cli.environment(),
        )  # fmt: skip
    # Nix says other things too, and `--print-out-paths` is younger than the Nix of distributions.
    path = re.search(r'"out":\s*"(/[^"]+)"', finished.output)
    if finished.returncode != 0 or path is None:
        errors = [line for line in finished.output.splitlines() if "error" in line] or [finished.output]
        raise KernelFailed(
            f"Nix cannot build {wanted.test_attribute}: {printable(errors[-1])[:300]}",
            where=Place(kernel_dir / "flake.nix"),
            repair="see the log of build",
        )
    return settings.real(path[1])


def _tested(variant: BuiltVariant, root: Path) -> tuple[Path, dict[str, str]]:
    """The folder of the variant that the tests are of, and the hashes of what is tested in place of the
    variant's own files. Raises ``KernelFailed`` unless both are one build, but for the search paths."""
    settings = store.settings()
    problem = f"there is no {variant.name} among what they need"
    for path in store.closure([str(root)]):
        candidate = settings.real(path) / variant.name
        if not (candidate / "metadata.json").is_file():
            continue
        try:
            # Programs in the store, and what imports from it, see it by its own path.
            return Path(path) / variant.name, same_build.stand_ins(candidate, variant.path)
        except KernelFailed as error:
            problem = error.what
    raise KernelFailed(
        f"{variant.name}: the tests in {root} are of another build than the variant: {problem}",
        where=Place(variant.path),
        repair="build it by Nix from the same commit, then test it",
    )


def _check_tests(kernel_dir: Path, program: Path) -> None:
    """Raise ``KernelFailed`` when the tests in the store are not those at hand, as lines would be wrong."""
    found = _SOURCE.search(program.read_text(encoding="utf-8", errors="replace"))
    folder = store.settings().real(found[1]) / "tests" if found else None
    for path in sorted(folder.rglob("*.py")) if folder is not None else ():
        own = kernel_dir / "tests" / path.relative_to(folder) if folder is not None else path
        if not own.is_file() or own.read_bytes() != path.read_bytes():
            raise KernelFailed(
                "is not the file that the builder's ciTests have",
                where=Place(own),
                repair="build the tests again, from the same commit",
            )


def _said_of(stand_ins: Mapping[str, str], variant: BuiltVariant) -> tuple[str, ...]:
    """What was tested, where that is not the very files of the variant."""
    if not stand_ins:
        return ()
    names = ", ".join(sorted(stand_ins))
    return (
        f"the builder's ciTests have {names} of {variant.name} with its search path (RUNPATH), which the "
        "published one lacks; everything else is the same: code, data, symbols, metadata and all other files",
    )


def _facts(file: Path) -> dict[str, object]:
    """What the plug-in has written down."""
    try:
        told = json.loads(file.read_bytes()[:_LARGEST_FACTS])
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _program(root: Path) -> Path:
    folder = root / "bin"
    found = sorted(path for path in folder.iterdir() if os.access(path, os.X_OK)) if folder.is_dir() else []
    if not found:
        raise WrongSurroundings(f"{root} holds no program", repair="it has to be an output of ciTests")
    return found[0]


def _read(junit: Path) -> bytes | None:
    try:
        if junit.stat().st_size > _LARGEST_JUNIT:
            return None
        return junit.read_bytes()
    except OSError:
        return None
