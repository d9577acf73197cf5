"""What happens when somebody ends a command: its ``finally`` clauses run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kernel_actions.errors import Interrupted

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn the signals that end a program into ``Interrupted``, so that ``finally`` clauses run."""

    def interrupt(number: int, _frame: object) -> None:
        # A second signal must not break the clean-up that the first one began.
        for other in _ENDING:
            signal.signal(other, signal.SIG_IGN)
        raise Interrupted(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _ENDING}
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
