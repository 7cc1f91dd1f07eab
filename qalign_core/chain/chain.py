"""The Markov chain of the paper (arXiv:2504.03790, Section 3.1): a step, and the loop over it.

The chain samples a target (`qalign_core.target`; the paper's is Eq. 1) with proposals from a move
(`chain.moves`). It awaits a proposal and a reward, then accepts or rejects. `Ahead` may draw the
proposals of later steps early; that saves time and changes no number.

    >>> from qalign_core import iterate, load_language_model, load_reward_model
    >>> lm, rm = load_language_model("embedded"), load_reward_model("embedded")
    >>> prompt = "Leo has 9 ribbons and buys 12 more. How many ribbons does Leo have now?"
    >>> for step in iterate(run_chain(lm, rm, prompt, beta=1.0, steps=3, seed=7)):
    ...     print(step.t, step.accepted, step.state.response.text)
    0 True 12 more is 9 + 12 = 21. There are 21 of them. The answer is 21 ribbons.
    1 True 12 more is 9 + 12 = 21. So there are 21 ribbons. The answer is 21.
    2 True 12 more is 9 + 12 = 21. So there are 21 ribbons. The answer is 21.
    3 True 12 more is 9 + 12 = 21. So there are 21 ribbons. The answer is 21.
"""

import math
from collections.abc import AsyncIterator
from typing import Any

import numpy as np

from qalign_core.chain.ahead import Ahead
from qalign_core.chain.checks import (
    check_log_probs,
    check_models,
    check_move,
    check_result,
    check_seed,
)
from qalign_core.chain.moves.choices import StepChoices
from qalign_core.chain.moves.mixture import move_of
from qalign_core.chain.moves.move import Move, name_of, needs_log_probs
from qalign_core.chain.randomness import StepAddress
from qalign_core.chain.sampling import draw, score
from qalign_core.errors import InvalidSetting
from qalign_core.messages import encode_prompt
from qalign_core.move_spec import SUFFIX, parse_moves
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.target import Target, accepts, check_target, log_acceptance, log_or_minus_inf
from qalign_core.types import NoProposal, ScoredResponse, Step
from qalign_core.validation import check_count, rename_settings, short_repr


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
        choices: the random draws of this step, those from the language model included.
        rm: reward model.
        prompt: the user's text.
        target: the distribution that the chain samples.
        move: makes the proposal.
        state: the state before the step, with its reward in raw RM units.
    """
    result = check_result(await move.propose(choices, state.response), state.response)  # Eq. 4
    if isinstance(result, NoProposal):  # its correction is log 0: rejected, the state repeats
        candidate, cost, refused = state, choices.cost, result
    else:
        candidate = await score(
            rm, prompt, choices.prompt_ids, result.response, kept=result.kept, cost=choices.cost
        )
        cost, refused = candidate.cost, None
    correction = result.log_correction
    log_alpha = log_acceptance(target, new=candidate, old=state, log_correction=correction)  # Eq. 8
    log_u = log_or_minus_inf(choices.address.derive_uniform("accept"))
    return Step(
        chain=choices.address.chain,
        t=choices.address.t,
        index=result.kept,
        current=state,
        proposal=candidate,
        log_alpha=float(log_alpha),
        log_u=log_u,
        accepted=bool(accepts(log_alpha, log_u)),
        cost=cost,
        kept_again=result.kept_again,
        log_correction=float(sum(np.asarray(correction))),
        refused=refused,
        move=result.move or name_of(move),
    )


async def run_chain(
    lm: LanguageModel,
    rm: RewardModel,
    prompt: str,
    *,
    steps: int,
    seed: int,
    beta: float | None = None,
    sharpness: float = 1.0,
    target: Target | None = None,
    move: Move | str = SUFFIX,
    chain: int = 0,
    start: Step | None = None,
    **former: float,
) -> AsyncIterator[Step]:
    """Run one Metropolis-Hastings chain and yield its steps, t = 0..steps, as they happen.

    Args:
        lm: language model, as sampled.
        rm: reward model.
        prompt: the user's text.
        steps: number T of proposals, >= 0.
        seed: seed of the run (`chain.randomness`).
        beta, sharpness: of the target that the chain samples; a target sharper than the paper's
            needs the LM's log-probabilities, and so do block moves.
        target: the same as an object, instead of beta and sharpness.
        move: makes the proposals; an object or a name (`qalign_core.move_spec`).
        chain: number of this chain; chains with different numbers are independent.
        start: the last step of an interrupted run with the same settings; the steps after it are
            yielded, identical to those of an uninterrupted run.
        former: earlier names of these settings.

    Yields:
        Step: frozen; the proposal is kept even if it was rejected.

    Raises:
        InvalidSetting, InvalidPrompt, ModelContractError, InvalidReward.
    """
    check_models(lm, rm)
    check_seed(seed)
    settings: dict[str, Any] = {"beta": beta, "sharpness": sharpness, **rename_settings(former)}
    if unknown := settings.keys() - {"beta", "sharpness"}:
        raise TypeError(f"run_chain() got an unexpected keyword argument {min(unknown)!r}")
    if target is None:
        target = Target(**settings)
    elif settings != {"beta": None, "sharpness": 1.0}:
        raise InvalidSetting("give either a target or its beta and sharpness, got both")
    if isinstance(move, str):
        move = move_of(parse_moves(move), lm)
    check_move(move)
    check_target(target)
    check_count("steps", steps, 0)
    check_count("chain", chain, 0)
    if start is not None and (not isinstance(start, Step) or start.chain != chain):
        raise InvalidSetting(
            f"start = {short_repr(start)}; give the last step of chain {chain}, or None"
        )
    prompt_ids = encode_prompt(lm, prompt)
    address = StepAddress(seed, chain, 0)
    # the language model; it may draw suffixes of later steps early
    ahead = Ahead(lm, prompt_ids, address, steps if name_of(move) == SUFFIX else 0)
    choices = StepChoices(ahead, prompt_ids, address)
    try:
        if start is None:
            ahead.begin(0, ())
            # the suffix of an empty prefix is the whole response
            initial = await draw(ahead, rm, prompt, prompt_ids, seed=address.derive("suffix"))
            start = Step(
                chain=chain,
                t=0,
                index=0,
                current=initial,
                proposal=initial,
                log_alpha=0.0,
                log_u=-math.inf,
                accepted=True,
                cost=initial.cost,
            )
            yield start
        state = start.state
        if target.is_sharp or needs_log_probs(move):
            check_log_probs(lm, state.response, target.sharpness)
        for t in range(start.t + 1, steps + 1):
            ahead.begin(t, state.response.tokens)
            latest = await step(choices.at(t), rm, prompt, target=target, move=move, state=state)
            state = latest.state
            yield latest
    finally:
        await ahead.close()
