"""The Markov chain of the paper (arXiv:2504.03790, Section 3.1): a step, and the loop over it.

The chain samples a target (`qalign_core.target`; the paper's is Eq. 1) with proposals from a move
(`chain.moves`). It awaits a proposal and a reward, then accepts or rejects. `Ahead` may draw the
proposals of later steps early; that saves time and changes no number.

    lm, rm = load_language_model("embedded"), load_reward_model("embedded")
    async for step in run_chain(lm, rm, "What is 2 + 2?", beta=1.0, steps=64, seed=7):
        print(step.t, step.accepted, step.state.response.text)
"""

import math
from collections.abc import AsyncIterator

import numpy as np

from qalign_core.chain.ahead import Ahead
from qalign_core.chain.checks import check_log_probs, check_models, check_seed
from qalign_core.chain.kernel import accepts, log_acceptance, log_uniform
from qalign_core.chain.moves.choices import StepChoices
from qalign_core.chain.moves.mixture import move_of
from qalign_core.chain.moves.move import Move, name_of, needs_log_probs
from qalign_core.chain.randomness import StepAddress
from qalign_core.chain.sampling import draw, score
from qalign_core.errors import InvalidSetting
from qalign_core.messages import encode_prompt
from qalign_core.move_spec import SUFFIX, parse_moves
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.target import Target
from qalign_core.types import NoProposal, ScoredResponse, Step
from qalign_core.validation import check_count, rename_settings


async def step(
    choices: StepChoices,
    rm: RewardModel,
    prompt: str,
    *,
    target: Target,
    move: Move,
    state: ScoredResponse,
) -> Step:
    """Take one step of the chain: make a proposal, score it, accept or reject it.

    Args:
        choices: the randomness of this step and its access to the language model.
        rm: reward model.
        prompt: the user's text.
        target: the distribution that the chain samples.
        move: makes the proposal.
        state: the state before the step, with its reward in raw RM units.
    """
    proposal = await move.propose(choices, state.response)  # Eq. 4
    if isinstance(proposal, NoProposal):  # its correction is log 0: rejected, the state repeats
        new, cost, refused = state, choices.cost, proposal
    else:
        new = await score(
            rm, prompt, choices.prompt_ids, proposal.response, kept=proposal.kept, cost=choices.cost
        )
        cost, refused = new.cost, None
    correction = proposal.log_correction
    log_alpha = log_acceptance(target, new=new, old=state, log_correction=correction)  # Eq. 8
    log_u = log_uniform(choices.address.derive_uniform("accept"))
    return Step(
        chain=choices.address.chain,
        t=choices.address.t,
        index=proposal.kept,
        current=state,
        proposal=new,
        log_alpha=float(log_alpha),
        log_u=log_u,
        accepted=bool(accepts(log_alpha, log_u)),
        cost=cost,
        kept_again=proposal.kept_again,
        log_correction=float(sum(np.asarray(correction))),
        refused=refused,
        move=proposal.move or name_of(move),
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
    **target_settings: float,
) -> AsyncIterator[Step]:
    """Run one Metropolis-Hastings chain and yield its steps, t = 0..steps, as they happen.

    Args:
        lm: language model, as sampled.
        rm: reward model.
        prompt: the user's text.
        steps: number T of proposals, >= 0.
        seed: seed of the addressed randomness.
        target: the distribution that the chain samples. A sharper target and block moves need the
            LM's log-probabilities.
        move: makes the proposals; an object or a name (`qalign_core.move_spec`).
        chain: number of this chain; chains with different numbers are independent.
        start: the last step of an interrupted run with the same settings; the steps after it are
            yielded, identical to those of an uninterrupted run.
        target_settings: `beta` and `sharpness` of the target, instead of `target`.

    Yields:
        Step: frozen; the proposal is kept even if it was rejected.

    Raises:
        InvalidSetting, InvalidPrompt, ModelContractError, InvalidReward.
    """
    check_models(lm, rm)
    check_seed(seed)
    if target is not None and target_settings:
        raise InvalidSetting("give either a target or its beta and sharpness, got both")
    target = target or Target(**rename_settings(target_settings))
    if isinstance(move, str):
        move = move_of(parse_moves(move), lm)
    check_count("steps", steps, 0)
    prompt_ids = encode_prompt(lm, prompt)
    address = StepAddress(seed, chain, 0)
    ahead = Ahead(lm, prompt_ids, address, steps if name_of(move) == SUFFIX else 0)
    choices = StepChoices(ahead, prompt_ids, address)
    if start is None:
        draft = await draw(lm, rm, prompt, prompt_ids, seed=address.derive("suffix"))
        start = Step(
            chain=chain,
            t=0,
            index=0,
            current=draft,
            proposal=draft,
            log_alpha=0.0,
            log_u=-math.inf,
            accepted=True,
            cost=draft.cost,
        )
        yield start
    state = start.state
    if target.is_sharp or needs_log_probs(move):
        check_log_probs(lm, state.response, target.sharpness)
    try:
        for t in range(start.t + 1, steps + 1):
            ahead.begin(t, state.response.tokens)
            latest = await step(choices.at(t), rm, prompt, target=target, move=move, state=state)
            state = latest.state
            yield latest
    finally:
        await ahead.close()
