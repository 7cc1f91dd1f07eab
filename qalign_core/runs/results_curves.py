"""What the results of an evaluation tell: curves at any budget, what another beta would do, tables.

Everything is computed from the stored samples and steps; nothing is sampled again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from qalign_core.analysis.comparisons import METHODS, Budget, Meter
from qalign_core.analysis.diagnostics import Acceptance, Rate
from qalign_core.analysis.tuning import Proposals, kl_from_base
from qalign_core.chain.cost import n_at_budget
from qalign_core.decide.rules import effective_sample_size, importance_weights
from qalign_core.errors import InvalidSetting
from qalign_core.runs.results import Array, Record, Results, Rule, Settings
from qalign_core.types import Cost

Curve = Literal["qalign", "bon", "mv", "wmv", "any"]


@dataclass(frozen=True, slots=True)
class Point:
    """One method at one budget, averaged over problems.

    Attributes:
        method: "qalign", "bon", "mv" or "wmv"; "any" is the share of problems for which at least
            one of n samples is right, which no rule can exceed.
        n: independent samples of the budget.
        used: mean number of samples, or of the chain's states, that the decision was made from.
        spent: mean price in the meter's unit (FLOPs, or tokens where sizes are unknown).
        tokens: mean number of generated tokens.
        accuracy: share of problems decided rightly; `low` and `high` are its 95 % band by
            bootstrap over problems.
        reward: mean reward under the weights that the method decides with (BoN: of the chosen).
    """

    method: Curve
    n: int
    used: float
    spent: float
    tokens: float
    accuracy: float
    low: float
    high: float
    reward: float


def curves(
    results: Results,
    *,
    budget: Budget = "flops",
    ns: Sequence[int] | None = None,
    beta: float | None = None,
    n_subsets: int = 32,
    n_bootstrap: int = 2000,
    seed: int = 0,
) -> list[Point]:
    """Compute the accuracy of every method against compute.

    Best-of-n and "any" are averaged over all subsets of n of the N samples, exactly; MV and WMV
    over `n_subsets` random ones. QAlign is the beginning of the chain that costs what n of the
    problem's samples cost on average (or, at equal samples, its first n states).

    Args:
        results: of one run.
        budget: what is made equal between QAlign and the others at each n.
        ns: numbers of samples; default powers of two up to all of them.
        beta: of WMV's weights; default the chain's.
        n_subsets: random subsets a problem and n.
        n_bootstrap: resamples of the problems for the bands.
        seed: of subsets and resamples.

    Raises:
        InvalidSetting: no problem is done, or an n exceeds the samples.
    """
    records = results.records
    if not records:
        raise InvalidSetting("no problem is done yet; run 'evaluate' first")
    settings = results.settings
    has_pool = any(m != "qalign" for m in settings.methods)
    size = min(len(r.pool_reward) for r in records) if has_pool else settings.budget
    ns = _powers_of_two(size) if ns is None else sorted(set(ns))
    if ns[0] < 1 or ns[-1] > size:
        raise InvalidSetting(f"n must be between 1 and the {size} samples drawn, got {ns}")

    rng = np.random.default_rng(seed)
    resampled = rng.multinomial(len(records), np.full(len(records), 1 / len(records)), n_bootstrap)
    per_problem: dict[tuple[Curve, int], list[tuple[float, ...]]] = {}
    for record in records:
        rows: list[_Row] = []
        decide = record.rule(settings)
        if has_pool:
            rows += _pool_rows(record, settings, ns, beta or settings.beta, n_subsets, rng, decide)
        if "qalign" in settings.methods:
            rows += _chain_rows(record, settings, ns, budget if has_pool else "samples", decide)
        for method, n, row in rows:
            per_problem.setdefault((method, n), []).append(row)

    points = []
    for (method, n), values in per_problem.items():
        right, reward, used, spent, tokens = np.array(values).T
        low, high = np.quantile(resampled @ right / len(records), [0.025, 0.975])
        points.append(
            Point(
                method=method,
                n=n,
                used=float(used.mean()),
                spent=float(spent.mean()),
                tokens=float(tokens.mean()),
                accuracy=float(right.mean()),
                low=float(low),
                high=float(high),
                reward=float(reward.mean()),
            )
        )
    order: list[Curve] = [*METHODS, "any"]
    return sorted(points, key=lambda p: (order.index(p.method), p.n))


@dataclass(frozen=True, slots=True)
class BetaPoint:
    """What another beta would have made of the same samples, averaged over problems.

    Attributes:
        beta: of the target, raw RM units.
        accuracy: share of problems that WMV decides rightly; `low`, `high` are its 95 % band.
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


def against_beta(
    results: Results, betas: Sequence[float], *, n_bootstrap: int = 2000, seed: int = 0
) -> list[BetaPoint]:
    """Compute what other betas do: to WMV's accuracy, to the acceptance, to the distance from base.

    WMV and the chain have the same limit at the same beta, so its accuracy speaks for both.

    Raises:
        InvalidSetting: no problem is done, a beta is not > 0, or no samples were drawn.
    """
    records, settings = results.records, results.settings
    if not records or not all(len(record.pool_reward) for record in records):
        raise InvalidSetting("other betas need samples of the pool; run 'evaluate' with 'wmv'")
    rng = np.random.default_rng(seed)
    resampled = rng.multinomial(len(records), np.full(len(records), 1 / len(records)), n_bootstrap)
    values = np.empty((len(betas), len(records), 4))
    for place, record in enumerate(records):
        decide = record.rule(settings)
        reward = record.pool_reward.astype(np.float64)
        answer = record.pool_answer.astype(np.int64)
        for row, beta in enumerate(betas):
            weights = np.array(importance_weights(reward.tolist(), beta))
            won = decide(answer[None], weights[None], reward[None])
            values[row, place] = (
                record.is_right(won)[0],
                weights @ reward,
                kl_from_base(reward.tolist(), beta),
                effective_sample_size(weights.tolist()),
            )
    proposals = proposals_of(results)
    points = []
    for beta, (right, *others) in zip(betas, values.transpose(0, 2, 1), strict=True):
        low, high = np.quantile(resampled @ right / len(records), [0.025, 0.975])
        mean_reward, kl, effective = (float(other.mean()) for other in others)
        accepted = None if proposals is None else proposals.acceptance(beta)
        points.append(
            BetaPoint(
                beta=float(beta),
                accuracy=float(right.mean()),
                low=float(low),
                high=float(high),
                reward=mean_reward,
                kl=kl,
                effective=effective,
                acceptance=accepted,
            )
        )
    return points


def proposals_of(results: Results) -> Proposals | None:
    """The proposals of all chains, which tell the acceptance at other betas; None if none ran."""
    chains = [record for record in results.records if len(record.chain_reward) > 1]
    if not chains:
        return None
    states = [record.state_of[:-1] for record in chains]

    def old(name: str) -> Array:
        return np.concatenate([getattr(r, name)[s] for r, s in zip(chains, states, strict=True)])

    def new(name: str) -> Array:
        return np.concatenate([getattr(record, name)[1:] for record in chains])

    return Proposals(
        reward_old=old("chain_reward").astype(np.float64),
        reward_new=new("chain_reward").astype(np.float64),
        len_old=old("chain_length"),
        len_new=new("chain_length"),
        changed=new("chain_changed").astype(bool),
        prompt=np.repeat(np.arange(len(chains)), [len(s) for s in states]),
        beta=results.settings.beta,
    )


def acceptance_of(records: Iterable[Record]) -> Acceptance:
    """Count accepted proposals over all chains, initial draws left out."""
    n = n_accepted = n_changed = n_both = 0
    for record in records:
        accepted, changed = record.chain_accepted[1:], record.chain_changed[1:]
        n += len(accepted)
        n_accepted += int(accepted.sum())
        n_changed += int(changed.sum())
        n_both += int((accepted & changed).sum())
    return Acceptance(Rate(n_accepted, n), Rate(n_both, n_changed))


def summary(results: Results, *, seed: int = 0) -> dict[str, Any]:
    """Make the tables of a results page: plain values only, ready for JSON.

    Returns:
        `settings`; `done` and `missing` (problems); `acceptance` (overall, changed, counts);
        `unit` of `spent`; `points`, the rows of `curves` at equal FLOPs; `table`, the largest
        budget's rows.
    """
    points = curves(results, seed=seed)
    acceptance = acceptance_of(results.records)
    largest = max(p.n for p in points)
    return {
        "settings": json.loads(results.settings.to_json()),
        "done": len(results.records),
        "missing": results.n_missing,
        "unit": results.settings.meter.unit,
        "acceptance": {
            "overall": acceptance.overall.value,
            "changed": acceptance.changed.value,
            "n": acceptance.overall.trials,
            "n_changed": acceptance.changed.trials,
        },
        "points": [asdict(p) for p in points],
        "table": [asdict(p) for p in points if p.n == largest],
    }


_Row = tuple[Curve, int, tuple[float, ...]]  # method, n, (right, reward, used, spent, tokens)


def _pool_rows(
    record: Record,
    settings: Settings,
    ns: Sequence[int],
    beta: float,
    n_subsets: int,
    rng: np.random.Generator,
    decide: Rule,
) -> list[_Row]:
    reward = record.pool_reward.astype(np.float64)
    answer = record.pool_answer.astype(np.int64)
    right = record.is_right(answer).astype(np.float64)
    price = float(_prices(record.pool_cost, settings.meter).mean())
    tokens = float(record.pool_cost[:, 0].mean())
    n_right = int(right.sum())
    best_first = np.argsort(-reward, kind="stable")
    shuffled = np.argsort(rng.random((n_subsets, len(reward))), axis=1)

    rows: list[_Row] = []
    for n in ns:
        used = (float(n), n * price, n * tokens)
        if "bon" in settings.methods:
            p = _first_of_subset(len(reward), n)
            chosen = (float(p @ right[best_first]), float(p @ reward[best_first]))
            rows.append(("bon", n, (*chosen, *used)))
        any_right = 1 - math.comb(len(reward) - n_right, n) / math.comb(len(reward), n)
        rows.append(("any", n, (any_right, float(reward.mean()), *used)))

        if not {"mv", "wmv"} & set(settings.methods):
            continue
        subsets = _subsets(shuffled, n)
        r, a = reward[subsets], answer[subsets]
        for method in ("mv", "wmv"):
            if method not in settings.methods:
                continue
            w = np.exp((r - r.max(axis=1, keepdims=True)) / beta) if method == "wmv" else r * 0 + 1
            w /= w.sum(axis=1, keepdims=True)
            won = decide(a, w, r)
            result = (float(record.is_right(won).mean()), float((w * r).sum(axis=1).mean()))
            rows.append((method, n, (*result, *used)))
    return rows


def _chain_rows(
    record: Record, settings: Settings, ns: Sequence[int], budget: Budget, decide: Rule
) -> list[_Row]:
    states = record.state_of
    reward = record.chain_reward.astype(np.float64)[states]
    answer = record.chain_answer.astype(np.int64)[states]
    spent = np.cumsum(_prices(record.chain_cost, settings.meter))
    tokens = np.cumsum(record.chain_cost[:, 0])
    if budget == "flops":
        price = float(_prices(record.pool_cost, settings.meter).mean())

    rows: list[_Row] = []
    for n in ns:
        length = n_at_budget(spent.tolist(), n * price) if budget == "flops" else n
        length = min(length, len(states))
        r, a = reward[None, :length], answer[None, :length]
        won = decide(a, np.full(r.shape, 1 / length), r)
        row = (
            float(record.is_right(won)[0]),
            float(r.mean()),
            float(length),
            float(spent[length - 1]),
            float(tokens[length - 1]),
        )
        rows.append(("qalign", n, row))
    return rows


def _subsets(shuffled: Array, n: int) -> Array:
    """Take the first n of each row of shuffled numbers; all subsets where n is 1 or everything."""
    size = shuffled.shape[1]
    return np.arange(size).reshape(-1, n) if n in (1, size) else shuffled[:, :n]


@lru_cache(maxsize=256)
def _first_of_subset(size: int, n: int) -> Array:
    """Chance that the item of rank i leads a random subset of n, C(size-1-i, n-1) / C(size, n)."""
    p = np.zeros(size)
    p[0] = n / size
    for i in range(size - n):
        p[i + 1] = p[i] * (size - n - i) / (size - 1 - i)
    return p


def _prices(cost: Array, meter: Meter) -> Array:
    """The price of each row of counts, shape [n]: linear in the counts, so one product."""
    each = [meter.price(Cost(*row)) for row in np.eye(5, dtype=int).tolist()]
    return cost.astype(np.float64) @ np.array(each, dtype=np.float64)


def _powers_of_two(size: int) -> list[int]:
    return [2**k for k in range(size.bit_length()) if 2**k < size] + [size]
