"""A comparison is fair: same pool, level compute, the core's own decisions at every budget."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from finite import TableReward, letters
from qalign_core.runs.comparison_file import COLUMNS, from_json, to_csv, to_json
from toys import ANSWER, PROMPT, ToyLM, ToyRM

from qalign_core.analysis.comparisons import (
    METHODS,
    TOLERANCE,
    Budget,
    Comparison,
    Cut,
    Meter,
    draw_comparison,
    full_cut,
    ladder,
    outcomes,
    recycled,
)
from qalign_core.analysis.curves import curves
from qalign_core.analysis.record import draws_of
from qalign_core.decide.rules import majority_vote, weighted_majority_vote
from qalign_core.errors import InvalidSetting, InvalidTrace
from qalign_core.run import Sampling
from qalign_core.types import Cost, Response, ScoredResponse, Step, TraceHeader

HOSTILE = '=1+1</script><img src=x onerror="alert(1)">${alert(2)}'


class CountedLM(ToyLM):
    """The toy, with a size: its work is then priced in FLOPs."""

    n_parameters = 1000


async def drawn(
    steps: int = 64,
    *,
    chains: int = 1,
    budget: Budget = "flops",
    seed: int = 7,
    most: int = 4096,
    stop_after: int | None = None,
) -> Comparison:
    lm, rm = CountedLM(), ToyRM()
    found: list[Step] = []
    pool: list[ScoredResponse] = []
    events = draw_comparison(
        lm, rm, PROMPT, beta=1.0, steps=steps, seed=seed, n_chains=chains, budget=budget,
        max_samples=most,
    )  # fmt: skip
    async for event in events:
        (found if isinstance(event, Step) else pool).append(event)  # type: ignore[arg-type]
        if stop_after is not None and len(found) + len(pool) >= stop_after:
            await events.aclose()  # type: ignore[attr-defined]
            break
    header = TraceHeader(
        lm="toy",
        rm="toy-reward",
        prompt=PROMPT,
        beta=1.0,
        seed=seed,
        steps=steps,
        chains=chains,
        sampling=Sampling(),
        reference=ANSWER,
        extractor="number",
    )
    return Comparison(header, tuple(found), tuple(pool), Meter.of(lm, rm))


@pytest.mark.parametrize("chains", [1, 3])
@pytest.mark.parametrize("steps", [5, 16, 64, 200])
async def test_at_equal_flops_the_methods_differ_by_less_than_two_percent(
    steps: int, chains: int
) -> None:
    for seed in range(3):
        comparison = await drawn(steps, chains=chains, seed=seed)
        found = outcomes(comparison, full_cut(comparison))
        # by the counters: summed again from every draw's own cost
        meter = comparison.meter
        chain = sum(meter.price(step.cost) for step in comparison.steps)
        pool = sum(meter.price(s.cost) for s in comparison.pool[: found[1].n])
        assert [outcome.spent for outcome in found] == [chain, pool, pool, pool]
        assert abs(chain - pool) <= TOLERANCE * chain
        assert min(c[-1].t for c in comparison.chains) >= steps


async def test_equal_samples_means_as_many_samples_as_states() -> None:
    comparison = await drawn(20, chains=2, budget="samples")
    assert len(comparison.pool) == len(comparison.steps) == 42
    assert full_cut(comparison, "samples") == Cut(20, 42)


async def test_a_longer_run_begins_with_the_shorter_one() -> None:
    short, long = await drawn(10), await drawn(40)
    assert long.steps[:11] == short.steps[:11]
    shared = min(len(short.pool), len(long.pool))
    assert long.pool[:shared] == short.pool[:shared]


async def test_a_comparison_stopped_anywhere_is_level_up_to_there() -> None:
    for stop_after in (2, 9, 30, 61):
        comparison = await drawn(64, stop_after=stop_after)
        found = outcomes(comparison, full_cut(comparison))
        largest = max(comparison.meter.price(s.cost) for s in comparison.pool)
        assert abs(found[0].spent - found[1].spent) <= largest


async def test_the_cap_on_samples_ends_the_comparison_as_it_is() -> None:
    comparison = await drawn(64, most=5)
    assert len(comparison.pool) == 5
    cut = full_cut(comparison)
    assert cut.n == 5
    assert cut.t < 64
    assert outcomes(comparison, cut)[0].n == cut.t + 1


async def test_every_rung_is_decided_from_its_own_draws_alone() -> None:
    whole = await drawn(64)
    for budget in ("flops", "samples"):
        for cut in ladder(whole, budget):
            part = replace(whole, steps=whole.steps[: cut.t + 1], pool=whole.pool[: cut.n])
            assert outcomes(part, cut) == outcomes(whole, cut)
            assert recycled(part, cut) == recycled(whole, cut)


async def test_a_ladder_ends_at_the_full_cut_and_never_repeats() -> None:
    comparison = await drawn(64)
    for budget in ("flops", "samples"):
        cuts = ladder(comparison, budget)
        assert cuts[-1] == full_cut(comparison, budget)
        assert len(set(cuts)) == len(cuts)
        assert [c.n for c in cuts] == sorted(c.n for c in cuts)
    assert all(n == t + 1 for t, n in ((c.t, c.n) for c in ladder(comparison, "samples")))


async def test_the_pool_is_shared_and_the_weights_have_the_chains_beta() -> None:
    comparison = await drawn(48)
    cut = full_cut(comparison)
    found = dict(zip(METHODS, outcomes(comparison, cut), strict=True))
    extract = comparison.extract
    assert extract is not None
    pool = list(comparison.pool[: cut.n])
    assert found["mv"].decision == majority_vote(pool, extract)
    assert found["wmv"].decision == weighted_majority_vote(pool, extract, beta=1.0)
    best = found["bon"].decision.chosen
    assert best is not None
    assert best.reward == max(s.reward for s in pool)
    states = [step.state for step in comparison.steps]
    assert found["qalign"].decision == majority_vote(states, extract)


async def test_latency_is_the_chains_new_tokens_and_the_pools_longest_sample() -> None:
    comparison = await drawn(16, chains=2)
    cut = full_cut(comparison)
    found = outcomes(comparison, cut)
    new = [sum(step.cost.generated for step in chain) for chain in comparison.chains]
    assert found[0].sequential == max(new)
    assert found[1].sequential == max(len(s.response) for s in comparison.pool[: cut.n])


async def test_recycling_counts_rejected_proposals_with_their_chance() -> None:
    comparison = await drawn(64)
    decision = recycled(comparison, full_cut(comparison))
    extract = comparison.extract
    assert extract is not None
    share: dict[str | None, float] = {}
    for step in comparison.steps:
        alpha = float(np.exp(step.log_alpha))
        new, old = extract(step.proposal.response.text), extract(step.current.response.text)
        share[new] = share.get(new, 0.0) + alpha
        share[old] = share.get(old, 0.0) + 1 - alpha
    total = len(comparison.steps)
    assert dict(decision.shares) == pytest.approx({a: w / total for a, w in share.items()})


async def test_without_an_extractor_mbr_takes_the_place_of_the_votes() -> None:
    comparison = await drawn(32)
    header = replace(comparison.header, extractor=None, reference=None)
    found = outcomes(replace(comparison, header=header), full_cut(comparison))
    assert [outcome.correct for outcome in found] == [None] * 4
    assert all(outcome.decision.chosen is not None for outcome in found)
    assert found[0].decision.shares == ()


async def test_a_model_of_unknown_size_is_compared_by_generated_tokens() -> None:
    pool, steps = [], []
    lm, rm = letters(), TableReward()
    async for event in draw_comparison(lm, rm, "any", beta=1.0, steps=40, seed=1):
        (steps if isinstance(event, Step) else pool).append(event)  # type: ignore[attr-defined]
    comparison = Comparison(TraceHeader(beta=1.0, extractor="text"), tuple(steps), tuple(pool))
    assert comparison.meter.unit == "generated tokens"
    found = outcomes(comparison, full_cut(comparison))
    assert found[0].spent == found[0].cost.generated
    assert abs(found[0].spent - found[1].spent) <= TOLERANCE * found[0].spent


def test_an_empty_comparison_says_what_it_needs() -> None:
    with pytest.raises(InvalidSetting, match="nothing to compare yet"):
        full_cut(Comparison(TraceHeader()))


async def test_a_cut_beyond_what_was_drawn_is_refused() -> None:
    comparison = await drawn(5)
    with pytest.raises(InvalidSetting, match="ask for a smaller one"):
        outcomes(comparison, Cut(1000, 1))


async def test_a_file_gives_the_same_comparison_back() -> None:
    comparison = await drawn(24, chains=2)
    again = from_json(to_json(comparison))
    cut = full_cut(comparison)
    assert outcomes(again, cut) == outcomes(comparison, cut)
    assert to_json(again) == to_json(comparison)
    assert again.pool == comparison.pool
    assert [s.cost for s in again.pool] == [s.cost for s in comparison.pool]


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"type":"comparison","version":9}'])
def test_a_file_that_is_no_comparison_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(InvalidTrace, match="not a comparison"):
        from_json(text)


async def test_the_csv_has_a_row_a_draw_and_its_weights_sum_to_one() -> None:
    comparison = await drawn(24)
    rows = list(csv.DictReader(io.StringIO(to_csv(comparison))))
    assert len(rows) == len(comparison.steps) + len(comparison.pool)
    assert tuple(rows[0]) == COLUMNS
    for source in ("chain", "pool"):
        weights = [
            float(row["weight"]) for row in rows if row["source"] == source and row["weight"]
        ]
        assert sum(weights) == pytest.approx(1.0)


async def test_hostile_text_is_no_markup_in_json_and_no_formula_in_csv() -> None:
    comparison = await drawn(5)
    bad = ScoredResponse(Response((1, 0), HOSTILE, True), 0.0, Cost(2, 2, 0, 2, 0))
    comparison = replace(comparison, pool=(bad, *comparison.pool))
    assert "<" not in to_json(comparison)
    assert json.loads(to_json(comparison))["pool"][0]["text"] == HOSTILE
    texts = [row["text"] for row in csv.DictReader(io.StringIO(to_csv(comparison)))]
    assert "'" + HOSTILE in texts


async def test_curves_are_level_at_one_draw_and_end_at_what_was_decided() -> None:
    comparison = await drawn(64)
    points = curves(draws_of(comparison), cuts=ladder(comparison, rungs=10), seed=1)
    last = outcomes(comparison, full_cut(comparison))
    for outcome in last:
        mine = [point for point in points if point.method == outcome.method]
        assert mine[-1].answer == outcome.decision.answer
        assert mine[-1].correct == outcome.correct
        assert all(0 <= p.low <= p.value <= p.high <= 1 for p in mine)
    # of one sample every rule makes the same: the share of right samples. False alarm < 1e-6:
    # five standard errors of 1600 draws.
    extract = comparison.extract
    assert extract is not None
    p = float(np.mean([extract(s.response.text) == ANSWER for s in comparison.pool]))
    for method in ("bon", "mv", "wmv"):
        first = next(q for q in points if q.method == method and q.n == 1)
        n_draws = 40 * len(comparison.pool)
        error = (p * (1 - p) * (1 / 1600 + 1 / n_draws)) ** 0.5
        assert abs(first.value - p) < 5 * error


async def test_curves_of_open_prompts_show_the_reward_of_the_chosen() -> None:
    comparison = await drawn(16)
    header = replace(comparison.header, extractor=None, reference=None)
    comparison = replace(comparison, header=header)
    points = curves(draws_of(comparison), cuts=ladder(comparison, rungs=4))
    best = [p for p in points if p.method == "bon"]
    assert best[-1].value > best[0].value
    assert all(p.low <= p.value <= p.high for p in points)
