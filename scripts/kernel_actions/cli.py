"""The command line: options from the table, one command, one exit code."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from kernel_actions import __version__, console, github
from kernel_actions.errors import (
    EXIT_DONE,
    Interrupted,
    KernelActionsError,
    Place,
    WrongInput,
    WrongSurroundings,
)
from kernel_actions.options import COMMANDS, Command, Option

DESCRIPTION = "Takes a GPU kernel in the kernel-builder format from a commit to the Hub."


class Options(argparse.Namespace):
    """The options of one command, by attribute; ``kernel_dirs`` are the kernel's folders."""

    kernel_dirs: list[Path]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    @property
    def kernel_dir(self) -> Path:
        """The one kernel folder of a command that takes one."""
        if len(self.kernel_dirs) > 1:
            raise WrongInput("this command takes one kernel folder", repair="run it once for each")
        return self.kernel_dirs[0]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise WrongInput(message, repair=f"see: {self.prog} --help")


def build_parser(prog: str = "kernel-actions") -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = _Parser(
        prog=prog,
        description=DESCRIPTION,
        epilog="First steps: `kernel-actions pipeline` takes the kernel of the current folder from "
        "source to an embedded Hub and back; `kernel-actions matrix` shows its build variants.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for command in COMMANDS.values():
        _add_command(commands, command)
    return parser


def _add_command(commands: Any, command: Command) -> None:
    parser = commands.add_parser(
        command.name, help=command.summary, description=command.summary, allow_abbrev=False
    )
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


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[Command, Options] | None:
    """The command and its options; ``None`` when no command was given.

    Raises ``WrongInput``, and ``SystemExit`` for ``--help`` and ``--version``.
    """
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        close = _nearest(arguments[0], COMMANDS)
        raise WrongInput(
            f"no command is named {arguments[0]!r}",
            repair=f"did you mean {close}?" if close else f"one of {', '.join(COMMANDS)}",
        )
    if list(arguments[:2]) == ["matrix", "explain"]:
        arguments = ["matrix", "--explain", *arguments[2:]]
    options = Options()
    build_parser().parse_args(list(arguments), namespace=options)
    if options.command is None:
        return None
    command = COMMANDS[options.command]
    for option in command.options:
        given = None if option.secret else getattr(options, option.attribute)
        setattr(options, option.attribute, _value(option, given, environment))
    if command.takes_kernel and not options.kernel_dirs:
        folders = environment.get("KA_KERNEL_DIR", "").splitlines() or ["."]
        options.kernel_dirs = [Path(folder) for folder in folders]
    return command, options


def _value(option: Option, given: Any, environment: Mapping[str, str]) -> Any:
    """What ``option`` is: as given on the command line, else in the environment, else its default."""
    from_environment = environment.get(option.variable, "") if option.has_variable else ""
    if option.repeatable:
        entries = given if given is not None else [from_environment or option.default]
        return [part for entry in entries for part in entry.split()]
    if option.kind == "boolean":
        if isinstance(given, bool):
            return given
        return github.boolean(option.name, from_environment or option.default)
    text: str = given if given is not None else (from_environment or option.default)
    if option.kind == "integer":
        try:
            return int(text)
        except ValueError as error:
            raise WrongInput(f"--{option.name} is {text!r}, which is not a whole number") from error
    if option.kind == "choice" and text not in option.choices:
        close = _nearest(text, option.choices)
        raise WrongInput(
            f"--{option.name} is {text!r}, which is not one of {', '.join(option.choices)}",
            repair=f"did you mean {close}?" if close else "",
        )
    return text


def _nearest(name: str, known: Iterable[str]) -> str:
    import difflib  # Not at the top: it takes a twentieth of the time of a quick command.

    return "".join(difflib.get_close_matches(name, known, n=1))


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    return guarded(lambda: _run(arguments))


def entry() -> None:
    """The program: ``scripts/kernel-actions``, and ``kernel-actions`` of the installed package."""
    _prepare_streams()
    code = main(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            # A result that could not be written is no success.
            code = code or WrongSurroundings.exit_code
            if stream is sys.stdout:
                console.say(f"kernel-actions: cannot write the result: {error.strerror}")
    # Nothing is left to be written, and the interpreter must not try again.
    os._exit(code)


class _Descriptor(io.RawIOBase):
    """A stream of this process that ends well when its reader goes away, as ``| head`` does."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: Any) -> int:
        try:
            return os.write(self._descriptor, data)
        except OSError as error:
            # What cannot be said on stderr cannot be said at all.
            if self._descriptor == 2 or isinstance(error, BrokenPipeError):
                return len(data)
            raise


def _prepare_streams() -> None:
    """Have output that cannot be written, or that nobody reads, change no exit code but its own."""
    for descriptor, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            # It was closed. The next file that is opened would get its number, and be written to.
            os.open(os.devnull, os.O_RDWR)
        if name != "stdin":
            buffered = io.BufferedWriter(_Descriptor(descriptor))
            stream = io.TextIOWrapper(
                buffered, encoding="utf-8", errors="backslashreplace", line_buffering=os.isatty(descriptor)
            )
            setattr(sys, name, stream)


def guarded(action: Callable[[], int]) -> int:
    """Run ``action``; whatever goes wrong becomes a line on stderr for each error, and an exit code."""
    from kernel_actions.signals import interruptible

    try:
        with interruptible():
            return action()
    except (KernelActionsError, Interrupted) as error:
        _report(error)
        return error.exit_code
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        failure = WrongSurroundings(
            f"the Python package {name} is not installed in {sys.prefix}",
            repair="unset KA_PYTHON, or install the packages of requirements/kernel.txt there",
        )
        _report(failure)
        return failure.exit_code
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        failure = WrongSurroundings(f"{where}{error.strerror or error}")
        _report(failure)
        return failure.exit_code
    except Exception as error:
        if console.is_verbose():
            raise
        _report(_unexpected(error))
        return WrongSurroundings.exit_code


def _unexpected(error: Exception) -> KernelActionsError:
    """A bug of the suite, in one line. KA_VERBOSE=1 shows the traceback."""
    import traceback  # Not at the top, for the sake of quick commands.

    frames = traceback.extract_tb(error.__traceback__)
    where = Place(Path(frames[-1].filename), frames[-1].lineno) if frames else None
    return WrongSurroundings(
        f"unexpected {type(error).__name__}: {error}",
        where=where,
        repair="this is a bug of kernel-actions: report it with the output under KA_VERBOSE=1",
    )


def _report(error: KernelActionsError | Interrupted) -> None:
    errors = error.all if isinstance(error, KernelActionsError) else (error,)
    for one in errors:
        if github.is_actions():
            github.annotate(
                "error",
                f"{one.what} ({one.repair})" if one.repair else one.what,
                where=one.where,
                title="kernel-actions",
            )
        console.say(f"kernel-actions: {one}")


def _run(arguments: Sequence[str]) -> int:
    parsed = parse(arguments, os.environ)
    if parsed is None:
        build_parser().print_help()
        return EXIT_DONE
    command, options = parsed
    # Python 3.10 has no parser of TOML, which every command on a kernel needs.
    if sys.flags.no_site and (command.needs_environment(options) or sys.version_info < (3, 11)):
        from kernel_actions import environment

        environment.restart_in(command, arguments)
    module = import_module(f"kernel_actions.{command.module}")
    result: int = module.run(options)
    return result
