"""Several moves in one chain: each step draws a move with fixed weights."""

from dataclasses import dataclass, replace
from typing import Any

from qalign_core.chain.moves.move import Choices, Move, name_of, needs_log_probs
from qalign_core.chain.moves.own import own_move
from qalign_core.errors import ModelContractError
from qalign_core.move_spec import Part, move_kinds
from qalign_core.protocols import LanguageModel
from qalign_core.types import MoveResult, Response


@dataclass(frozen=True, slots=True)
class Mixture:
    """Moves and their weights. Each move keeps detailed balance, so the mixture does too.

    Attributes:
        moves: at least one.
        weights: one per move; they do not depend on the state.
    """

    moves: tuple[Move, ...]
    weights: tuple[float, ...]

    @property
    def needs_log_probs(self) -> bool:
        """True if one of the moves reads the log-probabilities of the state."""
        return any(map(needs_log_probs, self.moves))

    async def propose(self, choices: Choices, y: Response) -> MoveResult:
        """Draw a move and make its proposal, under its name."""
        move = self.moves[choices.weighted(self.weights, "move")]
        result = await move.propose(choices, y)
        return replace(result, move=result.move or name_of(move))


def move_of(parts: tuple[Part, ...], lm: LanguageModel) -> Move:
    """Return the move that a setting names, with delimiters as token ids of the model.

    Raises:
        ModelContractError: the model lacks a method that the move needs.
    """
    moves = tuple(_one(part, lm) for part in parts)
    return moves[0] if len(moves) == 1 else Mixture(moves, tuple(part.weight for part in parts))


def _one(part: Part, lm: Any) -> Move:
    if part.is_own:
        return own_move(part.name)
    kind = move_kinds()[part.name]
    if not all(hasattr(lm, name) for name in kind.methods):
        raise ModelContractError(
            f"{lm.id} returns no probabilities of given tokens, but the move {part.name} "
            "needs them; use a model in this process, or move = suffix"
        )
    move: Move = kind.build(lm, part.delimiter)
    return move
