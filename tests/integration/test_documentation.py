"""What the documentation says to do is done, word for word."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import get_args

import pytest
import tomllib
import yaml
from kernel_actions import coverage, settings
from kernel_actions.report.page import _SIGNS as PAGE_SIGNS
from kernel_actions.test import model

from tests.integration.conftest import ROOT, environment, git
from tests.integration.shown import console, installed
from tests.integration.test_shown_commands import PAGES, name
from tests.integration.test_workflow_checks import PARSER, parsed
from tests.tools import needs

TUTORIAL = ROOT / "docs" / "tutorial.md"
EXAMPLES = sorted((ROOT / "docs" / "examples").iterdir())


def blocks(page: Path, language: str) -> Iterator[tuple[str, str]]:
    """The blocks of a language on a page, each with the comment before it (empty: there is none)."""
    pattern = rf"(?:<!-- ([^\n]*) -->\n)?```{language}\n(.*?)```"
    yield from re.findall(pattern, page.read_text(), re.DOTALL)


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
    for path, content in files:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    for flake in ("flake.nix", "flake.lock"):
        shutil.copy(ROOT / flake, root / flake)
    return root


def run(root: Path, shell: dict[str, str], text: str) -> str:
    """Run the commands of a console in one shell, and return what they print."""
    finished = subprocess.run(
        ["bash", "-c", "set -euo pipefail\n" + "\n".join(console(text))], cwd=root, env=shell,
        text=True, capture_output=True, check=False, timeout=600,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@contextmanager
def serving(root: Path, shell: dict[str, str], text: str, port: int) -> Iterator[None]:
    """Run the one command of a console as in another terminal."""
    (command,) = console(text)
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


@pytest.mark.slow
def test_the_first_kernel_goes_all_the_way(clamp01: Path, shell: dict[str, str]) -> None:
    """The first commands of the tutorial, for each commit; the slow run has all of them."""
    comment, text = next(blocks(TUTORIAL, "console"))
    assert comment == "run" and len(console(text)) == 6
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


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), target


def test_every_page_that_a_file_names_is_there() -> None:
    """What the suite says when something is wrong names pages, and so do the comments of workflows."""
    places = ("scripts/**/*.py", "scripts/**/*.toml", "templates/**/*", ".github/**/*", "**/action.yml")
    files = {path for place in places for path in ROOT.glob(place) if path.is_file()}
    named = {
        one
        for path in files
        for one in re.findall(r"(?<![\w/])docs/[\w/-]+\.md(?:#[\w-]+)?", path.read_text(errors="replace"))
    }
    assert len(named) > 10
    for target in named:
        path, _, anchor = target.partition("#")
        assert (ROOT / path).is_file(), target
        assert not anchor or anchor in anchors(ROOT / path), target


def anchors(page: Path) -> set[str]:
    """The places of a page that GitHub lets a link name."""
    lines = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    titles = [
        re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", one) for one in re.findall(r"^#+ (.*)$", lines, re.MULTILINE)
    ]
    slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    return slugs | set(re.findall(r'<a (?:id|name)="([^"]+)"', lines))


def test_every_page_is_led_to() -> None:
    """From the README, over as many pages as it takes."""
    reached, left = set(), [ROOT / "README.md"]
    while left:
        page = left.pop()
        reached.add(page)
        for target in re.findall(r"\]\(([^)#\s:]+\.md)", page.read_text()):
            if (file := (page.parent / target).resolve()) not in reached:
                left.append(file)
    assert set((ROOT / "docs").glob("**/*.md")) <= reached


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_setting_of_the_pages_is_one(page: Path, tmp_path: Path) -> None:
    for _, text in blocks(page, "toml"):
        if re.search(r"^\[+(runners|limits|matrix|release|compliance|test)\b", text, re.MULTILINE):
            (tmp_path / settings.FILE_NAME).write_text(text)
            settings.load(tmp_path)
        else:
            tomllib.loads(text)


def test_every_step_of_the_pages_is_one_for_github(tmp_path: Path) -> None:
    """By GitHub's own parser, which looks the inputs up in the actions; workflows are examples."""
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    for page in PAGES:
        for number, (_, text) in enumerate(blocks(page, "yaml")):
            value = yaml.safe_load(text)
            if isinstance(value, list):
                steps = textwrap.indent(text, "      ")
                (folder / f"{page.stem}-{number}.yml").write_text(
                    "on: push\njobs:\n  one:\n    runs-on: ubuntu-latest\n    strategy:\n      matrix:\n"
                    f"        include: ${{{{ fromJSON(vars.PLAN) }}}}\n    steps:\n{steps}"
                )
            else:
                assert any(value == yaml.safe_load(one.read_text()) for one in EXAMPLES), page
    assert len(list(folder.iterdir())) == 2
    assert parsed(*folder.iterdir()) == []


@needs("node")
def test_every_dockerfile_is_one(tmp_path: Path) -> None:
    linter = PARSER / "node_modules" / ".bin" / "dockerfile-utils"
    files = sorted(ROOT.glob("templates/**/Dockerfile"))
    for page in PAGES:
        for number, (_, text) in enumerate(blocks(page, "dockerfile")):
            files.append(tmp_path / f"{page.stem}-{number}")
            files[-1].write_text(text)
    assert len(files) == 2
    for file in files:
        # Its commands, too: a comment between the lines of one is none of the shell's.
        lines = re.sub(r"^\s*#.*\n", "", file.read_text(), flags=re.MULTILINE)
        script = "\n".join(re.findall(r"^RUN ((?:.*\\\n)*.*)", lines, re.MULTILINE))
        for command, given in (
            ([linter, "lint", file], None),
            ([installed("shellcheck"), "--shell=sh", "-"], f"{script}\n"),
        ):
            finished = subprocess.run(command, input=given, text=True, capture_output=True, check=False)
            assert finished.returncode == 0, f"{file}: {finished.stdout}"


def test_every_block_of_the_pages_is_looked_at() -> None:
    """A block of another language needs a test of its own."""
    for page in PAGES:
        for language, text in re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            if language == "python":
                compile(text, page.name, "exec")
            elif language == "json":
                json.loads(f"{{{text}}}")
            else:
                # The tutorial's C++ is compiled; GitHub draws mermaid; text is what something prints.
                assert language in {"console", "cpp", "dockerfile", "mermaid", "text", "toml", "yaml"}


def test_every_reason_of_a_verdict_is_explained() -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    rows = re.findall(r"^\| (`[a-z-]+`(?:, `[a-z-]+`)*) \|.*\| ([13]) \|$", page, re.MULTILINE)
    told = {kind: int(code) for kinds, code in rows for kind in re.findall(r"[a-z-]+", kinds)}
    assert told == {kind: 3 if kind in model.SURROUNDINGS else 1 for kind in get_args(model.Kind)}


def test_every_sign_of_a_report_is_explained() -> None:
    page = (ROOT / "docs" / "reports.md").read_text()
    rows = re.findall(r"^\| (\S+) \| (\S+) \| \w", page, re.MULTILINE)
    signs = [(coverage.SIGNS[state], PAGE_SIGNS[state]) for state in get_args(coverage.State)]
    assert rows[: len(signs)] == signs


def test_what_compliance_is_shown_to_print_is_what_it_prints(clamp01: Path, shell: dict[str, str]) -> None:
    for file, old, new in (
        ("build.toml", '"csrc/clamp01.cpp"', '\n  "csrc/clamp01.cpp", "csrc/gone.cpp"'),
        ("torch-ext/torch_binding.cpp", "REGISTER_", "TORCH_LIBRARY(scale, ops) {}\n\nREGISTER_"),
        ("tests/test_clamp01.py", "@pytest.mark.kernels_ci\n", ""),
    ):
        text = (clamp01 / file).read_text()
        (clamp01 / file).write_text(text.replace(old, new))
    git(clamp01, "init", "--quiet")
    git(clamp01, "add", "--all")
    git(clamp01, "commit", "--quiet", "--message=feat: clamp")
    finished = subprocess.run(
        ["kernel-actions", "compliance", "--source-only"],
        cwd=clamp01, env=shell, text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 1, finished.stderr
    ((_, block),) = blocks(ROOT / "docs" / "compliance.md", "text")
    assert block == finished.stdout, finished.stdout
