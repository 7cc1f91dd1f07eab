"""A reward model behind vLLM's `/classify`: the raw logit, of ids that were made here.

The server's default applies a sigmoid (7.84 became 0.9996), and a rendered text gets a second
BOS; so the activation is switched off, which is checked once, and ids are sent. The logit is that
of the last id, whatever it is (transformers takes the last that is not padding).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

from qalign_core.errors import InvalidPrompt, InvalidReward, ModelContractError, ModelLoadError
from qalign_core.models.served.client import Garbled, Server
from qalign_core.models.served.language_model import Card, check_tokenizer, read_card, served_text
from qalign_core.models.text import Text
from qalign_core.reading import is_finite, shown
from qalign_core.types import Response

_PATH = "/classify"
_PROBE = "Is 12 + 5 = 17?"


class ServedRewardModel:
    """A sequence-classification model with one output, on a server.

    Attributes:
        id: the name for traces.
        revision: "", since a server does not tell.
        n_parameters: of the model if it was said, for FLOPs; else 0.
        context_length: the longest conversation it can score (tokens).

    Args:
        score_ids: as in `HFRewardModel`.
    """

    revision = ""

    def __init__(
        self,
        server: Server,
        card: Card,
        text: Text,
        *,
        id: str,
        n_parameters: int = 0,
        score_ids: bool = False,
    ) -> None:
        self.id = id
        self.n_parameters = n_parameters
        self.context_length = card.context
        self._server, self._name, self._text = server, card.name, text
        self._score_ids = score_ids

    @classmethod
    def connect(
        cls,
        address: str,
        *,
        id: str | None = None,
        tokenizer: str | None = None,
        revision: str | None = None,
        chat_template: str | None = None,
        n_parameters: int = 0,
        score_ids: bool = False,
        **options: Any,
    ) -> Self:
        """Connect to a server, and check that it gives raw scores; arguments as for the LM's.

        Raises:
            ModelLoadError: one sentence that says what is wrong with the server.
        """
        server = Server(address, kind="rm", **options)
        card = server.ask("/v1/models", None, read_card)
        text, _ = served_text(server, tokenizer or card.root, revision, chat_template)
        known: dict[str, Any] = {"n_parameters": n_parameters, "score_ids": score_ids}
        rm = cls(server, card, text, id=id or card.title, **known)
        rm._probe()
        return rm

    async def score(self, prompt: str, response: Response) -> float:
        """The reward `r(x, y)` of the whole conversation, in the model's raw units.

        Raises:
            InvalidPrompt: the conversation is longer than the model can read; it is never cut.
            InvalidReward: the model returned something other than one finite number.
            EngineError: the server refused, or failed for too long.
        """
        ids = self.render(prompt, response)
        if len(ids) > self.context_length:
            raise InvalidPrompt(
                f"the conversation has {len(ids)} tokens for {self.id}, which reads "
                f"{self.context_length}; shorten the prompt or lower max_new_tokens"
            )
        reward: float = await self._server.post(_PATH, self._body(ids), self._reader(len(ids)))
        return reward

    def render(self, prompt: str, response: Response) -> tuple[int, ...]:
        """The ids that are scored."""
        return self._text.scored(prompt, response, as_ids=self._score_ids)

    def close(self) -> None:
        """Forget the server; it goes on for others."""

    def _probe(self) -> None:
        check_tokenizer(self._server, self._name, self._text)
        ids = self._text.conversation(_PROBE, "Yes.")
        raw, squashed = (
            self._server.ask(_PATH, self._body(ids, activation), self._reader(len(ids)))
            for activation in (False, True)
        )
        if math.isclose(raw, squashed, rel_tol=1e-9):
            raise ModelLoadError(
                f"{self._server.address} gives the same score with and without activation, so it "
                "may not be the raw one; update the server (vLLM's use_activation)"
            )

    def _body(self, ids: tuple[int, ...], activation: bool = False) -> dict[str, Any]:
        return {"model": self._name, "input": [list(ids)], "use_activation": activation}

    def _reader(self, n_sent: int) -> Callable[[Any], float]:
        return lambda answer: _read(answer, n_sent, self._server.address)


def _read(answer: Any, n_sent: int, address: str) -> float:
    """The one score of an answer, checked against what was sent.

    Raises:
        Garbled: it did not come through whole.
        ModelContractError: the server scored something else.
        InvalidReward: it is not one number.
    """
    try:
        (scored,), usage = answer["data"], answer["usage"]
        scores, n_read = scored["probs"], usage["prompt_tokens"]
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise Garbled("an answer without a score") from error
    if n_read != n_sent:
        raise ModelContractError(
            f"{address} read {shown(n_read)} ids where {n_sent} were sent; a server that changes "
            "or cuts a conversation cannot be used"
        )
    n = len(scores) if isinstance(scores, list) else 0
    if n != 1:
        raise InvalidReward(f"{address} has {n} outputs, a reward model has 1; serve another model")
    if not is_finite(scores[0]):
        raise InvalidReward(f"{address} gave {shown(scores[0])}, a reward is one finite number")
    return float(scores[0])
