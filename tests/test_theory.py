"""The lab's mathematics, each quantity against a value that was computed another way."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from qalign_core.chain.chain import run_chain
from qalign_core.chain.merging import collect
from qalign_core.decide.methods import best_of_n, majority_vote, weighted_majority_vote
from qalign_core.decide.rules import RULES
from qalign_core.errors import InvalidReward, InvalidSetting
from qalign_core.target import Target
from qalign_core.types import Response, ScoredResponse
from qalign_study.exact.convergence import (
    acceptance_rate,
    acceptance_rate_changed,
    at_beta,
    distances,
    kl_divergence,
    noise_floor,
    second_eigenvalue,
    shares,
    simulate,
    steps_within,
    sweep,
)
from qalign_study.exact.law import EXACT, exact_chain, total_variation
from qalign_study.exact.mistakes import MISTAKES, broken
from qalign_study.exact.world import (
    LANGUAGE_MODELS,
    REWARDS,
    RewardSpec,
    World,
    label,
    make_world,
    preset,
)
from qalign_study.exact.wrong_reward import (
    ANSWERS,
    Example,
    answer_of,
    chance_of_choice,
    outcomes,
    target_over_beta,
)
from qalign_study.measure.mixture import Mixture, fit_mixture, tilt

WORLD = preset()
PRESETS = [(lm, reward) for lm in LANGUAGE_MODELS for reward in REWARDS]


class WorldReward:
    """A world's reward behind the RewardModel protocol."""

    id = "world"

    def __init__(self, world: World) -> None:
        self.world = world

    async def score(self, prompt: str, response: Response) -> float:
        return self.world.score(response)


# --- the world ---


@pytest.mark.parametrize(("lm", "reward"), PRESETS)
def test_every_preset_has_all_its_responses_and_rewards_in_units_of_their_spread(
    lm, reward
) -> None:
    world = preset(lm, reward)
    model = world.lm()
    rewards = np.array([world.score(y) for y in model.support])
    n = 121 if any(row[3] for row in world.table) else 81
    assert len(model.support) == n
    assert model.probabilities @ rewards == pytest.approx(0.0, abs=1e-12)
    assert model.probabilities @ rewards**2 == pytest.approx(1.0, abs=1e-12)
    assert len({label(y) for y in model.support}) == n


def test_edited_weights_are_divided_by_their_sum() -> None:
    world = make_world([[2, 1, 1, 0]] * 4, RewardSpec())
    assert world.table == ((0.5, 0.25, 0.25, 0.0),) * 4


@pytest.mark.parametrize(
    ("table", "spec", "word"),
    [
        ([[1, 1, 1]] * 4, RewardSpec(), "four rows"),
        ([[1, 1, 1, "x"]] * 4, RewardSpec(), "four rows"),
        ([[1, 1, 1, None]] * 4, RewardSpec(), "at the start"),
        ([[1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]], RewardSpec(), "after a"),
        ([[1, 1, 1, 1]] * 3 + [[1, 1, 1, -1]], RewardSpec(), "after c"),
        ([[1, 1, 1, 1]] * 4, RewardSpec((0, 0, 0), 0, 0), "prefers"),
        ([[1, 1, 1, 1]] * 4, RewardSpec((math.nan, 0, 0)), "finite"),
    ],
)
def test_an_edit_that_is_no_world_says_what_is_wrong(table, spec, word) -> None:
    with pytest.raises(InvalidSetting, match=word):
        make_world(table, spec)


# --- convergence ---


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_the_right_rule_falls_below_1e_minus_10_in_every_language_model(name) -> None:
    chain = preset(name).chain(1.0)
    steps = steps_within(chain, 1e-10)
    assert steps is not None
    assert total_variation(chain.after(steps), chain.target) <= 1e-10


def test_distances_are_those_of_powers_of_the_matrix() -> None:
    chain = WORLD.chain(0.7)
    by_step = distances(chain, 70)
    for t in (0, 1, 5, 70):
        power = chain.base @ np.linalg.matrix_power(chain.matrix, t)
        assert by_step[t] == pytest.approx(total_variation(power, chain.target), abs=1e-14)
    assert np.all(np.diff(by_step) <= 1e-15)


def test_the_second_eigenvalue_is_that_of_the_matrix_and_the_slope_of_the_distance() -> None:
    chain = WORLD.chain(1.0)
    by_definition = np.sort(np.abs(np.linalg.eigvals(chain.matrix)))[-2]
    assert second_eigenvalue(chain) == pytest.approx(by_definition, abs=1e-10)
    by_step = distances(chain, 140)
    assert by_step[140] / by_step[139] == pytest.approx(second_eigenvalue(chain), rel=1e-4)


def test_a_wrong_chain_has_no_such_slope() -> None:
    with pytest.raises(InvalidSetting, match="detailed balance"):
        second_eigenvalue(WORLD.chain(1.0, MISTAKES["No length ratio"]))


@pytest.mark.parametrize("beta", [0.3, 1.0, 4.0])
def test_steps_within_is_the_first_step_that_is_near_enough(beta) -> None:
    chain = WORLD.chain(beta)
    by_step = distances(chain, 2000)
    assert steps_within(chain) == int(np.nonzero(by_step <= 0.01)[0][0])


def test_steps_within_gives_up_where_it_takes_too_long() -> None:
    assert steps_within(WORLD.chain(0.05), longest=100) is None


def test_acceptance_is_the_share_that_a_long_run_of_the_engine_accepts() -> None:
    """4,000 steps of `run_chain`; 5 sigma by batch means: a false alarm in about 10^6 runs."""
    chain = WORLD.chain(1.0)
    steps = collect(
        run_chain(WORLD.lm(), WorldReward(WORLD), "x", beta=1.0, steps=4000, seed=3)
    )[101:]  # fmt: skip
    for expected, chosen in (
        (acceptance_rate(chain), steps),
        (acceptance_rate_changed(chain), [s for s in steps if s.changed]),
    ):
        accepted = np.array([s.accepted for s in chosen], dtype=float)
        batches = accepted[: len(accepted) // 30 * 30].reshape(30, -1).mean(axis=1)
        error = batches.std(ddof=1) / math.sqrt(30)
        assert abs(accepted.mean() - expected) < 5 * error


def test_kl_is_the_expected_log_ratio_and_is_infinite_off_the_support() -> None:
    """KL(pi || p) = E_pi[r] / beta - log Z, from the definition of the target."""
    chain = WORLD.chain(0.8)
    log_z = math.log(float(chain.base @ np.exp(chain.rewards / 0.8)))
    expected = float(chain.target @ chain.rewards) / 0.8 - log_z
    assert kl_divergence(chain.target, chain.base) == pytest.approx(expected, abs=1e-12)
    assert kl_divergence(np.array([0.5, 0.5]), np.array([1.0, 0.0])) == math.inf


def test_walked_chains_follow_the_exact_distribution() -> None:
    """Each of 40 seeds' 256 chains at t = 3; chi-square of 10,240 draws, false alarm 1e-6."""
    from scipy.stats import chisquare

    chain = WORLD.chain(1.0)
    n = len(chain.states)
    counts = sum(
        np.bincount(simulate(chain, n_chains=256, steps=3, seed=s)[3], minlength=n)
        for s in range(40)
    )
    expected = 40 * 256 * chain.after(3)
    common = expected >= 5
    observed = np.append(counts[common], counts[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum())
    assert chisquare(observed, wanted).pvalue > 1e-6


def test_the_first_chains_are_the_same_however_many_are_walked() -> None:
    chain = WORLD.chain(1.0)
    one, many = (simulate(chain, n_chains=n, steps=20, seed=1) for n in (1, 256))
    assert np.array_equal(one[:, 0], many[:, 0])
    assert shares(many, 121).sum(axis=1) == pytest.approx(np.ones(21))
    with pytest.raises(InvalidSetting):
        simulate(chain, n_chains=257, steps=1, seed=1)


def test_the_noise_floor_is_what_perfect_draws_show() -> None:
    """By definition for n = 1 and 2; by 2,000 simulated sets of 256 draws within 5 sigma."""
    p = np.array([0.5, 0.3, 0.2])
    by_hand = sum(a * total_variation(np.eye(3)[k], p) for k, a in enumerate(p))
    assert noise_floor(p, 1) == pytest.approx(by_hand, abs=1e-12)
    by_hand = sum(
        p[i] * p[j] * total_variation((np.eye(3)[i] + np.eye(3)[j]) / 2, p)
        for i, j in itertools.product(range(3), repeat=2)
    )
    assert noise_floor(p, 2) == pytest.approx(by_hand, abs=1e-12)
    target = WORLD.chain(1.0).target
    frequencies = np.random.default_rng(5).multinomial(256, target, size=2000) / 256
    seen = 0.5 * np.abs(frequencies - target).sum(axis=1)
    error = seen.std() / math.sqrt(len(seen))
    assert abs(noise_floor(target, 256) - seen.mean()) < 5 * error


# --- detailed balance by hand ---


def test_both_flows_of_every_pair_are_equal_and_are_those_of_the_matrix() -> None:
    chain = WORLD.chain(1.0)
    rng = np.random.default_rng(0)
    for a, b in rng.integers(0, 121, size=(200, 2)):
        if a == b:
            continue
        forth, back = (chain.flow(*pair) for pair in ((a, b), (b, a)))
        assert forth.total == pytest.approx(chain.target[a] * chain.matrix[a, b], rel=1e-12)
        assert forth.total == pytest.approx(back.total, rel=1e-12)
        for index in range(4):  # not only in sum: through each index
            assert forth.through(index) == pytest.approx(back.through(index), rel=1e-12)


@pytest.mark.parametrize(
    "rule", [r for r in MISTAKES.values() if r.factors], ids=lambda rule: rule.name
)
def test_the_flows_of_a_wrong_rule_are_those_of_its_matrix_and_some_pair_is_unequal(
    rule,
) -> None:
    chain = WORLD.chain(1.0, rule)
    unequal = 0.0
    rng = np.random.default_rng(0)
    for a, b in rng.integers(0, len(chain.states), size=(150, 2)):
        if a == b:
            continue
        forth, back = (chain.flow(*pair) for pair in ((a, b), (b, a)))
        assert forth.total == pytest.approx(chain.target[a] * chain.matrix[a, b], rel=1e-11)
        unequal = max(unequal, abs(forth.total - back.total))
    assert unequal > 1e-6


def test_a_flow_needs_two_responses_and_a_rule_that_counts_every_step() -> None:
    with pytest.raises(InvalidSetting, match="two different"):
        WORLD.chain(1.0).flow(3, 3)
    with pytest.raises(InvalidSetting, match="Rejected"):
        WORLD.chain(1.0, MISTAKES["Rejected steps dropped"]).flow(3, 4)


# --- break it ---


@pytest.mark.parametrize("name", MISTAKES)
def test_every_mistake_ends_away_from_the_target_at_the_default_settings(name) -> None:
    mistaken = broken(WORLD, 1.0, MISTAKES[name])
    assert mistaken.distance > 1e-3
    # its limit is a limit: one more step changes nothing
    assert total_variation(mistaken.limit @ mistaken.chain.matrix, mistaken.limit) < 1e-9
    lengths = [len(y) for y in mistaken.chain.states]
    assert mistaken.mean_length[1] == pytest.approx(float(mistaken.chain.target @ lengths))


def test_no_mistake_no_distance() -> None:
    assert broken(WORLD, 1.0, EXACT).distance < 1e-10


# --- beta ---


def test_the_sweep_goes_from_the_best_response_to_the_language_model() -> None:
    points = sweep(WORLD)
    assert [p.beta for p in points] == sorted(p.beta for p in points)
    assert np.all(np.diff([p.kl for p in points]) < 1e-12)
    assert np.all(np.diff([p.mean_reward for p in points]) < 1e-12)
    assert points[-1].kl < 2e-3
    best = max(WORLD.score(y) for y in WORLD.lm().support)
    assert points[0].mean_reward == pytest.approx(best, abs=0.1)


def test_one_beta_agrees_with_a_chain_built_from_scratch() -> None:
    here = at_beta(WORLD, 0.6)
    chain = exact_chain(WORLD.lm(), WORLD.score, Target(0.6))
    alpha = sum(chain.target[a] * chain.acceptance[a] for a in range(len(chain.states)))
    assert here.acceptance == pytest.approx(alpha)
    assert here.steps == int(np.nonzero(distances(chain, 500) <= 0.01)[0][0])


# --- a wrong reward ---


def sample(answer: str, example: Example) -> ScoredResponse:
    response = Response((ANSWERS.index(answer) + 1, 4), answer, True)
    return ScoredResponse(response, example.score(response))


def decisions(example: Example, answers: tuple[str, ...]) -> dict[str, str | None]:
    """What the core's own decision rules say of these answers."""
    samples = [sample(a, example) for a in answers]
    return {
        "bon": best_of_n(samples, answer_of).answer,
        "mv": majority_vote(samples, answer_of).answer,
        "wmv": weighted_majority_vote(samples, answer_of, target=Target(example.beta)).answer,
    }


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_the_outcomes_are_the_sum_over_every_sequence_of_samples_and_states(n) -> None:
    """3^n sequences of answers for the samples; n-step paths of the chain for its states."""
    example = Example(0.03, 2.5, 0.9)
    exact = {o.method: o.answers for o in outcomes(example, (n,))}
    brute = {method: dict.fromkeys(ANSWERS, 0.0) for method in RULES}
    chain = example.chain()
    group = [ANSWERS.index(answer_of(y.text)) for y in chain.states]
    # lump the matrix by hand: weight of every sequence of answers along the chain
    for answers in itertools.product(ANSWERS, repeat=n):
        p = math.prod(example.base[ANSWERS.index(a)] for a in answers)
        rules = decisions(example, answers)
        for method, answer in rules.items():
            brute[method][answer] += p
        inside = [np.array([g == ANSWERS.index(a) for g in group], float) for a in answers]
        d = chain.base * inside[0]
        for mask in inside[1:]:
            d = (d @ chain.matrix) * mask
        most = max(map(answers.count, answers))
        tied = [answer for answer in ANSWERS if answers.count(answer) == most]
        for answer in tied:
            brute["qalign"][answer] += float(d.sum()) / len(tied)
    for method in RULES:
        assert exact[method] == pytest.approx(tuple(brute[method].values()), abs=1e-12)


def test_the_example_is_a_suffix_chain_and_not_an_independence_sampler() -> None:
    chain = Example().chain()
    assert len(chain.states) == 9
    assert np.abs(chain.target @ chain.matrix - chain.target).max() < 1e-12
    # an independence sampler would propose, and here accept, alike from every state
    assert np.abs(chain.matrix[0, 1:3] - chain.matrix[4, 1:3]).max() > 0.01


def test_best_of_n_climbs_in_proxy_reward_while_its_accuracy_collapses() -> None:
    every = outcomes(Example())
    best = [o for o in every if o.method == "bon"]
    assert all(b.proxy > a.proxy for a, b in itertools.pairwise(best))
    top = max(o.accuracy for o in best)
    assert top > 0.9
    assert best[-1].accuracy < 0.3
    chain = [o for o in every if o.method == "qalign"]
    assert all(b.accuracy > a.accuracy for a, b in itertools.pairwise(chain))
    assert chain[-1].accuracy > 0.9


def test_below_hack_beta_the_target_itself_prefers_the_hack() -> None:
    example = Example()
    for factor, hacked in ((0.99, True), (1.01, False)):
        share = Example(beta=example.hack_beta * factor).target()
        assert bool(share[2] > share[0]) is hacked
    for factor, right in ((0.99, True), (1.01, False)):
        share = Example(beta=example.right_beta * factor).target()
        assert bool(share[0] > share[1]) is right
    hacked_chain = Example(hack_mass=0.05, beta=0.3)
    small = {o.method: o for o in outcomes(hacked_chain) if o.n == 128}
    assert hacked_chain.target()[2] > 0.9
    assert small["qalign"].answers[2] > 0.8


def test_the_targets_of_answers_are_those_of_the_nine_responses() -> None:
    example = Example(0.05, 4.0, 1.3)
    chain = example.chain()
    for k, answer in enumerate(ANSWERS):
        named = np.array([answer_of(y.text) == answer for y in chain.states])
        mass = chain.target[named].sum()
        assert example.target()[k] == pytest.approx(mass)
    assert target_over_beta(example, (1.3,))[0] == pytest.approx(example.target())


@pytest.mark.parametrize(
    ("of", "shares"),
    [((2, 2, 0), (1 / 2, 1 / 2, 0)), ((1, 1, 1), (1 / 3, 1 / 3, 1 / 3)), ((0, 1, 0), (0, 1, 0))],
)
def test_a_tied_vote_counts_as_its_expectation_whatever_the_rewards(of, shares) -> None:
    counts = np.zeros((sum(of) + 1, sum(of) + 1))
    counts[of[0], of[1]] = 1.0
    assert chance_of_choice(RULES["mv"], counts, Example()) == pytest.approx(shares)


@pytest.mark.parametrize("settings", [{"hack_mass": 0.0}, {"hack_mass": 0.6}, {"hack_reward": 1.0}])
def test_an_example_that_is_no_hack_is_refused(settings) -> None:
    with pytest.raises(InvalidSetting):
        Example(**settings)


# What nobody would type


@pytest.mark.parametrize("huge", [1e200, 1e308, -1e308, math.inf, math.nan, 10**400])
def test_a_number_without_a_square_is_refused_in_one_sentence(huge):
    table = [list(row) for row in LANGUAGE_MODELS["Mixed"]]
    for spec in (RewardSpec((huge, 0.0, 0.0)), RewardSpec(length=huge), RewardSpec(gem=huge)):
        with pytest.raises(InvalidSetting, match="numbers from"):
            make_world(table, spec)
    table[0][0] = huge
    with pytest.raises(InvalidSetting, match=r"table|weights"):
        make_world(table, RewardSpec())
    with pytest.raises(InvalidSetting):
        Example(hack_reward=huge)
    with pytest.raises(InvalidSetting):
        Mixture((1.0,), (huge,), (1.0,))
    if isinstance(huge, float):
        with pytest.raises(InvalidReward):
            fit_mixture([*range(20), huge])
    for draw in (WORLD.chain, lambda beta: outcomes(Example(beta=beta))):
        if isinstance(huge, float) and not abs(huge) <= 1e300:
            with pytest.raises(InvalidSetting, match="beta must be"):
                draw(huge)


@pytest.mark.parametrize("tiny", [1e-308, 5e-324])
def test_a_tiny_beta_leaves_the_best_response_alone_and_no_nan(tiny):
    chain = WORLD.chain(tiny)
    assert chain.target.max() == 1.0
    assert chain.states[int(chain.target.argmax())] == chain.states[int(chain.rewards.argmax())]
    assert np.isfinite(chain.matrix).all()
    assert {o.answers for o in outcomes(Example(beta=tiny)) if o.method == "wmv"}
    with pytest.raises(InvalidSetting, match="too small for these rewards"):
        tilt(Mixture((1.0,), (1.0,), (1.0,)), tiny)
