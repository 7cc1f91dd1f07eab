"""The lab's world: three letters, an end, at most four tokens; 121 responses, all written down."""

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from qalign_core.errors import InvalidSetting
from qalign_core.target import Target
from qalign_core.types import Array, Response
from qalign_core.validation import short_repr
from qalign_study.exact.enumerable import EnumerableLM
from qalign_study.exact.law import EXACT, ExactChain, Rule, exact_chain

LETTERS = ("a", "b", "c")
END = "·"  # shown for EOS
MAX_NEW_TOKENS = 4
FLAT = 1e-9
"""A spread of rewards below which they are all the same."""
MOST = 1e6
"""The largest weight of a token or part of a reward: 1e200 has no square."""
ROWS = ("at the start", "after a", "after b", "after c")

Table = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class RewardSpec:
    """A reward by parts, before it is put in units of its spread.

    Attributes:
        letters: worth of every a, b and c.
        length: worth of every token of |y|, EOS counted.
        roughness: size of a fixed pseudo-random part of each response, in [0, 1) times this.
        gem: extra worth of the single response `aba` (EOS after it).
    """

    letters: tuple[float, float, float] = (1.0, 0.0, -1.0)
    length: float = 0.0
    roughness: float = 1.0
    gem: float = 0.0

    def raw(self, response: Response) -> float:
        """The reward of one response, in the units of the parts."""
        parts = sum(
            worth * response.text.count(letter)
            for letter, worth in zip(LETTERS, self.letters, strict=True)
        )
        digest = hashlib.blake2b(repr(response.tokens).encode(), digest_size=4).digest()
        rough = int.from_bytes(digest, "big") / 2**32
        gem = self.gem * (response.text == "aba" and response.finished)
        return parts + self.length * len(response) + self.roughness * rough + gem


@dataclass(frozen=True, slots=True)
class World:
    """An LM over the letters and a reward; hashable, so that what follows from it is cached.

    Attributes:
        table: next-token probabilities, a row each for the start and after a, b, c; columns a, b,
            c, end. Rows sum to 1.
        reward: the reward's parts.
        sharpness: power of the model's probability in the target, >= 1.
    """

    table: Table
    reward: RewardSpec
    sharpness: float = 1.0

    def lm(self) -> EnumerableLM:
        """The language model, enumerated (cached)."""
        return _lm(self.table)

    def score(self, response: Response) -> float:
        """r(y) in units of the rewards' standard deviation under p_LM, mean 0."""
        mean, spread = _moments(self)
        return (self.reward.raw(response) - mean) / (spread if spread > FLAT else 1.0)

    def chain(self, beta: float, rule: Rule = EXACT) -> ExactChain:
        """The whole chain at `beta` (in units of the rewards' spread) under a rule (cached)."""
        return _chain(self, float(beta), rule)


LANGUAGE_MODELS: dict[str, Table] = {
    "Mixed": (
        (0.40, 0.25, 0.20, 0.15),
        (0.10, 0.45, 0.15, 0.30),
        (0.30, 0.10, 0.35, 0.25),
        (0.05, 0.25, 0.20, 0.50),
    ),
    "Sure of itself": (
        (0.05, 0.05, 0.85, 0.05),
        (0.10, 0.10, 0.70, 0.10),
        (0.05, 0.10, 0.15, 0.70),
        (0.05, 0.80, 0.05, 0.10),
    ),
    "Long-winded": (
        (0.34, 0.33, 0.31, 0.02),
        (0.32, 0.32, 0.31, 0.05),
        (0.32, 0.32, 0.31, 0.05),
        (0.32, 0.32, 0.31, 0.05),
    ),
    "Every token alike": ((0.25, 0.25, 0.25, 0.25),) * 4,
    "All of one length": (
        (0.50, 0.30, 0.20, 0.00),
        (0.15, 0.65, 0.20, 0.00),
        (0.40, 0.15, 0.45, 0.00),
        (0.10, 0.50, 0.40, 0.00),
    ),
}

REWARDS: dict[str, RewardSpec] = {
    "Likes a, dislikes c": RewardSpec((1.0, 0.0, -1.0), 0.0, 1.5),
    "Likes short answers": RewardSpec((0.0, 0.0, 0.0), -1.0, 0.5),
    "Likes long answers": RewardSpec((0.0, 0.0, 0.0), 1.0, 0.5),
    "One hidden gem (aba)": RewardSpec((0.0, 0.0, 0.0), 0.0, 1.0, 1.2),
    "No pattern at all": RewardSpec((0.0, 0.0, 0.0), 0.0, 1.0),
}


def make_world(table: object, reward: RewardSpec, sharpness: float = 1.0) -> World:
    """A world from an edited table: weights >= 0, four rows of four, each divided by its sum.

    Raises:
        InvalidSetting: the table is not one, the sharpness is below 1, or nothing prefers any
            response: the reward is the same for all, and the sharpness is 1.
    """
    try:
        weights = np.asarray(table, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        weights = np.empty(0)
    if weights.shape != (4, 4):
        raise InvalidSetting(
            "the table of next tokens needs four rows of four numbers; one of them is missing "
            "or is not a number"
        )
    for name, row in zip(ROWS, weights, strict=True):
        if not np.all(row <= MOST) or row.min() < 0 or row.sum() <= 0:  # no NaN is <= MOST
            raise InvalidSetting(
                f"the next-token weights {name} are {row.tolist()}; give four numbers from 0 to "
                f"{MOST:,.0f} with at least one above 0"
            )
    parts = (*reward.letters, reward.length, reward.roughness, reward.gem)
    if not all(abs(part) <= MOST for part in parts):
        raise InvalidSetting(
            f"the parts of the reward must be finite numbers from -{MOST:,.0f} to {MOST:,.0f}, "
            f"got {short_repr(parts, 120)}"
        )
    rows = weights / weights.sum(axis=1, keepdims=True)
    sharpness = Target(1.0, sharpness).sharpness
    world = World(tuple(tuple(float(p) for p in row) for row in rows), reward, sharpness)
    if sharpness == 1.0 and _moments(world)[1] < FLAT:
        raise InvalidSetting(
            "this reward is the same for every response that the LM can give, so it prefers "
            "nothing; change one of its parts, or make the target sharper"
        )
    return world


def preset(language_model: str = "Mixed", reward: str = "Likes a, dislikes c") -> World:
    """A world by the names of its language model and its reward.

    Raises:
        InvalidSetting: no such name.
    """
    if language_model not in LANGUAGE_MODELS or reward not in REWARDS:
        raise InvalidSetting(
            f"no preset {language_model!r} with {reward!r}; language models are "
            f"{', '.join(LANGUAGE_MODELS)}, rewards are {', '.join(REWARDS)}"
        )
    return make_world(LANGUAGE_MODELS[language_model], REWARDS[reward])


def label(response: Response) -> str:
    """How a response is written in the lab: its letters, then `·` for EOS or `…` if cut off."""
    return response.text + (END if response.finished else "…")


@lru_cache(maxsize=64)
def _lm(table: Table) -> EnumerableLM:
    return EnumerableLM.markov(
        table[0], table[1:], pieces=(*LETTERS, "<eos>"), max_new_tokens=MAX_NEW_TOKENS, id="letters"
    )


@lru_cache(maxsize=256)
def _moments(world: World) -> tuple[float, float]:
    """Mean and standard deviation of the raw reward under p_LM."""
    lm = world.lm()
    raw = np.array([world.reward.raw(y) for y in lm.support])
    mean = float(lm.probabilities @ raw)
    return mean, math.sqrt(float(lm.probabilities @ (raw - mean) ** 2))


@lru_cache(maxsize=256)
def _chain(world: World, beta: float, rule: Rule) -> ExactChain:
    return exact_chain(world.lm(), world.score, Target(beta, world.sharpness), rule)


def by_reward(chain: ExactChain) -> Array:
    """Numbers of the states from the lowest reward to the highest, ties by number, shape [n]."""
    return np.argsort(chain.rewards, kind="stable").astype(np.int64)
