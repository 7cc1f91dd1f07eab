"""What reward models of a chat template share, wherever they run: all but the logit."""

from abc import ABC, abstractmethod

from qalign_core.chain.checks import check_reward
from qalign_core.errors import InvalidPrompt
from qalign_core.models.chat import Text
from qalign_core.types import Response


class TemplatedRewardModel(ABC):
    """A `RewardModel` that reads a rendered conversation; subclasses compute its logit.

    Attributes:
        id: the name for traces.
        context_length: the longest conversation it can score (tokens).

    Args:
        score_ids: score the LM's own ids after the rendered prompt, EOS included, instead of
            rendering the text again; only for a pair that shares tokenizer and template, and only
            where the ids decode to the response's text.
    """

    def __init__(self, text: Text, *, id: str, context: int, score_ids: bool) -> None:
        self._text, self._score_ids = text, score_ids
        self.id, self.context_length = id, context

    async def score(self, prompt: str, response: Response) -> float:
        """The reward `r(x, y)` of the whole conversation, in the model's raw units.

        Raises:
            InvalidPrompt: the conversation is longer than the model can read; it is never cut.
            InvalidReward: the model returned something other than one finite number.
            EngineError: the model failed; other requests go on.
        """
        ids = self.render(prompt, response)
        if len(ids) > self.context_length:
            raise InvalidPrompt(
                f"the conversation has {len(ids)} tokens for {self.id}, which reads "
                f"{self.context_length}; shorten the prompt or lower the setting max_new_tokens"
            )
        return check_reward(await self._logit(ids), response, self)

    def render(self, prompt: str, response: Response) -> tuple[int, ...]:
        """Return the ids to score: of the text, rendered again, or with `score_ids` the LM's."""
        text = self._text
        if self._score_ids and text.decode(response.tokens) == response.text:
            return text.prompt(prompt) + response.tokens
        return text.conversation(prompt, response.text)

    @abstractmethod
    async def _logit(self, ids: tuple[int, ...]) -> float:
        """The model's one output for a conversation."""
