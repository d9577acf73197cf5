"""A report of the files that a run left: reports of builds, of tests and of compliance, and the release's
record.

They come from artifacts, and so from anywhere: each is read for what it is known to hold, and what is not
of that form is a finding.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernel_actions import coverage, planning, toml_file
from kernel_actions.errors import KernelActionsError, Place, WrongInput, printable
from kernel_actions.markdown import Step
from kernel_actions.report.model import Build, Finding, Report, Severity, Tests, VariantReport

_LARGEST = 50_000_000
_MOST_FILES = 20_000
_MOST_FAILURES = 100
_LONGEST = 2_000
_BUILD, _TESTS, _RECORD = ".build-report.json", ".test-report.json", "kernel-actions.json"
# These are made of the others, or of other matters.
_SKIPPED = ("metadata.json", "test-reports.json", "report.json")


class _Malformed(Exception):
    """A file that is not of the form that its name or its keys promise."""


class _Found:
    """What was read so far, by variant."""

    def __init__(self) -> None:
        self.builds: dict[str, Build] = {}
        self.tests: dict[str, list[Tests]] = {}
        self.waived: dict[str, str] = {}
        self.records: list[Mapping[str, Any]] = []
        self.findings: list[Finding] = []
        self.files: list[str] = []


def read(folders: Sequence[Path], kernel_dir: Path, record: Mapping[str, Any] | None = None) -> Report:
    """The report on what is below ``folders``, against the plan of the kernel in ``kernel_dir``, if there
    is one.

    Raises ``WrongInput`` for a folder that is not there, or when there is neither a report nor a plan; where
    the plan cannot be read, then why.
    """
    found = _Found()
    if record is not None:
        _take_record(found, record)
    for folder in folders:
        if not folder.exists():
            raise WrongInput("there is no such folder or file", where=Place(folder))
        for path in _paths(folder):
            _take(found, path)
    name, planned, problem = _plan(kernel_dir)
    if not found.files and not planned and record is None:
        if problem is not None:
            raise problem
        listed = ", ".join(str(folder) for folder in folders)
        below = f"there are no reports below {listed}, and " if folders else ""
        raise WrongInput(
            f"{below}{kernel_dir} is no kernel",
            repair="give the folder of the artifacts, or run it in the kernel's folder",
        )
    if problem is not None:
        found.findings.append(Finding("error", "no plan", str(problem)))
    return _report(found, name, planned)


def _paths(folder: Path) -> list[Path]:
    if folder.is_file():
        return [folder]
    paths = [
        path
        for path in folder.rglob("*")
        if path.suffix in (".json", ".sarif")
        and path.name not in _SKIPPED
        and path.is_file()
        and not path.is_symlink()
    ]
    if len(paths) > _MOST_FILES:
        raise WrongInput(f"holds more than {_MOST_FILES} files", where=Place(folder))
    return sorted(paths)


def _take(found: _Found, path: Path) -> None:
    """Add what is in a file, if it is a report."""
    is_named = path.name.endswith((_BUILD, _TESTS, ".sarif")) or path.name == _RECORD
    try:
        value = _load(path)
        taker = _taker(path, value)
        if taker is None:
            return
        taker(found, value)
        found.files.append(path.name)
    except (_Malformed, KeyError, TypeError, ValueError, AttributeError) as error:
        if is_named:
            found.files.append(path.name)
            text = f"is not a report of this form: {type(error).__name__}: {error}"
            found.findings.append(Finding("error", "a damaged report", text[:300], printable(path.name)))


def _load(path: Path) -> Any:
    try:
        data = toml_file.read_bytes(path, _LARGEST)
        if len(data) > _LARGEST:
            raise _Malformed("it is larger than 50 MB")
        return json.loads(data)
    except (OSError, RecursionError, WrongInput) as error:
        raise _Malformed(str(error)) from error


def _taker(path: Path, value: Any) -> Any:
    """What reads this file; ``None`` when it is none of ours."""
    if path.name.endswith(_BUILD):
        return _take_build
    if path.name.endswith(_TESTS):
        return _take_tests
    if path.name == _RECORD:
        return _take_record
    if path.suffix == ".sarif" or (
        isinstance(value, dict) and value.get("version") == "2.1.0" and "runs" in value
    ):
        return _take_sarif
    if isinstance(value, dict) and {"verdict", "findings", "waived", "severities"} <= value.keys():
        return _take_compliance
    return None


def _take_build(found: _Found, value: Mapping[str, Any]) -> None:
    found.builds[_text(value["variant"])] = Build(
        builder=_text(value["builder"]),
        commit=_text(value.get("commit") or ""),
        is_dirty=value.get("dirty") is not False,
        torch=_text(value.get("torch") or ""),
        seconds=_number(value.get("seconds", 0)),
        bytes=int(_number(value.get("bytes", 0))),
        files=int(_number(value.get("files", 0))),
    )


def _take_tests(found: _Found, value: Mapping[str, Any]) -> None:
    name = _text(value["variant"])
    reason = value.get("reason") or {}
    failures = value.get("failures") or []
    gpu = value.get("gpu")
    tests = Tests(
        gpu=None if gpu is None else _text(gpu),
        verdict=_text(value["verdict"]),
        passed=int(_number(value["passed"])),
        failed=int(_number(value["failed"])),
        skipped=int(_number(value["skipped"])),
        seconds=_number(value.get("seconds", 0)),
        why=_text(reason.get("text", "")),
        failures=tuple(
            (_text(one["test"]), _at(one.get("path"), one.get("line")), _text(one["reason"]))
            for one in failures[:_MOST_FAILURES]
        ),
    )
    if tests.verdict == "passed" and (tests.failed or not tests.passed):
        raise _Malformed("it contradicts itself")
    found.tests.setdefault(name, []).append(tests)
    if value.get("allowed"):
        found.waived[name] = _text(value["allowed"])
    if tests.verdict in ("passed", "untested"):
        return
    on = coverage.short_gpu(tests.gpu)
    for test, where, why in tests.failures:
        found.findings.append(Finding("error", f"{test} failed on {on}", why, where, variant=name))
    if not tests.failures:
        why = tests.why or "the tests have not passed"
        repair = _text(reason.get("repair", ""))
        found.findings.append(Finding("error", f"not tested on {on}", why, repair=repair, variant=name))


def _take_record(found: _Found, value: Mapping[str, Any]) -> None:
    # All that is used of it later is looked at now.
    for name in ("release", "kernel", "commit"):
        _text(value[name])
    for name, one in value["variants"].items():
        _text(name)
        _text(one["release"])
        _text(one.get("untested") or "")
        list(_recorded_tests(one, is_known=False))
    found.records.append(value)


def _take_compliance(found: _Found, value: Mapping[str, Any]) -> None:
    for one in value["findings"]:
        severity: Severity = "error" if one["severity"] == "error" else "warning"
        found.findings.append(_broken(severity, one, one["repair"]))
    for one in value["waived"]:
        waiver = one["waiver"]
        why = f"accepted until {_text(waiver['until'])}: {_text(waiver['reason'])}"
        found.findings.append(_broken("waived", one, why))


def _broken(severity: Severity, one: Mapping[str, Any], repair: object) -> Finding:
    return Finding(
        severity,
        f"{_text(one['rule'])} {_text(one['slug'])}",
        _text(one["message"]),
        _at(one["path"], one["line"]),
        _text(repair),
        _text(one.get("variant") or ""),
    )


def _take_sarif(found: _Found, value: Mapping[str, Any]) -> None:
    for run in value["runs"]:
        for one in run.get("results", []):
            level = one.get("level", "warning")
            severity: Severity = "error" if level == "error" else "warning"
            if one.get("suppressions"):
                severity = "waived"
            places = one.get("locations") or [{}]
            physical = places[0].get("physicalLocation", {})
            where = _at(
                physical.get("artifactLocation", {}).get("uri"), physical.get("region", {}).get("startLine")
            )
            variant = _text((one.get("properties") or {}).get("variant") or "")
            found.findings.append(
                Finding(severity, _text(one["ruleId"]), _text(one["message"]["text"]), where, variant=variant)
            )


def _plan(kernel_dir: Path) -> tuple[str, dict[str, coverage.Entry], KernelActionsError | None]:
    """The kernel's name, the variants that a release of it has, and what keeps the plan from being read."""
    if not (kernel_dir / "build.toml").is_file():
        return "", {}, None
    try:
        plan = planning.plan(kernel_dir)
    except KernelActionsError as error:
        return kernel_dir.resolve().name, {}, error
    entries = {one.name: coverage.of_variant(one, "planned") for one in plan.variants.variants if one.bundled}
    return plan.manifest.name, entries, None


def _report(found: _Found, name: str, planned: Mapping[str, coverage.Entry]) -> Report:
    record = found.records[0] if found.records else None
    recorded: Mapping[str, Any] = record["variants"] if record else {}
    release = _text(record["release"]) if record else ""
    names = dict.fromkeys([*planned, *sorted(recorded), *sorted(found.builds), *sorted(found.tests)])
    variants = tuple(
        VariantReport(
            place=planned.get(one) or coverage.of_name(one, "planned"),
            is_planned=one in planned,
            build=found.builds.get(one),
            tests=(
                *found.tests.get(one, ()),
                *_recorded_tests(recorded.get(one), is_known=one in found.tests),
            ),
            waived=found.waived.get(one) or _text((recorded.get(one) or {}).get("untested") or ""),
            published=_text(recorded[one]["release"]) if one in recorded else "",
            is_kept=one in recorded and recorded[one]["release"] != release,
        )
        for one in names
    )
    order = {"error": 0, "warning": 1, "waived": 2}
    return Report(
        kernel=name or (_text(record.get("kernel", "")) if record else "") or "kernel",
        release=release,
        facts=tuple(_facts(found, record)),
        variants=variants,
        findings=tuple(sorted(dict.fromkeys(found.findings), key=lambda one: order[one.severity])),
        steps=tuple(_steps(variants)),
        has_plan=bool(planned),
        read=tuple(found.files),
    )


def _recorded_tests(one: Mapping[str, Any] | None, *, is_known: bool) -> Iterator[Tests]:
    """The tests that the release's record has of a variant, where no report of them is there."""
    tests = (one or {}).get("tests")
    if is_known or not isinstance(tests, dict):
        return
    gpu = tests.get("gpu")
    passed, failed, skipped = (int(_number(tests.get(name, 0))) for name in ("passed", "failed", "skipped"))
    verdict = "passed" if passed and not failed else "failed"
    yield Tests(None if gpu is None else _text(gpu), verdict, passed, failed, skipped)


def _facts(found: _Found, record: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    commits = {one.commit for one in found.builds.values() if one.commit}
    if record is not None:
        commits.add(_text(record.get("commit") or ""))
    if commits := commits - {""}:
        yield "commit", ", ".join(sorted(commits))
    if any(one.is_dirty for one in found.builds.values()):
        yield "working tree", "with changes that are not committed"
    if builders := sorted({one.builder for one in found.builds.values()}):
        yield "built by", ", ".join(builders)
    gpus = {tests.gpu for listed in found.tests.values() for tests in listed if tests.gpu}
    if found.tests:
        yield "tested on", ", ".join(sorted(gpus)) or "no GPU"


def _steps(variants: Iterable[VariantReport]) -> Iterator[Step]:
    """Each variant's build and its tests, one after the other; jobs run at the same time, each from its
    start."""
    for one in variants:
        start = 0.0
        if one.build is not None and one.build.seconds:
            yield Step(one.name, "build", start, one.build.seconds)
            start += one.build.seconds
        for tests in one.tests:
            if tests.seconds:
                name = f"test on {coverage.short_gpu(tests.gpu)}"
                is_failed = tests.verdict not in ("passed", "untested")
                yield Step(one.name, name, start, tests.seconds, is_failed)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _Malformed(f"{str(value)[:40]} is not a string")
    return value[:_LONGEST]


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise _Malformed(f"{str(value)[:40]} is not a number")
    return float(value)


def _at(path: object, line: object) -> str:
    shown = _text(path) if path else ""
    return f"{shown}:{line}" if shown and isinstance(line, int) else shown
