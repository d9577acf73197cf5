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

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_actions.compliance import flake, kernel, manifest, policy, source
from kernel_actions.compliance.engine import Finding, Report
from kernel_actions.compliance.kernel import Kernel
from kernel_actions.errors import EXIT_DONE, EXIT_KERNEL_FAILED, Place, WrongInput

if TYPE_CHECKING:
    from kernel_actions import built
    from kernel_actions.cli import Options

__all__ = ["Finding", "Report", "check", "check_folders", "run", "variant_folders"]

_FRAMEWORKS = ("torch", "tvm-ffi")
# The first digits of the rules' numbers.
_SOURCE_FAMILIES = "123"
_CHANGES_FAMILY = "4"
_VARIANT_FAMILIES = "567"
_WORKFLOWS_FAMILY = "8"


def check_options(options: Options) -> list[Path]:
    """The folders of the variants to check. Raises ``WrongInput`` when there is nothing to check."""
    _check_kernel(options.kernel_dir)
    if options.source_only:
        return []
    build_dir = options.kernel_dir / options.build_dir
    folders = variant_folders(build_dir)
    if not folders:
        raise WrongInput(
            f"{build_dir} has no built variant",
            repair="build one first, or check the sources alone with --source-only",
        )
    return folders


def _check_kernel(kernel_dir: Path) -> None:
    if not (kernel_dir / "build.toml").exists():
        raise WrongInput(
            "there is no such file",
            where=Place(kernel_dir / "build.toml"),
            repair="give the folder of a kernel in the kernel-builder format",
        )


def run(options: Options) -> int:
    """The command ``compliance``.

    Raises ``WrongInput`` when there is nothing to check.
    """
    from kernel_actions.compliance import report

    kernel_dir = options.kernel_dir
    folders = check_options(options)
    found = check_folders(
        kernel_dir, folders, base=options.base, complete=options.complete, workflows=not options.source_only
    )
    if options.sarif:
        report.write_sarif(found, Path(options.sarif))
    report.show(found, options.format)
    return EXIT_DONE if found.is_passed else EXIT_KERNEL_FAILED


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
    _check_kernel(kernel_dir)
    sources = kernel.read(kernel_dir)
    findings = list(_check_sources(sources))
    families = _SOURCE_FAMILIES
    if base:
        findings += _check_changes(sources, base)
        families += _CHANGES_FAMILY
    for folder in folders:
        findings += _check_variant(folder, sources)
    if folders or complete:
        findings += _check_set(sources, folders, complete)
        findings += _check_card(sources)
        families += _VARIANT_FAMILIES
    if workflows and (found := _check_workflows(kernel_dir)) is not None:
        findings += found
        families += _WORKFLOWS_FAMILY
    return policy.apply(findings, kernel_dir, families, [folder.name for folder in folders])


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


def _check_sources(sources: Kernel) -> Iterator[Finding]:
    for family in (manifest.RULES, flake.RULES, source.RULES):
        yield from family.check(sources, sources.where)


def _check_changes(sources: Kernel, base: str) -> Iterator[Finding]:
    # Here, as most runs compare nothing.
    from kernel_actions.compliance import changes, pull_request

    request = pull_request.PullRequest(sources, changes.read(sources.directory, base))
    yield from pull_request.RULES.check(request, sources.where)


def _check_set(sources: Kernel, folders: Sequence[Path], complete: bool) -> Iterator[Finding]:
    from kernel_actions.compliance import layout

    yield from layout.SET_RULES.check(layout.Built(sources, tuple(folders), complete), sources.where)


def _check_card(sources: Kernel) -> Iterator[Finding]:
    from kernel_actions.compliance import card

    found = card.read(sources)
    if found is not None:
        yield from card.RULES.check(found, found.where)


def _check_workflows(kernel_dir: Path) -> list[Finding] | None:
    """The findings of zizmor; ``None`` where it has nothing to look at, or is not there."""
    from kernel_actions.compliance import workflows

    found = workflows.read(kernel_dir)
    return None if found is None else list(workflows.RULES.check(found, found.where))


def _check_variant(folder: Path, sources: Kernel) -> Iterator[Finding]:
    # Here, as a bare Python has no use for them.
    from kernel_actions.compliance import binary, layout, metadata, variant

    if folder.is_symlink():
        # What it leads to is another variant, or anything.
        yield from layout.LINK_RULES.check(folder, Place(folder), folder.name)
        return
    read = variant.read(folder, sources.manifest, sources.output)
    for family in (layout.RULES, metadata.RULES):
        yield from family.check(read, read.where, folder.name)
    for one in binary.binaries(read):
        yield from binary.RULES.check(one, one.where, folder.name)
