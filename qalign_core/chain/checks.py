"""Checks of models and moves and of what they return: the contract of detailed balance."""

import math
import operator
from collections.abc import Sequence
from dataclasses import replace
from inspect import iscoroutinefunction, isfunction
from numbers import Real

from qalign_core.errors import InvalidReward, InvalidSetting, ModelContractError
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.types import MoveResult, NoProposal, Response
from qalign_core.validation import HUGE, is_integer, is_text, is_whole, short_repr, user_code


def check_models(lm: LanguageModel, rm: RewardModel) -> None:
    """Raise unless both models have the interface that the chain needs, before anything is drawn.

    Raises:
        ModelContractError: an attribute is missing, or is not a coroutine function.
    """
    of_lm = ("id", "max_new_tokens", "encode", "extend")
    for model, what, names in ((lm, "language", of_lm), (rm, "reward", ("id", "score"))):
        name = f"the {what} model {type(model).__name__}"
        if isinstance(model, type):
            raise ModelContractError(f"the {what} model is the class {model.__name__}; make one")
        if isinstance(model, str):
            raise ModelContractError(
                f"the {what} model is the text {short_repr(model)}; load_{what}_model loads one"
            )
        if isfunction(model) and what == "reward":
            raise ModelContractError("the reward model is a function; wrap it in FunctionReward")
        if lacks := next((each for each in names if not hasattr(model, each)), ""):
            raise ModelContractError(f"{name} has no {lacks}; it needs {', '.join(names)}")
        method = names[-1]
        if not iscoroutinefunction(getattr(model, method)):
            raise ModelContractError(
                f"{method} of {name} is a plain function, a coroutine was expected; write "
                f"`async def {method}`"
            )
        if not is_text(model.id):
            raise ModelContractError(
                f"id of {name} is {short_repr(model.id)}; a text that UTF-8 can encode was expected"
            )
    if iscoroutinefunction(lm.encode):
        raise ModelContractError(f"encode of {lm.id} is a coroutine; write `def encode`")
    if not is_whole(lm.max_new_tokens, 1):
        raise ModelContractError(
            f"max_new_tokens of {lm.id} is {short_repr(lm.max_new_tokens)}; a whole number >= 1 "
            "was expected"
        )


def check_seed(seed: int) -> None:
    """Raise unless a seed is a whole number: `None` would be one fixed seed, not a new one."""
    if not is_integer(seed):
        raise InvalidSetting(f"seed must be a whole number, got {short_repr(seed)}")


def check_move(move: object, place: str = "") -> None:
    """Raise unless a move, of a user's file if it has a place, has the interface of one.

    Raises:
        InvalidSetting: it is a class, or has no coroutine method `propose`.
    """
    if isinstance(move, type):
        raise InvalidSetting(f"the move is the class {move.__name__}; make one")
    if not iscoroutinefunction(getattr(move, "propose", None)):
        name = place or f"the move {short_repr(move)}"
        raise InvalidSetting(
            f"{name} has no `async def propose(self, choices, y)`; give an object that has it"
        )


def check_result(result: MoveResult, y: Response, name: str = "the move") -> MoveResult:
    """Return what a move made of the state `y`, if it can be used; its numbers are int and float.

    Raises:
        InvalidSetting: it is neither a Proposal nor a NoProposal, or keeps other ids than it says,
            or its correction is no number below infinity.
    """
    if not isinstance(result, MoveResult):
        raise InvalidSetting(
            f"{name} returned {type(result).__name__}; return a Proposal or a NoProposal"
        )
    if isinstance(result, NoProposal):
        return replace(result, reason=str(result.reason))
    before = f"{name} returned a Proposal that cannot be used ("
    after = "); give a Response, whole numbers, and a tuple of numbers as log_correction"
    with user_code(InvalidSetting, before, after):
        if not isinstance(result.response, Response):
            raise TypeError(f"response is {short_repr(result.response)}")
        terms = tuple(map(float, result.log_correction))  # type: ignore[arg-type]
        if not sum(terms) < math.inf:
            raise ValueError(f"log_correction is {short_repr(terms)}")
        kept, again = map(operator.index, (result.kept, result.kept_again))
        new, old = result.response.tokens, y.tokens
        can_keep = min(kept, again) >= 0 and kept + again <= min(len(new), len(old))
        ends = new[len(new) - again :], old[len(old) - again :]
        if not (can_keep and new[:kept] == old[:kept] and ends[0] == ends[1]):
            raise ValueError(f"the first {kept} and the last {again} ids are not kept")
    return replace(result, kept=kept, kept_again=again, log_correction=terms)


def check_response(
    response: Response,
    prefix: Sequence[int],
    lm: LanguageModel,
    until: frozenset[int] = frozenset(),
) -> None:
    """Raise unless a response keeps the contract that detailed balance requires.

    It must keep the prefix, add at least one id, and have at most `L` ids in all, however long the
    prefix is. It may be shorter than `L` only if it ended with an EOS (docs/method.md, "Objects")
    or with an id of `until`, which may occur nowhere else after the prefix.

    Raises:
        ModelContractError: it breaks a rule, which the message names.
    """
    check_types(response, lm)
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


def check_types(response: Response, lm: LanguageModel) -> None:
    """Raise unless a model returned a `Response` whose fields have their types and ranges.

    Raises:
        ModelContractError: a field has another type, or a log-probability is not one.
    """
    if not isinstance(response, Response):
        raise ModelContractError(
            f"{lm.id} returned {short_repr(response)} from extend; a Response was expected"
        )
    for name, is_item, expected in (
        ("tokens", is_integer, "whole numbers"),
        ("pieces", is_text, "texts that UTF-8 can encode"),
        ("log_probs", _is_log_prob, "natural logs of probabilities, finite and <= 0,"),
    ):
        values = getattr(response, name)
        if not isinstance(values, tuple):
            raise ModelContractError(
                f"{lm.id} returned {short_repr(values)} as {name}; a tuple was expected"
            )
        if wrong := [each for each in values if not is_item(each)]:
            raise ModelContractError(
                f"{lm.id} returned {short_repr(wrong[0])} among {name}; {expected} were expected"
            )
    if not is_text(response.text) or not isinstance(response.finished, bool):
        raise ModelContractError(
            f"{lm.id} returned {short_repr(response.text)} as text and "
            f"{short_repr(response.finished)} as finished; a text that UTF-8 can encode, and True "
            "or False, were expected"
        )


def _is_log_prob(value: object) -> bool:
    return isinstance(value, Real) and -math.inf < float(value) <= 0


def check_lengths(response: Response, n_kept: int, lm: LanguageModel) -> None:
    """Raise if the number of pieces or log-probabilities differs from the number of tokens.

    Raises:
        ModelContractError: there are some, but not one per token. Log-probabilities may also be
            those of the new tokens alone.
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
        finite = math.fabs(reward) <= HUGE  # the range of numbers in a trace
    except (TypeError, ValueError, OverflowError):
        finite = False
    if not finite:
        raise InvalidReward(
            f"{rm.id} gave {short_repr(reward)} for the response {short_repr(response.text, 80)}; "
            "one finite number was expected"
        )
    return float(reward)


def check_log_probs(lm: LanguageModel, response: Response, sharpness: float = 1.0) -> None:
    """Raise unless a response has the log-probabilities that the target or the move reads.

    Raises:
        ModelContractError: the model returned none.
    """
    if response.log_prob is None:
        needs = f"sharpness = {sharpness:g}" if sharpness != 1.0 else "this move"
        raise ModelContractError(
            f"{lm.id} returns no log-probabilities of what it samples, which {needs} needs; use a "
            "model in this process, vLLM with --logprobs-mode processed_logprobs, or sharpness = 1 "
            "and move = suffix"
        )
