"""A constructed example of a reward that can be hacked, with every rule computed exactly.

Three final answers: A is right, B popular and wrong, C a rare response that the reward model
overrates. A response is zero to two steps of thinking, the answer and EOS, so the chain moves by
the real suffix kernel on an enumerable LM, and its states are not independent. The reward depends
on the answer alone; so the counts of the three answers decide every vote, and the distribution of
those counts can be summed in full: nothing here is sampled.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from qalign_core.decide.arrays import ROUNDING
from qalign_core.decide.rules import RULES, Rule
from qalign_core.errors import InvalidSetting
from qalign_core.target import Target
from qalign_core.types import Array, Response
from qalign_study.exact.enumerable import EnumerableLM
from qalign_study.exact.law import ExactChain, exact_chain, target_distribution
from qalign_study.exact.world import MOST

ANSWERS = ("A", "B", "C")
MEANINGS = ("right", "popular and wrong", "reward hack")
SAMPLES = (1, 2, 4, 8, 16, 32, 64, 128)

# how the answers that are not the hack divide, and how often 0, 1 or 2 steps of thinking precede
_SHARE_RIGHT = 0.42
_THINKING = ((0.2, 0.3, 0.5), (0.5, 0.3, 0.2), (0.4, 0.3, 0.3))
_PIECES = ("think ", "A", "B", "C", "<eos>")


@dataclass(frozen=True, slots=True)
class Example:
    """One setting of the example.

    Attributes:
        hack_mass: p_LM(C), in (0, 0.5).
        hack_reward: what the reward model gives C; A gets 1, B gets 0.
        beta: temperature of the target and of the weighted vote, in the same units.
    """

    hack_mass: float = 0.01
    hack_reward: float = 3.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.hack_mass < 0.5:
            raise InvalidSetting(
                f"the hack's share of the LM must be above 0 and below 0.5, got {self.hack_mass}"
            )
        if not 1.0 < self.hack_reward <= MOST:
            raise InvalidSetting(
                "a hack is rated above the right answer: its reward must be above 1, and "
                f"{MOST:,.0f} at most, got {self.hack_reward}"
            )

    @property
    def rewards(self) -> tuple[float, float, float]:
        """Proxy reward of A, B and C."""
        return (1.0, 0.0, self.hack_reward)

    @property
    def base(self) -> tuple[float, float, float]:
        """p_LM of A, B and C."""
        rest = 1.0 - self.hack_mass
        return (rest * _SHARE_RIGHT, rest * (1.0 - _SHARE_RIGHT), self.hack_mass)

    @property
    def hack_beta(self) -> float:
        """Below this beta the target itself prefers C to A: no sampler can fix that."""
        right, _, hack = self.base
        if hack >= right:
            return math.inf
        return (self.hack_reward - 1.0) / math.log(right / hack)

    @property
    def right_beta(self) -> float:
        """Below this beta the target prefers A to B: above it the reward is trusted too little."""
        right, popular, _ = self.base
        return 1.0 / math.log(popular / right)

    def target(self) -> Array:
        """pi_beta of A, B and C, shape [3]."""
        base, rewards = np.array(self.base), np.array(self.rewards)
        return target_distribution(base, rewards, Target(self.beta))

    def lm(self) -> EnumerableLM:
        """The nine responses as a language model."""
        responses = {}
        for answer, (p, thinking) in enumerate(zip(self.base, _THINKING, strict=True)):
            for steps, share in enumerate(thinking):
                responses[(0,) * steps + (answer + 1, len(_PIECES) - 1)] = p * share
        return EnumerableLM.from_responses(responses, pieces=_PIECES, id="hackable")

    def score(self, response: Response) -> float:
        """The proxy reward of a response: that of its answer."""
        return self.rewards[ANSWERS.index(answer_of(response.text))]

    def chain(self) -> ExactChain:
        """The chain on the nine responses."""
        return exact_chain(self.lm(), self.score, Target(self.beta))


def answer_of(text: str) -> str:
    """The final answer of a response: its last letter."""
    return text[-1]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A rule's answers from n samples (of the LM, or states of one chain).

    Attributes:
        method: its id.
        n: number of samples or states.
        answers: probability that it answers A, B and C.
        proxy: expected proxy reward of its answer.
    """

    method: str
    n: int
    answers: tuple[float, float, float]
    proxy: float

    @property
    def accuracy(self) -> float:
        """Probability that the answer is A, the right one."""
        return self.answers[0]


def outcomes(example: Example, samples: tuple[int, ...] = SAMPLES) -> tuple[Outcome, ...]:
    """Compute every rule at every n, exactly (cached).

    Raises:
        InvalidSetting: from the example's own settings.
    """
    return _outcomes(example, samples, tuple(RULES.values()))


@lru_cache(maxsize=64)
def _outcomes(
    example: Example, samples: tuple[int, ...], rules: tuple[Rule, ...]
) -> tuple[Outcome, ...]:
    base, outcomes_by_rule = np.array(example.base), []
    states = _chain_counts(example, samples)
    for n in samples:
        counts = {"pool": _iid_counts(base, n), "chain": states[n]}
        for rule in rules:
            a, b, c = chance_of_choice(rule, counts[rule.draws], example)
            proxy = float(np.dot((a, b, c), example.rewards))
            outcomes_by_rule.append(Outcome(rule.id, n, (a, b, c), proxy))
    return tuple(outcomes_by_rule)


def _iid_counts(base: Array, n: int) -> Array:
    """P(count of A = i, count of B = j) of n independent answers, shape [n+1, n+1]."""
    from scipy.special import gammaln

    i, j = np.indices((n + 1, n + 1))
    possible = i + j <= n
    k = np.maximum(n - i - j, 0)
    log_p = (
        gammaln(n + 1) - gammaln(i + 1) - gammaln(j + 1) - gammaln(k + 1)
        + i * np.log(base[0]) + j * np.log(base[1]) + k * np.log(base[2])
    )  # fmt: skip
    return np.where(possible, np.exp(log_p), 0.0)


def _chain_counts(example: Example, samples: tuple[int, ...]) -> dict[int, Array]:
    """The same of the first n states of the chain, y^0 drawn from the LM, for every n.

    A sum over paths, one step at a time: [state, count of A, count of B].
    """
    chain = example.chain()
    answers = [answer_of(y.text) for y in chain.states]
    arriving = chain.base[:, None, None]
    counts = {}
    for n in range(1, max(samples) + 1):
        paths = np.zeros((len(answers), n + 1, n + 1))
        for state, answer in enumerate(answers):
            i, j = int(answer == "A"), int(answer == "B")
            paths[state, i : n + i, j : n + j] = arriving[state]
        if n in samples:
            counts[n] = paths.sum(axis=0)
        arriving = np.tensordot(chain.matrix.T, paths, axes=1)
    return counts


def chance_of_choice(rule: Rule, counts: Array, example: Example) -> tuple[float, ...]:
    """Probability that a rule answers A, B and C, from the distribution of the counts.

    A tie counts as its expectation over the tied answers, since counts have no order.
    """
    ends, answer = _possible(counts.shape[0] - 1)
    rewards, times = np.array(example.rewards), np.diff(ends)

    def vote(_: Array, weight: Array) -> Array:
        """The share of each answer in each decision, shape [ways, 3]."""
        running = np.pad(weight.cumsum(axis=1), ((0, 0), (1, 0)))
        votes = np.diff(np.take_along_axis(running, ends, axis=1))
        votes = np.where(times > 0, votes, -np.inf)
        leads = votes >= votes.max(axis=1, keepdims=True) * (1 - ROUNDING)
        return np.asarray(leads / leads.sum(axis=1, keepdims=True))

    won, _ = rule.decide_many(answer, rewards.take(answer), 0.0, example.beta, vote)
    shares = np.eye(len(ANSWERS))[won] if won.ndim == 1 else won
    return tuple((counts[times[:, 0], times[:, 1]] @ shares).tolist())


@lru_cache(maxsize=len(SAMPLES))
def _possible(n: int) -> tuple[Array, Array]:
    """How n draws divide into A's, then B's, then C's: ends, [ways, 4], and answers, [ways, n]."""
    i, j = np.nonzero(np.tri(n + 1)[::-1])
    ends = np.stack([0 * i, i, i + j, 0 * i + n], axis=1)
    place = np.arange(n)
    return ends, (place >= ends[:, 1, None]).astype(np.int64) + (place >= ends[:, 2, None])


def target_over_beta(example: Example, betas: tuple[float, ...]) -> Array:
    """Share of A, B and C under the target at each beta, shape [len(betas), 3]."""
    return np.array([replace(example, beta=beta).target() for beta in betas])
