"""Whether chains may be trusted, in one sentence, and what to do next."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from qalign_study.measure.diagnostics import MIN_STATES, agreement, ess
from qalign_study.sheet.words import number

ROUGH = 100
"""Effective samples a chain (50 a half) below which diagnostics are rough (Vehtari et al. 2021)."""


@dataclass(frozen=True, slots=True)
class Trust:
    """A verdict on chains: how much they may be trusted, why, and what to do next."""

    level: Literal["unknown", "no", "rough", "yes"]
    sentence: str
    next: str


def trust(chains: Sequence[Sequence[float]], *, whole: bool = True) -> Trust:
    """The verdict on chains from the rewards of their states, repeats counted, a list each.

    Args:
        chains: the rewards.
        whole: whether they are all that has been drawn.
    """
    one = len(chains) == 1
    fewest = min(map(len, chains))
    if fewest < MIN_STATES:
        return Trust(
            "unknown",
            f"Too early to say: {'the chain' if one else 'the shortest chain'} has "
            f"{fewest} {'state' if fewest == 1 else 'states'}, and the check needs at "
            f"least {MIN_STATES}.",
            "Run longer." if whole else "Go on to a later step.",
        )
    effective, agree = ess(chains), agreement(chains)
    if effective is None or agree.rhat is None:
        return Trust(
            "no",
            f"No: the reward has never changed{'' if one else ' in any chain'}, so it is unknown "
            "what was missed.",
            "Run longer. A larger β accepts more rewrites, but it changes the target.",
        )
    rhat = f"split R-hat {agree}, limit {agree.limit:.3f}"
    rewards = f"the rewards of the {'chain’s halves' if one else 'chains'}"
    if not agree.is_mixed:
        sentence, more = f"{rewards} differ ({rhat})", f"Run {2 * (fewest - 1):,} steps in all"
        if one:
            return Trust("no", f"Not yet: {sentence}.", f"{more}, or draw several chains.")
        sentence += ", whatever their votes say; do not trust the pooled vote yet"
        faster = "A larger β mixes faster, but it changes the target."
        return Trust("no", f"No: {sentence}.", f"{more} in each chain. {faster}")
    worth = f"{sum(map(len, chains)):,} states are worth about {number(effective)} independent ones"
    unseen = "draw several chains: one cannot show what it never found"
    if effective < ROUGH * len(chains):
        longer = math.ceil(ROUGH * len(chains) / effective)
        return Trust(
            "rough",
            f"Only roughly: {rewards} agree, but {worth}.",
            f"Run {longer * (fewest - 1):,} steps in all{f', and {unseen}' if one else ''}.",
        )
    if one:
        sentence = f"As far as one chain can show, yes: {rewards} agree, and {worth}."
        return Trust("yes", sentence, f"To be sure, {unseen}.")
    return Trust("yes", f"Yes: {rewards} agree, and {worth}.", "Nothing more is needed.")
