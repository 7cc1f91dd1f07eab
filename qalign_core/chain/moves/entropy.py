"""The suffix move with its cut drawn by weight: where the model is unsure, more often."""

import math
from dataclasses import dataclass

from qalign_core.chain.moves.move import Choices, Made, Proposal
from qalign_core.types import Response

EPSILON = 0.1
"""Nats that every place has besides its entropy, so that each can be cut."""


@dataclass(frozen=True, slots=True)
class Entropy:
    """Draw the index in proportion to `w = EPSILON + entropy` of the next token there.

    A weight reads the prefix alone, so the correction is `log(W(y) / W(y'))`, `W(y) = sum w`
    (docs/method.md, "Moves"). With equal weights this is the paper's move.
    """

    async def propose(self, choices: Choices, y: Response) -> Made:
        """Make a proposal from the state `y`."""
        weights = [EPSILON + entropy for entropy in await choices.entropies(y)]
        kept = choices.weighted(weights)
        new = await choices.extend(y, kept)
        total = math.fsum(EPSILON + entropy for entropy in await choices.entropies(new))
        return Proposal(new, kept, (math.log(math.fsum(weights)), -math.log(total)))
