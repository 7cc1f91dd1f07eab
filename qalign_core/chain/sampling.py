"""Draw, check and score responses of the base LM."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from qalign_core.chain.checks import check_response, check_reward
from qalign_core.chain.cost import draw_cost, reading_of
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.types import Cost, Response, ScoredResponse


async def draw_suffix(
    lm: LanguageModel,
    prompt_ids: Sequence[int],
    prefix: Sequence[int],
    *,
    seed: int,
    log_probs: Sequence[float] = (),
    until: frozenset[int] = frozenset(),
) -> Response:
    """Draw the rest of a response after `prefix` (Eq. 4), to its end or an id of `until`.

    Args:
        lm: language model, as sampled.
        prompt_ids: token ids of the prompt.
        prefix: the ids that are kept.
        seed: of this draw.
        log_probs: of the prefix, as they were returned when it was drawn.
        until: ids that end the draw.

    Returns:
        the whole response, checked.

    Raises:
        ModelContractError: the LM broke its contract.
    """
    options: dict[str, Any] = {"until": until} if until else {}
    response = await lm.extend(prompt_ids, prefix, seed=seed, **options)
    check_response(response, prefix, lm, until)
    n_new = len(response) - len(prefix)
    if len(response.log_probs) == n_new:
        response = replace(response, log_probs=(*log_probs, *response.log_probs))
    return response


async def score(
    rm: RewardModel,
    prompt: str,
    prompt_ids: Sequence[int],
    response: Response,
    *,
    kept: int = 0,
    cost: Cost | None = None,
) -> ScoredResponse:
    """Score the whole response.

    `kept` and `cost` affect only the cost that is recorded: a reward model need not read the first
    `kept` ids again, and `cost` is that of the LM, by default the ids after the first `kept`.

    Raises:
        InvalidReward: the RM did not return one finite number.
    """
    reward = check_reward(await rm.score(prompt, response), response, rm)
    full = draw_cost(len(prompt_ids), kept, len(response), reading_of(rm))
    return ScoredResponse(response, reward, replace(cost or full, scored=full.scored))


async def draw(
    lm: LanguageModel, rm: RewardModel, prompt: str, prompt_ids: Sequence[int], *, seed: int
) -> ScoredResponse:
    """Draw an independent response, check it and score it.

    Raises:
        ModelContractError: the LM broke its contract.
        InvalidReward: the RM did not return one finite number.
    """
    response = await draw_suffix(lm, prompt_ids, (), seed=seed)
    return await score(rm, prompt, prompt_ids, response)
