"""``seal``: take the digest of each archive that the build jobs uploaded, before any test runs."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_actions import console, github, markdown
from kernel_actions.artifacts import archive, folder, sealed
from kernel_actions.errors import EXIT_DONE, KernelFailed, Place, WrongInput

if TYPE_CHECKING:
    from kernel_actions.cli import Options

# What the templates name the artifacts, and the jobs, of builds.
PREFIX = "built-"
BUILD_JOB = "Build "
_HEADER = ("kernel", "variant", "size", "sha256")


def run(options: Options) -> int:
    """The command ``seal``.

    Raises ``KernelFailed`` if an archive of the plan is missing, if there is another one, or if a re-run
    finds one that no build job made; and ``WrongInput`` and ``WrongSurroundings``.
    """
    planned = sealed.planned(options.planned)
    digests, sizes = take(Path(options.archives), planned)
    if int(os.environ.get("GITHUB_RUN_ATTEMPT") or "1") > 1:
        # The tests of an earlier attempt may have replaced an artifact.
        made = github.artifacts_of_run(options.github_token)
        check_origin(made, github.jobs_of_run(options.github_token), [f"{PREFIX}{name}" for name in planned])
    rows = [(*sealed.split(name), console.size(sizes[name]), digest) for name, digest in digests.items()]
    if options.format == "json":
        print(json.dumps({"sealed": digests}, indent=2))
    else:
        print(console.table(_HEADER, rows))
    if options.format == "github":
        github.set_outputs({"sealed": sealed.dumps(digests)})
        title = f"{console.counted(len(rows), 'archive')} sealed: later jobs take these bytes alone"
        github.add_summary(markdown.details(title, markdown.table(_HEADER, rows)))
    return EXIT_DONE


def take(archives: Path, planned: Mapping[str, Sequence[str]]) -> tuple[dict[str, str], dict[str, int]]:
    """The SHA-256 and the size in bytes of each archive, by ``kernel/variant``.

    ``archives`` is as ``actions/download-artifact`` leaves it for a pattern: a folder for each artifact, or
    the files alone where a single artifact matched. Raises ``KernelFailed`` unless it holds the archives of
    ``planned``, and nothing else.
    """
    expected = {
        f"{PREFIX}{artifact}/{sealed.split(name)[1]}.tar": name
        for artifact, names in planned.items()
        for name in names
    }
    if len(expected) != sum(map(len, planned.values())):
        raise WrongInput("--planned names an archive twice")
    paths = _by_artifact(dict(folder.files(archives)), expected)
    if unknown := sorted(paths.keys() - expected.keys()):
        raise KernelFailed(f"{unknown[0]} is no archive of the plan", where=Place(archives), repair=_FOREIGN)
    if missing := sorted(expected.keys() - paths.keys()):
        raise KernelFailed(
            f"{missing[0]} is missing", where=Place(archives), repair="run the build job that failed again"
        )
    digests: dict[str, str] = {}
    sizes: dict[str, int] = {}
    for path, name in sorted(expected.items(), key=lambda item: item[1]):
        with archive.open_plain(paths[path]) as file:
            digests[name] = archive.sha256(file)
            sizes[name] = file.tell()
    return digests, sizes


def _by_artifact(paths: dict[str, Path], expected: Collection[str]) -> dict[str, Path]:
    """``paths`` with the folder of their artifact in front, where a single one was downloaded: then the files
    are in no folder (actions/download-artifact at 3e5f45b2, v8.0.1, src/download-artifact.ts:189-194)."""
    if any("/" in path for path in paths):
        return paths
    planned = {path.rpartition("/")[2]: path for path in expected}
    return {planned.get(name, name): path for name, path in paths.items()}


def check_origin(
    artifacts: Sequence[github.Artifact], jobs: Sequence[github.Job], names: Sequence[str]
) -> None:
    """Raise ``KernelFailed`` if an artifact of ``names`` was created while no build job was running.

    Tests start after all builds of their attempt have ended, and a new attempt starts after the last one has.
    So an artifact that a test replaced was never created during a build.
    """
    spans = [job for job in jobs if job.name.rpartition(" / ")[2].startswith(BUILD_JOB) and job.started]
    for name in names:
        for made in (one for one in artifacts if one.name == name):
            if not any(job.started <= made.created <= (job.completed or made.created) for job in spans):
                raise KernelFailed(
                    f"the artifact {name} was not made by a job {BUILD_JOB.strip()!r} of this run",
                    repair="choose `Re-run all jobs`: it builds again",
                )
        if not any(one.name == name for one in artifacts):
            raise KernelFailed(
                f"GitHub lists no artifact {name} of this run", repair="choose `Re-run all jobs`"
            )


_FOREIGN = "another job of this run uploaded it under a build's name: give that artifact another name"
