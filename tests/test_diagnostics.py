"""Diagnostics agree with theory where theory knows the answer, and are silent where it does not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from finite import TableReward, letters
from scipy.stats import binomtest

from qalign_core import collect, run_chain
from qalign_core.diagnostics import (
    acceptance,
    autocorrelation,
    effective_states,
    rank_histogram,
    split_rhat,
    standard_error,
    wilson_interval,
)
from qalign_core.errors import InvalidSetting


def ar1(rho: float, n_chains: int, n: int, seed: int = 0) -> np.ndarray:
    """Stationary first-order autoregressions of variance 1."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(n_chains, n)) * math.sqrt(1 - rho**2)
    rows = np.empty((n_chains, n))
    rows[:, 0] = rng.normal(size=n_chains)
    for t in range(1, n):
        rows[:, t] = rho * rows[:, t - 1] + noise[:, t]
    return rows


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_effective_states_and_their_error_follow_the_autocorrelation(rho: float) -> None:
    """An AR(1) chain of n has n (1 - rho) / (1 + rho) effective states."""
    rows = ar1(rho, 4, 4000)
    expected = rows.size * (1 - rho) / (1 + rho)
    assert effective_states(rows) == pytest.approx(expected, rel=0.2)
    assert standard_error(rows) == pytest.approx(1 / math.sqrt(expected), rel=0.2)
    assert autocorrelation(rows[0], 3) == pytest.approx([rho**k for k in range(4)], abs=0.1)


def test_rhat_and_ranks_see_chains_that_disagree() -> None:
    same = ar1(0.3, 4, 500)
    apart = same + np.array([[0], [0], [0], [3]])
    assert split_rhat(same) < 1.02
    assert split_rhat(apart) > 1.3
    assert rank_histogram(same).sum() == same.size
    assert rank_histogram(same).min() > 20
    assert rank_histogram(apart)[3, 0] == 0


def test_too_few_states_say_nothing() -> None:
    short, constant = [[1.0, 2.0] * 5], [[1.5] * 100] * 2
    for estimate in (effective_states, split_rhat, standard_error, rank_histogram):
        assert estimate(short) is None
        assert estimate(constant) is None
        assert estimate([]) is None
    assert autocorrelation(short[0]) is None
    assert split_rhat([list(range(100))]) is None
    assert effective_states([np.r_[np.zeros(50), np.ones(50)]]) is None


def test_acceptance_counts_what_differs_apart() -> None:
    steps = collect(run_chain(letters(), TableReward(), "x", beta=0.3, steps=400, seed=1))
    rates = acceptance(steps)
    moved = [s for s in steps[1:] if s.proposal.response.tokens != s.current.response.tokens]
    assert (rates.n, rates.n_changed) == (400, len(moved))
    assert rates.changed == sum(s.accepted for s in moved) / len(moved)
    assert rates.overall > rates.changed > 0
    nothing = acceptance(steps[:1])
    assert nothing.overall is None
    assert nothing.changed is None


@pytest.mark.parametrize(("successes", "n"), [(0, 5), (3, 5), (50, 100), (1000, 1000)])
def test_the_interval_is_wilsons(successes: int, n: int) -> None:
    expected = binomtest(successes, n).proportion_ci(method="wilson")
    assert wilson_interval(successes, n) == pytest.approx((expected.low, expected.high), abs=1e-6)
    assert wilson_interval(0, 0) == (0.0, 1.0)
    with pytest.raises(InvalidSetting):
        wilson_interval(6, 5)
