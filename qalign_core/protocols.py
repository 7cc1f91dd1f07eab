"""The interfaces of the chain to models: two protocols and two kinds of function."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from qalign_core.types import Response


@dataclass(frozen=True, slots=True)
class TokenScore:
    """A token's probability under a model, as sampled, given the tokens before it.

    Attributes:
        log_p: natural log of its probability.
        others: the most probable tokens at this position, as texts, each with its natural log.
        entropy: entropy of the distribution at this position, in nats; None if unknown.
    """

    log_p: float
    others: tuple[tuple[str, float], ...]
    entropy: float | None = None


@runtime_checkable
class LanguageModel(Protocol):
    """A language model *as sampled*: temperature, top-k and top-p are part of the value.

    Optional attributes, used where present: `n_parameters: int` (for FLOPs),
    `sampling: Sampling` and `revision: str` (for the header of a trace),
    `context_length: int` (prompt and response together), `notes: tuple[str, ...]` (what a trace
    must say of it, such as that it is approximate), `spare_rows: int | None` (of a batch that runs,
    below 0 if it has too many, None if it never has any; the suffixes of coming steps are then
    drawn early, with `extend(..., on_token)`, which receives each new id as it is drawn).

    Optional methods: `score_tokens(prompt_ids, tokens, *, top, first=0)` returns a `TokenScore` per
    token of a given text, starting at `first`; the moves entropy and block need it. Block also
    needs `extend(..., until)`, which stops after the first drawn token of the set `until`,
    `delimiters(text)`, which returns that set, and `response(tokens)`, which returns the
    `Response` of ids. `extend_with_text(prefix, words, *, ended)` appends a user's own words.
    """

    @property
    def id(self) -> str:
        """What traces and errors call the model."""
        ...

    @property
    def max_new_tokens(self) -> int:
        """The limit `L` on the length of a response, EOS included."""
        ...

    def encode(self, prompt: str) -> tuple[int, ...]:
        """The prompt `x` as ids: chat template applied, ending where the response begins."""
        ...

    async def extend(
        self, prompt_ids: Sequence[int], prefix: Sequence[int], *, seed: int
    ) -> Response:
        """Draw the rest of a response, `y_{i:} ~ p_LM(. | x, y_{<i})`, and return all of it.

        Args:
            prompt_ids: what `encode` returned.
            prefix: the kept ids, without EOS; fewer than `max_new_tokens`.
            seed: 64 bits for this call; the same seed gives the same response. A chain derives
                them from the run's seed, the chain, the step and the role of the draw.

        Returns:
            prefix + new ids, at least one new, at most `max_new_tokens` in all; with `log_probs` of
            the new ids as sampled, where the model has them (a sharper target needs them).
        """
        ...


@runtime_checkable
class RewardModel(Protocol):
    """A reward model: one finite number, in its own raw units, for a whole response.

    Optional attributes, used where present: `n_parameters: int`, `revision: str`, and
    `n_read: chain.cost.Reading`, how many tokens it processes (by default the whole conversation).
    """

    @property
    def id(self) -> str:
        """What traces and errors call the model."""
        ...

    async def score(self, prompt: str, response: Response) -> float:
        """The reward `r(x, y)`, raw units of the model."""
        ...


OnToken = Callable[[int], None]
"""Receives each new id of a response while it is drawn, in the event loop of its request."""

Utility = Callable[[str, str], float]
"""`u(y, y')` of two response texts, in [0, 1]."""

AnswerExtractor = Callable[[str], str | None]
"""The final answer in a response text, in canonical form; None if there is none."""
