"""The paper's move: keep a random prefix and draw the rest again (Eq. 4)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from qalign_core.chain.moves.move import Choices, Made, Proposal
from qalign_core.errors import InvalidSetting
from qalign_core.types import Response


def length_ratio(*, new: ArrayLike, old: ArrayLike) -> tuple[Any, Any]:
    """The terms of `log(|y| / |y'|)` from the lengths, EOS counted; elementwise for arrays.

    The reverse move draws its index from |y'| places, this one from |y|.

    Raises:
        InvalidSetting: a length is below 1.
    """
    if (np.minimum(new, old) < 1).any():
        raise InvalidSetting(f"a response has at least 1 token, got {new!r} and {old!r}")
    return np.log(old), -np.log(new)


@dataclass(frozen=True, slots=True)
class Suffix:
    """Draw an index uniformly over the |y| places, keep the ids before it, rewrite the rest."""

    async def propose(self, choices: Choices, y: Response) -> Made:
        """Make a proposal from the state `y`."""
        kept = choices.uniform(len(y))
        new = await choices.extend(y, kept)
        return Proposal(new, kept, length_ratio(new=len(new), old=len(y)))
