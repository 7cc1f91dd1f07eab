"""What a move is: it makes a proposal from a state, and knows the correction that goes with it.

A move never draws by itself. All of its randomness comes through `Choices`, so that an exact world
can replay every sequence of choices (`qalign_study.exact.moves`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from numpy.typing import ArrayLike

from qalign_core.types import NoProposal, Response


@dataclass(frozen=True, slots=True)
class Proposal:
    """A candidate state `y'`.

    Attributes:
        response: `y'`.
        kept: how many of its first ids were the state's.
        log_correction: terms that add up to the log of the move's correction.
        kept_again: how many of its last ids were the state's too.
    """

    response: Response
    kept: int
    log_correction: tuple[ArrayLike, ...]
    kept_again: int = 0


Made = Proposal | NoProposal


class Choices(Protocol):
    """All that a move draws through. Each choice of a step has a role of its own."""

    max_new_tokens: int
    """The limit `L` on the length of a response, EOS included."""

    def uniform(self, n: int, role: str = "index") -> int:
        """A whole number, uniform over {0, ..., n-1}."""

    def weighted(self, weights: Sequence[float], role: str = "index") -> int:
        """A place, with probability in proportion to its weight."""

    async def extend(
        self, y: Response, kept: int, *, until: frozenset[int] = frozenset(), role: str = "suffix"
    ) -> Response:
        """Keep the first `kept` ids of `y` and draw on, to the end or through an id of `until`."""

    async def log_probs(self, before: tuple[int, ...], tokens: tuple[int, ...]) -> Sequence[float]:
        """Natural log of the probability, as sampled, of each of `tokens` behind `before`."""

    async def entropies(self, y: Response) -> Sequence[float]:
        """Entropy of the next token, as sampled, at each of the |y| places of `y`, in nats."""

    def join(self, y: Response, tail: tuple[int, ...], log_probs: Sequence[float]) -> Response:
        """The response of the ids of `y` and a tail with these log-probabilities."""


class Move(Protocol):
    """How a proposal is made; where it can make none, it refuses and the state repeats.

    A move that reads the log-probabilities of the state declares `needs_log_probs = True`; a chain
    on a model that returns none then refuses it.
    """

    async def propose(self, choices: Choices, y: Response) -> Made:
        """Make a proposal from the state `y`."""


def needs_log_probs(move: Move) -> bool:
    """True if the move declares that it reads the log-probabilities of the state."""
    return bool(getattr(move, "needs_log_probs", False))
