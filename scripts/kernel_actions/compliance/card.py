"""Rules about the kernel's card, CARD.md, as it will be on the Hub: KA52x.

They are checked with built variants alone: a bare Python, as checks of sources run in, has neither the
template engine nor a parser of YAML.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernel_actions import card as cards
from kernel_actions.card import Card
from kernel_actions.compliance.engine import Family, Problem
from kernel_actions.compliance.kernel import Kernel
from kernel_actions.errors import Place, WrongInput
from kernel_actions.hub import card_header


@dataclass(frozen=True)
class Checked:
    """The card of the file at ``where``, filled in for the repository that build.toml names, or what keeps it
    from being filled in; and what is wrong with its header."""

    where: Place
    card: Card | WrongInput
    problems: tuple[card_header.Problem, ...]

    def of(self, kind: str, said: str = "") -> Iterator[Problem]:
        """The problems of the header that are of a ``kind``, in other words than the Hub's where some are
        ``said``."""
        for one in self.problems:
            if one.kind == kind and isinstance(self.card, Card):
                yield Problem(said or self.card.problem(one), self.card.place(one.line))


RULES: Family[Checked] = Family()


@RULES.rule
def card_readable(checked: Checked) -> Iterator[Problem]:
    if isinstance(checked.card, WrongInput):
        yield Problem.of(checked.card, checked.where)
    yield from checked.of("syntax")


@RULES.rule
def card_license(checked: Checked) -> Iterator[Problem]:
    # The Hub's own words are its whole list, which is at the rule's link.
    yield from checked.of("license", "the license in the header is not on the Hub's list")


@RULES.rule
def card_header_missing(checked: Checked) -> Iterator[Problem]:
    yield from checked.of("warning", "has no header that the Hub can see")


def read(kernel: Kernel) -> Checked | None:
    """The card of a kernel; ``None`` where there is none. Raises ``WrongSurroundings`` where the template
    engine is needed and not installed."""
    path = kernel.directory / cards.FILE_NAME
    if kernel.manifest is None or not path.exists():
        return None
    try:
        card = cards.read(kernel.manifest, kernel.manifest.repo_id or "")
    except WrongInput as error:
        return Checked(Place(path), error, ())
    return Checked(Place(path), card, card_header.problems(card.text))
