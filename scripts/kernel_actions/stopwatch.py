"""Notes what took how long, for the timeline of a summary."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from kernel_actions.markdown import Step


class Stopwatch:
    """The steps of a run so far, by the time since it was made."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._steps: list[Step] = []

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps that have ended, well or not, in their order."""
        return tuple(self._steps)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Note what is done meanwhile as a step; one that raises has failed."""
        start = time.monotonic()
        is_failed = True
        try:
            yield
            is_failed = False
        finally:
            took = time.monotonic() - start
            self._steps.append(Step("", name, start - self._begun, took, is_failed))
