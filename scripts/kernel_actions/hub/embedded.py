"""An embedded Hub for as long as a block of code runs."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel_actions import process
from kernel_actions.errors import WrongSurroundings, printable

# Set to 1, a server also ends when its standard input does.
LIFELINE = "KA_HUB_LIFELINE"
# How long the server may take to start, in seconds. It takes about one; a loaded machine is slower.
_START_LIMIT = 60.0
_PROGRAM = Path(__file__).resolve().parents[1]


@contextmanager
def embedded(data: Path) -> Iterator[str]:
    """Run an embedded Hub that keeps its data in ``data``, and yield its address.

    The server ends with the block. It also ends when this process is killed, since it reads the
    end of a pipe that this process alone can write to.

    Raises ``WrongSurroundings`` with the server's own words when it does not start.
    """
    environment = process.without_secrets(os.environ) | {LIFELINE: "1"}
    # Its errors are reported once, by this process.
    environment.pop("GITHUB_ACTIONS", None)
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [sys.executable, "-I", str(_PROGRAM), "hub", "--data", str(data), "--port", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            # Ctrl-C is for this process, which still needs the server while it cleans up.
            start_new_session=True,
        )
        try:
            address = _wait_until_ready(child)
            if address is None:
                process.end_group(child)
                errors.seek(0)
                said = printable(errors.read().decode(errors="replace").strip())
                reason = said.removeprefix("kernel-actions: ") or f"it did not answer in {_START_LIMIT:.0f} s"
                raise WrongSurroundings(f"the embedded Hub did not start: {reason}")
            yield address
        finally:
            process.end_group(child)
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()


def _wait_until_ready(child: subprocess.Popen[bytes]) -> str | None:
    """The address that the server says it has; ``None`` when it ends or says nothing in time."""
    assert child.stdout is not None
    if not select.select([child.stdout], [], [], _START_LIMIT)[0]:
        return None
    words = child.stdout.readline().decode(errors="replace").split()
    return next((word for word in words if word.startswith("http://")), None)
