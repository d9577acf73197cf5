"""Running ``nix``, and telling why it failed."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path

from kernel_actions import process
from kernel_actions.errors import printable
from kernel_actions.nix.log import plain

FEATURES = ("nix-command", "flakes")
# With it, commands that need them work whatever the configuration says.
NIX = ("nix", "--extra-experimental-features", " ".join(FEATURES))
# What a flake.nix says of Nix's settings counts for nothing, whoever has allowed that in general: it comes
# with the kernel, and could name a program to be run after each build, outside of any sandbox.
NO_SETTINGS_OF_FLAKES = ("--option", "accept-flake-config", "false")
_GIT_VARIABLES = frozenset({"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"})


def environment() -> dict[str, str]:
    """The variables of every program of Nix: no secrets, and messages that are read.

    Of git's own, which Nix runs, only those that say where its configuration is: without those that may be
    secret, the others would contradict each other.
    """
    kept = {
        name: value
        for name, value in process.without_secrets(os.environ).items()
        if not name.startswith("GIT_") or name in _GIT_VARIABLES
    }
    # Nix's own configuration, which may have an access token in it. Builds see no variables.
    kept |= {name: os.environ[name] for name in ("NIX_CONFIG",) if name in os.environ}
    return {**kept, "LC_ALL": "C", "NO_COLOR": "1", "GIT_TERMINAL_PROMPT": "0"}


def run(
    *arguments: str | Path,
    directory: Path | None = None,
    changes: Mapping[str, str] | None = None,
    time_limit: float = 120.0,
) -> process.Finished:
    """Run ``nix``, with ``changes`` to its variables, for at most ``time_limit`` seconds."""
    variables = environment() | dict(changes or {})
    return process.run([*NIX, *arguments], directory=directory, environment=variables, time_limit=time_limit)


def this_system() -> str:
    """The system of this machine, as Nix calls it."""
    machine = {"arm64": "aarch64", "amd64": "x86_64"}.get(platform.machine(), platform.machine())
    return f"{machine}-{platform.system().lower()}"


def reason(output: str, which: int = -1) -> str:
    """Why a program failed, in one line: the last reason that it gives, unless ``which`` says otherwise."""
    lines = [line.strip() for line in plain(output).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error:") and line != "error:"]
    chosen = (errors or lines or ["it gave no reason"])[which]
    return printable(process.without_credentials(chosen.removeprefix("error:").strip()))[:300]
