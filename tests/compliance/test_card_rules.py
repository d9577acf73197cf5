"""Rules about the card: what breaks each, with the text that a user sees, and what keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_actions import compliance

from tests.compliance.helpers import check, said

TEMPLATE = (
    "---\nlibrary_name: kernels\n{% if license %}license: {{ license }}\n{% endif %}---\n\n# {{ repo_id }}\n"
)
HEADER = "---\nlibrary_name: kernels\nlicense: mit\n---\n# x\n"
# Rule → what CARD.md is, and what is said: `file:line: message`.
BREAKS: dict[str, list[tuple[str, str]]] = {
    "card-readable": [
        ("# {{ repo_id }\n", "CARD.md:1: cannot be filled in: SyntaxError: …"),
        ("---\na: 1\n---\n\n{% if x %}\n", "CARD.md:5: cannot be filled in: SyntaxError: …"),
        ("---\nname: a: b\n---\n", "CARD.md:2: the header is not YAML: mapping values are not allowed here"),
        ("---\n- kernels\n---\n", "CARD.md:2: the header is not a mapping of names to values"),
        (
            "---\nname: {{ repo_id }}: b\n---\n",
            "CARD.md:: the header is not YAML: mapping values are not allowed here "
            "(line 2 once it is filled in)",
        ),
        (
            "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}",
            "CARD.md:1: cannot be filled in: OutOfFuel",
        ),
    ],
    "card-license": [
        (HEADER.replace("mit", "MIT"), "CARD.md:3: the license in the header is not on the Hub's list"),
        (
            TEMPLATE.replace("{{ license }}", "{{ license }}-or-later"),
            "CARD.md:: the license in the header is not on the Hub's list",
        ),
    ],
    "card-header-missing": [
        ("# relu\n", "CARD.md:1: has no header that the Hub can see"),
        ("---\nlicense: mit\n", "CARD.md:1: has no header that the Hub can see"),
        ("{% if license %}# {{ license }}{% endif %}", "CARD.md:: has no header that the Hub can see"),
    ],
}
# Rule → what CARD.md may be.
KEEPS: dict[str, list[str]] = {
    "card-readable": [TEMPLATE, HEADER, "# no header\n"],
    "card-license": [TEMPLATE, HEADER, "# no header\n", "---\nname: a: b\n---\n"],
    "card-header-missing": [TEMPLATE, HEADER],
}


@pytest.mark.parametrize(
    ("slug", "text", "expected"),
    [(slug, text, expected) for slug, cases in BREAKS.items() for text, expected in cases],
)
def test_broken(kernel: Path, slug: str, text: str, expected: str) -> None:
    (kernel / "CARD.md").write_text(text)
    report = check(kernel)
    (found,) = said(report, slug)
    assert found.startswith(expected[:-1]) if expected.endswith("…") else found == expected
    finding = next(one for one in report.findings if one.rule.slug == slug)
    assert finding.repair and finding.variant == ""
    assert report.is_passed == (finding.rule.severity == "warning")


@pytest.mark.parametrize(("slug", "text"), [(slug, text) for slug, texts in KEEPS.items() for text in texts])
def test_kept(kernel: Path, slug: str, text: str) -> None:
    (kernel / "CARD.md").write_text(text)
    assert said(check(kernel), slug) == []


def test_a_kernel_without_a_card(kernel: Path) -> None:
    assert not [one for one in check(kernel).findings if one.rule.slug.startswith("card-")]


def test_a_bare_python_checks_no_card(kernel: Path) -> None:
    """It has no template engine: what is not checked is no finding."""
    (kernel / "CARD.md").write_text("{{")
    report = compliance.check_folders(kernel)
    assert not [one for one in report.findings if one.rule.slug.startswith("card-")]


def test_a_link_out_of_the_kernel_is_not_followed(
    kernel: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    secret = tmp_path_factory.mktemp("other") / "secret"
    secret.write_text("---\na: b: c\n---\n")
    (kernel / "CARD.md").symlink_to(secret)
    assert said(check(kernel), "card-readable") == ["CARD.md:: is a link out of its folder"]
