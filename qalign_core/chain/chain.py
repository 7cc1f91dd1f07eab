"""The Markov chain of the paper (§MCMC for Text Generation): a step, and the loop over it.

The chain targets `pi(y|x) ∝ p_LM(y|x)^alpha exp(r(x,y)/beta)` (Eq. modifiedgibbs, whose alpha is 1)
and never knows how generation is batched: it awaits a proposal and a reward, and decides.
"""

import math
from collections.abc import AsyncIterator

from qalign_core.chain.kernel import accepts, draw_index, log_acceptance, log_uniform
from qalign_core.chain.merging import merge
from qalign_core.chain.randomness import derive_seed, uniform
from qalign_core.chain.sampling import draw, encode_prompt
from qalign_core.errors import ModelContractError
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.run import check_alpha, check_beta, check_count
from qalign_core.types import ScoredResponse, Step


async def step(
    lm: LanguageModel,
    rm: RewardModel,
    prompt: str,
    prompt_ids: tuple[int, ...],
    *,
    beta: float,
    alpha: float,
    seed: int,
    chain: int,
    t: int,
    state: ScoredResponse,
) -> Step:
    """One step of the chain: keep a random prefix, rewrite the rest, score it, accept or reject."""
    index = draw_index(len(state.response), uniform(seed, chain, t, "index"))  # Eq. proposal
    prefix, log_probs = state.response.tokens[:index], state.response.log_probs[:index]
    seed_t = derive_seed(seed, chain, t, "suffix")
    proposal = await draw(lm, rm, prompt, prompt_ids, prefix, seed=seed_t, log_probs=log_probs)
    log_alpha = log_acceptance(  # Eq. rlhfcretirion
        reward_new=proposal.reward,
        reward_old=state.reward,
        len_new=len(proposal.response),
        len_old=len(state.response),
        beta=beta,
        log_prob_new=proposal.response.log_prob,
        log_prob_old=state.response.log_prob,
        alpha=alpha,
    )
    log_u = log_uniform(uniform(seed, chain, t, "accept"))
    accepted = accepts(log_alpha, log_u)
    return Step(chain, t, index, state, proposal, log_alpha, log_u, accepted, proposal.cost)


async def run_chain(
    lm: LanguageModel,
    rm: RewardModel,
    prompt: str,
    *,
    beta: float,
    steps: int,
    seed: int,
    alpha: float = 1.0,
    chain: int = 0,
    start: Step | None = None,
) -> AsyncIterator[Step]:
    """Run one Metropolis-Hastings chain and yield its steps, t = 0..steps, as they happen.

    Args:
        lm: language model, as sampled.
        rm: reward model.
        prompt: the user's text.
        beta: temperature of the target, in raw RM units; > 0, smaller is greedier.
        steps: number T of proposals, >= 0.
        seed: address of the randomness.
        alpha: power of the LM's probability in the target, >= 1; needs the LM's log-probabilities
            where it is not 1.
        chain: number of this chain; chains with different numbers are independent.
        start: the last step of an earlier, interrupted run with the same settings; the steps after
            it are yielded, and they are the ones that the uninterrupted run would have had.

    Yields:
        Step: frozen; the proposal is kept even if it was rejected.

    Raises:
        InvalidSetting, InvalidPrompt, ModelContractError, InvalidReward.
    """
    beta, alpha = check_beta(beta), check_alpha(alpha)
    check_count("steps", steps, 0)
    prompt_ids = encode_prompt(lm, prompt)
    if start is None:
        seed_0 = derive_seed(seed, chain, 0, "suffix")
        first = await draw(lm, rm, prompt, prompt_ids, (), seed=seed_0)
        start = Step(chain, 0, 0, first, first, 0.0, -math.inf, True, first.cost)
        yield start
    state = start.state
    if alpha != 1.0 and state.response.log_prob is None:
        raise ModelContractError(
            f"{lm.id} gives no log-probabilities of what it samples, which alpha = {alpha:g} "
            "needs; use a model in this process, vLLM with --logprobs-mode processed_logprobs, or "
            "alpha = 1"
        )
    for t in range(start.t + 1, steps + 1):
        address = {"seed": seed, "chain": chain, "t": t}
        taken = await step(
            lm, rm, prompt, prompt_ids, beta=beta, alpha=alpha, state=state, **address
        )
        state = taken.state
        yield taken


async def run_chains(
    lm: LanguageModel,
    rm: RewardModel,
    prompt: str,
    *,
    n_chains: int,
    beta: float,
    steps: int,
    seed: int,
    alpha: float = 1.0,
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
        run_chain(lm, rm, prompt, beta=beta, steps=steps, seed=seed, alpha=alpha, chain=chain)
        for chain in range(n_chains)
    )
    async for taken in merge(*chains):
        yield taken
