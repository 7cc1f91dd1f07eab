import math

import numpy as np
import pytest
from finite import TableReward, correlated_reward, letters
from hypothesis import given, settings
from hypothesis import strategies as st

from qalign_core.chain.chain import run_chain
from qalign_core.decide.arrays import softmax
from qalign_core.errors import InvalidReward, InvalidSetting
from qalign_core.run import Run
from qalign_core.target import Scores, Target
from qalign_study.exact.law import exact_chain
from qalign_study.measure.mixture import Mixture, best_of_n_as_alignment, fit_mixture, tilt
from qalign_study.measure.tuning import Proposals, beta_for, kl_from_base, propose, tune_beta

NORMAL = Mixture((1.0,), (0.0,), (1.0,))
BIMODAL = Mixture((0.6, 0.4), (-4.0, 3.0), (2.5, 1.0))

mixtures = st.builds(
    lambda w, a, b, s, t: Mixture((w, 1 - w), (a, b), (s, t)),
    st.floats(0.05, 0.95),
    st.floats(-5, 5),
    st.floats(-5, 5),
    st.floats(0.2, 3),
    st.floats(0.2, 3),
)


@settings(max_examples=50)
@given(mixtures, st.floats(0.5, 5))
def test_tilting_is_multiplying_the_density_by_exp_r_over_beta(mixture, beta):
    tilted = tilt(mixture, beta)
    r = np.linspace(-80, 80, 20_001)
    log_product = np.log(np.maximum(mixture.density(r), 1e-300)) + r / beta
    product = np.exp(log_product - log_product.max())
    # where the base density underflows there is nothing to compare
    product /= product.sum() * (r[1] - r[0])
    assert np.abs(product - tilted.density(r)).max() < 1e-6 * tilted.density(r).max() + 1e-9


def test_tilting_survives_a_tiny_beta_and_refuses_a_wrong_one():
    tilted = tilt(BIMODAL, 1e-3)
    assert tilted.weights == (1.0, 0.0)
    assert tilted.means[0] == pytest.approx(-4 + 2.5**2 * 1e3)
    with pytest.raises(InvalidSetting, match="beta"):
        tilt(BIMODAL, 0.0)


def test_two_components_are_found_where_there_are_two_and_one_where_there_is_one():
    rng = np.random.default_rng(0)
    low, high = rng.normal(-4, 2.5, 600), rng.normal(5, 1, 400)
    fit = fit_mixture(np.concatenate([low, high]))
    # four standard errors of each estimate, roughly
    assert fit.weights == pytest.approx((0.6, 0.4), abs=0.08)
    assert fit.means == pytest.approx((-4, 5), abs=0.5)
    assert fit.sds == pytest.approx((2.5, 1.0), abs=0.4)
    assert fit.bic < fit.bic_other
    assert fit.dominant == 0
    single = fit_mixture(rng.normal(1, 2, 1000))
    assert len(single.weights) == 1
    assert (single.means[0], single.sds[0]) == pytest.approx((1, 2), abs=0.3)


def test_too_few_or_equal_rewards_have_no_mixture():
    assert fit_mixture([]) is None
    assert fit_mixture([1.0] * 15) is None
    assert fit_mixture([2.5] * 100) is None
    assert fit_mixture([0.0, 1.0] * 50) is not None
    with pytest.raises(InvalidReward, match="finite"):
        fit_mixture([math.nan] * 100)


def test_the_maximum_of_n_is_nearly_the_gumbel_distribution():
    # its mean is a + 0.5772 b; the limit is slow: at n = 32 it is 0.063 off
    rng = np.random.default_rng(1)
    for n in (32, 256, 1024):
        gumbel = best_of_n_as_alignment(NORMAL, n)
        maxima = rng.normal(size=(4000, n)).max(axis=1)
        assert gumbel.a + 0.5772 * gumbel.b == pytest.approx(maxima.mean(), abs=0.08)


def test_beta_star_puts_the_tilted_mode_on_best_of_ns():
    wide_above = Mixture((0.6, 0.4), (-4.0, 3.0), (1.0, 2.5))
    for n in (32, 1024):
        match = best_of_n_as_alignment(wide_above, n)
        tilted = tilt(wide_above, match.beta)
        assert tilted.means[1] == pytest.approx(match.a)
        assert match.b < 2.5  # it matches the mode, not the variance


@pytest.mark.parametrize("n", [32, 64])
def test_no_beta_is_named_where_the_largest_reward_comes_from_the_narrower_component(n):
    rng = np.random.default_rng(n)
    low, high = rng.normal(-4, 2.5, (1000, n)), rng.normal(3, 1, (1000, n))
    is_high = rng.random((1000, n)) < 0.4
    best = np.where(is_high, high, low).argmax(1)
    assert is_high[np.arange(1000), best].mean() > 0.9
    with pytest.raises(InvalidSetting, match="still comes from the other one"):
        best_of_n_as_alignment(BIMODAL, n)


def test_the_formulas_of_the_paper_by_hand():
    match = best_of_n_as_alignment(NORMAL, 100)
    root = math.sqrt(2 * math.log(100))
    c = root - (math.log(math.log(100)) + math.log(4 * math.pi)) / (2 * root)
    assert (match.c, match.b, match.a, match.beta) == pytest.approx((c, 1 / root, c, 1 / c))


@pytest.mark.parametrize(("n", "weight"), [(1, 1.0), (2, 1.0), (30, 0.05)])
def test_too_small_an_n_is_refused_instead_of_a_nonsense_beta(n, weight):
    mixture = Mixture((weight, 1 - weight), (0.0, 0.0), (2.0, 1.0))
    with pytest.raises(InvalidSetting, match="larger n"):
        best_of_n_as_alignment(mixture, n)


@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=50), st.floats(0.01, 100))
def test_kl_lies_between_zero_and_log_n(rewards, beta):
    weights = softmax(np.array(rewards), beta)
    assert 0 <= kl_from_base(weights) <= math.log(len(rewards)) + 1e-9


def test_kl_is_that_of_the_target():
    # normal rewards: tilting by 1/beta costs sigma^2 / (2 beta^2)
    rewards = np.random.default_rng(2).normal(0, 1.5, 200_000)
    assert kl_from_base(softmax(rewards, 2.0)) == pytest.approx(1.5**2 / 8, rel=0.05)
    lm = letters()
    chain = exact_chain(lm, correlated_reward, Target(0.8))
    exact = np.sum(chain.target * np.log(chain.target / chain.base))
    rewards = np.random.default_rng(3).choice(chain.rewards, 100_000, p=chain.base)
    assert kl_from_base(softmax(rewards, 0.8)) == pytest.approx(exact, rel=0.05)
    both = np.array([softmax(rewards, 0.8), softmax(rewards, 8.0)])
    assert kl_from_base(both).tolist() == [kl_from_base(each) for each in both]


# --- tuning ----------------------------------------------------------------------------------


def exact_changed_acceptance(beta):
    chain = exact_chain(letters(), correlated_reward, Target(beta))
    accepted = chain.target @ (chain.acceptance - chain.unchanged)
    return float(accepted / (chain.target @ (1 - chain.unchanged)))


def exact_beta(target=0.5):
    low, high = 0.05, 20.0
    for _ in range(16):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if exact_changed_acceptance(middle) < target else (low, middle)
    return math.sqrt(low * high)


@pytest.mark.parametrize("start", [0.05, 0.5, 20.0])
async def test_the_tuned_beta_gives_the_target_acceptance_in_the_long_run(start):
    tuned = await tune_beta(
        letters(),
        TableReward(),
        ["a", "b", "c", "d", "e", "f"],
        Run(beta=start, steps=160, seed=1),
    )
    # about 500 changed proposals in 6 chains: the standard error of the rate is about 0.03
    assert exact_changed_acceptance(tuned.beta) == pytest.approx(0.5, abs=0.1)
    assert tuned.low < tuned.beta < tuned.high
    assert tuned.acceptance == pytest.approx(0.5, abs=1e-3)
    assert tuned.overall > tuned.acceptance
    assert tuned.rounds[0] == start
    assert tuned.cost.generated > 0


async def test_the_band_holds_the_right_beta():
    right, hits = exact_beta(), 0
    for seed in range(10):
        proposals, _ = await propose(
            letters(), TableReward(), "abcdefgh", Run(beta=0.6, steps=64, seed=seed)
        )
        tuned = beta_for(proposals, 0.5, n_bootstrap=400)
        hits += tuned.low <= right <= tuned.high
    # a band of 90 % (eight prompts make it a little narrow) misses 4 of 10 once in 80 seeds
    assert hits >= 7


async def test_proposals_at_one_beta_tell_the_acceptance_at_others():
    proposals, _ = await propose(
        letters(), TableReward(), "abcdefgh", Run(beta=0.8, steps=200, seed=3)
    )
    for beta in (0.55, 0.8, 1.2):
        acceptance = proposals.acceptance(beta)
        # 1,200 proposals, fewer effective ones at other betas: four standard errors
        assert acceptance == pytest.approx(exact_changed_acceptance(beta), abs=0.1)
    assert proposals.acceptance(0.01) is None  # too far away to tell


async def test_at_their_own_beta_the_acceptance_is_the_mean_of_the_kernels():
    chain = run_chain(letters(), TableReward(), "x", beta=0.5, steps=100, seed=3, chain=0)
    steps = [s async for s in chain]
    proposals, _ = await propose(letters(), TableReward(), ["x"], Run(beta=0.5, steps=100, seed=3))
    kept = [s for s in steps if s.t > 25]
    alpha = [math.exp(s.log_alpha) for s in kept]
    assert proposals.acceptance(0.5, changed_only=False) == pytest.approx(np.mean(alpha))
    alpha = [math.exp(s.log_alpha) for s in kept if s.changed]
    assert proposals.acceptance(0.5) == pytest.approx(np.mean(alpha))


async def test_one_prompt_can_be_tuned_and_the_same_seed_gives_the_same_beta():
    run = Run(steps=100, seed=4)
    first = await tune_beta(letters(), TableReward(), ["x"], run)
    assert first == await tune_beta(letters(), TableReward(), ["x"], run)
    proposals, _ = await propose(letters(), TableReward(), ["x"], Run(beta=1.0, steps=100, seed=4))
    assert len(proposals.changed) == 75


def proposals_of(old, new, changed=True):
    n = len(old)
    return Proposals(
        old=Scores(np.array(old, dtype=float)),
        new=Scores(np.array(new, dtype=float)),
        correction=(),
        changed=np.full(n, changed),
        prompt=np.zeros(n, dtype=int),
        target=Target(1.0),
    )


def test_where_beta_decides_nothing_it_says_so():
    with pytest.raises(InvalidSetting, match="none of 3 proposals differs"):
        beta_for(proposals_of([0, 0, 0], [1, 2, 3], changed=False), 0.5)
    with pytest.raises(InvalidSetting, match="distinguishes responses"):
        beta_for(proposals_of([0, 1], [0, 1]), 0.5)


def test_the_beta_of_two_proposals_by_hand():
    # one is always accepted, the other with exp(-1 / beta): 0.75 on average at 1 / log 2
    tuned = beta_for(proposals_of([0, 0], [1, -1]), 0.75)
    assert tuned.reached
    assert tuned.beta == pytest.approx(1 / math.log(2), rel=1e-3)
    # three of four are accepted at every beta: 0.5 is never reached, and lies below if anywhere
    tuned = beta_for(proposals_of([0] * 4, [1, 1, 1, -1]), 0.5)
    assert not tuned.reached
    assert tuned.beta < 0.01


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"acceptance": 0.0}, "between 0 and 1"),
        ({"acceptance": 1.0}, "between 0 and 1"),
        ({"steps": 7}, "steps"),
        ({"rounds": 0}, "rounds"),
        ({"prompts": []}, "at least one prompt"),
    ],
)
async def test_settings_out_of_range_are_refused(change, message):
    options = {"prompts": ["x"], "steps": 8} | change
    run = Run(steps=options.pop("steps"))
    with pytest.raises(InvalidSetting, match=message):
        await tune_beta(letters(), TableReward(), run=run, **options)
