"""Intervals cover what they claim, and few problems allow no verdict that they do not support."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest
from test_report import point

from qalign_study.measure.curves import averaged
from qalign_study.measure.differences import best_of, difference
from qalign_study.measure.intervals import (
    FEW,
    NARROW,
    Difference,
    _verdict,
    band,
    band_of_share,
    paired_difference,
    resampled_sets,
    sign_test,
    wilson,
)
from qalign_study.sheet.files import _latex
from qalign_study.sheet.values import Cell, Table
from qalign_study.sheet.words import brief, contrary_verdict, few, gap, in_points, standing


def outcomes(right: int, n: int, skip: int = 0) -> list[float]:
    """`right` of n problems are right, the first ones after `skip`."""
    return [float(skip <= k < skip + right) for k in range(n)]


def against(a: list[float], b: list[float]) -> Difference:
    return difference(point("qalign", a), point("wmv", b))


def coverage(share: float, n: int, times: int = 400) -> tuple[float, float]:
    """How often Wilson and the percentile bootstrap cover a share of n problems."""
    rng, weights = np.random.default_rng(0), resampled_sets((n,))
    covered = np.zeros(2)
    for _ in range(times):
        each = (rng.random(n) < share).astype(float)
        ends = band_of_share(each, weights), band(weights @ each)
        covered += [low <= share <= high for low, high in ends]
    first, second = covered / times
    return float(first), float(second)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_the_interval_of_a_share_covers_it_near_0_and_1_too(share: float) -> None:
    # of 400 intervals that cover at 92 % at least, fewer than 88 % do once in a thousand seeds
    assert coverage(share, 100)[0] >= 0.88


def test_the_bootstrap_of_a_share_near_0_does_not_cover_it() -> None:
    assert coverage(0.01, 100)[1] < 0.7


def test_all_problems_right_leave_a_width_and_averages_over_subsets_are_resampled() -> None:
    weights = resampled_sets((100,))
    low, high = band_of_share(np.ones(100), weights)
    assert (low, high) == (pytest.approx(0.963, abs=1e-3), 1.0)
    rounded = np.where(np.arange(100) % 3, 1 - 2**-52, 1 + 2**-52)  # means over subsets
    assert band_of_share(rounded, weights) == (low, high)
    averages = np.linspace(0.2, 0.8, 100)
    assert band_of_share(averages, weights) == band(weights @ averages)


def test_averages_near_1_of_few_problems_are_not_called_certain() -> None:
    # two of 12 problems have one sample in a hundred that is wrong
    each = np.array([1.0] * 10 + [0.99] * 2)
    weights = resampled_sets((12,))
    assert band(weights @ each)[0] > 0.99, "what resampling alone says"
    low, high = band_of_share(each, weights)
    assert low == pytest.approx(0.755, abs=1e-3)
    assert each.mean() < high <= 1.0
    many = np.tile(each, 10)  # 20 problems carry what is wrong
    wide = resampled_sets((120,))
    assert band_of_share(many, wide) == band(wide @ many)


@pytest.mark.parametrize("sizes", [(20, 20), (12, 300)])
def test_an_average_over_sets_of_which_all_problems_are_right_has_a_width(
    sizes: tuple[int, ...],
) -> None:
    (mean,) = averaged([[point("wmv", [1.0] * n)] for n in sizes])
    n = len(sizes) ** 2 / sum(1 / n for n in sizes)  # problems that a mean over sets amounts to
    assert (mean.low, mean.high) == (pytest.approx(wilson(n, n)[0]), 1.0)
    (none,) = averaged([[point("wmv", [0.0] * n)] for n in sizes])
    assert (none.low, none.high) == (0.0, pytest.approx(wilson(0, n)[1]))
    weights = resampled_sets(sizes)  # the control: what resampling alone says
    assert band(weights @ np.ones(sum(sizes))) == pytest.approx((1.0, 1.0))


def test_an_average_over_sets_with_many_of_both_outcomes_is_resampled_within_each_set() -> None:
    each = [outcomes(15, 20), outcomes(200, 300)]
    (mean,) = averaged([[point("wmv", values)] for values in each])
    weights = resampled_sets((20, 300))
    assert (mean.low, mean.high) == band(weights @ np.concatenate(each))


@pytest.mark.parametrize(("gained", "lost"), [(6, 0), (8, 1), (3, 3), (0, 0), (1, 11)])
def test_the_sign_test_of_outcomes_is_mcnemars_exact_test(gained: int, lost: int) -> None:
    gaps = np.array([1.0] * gained + [-1.0] * lost + [0.0] * 50)
    n = gained + lost
    assert sign_test(gaps) == pytest.approx(binomtest(gained, n).pvalue if n else 1.0)
    assert sign_test(gaps / 300) == sign_test(gaps), "weights of a mean change nothing"


@pytest.mark.parametrize(("n", "share"), [(8, 0.07), (8, 0.14), (50, 0.02), (300, 0.005)])
def test_a_rare_outcome_against_its_own_share_is_no_difference(n: int, share: float) -> None:
    rng = np.random.default_rng(n)
    outcomes, shares = [(rng.random(n) < share) * 1.0 for _ in range(200)], np.full(n, share)
    differences = [paired_difference("a", "b", each, shares, n=1, spent=1.0) for each in outcomes]
    assert sum(each.verdict in ("ahead", "behind") for each in differences) <= 5
    signs = [sign_test(each - shares, 500) < 0.05 for each in outcomes]
    assert np.mean(signs) > 0.1, "the permutation test alone finds differences that are not there"


def test_the_sign_test_of_averages_rejects_as_often_as_it_claims() -> None:
    rng = np.random.default_rng(0)
    same = [sign_test(rng.normal(size=20), 500, k) < 0.05 for k in range(400)]
    apart = [sign_test(rng.normal(1, 1, size=20), 500, k) < 0.05 for k in range(100)]
    assert np.mean(same) <= 0.09  # more than that of 400 at 5 % once in two thousand seeds
    assert np.mean(apart) > 0.9


def test_few_discordant_problems_are_decided_by_the_exact_test_and_said() -> None:
    # the bootstrap alone calls five of 300, all one way, ahead
    five = against(outcomes(205, 300), outcomes(200, 300))
    assert five.low > 0
    assert (five.discordant, five.p) == (5, pytest.approx(2 / 32))
    assert five.verdict == "not significant"
    assert few(five) == "few: they differ on 5 problems, exact p = 0.063"
    assert brief(five) == f"{in_points(five, '+.1f')}; {few(five)}"
    seven = against(outcomes(207, 300), outcomes(200, 300))
    assert (seven.verdict, few(seven)[:29]) == ("ahead", "few: they differ on 7 problem")
    many = against(outcomes(200 + FEW, 300), outcomes(200, 300))
    assert (many.verdict, many.p, few(many)) == ("ahead", None, "")


@pytest.mark.parametrize(
    ("gained", "lost", "n", "verdict", "words"),
    [
        (5, 0, 300, "not significant", "no significant difference"),
        (4, 0, 40, "not significant", "no significant difference"),
        (4, 0, 5, "too few", "too few problems for a verdict"),
        (7, 0, 300, "ahead", ""),
        (0, 7, 300, "behind", ""),
        (2, 2, 40, "not significant", ""),
        (40, 2, 300, "ahead", ""),
    ],
)
def test_a_verdict_against_the_interval_is_said_in_words(gained, lost, n, verdict, words) -> None:
    gap = against(outcomes(gained, n), outcomes(lost, n, n - lost))
    assert gap.verdict == verdict
    assert contrary_verdict(gap) == words
    (row,) = [line for line in _latex_of(gap).splitlines() if "scriptsize" in line]
    assert words in row
    assert ("difference" in row) == (words == "no significant difference")


def _latex_of(gap: Difference) -> str:
    return _latex(Table(pd.DataFrame({"a": [Cell(gap)]}, index=["set"])), "caption")


def test_a_small_set_that_decides_an_average_over_sets_is_few_problems() -> None:
    wins = np.array([1.0] * 3 + [0.0] * 3)  # half of the mean, and 12 of 300 in the other set
    other = np.array([1.0, -1.0] * 6 + [0.0] * 288)
    gaps = np.concatenate([wins, other])
    settings: Any = {"n": 1, "spent": 1.0}
    average = paired_difference("a", "b", gaps, 0 * gaps, **settings, strata=(6, 300))
    assert average.discordant > FEW
    assert (average.low > 0, average.verdict) == (True, "not significant")
    control = paired_difference("a", "b", gaps, 0 * gaps, **settings)  # one set of 306
    assert control.p is None


def test_a_difference_of_few_that_looks_certain_is_often_none() -> None:
    # where two shares are equal, the bootstrap of 100 problems is sure too often; the test is not
    rng, wrong = np.random.default_rng(3), np.zeros(2)
    for _ in range(400):
        a, b = (rng.random((2, 100)) < 0.03).astype(float).tolist()
        gap = difference(point("qalign", a), point("wmv", b))
        sure = gap.low > 0 or gap.high < 0
        wrong += [gap.verdict in ("ahead", "behind"), sure]
    assert wrong[0] / 400 < 0.05
    assert wrong[1] > wrong[0]


def test_four_problems_allow_no_verdict_whatever_they_show() -> None:
    for a, b in ((4, 0), (0, 4), (4, 4), (3, 1)):
        gap = against(outcomes(a, 4), outcomes(b, 4))
        assert gap.verdict == "too few"
        assert "too few problems" in standing(gap)
    assert against(outcomes(8, 8), outcomes(0, 8)).verdict == "ahead"


@pytest.mark.parametrize("seed", [10, 113])  # -1e-17 and 3e-18 by AVX-512, and 0 in truth
def test_an_end_that_is_0_but_for_rounding_decides_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values_a, values_b = ((rng.random(100) < share).astype(float) for share in (0.35, 0.25))
    raw, _ = band(resampled_sets((100,)) @ (values_a - values_b))
    assert abs(raw) < 1e-12
    gap = paired_difference("a", "b", values_a, values_b, n=1, spent=1.0)
    assert (gap.p, gap.verdict) == (None, "not significant")
    assert in_points(gap).endswith(f"(0.0 to {100 * gap.high:.1f})")
    control = _verdict(gap.value, 3e-18, gap.high, 100, gap.discordant, None)
    assert control == "ahead", "or rounding would not matter"


def test_equivalent_needs_the_whole_interval_within_the_margin() -> None:
    both = outcomes(200, 300)
    assert against(both, both).verdict == "equivalent"
    # all agree too, but of 32 problems more than a tenth might not
    assert against(both[:32], both[:32]).verdict == "not significant"
    rng = np.random.default_rng(0)
    wide = against(*(rng.random((2, 300)) < 0.5).astype(float).tolist())
    assert wide.high > NARROW
    assert wide.verdict == "not significant"
    assert gap(wide).startswith(in_points(wide, "+.1f").split()[0] + " percentage points (95% CI ")


def test_bold_is_ahead_of_each_other_rule_and_ties_are_not() -> None:
    tie = [point("qalign", outcomes(20, 32)), point("wmv", outcomes(20, 32))]
    assert best_of(tie) is None
    near = [point("qalign", outcomes(31, 32)), point("wmv", outcomes(30, 32))]
    assert [round(100 * p.value, 1) for p in near] == [96.9, 93.8]
    assert best_of(near) is None
    clear = [point("qalign", outcomes(31, 32)), point("wmv", outcomes(10, 32))]
    assert best_of(clear) == "qalign"
    assert best_of([*clear, point("bon", outcomes(30, 32))]) is None
    assert best_of(clear[:1]) is None, "nothing to be ahead of"
