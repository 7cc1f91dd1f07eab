"""The rule of the chain: how likely a proposal is accepted, and whether it is."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from qalign_core.target import Scored, Target
from qalign_core.types import Array


def log_acceptance(
    target: Target, *, new: Scored, old: Scored, log_correction: Sequence[ArrayLike]
) -> Array:
    """Natural log of the acceptance probability, <= 0; elementwise for arrays.

    `log alpha = min(0, target.log_ratio(new, old) + log_correction)`, with the move's correction:
    for the paper's move `log(|y| / |y'|)` (Eq. 8; docs/method.md, "Moves").

    Args:
        target: what the chain samples.
        new, old: proposal and state.
        log_correction: the terms of the move's correction; their sum counts.

    Raises:
        InvalidSetting: from the target.
    """
    lead = target.log_ratio(new, old)
    for term in log_correction:  # one by one, so that every float is that of the plain formula
        lead = lead + term
    return np.asarray(np.minimum(0.0, lead))


def log_uniform(u: float) -> float:
    """Natural log of u in [0, 1); log 0 is -inf."""
    return math.log(u) if u > 0.0 else -math.inf


def accepts(log_alpha: ArrayLike, log_u: ArrayLike) -> Array:
    """Whether the chain moves: u < alpha, in log space (so alpha = 1 always accepts)."""
    return np.less(log_u, log_alpha)
