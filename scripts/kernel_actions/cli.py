"""The command line: options from the table, one command, one exit code."""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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


class Options(SimpleNamespace):
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


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[Command, Options] | None:
    """The command and its options; ``None`` when no command was given.

    Raises ``WrongInput``, and ``SystemExit`` for ``--help`` and ``--version``.
    """
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        from kernel_actions import schema

        raise WrongInput(
            f"no command is named {arguments[0]!r}", repair=schema.suggestion(arguments[0], tuple(COMMANDS))
        )
    if list(arguments[:2]) == ["matrix", "explain"]:
        if not arguments[2:]:
            raise WrongInput(
                "matrix explain needs the name of a variant",
                repair="`matrix --scope all` lists them: kernel-actions matrix explain VARIANT",
            )
        arguments = ["matrix", "--explain", *arguments[2:]]
    if list(arguments[:2]) == ["wheel", "index"]:
        arguments = ["wheel", "--index-only", *arguments[2:]]
    options = Options()
    if arguments and arguments[0] in COMMANDS:
        command = COMMANDS[arguments[0]]
        _refuse_secrets(command, arguments[1:])
        given = plain(command, arguments[1:])
        if given is None:
            from kernel_actions import usage

            usage.command_parser(command).parse_args(arguments[1:], namespace=options)
        else:
            vars(options).update(given)
    else:
        from kernel_actions import usage

        usage.parser().parse_args(arguments, namespace=options)
        if options.command is None:
            return None
        command = COMMANDS[options.command]
    for option in command.options:
        value = None if option.secret else getattr(options, option.attribute)
        setattr(options, option.attribute, _value(option, value, environment))
    if command.takes_kernel and not options.kernel_dirs:
        folders = environment.get("KA_KERNEL_DIR", "").splitlines() or ["."]
        options.kernel_dirs = [Path(folder) for folder in folders]
    return command, options


def _refuse_secrets(command: Command, arguments: Sequence[str]) -> None:
    """Raises ``WrongInput`` where ``arguments`` hold a secret of ``command``; without repeating it."""
    names = {argument.partition("=")[0] for argument in arguments}
    for option in command.options:
        if option.secret and f"--{option.name}" in names:
            raise WrongInput(
                f"--{option.name} is a secret, and everybody on the machine can read arguments",
                repair=f"set the variable {option.variable}",
            )


def plain(command: Command, arguments: Sequence[str]) -> dict[str, Any] | None:
    """What argparse makes of ``arguments`` that are plain, without its help; ``None`` for others.

    Plain are folders that stand together, and options by their whole names, with values that begin with no
    dash. Importing argparse and making its parsers takes as long as a plan.
    """
    found: dict[str, Any] = {"kernel_dirs": []} if command.takes_kernel else {}
    taking: dict[str, Option] = {}
    flags: dict[str, tuple[Option, bool]] = {}
    for option in command.options:
        if option.kind == "boolean":
            flags |= {f"--{option.name}": (option, True), f"--no-{option.name}": (option, False)}
        elif not option.secret:
            taking[f"--{option.name}"] = option
        if not option.secret:
            found[option.attribute] = None
    rest = list(reversed(arguments))
    is_after_option = True
    while rest:
        argument = rest.pop()
        name, equals, value = argument.partition("=")
        if not argument.startswith("-"):
            # Folders that options part are for argparse to refuse, and so are those of other commands.
            if "kernel_dirs" not in found or (found["kernel_dirs"] and is_after_option):
                return None
            found["kernel_dirs"].append(Path(argument))
        elif name in flags and not equals:
            option, is_set = flags[name]
            found[option.attribute] = is_set
        elif name in taking:
            if not equals:
                if not rest or rest[-1].startswith("-"):
                    return None
                value = rest.pop()
            attribute = taking[name].attribute
            found[attribute] = [*(found[attribute] or ()), value] if taking[name].repeatable else value
        else:
            return None
        is_after_option = argument.startswith("-")
    return found


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
        return _number(option, text)
    if option.kind == "choice" and text not in option.choices:
        from kernel_actions import schema

        close = schema.nearest(text, option.choices)
        raise WrongInput(
            f"--{option.name} is {text!r}, which is not one of {', '.join(option.choices)}",
            repair=f"did you mean {close}?" if close else "",
        )
    return text


def _number(option: Option, text: str) -> int:
    """The number ``text`` of an option. Raises ``WrongInput`` for one that it cannot be."""
    try:
        number = int(text)
    except ValueError as error:
        raise WrongInput(f"--{option.name} is {text[:40]!r}, which is not a whole number") from error
    least, most = option.least, option.most
    if (least is not None and number < least) or (most is not None and number > most):
        allowed = f"from {least} to {most}" if most is not None else f"{least} or more"
        raise WrongInput(f"--{option.name} is {number}, which is not {allowed}")
    return number


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
        # Of two files the second is the one that people know: the first is what would have got its name.
        name = error.filename2 or error.filename
        where = f"{name}: " if name else ""
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
    if github.is_actions() and not github.tells_failure():
        from kernel_actions import markdown  # Not at the top: a command that succeeds may do without.

        rows = [(one.what, str(one.where or ""), one.repair) for one in errors]
        heading = markdown.heading("failed", errors[0].what)
        github.add_summary(markdown.join(heading, markdown.table(("what", "where", "what to do"), rows)))


def _run(arguments: Sequence[str]) -> int:
    if list(arguments) == ["--version"]:
        print(__version__)
        return EXIT_DONE
    parsed = parse(arguments, os.environ)
    if parsed is None:
        from kernel_actions import usage

        usage.parser().print_help()
        return EXIT_DONE
    command, options = parsed
    if command.environment and any(getattr(options, one.attribute) for one in command.options if one.secret):
        # From here on, not when the token is used: making an environment takes half a minute.
        from kernel_actions import process

        process.keep_memory_private()
    # Python 3.10 has no parser of TOML, which every command on a kernel needs.
    purpose = command.environment_for(options)
    if sys.flags.no_site and (purpose or sys.version_info < (3, 11)):
        from kernel_actions.app import venv

        venv.restart_in(command, arguments, purpose or "hub", lambda: _check(command, options))
    module = import_module(f"kernel_actions.{command.module}")
    if not gc.isenabled():
        # What was imported stays; only now there may be garbage to collect (see __main__).
        gc.freeze()
        gc.enable()
    result: int = module.run(options)
    return result


def _check(command: Command, options: Options) -> None:
    """What of the input can be told to be wrong on a bare Python, which cannot read TOML before 3.11.

    Raises what the command would raise later, after minutes of making its environment.
    """
    if sys.version_info >= (3, 11) and command.can_check:
        import_module(f"kernel_actions.{command.module}").check_options(options)
