"""The wrong rules of "Break it", with what they do: negative controls, which must fail the laws."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from qalign_core.chain.moves.block import Block
from qalign_core.chain.moves.move import Choices, MoveResult
from qalign_core.target import Scored, Target, log_acceptance
from qalign_core.types import Array, NoProposal, Response
from qalign_study.exact.enumerable import EnumerableLM
from qalign_study.exact.law import ExactChain, Rule, total_variation
from qalign_study.exact.world import LETTERS, MAX_NEW_TOKENS, World


def _no_ratio(target: Target, *, new: Scored, old: Scored, log_correction: object) -> Array:
    return log_acceptance(target, new=new, old=old, log_correction=())


def _without_eos(response: Response) -> int:
    # an immediate EOS would leave no position at all, and a chain that can never leave it
    return max(1, len(response) - response.finished)


ONE_LETTER = Block(frozenset(range(len(LETTERS))))
"""Draws one letter again and keeps the letters behind it."""


@dataclass(frozen=True, slots=True)
class _TailForgotten:
    async def propose(self, choices: Choices, y: Response) -> MoveResult:
        proposal = await ONE_LETTER.propose(choices, y)
        return (
            proposal if isinstance(proposal, NoProposal) else replace(proposal, log_correction=())
        )


# One more token than L is enough to be wrong, and keeps the states few (445); a real context is
# longer, and the published chain then goes further astray.
CONTEXT = MAX_NEW_TOKENS + 1


def _by_name(*rules: Rule) -> dict[str, Rule]:
    return {rule.name: rule for rule in rules}


MISTAKES = _by_name(
    Rule(
        "No length ratio",
        "The factor |y|/|y'| is left out. A short response has fewer places to cut, so "
        "each of its rewrites is proposed more often; without the factor, the chain favors "
        "the wrong lengths.",
        log_alpha=_no_ratio,
    ),
    Rule(
        "End token not counted",
        "The end token is left out of |y|, so it is never resampled on its own, and complete "
        "and truncated responses are counted by different rules.",
        n_indices=_without_eos,
        length=_without_eos,
    ),
    Rule(
        "Length limit not shared",
        "Every rewrite may be L tokens long, whatever was kept (the error in the published "
        "code). Responses grow past the limit, and no step leads back to a response cut at "
        "the limit.",
        limit=lambda longest, index: min(index + longest, CONTEXT),
    ),
    Rule(
        "Rejected steps dropped",
        "Only accepted proposals are counted. The time that the chain stays on a response "
        "is its weight; dropping the repeats discards it.",
        counted="accepted",
    ),
    Rule(
        "Only improvements accepted",
        "A proposal is accepted only if its reward is at least as high. That is a search for "
        "the best response, not a sample of the target: beta no longer matters.",
        log_alpha=lambda _, *, new, old, **__: np.where(new.reward >= old.reward, 0.0, -np.inf),
    ),
    Rule(
        "Everything accepted",
        "Every proposal is accepted, so the reward has no influence. The chain then samples "
        "something near the base LM, with wrong lengths.",
        log_alpha=lambda _, *, new, **__: np.zeros_like(new.reward),
    ),
    Rule(
        "Cut in the first half only",
        "The cut always lies in the first half of the text. Where the new text is shorter, the "
        "cut can lie outside its first half, and then no step leads back. With the language "
        "model “All of one length” this rule is right: try it.",
        n_indices=lambda response: (len(response) + 1) // 2,
    ),
    Rule(
        "Tail’s factor forgotten",
        "Half of the steps are block moves: they draw one letter again and keep the letters "
        "after it, the tail. The factor p(tail | new letter) / p(tail | old letter) is left "
        "out, so nothing checks how well the tail still fits. With the language model “Every "
        "token alike” the tail does not depend on the letter, and the rule is right: try it.",
        move=_TailForgotten(),
        share=0.5,
    ),
)
"""The wrong rules by their names."""


def _at_temperature(lm: EnumerableLM, response: Response, temperature: float = 2.0) -> float:
    total = 0.0
    for k, token in enumerate(response.tokens):
        p = lm.next_token_probabilities(response.tokens[:k]) ** (1 / temperature)
        total += math.log(p[token] / p.sum())
    return total


SHARP_MISTAKES = _by_name(
    Rule(
        "Sharpness left out",
        "The factor (p(y′)/p(y))^(sharpness − 1) is left out. Proposals are drawn from the "
        "model as it is, so the chain ends at the target of sharpness 1.",
        log_prob=lambda lm, response: 0.0,
    ),
    Rule(
        "Probabilities of another temperature",
        "The factor uses probabilities at temperature 2, not at the temperature of the draws, "
        "as when a server returns probabilities before applying its temperature.",
        log_prob=_at_temperature,
    ),
)
"""Mistakes that only a target with a sharpness above 1 shows."""


@dataclass(frozen=True, slots=True, eq=False)
class Broken:
    """The limit of a wrong rule.

    Attributes:
        chain: the wrong chain; its `target` is the right one.
        limit: the distribution that it converges to from the base LM, shape [n].
        distance: total variation between `limit` and the target.
        mean_length: mean |y| under the limit and under the target.
        mean_reward: mean r under the limit and under the target, in spreads.
    """

    chain: ExactChain
    limit: Array
    distance: float
    mean_length: tuple[float, float]
    mean_reward: tuple[float, float]


@lru_cache(maxsize=64)
def broken(world: World, beta: float, rule: Rule) -> Broken:
    """Compute a rule's limit in a world; the right rule is allowed, and has distance 0."""
    chain = world.chain(beta, rule)
    limit = chain.limit()
    lengths = [float(len(y)) for y in chain.states]
    return Broken(
        chain,
        limit,
        total_variation(limit, chain.target),
        (float(limit @ lengths), float(chain.target @ lengths)),
        (float(limit @ chain.rewards), float(chain.target @ chain.rewards)),
    )
