"""Each method at its own best beta, found on other problems than those that it is reported for.

The problems are dealt into `PARTS` parts by a hash of their ids. At each budget the problems of a
part are decided at the beta at which the method is right most often over the other parts, so that
beta is cross-validated. Chosen on the problems themselves, the best of nine betas would look better
than any of them is. Every problem is decided once, at one beta, and the outcomes are compared
problem by problem, as elsewhere.

Its interval is over problems, with the betas held as they were found (Bayle et al., 2020,
"Cross-validation confidence intervals for test error"): it covers the mean accuracy of the betas
that were found, not how they would vary over other problems to find them on.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from qalign_core.decide.rules import RULES
from qalign_core.types import Array
from qalign_study.measure.curves import Curve, Point, own_curves, weighted_at
from qalign_study.measure.differences import pairs, resampled_weights
from qalign_study.measure.intervals import band_of_share
from qalign_study.measure.record import Draws

PARTS = 5
FACTORS = (1.0, 2**-0.5, 2**0.5, 1 / 2, 2.0, 1 / 4, 4.0, 1 / 8, 8.0)
"""Multiples of the stated beta that weights are tried with; among equals the first is taken."""
LEAST = 2 * PARTS
"""Problems below which no beta is looked for."""


def fold_of(id_: str) -> bytes:
    """The number of a problem, from its id alone: problems sorted by it are in a random order."""
    return hashlib.sha256(id_.encode("utf-8", "surrogatepass")).digest()


def part_of(id_: str) -> int:
    """The part that a problem is dealt into, 0 to `PARTS` - 1."""
    return fold_of(id_)[0] % PARTS


def chosen_elsewhere(values: Array, parts: Array) -> Array:
    """For each problem, the choice that is best over the problems of other parts, shape [n].

    Args:
        values: how each choice does on each problem, shape [choices, n].
        parts: of each problem, shape [n]; two of them at least.
    """
    best = {part: values[:, parts != part].mean(axis=1).argmax() for part in np.unique(parts)}
    return np.array([best[part] for part in parts])


def cross_validated(several: Sequence[Sequence[Point]], runs: Sequence[Draws]) -> list[Point]:
    """The rules that read beta at their own; a rule over a chain if there are several chains.

    Weights are tried at `FACTORS` times the stated beta, a chain at every beta that it ran at.

    Args:
        several: the curves of each run.
        runs: of one set at different betas; the first is at the stated one, and its samples are
            those of the weights. Chains that have not all of its problems are left out.
    """
    ids = [[record.id for record in run.records] for run in runs]
    several = [points for points, its in zip(several, ids, strict=True) if its == ids[0]]
    parts = np.array([*map(part_of, ids[0])])
    reads_beta = runs[0].header.run.has_reward and runs[0].has_pool
    if len(parts) < LEAST or len(set(parts.tolist())) < 2 or not reads_beta:
        return []
    betas = [runs[0].header.run.beta * factor for factor in FACTORS]
    points = []
    for own, id_ in reversed(own_curves().items()):  # rules over samples first
        if RULES[id_].draws == "pool":
            mine = [p for p in several[0] if p.method == id_]
            weighted = weighted_at(RULES[id_], runs[0], betas, [p.n for p in mine])
            points += [_chosen(own, [p] * len(FACTORS), weighted[p.n], parts) for p in mine]
        elif len(several) > 1:
            chains = [[one for one, _ in pairs(each, id_, "any")] for each in several]
            for n in sorted(set.intersection(*({p.n for p in chain} for chain in chains))):
                tried = [next(p for p in chain if p.n == n) for chain in chains]
                values = np.array([p.each for p in tried])
                points.append(_chosen(own, tried, values, parts))
    return points


def _chosen(method: Curve, tried: Sequence[Point], values: Array, parts: Array) -> Point:
    """A method at one budget, every problem at the choice that is best for those of other parts.

    Args:
        method: what it is called.
        tried: the prices of each choice.
        values: how each does on each problem, shape [choices, n].
        parts: of each problem, shape [n].
    """
    chosen = chosen_elsewhere(values, parts)
    each = values[chosen, np.arange(len(parts))]
    shares = np.bincount(chosen, minlength=len(tried)) / len(parts)
    paid = ("used", "spent", "tokens", "waited")
    means = shares @ [[getattr(point, name) for name in paid] for point in tried]
    low, high = band_of_share(each, resampled_weights(tried[0]))
    known: dict[str, Any] = dict(zip(paid, means.tolist(), strict=True))
    known |= {"value": float(each.mean()), "low": low, "high": high, "each": tuple(each.tolist())}
    return replace(tried[0], method=method, reward=math.nan, **known)
