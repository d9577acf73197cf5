"""The space that builds need, on which file system, and what GitHub's images carry that no build does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kernel_actions import console, process
from kernel_actions.errors import WrongSurroundings, raise_all

# What is removed, below the root of the file system: where GitHub's images for Linux have it.
CARRIED = (
    ("usr/local/lib/android", "Android SDK and NDK"),
    ("usr/local/.ghcup", "Haskell"),
    ("opt/ghc", "Haskell, in older images"),
    ("opt/hostedtoolcache/CodeQL", "CodeQL"),
    ("usr/share/dotnet", ".NET"),
    ("usr/share/swift", "Swift"),
    ("usr/local/julia*", "Julia"),
    ("usr/local/share/powershell", "PowerShell"),
    ("usr/local/share/chromium", "Chromium"),
    ("opt/google", "Chrome"),
    ("opt/microsoft", "Edge"),
    ("opt/az", "Azure's command line"),
)
# In bytes: what a variant's own build takes beside what is fetched for it, and what its result takes.
BUILD_TREE = 2_000_000_000
RESULT = 500_000_000
# Removing the Android SDK takes minutes on a slow disk. In seconds.
_PATIENCE = 900.0


class Need(NamedTuple):
    """``size`` bytes that will be written to ``path`` as ``what``."""

    what: str
    path: Path
    size: int


class Space(NamedTuple):
    """A file system with what it needs and has free, in bytes; ``paths`` are those of its needs."""

    paths: tuple[Path, ...]
    what: str
    needed: int
    free: int

    @property
    def is_short(self) -> bool:
        """Whether it will be full."""
        return self.free < self.needed


def needs(
    unpacked: int, variants: int, built: int, *, store: Path, build_dir: Path, kernel_dir: Path, jobs: int
) -> list[Need]:
    """What a plan writes where.

    What is fetched (``unpacked`` bytes) and the results of ``variants`` go to the store, the trees of as many
    builds as run at once to ``build_dir``, and the results to the kernel's folder too.
    """
    return [
        Need("store", store, unpacked + variants * RESULT),
        Need("builds", build_dir, min(built, jobs) * BUILD_TREE),
        Need("results", kernel_dir, variants * RESULT),
    ]


def spaces(wanted: Sequence[Need]) -> list[Space]:
    """The file systems that ``wanted`` are on, each with the sum of what it needs."""
    by_device: dict[int, list[Need]] = {}
    for need in wanted:
        by_device.setdefault(existing(need.path).stat().st_dev, []).append(need)
    return [
        Space(
            paths=tuple(need.path for need in some),
            what=", ".join(f"{need.what} {console.size(need.size)}" for need in some),
            needed=sum(need.size for need in some),
            free=shutil.disk_usage(existing(some[0].path)).free,
        )
        for some in by_device.values()
    ]


def existing(path: Path) -> Path:
    """``path``, or the nearest folder above it that is there."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def check(found: Sequence[Space], *, is_hosted: bool, was_freed: bool) -> None:
    """Raise ``WrongSurroundings`` for each file system of ``found`` that the plan would fill."""
    errors = []
    for space in found:
        if not space.is_short:
            continue
        if is_hosted and not was_freed:
            repair = "set free-disk: true, which removes what GitHub's image carries"
        else:
            repair = "free some space there, or plan fewer variants in this job"
        errors.append(
            WrongSurroundings(
                f"{', '.join(map(str, space.paths))} would be full: {console.size(space.needed)} are needed "
                f"({space.what}), {console.size(space.free)} are free",
                repair=repair,
            )
        )
    raise_all(errors)


def is_hosted(environment: Mapping[str, str]) -> bool:
    """Whether this is a runner of GitHub's own, which nobody uses after this job."""
    return (
        environment.get("RUNNER_ENVIRONMENT") == "github-hosted"
        and environment.get("GITHUB_ACTIONS") == "true"
        and environment.get("RUNNER_OS") == "Linux"
    )


def free(root: Path = Path("/")) -> list[tuple[str, int]]:
    """Remove what GitHub's images carry below ``root``; what was removed, and the bytes that it freed.

    Only for machines that ``is_hosted`` says yes of. What cannot be removed stays.
    """
    freed = []
    for pattern, what in CARRIED:
        for folder in sorted(root.glob(pattern)):
            if folder.is_symlink() or not folder.is_dir():
                continue
            before = shutil.disk_usage(root).free
            console.say(f"Removing {folder} ({what})")
            process.run([*as_root(), "rm", "-rf", "--", folder], time_limit=_PATIENCE)
            freed.append((str(folder), max(0, shutil.disk_usage(root).free - before)))
    if root == Path("/") and shutil.which("docker"):
        before = shutil.disk_usage(root).free
        console.say("Removing the images of Docker that no container uses")
        finished = process.run(["docker", "image", "prune", "--all", "--force"], time_limit=_PATIENCE)
        if finished.returncode == 0:
            freed.append(("images of Docker", max(0, shutil.disk_usage(root).free - before)))
    return freed


def as_root() -> list[str]:
    """What goes before a command to run it as root without asking; nothing for root itself."""
    return [] if os.geteuid() == 0 else ["sudo", "-n"]


def can_be_root() -> bool:
    """Whether ``as_root`` works."""
    if os.geteuid() == 0:
        return True
    if shutil.which("sudo") is None:
        return False
    return process.run(["sudo", "-n", "true"], time_limit=20.0).returncode == 0
