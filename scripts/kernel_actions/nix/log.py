"""What Nix says while it builds: its log for programs (``--log-format internal-json``). Pure.

The log's lines are ``@nix`` and a JSON object: an activity starts or stops, or has a result, or there is a
message. The numbers are those of ``ActivityType`` and ``ResultType`` of Nix's ``src/libutil/logging.hh``,
which are the same from Nix 2.3 to the newest.
"""

from __future__ import annotations

import json
import re
from collections import deque
from typing import Any, Literal, NamedTuple

from kernel_actions.process import without_credentials

_PREFIX = "@nix "
_COPY_PATH, _FILE_TRANSFER, _COPY_PATHS, _BUILDS, _BUILD, _SUBSTITUTE = 100, 101, 103, 104, 105, 108
_LINE, _PHASE, _PROGRESS, _EXPECTED, _POST_BUILD_LINE = 101, 104, 105, 106, 107
_ERROR, _WARNING = 0, 1
# Colours, and the other sequences by which a terminal is told something.
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_STORE_NAME = re.compile(r"^(?:.*/)?[0-9a-z]{32}-")
# What would move a terminal's cursor, or ring its bell; what is left of a sequence that is none.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# A build may print without end. What it says last is what is asked for. In characters: of all lines of a
# derivation that are kept, and of one.
_KEPT = 20_000_000
_LONGEST_LINE = 20_000

Kind = Literal["line", "phase", "building", "built", "fetching", "fetched", "warning", "error", "other"]


class Event(NamedTuple):
    """Something that people may want to see. ``subject`` is the derivation or the store path it is about."""

    kind: Kind
    subject: str
    text: str


class Progress(NamedTuple):
    """How far Nix is: derivations, paths and bytes, each as done and expected."""

    built: int = 0
    to_build: int = 0
    fetched: int = 0
    to_fetch: int = 0
    bytes: int = 0
    to_bytes: int = 0

    @property
    def remaining(self) -> int:
        """How many derivations and paths are still to be had."""
        return max(0, self.to_build - self.built) + max(0, self.to_fetch - self.fetched)


class _Activity:
    """Something that Nix is at; ``subject`` is a derivation or a store path."""

    def __init__(self, kind: int, subject: str) -> None:
        self.kind = kind
        self.subject = subject
        self.done = 0


class Log:
    """The state of one run of Nix, as its log tells it line by line.

    ``built`` are the derivations that were built; ``fetched`` says from which cache each path came; ``lines``
    are what each derivation's builder printed. ``errors`` and ``warnings`` are Nix's own. ``output`` is what
    stood between the log's lines: what the command prints.
    """

    def __init__(self) -> None:
        self.built: dict[str, None] = {}
        self.fetched: dict[str, str] = {}
        self.lines: dict[str, deque[str]] = {}
        self._kept: dict[str, int] = {}
        self.phases: dict[str, str] = {}
        self.errors: list[str] = []
        self.warnings: dict[str, None] = {}
        self.output: list[str] = []
        self._activities: dict[int, _Activity] = {}
        self._counts: dict[int, tuple[int, int]] = {}
        self._expected: dict[int, int] = {}
        # What is through, over the network and from store to store: a path that is fetched is both.
        self._moved = {_FILE_TRANSFER: 0, _COPY_PATH: 0}

    @property
    def progress(self) -> Progress:
        """How far Nix is. Bytes are those that go over the network, or out of a cache in a folder."""
        moved = dict(self._moved)
        for one in self._activities.values():
            if one.kind in moved:
                moved[one.kind] += one.done
        kind = _FILE_TRANSFER if moved[_FILE_TRANSFER] else _COPY_PATH
        built, fetched = self._counts.get(_BUILDS, (0, 0)), self._counts.get(_COPY_PATHS, (0, 0))
        return Progress(*built, *fetched, moved[kind], max(self._expected.get(kind, 0), moved[kind]))

    @property
    def building(self) -> list[str]:
        """The derivations that are being built right now."""
        return [one.subject for one in self._activities.values() if one.kind == _BUILD]

    def feed(self, line: str) -> Event | None:
        """Take one line of the output, and return what it says that people may want to see."""
        if not line.startswith(_PREFIX):
            if line.strip():
                self.output.append(line)
            return None
        try:
            said = json.loads(line[len(_PREFIX) :])
            return self._take(said) if isinstance(said, dict) else None
        except (ValueError, TypeError, KeyError, IndexError, RecursionError):
            # A line that was cut off, or of a Nix that says more than this knows: it is only shown less of.
            return None

    def _take(self, said: dict[str, Any]) -> Event | None:
        action = said["action"]
        if action == "msg":
            text = without_credentials(plain(str(said["msg"])))
            return self._message(int(said.get("level", 3)), text)
        if action == "start":
            return self._start(int(said["id"]), int(said["type"]), said.get("fields") or [])
        if action == "stop":
            return self._stop(int(said["id"]))
        if action == "result":
            return self._result(int(said["id"]), int(said["type"]), said.get("fields") or [])
        return None

    def _message(self, level: int, text: str) -> Event | None:
        if level == _ERROR:
            self.errors.append(text)
            return Event("error", "", text)
        if level == _WARNING:
            text = text.removeprefix("warning:").strip()
            if text in self.warnings:
                return None
            self.warnings[text] = None
            return Event("warning", "", text)
        return None

    def _start(self, number: int, kind: int, fields: list[Any]) -> Event | None:
        subject = str(fields[0]) if fields else ""
        self._activities[number] = _Activity(kind, subject)
        if kind == _BUILD:
            self.lines.setdefault(subject, deque())
            machine = f" on {fields[1]}" if len(fields) > 1 and fields[1] else ""
            return Event("building", subject, f"building {short_name(subject)}{machine}")
        if kind == _SUBSTITUTE and len(fields) > 1:
            self.fetched[subject] = cache = without_credentials(str(fields[1]))
            return Event("fetching", subject, f"fetching {short_name(subject)} from {cache}")
        return None

    def _stop(self, number: int) -> Event | None:
        activity = self._activities.pop(number, None)
        if activity is None:
            return None
        if activity.kind == _BUILD:
            self.built[activity.subject] = None
            return Event("built", activity.subject, "")
        if activity.kind in self._moved:
            self._moved[activity.kind] += activity.done
        return Event("fetched", activity.subject, "") if activity.kind == _SUBSTITUTE else None

    def _result(self, number: int, kind: int, fields: list[Any]) -> Event | None:
        activity = self._activities.get(number)
        if activity is None:
            return None
        if kind in (_LINE, _POST_BUILD_LINE):
            text = plain(str(fields[0])[:_LONGEST_LINE])
            self._keep(activity.subject, text)
            return Event("line", activity.subject, text)
        if kind == _PHASE:
            self.phases[activity.subject] = str(fields[0])
            return Event("phase", activity.subject, str(fields[0]))
        if kind == _PROGRESS:
            if activity.kind in (_BUILDS, _COPY_PATHS):
                self._counts[activity.kind] = (int(fields[0]), int(fields[1]))
            elif activity.kind in self._moved:
                activity.done = int(fields[0])
            return Event("other", "", "")
        if kind == _EXPECTED:
            self._expected[int(fields[0])] = int(fields[1])
        return None

    def _keep(self, subject: str, text: str) -> None:
        """Keep a line of a derivation, and of those before it as many as there is room for."""
        lines = self.lines.setdefault(subject, deque())
        lines.append(text)
        # An empty line takes some room too.
        kept = self._kept.get(subject, 0) + len(text) + 50
        while kept > _KEPT:
            kept -= len(lines.popleft()) + 50
        self._kept[subject] = kept


def plain(text: str) -> str:
    """``text`` without colours, and as what a terminal shows of lines that were written over; nothing that a
    terminal would obey is left in it."""
    text = _ESCAPE.sub("", text)
    text = text.rstrip("\r").rpartition("\r")[2] if "\r" in text else text
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def short_name(path: str) -> str:
    """The name of a store path or derivation without its hash."""
    return _STORE_NAME.sub("", path).removesuffix(".drv")
