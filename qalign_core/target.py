"""The distribution that a chain samples, and the rule that accepts its proposals.

The distribution is `pi(y|x) ∝ p_LM(y|x)^sharpness exp(r(x,y)/beta)`.

The paper's target (Eq. 1) has a sharpness of 1. A target is checked when it is constructed. Moves
(`chain.moves`) make the proposals; a target only compares two responses:

    >>> paper = Target(beta=0.5)
    >>> float(paper.log_ratio(Scores(reward=1.25), Scores(reward=1.0)))
    0.5
    >>> sharp = Target(beta=0.5, sharpness=2.0)
    >>> float(sharp.log_ratio(Scores(reward=1.0, log_prob=-3.0), Scores(1.0, log_prob=-5.0)))
    2.0

A proposal of 10 tokens, half a reward below a state of 12 tokens:

    >>> lengths = np.log(12), -np.log(10)
    >>> log_alpha = log_acceptance(
    ...     Target(beta=1.0), new=Scores(0.5), old=Scores(1.0), log_correction=lengths
    ... )
    >>> round(float(np.exp(log_alpha)), 3), bool(accepts(log_alpha, log_or_minus_inf(0.9)))
    (0.728, False)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from qalign_core.errors import InvalidSetting
from qalign_core.types import Array, ScoredResponse
from qalign_core.validation import check_real, short_repr


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Rewards of responses and, for a sharper target, their ln p(y|x); arrays broadcast."""

    reward: ArrayLike
    log_prob: ArrayLike | None = None


Scored = ScoredResponse | Scores
"""A response, or an array of responses: a target reads `reward` and `log_prob`."""


@dataclass(frozen=True, slots=True)
class Target:
    """`pi(y|x) ∝ p_LM(y|x)^sharpness exp(r(x,y)/beta)`.

    Attributes:
        beta: temperature of the reward, in raw RM units, > 0; a small beta follows the reward.
        sharpness: power of the model's probability, >= 1; the paper's is 1.

    Raises:
        InvalidSetting: beta is not a finite number > 0, or sharpness not a finite number >= 1.
    """

    beta: float
    sharpness: float = 1.0

    def __post_init__(self) -> None:
        beta = check_real(
            "beta", self.beta, 0, above=True, advice="'tune' finds one for about 50% acceptance"
        )
        sharpness = check_real("sharpness", self.sharpness, 1, advice="1 leaves the model as it is")
        object.__setattr__(self, "beta", beta)
        object.__setattr__(self, "sharpness", sharpness)

    @property
    def is_sharp(self) -> bool:
        """True if the target needs the log-probability of every response."""
        return self.sharpness != 1.0

    def log_ratio(self, new: Scored, old: Scored) -> Array:
        """Return the natural log of `w(y')/w(y)` with `w = pi/p_LM`; elementwise for arrays.

        This is `(r' - r)/beta + (sharpness - 1)(log p' - log p)`. The LM draws every proposal, so
        p_LM cancels in the acceptance probability, and a move adds only its own correction. At
        sharpness 1 no log-probability is read.

        Raises:
            InvalidSetting: a reward or a required log-probability is not finite.
        """
        r_new, r_old = np.asarray(new.reward, np.float64), np.asarray(old.reward, np.float64)
        if not (np.isfinite(r_new).all() and np.isfinite(r_old).all()):
            raise InvalidSetting(f"rewards must be finite, got {r_new} and {r_old}")
        with np.errstate(over="ignore"):  # a tiny beta makes the ratio infinite, and alpha 0 or 1
            ratio = (r_new - r_old) / self.beta
        if self.is_sharp:
            p_new, p_old = (np.asarray(each.log_prob, np.float64) for each in (new, old))
            if not (np.isfinite(p_new).all() and np.isfinite(p_old).all()):
                raise InvalidSetting(
                    f"sharpness = {self.sharpness:g} needs the log-probability of every response "
                    f"as sampled, got {p_new} and {p_old}"
                )
            ratio = ratio + (self.sharpness - 1.0) * (p_new - p_old)
        return np.asarray(ratio)


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


def check_target(target: object) -> None:
    """Raise unless this is a target.

    Raises:
        InvalidSetting: it is something else, such as a number.
    """
    if not isinstance(target, Target):
        raise InvalidSetting(f"target = {short_repr(target)}; give Target(beta)")
