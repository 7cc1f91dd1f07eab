"""The chain's law written out: target and transition matrix of an enumerable LM, and wrong rules.

The matrix is built from the very functions that the chain calls (`draw_index`, `log_acceptance` of
arrays, the model's own next-token probabilities), so a law that holds for the matrix holds for the
chain.
The wrong rules are negative controls: each breaks one piece and must fail the laws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qalign_core.chain.kernel import draw_index, log_acceptances
from qalign_core.decide.arrays import softmax
from qalign_core.models.enumerable import EnumerableLM, Tokens
from qalign_core.run import check_beta
from qalign_core.types import Response

Array = NDArray[np.float64]


@lru_cache(maxsize=1024)
def index_probabilities(n: int) -> tuple[float, ...]:
    """Probability of every index when u is uniform, measured on `draw_index` itself."""
    n_cells = 8 * n  # u is probed at the midpoint of eight equal cells an index
    drawn = [draw_index(n, (cell + 0.5) / n_cells) for cell in range(n_cells)]
    return tuple(drawn.count(index) / n_cells for index in range(n))


def shared_limit(max_new_tokens: int, index: int) -> int:
    """The longest proposal: `L`, whatever the index (METHOD: at most `L - i` new ids)."""
    return max_new_tokens


@dataclass(frozen=True, slots=True)
class Rule:
    """How a chain moves. The defaults are the chain of METHOD; any other value is a mistake.

    Attributes:
        name: the mistake in a few words.
        n_indices: from how many positions the index is drawn.
        length: the |y| that enters the length ratio.
        log_alpha: the acceptance rule, with the keywords of `log_acceptances`, elementwise.
        limit: the longest proposal, from `L` and the index.
        counted: which steps the average is over: "all", "accepted" (rejected ones dropped), or
            "changed" (proposals equal to the state are drawn again).
    """

    name: str = "exact"
    n_indices: Callable[[Response], int] = len  # with EOS counted
    length: Callable[[Response], int] = len  # with EOS counted
    log_alpha: Callable[..., Array] = log_acceptances
    limit: Callable[[int, int], int] = shared_limit
    counted: str = "all"


def _no_ratio(*, len_new: ArrayLike, len_old: ArrayLike, **rewards: Any) -> Array:
    return log_acceptances(len_new=1, len_old=1, **rewards)


def _inverted_ratio(*, len_new: ArrayLike, len_old: ArrayLike, **rewards: Any) -> Array:
    return log_acceptances(len_new=len_old, len_old=len_new, **rewards)


def _only_improvements(*, reward_new: Array, reward_old: Array, **_: object) -> Array:
    return np.where(reward_new >= reward_old, 0.0, -np.inf)


def _always(*, reward_new: Array, **_: object) -> Array:
    return np.zeros_like(reward_new)


def _without_eos(response: Response) -> int:
    # an immediate EOS would leave no position at all, and a chain that can never leave it
    return max(1, len(response) - response.finished)


def _one_more(response: Response) -> int:
    return len(response) + 1


@lru_cache(maxsize=16)  # one function a limit, so that its moves are enumerated once
def suffix_limit(hard_limit: int) -> Callable[[int, int], int]:
    """The published code's limit: every suffix may have `L` new ids, up to a context's end."""

    def limit(max_new_tokens: int, index: int) -> int:
        return min(index + max_new_tokens, hard_limit)

    return limit


EXACT = Rule()
NO_LENGTH_RATIO = Rule("no length ratio", log_alpha=_no_ratio)
INVERTED_RATIO = Rule("length ratio upside down", log_alpha=_inverted_ratio)
EOS_NOT_COUNTED = Rule("EOS not counted in |y|", n_indices=_without_eos, length=_without_eos)
INDEX_PAST_THE_END = Rule("index drawn from {0..|y|}", n_indices=_one_more)
REJECTED_DROPPED = Rule("rejected steps dropped", counted="accepted")
UNCHANGED_SKIPPED = Rule("proposals equal to the state drawn again", counted="changed")
ONLY_IMPROVEMENTS = Rule("only improvements accepted", log_alpha=_only_improvements)
ALWAYS_ACCEPTED = Rule("everything accepted", log_alpha=_always)


def suffix_limit_not_shared(hard_limit: int) -> Rule:
    """The published chain: states grow past `L`, and truncated ones cannot be reached back."""
    return Rule("suffix limit not shared by both directions", limit=suffix_limit(hard_limit))


@dataclass(frozen=True, slots=True, eq=False)
class ExactChain:
    """A chain on a finite space, in full.

    Attributes:
        states: every reachable response.
        rewards: r(x, y) of each, shape [n].
        base: p_LM(y|x), shape [n]; 0 for a state that the base LM cannot emit.
        target: pi_beta(y|x) (Eq. modifiedgibbs), shape [n].
        matrix: T[a, b], probability of moving from a to b, shape [n, n]; rows sum to 1.
        acceptance: expected acceptance probability of a proposal made in each state, shape [n].
        unchanged: probability that a proposal made in each state equals it, shape [n].
    """

    states: tuple[Response, ...]
    rewards: Array
    base: Array
    target: Array
    matrix: Array
    acceptance: Array
    unchanged: Array

    def after(self, t: int) -> Array:
        """Distribution after t steps from the base LM, d_0 T^t, shape [n]."""
        return np.asarray(self.base @ np.linalg.matrix_power(self.matrix, t))

    def limit(self) -> Array:
        """Distribution after 2^40 steps from the base LM, its limit to all digits, shape [n]."""
        power = self.matrix
        for _ in range(40):
            squared = power @ power
            squared /= squared.sum(axis=1, keepdims=True)  # rounding must not grow with the powers
            if np.abs(squared - power).max() < 1e-15:  # squaring changes nothing any more
                break
            power = squared
        return np.asarray(self.base @ power)

    def stationarity_residual(self) -> float:
        """max_b |(pi T)_b - pi_b|; 0 for the right rule, up to rounding."""
        return float(np.abs(self.target @ self.matrix - self.target).max())

    def balance_residual(self) -> float:
        """max_ab |pi_a T_ab - pi_b T_ba|; 0 for the right rule, up to rounding."""
        flow = self.target[:, None] * self.matrix
        return float(np.abs(flow - flow.T).max())


def total_variation(p: Array, q: Array) -> float:
    """Half the L1 distance of two distributions, in [0, 1]."""
    return float(0.5 * np.abs(p - q).sum())


def target_distribution(base: Array, rewards: Array, beta: float) -> Array:
    """pi_beta ∝ p_LM exp(r / beta) over an enumeration (Eq. modifiedgibbs), shape [n]."""
    check_beta(beta)
    best = rewards[base > 0].max()  # taken off first: a tiny beta makes the others' weights 0
    with np.errstate(divide="ignore", over="ignore"):
        log_weights = np.log(base) + np.minimum(rewards - best, 0.0) / beta
    return softmax(log_weights)


def exact_chain(
    lm: EnumerableLM, reward: Callable[[Response], float], beta: float, rule: Rule = EXACT
) -> ExactChain:
    """Write out the chain of an enumerable LM: states, target and transition matrix.

    Args:
        lm: the finite language model.
        reward: r(x, y) of a response, finite.
        beta: > 0, in units of the reward.
        rule: the right rule, or one of the wrong ones.
    """
    check_beta(beta)
    moves = _moves(lm, rule.n_indices, rule.limit)
    states, old, new = moves.states, moves.old, moves.new
    n = len(states)
    rewards = np.array([float(reward(state)) for state in states])
    lengths = np.array([rule.length(state) for state in states])
    log_alpha = rule.log_alpha(
        reward_new=rewards[new],
        reward_old=rewards[old],
        len_new=lengths[new],
        len_old=lengths[old],
        beta=beta,
    )
    matrix = np.zeros((n, n))
    matrix[old, new] = moves.p * np.exp(log_alpha)
    unchanged = np.zeros(n)
    same = old == new
    unchanged[old[same]] = moves.p[same]

    acceptance = matrix.sum(axis=1)
    diagonal = np.arange(n)
    if rule.counted == "accepted":
        matrix /= acceptance[:, None]
    elif rule.counted == "changed":
        matrix[diagonal, diagonal] = 0.0
        matrix /= 1.0 - unchanged[:, None]
    if rule.counted != "accepted":  # what is rejected stays
        matrix[diagonal, diagonal] += 1.0 - matrix.sum(axis=1)
    base = np.zeros(n)
    base[: len(lm.support)] = lm.probabilities
    target = target_distribution(base, rewards, beta)
    return ExactChain(states, rewards, base, target, matrix, acceptance, unchanged)


@dataclass(frozen=True, slots=True, eq=False)
class _Moves:
    """Every proposal that can be made, whatever the reward: `p` of proposing `new` in `old`."""

    states: tuple[Response, ...]
    old: NDArray[np.int64]
    new: NDArray[np.int64]
    p: Array


@lru_cache(maxsize=32)
def _moves(
    lm: EnumerableLM, n_indices: Callable[[Response], int], limit: Callable[[int, int], int]
) -> _Moves:
    @cache
    def proposals(prefix: Tokens) -> list[tuple[Tokens, float]]:
        return list(lm.completions(prefix, limit(lm.max_new_tokens, len(prefix))))

    # the states are the base LM's responses and whatever the rule can reach from them
    states = list(lm.support)
    number = {state.tokens: a for a, state in enumerate(states)}
    old: list[int] = []
    new: list[int] = []
    probabilities: list[float] = []
    for a, state in enumerate(states):  # grows while it is walked
        proposed: dict[int, float] = {}
        for index, p_index in enumerate(index_probabilities(n_indices(state))):
            ended = index >= len(state)  # a mistaken rule can keep everything
            for tokens, p in [(state.tokens, 1.0)] if ended else proposals(state.tokens[:index]):
                b = number.get(tokens)
                if b is None:
                    b = number[tokens] = len(states)
                    states.append(lm.response(tokens))
                proposed[b] = proposed.get(b, 0.0) + p_index * p
        old += [a] * len(proposed)
        new += proposed
        probabilities += proposed.values()
    return _Moves(tuple(states), np.array(old), np.array(new), np.array(probabilities))
