"""The Markov chain of the paper (Section 3.1): a step, and the loop over it.

The chain samples a target (`qalign_core.target`; the paper's is Eq. 1) with proposals
that a move makes (`chain.moves`). It never knows how generation is batched: it awaits a proposal
and a reward, and decides.
"""

import math
from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np

from qalign_core.chain.kernel import accepts, log_acceptance, log_uniform
from qalign_core.chain.merging import merge
from qalign_core.chain.moves.choices import Drawn
from qalign_core.chain.moves.mixture import move_of
from qalign_core.chain.moves.move import Move
from qalign_core.chain.randomness import At
from qalign_core.chain.sampling import check_models, draw, encode_prompt, score
from qalign_core.errors import ModelContractError
from qalign_core.mix import BLOCK, SUFFIX, read_mix
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.run import check_count
from qalign_core.target import Target, renamed
from qalign_core.types import Refused, ScoredResponse, Step


async def step(
    lm: LanguageModel,
    rm: RewardModel,
    prompt: str,
    prompt_ids: Sequence[int],
    *,
    target: Target,
    move: Move,
    state: ScoredResponse,
    at: At,
    entropies: dict[tuple[int, ...], tuple[float, ...]],
) -> Step:
    """One step of the chain: make a proposal, score it, accept or reject it.

    `entropies` is the chain's memory of what weighted cuts have asked of its texts.
    """
    choices = Drawn(lm, prompt_ids, at, entropies)
    made = await move.propose(choices, state.response)  # Eq. 4
    log_u = log_uniform(at.uniform("accept"))
    if isinstance(made, Refused):  # the state repeats
        never, here = -math.inf, (at.chain, at.t, made.kept, state, state)
        return Step(*here, never, log_u, False, choices.cost, 0, never, made)
    proposal = await score(
        rm, prompt, prompt_ids, made.response, kept=made.kept, drawn=choices.cost
    )
    log_alpha = log_acceptance(  # Eq. 8
        target, new=proposal, old=state, log_correction=made.log_correction
    )
    return Step(
        at.chain,
        at.t,
        made.kept,
        state,
        proposal,
        float(log_alpha),
        log_u,
        bool(accepts(log_alpha, log_u)),
        proposal.cost,
        made.kept_again,
        float(sum(np.asarray(made.log_correction))),
    )


async def run_chain(
    lm: LanguageModel,
    rm: RewardModel,
    prompt: str,
    *,
    steps: int,
    seed: int,
    target: Target | None = None,
    move: Move | str = SUFFIX,
    chain: int = 0,
    start: Step | None = None,
    **of_target: float,
) -> AsyncIterator[Step]:
    """Run one Metropolis-Hastings chain and yield its steps, t = 0..steps, as they happen.

    Args:
        lm: language model, as sampled.
        rm: reward model.
        prompt: the user's text.
        steps: number T of proposals, >= 0.
        seed: address of the randomness.
        target: what the chain samples. A sharper one, and blocks, need the LM's log-probabilities.
        move: how proposals are made, or its name (`qalign_core.mix`).
        chain: number of this chain; chains with different numbers are independent.
        start: the last step of an earlier, interrupted run with the same settings; the steps after
            it are yielded, and they are the ones that the uninterrupted run would have had.
        of_target: `beta` and `sharpness` of the target, instead of `target`.

    Yields:
        Step: frozen; the proposal is kept even if it was rejected.

    Raises:
        InvalidSetting, InvalidPrompt, ModelContractError, InvalidReward.
    """
    check_models(lm, rm)
    target = target or Target(**renamed(of_target))
    made_of = read_mix(move) if isinstance(move, str) else ()
    move = move_of(made_of, lm) if isinstance(move, str) else move
    check_count("steps", steps, 0)
    prompt_ids = encode_prompt(lm, prompt)
    if start is None:
        first = await draw(lm, rm, prompt, prompt_ids, seed=At(seed, chain, 0).derive("suffix"))
        start = Step(chain, 0, 0, first, first, 0.0, -math.inf, True, first.cost)
        yield start
    state = start.state
    blocks = any(part.name == BLOCK for part in made_of)
    if (target.is_sharp or blocks) and state.log_prob is None:
        needs = f"sharpness = {target.sharpness:g}" if target.is_sharp else "the move block"
        raise ModelContractError(
            f"{lm.id} returns no log-probabilities of what it samples, which {needs} needs; use a "
            "model in this process, vLLM with --logprobs-mode processed_logprobs, or sharpness = 1 "
            "and move = suffix"
        )
    of_all: dict[str, Any] = {"target": target, "move": move, "entropies": {}}
    for t in range(start.t + 1, steps + 1):
        at = At(seed, chain, t)
        taken = await step(lm, rm, prompt, prompt_ids, state=state, at=at, **of_all)
        state = taken.state
        yield taken


async def run_chains(
    lm: LanguageModel,
    rm: RewardModel,
    prompt: str,
    *,
    n_chains: int,
    steps: int,
    seed: int,
    target: Target | None = None,
    move: Move | str = SUFFIX,
    **of_target: float,
) -> AsyncIterator[Step]:
    """Run `n_chains` independent chains side by side; yield the steps of all as they happen.

    Chain k is `run_chain(..., chain=k)`, whatever `n_chains` is. The order between chains is that
    of arrival; within a chain it is t. No chain runs more than a few steps ahead of the reader.

    Raises:
        InvalidSetting, InvalidPrompt, ModelContractError, InvalidReward: from any chain; the
            other chains are then ended.
    """
    check_count("n_chains", n_chains, 1)
    target = target or Target(**renamed(of_target))
    chains = (
        run_chain(lm, rm, prompt, target=target, move=move, steps=steps, seed=seed, chain=chain)
        for chain in range(n_chains)
    )
    async for taken in merge(*chains):
        yield taken
