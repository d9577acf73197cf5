"""Integration tests run the real commands, with real tools, on copies of this repository."""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ACT = Path(sysconfig.get_path("scripts")) / "act"
STUBS = Path(__file__).parent / "stubs"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("integration")
            # All examples in one workflow: a dozen jobs, half of which compile.
            if "tried" in getattr(item, "fixturenames", ()):
                item.add_marker("slow")


def environment(**changes: str) -> dict[str, str]:
    """The variables of a user's shell: none of Actions, and this interpreter for KA_PYTHON."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("KA_", "GITHUB_", "HF_", "RUNNER_", "PYTEST_"))
    }
    return kept | {"KA_PYTHON": sys.executable} | changes


def kernel_actions(
    root: Path, *arguments: str, variables: Mapping[str, str] | None = None, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run the launcher of the repository in ``root``, as a user in that folder would."""
    return subprocess.run(
        [root / "scripts" / "kernel-actions", *arguments],
        cwd=root,
        env=environment(**(variables or {})),
        text=True,
        capture_output=True,
        timeout=timeout,
        check=False,
    )


def git(folder: Path, *arguments: str) -> str:
    """Run git in ``folder`` as a test author, and return what it prints."""
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.check_output(["git", *identity, *arguments], cwd=folder, text=True)


def copy_repository(target: Path) -> Path:
    """A repository with one commit, of the files that git has or would take here."""
    listed = subprocess.check_output(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, text=True
    )
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    git(target, "init", "--quiet", "--initial-branch=main")
    git(target, "add", "--all")
    git(target, "commit", "--quiet", "--message=All")
    return target


def author_repository(target: Path) -> Path:
    """An author's repository: the example kernel, with few tests, and the templates copied into it."""
    root = copy_repository(target)
    workflows = root / ".github" / "workflows"
    shutil.rmtree(workflows, ignore_errors=True)
    shutil.copytree(ROOT / "templates" / "workflows", workflows)
    for path in (root / "tests" / "kernel").glob("test_*.py"):
        if path.name != "test_grayscale_errors.py":
            path.unlink()
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message=feat: add the workflows")
    return root


@contextmanager
def embedded_hub(data: Path) -> Iterator[str]:
    """The address of an embedded Hub, run by its command."""
    with subprocess.Popen(
        [ROOT / "scripts" / "kernel-actions", "hub", "--data", data, "--port", "0"],
        env=environment(), text=True, stdout=subprocess.PIPE,
    ) as server:  # fmt: skip
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        try:
            assert found is not None
            yield found.group()
        finally:
            server.terminate()


@cache
def suite() -> Path:
    """A copy of what an action needs of this repository: act copies all of it for each step."""
    folder = Path(tempfile.mkdtemp(prefix="kernel-actions-suite-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    skipped = shutil.ignore_patterns("__pycache__")
    for name in ("actions", "requirements", "scripts"):
        shutil.copytree(ROOT / name, folder / name, ignore=skipped)
    for path in (ROOT / "action.yml", *ROOT.glob("*/action.yml")):
        (folder / path.relative_to(ROOT)).parent.mkdir(exist_ok=True)
        shutil.copy2(path, folder / path.relative_to(ROOT))
    workflows = Path(".github", "workflows")
    (folder / workflows).mkdir(parents=True)
    for path in (ROOT / workflows).glob("*.yml"):
        # act does not know `$/`, the repository and the commit of the workflow that was called.
        text = re.sub(r"uses: \$/([a-z-]+)", r"uses: org/kernel-actions/\1@v1", path.read_text())
        (folder / workflows / path.name).write_text(text)
    return folder


def caller(workflow: str, event: str, inputs: Mapping[str, object] | None = None) -> str:
    """A workflow that calls a reusable one as other repositories do, with the permissions that it needs."""
    called = yaml.safe_load((ROOT / ".github" / "workflows" / f"{workflow}.yml").read_text())
    permissions: dict[str, str] = {}
    for job in called["jobs"].values():
        for name, level in job["permissions"].items():
            permissions[name] = "write" if "write" in (level, permissions.get(name)) else level
    job = {
        "permissions": permissions,
        "uses": f"org/kernel-actions/.github/workflows/{workflow}.yml@v1",
        "with": dict(inputs or {}),
        "secrets": "inherit",
    }
    # JSON is YAML, too.
    return json.dumps({"name": "Mine", "on": event, "permissions": {}, "jobs": {"mine": job}}, indent=2)


def act(
    root: Path,
    work: Path,
    event: str,
    *arguments: str,
    workflow: str = "build-and-test",
    actions: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a workflow of ``root`` for ``event``, with this repository (or its copy ``actions``) as
    org/kernel-actions@v1, and with the folders of ``stubs`` for the actions of GitHub."""
    for folder in ("artifacts", "home", "cache"):
        (work / folder).mkdir(parents=True, exist_ok=True)
    text = "".join(path.read_text() for path in (ROOT / "templates" / "workflows").glob("*.yml"))
    pins = sorted(set(re.findall(r"uses: actions/([\w-]+)@([0-9a-f]{40})", text)))
    local = [f"--local-repository=actions/{name}@{pin}={STUBS / name}" for name, pin in pins]
    installer = re.search(r"cachix/(\S+)@([0-9a-f]{40})", (ROOT / "setup-nix" / "action.yml").read_text())
    assert installer is not None
    local.append(f"--local-repository={installer[0]}={STUBS / installer[1]}")
    return subprocess.run(
        [
            ACT, event, "-W", f".github/workflows/{workflow}.yml",
            "-P", "ubuntu-latest=-self-hosted", "-P", "self-hosted=-self-hosted",
            "--no-cache-server", f"--local-repository=org/kernel-actions@v1={actions or suite()}", *local,
            "--env", f"ARTIFACTS={work / 'artifacts'}", *arguments,
        ],
        cwd=root,
        env=environment(HOME=str(work / "home"), XDG_CACHE_HOME=str(work / "cache")),
        text=True,
        capture_output=True,
        timeout=600,
        check=False,
    )  # fmt: skip


@pytest.fixture(scope="session")
def pipeline_copy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A copy of the repository in which the pipeline was run once, and what that printed.

    Its path has a space and a letter that is not ASCII, as some people's do.
    """
    root = copy_repository(tmp_path_factory.mktemp("first") / "a folder of Jürgen" / "grayscale")
    finished = kernel_actions(root, "pipeline", timeout=600)
    assert finished.returncode == 0, finished.stderr
    return root, finished.stdout


@pytest.fixture(scope="session")
def small_copy(pipeline_copy: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with few of the kernel's tests, which take most of the time."""
    root = tmp_path_factory.mktemp("small") / "grayscale"
    shutil.copytree(pipeline_copy[0], root, symlinks=True)
    for path in (root / "tests" / "kernel").glob("test_*.py"):
        if path.name != "test_grayscale_errors.py":
            path.unlink()
    git(root, "commit", "--quiet", "--all", "--message=Keep few tests")
    finished = kernel_actions(root, "pipeline", timeout=600)
    assert finished.returncode == 0, finished.stderr
    return root


@pytest.fixture
def built_copy(small_copy: Path, tmp_path: Path) -> Path:
    """A copy of its own of the repository in which the pipeline was run: it can be changed."""
    shutil.copytree(small_copy, tmp_path / "grayscale", symlinks=True)
    return tmp_path / "grayscale"
