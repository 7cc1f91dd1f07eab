"""The wrong rules of "Break it": the negative controls of the core's laws, with what they do."""

from __future__ import annotations

from dataclasses import dataclass

from qalign_core.exact import law
from qalign_core.exact.law import Array, ExactChain, Rule, total_variation
from qalign_core.exact.world import MAX_NEW_TOKENS, World

# One more token than L is enough to be wrong, and keeps the states few (445); a real context is
# longer, and the published chain then goes further astray.
CONTEXT = MAX_NEW_TOKENS + 1


@dataclass(frozen=True, slots=True)
class Mistake:
    """A wrong rule, what it leaves out, and why that matters."""

    rule: Rule
    title: str
    why: str


MISTAKES: tuple[Mistake, ...] = (
    Mistake(
        law.NO_LENGTH_RATIO,
        "No length ratio",
        "The factor |y|/|y'| is left out. A short response has fewer places to be rewritten from, "
        "so each of its rewrites is proposed more often; without the factor the chain ends on "
        "the wrong lengths.",
    ),
    Mistake(
        law.EOS_NOT_COUNTED,
        "End token not counted",
        "The end token is left out of |y|, so it is never resampled on its own, and a response "
        "that ended and one that was cut off are counted by different rules.",
    ),
    Mistake(
        law.suffix_limit_not_shared(CONTEXT),
        "Length limit not shared",
        "Every rewrite may be L tokens long, whatever was kept (the error in the published code). "
        "Responses grow past the limit, and a response cut at the limit cannot be reached back.",
    ),
    Mistake(
        law.REJECTED_DROPPED,
        "Rejected steps dropped",
        "Only accepted proposals are counted. How long the chain stays on a response is what "
        "weighs it; dropping the repeats throws that weight away.",
    ),
    Mistake(
        law.ONLY_IMPROVEMENTS,
        "Only improvements accepted",
        "A proposal is accepted only if its reward is at least as high. That is a search for the "
        "best response, not a sample of the target: beta no longer matters.",
    ),
    Mistake(
        law.ALWAYS_ACCEPTED,
        "Everything accepted",
        "Every proposal is accepted, so the reward has no say. The chain then samples something "
        "near the base LM, with lengths that are off.",
    ),
)


def mistake(title: str) -> Mistake:
    """The mistake with this title."""
    return next(m for m in MISTAKES if m.title == title)


@dataclass(frozen=True, slots=True, eq=False)
class Broken:
    """Where a wrong rule ends.

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


def broken(world: World, beta: float, rule: Rule) -> Broken:
    """Where a rule leads in a world; the right rule is allowed, and has distance 0."""
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
