"""What language models with a chat template share, wherever they run: prompt and settings."""

from __future__ import annotations

import copy
from typing import Self

from qalign_core.models.checks import check_length, check_sampling
from qalign_core.models.text import Text
from qalign_core.run import Sampling


class TemplatedLanguageModel:
    """The part of a `LanguageModel` that does not depend on what draws its responses.

    Attributes:
        sampling: temperature, top-p, top-k and limit.
        context_length: prompt and response together (tokens).
    """

    sampling: Sampling
    context_length: int
    _text: Text

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
        check_length(len(ids), self.max_new_tokens, self.context_length)
        return ids

    @staticmethod
    def _checked(sampling: Sampling) -> Sampling:
        return check_sampling(sampling)
