"""A language model behind vLLM's `/v1/completions`, with token ids both ways.

Text would have to be tokenised again to continue it, and comes back as other ids: 12 sampled ids
became 16. So a server must take ids and return them, and what it echoes is checked in every answer.
A server that takes text only can be used if that is asked for, and everything is then labelled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from qalign_core.errors import InvalidSetting, ModelContractError, ModelLoadError
from qalign_core.models.chat import TemplatedLanguageModel
from qalign_core.models.checks import check_length, check_prefix, check_sampling
from qalign_core.models.loading import load_text
from qalign_core.models.served.client import Garbled, Server
from qalign_core.models.text import Text
from qalign_core.reading import are_ids, is_text, is_whole, shown
from qalign_core.run import Sampling
from qalign_core.types import Response

_PATH = "/v1/completions"
_PROBE = "Say one word, and 12 + 5 = 17: Zoë."
_COLDEST = 0.01  # vLLM raises what is below to this, and another temperature is another base


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


class ServedLanguageModel(TemplatedLanguageModel):
    """A causal LM as sampled, on a server. Views made by `with_sampling` share one client.

    Attributes:
        id: the name for traces.
        revision: "", since a server does not tell.
        sampling: temperature, top-p, top-k and limit; all are sent with every request, and all
            else that could bend the distribution is switched off.
        n_parameters: of the model if it was said, for FLOPs; else 0.
        context_length: prompt and response together (tokens).
        notes: what a trace must say of it.
    """

    revision = ""
    notes: tuple[str, ...] = ()

    def __init__(
        self,
        server: Server,
        card: Card,
        text: Text,
        eos: Sequence[int],
        *,
        id: str,
        sampling: Sampling | None = None,
        n_parameters: int = 0,
    ) -> None:
        if not eos:
            raise ModelLoadError(f"{id} names no end-of-sequence token, so responses would not end")
        self.id = id
        self.n_parameters = n_parameters
        self.context_length = card.context
        self.eos = tuple(eos)
        self._server, self._name, self._text = server, card.name, text
        self.sampling = self._checked(sampling or Sampling())

    @classmethod
    def connect(
        cls,
        address: str,
        *,
        id: str | None = None,
        tokenizer: str | None = None,
        revision: str | None = None,
        chat_template: str | None = None,
        sampling: Sampling | None = None,
        n_parameters: int = 0,
        approximate: bool = False,
        **options: Any,
    ) -> ServedLanguageModel:
        """Connect to a server, and check that it does what the chain needs.

        Args:
            address: "http://host:port"; the key, if it wants one, is in `QALIGN_LM_KEY`.
            id: name for traces; by default the model's on the server.
            tokenizer: folder or hub id of the tokenizer; by default where the server says that it
                loaded the model from.
            revision: of the tokenizer.
            chat_template: used if the tokenizer has none.
            sampling: how it is sampled.
            n_parameters: of the model, which no server tells.
            approximate: send text to a server that cannot take ids (`RetokenisedLanguageModel`).
            options: of `Server`: rows, timeout, patience, pause.

        Raises:
            ModelLoadError: one sentence that says what is wrong with the server.
        """
        server = Server(address, kind="lm", **options)
        card = server.ask("/v1/models", None, read_card)
        text, eos = served_text(server, tokenizer or card.root, revision, chat_template)
        kind = RetokenisedLanguageModel if approximate else cls
        known: dict[str, Any] = {"sampling": sampling, "n_parameters": n_parameters}
        lm = kind(server, card, text, eos, id=id or card.title, **known)
        lm._probe()
        return lm

    @staticmethod
    def _checked(sampling: Sampling) -> Sampling:
        if sampling.temperature < _COLDEST:
            raise InvalidSetting(
                f"temperature must be >= {_COLDEST:g} on a server, which would silently raise a "
                f"lower one, got {sampling.temperature}"
            )
        return check_sampling(sampling)

    async def extend(
        self, prompt_ids: Sequence[int], prefix: Sequence[int], *, seed: int
    ) -> Response:
        """Draw `y_{i:} ~ p_LM(. | x, y_{<i})` and return all of `y` (§MCMC for Text Generation).

        Raises:
            InvalidPrompt: prompt and response together exceed the context.
            ModelContractError: the prefix cannot be continued, or the server did not keep to it.
            EngineError: the server refused, or failed for too long.
        """
        check_length(len(prompt_ids), self.max_new_tokens, self.context_length)
        check_prefix(prefix, self.max_new_tokens, self.eos)
        sent, most = [*prompt_ids, *prefix], self.max_new_tokens - len(prefix)
        body = self._body(sent, most, seed)
        new = await self._server.post(_PATH, body, self._reader(sent, most))
        tokens = (*prefix, *new)
        text, pieces = self._text.pieces(tokens)
        return Response(tokens, text, tokens[-1] in self.eos, pieces)

    def close(self) -> None:
        """Forget the server; it goes on for others."""

    def _probe(self) -> None:
        check_tokenizer(self._server, self._name, self._text)
        sent = list(self._text.prompt(_PROBE))
        self._server.ask(_PATH, self._body(sent, 1, 0), self._reader(sent, 1))

    def _body(self, sent: list[int], most: int, seed: int) -> dict[str, Any]:
        """The request; what is left out would follow the server's defaults, so nothing is."""
        return {
            "model": self._name,
            "prompt": sent,
            "max_tokens": most,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "top_k": self.sampling.top_k,
            "min_p": 0,
            "repetition_penalty": 1,
            "presence_penalty": 0,
            "frequency_penalty": 0,
            "watermarking": False,
            "seed": seed % 2**63,
            "stop_token_ids": list(self.eos),
            "return_token_ids": True,
        }

    def _reader(self, sent: list[int], most: int) -> Callable[[Any], tuple[int, ...]]:
        known, place = self._text.n_tokens, self._server.address
        return lambda answer: _read(answer, sent, most, self.eos, known, place)


class RetokenisedLanguageModel(ServedLanguageModel):
    """Approximate: a server that takes text only, where prefixes are tokenised again on the way.

    A prefix that comes out as other ids is a move that the acceptance ratio does not know of, so
    detailed balance holds only as far as that is rare. `notes` says how often it was.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._count = [0, 0]  # prefixes sent, and those that came out different

    @property
    def notes(self) -> tuple[str, ...]:  # type: ignore[override]
        """The label of everything that was drawn so, with the count of changed prefixes."""
        sent, changed = self._count
        label = "approximate: prefixes re-tokenised"
        return (f"{label}, {changed} of {sent} came back different" if sent else label,)

    async def extend(
        self, prompt_ids: Sequence[int], prefix: Sequence[int], *, seed: int
    ) -> Response:
        """Draw the rest of a response as text; as in `ServedLanguageModel`, but approximate."""
        check_length(len(prompt_ids), self.max_new_tokens, self.context_length)
        check_prefix(prefix, self.max_new_tokens, self.eos)
        tokens, finished, asked = list(prefix), False, 0
        sent = [*prompt_ids, *prefix]
        self._count[0] += 1
        self._count[1] += list(self._text.tokenize(self._text.decode(sent, special=True))) != sent
        while not finished and len(tokens) < self.max_new_tokens:
            most = self.max_new_tokens - len(tokens)
            text = self._text.decode([*prompt_ids, *tokens], special=True)
            body = self._text_body(text, most, seed + asked)
            new, ended = await self._server.post(_PATH, body, self._read_text)
            ids = self._text.tokenize(new)[:most]
            tokens += ids
            finished = ended and len(ids) < most
            if finished:
                tokens.append(self.eos[0])
            elif not ids:
                raise ModelContractError(
                    f"{self._server.address} returned no text for a response that has not ended; "
                    "use a server that takes token ids"
                )
            asked += 1
        text, pieces = self._text.pieces(tokens)
        return Response(tuple(tokens), text, finished, pieces)

    def _probe(self) -> None:
        self._server.ask(_PATH, self._text_body(_PROBE, 1, 0), self._read_text)

    def _text_body(self, text: str, most: int, seed: int) -> dict[str, Any]:
        """The request in the words that all servers know."""
        sampling = self.sampling
        if sampling.top_k:
            raise InvalidSetting("top_k cannot be asked of a server that takes text only; leave it")
        return {
            "model": self._name,
            "prompt": text,
            "max_tokens": most,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": seed % 2**31,
        }

    def _read_text(self, answer: Any) -> tuple[str, bool]:
        try:
            choice = answer["choices"][0]
            text, reason = choice["text"], choice["finish_reason"]
        except (KeyError, IndexError, TypeError) as error:
            raise Garbled("an answer without a completion") from error
        if not is_text(text) or reason not in ("stop", "length"):
            raise Garbled(f"a completion that broke off ({shown(reason)})")
        return text, reason == "stop"


def _read(
    answer: Any, sent: list[int], most: int, eos: Sequence[int], n_tokens: int, address: str
) -> tuple[int, ...]:
    """The new ids of an answer, checked against what was sent.

    Raises:
        Garbled: it did not come through whole.
        ModelContractError: the server does something else than what was asked.
    """
    try:
        choice, usage = answer["choices"][0], answer["usage"]
        echoed, new = choice.get("prompt_token_ids"), choice.get("token_ids")
        reason, n_sent, n_new = (
            choice["finish_reason"],
            usage["prompt_tokens"],
            usage["completion_tokens"],
        )
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise Garbled("an answer without a completion") from error
    if not isinstance(echoed, list) or not isinstance(new, list):
        raise ModelContractError(
            f"{address} takes or returns no token ids (return_token_ids), so a kept prefix would "
            "be tokenised again; use vLLM, or ask for the approximate mode (--approximate)"
        )
    if echoed != sent or n_sent != len(sent):
        raise ModelContractError(
            f"{address} read {shown(n_sent)} prompt ids where {len(sent)} were sent, or others; "
            "a server that changes ids cannot be used"
        )
    if reason not in ("stop", "length") or len(new) != n_new or not new:
        raise Garbled(f"a completion that broke off after {len(new)} of {shown(n_new)} ids")
    if not are_ids(new, n_tokens):
        raise ModelContractError(
            f"{address} returned {shown(new)} where ids from 0 to {n_tokens - 1} were expected; "
            "serve the model whose tokenizer is used here"
        )
    ends = [token in eos for token in new]
    if any(ends[:-1]) or len(new) > most or (not ends[-1] and len(new) < most):
        raise ModelContractError(
            f"{address} returned {len(new)} ids that end by {shown(reason)}, with an EOS at "
            f"{ends.index(True) + 1 if any(ends) else 'no place'}; up to the first EOS or "
            f"{most} ids were asked for"
        )
    return tuple(new)


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


def served_text(
    server: Server, source: str, revision: str | None, chat_template: str | None
) -> tuple[Text, tuple[int, ...]]:
    """The tokenizer that goes with a server, and the EOS ids.

    Raises:
        ModelLoadError: it is not to be had from here.
    """
    try:
        return load_text(source, revision=revision, chat_template=chat_template)
    except ModelLoadError as error:
        raise ModelLoadError(
            f"the tokenizer of {server.address}: {error} (--lm-tokenizer or --rm-tokenizer says "
            "where it is)"
        ) from error


def check_tokenizer(server: Server, name: str, text: Text) -> None:
    """Refuse a tokenizer that is not the server's: the same text must give the same ids.

    Raises:
        ModelLoadError: it does not.
    """
    body = {"model": name, "prompt": _PROBE, "add_special_tokens": False}
    answer = server.ask("/tokenize", body, lambda answer: answer)
    if not isinstance(answer, dict) or answer.get("tokens") != list(text.tokenize(_PROBE)):
        raise ModelLoadError(
            f"{server.address} tokenizes in another way than the tokenizer here; give the served "
            "model's own (--lm-tokenizer or --rm-tokenizer)"
        )
