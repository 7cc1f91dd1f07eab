"""Draw, check and score responses of the base LM; independent samples for BoN, MV and WMV."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from inspect import iscoroutinefunction, isfunction
from typing import Any

from qalign_core.chain.cost import draw_cost, reading_of
from qalign_core.chain.merging import end
from qalign_core.chain.randomness import derive_seed
from qalign_core.errors import InvalidPrompt, InvalidReward, ModelContractError
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.types import Cost, Response, ScoredResponse
from qalign_core.validation import HUGE, check_count, short_repr


def check_models(lm: LanguageModel, rm: RewardModel) -> None:
    """Raise unless both models have the interface that the chain needs, before anything is drawn.

    Raises:
        ModelContractError: an attribute is missing, or is not a coroutine function.
    """
    of_lm = ("id", "max_new_tokens", "encode", "extend")
    for model, what, names in ((lm, "language", of_lm), (rm, "reward", ("id", "score"))):
        kind = model if isinstance(model, type) else type(model)
        if isinstance(model, type):
            raise ModelContractError(f"the {what} model is the class {kind.__name__}; make one")
        if isinstance(model, str):
            raise ModelContractError(
                f"the {what} model is the text {short_repr(model)}; load_{what}_model loads one"
            )
        if isfunction(model) and what == "reward":
            raise ModelContractError("the reward model is a function; wrap it in FunctionReward")
        if lacks := next((name for name in names if not hasattr(model, name)), ""):
            raise ModelContractError(
                f"the {what} model {kind.__name__} has no {lacks}; it needs {', '.join(names)}"
            )
        if not iscoroutinefunction(getattr(model, names[-1])):
            raise ModelContractError(
                f"{names[-1]} of the {what} model {kind.__name__} is a plain function, a coroutine "
                f"was expected; write `async def {names[-1]}`"
            )
    if iscoroutinefunction(lm.encode):
        raise ModelContractError(f"encode of {lm.id} is a coroutine; write `def encode`")
    if not isinstance(lm.max_new_tokens, int):
        raise ModelContractError(
            f"max_new_tokens of {lm.id} is {short_repr(lm.max_new_tokens)}; a whole number "
            "was expected"
        )


def encode_prompt(lm: LanguageModel, prompt: str) -> tuple[int, ...]:
    """Encode the prompt as token ids.

    Raises:
        InvalidPrompt: the prompt is empty, or longer than the model's context.
    """
    if not isinstance(prompt, str) or not prompt.strip():
        raise InvalidPrompt("the prompt is empty; write a question or choose a problem")
    return tuple(lm.encode(prompt))


def check_response(
    response: Response,
    prefix: Sequence[int],
    lm: LanguageModel,
    until: frozenset[int] = frozenset(),
) -> Response:
    """Return the response if it keeps the contract that detailed balance requires.

    It must keep the prefix, add at least one id, and stay within the limit `L`, which is the same
    for every index. It may be shorter than `L` only if it ended with an EOS (docs/method.md,
    "Objects") or with an id of `until`, which may occur nowhere else after the prefix.

    Raises:
        ModelContractError: it breaks a rule, which the message names.
    """
    if not isinstance(response, Response):
        raise ModelContractError(
            f"{lm.id} returned {short_repr(response)} from extend; a Response was expected"
        )
    n_kept, n, limit = len(prefix), len(response.tokens), lm.max_new_tokens
    if tuple(response.tokens[:n_kept]) != tuple(prefix):
        raise ModelContractError(
            f"{lm.id} changed the kept prefix: the first {n_kept} tokens came back different; "
            "a model must continue from the ids that it was given"
        )
    if n <= n_kept:
        raise ModelContractError(
            f"{lm.id} returned {n} tokens for a prefix of {n_kept}; at least one new token "
            "(the EOS, if nothing else) was expected"
        )
    check_lengths(response, n_kept, lm)
    if n > limit:
        raise ModelContractError(
            f"{lm.id} returned {n} tokens, more than its limit of {limit}; prefix and new tokens "
            "together must stay within max_new_tokens"
        )
    stops = [token in until for token in response.tokens[n_kept:]]
    if any(stops[:-1]):
        raise ModelContractError(
            f"{lm.id} continued after a delimiter; it must stop at the first stop id"
        )
    if not response.finished and n < limit and not stops[-1]:
        raise ModelContractError(
            f"{lm.id} stopped after {n} tokens without an EOS and below its limit of {limit}; "
            "the chain cannot use a response that was cut short elsewhere"
        )
    return response


def check_lengths(response: Response, n_kept: int, lm: LanguageModel) -> None:
    """Raise if the number of pieces or log-probabilities differs from the number of tokens.

    Raises:
        ModelContractError: there are neither none nor one per token (log-probabilities: or one per
            new token).
    """
    n = len(response)
    for name, count, allowed in (
        ("pieces", len(response.pieces), (0, n)),
        ("log_probs", len(response.log_probs), (0, n, n - n_kept)),
    ):
        if count not in allowed:
            raise ModelContractError(
                f"{lm.id} returned {count} {name} for {n} tokens; return one per token, or none"
            )


def check_reward(reward: float, response: Response, rm: RewardModel) -> float:
    """Return the reward if it is one finite number.

    Raises:
        InvalidReward: it is not one finite number; the message quotes the response.
    """
    try:
        finite = abs(float(reward)) <= HUGE  # the range of numbers in a trace
    except (TypeError, ValueError, OverflowError):
        finite = False
    if not finite:
        raise InvalidReward(
            f"{rm.id} gave {short_repr(reward)} for the response {short_repr(response.text, 80)}; "
            "one finite number was expected"
        )
    return float(reward)


async def extend(
    lm: LanguageModel,
    prompt_ids: Sequence[int],
    prefix: Sequence[int],
    *,
    seed: int,
    log_probs: Sequence[float] = (),
    until: frozenset[int] = frozenset(),
) -> Response:
    """Draw the rest of a response after `prefix` (Eq. 4), or up to an id, and check it.

    `log_probs` are the log-probabilities of the prefix, returned when it was drawn.

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
    lm_cost: Cost | None = None,
) -> ScoredResponse:
    """Score a response whose first `kept` ids the RM has already read.

    `lm_cost` is the cost of the response to the LM, by default that of the ids after the first
    `kept`.

    Raises:
        InvalidReward: the RM did not return one finite number.
    """
    reward = check_reward(await rm.score(prompt, response), response, rm)
    cost = draw_cost(len(prompt_ids), kept, len(response), reading_of(rm))
    if lm_cost is not None:
        cost = replace(lm_cost, scored=cost.scored)
    return ScoredResponse(response, float(reward), cost)


async def draw(
    lm: LanguageModel, rm: RewardModel, prompt: str, prompt_ids: Sequence[int], *, seed: int
) -> ScoredResponse:
    """Draw an independent response, check it and score it.

    Raises:
        ModelContractError: the LM broke its contract.
        InvalidReward: the RM did not return one finite number.
    """
    response = await extend(lm, prompt_ids, (), seed=seed)
    return await score(rm, prompt, prompt_ids, response)


async def sample_iid(
    lm: LanguageModel,
    rm: RewardModel,
    prompt: str,
    *,
    n: int,
    seed: int,
    concurrency: int = 16,
    first: int = 0,
) -> AsyncIterator[ScoredResponse]:
    """Yield `n` independent, scored samples of the base LM, in order of their number.

    Sample k depends on `seed` and k alone, so a longer pool begins with the shorter one.

    Args:
        lm: language model, as sampled.
        rm: reward model.
        prompt: the user's text.
        n: number of samples, >= 0.
        seed: seed of the addressed randomness.
        concurrency: how many samples are drawn at once, >= 1.
        first: number of the first sample to yield; earlier samples are not drawn.

    Raises:
        InvalidSetting, InvalidPrompt, ModelContractError, InvalidReward.
    """
    check_count("n", n, 0)
    check_count("first", first, 0)
    check_count("concurrency", concurrency, 1)
    check_models(lm, rm)
    prompt_ids = encode_prompt(lm, prompt)
    pending: deque[asyncio.Task[ScoredResponse]] = deque()
    started = first
    try:
        while started < n or pending:
            while started < n and len(pending) < concurrency:
                seed_k = derive_seed(seed, started, 0, "sample")
                call = draw(lm, rm, prompt, prompt_ids, seed=seed_k)
                pending.append(asyncio.ensure_future(call))
                started += 1
            yield await pending[0]
            pending.popleft()
    finally:
        await end(pending)
