"""The two formulas of the chain; everything else in the core only carries them out."""

import math

import numpy as np
from numpy.typing import ArrayLike

from qalign_core.errors import InvalidSetting
from qalign_core.run import check_alpha, check_beta
from qalign_core.types import Array


def draw_index(length: int, u: float) -> int:
    """Map u in [0, 1) to an index, uniform over {0, ..., length-1} (Eq. proposal).

    The first `index` ids are kept; 0 rewrites everything, length-1 only the last id, EOS included.

    Raises:
        InvalidSetting: if length < 1 or u is outside [0, 1).
    """
    if length < 1:
        raise InvalidSetting(f"a response has at least 1 token, got length {length}")
    if not 0.0 <= u < 1.0:
        raise InvalidSetting(f"u must be in [0, 1), got {u}")
    # min: for a long response u * length can round up to length
    return min(int(u * length), length - 1)


def log_acceptance(
    *,
    reward_new: float,
    reward_old: float,
    len_new: int,
    len_old: int,
    beta: float,
    log_prob_new: float | None = None,
    log_prob_old: float | None = None,
    alpha: float = 1.0,
) -> float:
    """Natural log of the acceptance probability, <= 0 (Eq. rlhfcretirion; METHOD: Sharper targets).

    `min(0, (r' - r) / beta + (alpha - 1) (log p' - log p) + log(|y| / |y'|))`, lengths with EOS
    counted: the proposal brings one factor p'/p of the target's `p^alpha` already.

    Args:
        reward_new: r(x, y'), raw RM units.
        reward_old: r(x, y), raw RM units.
        len_new: |y'|.
        len_old: |y|.
        beta: temperature of the target, in RM units; > 0.
        log_prob_new: ln p(y'|x) of the whole response as sampled; not read where alpha is 1.
        log_prob_old: ln p(y|x).
        alpha: power of the model's probability in the target, >= 1.

    Raises:
        InvalidSetting: if beta is not a finite number > 0, alpha not one >= 1, a reward or a
            log-probability that is needed is not finite, or a length < 1.
    """
    log_alpha = log_acceptances(
        reward_new=reward_new,
        reward_old=reward_old,
        len_new=len_new,
        len_old=len_old,
        beta=beta,
        log_prob_new=log_prob_new,
        log_prob_old=log_prob_old,
        alpha=alpha,
    )
    return float(log_alpha)


def log_acceptances(
    *,
    reward_new: ArrayLike,
    reward_old: ArrayLike,
    len_new: ArrayLike,
    len_old: ArrayLike,
    beta: float | Array,
    log_prob_new: ArrayLike | None = None,
    log_prob_old: ArrayLike | None = None,
    alpha: float = 1.0,
) -> Array:
    """`log_acceptance` of many proposals at once, or at many betas: arrays that broadcast."""
    for each in np.unique(beta) if isinstance(beta, np.ndarray) else [beta]:
        check_beta(each)
    check_alpha(alpha)
    r_new, r_old = np.asarray(reward_new, np.float64), np.asarray(reward_old, np.float64)
    if not (np.isfinite(r_new).all() and np.isfinite(r_old).all()):
        raise InvalidSetting(f"rewards must be finite, got {r_new} and {r_old}")
    if np.min(len_new) < 1 or np.min(len_old) < 1:
        raise InvalidSetting(f"a response has at least 1 token, got {len_new!r} and {len_old!r}")
    with np.errstate(over="ignore"):  # a tiny beta makes the lead infinite, and alpha 0 or 1
        # old/new: the reverse move draws its index from |y_new| positions
        lead = (r_new - r_old) / beta + np.log(len_old) - np.log(len_new)
    if alpha != 1.0:
        p_new, p_old = np.asarray(log_prob_new, np.float64), np.asarray(log_prob_old, np.float64)
        if not (np.isfinite(p_new).all() and np.isfinite(p_old).all()):
            raise InvalidSetting(
                f"alpha = {alpha:g} needs the log-probability of every response as sampled, got "
                f"{p_new} and {p_old}"
            )
        # the other factor of p^alpha is in how the proposal is drawn
        lead = lead + (alpha - 1.0) * (p_new - p_old)
    return np.asarray(np.minimum(0.0, lead))


def log_uniform(u: float) -> float:
    """Natural log of u in [0, 1); log 0 is -inf."""
    return math.log(u) if u > 0.0 else -math.inf


def accepts(log_alpha: float, log_u: float) -> bool:
    """Whether the chain moves: u < alpha, in log space (so alpha = 1 always accepts)."""
    return log_u < log_alpha
