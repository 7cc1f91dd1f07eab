"""Train the language model: next-token cross-entropy on the responses of the corpus."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from tools.embedded.corpus import documents
from tools.embedded.fitting import by_length, fit, pad
from tools.embedded.networks import new_language_model
from tools.embedded.tokenizer import prompt_ids, response_ids

STEPS = 3000
DOCUMENTS = 48  # a step, of all kinds: about 6,000 tokens
TOKENS_AT_ONCE = 1536  # padding included; documents of about one length go through together


def train_language_model(
    tokenizer: PreTrainedTokenizerFast, build: Path, *, seed: int
) -> LlamaForCausalLM:
    """Train from nothing, or from the checkpoint in `build`; prints its progress."""
    model = new_language_model(tokenizer, seed)

    def losses(step: int) -> Iterator[Tensor]:
        batches = _batches(tokenizer, documents(seed, step, DOCUMENTS))
        n_targets = sum(int(is_target.sum()) for _, is_target in batches)
        for ids, is_target in batches:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                hidden = model.model(ids[:, :-1]).last_hidden_state
                logits = model.lm_head(hidden[is_target])
            targets = ids[:, 1:][is_target]
            yield cross_entropy(logits.float(), targets, reduction="sum") / n_targets

    fit(model, build / "lm.pt", losses, steps=STEPS, muon_lr=0.02, adam_lr=3e-3, every=50)
    return model


def _batches(
    tokenizer: PreTrainedTokenizerFast, samples: list[tuple[str, str]]
) -> list[tuple[Tensor, Tensor]]:
    """(ids, is_target): padded ids (B, T), and (B, T-1) where ids[:, 1:] is response."""
    prompts, responses = (list(texts) for texts in zip(*samples, strict=True))
    pairs = zip(prompt_ids(tokenizer, prompts), response_ids(tokenizer, responses), strict=True)
    batches = by_length(pairs, lambda pair: len(pair[0]) + len(pair[1]), TOKENS_AT_ONCE)
    return [
        (
            pad([prompt + response for prompt, response in batch]),
            pad([[False] * (len(prompt) - 1) + [True] * len(each) for prompt, each in batch]),
        )
        for batch in batches
    ]
