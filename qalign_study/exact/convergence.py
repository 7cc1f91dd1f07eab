"""How fast a chain reaches its target, how much of a distance is noise, and what beta does."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from qalign_core.errors import InvalidSetting
from qalign_core.types import Array
from qalign_core.validation import check_count
from qalign_study.exact.law import ExactChain, total_variation
from qalign_study.exact.world import World

MAX_CHAINS = 256


def distances(chain: ExactChain, steps: int) -> Array:
    """Total variation between d_0 T^t and the target for t = 0..steps, shape [steps + 1]."""
    d, distance = chain.base, np.empty(steps + 1)
    for t in range(steps + 1):
        distance[t] = total_variation(d, chain.target)
        d = d @ chain.matrix
    return distance


def kl_divergence(p: Array, q: Array) -> float:
    """KL(p || q) in nats; infinite where p has mass and q has none."""
    from scipy.special import rel_entr

    return max(0.0, float(rel_entr(p, q).sum()))


def acceptance_rate(chain: ExactChain) -> float:
    """Expected acceptance of a proposal under the target."""
    return float(chain.target @ chain.acceptance)


def acceptance_rate_changed(chain: ExactChain) -> float:
    """Expected acceptance under the target, over proposals that differ from the state."""
    # a proposal equal to the state is always accepted by every rule that is not a mistake
    moved = float(chain.target @ (chain.acceptance - chain.unchanged))
    changed = float(chain.target @ (1.0 - chain.unchanged))
    return moved / changed if changed > 0 else math.nan


def second_eigenvalue(chain: ExactChain) -> float:
    """The largest |eigenvalue| below 1 of a reversible chain: what the distance shrinks by a step.

    The matrix is made symmetric by the target, sqrt(pi_a / pi_b) T_ab, so eigenvalues are real.

    Raises:
        InvalidSetting: the chain does not keep detailed balance, so this is not its rate.
    """
    if chain.balance_residual() > 1e-9:
        raise InvalidSetting("only a chain with detailed balance has a rate of this kind")
    reached = chain.target > 0
    flow = chain.target[reached, None] * chain.matrix[np.ix_(reached, reached)]
    root = np.sqrt(chain.target[reached])
    symmetric = (flow + flow.T) / 2 / root[:, None] / root[None, :]
    values = np.sort(np.abs(np.linalg.eigvalsh(symmetric)))
    return float(values[-2]) if len(values) > 1 else 0.0


def steps_within(chain: ExactChain, distance: float = 0.01, longest: int = 2**30) -> int | None:
    """The first t with total variation of d_0 T^t from the target at most `distance`.

    The distance never grows with t for a chain that keeps its target, so it is found by doubling
    and then halving.

    Returns:
        None if that takes more than `longest` steps, or never happens.
    """
    if total_variation(chain.base, chain.target) <= distance:
        return 0
    powers = [chain.matrix]
    while total_variation(chain.base @ powers[-1], chain.target) > distance:
        if 2 ** len(powers) > longest:
            return None
        powers.append(powers[-1] @ powers[-1])
    d, t = chain.base, 0
    for k in reversed(range(len(powers) - 1)):  # walk as far as it is still too far away
        further = d @ powers[k]
        if total_variation(further, chain.target) > distance:
            d, t = further, t + 2**k
    return t + 1


def simulate(chain: ExactChain, *, n_chains: int, steps: int, seed: int) -> Array:
    """Walk chains from the base LM along the matrix; state numbers, shape [steps + 1, n_chains].

    The first chains are the same however many are walked.

    Raises:
        InvalidSetting: more chains than `MAX_CHAINS`, or fewer than one.
    """
    if not 1 <= n_chains <= MAX_CHAINS:
        raise InvalidSetting(f"from 1 to {MAX_CHAINS} chains can be walked, got {n_chains}")
    u = np.random.default_rng(seed).random((steps + 1, MAX_CHAINS))[:, :n_chains]
    last = len(chain.states) - 1
    cumulative = np.cumsum(chain.matrix, axis=1)
    path = np.empty((steps + 1, n_chains), dtype=np.int64)
    path[0] = np.minimum(np.searchsorted(np.cumsum(chain.base), u[0], side="right"), last)
    for t in range(steps):
        rows = cumulative[path[t]]
        path[t + 1] = np.minimum((rows <= u[t + 1][:, None]).sum(axis=1), last)
    return path


def shares(path: Array, n_states: int) -> Array:
    """Share of the chains in each state after each step, shape [steps + 1, n_states]."""
    n_chains = path.shape[1]
    return np.array([np.bincount(row, minlength=n_states) / n_chains for row in path])


def noise_floor(target: Array, n: int) -> float:
    """Return the expected total variation between the target and n draws from it.

    It is half the sum of the mean absolute deviations of Binomial(n, pi_b) / n, and de Moivre's
    formula gives each exactly: E|X - np| = 2 v (1-p)^(n-v+1) p^v C(n, v), v = floor(np) + 1.

    Raises:
        InvalidSetting: n < 1.
    """
    from scipy.special import gammaln

    check_count("n", n, 1)
    p = target[(target > 0) & (target < 1)]
    v = np.minimum(np.floor(n * p) + 1, n)
    log_choose = gammaln(n + 1) - gammaln(v + 1) - gammaln(n - v + 1)
    log_mad = math.log(2) + np.log(v) + (n - v + 1) * np.log1p(-p) + v * np.log(p) + log_choose
    return float(0.5 * np.exp(log_mad).sum() / n)


BETAS: tuple[float, ...] = tuple(float(b) for b in np.geomspace(0.05, 20.0, 23))


@dataclass(frozen=True, slots=True)
class AtBeta:
    """The chain of one world at one beta (in units of the rewards' spread).

    Attributes:
        beta: temperature of the target.
        acceptance: expected acceptance of a proposal, under the target.
        acceptance_changed: the same over proposals that differ from the state.
        kl: KL(target || base), nats.
        mean_reward: mean reward under the target, in spreads above the base LM's mean.
        eigenvalue: what the distance to the target shrinks by a step, in the long run.
        steps: first t with total variation from the target <= 0.01, from the base LM.
    """

    beta: float
    acceptance: float
    acceptance_changed: float
    kl: float
    mean_reward: float
    eigenvalue: float
    steps: int | None


@lru_cache(maxsize=4096)
def at_beta(world: World, beta: float) -> AtBeta:
    """Everything that the lab shows about one beta (cached)."""
    chain = world.chain(beta)
    return AtBeta(
        beta,
        acceptance_rate(chain),
        acceptance_rate_changed(chain),
        kl_divergence(chain.target, chain.base),
        float(chain.target @ chain.rewards),
        second_eigenvalue(chain),
        steps_within(chain),
    )


def sweep(world: World) -> tuple[AtBeta, ...]:
    """The same over `BETAS`, smallest first (cached)."""
    return tuple(at_beta(world, beta) for beta in BETAS)
