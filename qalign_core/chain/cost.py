"""The cost of a run, in tokens and FLOPs, so that methods are compared at equal compute.

The count is canonical: a function of the run alone, never of what a cache holds, who else is there
or what ran before (docs/method.md, "Compute").

- The prompt is processed once a run by each model.
- An independent sample: its `|y|` ids by the LM; by the RM `|y|` ids if it can read on from a kept
  prefix, else prompt and response whole.
- A proposal at index `i`: its `|y'| - i` new ids by the LM (the kept prefix is the chain's own
  state); by the RM the same, or all of it if it cannot read on.
- A block: its new ids and the tail that is read again by the LM; by the RM the ids from the cut on.
  Where a move refuses, the ids drawn in vain by the LM.
- What a shared cache saved does not count.

One forward pass costs about two floating point operations per parameter and token (one
multiplication, one addition): FLOPs ~ 2 * parameters * tokens, for each of the two models (paper,
appendix on cost). Attention's own term, which grows with the length, is left out on both sides.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence

from qalign_core.errors import InvalidSetting
from qalign_core.types import Cost, CostModel

Reading = Callable[[int, int], int]
"""Tokens that an RM processes of a conversation: of (how many it has read before, all of them)."""


def reads_on(known: int, total: int) -> int:
    """Tokens of an RM that goes on reading where it was: the new ones."""
    return total - known


def reads_all(known: int, total: int) -> int:
    """Tokens of an RM that reads every conversation from its beginning."""
    return total


def reads_nothing(known: int, total: int) -> int:
    """Tokens of a reward that is no network."""
    return 0


def reading_of(rm: object) -> Reading:
    """How an RM reads: its own `n_read`, or everything if it does not say."""
    reading: Reading = getattr(rm, "n_read", reads_all)
    return reading


def draw_cost(n_prompt: int, index: int, length: int, reading: Reading) -> Cost:
    """The cost of a response of `length` ids whose first `index` ids were there already."""
    return Cost(length - index, reading(n_prompt + index, n_prompt + length))


def prompt_scored(n_prompt: int, reading: Reading) -> int:
    """Tokens of the prompt that the RM reads once a run: what having read them before saves."""
    return reading(0, n_prompt + 1) - reading(n_prompt, n_prompt + 1)


def parameters_of(model: object) -> int:
    """Read the model's `n_parameters`; 0 for a model that has none (a rule, a finite table)."""
    return int(getattr(model, "n_parameters", 0) or 0)


def meter_of(lm: object, rm: object) -> CostModel:
    """What prices a draw of two models."""
    return CostModel(parameters_of(lm), parameters_of(rm))


def n_at_budget(spent: Sequence[float], budget: float) -> int:
    """How many of the first draws cost nearest to `budget`, at least one.

    Args:
        spent: running price after each draw, ascending.
        budget: in the same unit.

    The nearest, not the last that fits: the miss is then half a draw at most, on either side.
    """
    if not spent:
        raise InvalidSetting("no draws to compare at equal compute; draw at least one sample")
    after = min(bisect_left(spent, budget), len(spent) - 1)
    before = max(after - 1, 0)
    return (before if budget - spent[before] < spent[after] - budget else after) + 1
