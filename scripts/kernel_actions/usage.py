"""The whole command line by argparse: its help, and arguments that ``cli.plain`` does not take."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any, NoReturn

from kernel_actions import __version__, schema
from kernel_actions.errors import WrongInput
from kernel_actions.options import COMMANDS, Command

DESCRIPTION = "Takes a GPU kernel in the kernel-builder format from a commit to the Hub."


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        repair = f"see: {self.prog} --help"
        if unknown := re.match(r"unrecognized arguments: (--[^\s=]+)", message):
            names = [name for name in self._option_string_actions if name.startswith("--")]
            if close := schema.nearest(unknown[1], names):
                repair = f"did you mean {close}? {repair}"
        raise WrongInput(message, repair=repair)


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    made = _Parser(
        prog="kernel-actions",
        description=DESCRIPTION,
        epilog="First steps: `kernel-actions pipeline` takes the kernel of the current folder from "
        "source to an embedded Hub and back; `kernel-actions matrix` shows its build variants; "
        "`kernel-actions init` sets its repository on GitHub up.",
        allow_abbrev=False,
    )
    made.add_argument("--version", action="version", version=__version__)
    commands = made.add_subparsers(dest="command", metavar="COMMAND")
    for command in COMMANDS.values():
        inner = commands.add_parser(
            command.name, help=command.summary, description=command.summary, allow_abbrev=False
        )
        _add_options(inner, command)
    return made


def command_parser(command: Command) -> argparse.ArgumentParser:
    """The parser of what follows the name of ``command``."""
    made = _Parser(prog=f"kernel-actions {command.name}", description=command.summary, allow_abbrev=False)
    _add_options(made, command)
    return made


def _add_options(parser: argparse.ArgumentParser, command: Command) -> None:
    if command.takes_kernel:
        parser.add_argument(
            "kernel_dirs",
            metavar="KERNEL_DIR",
            nargs="*",
            type=Path,
            help="Folder of the kernel, which holds build.toml (default: the current one).",
        )
    for option in command.options:
        if option.secret:
            continue
        shown = f" Default: {option.default}." if option.default else ""
        keywords: dict[str, Any] = {"default": None, "help": (option.help + shown).replace("%", "%%")}
        if option.kind == "boolean":
            keywords["action"] = argparse.BooleanOptionalAction
        else:
            keywords["metavar"] = "|".join(option.choices) if option.choices else "VALUE"
            keywords["action"] = "append" if option.repeatable else "store"
        parser.add_argument(f"--{option.name}", dest=option.attribute, **keywords)
