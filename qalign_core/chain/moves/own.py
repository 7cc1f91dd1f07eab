"""A move from a user's file, `FILE.py:NAME`, checked at every step.

Only the command line and Python can load a file (`registry.load_move`); links and requests cannot.
"""

import hashlib
from pathlib import Path
from typing import Any

from qalign_core.chain.checks import check_move, check_result
from qalign_core.chain.moves.move import Choices
from qalign_core.errors import InvalidSetting, ModelContractError, QAlignError
from qalign_core.types import MoveResult, Response
from qalign_core.validation import first_line


class OwnMove:
    """A move from a user's file; its mistakes become one-line errors.

    Args:
        move: an object with `async propose(choices, y)`.
        place: "FILE.py:NAME".

    Attributes:
        name: the place, its name in traces.
        needs_log_probs: True if it reads the log-probabilities of the state, the default unless
            the move declares otherwise.
        revision: hash of the file.
        note: the sentence about the move in a trace; `certify` sets it.

    Raises:
        InvalidSetting: it has no coroutine method `propose`.
    """

    def __init__(self, move: Any, place: str) -> None:
        self.move, self.place = move, place
        self.name = place
        self.needs_log_probs = bool(getattr(self.move, "needs_log_probs", True))
        self.revision = hashlib.sha256(Path(place.rpartition(":")[0]).read_bytes()).hexdigest()
        self.note = f"the move {place} is not certified"
        check_move(move, place)

    async def propose(self, choices: Choices, y: Response) -> MoveResult:
        """Make a proposal from the state `y`."""
        try:
            result = await self.move.propose(choices, y)
        except QAlignError:
            raise
        except (Exception, SystemExit) as error:
            problem = f"{type(error).__name__}: {first_line(error)}"
            raise InvalidSetting(f"{self.place} failed with {problem}; fix the move") from error
        return check_result(result, y, self.place)


OWN_MOVES: dict[str, OwnMove] = {}
"""The loaded moves of this process, by place."""


def own_move(place: str) -> OwnMove:
    """Return a move that this process has loaded.

    Raises:
        ModelContractError: it has not been loaded.
    """
    if place not in OWN_MOVES:
        raise ModelContractError(
            f"the move {place} is a file of one's own, which only the command line and "
            "`load_move` run; choose suffix, entropy or a mix such as suffix+block(:)"
        )
    return OWN_MOVES[place]
