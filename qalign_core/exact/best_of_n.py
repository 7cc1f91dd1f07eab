"""Best-of-n beside the alignment that it resembles, for rewards of a normal mixture (appendix A).

The formulas (mixture, tilt, `a_n`, `b_n`, `beta*(n)`) are those of `qalign_core.analysis`;
here are the exact distribution of the maximum, and how far the approximations are from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from qalign_core.analysis.best_of_n import BestOfN, best_of_n_as_alignment
from qalign_core.analysis.mixture import Mixture, tilt
from qalign_core.errors import InvalidSetting
from qalign_core.exact.law import Array
from qalign_core.run import check_count

SIZES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def cdf(mixture: Mixture, r: Array) -> Array:
    """F(r) of the mixture, same shape."""
    from scipy.special import ndtr

    parts = zip(mixture.weights, mixture.means, mixture.sds, strict=True)
    return np.asarray(sum(w * ndtr((r - mu) / sd) for w, mu, sd in parts))


def maximum_density(mixture: Mixture, n: int, r: Array) -> Array:
    """Density of the largest of n rewards, `n F(r)^(n-1) p(r)` (appendix A, Eq. truerewardist)."""
    check_count("n", n, 1)
    return np.asarray(n * cdf(mixture, r) ** (n - 1) * mixture.density(r))


def gumbel_cdf(a: float, b: float, r: Array) -> Array:
    """Distribution function of Gumbel(a, b), same shape."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(-np.exp(-(r - a) / b)))


def gumbel_density(a: float, b: float, r: Array) -> Array:
    """Density of Gumbel(a, b), same shape; its mode is a."""
    with np.errstate(over="ignore"):
        z = np.exp(-(r - a) / b)
    return np.asarray(np.where(np.isfinite(z), z * np.exp(-z) / b, 0.0))


@dataclass(frozen=True, slots=True, eq=False)
class Matched:
    """Best-of-n and its alignment on a grid of rewards.

    Attributes:
        n: number of samples.
        reward: the grid, raw RM units, shape [k].
        base, maximum: densities of one reward and of the largest of n, shape [k].
        alignment: `a_n`, `b_n`, `beta*(n)`; None where the formula means nothing.
        reason: why it is None, else empty.
        gumbel: the Gumbel approximation's density, shape [k]; None likewise.
        tilted: the rewards of the target at `beta*(n)`; None likewise.
        gap: largest difference of the distribution functions of maximum and Gumbel; likewise.
    """

    n: int
    reward: Array
    base: Array
    maximum: Array
    alignment: BestOfN | None
    reason: str
    gumbel: Array | None
    tilted: Mixture | None
    gap: float | None

    @property
    def mode(self) -> float:
        """The most likely maximum, to the grid's step."""
        return float(self.reward[int(np.argmax(self.maximum))])

    @property
    def sd(self) -> float:
        """Standard deviation of the maximum."""
        return _sd(self.reward, self.maximum)

    @property
    def tilted_sd(self) -> float | None:
        """Standard deviation of the rewards of the target at `beta*(n)`."""
        if self.tilted is None:
            return None
        parts = zip(self.tilted.weights, self.tilted.means, self.tilted.sds, strict=True)
        second = math.fsum(w * (sd * sd + mu * mu) for w, mu, sd in parts)
        return math.sqrt(max(0.0, second - self.tilted.mean**2))


def match(mixture: Mixture, n: int, points: int = 1201) -> Matched:
    """Best-of-n of a mixture, with the alignment of the same mode where there is one."""
    alignment, tilted, reason = None, None, ""
    try:
        alignment = best_of_n_as_alignment(mixture, n)
        tilted = tilt(mixture, alignment.beta)
    except InvalidSetting as error:
        reason = str(error)
    ends = [(mu, sd) for mu, sd in zip(mixture.means, mixture.sds, strict=True)]
    high = max(mu + (4 + math.sqrt(2 * math.log(n))) * sd for mu, sd in ends)
    if tilted is not None:
        d = mixture.dominant
        high = max(high, tilted.means[d] + 4 * tilted.sds[d])
    r = np.linspace(min(mu - 5 * sd for mu, sd in ends), high, points)
    gumbel = gap = None
    if alignment is not None:
        gumbel = gumbel_density(alignment.a, alignment.b, r)
        off = cdf(mixture, r) ** n - gumbel_cdf(alignment.a, alignment.b, r)
        gap = float(np.abs(off).max())
    return Matched(
        n, r, mixture.density(r), maximum_density(mixture, n, r), alignment, reason, gumbel,
        tilted, gap,
    )  # fmt: skip


def normalised_maxima(n: int, *, trials: int, seed: int) -> Array:
    """Largest of n standard normal numbers, `trials` times, shape [trials].

    By inverting the distribution of the maximum: Phi^-1(u^(1/n)), one draw a trial.
    """
    from scipy.special import ndtri

    check_count("n", n, 1)
    u = np.random.default_rng([seed, n]).random(trials)
    return np.asarray(ndtri(np.power(u, 1.0 / n)))


def _sd(r: Array, density: Array) -> float:
    mass = np.trapezoid(density, r)
    mean = np.trapezoid(r * density, r) / mass
    return math.sqrt(float(np.trapezoid((r - mean) ** 2 * density, r) / mass))
