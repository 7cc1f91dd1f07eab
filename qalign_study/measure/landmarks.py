"""Where curves turn and cross, with intervals, and what compute gains over one sample.

All by bootstrap over problems: each time problems are drawn again, the place is looked for again,
so that its interval holds the doubt about where it is and about whether there is one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qalign_core.decide.rules import best_reward
from qalign_core.types import Array
from qalign_study.measure.curves import Curve, Point
from qalign_study.measure.differences import difference, pairs, resampled_weights
from qalign_study.measure.intervals import LEAST, Difference, band


@dataclass(frozen=True, slots=True)
class Turn:
    """Where best-of-n is at its best, among the budgets that were looked at.

    Attributes:
        n: the budget, in samples; `low` and `high` are its 95 % interval.
        last: the largest budget.
        lost: what it has there more than at the last one. The budget was chosen on the same
            problems, which flatters it a little.
    """

    n: int
    low: int
    high: int
    last: int
    lost: Difference

    @property
    def seen(self) -> bool:
        """Whether more samples were seen to do harm: the interval ends before the last budget."""
        return self.high < self.last and self.lost.verdict == "ahead"


def turn(points: Sequence[Point]) -> Turn | None:
    """Where best-of-n is at its best; None with one budget, or too few problems for a verdict."""
    mine = sorted((p for p in points if p.method == best_reward.id), key=lambda p: p.n)
    if len(mine) < 2 or len(mine[0].each) < LEAST:
        return None
    ns = np.array([p.n for p in mine])
    resampled = resampled_weights(mine[0]) @ np.array([p.each for p in mine]).T
    low, high = band(ns[resampled.argmax(axis=1)], among=True)
    best = max(mine, key=lambda p: p.value)
    return Turn(best.n, int(low), int(high), mine[-1].n, difference(best, mine[-1]))


@dataclass(frozen=True, slots=True)
class Crossing:
    """From which compute on one method stays ahead of another.

    Attributes:
        ahead: the method that is ahead at the largest equal compute.
        spent: from where on, between two budgets on a logarithmic scale; 0 if it always is.
        low, high: its 95 % interval; 0 and inf where problems drawn again say "always" or "never".
        last: the largest equal compute.
    """

    ahead: Curve
    spent: float
    low: float
    high: float
    last: float

    @property
    def seen(self) -> bool:
        """Whether the lead at the end is one: problems drawn again do not take it away."""
        return math.isfinite(self.high)


def crossing(points: Sequence[Point], a: Curve, b: Curve) -> Crossing | None:
    """Where two methods cross.

    None if they never cost the same or end up alike, or of too few problems for a verdict.
    """
    both = pairs(points, a, b)
    if not both or len(both[0][0].each) < LEAST:
        return None
    gaps = np.array([np.array(one.each) - np.array(other.each) for one, other in both])
    weights = resampled_weights(both[0][0])
    values = np.array([one.value - other.value for one, other in both])
    if values[-1] == 0:
        return None
    sign = math.copysign(1, values[-1])
    spent = np.array([other.spent for _, other in both])
    low, high = band(_leads(spent, sign * weights @ gaps.T), among=True)
    if difference(*both[-1]).verdict not in ("ahead", "behind"):
        high = math.inf  # where few problems decide, the exact test does
    (place,) = _leads(spent, sign * values[None])
    return Crossing(a if sign > 0 else b, float(place), low, high, float(spent[-1]))


def _leads(spent: Array, values: Array) -> Array:
    """From where on each row stays above 0: 0 if everywhere, inf if not even at the end, shape [k].

    Args:
        spent: the budgets, ascending, shape [n].
        values: at them, shape [k, n].
    """
    behind = values <= 0
    last = behind.shape[1] - 1
    at = last - behind[:, ::-1].argmax(axis=1)  # the last budget at which it is not ahead
    rows, after = np.arange(len(values)), np.minimum(at + 1, last)
    before, then = values[rows, at], values[rows, after]
    share = np.divide(-before, then - before, out=np.zeros(len(values)), where=then != before)
    place = spent[at] * (spent[after] / spent[at]) ** share
    return np.where(~behind.any(axis=1), 0.0, np.where(behind[:, last], math.inf, place))


def gain(point: Point, one: Point) -> tuple[float, float, float]:
    """How many times as often as one sample a method is right, with its 95 % interval.

    Where no sample is right the factor is inf.
    """
    weights = resampled_weights(one)
    with np.errstate(divide="ignore", invalid="ignore"):
        resampled = (weights @ np.array(point.each)) / (weights @ np.array(one.each))
        value = np.divide(point.value, one.value)
    resampled = np.where(np.isnan(resampled), math.inf, resampled)
    ends = band(resampled, among=bool(np.isinf(resampled).any()))
    return (math.inf if np.isnan(value) else float(value)), *ends
