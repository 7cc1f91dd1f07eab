"""The entropy move: a suffix move that cuts more often where the model is uncertain."""

import math
from dataclasses import dataclass
from typing import ClassVar

from qalign_core.chain.moves.move import Choices, MoveResult, Proposal
from qalign_core.move_spec import move_kind
from qalign_core.types import Response

EPSILON = 0.1
"""Nats added to the entropy of every place, so that each can be cut."""


@move_kind(methods=("score_tokens",))
@dataclass(frozen=True, slots=True)
class Entropy:
    """Draw the index with weights `w = EPSILON + entropy` of the next token at each place.

    A weight depends on the prefix alone, so the correction is `log(W(y) / W(y'))`, `W(y) = sum w`
    (docs/method.md, "Moves"). With equal weights this is the paper's move.
    """

    name: ClassVar[str] = "entropy"

    async def propose(self, choices: Choices, y: Response) -> MoveResult:
        """Make a proposal from the state `y`."""
        weights = [EPSILON + entropy for entropy in await choices.entropies(y)]
        kept = choices.weighted(weights)
        new = await choices.extend(y, kept)
        total = math.fsum(EPSILON + entropy for entropy in await choices.entropies(new))
        return Proposal(new, kept, (math.log(math.fsum(weights)), -math.log(total)))
