"""Reads the commands that are shown to people, by the very programs that they name."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from kernel_actions import cli
from kernel_actions.options import COMMANDS

from tests import tools
from tests.integration.conftest import ROOT

# What no test asks, as no package index has it or for the reason given. Where a machine has it, it is asked.
NOT_HERE = {
    "helm": "is in no package index; tests/runners looks at the values and the names",
    "docker": "needs a daemon even to read a Dockerfile",
    "kernel-builder": "is made by Nix from the builder's own flake",
    "pipx": "uvx does the same, and is here",
    "pre-commit": "its hooks are the programs of `make lint`",
    "editor": "is whichever one the reader has",
    "config.sh": "comes with GitHub's runner",
    "setup.py": "is made by kernel-builder, with the target build_kernel",
}
# Programs that take a command as their arguments, and programs of a shell itself.
WRAPPERS = ("sudo", "uvx")
BUILTINS = ("export",)
# Programs that are made of commands, each with options of its own.
WITH_COMMANDS = ("docker", "gh", "git", "helm", "kernels", "kubectl", "pip", "pipx")
PROGRAMS = frozenset(
    {
        *WRAPPERS, *WITH_COMMANDS, *NOT_HERE, "install", "kernel-actions", "make", "ninja", "nix",
        "nix-store", "pytest", "python", "sysctl", "systemctl", "systemd-analyze", "tar",
    }
)  # fmt: skip


def console(text: str) -> list[str]:
    """The command lines of a console, without what they print."""
    joined = re.sub(r"\\\n\s*(> )?", " ", text)
    return [line.removeprefix("$ ") for line in joined.splitlines() if line.startswith("$ ")]


def simple_commands(line: str) -> Iterator[list[str]]:
    """The words of each command of a line of shell: those of a pipe, of a list and of ``$(…)``."""
    line = re.sub(r"(^|\s)#\s.*", "", line)
    # What is in quotes and runs commands is taken apart, too.
    reader = shlex.shlex(
        re.sub(r'"?\$\(([^()]*)\)"?', r" ; \1 ; ", line), posix=True, punctuation_chars=";|&"
    )
    reader.whitespace_split = True
    reader.commenters = ""
    words: list[str] = []
    for word in [*reader, ";"]:
        if word[0] in ";|&":
            while words and re.match(r"\w+=", words[0]):
                del words[0]
            if words:
                yield words
            words = []
        else:
            words.append(word)


def check(words: list[str]) -> None:
    """Have the program that a command names read it, and fail where it does not take it."""
    program, arguments = Path(words[0]).name, words[1:]
    if program in WRAPPERS:
        first = next((n for n, word in enumerate(arguments) if word in PROGRAMS), len(arguments))
        _options(program, (program,), arguments[:first])
        if arguments[first:]:
            check(arguments[first:])
    elif program == "kernel-actions":
        assert arguments and arguments[0] in COMMANDS, f"{arguments[:1]} is no command"
        assert arguments[1:] == ["--help"] or cli.parse(arguments, {}) is not None
    elif program == "make":
        subprocess.run(["make", "--dry-run", *arguments], cwd=ROOT, check=True, capture_output=True)
    elif program in ("nix", "nix-store"):
        _nix([program, *arguments])
    elif program == "python" and arguments[:1] == ["-m"]:
        assert (ROOT / arguments[1].replace(".", "/")).with_suffix(".py").is_file()
    elif program == "python" and arguments[0].endswith(".py"):
        assert arguments[0] in NOT_HERE
    elif program not in BUILTINS and (program not in NOT_HERE or tools.optional(program)):
        path = (program,)
        if program in WITH_COMMANDS:
            while len(path) <= len(arguments) and _has(path, arguments[len(path) - 1]):
                path = (*path, arguments[len(path) - 1])
            assert len(path) > 1, f"{arguments[:1]} is no command of {program}"
        _options(program, path, arguments)


def check_mention(words: list[str]) -> None:
    """The same for what is named in a sentence, where an option may stand without its value."""
    if Path(words[0]).name != "kernel-actions":
        check(words)
        return
    command = COMMANDS[words[1]]
    known = {one.name for one in command.options} | {"help"}
    for word in words[2:]:
        if word.startswith("--"):
            assert word[2:].removeprefix("no-") in known, f"{command.name} has no {word}"


def _has(path: tuple[str, ...], name: str) -> bool:
    if not re.match(r"\w", name):
        return False
    if path == ("kernels",):
        # It imports Torch for each usage: one is enough.
        return re.search(rf"[{{,]{re.escape(name)}[,}}]", _help(path)) is not None
    return re.search(rf"{re.escape(' '.join((*path, name)))}(?![\w-])", _help((*path, name))) is not None


def _options(program: str, path: tuple[str, ...], arguments: list[str]) -> None:
    """Each option has to be one that the program's own help names."""
    until = arguments.index("--") if "--" in arguments else len(arguments)
    for word in arguments[:until]:
        if word.startswith("--"):
            names = [word.partition("=")[0]]
        else:
            names = [f"-{letter}" for letter in word[1:]] if re.match(r"-[A-Za-z]", word) else []
        for name in names:
            known = _help(path) + (_help(("kubectl", "options")) if program == "kubectl" else "")
            assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", known), f"{program} has no {name}"


@cache
def _help(path: tuple[str, ...]) -> str:
    """What a program, or a command of it, prints when it is asked for its usage."""
    # `git COMMAND --help` opens a manual, and `kubectl options` is a help.
    flag = {("git",): ("-h",), ("kubectl", "options"): ()}.get(
        path[: 1 if path[0] == "git" else 2], ("--help",)
    )
    finished = subprocess.run(
        [installed(path[0]), *path[1:], *flag],
        stdin=subprocess.DEVNULL, text=True, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    return (finished.stdout + finished.stderr).replace("[no-]", "")


def _nix(words: list[str]) -> None:
    """Nix reads its options before it looks for anything; what is named here is nowhere to be found."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "flake.nix").write_text("{ outputs = _: { }; }")
        finished = subprocess.run(
            [installed(words[0]), *words[1:]], cwd=folder, stdin=subprocess.DEVNULL, text=True,
            capture_output=True, check=False, timeout=60,
            env=os.environ | {"NIX_CONFIG": "experimental-features = nix-command flakes"},
        )  # fmt: skip
    for refusal in ("unrecognised flag", "not a recognised command", "no operation specified"):
        assert refusal not in finished.stderr, finished.stderr


def installed(program: str) -> str:
    """Where a program is, that of the tests' environment first."""
    own = Path(sysconfig.get_path("scripts")) / program
    if own.exists():
        return str(own)
    return program if program in tools.EVERYWHERE else tools.program(program)
