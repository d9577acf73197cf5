"""Each rule: what breaks it, with the text that a user sees, and what keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_actions.compliance import (
    binary,
    card,
    engine,
    flake,
    layout,
    manifest,
    metadata,
    policy,
    pull_request,
    source,
    workflows,
)

from tests.compliance import test_card_rules, test_cuda, test_pull_request
from tests.compliance.cases import BREAKS, KEEPS, LOCKED, OLD, Change
from tests.compliance.helpers import NAME, check, edit, said

FAMILIES = {
    1: manifest,
    2: flake,
    3: source,
    4: pull_request,
    5: layout,
    6: metadata,
    7: binary,
    8: workflows,
    9: policy,
}


def test_a_kernel_that_keeps_every_rule_has_no_findings(kernel: Path) -> None:
    report = check(kernel)
    assert [(one.rule.id, one.message) for one in report.findings] == []
    assert report.is_passed
    assert report.verdict == "compliant: no findings in the sources and 1 variant"


@pytest.mark.parametrize(
    ("slug", "change", "message"),
    [(slug, change, message) for slug, cases in BREAKS.items() for change, message in cases],
    ids=[f"{slug}-{number}" for slug, cases in BREAKS.items() for number in range(len(cases))],
)
def test_broken(slug: str, change: Change, message: str, kernel: Path, libraries: dict[str, Path]) -> None:
    change(kernel, libraries)
    report = check(kernel, complete=slug == "layout-complete")
    expected, cut, _ = message.partition("…") if message.endswith("…") else (message, "", "")
    found = said(report, slug)
    assert [one[: len(expected)] if cut else one for one in found] == [expected]
    # Every finding says what to do, and where to read more.
    finding = next(one for one in report.findings if one.rule.slug == slug)
    assert finding.repair and finding.rule.link.startswith("https://")
    assert report.is_passed == (report.errors == 0)
    assert finding.rule.severity == "warning" or not report.is_passed


@pytest.mark.parametrize(
    ("slug", "change"),
    [(slug, change) for slug, changes in KEEPS.items() for change in changes],
    ids=[f"{slug}-{number}" for slug, changes in KEEPS.items() for number in range(len(changes))],
)
def test_kept(slug: str, change: Change, kernel: Path, libraries: dict[str, Path]) -> None:
    change(kernel, libraries)
    assert said(check(kernel, complete=slug == "layout-complete"), slug) == []


def test_every_rule_has_an_entry_and_a_function() -> None:
    families = [*(family.RULES for family in FAMILIES.values()), layout.SET_RULES, card.RULES]
    assert set(engine.rules()) == {slug for family in families for slug in family.functions}
    assert set(layout.LINK_RULES.functions) <= set(layout.RULES.functions)


def test_every_rule_has_a_test_where_it_fires_and_one_where_it_does_not() -> None:
    """A new rule comes with both, and with the text that its user sees."""
    # Those need a repository of git, nvcc, and a card.
    breaks = [BREAKS, test_pull_request.BREAKS, test_cuda.BREAKS, test_card_rules.BREAKS]
    keeps = [KEEPS, test_pull_request.KEEPS, test_cuda.KEEPS, test_card_rules.KEEPS]
    for cases in (breaks, keeps):
        tested = [slug for one in cases for slug, listed in one.items() if listed]
        assert sorted(tested) == sorted(engine.rules())


def test_numbers_and_names_say_the_family() -> None:
    for slug, rule in engine.rules().items():
        family = card if slug in card.RULES.functions else FAMILIES[int(rule.id[2])]
        assert rule.id.startswith("KA") and len(rule.id) == 5
        assert slug in family.RULES.functions or slug in layout.SET_RULES.functions
        assert slug.startswith(family.__name__.rpartition(".")[2].replace("_", "-") + "-")
        assert rule.severity in ("error", "warning")
        for text in (rule.title, rule.reason, rule.repair):
            assert text == text.strip()
        assert rule.reason.endswith(".") and not rule.repair.endswith(".") and not rule.title.endswith(".")


def test_each_error_of_build_toml_is_a_finding_of_its_own(kernel: Path) -> None:
    path = kernel / "build.toml"
    text = path.read_text().replace("version = 3", 'version = "3"').replace("[torch]", "[torch]\nsrcs = []")
    path.write_text(text)
    line = text[: text.index("srcs")].count("\n") + 1
    assert said(check(kernel), "manifest-readable") == [
        "build.toml:3: general.version is '3', which is not a whole number of 0 or more",
        f"build.toml:{line}: key 'torch.srcs' is not known",
    ]


def test_all_variants_of_a_release_have_to_be_there_only_where_that_is_asked(kernel: Path) -> None:
    assert said(check(kernel), "layout-complete") == []
    found = said(check(kernel, complete=True), "layout-complete")
    assert found and not any(NAME in one for one in found)


def test_an_older_builder_is_updated_before_the_edition_is(kernel: Path) -> None:
    edit(kernel / "build.toml", "edition = 5\n", "")

    def repair() -> str:
        return next(one.repair for one in check(kernel).findings if one.rule.slug == "manifest-edition")

    assert repair() == "run `kernel-builder update-build`, and commit build.toml"
    edit(kernel / "flake.lock", LOCKED, OLD)
    assert repair().startswith("lock a newer builder (`nix flake update`)")
