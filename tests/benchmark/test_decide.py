"""The decision: right as often as it says, whatever the noise, and the same for the same rounds."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from kernel_actions.benchmark import decide
from kernel_actions.benchmark.decide import Comparison, compare, interval


def _rounds(
    generator: random.Random, ratio: float, count: int, noise: float
) -> tuple[list[list[float]], ...]:
    """Rounds A B B A of a machine that drifts, is noisy, and is disturbed in every tenth sample."""
    mine, theirs = [], []
    for number in range(count):
        speed = 1 + 0.3 * math.sin(number / 5)

        def sample(seconds: float, speed: float = speed) -> float:
            disturbed = 1 + generator.random() if generator.random() < 0.1 else 1.0
            return seconds * speed * disturbed * math.exp(generator.gauss(0, noise))

        first, second = sample(ratio), sample(1)
        third, fourth = sample(1), sample(ratio)
        mine.append([first, fourth])
        theirs.append([second, third])
    return mine, theirs


def test_unchanged_is_never_slower() -> None:
    generator = random.Random(1)
    verdicts = [compare(*_rounds(generator, 1, 12, 0.04)).verdict(0.05) for _ in range(300)]
    assert "slower" not in verdicts


def test_ten_percent_are_found_by_sixty_rounds() -> None:
    generator = random.Random(2)
    verdicts = [compare(*_rounds(generator, 1.1, 60, 0.04)).verdict(0.05) for _ in range(100)]
    assert verdicts.count("slower") > 90
    assert not {"as fast", "faster"} & set(verdicts)


def test_at_the_threshold_it_is_wrong_as_seldom_as_it_says() -> None:
    generator = random.Random(3)
    verdicts = [compare(*_rounds(generator, 1.05, 16, 0.03)).verdict(0.05) for _ in range(400)]
    assert verdicts.count("slower") <= 400 * 0.015


def test_the_interval_is_that_of_all_signs() -> None:
    """Of all ways to sign the ranks of eight values, those outside of the interval are one in a hundred."""
    values = [1.0, 2, 3, 4, 5, 6, 7, 8]
    sums = sorted(
        sum(rank for rank, sign in enumerate(signs, 1) if sign)
        for signs in itertools.product((0, 1), repeat=len(values))
    )
    for confidence in (0.9, 0.95, 0.99):
        outside = decide._outside(len(values), confidence)
        assert sum(one <= outside for one in sums) <= (1 - confidence) / 2 * len(sums)
        assert sum(one <= outside + 1 for one in sums) > (1 - confidence) / 2 * len(sums)


def test_seven_rounds_are_too_few() -> None:
    assert interval([0.1] * 7) == (0.1, -math.inf, math.inf)
    assert compare([[2.0]] * 7, [[1.0]] * 7).verdict(0.05) == "undecided"
    assert compare([[2.0]] * 8, [[1.0]] * 8).verdict(0.05) == "slower"


@pytest.mark.parametrize(
    ("low", "high", "of_medians", "verdict"),
    [
        (1.051, 1.2, 1.1, "slower"),
        (1.049, 1.2, 1.1, "undecided"),
        (1.051, 1.2, 1.01, "undecided"),  # The medians do not bear it out.
        (0.97, 1.05, 1.0, "as fast"),
        (0.97, 1.051, 1.0, "undecided"),
        (0.5, 0.95, 0.9, "faster"),
        (0.0, math.inf, 1.5, "undecided"),
    ],
)
def test_the_whole_interval_decides(low: float, high: float, of_medians: float, verdict: str) -> None:
    assert Comparison(math.sqrt(max(low, 0.1)), low, high, of_medians, 12).verdict(0.05) == verdict


def test_the_same_rounds_give_the_same_answer() -> None:
    rounds = _rounds(random.Random(4), 1.02, 24, 0.05)
    assert compare(*rounds) == compare(*rounds)


def test_what_drifts_steadily_cancels() -> None:
    """A B B A and B A A B in turns, on a machine that becomes slower by a percent from sample to sample."""
    mine, theirs = [], []
    for number in range(12):
        first, second, third, fourth = (1.01 ** (4 * number + one) for one in range(4))
        sides = [[first, fourth], [second, third]]
        mine.append(sides[number % 2])
        theirs.append(sides[1 - number % 2])
    assert compare(mine, theirs).ratio == pytest.approx(1, abs=1e-9)


def test_one_sample_is_not_compared_with_the_better_of_two() -> None:
    generator = random.Random(5)
    two = [[math.exp(generator.gauss(0, 0.1)) for _ in range(2)] for _ in range(60)]
    one = [[math.exp(generator.gauss(0, 0.1))] for _ in range(60)]
    comparison = compare(one, two)
    assert comparison.low < 1 < comparison.high


def test_rounds_that_cannot_be_paired() -> None:
    for mine, theirs in (([], []), ([[1.0]], [])):
        with pytest.raises(ValueError, match="cannot be paired"):
            compare(mine, theirs)
