"""What a move is: it makes a proposal from a state, and knows the correction that goes with it."""

from dataclasses import dataclass
from typing import Protocol

from numpy.typing import ArrayLike

from qalign_core.chain.moves.choices import Choices
from qalign_core.types import Response


@dataclass(frozen=True, slots=True)
class Proposal:
    """A candidate state `y'`.

    Attributes:
        response: `y'`.
        kept: its first ids that were the state's.
        log_correction: terms that add up to `log q(y|y')/q(y'|y)` relative to the base LM.
    """

    response: Response
    kept: int
    log_correction: tuple[ArrayLike, ...]


class Move(Protocol):
    """How a proposal is made. All of its randomness comes through `choices`."""

    async def propose(self, choices: Choices, y: Response) -> Proposal:
        """Make a proposal from the state `y`."""
