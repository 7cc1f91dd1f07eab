"""Several draws at once: chains side by side, and independent samples for BoN, MV and WMV."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from qalign_core.chain.chain import run_chain
from qalign_core.chain.checks import check_models, check_seed
from qalign_core.chain.merging import end, merge
from qalign_core.chain.randomness import derive_seed
from qalign_core.chain.sampling import draw
from qalign_core.messages import encode_prompt
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.types import ScoredResponse, Step
from qalign_core.validation import check_count


async def run_chains(
    lm: LanguageModel, rm: RewardModel, prompt: str, *, n_chains: int, **settings: Any
) -> AsyncIterator[Step]:
    """Run `n_chains` independent chains side by side; yield the steps of all as they happen.

    Chain k is `run_chain(..., chain=k, **settings)`, whatever `n_chains` is. Steps of different
    chains are yielded in order of arrival, steps of one chain in order of t. No chain runs more
    than a few steps ahead of the consumer.

    Raises:
        InvalidSetting, InvalidPrompt, ModelContractError, InvalidReward: from any chain; the
            other chains are then canceled.
    """
    check_count("n_chains", n_chains, 1)
    chains = (run_chain(lm, rm, prompt, chain=chain, **settings) for chain in range(n_chains))
    async with aclosing(merge(*chains)) as steps:  # type: ignore[type-var]
        async for latest in steps:
            yield latest


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
    check_seed(seed)
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
