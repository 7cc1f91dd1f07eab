"""The model behind "When is a chain worth it?": against closed forms and the exact chain."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from benchmarks import worth
from qalign_core.decide.rules import RULES
from qalign_core.errors import InvalidSetting
from qalign_core.target import Target
from qalign_study.exact import decisions
from qalign_study.exact.decisions import (
    Problems,
    Situation,
    draw_problems,
    explore,
    move_cost,
    walk,
)
from qalign_study.exact.enumerable import EnumerableLM
from qalign_study.exact.law import exact_chain
from qalign_study.measure.curves import budgets
from qalign_study.measure.diagnostics import near_misses
from qalign_study.measure.record import Record

Z = 4.5
"""Standard errors that a right simulation stays within: a false alarm in 150,000 numbers."""


def alike(situation: Situation, n_problems: int, monkeypatch: pytest.MonkeyPatch) -> Problems:
    """One problem, so many times over: shares of its chains estimate one distribution."""
    whole = decisions._hash
    monkeypatch.setattr(decisions, "_hash", lambda code: whole(code[..., None])[..., 0])
    one = draw_problems(situation, 1, seed=3)
    return Problems(
        np.repeat(one.chances, n_problems, axis=2),
        np.repeat(one.worth, n_problems, axis=2),
        one.errors,
    )


def written_out(problems: Problems) -> tuple[EnumerableLM, Callable[..., float]]:
    """The first problem as a finite language model and its reward."""
    chances, worth = problems.chances[..., 0], problems.worth[..., 0]

    def reward(response) -> float:
        code = number(response.tokens)
        error = decisions._errors(problems, np.array([code]))[0]
        return float(sum(worth[t, c] for t, c in enumerate(response.tokens)) + error)

    lm = EnumerableLM(
        lambda prefix: [*chances[len(prefix)], 0.0],
        pieces=("right", "x", "y", "z", "<eos>"),
        max_new_tokens=len(chances),
    )
    return lm, reward


def number(tokens: tuple[int, ...]) -> int:
    return sum(choice << 2 * t for t, choice in enumerate(tokens))


@pytest.mark.parametrize("wrong", [False, True])
def test_the_simulated_chain_has_the_exact_chains_law_at_every_step(
    wrong: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    situation = Situation(decisions=3, chance=0.5, near_miss=0.8, beta=0.5)
    n = 20_000
    problems = alike(situation, n, monkeypatch)
    states, _, _ = walk(problems, situation.beta, 12, seed=5)
    lm, reward = written_out(problems)
    # the control: another beta is another law
    exact = exact_chain(lm, reward, Target(situation.beta * (1.5 if wrong else 1.0)))
    p_values = []
    for t in (0, 1, 4, 12):
        expected = exact.after(t) * n
        codes = [number(state.tokens) for state in exact.states]
        counted = np.array([(states[t] == code).sum() for code in codes])
        rare = expected < 5
        expected = np.append(expected[~rare], expected[rare].sum() + 1e-9)
        counted = np.append(counted[~rare], counted[rare].sum())
        p_values.append(stats.chisquare(counted, expected * counted.sum() / expected.sum()).pvalue)
    assert p_values[0] > 1e-6
    assert (min(p_values) > 1e-6) is not wrong


def test_a_states_reward_is_that_of_its_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    situation = Situation(decisions=5, chance=0.5, near_miss=0.8, beta=0.5)
    problems = alike(situation, 50, monkeypatch)
    states, rewards, _ = walk(problems, situation.beta, 30, seed=5)
    for code, held in zip(states[-1].tolist(), rewards[-1], strict=True):
        expected = sum(problems.worth[t, code >> 2 * t & 3, 0] for t in range(5))
        expected += decisions._errors(problems, np.array([code]))[0]
        assert held == pytest.approx(expected)


def test_any_of_n_and_one_sample_are_what_enumeration_gives() -> None:
    situation = Situation(decisions=3, chance=0.4)
    result = explore(situation, most=4, n_problems=20)
    chances = draw_problems(situation, 20, seed=0).chances
    right = np.array(
        [
            sum(
                math.prod(chances[t, c, k] for t, c in enumerate(choices))
                for choices in itertools.product(range(4), repeat=3)
                if not any(choices)
            )
            for k in range(20)
        ]
    )
    assert result.one == pytest.approx(right.mean())
    assert result.any_of == pytest.approx([(1 - (1 - right) ** n).mean() for n in result.ns])


def binomial(right: np.ndarray, chances: np.ndarray) -> float:
    """How many standard errors a share is from what each problem's chance makes of it."""
    error = math.sqrt(float((chances * (1 - chances)).sum())) / len(chances)
    return float(right.mean() - chances.mean()) / error


def test_a_majority_between_two_answers_is_right_as_the_binomial_law_says() -> None:
    situation = Situation(decisions=2, chance=0.7, agree=1.0)
    exploration = explore(situation, most=31, n_problems=4000, seed=2)
    right = draw_problems(situation, 4000, seed=2).right
    chances = stats.binom.sf(31 // 2, 31, right)
    assert abs(binomial(exploration.right["mv"][-1], chances)) < Z
    # the control: where wrong answers differ, fewer votes are enough
    differ = explore(replace(situation, agree=0.0), most=31, n_problems=4000, seed=2)
    assert binomial(differ.right["mv"][-1], chances) > Z


def test_best_of_n_with_a_perfect_reward_reaches_any_of_n_and_with_a_poor_one_does_not() -> None:
    situation = Situation(decisions=6, chance=0.6, near_miss=1.0)
    exploration = explore(situation, most=64, n_problems=4000, seed=1)
    chances = 1 - (1 - draw_problems(situation, 4000, seed=1).right) ** 64
    assert exploration.any_of[-1] == pytest.approx(chances.mean())
    assert abs(binomial(exploration.right["bon"][-1], chances)) < Z
    poor = explore(replace(situation, near_miss=0.7), most=64, n_problems=4000, seed=1)
    assert binomial(poor.right["bon"][-1], chances) < -Z


@pytest.mark.parametrize("near_miss", [0.6, 0.8, 0.95])
def test_near_misses_are_told_apart_as_often_as_is_said(near_miss: float) -> None:
    n = 20_000
    situation = Situation(decisions=4, chance=0.5, near_miss=near_miss)
    problems = draw_problems(situation, n, seed=4)
    better = decisions._draw(problems, 1, 4, 1)
    better[0, 2] = 0
    worse = better.copy()
    worse[0, 2] = 1 + np.arange(n) % 3
    whole = np.zeros((1, n), dtype=np.int64)
    rewards = [
        worth + decisions._errors(problems, code)
        for worth, code in (decisions._behind(problems, y, whole) for y in (better, worse))
    ]
    share = float((rewards[0] > rewards[1]).mean())
    assert share == pytest.approx(near_miss, abs=Z * math.sqrt(near_miss * (1 - near_miss) / n))


def test_a_smaller_budget_is_the_beginning_of_a_larger_one() -> None:
    small = explore(Situation(agree=0.3), most=16, n_problems=50)
    large = explore(Situation(agree=0.3), most=64, n_problems=50)
    for method in RULES:
        assert np.array_equal(small.right[method], large.right[method][: len(small.ns)])


def test_a_chain_passes_every_rule_where_right_is_rare_and_near_misses_are_told_apart() -> None:
    rare = explore(Situation(12, 0.6, 0.98, 0.3), n_problems=500)
    chain = rare.rate("qalign")
    assert chain.band is not None
    assert chain.band[0] > rare.any_of[-1]
    assert rare.difference("qalign", "wmv").verdict == "ahead"
    # one of the two alone is not enough
    common = explore(Situation(4, 0.6, 0.98, 0.3), n_problems=500)
    poor = explore(Situation(12, 0.6, 0.7, 0.3), n_problems=500)
    for exploration in (common, poor):
        assert exploration.difference("qalign", "wmv").low < 0.05
        assert (exploration.rate("qalign").band or (0, 1))[0] < exploration.any_of[-1]


def test_a_proposal_costs_what_it_draws_again() -> None:
    index = np.arange(12)
    assert move_cost(12) == pytest.approx(((12 - index) / 12).mean())
    assert budgets(100) == [1, 2, 4, 8, 16, 32, 64, 100]


@pytest.mark.parametrize(
    ("name", "value"),
    [("decisions", 0), ("chance", 1.0), ("near_miss", 0.5), ("agree", -0.1), ("beta", 0.0)],
)
def test_a_situation_that_cannot_be_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(InvalidSetting, match=name):
        Situation(**{name: value})  # type: ignore[arg-type]


def chain_of(reward: list[float], answer: list[int], accepted: list[bool], kept: int) -> Record:
    """One chain over two answers, the first of them right; every text has 10 tokens."""
    n = len(reward)
    costs = np.array([[10, 10, 0]] + [[10 - kept, 10 - kept, 0]] * (n - 1))
    return Record(
        id="x", answers=np.array(["58", "47"]), right=np.array([True, False]),
        pool_reward=np.zeros(0), pool_answer=np.zeros(0, dtype=int),
        pool_cost=np.zeros((0, 3), dtype=int), chain_reward=np.array(reward),
        chain_answer=np.array(answer), chain_cost=costs, chain_accepted=np.array(accepted),
        chain_changed=np.ones(n, dtype=bool), chain_length=np.full(n, 10),
    )  # fmt: skip


def test_near_misses_are_pairs_that_share_a_beginning_and_of_which_one_is_right() -> None:
    # states: wrong, then wrong (the right one is refused), right, right
    rewards, answers = [0.0, -1.0, 2.0, 1.0], [1, 0, 0, 1]
    accepted = [True, False, True, False]
    rate = near_misses([chain_of(rewards, answers, accepted, kept=4)])
    # the right proposal that looked worse, the one that looked better, the wrong one that did not
    assert (rate.successes, rate.trials) == (2, 3)
    assert near_misses([chain_of(rewards, answers, accepted, kept=0)]).trials == 0
    both_right = chain_of(rewards, [0, 0, 0, 0], accepted, kept=4)
    assert near_misses([both_right]).trials == 0
    equal = near_misses([chain_of([0.0] * len(rewards), answers, accepted, kept=4)])
    assert (equal.trials, equal.value) == (rate.trials, 0), "a tie is no preference"


@pytest.mark.recorded
def test_the_map_is_what_its_command_simulates() -> None:
    shipped = json.loads(worth.PATH.read_text(encoding="utf-8"))
    assert shipped["settings"] == json.loads(json.dumps(worth.SETTINGS))
    worlds = list(zip(*shipped["worlds"].values(), strict=True))
    assert len(worlds) == len(worth.RARITIES) * len(worth.NEAR_MISSES)
    for rarity, near_miss in ((300, 0.95), (10, 0.85)):
        place = worth.RARITIES.index(rarity) * len(worth.NEAR_MISSES)
        place += worth.NEAR_MISSES.index(near_miss)
        assert worlds[place] == tuple(worth.world(rarity, near_miss).values())
