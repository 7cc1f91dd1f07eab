"""Tokens and FLOPs, counted, LM and RM apart, so that methods are compared at equal compute.

One forward pass costs about two floating point operations per parameter and token position
(one multiplication, one addition): FLOPs ~ 2 * parameters * positions processed, for each of the
two models (paper, appendix on cost). Positions whose keys and values came from a cache are not
processed again and cost nothing here. Attention's own term, which grows with the length, is left
out on both sides.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from qalign_core.errors import InvalidSetting
from qalign_core.types import Cost, Response, Work


def draw_cost(
    prompt_ids: Sequence[int], prefix_len: int, response: Response, reward: float
) -> Cost:
    """Count what drawing and scoring one response took: `|y| - prefix_len` new tokens and passes.

    A model that does not count its own work is charged one pass over prompt and response, with
    nothing reused.
    """
    everything = Work(len(prompt_ids) + len(response))
    lm = response.work or everything
    rm = getattr(reward, "work", None) or everything
    return Cost(
        generated=len(response) - prefix_len,
        lm_processed=lm.processed,
        lm_reused=lm.reused,
        rm_processed=rm.processed,
        rm_reused=rm.reused,
    )


def flops(cost: Cost, lm_parameters: int, rm_parameters: int) -> int:
    """FLOPs ~ 2 * parameters * positions processed, summed over the LM and the RM."""
    return 2 * (lm_parameters * cost.lm_processed + rm_parameters * cost.rm_processed)


def parameters_of(model: object) -> int:
    """Read the model's `n_parameters`; 0 for a model that has none (a rule, a finite table)."""
    return int(getattr(model, "n_parameters", 0) or 0)


def running_flops(costs: Iterable[Cost], lm_parameters: int, rm_parameters: int) -> list[int]:
    """FLOPs spent after the first, the second, ... of the draws, shape [len(costs)]."""
    return list(accumulate(flops(cost, lm_parameters, rm_parameters) for cost in costs))


def n_at_budget(spent: Sequence[float], budget: float) -> int:
    """How many of the first draws cost nearest to `budget`, at least one.

    Args:
        spent: running FLOPs (or tokens) after each draw, ascending.
        budget: in the same unit.

    The nearest, not the last that fits: the miss is then half a draw at most, on either side.
    """
    if not spent:
        raise InvalidSetting("no draws to compare at equal compute; draw at least one sample")
    after = min(bisect_left(spent, budget), len(spent) - 1)
    before = max(after - 1, 0)
    return (before if budget - spent[before] < spent[after] - budget else after) + 1


def n_to_draw(budget: float, spent: float, n_drawn: int) -> int:
    """How many more draws reach the budget, at the mean price of the `n_drawn` made so far."""
    if n_drawn < 1 or spent <= 0:
        raise InvalidSetting(
            f"a price needs at least one draw that cost something, got {n_drawn} draws for "
            f"{spent:g}; draw one sample first"
        )
    return max(0, round((budget - spent) * n_drawn / spent))
