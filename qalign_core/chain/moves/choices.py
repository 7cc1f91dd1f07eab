"""The choices of a step of a real chain: addressed randomness, a model's draws, and their cost."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from qalign_core.chain.randomness import StepAddress
from qalign_core.chain.sampling import extend
from qalign_core.errors import InvalidSetting, ModelContractError
from qalign_core.protocols import LanguageModel
from qalign_core.types import Cost, Response


def draw_index(length: int, u: float) -> int:
    """Map u in [0, 1) to an index, uniform over {0, ..., length-1} (Eq. 4).

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


class StepChoices:
    """The choices of one step: a function of the step's address, so any step replays alone.

    Attributes:
        prompt_ids: token ids of the prompt.
        address: seed, chain and number of the step.
        max_new_tokens: the limit `L` on the length of a response, EOS included.
        cost: tokens of the LM so far. Entropies are by-products of drawing and cost nothing.
    """

    def __init__(self, lm: LanguageModel, prompt_ids: Sequence[int], address: StepAddress) -> None:
        self.prompt_ids, self.address = prompt_ids, address
        self.max_new_tokens = lm.max_new_tokens
        self.cost = Cost()
        self._lm: Any = lm
        self._roles: set[str] = set()
        self._entropies: dict[tuple[int, ...], tuple[float, ...]] = {}

    def at(self, t: int) -> "StepChoices":
        """The choices of step `t` of the same chain, which remember the entropies asked so far."""
        choices = StepChoices(self._lm, self.prompt_ids, replace(self.address, t=t))
        choices._entropies = self._entropies
        return choices

    def _role(self, role: str) -> str:
        if role in self._roles:  # the same address gives the same number again
            raise InvalidSetting(
                f"the move draws twice in the role {role!r} of one step; give each its own"
            )
        self._roles.add(role)
        return role

    def uniform(self, n: int, role: str = "index") -> int:
        """A whole number, uniform over {0, ..., n-1}."""
        return draw_index(n, self.address.uniform(self._role(role)))

    def weighted(self, weights: Sequence[float], role: str = "index") -> int:
        """A place, with probability in proportion to its weight."""
        *most, total = accumulate(weights)
        u = self.address.uniform(self._role(role)) * total
        return sum(up_to <= u for up_to in most)

    async def extend(
        self, y: Response, kept: int, *, until: frozenset[int] = frozenset(), role: str = "suffix"
    ) -> Response:
        """Keep the first `kept` ids of `y` and draw on, to the end or through an id of `until`."""
        prefix, log_probs = y.tokens[:kept], y.log_probs[:kept]
        seed = self.address.derive(self._role(role))
        drawn = await extend(
            self._lm, self.prompt_ids, prefix, seed=seed, log_probs=log_probs, until=until
        )
        self.cost += Cost(generated=len(drawn) - kept)
        return drawn

    async def log_probs(self, before: tuple[int, ...], tokens: tuple[int, ...]) -> Sequence[float]:
        """Natural log of the probability, as sampled, of each of `tokens` behind `before`."""
        whole = (*before, *tokens)
        weighed = await self._lm.weigh(self.prompt_ids, whole, top=0, first=len(before))
        self.cost += Cost(read=len(tokens))
        return [each.log_p for each in weighed]

    async def entropies(self, y: Response) -> Sequence[float]:
        """Entropy of the next token, as sampled, at each of the |y| places of `y`, in nats."""
        if y.tokens not in self._entropies:
            weighed = await self._lm.weigh(self.prompt_ids, y.tokens, top=0)
            if len(self._entropies) > 1:  # those of the state and of its proposal are enough
                self._entropies.pop(next(iter(self._entropies)))
            found = tuple(each.entropy for each in weighed)
            if None in found:
                raise ModelContractError(
                    f"{self._lm.id} returns no entropies, but the move entropy needs them; use a "
                    "model in this process, or move = suffix"
                )
            self._entropies[y.tokens] = found
        return self._entropies[y.tokens]

    def join(self, y: Response, tail: tuple[int, ...], log_probs: Sequence[float]) -> Response:
        """Return the response of the ids of `y` and a tail with these log-probabilities.

        Raises:
            ModelContractError: the model returned no log-probabilities for `y`.
        """
        if len(y.log_probs) != len(y):
            raise ModelContractError(
                f"{self._lm.id} returns no log-probabilities of what it samples, but a move that "
                "keeps a tail needs them; use a model in this process, or move = suffix"
            )
        joined: Response = self._lm.response((*y.tokens, *tail))
        return replace(joined, log_probs=(*y.log_probs, *log_probs))
