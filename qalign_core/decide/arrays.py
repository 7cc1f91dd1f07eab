"""Many votes at once, as arrays: what `decide` decides, for thousands of resampled draws.

A draw is the number of its answer, -1 for none; for open-ended prompts the "answers" are the
distinct texts, and minimum Bayes risk takes the place of the vote.
"""

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
    if n_answers == 0:
        return np.full(len(answer), -1)
    voters = _totals(answer, np.ones_like(weight), n_answers)
    votes = np.where(voters > 0, _totals(answer, weight, n_answers), -1.0)
    best = votes.max(axis=1, keepdims=True)
    rewards, first = _totals(answer, reward, n_answers), _firsts(answer, n_answers)
    return np.where(best[:, 0] < 0, -1, winner(votes, rewards, -first))


def least_risk(answer: Array, weight: Array, reward: Array, utility: Array) -> Array:
    """The texts of least risk, shape [k]: by expected utility, the reward behind it, their own.

    Args:
        answer, weight, reward: number, weight and reward of the texts drawn, shape [k, n].
        utility: `u(y, y')` of all pairs of texts, shape [texts, texts].
    """
    n_texts = len(utility)
    drawn = _totals(answer, np.ones_like(weight), n_texts) > 0
    expected = np.where(drawn, _totals(answer, weight, n_texts) @ utility.T, -np.inf)
    own = np.full(expected.shape, -np.inf)
    np.maximum.at(own, (np.arange(len(answer))[:, None], answer), reward)
    return winner(expected, _totals(answer, reward, n_texts) @ utility.T, own)


def _firsts(answer: Array, n_answers: int) -> Array:
    """The place at which each answer first appears, n if it never does, shape [k, answers]."""
    k, n = answer.shape
    first = np.full((k, n_answers + 1), n)  # column n_answers, the last, collects the abstentions
    first[np.arange(k)[:, None], answer[:, ::-1]] = np.arange(n)[::-1]  # the last written stays
    return first[:, :n_answers]


def _totals(answer: Array, values: Array, n_answers: int) -> Array:
    """The sum of the values of each answer, shape [k, answers]; abstentions are left out."""
    k = len(answer)
    # column n_answers collects the abstentions
    cell = np.where(answer < 0, n_answers, answer) + (n_answers + 1) * np.arange(k)[:, None]
    sums = np.bincount(cell.ravel(), values.ravel(), minlength=k * (n_answers + 1))
    return sums.reshape(k, n_answers + 1)[:, :n_answers]


def winner(*keys: Array) -> Array:
    """The place of each row's largest value; ties break by the next key, then by place."""
    tied = np.ones(keys[0].shape, dtype=bool)
    for key in keys:
        values = np.where(tied, key, -np.inf)
        best = values.max(axis=-1, keepdims=True)
        tied = values >= best - ROUNDING * np.abs(best)
    found: Array = tied.argmax(axis=-1)
    return found
