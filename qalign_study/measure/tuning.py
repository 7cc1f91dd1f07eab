"""What beta does to a run: how far its target is from the base, how many proposals it accepts.

`tune_beta` finds the beta for a target acceptance rate over proposals that differ from the state,
`tune_sharpness` compares sharpnesses, each at the beta that suits it, by right answers;
`against_beta` tells what another beta would have made of draws, with nothing sampled again.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from qalign_core.chain.chain import run_chain
from qalign_core.chain.merging import gather
from qalign_core.chain.moves.suffix import length_ratio
from qalign_core.decide.arrays import softmax
from qalign_core.errors import InvalidSetting
from qalign_core.move_spec import SUFFIX
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.record.trace import Trace, TraceHeader
from qalign_core.run import Run
from qalign_core.target import Scores, Target, log_acceptance
from qalign_core.types import Array, Cost, Step
from qalign_core.validation import check_count
from qalign_study.measure.curves import Point, curves
from qalign_study.measure.intervals import band, resampled_problems, share_of
from qalign_study.measure.record import Draws, record_of
from qalign_study.sets.problem_sets import Problem


def kl_from_base(weights: Array) -> Array:
    """KL(pi_beta || p_LM) in nats over the last axis, from the weights of base samples.

    `KL = E_pi[r] / beta - log E_base[exp(r / beta)]` with self-normalised weights: equal to
    `log n - H(w)`, so never negative and never above `log n`, which limits it at a small beta.
    """
    ratio = np.where(weights > 0, weights * weights.shape[-1], 1.0)
    return np.asarray(np.maximum(0.0, (weights * np.log(ratio)).sum(axis=-1)))


@dataclass(frozen=True, slots=True, eq=False)
class Proposals:
    """Proposals of chains at one beta, as numbers: they tell the acceptance at other betas too.

    Given a proposal, its acceptance probability at every beta is known; and the state that it was
    made in, drawn from the target at `beta`, counts `exp(r (1/beta' - 1/beta))` times as much under
    the target at `beta'`. That goes as far as enough of the states still count.

    Attributes:
        old, new: scores of state and proposal, shapes [n]; ln p only at a sharpness above 1.
        correction: the terms of the log correction of the move that made each, shapes [n].
        changed: whether the proposal differs from the state, shape [n].
        prompt: number of the prompt each belongs to, shape [n].
        target: of the chains; its sharpness is held.
    """

    old: Scores
    new: Scores
    correction: tuple[Array, ...]
    changed: Array
    prompt: Array
    target: Target

    def acceptance(self, beta: float, *, changed_only: bool = True) -> float | None:
        """Acceptance rate of chains at `beta`; None if these proposals cannot tell."""
        known, weights, alpha = self.at(np.array([Target(beta).beta]))
        counted = weights * self.changed if changed_only else weights
        return float((counted * alpha).sum() / counted.sum()) if known and counted.any() else None

    def at(self, betas: Array) -> tuple[Array, Array, Array]:
        """Find the betas for which these proposals suffice, with the states' weights and alpha.

        Shapes [betas], [told, n] and [told, n]; the importance weights of the states have a mean of
        1 within each prompt, alpha is the acceptance probability of each proposal.
        """
        log_w = np.asarray(self.old.reward) * (1 / betas[:, None] - 1 / self.target.beta)
        weights = np.empty_like(log_w)
        in_order = np.argsort(self.prompt, kind="stable")
        ends = np.flatnonzero(np.diff(self.prompt[in_order])) + 1
        for mine in np.split(in_order, ends):
            weights[:, mine] = softmax(log_w[:, mine]) * len(mine)
        known = 1 / (weights**2).mean(axis=1) >= MIN_EFFECTIVE  # the share that effectively counts
        log_alpha = np.empty((known.sum(), len(self.prompt)))
        for place, beta in enumerate(betas[known]):
            target = replace(self.target, beta=beta)
            log_alpha[place] = log_acceptance(
                target, new=self.new, old=self.old, log_correction=self.correction
            )
        return known, weights[known], np.exp(log_alpha)


MIN_EFFECTIVE = 0.2
"""Share of the states that must effectively count for an acceptance at another beta."""


FLAT = 1e12
"""A beta at which the reward counts for nothing."""


class NoBeta(InvalidSetting):
    """No beta reaches the target: the sharpness (or the length) alone rejects too many.

    Attributes:
        cost: tokens spent on finding out.
    """

    def __init__(self, message: str, cost: Cost) -> None:
        super().__init__(message)
        self.cost = cost


ROUNDS = 6
"""The most rounds of a tuning."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """The beta for a target acceptance over proposals that differ from the state.

    Attributes:
        beta: where the acceptance of the proposals made is the target.
        low, high: 95 % band of it (bootstrap over prompts; over proposals if there is one prompt).
        acceptance: at `beta`, over proposals that differ from the state.
        overall: at `beta`, over all proposals.
        cost: tokens spent.
        rounds: betas at which proposals were made, in turn.
    """

    beta: float
    low: float
    high: float
    acceptance: float
    overall: float
    cost: Cost = field(compare=False)
    rounds: tuple[float, ...] = ()


def check_tuning(acceptance: float, steps: int) -> None:
    """Raise `InvalidSetting` unless a tuning can begin with these."""
    if not 0 < acceptance < 1:
        raise InvalidSetting(f"the target acceptance must be between 0 and 1, got {acceptance}")
    check_count("steps", steps, 8)


async def tune_beta(
    lm: LanguageModel,
    rm: RewardModel,
    prompts: Sequence[str],
    run: Run,
    *,
    acceptance: float = 0.5,
    rounds: int = ROUNDS,
    notify: Callable[[Sequence[float]], None] = lambda tried: None,
) -> Tuned:
    """Find the beta at which a share `acceptance` of changed proposals is accepted.

    A chain a prompt makes proposals at the run's beta. They tell the acceptance at other betas
    (see `Proposals`), hence the best beta, or the furthest one that they can speak of, at which
    the next round runs; and so on until the beta of a round lies within its own band. The first
    quarter of each chain is left out.

    Args:
        lm: language model, as sampled.
        rm: reward model.
        prompts: one, or several of a problem set (not those to be evaluated on).
        run: the first beta, the sharpness and the move, which are held, the proposals a prompt and
            round, >= 8, and the address of the randomness.
        acceptance: rate wanted, in (0, 1).
        rounds: at most so many.
        notify: called as a round begins, with the betas of all rounds so far.

    Raises:
        InvalidSetting: settings out of range; or no beta was found: no proposal differs from its
            state, rewards are all equal, or the last round was still too far away.
        NoBeta: where the reward hardly counts fewer are accepted.
        InvalidPrompt, ModelContractError, InvalidReward: from the models.
    """
    check_tuning(acceptance, run.steps)
    if not prompts:
        raise InvalidSetting("tuning needs at least one prompt, got none")
    check_count("rounds", rounds, 1)
    tried, cost, seed = list[float](), Cost(), run.seed
    while True:
        tried.append(run.beta)
        notify(tried)
        proposals, spent = await propose(lm, rm, prompts, run)
        cost = cost + spent
        estimate = beta_for(proposals, acceptance, seed=seed)
        is_last = len(tried) == rounds
        if estimate.reached and (is_last or estimate.low <= run.beta <= estimate.high):
            break
        if not estimate.reached:
            _check_reachable(proposals, acceptance, cost)
        if is_last:
            raise InvalidSetting(
                f"after {rounds} rounds no beta was found at which {acceptance:g} of the changed "
                f"proposals are accepted (last tried: {run.beta:.3g}); start nearer, "
                "or run more steps"
            )
        run = run.with_changes(beta=estimate.beta, seed=run.seed + 1)
    accepted = proposals.acceptance(estimate.beta)
    overall = proposals.acceptance(estimate.beta, changed_only=False)
    assert accepted is not None, "the proposals reach the beta that was found on them"
    assert overall is not None, "and changed proposals are proposals"
    return Tuned(
        beta=estimate.beta,
        low=estimate.low,
        high=estimate.high,
        acceptance=accepted,
        overall=overall,
        cost=cost,
        rounds=tuple(tried),
    )


def _check_reachable(proposals: Proposals, acceptance: float, cost: Cost) -> None:
    """Raise `NoBeta` if even a beta without effect accepts too few of the changed proposals."""
    flat, target = proposals.acceptance(FLAT), proposals.target
    if flat is not None and flat < acceptance:
        raise NoBeta(
            f"no beta accepts {acceptance:g} of the changed proposals at sharpness "
            f"{target.sharpness:g}: even where the reward hardly counts, only {flat:.2g} are; "
            "choose a lower target" + (" or sharpness" if target.is_sharp else ""),
            cost,
        )


async def propose(
    lm: LanguageModel, rm: RewardModel, prompts: Sequence[str], run: Run
) -> tuple[Proposals, Cost]:
    """Run a chain per prompt, all at once, and reduce what they proposed to numbers.

    Raises:
        InvalidSetting, InvalidPrompt, ModelContractError, InvalidReward.
    """
    draws, spent = await walk(lm, rm, [Problem("", prompt) for prompt in prompts], run)
    proposals = proposals_of(draws, first=run.steps // 4 + 1)
    assert proposals is not None, "every chain has made steps"
    return proposals, spent


async def walk(
    lm: LanguageModel, rm: RewardModel, problems: Sequence[Problem], run: Run
) -> tuple[Draws, Cost]:
    """Run one chain per problem, all at once; return what was drawn, and the tokens."""
    walks = await chains_on(lm, rm, [problem.prompt for problem in problems], run)
    header = TraceHeader(run)
    records = tuple(
        record_of(Trace.collect(steps, header), problem.extract, problem.is_right)
        for steps, problem in zip(walks, problems, strict=True)
    )
    spent = (Cost(*record.chain_cost.sum(axis=0).tolist()) for record in records)
    return Draws(header, records), sum(spent, Cost())


async def chains_on(
    lm: LanguageModel, rm: RewardModel, prompts: Sequence[str], run: Run
) -> list[list[Step]]:
    """Run one chain per prompt, all at once; the prompt's place is the chain's number."""
    settings: Any = {"target": run.target, "move": run.move, "steps": run.steps, "seed": run.seed}

    async def one(place: int) -> list[Step]:
        chain = run_chain(lm, rm, prompts[place], chain=place, **settings)
        return [step async for step in chain]

    return await gather(*map(one, range(len(prompts))))


def proposals_of(draws: Draws, first: int = 1) -> Proposals | None:
    """The proposals of all chains from step number `first` on; None if there are none."""
    records = [r for r in draws.records if len(r.chain_reward) > first * r.n_chains]
    if not records:
        return None
    new = [np.arange(first * r.n_chains, len(r.chain_reward)) for r in records]
    # made in the state that the step before left
    old = [r.state_of[steps - r.n_chains] for r, steps in zip(records, new, strict=True)]

    def of(steps: Sequence[Array], name: str) -> Array:
        parts = [getattr(r, f"chain_{name}")[at] for r, at in zip(records, steps, strict=True)]
        return np.concatenate(parts)

    def scores(steps: Sequence[Array]) -> Scores:
        log_prob = of(steps, "log_prob").astype(np.float64) if target.is_sharp else None
        return Scores(of(steps, "reward").astype(np.float64), log_prob)

    target = draws.header.run.target
    correction: tuple[Array, ...]
    if draws.header.run.move == SUFFIX:
        correction = length_ratio(new=of(new, "length"), old=of(old, "length"))
    else:
        correction = (of(new, "correction").astype(np.float64),)
    return Proposals(
        old=scores(old),
        new=scores(new),
        correction=correction,
        changed=of(new, "changed").astype(bool),
        prompt=np.repeat(np.arange(len(records)), [len(steps) for steps in new]),
        target=target,
    )


@dataclass(frozen=True, slots=True)
class BetaEstimate:
    """A beta with its 95 % band; if it was not `reached`, the furthest one in its direction."""

    beta: float
    low: float
    high: float
    reached: bool


def beta_for(
    proposals: Proposals, target: float, *, n_bootstrap: int = 1000, seed: int = 0
) -> BetaEstimate:
    """The beta at which chains would accept changed proposals at the target rate.

    The band is by bootstrap over prompts, or over blocks of a single chain; an end is 0 or inf
    where resamples do not reach the target.

    Raises:
        InvalidSetting: no proposal differs from its state, or all rewards are equal.
    """
    changed = proposals.changed
    if not changed.any():
        raise InvalidSetting(
            f"none of {len(changed)} proposals differs from its state, so beta cannot be tuned on "
            "them; run more steps, or sample at a higher temperature"
        )
    new, old = (np.asarray(each.reward)[changed] for each in (proposals.new, proposals.old))
    if np.array_equal(new, old):
        raise InvalidSetting(
            f"the {int(changed.sum())} changed proposals have the rewards of their states, so beta "
            "decides nothing; use a reward that distinguishes responses"
        )
    middle = math.log(proposals.target.beta)
    grid = np.exp(np.unique([*np.linspace(middle - 7, middle + 7, 561), middle]))
    known, weights, alpha = proposals.at(grid)
    grid, counted = grid[known], weights * changed
    accepted = counted * alpha

    groups = proposals.prompt
    if len(np.unique(groups)) == 1:  # neighbours in a chain are related: resample blocks of eight
        groups = np.arange(len(groups)) // 8
    members = np.unique(groups, return_inverse=True)[1]
    belongs = np.eye(members.max() + 1)[members]
    top, bottom = accepted @ belongs, counted @ belongs  # [betas, groups]

    log_beta, reached = _crossing(grid, top.sum(axis=1) / bottom.sum(axis=1), target)
    rng = np.random.default_rng(seed)
    picked = resampled_problems(rng, belongs.shape[1], n_bootstrap).T
    total = bottom @ picked
    rates = np.divide(top @ picked, total, out=np.ones_like(total), where=total > 0)
    ends = [_crossing(grid, rate, target) for rate in rates.T]
    logs = [x if inside else (math.inf if x > middle else -math.inf) for x, inside in ends]
    low, high = np.exp(band(logs, among=True))
    return BetaEstimate(math.exp(log_beta), float(low), float(high), reached)


def _crossing(grid: Array, rates: Array, target: float) -> tuple[float, bool]:
    """Log of the least beta at which the rate rises through the target, and whether there is one.

    Without one: the log of the last beta in the direction where it must be.
    """
    above = rates >= target
    rises = np.flatnonzero(above[1:] & ~above[:-1])
    if len(rises):
        k = rises[0]
        share = (target - rates[k]) / (rates[k + 1] - rates[k])
        return float(np.log(grid[k]) + share * np.log(grid[k + 1] / grid[k])), True
    return float(np.log(grid[0] if above[0] else grid[-1])), False


@dataclass(frozen=True, slots=True)
class BetaPoint:
    """What another beta would have made of the same samples, averaged over problems.

    Attributes:
        beta: of the target, raw RM units.
        accuracy: share of problems that WMV decides rightly; `low`, `high` are its Wilson interval.
        reward: mean reward under WMV's weights.
        kl: KL(pi_beta || p_LM) in nats, from the pool; n samples cannot show more than log n.
        effective: effective sample size of WMV's weights.
        acceptance: of a chain's proposals that differ from the state; None if the chain that ran
            is too far away to tell.
    """

    beta: float
    accuracy: float
    low: float
    high: float
    reward: float
    kl: float
    effective: float
    acceptance: float | None


def against_beta(draws: Draws, betas: Sequence[float]) -> list[BetaPoint]:
    """Compute what other betas do: to WMV's accuracy, to the acceptance, to the distance from base.

    WMV and the chain have the same limit at the same beta, so its accuracy speaks for both.

    Raises:
        InvalidSetting: no problem is done, a beta is not > 0, or no samples were drawn.
    """
    records = draws.records
    if not draws.has_pool:
        raise InvalidSetting("other betas need samples of the pool; run 'evaluate'")
    column = np.array([Target(beta).beta for beta in betas])[:, None]
    values = np.empty((len(betas), len(records), 4))
    for place, record in enumerate(records):
        decide = record.vote(draws.utility(record))
        reward = record.pool_reward.astype(np.float64)
        answer = record.pool_answer.astype(np.int64)
        weights = softmax(reward, column, record.pool_tilt(draws.header.run.sharpness))
        won = decide(np.broadcast_to(answer, weights.shape), weights)
        effective = 1 / (weights**2).sum(axis=1)
        known = record.is_right(won), weights @ reward, kl_from_base(weights), effective
        values[:, place] = np.transpose(known)
    proposals = proposals_of(draws)
    points = []
    for beta, (right, *others) in zip(betas, values.transpose(0, 2, 1), strict=True):
        mean_reward, kl, effective = (float(other.mean()) for other in others)
        accepted = None if proposals is None else proposals.acceptance(beta)
        share = share_of(right)
        ends = share.value, share.low, share.high
        points.append(BetaPoint(float(beta), *ends, mean_reward, kl, effective, accepted))
    return points


@dataclass(frozen=True, slots=True)
class Tried:
    """A sharpness that was tried.

    Attributes:
        sharpness: power of the LM's probability in the target.
        tuned: the beta that goes with it; None without a reward, where beta plays no role.
        right: how often the vote of a chain's states is right, with its 95 % band over problems;
            None if no beta reaches the target there.
        cost: tokens spent, those for its beta too.
    """

    sharpness: float
    tuned: Tuned | None
    right: Point | None
    cost: Cost


async def tune_sharpness(
    lm: LanguageModel,
    rm: RewardModel,
    problems: Sequence[Problem],
    sharpnesses: Sequence[float],
    run: Run,
    *,
    acceptance: float = 0.5,
) -> tuple[Tried, ...]:
    """Find out how often the vote of a chain's states is right at each sharpness, at its own beta.

    No acceptance rate singles out a sharpness: each has a beta at which half of the changed
    proposals are accepted. So right answers decide; results to report must be of others.

    `tune_beta` finds the beta of each; then a chain a problem runs there with further randomness,
    the same at every sharpness. The first quarter of each chain is left out.

    Args:
        lm: language model, as sampled.
        rm: reward model.
        problems: of a set, with right answers (not those to be evaluated on).
        sharpnesses: to be tried, each with the run's beta first.
        run: as for `tune_beta`; its steps are also those of the chains that vote.
        acceptance: of `tune_beta`.

    Returns:
        What came of each sharpness, from the smallest on.

    Raises:
        InvalidSetting, InvalidPrompt, ModelContractError, InvalidReward: as `tune_beta`, but that
            a sharpness without a beta is an outcome here.
    """
    if not problems or not sharpnesses:
        raise InvalidSetting("tuning needs at least one problem and one sharpness")
    if any(problem.is_right("") is None for problem in problems):
        raise InvalidSetting(
            "tuning the sharpness needs problems with right answers, and one has none; "
            "give a different set, or only one sharpness"
        )
    check_tuning(acceptance, run.steps)
    run = run.with_changes(rm=rm.id, extractor=problems[0].extractor, burn_in=run.steps // 4)
    runs = [run.with_changes(sharpness=float(each)) for each in sorted(set(sharpnesses))]
    return tuple([await _try_sharpness(lm, rm, problems, each, acceptance) for each in runs])


async def _try_sharpness(
    lm: LanguageModel, rm: RewardModel, problems: Sequence[Problem], run: Run, acceptance: float
) -> Tried:
    """Tune the beta of a run from where it starts, and let chains vote at that beta."""
    tuned, cost = None, Cost()
    if run.has_reward:
        prompts = [problem.prompt for problem in problems]
        try:
            tuned = await tune_beta(lm, rm, prompts, run, acceptance=acceptance)
        except NoBeta as failed:
            return Tried(run.sharpness, None, None, failed.cost)
        run, cost = run.with_changes(beta=tuned.beta), tuned.cost
    draws, spent = await walk(lm, rm, problems, run.with_changes(seed=run.seed + ROUNDS))
    (right,) = curves(draws, budget="samples", ns=[run.steps + 1])
    return Tried(run.sharpness, tuned, right, cost + spent)
