"""Slower or not: the decision, from the paired rounds of one measurement.

A round measures both sides close to each other in time, so that its ratio is free of most of what
changes on a machine meanwhile. Of the samples of a side in a round the shortest counts, as whatever
disturbs a sample makes it longer. The ratios of all rounds give an interval for the true one, by ranks
(Hodges and Lehmann, from the exact distribution of Wilcoxon's signed ranks): a few rounds that were
disturbed move it little, and nothing is assumed about the times but that both sides are disturbed
alike. No random number is drawn.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Verdict = Literal["slower", "as fast", "faster", "undecided"]

# How sure the interval is. With some tens of workloads, one in a hundred that misses is enough.
CONFIDENCE = 0.99


@dataclass(frozen=True)
class Comparison:
    """The time of one side in units of the other's.

    ``ratio`` is the estimate from the paired rounds, within ``low`` to ``high``, which holds the true one
    with ``CONFIDENCE``; ``of_medians`` is the ratio of the medians of all samples.
    """

    ratio: float
    low: float
    high: float
    of_medians: float
    rounds: int

    def verdict(self, threshold: float) -> Verdict:
        """What the interval says about being slower by more than ``threshold`` (0.05 for 5 %).

        ``slower`` only when the whole interval, and the ratio of the medians, are past it;
        ``undecided`` when the interval is too wide to say.
        """
        limit = 1 + threshold
        if self.low > limit and self.of_medians > limit:
            return "slower"
        if self.high < 1 / limit:
            return "faster"
        return "as fast" if self.high <= limit else "undecided"


def compare(side: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> Comparison:
    """Compare the samples of ``side`` with those of ``other``, in seconds, round by round.

    Where a round has more samples of one side, the first are taken: the shortest of more is shorter.

    Raises ``ValueError`` unless both have the same number of rounds, at least one, none of them empty,
    and all samples are above zero.
    """
    if len(side) != len(other) or not side:
        raise ValueError(f"{len(side)} rounds cannot be paired with {len(other)}")
    logs = [_log(mine, theirs) for mine, theirs in zip(side, other, strict=True)]
    estimate, low, high = interval(logs)
    medians = [statistics.median([one for samples in rounds for one in samples]) for rounds in (side, other)]
    return Comparison(
        ratio=math.exp(estimate),
        low=math.exp(low) if low > -math.inf else 0.0,
        high=math.exp(high) if high < math.inf else math.inf,
        of_medians=medians[0] / medians[1],
        rounds=len(side),
    )


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """The centre of ``values``, and the interval that holds the true centre with ``confidence``.

    The centre is the median of the means of all pairs, each with itself included. Too few values for
    the confidence (7 for 99 %) have an unbounded interval.
    """
    count = len(values)
    means = sorted(
        (values[first] + values[second]) / 2 for first in range(count) for second in range(first, count)
    )
    outside = _outside(count, confidence)
    centre = statistics.median(means)
    if outside < 0:
        return centre, -math.inf, math.inf
    return centre, means[outside], means[-1 - outside]


@lru_cache(maxsize=256)
def _outside(count: int, confidence: float) -> int:
    """How many of the ordered means lie outside of the interval on each side; -1 if too few rounds.

    It is the largest rank sum that is as improbable as ``confidence`` allows when the centre is zero:
    each of the ranks 1 to ``count`` is then on either side with the same probability.
    """
    ways = [1]  # How many subsets of the ranks have each sum.
    for rank in range(1, count + 1):
        longer = [*ways, *([0] * rank)]
        for total, number in enumerate(ways):
            longer[total + rank] += number
        ways = longer
    allowed = (1 - confidence) / 2 * 2**count
    seen = 0
    for total, number in enumerate(ways):
        seen += number
        if seen > allowed:
            return total - 1
    return len(ways) - 1


def _log(mine: Sequence[float], theirs: Sequence[float]) -> float:
    count = min(len(mine), len(theirs))
    return math.log(min(mine[:count])) - math.log(min(theirs[:count]))
