"""What the tests tell while they run, and what that makes of them."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

from kernel_actions.test.model import Failure, Skip, TestReport, Timed

Outcome = Literal["passed", "failed", "error", "skipped", "crashed", "time-limit", "rerun"]
# The name of a check of an operator begins with it.
OPCHECK = "opcheck::"
# So many of each are listed in the report.
_MOST_FAILURES = 500
_MOST_SKIPS = 200
_SLOWEST = 10
# The most tests that are taken note of: a hostile kernel can tell of any number.
_MOST_TESTS = 1_000_000
_LONGEST_NAME = 500
# No test takes a year, in seconds.
_LONGEST_TIME = 365 * 86_400.0
_LONGEST_TEXT = 20_000
# Where pytest's text about a failure names a line. No line has a longer number, which Python might not take.
_PLACE = re.compile(r'^(?:E +File "([^"\n]+)", line (\d{1,9})\b|([^\s:][^:\n]*):(\d{1,9}): )', re.MULTILINE)
# Where Python's does, about threads.
_STACK_PLACE = re.compile(r'  File "(.*)", line (\d{1,9})\b')


@dataclass
class Case:
    """A test, as far as it got."""

    outcome: Outcome = "passed"
    seconds: float = 0.0
    reason: str = ""
    path: str | None = None
    line: int | None = None
    text: str = ""
    output: str = ""
    # Whether the test itself ran to its end, and not just its fixtures.
    has_passed: bool = False
    has_ended: bool = False

    @property
    def has_come_out(self) -> bool:
        """Whether it has ended, and not because just its fixtures had passed."""
        return self.has_ended and (self.has_passed or self.outcome != "passed")


@dataclass
class Progress:
    """The tests of a run, in the order in which they came. ``kernel_dir`` is where their files are.

    What is told comes from the tests' own process: nothing of it is taken for more than text and
    numbers.
    """

    kernel_dir: Path
    cases: dict[str, Case] = field(default_factory=dict)
    collection: list[Failure] = field(default_factory=list)
    skipped_files: list[Skip] = field(default_factory=list)
    selected: int | None = None
    deselected: int = 0
    broken: str = ""
    trouble: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] | None = None
    _running: dict[str, float] = field(default_factory=dict)
    _ended: int = 0

    @property
    def running_since(self) -> float | None:
        """When the oldest test that runs was started, by the monotonic clock."""
        return min(self._running.values(), default=None)

    @property
    def running(self) -> tuple[str, ...]:
        """The tests that run."""
        return tuple(self._running)

    def hear(self, event: dict[str, Any]) -> None:
        """Take note of an event."""
        kind = event.get("event")
        test = _name(event.get("test"))
        if kind in ("start", "phase", "again", "finish"):
            if test in self.cases or len(self.cases) < _MOST_TESTS:
                self._hear_of(test, self.cases.setdefault(test, Case()), event)
        elif kind == "collected":
            self.selected = _number(event.get("tests"))
            self.deselected = _number(event.get("deselected"))
        elif kind == "collection-error" and len(self.collection) < _MOST_FAILURES:
            path, line = self._place(event.get("places"), default=_text(event.get("path")))
            reason = _text(event.get("reason"))
            self.collection.append(Failure(test or "collection", "collection", reason, path, line))
        elif kind == "skip" and len(self.skipped_files) < _MOST_SKIPS:
            self.skipped_files.append(Skip(test, _text(event.get("reason"))))
        elif kind == "internal-error":
            self.trouble = _text(event.get("reason"))
        elif kind == "start-session":
            self.facts |= {name: _text(event.get(name)) for name in ("python", "pytest")}
        elif kind == "end":
            self.end = event
            names = ("torch", "cuda", "rocm", "kernels")
            self.facts |= {name: _text(event[name]) for name in names if isinstance(event.get(name), str)}

    def _hear_of(self, test: str, case: Case, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "start":
            self._running[test] = time.monotonic()
            # Where the test is, for a failure that has no place of its own in the kernel's files.
            case.path, case.line = self._place([[event.get("path"), event.get("line")]])
        elif kind == "phase":
            self._phase(case, event)
        elif kind == "again":
            case.outcome, case.reason = "rerun", _text(event.get("reason"))
        else:
            self._running.pop(test, None)
            case.seconds += _seconds(event.get("seconds"))
            case.has_ended = True
            self._ended += 1

    def _phase(self, case: Case, event: dict[str, Any]) -> None:
        when, outcome = event.get("when"), event.get("outcome")
        case.seconds += _seconds(event.get("seconds"))
        if outcome == "passed" and when == "call":
            case.has_passed = True
            if case.outcome == "skipped":
                # A part of it was skipped, and not the test.
                case.outcome, case.reason = "passed", ""
        if outcome == "failed":
            if case.outcome in ("passed", "skipped"):
                case.outcome = "failed" if when == "call" else "error"
                case.reason = _text(event.get("reason"))
                path, line = self._place(event.get("places"))
                if path is not None:
                    case.path, case.line = path, line
                case.text = _text(event.get("text"), _LONGEST_TEXT)
                case.output = _text(event.get("output"), _LONGEST_TEXT)
            if event.get("broken"):
                self.broken = _text(event["broken"])
                case.outcome = "crashed"
        elif outcome == "skipped" and case.outcome == "passed":
            case.outcome, case.reason = "skipped", _text(event.get("reason"))

    def _place(self, places: Any, default: str = "") -> tuple[str | None, int | None]:
        """The last of the places that is in the kernel's own files, relative to its folder."""
        for place in reversed(places if isinstance(places, list) else []):
            if isinstance(place, list) and len(place) == 2 and isinstance(place[1], int):
                path = own_path(self.kernel_dir, _text(place[0]))
                if path is not None:
                    return path, max(1, place[1])
        return (own_path(self.kernel_dir, default) if default else None), None

    def interrupt(self, outcome: Literal["crashed", "time-limit"], reason: str, stacks: str) -> str | None:
        """Have the tests that run end so; return the name of the first. ``stacks`` are those that Python
        wrote down last."""
        path, line = self._place(stack_places(stacks))
        running = list(self._running)
        for test in running:
            case = self.cases[test]
            case.outcome, case.reason, case.has_ended = outcome, reason, True
            self._ended += 1
            case.seconds = time.monotonic() - self._running.pop(test)
            if path is not None:
                case.path, case.line = path, line
            case.text = stacks[:_LONGEST_TEXT]
        return running[0] if running else None

    def count(self, *outcomes: Outcome, own: bool = False) -> int:
        """How many tests came out so; with ``own`` without the checks of operators."""
        return sum(
            case.outcome in outcomes and case.has_come_out and not (own and test.startswith(OPCHECK))
            for test, case in self.cases.items()
        )

    @property
    def not_run(self) -> int:
        """How many tests were selected and have not ended, or were ended before they ran."""
        unused = sum(case.has_ended and not case.has_come_out for case in self.cases.values())
        return max(0, (self.selected or 0) - self._ended) + unused

    @property
    def failures(self) -> tuple[Failure, ...]:
        """What failed, first what could not be imported."""
        failed = [
            Failure(test, case.outcome, case.reason[:300], case.path, case.line)
            for test, case in self.cases.items()
            if case.outcome != "passed" and case.outcome != "skipped" and case.has_ended
        ]
        return (*self.collection, *failed)[:_MOST_FAILURES]

    @property
    def skips(self) -> tuple[Skip, ...]:
        """What was skipped, and why."""
        skipped = (
            Skip(test, case.reason[:300]) for test, case in self.cases.items() if case.outcome == "skipped"
        )
        return (*self.skipped_files, *skipped)[:_MOST_SKIPS]

    @property
    def slowest(self) -> tuple[Timed, ...]:
        """The tests that took longest."""
        timed = sorted(self.cases.items(), key=lambda pair: -pair[1].seconds)[:_SLOWEST]
        return tuple(Timed(test, round(case.seconds, 3)) for test, case in timed)

    def junit(self, name: str) -> bytes:
        """The same as a JUnit report."""
        cases = [*self.cases.items()]
        suite = ElementTree.Element(
            "testsuite",
            name=name,
            tests=str(len(cases) + len(self.collection) + len(self.skipped_files)),
            failures=str(self.count("failed", "rerun", "crashed", "time-limit")),
            errors=str(self.count("error") + len(self.collection)),
            skipped=str(self.count("skipped") + len(self.skipped_files)),
        )
        for failure in self.collection:
            _junit_case(suite, failure.test, Case("error", 0, failure.reason, failure.path, failure.line))
        for skip in self.skipped_files:
            _junit_case(suite, skip.test, Case("skipped", 0, skip.reason))
        for test, case in cases:
            if case.has_come_out:
                _junit_case(suite, test, case)
        root = ElementTree.Element("testsuites")
        root.append(suite)
        return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def junit_with_reason(told: bytes, report: TestReport) -> bytes:
    """The JUnit report ``told``, with a case for the reason why ``report`` has not passed.

    Who reads JUnit alone must not see a success. Where a test failed, there is such a case.
    """
    if report.reason is None or report.failed:
        return told
    root = ElementTree.fromstring(told)
    if root.tag != "testsuites":
        root, inner = ElementTree.Element("testsuites"), root
        root.append(inner)
    tag = "error" if report.allowed is None else "skipped"
    suite = ElementTree.SubElement(root, "testsuite", name=f"{report.variant}: verdict", tests="1")
    suite.attrib |= {
        "failures": "0",
        "errors": str(int(tag == "error")),
        "skipped": str(int(tag == "skipped")),
    }
    case = ElementTree.SubElement(
        suite, "testcase", classname="kernel-actions", name=report.reason.kind, time="0.000"
    )
    text = report.reason.text if report.allowed is None else f"untested: {report.allowed}"
    ElementTree.SubElement(case, tag, message=_xml(text), type=report.reason.kind)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


@functools.lru_cache(maxsize=1024)
def own_path(kernel_dir: Path, name: str) -> str | None:
    """The path of a file of the kernel relative to its folder; ``None`` for any other file."""
    if not name or "\0" in name:
        return None
    try:
        root = kernel_dir.resolve()
        path = (root / name).resolve()
        if not path.is_file() or not path.is_relative_to(root) or "site-packages" in path.parts:
            return None
    except (OSError, RuntimeError, ValueError):
        return None
    return path.relative_to(root).as_posix()


def stack_places(stacks: str) -> list[list[object]]:
    """The places in the stack of the thread that Python was in, the innermost last.

    Python writes ``  File "x.py", line 3 in name``, the innermost first, thread by thread; the one that
    it was in is called the current thread.
    """
    threads: list[list[list[object]]] = []
    current: list[list[object]] | None = None
    for line in stacks.splitlines():
        if "thread 0x" in line.lower():
            threads.append([])
            if line.startswith("Current thread"):
                current = threads[-1]
        elif threads and (found := _STACK_PLACE.match(line)) is not None:
            threads[-1].append([found[1], int(found[2])])
    # A thread that waits (for the GPU) is not the current one: the main thread is told last.
    chosen = current or (threads[-1] if threads else [])
    return list(reversed(chosen))


def signal_name(number: int) -> str:
    """A signal as people know it: ``SIGSEGV (11)``."""
    try:
        return f"{signal.Signals(number).name} ({number})"
    except ValueError:
        return f"signal {number}"


def _junit_case(suite: ElementTree.Element, test: str, case: Case) -> None:
    file, _, name = test.partition("::")
    element = ElementTree.SubElement(
        suite,
        "testcase",
        classname=_xml(os.path.splitext(file)[0].replace("/", ".")),
        name=_xml(name or file),
        file=_xml(case.path or file),
        time=f"{case.seconds:.3f}",
    )
    if case.line is not None:
        element.set("line", str(case.line))
    if case.outcome == "passed":
        return
    tag = {"skipped": "skipped", "error": "error"}.get(case.outcome, "failure")
    inner = ElementTree.SubElement(element, tag, message=_xml(case.reason), type=case.outcome)
    inner.text = _xml(case.text)
    if case.output:
        ElementTree.SubElement(element, "system-out").text = _xml(case.output)


def _xml(text: str) -> str:
    """``text`` with characters that XML cannot hold made visible."""
    return "".join(
        one
        if one in "\t\n" or " " <= one <= "\ud7ff" or "\ue000" <= one <= "\ufffd" or one > "\uffff"
        else repr(one)[1:-1]
        for one in text
    )


def _text(value: Any, longest: int = 2_000) -> str:
    return value[:longest] if isinstance(value, str) else ""


def _name(value: Any) -> str:
    """The name of a test; of a very long one the beginning, and what keeps it from being another's."""
    name = value if isinstance(value, str) else ""
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:_LONGEST_NAME]}… {hashlib.sha256(name.encode(errors='replace')).hexdigest()[:12]}"


def _seconds(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < _LONGEST_TIME else 0.0


def _number(value: Any) -> int:
    return min(value, _MOST_TESTS) if isinstance(value, int) and value >= 0 else 0


def read_junit(data: bytes, progress: Progress, prefix: re.Pattern[str]) -> None:
    """Take note of what a JUnit report of pytest's own says. ``prefix`` is what stands before the paths of
    files that are copies of the kernel's. Raises ``ParseError`` when it is none."""
    root = ElementTree.fromstring(data)
    unused = 0
    for element in root.iter("testcase"):
        name = "::".join(part for part in (element.get("classname"), element.get("name")) if part)
        name = _name(name)
        if not name:
            # pytest was ended while this one ran.
            unused += 1
            continue
        outcomes = {child.tag: child for child in element}
        problem = outcomes.get("failure", outcomes.get("error"))
        if problem is None and "skipped" not in outcomes:
            case = Case("passed", has_passed=True)
        elif problem is None:
            case = Case("skipped", reason=_text(outcomes["skipped"].get("message")))
        else:
            text = problem.text or ""
            kind: Outcome = "failed" if "failure" in outcomes else "error"
            path, line = progress._place(_junit_places(text, element.get("file"), prefix))
            case = Case(kind, 0.0, _junit_reason(problem, text), path, line, text[:_LONGEST_TEXT])
            if problem.get("message") == "collection failure":
                progress.collection.append(Failure(name, "collection", case.reason, path, line))
                continue
        seconds = element.get("time") or "0"
        case.seconds = _seconds(float(seconds)) if seconds.replace(".", "", 1).isdigit() else 0.0
        case.has_ended = True
        if name in progress.cases and progress.cases[name].outcome not in ("passed", "skipped"):
            # Its fixtures have failed as well.
            continue
        progress.cases[name] = case
    progress._ended = len(progress.cases)
    progress.selected = progress._ended + unused
    # pytest counts what it has run, and lists what it prepared as well (--setup-only).
    counts = [element.get("tests", "") for element in root.iter("testsuite")]
    if all(count.isdigit() for count in counts):
        idle = len(progress.cases) - sum(map(int, counts))
        passed = [case for case in progress.cases.values() if case.outcome == "passed"]
        for case in passed[::-1][: max(0, idle)]:
            case.has_passed = False


def _junit_places(text: str, file: str | None, prefix: re.Pattern[str]) -> list[list[object]]:
    """The places that pytest's text about a failure names, in the order of the calls: as
    ``tests/test_it.py:12: AssertionError``, or ``File "/…/test_it.py", line 12`` of one on import."""
    named = [(file or "", 1)]
    for found in _PLACE.finditer(text):
        named.append((found[1] or found[3], int(found[2] or found[4])))
    # Names are relative to pytest's root, which is the folder of the tests where nothing configures it.
    places: list[list[object]] = []
    for path, line in named:
        path = prefix.sub("", path)
        places += [[f"tests/{path}", line], [path, line]]
    return places


def _junit_reason(problem: ElementTree.Element, text: str) -> str:
    said = [line.removeprefix("E").strip() for line in text.splitlines() if line.startswith("E ")]
    reason = problem.get("message") or ""
    if reason in ("", "collection failure"):
        reason = said[-1] if said else text
    return reason.strip().partition("\n")[0][:2_000]
