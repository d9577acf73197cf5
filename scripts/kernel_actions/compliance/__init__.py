"""``compliance``: a kernel and its built variants against the rules that loaders rely on.

The rules are in ``data/rules.toml``, and their functions in one module for each family:

============  =================================  =====
module        about                              rules
============  =================================  =====
manifest      build.toml                         KA1xx
flake         flake.lock and flake.nix           KA2xx
source        C++ and Python sources             KA3xx
pull_request  what differs from another commit   KA4xx
layout        the files of a built variant       KA50x, KA51x
card          CARD.md, as it is published        KA52x
metadata      its metadata.json                  KA6xx
binary        its extensions                     KA7xx
workflows     those of the repository            KA8xx
policy        what kernel-actions.toml accepts   KA9xx
============  =================================  =====

Those about sources need a bare Python alone; the others import the loader's parser and the ABI checker
when they are first used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_actions.compliance import checking
from kernel_actions.compliance.checking import Checked, Request
from kernel_actions.compliance.engine import Finding, Report
from kernel_actions.errors import EXIT_DONE, EXIT_KERNEL_FAILED, WrongInput

if TYPE_CHECKING:
    from kernel_actions import built
    from kernel_actions.cli import Options

__all__ = ["Finding", "Report", "check", "check_folders", "run", "variant_folders"]

_FRAMEWORKS = ("torch", "tvm-ffi")


def check_options(options: Options) -> list[Checked]:
    """The kernels to check, with the folders of their variants.

    Raises ``WrongInput`` when there is nothing to check.
    """
    kernels = options.kernel_dirs
    if options.discover:
        from kernel_actions.matrix import monorepo

        kernels = monorepo.discover(Path(options.discover))
    for kernel_dir in kernels:
        checking.check_kernel(kernel_dir)
    if options.source_only:
        return [Checked(kernel_dir) for kernel_dir in kernels]
    found = [
        Checked(kernel_dir, tuple(variant_folders(kernel_dir / options.build_dir))) for kernel_dir in kernels
    ]
    if not any(one.variants for one in found):
        what = f"{kernels[0] / options.build_dir} has" if len(kernels) == 1 else "no kernel has"
        raise WrongInput(
            f"{what} no built variant" if len(kernels) == 1 else f"{what} a built variant",
            repair="build one first, or check the sources alone with --source-only",
        )
    return found


def run(options: Options) -> int:
    """The command ``compliance``.

    Raises ``WrongInput`` when there is nothing to check.
    """
    from kernel_actions.compliance import report

    kernels = check_options(options)
    request = Request(
        base=options.base,
        complete=options.complete,
        workflows=not options.source_only,
        baseline=Path(options.baseline) if options.baseline else None,
    )
    if options.write_baseline:
        return _write_baseline(kernels, request, Path(options.write_baseline))
    found = checking.check(kernels, request)
    if options.sarif:
        report.write_sarif(found, Path(options.sarif))
    report.show(found, options.format)
    return EXIT_DONE if found.is_passed else EXIT_KERNEL_FAILED


def _write_baseline(kernels: Sequence[Checked], request: Request, path: Path) -> int:
    from kernel_actions import console
    from kernel_actions.compliance import baseline

    request = replace(request, base="", uses_baseline=False)
    reports = checking.each(kernels, request)
    looked_at = [
        (one.kernel_dir, checking.families(one, request), [folder.name for folder in one.variants])
        for one in kernels
    ]
    count = baseline.write(path, [finding for report in reports for finding in report.findings], looked_at)
    console.say(f"kernel-actions: {console.counted(count, 'finding')} in {path}")
    return EXIT_DONE


def check(
    kernel_dir: Path, variants: Sequence[built.BuiltVariant] = (), *, source_only: bool = False
) -> Report:
    """Check the sources in ``kernel_dir``, and ``variants`` unless ``source_only``.

    Whatever is wrong with them is a finding, as kernel-actions.toml says. Raises ``WrongInput`` when there
    is no build.toml or that other file cannot be read, and ``WrongSurroundings`` when there are variants and
    no parser of metadata.json or no ABI checker.
    """
    return check_folders(kernel_dir, [] if source_only else [variant.path for variant in variants])


def check_folders(
    kernel_dir: Path,
    folders: Sequence[Path] = (),
    *,
    base: str = "",
    complete: bool = False,
    workflows: bool = False,
) -> Report:
    """As ``check``, for folders that may be anything: half-made variants, and none at all.

    With ``base``, a reference of git, what differs from it is checked too; with ``complete`` all variants
    that a release publishes have to be there; with ``workflows`` those of the repository are checked.
    """
    return checking.check([Checked(kernel_dir, tuple(folders))], Request(base, complete, workflows))


def variant_folders(build_dir: Path) -> list[Path]:
    """The folders in ``build_dir`` that are variants, or were to be: also those that are half-made or
    have a wrong name."""
    if not build_dir.is_dir():
        return []
    return [
        folder
        for folder in sorted(build_dir.iterdir())
        if (folder.is_dir() or folder.is_symlink())
        and not folder.name.startswith(".")
        and (folder.name.startswith(_FRAMEWORKS) or (folder / "metadata.json").exists())
    ]
