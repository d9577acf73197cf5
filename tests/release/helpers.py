"""A tiny kernel of Python alone in a real git repository, built and tested by decree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from kernel_actions import builder_output, built, release
from kernel_actions.local_builder import layout, project

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "scripts" / "kernel_actions"
CPU, CUDA = "torch-cpu", "torch-cuda"


def git(folder: Path, *arguments: str, check: bool = True) -> str:
    """Run git in ``folder`` as a test author, and return what it prints."""
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    finished = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, text=True, capture_output=True, check=False
    )
    assert not check or finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


class Kernel:
    """A kernel in a git repository with an origin; ``repo_id`` is its repository on the Hub."""

    def __init__(self, folder: Path, repo_id: str, backends: tuple[str, ...] = ("cpu", "cuda")) -> None:
        self.root = folder / "work"
        self.origin = folder / "origin.git"
        self.repo_id = repo_id
        self.backends = backends
        self.root.mkdir(parents=True)
        git(folder, "init", "--quiet", "--bare", str(self.origin))
        git(self.root, "init", "--quiet", "--initial-branch=main")
        git(self.root, "remote", "add", "origin", str(self.origin))
        package = self.root / "torch-ext" / "relu"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(
            "__all__ = ['relu']\n\n\ndef relu(value):\n    return max(value, 0)\n"
        )
        (self.root / "tests").mkdir()
        (self.root / "tests" / "test_relu.py").write_text("def test_relu():\n    pass\n")
        (self.root / ".gitignore").write_text("/build/*\n")
        (self.root / "CARD.md").write_text("---\nlicense: apache-2.0\n---\n# relu\n")
        shutil.copy(ROOT / "flake.lock", self.root / "flake.lock")
        shutil.copy(ROOT / "flake.nix", self.root / "flake.nix")
        self.write_build_toml(1)
        self.commit("Add relu")

    def write_build_toml(self, version: int) -> None:
        backends = ", ".join(f'"{one}"' for one in self.backends)
        (self.root / "build.toml").write_text(
            f'[general]\nname = "relu"\nversion = {version}\nedition = 5\nlicense = "Apache-2.0"\n'
            f'backends = [{backends}]\n\n[general.hub]\nrepo-id = "{self.repo_id}"\n\n[torch-noarch]\n'
        )

    def commit(self, message: str, **files: str) -> str:
        """Commit, with ``files`` of the Python package changed; the commit's id."""
        for name, text in files.items():
            (self.root / "torch-ext" / "relu" / f"{name}.py").write_text(text)
        git(self.root, "add", "--all")
        git(self.root, "commit", "--quiet", "--allow-empty", "--cleanup=verbatim", "--message", message)
        return self.head

    @property
    def head(self) -> str:
        return git(self.root, "rev-parse", "HEAD")

    @property
    def version(self) -> int:
        return int((self.root / "build.toml").read_text().split("version = ")[1].split("\n")[0])

    def build(
        self,
        *names: str,
        dirty: bool = False,
        builder: str = "nix",
        commit: str = "",
        tested: bool = True,
        table: bytes = bytes(range(256)),
        version: int | None = None,
    ) -> None:
        """Build and test the variants ``names`` (all that are planned), as a builder would at HEAD.

        ``table`` is a binary file, which the Hub keeps as LFS, of the first of them.
        """
        for index, name in enumerate(names or [f"torch-{one}" for one in self.backends]):
            self._build(
                name, dirty, builder, commit or self.head, tested,
                # Of this repository alone: the Hub keeps equal objects once.
                (table if index == 0 else b"\0" + name.encode()) + self.repo_id.encode(),
                self.version if version is None else version,
            )  # fmt: skip

    def _build(
        self, name: str, dirty: bool, builder: str, commit: str, tested: bool, table: bytes, version: int
    ) -> None:
        backend = "cuda" if "-cu1" in name else name.rpartition("-")[2]
        ops_name = f"_relu_{backend}_{commit[:7]}"
        source = self.root / "table.tmp"
        source.write_bytes(table)
        package = self.root / "torch-ext" / "relu"
        files: dict[str, Path | str] = {path.name: path for path in package.glob("*.py")}
        files |= {
            "_ops.py": project.template("ops_fixed.py.in").replace("@{ops_name}", ops_name),
            "table.bin": source,
            "relu/__init__.py": project.template("old_loader.py"),
        }
        folder = self.root / "build" / name
        shutil.rmtree(folder, ignore_errors=True)
        metadata = {
            "name": "relu",
            "id": ops_name,
            "version": version,
            "license": "Apache-2.0",
            "python-depends": [],
            "kernel-depends": [],
            "backend": {"type": backend},
            "provenance": {
                "kernel-builder": {"version": "0.1.0"},
                "kernel": {"commit": commit, "dirty": dirty},
            },
        }
        layout.write(folder, files, metadata, builder_output.newest())
        source.unlink()
        built.write_json(built.build_report_path(folder), {"builder": builder})
        if tested:
            self.test(name)

    def test(self, name: str, **changed: object) -> None:
        """Write the report on the tests of a variant."""
        variant = built.read(self.root / "build" / name)
        report = {
            "verdict": "passed", "variant": name, "digest": variant.digest, "passed": 3, "failed": 0,
            "skipped": 1, "seconds": 0.5, "failures": [],
            "gpu": "a GPU" if variant.backend in built.GPU_BACKENDS else None,
        }  # fmt: skip
        path = self.root / "build" / f"{name}.test-report.json"
        built.write_json(path, {**report, **changed})

    def release(
        self,
        address: str,
        *,
        stages: Collection[str] = release.STAGES,
        git_tag: bool = True,
        moving_tags: bool = False,
        verified_before: str = "",
        **options: Any,
    ) -> release.Released:
        """Release from here; ``options`` are those of ``release.prepare``."""
        is_staged = "stage" not in stages
        prepared = release.prepare(self.root, address=address, from_staged=is_staged, **options)
        return release.carry_out(
            prepared,
            stages=stages,
            git_tag=git_tag,
            moving_tags=moving_tags,
            verified_before=verified_before,
        )

    def tags(self, folder: Path | None = None) -> dict[str, str]:
        """The tags and their commits."""
        lines = git(folder or self.root, "show-ref", "--tags", "--dereference", check=False).splitlines()
        found = dict(reversed(line.split(" refs/tags/")) for line in lines)  # type: ignore[arg-type]
        return {name: found.get(f"{name}^{{}}", target) for name, target in found.items() if "^" not in name}


def command(
    folder: Path, *arguments: str, timeout: float = 120, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of the suite in a process, with no identity of the developer's own, for ``timeout``
    seconds at the most."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG")}
    return subprocess.run(
        [sys.executable, "-I", str(PROGRAM), *arguments],
        cwd=folder,
        env={**kept, "HOME": str(folder.parent), "GIT_CONFIG_NOSYSTEM": "1", **variables},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
