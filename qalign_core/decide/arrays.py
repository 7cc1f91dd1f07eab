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
    # sums over the first axis are faster: draws are few, and decisions many
    lead = np.ascontiguousarray(np.moveaxis(lead, -1, 0))
    unnormalised = np.exp(lead - lead.max(axis=0))
    return np.moveaxis(unnormalised / unnormalised.sum(axis=0), 0, -1)


def vote(answer: Array, weight: Array, n_answers: int) -> Array:
    """The winners of k votes, -1 for none, shape [k]: by weight, then by first appearance.

    Args:
        answer, weight: of the voters, shape [k, n].
        n_answers: how many answers there are.
    """
    cell, votes = _totals(answer, n_answers, weight)
    votes[:, 0] = -1.0
    # each voter has the votes of their answer, so that the first of them stands for it
    return np.asarray(answer[np.arange(len(answer)), winner(votes.ravel()[cell])])


def least_risk(answer: Array, weight: Array, utility: Array) -> Array:
    """The texts of least risk, shape [k]: by expected utility, then by first appearance.

    Args:
        answer, weight: number and weight of the texts drawn, shape [k, n].
        utility: `u(y, y')` of all pairs of texts, shape [texts, texts].
    """
    _, weights = _totals(answer, len(utility), weight)
    rows = np.arange(len(answer))
    expected = (weights[:, 1:] @ utility.T)[rows[:, None], answer]
    return np.asarray(answer[rows, winner(expected)])


def _totals(answer: Array, n_answers: int, weight: Array) -> tuple[Array, Array]:
    """The weight of each answer, shape [k, 1 + answers]: that of the abstentions first.

    Before it the cell of each draw's answer in such a table, read row by row, shape [k, n].
    """
    k, width = len(answer), n_answers + 1
    cell = answer + (1 + width * np.arange(k)[:, None])
    return cell, np.bincount(cell.ravel(), weight.ravel(), k * width).reshape(k, width)


def winner(values: Array) -> Array:
    """The place of each row's largest value; of equal values the first."""
    best = values.max(axis=-1, keepdims=True)
    return np.asarray(np.argmax(values >= best - ROUNDING * np.abs(best), axis=-1))
