"""What was drawn, as pandas and ArviZ read it."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from arviz_stats import rhat
from test_report import record, results_of
from toys import PROMPT, ToyLM, ToyRM

from qalign_core import Trace, collect, run_chains, sample_iid
from qalign_core.errors import InvalidSetting
from qalign_study.export.dataframes import to_datatree, to_frame
from qalign_study.sheet.files import csv_of


@pytest.fixture(scope="module")
def trace() -> Trace:
    """Two chains of 40 steps, and eight samples."""
    steps = collect(run_chains(ToyLM(), ToyRM(), PROMPT, beta=1.0, steps=40, n_chains=2, seed=3))
    pool = collect(sample_iid(ToyLM(), ToyRM(), PROMPT, n=8, seed=3))
    return replace(Trace.collect(steps), pool=tuple(pool))


def test_a_frame_has_a_row_per_draw_with_its_numbers(trace: Trace) -> None:
    frame = to_frame(trace)
    assert len(frame) == len(trace.steps) + len(trace.pool)
    chains = frame[frame["source"] == "chain"]
    assert chains["reward"].tolist() == [state.reward for state in trace.states]
    steps = [step for chain in trace.chains.values() for step in chain]
    assert chains["proposed"].tolist() == [step.proposal.response.text for step in steps]
    assert chains["accepted"].tolist() == [step.accepted for step in steps]
    assert frame[frame["source"] == "pool"]["t"].tolist() == list(range(8))
    assert to_frame(steps).equals(chains)
    assert to_frame(trace.pool)["reward"].tolist() == list(trace.rewards)
    assert list(to_frame([])) == list(frame), "nothing drawn has the same columns"


def test_results_are_a_frame_of_every_draw_of_every_problem() -> None:
    results = results_of(record("a", 0), record("b", 1, n_chains=2))
    frame = results.to_frame()
    assert frame.groupby(["problem", "source"]).size().to_dict() == {
        ("a", "chain"): 8, ("a", "pool"): 8, ("b", "chain"): 16, ("b", "pool"): 8,
    }  # fmt: skip
    for each in results.records:
        mine = frame[frame["problem"] == each.id]
        pool = mine[mine["source"] == "pool"]
        assert pool["reward"].tolist() == each.pool_reward.tolist()
        assert pool["right"].tolist() == each.is_right(each.pool_answer).tolist()
        states = mine[mine["source"] == "chain"]
        assert states["right"].tolist() == each.is_right(each.chain_answer[each.state_of]).tolist()
        assert set(states["chain"]) == set(range(each.n_chains))


def test_arviz_reads_the_chains_and_finds_the_r_hat_of_the_same_array(trace: Trace) -> None:
    tree = to_datatree(trace)
    assert tree["posterior"]["reward"].dims == ("chain", "draw")
    values = np.array([[step.state.reward for step in c] for c in trace.chains.values()])
    np.testing.assert_array_equal(tree["posterior"]["reward"].values, values)
    stats = tree["sample_stats"]
    alphas = [
        [math.exp(step.log_alpha) if step.t else math.nan for step in c]
        for c in trace.chains.values()
    ]
    np.testing.assert_allclose(stats["acceptance_rate"].values, alphas)
    r_hats = rhat(tree)
    assert float(r_hats["reward"]) == pytest.approx(float(rhat(values)))
    shorter = [step for step in trace.steps if step.chain == 0 or step.t < 10]
    assert to_datatree(shorter)["posterior"].sizes["draw"] == 10, "cut at the shortest chain"
    with pytest.raises(InvalidSetting, match="needs the steps of a chain"):
        to_datatree([])


def test_a_csv_reads_back_as_the_same_numbers_and_no_text_is_a_formula() -> None:
    frame = pd.DataFrame({"x": [0.1, -1 / 3], "said": ["=1+1", "-2.5"]})
    again = pd.read_csv(io.StringIO(csv_of(frame)))
    assert again["x"].tolist() == frame["x"].tolist()
    assert again["said"].tolist() == ["'=1+1", "-2.5"]
    assert "=1+1" in frame["said"].tolist(), "the frame itself is as it was"
