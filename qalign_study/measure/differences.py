"""Which of two methods is ahead: differences of two curves' points, problem by problem.

Methods that ran on the same problems are compared by their paired differences over problems. Two
bands that overlap say little: both hold how much easier one problem is than another, which is the
same for both methods. The difference problem by problem does not.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from qalign_core.decide.rules import chain_vote
from qalign_core.errors import InvalidSetting
from qalign_core.types import Array
from qalign_study.measure.curves import Curve, Point, is_level
from qalign_study.measure.intervals import Difference, paired_difference, resampled_sets


@lru_cache(maxsize=4096)
def difference(one: Point, other: Point) -> Difference:
    """The paired difference of two points of the same problems, `one` minus `other`.

    Raises:
        InvalidSetting: they are not of the same number of problems.
    """
    if len(one.each) != len(other.each) or not one.each:
        raise InvalidSetting(
            f"paired differences need the same problems, got {len(one.each)} and "
            f"{len(other.each)}; give two points of one set's curves"
        )
    values, other_values = np.array(one.each), np.array(other.each)
    more: Any = {"n": other.n, "spent": other.spent, "strata": one.strata}
    return paired_difference(one.method, other.method, values, other_values, **more)


def pairs(points: Sequence[Point], a: Curve, b: Curve) -> list[tuple[Point, Point]]:
    """The points of two methods of one set at each budget at which they cost the same, by n."""
    others = {p.n: p for p in points if p.method == b}
    matches = [(p, others[p.n]) for p in points if p.method == a and p.n in others]
    return sorted((pair for pair in matches if is_level(*pair)), key=lambda pair: pair[0].n)


def paired(points: Sequence[Point], a: Curve, b: Curve) -> list[Difference]:
    """The differences of two methods of one set, at each budget at which they cost the same."""
    return [difference(*pair) for pair in pairs(points, a, b)]


def level_n(points: Sequence[Point]) -> int | None:
    """The largest n at which the chain has spent what n samples cost; None if there is none."""
    return max((one.n for one, _ in pairs(points, chain_vote.id, "any")), default=None)


def best_of(points: Sequence[Point]) -> Curve | None:
    """The method that is ahead of each of the others, by their paired differences; None if none."""
    top = max(points, key=lambda p: p.value)
    others = [difference(top, p).verdict for p in points if p is not top]
    return top.method if others and set(others) == {"ahead"} else None


def resampled_weights(point: Point) -> Array:
    """The weight of each problem when problems are resampled, shape [times, problems].

    All points of the same problems have the same weights, so that what they share cancels. For an
    average over sets, problems are resampled within each set, and each set counts the same.
    """
    return resampled_sets(point.strata or (len(point.each),))
