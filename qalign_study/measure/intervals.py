"""How certain a share or a paired difference is (docs/method.md, "Comparing methods").

A share of outcomes 0 or 1 has a Wilson interval: the percentile bootstrap has no width where all
problems agree. A paired difference has a bootstrap interval over problems, which is too narrow
where few problems are discordant; there the exact test of the discordant problems decides.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from qalign_core.types import Array

FEW = 10
"""Discordant problems below which a bootstrap interval is too narrow to decide by itself."""
LEAST = 6
"""Problems below which no paired test reaches 5%: of 5, all one way, p is 2/32."""
RESAMPLES = 4000
"""Resamples of the problems, for differences and averages."""
NARROW = 0.03
"""Methods are equivalent if the interval of their difference stays within this on both sides.

The closest two of the paper's averages over its problem sets (WMV 59.2, MV 62.3) are 3.1 points
apart: methods called equivalent leave no room for a difference that the paper reports as one.
"""
Verdict = Literal["ahead", "behind", "equivalent", "not significant", "too few"]


@dataclass(frozen=True, slots=True)
class Measured:
    """A value with its 95% interval, over `n` problems."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Difference:
    """What method `a` has more than method `b` at one budget, over the same problems.

    Attributes:
        a, b: the methods.
        n: independent samples of the budget.
        spent: mean price of b in the meter's unit; that of a is about the same.
        value: mean of a's values minus b's.
        low, high: its 95 % interval, by bootstrap over problems.
        problems: how many there are.
        discordant: on how many of them a and b differ; of averages over subsets, the sum of the
            differences' sizes.
        p: of the exact test of the discordant problems; None where they are not few.
        verdict: that of the interval, or of the exact test where few problems are discordant.
    """

    a: str
    b: str
    n: int
    spent: float
    value: float
    low: float
    high: float
    problems: int
    discordant: float
    p: float | None
    verdict: Verdict


def wilson(successes: float, trials: float) -> tuple[float, float]:
    """Both ends of the 95% Wilson interval of a share."""
    k, n, z = successes, trials, NormalDist().inv_cdf(0.975)
    middle = (k + z * z / 2) / (n + z * z)
    half = z * math.sqrt(k * (n - k) / n + z * z / 4) / (n + z * z)
    return middle - half if k else 0.0, middle + half if k < n else 1.0


def band(values: ArrayLike, *, among: bool = False) -> tuple[float, float]:
    """Both ends of a 95% interval, from the values of resamples; or the nearest `among` them."""
    how: Literal["nearest", "linear"] = "nearest" if among else "linear"
    low, high = np.quantile(np.asarray(values), [0.025, 0.975], method=how)
    return float(low), float(high)


def band_of_share(each: Array, weights: Array, strata: Sequence[int] = ()) -> tuple[float, float]:
    """Both ends of the 95% interval of a mean over problems, of one set or averaged over sets.

    Wilson for outcomes of one set that are 0 or 1. The bootstrap for averages over subsets or over
    sets, unless the rarer outcome comes from few problems (Kish's effective number): resampling 12
    problems that are all right cannot show one that is not. Wilson at Kish's effective number of
    problems is then wide enough, since no average varies more between problems than an outcome
    does.

    Args:
        each: the value of each problem, shape [n].
        weights: how much each counts when problems are resampled, shape [times, n].
        strata: how many of the problems are of each set, where sets count the same.
    """
    strata = strata or (len(each),)
    counts = 1 / np.repeat(np.array(strata) * len(strata), strata)  # of each problem in the mean
    rounded = each.astype(np.float64).round(12)  # a mean over subsets may miss 1 by rounding
    is_outcome = len(strata) == 1 and bool(np.isin(rounded, (0.0, 1.0)).all())
    of_few = any(_effective(counts * part) < FEW for part in (rounded, 1 - rounded))
    if not (is_outcome or of_few):
        return band(weights @ each)
    if len(strata) == 1:
        return wilson(float(rounded.sum()), len(each))
    n = _effective(counts)  # rounded, so that a share of 1 is one
    return wilson(round(n * float(counts @ each), 9), n)


def _effective(parts: Array) -> float:
    """Kish's effective number of the parts of a sum; 0 where the sum is 0."""
    return round(float(parts.sum() ** 2 / ((parts**2).sum() or 1.0)), 9)


def share_of(each: Sequence[float]) -> Measured:
    """The mean of shares of the problems of one set, at least one, with its interval."""
    values = np.array(each, dtype=np.float64)
    ends = band_of_share(values, resampled_sets((len(values),)))
    return Measured(float(values.mean()), *ends, len(values))


def resampled_problems(rng: np.random.Generator, n: int, times: int) -> Array:
    """How often each of n problems is drawn when as many are drawn again, shape [times, n]."""
    return rng.multinomial(n, np.full(n, 1 / n), times)


@lru_cache(maxsize=8)
def resampled_sets(strata: tuple[int, ...]) -> Array:
    """Weights of the problems when those of each set are resampled, shape [RESAMPLES, n]."""
    rng = np.random.default_rng(0)
    weights = [resampled_problems(rng, n, RESAMPLES) / (n * len(strata)) for n in strata]
    return np.concatenate(weights, axis=1)


def sign_test(gaps: Array, times: int = 10_000, seed: int = 0) -> float:
    """The two-sided p-value of paired differences whose signs are exchanged.

    Of up to 12 differences that are not 0 all signs are tried, of more `times` random ones. For
    outcomes 0 or 1 it is McNemar's exact test, for averages the paired permutation test.

    Args:
        gaps: the difference of each problem, weighted as its mean is.
        times, seed: of the random signs.
    """
    nonzero = gaps[gaps != 0]
    n = len(nonzero)
    if n <= 12:
        signs = 1.0 - 2 * (np.arange(2**n)[:, None] >> np.arange(n) & 1)
    else:
        signs = np.random.default_rng(seed).choice((-1.0, 1.0), (times, n))
        signs[0] = 1  # what was seen is one of them
    seen = abs(nonzero.sum()) - 1e-9 * abs(nonzero).sum()
    return float((abs(signs @ nonzero) >= seen).mean())


def mcnemar(gaps: Array) -> float:
    """The two-sided p-value of McNemar's exact test, at the expected counts where there are shares.

    Where a chain's outcomes are compared with shares of subsets and right answers are rare, the
    differences are far from symmetric: exchanging their signs finds a difference in 30 to 58 of 100
    sets of 8 problems where there is none. At the expected counts this test finds it in 0 of 400.

    Args:
        gaps: the difference of each problem, -1 to 1.
    """
    from scipy.special import betainc  # slow to import

    won, lost = float(gaps.clip(0).sum()), float(-gaps.clip(None, 0).sum())
    # the binomial distribution's tail, which is defined between whole numbers too
    return min(1.0, 2 * float(betainc(max(won, lost), min(won, lost) + 1, 0.5)))


def paired_difference(
    a: str,
    b: str,
    values_a: Array,
    values_b: Array,
    *,
    n: int,
    spent: float,
    strata: tuple[int, ...] = (),
) -> Difference:
    """What method `a` has more than method `b` at a budget, from what both have on each problem.

    Args:
        a, b, n, spent: as `Difference` has them.
        values_a, values_b: what each has: an outcome of each problem, or its share of subsets,
            shape [problems].
        strata: how many of the problems are of each set, where sets count the same.
    """
    gaps, strata = values_a - values_b, strata or (len(values_a),)
    counted = gaps / np.repeat(np.array(strata) * len(strata), strata)
    discordant = float(abs(gaps).sum())
    # the problems of a small set count more in an average over sets, so that few may decide
    decides = discordant if len(strata) == 1 else min(discordant, _effective(abs(counted)))
    p = sign_test(counted) if decides < FEW else None
    if p is not None and any(np.isin(each, (0.0, 1.0)).all() for each in (values_a, values_b)):
        p = max(p, mcnemar(gaps))
    ends = (counted.sum(), *band(resampled_sets(strata) @ gaps))
    # a verdict must not hang on the sign of a rounding error, which differs between processors
    value, low, high = (round(float(end), 9) + 0.0 for end in ends)
    n_problems = len(gaps)
    verdict = _verdict(value, low, high, n_problems, discordant, p)
    return Difference(a, b, n, spent, value, low, high, n_problems, discordant, p, verdict)


def _verdict(
    value: float, low: float, high: float, n_problems: int, discordant: float, p: float | None
) -> Verdict:
    if n_problems < LEAST:
        return "too few"
    if p is not None:
        # no bootstrap of so few: the difference is no larger than the share that is discordant
        most = wilson(discordant, n_problems)[1]
        low, high = (value, value) if p < 0.05 else (-most, most)
    if low > 0 or high < 0:
        return "ahead" if low > 0 else "behind"
    return "equivalent" if max(-low, high) <= NARROW else "not significant"
