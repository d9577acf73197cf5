"""What the documentation says to do is done, word for word."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from kernel_actions import cli, settings
from kernel_actions.options import COMMANDS

from tests.integration.conftest import ROOT, environment, git

TUTORIAL = ROOT / "docs" / "tutorial.md"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])


def blocks(page: Path, language: str) -> Iterator[tuple[str, str]]:
    """The blocks of a language on a page, each with the comment before it (empty: there is none)."""
    pattern = rf"(?:<!-- ([^\n]*) -->\n)?```{language}\n(.*?)```"
    yield from re.findall(pattern, page.read_text(), re.DOTALL)


def commands(text: str) -> list[str]:
    """The command lines of a console, without what they print."""
    joined = re.sub(r"\\\n\s*(> )?", " ", text)
    return [line.removeprefix("$ ") for line in joined.splitlines() if line.startswith("$ ")]


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """The variables of a shell that finds kernel-actions, and whose git knows its user."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "kernel-actions").symlink_to(ROOT / "scripts" / "kernel-actions")
    names = [f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")]
    identity = dict.fromkeys(names, "a@example.org")
    return environment(PATH=f"{programs}:{os.environ['PATH']}", GIT_CONFIG_NOSYSTEM="1", **identity)


@pytest.fixture
def clamp01(tmp_path: Path) -> Path:
    """The kernel of docs/tutorial.md, of the files that stand there."""
    root = tmp_path / "clamp01"
    files = re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)
    assert len(files) == 5
    for name, content in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    for name in ("flake.nix", "flake.lock"):
        shutil.copy(ROOT / name, root / name)
    return root


def run(root: Path, shell: dict[str, str], text: str) -> str:
    """Run the commands of a console in one shell, and return what they print."""
    finished = subprocess.run(
        ["bash", "-c", "set -euo pipefail\n" + "\n".join(commands(text))], cwd=root, env=shell,
        text=True, capture_output=True, check=False, timeout=600,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@contextmanager
def serving(root: Path, shell: dict[str, str], text: str, port: int) -> Iterator[None]:
    """Run the one command of a console as in another terminal."""
    (command,) = commands(text)
    with subprocess.Popen(
        ["bash", "-c", f"exec {command} --port {port}"], cwd=root, env=shell, text=True,
        stdout=subprocess.PIPE,
    ) as server:  # fmt: skip
        try:
            assert server.stdout is not None
            # What it prints is what the page says.
            assert server.stdout.readline().rstrip() == text.splitlines()[1]
            yield
        finally:
            server.terminate()


def test_the_first_kernel_goes_all_the_way(clamp01: Path, shell: dict[str, str]) -> None:
    """The first commands of the tutorial, for each commit; the slow run has all of them."""
    comment, text = next(blocks(TUTORIAL, "console"))
    assert comment == "run" and len(commands(text)) == 6
    assert "clamp01" in run(clamp01, shell, text)
    # The builds are no concern of git's.
    assert git(clamp01, "status", "--porcelain") == ""


@pytest.mark.slow
def test_the_tutorial_goes_from_an_empty_folder_to_releases(
    clamp01: Path, shell: dict[str, str], tmp_path: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    said = ""
    with ExitStack() as servers:
        for comment, block in blocks(TUTORIAL, "console"):
            text = block.replace("8750", str(port)).replace("/tmp/hub", str(tmp_path / "hub"))
            if comment == "run: in another terminal":
                servers.enter_context(serving(clamp01, shell, text, port))
            else:
                assert comment == "run", text
                said += run(clamp01, shell, text)
    assert "Released 1.0.0" in said and "Released 1.0.1" in said and "is 1.0.0 again" in said
    assert (clamp01 / ".github" / "workflows" / "release.yml").is_file()
    assert "Content-Security-Policy" in (clamp01 / "build" / "report.html").read_text()
    assert git(clamp01, "tag", "--list").split() == ["v1.0.0", "v1.0.1"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_the_suite_takes_what_the_pages_give_it(page: Path) -> None:
    """Those that are not run are read by the parser itself."""
    for _, text in blocks(page, "console"):
        for line in commands(text):
            for part in re.split(r"&&|\|", re.split(r"\s#", line)[0]):
                # A command whose output is used is one, too.
                words = shlex.split(part.replace("$(", " ").replace(")", " "))
                names = [index for index, word in enumerate(words) if Path(word).name == "kernel-actions"]
                if names and words[names[0] + 1 : names[0] + 2] and words[names[0] + 1] in COMMANDS:
                    arguments = words[names[0] + 1 :]
                    until = next((n for n, word in enumerate(arguments) if word == "-c"), len(arguments))
                    assert cli.parse(arguments[:until], {}) is not None, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            titles = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
            assert anchor in slugs, target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_setting_of_the_pages_is_one(page: Path, tmp_path: Path) -> None:
    for _, text in blocks(page, "toml"):
        if re.search(r"^\[(runners|limits|matrix|release|compliance|test)\b", text, re.MULTILINE):
            (tmp_path / settings.FILE_NAME).write_text(text)
            settings.load(tmp_path)
