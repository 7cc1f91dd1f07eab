"""All that a move draws through: each choice is named, and can be replayed by an exact world."""

from collections.abc import Sequence

from qalign_core.chain.randomness import At
from qalign_core.chain.sampling import extend
from qalign_core.errors import InvalidSetting
from qalign_core.protocols import LanguageModel
from qalign_core.types import Response


def draw_index(length: int, u: float) -> int:
    """Map u in [0, 1) to an index, uniform over {0, ..., length-1} (Eq. proposal).

    The first `index` ids are kept; 0 rewrites everything, length-1 only the last id, EOS included.

    Raises:
        InvalidSetting: if length < 1 or u is outside [0, 1).
    """
    if length < 1:
        raise InvalidSetting(f"a response has at least 1 token, got length {length}")
    if not 0.0 <= u < 1.0:
        raise InvalidSetting(f"u must be in [0, 1), got {u}")
    # min: for a long response u * length can round up to length
    return min(int(u * length), length - 1)


class Choices:
    """The choices of one step: a function of the step's address, so any step replays alone."""

    def __init__(self, lm: LanguageModel, prompt_ids: Sequence[int], at: At) -> None:
        self._lm, self._prompt_ids, self._at = lm, prompt_ids, at

    def index(self, n: int) -> int:
        """A whole number, uniform over {0, ..., n-1}."""
        return draw_index(n, self._at.uniform("index"))

    async def extend(self, y: Response, kept: int) -> Response:
        """Keep the first `kept` ids of `y` and draw the rest again, checked."""
        prefix, log_probs = y.tokens[:kept], y.log_probs[:kept]
        seed = self._at.derive("suffix")
        return await extend(self._lm, self._prompt_ids, prefix, seed=seed, log_probs=log_probs)
