"""The Markov chain of the paper (§MCMC for Text Generation): async generators of `Step`.

The chain targets `pi(y|x) ∝ p_LM(y|x) exp(r(x,y)/beta)` (Eq. modifiedgibbs) and never knows how
generation is batched: it awaits a proposal and a reward, and decides.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator

from qalign_core.chain.kernel import accepts, check_beta, draw_index, log_acceptance, log_uniform
from qalign_core.chain.merging import merge
from qalign_core.chain.randomness import derive_seed, uniform
from qalign_core.chain.sampling import check_count, draw, encode_prompt, gather
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.types import Cost, ScoredResponse, Step


async def run_chain(
    lm: LanguageModel,
    rm: RewardModel,
    prompt: str,
    *,
    beta: float,
    steps: int,
    seed: int,
    chain: int = 0,
    start: Step | None = None,
    lookahead: int = 1,
) -> AsyncIterator[Step]:
    """Run one Metropolis-Hastings chain and yield its steps, t = 0..steps, as they happen.

    Args:
        lm: language model, as sampled.
        rm: reward model.
        prompt: the user's text.
        beta: temperature of the target, in raw RM units; > 0, smaller is greedier.
        steps: number T of proposals, >= 0.
        seed: address of the randomness.
        chain: number of this chain; chains with different numbers are independent.
        start: the last step of an earlier, interrupted run with the same settings; the steps after
            it are yielded, and they are the ones that the uninterrupted run would have had.
        lookahead: how many proposals are drawn at once from the same state. They are examined in
            order; the first accepted one moves the chain and the rest are discarded, their cost
            counted on that step. The trajectory is the same for every value.

    Yields:
        Step: frozen; the proposal is kept even if it was rejected.

    Raises:
        InvalidSetting, InvalidPrompt, ModelContractError, InvalidReward.
    """
    beta = check_beta(beta)
    check_count("steps", steps, 0)
    check_count("lookahead", lookahead, 1)
    prompt_ids = encode_prompt(lm, prompt)

    async def propose(t: int, state: ScoredResponse) -> tuple[int, ScoredResponse]:
        index = draw_index(len(state.response), uniform(seed, chain, t, "index"))
        prefix = state.response.tokens[:index]
        seed_t = derive_seed(seed, chain, t, "suffix")
        return index, await draw(lm, rm, prompt, prompt_ids, prefix, seed=seed_t)

    if start is None:
        seed_0 = derive_seed(seed, chain, 0, "suffix")
        state = await draw(lm, rm, prompt, prompt_ids, (), seed=seed_0)
        yield Step(chain, 0, 0, state, state, 0.0, -math.inf, True, state.cost)
        t = 0
    else:
        state, t = start.state, start.t

    while t < steps:
        ahead = range(t + 1, min(t + lookahead, steps) + 1)
        proposals = await gather(*(propose(s, state) for s in ahead))
        discarded = sum((proposal.cost for _, proposal in proposals), Cost())
        for index, proposal in proposals:
            t += 1
            discarded = discarded - proposal.cost
            log_alpha = log_acceptance(
                reward_new=proposal.reward,
                reward_old=state.reward,
                len_new=len(proposal.response),
                len_old=len(state.response),
                beta=beta,
            )
            log_u = log_uniform(uniform(seed, chain, t, "accept"))
            accepted = accepts(log_alpha, log_u)
            cost = proposal.cost + discarded if accepted else proposal.cost
            step = Step(chain, t, index, state, proposal, log_alpha, log_u, accepted, cost)
            state = step.state
            yield step
            if accepted:
                break


async def run_chains(
    lm: LanguageModel,
    rm: RewardModel,
    prompt: str,
    *,
    n_chains: int,
    beta: float,
    steps: int,
    seed: int,
    lookahead: int = 1,
) -> AsyncIterator[Step]:
    """Run `n_chains` independent chains side by side; yield the steps of all as they happen.

    Chain k is `run_chain(..., chain=k)`, whatever `n_chains` is. The order between chains is that
    of arrival; within a chain it is t. No chain runs more than a few steps ahead of the reader.

    Raises:
        InvalidSetting, InvalidPrompt, ModelContractError, InvalidReward: from any chain; the
            other chains are then ended.
    """
    check_count("n_chains", n_chains, 1)
    chains = (
        run_chain(
            lm, rm, prompt, beta=beta, steps=steps, seed=seed, chain=chain, lookahead=lookahead
        )
        for chain in range(n_chains)
    )
    async for step in merge(*chains):
        yield step
