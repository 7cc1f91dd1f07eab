"""Parse a reward's name: a combination, a kind with an argument, a user's function, or a model."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from qalign_core.errors import InvalidSetting
from qalign_core.rewards.functions import reward_from_file
from qalign_core.rewards.kinds import RewardKind, reward_kinds
from qalign_core.validation import is_file_name, is_finite, short_repr

_WEIGHT = r"-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
"""A weight in a sum, as Python writes floats too."""
_PLUS = re.compile(rf"\s\+\s|(?<![\d.][eE])\+(?={_WEIGHT}\s*\*)")
_WEIGHTED = re.compile(rf"({_WEIGHT})\s*\*\s*(\S.*)")
_SEVERAL = re.compile(r"(min|mean)\((?=[^(),]*,)([^()]*)\)")
MAX_PARTS = 8
"""Rewards of one sum; each is scored for every response."""
MAX_NAME = 4096
"""Characters of a reward's name, which anybody may send."""
OWN_FILE = RewardKind("FILE.py", reward_from_file, uses="code", argument="NAME")
"""The kind of a function or class in the user's file, whose argument is the whole name."""


@dataclass(frozen=True, slots=True)
class RewardName:
    """The name of a reward.

    Attributes:
        text: as it was written; of a part of a sum, without its weight.
        kind: "sum" (a mean is one), "min" (the least of several), "model" (a registry id, folder,
            hub id, address), or what its `loader` uses.
        loader: the kind of reward that the prefix refers to; None for the three above.
        argument: the part after the prefix.
        weighted: weight and name of each reward that it combines; each name appears once.
    """

    text: str
    kind: Literal["sum", "min", "model", "text", "lm", "code"]
    loader: RewardKind | None = None
    argument: str = ""
    weighted: tuple[tuple[float, "RewardName"], ...] = ()

    @property
    def parts(self) -> tuple[tuple[float, "RewardName"], ...]:
        """The rewards of a sum with their weights; of any other name itself, of weight 1."""
        return self.weighted if self.kind == "sum" else ((1.0, self),)

    @property
    def members(self) -> tuple["RewardName", ...]:
        """The rewards that it is made of; none of a single one."""
        return tuple(part for _, part in self.weighted)


@lru_cache(maxsize=1024)
def reward_named(text: str) -> RewardName:
    """Read "0.7*A + 0.3*B", "min(A, B)", "judge:LM", "length:12", "FILE.py:NAME" or a model's name.

    Raises:
        InvalidSetting: more parts than `MAX_PARTS`, a weight that is not finite, or too long.
    """
    if len(text) > MAX_NAME:
        raise InvalidSetting(
            f"a reward's name has at most {MAX_NAME:,} characters, got {len(text):,}"
        )
    if several := _SEVERAL.fullmatch(text.strip()):
        parts = [*dict.fromkeys(part.strip() for part in several[2].split(","))]
        if len(parts) > MAX_PARTS or not all(parts):
            raise _wrong_number(several[1], text)
        is_min = several[1] == "min"
        weight = 1.0 if is_min else 1 / len(parts)
        weighted = tuple((weight, _single(part)) for part in parts)
        return RewardName(text, "min" if is_min else "sum", weighted=weighted)
    weights: dict[str, float] = {}
    for part in _PLUS.split(text.strip()):
        match = _WEIGHTED.fullmatch(part)
        weight, name = (float(match[1]), match[2]) if match else (1.0, part)
        weights[name] = weights.get(name, 0.0) + weight
    if len(weights) > MAX_PARTS or not all(is_finite(weight) for weight in weights.values()):
        raise InvalidSetting(
            f"a sum has at most {MAX_PARTS} rewards with finite weights, got {short_repr(text)}"
        )
    if weights == {text: 1.0}:
        return _single(text)
    weighted = tuple((weight, _single(name)) for name, weight in weights.items())
    return RewardName(text, "sum", weighted=weighted)


def _wrong_number(name: str, text: str) -> InvalidSetting:
    return InvalidSetting(
        f"{name} takes 2 to {MAX_PARTS} rewards, such as {name}(A, B), without further "
        f"parentheses, got {short_repr(text)}"
    )


def _single(text: str) -> RewardName:
    if (begun := re.match(r"(min|mean)\(", text)) and not _SEVERAL.fullmatch(text):
        raise _wrong_number(begun[1], text)
    prefix, _, argument = text.partition(":")
    loader = reward_kinds().get(prefix)
    if loader is None and is_file_name(text):
        loader, argument = OWN_FILE, text
    if loader is None:
        return RewardName(text, "model")
    return RewardName(text, loader.uses, loader, argument.strip())
