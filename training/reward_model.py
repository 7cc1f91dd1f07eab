"""Train the reward model: Bradley-Terry on the language model's own samples.

The paper's recipe (§Task-Specific Tuning): on-policy responses, one better and one worse of each
prompt, initialised from the language model, one scalar at the last token (the response's EOS).
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from training.checkpoint import load_checkpoint, save_checkpoint
from training.llama import Llama
from training.on_policy import Graded
from training.optim import Optimizers

PAIRS_A_STEP = 48


class RewardModel(nn.Module):
    """A Llama with one linear output, read at the last token."""

    def __init__(self, model: Llama) -> None:
        super().__init__()
        self.model = Llama(model.shape)
        self.model.load_state_dict(model.state_dict())
        self.score = nn.Linear(model.shape.width, 1, bias=False)
        nn.init.zeros_(self.score.weight)

    def forward(self, conversations: Sequence[list[int]]) -> Tensor:
        """Ids of whole conversations, EOS included -> rewards (B,)."""
        ids = nn.utils.rnn.pad_sequence([torch.tensor(c) for c in conversations], batch_first=True)
        last = torch.tensor([len(c) - 1 for c in conversations])
        return self.score(self.model(ids)[torch.arange(len(ids)), last])[:, 0]


def train_reward_model(
    language_model: Llama, graded: Sequence[Graded], checkpoint: Path, *, seed: int, steps: int
) -> RewardModel:
    """Train on pairs of these prompts, a new pair of each prompt every epoch; 5 % validate."""
    model = RewardModel(language_model)
    n_held = len(graded) // 20
    held, graded = graded[:n_held], graded[n_held:]
    optimizers = Optimizers(model, steps=steps, muon_lr=0.005, adam_lr=1e-3)
    first = load_checkpoint(checkpoint, model, optimizers)
    started, right, total = time.monotonic(), 0, 0.0
    for step, batch in zip(range(steps), _batches(graded, seed), strict=False):
        if step < first:  # resume at the same place of the same stream
            continue
        for pairs in _by_length(batch):
            better, worse = model([c for pair in pairs for c in pair]).view(-1, 2).unbind(1)
            loss = -logsigmoid(better - worse).sum() / PAIRS_A_STEP
            loss.backward()
            right, total = right + int((better > worse).sum()), total + loss.item()
        optimizers.step(step)
        if (step + 1) % 20 == 0 or step + 1 == steps:
            n = step % 20 + 1
            print(
                f"{checkpoint.stem} {step + 1}/{steps} loss {total / n:.4f} "
                f"pair accuracy {right / (n * PAIRS_A_STEP):.3f} "
                f"{time.monotonic() - started:.0f} s",
                flush=True,
            )
            right, total = 0, 0.0
            save_checkpoint(checkpoint, model, optimizers, step + 1)
    print(
        f"{checkpoint.stem} validation pair accuracy {pair_accuracy(model, held):.3f}", flush=True
    )
    return model.eval()


@torch.inference_mode()
def score(model: RewardModel, conversations: Sequence[list[int]], rows: int = 64) -> Tensor:
    """Rewards (N,) of any number of conversations, those of one length together."""
    rewards = torch.empty(len(conversations))
    in_order = sorted(range(len(conversations)), key=lambda i: len(conversations[i]))
    for first in range(0, len(in_order), rows):
        batch = in_order[first : first + rows]
        rewards[batch] = model([conversations[i] for i in batch])
    return rewards


def pair_accuracy(model: RewardModel, graded: Sequence[Graded]) -> float:
    """Share of pairs, one a prompt, in which the better response has the higher reward."""
    rng = random.Random("pair accuracy")
    pairs = [(g.prompt, *g.draw_pair(rng)) for g in graded]
    better = score(model, [prompt + one for prompt, one, _ in pairs])
    worse = score(model, [prompt + other for prompt, _, other in pairs])
    return (better > worse).float().mean().item()


def _by_length(batch: list[tuple[Graded, tuple]], size: int = 12) -> Iterator[list[tuple]]:
    """The batch's (better, worse) conversations in parts of about one length: half the padding."""
    pairs = [(g.prompt + better, g.prompt + worse) for g, (better, worse) in batch]
    pairs.sort(key=lambda pair: max(map(len, pair)))
    for first in range(0, len(pairs), size):
        yield pairs[first : first + size]


def _batches(graded: Sequence[Graded], seed: int) -> Iterator[list[tuple[Graded, tuple]]]:
    rng = random.Random(f"reward model {seed}")
    queue: list[Graded] = []
    while True:
        while len(queue) < PAIRS_A_STEP:
            queue += rng.sample(graded, len(graded))
        batch, queue = queue[:PAIRS_A_STEP], queue[PAIRS_A_STEP:]
        yield [(g, g.draw_pair(rng)) for g in batch]
