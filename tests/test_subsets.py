"""Votes over subsets of the samples, compared with votes one by one and in closed form."""

from dataclasses import replace
from itertools import combinations
from math import comb, sqrt
from typing import Any

import numpy as np
import pytest
from browser import ROOT

from qalign_core.decide.arrays import softmax
from qalign_core.decide.rouge import rouge1
from qalign_core.decide.rules import RULES
from qalign_study.measure.curves import curves
from qalign_study.measure.differences import pairs
from qalign_study.measure.results import unpack
from qalign_study.measure.subsets import MOST, SHUFFLES, Pool, subsets, votes

BETA = 0.7


def pool_of(seed: int, size: int, n_answers: int, *, open_ended: bool = False) -> Pool:
    """Samples of few answers and few rewards, so that ties are common."""
    rng = np.random.default_rng(seed)
    answer = rng.integers(0 if open_ended else -1, n_answers, size)
    right = np.append(rng.random(n_answers) < 0.4, False)[answer]
    texts = [" ".join(rng.choice(["a", "b", "c", "d"], 3)) for _ in range(n_answers)]
    utility = rouge1.matrix(texts) if open_ended else None
    return Pool(answer, rng.normal(size=size).round(1), np.zeros(size), right, utility)


def one_by_one(pool: Pool, n: int, *, weighted: bool) -> float:
    """The mean over all subsets; a tie is the mean over the tied answers."""
    shares = []
    for places in map(list, combinations(range(len(pool.answer)), n)):
        reward, answer = pool.reward[places], pool.answer[places]
        weight = softmax(reward, BETA) if weighted else np.full(n, 1 / n)
        support: dict[int, float] = {}
        for a in set(answer.tolist()) - {-1}:
            same = answer == a if pool.utility is None else pool.utility[a, answer]
            support[a] = float((weight * same).sum())
        tied = [a for a, x in support.items() if x >= max(support.values()) - 1e-12]
        right = [bool(pool.right[pool.answer == a][0]) for a in tied]
        shares.append(np.mean(right) if right else 0.0)
    return float(np.mean(shares))


@pytest.mark.parametrize("open_ended", [False, True])
@pytest.mark.parametrize("rule", ["mv", "wmv"])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 10])
def test_votes_over_few_subsets_are_exact(rule, n, open_ended) -> None:
    for seed in range(12):
        pool = pool_of(seed, 10, 4, open_ended=open_ended)
        (share,), _ = votes(pool, n, RULES[rule], (BETA,))
        assert share == pytest.approx(one_by_one(pool, n, weighted=rule == "wmv"), abs=1e-12)


@pytest.mark.parametrize("rule", ["mv", "wmv"])
def test_votes_of_two_are_exact_where_there_are_many_pairs(rule) -> None:
    assert comb(100, 2) > MOST
    for seed in range(4):
        pool = pool_of(seed, 100, 5)
        (share,), _ = votes(pool, 2, RULES[rule], (BETA,))
        assert share == pytest.approx(one_by_one(pool, 2, weighted=rule == "wmv"), abs=1e-12)


def test_a_tie_broken_by_the_reward_is_another_number() -> None:
    """The control: of two answers, the rewards do matter."""
    pool = pool_of(0, 100, 5)
    by_reward, _ = votes(pool, 2, RULES["wmv"], (BETA,))
    without, _ = votes(pool, 2, RULES["mv"], (BETA,))
    assert abs(by_reward - without) > 0.01
    assert votes(pool, 2, RULES["mv"], (BETA / 9,))[0] == without


@pytest.mark.parametrize(("size", "n"), [(512, 4), (512, 256), (512, 258), (512, 511), (37, 9)])
def test_random_subsets_are_many_and_take_every_sample_about_as_often(size, n) -> None:
    places = subsets(size, n)
    assert len(places) >= min(comb(size, n), SHUFFLES * size / n)
    assert all(len(set(row)) == n for row in places.tolist())
    if size % n == 0:
        assert len(set(np.bincount(places.ravel(), minlength=size).tolist())) == 1


def test_random_subsets_estimate_the_mean_over_all() -> None:
    # random subsets of 3 of 40; each estimate is within four standard errors of 0.5 / sqrt(their n)
    assert comb(40, 3) > MOST
    for seed in range(3):
        pool = pool_of(seed, 40, 5)
        for rule in ("mv", "wmv"):
            (share,), _ = votes(pool, 3, RULES[rule], (BETA,))
            exactly = one_by_one(pool, 3, weighted=rule == "wmv")
            assert share == pytest.approx(exactly, abs=4 * 0.5 / sqrt(len(subsets(40, 3))))


def test_several_betas_at_once_are_each_beta_alone() -> None:
    pool, betas = pool_of(5, 40, 6), (0.1, 0.7, 5.0)
    for n in (2, 3, 8):
        together, _ = votes(pool, n, RULES["wmv"], betas)
        alone = [votes(pool, n, RULES["wmv"], (beta,))[0][0] for beta in betas]
        assert together == pytest.approx(alone, abs=1e-12)


def first_of(*names: str) -> list[Any]:
    """Sets where right samples are common and rare; the others are alike."""
    first = ("in_distribution", "inventory")
    return [*first, *(pytest.param(name, marks=pytest.mark.more) for name in names)]


@pytest.mark.parametrize("name", first_of("shifted", "fresh/inventory@4"))
def test_a_weighted_vote_of_two_is_best_of_two(name) -> None:
    results = unpack(ROOT / f"assets/results/{name}.zip")
    values = {p.method: p for p in curves(results, ns=[2])}
    silent = np.array([bool((record.pool_answer < 0).any()) for record in results.records])
    each, best = np.array(values["wmv"].each), np.array(values["bon"].each)
    assert each[~silent] == pytest.approx(best[~silent], abs=1e-12)
    assert (each >= best - 1e-12).all()  # a sample without an answer cannot win a vote


def test_the_majority_vote_is_charged_for_the_language_model_alone() -> None:
    results = unpack(ROOT / "assets/results/in_distribution.zip")
    meter = results.header.meter
    points = curves(results, ns=[16, 256, 512])
    at = {(p.method, p.n): p for p in points}
    for n in (16, 256):
        vote, scored = at["mv", n], at["wmv", n]
        assert vote.spent == pytest.approx(scored.spent, rel=0.02)
        assert vote.used == pytest.approx(
            n * (1 + meter.rm_parameters / meter.lm_parameters), rel=0.2
        )
    last = at["mv", 512]  # all samples that were drawn cost half as much as with their rewards
    assert (last.used, last.spent / at["wmv", 512].spent) == (512, pytest.approx(0.5, abs=0.01))
    assert [other.n for _, other in pairs(points, "qalign", "mv")] == [16, 256]
    samples = {p.method: p for p in curves(results, budget="samples", ns=[16])}
    assert (samples["mv"].used, samples["wmv"].used) == (16, 16)


@pytest.mark.parametrize("name", first_of("shifted", "long", "in_distribution-weak"))
def test_the_subsets_add_less_than_a_tenth_of_each_interval(name) -> None:
    """Samples in another order, and so other subsets, move no vote by more than that.

    Both shrink with the root of the number of problems, so that some problems say it of all.
    """
    results = unpack(ROOT / f"assets/results/{name}.zip")
    order = np.random.default_rng(1).permutation(len(results.records[0].pool_reward))
    some = results.records[::4]
    again = tuple(
        replace(
            record,
            pool_reward=record.pool_reward[order],
            pool_answer=record.pool_answer[order],
            pool_cost=record.pool_cost[order],
        )
        for record in some
    )
    both = (curves(replace(results, records=records)) for records in (some, again))
    for one, two in zip(*both, strict=True):
        if one.method in ("mv", "wmv"):
            noise = abs(one.value - two.value) / sqrt(2)
            assert noise < (one.high - one.low) / 10
