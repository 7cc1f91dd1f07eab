"""A language model behind vLLM's `/v1/completions`, with token ids both ways.

Text would have to be tokenised again to continue it, and comes back as other ids: 12 sampled ids
became 16. So a server must take ids and return them, and what it echoes is checked in every answer.
A server that takes text only can be used if that is asked for, and everything is then labelled.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

from qalign_core.errors import InvalidSetting, ModelContractError, ModelLoadError
from qalign_core.models.chat import (
    Completion,
    TemplatedLanguageModel,
    check_sampling,
    rounded,
)
from qalign_core.models.served.client import MOST, PROBE, Garbled, Reached, Served
from qalign_core.reading import are_ids, is_finite, is_text, shown
from qalign_core.run import Sampling
from qalign_core.types import Weighed

_PATH = "/v1/completions"
_COLDEST = 0.01  # vLLM raises what is below to this, and another temperature is another base
_A_TOKEN = 1024  # bytes of an answer: an id, a text, a log-probability, each of them with a name
_PROBED = 8  # tokens whose log-probabilities tell whether they are of what was sampled


class ServedLanguageModel(TemplatedLanguageModel, Served):
    """A causal LM as sampled, on a server. Views made by `with_sampling` share one client.

    Attributes:
        id: the name for traces.
        sampling: temperature, top-p, top-k and limit; all are sent with every request, and all
            else that could bend the distribution is switched off.
        n_parameters: of the model if it was said, for FLOPs; else 0.
        context_length: prompt and response together (tokens).
        notes: what a trace must say of it.
    """

    kind = "lm"
    notes: tuple[str, ...] = ()
    _processed: bool | None = None  # log-probabilities as sampled, of the model, or none at all

    def __init__(
        self, reached: Reached, *, id: str, sampling: Sampling | None = None, n_parameters: int = 0
    ) -> None:
        context = reached.context
        super().__init__(reached.text, reached.eos, id=id, context=context, sampling=sampling)
        self.n_parameters = n_parameters
        self._at = reached

    @classmethod
    def connect(cls, address: str, *, approximate: bool = False, **options: Any) -> Self:
        """Connect as `Served` does, and check that the server does what the chain needs.

        Args:
            address: of the server.
            approximate: send text to a server that cannot take ids (`RetokenisedLanguageModel`).
            options: of `Served.connect`.

        Raises:
            ModelLoadError: one sentence that says what is wrong with the server.
        """
        if approximate:
            return RetokenisedLanguageModel.connect(address, **options)  # type: ignore[return-value]
        return super().connect(address, **options)

    @staticmethod
    def _checked(sampling: Sampling) -> Sampling:
        if sampling.temperature < _COLDEST:
            raise InvalidSetting(
                f"temperature must be >= {_COLDEST:g} on a server, which would silently raise a "
                f"lower one, got {sampling.temperature}"
            )
        return check_sampling(sampling)

    async def _draw(
        self, ids: list[int], most: int, seed: int, until: frozenset[int]
    ) -> Completion:
        body, read = self._body(ids, most, seed), self._reader(ids, most, until)
        body["stop_token_ids"] += sorted(until)
        most_bytes = MOST + _A_TOKEN * (len(ids) + most)
        return await self._at.server.post(_PATH, body, read, most=most_bytes)

    def delimiters(self, text: str) -> frozenset[int]:
        """Every id that ends a block, where the server weighs given ids as it samples.

        Raises:
            ModelContractError: it does not.
            InvalidSetting: no id contains the text.
        """
        if not self._is_plain:
            raise ModelContractError(
                f"{self._at.server.address} weighs given tokens at temperature 1 without top-p and "
                "top-k alone; use those settings, or move = suffix"
            )
        return super().delimiters(text)

    async def weigh(
        self, prompt_ids: Sequence[int], tokens: Sequence[int], *, top: int = 0, first: int = 0
    ) -> tuple[Weighed, ...]:
        """The probability of each token of a response from `first` on: `prompt_logprobs` of vLLM.

        Raises:
            EngineError, ModelContractError: from the server.
        """
        sent = [*prompt_ids, *tokens]
        body = {**self._body(sent, 1, 0), "prompt_logprobs": top}
        n = len(sent) - len(tokens) + first
        most = MOST + _A_TOKEN * len(sent)
        read = partial(_read_weighed, sent, n)
        return await self._at.server.post(_PATH, body, read, most=most)

    def probe(self) -> None:
        """Draw one token too: the server must take ids and return them.

        And some of the likeliest tokens alone: as sampled, each has the probability 1.
        """
        super().probe()
        sent, ask = list(self._text.prompt(PROBE)), self._at.server.ask
        ask(_PATH, self._body(sent, 1, 0), self._reader(sent, 1))
        self._processed = True
        try:
            body = {**self._body(sent, _PROBED, 0), "top_k": 1}
            found = ask(_PATH, body, self._reader(sent, _PROBED)).log_probs
        except ModelLoadError:  # a server may refuse to tell
            found = ()
        self._processed = all(log_p > -1e-6 for log_p in found) if found else None

    @property
    def _is_plain(self) -> bool:
        """Whether the model is sampled as it is."""
        return replace(self.sampling, max_new_tokens=1) == Sampling(max_new_tokens=1)

    @property
    def _tells(self) -> bool:
        """Whether the server's log-probabilities are of the distribution that it samples."""
        return self._processed is not None and (self._processed or self._is_plain)

    def _asked(self, prompt: object, most: int) -> dict[str, Any]:
        """A request in the words that all servers know."""
        return {
            "model": self._at.name,
            "prompt": prompt,
            "max_tokens": most,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
        }

    def _body(self, sent: list[int], most: int, seed: int) -> dict[str, Any]:
        """The request; what is left out would follow the server's defaults, so nothing is."""
        return {
            **self._asked(sent, most),
            "top_k": self.sampling.top_k,
            "min_p": 0,
            "repetition_penalty": 1,
            "presence_penalty": 0,
            "frequency_penalty": 0,
            "watermarking": False,
            "seed": seed % 2**63,
            "stop_token_ids": list(self.eos),
            "return_token_ids": True,
            **({"logprobs": 0} if self._tells else {}),
        }

    def _reader(
        self, sent: list[int], most: int, until: frozenset[int] = frozenset()
    ) -> Callable[[Any], Completion]:
        known, place = self._text.n_tokens, self._at.server.address
        return lambda answer: _read(answer, sent, most, self.eos, until, known, place)


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

    def delimiters(self, text: str) -> frozenset[int]:
        """None: texts of a server come back as other ids."""
        raise ModelContractError(
            f"{self._at.server.address} takes text only, so it cannot rewrite a block; use a "
            "server that takes token ids, or move = suffix"
        )

    async def _draw(
        self, ids: list[int], most: int, seed: int, until: frozenset[int]
    ) -> Completion:
        new: list[int] = []
        finished, asked = False, 0
        self._count[0] += 1
        self._count[1] += list(self._text.tokenize(self._text.decode(ids, special=True))) != ids
        while not finished and len(new) < most:
            room, before = most - len(new), self._text.decode([*ids, *new], special=True)
            body = self._text_body(before, room, seed + asked)
            post, most_bytes = self._at.server.post, MOST + _A_TOKEN * room
            text, ended = await post(_PATH, body, self._read_text, most=most_bytes)
            drawn = self._text.tokenize(text)[:room]
            new += drawn
            finished = ended and len(drawn) < room
            if finished:
                new.append(self.eos[0])
            elif not drawn:
                raise ModelContractError(
                    f"{self._at.server.address} returned no text for a response that has not "
                    "ended; use a server that takes token ids"
                )
            asked += 1
        return Completion(new, (), finished)

    def probe(self) -> None:
        """Draw one token as text."""
        self._at.server.ask(_PATH, self._text_body(PROBE, 1, 0), self._read_text)

    def _text_body(self, text: str, most: int, seed: int) -> dict[str, Any]:
        if self.sampling.top_k:
            raise InvalidSetting("top_k cannot be asked of a server that takes text only; leave it")
        return {**self._asked(text, most), "seed": seed % 2**31}

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
    answer: Any,
    sent: list[int],
    most: int,
    eos: Sequence[int],
    until: frozenset[int],
    n_tokens: int,
    address: str,
) -> Completion:
    """The new ids of an answer, checked against what was sent.

    Raises:
        Garbled: it did not come through whole.
        ModelContractError: the server does something else than what was asked.
    """
    try:
        choice, usage = answer["choices"][0], answer["usage"]
        echoed, new = choice.get("prompt_token_ids"), choice.get("token_ids")
        reason = choice["finish_reason"]
        n_sent, n_new = usage["prompt_tokens"], usage["completion_tokens"]
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise Garbled("an answer without a completion") from error
    if not isinstance(echoed, list) or not isinstance(new, list):
        raise ModelContractError(
            f"{address} takes or returns no token ids (return_token_ids), so a kept prefix would "
            "be tokenised again; use vLLM, or ask for the approximate mode (--approximate)"
        )
    if echoed != sent or n_sent != len(sent):
        raise ModelContractError(
            f"{address} read {shown(n_sent)} prompt ids where {len(sent)} were sent, or other "
            "ones; a server that changes ids cannot be used"
        )
    if reason not in ("stop", "length") or len(new) != n_new or not new:
        raise Garbled(f"a completion that broke off after {len(new)} of {shown(n_new)} ids")
    if not are_ids(new, n_tokens):
        raise ModelContractError(
            f"{address} returned {shown(new)} where ids from 0 to {n_tokens - 1} were expected; "
            "serve the model whose tokenizer is used here"
        )
    ends = [token in eos or token in until for token in new]
    if any(ends[:-1]) or len(new) > most or (not ends[-1] and len(new) < most):
        raise ModelContractError(
            f"{address} returned {len(new)} ids that end by {shown(reason)}, with an EOS at "
            f"{ends.index(True) + 1 if any(ends) else 'no place'}; up to the first EOS or "
            f"{most} ids were asked for"
        )
    told = choice.get("logprobs")
    log_probs = told.get("token_logprobs") if isinstance(told, dict) else None
    if log_probs is None:
        return Completion(tuple(new), (), new[-1] in eos)
    if not (isinstance(log_probs, list) and len(log_probs) == len(new)):
        raise Garbled(f"other than a log-probability for each of {len(new)} ids")
    if not all(is_finite(log_p) and log_p <= 1e-6 for log_p in log_probs):
        raise ModelContractError(
            f"{address} returned {shown(log_probs)} where log-probabilities were expected; look at "
            "the server's log"
        )
    return Completion(tuple(new), tuple(log_probs), new[-1] in eos)


def _read_weighed(sent: list[int], first: int, answer: Any) -> tuple[Weighed, ...]:
    """What the server thinks of the ids that were sent, from number `first` on.

    Raises:
        Garbled: it did not come through whole.
    """
    try:
        told = answer["choices"][0]["prompt_logprobs"]
        places = zip(sent[first:], told[first:], strict=True)
        found = [float(place[str(token)]["logprob"]) for token, place in places]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise Garbled("an answer without the log-probabilities of the prompt") from error
    if not all(log_p <= 1e-6 for log_p in found):
        raise Garbled(f"log-probabilities such as {shown(found)}")
    return tuple(Weighed(rounded(log_p), ()) for log_p in found)
