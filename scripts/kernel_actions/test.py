"""``test``: the kernel's own tests against a built variant, loaded as its users load it.

Green means tested: no test selected, all skipped, an error on the way to the tests, and a GPU
variant without a GPU are failures.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from kernel_actions import built, console, github, manifest, process
from kernel_actions.errors import (
    EXIT_DONE,
    KernelFailed,
    Place,
    WrongSurroundings,
)
from kernel_actions.local_builder import sources
from kernel_actions.manifest import Manifest

if TYPE_CHECKING:
    from kernel_actions.cli import Options

# The marker that the builder's ciTests select by.
MARKER = "kernels_ci"
# Where pytest's text about a failure names a line: `tests/test_it.py:12: AssertionError`, or for an
# error on import `File "/…/tests/test_it.py", line 12`.
_LINE = re.compile(
    r'^(?:E +File "(?P<file>[^"\n]+)", line (?P<at>\d+)|(?P<path>[^\s:][^:\n]*):(?P<line>\d+): )', re.M
)
_TESTS = "tests"
_RUNNER = Path(__file__).resolve().parent / "run_tests.py"
_CAUSE = "The above exception was the direct cause of the following exception:"
_LARGEST_JUNIT = 200_000_000
_GPU_PROBE = """
import torch
if torch.cuda.is_available():
    print("gpu:" + torch.cuda.get_device_name())
elif torch.xpu.is_available():
    print("gpu:" + torch.xpu.get_device_name())
"""


@dataclass(frozen=True)
class Failure:
    """A test that failed, with the first line of the reason, and where."""

    test: str
    reason: str
    path: str | None
    line: int | None


@dataclass(frozen=True)
class TestReport:
    """What became of the tests of one variant. ``digest`` names the files that were tested:
    the hash of their hashes, as ``metadata.json`` lists them."""

    variant: str
    digest: str | None
    passed: int
    failed: int
    skipped: int
    seconds: float
    gpu: str | None
    failures: tuple[Failure, ...]

    def as_json(self) -> dict[str, Any]:
        """The report for programs, as it stands in ``<variant>.test-report.json``."""
        return {"verdict": "passed" if self.is_passed else "failed", **asdict(self)}

    @property
    def is_passed(self) -> bool:
        """Whether at least one test ran and passed, and none failed."""
        return self.passed > 0 and self.failed == 0

    @property
    def summary(self) -> str:
        """The counts in words."""
        counts = [f"{self.passed} passed"]
        counts += [f"{self.failed} failed"] if self.failed else []
        counts += [f"{self.skipped} skipped"] if self.skipped else []
        return ", ".join(counts)


def run(options: Options) -> int:
    """The command ``test``."""
    kernel_dir = options.kernel_dir
    build_dir = kernel_dir / options.build_dir
    variant = built.choose(build_dir, options.variant)
    with github.group(f"Tests of {variant.name}"), github.untrusted_output():
        report = run_tests(
            kernel_dir,
            variant,
            require_gpu=options.require_gpu,
            junit=Path(options.junit) if options.junit else None,
            is_shown=True,
        )
    _print(options.format, report, kernel_dir, report_path(variant))
    check(report, kernel_dir)
    return EXIT_DONE


def run_tests(
    kernel_dir: Path,
    variant: built.BuiltVariant,
    *,
    require_gpu: str = "auto",
    junit: Path | None = None,
    is_shown: bool = False,
) -> TestReport:
    """Run the kernel's tests against ``variant``, and write the report beside it.

    Raises ``KernelFailed`` when there are no tests or they ended early, and
    ``WrongSurroundings`` when the variant needs a GPU and there is none.
    """
    kernel = manifest.load(kernel_dir)
    tests = kernel_dir / _TESTS
    _check_packages()
    built.check_intact(variant)
    _check_current(variant, kernel)
    if not any(tests.glob("**/test_*.py")) and not any(tests.glob("**/*_test.py")):
        raise KernelFailed(
            f"{tests} has no tests",
            repair=f"add tests/test_{kernel.python_name}.py with tests marked @pytest.mark.{MARKER}",
        )
    gpu = _gpu(variant, require_gpu)
    started = time.monotonic()
    with _staged(variant) as folder:
        result, witness = folder / "junit.xml", folder / "witness.json"
        arguments: list[str | Path] = [
            # Isolated from the user's own modules, unbuffered, without bytecode in the kernel's folder.
            sys.executable, "-IuB", _RUNNER, folder / "build" / variant.name, witness,
            _TESTS, "-m", MARKER,
            # The kernel's folder stays as it is: no cache of pytest's in it.
            "-p", "no:cacheprovider", "-o", "junit_family=xunit1", f"--junitxml={result}",
        ]  # fmt: skip
        repo_id = kernel.repo_id or f"local/{kernel.name}"
        finished = process.run(
            arguments,
            directory=kernel_dir,
            environment=_environment(f"{repo_id}={folder}"),
            on_line=console.say if is_shown else None,
        )
        report = _read(kernel_dir, variant, result, finished, gpu, time.monotonic() - started)
        if junit is not None:
            built.write_whole(junit, result.read_bytes())
        if report.is_passed:
            _check_loaded(witness, variant, kernel, repo_id)
    built.write_json(report_path(variant), report.as_json())
    return report


def _check_packages() -> None:
    """Raise ``WrongSurroundings`` when this interpreter lacks what tests take."""
    for name in ("pytest", "kernels", "torch"):
        if importlib.util.find_spec(name) is None:
            raise WrongSurroundings(
                f"the Python package {name} is not installed in {sys.prefix}",
                repair="unset KA_PYTHON, or install the packages of requirements/kernel.txt there",
            )


def _check_current(variant: built.BuiltVariant, kernel: Manifest) -> None:
    """Raise ``KernelFailed`` when the variant was built from other sources than those at hand."""
    if variant.sources and variant.sources != sources.read(kernel, variant.backend).hash:
        raise KernelFailed(
            f"{variant.name} was built from other sources than those in {kernel.directory}",
            where=Place(variant.path),
            repair="build it again, then test it",
        )


def _check_loaded(witness: Path, variant: built.BuiltVariant, kernel: Manifest, repo_id: str) -> None:
    """Raise ``KernelFailed`` when the tests passed without having loaded the variant."""
    try:
        seen = json.loads(witness.read_bytes())
    except (OSError, ValueError):
        seen = {}
    if seen.get("is_loaded") is True:
        return
    others = seen.get("others")
    instead = f" (they loaded {others[0]})" if others else ""
    raise KernelFailed(
        f"{variant.name}: the tests passed without loading the kernel{instead}",
        where=Place(kernel.directory / "tests"),
        repair=f'load it by get_kernel("{repo_id}", version={kernel.version}, trust_remote_code=True)',
    )


def report_path(variant: built.BuiltVariant) -> Path:
    """Where the report on ``variant`` is written: beside its folder, which stays as it was built."""
    return variant.path.with_name(f"{variant.name}.test-report.json")


def check(report: TestReport, kernel_dir: Path) -> None:
    """Raise ``KernelFailed`` unless the tests passed, with the reason of the first failure."""
    if report.is_passed:
        return
    if report.failures:
        first = report.failures[0]
        where = Place(kernel_dir / first.path, first.line) if first.path else None
        raise KernelFailed(
            f"{report.variant}: {report.failed} of {report.passed + report.failed} tests failed; "
            f"{first.test}: {first.reason}",
            where=where,
        )
    if report.skipped:
        raise KernelFailed(
            f"{report.variant}: all {report.skipped} tests were skipped, so that nothing was tested"
        )
    raise KernelFailed(
        f"{report.variant}: 0 tests ran",
        where=Place(kernel_dir / "tests"),
        repair=f"mark the kernel's tests with @pytest.mark.{MARKER}",
    )


def _environment(local_kernels: str) -> dict[str, str]:
    """The variables that tests get: no secrets, and the built variant in place of the Hub's."""
    environment = process.without_secrets(os.environ)
    # Plug-ins and options of whoever runs this are not the kernel's.
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTHONPATH"):
        environment.pop(name, None)
    return environment | {"LOCAL_KERNELS": local_kernels}


@contextmanager
def _staged(variant: built.BuiltVariant) -> Iterator[Path]:
    """A folder that holds a copy of the variant alone, as a repository on the Hub would.

    So the loader chooses it by its name as it would for a user, tests cannot change what is
    published, and no colon of the real path ends up in LOCAL_KERNELS, which separates by colons.
    """
    parent = None if ":" not in tempfile.gettempdir() else "/tmp"
    with tempfile.TemporaryDirectory(prefix="kernel-actions-test-", dir=parent) as name:
        shutil.copytree(variant.path, Path(name) / "build" / variant.name)
        yield Path(name)


def _gpu(variant: built.BuiltVariant, require_gpu: str) -> str | None:
    """The GPU that the tests can use. Raises ``WrongSurroundings`` where one is needed and missing."""
    if require_gpu == "never" or (require_gpu == "auto" and variant.backend not in built.GPU_BACKENDS):
        return None
    finished = process.run([sys.executable, "-I", "-c", _GPU_PROBE])
    found = re.search(r"^gpu:(.*)$", finished.output, re.MULTILINE)
    if finished.returncode != 0 or found is None:
        raise WrongSurroundings(
            f"{variant.name} needs a GPU and Torch sees none",
            repair="run on a machine with one, or allow it with --require-gpu never",
        )
    return found.group(1)


def _read(
    kernel_dir: Path,
    variant: built.BuiltVariant,
    junit: Path,
    finished: process.Finished,
    gpu: str | None,
    seconds: float,
) -> TestReport:
    """The report of a run of pytest. Raises ``KernelFailed`` when it did not get to its end."""
    try:
        if junit.stat().st_size > _LARGEST_JUNIT:
            raise KernelFailed(f"{variant.name}: the tests' report is larger than 200 MB")
        suite = ElementTree.parse(junit).getroot()
    except (OSError, ElementTree.ParseError) as error:
        raise KernelFailed(
            f"{variant.name}: the tests ended early: {_ending(finished)}",
        ) from error
    failures: list[Failure] = []
    passed = skipped = 0
    for case in suite.iter("testcase"):
        outcomes = {child.tag: child for child in case}
        problem = outcomes.get("failure", outcomes.get("error"))
        if problem is not None:
            failures.append(_failure(case, problem, kernel_dir))
        elif "skipped" in outcomes:
            skipped += 1
        else:
            passed += 1
    # 0: all passed; 5: none selected. Anything else without a failure is trouble of pytest's own, or
    # of a plug-in's, which can fail a run whose tests all passed.
    if finished.returncode not in (0, 5) and not failures:
        raise KernelFailed(f"{variant.name}: the tests ended early: {_ending(finished)}")
    return TestReport(
        variant=variant.name,
        digest=variant.digest,
        passed=passed,
        failed=len(failures),
        skipped=skipped,
        seconds=round(seconds, 3),
        gpu=gpu,
        failures=tuple(failures),
    )


def _failure(case: ElementTree.Element, problem: ElementTree.Element, kernel_dir: Path) -> Failure:
    text = problem.text or ""
    reason = problem.get("message") or ""
    if reason in ("", "collection failure"):
        reason = _said(text) or text
    if _CAUSE in text:
        # The first exception is what went wrong; those that it caused say what was being done.
        reason = f"{reason}: {_said(text.partition(_CAUSE)[0])}"
    path, line = case.get("file"), None
    for found in _LINE.finditer(text):
        named = kernel_dir / (found["path"] or found["file"])
        # The last line in the kernel's own files; what it calls may be anywhere.
        if named.is_file() and named.resolve().is_relative_to(kernel_dir.resolve()):
            path = str(named.resolve().relative_to(kernel_dir.resolve()))
            line = int(found["line"] or found["at"])
    name = "::".join(part for part in (case.get("classname"), case.get("name")) if part)
    return Failure(test=name, reason=reason.strip().partition("\n")[0][:300], path=path, line=line)


def _said(text: str) -> str:
    """The last of the lines that pytest marks as what an exception said."""
    said = [line.removeprefix("E").strip() for line in text.splitlines() if line.startswith("E ")]
    return said[-1] if said else ""


def _ending(finished: process.Finished) -> str:
    if finished.returncode < 0:
        return f"killed by signal {-finished.returncode}"
    lines = [line for line in finished.output.splitlines() if line.strip()]
    return f"exit code {finished.returncode}: {lines[-1] if lines else 'no output'}"


def _print(form: str, report: TestReport, kernel_dir: Path, path: Path) -> None:
    if form == "json":
        print(json.dumps(report.as_json(), indent=2))
        return
    rows = [
        (one.test, f"{one.path or ''}:{one.line or ''}".strip(":"), one.reason) for one in report.failures
    ]
    header = ("failed", "where", "why")
    if rows:
        print(console.table(header, rows))
        print()
    print(f"{report.variant}: {report.summary} in {console.duration(report.seconds)}")
    if form == "github":
        for one in report.failures[:10]:
            where = Place(kernel_dir / one.path, one.line) if one.path else None
            github.annotate("error", one.reason, where=where, title=one.test)
        github.set_outputs({"passed": str(report.passed), "report": path.as_posix()})
        github.add_summary(
            f"### Tests of {console.markdown_text(report.variant)}\n\n"
            f"{'✅' if report.is_passed else '❌'} {report.summary} in {console.duration(report.seconds)}\n\n"
            + (console.markdown_table(header, rows) if rows else "")
        )
