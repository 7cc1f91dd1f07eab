"""The common part of models with a chat template: ids, texts and settings, but not drawing."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

from qalign_core.errors import InvalidPrompt, InvalidSetting, ModelContractError, ModelLoadError
from qalign_core.messages import messages_of
from qalign_core.protocols import OnToken
from qalign_core.run import DEFAULT_SAMPLING, Sampling
from qalign_core.types import Response
from qalign_core.validation import first_line, is_finite, is_whole, short_repr


class Text:
    """A tokenizer with a chat template, as the models here use it.

    Args:
        tokenizer: of transformers, fast (backed by the tokenizers library), with a chat template.
        one_message: whether the model was trained on single messages, so that it reads no others.
        thinking: let a template that has the switch `enable_thinking` turn it on.
    """

    def __init__(
        self, tokenizer: Any, *, one_message: bool = False, thinking: bool = False
    ) -> None:
        self._tokenizer, self._one_message, self._thinking = tokenizer, one_message, thinking
        self._backend = tokenizer.backend_tokenizer
        self.n_tokens = max(tokenizer.get_vocab().values(), default=-1) + 1  # ids below are known
        self._special = frozenset(tokenizer.all_special_ids) | {
            id for id, token in tokenizer.added_tokens_decoder.items() if token.special
        }
        self.conversation = lru_cache(maxsize=1024)(self._conversation)
        self.ids_with = lru_cache(maxsize=16)(self._ids_with)

    def prompt(self, prompt: str) -> tuple[int, ...]:
        """Ids of a prompt's messages, ending where the assistant's text begins.

        Raises:
            InvalidPrompt: it is empty, or the model does not read such messages.
        """
        if not prompt.strip():
            raise InvalidPrompt("the prompt is empty; type a question or a task")
        return self.conversation(prompt, None)

    def _conversation(self, prompt: str, response: str | None) -> tuple[int, ...]:

        messages = messages_of(prompt)
        if self._one_message and len(messages) > 1:
            raise InvalidPrompt(
                f"this model reads one user message, but the conversation has {len(messages)} "
                "messages; send the last one alone, or choose another model"
            )
        answer = [] if response is None else [{"role": "assistant", "content": response}]
        try:
            rendered = self._tokenizer.apply_chat_template(
                [*messages, *answer],
                tokenize=False,
                add_generation_prompt=response is None,
                enable_thinking=self._thinking,
            )
        except Exception as error:  # a template is a program, and may raise anything
            raise InvalidPrompt(
                f"the model's chat template refuses these messages ({first_line(error)}); "
                "send different ones, or choose another model"
            ) from error
        for each in messages:  # a template may pass over a role that it does not know
            if each["role"] != "assistant" and each["content"].strip() not in rendered:
                raise InvalidPrompt(
                    f"the model's chat template leaves out a {each['role']} message; send the "
                    "conversation without it, or choose another model"
                )
        return self.tokenize(rendered)

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Ids of a text as it stands: names of special tokens are read, none is added."""
        return tuple(self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def plain(self, text: str) -> tuple[int, ...]:
        """Return the ids of a user's words, in which names of special tokens are plain text."""
        encoding = self._tokenizer(
            text, add_special_tokens=False, split_special_tokens=True, verbose=False
        )
        return tuple(encoding["input_ids"])

    def piece(self, before: Sequence[int], token: int) -> str:
        """The text of a token behind others, which decide whether it begins with a space."""
        if token in self._special:
            return str(self._tokenizer.convert_ids_to_tokens(token))
        last = [id for id in before[-1:] if id not in self._special]
        text = self.decode([*last, token])[len(self.decode(last)) :]
        return text or str(self._tokenizer.convert_ids_to_tokens(token))

    def _ids_with(self, text: str) -> frozenset[int]:
        """Every id whose own text contains this one; special ids are left out.

        Raises:
            InvalidSetting: there is none.
        """
        ordinary_ids = (id for id in range(self.n_tokens) if id not in self._special)
        ids = frozenset(id for id in ordinary_ids if text in self.decode([id]))
        if not ids:
            raise InvalidSetting(f"no token contains {short_repr(text)}; choose another delimiter")
        return ids

    def decode(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """The text of the ids, special tokens left out unless `special`."""
        return str(self._backend.decode(list(tokens), skip_special_tokens=not special))

    def pieces(self, tokens: Sequence[int]) -> tuple[str, tuple[str, ...]]:
        """The text of the ids and of each id; pieces of special tokens are their names.

        A token that ends inside a character has the piece of the characters it completes.
        """
        from tokenizers.decoders import DecodeStream

        text = self.decode(tokens)
        stream, pieces, plain = DecodeStream(skip_special_tokens=True), [], ""
        for token in tokens:
            if token in self._special:
                pieces.append(str(self._tokenizer.convert_ids_to_tokens(token)))
                continue
            piece = stream.step(self._backend, token) or ""
            pieces.append(piece)
            plain += piece
        ordinary = [i for i, token in enumerate(tokens) if token not in self._special]
        if ordinary and text.startswith(plain):  # bytes that never became a character
            pieces[ordinary[-1]] += text[len(plain) :]
        return text, tuple(pieces)


DIGITS = 6
"""Decimals of a log-probability: logits in 32 bits know no more, and a trace holds every one."""


def rounded(log_p: float) -> float:
    """A log-probability as responses have it."""
    return min(0.0, round(log_p, DIGITS))


@dataclass(frozen=True, slots=True)
class Completion:
    """What was drawn: the new ids and ln p of each as sampled, or nothing."""

    tokens: Sequence[int]
    log_probs: Sequence[float]


class TemplatedLanguageModel(ABC):
    """A `LanguageModel` with a chat template; what draws its responses is left to subclasses.

    Attributes:
        id: the name for traces.
        eos: every id that ends a response.
        sampling: temperature, top-p, top-k and limit.
        applies: names of the fields of `Sampling` that it applies; others are refused.
        context_length: prompt and response together (tokens).

    Raises:
        ModelLoadError: nothing ends a response.
        InvalidSetting: the settings are out of range, or not applied.
    """

    applies: frozenset[str] = frozenset()

    def __init__(
        self, text: Text, eos: Sequence[int], *, id: str, context: int, sampling: Sampling | None
    ) -> None:
        if not eos:
            raise ModelLoadError(f"{id} has no end-of-sequence token, so responses would not end")
        self._text, self.eos = text, tuple(eos)
        self.id, self.context_length = id, context
        self.sampling = self._checked(sampling or DEFAULT_SAMPLING)

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
        self,
        prompt_ids: Sequence[int],
        prefix: Sequence[int],
        *,
        seed: int,
        until: frozenset[int] = frozenset(),
        on_token: OnToken | None = None,
    ) -> Response:
        """Draw `y_{i:} ~ p_LM(. | x, y_{<i})` and return all of `y` (Section 3.1).

        With `until`, the first of those ids ends the draw too. A model that draws token by token
        calls `on_token` with each.

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
        ids, most = [*prompt_ids, *prefix], limit - len(prefix)
        completion = await self._draw(ids, most, seed, until, on_token)
        log_probs = tuple(map(rounded, completion.log_probs))
        return replace(self.response((*prefix, *completion.tokens)), log_probs=log_probs)

    def response(self, tokens: Sequence[int]) -> Response:
        """The response of these ids; it is finished if the last one is an end-of-sequence id."""
        tokens = tuple(tokens)
        text, pieces = self._text.pieces(tokens)
        return Response(tokens, text, tokens[-1:] != () and tokens[-1] in self.eos, pieces)

    def delimiters(self, text: str) -> frozenset[int]:
        """Every id that ends a block: those whose text contains this one, but no special ids.

        Raises:
            InvalidSetting: there is none.
        """
        return self._text.ids_with(text)

    def extend_with_text(self, prefix: Sequence[int], words: str, *, ended: bool) -> Response:
        """Return a response that continues the kept ids with a user's own words.

        Args:
            prefix: the kept ids.
            words: the names of special tokens in them are plain text.
            ended: whether an end-of-sequence id follows.

        Raises:
            InvalidPrompt: it is longer than a response may be.
        """
        tokens = (*prefix, *self._text.plain(words), *self.eos[: int(ended)])
        self._check_response(tokens)
        return self.response(tokens)

    def _check_response(self, tokens: Sequence[int]) -> None:
        if len(tokens) > self.max_new_tokens:
            raise InvalidPrompt(
                f"the text has {len(tokens)} tokens, and a response may have "
                f"{self.max_new_tokens}; shorten it"
            )

    @abstractmethod
    async def _draw(
        self, ids: list[int], most: int, seed: int, until: frozenset[int], on_token: OnToken | None
    ) -> Completion:
        """At most `most` ids that continue the given ones, through the first EOS or `until`."""

    def _check_prompt(self, ids: Sequence[int]) -> None:
        n, limit, context = len(ids), self.max_new_tokens, self.context_length
        if n == 0:
            raise InvalidPrompt("the prompt has no tokens; type a question or a task")
        if n + limit > context:
            raise InvalidPrompt(
                f"the prompt has {n} tokens and the response may have {limit}, together more "
                f"than the context of {context}; shorten the prompt or lower the setting "
                "max_new_tokens"
            )

    def _checked(self, sampling: Sampling) -> Sampling:
        sampling.refuse_unapplied(self.applies, f"the model {self.id}")
        return check_sampling(sampling)


def check_sampling(sampling: Sampling) -> Sampling:
    """The settings, if each is in its range.

    Raises:
        InvalidSetting: one is not.
    """
    temperature, top_p = sampling.temperature, sampling.top_p
    for name, holds, rule in (
        ("temperature", is_finite(temperature) and temperature > 0, "> 0,"),
        ("top_p", is_finite(top_p) and 0 < top_p <= 1, "in (0, 1], 1 is off;"),
        ("top_k", is_whole(sampling.top_k, 0), ">= 0, 0 is off;"),
        ("max_new_tokens", is_whole(sampling.max_new_tokens, 1), ">= 1,"),
    ):
        if not holds:
            raise InvalidSetting(f"{name} must be {rule} got {short_repr(getattr(sampling, name))}")
    return sampling
