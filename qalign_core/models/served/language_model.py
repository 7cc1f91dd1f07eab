"""A language model behind vLLM or llama.cpp's `llama-server`, with token ids both ways.

Text would have to be tokenised again to continue it, and comes back as other ids: 12 sampled ids
became 16. So a server must take ids and return them, and what it echoes is checked in every answer.
A server that takes text only can be used if that is asked for, and everything is then labelled.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from qalign_core.errors import InvalidSetting, ModelContractError, ModelLoadError
from qalign_core.models.chat import Completion, TemplatedLanguageModel, rounded
from qalign_core.models.served.client import (
    MOST,
    PROBE,
    ModelEndpoint,
    Served,
    TransientError,
    expect,
)
from qalign_core.protocols import OnToken, TokenScore
from qalign_core.run import Sampling
from qalign_core.validation import are_ids, is_finite, is_text, is_whole, short_repr

_COLDEST = 0.01  # vLLM raises what is below to this, and another temperature is another base
_A_TOKEN = 1024  # bytes of an answer: an id, a text, a log-probability, each of them with a name
_PROBED = 8  # tokens whose log-probabilities tell whether they are of what was sampled
_REASONS = ("stop", "length", "eos", "limit")
_RESPONSE_FIELDS = (
    "tokens",
    "tokens_predicted",
    "tokens_evaluated",
    "stop_type",
    "completion_probabilities",
)
_OFF = ("min_p", "presence_penalty", "frequency_penalty")  # by 0, of every server
_OFF_IN_LLAMA_CPP = (
    *("dynatemp_range", "min_keep", "xtc_probability", "dry_multiplier", "mirostat", *_OFF),
    "n_cache_reuse",  # pieces that are moved are not those that would be computed
)
LLAMA_CPP = {
    "samplers": ["temperature", "top_k", "top_p"],  # in this order, as everywhere else
    **dict.fromkeys(_OFF_IN_LLAMA_CPP, 0),
    **{"typical_p": 1, "repeat_penalty": 1, "top_n_sigma": -1, "logit_bias": []},
    **{"ignore_eos": False, "backend_sampling": False, "cache_prompt": True},
    **{"return_tokens": True, "response_fields": [*_RESPONSE_FIELDS]},
}
"""What a request to llama.cpp says; what it left out would follow the server's options."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's answer in a form that is common to all servers.

    Attributes:
        n_read: how many prompt ids the server read; None if they were not those that were sent.
        new: the ids that it drew.
        n_new: how many it says that it drew.
        reason: why it stopped.
        log_probs: natural log of the probability of each as sampled; None if it does not tell.
    """

    n_read: object
    new: list[int]
    n_new: object
    reason: object
    log_probs: object


class ServedLanguageModel(TemplatedLanguageModel, Served):
    """A causal LM as sampled, on vLLM. Views made by `with_sampling` share one client.

    Attributes:
        id: the name for traces.
        sampling: temperature, top-p, top-k and limit; all are sent with every request, and all
            else that could bend the distribution is switched off.
        n_parameters: of the model if it was said, for FLOPs; else 0.
        context_length: prompt and response together (tokens).
        notes: what a trace must say of it.
    """

    kind = "lm"
    applies = frozenset({"temperature", "max_new_tokens", "top_p", "top_k"})
    notes: tuple[str, ...] = ()
    _path = "/v1/completions"
    _no_weights = ""  # why given ids cannot be scored
    _processed: bool | None = None  # log-probabilities as sampled, of the model, or none at all

    def __init__(
        self,
        endpoint: ModelEndpoint,
        *,
        id: str,
        sampling: Sampling | None = None,
        n_parameters: int = 0,
    ) -> None:
        context = endpoint.card.context
        super().__init__(endpoint.text, endpoint.eos, id=id, context=context, sampling=sampling)
        self.n_parameters = n_parameters or endpoint.card.n_parameters
        self._at = endpoint

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

    @classmethod
    def of(cls, owner: object) -> type[Self]:
        """The class for that kind of server: llama.cpp takes ids, whatever else was asked for."""
        return LlamaCppLanguageModel if owner == "llamacpp" else cls  # type: ignore[return-value]

    def _checked(self, sampling: Sampling) -> Sampling:
        if sampling.temperature < _COLDEST:
            raise InvalidSetting(
                f"temperature must be >= {_COLDEST:g} on a server, which would silently raise a "
                f"lower one, got {sampling.temperature}"
            )
        return super()._checked(sampling)

    async def _draw(
        self, ids: list[int], most: int, seed: int, until: frozenset[int], on_token: OnToken | None
    ) -> Completion:
        body, read = self._body(ids, most, seed, until), partial(self._read, ids, most, until)
        most_bytes = MOST + _A_TOKEN * (len(ids) + most)
        return await self._at.server.post(self._path, body, read, most=most_bytes)

    def delimiters(self, text: str) -> frozenset[int]:
        """Return every id that ends a block, if the server scores given ids as it samples.

        Raises:
            ModelContractError: it does not.
            InvalidSetting: no id contains the text.
        """
        if not self._no_weights and not self._is_plain:
            raise ModelContractError(
                f"{self._at.server.address} returns probabilities of given tokens only at "
                "temperature 1 without top-p and top-k; use those settings, or move = suffix"
            )
        self._check_scores_tokens()
        return super().delimiters(text)

    def _check_scores_tokens(self) -> None:
        if self._no_weights:
            raise ModelContractError(
                f"{self._at.server.address} {self._no_weights}; use vLLM or a model in this "
                "process, or move = suffix"
            )

    async def score_tokens(
        self, prompt_ids: Sequence[int], tokens: Sequence[int], *, top: int = 0, first: int = 0
    ) -> tuple[TokenScore, ...]:
        """Return the score of each token of a response from `first` on: `prompt_logprobs` of vLLM.

        Raises:
            EngineError, ModelContractError: from the server.
        """
        self._check_scores_tokens()
        sent = [*prompt_ids, *tokens]
        body = {**self._body(sent, 1, 0), "prompt_logprobs": top}
        n = len(sent) - len(tokens) + first
        most = MOST + _A_TOKEN * len(sent)
        read = partial(_read_scores, sent, n)
        return await self._at.server.post(self._path, body, read, most=most)

    def probe(self) -> None:
        """Draw one token too: the server must take ids and return them.

        And some of the likeliest tokens alone: as sampled, each has the probability 1.
        """
        super().probe()
        sent, ask = list(self._text.prompt(PROBE)), self._at.server.ask
        ask(self._path, self._body(sent, 1, 0), partial(self._read, sent, 1, frozenset()))
        if self._processed is not None:
            return
        self._processed = True
        try:
            body = {**self._body(sent, _PROBED, 0), "top_k": 1}
            read = partial(self._read, sent, _PROBED, frozenset())
            log_probs = ask(self._path, body, read).log_probs
        except ModelLoadError:  # a server may refuse to tell
            log_probs = ()
        self._processed = all(log_p > -1e-6 for log_p in log_probs) if log_probs else None

    @property
    def _is_plain(self) -> bool:
        """True if the settings leave the model's own distribution unchanged."""
        return replace(self.sampling, max_new_tokens=1) == Sampling(max_new_tokens=1)

    @property
    def _has_log_probs(self) -> bool:
        """True if the server's log-probabilities belong to the distribution that it samples."""
        return self._processed is not None and (self._processed or self._is_plain)

    def _base_body(self, prompt: object, most: int) -> dict[str, Any]:
        """Return the fields of a request that all servers accept."""
        return {
            "model": self._at.card.name,
            "prompt": prompt,
            "max_tokens": most,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
        }

    def _body(
        self, sent: list[int], most: int, seed: int, until: frozenset[int] = frozenset()
    ) -> dict[str, Any]:
        """The request; what is left out would follow the server's defaults, so nothing is."""
        return {
            **self._base_body(sent, most),
            "top_k": self.sampling.top_k,
            **dict.fromkeys(_OFF, 0),
            "repetition_penalty": 1,
            "watermarking": False,
            "seed": seed % 2**63,
            "stop_token_ids": [*self.eos, *sorted(until)],
            "return_token_ids": True,
            **({"logprobs": 0} if self._has_log_probs else {}),
        }

    def _parse_reply(self, answer: Any, sent: list[int], ends: frozenset[int], most: int) -> Reply:
        """What an answer says of a draw of at most `most` ids, up to one of `ends`."""
        choice, usage = answer["choices"][0], answer["usage"]
        echoed, new = choice.get("prompt_token_ids"), choice.get("token_ids")
        if not isinstance(echoed, list) or not isinstance(new, list):
            raise ModelContractError(
                f"{self._at.server.address} takes or returns no token ids (return_token_ids), so a "
                "kept prefix would be tokenized again; use vLLM or llama-server, or ask for the "
                "approximate mode (--approximate)"
            )
        n_read = usage["prompt_tokens"] if echoed == sent else None
        reason, entries = choice["finish_reason"], choice.get("logprobs")
        log_probs = entries.get("token_logprobs") if isinstance(entries, dict) else None
        return Reply(n_read, new, usage["completion_tokens"], reason, log_probs)

    def _read(self, sent: list[int], most: int, until: frozenset[int], answer: Any) -> Completion:
        """The new ids of an answer, checked against what was sent.

        Raises:
            TransientError: it did not come through whole.
            ModelContractError: the server does something else than what was asked.
        """
        address, n_tokens = self._at.server.address, self._text.n_tokens
        ends = until.union(self.eos)
        with expect("a completion"):
            reply = self._parse_reply(answer, sent, ends, most)
        new, log_probs = reply.new, reply.log_probs
        if reply.n_read != len(sent):
            raise ModelContractError(
                f"{address} read {short_repr(reply.n_read)} prompt ids where {len(sent)} were "
                "sent, or different ids; a server that changes ids cannot be used"
            )
        if reply.reason not in _REASONS or len(new) != reply.n_new or not new:
            raise TransientError(
                f"a completion that broke off after {len(new)} of {short_repr(reply.n_new)} ids"
            )
        if not are_ids(new, n_tokens):
            raise ModelContractError(
                f"{address} returned {short_repr(new)} where ids from 0 to {n_tokens - 1} were "
                "expected; serve the model whose tokenizer is used here"
            )
        at = [token in ends for token in new]
        if any(at[:-1]) or len(new) > most or (not at[-1] and len(new) < most):
            raise ModelContractError(
                f"{address} returned {len(new)} ids that end by {short_repr(reply.reason)}, with "
                f"an EOS at {at.index(True) + 1 if any(at) else 'no place'}; up to the first EOS "
                f"or {most} ids were asked for"
            )
        if log_probs is None:
            return Completion(tuple(new), ())
        if not (isinstance(log_probs, list) and len(log_probs) == len(new)):
            raise TransientError(f"other than a log-probability for each of {len(new)} ids")
        if not all(is_finite(log_p) and log_p <= 1e-6 for log_p in log_probs):
            raise ModelContractError(
                f"{address} returned {short_repr(log_probs)} where log-probabilities were "
                "expected; look at the server's log"
            )
        return Completion(tuple(new), tuple(log_probs))


class RetokenisedLanguageModel(ServedLanguageModel):
    """Approximate: a server that takes text only, where prefixes are tokenised again on the way.

    A prefix that comes out as other ids is a move that the acceptance ratio does not know of, so
    detailed balance holds only as far as that is rare. `notes` says how often it was.
    """

    _no_weights = "takes text only, without probabilities of given tokens"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._count = [0, 0]  # prefixes sent, and those that came out different

    @property
    def notes(self) -> tuple[str, ...]:  # type: ignore[override]
        """The label of everything that was drawn so, with the count of changed prefixes."""
        sent, changed = self._count
        label = "approximate: prefixes re-tokenised"
        return (f"{label}, {changed} of {sent} came back different" if sent else label,)

    async def _draw(
        self, ids: list[int], most: int, seed: int, until: frozenset[int], on_token: OnToken | None
    ) -> Completion:
        new: list[int] = []
        finished, n_requests = False, 0
        self._count[0] += 1
        self._count[1] += list(self._text.tokenize(self._text.decode(ids, special=True))) != ids
        while not finished and len(new) < most:
            room, before = most - len(new), self._text.decode([*ids, *new], special=True)
            body = self._text_body(before, room, seed + n_requests)
            post, most_bytes = self._at.server.post, MOST + _A_TOKEN * room
            text, ended = await post(self._path, body, self._read_text, most=most_bytes)
            ids_of_text = self._text.tokenize(text)[:room]
            new += ids_of_text
            finished = ended and len(ids_of_text) < room
            if finished:
                new.append(self.eos[0])
            elif not ids_of_text:
                raise ModelContractError(
                    f"{self._at.server.address} returned no text for a response that has not "
                    "ended; use a server that takes token ids"
                )
            n_requests += 1
        return Completion(new, ())

    def probe(self) -> None:
        """Draw one token as text."""
        self._at.server.ask(self._path, self._text_body(PROBE, 1, 0), self._read_text)

    def _text_body(self, text: str, most: int, seed: int) -> dict[str, Any]:
        if self.sampling.top_k:
            raise InvalidSetting("a server that accepts text only has no top_k; leave it out")
        return {**self._base_body(text, most), "seed": seed % 2**31}

    def _read_text(self, answer: Any) -> tuple[str, bool]:
        with expect("a completion"):
            choice = answer["choices"][0]
            text, reason = choice["text"], choice["finish_reason"]
        if not is_text(text) or reason not in ("stop", "length"):
            raise TransientError(f"a completion that broke off ({short_repr(reason)})")
        return text, reason == "stop"


class LlamaCppLanguageModel(ServedLanguageModel):
    """A causal LM as sampled, on llama.cpp's `llama-server`.

    It knows no ids to stop at, so what it draws behind an end is cut off here. It tells nothing of
    a token within a character, so a response with such a token has no log-probabilities.
    """

    _path = "/completion"
    _no_weights = "returns no probabilities of given tokens"
    _processed = True

    def probe(self) -> None:
        """Refuse options that no request can change; read how much it takes, and what ends a draw.

        Raises:
            ModelLoadError: as `Served.probe`.
        """
        server, sent = self._at.server, list(self._text.prompt(PROBE))
        n_slots, self.context_length = server.ask("/props", None, _read_props)
        server.rows = min(server.rows, n_slots)  # the rest would wait there, and run out of time
        body = {**self._body(sent, 1, 0), "response_fields": ["generation_settings"]}
        settings = server.ask(self._path, body, _read_settings)
        for name, value in {**body, "stop": [], "grammar": ""}.items():
            if not _equal(settings.get(name, value), value):
                raise ModelLoadError(
                    f"{server.address} samples with {name} = {short_repr(settings[name])} "
                    "whatever it is asked for; start llama-server without the option that sets it"
                )
        settings = server.ask(self._path, {**body, "ignore_eos": True}, _read_settings)
        ends = [biased["token"] for biased in settings["logit_bias"]]  # it forbids each of them
        self.eos = (*self.eos, *sorted({*ends} - {*self.eos}))
        super().probe()

    def _body(
        self, sent: list[int], most: int, seed: int, until: frozenset[int] = frozenset()
    ) -> dict[str, Any]:
        return {
            **LLAMA_CPP,
            "prompt": sent,
            "n_predict": most,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "top_k": self.sampling.top_k,
            "seed": seed % (2**32 - 1),  # the largest of 32 bits asks for any
            **({"n_probs": 1, "post_sampling_probs": True} if self._has_log_probs else {}),
        }

    def _parse_reply(self, answer: Any, sent: list[int], ends: frozenset[int], most: int) -> Reply:
        new, entries = answer["tokens"], answer.get("completion_probabilities", [])
        n = next((n for n, token in enumerate(new[:most], 1) if token in ends), most)
        n_new = answer["tokens_predicted"] - len(new[n:])
        # a token that a draft model proposed is told without others, and as certain
        whole = len(entries) == len(new) and all(each["top_probs"] for each in entries)
        log_probs = [math.log(each["prob"]) for each in entries[:n]] if whole else None
        return Reply(answer["tokens_evaluated"], new[:n], n_new, answer["stop_type"], log_probs)


def _read_props(answer: Any) -> tuple[int, int]:
    """Requests that a llama-server runs at once, and the context of each (tokens)."""
    with expect("total_slots and n_ctx"):
        numbers = answer["total_slots"], answer["default_generation_settings"]["n_ctx"]
        if not all(is_whole(number, 1) for number in numbers):
            raise TypeError
    return numbers


def _read_settings(answer: Any) -> dict[str, Any]:
    """Return the settings with which a llama-server reports that it samples."""
    with expect("generation_settings"):
        settings = dict(answer["generation_settings"])
        if not are_ids([biased["token"] for biased in settings["logit_bias"]]):
            raise TypeError
    return settings


def _equal(actual: object, expected: object) -> bool:
    if is_finite(actual) and is_finite(expected):  # it holds 32 bits
        return math.isclose(actual, expected, rel_tol=1e-6)  # type: ignore[arg-type]
    return actual == expected


def _read_scores(sent: list[int], first: int, answer: Any) -> tuple[TokenScore, ...]:
    """Return the scores of the ids that were sent, from number `first` on.

    Raises:
        TransientError: it did not come through whole.
    """
    with expect("the log-probabilities of the prompt"):
        echoed = answer["choices"][0]["prompt_logprobs"]
        places = zip(sent[first:], echoed[first:], strict=True)
        log_probs = [float(place[str(token)]["logprob"]) for token, place in places]
    if not all(log_p <= 1e-6 for log_p in log_probs):
        raise TransientError(f"log-probabilities such as {short_repr(log_probs)}")
    return tuple(TokenScore(rounded(log_p), ()) for log_p in log_probs)
