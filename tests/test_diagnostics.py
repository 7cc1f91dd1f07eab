import math

import numpy as np
import pytest
from finite import TableReward, letters
from hypothesis import given
from hypothesis import strategies as st

from qalign_core.chain.chain import run_chain
from qalign_study.measure.diagnostics import (
    MAX_LAG,
    MIN_STATES,
    Rate,
    acceptance,
    agreement,
    autocorrelation,
    ess,
    ess_per_thousand_tokens,
    mcse,
    rhat_limit,
    split_rhat,
)
from qalign_study.sheet.words import describe_mixing


def autoregressive(rho, n, seed, mean=0.0):
    rng = np.random.default_rng(seed)
    x = [rng.normal()]
    for _ in range(n - 1):
        x.append(rho * x[-1] + math.sqrt(1 - rho * rho) * rng.normal())
    return [mean + v for v in x]


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_band_is_wilsons(counts):
    successes, n = counts
    rate = Rate(*counts)
    low, high = rate.band
    assert 0 <= low <= rate.value <= high <= 1
    for end in (low, high):  # a true share there would lie just 1.96 standard errors away
        error = 1.959963984540054 * math.sqrt(end * (1 - end) / n)
        assert abs(rate.value - end) == pytest.approx(error, abs=1e-12) or end == rate.value
    assert (low == 0) == (successes == 0)
    assert (high == 1) == (successes == n)


def test_nothing_counted_is_no_rate():
    assert (Rate(0, 0).value, Rate(0, 0).band) == (None, None)


async def test_acceptance_leaves_out_the_initial_draw_and_knows_unchanged_proposals():
    chain = run_chain(letters(), TableReward(), "x", beta=0.5, steps=300, seed=1)
    steps = [s async for s in chain]
    rates = acceptance(steps)
    assert rates.overall.trials == 300
    unchanged = [s for s in steps[1:] if s.proposal.response == s.current.response]
    assert unchanged
    assert all(s.accepted for s in unchanged)
    assert rates.changed.trials == 300 - len(unchanged)
    assert rates.changed.successes == rates.overall.successes - len(unchanged)
    assert acceptance(steps[:1]).overall.value is None


def test_independent_draws_count_fully_and_correlated_ones_by_their_autocorrelation():
    # an AR(1) chain with rho = 0.6 has n (1 - rho) / (1 + rho) effective samples: 1/4 of n.
    # Standard errors of these estimates are about 4 and 8 %; the bands are four of them.
    n = 4000
    assert ess([autoregressive(0.0, n, 1)]) == pytest.approx(n, rel=0.16)
    assert ess([autoregressive(0.6, n, 2)]) == pytest.approx(n / 4, rel=0.32)
    assert mcse([autoregressive(0.6, n, 3)]) == pytest.approx(math.sqrt(4 / n), rel=0.2)


def test_autocorrelation_is_that_of_the_process():
    rho = autocorrelation(autoregressive(0.6, 20_000, 4))[:4]
    # standard error about 0.01
    assert rho == pytest.approx([1, 0.6, 0.36, 0.216], abs=0.04)
    assert len(autocorrelation(autoregressive(0.6, 40, 4))) == 11


def test_rhat_is_one_for_mixed_chains_and_not_for_chains_that_disagree():
    describe_mixing = [autoregressive(0.3, 1000, seed) for seed in range(4)]
    assert split_rhat(describe_mixing) < 1.02
    apart = [*describe_mixing[:3], autoregressive(0.3, 1000, 9, mean=3.0)]
    assert split_rhat(apart) > 1.2
    drifting = [v + k / 200 for k, v in enumerate(autoregressive(0.3, 1000, 5))]
    assert split_rhat([drifting]) > 1.2


def test_rhat_of_several_chains_is_arvizs() -> None:
    from arviz_stats.base import array_stats

    for seed in range(20):
        rng = np.random.default_rng(seed)
        values = rng.normal(size=(4, 51)) * rng.uniform(1, 3, (4, 1)) + rng.normal(size=(4, 1))
        values[:, ::3] = np.round(values[:, ::3])  # ties
        expected = float(array_stats.rhat(values, method="rank"))
        assert split_rhat(values) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("n_stuck", [1, 2, 3])
def test_chains_of_which_some_never_move_have_arvizs_numbers(n_stuck: int) -> None:
    from arviz_stats.base import array_stats

    rng = np.random.default_rng(n_stuck)
    for binary in (False, True):
        values = rng.normal(size=(4, 256))
        values = (values > 0.5) * 1.0 if binary else values
        values[:n_stuck] = np.arange(n_stuck)[:, None]
        for measured, expected in (
            (split_rhat(values), array_stats.rhat(values, method="rank")),
            (ess(values), array_stats.ess(values, method="mean")),
            (mcse(values), array_stats.mcse(values, method="mean")),
        ):
            assert measured == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize(
    "chains",
    [
        [[0.0] * 32, [1.0] * 32],
        [[0.0] * 40 + [1.0] * 40],
        [[0.0] * 32 + [1.0] * 32, [2.0] * 64],
        [[0.0] * 64, [0.0] * 64, [1e-9] * 64],
        *([[0.1] * n, [0.3] * n] for n in (33, 100, 256, 1000)),
        [[-1.0, 1.0] * 20 + [-3.0, 3.0] * 20],
    ],
)
def test_parts_that_are_constant_and_differ_have_an_infinite_r_hat(chains) -> None:
    verdict = agreement(chains)
    assert verdict.rhat == math.inf
    assert not verdict.is_mixed
    assert (str(verdict), verdict.finite) == ("infinite", None)


def test_the_words_for_r_hat_tell_too_few_states_from_a_constant_reward() -> None:
    few, constant = agreement([[0.0] * 31] * 2), agreement([[0.0] * 256] * 2)
    assert (str(few), describe_mixing(few)) == ("–", "needs 32 states per chain, has 31")
    assert (str(constant), describe_mixing(constant)) == (
        "–",
        "undefined: the reward never changed",
    )
    apart = describe_mixing(agreement([[0.0] * 256, [1.0] * 256]))
    assert apart.startswith("not yet: the rewards of the chains differ, and within each half of")
    assert not few.is_mixed
    assert not constant.is_mixed


@pytest.mark.parametrize("n_chains", [1, 3])
def test_effective_samples_error_and_autocorrelation_are_arvizs(n_chains) -> None:
    from arviz_stats.base import array_stats

    for seed, rho in enumerate([-0.95, -0.5, 0.0, 0.3, 0.9, 0.999] * 5):
        length = 32 + 7 * seed  # odd and even ones
        values = np.stack([autoregressive(rho, length, [seed, k]) for k in range(n_chains)])
        if seed % 2:
            values = np.round(values + np.arange(length) / 20)  # repeats, and a drift
        for estimate, name in ((ess, "ess"), (mcse, "mcse")):
            expected = float(getattr(array_stats, name)(values, method="mean"))
            assert estimate(values) == pytest.approx(expected, rel=1e-9)
        expected = array_stats.autocorr(values[0])[: min(MAX_LAG, length // 4) + 1]
        assert autocorrelation(values[0]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("values", [[0.0] * 40 + [1.0] + [0.0] * 40, [1e200, -1e200] * 40])
def test_what_cannot_be_computed_is_no_number(values) -> None:
    assert ess([values]) is None
    assert mcse([values]) is None


def test_one_chain_is_compared_half_against_half() -> None:
    # the two halves alike, their quarters not: four quarters would disagree
    rng = np.random.default_rng(8)
    quarter = [rng.normal(mean, 1, 50) for mean in (0, 2, 0, 2)]
    chain = np.concatenate(quarter)
    assert split_rhat([chain]) < rhat_limit(1, 200)
    assert split_rhat(np.stack([chain[:100], chain[100:]])) > 1.2
    # and halves of one mean but of other spreads are told apart by the tail
    wider = np.concatenate([rng.normal(0, 1, 100), rng.normal(0, 4, 100)])
    assert split_rhat([wider]) > 1.1
    assert split_rhat([[0.0] * 40 + [1.0] * 40]) == math.inf


@pytest.mark.parametrize(("n_chains", "n_states"), [(1, 40), (1, 200), (4, 50)])
def test_independent_states_are_called_unmixed_in_five_percent_of_cases(n_chains, n_states) -> None:
    limit = rhat_limit(n_chains, n_states)
    rng = np.random.default_rng(n_states)
    rhats = [split_rhat(rng.normal(size=(n_chains, n_states))) for _ in range(2000)]
    # the standard error of the rate is 0.005; the band is four of them
    assert np.mean([r > limit for r in rhats]) == pytest.approx(0.05, abs=0.02)
    if n_states == 200:
        assert np.mean([r > 1.01 for r in rhats]) > 0.12  # why 1.01 is no limit for so few


def test_with_many_states_the_limit_is_that_of_its_authors() -> None:
    assert rhat_limit(4, 1000) == 1.01
    assert rhat_limit(1, 1000) == 1.01
    assert rhat_limit(1, 200) > rhat_limit(1, 400) > 1.01


def test_a_chain_that_drifts_or_hardly_moves_is_told() -> None:
    # of AR(1) chains with rho = 0.98, 4 effective samples in 400 states
    slow = [agreement([autoregressive(0.98, 400, seed)]) for seed in range(50)]
    assert np.mean([verdict.is_mixed for verdict in slow]) < 0.3
    assert agreement([autoregressive(0.0, 31, 0)]).rhat is None


@pytest.mark.parametrize("diagnose", [ess, split_rhat, mcse])
def test_too_few_steps_or_chains_that_never_moved_give_no_number(diagnose):
    few = [autoregressive(0.0, MIN_STATES - 1, 0)]
    assert diagnose([]) is None
    assert diagnose(few) is None
    assert diagnose([[1.5] * 200]) is None
    assert diagnose([[1.5] * 200, [1.5] * 200]) is None
    assert diagnose([[math.inf] * 200, autoregressive(0.0, 200, 0)]) is None
    assert diagnose([autoregressive(0.0, MIN_STATES, 0)]) is not None


def test_chains_of_different_lengths_are_compared_over_the_shortest():
    long, short = autoregressive(0.3, 500, 0), autoregressive(0.3, 200, 1)
    assert ess([long, short]) == ess([long[:200], short])


def test_effective_samples_per_thousand_tokens():
    assert ess_per_thousand_tokens(50.0, 25_000) == 2
    assert ess_per_thousand_tokens(None, 25_000) is None
    assert ess_per_thousand_tokens(50.0, 0) is None
