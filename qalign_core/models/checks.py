"""What every language model checks before it draws: settings, lengths, the kept prefix."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from qalign_core.errors import InvalidPrompt, InvalidSetting, ModelContractError
from qalign_core.reading import is_finite, is_whole, shown
from qalign_core.run import Sampling


def check_sampling(sampling: Sampling) -> Sampling:
    """The settings, if each is in its range.

    Raises:
        InvalidSetting: one is not.
    """
    temperature, top_p = sampling.temperature, sampling.top_p
    if not (is_finite(temperature) and temperature > 0):
        raise InvalidSetting(f"temperature must be > 0, got {shown(temperature)}")
    if not (is_finite(top_p) and 0 < top_p <= 1):
        raise InvalidSetting(f"top_p must be in (0, 1], 1 is off; got {shown(top_p)}")
    if not is_whole(sampling.top_k, 0):
        raise InvalidSetting(f"top_k must be >= 0, 0 is off; got {shown(sampling.top_k)}")
    if not is_whole(sampling.max_new_tokens, 1):
        raise InvalidSetting(f"max_new_tokens must be >= 1, got {shown(sampling.max_new_tokens)}")
    return sampling


def check_length(n_prompt: int, limit: int, context: int) -> None:
    """Refuse a prompt (ids) that is empty, or too long beside a response of `limit` ids.

    Raises:
        InvalidPrompt: the sentence has the lengths.
    """
    if n_prompt == 0:
        raise InvalidPrompt("the prompt has no tokens; type a question or a task")
    if n_prompt + limit > context:
        raise InvalidPrompt(
            f"the prompt has {n_prompt} tokens and the response may have {limit}, together more "
            f"than the context of {context}; shorten the prompt or lower max_new_tokens"
        )


def check_prefix(prefix: Sequence[int], limit: int, eos: Collection[int]) -> None:
    """Refuse a kept prefix that is as long as a response may be, or has ended.

    Raises:
        ModelContractError: it cannot be continued.
    """
    if len(prefix) >= limit or any(token in eos for token in prefix):
        raise ModelContractError(
            f"a prefix of {len(prefix)} ids cannot be continued: it must be shorter than "
            f"max_new_tokens = {limit} and hold no end-of-sequence id"
        )
