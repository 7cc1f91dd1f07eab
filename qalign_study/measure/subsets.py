"""How often a rule over n samples is right, over the subsets of n of a problem's samples.

Up to `MOST` subsets are all counted. Votes of two samples have a closed form. Elsewhere random
orders of the samples are cut into disjoint groups of n, so that every sample counts about as often.
A tie between answers counts as its expectation, the mean over the tied answers, and a tie between
draws of which one is taken as the mean over these draws.
"""

import math
from functools import lru_cache
from hashlib import sha256
from itertools import combinations

import numpy as np

from qalign_core.decide.arrays import ROUNDING
from qalign_core.decide.rules import DrawTable, Rule
from qalign_core.types import Array
from qalign_study.measure.diagnostics import ranks

MOST = 4096
"""Subsets of which all are counted, at most."""
SHUFFLES = 16
"""Random orders of the samples; more where a group of n leaves many of them out."""
UNWEIGHTED = 64
"""The same for unweighted votes, which are cheap, and right more rarely where answers are rare."""


@lru_cache(maxsize=256)
def subsets(size: int, n: int, shuffles: int = SHUFFLES) -> Array:
    """The places of the samples of each subset, shape [subsets, n]: all, or random ones.

    At least `shuffles * size / n` random ones, the same whatever else is computed.
    """
    if math.comb(size, n) <= MOST:
        return np.array([*combinations(range(size), n)], dtype=np.int64)
    groups = size // n
    times = math.ceil(shuffles * size / (n * groups))
    order = np.argsort(np.random.default_rng(size).random((2 * shuffles, size)), axis=1)
    return order[:times, : groups * n].reshape(-1, n)


class Pool:
    """The samples of a problem, as votes read them; equal if all of their numbers are equal.

    They are sorted by answer, so that the samples of a subset with the same answer are neighbors.

    Args:
        answer, reward, tilt: of the samples, shape [N]: the number of the answer (-1 for none), the
            reward, and what a sharper target adds to the log-weight.
        right: whether each sample is right, shape [N].
        utility: of all pairs of texts, where minimum Bayes risk takes the place of the vote.

    Attributes:
        rank: the place among these of each sample as it was drawn, shape [N].
    """

    def __init__(
        self, answer: Array, reward: Array, tilt: Array, right: Array, utility: Array | None = None
    ) -> None:
        order = np.argsort(answer, kind="stable")
        self.answer, self.reward, self.tilt, self.right = (
            each[order] for each in (answer, reward, tilt, right)
        )
        self.rank, self.utility = np.argsort(order), utility
        numbers = (
            each.tobytes() for each in (answer, reward, tilt, right, utility) if each is not None
        )
        self._key = sha256(b"".join(numbers)).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pool) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=2**14)
def votes(pool: Pool, n: int, rule: Rule, betas: tuple[float, ...]) -> tuple[Array, float]:
    """How often a rule is right at each beta, shape [betas], and its mean reward at the first.

    The reward is the mean under the weights that the rule decides with. Several files have the same
    samples, so results are remembered.

    Args:
        pool: the samples.
        n: the number of them that a decision is made from.
        rule: a rule over samples.
        betas: of the weights.
    """
    in_vote = rule.picks == "vote"
    in_pairs = n == 2 and in_vote and pool.utility is None and (rule.score is None or rule.aims)
    places = pool.rank[subsets(len(pool.answer), n, SHUFFLES if rule.score else UNWEIGHTED)]
    if not in_pairs:
        places.sort(axis=1)
    weight = _weights(pool, places, rule, betas[:1])
    mean = float((weight * pool.reward[places]).sum() / len(places))
    if in_pairs:
        return np.array([_pairs(pool, rule, beta) for beta in betas]), mean
    right = pool.right[places] @ np.ones(n)
    # weights decide only where some samples of a subset are right and others wrong
    mixed = (right > 0) & (right < n)
    shares = np.tile((right == n).astype(np.float64), (len(betas), 1))
    if mixed.any():
        places = places[mixed]
        weight = weight[:, mixed] if len(betas) == 1 else _weights(pool, places, rule, betas)
        shares[:, mixed] = (
            _shares(pool, places, weight, equal=rule.score is None)
            if in_vote
            else (weight * pool.right[places]).sum(axis=-1)
        )
    return shares.mean(axis=1), mean


def _weights(pool: Pool, places: Array, rule: Rule, betas: tuple[float, ...]) -> Array:
    """The weight of each sample of each subset, shape [betas or 1, subsets, n]."""
    if rule.score is None:
        return np.broadcast_to(1 / places.shape[1], (1, *places.shape))
    weight = rule.score(
        DrawTable(
            pool.reward[places][None],
            np.array(betas, dtype=np.float64)[:, None, None],
            pool.tilt[places][None],
            lambda: pool.answer[places][None],
        )
    )
    if rule.picks == "draw":
        weight = weight >= weight.max(axis=-1, keepdims=True)
        weight = weight / weight.sum(axis=-1, keepdims=True)
    return weight


def _pairs(pool: Pool, rule: Rule, beta: float) -> float:
    """Votes of two in closed form: of two answers, the one with the larger weight wins."""
    voters = pool.answer >= 0
    weight = (pool.reward / beta + pool.tilt if rule.score else np.zeros(len(voters)))[voters]
    # a voter wins against the abstentions, the voters below, and half of the time against equals
    won = ranks(weight) - 1 + (len(voters) - len(weight)) if len(weight) else weight
    return float((won * pool.right[voters]).sum() / math.comb(len(voters), 2))


def _shares(pool: Pool, places: Array, weight: Array, *, equal: bool) -> Array:
    """How far the answer with the most weight is right, shape [betas, subsets]; ties share.

    Args:
        places: of the samples of each subset, ascending, shape [subsets, n].
        weight: of each sample, shape [betas, subsets, n].
        equal: whether all weights are.
    """
    n, answers = places.shape[1], pool.answer[places.ravel()]
    # a cell for each distinct answer of each subset, row after row
    opens = np.append(True, answers[1:] != answers[:-1])
    opens[::n] = True
    first = np.flatnonzero(opens)
    row, right = first // n, pool.right[places.ravel()[first]]
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    if pool.utility is not None:
        each = answers.reshape(-1, n)
        pairs = pool.utility[each[:, :, None], each[:, None, :]]
        support = (pairs @ weight[..., None]).reshape(len(weight), -1)[:, first]
    else:
        if equal:
            support = np.diff(first, append=len(answers))[None].astype(np.float64)
        else:
            support = np.add.reduceat(weight.reshape(len(weight), -1), first, axis=1)
        support[:, answers[first] < 0] = -1.0  # no answer, no vote
    best = np.maximum.reduceat(support, starts, axis=1)
    leads = support >= (best - ROUNDING * np.abs(best))[:, row]
    ends = np.append(starts[1:], len(first)) - 1
    of_right, of_all = (
        np.diff(np.cumsum(each, axis=1)[:, ends], axis=1, prepend=0)
        for each in (leads & right, leads)
    )
    return np.asarray(of_right / of_all)
