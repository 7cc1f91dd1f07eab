"""Many votes at once, as arrays: what `decide` decides, for thousands of resampled draws.

A draw is the number of its answer, -1 for none; for open-ended prompts the "answers" are the
distinct texts, and minimum Bayes risk takes the place of the vote.
"""

from typing import Literal

import numpy as np

from qalign_core.types import Array

ROUNDING = 1e-12
"""Relative; equal numbers of equal weights may be rounded apart by as much."""


def softmax(values: Array, beta: float | Array = 1.0, plus: Array | float = 0.0) -> Array:
    """`softmax(values / beta + plus)` over the last axis, same shape; several betas are broadcast.

    The largest value is subtracted first: nothing overflows, and a constant added changes nothing.
    """
    with np.errstate(over="ignore"):
        lead = (values - values.max(axis=-1, keepdims=True)) / beta + plus
    unnormalised = np.exp(lead - lead.max(axis=-1, keepdims=True))
    return np.asarray(unnormalised / unnormalised.sum(axis=-1, keepdims=True))


def vote(answer: Array, weight: Array, reward: Array, n_answers: int) -> Array:
    """The winners of k votes, -1 for none, shape [k]: by weight, total reward, first appearance.

    Args:
        answer, weight, reward: of the voters, shape [k, n].
        n_answers: how many answers there are.
    """
    cell, (votes, rewards) = _totals(answer, n_answers, weight, reward)
    votes[:, 0] = -1.0
    # each voter has the numbers of their answer, so that the first of them stands for it
    won = winner(votes.ravel()[cell], rewards.ravel()[cell])
    return np.asarray(answer[np.arange(len(answer)), won])


def least_risk(answer: Array, weight: Array, reward: Array, utility: Array) -> Array:
    """The texts of least risk, shape [k]: by expected utility, the reward behind it, their own.

    Args:
        answer, weight, reward: number, weight and reward of the texts drawn, shape [k, n].
        utility: `u(y, y')` of all pairs of texts, shape [texts, texts].
    """
    n_texts = len(utility)
    _, (drawn, weights, rewards) = _totals(answer, n_texts, np.ones_like(weight), weight, reward)
    drawn, weights, rewards = drawn[:, 1:], weights[:, 1:], rewards[:, 1:]
    expected = np.where(drawn > 0, weights @ utility.T, -np.inf)
    own = np.full(expected.shape, -np.inf)
    np.maximum.at(own, (np.arange(len(answer))[:, None], answer), reward)
    return winner(expected, rewards @ utility.T, own)


def _totals(answer: Array, n_answers: int, *values: Array) -> tuple[Array, list[Array]]:
    """The sums of each of some values by answer, shape [k, 1 + answers]: of the abstentions first.

    Before them the cell of each draw's answer in such a table, read row by row, shape [k, n].
    """
    k, width = len(answer), n_answers + 1
    cell = answer + (1 + width * np.arange(k)[:, None])
    sums = [np.bincount(cell.ravel(), each.ravel(), k * width).reshape(k, width) for each in values]
    return cell, sums


def winner(*keys: Array) -> Array:
    """The place of each row's largest value; ties break by the next key, then by place."""
    tied: Array | Literal[True] = True
    for key in keys:
        values = key if tied is True else np.where(tied, key, -np.inf)
        best = values.max(axis=-1, keepdims=True)
        tied = values >= best - ROUNDING * np.abs(best)
    return np.asarray(np.argmax(tied, axis=-1))
