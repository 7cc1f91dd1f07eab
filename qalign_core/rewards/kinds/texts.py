"""Rewards that everyone can judge, read off the response's text: nothing is trained or downloaded.

Each is named by its kind, or by "kind:argument". The titles in `assets/registry.toml` state what
the rewards cannot see.
"""

import math
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from qalign_core.errors import InvalidSetting
from qalign_core.rewards.functions import FunctionReward
from qalign_core.rewards.kinds import reward_kind
from qalign_core.run import NO_REWARD

Reading = Callable[[str], float]
"""From a text to its reward."""

WORD = re.compile(r"\w+(?:['’-]\w+)*")
END = re.compile(r"[.!?…]+(?=\W|$)")

MOST_MOOD = 0.9999
"""VADER rounds its score to four decimals, and atanh(1) is infinite."""
WORST_GRADE = 20.0
"""The school grade of what has no words, and of all that is harder still."""
MOST_WORDS = 10_000


def text_kind(prefix: str, **declared: str) -> Callable[..., Callable[[str], Reading]]:
    """Add a kind of reward that reads the text alone.

    Args:
        prefix: the part of the name before the colon.
        declared: the other fields of `RewardKind`.
    """

    def add(read_of: Callable[[str], Reading]) -> Callable[[str], Reading]:
        def load(argument: str, *, id: str) -> FunctionReward:
            if argument and "argument" not in declared:
                raise InvalidSetting(
                    f"{prefix} takes no argument, got {argument[:40]!r}; write {prefix} alone"
                )
            read = read_of(argument)
            return FunctionReward(lambda _prompt, text: read(text), id=id)

        reward_kind(prefix, **declared)(load)
        return read_of

    return add


@text_kind("mood")
def _mood(_: str) -> Reading:
    """Kind words over unkind ones: `atanh(c)` of VADER's compound score `c`, from -5 to 5.

    With the sum `s` of the words' valences `c = s / sqrt(s^2 + 15)`, so a third kind word hardly
    moves `c`; `atanh(c) = asinh(s / sqrt(15))` goes on growing.
    """
    scores = _vader().polarity_scores
    return lambda text: math.atanh(max(-MOST_MOOD, min(MOST_MOOD, scores(text)["compound"])))


@text_kind("plain")
def _plain(_: str) -> Reading:
    """Short words in short sentences: minus the school grade of the ARI, from -20 to 0.

    Automated Readability Index = 4.71 letters/words + 0.5 words/sentences - 21.43 (Smith and
    Senter, 1967).
    """

    def read(text: str) -> float:
        words = WORD.findall(text)
        if not words:
            return -WORST_GRADE
        letters, sentences = sum(map(len, words)), max(1, len(END.findall(text)))
        grade = 4.71 * letters / len(words) + 0.5 * len(words) / sentences - 21.43
        return -max(0.0, min(WORST_GRADE, grade))

    return read


@text_kind("contains", argument="WORD", noun="a word", example="rain")
def _contains(argument: str) -> Reading:
    """1 if the text has the word or words, whole and in any case, else 0."""
    if not argument:
        raise InvalidSetting("contains needs a word, got none; write contains:WORD")
    pattern = re.compile(rf"(?<!\w){re.escape(argument)}(?!\w)", re.IGNORECASE)
    return lambda text: float(pattern.search(text) is not None)


@text_kind("length", argument="N", noun="a length", example="30")
def _length(argument: str) -> Reading:
    """As near to a number of words as it can: minus the words that are missing or too many."""
    wanted = int(argument) if re.fullmatch(r"[0-9]{1,5}", argument) else -1
    if not 0 <= wanted <= MOST_WORDS:
        raise InvalidSetting(
            f"length takes a number of words up to {MOST_WORDS:,}, got {argument[:40]!r}; "
            "write length:12"
        )
    return lambda text: -float(abs(len(WORD.findall(text)) - wanted))


@text_kind(NO_REWARD)
def _none(_: str) -> Reading:
    """No reward: 0 for everything, so that the model's own probability is all there is."""
    return lambda _text: 0.0


@cache
def _vader() -> Any:
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer  # reads its word list

    return SentimentIntensityAnalyzer()
