"""Rewards of base samples as a mixture of two normal components, and what is done to it.

The target `pi_beta` tilts the mixture by `exp(r / beta)`; best-of-n takes the maximum of n, which
has its mode where a target has it too (paper, appendix on best-of-n).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from qalign_core.decide.arrays import softmax
from qalign_core.errors import InvalidReward, InvalidSetting
from qalign_core.target import Target
from qalign_core.types import Array
from qalign_core.validation import check_count

MOST = 1e100
"""The largest mean, standard deviation or reward: what is larger has no square."""

LEAST_BELOW_MODE = 0.1
"""Probability that a maximum is below `a_n`, less than which the formula does not describe it."""

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

    def cdf(self, r: Array) -> Array:
        """F(r), the share of rewards up to each of `r`, same shape."""
        from scipy.special import ndtr

        return np.asarray(sum(w * ndtr((r - mu) / sd) for w, mu, sd in self.parts()))

    def parts(self) -> Iterator[tuple[float, float, float]]:
        """Weight, mean and standard deviation of each component."""
        return zip(self.weights, self.means, self.sds, strict=True)

    @property
    def dominant(self) -> int:
        """The component that owns the upper tail: larger variance, larger mean if equal."""
        return max(range(len(self.sds)), key=lambda k: (self.sds[k], self.means[k]))

    @property
    def mean(self) -> float:
        """Mean reward."""
        return math.fsum(w * mu for w, mu, _ in self.parts())

    @property
    def sd(self) -> float:
        """Standard deviation of the reward."""
        second = math.fsum(w * (sd * sd + mu * mu) for w, mu, sd in self.parts())
        return math.sqrt(max(0.0, second - self.mean**2))


def fit_mixture(rewards: Sequence[float]) -> Mixture | None:
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
    # its default start, k-means, has threads: 15 times slower on a machine that is busy sampling
    how = {"n_init": 4, "reg_covar": 1e-4, "init_params": "k-means++", "random_state": 0}
    sizes = (k for k in (1, 2) if len(np.unique(values)) >= k)
    fits = [GaussianMixture(k, **how).fit(standard) for k in sizes]
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
    beta = Target(beta).beta
    logs = [
        math.log(w) + mu / beta + 0.5 * (sd / beta) * (sd / beta) if w > 0 else -math.inf
        for w, mu, sd in mixture.parts()
    ]
    if not math.isfinite(max(logs)):
        raise InvalidSetting(f"beta = {beta:g} is too small for these rewards; choose a larger one")
    return Mixture(
        weights=tuple(softmax(np.array(logs)).tolist()),
        means=tuple(mu + sd * sd / beta for _, mu, sd in mixture.parts()),
        sds=mixture.sds,
    )


@dataclass(frozen=True, slots=True)
class BestOfN:
    """The maximum of n base rewards, as a Gumbel distribution, and the beta of the same mode.

    Attributes:
        n: how many samples.
        a: location, the mode of the maximum, raw RM units.
        b: scale, raw RM units.
        c: `c_n`, the mode in standard deviations above the dominant component's mean.
        beta: `beta*(n) = sigma_d / c_n`, whose target has its mode there too.
    """

    n: int
    a: float
    b: float
    c: float
    beta: float


def best_of_n_as_alignment(mixture: Mixture, n: int) -> BestOfN:
    """Which alignment best-of-n amounts to: `a_n`, `b_n`, `c_n` and `beta*(n)` (paper, appendix).

    With `d` the dominant component and `n_d = w_d n`,
    `c_n = sqrt(2 log n_d) - (log log n_d + log 4 pi) / (2 sqrt(2 log n_d))`,
    `a_n = mu_d + sigma_d c_n`, `b_n = sigma_d / sqrt(2 log n_d)`; close for n >= 32 or so.
    It matches modes, not variances: best-of-n's variance shrinks with n, the target's does not.

    Raises:
        InvalidSetting: n is so small that the formula means nothing: `c_n <= 0`, or the largest
            of n rewards is almost surely above `a_n`, from a component with a larger mean.
    """
    check_count("n", n, 1)
    d = mixture.dominant
    n_d = mixture.weights[d] * n
    c = 0.0
    if n_d > math.e:  # log log n_d > 0
        root = math.sqrt(2 * math.log(n_d))
        c = root - (math.log(math.log(n_d)) + math.log(4 * math.pi)) / (2 * root)
    if c <= 0:
        raise InvalidSetting(
            f"best-of-{n} has no matching beta: only {n_d:.1f} of its samples are expected from "
            "the component that owns the upper tail; use a larger n"
        )
    sd = mixture.sds[d]
    a = mixture.means[d] + sd * c
    # a Gumbel variable is below its mode with probability 1/e
    if mixture.cdf(np.array(a)) ** n < LEAST_BELOW_MODE:
        raise InvalidSetting(
            f"best-of-{n} has no matching beta: the formula follows the component of the larger "
            "spread, and the largest reward still comes from the other one; use a larger n"
        )
    return BestOfN(n, a, sd / root, c, sd / c)


SIZES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def maximum_density(mixture: Mixture, n: int, r: Array) -> Array:
    """Density of the largest of n rewards, `n F(r)^(n-1) p(r)` (appendix A, Eq. 14)."""
    check_count("n", n, 1)
    return np.asarray(n * mixture.cdf(r) ** (n - 1) * mixture.density(r))


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
        r, p = self.reward, self.maximum / np.trapezoid(self.maximum, self.reward)
        mean = np.trapezoid(r * p, r)
        return math.sqrt(float(np.trapezoid((r - mean) ** 2 * p, r)))


def match(mixture: Mixture, n: int) -> Matched:
    """Best-of-n of a mixture, with the alignment of the same mode where there is one."""
    alignment, tilted, reason = None, None, ""
    try:
        alignment = best_of_n_as_alignment(mixture, n)
        tilted = tilt(mixture, alignment.beta)
    except InvalidSetting as error:
        reason = str(error)
    ends = list(zip(mixture.means, mixture.sds, strict=True))
    high = max(mu + (4 + math.sqrt(2 * math.log(n))) * sd for mu, sd in ends)
    if tilted is not None:
        d = mixture.dominant
        high = max(high, tilted.means[d] + 4 * tilted.sds[d])
    r = np.linspace(min(mu - 5 * sd for mu, sd in ends), high, 1201)
    gumbel = gap = None
    if alignment is not None:
        from scipy.stats import gumbel_r  # slow to import

        law = gumbel_r(alignment.a, alignment.b)
        gumbel = law.pdf(r)
        gap = float(np.abs(mixture.cdf(r) ** n - law.cdf(r)).max())
    return Matched(
        n, r, mixture.density(r), maximum_density(mixture, n, r), alignment, reason, gumbel,
        tilted, gap,
    )  # fmt: skip
