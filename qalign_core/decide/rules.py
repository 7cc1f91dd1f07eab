"""The deciding rules: each is one decorated function, and every list of rules reads `RULES`.

The function returns one number per draw. In a vote the numbers are weights; otherwise the draw with
the largest number is taken. A rule decides once (`decide`), or thousands of times (`decide_many`):

    >>> @rule("median", picks="draw", word="Median reward", needs_reward=True,
    ...       sentence="Take the sample with the median reward.")
    ... def median_reward(draws):
    ...     rank = draws.reward.argsort(axis=-1).argsort(axis=-1)
    ...     return -abs(rank - draws.reward.shape[-1] // 2)
    >>> rewards = np.array([[3.0, 1.0, 2.0], [5.0, 6.0, 9.0]])
    >>> RULES["median"].decide_many(np.array([[0, 1, 2]] * 2), rewards, 0.0, 1.0, vote=None)
    (array([2, 1]), array([2., 6.]))
    >>> del RULES["median"]
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from qalign_core.decide.arrays import softmax
from qalign_core.decide.methods import Decision, consensus, finite_rewards, take_highest, tilt_of
from qalign_core.protocols import AnswerExtractor
from qalign_core.target import Target
from qalign_core.types import Array, ScoredResponse

Vote = Callable[[Array, Array], Array]
"""(answers, weights) of many votes, shape [k, n] -> winners, shape [k]; -1 for none."""


@dataclass(frozen=True, slots=True)
class DrawTable:
    """The draws of several decisions as numbers; the last axis is the draws of one decision.

    Attributes:
        reward: of each draw, in raw RM units.
        beta: of the target.
        tilt: the addition of a sharper target to the log-weight of each draw; 0 at sharpness 1.
        read_answers: returns the number of the answer of each draw, -1 for none.
    """

    reward: Array
    beta: float | Array
    tilt: Array | float
    read_answers: Callable[[], Array]

    @property
    def answer(self) -> Array:
        """The number of the answer of each draw, -1 for none; without an extractor, of its text."""
        return self.read_answers()


Score = Callable[[DrawTable], Array]
"""Draws -> one number per draw, same shape: weights that sum to 1, or what is to be largest."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A deciding rule.

    Attributes:
        id: its name in results, tables and links.
        draws: what it decides from: the states of a chain, or the pool of independent samples.
        score: one number per draw; None for a vote in which all draws count the same.
        picks: "vote": the answer with the largest weight, or the most typical text; "draw": the
            draw with the largest score, of equal ones the first.
        aims: True if it estimates the target: from a chain, or by importance weights.
        maximizes: the name of the score if it depends on the draw alone, as the reward does; then
            averages over subsets of the draws are exact.
        needs_reward: True if it is undefined where no reward is used.
        word, sentence, formula: how pages call and explain it. The rules that are shipped have
            theirs, with colors and markers, in `assets/dictionary.toml`.
    """

    id: str
    draws: Literal["chain", "pool"] = "pool"
    score: Score | None = None
    picks: Literal["vote", "draw"] = "vote"
    aims: bool = False
    maximizes: str = ""
    needs_reward: bool = False
    word: str = ""
    sentence: str = ""
    formula: str = ""

    @property
    def is_weighted(self) -> bool:
        """True if it is a vote in which draws count differently."""
        return self.picks == "vote" and self.score is not None

    @property
    def reads_reward(self) -> bool:
        """True if the reward model reads its draws, and so is charged; a chain's always are."""
        return self.draws == "chain" or self.score is not None

    def decide(
        self,
        samples: Sequence[ScoredResponse],
        extract: AnswerExtractor | None,
        target: Target,
    ) -> Decision:
        """Decide from samples, or from a chain's states with their repeats.

        Raises:
            InvalidSetting: no samples, or an unknown log-probability that the target needs.
            InvalidReward: a reward is not finite.
        """
        if self.score is None:
            return consensus(samples, extract)
        rewards = np.array(finite_rewards(samples), np.float64)
        read = cache(extract) if extract is not None else None
        tilt = tilt_of(samples, target.sharpness)
        draws = DrawTable(rewards, target.beta, tilt, lambda: _number_answers(samples, read))
        scores = self.score(draws).tolist()
        if self.picks == "draw":
            return take_highest(samples, scores, read)
        return consensus(samples, read, scores)

    def decide_many(
        self, answer: Array, reward: Array, tilt: Array | float, beta: float | Array, vote: Vote
    ) -> tuple[Array, Array]:
        """Return the answers of k decisions, and the mean rewards behind them, shape [k].

        Args:
            answer, reward: of the draws, shape [k, n].
            tilt: what a sharper target adds to their log-weights, same shape.
            beta: of the weights; an array of shape [k, 1] for a beta each.
            vote: how votes over these answers are decided.
        """
        draws, n = DrawTable(reward, beta, tilt, lambda: answer), reward.shape[1]
        if self.picks == "draw" or n == 1:  # a single draw decides alone
            score = reward if self.score is None or n == 1 else self.score(draws)
            place = np.arange(len(reward)), score.argmax(axis=1)
            return answer[place], reward[place]
        weight = np.full(reward.shape, 1 / n) if self.score is None else self.score(draws)
        return vote(answer, weight), (weight * reward).sum(axis=1)


def _number_answers(samples: Sequence[ScoredResponse], read: AnswerExtractor | None) -> Array:
    """Return the number of the answer of each sample, by first appearance; -1 for none."""
    texts = [sample.response.text for sample in samples]
    answers = texts if read is None else [read(text) for text in texts]
    numbers: dict[str | None, int] = {None: -1}
    return np.array([numbers.setdefault(answer, len(numbers) - 1) for answer in answers])


RULES: dict[str, Rule] = {}
"""The rules that are compared, by id, in the order of the pages' columns."""


def rule(id: str, **declared: Any) -> Callable[[Score | None], Rule]:
    """Make a rule of a function, and add it to `RULES`.

    Args:
        id: its name in results, tables and links.
        declared: the other fields of `Rule`, but for `score`, which is the function.
    """

    def add(score: Score | None) -> Rule:
        RULES[id] = Rule(id, score=score, **declared)
        return RULES[id]

    return add


chain_vote = rule("qalign", draws="chain", aims=True)(None)
"""A vote over the states of the chain."""


@rule("bon", picks="draw", maximizes="reward", needs_reward=True)
def best_reward(draws: DrawTable) -> Array:
    """Take the sample with the highest reward."""
    return draws.reward


plain_vote = rule("mv")(None)
"""A vote over the samples, each of which counts the same."""


@rule("wmv", aims=True)
def weighted_vote(draws: DrawTable) -> Array:
    """Weigh the samples by importance weights, so that the vote estimates the target."""
    return softmax(draws.reward, draws.beta, draws.tilt)
