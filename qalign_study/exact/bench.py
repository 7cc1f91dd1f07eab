"""Checks a move in exact worlds: its balance, and how fast it reaches its target.

Three worlds show what decides: how much the text behind a block depends on the block. The fourth
has texts of every length from 1 to 10.
"""

from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from qalign_core.chain.moves.block import Block
from qalign_core.chain.moves.move import Move
from qalign_core.target import Target
from qalign_core.types import Response
from qalign_study.exact.convergence import acceptance_rate_changed, second_eigenvalue
from qalign_study.exact.enumerable import EnumerableLM, Tokens
from qalign_study.exact.law import ExactChain, Rule, exact_chain, total_variation

PIECES = ("a", "b", ":", "<eos>")
LONGEST = 10
"""Tokens of the longest text of the world `lengths`."""
FIELDS = 4
"""Fields of the worlds whose texts have fields."""
RARE = 0.15
"""Probability of a b, which the reward prefers."""
TARGETS = (Target(0.5), Target(0.5, 2.5))
EXACT = 1e-12
"""Balance holds if no pair of states is further from it."""
REACHED = 1e-6
"""A limit is the target if it is no further away, in total variation."""


@lru_cache(maxsize=128)
def fields(copies: float, name: str) -> EnumerableLM:
    """Four fields, as in `b:a:a:b:`: each copies the one before it with this chance.

    Otherwise it is drawn again, b with probability 0.15; so each field alone is b that often.
    """

    def law(prefix: Tokens) -> list[float]:
        if len(prefix) == 2 * FIELDS:
            return [0.0, 0.0, 0.0, 1.0]
        if len(prefix) % 2:
            return [0.0, 0.0, 1.0, 0.0]
        b = RARE if not prefix else (1 - copies) * RARE + copies * (prefix[-2] == 1)
        return [1 - b, b, 0.0, 0.0]

    return EnumerableLM(law, pieces=PIECES, max_new_tokens=2 * FIELDS + 1, id=name)


def ragged() -> EnumerableLM:
    """Texts of many lengths with no pattern; some are cut at the limit."""
    rng = np.random.default_rng(5)

    @cache
    def law(prefix: Tokens) -> list[float]:
        return [*rng.dirichlet([1.0, 1.0, 1.0, 0.7])]

    return EnumerableLM(law, pieces=PIECES, max_new_tokens=4, id="ragged")


def lengths() -> EnumerableLM:
    """Few texts of every length from 1 to 10, with sentences, fields and lines; some are cut."""
    pieces = ("a", "b", ":", ".", "\n", "<eos>")
    places = ("ab", ":", "a", ".", "ab", ":", "\n", "b", ".", "a")

    def law(prefix: Tokens) -> list[float]:
        place = len(prefix)
        end = 0.1 + 0.1 * (place % 3)
        # behind "b:" the second field is never "b", so that a block can leave the rest impossible
        likely = 1.0 if place == 4 and prefix[0] == 1 else 0.6
        options = dict(zip(places[place], (likely, 1 - likely), strict=False))
        total = sum(options.values())
        return [*((1 - end) * options.get(piece, 0.0) / total for piece in pieces[:-1]), end]

    return EnumerableLM(law, pieces=pieces, max_new_tokens=LONGEST, id="lengths")


def prefers_b(y: Response) -> float:
    """One for every b, and a part without a pattern, so that no symmetry hides a mistake."""
    rough = float(np.random.default_rng([1, *y.tokens]).random())
    return float(y.text.count("b")) + 0.3 * rough


@lru_cache(maxsize=1)
def worlds() -> tuple[EnumerableLM, ...]:
    """All of them."""
    return fields(0.0, "separable"), fields(0.95, "dependent"), ragged(), lengths()


@dataclass(frozen=True, slots=True)
class InWorld:
    """A move in one world.

    Attributes:
        world: its name.
        lengths: the shortest and the longest text, in tokens.
        residual: the largest |pi_a T_ab - pi_b T_ba| over the targets.
        worst: texts of the pair where it is.
        gap: spectral gap at sharpness 1; None if balance fails.
        acceptance: of proposals that differ from the state, at sharpness 1.
        distance: total variation between target and limit at sharpness 1.
    """

    world: str
    lengths: tuple[int, int]
    residual: float
    worst: tuple[Response, Response]
    gap: float | None
    acceptance: float
    distance: float

    @property
    def is_exact(self) -> bool:
        """True if balance holds."""
        return self.residual <= EXACT


def in_world(lm: EnumerableLM, move: Move) -> InWorld:
    """Enumerate a move in a world, at both targets.

    Raises:
        InvalidSetting: it cannot be enumerated.
    """
    chains = [exact_chain(lm, prefers_b, target, Rule(move=move)) for target in TARGETS]
    residual, a, b = max(chain.worst_pair() for chain in chains)
    first = chains[0]
    tokens = [len(state) for state in first.states]
    return InWorld(
        lm.id,
        (min(tokens), max(tokens)),
        residual,
        (first.states[a], first.states[b]),
        1 - second_eigenvalue(first) if residual <= EXACT else None,
        acceptance_rate_changed(first),
        total_variation(first.limit(), first.target),
    )


@lru_cache(maxsize=512)
def chain_of_fields(copies: float, share: float) -> ExactChain:
    """The chain that rewrites a block in a share of its steps, and makes suffix moves otherwise.

    Args:
        copies: how often a field copies the one before it, 0 to 1.
        share: how often a step rewrites a block, 0 to 1.
    """
    lm = fields(copies, "fields")
    rule = Rule(move=Block(lm.delimiters(":")), share=share)
    return exact_chain(lm, prefers_b, TARGETS[0], rule)
