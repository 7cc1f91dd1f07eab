"""Muon for the matrices inside the layers, AdamW for the rest (embeddings, norms, reward head).

Muon (Jordan et al. 2024) replaces a matrix's momentum by the nearest orthogonal matrix, found by
five Newton-Schulz iterations. Matrices of one shape are iterated together, as one batch.
"""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor, nn

WARM_UP = 100  # steps
DECAY = 0.4  # of all steps


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum."""

    def __init__(self, parameters: list[Tensor], lr: float, momentum: float = 0.95) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            by_shape = defaultdict(list)
            for parameter in group["params"]:
                by_shape[parameter.shape].append(parameter)
            for shape, parameters in by_shape.items():
                updates = torch.stack([self._momentum(p, group["momentum"]) for p in parameters])
                scale = max(1.0, shape[0] / shape[1]) ** 0.5
                for parameter, update in zip(parameters, _orthogonal(updates), strict=True):
                    parameter.add_(update, alpha=-group["lr"] * scale)

    def _momentum(self, parameter: Tensor, momentum: float) -> Tensor:
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        average = state["momentum"].lerp_(parameter.grad, 1 - momentum)
        return torch.lerp(parameter.grad, average, momentum)


def _orthogonal(batch: Tensor, iterations: int = 5) -> Tensor:
    """(N, m, n) matrices -> about the nearest orthogonal ones, all singular values near 1."""
    tall = batch.shape[1] > batch.shape[2]
    x = batch.mT if tall else batch
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(iterations):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.mT if tall else x


class Optimizers:
    """Both optimizers under one schedule: warm-up, level, then down in a line to nothing."""

    def __init__(self, model: nn.Module, *, steps: int, muon_lr: float, adam_lr: float) -> None:
        matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "layers." in n]
        chosen = {id(p) for p in matrices}
        rest = [p for p in model.parameters() if id(p) not in chosen]
        self.both = (
            Muon(matrices, lr=muon_lr),
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
