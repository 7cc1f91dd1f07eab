"""The loop in which both kinds of model are trained, under one schedule, from one checkpoint.

Muon for the matrices inside the layers, AdamW for the rest (embeddings, norms, reward head). Muon
(Jordan et al. 2024) replaces a matrix's momentum by about the nearest orthogonal matrix.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")

WARM_UP = 100  # steps
DECAY = 0.4  # of all steps


def fit(
    model: nn.Module,
    checkpoint: Path,
    losses: Callable[[int], Iterable[Tensor]],
    *,
    steps: int,
    muon_lr: float,
    adam_lr: float,
    every: int,
    summarize: Callable[[], str] = str,
) -> None:
    """Train a model from its checkpoint on, or from the start if there is none.

    Args:
        model: what is trained.
        checkpoint: the file of all of the state; a reader never sees half of it.
        losses: the parts of a step's loss, by the number of the step.
        steps: how many.
        muon_lr, adam_lr: highest rates; they rise, stay, and fall in a line to nothing.
        every: steps after which progress is printed and the state is kept.
        summarize: what else is printed of the steps since the last time.
    """
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "layers." in n]
    chosen = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    peaks = {
        torch.optim.Muon(matrices, weight_decay=0.0): muon_lr,
        torch.optim.AdamW(rest, betas=(0.9, 0.95), weight_decay=0.0, fused=True): adam_lr,
    }
    parts, first = (model, *peaks), 0
    if checkpoint.exists():
        first, *states = torch.load(checkpoint, weights_only=True)
        for part, state in zip(parts, states, strict=True):
            part.load_state_dict(state)
    warm_up, decay = min(WARM_UP, 0.1 * steps), DECAY * steps
    started, total = time.monotonic(), 0.0
    for step in range(first, steps):
        for loss in losses(step):
            loss.backward()
            total += loss.item()
        factor = min(1.0, (step + 1) / warm_up, (steps - step) / decay)
        for optimizer, peak in peaks.items():
            optimizer.param_groups[0]["lr"] = peak * factor
            optimizer.step()
            optimizer.zero_grad()
        if (step + 1) % every == 0 or step + 1 == steps:
            print(
                f"{checkpoint.stem} {step + 1}/{steps} loss {total / (step % every + 1):.4f} "
                f"{summarize()} {time.monotonic() - started:.0f} s",
                flush=True,
            )
            total = 0.0
            save([step + 1, *(part.state_dict() for part in parts)], checkpoint)


def by_length(
    items: Iterable[T],
    length: Callable[[T], int],
    most: int,
    rows: Callable[[T], int] = lambda item: 1,
) -> list[list[T]]:
    """Items in batches of about one length each, which halves the padding.

    Args:
        items: each has some rows of at most its length.
        length, rows: of an item.
        most: ids of a batch, padding included.
    """
    batches, held = list[list[T]](), 0
    for item in sorted(items, key=length):  # so the next one is the longest so far
        held += rows(item)
        if not batches or held * length(item) > most:
            batches.append([])
            held = rows(item)
        batches[-1].append(item)
    return batches


def pad(rows: Sequence[list[int]] | Sequence[list[bool]]) -> Tensor:
    """Rows of any lengths as (B, T), with 0 behind each."""
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)


def save(state: object, path: Path) -> None:
    """Write a file of tensors and plain values as a whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)
