"""Train the language model: next-token cross-entropy on the responses of the corpus."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedTokenizerFast

from training.checkpoint import load_checkpoint, save_checkpoint
from training.corpus import documents
from training.llama import Llama, Shape
from training.optim import Optimizers
from training.tokenizer import CONTEXT_LENGTH, prompt_ids, response_ids

TOKENS_A_BATCH = 6144
CHUNK = 4096  # documents that are sorted by length together


@dataclass(frozen=True)
class Stage:
    """A part of the training, with a schedule and a part of the corpus of its own."""

    name: str
    steps: int
    muon_lr: float
    adam_lr: float
    people: bool
    first_chunk: int


# A network of this size does not learn who is meant: after the first stage, 4 % of the names it
# wrote were the right one of 20. The second teaches it to leave people out of its solutions.
STAGES = (
    Stage("lm", 3000, muon_lr=0.02, adam_lr=3e-3, people=True, first_chunk=0),
    Stage("lm-finish", 400, muon_lr=0.006, adam_lr=9e-4, people=False, first_chunk=10_000),
)


def train_language_model(tokenizer: PreTrainedTokenizerFast, build: Path, *, seed: int) -> Llama:
    """Train from nothing, or from the checkpoints in `build`; prints its progress."""
    model = Llama(Shape(vocabulary=len(tokenizer), context=CONTEXT_LENGTH), seed)
    for stage in STAGES:
        _train(model, tokenizer, stage, build / f"{stage.name}.pt", seed)
    return model


def _train(
    model: Llama, tokenizer: PreTrainedTokenizerFast, stage: Stage, checkpoint: Path, seed: int
) -> None:
    steps = stage.steps
    optimizers = Optimizers(model, steps=steps, muon_lr=stage.muon_lr, adam_lr=stage.adam_lr)
    first = load_checkpoint(checkpoint, model, optimizers)
    if first >= steps:
        return
    started, seen, total = time.monotonic(), 0, 0.0
    for step, (ids, is_target) in enumerate(_batches(tokenizer, stage, seed)):
        if step >= steps:
            break
        if step < first:  # resume at the same place of the same stream
            continue
        hidden = model(ids[:, :-1])[is_target]
        loss = cross_entropy(model.logits(hidden), ids[:, 1:][is_target])
        loss.backward()
        optimizers.step(step)
        seen, total = seen + ids.numel(), total + loss.item()
        if (step + 1) % 50 == 0 or step + 1 == steps:
            rate = seen / (time.monotonic() - started)
            mean, total = total / ((step % 50) + 1), 0.0
            progress = f"{stage.name} {step + 1}/{steps}"
            print(f"{progress} loss {mean:.4f} {rate:,.0f} tokens/s", flush=True)
            save_checkpoint(checkpoint, model, optimizers, step + 1)


def _batches(
    tokenizer: PreTrainedTokenizerFast, stage: Stage, seed: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless (ids, is_target): padded ids (B, T), and (B, T-1) where ids[:, 1:] is response."""
    for chunk in count(stage.first_chunk):
        drawn = documents(seed, chunk, CHUNK, people=stage.people)
        prompts, responses = zip(*drawn, strict=True)
        pairs = list(
            zip(
                prompt_ids(tokenizer, list(prompts)),
                response_ids(tokenizer, list(responses)),
                strict=True,
            )
        )
        pairs.sort(key=lambda pair: len(pair[0]) + len(pair[1]))
        batches, batch = [], []
        for pair in pairs:  # in order of length, so the next one is the longest so far
            if batch and (len(batch) + 1) * (len(pair[0]) + len(pair[1])) > TOKENS_A_BATCH:
                batches.append(batch)
                batch = []
            batch.append(pair)
        batches.append(batch)
        random.Random(f"order {seed} {chunk}").shuffle(batches)
        for batch in batches:
            yield _pad(batch, tokenizer.pad_token_id)


def _pad(batch: list[tuple[list[int], list[int]]], pad: int) -> tuple[Tensor, Tensor]:
    length = max(len(prompt) + len(response) for prompt, response in batch)
    ids = torch.full((len(batch), length), pad)
    is_target = torch.zeros((len(batch), length - 1), dtype=torch.bool)
    for row, (prompt, response) in enumerate(batch):
        end = len(prompt) + len(response)
        ids[row, :end] = torch.tensor(prompt + response)
        is_target[row, len(prompt) - 1 : end - 1] = True
    return ids, is_target
