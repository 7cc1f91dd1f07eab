"""What more compute buys: every method at budgets of increasing size, with 95 % bands.

One function for one prompt and for a whole set, since a prompt is a set of one. Only the source of
the band differs. Over a set, problems are resampled: the band shows what other problems would have
given. For one prompt, draws are resampled: samples one by one, and states in blocks of neighbors,
since neighbors are alike. `differences` compares the points of two methods.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from qalign_core.chain.cost import n_at_budget
from qalign_core.decide.rules import RULES, DrawTable, Rule
from qalign_core.errors import InvalidSetting
from qalign_core.types import Array
from qalign_study.measure.comparisons import Budget, Cut
from qalign_study.measure.intervals import (
    band,
    band_of_share,
    resampled_problems,
    resampled_sets,
)
from qalign_study.measure.record import Draws, Record, generated, prices
from qalign_study.measure.subsets import Pool, votes

Curve = str
"""What is measured of a set: a rule's id, "one", "any", or one of `own_curves`."""

N_BOOTSTRAP = 2000
"""Resamples of the problems for the bands of curves."""
RESAMPLES = 40
"""Resamples of a single prompt's draws for the bands."""
MOST_DRAWS = 300_000
"""Resampled draws of a prompt, a budget and method, at most: bounds the time and the memory."""
SAME_PRICE = 0.03
"""How far apart, relatively, two prices may be to count as equal compute."""


@dataclass(frozen=True, slots=True)
class Point:
    """One method at one budget, averaged over problems.

    Attributes:
        method: the id of a rule; "any" (of a set) is the share of problems for which at least one
            of n samples is right, which no rule can exceed; "one" is a single sample.
        n: independent samples of the budget, with their rewards.
        used: mean number of samples, or of the chain's states, that the decision was made from.
        spent: mean price in the meter's unit (FLOPs, or tokens where sizes are unknown).
        tokens: mean number of generated tokens.
        waited: mean number of them that are written one after another: all of a chain (the longest
            of several), the longest of the samples.
        value: the measure: the share decided rightly, or as all draws decide, or the reward of the
            chosen; `low` and `high` are its 95 % band.
        reward: mean reward under the weights that the method decides with (BoN: of the chosen);
            nan where several betas decide.
        each: the value of each problem, in their order.
        strata: how many of the problems are of each set, of an average over sets; empty for one.
        answer: of a single prompt: what the first draws decide, the text itself if it is
            open-ended; None if that is no answer.
        correct: whether that is right; None where it is not known.
    """

    method: Curve
    n: int
    used: float
    spent: float
    tokens: float
    value: float
    low: float
    high: float
    reward: float
    each: tuple[float, ...] = field(default=(), repr=False)
    strata: tuple[int, ...] = ()
    waited: float = 0.0
    answer: str | None = None
    correct: bool | None = None


def own_curves() -> dict[Curve, str]:
    """The curves of rules at their own beta (`own_beta`), with the rules: those that read it."""
    return {f"{id_}_own": id_ for id_, rule in RULES.items() if rule.aims}


def in_order(curve: Curve) -> int:
    """The place of a curve among all: the rules, one sample, any of n, rules at their own beta."""
    return [*RULES, "one", "any", *own_curves()].index(curve)


def curves(
    draws: Draws,
    *,
    budget: Budget = "flops",
    ns: Sequence[int] | None = None,
    cuts: Sequence[Cut] = (),
) -> list[Point]:
    """Compute every method's measure against compute, in order (`in_order`).

    Over a set, best-of-n and "any" are averaged over all subsets of n of the N samples, exactly;
    other rules as `subsets` does. QAlign is the beginning of the chain that costs what n of the
    problem's samples cost on average, their rewards included (or, at equal samples, its first n
    states). A rule that reads no reward is not charged for it: it decides from as many samples as
    cost the same without, if so many were drawn.

    With `cuts`, of a single prompt: a pool of n is drawn from the recorded pool with replacement;
    of chains, the states 0..t are resampled in circular blocks of about sqrt(t + 1), within a
    chain drawn with replacement. For the band the recorded draws are themselves resampled first.
    The band of a single chain says nothing of what another chain would have found: run several for
    that.

    Args:
        draws: of a set, or of one prompt.
        budget: what is made equal between QAlign and the others at each n.
        ns: numbers of samples; default powers of two up to all of them.
        cuts: of a single prompt: the budgets, from `comparisons.ladder`.

    Raises:
        InvalidSetting: no problem is done, or an n exceeds the samples.
    """
    records = draws.records
    if not records:
        raise InvalidSetting("no problem is done yet; the same 'evaluate' command continues")
    sizes = () if cuts else numbers_of_samples(draws, ns)
    rng = np.random.default_rng(0)
    resampled = resampled_problems(rng, len(records), 1 if cuts else N_BOOTSTRAP)

    by_point: dict[tuple[Curve, int], list[_Row]] = {}
    for record in records:
        problem = _Problem(draws, record)
        rows = _resampled_rows(problem, cuts, rng) if cuts else _subset_rows(problem, sizes, budget)
        for method, place, row in rows:
            by_point.setdefault((method, place), []).append(row)

    ordered = sorted(by_point.items(), key=lambda item: (in_order(item[0][0]), item[0][1]))
    return [
        _point(method, cuts[place].n if cuts else place, mine, resampled, of_shares=not cuts)
        for (method, place), mine in ordered
    ]


@dataclass(slots=True)
class _Row:
    """One method at one budget of one problem; values of each resample, means of the rest."""

    values: Array
    reward: float
    used: float
    spent: float
    tokens: float
    waited: float
    answer: str | None = None
    correct: bool | None = None


_Seen = tuple[Array, Array, Array]
"""Rewards and answers of draws, and what a sharper target adds to their log-weights."""
_Price = tuple[float, float, float, float]
"""How many draws, their price, how many tokens they have, and how many of them in a row."""


class _Problem:
    """What was drawn for a problem, ready to be decided from."""

    def __init__(self, draws: Draws, record: Record) -> None:
        self.draws, self.record, self.beta = draws, record, draws.header.run.beta
        self.utility = draws.utility(record)
        self.pool_reward = record.pool_reward.astype(np.float64)
        self.pool_answer = record.pool_answer.astype(np.int64)
        tilt = record.pool_tilt(draws.header.run.sharpness)
        self.pool = self.pool_reward, self.pool_answer, tilt
        meter = draws.header.meter
        self.prompt_price = meter.prompt_price(*record.prompt)
        self.unscored_prompt_price = meter.without_reward.prompt_price(*record.prompt)
        self.pool_spent = self.prompt_price + np.cumsum(prices(record.pool_cost, meter))
        unscored = prices(record.pool_cost, meter.without_reward)
        self.unscored_spent = self.unscored_prompt_price + np.cumsum(unscored)
        self.pool_length = generated(record.pool_cost)
        self.pool_tokens = np.cumsum(self.pool_length)
        # of the states, not the proposals, shapes [T + 1, chains]
        by_t, states = (-1, record.n_chains), record.state_of
        self.chain_reward = record.chain_reward.astype(np.float64)[states].reshape(by_t)
        self.chain_answer = record.chain_answer.astype(np.int64)[states].reshape(by_t)
        chain_prices = prices(record.chain_cost, draws.header.meter).reshape(by_t)
        chain_spent = self.prompt_price + np.cumsum(chain_prices.sum(axis=1))
        self.chain_spent: list[float] = chain_spent.tolist()
        written = np.cumsum(generated(record.chain_cost).reshape(by_t), axis=0)
        self.chain_tokens, self.chain_waited = written.sum(axis=1), written.max(axis=1)

    def price_of(self, n: int, *, scored: bool = True) -> float:
        """What n samples cost on average, the prompt included, with or without their rewards."""
        prompt = self.prompt_price if scored else self.unscored_prompt_price
        spent = self.pool_spent if scored else self.unscored_spent
        return float(prompt + n * (spent[-1] - prompt) / len(spent))

    def unscored(self, n: int) -> int:
        """How many samples without rewards cost what n with rewards do, of those that there are."""
        first, two = (self.price_of(k, scored=False) for k in (1, 2))
        more = round((self.price_of(n) - first) / (two - first)) if two > first else 0
        return min(max(n, 1 + more), len(self.unscored_spent))

    def length(self, n: int, budget: Budget) -> int:
        """How many states of each chain cost what n samples do on average, or are n."""
        length = n // self.record.n_chains
        if budget == "flops":
            length = n_at_budget(self.chain_spent, self.price_of(n))
        return min(max(1, length), len(self.chain_spent))

    @property
    def table(self) -> DrawTable:
        """The samples, as rules read them."""
        reward, answer, tilt = self.pool
        return DrawTable(reward, self.beta, tilt, lambda: answer)

    @cached_property
    def voters(self) -> Pool:
        """The samples, for votes over subsets."""
        reward, answer, tilt = self.pool
        return Pool(answer, reward, tilt, self.record.is_right(answer), self.utility)

    def of_chain(self, n_states: int, t: int) -> _Price:
        """What states 0..t of all chains cost, of which so many are decided from."""
        return (n_states, self.chain_spent[t], self.chain_tokens[t], self.chain_waited[t])

    def first(self, rule: Rule, cut: Cut) -> _Seen:
        """The first draws, chain after chain, shape [1, draws] each."""
        if rule.draws == "pool":
            return _take(self.pool, np.arange(cut.n)[None])
        kept = slice(min(self.draws.header.run.burn_in, cut.t), cut.t + 1)
        reward = self.chain_reward[kept].T.reshape(1, -1)
        return reward, self.chain_answer[kept].T.reshape(1, -1), np.zeros_like(reward)

    def decided(self, rule: Rule, seen: _Seen) -> tuple[Array, Array]:
        """The answers decided on, by number, and the mean rewards under the weights, shape [k]."""
        reward, answer, tilt = seen
        vote = self.record.vote(self.utility)
        return rule.decide_many(answer, reward, tilt, self.beta, vote)

    def row(self, rule: Rule, seen: _Seen, outer: int, cost: _Price, final: int = -1) -> _Row:
        """Decide `outer` times some resamples, draws in [k, n]."""
        won, rewards = self.decided(rule, seen)
        means = self._value(won, final).reshape(outer, -1).mean(axis=1)
        return _Row(means, float(rewards.mean()), *cost)

    def _value(self, won: Array, final: int) -> Array:
        """The measure of each decision, shape [k]."""
        if self.draws.measure == "reward":
            return np.asarray(self._reward_of[won])
        if self.draws.measure == "same":
            return np.asarray((won == final) & (won >= 0), dtype=np.float64)
        return self.record.is_right(won).astype(np.float64)

    @cached_property
    def _reward_of(self) -> Array:
        """The reward of each text, shape [answers]: of its best draw, as decisions show it."""
        rows = np.full(len(self.record.answers), -np.inf)
        for answer, reward in (
            (self.pool_answer, self.pool_reward),
            (self.record.chain_answer, self.record.chain_reward),
        ):
            np.maximum.at(rows, answer, reward)
        return rows


def _point(
    method: Curve, n: int, rows: Sequence[_Row], resampled: Array, *, of_shares: bool
) -> Point:
    """Return the mean over problems with its band; `of_shares` allows for shares of 0 and 1."""
    values = np.array([row.values for row in rows])  # [problems, resamples]
    each = values.mean(axis=1)
    if of_shares:
        low, high = band_of_share(each, resampled / len(rows))
    else:
        low, high = band(resampled @ values / len(rows))
    return Point(
        method=method,
        n=n,
        value=float(values.mean()),
        low=low,
        high=high,
        each=tuple(each.tolist()),
        **_means(rows),
        answer=rows[0].answer,
        correct=rows[0].correct,
    )


def _take(seen: _Seen, places: Array) -> _Seen:
    """Take draws, which are in a row, at some places; in the places' shape."""
    reward, answer, plus = (values.ravel()[places] for values in seen)
    return reward, answer, plus


# --- a set: subsets of the samples, the chain as it ran --------------------------------------

_Rows = Iterator[tuple[Curve, int, _Row]]


def _subset_rows(problem: _Problem, ns: Sequence[int], budget: Budget) -> _Rows:
    """One problem's rows at each n, by n."""
    reward, answer = problem.pool_reward, problem.pool_answer
    size = len(reward)
    rules = [rule for rule in problem.draws.rules if size or rule.draws == "chain"]
    if size:
        right = problem.record.is_right(answer).astype(np.float64)
        n_right = int(right.sum())
        longest_first = np.sort(problem.pool_length)[::-1]
        tokens = problem.pool_tokens[-1] / size
    by_score = {
        rule.id: _by_score(rule.score(problem.table), reward, right)
        for rule in rules
        if rule.draws == "pool" and rule.score is not None and rule.maximizes
    }

    def cost(n: int, *, scored: bool = True) -> _Price:
        waited = float(_first_of_subset(size, n) @ longest_first)
        return (n, problem.price_of(n, scored=scored), n * tokens, waited)

    for n in ns:
        if size:
            leads = _first_of_subset(size, n)
            any_right = 1 - math.comb(size - n_right, n) / math.comb(size, n)
            pooled = np.array([any_right]), float(reward.mean())
            yield "any", n, _Row(*pooled, *cost(n))
            if n == 1:
                yield "one", n, _Row(*pooled, *cost(1, scored=False))
        for rule in rules:
            if rule.draws == "chain":
                length = problem.length(n, budget if size else "samples")
                states = problem.first(rule, Cut(length - 1, n))
                row = problem.row(rule, states, 1, problem.of_chain(states[0].size, length - 1))
            elif rule.id in by_score:
                rewards, shares = by_score[rule.id]
                row = _Row(leads @ shares[:, None], float(leads @ rewards), *cost(n))
            else:
                scored = rule.reads_reward
                voters = n if scored or budget == "samples" else problem.unscored(n)
                shares, mean = votes(problem.voters, voters, rule, (problem.beta,))
                row = _Row(shares, mean, *cost(voters, scored=scored))
            yield rule.id, n, row


def weighted_at(
    rule: Rule, draws: Draws, betas: Sequence[float], ns: Sequence[int]
) -> dict[int, Array]:
    """How often a rule is right at other betas, by n: of each problem, shape [betas, problems].

    Over the very subsets of `curves`, so that a beta makes the difference.

    Args:
        rule: over samples, by weights.
        draws: of a set with samples.
        betas: of the weights.
        ns: numbers of samples.
    """
    shares: dict[int, list[Array]] = {n: [] for n in ns}
    for record in draws.records:
        problem = _Problem(draws, record)
        for n, values in shares.items():
            values.append(votes(problem.voters, n, rule, tuple(betas))[0])
    return {n: np.array(values).T for n, values in shares.items()}


def numbers_of_samples(draws: Draws, ns: Sequence[int] | None = None) -> list[int]:
    """The numbers of samples asked for, ascending; default powers of two up to all of them."""
    if draws.has_pool:
        size = min(len(record.pool_reward) for record in draws.records)
    else:
        size = max(len(record.chain_reward) for record in draws.records)
    if ns is None:
        return budgets(size)
    sizes = sorted(set(ns))
    if not sizes or sizes[0] < 1 or sizes[-1] > size:
        raise InvalidSetting(f"n must be between 1 and the {size} samples drawn, got {sizes}")
    return sizes


def budgets(most: int) -> list[int]:
    """Powers of two up to `most`, and that."""
    return [2**k for k in range(most.bit_length()) if 2**k < most] + [most]


def _by_score(score: Array, reward: Array, right: Array) -> tuple[Array, Array]:
    """Rewards by score, the highest first, and `right`, of which equal scores have their mean."""
    first = np.argsort(-score, kind="stable")
    _, group = np.unique(score[first], return_inverse=True)
    return reward[first], (np.bincount(group, right[first]) / np.bincount(group))[group]


@lru_cache(maxsize=256)
def _first_of_subset(size: int, n: int) -> Array:
    """Chance that the item of rank i leads a random subset of n, C(size-1-i, n-1) / C(size, n)."""
    p = np.zeros(size)
    p[0] = n / size
    for i in range(size - n):
        p[i + 1] = p[i] * (size - n - i) / (size - 1 - i)
    return p


def _means(parts: Sequence[_Row | Point]) -> dict[str, Any]:
    """The mean prices, counts and rewards of a `Point`, over problems or over sets."""
    names = ("used", "spent", "tokens", "waited", "reward")
    return {name: float(np.mean([getattr(part, name) for part in parts])) for name in names}


# --- one prompt: its draws, resampled --------------------------------------------------------


def _resampled_rows(problem: _Problem, cuts: Sequence[Cut], rng: np.random.Generator) -> _Rows:
    """A single prompt's rows at each cut, by its place among the cuts."""
    measure, record = problem.draws.measure, problem.record
    rules = RULES.values()
    final = {
        rule.id: int(problem.decided(rule, problem.first(rule, cuts[-1]))[0][0]) for rule in rules
    }
    for place, cut in enumerate(cuts):
        n_chains, length = record.n_chains, cut.t + 1 - min(problem.draws.header.run.burn_in, cut.t)
        n_states = n_chains * (cut.t + 1)
        outer = max(8, min(RESAMPLES, math.isqrt(MOST_DRAWS // max(n_states, cut.n))))
        states = _take_places(
            *(_blocks(rng, n_chains, length, (outer, times)) for times in (1, outer))
        )
        size = len(problem.pool_reward)
        known = rng.integers(size, size=(outer, 1, size))
        pool = _take_places(known, rng.integers(size, size=(outer, outer, cut.n)))
        of_chain = problem.of_chain(n_chains * length, cut.t)
        for rule in rules:
            first = problem.first(rule, cut)
            if rule.draws == "chain":
                seen, cost = _take(first, states), of_chain
            else:
                spent = problem.pool_spent if rule.reads_reward else problem.unscored_spent
                seen = _take(problem.pool, pool)
                cost = (cut.n, spent[cut.n - 1], problem.pool_tokens[cut.n - 1],
                        problem.pool_length[: cut.n].max())  # fmt: skip
            row = problem.row(rule, seen, outer, cost, final[rule.id])
            winner = int(problem.decided(rule, first)[0][0])
            row.answer = str(record.answers[winner]) if winner >= 0 else None
            row.correct = bool(record.is_right(np.array(winner))) if measure == "right" else None
            yield rule.id, place, row


def _take_places(known: Array, places: Array) -> Array:
    """Take places of each resample of the known places, shape [times^2, draws]."""
    return np.take_along_axis(known, places, axis=2).reshape(-1, places.shape[2])


def _blocks(rng: np.random.Generator, n_chains: int, length: int, shape: tuple[int, int]) -> Array:
    """Places of states in circular blocks of chains drawn again, shape [*shape, states]."""
    block = math.isqrt(length - 1) + 1
    count = -(-length // block)
    starts = rng.integers(length, size=(*shape, n_chains, count, 1))
    times = ((starts + np.arange(block)) % length).reshape(*shape, n_chains, -1)[..., :length]
    chains = rng.integers(n_chains, size=(*shape, n_chains, 1))
    return (times + length * chains).reshape(*shape, -1)


# --- several sets: their average --------------------------------------------------------------


def is_level(one: Point, other: Point) -> bool:
    """Whether two points cost the same."""
    return abs(one.spent - other.spent) <= SAME_PRICE * other.spent


def averaged(sets: Sequence[Sequence[Point]]) -> list[Point]:
    """The average over sets, each counting the same, at the budgets that every set has.

    A point of the chain is left out where some set's had ended before it spent as much. Prices are
    averaged as the measure is; the band is that of `band_of_share`. One set is its own average.
    """
    if len(sets) == 1:
        return [*sets[0]]
    shared = set.intersection(*({(p.method, p.n) for p in _spending(points)} for points in sets))
    averages = []
    for method, n in sorted(shared, key=lambda key: (in_order(key[0]), key[1])):
        at = [next(p for p in points if (p.method, p.n) == (method, n)) for points in sets]
        each, strata = [v for p in at for v in p.each], tuple(len(p.each) for p in at)
        low, high = band_of_share(np.array(each), resampled_sets(strata), strata)
        value = float(np.mean([p.value for p in at]))
        more = {"each": tuple(each), "strata": strata, **_means(at)}
        averages.append(Point(method, n, value=value, low=low, high=high, **more))
    return averages


def _spending(points: Sequence[Point]) -> Iterator[Point]:
    """The points of samples, and those of chains that cost what so many samples do."""
    samples = {p.n: p for p in points if p.method == "any"}
    return (
        p
        for p in points
        if p.n not in samples or _is_of_samples(p.method) or is_level(p, samples[p.n])
    )


def _is_of_samples(method: Curve) -> bool:
    """True for the curves that are decided from samples."""
    rule = RULES.get(own_curves().get(method, method))
    return rule is None or rule.draws == "pool"
