"""Methods that ran on the same problems, compared by their paired differences over problems.

Two bands that overlap say little: both hold how much easier one problem is than another, which is
the same for both methods. The difference problem by problem does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from qalign_core.analysis.curves import Curve, Point, resampled_problems
from qalign_core.errors import InvalidSetting

Verdict = Literal["ahead", "behind", "level", "not told apart"]

NARROW = 0.03
"""A difference is level if its interval holds 0 and stays within this on both sides: 6 points.

The closest two of the paper's averages over its problem sets (WMV 59.2, MV 62.3) are 3.1 points
apart: what is called level leaves no room for a difference that the paper reports as one.
"""
SAME_PRICE = 0.03
"""How far apart, relatively, two prices may be to count as equal compute."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What method `a` has more than method `b` at one budget, over the same problems.

    Attributes:
        a, b: the methods.
        n: independent samples of the budget.
        spent: mean price of b in the meter's unit; that of a is the same within `SAME_PRICE`.
        value: mean of a's values minus b's.
        low, high: its 95 % interval, by bootstrap over problems.
    """

    a: Curve
    b: Curve
    n: int
    spent: float
    value: float
    low: float
    high: float

    @property
    def verdict(self) -> Verdict:
        """Where a is: "ahead", "behind", "level", or "not told apart" from b."""
        return verdict(self.low, self.high)


def verdict(low: float, high: float) -> Verdict:
    """What the 95 % interval of a difference allows to say."""
    if low > 0:
        return "ahead"
    if high < 0:
        return "behind"
    return "level" if -low <= NARROW and high <= NARROW else "not told apart"


def is_level(one: Point, other: Point) -> bool:
    """Whether two points cost the same."""
    return abs(one.spent - other.spent) <= SAME_PRICE * other.spent


def difference(one: Point, other: Point, *, n_bootstrap: int = 4000, seed: int = 0) -> Difference:
    """The paired difference of two points of the same problems, `one` minus `other`.

    Raises:
        InvalidSetting: they are not of the same number of problems.
    """
    if len(one.each) != len(other.each) or not one.each:
        raise InvalidSetting(
            f"paired differences need the same problems, got {len(one.each)} and "
            f"{len(other.each)}; give two points of one set's curves"
        )
    gaps = np.array(one.each) - np.array(other.each)
    low, high = np.quantile(_resampled(len(gaps), n_bootstrap, seed) @ gaps, [0.025, 0.975])
    return Difference(
        one.method, other.method, other.n, other.spent, float(gaps.mean()), float(low), float(high)
    )


@lru_cache(maxsize=4)
def _resampled(n: int, times: int, seed: int) -> NDArray[np.float64]:
    """The weight of each of n problems in resampled sets, shape [times, n]: alike for all pairs."""
    return resampled_problems(np.random.default_rng(seed), n, times) / n


def paired(points: Sequence[Point], a: Curve, b: Curve) -> Iterator[Difference]:
    """The differences of two methods of one set, at each budget at which they cost the same."""
    theirs = {p.n: p for p in points if p.method == b}
    for point in points:
        if point.method == a and point.n in theirs and is_level(point, theirs[point.n]):
            yield difference(point, theirs[point.n])
