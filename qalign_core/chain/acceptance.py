"""The acceptance rule of the chain: the acceptance probability, and the decision.

A proposal of 10 tokens, half a reward below a state of 12 tokens:

>>> from qalign_core.target import Scores, Target
>>> lengths = np.log(12), -np.log(10)
>>> log_alpha = log_acceptance(
...     Target(beta=1.0), new=Scores(0.5), old=Scores(1.0), log_correction=lengths
... )
>>> round(float(np.exp(log_alpha)), 3), bool(accepts(log_alpha, log_or_minus_inf(0.9)))
(0.728, False)
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from qalign_core.target import Scored, Target
from qalign_core.types import Array


def log_acceptance(
    target: Target, *, new: Scored, old: Scored, log_correction: Sequence[ArrayLike]
) -> Array:
    """Return the natural log of the acceptance probability, <= 0; elementwise for arrays.

    `log alpha = min(0, target.log_ratio(new, old) + log_correction)`, with the move's correction:
    for the paper's move `log(|y| / |y'|)` (Eq. 8; docs/method.md, "Moves").

    Args:
        target: the distribution that the chain samples.
        new, old: proposal and state.
        log_correction: terms that add up to the move's correction.

    Raises:
        InvalidSetting: from the target.
    """
    log_ratio = target.log_ratio(new, old)
    for term in log_correction:  # one by one, so that floats round as in the written formula
        log_ratio = log_ratio + term
    return np.asarray(np.minimum(0.0, log_ratio))


def log_or_minus_inf(u: float) -> float:
    """Return the natural log of u in [0, 1); log 0 is -inf."""
    return math.log(u) if u > 0.0 else -math.inf


def accepts(log_alpha: ArrayLike, log_u: ArrayLike) -> Array:
    """Return True where the proposal is accepted: u < alpha, compared as logs."""
    return np.less(log_u, log_alpha)
