"""What happens when somebody ends a command: its ``finally`` clauses run."""

from __future__ import annotations

# The interpreter's own part of `signal`, which takes long to import, as it makes enumerations.
import _signal  # type: ignore[import-not-found]
import _thread
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kernel_actions.errors import Interrupted

_ENDING = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP)
# How long after it was lost a signal is sent again, in seconds: what it was lost in is over then.
_PAUSE = 0.002


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn the signals that end a program into ``Interrupted``, so that ``finally`` clauses run."""

    def interrupt(number: int, _frame: object) -> None:
        # A second signal must not break the clean-up that the first one began.
        for other in _ENDING:
            _signal.signal(other, _signal.SIG_IGN)
        raise Interrupted(number)

    def send_again(lost: Any) -> None:
        # It arrived while a finalizer ran, or what is called around a fork, which no exception leaves.
        if not isinstance(lost.exc_value, Interrupted):
            report(lost)
            return
        number = lost.exc_value.signal_number
        _signal.signal(number, interrupt)
        _thread.start_new_thread(_send_later, (number,))

    try:
        before = {number: _signal.signal(number, interrupt) for number in _ENDING}
    except ValueError:
        # In another thread than the main one, where signals do not arrive, and whose hook is all threads'.
        yield
        return
    report, sys.unraisablehook = sys.unraisablehook, send_again
    try:
        yield
    finally:
        sys.unraisablehook = report
        for number, handler in before.items():
            _signal.signal(number, handler)


def _send_later(number: int) -> None:
    time.sleep(_PAUSE)
    os.kill(os.getpid(), number)
