"""The interface of moves: a move makes a proposal from a state, with its correction.

A move has no randomness of its own. It draws only through `Choices`, so that an enumerable world
can replay every sequence of choices (`qalign_study.exact.moves`).
"""

from collections.abc import Sequence
from typing import Protocol

from qalign_core.types import MoveResult, Proposal, Response

__all__ = ["Choices", "Move", "MoveResult", "Proposal", "name_of", "needs_log_probs"]


class Choices(Protocol):
    """A move's source of randomness and model output; each choice in a step has its own role."""

    max_new_tokens: int
    """The limit `L` on the length of a response, EOS included."""

    def uniform(self, n: int, role: str = "index") -> int:
        """Draw a whole number, uniform over {0, ..., n-1}."""

    def weighted(self, weights: Sequence[float], role: str = "index") -> int:
        """Draw an index with probability proportional to its weight."""

    async def extend(
        self, y: Response, kept: int, *, until: frozenset[int] = frozenset(), role: str = "suffix"
    ) -> Response:
        """Keep the first `kept` ids of `y`; draw the rest, to the end or an id of `until`."""

    async def log_probs(self, before: tuple[int, ...], tokens: tuple[int, ...]) -> Sequence[float]:
        """Return ln of the probability, as sampled, of each of `tokens` after `before`."""

    async def entropies(self, y: Response) -> Sequence[float]:
        """Return the entropy of the next token, as sampled, at each of the |y| places, in nats."""

    def join(self, y: Response, tail: tuple[int, ...], log_probs: Sequence[float]) -> Response:
        """Return the response of the ids of `y` and a tail with these log-probabilities."""


class Move(Protocol):
    """Makes proposals; where it returns `NoProposal`, the state repeats.

    A move that reads the log-probabilities of the state declares `needs_log_probs = True`; a chain
    refuses such a move if its model returns no log-probabilities. `name` is its name in traces.
    """

    async def propose(self, choices: Choices, y: Response) -> MoveResult:
        """Make a proposal from the state `y`."""


def name_of(move: Move) -> str:
    """Return the name of a move in traces; empty if it has none."""
    return str(getattr(move, "name", ""))


def needs_log_probs(move: Move) -> bool:
    """True if the move declares that it reads the log-probabilities of the state."""
    return bool(getattr(move, "needs_log_probs", False))
