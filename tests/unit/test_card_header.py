"""The header of a card, as the Hub takes it."""

from __future__ import annotations

import pytest
from kernel_actions.hub import card_header
from kernel_actions.hub.card_header import Problem

GOOD = "---\nlibrary_name: kernels\nlicense: apache-2.0\n---\n\n# relu\n"
# As the template of `kernel-builder init` begins, before it is filled in.
TEMPLATE = "---\nlibrary_name: kernels\n{% if license %}license: {{ license }}\n{% endif %}---\n\n# x\n"
MISSING = Problem("warning", "empty or missing yaml metadata in repo card", 1)


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        GOOD.replace("\n", "\r\n"),
        f"\n\n{GOOD}",
        "---\nlicense: [mit, apache-2.0]\n---",
        "---\ntags:\n  - kernels\nother: 1\n---   \ntext",
    ],
)
def test_a_header_that_the_hub_takes(text: str) -> None:
    assert card_header.problems(text) == ()


@pytest.mark.parametrize(
    "text", ["", "# relu\n", "---\nlicense: mit\n", "---\n\n---\n", "text\n---\na: 1\n---\n"]
)
def test_a_card_without_a_header(text: str) -> None:
    assert card_header.problems(text) == (MISSING,)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("---\nlicense: mit\nname: a: b\n---\n", 3, "the header is not YAML: mapping values are not allowed"),
        ("---\nlicense: [mit\n---\n", 2, "the header is not YAML: while parsing a flow sequence"),
        (
            "---\na: 1\n{% if x %}\nb: 2\n---\n",
            3,
            "the header is not YAML: while scanning for the next token",
        ),
        ("---\n- a\n- b\n---\n", 2, "the header is not a mapping"),
        ("---\njust text\n---\n", 2, "the header is not a mapping"),
        ("---\na: 1\nb: 2\na: 3\n---\n", 4, "the header has 'a' twice"),
        ("---\na: \x07\n---\n", 2, "the header is not YAML: unacceptable character"),
        (
            "---\na: !!python/object/apply:os.system [ls]\n---\n",
            2,
            "the header is not YAML: could not determine",
        ),
        (f"---\na: {'[' * 5000}\n---\n", 2, "the header is not YAML"),
        (f"---\na: {'x' * 70_000}\n---\n", 2, "the header has more than 65536 characters"),
    ],
)
def test_a_header_that_is_no_yaml(text: str, line: int, message: str) -> None:
    (found,) = card_header.problems(text)
    assert (found.kind, found.line) == ("syntax", line)
    assert found.message.startswith(message)


def test_a_template_has_no_header_before_it_is_filled_in() -> None:
    """It ends in the line `{% endif %}---`."""
    assert card_header.problems(TEMPLATE) == (MISSING,)


@pytest.mark.parametrize("license", ["Apache-2.0", "gpl-3.0-or-later", "[mit, asdf]", "3", "{a: b}"])
def test_a_license_that_is_not_of_the_hubs_list(license: str) -> None:
    (found,) = card_header.problems(f"---\na: 1\nlicense: {license}\n---\n")
    assert (found.kind, found.line) == ("license", 3)
    assert found.message.startswith('"license" must be one of [apache-2.0, mit, ')


def test_aliases_stand_for_nothing_large() -> None:
    """A header of a kilobyte that stands for a billion values takes no time."""
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 20)]
    assert card_header.problems("---\n" + "\n".join(lines) + "\n---\n") == ()
