"""Deciding rules as a stranger would write them: each is one decorated function with its words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from qalign_core.decide.rules import RULES, DrawTable, Rule, rule


def median() -> Rule:
    """Neither a vote nor the best."""

    @rule("median", picks="draw", word="Median reward", sentence="Take the median.")
    def median_reward(draws: DrawTable) -> np.ndarray:
        rank = draws.reward.argsort(axis=-1).argsort(axis=-1)
        return -abs(rank - draws.reward.shape[-1] // 2)

    return median_reward


def upper() -> Rule:
    """A vote with weights of its own."""

    @rule("upper", needs_reward=True, word="Upper half", sentence="Vote with the better half.")
    def upper_half(draws: DrawTable) -> np.ndarray:
        kept = draws.reward >= np.median(draws.reward, axis=-1, keepdims=True)
        return kept / kept.sum(axis=-1, keepdims=True)

    return upper_half


def rival() -> Rule:
    """The highest of a score that is not the reward, with a formula."""

    @rule(
        "rival",
        picks="draw",
        maximizes="distance from zero",
        word="Farthest from zero",
        sentence="Take the sample whose reward is farthest from zero.",
        formula="argmax |r|",
    )
    def farthest(draws: DrawTable) -> np.ndarray:
        return abs(draws.reward)

    return farthest


def support() -> Rule:
    """A rule that reads the answers: the best draw of those that agree with another one."""

    @rule("support", picks="draw", word="Supported best", sentence="Take the best of those agreed.")
    def supported(draws: DrawTable) -> np.ndarray:
        same = draws.answer[..., :, None] == draws.answer[..., None, :]
        return draws.reward + 1e3 * (same.sum(axis=-1) > 1)

    return supported


def newest() -> Rule:
    """A rule over the chain that takes one state."""

    @rule("newest", draws="chain", picks="draw", word="Last state", sentence="Take the last state.")
    def last_state(draws: DrawTable) -> np.ndarray:
        return np.broadcast_to(np.arange(draws.reward.shape[-1]), draws.reward.shape)

    return last_state


ADDED = (median, upper, rival, support, newest)


@contextmanager
def added_rule(make: Callable[[], Rule]) -> Iterator[Rule]:
    """Add a rule, and take it away again."""
    rule = make()
    try:
        yield rule
    finally:
        del RULES[rule.id]
