"""``unpack``: the builds that other jobs uploaded, and the reports of their tests, in a fresh folder."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_actions import built, console, github, manifest
from kernel_actions.artifacts import archive, folder, sealed
from kernel_actions.errors import EXIT_DONE, KernelFailed, Place, WrongInput

if TYPE_CHECKING:
    from kernel_actions.cli import Options

_REPORT = ".test-report.json"
_LARGEST_REPORT = 50_000_000
_AGAIN = "choose `Re-run all jobs`, and look at what the tests of this run did: one may have replaced it"


def run(options: Options) -> int:
    """The command ``unpack``.

    Raises ``KernelFailed`` if anything is not what the build jobs uploaded, and ``WrongInput``. Then nothing
    is unpacked.
    """
    kernel = options.kernel or manifest.load(options.kernel_dir).name
    digests = {
        sealed.split(name)[1]: digest
        for name, digest in sealed.loads(options.sealed).items()
        if sealed.split(name)[0] == kernel
    }
    if unknown := sorted(set(options.variant) - digests.keys()):
        raise WrongInput(f"--variant {unknown[0]}: no archive of it was sealed for the kernel {kernel}")
    wanted = {name: digests[name] for name in options.variant or digests}
    if not wanted:
        raise WrongInput(f"--sealed has no archive of the kernel {kernel}")
    with _fresh(Path(options.into) if options.into else None) as (work, target):
        take(Path(options.archives), wanted, work, with_reports=options.reports)
    if options.format == "json":
        print(json.dumps({"path": str(target), "variants": sorted(wanted)}, indent=2))
    else:
        for name in sorted(wanted):
            print(target / name)
    if options.format == "github":
        github.set_outputs({"path": str(target)})
    return EXIT_DONE


def take(archives: Path, wanted: Mapping[str, str], into: Path, *, with_reports: bool = False) -> None:
    """Unpack the archives of ``wanted``, the SHA-256 of each variant's, into the folder ``into``; and copy
    the test reports there, if ``with_reports``.

    An archive is recognized by its digest alone, whatever its name is. Raises ``KernelFailed`` if one is
    missing, and for any other file.
    """
    found: dict[str, Path] = {}
    reports: dict[str, Path] = {}
    by_digest = {digest: name for name, digest in wanted.items()}
    for name, path in folder.files(archives):
        leaf = name.rpartition("/")[2]
        variant = leaf.removesuffix(_REPORT)
        if with_reports and leaf.endswith(_REPORT) and variant in wanted and variant not in reports:
            reports[variant] = path
            continue
        with archive.open_plain(path) as file:
            digest = archive.sha256(file) if leaf.endswith(".tar") else ""
            if digest not in by_digest or by_digest[digest] in found:
                raise KernelFailed(
                    "is not what a build job of this run uploaded", where=Place(path), repair=_AGAIN
                )
            variant = by_digest[digest]
            found[variant] = path
            # The same open file that the digest was taken of.
            archive.unpack(file, variant, into, path)
    if missing := sorted(wanted.keys() - found.keys()):
        raise KernelFailed(f"the archive of {missing[0]} is missing", where=Place(archives), repair=_AGAIN)
    for variant, path in reports.items():
        _copy_report(path, into / f"{variant}{_REPORT}")


def _copy_report(path: Path, target: Path) -> None:
    with archive.open_plain(path) as file:
        data = file.read(_LARGEST_REPORT + 1)
    if len(data) > _LARGEST_REPORT:
        raise KernelFailed(f"is larger than {console.size(_LARGEST_REPORT)}", where=Place(path))
    built.write_whole(target, data)


@contextlib.contextmanager
def _fresh(into: Path | None) -> Iterator[tuple[Path, Path]]:
    """A folder to fill, and the one that it becomes: ``into``, or a new one outside of the checkout.

    If the work is interrupted, neither is left. Raises ``WrongInput`` if ``into`` is not empty.
    """
    if into is None:
        parent = Path(os.environ.get("RUNNER_TEMP") or tempfile.gettempdir())
        target = Path(tempfile.mkdtemp(prefix="kernel-actions-built-", dir=parent))
    else:
        target = into.absolute()
        if os.path.lexists(target) and not (
            target.is_dir() and not target.is_symlink() and not any(target.iterdir())
        ):
            raise WrongInput(
                "is there already, and is not an empty folder",
                where=Place(into),
                repair="remove it, or give another --into",
            )
        target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name[:100]}-", dir=target.parent))
    try:
        yield work, target
        os.chmod(work, 0o755)
        os.rename(work, target)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        if into is None:
            shutil.rmtree(target, ignore_errors=True)
        raise
