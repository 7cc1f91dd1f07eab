"""What the served models share: how a server is reached, and that its tokenizer is the one here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from qalign_core.errors import ModelLoadError
from qalign_core.models.loading import load_text
from qalign_core.models.served.client import Server
from qalign_core.models.text import Text
from qalign_core.reading import is_text, is_whole

PROBE = "Say one word, and 12 + 5 = 17: Zoë."


@dataclass(frozen=True, slots=True)
class Card:
    """What a server says of its model: name, where it was loaded from, its context (tokens)."""

    name: str
    root: str
    context: int

    @property
    def title(self) -> str:
        """The name, or of a path on the server only its last part."""
        return self.name.rstrip("/").rsplit("/", 1)[-1] if self.name[:1] in "/." else self.name


@dataclass(frozen=True, slots=True)
class Reached:
    """A model on a server, with its tokenizer from here and every id that ends a response."""

    server: Server
    card: Card
    text: Text
    eos: tuple[int, ...]


class Served(ABC):
    """What is on a server; `kind` is "lm" or "rm".

    Attributes:
        revision: "", since a server does not tell.
    """

    kind: ClassVar[str]
    revision = ""
    _at: Reached

    @abstractmethod
    def __init__(self, reached: Reached, *, id: str, **options: Any) -> None:
        """Take what was reached, under the name `id`."""

    @classmethod
    def connect(
        cls,
        address: str,
        *,
        id: str | None = None,
        tokenizer: str | None = None,
        revision: str | None = None,
        chat_template: str | None = None,
        rows: int = 64,
        timeout: float = 300.0,
        patience: float = 120.0,
        pause: float = 0.5,
        **options: Any,
    ) -> Self:
        """Connect to a server, and check that it does what is needed.

        Args:
            address: "http://host:port"; the key, if it wants one, is in `QALIGN_LM_KEY` or
                `QALIGN_RM_KEY`.
            id: name for traces; by default the model's on the server.
            tokenizer: folder or hub id of the tokenizer; by default where the server says that it
                loaded the model from.
            revision: of the tokenizer.
            chat_template: used if the tokenizer has none.
            rows, timeout, patience, pause: as in `Server`.
            options: of the class.

        Raises:
            ModelLoadError: one sentence that says what is wrong with the server.
        """
        server = Server(
            address, kind=cls.kind, rows=rows, timeout=timeout, patience=patience, pause=pause
        )
        card = server.ask("/v1/models", None, read_card)
        try:
            text, eos = load_text(
                tokenizer or card.root, revision=revision, chat_template=chat_template
            )
        except ModelLoadError as error:
            raise ModelLoadError(
                f"the tokenizer of {server.address}: {error} (--lm-tokenizer or --rm-tokenizer "
                "says where it is)"
            ) from error
        model = cls(Reached(server, card, text, eos), id=id or card.title, **options)
        model.probe()
        return model

    def probe(self) -> None:
        """Refuse a server that does not answer as it must; here, one with another tokenizer.

        Raises:
            ModelLoadError: one sentence that says what is wrong with it.
        """
        server, ids = self._at.server, list(self._at.text.tokenize(PROBE))
        body = {"model": self._at.card.name, "prompt": PROBE, "add_special_tokens": False}
        answer = server.ask("/tokenize", body, lambda answer: answer)
        if not isinstance(answer, dict) or answer.get("tokens") != ids:
            raise ModelLoadError(
                f"{server.address} tokenizes in another way than the tokenizer here; give the "
                "served model's own (--lm-tokenizer or --rm-tokenizer)"
            )

    def close(self) -> None:  # noqa: B027
        """Forget the server; it goes on for others."""


def read_card(answer: Any) -> Card:
    """The first model of `/v1/models`.

    Raises:
        ModelLoadError: the answer has none.
    """
    try:
        card = answer["data"][0]
        name, root = card["id"], card.get("root") or card["id"]
        context = card.get("max_model_len") or 2**31
        if not (is_text(name) and is_text(root) and is_whole(context, 2)):
            raise TypeError
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ModelLoadError(
            "the server names no model at /v1/models; an OpenAI-compatible one was expected"
        ) from error
    return Card(name, root, context)
