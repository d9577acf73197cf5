"""The gate: what has to be there before a release is staged, and what is missing of it."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_actions import built, provenance, test
from kernel_actions.base import files
from kernel_actions.built import BuiltVariant
from kernel_actions.errors import WrongInput, printable
from kernel_actions.release.record import Tests

if TYPE_CHECKING:
    from kernel_actions.card import Card
    from kernel_actions.compliance import Report

_LARGEST_REPORT = 50_000_000
_LONGEST_NAME = 200
_BUILD = "build it at this commit, then run again"


@dataclass(frozen=True)
class Candidate:
    """A built variant, the git commit it says it was built from (empty: it does not say, or ``unknown`` says
    why that is not believed), and the tests of these very files; where there are none that passed,
    ``untested`` says why, or ``allowed`` why kernel-actions.toml lets it go untested. ``hashes`` are those of
    its files where metadata.json lists none."""

    variant: BuiltVariant
    commit: str
    dirty: bool
    tests: Tests | None
    untested: str
    allowed: str = ""
    unknown: str = ""
    hashes: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """The variant's name."""
        return self.variant.name


@dataclass(frozen=True)
class Conditions:
    """What a release has to be: ``planned`` are the variants that the builder publishes, ``known``
    all that it can make (``None``: not known).

    ``takes_anything``: the Hub is an embedded one, for rehearsals, which takes uncommitted changes,
    local builds and variants outside of the plan.
    """

    commit: str
    planned: frozenset[str]
    known: frozenset[str] | None
    is_partial: bool
    takes_anything: bool
    takes_local_builds: bool
    has_uncommitted_changes: bool


@dataclass(frozen=True)
class Lack:
    """Something that is missing: of which variant (empty: of none), what, and what to do about it."""

    variant: str
    what: str
    repair: str

    def __str__(self) -> str:
        return f"{self.variant} {self.what}" if self.variant else self.what


def candidates(
    variants: Iterable[BuiltVariant], may_go_untested: Mapping[str, str] | None = None
) -> tuple[Candidate, ...]:
    """The variants with what is beside them: where they were built from, and their tests.

    ``may_go_untested`` are the reasons of kernel-actions.toml, by patterns of variants.
    """
    return tuple(_candidate(variant, may_go_untested or {}) for variant in variants)


def _candidate(variant: BuiltVariant, may_go_untested: Mapping[str, str]) -> Candidate:
    metadata = _read(variant.path / "metadata.json")
    report = _read(built.build_report_path(variant.path))
    source = provenance.read(metadata, report)
    is_listed = isinstance(metadata.get("digest"), dict)
    tests, untested, is_untested = _tests(variant)
    allowed = next(
        (why for pattern, why in may_go_untested.items() if fnmatch.fnmatchcase(variant.name, pattern)), ""
    )
    return Candidate(
        variant=variant,
        commit=source.commit,
        dirty=source.dirty,
        tests=tests,
        # Both have to say so: the report that nothing was tested, and the kernel that it may be so.
        untested="" if is_untested and allowed else untested,
        allowed=allowed if is_untested else "",
        unknown=source.problem,
        hashes=None if is_listed or variant.digest is None else report["digest"],
    )


def _tests(variant: BuiltVariant) -> tuple[Tests | None, str, bool]:
    """The tests of a variant, why it does not count as tested (empty when it does), and whether its report
    says that it goes untested."""
    path = test.report_path(variant)
    if not path.is_file():
        return None, "was not tested", False
    report = _read(path)
    counts = [report.get(name) for name in ("passed", "failed", "skipped")]
    passed, failed, skipped = (one if isinstance(one, int) else 0 for one in counts)
    gpu = report.get("gpu")
    if variant.digest is None or report.get("digest") != variant.digest:
        return None, "was tested before it was built as it is now", False
    if report.get("verdict") == "untested":
        return None, "goes untested, which kernel-actions.toml does not allow", True
    # It is published: a name, whatever somebody wrote there.
    found = Tests(passed, failed, skipped, printable(gpu)[:_LONGEST_NAME] if isinstance(gpu, str) else None)
    if report.get("verdict") != "passed" or not found.is_passed:
        return None, f"failed its tests ({failed} of {passed + failed})", False
    if variant.backend in built.GPU_BACKENDS and found.gpu is None:
        return None, "was tested without a GPU (--require-gpu never)", True
    return found, "", False


def _read(path: Path) -> dict[str, Any]:
    """A JSON object; an empty one where there is none that can be read."""
    try:
        data = files.read_plain(path, _LARGEST_REPORT)
        value = json.loads(data) if len(data) <= _LARGEST_REPORT else None
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def built_how(builder: str) -> str:
    """What is to be said of a variant that no sandboxed Nix built."""
    known = {
        "local": "was built by the local builder",
        "nix-unsandboxed": "was built by Nix without a sandbox",
        "": "has no build report",
    }
    return known.get(builder, "has a build report that names no builder that is known")


def lacks(
    found: Sequence[Candidate], conditions: Conditions, report: Report, build_dir: Path
) -> tuple[Lack, ...]:
    """All that is missing; nothing when the release may go ahead."""
    listed: list[Lack] = []
    if conditions.has_uncommitted_changes and not conditions.takes_anything:
        listed.append(Lack("", "the working tree has uncommitted changes", "commit them, then build again"))
    if conditions.is_partial and not conditions.takes_anything:
        listed.append(Lack("", "a partial release is for an embedded Hub alone", "leave out --partial"))
    if not found:
        listed.append(Lack("", f"{build_dir} has no built variant", "build one first, or give --build-dir"))
    names = {one.name for one in found}
    if not conditions.is_partial:
        # An embedded Hub takes what there is, from who asks for it.
        otherwise = ", or release without it by --partial" if conditions.takes_anything else ""
        for name in sorted(conditions.planned - names):
            repair = f"build it into {build_dir}: --variant {name}{otherwise}"
            listed.append(Lack(name, "was not built", repair))
    for one in found:
        listed += _variant_lacks(one, conditions)
    listed += _broken_rules(report, names)
    return tuple(listed)


def _variant_lacks(one: Candidate, conditions: Conditions) -> Iterator[Lack]:
    variant = one.variant
    if conditions.known is not None and one.name not in conditions.known and not conditions.takes_anything:
        yield Lack(one.name, "is not among the variants of the locked builder", "remove it")
    if not conditions.takes_anything and not conditions.takes_local_builds and variant.builder != "nix":
        what = built_how(variant.builder)
        yield Lack(one.name, what, "build it with Nix, sandboxed; --allow-local-build releases it as it is")
    if variant.digest is None:
        yield Lack(one.name, "does not list the hashes of its files", provenance.LISTS_HASHES)
    if one.unknown:
        yield Lack(one.name, one.unknown, _BUILD)
    elif not one.commit and not conditions.takes_anything:
        yield Lack(one.name, "does not say its commit", provenance.SAYS_COMMIT)
    elif one.commit and one.commit != conditions.commit:
        what = f"was built from commit {one.commit[:12]}, not {conditions.commit[:12] or 'from what is here'}"
        yield Lack(one.name, what, _BUILD)
    elif one.dirty and not conditions.takes_anything:
        yield Lack(one.name, "was built with uncommitted changes", "commit them, then build it again")
    # Which files were tested can be told of listed ones alone, and that was said.
    if one.untested and variant.digest is not None:
        yield Lack(one.name, one.untested, f"test it: --variant {one.name}")


def public_names(source: bytes) -> frozenset[str] | None:
    """The names that the ``__all__`` of an ``__init__.py`` lists; ``None`` when it alone cannot tell."""
    from kernel_actions.compliance import api, files

    init = Path("__init__.py")
    try:
        tree = files.parse_python(init, source)
    except WrongInput:
        return None
    names = api.names(lambda name: tree if name == init.name else None)
    return None if names is None else frozenset(names)


def kept_lacks(
    new: frozenset[str] | None, before: frozenset[str] | None, kept: Mapping[str, frozenset[str] | None]
) -> tuple[Lack, ...]:
    """The variants that are kept although this release adds public names which they do not have.

    Who loads the version gets one variant or another, and has to find the same names in each: within a major
    version, a name is added to every published variant or to none. ``new`` are the names of what is released,
    ``before`` those of what it replaces, ``kept`` those of the variants that stay; ``None``: not known.
    """
    added = (new or frozenset()) - (before or frozenset())
    lacking = {name: sorted(added - names) for name, names in kept.items() if names is not None}
    return tuple(
        Lack(
            name,
            f"stays as it is and lacks {', '.join(names)}, which this release adds",
            "build this variant too, or raise the major version: version in build.toml",
        )
        for name, names in sorted(lacking.items())
        if names
    )


def card_lacks(card: Card | None, errors: Iterable[str]) -> tuple[Lack, ...]:
    """What the Hub would refuse about the card, by its own ``errors``, before anything is there."""
    if card is None:
        return ()
    return tuple(
        Lack("", f"{card.source}: {one}", f"correct the header of {card.source.name}") for one in errors
    )


def _broken_rules(report: Report, names: Collection[str]) -> Iterator[Lack]:
    for finding in report.findings:
        if finding.rule.severity == "error":
            what = f"breaks {finding.rule.id}: {finding.message}"
            yield Lack(finding.variant if finding.variant in names else "", what, finding.repair)
