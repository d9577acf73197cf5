"""Every error of the suite: one line that says what, where and what to do, and an exit code.

The exit codes are the contract of all commands and actions:

====  =============================================================================
0     done
1     the kernel failed: a compile error, a failed test, nothing tested
2     the input is wrong: usage, build.toml, flake.lock, kernel-actions.toml
3     the surroundings are wrong: no compiler, no GPU, no network, a full disk
130   interrupted (SIGINT); 143 when ended (SIGTERM), 129 when hung up (SIGHUP)
====  =============================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernel_actions.named_tuple import NamedTuple

EXIT_DONE = 0
EXIT_KERNEL_FAILED = 1
EXIT_WRONG_INPUT = 2
EXIT_WRONG_SURROUNDINGS = 3


class Place(NamedTuple):
    """A place in a file. ``line`` and ``column`` count from 1."""

    path: Path
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        text = str(self.path)
        if self.line is not None:
            text += f":{self.line}"
            if self.column is not None:
                text += f":{self.column}"
        return text


class KernelActionsError(Exception):
    """An error that a user can act on. Use one of the subclasses: each has its exit code.

    ``what`` says what is wrong, ``where`` in which file, and ``repair`` what to do about it.
    ``others`` are further errors that were found together with this one, in the order to show them.
    """

    exit_code = EXIT_WRONG_SURROUNDINGS

    def __init__(
        self,
        what: str,
        *,
        where: Place | None = None,
        repair: str = "",
        others: tuple[KernelActionsError, ...] = (),
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.repair = repair
        self.others = others

    @property
    def all(self) -> tuple[KernelActionsError, ...]:
        """This error and its ``others``: each is a line of its own."""
        return (self, *self.others)

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        if self.repair:
            text += f" ({self.repair})"
        # One line: a message that was taken from a tool or a file may hold any character.
        return printable(text)


class KernelFailed(KernelActionsError):
    """The kernel does not compile, fails a test, or breaks a rule."""

    exit_code = EXIT_KERNEL_FAILED


class WrongInput(KernelActionsError):
    """What the user wrote is wrong: options, build.toml, flake.lock, kernel-actions.toml."""

    exit_code = EXIT_WRONG_INPUT


class WrongSurroundings(KernelActionsError):
    """The machine, the network or a permission is not as needed."""

    exit_code = EXIT_WRONG_SURROUNDINGS


def raise_all(errors: Sequence[KernelActionsError]) -> None:
    """Raise the first of ``errors``, with the others as its ``others``; nothing when there is none."""
    if errors:
        first, *others = errors
        raise type(first)(first.what, where=first.where, repair=first.repair, others=tuple(others))


class Interrupted(KeyboardInterrupt):
    """A signal ended the command; its exit code is 128 and the signal's number.

    Like every interrupt, it is no ``Exception``: code that carries on after errors must not carry
    on after this.
    """

    where = None
    repair = ""

    def __init__(self, signal_number: int) -> None:
        import signal  # Not at the top: its enumerations take long to make.

        self.what = f"interrupted by {signal.Signals(signal_number).name}"
        super().__init__(self.what)
        self.signal_number = signal_number
        self.exit_code = 128 + signal_number


def printable(text: str) -> str:
    """``text`` on one line, with control characters (which a terminal would obey) made visible.

    Nor does it hold ``##[``, which the runner of GitHub Actions obeys anywhere in a line, or begin with
    ``::``, which it obeys at the beginning of one.
    """
    joined = " ".join(line.strip() for line in text.splitlines() if line.strip()).replace("##[", "# #[")
    if joined.startswith("::"):
        joined = f": {joined[1:]}"
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in joined)
