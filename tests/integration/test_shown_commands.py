"""Every command that people are shown is one: it is run, or read by its program, or is known not to be."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kernel_actions.options import COMMANDS

from tests.integration import shown
from tests.integration.conftest import ROOT

PAGES = sorted(
    [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")), *ROOT.glob("docs/**/*.md")]
)
# Files that say in a comment how they are used.
RUNNERS = sorted(path for path in ROOT.glob("templates/runners/*/*") if path.is_file())
WORKFLOWS = sorted([*ROOT.glob("templates/workflows/**/*.yml"), *ROOT.glob(".github/workflows/*.yml")])
# Word for word, by tests/integration/test_documentation.py and tests/consumers/test_guide.py.
RUN = ("docs/tutorial.md", "docs/applications.md")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def consoles(page: Path) -> list[str]:
    """The blocks of a page that are for a console."""
    return re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL)


def inline(page: Path) -> Iterator[str]:
    """The commands between the lines of a page: what is in backticks and begins with a program."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for span in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text):
        program, _, rest = span.partition(" ")
        if rest and (program.removeprefix("scripts/") in shown.PROGRAMS):
            yield span
        elif rest and program in COMMANDS and re.match(r"(--|explain)", rest):
            yield f"kernel-actions {span}"


def comments(path: Path) -> Iterator[str]:
    """The commands in the comments of a file."""
    text = re.sub(r"\\\n# +", " ", path.read_text())
    for line in re.findall(r"^#   (\S.*)$", text, re.MULTILINE):
        if line.split()[0] in shown.PROGRAMS:
            yield line


def of_gh(text: str) -> Iterator[list[str]]:
    """The commands of a workflow's scripts that are gh's."""
    for found in re.findall(
        r"(?<![\w.])gh ((?:[^\n|)'\"]|'[^']*'|\"[^\"]*\")+)", re.sub(r"\\\n\s*", " ", text)
    ):
        words = shlex.split(found)
        yield ["gh", *words[: words.index("||") if "||" in words else None]]


def test_the_consoles_are_scripts_without_a_fault(tmp_path: Path) -> None:
    for page in PAGES:
        for number, block in enumerate(consoles(page)):
            script = tmp_path / f"{name(page).replace('/', '-')}-{number}.sh"
            script.write_text("\n".join(["#!/usr/bin/env bash", *shown.console(block), ""]))
    # They are lines to type: what becomes of each is seen (SC2164), and the shell is the reader's.
    finished = subprocess.run(
        [shown.installed("shellcheck"), "--severity=warning", *sorted(tmp_path.iterdir())],
        text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_of_a_page_is_taken_by_its_program(page: Path) -> None:
    if name(page) not in RUN:
        for line in (line for block in consoles(page) for line in shown.console(block)):
            for words in shown.simple_commands(line):
                assert Path(words[0]).name in shown.PROGRAMS, line
                shown.check(words)
    for line in inline(page):
        for words in shown.simple_commands(line):
            shown.check_mention(words)


@pytest.mark.parametrize("path", RUNNERS, ids=name)
def test_every_command_that_a_file_tells_is_taken_by_its_program(path: Path) -> None:
    for line in comments(path):
        for words in shown.simple_commands(line):
            shown.check(words)


def test_every_command_of_gh_in_a_workflow_is_one() -> None:
    found = [words for path in WORKFLOWS for words in of_gh(path.read_text())]
    assert {" ".join(words[1:3]) for words in found} >= {"pr create", "pr edit", "pr list", "release create"}
    for words in found:
        shown.check(words)


def test_what_cannot_be_asked_is_what_is_shown() -> None:
    """An entry of the list that nothing shows any more is none."""
    texts = "".join(path.read_text() for path in [*PAGES, *RUNNERS])
    texts += (ROOT / "scripts/kernel_actions/init/steps.py").read_text()
    for program in shown.NOT_HERE:
        assert re.search(rf"[`$/ ]{re.escape(program)} ", texts), program


def test_every_option_that_a_page_names_is_one() -> None:
    options = {option.name for command in COMMANDS.values() for option in command.options}
    # Of other programs: a container's, pytest's, nix-store's, and the Jobs' that one may come from.
    others = {"--cap-add", "--setup-only", "--collect-only", "--import", "--cores", "--privileged"}
    for page in PAGES:
        for option in re.findall(r"(?<!`)`(--[a-z][a-z-]*)[^`\n]*`(?!`)", page.read_text()):
            known = {option[2:], option.removeprefix("--no-")} & options
            assert known or option in others, f"{name(page)}: {option}"
