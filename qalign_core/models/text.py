"""From text to ids by the chat template, and from ids to the text of each token."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from qalign_core.errors import InvalidPrompt
from qalign_core.types import Response


class Text:
    """A tokenizer with a chat template, as the models here use it.

    Args:
        tokenizer: of transformers, fast (backed by the tokenizers library), with a chat template.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer
        self.n_tokens = max(tokenizer.get_vocab().values(), default=-1) + 1  # ids below are known
        self._special = frozenset(tokenizer.all_special_ids) | {
            id for id, token in tokenizer.added_tokens_decoder.items() if token.special
        }
        self.conversation = lru_cache(maxsize=1024)(self._conversation)

    def prompt(self, prompt: str) -> tuple[int, ...]:
        """Ids of a conversation of one user turn, ending where the assistant's text begins."""
        if not prompt.strip():
            raise InvalidPrompt("the prompt is empty; type a question or a task")
        return self.conversation(prompt, None)

    def _conversation(self, prompt: str, response: str | None) -> tuple[int, ...]:
        messages = [{"role": "user", "content": prompt}]
        if response is not None:
            messages.append({"role": "assistant", "content": response})
        rendered = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=response is None
        )
        return self.tokenize(rendered)

    def scored(self, prompt: str, response: Response, *, as_ids: bool = False) -> tuple[int, ...]:
        """Ids of prompt and response as a reward model reads them.

        Args:
            prompt: the user's text.
            response: its text is rendered again, unless `as_ids`.
            as_ids: keep the LM's own ids, EOS included, where they decode to the response's text.
        """
        if as_ids and self.pieces(response.tokens)[0] == response.text:
            return self.prompt(prompt) + response.tokens
        return self.conversation(prompt, response.text)

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Ids of a text as it stands: names of special tokens are read, none is added."""
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

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
