"""Runs the templates as authors have them: on a kernel in a repository, by act, with real Nix."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_actions.local_builder import project

from tests.integration.conftest import ROOT, act, caller, git, suite
from tests.nix.conftest import CPU_NEW, CUDA, FILES, Machine, commit, make_kernel, write, write_lock

TEMPLATES = ROOT / "templates" / "workflows"
SECRETS = {"HF_TOKEN": "hf_planted", "NIX_CACHE_TOKEN": "cache_planted", "GITHUB_TOKEN": "ghs_planted"}
KERNEL = FILES | {
    # What one machine can build: of the variants that the builder publishes, one for each backend.
    "kernel-actions.toml": f"""\
[matrix]
only = ["{CPU_NEW}", "{CUDA}"]

[runners.test]
"x86_64-linux.cuda" = ["self-hosted", "linux", "gpu"]

[limits]
timeout = 60

[test.allow-untested]
"*-cu130-*" = "the machine of the tests has no GPU"
""",
    "torch-ext/tiny/__init__.py": '"""A kernel."""\n\n__all__ = ["twice"]\n\n\n'
    "def twice(value: int) -> int:\n    return 2 * value\n",
    "tests/test_tiny.py": """\
import pytest
from kernels import get_kernel


@pytest.mark.kernels_ci
def test_twice():
    kernel = get_kernel("kernel-actions/tiny", version=1, trust_remote_code=True)
    assert kernel.twice(3) == 6
""",
    # What the fixture of the builder does not make by itself, and loaders rely on.
    "torch-ext/torch_binding.cpp": """\
#include "registration.h"
TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {}
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
""",
    "before-build.sh": 'echo "extern \\"C\\" void* PyInit__${kernelName}_${backend}_$rev() { return 0; }" '
    "> csrc/init.cpp\n",
    "after-install.sh": 'mkdir "$out/$variant/$kernelName"\n'
    f"cat > \"$out/$variant/$kernelName/__init__.py\" <<'FILE'\n{project.template('old_loader.py')}FILE\n",
    "benchmarks/benchmark_tiny.py": """\
import torch
from kernels.benchmark import Benchmark


class TinyBenchmark(Benchmark):
    seed = 0

    def setup(self):
        self.x = torch.ones(1000)

    def benchmark_twice(self):
        self.out = self.kernel.twice(self.x)

    def verify_twice(self):
        return 2 * self.x
""",
    ".gitignore": "/build/*\n",
    "CARD.md": "---\nlicense: apache-2.0\n---\n# tiny\n",
    "README.md": "# tiny\n",
}
# What differs here from a real runner: the builder's cache cannot be reached, the tests take the Torch of
# this environment, and the fixture of the builder builds for one CUDA version. All else runs word for word.
REPLACED = {
    "free-disk: true": "builder-cache: false",
    "environment: pip": "environment: current",
    "scope: pr": "scope: release",
}
# What an embedded Hub takes for a release: some of the variants.
PARTIAL = {
    "          complete: true\n": "",
    "          token: ${{ secrets.HF_TOKEN }}\n": "          partial: true\n"
    "          token: ${{ secrets.HF_TOKEN }}\n",
}
# In place of gh: says who has to approve, and writes down what else it was asked.
GH = """#!/usr/bin/env bash
printf '%s\\n' "$*" >> "$GH_LOG"
[ "$1" = api ] && printf '%s' "$GH_RULES"
exit 0
"""


@dataclass(frozen=True)
class Run:
    """What became of a run: the results and outputs of its jobs, their summaries, and all that was logged."""

    log: str
    returncode: int
    results: Mapping[str, str]
    outputs: Mapping[str, Mapping[str, str]]
    started: frozenset[str]
    summary: str
    artifacts: Path

    def artifact(self, name: str) -> list[str]:
        """The files of an artifact; empty where there is none."""
        folder = self.artifacts / name
        return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


class Author:
    """An author's repository with templates in it, and the machine that all its jobs run on."""

    def __init__(
        self,
        folder: Path,
        *templates: str,
        replaced: Mapping[str, str] = REPLACED,
        kernels: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.root = (
            make_monorepo(folder / "author", kernels) if kernels else make_kernel(folder / "author", KERNEL)
        )
        self.machine = Machine(folder / "machine")
        (self.machine.folder / "nix.conf").write_text(self.machine.configuration)
        # By this act knows which repository it is, and what a fork is of; what is pushed goes elsewhere.
        self.origin = folder / "origin.git"
        git(self.root, "clone", "--quiet", "--bare", str(self.root), str(self.origin))
        git(self.root, "remote", "add", "origin", "https://github.com/me/tiny.git")
        (folder / "bin").mkdir()
        (folder / "bin" / "gh").write_text(GH)
        (folder / "bin" / "gh").chmod(0o755)
        self.gh_log = folder / "gh.log"
        self._suite = suite()
        self._runs = 0
        for name in templates:
            self.add(name, replaced)

    def add(self, template: str, replaced: Mapping[str, str] = REPLACED) -> None:
        """Copy a template, with what is ``replaced`` of it."""
        text = (TEMPLATES / f"{template}.yml").read_text()
        for old, new in replaced.items():
            text = text.replace(old, new)
        write(self.root, {f".github/workflows/{Path(template).name}.yml": text})
        commit(self.root)

    def add_caller(
        self,
        workflow: str,
        event: str,
        inputs: Mapping[str, object] | None = None,
        replaced: Mapping[str, str] = REPLACED,
    ) -> None:
        """Add a workflow ``mine``, which calls a reusable one, with what is ``replaced`` of that."""
        if self._suite == suite():
            self._suite = shutil.copytree(suite(), self.folder / "suite")
        called = self._suite / ".github" / "workflows" / f"{workflow}.yml"
        text = called.read_text()
        for old, new in replaced.items():
            text = text.replace(old, new)
        called.write_text(text)
        write(self.root, {".github/workflows/mine.yml": caller(workflow, event, inputs)})
        commit(self.root)

    def change(self, files: Mapping[str, str], message: str = "feat: change") -> None:
        """Write files and commit them."""
        write(self.root, files)
        git(self.root, "add", "--all")
        git(self.root, "commit", "--quiet", "--cleanup=verbatim", f"--message={message}")

    def run(
        self,
        workflow: str,
        event: str,
        *arguments: str,
        payload: Mapping[str, Any] | None = None,
        inputs: Mapping[str, str] | None = None,
        hub: str = "",
        api: str = "",
        secrets: Mapping[str, str] = SECRETS,
        rules: str = "",
    ) -> Run:
        """Run a workflow for an event; with ``inputs`` as from the Actions tab. ``hub`` and ``api`` are where
        the Hub and GitHub's API are, and ``rules`` what protects the environment of forks."""
        self._runs += 1
        work = self.folder / f"run-{self._runs}"
        work.mkdir()
        more = list(arguments)
        for name, value in (inputs or {}).items():
            more += ["--input", f"{name}={value}"]
        if hub:
            more += ["--var", f"KERNEL_HUB={hub}"]
        if payload is not None:
            value = {**payload, "inputs": inputs} if inputs else payload
            (work / "event.json").write_text(json.dumps(value))
            more += ["--eventpath", str(work / "event.json")]
        variables = {
            "NIX_REMOTE": f"local?root={self.machine.store}",
            "NIX_CONF_DIR": str(self.machine.folder),
            "GH_LOG": str(self.gh_log),
            "GH_RULES": rules,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            # Of steps alone: act itself would not know the repository any more.
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"url.{self.origin}.insteadOf",
            "GIT_CONFIG_VALUE_0": "https://github.com/me/tiny.git",
        }
        if api:
            variables["GITHUB_API_URL"] = api
        for name, value in variables.items():
            more += ["--env", f"{name}={value}"]
        for name, value in secrets.items():
            more += ["--secret", f"{name}={value}"]
        finished = act(self.root, work, event, "--json", *more, workflow=workflow, actions=self._suite)
        done = read(finished, work / "artifacts")
        # For whoever wants to know why a test has failed.
        (work / "log.txt").write_text(done.log)
        return done


def make_monorepo(root: Path, kernels: Sequence[str]) -> Path:
    """A repository with a kernel in each of the folders ``kernels``, named like it."""
    for folder in kernels:
        name = Path(folder).name
        write(
            root / folder,
            {path.replace("tiny", name): text.replace("tiny", name) for path, text in KERNEL.items()},
        )
        shutil.copy(ROOT / "flake.nix", root / folder)
        write_lock(root / folder)
    write(root, {"README.md": "# Kernels\n"})
    git(root, "init", "--quiet", "--initial-branch=main")
    commit(root)
    return root


def read(finished: subprocess.CompletedProcess[str], artifacts: Path) -> Run:
    """What act has printed as JSON lines."""
    printed = (finished.stdout + finished.stderr).splitlines()
    entries = [json.loads(line) for line in printed if line.startswith("{")]
    rest = [line for line in printed if not line.startswith("{")]
    outputs: dict[str, dict[str, str]] = {}
    results: dict[str, str] = {}
    for one in entries:
        # A job of a matrix is as good as the worst of its entries.
        if "jobResult" in one and results.get(one["jobID"]) != "failure":
            results[one["jobID"]] = one["jobResult"]
        if one.get("command") == "set-output":
            outputs.setdefault(one["jobID"], {})[one["name"]] = one["arg"]
    return Run(
        log="\n".join([*(f"[{one.get('job', '')}] {one['msg'].rstrip()}" for one in entries), *rest]),
        returncode=finished.returncode,
        results=results,
        outputs=outputs,
        started=frozenset(one["jobID"] for one in entries if one.get("stepID")),
        summary="\n".join(one["content"] for one in entries if one.get("command") == "summary"),
        artifacts=artifacts,
    )


def pull_request(*, fork: bool, base: str = "", text: str = "A change", number: int = 1) -> dict[str, Any]:
    """The event of a pull request, of a fork or of a branch of the repository. All its texts are ``text``."""
    repository = {"full_name": "me/tiny", "name": "tiny", "owner": {"login": "me"}, "private": False}
    head = repository | {"full_name": "stranger/tiny" if fork else "me/tiny", "fork": fork}
    return {
        "action": "opened",
        "number": number,
        "repository": repository,
        "label": {"name": text},
        "pull_request": {
            "number": number,
            "title": text,
            "body": text,
            "labels": [{"name": text}],
            "user": {"login": text},
            "head": {"ref": text, "label": text, "sha": "0" * 40, "repo": head},
            "base": {"ref": "main", "sha": base, "repo": repository},
        },
    }
