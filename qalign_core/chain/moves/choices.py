"""The random draws of one step of a chain: seeded integers, suffixes of the LM, and their cost."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from qalign_core.chain.checks import check_log_probs
from qalign_core.chain.moves.entropy import Entropies
from qalign_core.chain.randomness import StepAddress
from qalign_core.chain.sampling import draw_suffix
from qalign_core.errors import InvalidSetting
from qalign_core.protocols import LanguageModel
from qalign_core.types import Cost, Response
from qalign_core.validation import check_count, short_repr


def draw_index(length: int, u: float) -> int:
    """Map u in [0, 1) to an index in {0, ..., length-1}, uniformly (Eq. 4).

    The first `index` ids are kept: 0 rewrites everything, length-1 only the last id (EOS included).

    Raises:
        InvalidSetting: if length < 1 or u is outside [0, 1).
    """
    if length < 1:
        raise InvalidSetting(f"a response has at least 1 token, got length {length}")
    if not 0.0 <= u < 1.0:
        raise InvalidSetting(f"u must be in [0, 1), got {u}")
    # min: for a long response u * length can round up to length
    return min(int(u * length), length - 1)


class StepChoices:
    """All random draws of one step, and the tokens that they cost the language model.

    A draw depends on the address of the step, its role, the state and the models alone, so a step
    can be repeated at any time.

    Attributes:
        prompt_ids: token ids of the prompt.
        address: seed of the run, number of the chain, number of the step.
        max_new_tokens: the limit `L` on the length of a response, EOS included.
        cost: tokens of the LM so far.
    """

    def __init__(
        self,
        lm: LanguageModel,
        prompt_ids: Sequence[int],
        address: StepAddress,
        entropies: Entropies | None = None,
    ) -> None:
        self.prompt_ids, self.address = prompt_ids, address
        self.max_new_tokens = lm.max_new_tokens
        self.cost = Cost()
        self._lm: Any = lm
        self._roles: set[str] = set()
        self._entropies = entropies or Entropies(lm, prompt_ids)

    def at(self, t: int) -> "StepChoices":
        """Return the choices of step `t` of the same chain, with the same memory of entropies."""
        return StepChoices(self._lm, self.prompt_ids, replace(self.address, t=t), self._entropies)

    def _claim(self, role: str) -> str:
        if role in self._roles:  # the same address gives the same number again
            raise InvalidSetting(
                f"the move draws twice in the role {role!r} of one step; give each its own"
            )
        self._roles.add(role)
        return role

    def uniform(self, n: int, role: str = "index") -> int:
        """Draw a whole number, uniform over {0, ..., n-1}."""
        check_count("n of choices.uniform", n, 1)
        return draw_index(n, self.address.derive_uniform(self._claim(role)))

    def weighted(self, weights: Sequence[float], role: str = "index") -> int:
        """Draw an index with probability proportional to its weight."""
        if not (all(0 <= each < math.inf for each in weights) and sum(weights) > 0):
            raise InvalidSetting(
                f"choices.weighted got {short_repr(weights)}; give weights >= 0, one at least > 0"
            )
        *bounds, total = accumulate(weights)
        u = self.address.derive_uniform(self._claim(role)) * total
        return sum(bound <= u for bound in bounds)

    async def extend(
        self, y: Response, kept: int, *, until: frozenset[int] = frozenset(), role: str = "suffix"
    ) -> Response:
        """Keep the first `kept` ids of `y`; draw the rest, to the end or an id of `until`."""
        check_count("kept of choices.extend", kept, 0)
        prefix, log_probs = y.tokens[:kept], y.log_probs[:kept]
        seed = self.address.derive(self._claim(role))
        response = await draw_suffix(
            self._lm, self.prompt_ids, prefix, seed=seed, log_probs=log_probs, until=until
        )
        self.cost += Cost(generated=len(response) - kept)
        return response

    async def log_probs(self, before: tuple[int, ...], tokens: tuple[int, ...]) -> Sequence[float]:
        """Return ln of the probability, as sampled, of each of `tokens` after `before`."""
        if not tokens:
            return ()
        whole = (*before, *tokens)
        scores = await self._lm.score_tokens(self.prompt_ids, whole, top=0, first=len(before))
        self.cost += Cost(read=len(tokens))
        return [score.log_p for score in scores]

    async def entropies(self, y: Response) -> Sequence[float]:
        """Return the entropy of the next token, as sampled, at each of the |y| places, in nats."""
        return await self._entropies.along(y.tokens)

    def join(self, y: Response, tail: tuple[int, ...], log_probs: Sequence[float]) -> Response:
        """Return the response of the ids of `y` and a tail with these log-probabilities.

        Raises:
            ModelContractError: the model returned no log-probabilities for `y`.
        """
        check_log_probs(self._lm, y)
        joined: Response = self._lm.response((*y.tokens, *tail))
        return replace(joined, log_probs=(*y.log_probs, *log_probs))
