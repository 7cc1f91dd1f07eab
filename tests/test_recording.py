"""A recorded run is the run itself, whatever ends it."""

from __future__ import annotations

import pytest
from finite import TableReward, letters

from qalign_core import collect, run_chains, sample_iid
from qalign_core.errors import InvalidReward, InvalidSetting
from qalign_core.runs.recording import record
from qalign_core.runs.trace import parse_trace

LM, RM = letters(), TableReward()
RUN = {"beta": 0.8, "steps": 12, "seed": 5, "n_chains": 2}


def test_the_lines_read_back_as_the_run() -> None:
    recorded = collect(
        record(LM, RM, "x", **RUN, n_base=10, reference="a", extractor="text", origin="recorded")
    )
    trace = parse_trace("".join(item.line for item in recorded))
    steps = collect(run_chains(LM, RM, "x", **RUN))
    for chain in (0, 1):
        assert trace.chain(chain).steps == tuple(s for s in steps if s.chain == chain)
    assert [item.step for item in recorded if item.step] == list(trace.steps)
    pool = collect(sample_iid(LM, RM, "x", n=10, seed=5))
    assert trace.base_rewards == tuple(sample.reward for sample in pool)
    assert (trace.header.reference, trace.header.origin) == ("a", "recorded")
    assert '"reason":"finished"' in recorded[-1].line


async def test_a_run_that_fails_keeps_what_it_had_and_says_why() -> None:
    class FailsLater(TableReward):
        n = 0

        async def score(self, prompt, response):
            self.n += 1
            return float("nan") if self.n > 6 else await super().score(prompt, response)

    lines = []
    with pytest.raises(InvalidReward):
        async for item in record(LM, FailsLater(), "x", beta=0.8, steps=12, seed=5):
            lines.append(item.line)
    assert '"reason":"failed"' in lines[-1]
    assert "one finite number was expected" in lines[-1]
    assert [s.t for s in parse_trace("".join(lines)).steps] == list(range(6))


async def test_a_bad_setting_fails_before_any_step() -> None:
    with pytest.raises(InvalidSetting):
        collect(record(LM, RM, "x", beta=-1.0, steps=3, seed=0))
