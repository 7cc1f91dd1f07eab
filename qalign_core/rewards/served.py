"""A reward model behind vLLM's `/classify`: the raw logit, of ids that were made here.

The server's default applies a sigmoid (7.84 became 0.9996), and a rendered text gets a second
BOS; so the activation is switched off, which is checked once, and ids are sent. The logit is that
of the last id, whatever it is (transformers takes the last that is not padding).
"""

import math
from functools import partial
from typing import Any

from qalign_core.errors import InvalidReward, ModelContractError, ModelLoadError
from qalign_core.models.served.client import ModelEndpoint, Served, expect
from qalign_core.rewards.templated import TemplatedRewardModel
from qalign_core.validation import is_finite, short_repr

_PATH = "/classify"
_PROBE = "Is 12 + 5 = 17?"


class ServedRewardModel(TemplatedRewardModel, Served):
    """A sequence-classification model with one output, on a server.

    Attributes:
        n_parameters: of the model if it was said, for FLOPs; else 0.

    Args:
        score_ids: as in `TemplatedRewardModel`.
    """

    kind = "rm"

    def __init__(
        self, endpoint: ModelEndpoint, *, id: str, n_parameters: int = 0, score_ids: bool = False
    ) -> None:
        super().__init__(endpoint.text, id=id, context=endpoint.card.context, score_ids=score_ids)
        self.n_parameters = n_parameters
        self._at = endpoint

    async def _logit(self, ids: tuple[int, ...]) -> float:
        return await self._at.server.post(_PATH, self._body(ids), partial(self._read, len(ids)))

    def probe(self) -> None:
        """Score a conversation too: what is given must be the raw logit."""
        super().probe()
        ids = self._text.conversation(_PROBE, "Yes.")
        raw, squashed = (
            self._at.server.ask(_PATH, self._body(ids, activation), partial(self._read, len(ids)))
            for activation in (False, True)
        )
        if math.isclose(raw, squashed, rel_tol=1e-9):
            raise ModelLoadError(
                f"{self._at.server.address} gives the same score with and without activation, so "
                "it may not be the raw one; update the server (vLLM's use_activation)"
            )

    def _body(self, ids: tuple[int, ...], activation: bool = False) -> dict[str, Any]:
        return {"model": self._at.card.name, "input": [list(ids)], "use_activation": activation}

    def _read(self, n_sent: int, answer: Any) -> float:
        """The one score of an answer, checked against what was sent.

        Raises:
            TransientError: it did not come through whole.
            ModelContractError: the server scored something else.
            InvalidReward: it is not one number.
        """
        address = self._at.server.address
        with expect("a score"):
            (scored,), usage = answer["data"], answer["usage"]
            scores, n_read = scored["probs"], usage["prompt_tokens"]
        if n_read != n_sent:
            raise ModelContractError(
                f"{address} read {short_repr(n_read)} ids where {n_sent} were sent; a server that "
                "changes or cuts a conversation cannot be used"
            )
        n = len(scores) if isinstance(scores, list) else 0
        if n != 1:
            raise InvalidReward(
                f"{address} has {n} outputs, but a reward model has 1; serve another model"
            )
        if not is_finite(scores[0]):
            raise InvalidReward(
                f"{address} gave {short_repr(scores[0])}; one finite number was expected"
            )
        return float(scores[0])
