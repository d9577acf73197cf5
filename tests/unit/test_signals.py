"""A signal ends a command wherever it arrives."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest
from kernel_actions.errors import Interrupted
from kernel_actions.signals import interruptible


class Finalized:
    """Is sent a signal where no exception gets out."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0)


def test_a_signal_that_arrives_in_a_finalizer_is_not_lost() -> None:
    # So are those that arrive in what logging and random have called around each fork: one in a hundred
    # interrupts of a pipeline that began to build was lost, and all after it ignored.
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted, match="SIGTERM"), interruptible():
        Finalized()
        time.sleep(10)
    assert signal.getsignal(signal.SIGTERM) is before


def test_other_errors_of_finalizers_are_reported_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __del__(self) -> None:
            raise ValueError("broken")

    reported: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: reported.append(str(lost.exc_value)))
    with interruptible():
        Broken()
    assert reported == ["broken"]


def test_another_thread_changes_nothing_for_all() -> None:
    seen: list[object] = []

    def look() -> None:
        with interruptible():
            seen.append(sys.unraisablehook)

    before = sys.unraisablehook
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]
