"""What beta does: from trusting the LM (large) to trusting the reward (small)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from qalign_core.exact.convergence import (
    acceptance_rate,
    acceptance_rate_changed,
    kl_divergence,
    second_eigenvalue,
    steps_within,
)
from qalign_core.exact.world import World

BETAS: tuple[float, ...] = tuple(float(b) for b in np.geomspace(0.05, 20.0, 23))


@dataclass(frozen=True, slots=True)
class AtBeta:
    """The chain of one world at one beta (in units of the rewards' spread).

    Attributes:
        beta: temperature of the target.
        acceptance: expected acceptance of a proposal, under the target.
        acceptance_changed: the same over proposals that differ from the state.
        kl: KL(target || base), nats.
        mean_reward: mean reward under the target, in spreads above the base LM's mean.
        eigenvalue: what the distance to the target shrinks by a step, in the long run.
        steps: first t with total variation from the target <= 0.01, from the base LM.
    """

    beta: float
    acceptance: float
    acceptance_changed: float
    kl: float
    mean_reward: float
    eigenvalue: float
    steps: int | None


@lru_cache(maxsize=4096)
def at_beta(world: World, beta: float) -> AtBeta:
    """Everything that the lab shows about one beta (cached)."""
    chain = world.chain(beta)
    return AtBeta(
        beta,
        acceptance_rate(chain),
        acceptance_rate_changed(chain),
        kl_divergence(chain.target, chain.base),
        float(chain.target @ chain.rewards),
        second_eigenvalue(chain),
        steps_within(chain),
    )


def sweep(world: World) -> tuple[AtBeta, ...]:
    """The same over `BETAS`, smallest first (cached)."""
    return tuple(at_beta(world, beta) for beta in BETAS)
