"""The paper's move: keep a random prefix and draw the rest again (Eq. 4).

Why the chain is exact: let y and y' have the same first i ids. The move goes from y to y' with
probability `p(y' | first i ids) / |y|`, and back with `p(y | first i ids) / |y'|`. The target's
ratio is `p(y')/p(y) * exp((r'-r)/beta)`. The first i ids are as probable in y as in y', so p
cancels in `alpha = min(1, exp((r'-r)/beta) |y|/|y'|)`. Detailed balance holds for each i, hence for
their sum; i = 0 reaches every response. The correction is what the lengths add to the log of alpha:

    >>> log_correction = length_ratio(new=10, old=12)
    >>> round(float(sum(log_correction)), 4)  # log(12 / 10)
    0.1823
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from qalign_core.chain.moves.move import Choices
from qalign_core.errors import InvalidSetting
from qalign_core.move_spec import SUFFIX, move_kind
from qalign_core.types import MoveResult, Proposal, Response


def length_ratio(*, new: ArrayLike, old: ArrayLike) -> tuple[Any, Any]:
    """Return the terms of `log(|y| / |y'|)` from the lengths, EOS included; elementwise for arrays.

    Raises:
        InvalidSetting: a length is below 1.
    """
    if (np.minimum(new, old) < 1).any():
        raise InvalidSetting(f"a response has at least 1 token, got {new!r} and {old!r}")
    return np.log(old), -np.log(new)


@move_kind()
@dataclass(frozen=True, slots=True)
class Suffix:
    """Draw an index uniformly over the |y| places, keep the ids before it, draw the rest again."""

    name: ClassVar[str] = SUFFIX

    async def propose(self, choices: Choices, y: Response) -> MoveResult:
        """Make a proposal from the state `y`."""
        kept = choices.uniform(len(y))
        new = await choices.extend(y, kept)
        return Proposal(new, kept, length_ratio(new=len(new), old=len(y)))
