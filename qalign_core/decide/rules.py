"""The deciding rules that are compared, as values: every list of rules reads `RULES`.

A rule takes draws from the pool of samples or from the chain, weighs them, and picks an answer. It
decides once (`decide`), or for thousands of resampled draws at a time (`decide_many`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from qalign_core.decide.arrays import softmax
from qalign_core.decide.methods import best_of_n, consensus, tilt_of
from qalign_core.protocols import AnswerExtractor
from qalign_core.target import Target
from qalign_core.types import Array, Decision, ScoredResponse

Weights = Callable[[Array, float | Array, float | Array], Array]
"""(rewards, beta, what a sharper target adds to log-weights) -> weights that sum to 1; [..., n]."""
Vote = Callable[[Array, Array], Array]
"""(answers, weights) of many votes, shape [k, n] -> winners, shape [k]; -1 for none."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A deciding rule.

    Attributes:
        id: its name in results, tables and links; the dictionary has its word, colour and marker.
        draws: what it decides from.
        weights: of its draws; None if all count the same.
        pick: "vote": the answer with the largest weight, or the most typical text; "best": the
            draw with the highest reward.
        needs_reward: whether it is undefined where no reward is used.
    """

    id: str
    draws: Literal["chain", "pool"]
    weights: Weights | None = None
    pick: Literal["vote", "best"] = "vote"
    needs_reward: bool = False

    @property
    def aims(self) -> bool:
        """Whether it estimates the target: from a chain, or by importance weights."""
        return self.pick == "vote" and (self.draws == "chain" or self.weights is softmax)

    @property
    def reads_reward(self) -> bool:
        """True if the reward model reads its draws, and so is charged; a chain's always are."""
        return self.draws == "chain" or self.pick == "best" or self.weights is not None

    def decide(
        self,
        samples: Sequence[ScoredResponse],
        extract: AnswerExtractor | None,
        target: Target,
    ) -> Decision:
        """Decide from samples, or from a chain's states with their repeats.

        Raises:
            InvalidSetting, InvalidReward: as `rules` does.
        """
        if self.pick == "best":
            return best_of_n(samples, extract)
        if self.weights is None:
            return consensus(samples, extract)
        rewards = np.array([sample.reward for sample in samples], np.float64)
        weights = self.weights(rewards, target.beta, tilt_of(samples, target.sharpness))
        return consensus(samples, extract, weights.tolist())

    def decide_many(
        self, answer: Array, reward: Array, tilt: Array | float, beta: float | Array, vote: Vote
    ) -> tuple[Array, Array]:
        """The answers of k decisions, and the mean rewards that they stand for, shape [k].

        Args:
            answer, reward: of the draws, shape [k, n].
            tilt: what a sharper target adds to their log-weights, same shape.
            beta: of the weights; an array of shape [k, 1] for a beta each.
            vote: how votes over these answers are decided.
        """
        if self.pick == "best" or reward.shape[1] == 1:  # a single draw decides alone
            place = np.arange(len(reward)), reward.argmax(axis=1)
            return answer[place], reward[place]
        if self.weights is None:
            weight = np.full(reward.shape, 1 / reward.shape[1])
        else:
            weight = self.weights(reward, beta, tilt)
        return vote(answer, weight), (weight * reward).sum(axis=1)


RULES: dict[str, Rule] = {
    rule.id: rule
    for rule in (
        Rule("qalign", "chain"),
        Rule("bon", "pool", pick="best", needs_reward=True),
        Rule("mv", "pool"),
        Rule("wmv", "pool", weights=softmax),
    )
}
"""The rules that are compared, by id, in the order of the pages' columns."""
