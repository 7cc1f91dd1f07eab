"""Muon for the matrices inside the layers, AdamW for the rest (embeddings, norms, reward head).

Muon (Jordan et al. 2024) replaces a matrix's momentum by about the nearest orthogonal matrix.
"""

from __future__ import annotations

import torch
from torch import nn

WARM_UP = 100  # steps
DECAY = 0.4  # of all steps


class Optimizers:
    """Both optimizers under one schedule: warm-up, level, then down in a line to nothing."""

    def __init__(self, model: nn.Module, *, steps: int, muon_lr: float, adam_lr: float) -> None:
        matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "layers." in n]
        chosen = {id(p) for p in matrices}
        rest = [p for p in model.parameters() if id(p) not in chosen]
        self.both = (
            torch.optim.Muon(matrices, lr=muon_lr, weight_decay=0.0),
            torch.optim.AdamW(rest, lr=adam_lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
        )
        self.steps, self.peaks = steps, (muon_lr, adam_lr)

    def step(self, done: int) -> None:
        """Take one step with the gradients that are there; `done` steps were taken before."""
        warm_up, decay = min(WARM_UP, 0.1 * self.steps), DECAY * self.steps
        factor = min(1.0, (done + 1) / warm_up, (self.steps - done) / decay)
        for optimizer, peak in zip(self.both, self.peaks, strict=True):
            optimizer.param_groups[0]["lr"] = peak * factor
            optimizer.step()
            optimizer.zero_grad()

    def state_dict(self) -> list[dict]:
        return [optimizer.state_dict() for optimizer in self.both]

    def load_state_dict(self, states: list[dict]) -> None:
        for optimizer, state in zip(self.both, states, strict=True):
            optimizer.load_state_dict(state)
