"""What happens when somebody ends a command: its ``finally`` clauses run."""

from __future__ import annotations

# The interpreter's own part of `signal`, which takes long to import, as it makes enumerations.
import _signal  # type: ignore[import-not-found]
from collections.abc import Iterator
from contextlib import contextmanager

from kernel_actions.errors import Interrupted

_ENDING = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn the signals that end a program into ``Interrupted``, so that ``finally`` clauses run."""

    def interrupt(number: int, _frame: object) -> None:
        # A second signal must not break the clean-up that the first one began.
        for other in _ENDING:
            _signal.signal(other, _signal.SIG_IGN)
        raise Interrupted(number)

    try:
        before = {number: _signal.signal(number, interrupt) for number in _ENDING}
    except ValueError:
        # In another thread than the main one, where signals do not arrive.
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            _signal.signal(number, handler)
