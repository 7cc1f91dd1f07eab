"""Costs are facts of the run: what is counted, and how a budget is met."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toys import PROMPT, ToyLM, ToyRM

from qalign_core import collect, run_chain, sample_iid
from qalign_core.chain.cost import (
    CostModel,
    draw_cost,
    meter_of,
    n_at_budget,
    parameters_of,
    prompt_scored,
    reading_of,
    reads_all,
    reads_nothing,
    reads_on,
)
from qalign_core.errors import InvalidSetting
from qalign_core.rewards.functions import CompositeReward, FunctionReward
from qalign_core.types import Cost


def test_a_proposal_costs_its_new_ids_and_what_the_reward_model_has_to_read():
    assert draw_cost(7, 3, 10, reads_on) == Cost(7, 7)
    assert draw_cost(7, 3, 10, reads_all) == Cost(7, 17)
    assert draw_cost(7, 3, 10, reads_nothing) == Cost(7, 0)


def test_the_prompt_is_scored_once_only_by_a_model_that_reads_on():
    assert prompt_scored(7, reads_on) == 7
    assert prompt_scored(7, reads_all) == 0  # it is in each of its readings
    assert prompt_scored(7, reads_nothing) == 0


def test_a_reward_model_that_does_not_say_reads_everything():
    assert reading_of(object()) is reads_all
    assert reading_of(FunctionReward(lambda prompt, text: 0.0))(3, 9) == 0


def test_the_reading_of_a_sum_times_its_parameters_is_that_of_its_parts():
    class Part:
        def __init__(self, n_parameters, n_read):
            self.id, self.n_parameters, self.n_read = "part", n_parameters, n_read

    both = CompositeReward([(Part(3000, reads_on), 0.5), (Part(1000, reads_all), 0.5)])
    assert both.n_parameters * both.n_read(60, 100) == 3000 * 40 + 1000 * 100


def test_flops_are_two_per_parameter_and_token():
    assert CostModel(1000, 50).price(Cost(10, 4)) == 2 * (10 * 1000 + 4 * 50)
    assert CostModel(1000, 50).prompt_price(7, 3) == 2 * (7 * 1000 + 3 * 50)


def test_without_a_size_generated_tokens_are_the_price_and_the_prompt_has_none():
    assert CostModel().unit == "tokens processed"
    assert CostModel().price(Cost(10, 4)) == 10
    assert CostModel().prompt_price(7, 3) == 0


def test_prices_add_up():
    costs = [Cost(1, 2), Cost(2, 7), Cost(0, 1)]
    meter = CostModel(10, 3)
    assert meter.price(sum(costs, Cost())) == sum(map(meter.price, costs))
    assert Cost(1, 3) + costs[1] == sum(costs, Cost())


def test_a_rule_has_no_parameters():
    assert parameters_of(object()) == 0
    assert meter_of(object(), object()) == CostModel()


async def test_steps_and_samples_are_billed_by_the_run_alone():
    lm, rm = ToyLM(), ToyRM()
    prompt = len(lm.encode(PROMPT))
    steps = [s async for s in run_chain(lm, rm, PROMPT, beta=0.5, steps=40, seed=3)]
    for step in steps:
        length = len(step.proposal.response)
        assert step.cost == draw_cost(prompt, step.index, length, reading_of(rm))
    pool = [s async for s in sample_iid(lm, rm, PROMPT, n=20, seed=3)]
    assert [s.cost.generated for s in pool] == [len(s.response) for s in pool]


def test_a_chain_of_t_steps_generates_about_half_of_what_as_many_samples_do():
    lm, rm = ToyLM(), ToyRM()
    steps = collect(run_chain(lm, rm, PROMPT, beta=1.0, steps=400, seed=1))
    pool = collect(sample_iid(lm, rm, PROMPT, n=400, seed=1))
    share = sum(s.cost.generated for s in steps) / sum(s.cost.generated for s in pool)
    assert 0.4 < share < 0.65


@given(st.lists(st.integers(1, 100), min_size=1, max_size=50), st.floats(0, 6000))
def test_no_other_number_of_draws_is_nearer_to_the_budget(prices, budget):
    spent = [sum(prices[: k + 1]) for k in range(len(prices))]
    n = n_at_budget(spent, budget)
    assert abs(spent[n - 1] - budget) == min(abs(s - budget) for s in spent)


def test_no_draws_are_refused_in_one_sentence():
    with pytest.raises(InvalidSetting, match="at least one sample"):
        n_at_budget([], 1.0)
