"""A model of solving problems in which a chain can be worth it: everything but the text is there.

A solution is T decisions, each right with a chance of its own, and its answer is right only if all
are. A wrong decision is one of three. The reward adds up over decisions: a right one is worth 1,
every choice of every problem has a persistent bias, and every solution a persistent error, so the
reward model is wrong in the same way each time it reads the same solution. A proposal keeps what
stands before a uniform decision and draws the rest again, and it costs what it draws.

One sample and any of n are exact for the problems that were drawn; the rest is simulated, with
95 % bands over problems. The same seed is the same luck: what changes between two situations is
due to them.
"""

from dataclasses import dataclass
from functools import partial
from statistics import NormalDist

import numpy as np

from qalign_core.decide.arrays import vote
from qalign_core.decide.rules import RULES
from qalign_core.errors import InvalidSetting
from qalign_core.target import Scores, Target, accepts, log_acceptance
from qalign_core.types import Array
from qalign_study.measure.curves import budgets
from qalign_study.measure.diagnostics import Rate
from qalign_study.measure.intervals import Difference, paired_difference

WRONG = 3
"""Ways in which a decision can be wrong."""
MOST_DECISIONS = 24
SHARED = -1
"""The number of the one wrong answer that solutions may share; a right answer is 0."""
CERTAINTY = 6
"""The concentration of the Beta law of the chances: the smaller, the more decisions differ."""
_ERRORS = 1 << 16
"""Different errors of solutions; which one a solution has follows from all of its choices."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The situation in which a chain may be worth it.

    Attributes:
        decisions: T, of a solution.
        chance: mean chance that a decision is right; it varies over decisions and problems.
        near_miss: how often the reward prefers the better of two solutions that differ in one
            decision, above 1/2.
        beta: of the chain and of the weighted vote; a right decision is worth 1.
        agree: chance that a wrong solution has the wrong answer that others share, 0..1; else only
            the same solution has the same answer.

    Raises:
        InvalidSetting: a value is outside its range.
    """

    decisions: int = 12
    chance: float = 0.6
    near_miss: float = 0.95
    beta: float = 0.3
    agree: float = 0.0

    def __post_init__(self) -> None:
        Target(self.beta)
        for name, value, low, high in (
            ("decisions", self.decisions, 1, MOST_DECISIONS),
            ("chance", self.chance, 0.05, 0.95),
            ("near_miss", self.near_miss, 0.51, 1.0),
            ("agree", self.agree, 0.0, 1.0),
        ):
            if not low <= value <= high:
                raise InvalidSetting(f"{name} must be {low} to {high}, got {value}")

    @property
    def error(self) -> float:
        """Spread of the bias of a choice, and of the error of a solution; both are the same.

        A right choice leads by 1, give or take two biases and two errors: near_miss = Phi(1 / 2 s).
        """
        if self.near_miss == 1.0:
            return 0.0
        return 0.5 / NormalDist().inv_cdf(self.near_miss)


@dataclass(frozen=True, slots=True, eq=False)
class Problems:
    """Problems of a situation.

    Attributes:
        chances: of every choice of every decision, the right one first, shape [T, 4, P].
        worth: what each adds to the reward, same shape.
        errors: what a solution's reward is off, by 16 bits that its choices give, shape [2^16].
    """

    chances: Array
    worth: Array
    errors: Array

    @property
    def right(self) -> Array:
        """The chance that a single sample is right, shape [P]."""
        return np.asarray(self.chances[:, 0].prod(axis=0))


@dataclass(frozen=True, slots=True, eq=False)
class Exploration:
    """The results of all methods in a situation, at the compute of n samples each.

    Attributes:
        ns: the budgets, in samples.
        one: chance that a single sample is right; exact for these problems.
        any_of: that any of n is, which no rule over n samples can exceed; exact, shape [budgets].
        right: of each rule, by id, whether it is right, shape [budgets, P].
        near_misses: of states and proposals of which exactly one is right, how often the reward
            prefers that one, as the chain met them.
    """

    ns: tuple[int, ...]
    one: float
    any_of: Array
    right: dict[str, Array]
    near_misses: Rate

    def rate(self, method: str, place: int = -1) -> Rate:
        """How often a method is right at a budget, with its band."""
        each = self.right[method][place]
        return Rate(int(each.sum()), len(each))

    def difference(self, a: str, b: str) -> Difference:
        """How much more often a is right than b at the largest budget, paired over problems."""
        right, other = (self.right[method][-1].astype(float) for method in (a, b))
        return paired_difference(a, b, right, other, n=self.ns[-1], spent=self.ns[-1])


def move_cost(decisions: int) -> float:
    """Return the mean cost of a proposal in samples: the decisions that it redraws."""
    return (decisions + 1) / (2 * decisions)


def draw_problems(situation: Situation, n_problems: int, seed: int) -> Problems:
    """Draw the chances and the reward's mistakes of so many problems."""
    rng = np.random.default_rng([seed, 0])
    shape, p = (situation.decisions, n_problems), situation.chance
    right = rng.beta(p * CERTAINTY, (1 - p) * CERTAINTY, shape).clip(0.03, 0.97)
    wrong = rng.dirichlet(np.ones(WRONG), shape) * (1 - right)[..., None]
    chances = np.concatenate([right[..., None], wrong], axis=-1).swapaxes(1, 2)
    worth = situation.error * rng.standard_normal(chances.shape)
    worth[:, 0] += 1.0
    return Problems(chances, worth, situation.error * rng.standard_normal(_ERRORS))


def explore(
    situation: Situation, *, most: int = 256, n_problems: int = 200, seed: int = 0
) -> Exploration:
    """Simulate every method at budgets up to `most` samples, on the same problems."""
    problems = draw_problems(situation, n_problems, seed)
    ns, price = budgets(most), move_cost(situation.decisions)
    choice = _draw(problems, most, seed, 1)
    behind, code = _behind(problems, choice, np.zeros((most, n_problems), dtype=np.int64))
    reward = (behind + _errors(problems, code)).T  # from here on shape [P, n]
    pool = _number_classes(_answers(code, situation.agree).T)
    states, rewards, near_misses = walk(problems, situation.beta, int((most - 1) / price), seed)
    chain = _number_classes(_answers(states, situation.agree).T)

    draws = {"chain": (chain, rewards.T), "pool": (pool, reward)}
    right: dict[str, list[Array]] = {id_: [] for id_ in RULES}
    for n in ns:
        kept = {"chain": 1 + int((n - 1) / price), "pool": n}
        for id_, rule in RULES.items():
            answer, worth = (values[:, : kept[rule.draws]] for values in draws[rule.draws])
            counted = partial(vote, n_answers=answer.shape[1] + 1)
            won, _ = rule.decide_many(answer, worth, 0.0, situation.beta, counted)
            right[id_].append(won == 0)
    one = problems.right
    return Exploration(
        ns=tuple(ns),
        one=float(one.mean()),
        any_of=np.array([float((1 - (1 - one) ** n).mean()) for n in ns]),
        right={method: np.array(each) for method, each in right.items()},
        near_misses=near_misses,
    )


def walk(problems: Problems, beta: float, steps: int, seed: int) -> tuple[Array, Array, Rate]:
    """Follow a chain a problem: keep what is before a uniform decision, draw the rest again.

    All solutions are of T decisions, so the acceptance probability is
    min(1, exp((r(y') - r(y)) / beta)) (Eq. 8 with |y| = |y'|).

    Returns:
        of the states, with repeats, the numbers that their choices give (0 for the right one) and
        the rewards, shape [steps + 1, P] each; and the near misses, as `Exploration` has them.
    """
    n_decisions, _, n_problems = problems.chances.shape
    choice = _draw(problems, steps + 1, seed, 2)
    index = np.random.default_rng([seed, 3]).integers(n_decisions, size=(steps + 1, n_problems))
    index[0] = 0
    u = np.random.default_rng([seed, 4]).random((steps + 1, n_problems))
    target, log_u = Target(beta), np.log1p(-u)  # all lengths are T: the correction is 0
    behind_worth, behind_code = _behind(problems, choice, index)
    every, decision = np.arange(n_problems), np.arange(n_decisions)[:, None]

    def summed(t: int, of: Array) -> Array:
        """Return the worth of the first 0..T-1 decisions of a draw, shape [T, problems]."""
        worth = problems.worth[decision, choice[t][:, of], of]
        return np.asarray(worth.cumsum(axis=0) - worth)

    before = summed(0, every)  # of the state
    code, reward = behind_code[0], behind_worth[0] + _errors(problems, behind_code[0])
    codes, rewards = np.empty_like(behind_code), np.empty_like(behind_worth)
    new_codes, new_rewards = codes.copy(), rewards.copy()
    codes[0], rewards[0] = new_codes[0], new_rewards[0] = code, reward
    for t in range(1, steps + 1):
        kept = before[index[t], every]
        new_code = (code & ((1 << 2 * index[t]) - 1)) | behind_code[t]
        new_reward = kept + behind_worth[t] + _errors(problems, new_code)
        log_alpha = log_acceptance(
            target, new=Scores(new_reward), old=Scores(reward), log_correction=()
        )
        accepted = accepts(log_alpha, log_u[t])
        moved = np.flatnonzero(accepted)
        brought, first = summed(t, moved), index[t, moved]
        brought += kept[moved] - brought[first, np.arange(len(moved))]
        before[:, moved] = np.where(decision > first, brought, before[:, moved])
        code = np.where(accepted, new_code, code)
        reward = np.where(accepted, new_reward, reward)
        codes[t], rewards[t], new_codes[t], new_rewards[t] = code, reward, new_code, new_reward
    # of which exactly one is right
    is_right = new_codes[1:] == 0
    met = is_right != (codes[:-1] == 0)
    preferred = met & (is_right == (new_rewards[1:] > rewards[:-1]))
    return codes, rewards, Rate(int(preferred.sum()), int(met.sum()))


def _draw(problems: Problems, n: int, seed: int, stream: int) -> Array:
    """Draw the choices of n solutions a problem, [n, T, P]; more of them begin with the same."""
    n_decisions, _, n_problems = problems.chances.shape
    rng = np.random.default_rng([seed, stream])
    u = rng.random((n, n_decisions, n_problems), dtype=np.float32)
    ends = problems.chances.cumsum(axis=1).astype(np.float32)
    choice = np.zeros(u.shape, dtype=np.uint8)
    for k in range(WRONG):
        choice += u >= ends[:, k]
    return choice


def _behind(problems: Problems, choice: Array, index: Array) -> tuple[Array, Array]:
    """Worth and number of the choices from an index on, shape [n, P] each."""
    every = np.arange(choice.shape[-1])
    worth, code = np.zeros(index.shape), np.zeros(index.shape, dtype=np.int64)
    for t in range(choice.shape[1]):
        redrawn, chosen = t >= index, choice[:, t]
        worth += redrawn * problems.worth[t][chosen, every]
        code |= np.where(redrawn, chosen, 0).astype(np.int64) << 2 * t
    return worth, code


def _errors(problems: Problems, code: Array) -> Array:
    """The errors in the rewards of solutions, shape [..., P]."""
    return np.asarray(problems.errors[_hash(code) >> np.uint64(48)])


def _hash(code: Array) -> Array:
    """64 mixed bits of each solution of each problem; the last axis is the problems'."""
    problem = np.arange(1, code.shape[-1] + 1, dtype=np.uint64) << np.uint64(50)
    mixed = (code.astype(np.uint64) + problem) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    return np.asarray(mixed * np.uint64(0xBF58476D1CE4E5B9))


def _answers(code: Array, agree: float) -> Array:
    """The answers of solutions [..., P]: 0 the right one, `SHARED`, or a solution's own number."""
    shared = (_hash(code) & np.uint64(0xFFFF)) < agree * 0x10000
    return np.where((code != 0) & shared, SHARED, code)


def _number_classes(answer: Array) -> Array:
    """Answers [P, n] as numbers for a vote: 0 the right one, others 1 + where they first appear."""
    order = np.argsort(answer, axis=1, kind="stable")
    ordered = np.take_along_axis(answer, order, axis=1)
    begins = np.ones(answer.shape, dtype=bool)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    begun = np.maximum.accumulate(np.where(begins, np.arange(answer.shape[1]), 0), axis=1)
    numbers = np.empty_like(order)
    np.put_along_axis(numbers, order, 1 + np.take_along_axis(order, begun, axis=1), axis=1)
    return np.where(answer == 0, 0, numbers)
