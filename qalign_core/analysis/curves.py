"""What more compute buys on one prompt: each method's answer as the budget grows, with bands.

Only one pool and a few chains were drawn, so what another draw would have decided is estimated by
bootstrap: samples are resampled one by one, states in blocks of neighbours, since neighbours are
alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from qalign_core.analysis.comparisons import (
    METHODS,
    Budget,
    Comparison,
    Cut,
    Method,
    ladder,
    outcomes,
)
from qalign_core.decide.arrays import minimum_bayes_risk, vote
from qalign_core.decide.utilities import rouge1
from qalign_core.types import ScoredResponse

Array = NDArray[Any]
Measure = Literal["right", "same", "reward"]

MOST_DRAWS = 300_000
"""Resampled draws a budget and method, at most: bounds the time and the memory."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One method at one budget.

    Attributes:
        method: which rule.
        cut: how much was looked at.
        spent: price of it, in the meter's unit.
        n: states or samples decided from.
        answer: what the recorded draws decide; None for an open-ended prompt.
        correct: whether that is right; None where it is not known.
        value: the measure, averaged over resampled draws: the chance of the right answer
            ("right"), of the answer that all draws give ("same"), or the mean reward of the
            chosen response ("reward").
        low, high: 95 % band of `value`, given that only these draws are known.
    """

    method: Method
    cut: Cut
    spent: int
    n: int
    answer: str | None
    correct: bool | None
    value: float
    low: float
    high: float


def measure_of(comparison: Comparison) -> Measure:
    """What can be measured: being right, or else staying the same, or else the reward."""
    if comparison.extract is None:
        return "reward"
    return "same" if comparison.header.reference is None else "right"


def curves(
    comparison: Comparison,
    budget: Budget = "flops",
    *,
    rungs: int = 10,
    resamples: int = 40,
    seed: int = 0,
) -> tuple[CurvePoint, ...]:
    """Every method at budgets of increasing size, methods in the order of `METHODS`.

    A pool of n is drawn from the recorded pool with replacement. Of chains, the states 0..t are
    resampled in circular blocks of about sqrt(t + 1), within a chain drawn with replacement. For
    the band the recorded draws are themselves resampled first, `resamples` times. The band of a
    single chain says nothing of what another chain would have found: run several for that.

    Raises:
        InvalidSetting: nothing was drawn on one of the sides.
    """
    cuts = ladder(comparison, budget, rungs)
    decided = {cut: outcomes(comparison, cut) for cut in cuts}
    table = _Table(comparison, last=decided[cuts[-1]])
    rng = np.random.default_rng(seed)
    points: dict[Method, list[CurvePoint]] = {method: [] for method in METHODS}
    for cut in cuts:
        n_states = len(comparison.chains) * (cut.t + 1)
        outer, inner = _repeats(resamples, max(n_states, cut.n))
        states = _resample_chains(rng, len(comparison.chains), cut.t + 1, outer, inner)
        pool = _resample_pool(rng, len(comparison.pool), cut.n, outer, inner)
        for outcome in decided[cut]:
            if outcome.method == "qalign":
                values = table.chain(cut.t + 1).values(outcome.method, states)
            else:
                values = table.pool.values(outcome.method, pool)
            means = values.reshape(outer, inner).mean(axis=1)
            low, high = np.quantile(means, [0.025, 0.975])
            points[outcome.method].append(
                CurvePoint(
                    method=outcome.method,
                    cut=cut,
                    spent=outcome.spent,
                    n=outcome.n,
                    answer=outcome.decision.answer,
                    correct=outcome.correct,
                    value=float(means.mean()),
                    low=float(low),
                    high=float(high),
                )
            )
    return tuple(point for method in METHODS for point in points[method])


def _repeats(resamples: int, n: int) -> tuple[int, int]:
    """How many outer and inner resamples of n draws stay within `MOST_DRAWS`."""
    k = max(8, min(resamples, math.isqrt(MOST_DRAWS // n)))
    return k, k


def _resample_pool(rng: np.random.Generator, size: int, n: int, outer: int, inner: int) -> Array:
    """Places of resampled pools of n, shape [outer * inner, n]."""
    known = rng.integers(size, size=(outer, 1, size))
    drawn = rng.integers(size, size=(outer, inner, n))
    return np.take_along_axis(np.broadcast_to(known, (outer, inner, size)), drawn, axis=2).reshape(
        outer * inner, n
    )


def _resample_chains(
    rng: np.random.Generator, n_chains: int, length: int, outer: int, inner: int
) -> Array:
    """Places of resampled states (chain * length + t), shape [outer * inner, n_chains * length]."""
    known = _blocks(rng, length, (outer, 1, n_chains))
    which = rng.integers(n_chains, size=(outer, 1, n_chains, 1))
    known = known + length * which
    drawn = _blocks(rng, length, (outer, inner, n_chains))
    drawn_from = rng.integers(n_chains, size=(outer, inner, n_chains, 1))
    flat = np.broadcast_to(known.reshape(outer, 1, -1), (outer, inner, n_chains * length))
    places = (drawn + length * drawn_from).reshape(outer, inner, -1)
    return np.take_along_axis(flat, places, axis=2).reshape(outer * inner, -1)


def _blocks(rng: np.random.Generator, length: int, shape: tuple[int, ...]) -> Array:
    """Times 0..length-1 resampled in circular blocks, shape [*shape, length]."""
    block = math.isqrt(length - 1) + 1
    count = -(-length // block)
    starts = rng.integers(length, size=(*shape, count, 1))
    times = (starts + np.arange(block)) % length
    return times.reshape(*shape, count * block)[..., :length]


class _Draws:
    """Draws as numbers: rewards, answers, and which answers count as a hit."""

    def __init__(
        self, samples: list[ScoredResponse], answers: Array, hits: dict[Method, Array], beta: float
    ) -> None:
        self.reward = np.array([sample.reward for sample in samples])
        self.answer = answers
        self.hits = hits
        self.beta = beta
        self.texts = [sample.response.text for sample in samples]
        self._utility: Array | None = None

    def values(self, method: Method, places: Array) -> Array:
        """The measure of each resample: 1 or 0, or the reward of the chosen, shape [k]."""
        reward = self.reward[places]
        if not self.hits:
            return self._chosen_reward(method, places, reward)
        hit = np.append(self.hits[method], False)  # place -1: no answer
        if method == "bon":
            best = reward.argmax(axis=1)
            won = self.answer[places[np.arange(len(places)), best]]
        else:
            won = vote(self.answer[places], self._weights(method, reward), reward, len(hit) - 1)
        found: Array = hit[won].astype(np.float64)
        return found

    def _weights(self, method: Method, reward: Array) -> Array:
        if method != "wmv":
            return np.ones_like(reward)
        found: Array = np.exp((reward - reward.max(axis=1, keepdims=True)) / self.beta)
        return found

    def _chosen_reward(self, method: Method, places: Array, reward: Array) -> Array:
        if method == "bon":
            return np.asarray(reward.max(axis=1))
        if self._utility is None:
            self._utility = rouge1.matrix(self.texts)
        weights = self._weights(method, reward)
        chosen = minimum_bayes_risk(places, weights, reward, self._utility)
        return np.asarray(self.reward[chosen])


class _Table:
    """A comparison's draws as numbers."""

    def __init__(self, comparison: Comparison, last: tuple[Any, ...]) -> None:
        extract = comparison.extract
        self.comparison = comparison
        self.numbers: dict[str, int] = {}
        self.hits: dict[Method, Array] = {}
        read = [
            None if extract is None else extract(sample.response.text)
            for sample in [*(step.state for step in comparison.steps_to(10**9)), *comparison.pool]
        ]
        for answer in read:
            if answer is not None:
                self.numbers.setdefault(answer, len(self.numbers))
        if extract is not None:
            known = comparison.header.reference is not None
            for outcome in last:
                self.hits[outcome.method] = np.array(
                    [
                        bool(comparison.is_right(a)) if known else a == outcome.decision.answer
                        for a in self.numbers
                    ],
                    dtype=bool,
                )
        self.pool = self._draws(list(comparison.pool))

    def chain(self, length: int) -> _Draws:
        """The first `length` states of every chain."""
        chains = self.comparison.chains
        return self._draws([step.state for chain in chains for step in chain[:length]])

    def _draws(self, samples: list[ScoredResponse]) -> _Draws:
        extract = self.comparison.extract
        answers = [
            -1 if extract is None else self._number(extract(s.response.text)) for s in samples
        ]
        beta = self.comparison.header.beta
        return _Draws(samples, np.array(answers), self.hits, beta)

    def _number(self, answer: str | None) -> int:
        return -1 if answer is None else self.numbers[answer]
