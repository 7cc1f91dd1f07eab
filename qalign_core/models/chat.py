"""What language models with a chat template share, wherever they run: all but the drawing."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

from qalign_core.errors import InvalidPrompt, InvalidSetting, ModelContractError, ModelLoadError
from qalign_core.models.text import Text
from qalign_core.reading import is_finite, is_whole, shown
from qalign_core.run import Sampling
from qalign_core.types import Response


class TemplatedLanguageModel(ABC):
    """A `LanguageModel` with a chat template; what draws its responses is left to subclasses.

    Attributes:
        id: the name for traces.
        eos: every id that ends a response.
        sampling: temperature, top-p, top-k and limit.
        context_length: prompt and response together (tokens).

    Raises:
        ModelLoadError: nothing ends a response.
        InvalidSetting: the settings are out of range.
    """

    def __init__(
        self, text: Text, eos: Sequence[int], *, id: str, context: int, sampling: Sampling | None
    ) -> None:
        if not eos:
            raise ModelLoadError(f"{id} names no end-of-sequence token, so responses would not end")
        self._text, self.eos = text, tuple(eos)
        self.id, self.context_length = id, context
        self.sampling = self._checked(sampling or Sampling())

    @property
    def max_new_tokens(self) -> int:
        """The limit `L` on the length of a response, EOS included."""
        return self.sampling.max_new_tokens

    def with_sampling(self, sampling: Sampling) -> Self:
        """The same model under other settings: another base distribution.

        Raises:
            InvalidSetting: the settings are out of range.
        """
        view = copy.copy(self)
        view.sampling = self._checked(sampling)
        return view

    def encode(self, prompt: str) -> tuple[int, ...]:
        """The prompt `x`: chat template applied once, ending where the response begins.

        Raises:
            InvalidPrompt: empty, or prompt and response together exceed the context.
        """
        ids = self._text.prompt(prompt)
        self._check_prompt(ids)
        return ids

    async def extend(
        self, prompt_ids: Sequence[int], prefix: Sequence[int], *, seed: int
    ) -> Response:
        """Draw `y_{i:} ~ p_LM(. | x, y_{<i})` and return all of `y` (§MCMC for Text Generation).

        Raises:
            InvalidPrompt: prompt and response together exceed the context.
            ModelContractError: the prefix is as long as a response may be, or has ended; or what
                draws did not keep to it.
            EngineError: what draws failed.
        """
        self._check_prompt(prompt_ids)
        limit = self.max_new_tokens
        if len(prefix) >= limit or any(token in self.eos for token in prefix):
            raise ModelContractError(
                f"a prefix of {len(prefix)} ids cannot be continued: it must be shorter than "
                f"max_new_tokens = {limit} and hold no end-of-sequence id"
            )
        new, finished = await self._draw([*prompt_ids, *prefix], limit - len(prefix), seed)
        tokens = (*prefix, *new)
        text, pieces = self._text.pieces(tokens)
        return Response(tokens, text, finished, pieces)

    @abstractmethod
    async def _draw(self, ids: list[int], most: int, seed: int) -> tuple[Sequence[int], bool]:
        """At most `most` ids that continue the given ones, and whether they ended by themselves."""

    def _check_prompt(self, ids: Sequence[int]) -> None:
        n, limit, context = len(ids), self.max_new_tokens, self.context_length
        if n == 0:
            raise InvalidPrompt("the prompt has no tokens; type a question or a task")
        if n + limit > context:
            raise InvalidPrompt(
                f"the prompt has {n} tokens and the response may have {limit}, together more "
                f"than the context of {context}; shorten the prompt or lower max_new_tokens"
            )

    @staticmethod
    def _checked(sampling: Sampling) -> Sampling:
        return check_sampling(sampling)


def check_sampling(sampling: Sampling) -> Sampling:
    """The settings, if each is in its range.

    Raises:
        InvalidSetting: one is not.
    """
    temperature, top_p = sampling.temperature, sampling.top_p
    if not (is_finite(temperature) and temperature > 0):
        raise InvalidSetting(f"temperature must be > 0, got {shown(temperature)}")
    if not (is_finite(top_p) and 0 < top_p <= 1):
        raise InvalidSetting(f"top_p must be in (0, 1], 1 is off; got {shown(top_p)}")
    if not is_whole(sampling.top_k, 0):
        raise InvalidSetting(f"top_k must be >= 0, 0 is off; got {shown(sampling.top_k)}")
    if not is_whole(sampling.max_new_tokens, 1):
        raise InvalidSetting(f"max_new_tokens must be >= 1, got {shown(sampling.max_new_tokens)}")
    return sampling
