"""Best-of-n as an alignment: the maximum of n rewards, and the beta whose target has its mode."""

from __future__ import annotations

import math
from dataclasses import dataclass

from qalign_core.analysis.mixture import Mixture
from qalign_core.errors import InvalidSetting
from qalign_core.run import check_count


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
        InvalidSetting: n is so small that `c_n <= 0`, where the formula means nothing.
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
    return BestOfN(n, mixture.means[d] + sd * c, sd / root, c, sd / c)
