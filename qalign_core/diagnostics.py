"""How well a chain moves and how much its states say; None where there are too few to tell.

Effective sample size, split R-hat, Monte Carlo standard error, autocorrelation and ranks are
ArviZ's functions (arviz-stats; Vehtari et al. 2021, "Rank-normalization, folding, and
localization"), imported when first needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qalign_core.errors import InvalidSetting
from qalign_core.types import Step

Array = NDArray[np.float64]

MIN_STATES = 16
"""States a chain that any of the estimates needs; below, they are noise."""
MIN_EFFECTIVE = 4.0
"""An estimate from fewer effective samples a chain means nothing and is not given."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """How often proposals were accepted; the initial draw is none.

    Attributes:
        n: proposals.
        n_accepted: of these, accepted.
        n_changed: of these, different from the state that they were drawn from.
        n_changed_accepted: of the changed ones, accepted (an equal one always is).
    """

    n: int
    n_accepted: int
    n_changed: int
    n_changed_accepted: int

    @property
    def overall(self) -> float | None:
        """Acceptance rate over all proposals; None before the first."""
        return self.n_accepted / self.n if self.n else None

    @property
    def changed(self) -> float | None:
        """Acceptance rate over proposals that differ from the state; None before the first."""
        return self.n_changed_accepted / self.n_changed if self.n_changed else None


def acceptance(steps: Iterable[Step]) -> Acceptance:
    """Count verdicts over the steps of any number of chains."""
    counted = [step for step in steps if step.t > 0]
    changed = [step.accepted for step in counted if step.changed]
    return Acceptance(
        n=len(counted),
        n_accepted=sum(step.accepted for step in counted),
        n_changed=len(changed),
        n_changed_accepted=sum(changed),
    )


def wilson_interval(successes: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """95 % confidence interval of a rate (Wilson 1927); the whole of [0, 1] for n = 0.

    For a chain it is a guide only: its verdicts are not independent.

    Raises:
        InvalidSetting: not 0 <= successes <= n.
    """
    if not 0 <= successes <= n:
        raise InvalidSetting(f"successes must be in 0..{n}, got {successes}")
    if n == 0:
        return 0.0, 1.0
    rate, z2 = successes / n, z * z
    middle = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = z / (1 + z2 / n) * math.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def effective_states(chains: Sequence[Sequence[float]]) -> float | None:
    """Bulk effective sample size of all chains together, for one number a state (its reward).

    Args:
        chains: a row a chain, shape [n_chains, n_states]; rows are cut to the shortest.

    Returns:
        None if there are too few states, or if they never change.
    """
    values = _values(chains)
    if values is None:
        return None
    ess = float(_arviz().ess(values, chain_axis=0, draw_axis=1))
    return ess if math.isfinite(ess) and ess >= MIN_EFFECTIVE * len(values) else None


def split_rhat(chains: Sequence[Sequence[float]]) -> float | None:
    """Rank-normalised split R-hat of two chains or more; near 1 if they agree.

    Returns:
        None for a single chain, too few states, or states that never change.
    """
    values = _values(chains)
    if values is None or len(values) < 2:
        return None
    rhat = float(_arviz().rhat(values, chain_axis=0, draw_axis=1))
    return rhat if math.isfinite(rhat) else None


def standard_error(chains: Sequence[Sequence[float]]) -> float | None:
    """Monte Carlo standard error of the mean over all states, in the unit of the values.

    Returns:
        None where `effective_states` is None.
    """
    values = _values(chains)
    if values is None or effective_states(chains) is None:
        return None
    return float(_arviz().mcse(values, chain_axis=0, draw_axis=1))


def autocorrelation(values: Sequence[float], lags: int = 50) -> tuple[float, ...] | None:
    """Autocorrelation of one chain at lags 0, 1, ..., at most `lags` of them.

    Returns:
        None if there are too few states, or if they never change.
    """
    checked = _values([values])
    if checked is None:
        return None
    most = min(lags + 1, checked.shape[1] // 2)  # a longer lag has too few pairs
    return tuple(float(rho) for rho in _arviz().autocorr(checked[0], axis=-1)[:most])


def rank_histogram(chains: Sequence[Sequence[float]], bins: int = 10) -> Array | None:
    """Ranks of each chain's states among all, counted in `bins`: shape [n_chains, bins].

    Chains that sample the same distribution have flat rows.

    Returns:
        None for a single chain, too few states, or states that never change.
    """
    values = _values(chains)
    if values is None or len(values) < 2:
        return None
    ranks = _arviz().compute_ranks(values.ravel()).reshape(values.shape)
    edges = np.linspace(0, values.size, bins + 1)
    return np.array([np.histogram(row, edges)[0] for row in ranks - 0.5], dtype=np.float64)


def _values(chains: Sequence[Sequence[float]]) -> Array | None:
    shortest = min((len(chain) for chain in chains), default=0)
    if shortest < MIN_STATES:
        return None
    values = np.array([chain[:shortest] for chain in chains], dtype=np.float64)
    return None if np.ptp(values) == 0 else values


def _arviz() -> Any:
    from arviz_stats.base import array_stats  # a third of a second, so not at start-up

    return array_stats
