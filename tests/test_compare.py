"""A comparison is fair: same pool, level compute, the core's own decisions at every budget."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from finite import TableReward, letters
from toys import ANSWER, PROMPT, ToyLM, ToyRM
from traces import with_run

from components.compare.view import view
from qalign_core import collect
from qalign_core.decide.methods import majority_vote, weighted_majority_vote
from qalign_core.decide.rules import RULES
from qalign_core.errors import InvalidSetting
from qalign_core.record.format import parse_trace, trace_lines
from qalign_core.record.runner import TOLERANCE, record
from qalign_core.record.trace import Trace, TraceHeader
from qalign_core.rewards.functions import FunctionReward
from qalign_core.run import Run
from qalign_core.target import Target
from qalign_core.types import Cost, Response, ScoredResponse
from qalign_study.export.dataframes import to_frame
from qalign_study.measure.comparisons import (
    Comparison,
    Cut,
    full_cut,
    ladder,
    outcomes,
    recycled,
)
from qalign_study.measure.curves import curves
from qalign_study.measure.record import draws_of
from qalign_study.sheet.files import draws_csv

HOSTILE = '=1+1</script><img src=x onerror="alert(1)">${alert(2)}'


class CountedLM(ToyLM):
    """The toy, with a size: its work is then priced in FLOPs."""

    n_parameters = 1000


RUN = Run(PROMPT, reference=ANSWER, pool=4096, matched="pool")


def draw_comparison(steps: int = 64, *, lm=None, rm=None, n_lines: int | None = None, **changes):
    """A comparison, or what its first lines make of it."""
    run = RUN.with_changes(steps=steps, **changes)
    lines = [item.line for item in collect(record(lm or CountedLM(), rm or ToyRM(), run))]
    return Comparison(parse_trace("".join(lines[:n_lines])))


def with_trace(comparison: Comparison, **changes) -> Comparison:
    return Comparison(replace(comparison.trace, **changes))


def open_ended(comparison: Comparison) -> Comparison:
    header = with_run(comparison.header, extractor=None, reference=None)
    return with_trace(comparison, header=header)


@pytest.mark.parametrize("chains", [1, 3])
@pytest.mark.parametrize("steps", [5, 64])
def test_at_equal_flops_the_methods_differ_by_less_than_two_percent(steps, chains) -> None:
    for seed in range(3):
        comparison = draw_comparison(steps, chains=chains, seed=seed)
        cut = full_cut(comparison)
        results = outcomes(comparison, cut)
        # by the counters: summed again from every draw's own cost, and the prompt, read once
        header, meter = comparison.header, comparison.header.meter
        prompt = meter.price(Cost(header.prompt_tokens, header.prompt_scored))
        chain = prompt + sum(meter.price(step.cost) for step in comparison.steps_to(cut.t))
        pool = prompt + sum(meter.price(s.cost) for s in comparison.pool[: results[1].n])
        assert [outcome.spent for outcome in results] == [chain, pool, pool, pool]
        assert abs(chain - pool) <= TOLERANCE * chain


def test_equal_samples_means_as_many_samples_as_states() -> None:
    comparison = draw_comparison(20, chains=2, pool=42, matched="none")
    assert full_cut(comparison, "samples") == Cut(20, 42)


def test_a_comparison_stopped_anywhere_is_level_up_to_there() -> None:
    for n_lines in (3, 10, 31, 62):
        comparison = draw_comparison(64, n_lines=n_lines)
        results = outcomes(comparison, full_cut(comparison))
        largest = max(comparison.header.meter.price(s.cost) for s in comparison.pool)
        assert abs(results[0].spent - results[1].spent) <= largest


def test_at_the_cap_on_samples_as_much_of_the_chain_is_looked_at() -> None:
    comparison = draw_comparison(64, pool=5)
    cut = full_cut(comparison)
    assert cut.n == 5
    assert cut.t < 64
    assert outcomes(comparison, cut)[0].n == cut.t + 1


def test_every_rung_is_decided_from_its_own_draws_alone() -> None:
    whole = draw_comparison(64)
    for budget in ("flops", "samples"):
        for cut in ladder(whole, budget):
            steps = whole.trace.steps[: cut.t + 1]
            part = with_trace(whole, steps=steps, pool=whole.pool[: cut.n])
            assert outcomes(part, cut) == outcomes(whole, cut)
            assert recycled(part, cut) == recycled(whole, cut)


def test_a_ladder_ends_at_the_full_cut_and_never_repeats() -> None:
    comparison = draw_comparison(64)
    for budget in ("flops", "samples"):
        cuts = ladder(comparison, budget)
        assert cuts[-1] == full_cut(comparison, budget)
        assert len(set(cuts)) == len(cuts)
        assert [c.n for c in cuts] == sorted(c.n for c in cuts)
    assert all(n == t + 1 for t, n in ((c.t, c.n) for c in ladder(comparison, "samples")))


def test_the_pool_is_shared_and_the_weights_have_the_chains_beta() -> None:
    comparison = draw_comparison(48)
    cut = full_cut(comparison)
    by_method = {outcome.method: outcome for outcome in outcomes(comparison, cut)}
    assert list(by_method) == list(RULES)
    extract = comparison.extract
    assert extract is not None
    pool = list(comparison.pool[: cut.n])
    assert by_method["mv"].decision == majority_vote(pool, extract)
    assert by_method["wmv"].decision == weighted_majority_vote(pool, extract, target=Target(1.0))
    best = by_method["bon"].decision.chosen
    assert best is not None
    assert best.reward == max(s.reward for s in pool)
    states = [step.state for step in comparison.trace.steps]
    assert by_method["qalign"].decision == majority_vote(states, extract)


def test_latency_is_the_chains_new_tokens_and_the_pools_longest_sample() -> None:
    comparison = draw_comparison(16, chains=2)
    cut = full_cut(comparison)
    results = outcomes(comparison, cut)
    new = [sum(step.cost.generated for step in chain) for chain in comparison.chains]
    assert results[0].sequential == max(new)
    assert results[1].sequential == max(len(s.response) for s in comparison.pool[: cut.n])


def test_a_constant_reward_is_not_called_too_few_steps() -> None:
    rule = FunctionReward(lambda prompt, text: 0.0)
    comparison = draw_comparison(48, rm=rule, chains=2)
    (card, *_) = json.loads(view(comparison, state="done"))["ladders"]["flops"][-1]["cards"]
    assert ["R-hat", "–", "undefined: the reward never changed"] in card["facts"]


def test_recycling_counts_rejected_proposals_with_their_chance() -> None:
    comparison = draw_comparison(64)
    decision = recycled(comparison, full_cut(comparison))
    extract = comparison.extract
    assert extract is not None
    share: dict[str | None, float] = {}
    for step in comparison.trace.steps:
        alpha = float(np.exp(step.log_alpha))
        new, old = extract(step.proposal.response.text), extract(step.current.response.text)
        share[new] = share.get(new, 0.0) + alpha
        share[old] = share.get(old, 0.0) + 1 - alpha
    total = len(comparison.trace.steps)
    assert dict(decision.shares) == pytest.approx({a: w / total for a, w in share.items()})


def test_without_an_extractor_mbr_takes_the_place_of_the_votes() -> None:
    comparison = open_ended(draw_comparison(32))
    results = outcomes(comparison, full_cut(comparison))
    assert [outcome.correct for outcome in results] == [None] * 4
    assert all(outcome.decision.chosen is not None for outcome in results)
    assert results[0].decision.shares == ()


def test_a_model_of_unknown_size_is_compared_by_generated_tokens() -> None:
    run = {"prompt": "any", "reference": None, "extractor": "text", "seed": 1}
    comparison = draw_comparison(40, lm=letters(), rm=TableReward(), **run)
    assert comparison.header.meter.unit == "tokens processed"
    results = outcomes(comparison, full_cut(comparison))
    assert results[0].spent == results[0].cost.generated
    assert abs(results[0].spent - results[1].spent) <= TOLERANCE * results[0].spent


def test_an_empty_comparison_says_what_it_needs() -> None:
    with pytest.raises(InvalidSetting, match="nothing to compare yet"):
        full_cut(Comparison(Trace(TraceHeader())))


def test_a_cut_beyond_what_was_drawn_is_refused() -> None:
    comparison = draw_comparison(5)
    with pytest.raises(InvalidSetting, match="request a smaller one"):
        outcomes(comparison, Cut(1000, 1))


def test_a_file_gives_the_same_comparison_back() -> None:
    comparison = draw_comparison(24, chains=2)
    again = Comparison(parse_trace("".join(trace_lines(comparison.trace))))
    cut = full_cut(comparison)
    assert outcomes(again, cut) == outcomes(comparison, cut)
    assert ladder(again) == ladder(comparison)


def test_the_csv_has_a_row_a_draw_and_its_weights_sum_to_one() -> None:
    comparison = draw_comparison(24)
    rows = list(csv.DictReader(io.StringIO(draws_csv(comparison))))
    assert len(rows) == len(comparison.trace.steps) + len(comparison.pool)
    assert {*to_frame(comparison.trace), "weight", "answer"} == set(rows[0])
    for source in ("chain", "pool"):
        weights = [
            float(row["weight"]) for row in rows if row["source"] == source and row["weight"]
        ]
        assert sum(weights) == pytest.approx(1.0)


def test_hostile_text_is_no_markup_in_a_trace_and_no_formula_in_csv() -> None:
    comparison = draw_comparison(5)
    bad = ScoredResponse(Response((1, 0), HOSTILE, True), 0.0, Cost(2, 2))
    comparison = with_trace(comparison, pool=(bad, *comparison.pool))
    written = "".join(trace_lines(comparison.trace))
    assert "<" not in written
    assert parse_trace(written).pool[0].response.text == HOSTILE
    texts = [row["text"] for row in csv.DictReader(io.StringIO(draws_csv(comparison)))]
    assert "'" + HOSTILE in texts


def test_curves_are_level_at_one_draw_and_end_at_what_was_decided() -> None:
    comparison = draw_comparison(64)
    points = curves(draws_of(comparison), cuts=ladder(comparison, rungs=10))
    last = outcomes(comparison, full_cut(comparison))
    for outcome in last:
        mine = [point for point in points if point.method == outcome.method]
        assert mine[-1].spent == pytest.approx(outcome.spent)
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


def test_curves_of_open_prompts_show_the_reward_of_the_chosen() -> None:
    comparison = open_ended(draw_comparison(16))
    points = curves(draws_of(comparison), cuts=ladder(comparison, rungs=4))
    best = [p for p in points if p.method == "bon"]
    assert best[-1].value > best[0].value
    assert all(p.low <= p.value <= p.high for p in points)
