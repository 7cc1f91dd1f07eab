"""Has the chain mixed? Acceptance rates with their bands, and diagnostics of convergence.

A quantity that cannot be estimated, from too few steps or from chains that have not moved, is None
rather than a meaningless number.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from qalign_core.types import Array, Step
from qalign_study.measure.intervals import wilson
from qalign_study.measure.record import Record, generated

MIN_STATES = 32
"""States a chain below which no diagnostic of mixing is given."""
MAX_LAG = 50
"""The largest lag of an autocorrelation."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A share of successes with its 95 % band (Wilson); both are None if nothing was counted.

    The band treats the trials as independent; successive proposals of a chain are nearly so.
    """

    successes: int
    trials: int

    @property
    def value(self) -> float | None:
        """The share itself."""
        return self.successes / self.trials if self.trials else None

    @property
    def band(self) -> tuple[float, float] | None:
        """Both ends of the band."""
        return wilson(self.successes, self.trials) if self.trials else None


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Acceptance of all proposals, and of those that differ from the state they were made in.

    The second is what beta is tuned on: a proposal that equals the state is always accepted.
    """

    overall: Rate
    changed: Rate


def acceptance(steps: Iterable[Step]) -> Acceptance:
    """Count accepted proposals; the initial draw (t = 0) is none."""
    return _counted([(step.accepted, step.changed) for step in steps if step.t > 0])


def acceptance_of(records: Iterable[Record]) -> Acceptance:
    """Count accepted proposals over all chains, initial draws left out."""
    pairs = [np.stack([r.chain_accepted, r.chain_changed], 1)[r.n_chains :] for r in records]
    return _counted(np.concatenate(pairs) if pairs else ())


def _counted(proposals: ArrayLike) -> Acceptance:
    """Acceptance of proposals, a row each: whether it was accepted, whether it was a change."""
    accepted, changed = np.asarray(proposals, dtype=bool).reshape(-1, 2).T
    both = int((accepted & changed).sum())
    return Acceptance(Rate(int(accepted.sum()), len(accepted)), Rate(both, int(changed.sum())))


def near_misses(records: Iterable[Record]) -> Rate:
    """How often the reward prefers the right one of a state and a proposal: how well it ranks them.

    The two share a beginning, since the proposal keeps the state up to an index above 0, and
    exactly one of them is right. Each pair counts as often as the chain met it.
    """
    preferred = met = 0
    for record in records:
        first = record.n_chains  # the first steps are the initial draws, which have no state before
        state, reward = record.state_of[:-first], record.chain_reward
        right = record.is_right(record.chain_answer)
        kept = record.chain_length - generated(record.chain_cost)
        pair = (right[first:] != right[state]) & (kept[first:] > 0)
        rise = np.where(right[first:], 1, -1) * (reward[first:] - reward[state])
        preferred += int((pair & (rise > 0)).sum())
        met += int(pair.sum())
    return Rate(preferred, met)


def ess(chains: Sequence[Sequence[float]]) -> float | None:
    """Effective sample size of the mean of a quantity over the states (rank-free, all chains).

    `n / tau`, where tau sums the autocorrelations of the chains' halves over lags (Geyer 1992:
    pairs of lags as long as they are positive, none larger than one before), as arviz does.

    Args:
        chains: one sequence of values a chain (rewards, say), repeats counted; the longer ones
            are cut at the end of the shortest.

    Returns:
        between 1 and, for an anticorrelated chain, more than the number of states; None if there
        are fewer than `MIN_STATES` states a chain, or the quantity is the same in all of them.
    """
    values = _rectangle(chains)
    if values is None:
        return None
    halves = _halves(values)
    n = halves.shape[1]
    with np.errstate(all="ignore"):  # what overflows is not finite in the end
        covariance = _autocovariance(halves).mean(axis=0)
        within = covariance[0] * n / (n - 1)
        rho = 1 - (within - covariance) / (covariance[0] + halves.mean(axis=1).var(ddof=1))
        rho[0] = 1
        pairs = rho[: n - n % 2].reshape(-1, 2).sum(axis=1)
        ends = np.flatnonzero(pairs[:-1] <= 0)
        end = ends[0] if len(ends) else (n - 3) // 2
        tau = 2 * np.minimum.accumulate(pairs[:end]).sum() + np.maximum(rho[2 * end], 0) - 1
        effective = float(halves.size / np.maximum(tau, 1 / math.log10(halves.size)))
    return effective if math.isfinite(effective) else None


def split_rhat(chains: Sequence[Sequence[float]]) -> float | None:
    """Split R-hat, the larger of bulk and tail (Vehtari et al. 2021); 1 is mixed.

    Every chain is cut into two halves, and the spread of all halves together is compared with that
    within them; one chain is so compared with itself. Bulk: of the values, rank-normalised. Tail:
    of their distances from the median, likewise, which sees halves that differ in spread.

    Returns:
        infinite where each half is constant and they differ; None under the conditions of `ess`.
    """
    values = _rectangle(chains)
    if values is None or np.ptp(halves := _halves(values)) == 0:
        return None
    folded = np.abs(halves - np.median(halves))
    return max(_rhat(_rank_normalised(halves)), _rhat(_rank_normalised(folded)))


def rhat_limit(n_chains: int, n_states: int) -> float:
    """The split R-hat above which the halves of chains of `n_states` states disagree.

    It is 1.01, the limit of its authors, who speak of four chains and 400 effective samples. With
    fewer states R-hat is above that by chance: of one chain of 200 independent states in one case
    of six. So it is at least what independent states exceed in one case of 20: with m
    halves of n states, `1 + n (R^2 - 1)` is the F of an analysis of variance, with m - 1 and
    m (n - 1) degrees of freedom, and bulk and tail are nearly independent of one another.
    """
    from scipy.special import fdtri

    n, m = n_states // 2, 2 * n_chains
    f = float(fdtri(m - 1, m * (n - 1), math.sqrt(0.95)))
    return max(1.01, math.sqrt(1 + (f - 1) / n))


@dataclass(frozen=True, slots=True)
class Agreement:
    """Whether the halves of chains agree: their split R-hat, and the limit for so many states.

    Attributes:
        rhat: as `split_rhat` returns it: infinite where each half is constant and they differ, and
            None where it is undefined.
        limit: the largest R-hat of chains that agree; infinite where `rhat` is undefined.
        n_chains: the number of chains.
        n_states: the number of states of the shortest chain.
    """

    rhat: float | None
    limit: float
    n_chains: int
    n_states: int

    @property
    def is_mixed(self) -> bool:
        """True if R-hat is defined and no larger than chance makes it."""
        return self.rhat is not None and self.rhat <= self.limit

    @property
    def finite(self) -> float | None:
        """R-hat for JSON, which has no infinite numbers; None if it is infinite or undefined."""
        return None if self.rhat is None or math.isinf(self.rhat) else self.rhat

    def __str__(self) -> str:
        """R-hat with three decimals, "infinite", or a dash where it is undefined."""
        if self.rhat is None:
            return "–"
        return "infinite" if math.isinf(self.rhat) else f"{self.rhat:.3f}"


def agreement(chains: Sequence[Sequence[float]]) -> Agreement:
    """Compare the halves of chains, as `split_rhat` does; every page and endpoint reports this."""
    rhat, n_states = split_rhat(chains), min(map(len, chains), default=0)
    limit = math.inf if rhat is None else rhat_limit(len(chains), n_states)
    return Agreement(rhat, limit, len(chains), n_states)


def _halves(values: Array) -> Array:
    """The first and the second half of each chain, shape [2 chains, states // 2]."""
    half = values.shape[1] // 2
    return np.concatenate([values[:, :half], values[:, -half:]])


def _autocovariance(values: Array) -> Array:
    """Compute each row's autocovariance at all lags, divided by its length at every lag."""
    n = values.shape[1]
    spectrum = np.fft.rfft(values - values.mean(axis=1, keepdims=True), 2 * n, axis=1)
    return np.asarray(np.fft.irfft(np.abs(spectrum) ** 2, 2 * n, axis=1)[:, :n] / n)


def _rank_normalised(values: Array) -> Array:
    """Normal scores of the ranks among all values, same shape."""
    from scipy.special import ndtri

    return np.asarray(ndtri((ranks(values) - 0.375) / (values.size + 0.25)))


def ranks(values: Array) -> Array:
    """Rank of each value among all, from 1, same shape; ties share their mean rank."""
    _, at, n = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(n) - (n - 1) / 2)[at].reshape(values.shape))


def _rhat(values: Array) -> float:
    """R-hat of parts as they are, shape [parts, n]; 1 where nothing ever changes."""
    n = values.shape[1]
    if not np.ptp(values, axis=1).any():  # a variance of equal numbers may be rounded to above 0
        return 1.0 if np.ptp(values) == 0 else math.inf
    between = n * float(values.mean(axis=1).var(ddof=1))
    within = float(values.var(axis=1, ddof=1).mean())
    return math.sqrt((between / within + n - 1) / n)


def mcse(chains: Sequence[Sequence[float]]) -> float | None:
    """Monte Carlo standard error of the mean over the states, in the quantity's unit.

    Returns:
        None under the conditions of `ess`.
    """
    values, effective = _rectangle(chains), ess(chains)
    if values is None or effective is None:
        return None
    return float(values.std(ddof=1)) / math.sqrt(effective)


def autocorrelation(values: Sequence[float]) -> tuple[float, ...] | None:
    """Autocorrelation of one chain at lags 0 to `MAX_LAG` (or a quarter of its length).

    Returns:
        None under the conditions of `ess`.
    """
    chain = _rectangle([values])
    if chain is None:
        return None
    lags = min(MAX_LAG, len(values) // 4)
    covariance = _autocovariance(chain)[0]
    return tuple(float(c / covariance[0]) for c in covariance[: lags + 1])


def ess_per_thousand_tokens(effective: float | None, generated: int) -> float | None:
    """Effective samples per 1,000 generated tokens."""
    return 1000 * effective / generated if effective is not None and generated > 0 else None


def _rectangle(chains: Sequence[Sequence[float]]) -> Array | None:
    """Chains as an array [chains, states]; None if they are too short, or all values are equal."""
    length = min((len(chain) for chain in chains), default=0)
    if length < MIN_STATES:
        return None
    values = np.array([chain[:length] for chain in chains], dtype=np.float64)
    return values if np.isfinite(values).all() and np.ptp(values) > 0 else None
