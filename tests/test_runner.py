"""What a run draws is the run itself, whatever stops it and wherever it is taken up again."""

from __future__ import annotations

import pytest
from finite import TableReward, letters
from toys import ANSWER, PROMPT, ToyLM, ToyRM

from qalign_core import collect, run_chains, sample_iid
from qalign_core.chain.cost import meter_of
from qalign_core.errors import InvalidReward, InvalidSetting
from qalign_core.record.format import parse_trace
from qalign_core.record.runner import TOLERANCE, make_header, record
from qalign_core.record.trace import Trace
from qalign_core.run import Run
from qalign_core.types import Cost, Step
from qalign_study.measure.comparisons import Comparison, full_cut

LM, RM = letters(), TableReward()
RUN = Run("x", reference="a", extractor="text", beta=0.8, steps=12, seed=5, chains=2, pool=10)


def text_of(lm, rm, run: Run) -> str:
    return "".join(each.line for each in collect(record(lm, rm, run)))


def test_the_lines_read_back_as_the_run() -> None:
    recorded = collect(record(LM, RM, RUN))
    trace = parse_trace("".join(item.line for item in recorded))
    steps = collect(run_chains(LM, RM, "x", n_chains=2, beta=0.8, steps=12, seed=5))
    for chain in (0, 1):
        assert trace.chains[chain] == tuple(s for s in steps if s.chain == chain)
    assert [item.draw for item in recorded if isinstance(item.draw, Step)] == list(trace.steps)
    assert trace.pool == tuple(collect(sample_iid(LM, RM, "x", n=10, seed=5)))
    assert (trace.header.run.reference, trace.header.run.lm, trace.header.run.rm) == (
        "a",
        LM.id,
        RM.id,
    )
    assert trace.end == ("finished", "")


async def test_a_run_that_fails_keeps_what_it_had_and_says_why() -> None:
    class FailsLater(TableReward):
        n = 0

        async def score(self, prompt, response):
            self.n += 1
            return float("nan") if self.n > 6 else await super().score(prompt, response)

    lines = []
    with pytest.raises(InvalidReward):
        async for item in record(LM, FailsLater(), RUN.with_changes(chains=1, pool=0)):
            lines.append(item.line)
    trace = parse_trace("".join(lines))
    assert trace.end is not None
    assert trace.end[0] == "failed"
    assert "one finite number was expected" in trace.end[1]
    assert [s.t for s in trace.steps] == list(range(6))


async def test_a_bad_setting_fails_before_any_step() -> None:
    recorded = []
    with pytest.raises(InvalidSetting):
        async for item in record(LM, RM, RUN.with_changes(beta=-1.0)):
            recorded.append(item)
    assert [item.draw for item in recorded] == [None, None]
    assert '"reason":"failed"' in recorded[-1].line


class CountedLM(ToyLM):
    """The toy, with a size: what is drawn is then priced in FLOPs."""

    n_parameters = 1000


TOY = Run(PROMPT, reference=ANSWER, steps=64, pool=4096, matched="pool")


def draw_comparison(**changes) -> Comparison:
    return Comparison(parse_trace(text_of(CountedLM(), ToyRM(), TOY.with_changes(**changes))))


def spent(trace: Trace) -> tuple[int, int]:
    """What chains and pool cost, summed again from every draw's own cost."""
    meter = trace.header.meter
    chain = sum((step.cost for step in trace.steps), Cost())
    pool = sum((sample.cost for sample in trace.pool), Cost())
    return meter.price(chain), meter.price(pool)


@pytest.mark.parametrize("chains", [1, 3])
@pytest.mark.parametrize("steps", [5, 16, 64, 200])
def test_at_equal_flops_chains_and_pool_differ_by_less_than_two_percent(steps, chains) -> None:
    for seed in range(3):
        comparison = draw_comparison(steps=steps, chains=chains, seed=seed)
        cut = full_cut(comparison)
        meter = comparison.header.meter
        chain = sum(meter.price(step.cost) for step in comparison.steps_to(cut.t))
        pool = sum(meter.price(sample.cost) for sample in comparison.pool[: cut.n])
        assert abs(chain - pool) <= TOLERANCE * chain
        assert min(c[-1].t for c in comparison.chains) >= steps


def test_without_a_match_the_run_has_what_it_asks_for() -> None:
    comparison = draw_comparison(steps=20, chains=2, pool=42, matched="none")
    assert len(comparison.pool) == len(comparison.trace.steps) == 42


def test_a_chain_that_is_matched_ends_with_the_step_that_costs_as_much_as_the_pool() -> None:
    for chains in (1, 3):
        trace = draw_comparison(pool=32, steps=10**4, chains=chains, matched="chain").trace
        assert len(trace.pool) == 32
        chain, pool = spent(trace)
        last = [steps[-1] for steps in trace.chains.values()]
        assert len({step.t for step in last}) == 1
        assert chain >= pool > chain - sum(trace.header.meter.price(s.cost) for s in last)


def test_a_chain_that_is_matched_never_has_more_than_its_steps() -> None:
    trace = draw_comparison(pool=64, steps=3, chains=2, matched="chain").trace
    assert [len(steps) for steps in trace.chains.values()] == [4, 4]
    assert trace.end == ("finished", "")


def test_a_longer_run_begins_with_the_shorter_one() -> None:
    short, long = draw_comparison(steps=10).trace, draw_comparison(steps=40).trace
    assert long.steps[:11] == short.steps[:11]
    shared = min(len(short.pool), len(long.pool))
    assert long.pool[:shared] == short.pool[:shared]


def test_the_cap_on_samples_ends_the_pool_and_not_the_chain() -> None:
    comparison = draw_comparison(pool=5)
    assert len(comparison.pool) == 5
    cut = full_cut(comparison)
    assert cut.n == 5
    assert cut.t < 64
    assert [step.t for step in comparison.trace.steps] == list(range(65))


async def test_a_comparison_stopped_anywhere_is_level_up_to_there() -> None:
    lm, rm = CountedLM(), ToyRM()
    lines = [item.line async for item in record(lm, rm, TOY)]
    for n in (3, 10, 31, 62):
        trace = parse_trace("".join(lines[: n + 1]))
        chain, pool = spent(trace)
        largest = max(trace.header.meter.price(s.cost) for s in (*trace.steps, *trace.pool))
        assert abs(chain - pool) <= largest


MATCHED = {
    "side by side": (RUN, 0),
    "one chain and its pool": (RUN.with_changes(chains=1, steps=9, pool=99, matched="pool"), 0),
    # the pool ends while the chains go on to be level with it
    "a pool that is full": (TOY.with_changes(steps=1, chains=4, seed=1, pool=10), 3),
    "chains and their pool": (RUN.with_changes(chains=3, steps=7, pool=99, matched="pool"), 0),
    "a pool and its chains": (RUN.with_changes(chains=3, steps=99, matched="chain"), 0),
}


@pytest.mark.parametrize("name", MATCHED)
def test_stopped_after_any_line_it_goes_on_to_the_same_run(name) -> None:
    """The lines of each chain and of the pool, to the byte; between chains the order is free."""
    run, least = MATCHED[name]
    lm, rm = (CountedLM(), ToyRM()) if run.prompt == PROMPT else (LM, RM)
    lines = [item.line for item in collect(record(lm, rm, run))]
    whole = parse_trace("".join(lines))
    assert max(step.t for step in whole.steps) >= least
    for n in range(1, len(lines) + 1):
        known = parse_trace("".join(lines[:n]))
        more = [item.line for item in collect(record(lm, rm, run, known=known))]
        again = parse_trace("".join([*lines[:n], *more]))
        assert (again.chains, again.pool, again.end) == (whole.chains, whole.pool, whole.end)
        assert spent(again) == spent(whole)
    assert not more


def test_a_run_whose_settings_were_others_goes_elsewhere() -> None:
    """The control: the comparison above can fail."""
    one, other = (
        parse_trace(text_of(LM, RM, RUN)),
        parse_trace(text_of(LM, RM, RUN.with_changes(seed=6))),
    )
    assert one.chains != other.chains
    assert one.pool != other.pool


def test_a_header_says_what_its_models_say_of_themselves() -> None:
    class Sized(ToyLM):
        n_parameters = 1000
        revision = "abc"
        notes = ("approximate",)

    header = make_header(Sized(max_new_tokens=64), ToyRM(), RUN)
    assert (header.lm_parameters, header.rm_parameters) == (1000, 0)
    assert (header.lm_revision, header.notes) == ("abc", ("approximate",))
    assert header.run.max_new_tokens == 64
    assert header.meter == meter_of(Sized(), ToyRM())
    assert header.prompt_tokens == len(Sized().encode("x"))
