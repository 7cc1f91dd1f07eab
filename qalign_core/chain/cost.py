"""The cost of a run in tokens and FLOPs, so that methods are compared at equal compute.

The count is a function of the run alone. It does not depend on caches, other users or earlier runs
(docs/method.md, "Compute").

    >>> draw_cost(n_prompt=30, index=4, length=20, reading=reads_on)
    Cost(generated=16, scored=16, read=0)
    >>> draw_cost(n_prompt=30, index=4, length=20, reading=reads_all)
    Cost(generated=16, scored=50, read=0)

- Each model processes the prompt once per run.
- An independent sample costs the LM `|y|` ids. It costs the RM `|y|` ids if the RM can continue
  from a kept prefix, else the whole prompt and response.
- A proposal at index `i` costs the LM its `|y'| - i` new ids (the kept prefix is the chain's own
  state), and the RM the same, or everything if the RM cannot continue from a prefix.
- A block costs the LM its new ids and the tail that the LM reads again, and the RM the ids from the
  cut on. A move that makes no proposal costs the LM the ids that it drew.
- Savings by a shared cache do not count.

One forward pass costs about two floating point operations per parameter and token (one
multiplication, one addition): FLOPs ~ 2 * parameters * tokens, for each of the two models (paper,
appendix on cost). The attention term, which grows with the length, is omitted for both.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from qalign_core.errors import InvalidSetting
from qalign_core.types import Cost

Reading = Callable[[int, int], int]
"""Tokens that an RM processes, as a function of (tokens read before, tokens in total)."""


@dataclass(frozen=True, slots=True)
class CostModel:
    """Converts costs to one unit: FLOPs, or the LM's tokens if its size is unknown.

    Attributes:
        lm_parameters, rm_parameters: sizes of the models; 0 if unknown or none.
    """

    lm_parameters: int = 0
    rm_parameters: int = 0

    @property
    def unit(self) -> str:
        """The unit of `price`."""
        return "FLOPs" if self.lm_parameters else "tokens processed"

    def price(self, cost: Cost) -> int:
        """Return FLOPs ~ 2 * parameters * tokens, summed over the LM and the RM; additive."""
        if not self.lm_parameters:
            return cost.processed
        return 2 * (self.lm_parameters * cost.processed + self.rm_parameters * cost.scored)

    @property
    def without_reward(self) -> "CostModel":
        """The cost model of a rule that reads no reward: the reward model is not charged."""
        return CostModel(self.lm_parameters)

    def prompt_price(self, n_read: int, n_scored: int) -> int:
        """Return the price of reading the prompt, which a run pays once."""
        return self.price(Cost(n_read, n_scored)) if self.lm_parameters else 0


def reads_on(known: int, total: int) -> int:
    """Count the tokens of an RM that continues from a kept prefix: the new tokens."""
    return total - known


def reads_all(known: int, total: int) -> int:
    """Count the tokens of an RM that reads every conversation from its beginning."""
    return total


def reads_nothing(known: int, total: int) -> int:
    """Count the tokens of a reward that is not a network: none."""
    return 0


def reading_of(rm: object) -> Reading:
    """Return an RM's `n_read`, or `reads_all` if it has none."""
    reading: Reading = getattr(rm, "n_read", reads_all)
    return reading


def draw_cost(n_prompt: int, index: int, length: int, reading: Reading) -> Cost:
    """Return the cost of a response of `length` ids whose first `index` ids were kept."""
    return Cost(length - index, reading(n_prompt + index, n_prompt + length))


def prompt_scored(n_prompt: int, reading: Reading) -> int:
    """Return the tokens of the prompt that the RM reads once per run."""
    return reading(0, n_prompt + 1) - reading(n_prompt, n_prompt + 1)


def parameters_of(model: object) -> int:
    """Return the model's `n_parameters`; 0 for a model without parameters."""
    return int(getattr(model, "n_parameters", 0) or 0)


def meter_of(lm: object, rm: object) -> CostModel:
    """Return the cost model of a language model and a reward model."""
    return CostModel(parameters_of(lm), parameters_of(rm))


def n_at_budget(spent: Sequence[float], budget: float) -> int:
    """Return how many of the first draws have the cost nearest to `budget`, at least one.

    Args:
        spent: running price after each draw, ascending.
        budget: in the same unit.

    The nearest count, rather than the largest within the budget, misses by at most half a draw.
    """
    if not spent:
        raise InvalidSetting("no draws to compare at equal compute; draw at least one sample")
    after = min(bisect_left(spent, budget), len(spent) - 1)
    before = max(after - 1, 0)
    return (before if budget - spent[before] < spent[after] - budget else after) + 1
