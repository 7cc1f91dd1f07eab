"""One prompt, one budget, several ways to decide: what is drawn, and what each rule makes of it.

Chains feed QAlign; one pool of independent samples feeds best-of-n, majority voting and weighted
majority voting, so that between those three the rule is the only difference. Without an answer
extractor (open-ended prompts) minimum Bayes risk with ROUGE-1 takes the place of the votes.

A `Comparison` is the record; a `Cut` says how much of it is looked at; `outcomes` decides by each
of `RULES`. Everything can be computed again at any smaller budget without drawing anything.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Literal

import numpy as np

from qalign_core.chain.cost import n_at_budget
from qalign_core.decide import methods
from qalign_core.decide.answers.graders import Grader, get_grader
from qalign_core.decide.methods import Decision
from qalign_core.decide.rules import RULES, Rule
from qalign_core.errors import InvalidSetting
from qalign_core.protocols import AnswerExtractor
from qalign_core.record.trace import Trace, TraceHeader
from qalign_core.run import Run
from qalign_core.types import Cost, ScoredResponse, Step
from qalign_study.sets.problem_sets import Check, Problem

Budget = Literal["flops", "samples"]


@dataclass(frozen=True, slots=True)
class Cut:
    """How much of a comparison is looked at: states 0..t of every chain, the first n samples."""

    t: int
    n: int


@dataclass(frozen=True)
class Comparison:
    """A trace with chains and a pool, priced and read.

    Attributes:
        trace: all that was drawn for one prompt; its header's `beta` is also that of the
            importance weights, `burn_in` the states of each chain that are dropped before deciding.
        check: what a response to an open-ended prompt has to follow, which no header has.
    """

    trace: Trace
    check: Check | None = None

    @property
    def header(self) -> TraceHeader:
        """What was run."""
        return self.trace.header

    @property
    def pool(self) -> tuple[ScoredResponse, ...]:
        """Independent samples of the same base LM, in order."""
        return self.trace.pool

    @cached_property
    def chains(self) -> tuple[tuple[Step, ...], ...]:
        """The steps of each chain, by t."""
        return tuple(self.trace.chains.values())

    @property
    def prompt_price(self) -> int:
        """The cost that is paid once per run: each model reads the prompt."""
        return self.header.meter.prompt_price(self.header.prompt_tokens, self.header.prompt_scored)

    @cached_property
    def chain_spent(self) -> list[int]:
        """Price of states 0..t of all chains and of the prompt, as far as all chains have come."""
        return self._running(
            self.header.meter.price(sum((step.cost for step in steps), Cost()))
            for steps in zip(*self.chains, strict=False)
        )

    @cached_property
    def pool_spent(self) -> list[int]:
        """Price of the first 1, 2, ... samples and of the prompt."""
        return self._running(self.header.meter.price(sample.cost) for sample in self.pool)

    def _running(self, prices: Iterable[int]) -> list[int]:
        return list(accumulate(prices, initial=self.prompt_price))[1:]

    @property
    def ready(self) -> bool:
        """Whether there is something to decide from on both sides."""
        return bool(self.chain_spent and self.pool)

    @property
    def extract(self) -> AnswerExtractor | None:
        """The answer extractor, remembering what it has read; None for an open-ended prompt."""
        name = self.header.run.extractor
        return None if name is None else _remembering(get_grader(name))

    def steps_to(self, t: int) -> list[Step]:
        """Steps 0..t of every chain, chain after chain."""
        return [step for chain in self.chains for step in chain[: t + 1]]

    @property
    def problem(self) -> Problem:
        """The prompt with what is right, as a problem of a set has it."""
        run = self.header.run
        return Problem("prompt", run.prompt, run.reference, run.extractor, self.check)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one rule decides, from what, and at what price.

    Attributes:
        rule: which.
        decision: the answer and why.
        correct: None where the right answer is not known.
        n: states (with repeats) or samples it was decided from.
        cost: tokens spent on all of them, LM and RM apart; none of the RM if no reward is read.
        spent: their price in the meter's unit.
        sequential: forward passes of the LM that had to wait for one another: all new tokens of
            a chain (the longest of several), the longest sample of a pool.
        effective: effective sample size of the rule's weights; None if all draws count the same.
    """

    rule: Rule
    decision: Decision
    correct: bool | None
    n: int
    cost: Cost
    spent: int
    sequential: int
    effective: float | None = None

    @property
    def method(self) -> str:
        """The rule's id."""
        return self.rule.id


def matched_run(run: Run, budget: Budget, samples: int) -> Run:
    """Return the run of a comparison: its pool has the chains' compute, or as many samples.

    Args:
        run: the settings of the chains.
        budget: the quantity that is equal.
        samples: the largest pool.
    """
    if budget == "flops":
        return run.with_changes(matched="pool", pool=samples)
    return run.with_changes(pool=min(samples, run.chains * (run.steps + 1)))


def full_cut(comparison: Comparison, budget: Budget = "flops") -> Cut:
    """The largest cut at which chains and pool are level.

    Raises:
        InvalidSetting: nothing was drawn on one of the sides.
    """
    chain, pool = _spent(comparison)
    if budget == "samples":
        n_chains = len(comparison.chains)
        t = min(len(chain), max(1, len(pool) // n_chains)) - 1
        return Cut(t, min(len(pool), n_chains * (t + 1)))
    level = min(chain[-1], pool[-1])
    return Cut(n_at_budget(chain, level) - 1, n_at_budget(pool, level))


def ladder(comparison: Comparison, budget: Budget = "flops", rungs: int = 24) -> tuple[Cut, ...]:
    """Cuts of increasing size up to the full one, evenly on a logarithmic scale, no two alike.

    Raises:
        InvalidSetting: nothing was drawn on one of the sides.
    """
    chain, pool = _spent(comparison)
    full = full_cut(comparison, budget)
    if budget == "samples":
        n_chains = len(comparison.chains)
        cuts = [Cut(t - 1, min(full.n, n_chains * t)) for t in _log_spaced(full.t + 1, rungs)]
    else:
        cuts = [Cut(n_at_budget(chain, pool[n - 1]) - 1, n) for n in _log_spaced(full.n, rungs)]
        cuts = [cut for cut in cuts if cut.t <= full.t and cut.n < full.n]
    return tuple(dict.fromkeys([*cuts, full]))


def outcomes(comparison: Comparison, cut: Cut) -> tuple[Outcome, ...]:
    """What the rules decide at a cut, in the order of `RULES`.

    Raises:
        InvalidSetting: the cut is not within what was drawn.
    """
    _check(comparison, cut)
    extract = comparison.extract
    steps = comparison.steps_to(cut.t)
    states = methods.chain_states(steps, _burn_in(comparison, cut))
    pool = comparison.pool[: cut.n]
    header = comparison.header

    in_a_row = [sum(s.cost.generated for s in c[: cut.t + 1]) for c in comparison.chains]
    chain_cost = sum((step.cost for step in steps), Cost())
    of_chain = (len(states), chain_cost, comparison.chain_spent[cut.t], max(in_a_row))
    longest = max(len(sample.response) for sample in pool)
    pool_cost = sum((sample.cost for sample in pool), Cost())
    of_pool = (len(pool), pool_cost, comparison.pool_spent[cut.n - 1], longest)
    outcomes = []
    prompt = header.meter.without_reward.prompt_price(header.prompt_tokens, header.prompt_scored)
    unscored = prompt + header.meter.without_reward.price(pool_cost)
    of_votes = (len(pool), replace(pool_cost, scored=0), unscored, longest)
    for rule in RULES.values():
        draws, price = (states, of_chain) if rule.draws == "chain" else (pool, of_pool)
        price = price if rule.reads_reward else of_votes
        decision = rule.decide(draws, extract, header.run.target)
        right = comparison.problem.is_right(decision.answer if extract else decision.text)
        ess = methods.effective_sample_size
        effective = ess(decision.weights) if rule.is_weighted else None
        outcomes.append(Outcome(rule, decision, right, *price, effective))
    return tuple(outcomes)


def recycled(comparison: Comparison, cut: Cut) -> Decision:
    """QAlign's decision when rejected proposals count too, with the chance they had.

    Raises:
        InvalidSetting: the cut is not within what was drawn.
    """
    _check(comparison, cut)
    samples, weights = methods.waste_recycling(
        comparison.steps_to(cut.t), _burn_in(comparison, cut)
    )
    return methods.consensus(samples, comparison.extract, weights)


def _burn_in(comparison: Comparison, cut: Cut) -> int:
    """States dropped at a cut: a short cut keeps its last one."""
    return min(comparison.header.run.burn_in, cut.t)


def _check(comparison: Comparison, cut: Cut) -> None:
    chain, pool = _spent(comparison)
    if not (0 <= cut.t < len(chain) and 1 <= cut.n <= len(pool)):
        raise InvalidSetting(
            f"the cut t = {cut.t}, n = {cut.n} is outside the {len(chain)} states per chain and "
            f"{len(pool)} samples; request a smaller one"
        )


def _spent(comparison: Comparison) -> tuple[Sequence[int], Sequence[int]]:
    if not comparison.ready:
        raise InvalidSetting(
            f"nothing to compare yet: {len(comparison.chain_spent)} states per chain and "
            f"{len(comparison.pool)} samples were drawn; at least one of each is needed"
        )
    return comparison.chain_spent, comparison.pool_spent


def _log_spaced(last: int, count: int) -> list[int]:
    """Whole numbers from 1 to `last`, about evenly on a logarithmic scale, ascending."""
    return sorted({int(x) for x in np.geomspace(1, last, count).round()})


@lru_cache(maxsize=16)
def _remembering(grader: Grader) -> AnswerExtractor:
    # every rule reads the same texts again at every budget
    return lru_cache(maxsize=16384)(grader.extract)
