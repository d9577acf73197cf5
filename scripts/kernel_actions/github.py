"""The only module that speaks to GitHub Actions: outputs, annotations, groups, masks, summary.

Formats: https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from kernel_actions.errors import Place, WrongInput

# The runner refuses a step's summary over 1 MiB as a whole, so stay below it.
SUMMARY_LIMIT = 1_000_000


def is_actions() -> bool:
    """Whether this process runs in a job of GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def set_outputs(outputs: Mapping[str, str]) -> None:
    """Set the step's outputs. Does nothing outside of Actions.

    A random delimiter keeps a value that holds line breaks from setting further outputs.
    """
    path = os.environ.get("GITHUB_OUTPUT")
    if not path:
        return
    import secrets  # Not at the top: it takes a twentieth of the time of a quick command.

    with open(path, "a", encoding="utf-8") as file:
        for name, value in outputs.items():
            delimiter = f"end-{secrets.token_hex(16)}"
            file.write(f"{name}<<{delimiter}\n{value}\n{delimiter}\n")


def add_summary(markdown: str) -> None:
    """Append to the job's summary page. Does nothing outside of Actions."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    data = markdown.encode()
    if len(data) > SUMMARY_LIMIT:
        cut = data[:SUMMARY_LIMIT].decode(errors="ignore").rpartition("\n")[0]
        data = f"{cut}\n\n(The rest is left out: a summary may have 1 MiB.)\n".encode()
    with open(path, "ab") as file:
        file.write(data + b"\n")


def annotate(
    level: Literal["error", "warning", "notice"],
    message: str,
    *,
    where: Place | None = None,
    title: str = "",
) -> None:
    """Show ``message`` on the job's page and at its line of the pull request."""
    properties = {"title": title} if title else {}
    if where is not None:
        properties["file"] = str(where.path)
        if where.line is not None:
            properties["line"] = str(where.line)
        if where.column is not None:
            properties["col"] = str(where.column)
    listed = ",".join(f"{name}={_escape_property(value)}" for name, value in properties.items())
    _command(f"::{level} {listed}::{_escape(message)}" if listed else f"::{level}::{_escape(message)}")


def mask(secret: str) -> None:
    """Have the runner replace ``secret`` by asterisks in everything that is logged from now on."""
    if is_actions():
        for line in secret.splitlines():
            if line:
                _command(f"::add-mask::{_escape(line)}")


@contextmanager
def group(title: str) -> Iterator[None]:
    """Fold what is logged meanwhile under ``title``. Shows only the title outside of Actions."""
    if not is_actions():
        print(title, file=sys.stderr, flush=True)
        yield
        return
    _command(f"::group::{_escape(title)}")
    try:
        yield
    finally:
        _command("::endgroup::")


@contextmanager
def untrusted_output() -> Iterator[None]:
    """Keep the runner from obeying workflow commands in what is logged meanwhile.

    Compilers and tests print what the kernel's author wrote, which may look like a command.
    """
    if not is_actions():
        yield
        return
    import secrets

    token = secrets.token_hex(16)
    _command(f"::stop-commands::{token}")
    try:
        yield
    finally:
        _command(f"::{token}::")


def boolean(name: str, value: str) -> bool:
    """The boolean of an action's input, which always arrives as a string."""
    lowered = value.strip().lower()
    if lowered in {"true", "1", "yes", "on"}:
        return True
    if lowered in {"false", "0", "no", "off"}:
        return False
    raise WrongInput(f"{name} is {value!r}, which is neither true nor false")


def _command(text: str) -> None:
    # Progress goes to stderr and commands do too, so that stdout holds results alone.
    # The runner reads commands from both.
    print(text, file=sys.stderr, flush=True)


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")
