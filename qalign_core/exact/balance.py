"""Detailed balance of one pair of responses, with every factor of both flows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from qalign_core.errors import InvalidSetting
from qalign_core.exact.law import EXACT, ExactChain, Rule, index_probabilities
from qalign_core.models.enumerable import EnumerableLM
from qalign_core.types import Response


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
        """q(new | old): the sum over the index (Eq. proposal)."""
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


def flow(
    lm: EnumerableLM, chain: ExactChain, old: int, new: int, beta: float, rule: Rule = EXACT
) -> Flow:
    """The flow between two states of a chain, by their numbers, under its rule.

    Raises:
        InvalidSetting: `old` equals `new` (a state's flow to itself always balances), or the rule
            counts only some of the steps, so a flow is not a product of these factors.
    """
    if old == new:
        raise InvalidSetting("choose two different responses; a response balances with itself")
    if rule.counted != "all":
        raise InvalidSetting(f"{rule.name}: its flows are not products of these factors")
    y, z = chain.states[old], chain.states[new]
    p_index = index_probabilities(rule.n_indices(y))
    log_alpha = float(
        rule.log_alpha(
            reward_new=chain.rewards[new],
            reward_old=chain.rewards[old],
            len_new=rule.length(z),
            len_old=rule.length(y),
            beta=beta,
        )
    )
    p_suffix = tuple(_suffix(lm, y, z, index, rule) for index in range(len(p_index)))
    return Flow(
        y, z, float(chain.base[old]), float(chain.target[old]), p_index, p_suffix, log_alpha
    )


def _suffix(lm: EnumerableLM, old: Response, new: Response, index: int, rule: Rule) -> float:
    if index >= len(new) or index >= len(old) or old.tokens[:index] != new.tokens[:index]:
        return 0.0
    limit = rule.limit(lm.max_new_tokens, index)
    cut = not new.finished
    if len(new) > limit or (cut and len(new) != limit):
        return 0.0
    return lm.suffix_probability(new.tokens, index)
