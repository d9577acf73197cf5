"""What the builder's own templates make of a kernel here, and the verdict of its own tests of that.

It is a program too: ``reference.py BUILDER COMMIT KERNEL_DIR WORK BACKEND [--tests]`` builds by
``tests.reference_builder``. With ``--tests`` it runs the tests as the flake's ``ciTests`` do
(``nix-builder/lib/build.nix``, ``mkCiTests``): ``PYTHONPATH`` is the variant, the tests are those in the
source set marked ``kernels_ci``, and no selected test counts as success. ``LOCAL_KERNELS`` is set for the
revisions that set it. The interpreter is this one, while the builder's has ``kernels`` since e9152aa2 alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2])]

from kernel_actions import built, console

from public_kernels.results import KernelOutcomes, Outcome
from public_kernels.workplace import Workplace

# What pytest ends with where no test was selected, which ciTests take for success.
_NONE_SELECTED = 5
_COUNTS = ("passed", "failed", "skipped")


def outcome(place: Workplace, kernel: KernelOutcomes, backend: str, runs: bool) -> Outcome:
    """Build the variant for ``backend`` with the builder's templates, and run its tests as the builder's CI
    does if this machine ``runs`` it."""
    assert place.builder is not None
    kernel_dir = place.kernel_dir(kernel.name)
    work = place.folder / "builder" / kernel.name
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    finished = place.python(
        "builder", str(Path(__file__).resolve()), str(place.builder), kernel.builder, str(kernel_dir),
        str(work), backend, *(["--tests"] if runs else []),
    )  # fmt: skip
    answer = finished.answer
    if finished.code is None:
        return finished.ended()
    if not answer:
        return Outcome("failed", "not built", finished.error, finished.seconds)
    ours = kernel_dir / "build" / answer["variant"]
    answer["differences"] = list(differences(Path(answer["path"]), ours)) if ours.is_dir() else None
    parts = ["built" if answer["tests"] is None else counted(answer["tests"])]
    if answer.get("unmarked"):
        parts.append(f"of all: {counted(answer['unmarked'])}")
    if answer["differences"] is not None:
        same = not answer["differences"]
        files = console.counted(len(answer["differences"]), "file")
        parts.append("files as ours" if same else f"{files} not as ours")
    detail = "; ".join([*answer["reasons"][:1], *(answer["differences"] or ())][:5])
    verdict = answer["verdict"]
    return Outcome(verdict, ", ".join(parts), detail, finished.seconds, facts=answer)


def counted(tests: Mapping[str, int]) -> str:
    """The counts of a run of tests, in words."""
    return ", ".join(f"{tests[name]:,} {name}" for name in _COUNTS if tests.get(name)) or "none selected"


def differences(theirs: Path, ours: Path) -> Iterator[str]:
    """The files that differ between a variant of the builder's and one of the local builder's.

    Generated files have texts of their own: of extensions, ``_ops.py`` and the loader of older builders the
    names are compared, of metadata.json everything but the digest and kernel-builder's version.
    """
    generated = (
        "_ops.py",
        f"{built.read_json(theirs / 'metadata.json')['name'].replace('-', '_')}/__init__.py",
    )
    names = {path.relative_to(root).as_posix() for root in (theirs, ours) for path in root.rglob("*")}
    for name in sorted(name for name in names if "__pycache__" not in name):
        first, second = theirs / name, ours / name
        if first.is_dir() and second.is_dir():
            continue
        if not (first.is_file() and second.is_file()):
            yield f"{name} is of {'the builder' if first.exists() else 'ours'} alone"
        elif name == "metadata.json":
            if _described(first) != _described(second):
                yield f"{name} differs"
        elif name in generated or name.endswith(".so"):
            continue
        elif first.read_bytes() != second.read_bytes():
            yield f"{name} differs"


def _described(path: Path) -> dict[str, Any]:
    value = {key: one for key, one in built.read_json(path).items() if key != "digest"}
    value["provenance"] = {
        key: one for key, one in value.get("provenance", {}).items() if key != "kernel-builder"
    }
    return value


def main(repository: Path, commit: str, kernel_dir: Path, work: Path, backend: str, is_tested: bool) -> int:
    """Build, test if it ``is_tested``, and print what became of it as JSON."""
    from tests.reference_builder import variant
    from tests.reference_builder.project import Builder

    head = ["git", "-C", str(kernel_dir), "rev-parse", "HEAD"]
    revision = subprocess.run(head, check=True, capture_output=True, text=True).stdout.strip()
    builder = Builder.find(repository, commit)
    _put_tools_first()
    try:
        made = variant.build(builder, kernel_dir, revision, work / "out", work / "work", backend)
    except AssertionError as error:
        lines = [line.strip() for line in str(error).splitlines()[1:] if "rror" in line]
        console.say(lines[0] if lines else str(error).splitlines()[0])
        return 1
    answer: dict[str, Any] = {
        "variant": made.folder.name, "path": str(made.folder), "files": len(made.files),
        "verdict": "passed", "tests": None, "reasons": [],
    }  # fmt: skip
    tests = work / "work" / "tests"
    if is_tested and tests.is_dir():
        answer.update(run_tests(made.folder, tests, kernel_dir, commit))
    print(json.dumps(answer))
    return 0


def _put_tools_first() -> None:
    """Take CMake and ninja from the Python packages if there are any: the builder needs CMake 3.26."""
    try:
        import cmake
        import ninja
    except ImportError:
        return
    os.environ["PATH"] = os.pathsep.join([cmake.CMAKE_BIN_DIR, ninja.BIN_DIR, os.environ["PATH"]])


def run_tests(folder: Path, tests: Path, kernel_dir: Path, commit: str) -> dict[str, Any]:
    """Run ``tests`` against the variant in ``folder`` as ciTests do; the verdict, counts and reasons."""
    from kernel_actions import builder_output, manifest

    variables = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    variables["PYTHONPATH"] = str(folder)
    output = builder_output.bundled(commit)
    repo_id = manifest.load(kernel_dir).repo_id
    if output is not None and output.ci_has_local_kernels and repo_id:
        variables["LOCAL_KERNELS"] = f"{repo_id}={folder.parent}"
    marked = _pytest(tests, variables, "-m", "kernels_ci")
    answer = {"verdict": "passed", "tests": marked.counts, "reasons": marked.reasons, "unmarked": None}
    if marked.code == _NONE_SELECTED:
        # CI stops here. What all tests say is told beside it.
        everything = _pytest(tests, variables)
        answer |= {"unmarked": everything.counts, "reasons": everything.reasons}
    elif marked.code != 0:
        answer["verdict"] = "failed"
    return answer


@dataclass(frozen=True)
class _Tests:
    code: int
    counts: Mapping[str, int]
    reasons: list[str]


def _pytest(tests: Path, variables: Mapping[str, str], *options: str) -> _Tests:
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [
            sys.executable, "-m", "pytest", str(tests), *options, "-p", "no:cacheprovider", "-q",
            f"--junitxml={report}",
        ]  # fmt: skip
        finished = subprocess.run(
            command, cwd=scratch, env=variables, capture_output=True, text=True, check=False
        )
        counts, reasons = _read(report)
    if finished.returncode not in (0, _NONE_SELECTED) and not reasons:
        reasons = [line for line in finished.stdout.splitlines() if line.startswith(("E ", "ERROR"))][:3]
    return _Tests(finished.returncode, counts, reasons)


def _read(report: Path) -> tuple[dict[str, int], list[str]]:
    """The counts of a JUnit report, and the first lines of its failures."""
    counts = dict.fromkeys(_COUNTS, 0)
    reasons: list[str] = []
    if not report.is_file():
        return counts, reasons
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        bad = [one for one in case if one.tag in ("failure", "error")]
        skipped = any(one.tag == "skipped" for one in case)
        counts["failed" if bad else "skipped" if skipped else "passed"] += 1
        if bad and len(reasons) < 3:
            lines = (bad[0].get("message") or "failed").splitlines() or ["failed"]
            reasons.append(f"{case.get('name')}: {lines[0]}")
    return counts, reasons


if __name__ == "__main__":
    given = sys.argv[1:]
    paths = (Path(given[0]), given[1], Path(given[2]), Path(given[3]))
    sys.exit(main(*paths, given[4], given[5:] == ["--tests"]))
