"""Texts written by a visitor: their limits, and their scores under both models."""

import asyncio
import math
import re
from typing import Any

from qalign_core.errors import InvalidPrompt, InvalidSetting
from qalign_core.protocols import LanguageModel, RewardModel, TokenScore
from qalign_core.target import Scores, Target
from qalign_core.types import Response
from qalign_core.validation import is_text, short_repr

MAX_WORDS = 2000
"""Characters that a visitor may write."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def check_scores_tokens(lm: LanguageModel) -> None:
    """Raise `InvalidSetting` unless a model can score the tokens of single texts."""
    if not hasattr(lm, "score_tokens"):
        raise InvalidSetting(
            f"{lm.id} does not return the probabilities of tokens; choose an embedded model, or "
            "another one that runs on this machine"
        )


def read_words(words: Any) -> str:
    """Return a visitor's words if they are a short text of visible characters.

    Raises:
        InvalidPrompt: they are not.
    """
    if not is_text(words) or len(words) > MAX_WORDS:
        length = f"{len(words)} characters" if isinstance(words, str) else short_repr(words)
        raise InvalidPrompt(f"your words must be a text of at most {MAX_WORDS} characters, "
                            f"got {length}")  # fmt: skip
    if _CONTROL.search(words):
        raise InvalidPrompt("your words contain invisible characters; type them again")
    return str(words)


State = tuple[Response, tuple[TokenScore, ...], float]


async def score_text(
    lm: Any, rm: RewardModel, prompt: str, response: Response, *, top: int = 0
) -> State:
    """Return a text with its token scores, `top` alternatives per position, and its reward."""
    scores, reward = await asyncio.gather(
        lm.score_tokens(lm.encode(prompt), response.tokens, top=top), rm.score(prompt, response)
    )
    return response, scores, reward


def log_target(target: Target, log_prob: float, reward: float) -> float:
    """Return the natural log of a text's pi, relative to a text with p = 1 and r = 0."""
    if not math.isfinite(log_prob):  # the model, as sampled, never writes it
        return log_prob
    nothing = Scores(0.0, 0.0)
    return log_prob + float(target.log_ratio(new=Scores(reward, log_prob), old=nothing))
