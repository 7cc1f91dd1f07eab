import pytest
from hypothesis import given
from hypothesis import strategies as st

from qalign_core.chain.cost import (
    draw_cost,
    flops,
    n_at_budget,
    n_to_draw,
    parameters_of,
    running_flops,
)
from qalign_core.errors import InvalidSetting
from qalign_core.types import Cost, Response, Reward, Work


def test_a_model_that_counts_nothing_is_charged_one_pass_over_prompt_and_response():
    response = Response((5, 6, 7, 8), "abcd", True)
    assert draw_cost((1, 2, 3), 1, response, 0.5) == Cost(3, 7, 0, 7, 0)


def test_counted_work_replaces_the_estimate_for_each_model_apart():
    response = Response((5, 6, 7, 8), "abcd", True, work=Work(3, 4))
    assert draw_cost((1, 2, 3), 1, response, 0.5) == Cost(3, 3, 4, 7, 0)
    assert draw_cost((1, 2, 3), 1, response, Reward(0.5, Work(2, 5))) == Cost(3, 3, 4, 2, 5)


def test_a_model_that_did_no_work_at_all_is_charged_nothing():
    response = Response((5,), "a", False, work=Work(0, 1))
    assert draw_cost((1,), 0, response, Reward(0.0, Work(0))) == Cost(1, 0, 1, 0, 0)


def test_flops_are_two_per_parameter_and_processed_position_and_reuse_is_free():
    assert flops(Cost(3, 10, 99, 4, 99), 1000, 50) == 2 * (10 * 1000 + 4 * 50)


def test_flops_of_a_sum_are_the_sum_of_flops():
    costs = [Cost(1, 2, 3, 4, 5), Cost(2, 7, 1, 8, 2), Cost(0, 1, 1, 1, 1)]
    assert running_flops(costs, 10, 3)[-1] == flops(sum(costs, Cost()), 10, 3)


def test_a_rule_has_no_parameters():
    assert parameters_of(object()) == 0


@given(st.lists(st.integers(1, 100), min_size=1, max_size=50), st.floats(0, 6000))
def test_no_other_number_of_draws_is_nearer_to_the_budget(prices, budget):
    spent = running_flops([Cost(lm_processed=p) for p in prices], 1, 0)
    n = n_at_budget(spent, budget)
    assert abs(spent[n - 1] - budget) == min(abs(s - budget) for s in spent)


def test_no_draws_are_refused_in_one_sentence():
    with pytest.raises(InvalidSetting, match="at least one sample"):
        n_at_budget([], 1.0)


def test_the_remaining_draws_follow_from_the_mean_price():
    assert n_to_draw(budget=100, spent=20, n_drawn=4) == 16
    assert n_to_draw(budget=10, spent=20, n_drawn=4) == 0
    with pytest.raises(InvalidSetting):
        n_to_draw(budget=10, spent=0, n_drawn=0)
