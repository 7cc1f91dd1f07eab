"""The chain's law written out: target and transition matrix of an enumerable LM, under any rule.

The matrix is built from the very functions that the chain calls (`draw_index`, `log_acceptance`,
the model's own next-token probabilities), so a law that holds for the matrix holds for the chain.
A `Flow` is the detailed balance of one pair of responses, with every factor of both sides.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from qalign_core.chain.moves.choices import draw_index
from qalign_core.chain.moves.move import Move
from qalign_core.chain.moves.suffix import length_ratio
from qalign_core.decide.arrays import softmax
from qalign_core.errors import InvalidSetting
from qalign_core.target import Scores, Target, log_acceptance
from qalign_core.types import Array, Response
from qalign_study.exact.enumerable import EnumerableLM, Tokens
from qalign_study.exact.moves import law_of


@lru_cache(maxsize=1024)
def index_probabilities(n: int) -> tuple[float, ...]:
    """Probability of every index when u is uniform, measured on `draw_index` itself."""
    n_cells = 8 * n  # u is probed at the midpoint of eight equal cells an index
    indices = [draw_index(n, (cell + 0.5) / n_cells) for cell in range(n_cells)]
    return tuple(indices.count(index) / n_cells for index in range(n))


@dataclass(frozen=True, slots=True)
class Rule:
    """How a chain moves. The defaults follow docs/method.md; any other value is a mistake.

    Attributes:
        name: the mistake in a few words.
        why: what it leaves out, and why that matters.
        move: another move than the paper's, enumerated.
        share: how often a step makes that move; the others make the paper's.
        n_indices: from how many positions the index is drawn.
        length: the |y| that enters the length ratio.
        log_alpha: the acceptance rule, called as `log_acceptance` is, elementwise.
        log_prob: the ln p(y|x) that enters a sharper target's factor.
        limit: the longest proposal, from `L` and the index (at most `L - i` new ids, so `L`
            whatever the index).
        counted: which steps the average is over: "all", "accepted" (rejected ones dropped), or
            "changed" (proposals equal to the state are drawn again).
    """

    name: str = "The right rule"
    why: str = ""
    move: Move | None = None
    share: float = 1.0
    n_indices: Callable[[Response], int] = len  # with EOS counted
    length: Callable[[Response], int] = len  # with EOS counted
    log_alpha: Callable[..., Array] = log_acceptance
    log_prob: Callable[[EnumerableLM, Response], float] = lambda lm, y: float(y.log_prob or 0.0)
    limit: Callable[[int, int], int] = lambda most, index: most
    counted: str = "all"

    @property
    def factors(self) -> bool:
        """True if a flow is the product of the factors of `Flow`."""
        return self.counted == "all" and self.move is None


EXACT = Rule()
"""The chain of docs/method.md."""


@dataclass(frozen=True, slots=True, eq=False)
class ExactChain:
    """A chain on a finite space, in full.

    Attributes:
        states: every reachable response.
        rewards: r(x, y) of each, shape [n].
        base: p_LM(y|x), shape [n]; 0 for a state that the base LM cannot emit.
        target: pi(y|x) (Eq. 1, or a sharper one), shape [n].
        matrix: T[a, b], probability of moving from a to b, shape [n, n]; rows sum to 1.
        acceptance: expected acceptance probability of a proposal made in each state, shape [n].
        unchanged: probability that a proposal made in each state equals it, shape [n].
        lm: the language model.
        aim: what the chain samples, in numbers: beta and sharpness.
        rule: how it moves.
    """

    states: tuple[Response, ...]
    rewards: Array
    base: Array
    target: Array
    matrix: Array
    acceptance: Array
    unchanged: Array
    lm: EnumerableLM
    aim: Target
    rule: Rule

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

    def balance_residual(self) -> float:
        """max_ab |pi_a T_ab - pi_b T_ba|; 0 for the right rule, up to rounding."""
        return self.worst_pair()[0]

    def worst_pair(self) -> tuple[float, int, int]:
        """The pair of states whose flows differ most: by how much, and their numbers."""
        flow = self.target[:, None] * self.matrix
        off = np.abs(flow - flow.T)
        a, b = np.unravel_index(int(off.argmax()), off.shape)
        return float(off[a, b]), int(a), int(b)

    def flow(self, old: int, new: int) -> "Flow":
        """The flow between two states, by their numbers.

        Raises:
            InvalidSetting: `old` equals `new` (a state's flow to itself always balances), or the
                rule has no such factors: it counts only some of the steps, or makes another move.
        """
        if old == new:
            raise InvalidSetting("choose two different responses; a response balances with itself")
        lm, rule = self.lm, self.rule
        if not rule.factors:
            raise InvalidSetting(f"{rule.name}: its flows are not products of these factors")
        y, z = self.states[old], self.states[new]
        p_index = index_probabilities(rule.n_indices(y))
        log_alpha = rule.log_alpha(
            self.aim,
            new=Scores(self.rewards[new], rule.log_prob(lm, z)),
            old=Scores(self.rewards[old], rule.log_prob(lm, y)),
            log_correction=length_ratio(new=rule.length(z), old=rule.length(y)),
        )
        p_suffix = tuple(_suffix(lm, y, z, index, rule) for index in range(len(p_index)))
        base, target = float(self.base[old]), float(self.target[old])
        return Flow(y, z, base, target, p_index, p_suffix, float(log_alpha))


def total_variation(p: Array, q: Array) -> float:
    """Half the L1 distance of two distributions, in [0, 1]."""
    return float(0.5 * np.abs(p - q).sum())


def target_distribution(base: Array, rewards: Array, target: Target) -> Array:
    """The target's probabilities over an enumeration (Eq. 1), shape [n]."""
    best = rewards[base > 0].max()  # taken off first: a tiny beta makes the others' weights 0
    with np.errstate(divide="ignore", over="ignore"):
        log_reward = np.minimum(rewards - best, 0.0) / target.beta
        log_weights = target.sharpness * np.log(base) + log_reward
    return softmax(log_weights)


def exact_chain(
    lm: EnumerableLM,
    reward: Callable[[Response], float],
    target: Target,
    rule: Rule = EXACT,
) -> ExactChain:
    """Write out the chain of an enumerable LM: states, target and transition matrix.

    Args:
        lm: the finite language model.
        reward: r(x, y) of a response, finite.
        target: what the chain samples; its beta is in units of the reward.
        rule: the right rule, or one of the wrong ones.
    """
    states, old, new, p = _moves(lm, rule.n_indices, rule.limit)
    lengths = np.array([rule.length(state) for state in states])
    correction: tuple[Array, ...] = length_ratio(new=lengths[new], old=lengths[old])
    if rule.move is not None:
        law = law_of(lm, rule.move)  # type: ignore[arg-type]  # a move is hashable
        old, new = np.append(old, law.old), np.append(new, law.new)
        p = np.append((1 - rule.share) * p, rule.share * law.p)
        correction = (np.append(sum(correction), law.correction),)
    n = len(states)
    rewards = np.array([float(reward(state)) for state in states])
    log_probs = np.array([rule.log_prob(lm, state) for state in states])
    log_alpha = rule.log_alpha(
        target,
        new=Scores(rewards[new], log_probs[new]),
        old=Scores(rewards[old], log_probs[old]),
        log_correction=correction,
    )
    matrix = np.zeros((n, n))
    np.add.at(matrix, (old, new), p * np.exp(log_alpha))
    unchanged = np.zeros(n)
    same = old == new
    np.add.at(unchanged, old[same], p[same])

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
    pi = target_distribution(base, rewards, target)
    return ExactChain(
        states, rewards, base, pi, matrix, acceptance, unchanged, lm=lm, aim=target, rule=rule
    )


@lru_cache(maxsize=32)
def _moves(
    lm: EnumerableLM, n_indices: Callable[[Response], int], limit: Callable[[int, int], int]
) -> tuple[tuple[Response, ...], Array, Array, Array]:
    """States, and every proposal that can be made, whatever the reward: old, new, probability."""

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
    return tuple(states), np.array(old), np.array(new), np.array(probabilities)


@dataclass(frozen=True, slots=True)
class Flow:
    """The flow from one response to another, pi(old) q(new | old) alpha, and its factors.

    Attributes:
        old: the response that the step starts from.
        new: the proposal.
        base: p_LM(old).
        target: pi(old).
        p_index: probability of every index 0..len(old)-1; the same for each under the right rule.
        p_suffix: p_LM of the rest of `new` after the index, 0 where the prefixes differ.
        log_alpha: natural log of the acceptance probability.
    """

    old: Response
    new: Response
    base: float
    target: float
    p_index: tuple[float, ...]
    p_suffix: tuple[float, ...]
    log_alpha: float

    @property
    def alpha(self) -> float:
        """The acceptance probability."""
        return math.exp(self.log_alpha)

    @property
    def proposal(self) -> float:
        """q(new | old): the sum over the index (Eq. 4)."""
        return math.fsum(p * q for p, q in zip(self.p_index, self.p_suffix, strict=True))

    def through(self, index: int) -> float:
        """The part of the flow that goes through one index; 0 past the last one."""
        if index >= len(self.p_index):
            return 0.0
        return self.target * self.p_index[index] * self.p_suffix[index] * self.alpha

    @property
    def total(self) -> float:
        """The whole flow, pi(old) q(new | old) alpha(old -> new)."""
        return math.fsum(self.through(index) for index in range(len(self.p_index)))


def _suffix(lm: EnumerableLM, old: Response, new: Response, index: int, rule: Rule) -> float:
    if index >= len(new) or index >= len(old) or old.tokens[:index] != new.tokens[:index]:
        return 0.0
    limit = rule.limit(lm.max_new_tokens, index)
    cut = not new.finished
    if len(new) > limit or (cut and len(new) != limit):
        return 0.0
    return lm.suffix_probability(new.tokens, index)
