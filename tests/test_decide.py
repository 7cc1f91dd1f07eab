import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from finite import TableReward, letters, suffix_log_alpha
from hypothesis import example, given, settings
from hypothesis import strategies as st

from qalign_core.chain.chain import run_chain
from qalign_core.decide.methods import (
    best_of_n,
    chain_states,
    effective_sample_size,
    importance_weights,
    majority_vote,
    minimum_bayes_risk,
    waste_recycling,
    weighted_majority_vote,
)
from qalign_core.decide.rouge import rouge1
from qalign_core.errors import InvalidReward, InvalidSetting
from qalign_core.record.trace import Trace
from qalign_core.target import Target
from qalign_core.types import Cost, Response, ScoredResponse, Step
from qalign_study.exact.law import exact_chain


def sample(text, reward=0.0):
    return ScoredResponse(Response(tuple(text.encode()) or (0,), text, True), reward)


def extract(text):
    """The first character is the answer; a text that begins with '-' has none."""
    return None if text[:1] in ("", "-") else text[0]


# Few answers and few rewards, so that ties and empty answers are common.
texts = st.sampled_from(["a1", "a2", "b1", "b2", "c", "-", "--"])
samples_lists = st.lists(
    st.builds(sample, texts, st.sampled_from([-1.0, 0.0, 0.125, 0.25, 0.375, 1.0])),
    min_size=1,
    max_size=12,
)


def brute_force_vote(samples, weights):
    """The rule in exact arithmetic: weight, then first appearance."""
    best = None
    for i, s in enumerate(samples):
        answer = extract(s.response.text)
        if answer is None or any(extract(t.response.text) == answer for t in samples[:i]):
            continue
        members = [j for j, t in enumerate(samples) if extract(t.response.text) == answer]
        weight = sum(Fraction(weights[j]) for j in members)
        if best is None or weight > best[2]:
            best = (answer, members, weight)
    if best is None:
        return None, None, []
    answer, members, weight = best
    top = max(samples[j].reward for j in members)
    chosen = next(j for j in members if samples[j].reward == top)
    return answer, chosen, weight / sum(Fraction(w) for w in weights)


@settings(max_examples=200)
@given(samples_lists)
def test_majority_vote_is_the_rule_in_exact_arithmetic(samples):
    check_vote(samples)


def test_majority_vote_is_the_rule_in_five_thousand_random_cases():
    rng = random.Random(0)
    for _ in range(5000):
        n = rng.randint(1, 12)
        answers = rng.choices(["a1", "a2", "b1", "b2", "c", "-", "--"], k=n)
        rewards = rng.choices([-1.0, 0.0, 0.125, 0.25, 0.375, 1.0], k=n)
        check_vote([sample(a, r) for a, r in zip(answers, rewards, strict=True)])


def check_vote(samples):
    decision = majority_vote(samples, extract)
    answer, chosen, share = brute_force_vote(samples, [1] * len(samples))
    assert (decision.answer, decision.index) == (answer, chosen)
    if answer is None:
        assert decision.chosen is None
        assert decision.shares == ()
    else:
        assert decision.chosen is samples[chosen]
        assert decision.shares[0] == (answer, pytest.approx(float(share)))
    abstained = sum(extract(s.response.text) is None for s in samples) / len(samples)
    assert math.isclose(sum(s for _, s in decision.shares) + abstained, 1, abs_tol=1e-12)


@settings(max_examples=200)
@given(samples_lists, st.data())
def test_a_weighted_vote_is_the_rule_in_exact_arithmetic(samples, data):
    quarters = st.integers(0, 8).map(lambda k: k / 4)
    weights = data.draw(st.lists(quarters, min_size=len(samples), max_size=len(samples)))
    if not any(weights):
        weights[0] = 1.0
    decision = majority_vote(samples, extract, weights=weights)
    assert (decision.answer, decision.index) == brute_force_vote(samples, weights)[:2]
    assert math.isclose(math.fsum(decision.weights), 1)


@settings(max_examples=200)
@given(samples_lists)
@example([sample("b1", -1.0), sample("a1", -1.0), sample("a2"), sample("b2")])
def test_minimum_bayes_risk_with_exact_match_is_majority_voting_ties_included(samples):
    def exact_match(y, other):
        return float(extract(y) is not None and extract(y) == extract(other))

    vote = majority_vote(samples, extract)
    risk = minimum_bayes_risk(samples, exact_match, extract=extract)
    assert risk.answer == vote.answer
    if vote.answer is not None:
        assert risk.scores == pytest.approx(vote.scores)


@settings(max_examples=200)
@given(samples_lists, st.data())
def test_minimum_bayes_risk_is_the_rule_by_brute_force(samples, data):
    weights = data.draw(st.lists(st.integers(1, 5), min_size=len(samples), max_size=len(samples)))

    def utility(y, other):  # not symmetric
        return (len(y) + 2 * len(other) + 3 * (y[0] == other[0])) / 16

    def key(i):
        pairs = [utility(samples[i].response.text, t.response.text) for t in samples]
        return sum(Fraction(u) * w for u, w in zip(pairs, weights, strict=True)), -i

    decision = minimum_bayes_risk(samples, utility, weights)
    assert decision.index == max(range(len(samples)), key=key)


@given(samples_lists)
def test_best_of_n_takes_the_first_of_the_highest_rewards(samples):
    decision = best_of_n(samples)
    rewards = [s.reward for s in samples]
    assert decision.index == rewards.index(max(rewards))
    assert decision.weights[decision.index] == 1 == sum(decision.weights)


def test_a_tie_goes_to_the_first_to_appear_whatever_the_rewards():
    samples = [sample("a1", 0.1), sample("b1", 0.2), sample("a2", 0.3), sample("b2", 0.3)]
    for order in itertools.permutations(samples):
        decision = majority_vote(order, extract)
        assert decision.answer == order[0].response.text[0]
        assert decision.chosen.response.text == f"{decision.answer}2"
        assert minimum_bayes_risk(order, lambda y, other: y[0] == other[0]).index == 0


def test_a_tie_is_a_tie_although_floats_would_round_it():
    # 0.1 + 0.2 + 0.3 added from the left is not 0.3 + 0.2 + 0.1; first appearance must decide.
    samples = [sample("a1")] * 3 + [sample("b")] * 3
    weights = [0.1, 0.2, 0.3, 0.3, 0.2, 0.1]
    assert majority_vote(samples, extract, weights=weights).answer == "a"
    assert majority_vote(samples[::-1], extract, weights=weights[::-1]).answer == "b"


@given(
    st.lists(st.integers(-200, 200), min_size=1, max_size=20),
    st.integers(-10_000, 10_000),
    st.sampled_from([0.25, 0.5, 1.0, 2.0]),
)
def test_importance_weights_do_not_change_when_rewards_shift(rewards, shift, beta):
    shifted = importance_weights([r + shift for r in rewards], Target(beta))
    assert shifted == importance_weights(rewards, Target(beta))
    assert math.isclose(math.fsum(shifted), 1)


@pytest.mark.parametrize("scale", [1e4, -1e4, 1e300])
def test_importance_weights_survive_extreme_rewards(scale):
    assert importance_weights([scale, scale, -scale, scale], Target(0.5)) in (
        (1 / 3, 1 / 3, 0.0, 1 / 3),
        (0.0, 0.0, 1.0, 0.0),
    )
    samples = [sample("a1", scale), sample("b1", -scale), sample("a2", scale)]
    assert weighted_majority_vote(samples, extract, target=Target(0.5)).answer == (
        "a" if scale > 0 else "b"
    )


def test_weighted_majority_vote_uses_the_beta_of_the_chain():
    samples = [sample("a1", 0.0), sample("a2", 0.0), sample("b1", 1.0)]
    # exp(1 / beta) against 2: b wins iff beta < 1 / log 2 = 1.44
    assert weighted_majority_vote(samples, extract, target=Target(1.4)).answer == "b"
    assert weighted_majority_vote(samples, extract, target=Target(1.5)).answer == "a"


def test_effective_sample_size_runs_from_one_to_n():
    assert effective_sample_size([0.25] * 4) == pytest.approx(4)
    assert effective_sample_size([1, 0, 0]) == 1
    assert effective_sample_size([3, 1]) == pytest.approx(1.6)
    assert effective_sample_size([]) == 0


TRACE = Trace.collect(
    [Step(0, 0, 0, sample("a"), sample("a"), 0.0, -math.inf, accepted=True, cost=Cost())]
)


@pytest.mark.parametrize(
    "rule",
    [
        best_of_n,
        lambda s: majority_vote(s, extract),
        lambda s: weighted_majority_vote(s, extract, target=Target(1.0)),
        lambda s: minimum_bayes_risk(s, rouge1),
    ],
)
def test_no_samples_and_rewards_that_are_no_numbers_are_refused(rule):
    with pytest.raises(InvalidSetting, match="at least one"):
        rule([])
    with pytest.raises(InvalidReward, match="sample 1 is nan"):
        rule([sample("a"), sample("b", math.nan)])

    for other in ([sample("a"), "b"], TRACE, TRACE.steps, sample("a"), 5, None):
        with pytest.raises(InvalidSetting, match="expected scored responses to decide from, got"):
            rule(other)


@pytest.mark.parametrize("read", [None, "number", lambda text: [text], lambda text: 4])
def test_what_reads_no_answers_is_refused(read):
    rules = [majority_vote]
    if read is not None:  # these need no answer
        rules += [best_of_n, lambda s, read: minimum_bayes_risk(s, rouge1, extract=read)]
    for rule in rules:
        with pytest.raises(InvalidSetting, match=r"does not read answers|as a text"):
            rule([sample("a")], read)


@pytest.mark.parametrize("u", [None, "0.5", math.nan, [1.0, 2.0], 1j])
def test_a_utility_that_is_no_number_is_refused(u):
    with pytest.raises(InvalidSetting, match="expected a finite number for every pair of texts"):
        minimum_bayes_risk([sample("a"), sample("b")], lambda y, other: u)


@pytest.mark.parametrize(
    "weights", [[1.0], [1.0, -1.0], [0.0, 0.0], [math.nan, 1.0], [None, 1.0], 5]
)
def test_weights_that_do_not_fit_are_refused(weights):
    with pytest.raises(InvalidSetting, match="weight"):
        majority_vote([sample("a"), sample("b")], extract, weights=weights)


@pytest.mark.parametrize("beta", [0.0, -0.5, math.nan, math.inf])
def test_a_beta_that_is_not_positive_is_refused(beta):
    with pytest.raises(InvalidSetting, match="beta must be a finite"):
        importance_weights([1.0], Target(beta))


def test_the_extractor_and_the_utility_are_called_once_per_distinct_text():
    calls = []

    def counting_extract(text):
        calls.append(text)
        return extract(text)

    def counting_utility(y, other):
        calls.append((y, other))
        return float(y == other)

    samples = [sample("a1"), sample("b1"), sample("a1"), sample("a1")]
    majority_vote(samples, counting_extract)
    assert sorted(calls) == ["a1", "b1"]
    calls.clear()
    minimum_bayes_risk(samples, counting_utility)
    assert len(calls) == len(set(calls)) == 4


# --- chains ----------------------------------------------------------------------------------


def step(t, current, proposal, alpha, accepted):
    log_alpha = math.log(alpha) if alpha else -math.inf
    return Step(0, t, 0, current, proposal, log_alpha, -1.0, accepted, proposal.cost)


def test_states_repeat():
    a, b, c = sample("a"), sample("b"), sample("c")
    steps = [step(0, a, a, 1, True), step(1, a, b, 0.5, False), step(2, a, c, 0.5, True)]
    assert chain_states(steps) == [a, a, c]
    assert chain_states(steps, burn_in=2) == [c]
    with pytest.raises(InvalidSetting, match="leaves no state"):
        chain_states(steps, burn_in=3)
    with pytest.raises(InvalidSetting, match="got -1"):
        chain_states(steps, burn_in=-1)


def test_waste_recycling_weighs_a_proposal_by_alpha_and_the_state_by_the_rest():
    a, b = sample("a"), sample("b")
    samples, weights = waste_recycling([step(0, a, a, 1, True), step(1, a, b, 0.25, False)])
    assert list(zip(samples, weights, strict=True)) == [(a, 1.0), (a, 0.75), (b, 0.25)]


def reward_of(response):
    return float(response.text.count("a")) - 0.4 * len(response)


def proposal_probability(lm, old, new):
    """q(y, y'): the index is uniform, the suffix is the LM's."""
    kept = [i for i in range(len(old)) if old.tokens[:i] == new.tokens[:i]]
    return sum(lm.suffix_probability(new.tokens, i) for i in kept) / len(old)


def all_paths(lm, beta, n_steps):
    """Every path of the chain with its probability: (probability, steps)."""
    states = [ScoredResponse(y, reward_of(y)) for y in lm.support]
    paths = [
        (p, [Step(0, 0, 0, s, s, 0.0, -math.inf, True, s.cost)])
        for p, s in zip(lm.probabilities, states, strict=True)
    ]
    for t in range(1, n_steps + 1):
        longer = []
        for p, steps in paths:
            old = steps[-1].state
            for new in states:
                q = proposal_probability(lm, old.response, new.response)
                log_alpha = suffix_log_alpha(Target(beta), new, old)
                alpha = math.exp(log_alpha)
                for accepted, chance in ((True, alpha), (False, 1 - alpha)):
                    if q * chance > 0:
                        move = Step(0, t, 0, old, new, log_alpha, -1.0, accepted, new.cost)
                        longer.append((p * q * chance, [*steps, move]))
        paths = longer
    return paths


def average(samples, weights, f):
    return sum(w * f(s) for s, w in zip(samples, weights, strict=True)) / sum(weights)


def moments(lm, beta, n_steps, estimator):
    """Exact mean and variance of an estimator of E[reward] over all paths of the chain."""
    paths = all_paths(lm, beta, n_steps)
    p = np.array([probability for probability, _ in paths])
    values = np.array([estimator(steps) for _, steps in paths])
    assert math.isclose(p.sum(), 1, abs_tol=1e-12)
    mean = p @ values
    return mean, p @ (values - mean) ** 2


def plain(steps):
    states = chain_states(steps)
    return average(states, [1] * len(states), lambda s: s.reward)


def recycled(steps):
    return average(*waste_recycling(steps), lambda s: s.reward)


def accepted_average(steps):
    states = [step.proposal for step in steps if step.accepted]
    return average(states, [1] * len(states), lambda s: s.reward)


@pytest.mark.parametrize("n_steps", [0, 1, 2])
def test_waste_recycling_has_exactly_the_expectation_of_the_average_over_states(n_steps):
    lm = letters(max_new_tokens=2)
    mean, variance = moments(lm, 0.7, n_steps, plain)
    recycled_mean, recycled_variance = moments(lm, 0.7, n_steps, recycled)
    assert recycled_mean == pytest.approx(mean, abs=1e-12)
    if n_steps:
        assert recycled_variance < variance  # here; it need not be so for every chain
    if n_steps > 1:  # before, no state can have been counted twice
        assert abs(moments(lm, 0.7, n_steps, accepted_average)[0] - mean) > 1e-3


def test_waste_recycling_is_unbiased_for_the_target_once_the_chain_is_there():
    lm = letters(max_new_tokens=3)
    chain = exact_chain(lm, reward_of, Target(0.7))
    states = [ScoredResponse(y, reward_of(y)) for y in chain.states]
    estimate = 0.0
    for old, pi in zip(states, chain.target, strict=True):
        for new in states:
            q = proposal_probability(lm, old.response, new.response)
            log_alpha = suffix_log_alpha(Target(0.7), new, old)
            move = Step(0, 1, 0, old, new, log_alpha, -1.0, False, new.cost)
            estimate += pi * q * average(*waste_recycling([move]), lambda s: s.reward)
    assert estimate == pytest.approx(chain.target @ chain.rewards, abs=1e-12)


async def test_the_rules_take_a_real_chain_and_its_recycled_samples():
    lm = letters()
    steps = [s async for s in run_chain(lm, TableReward(), "x", beta=0.5, steps=200, seed=3)]
    samples, weights = waste_recycling(steps)
    assert sum(weights) == pytest.approx(201)
    votes = [
        majority_vote(chain_states(steps), extract),
        majority_vote(samples, extract, weights=weights),
        minimum_bayes_risk(samples, rouge1, weights),
    ]
    assert all(math.isclose(math.fsum(d.weights), 1) for d in votes)
    plain_share, recycled_share = (dict(d.shares)[votes[0].answer] for d in votes[:2])
    assert abs(plain_share - recycled_share) < 0.1
