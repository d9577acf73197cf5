"""The action setup-nix, run by act: with the Nix that is there, and with one that an installer brings."""

from __future__ import annotations

import os
from pathlib import Path

import yaml

from tests.integration.conftest import act, author_repository, git
from tests.setup_nix.conftest import FLAKE, VARIANT, Cache, Private
from tests.setup_nix.test_command import TOKEN, path_without_nix
from tests.tools import program

CHECKOUT = {"uses": "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1"}
SETUP = "org/kernel-actions/setup-nix@v1"


def workflow(cache: Cache, without_nix: Path) -> str:
    """A job that builds a kernel whose torch a cache has, and one on a runner without Nix."""
    given = {"builder-cache": False}
    caches = {"substituters": f"file://{cache.folder}", "trusted-public-keys": cache.key}
    variant = f'.#redistributable."{VARIANT}"'
    build = {
        "runs-on": "ubuntu-latest",
        "steps": [
            CHECKOUT,
            {"uses": SETUP, "with": given | caches | {"kernel-dir": "flake", "variants": VARIANT}},
            {"id": "plan", "uses": "org/kernel-actions/matrix@v1", "with": {"scope": "pr"}},
            # Without a terminal, Nix prints a line for each path.
            {"run": f"nix build --no-link '{variant}' 2>&1 | cat", "working-directory": "flake"},
        ],
    }
    install = {
        "runs-on": "ubuntu-latest",
        "steps": [
            {"run": f'echo "PATH={without_nix}" >> "$GITHUB_ENV"'},
            {"uses": SETUP, "with": given},
            {"run": "nix --version"},
        ],
    }
    jobs = {"build": build, "install": install}
    return yaml.safe_dump({"name": "Nix", "on": "push", "permissions": {}, "jobs": jobs}, sort_keys=False)


def test_jobs_with_nix_and_without(private: Private, kernel: Path, cache: Cache, tmp_path: Path) -> None:
    author = author_repository(tmp_path / "author")
    (author / "flake").mkdir()
    (author / "flake" / "flake.nix").write_text(FLAKE)
    installed = private.folder / "installed"
    installed.mkdir()
    for name in ("nix", "nix-store"):
        (installed / name).symlink_to(os.path.realpath(program(name)))
    text = workflow(cache, path_without_nix(private))
    (author / ".github" / "workflows" / "nix.yml").write_text(text)
    git(author, "add", "--all")
    git(author, "commit", "--quiet", "--message=feat: build with Nix")
    variables = private.variables | {"NIX_TO_INSTALL": str(installed)}
    finished = act(
        author, tmp_path / "act", "push", "--secret", f"GITHUB_TOKEN={TOKEN}",
        *(part for name, value in variables.items() for part in ("--env", f"{name}={value}")),
        workflow="nix",
    )  # fmt: skip
    log = finished.stdout + finished.stderr
    assert finished.returncode == 0, log
    of_build = [line for line in log.splitlines() if "Nix/build" in line]
    # The torch comes from the cache, and the kernel alone is built, in a sandbox.
    assert any(f"copying path '{cache.torch}' from 'file://{cache.folder}'" in line for line in of_build)
    assert not any("building" in line and "python3.13-torch" in line for line in of_build)
    assert any("building" in line and "relu-torch-ext" in line for line in of_build)
    assert any("1 of 1 path" in line for line in of_build) and '"include":[{' in log
    # Where there was none, the installer brought one, and made nobody trusted.
    assert installed.with_name("installed.asked").read_text() == "trusted: false\n"
    assert "::set-output:: install=true" in log and "::set-output:: install=false" in log
    assert TOKEN not in log
