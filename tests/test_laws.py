"""Detailed balance and stationarity, by exact enumeration, with every wrong rule failing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from finite import coin, correlated_reward, letters, uneven
from hypothesis import given, settings
from hypothesis import strategies as st

from qalign_core.target import Target, log_acceptance
from qalign_study.exact.enumerable import EnumerableLM
from qalign_study.exact.law import (
    EXACT,
    ExactChain,
    Rule,
    exact_chain,
    index_probabilities,
    target_distribution,
    total_variation,
)
from qalign_study.exact.mistakes import MISTAKES

MODELS = {"letters": letters(), "coin": coin(), "uneven": uneven(), "one token": coin(1)}
BETAS = (0.2, 1.0, 5.0)


def inverted_ratio(target, *, new, old, log_correction):
    upside_down = tuple(-term for term in log_correction)
    return log_acceptance(target, new=new, old=old, log_correction=upside_down)


WRONG = (
    *MISTAKES.values(),
    Rule("length ratio upside down", log_alpha=inverted_ratio),
    Rule("index drawn from {0..|y|}", n_indices=lambda response: len(response) + 1),
    Rule("proposals equal to the state drawn again", counted="changed"),
)


def stationarity_residual(chain: ExactChain) -> float:
    """max_b |(pi T)_b - pi_b|; 0 for the right rule, up to rounding."""
    return float(np.abs(chain.target @ chain.matrix - chain.target).max())


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("name", MODELS)
def test_detailed_balance_and_stationarity_hold_exactly(name: str, beta: float) -> None:
    chain = exact_chain(MODELS[name], correlated_reward, Target(beta))
    assert np.allclose(chain.matrix.sum(axis=1), 1.0, atol=1e-12)
    assert chain.matrix.min() >= 0.0
    assert chain.balance_residual() <= 1e-12
    assert stationarity_residual(chain) <= 1e-12


def test_the_targets_have_several_lengths_truncation_and_an_immediate_eos() -> None:
    for name in ("letters", "uneven"):
        support = MODELS[name].support
        assert {len(y) for y in support} >= {1, 2, 3}
        assert any(not y.finished for y in support)
        assert any(y.text == "" and y.finished for y in support)


@pytest.mark.parametrize("rule", WRONG, ids=lambda rule: rule.name)
def test_every_wrong_rule_misses_the_target(rule) -> None:
    chain = exact_chain(letters(), correlated_reward, Target(1.0), rule)
    assert stationarity_residual(chain) > 1e-3
    assert total_variation(chain.limit(), chain.target) > 1e-2


def test_the_right_rule_reaches_the_target() -> None:
    chain = exact_chain(letters(), correlated_reward, Target(1.0), EXACT)
    assert total_variation(chain.limit(), chain.target) < 1e-12
    assert total_variation(chain.after(1), chain.target) > 1e-2
    assert np.allclose(chain.after(100), chain.after(60) @ np.linalg.matrix_power(chain.matrix, 40))


def test_the_published_chain_grows_past_the_limit_and_the_right_one_does_not() -> None:
    """p(EOS) = .25, limit 4, constant reward: mean length 2.73 for the LM, 3.35 as published."""

    def mean_length(chain, distribution) -> float:
        return float(distribution @ [len(y) for y in chain.states])

    right = exact_chain(coin(), lambda y: 0.0, Target(1.0))
    rule = replace(MISTAKES["Length limit not shared"], limit=lambda most, at: min(at + most, 60))
    published = exact_chain(coin(), lambda y: 0.0, Target(1.0), rule)
    assert mean_length(right, right.base) == pytest.approx(2.734, abs=1e-3)
    assert mean_length(right, right.limit()) == pytest.approx(2.734, abs=1e-3)
    assert max(len(y) for y in right.states) == 4
    assert mean_length(published, published.limit()) == pytest.approx(3.348, abs=1e-3)
    assert (
        sum(p for y, p in zip(published.states, published.limit(), strict=True) if len(y) > 4) > 0.1
    )


@given(
    weights=st.lists(
        st.lists(st.floats(0.01, 1.0), min_size=3, max_size=3), min_size=3, max_size=3
    ),
    rewards=st.lists(st.floats(-8, 8), min_size=15, max_size=15),
    beta=st.floats(0.05, 50.0),
)
@settings(max_examples=60)
def test_detailed_balance_holds_for_any_model_and_reward(weights, rewards, beta) -> None:
    rows = [[w / sum(row) for w in row] for row in weights]
    lm = EnumerableLM.markov(rows[0], rows[1:], pieces=("a", "b", "."), max_new_tokens=3)
    table = {y.tokens: r for y, r in zip(lm.support, rewards, strict=True)}
    chain = exact_chain(lm, lambda y: table[y.tokens], Target(beta))
    assert chain.balance_residual() <= 1e-12
    assert stationarity_residual(chain) <= 1e-12


def test_a_large_beta_recovers_the_base_lm_and_a_small_one_the_best_response() -> None:
    lm = letters()
    rewards = np.array([correlated_reward(y) for y in lm.support])
    assert (
        total_variation(
            target_distribution(lm.probabilities, rewards, Target(1e6)), lm.probabilities
        )
        < 1e-5
    )
    assert target_distribution(lm.probabilities, rewards, Target(1e-3))[rewards.argmax()] > 1 - 1e-6


def test_every_index_has_the_same_probability() -> None:
    for length in (1, 2, 3, 7, 42):
        assert index_probabilities(length) == pytest.approx([1 / length] * length, abs=1e-12)


def test_the_enumeration_is_a_distribution_and_sums_the_conditionals() -> None:
    for lm in MODELS.values():
        assert lm.probabilities.sum() == pytest.approx(1.0, abs=1e-12)
        for y, p in zip(lm.support, lm.probabilities, strict=True):
            for index in range(len(y)):
                kept = sum(
                    q
                    for z, q in zip(lm.support, lm.probabilities, strict=True)
                    if z.tokens[:index] == y.tokens[:index]
                )
                assert kept * lm.suffix_probability(y.tokens, index) == pytest.approx(p, rel=1e-9)
