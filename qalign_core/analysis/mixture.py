"""Rewards of base samples as a mixture of two normal components, and its tilt by `exp(r / beta)`.

The target `pi_beta` tilts the mixture (paper, appendix on best-of-n).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qalign_core.decide.arrays import softmax
from qalign_core.errors import InvalidReward, InvalidSetting
from qalign_core.run import check_beta

Array = NDArray[np.float64]

MOST = 1e100
"""The largest mean, standard deviation or reward: what is larger has no square."""

MIN_REWARDS = 16
"""Base rewards below which no mixture is fitted."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """A mixture of normal components, in raw RM units.

    Attributes:
        weights: of the components, summing to 1.
        means, sds: of the components, sds > 0.
        bic: of the fit; None if the mixture was not fitted.
        bic_other: of the fit with the other number of components; None likewise.
    """

    weights: tuple[float, ...]
    means: tuple[float, ...]
    sds: tuple[float, ...]
    bic: float | None = None
    bic_other: float | None = None

    def __post_init__(self) -> None:
        """Refuse what no density can be computed of."""
        good = all(abs(mu) <= MOST for mu in self.means) and all(0 < sd <= MOST for sd in self.sds)
        if not (good and all(0 <= w <= 1 for w in self.weights)):
            raise InvalidSetting(
                f"a mixture has means up to {MOST:g}, standard deviations above 0 and weights from "
                f"0 to 1, got {self.means}, {self.sds} and {self.weights}"
            )

    def density(self, r: ArrayLike) -> Array:
        """Density at rewards `r`, same shape."""
        x = np.asarray(r, dtype=np.float64)[..., None]
        mu, sd, w = np.array(self.means), np.array(self.sds), np.array(self.weights)
        parts = w * np.exp(-0.5 * ((x - mu) / sd) ** 2) / (sd * math.sqrt(2 * math.pi))
        return np.asarray(parts.sum(axis=-1))

    @property
    def dominant(self) -> int:
        """The component that owns the upper tail: larger variance, larger mean if equal."""
        return max(range(len(self.sds)), key=lambda k: (self.sds[k], self.means[k]))

    @property
    def mean(self) -> float:
        """Mean reward."""
        return math.fsum(w * mu for w, mu in zip(self.weights, self.means, strict=True))


def fit_mixture(rewards: Sequence[float], seed: int = 0) -> Mixture | None:
    """Fit one and two normal components to base rewards and keep the one of lower BIC.

    Returns:
        None if there are fewer than `MIN_REWARDS` rewards or all are (nearly) the same.

    Raises:
        InvalidReward: a reward is not finite, or too large.
    """
    values = np.asarray(rewards, dtype=np.float64)
    if not (np.abs(values) <= MOST).all():
        raise InvalidReward(
            f"a mixture needs finite rewards up to {MOST:g}; got a larger one or a NaN"
        )
    spread = float(values.std()) if len(values) else 0.0
    if len(values) < MIN_REWARDS or spread < 1e-9 * max(1.0, float(np.abs(values).max())):
        return None
    from sklearn.mixture import GaussianMixture  # slow to import

    standard = ((values - values.mean()) / spread)[:, None]
    fits = [
        # its default, k-means, starts threads: 15 times slower on a machine that is busy sampling
        GaussianMixture(
            k, n_init=4, reg_covar=1e-4, init_params="k-means++", random_state=seed
        ).fit(standard)
        for k in (1, 2)
        if len(np.unique(values)) >= k
    ]
    bics = [float(fit.bic(standard)) for fit in fits]
    best = int(np.argmin(bics))
    fit = fits[best]
    order = np.argsort(fit.means_[:, 0])
    return Mixture(
        weights=tuple(float(w) for w in fit.weights_[order]),
        means=tuple(float(values.mean() + spread * m) for m in fit.means_[order, 0]),
        sds=tuple(float(spread * math.sqrt(v)) for v in fit.covariances_[order, 0, 0]),
        bic=bics[best],
        bic_other=bics[1 - best] if len(bics) > 1 else None,
    )


def tilt(mixture: Mixture, beta: float) -> Mixture:
    """The mixture of rewards under the target: tilted by `exp(r / beta)` (paper, appendix).

    Component k moves to `mu_k + sigma_k^2 / beta` and keeps its variance; its weight is multiplied
    by `exp(mu_k / beta + sigma_k^2 / (2 beta^2))` and renormalised.

    Raises:
        InvalidSetting: `beta` is not a positive number, or too small for these rewards.
    """
    beta = check_beta(beta)
    logs = [
        math.log(w) + mu / beta + 0.5 * (sd / beta) * (sd / beta) if w > 0 else -math.inf
        for w, mu, sd in zip(mixture.weights, mixture.means, mixture.sds, strict=True)
    ]
    if not math.isfinite(max(logs)):
        raise InvalidSetting(f"beta = {beta:g} is too small for these rewards; choose a larger one")
    return Mixture(
        weights=tuple(softmax(np.array(logs)).tolist()),
        means=tuple(mu + sd * sd / beta for mu, sd in zip(mixture.means, mixture.sds, strict=True)),
        sds=mixture.sds,
    )
