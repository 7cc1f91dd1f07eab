"""The entropy move: a suffix move that cuts more often where the model is uncertain."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from qalign_core.chain.moves.move import Choices
from qalign_core.errors import ModelContractError
from qalign_core.move_spec import move_kind
from qalign_core.types import MoveResult, Proposal, Response

EPSILON = 0.1
"""Nats added to the entropy of every place, so that each can be cut."""


class Entropies:
    """The entropies of one chain's last two texts: its state, and the proposal.

    They are a by-product of drawing and cost nothing.

    Args:
        lm: language model, with `score_tokens`.
        prompt_ids: token ids of the prompt.
    """

    def __init__(self, lm: Any, prompt_ids: Sequence[int]) -> None:
        self._lm, self._prompt_ids = lm, prompt_ids
        self._known: dict[tuple[int, ...], tuple[float, ...]] = {}

    async def along(self, tokens: tuple[int, ...]) -> tuple[float, ...]:
        """Return the entropy of the next token before each of `tokens`, in nats.

        Raises:
            ModelContractError: the model returns none.
        """
        if tokens not in self._known:
            scores = await self._lm.score_tokens(self._prompt_ids, tokens, top=0)
            entropies = tuple(score.entropy for score in scores)
            if None in entropies:
                raise ModelContractError(
                    f"{self._lm.id} returns no entropies, but the move entropy needs them; use a "
                    "model in this process, or move = suffix"
                )
            if len(self._known) > 1:
                self._known.pop(next(iter(self._known)))
            self._known[tokens] = entropies
        return self._known[tokens]


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
