"""The checks of one kernel and of several, and the report on them."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernel_actions import console, git, settings
from kernel_actions.compliance import flake, kernel, manifest, policy, source
from kernel_actions.compliance.baseline import Baseline
from kernel_actions.compliance.baseline import read as read_baseline
from kernel_actions.compliance.before import Before
from kernel_actions.compliance.engine import Finding, Report, told
from kernel_actions.compliance.kernel import Kernel
from kernel_actions.errors import Place, WrongInput

# The first digits of the rules' numbers.
_SOURCE_FAMILIES = "123"
_CHANGES_FAMILY = "4"
_VARIANT_FAMILIES = "567"
_WORKFLOWS_FAMILY = "8"
# What all kernels of a repository share, and one of them is told the changes of.
_SHARED = (".github/", ".gitmodules")
_MOST_NAMED = 5


@dataclass(frozen=True)
class Checked:
    """A kernel to check: its folder, and those of its variants, which may be anything, half-made or empty."""

    kernel_dir: Path
    variants: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Request:
    """What is asked for. With ``base``, a reference of git, what differs from it is checked too, and what was
    there before fails nothing; with ``complete`` all variants that a release publishes have to be there; with
    ``workflows`` those of the repository are checked. ``baseline`` is the file of known findings; ``None``:
    the one that kernel-actions.toml names. Without ``uses_baseline`` all findings are told.
    """

    base: str = ""
    complete: bool = False
    workflows: bool = False
    baseline: Path | None = None
    uses_baseline: bool = True


@dataclass
class _Shared:
    """What the kernels of one run have in common: looked at once."""

    request: Request
    baselines: dict[Path, Baseline] = field(default_factory=dict)
    roots: dict[Path, Path] = field(default_factory=dict)
    changed: dict[Path, tuple[str, ...]] = field(default_factory=dict)
    checked_workflows: set[Path] = field(default_factory=set)

    def baseline(self, kernel_dir: Path) -> Baseline | None:
        """The baseline for a kernel. Raises ``WrongInput`` when it cannot be read."""
        if not self.request.uses_baseline:
            return None
        path = self.request.baseline or settings.load(kernel_dir).baseline
        if path is None:
            return None
        if path not in self.baselines:
            if not path.exists():
                raise WrongInput(
                    "there is no such baseline",
                    where=Place(path),
                    repair=f"write it: kernel-actions compliance --write-baseline {path}",
                )
            self.baselines[path] = read_baseline(path)
        return self.baselines[path]

    def differences(self, kernel_dir: Path) -> tuple[str, tuple[str, ...]]:
        """The kernel's folder from its repository's root on, with a slash behind it (empty: the root), and
        all files of the repository that differ from the base. Raises as ``git.changed_since`` does."""
        root = git.root(kernel_dir)
        if root is None:
            git.changed_since(kernel_dir, self.request.base)  # It says what is wrong.
            root = kernel_dir
        if root not in self.changed:
            self.changed[root] = git.changed_since(kernel_dir, self.request.base)
        folder = os.path.relpath(os.path.realpath(kernel_dir), os.path.realpath(root))
        return ("" if folder == "." else f"{folder}/"), self.changed[root]


def check(kernels: Sequence[Checked], request: Request) -> Report:
    """Check ``kernels``. Whatever is wrong with them is a finding, as kernel-actions.toml says.

    Raises ``WrongInput`` where there is no build.toml, or kernel-actions.toml or the baseline cannot be read,
    and ``WrongSurroundings`` when there are variants and no parser of metadata.json or no ABI checker.
    """
    reports = each(kernels, request)
    return reports[0] if len(reports) == 1 else _merge(reports)


def each(kernels: Sequence[Checked], request: Request) -> list[Report]:
    """The report on each of ``kernels``. Raises as ``check`` does."""
    for one in kernels:
        check_kernel(one.kernel_dir)
    if any(one.variants for one in kernels):
        # Before anything is done that takes its time.
        from kernel_actions.compliance import binary, variant

        variant.check_loader()
        binary.check_checker()
    shared = _Shared(request)
    with _without_garbage_collection():
        return [_check(one, shared) for one in kernels]


def check_kernel(kernel_dir: Path) -> None:
    """Raises ``WrongInput`` when the folder has no build.toml."""
    if not (kernel_dir / "build.toml").exists():
        raise WrongInput(
            "there is no such file",
            where=Place(kernel_dir / "build.toml"),
            repair="give the folder of a kernel in the kernel-builder format",
        )


def families(checked: Checked, request: Request) -> str:
    """The first digits of the rules that are looked at."""
    found = _SOURCE_FAMILIES
    if checked.variants or request.complete:
        found += _VARIANT_FAMILIES
    return found + (_WORKFLOWS_FAMILY if request.workflows else "")


def _check(checked: Checked, shared: _Shared) -> Report:
    request = shared.request
    kernel_dir = checked.kernel_dir
    baseline = shared.baseline(kernel_dir)
    sources = kernel.read(kernel_dir)
    findings = list(_check_sources(sources))
    looked_at = families(checked, request).replace(_WORKFLOWS_FAMILY, "")
    before = None
    checks_workflows = False
    if request.workflows:
        from kernel_actions.compliance import workflows

        root = workflows.root_of(kernel_dir)
        checks_workflows = root not in shared.checked_workflows
        if checks_workflows and (found := _check_workflows(root)) is not None:
            findings += found
            looked_at += _WORKFLOWS_FAMILY
        shared.checked_workflows.add(root)
    if request.base:
        before, found = _compare(sources, shared, checks_workflows)
        findings += found
        looked_at += _CHANGES_FAMILY
    for folder in checked.variants:
        findings += _check_variant(folder, sources)
    if checked.variants or request.complete:
        findings += _check_set(sources, checked.variants, request.complete)
        findings += _check_card(sources)
    names = [folder.name for folder in checked.variants]
    report = policy.apply(findings, kernel_dir, looked_at, names, before, baseline)
    if not request.uses_baseline:
        return report
    return replace(report, findings=tuple(told(report.findings, sources.where)))


def _check_sources(sources: Kernel) -> Iterator[Finding]:
    for family in (manifest.RULES, flake.RULES, source.RULES):
        yield from family.check(sources, sources.where)


def _compare(sources: Kernel, shared: _Shared, checks_workflows: bool) -> tuple[Before, list[Finding]]:
    """The kernel as it was at the base, and what is to be said about what differs."""
    # Here, as most runs compare nothing.
    from kernel_actions.compliance import changes, pull_request

    base = shared.request.base
    folder, names = shared.differences(sources.directory)
    shares = any(name.startswith(_SHARED) for name in names)
    is_same = not any(name.startswith(folder) for name in names)

    def check_then(kernel_dir: Path, root: Path) -> Iterator[Finding]:
        yield from _check_sources(kernel.read(kernel_dir))
        if checks_workflows:
            yield from _check_workflows(root) or ()

    if is_same and not shares:
        return Before(sources.directory, "", base, folder, check_then, True), []
    comparison = changes.read(sources.directory, base)
    request = pull_request.PullRequest(sources, comparison)
    found = list(pull_request.RULES.check(request, sources.where))
    is_same = is_same and not checks_workflows
    where = comparison.folder.rstrip("/")
    return Before(sources.directory, comparison.base, base, where, check_then, is_same), found


def _check_set(sources: Kernel, folders: Sequence[Path], complete: bool) -> Iterator[Finding]:
    from kernel_actions.compliance import layout

    yield from layout.SET_RULES.check(layout.Built(sources, tuple(folders), complete), sources.where)


def _check_card(sources: Kernel) -> Iterator[Finding]:
    from kernel_actions.compliance import card

    found = card.read(sources)
    if found is not None:
        yield from card.RULES.check(found, found.where)


def _check_workflows(root: Path) -> list[Finding] | None:
    """The findings of zizmor; ``None`` where it has nothing to look at, or is not there."""
    from kernel_actions.compliance import workflows

    found = workflows.read(root)
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


def _merge(reports: Sequence[Report]) -> Report:
    """One report on all kernels, in which what they share is told once."""
    found = {
        (one.rule.id, os.path.abspath(one.where.path), one.where[1:], one.message, one.variant): one
        for report in reports
        for one in report.findings
    }
    return Report.of(
        findings=_told_once(list(found.values())),
        variants=[name for report in reports for name in report.variants],
        waived=[one for report in reports for one in report.waived],
        changed=dict.fromkeys(one for report in reports for one in report.changed),
        day=reports[0].day,
        known=[one for report in reports for one in report.known],
        kernels=len(reports),
    )


def _told_once(findings: Sequence[Finding]) -> list[Finding]:
    """``findings``, of which those that are the same for many kernels of a repository are one."""
    left: list[Finding] = []
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for one in findings:
        if one.rule.scope == "repository":
            groups.setdefault((one.rule.id, one.key or one.message, one.repair), []).append(one)
        else:
            left.append(one)
    for first, *others in groups.values():
        if not others:
            left.append(first)
            continue
        names = [os.path.basename(os.path.abspath(one.where.path.parent)) for one in others]
        shown = ", ".join(names[:_MOST_NAMED]) + (", …" if names[_MOST_NAMED:] else "")
        more = f"; so it is in {console.counted(len(others), 'more kernel')}: {shown}"
        left.append(replace(first, message=first.message + more))
    return left


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Syntax trees have a million objects and no circles: looking for those takes longer than parsing."""
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_enabled:
            gc.enable()
