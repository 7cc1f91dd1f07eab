"""Checkpoints, so that an interrupted training goes on where it was."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from qalign_study.train.embedded.optim import Optimizers


def save_checkpoint(path: Path, model: nn.Module, optimizers: Optimizers, step: int) -> None:
    """Write all of the state, replacing the old file only once the new one is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {"model": model.state_dict(), "optimizers": optimizers.state_dict(), "step": step}
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def load_checkpoint(path: Path, model: nn.Module, optimizers: Optimizers) -> int:
    """Load the state if there is one; returns the number of steps that were done."""
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizers.load_state_dict(state["optimizers"])
    return state["step"]
