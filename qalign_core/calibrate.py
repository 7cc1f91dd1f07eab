"""What beta does: the reward's mixture and its tilt, best-of-n's matching beta, KL, and tuning.

The rewards of base samples are described by a mixture of two normal components (paper, appendix
on best-of-n); the target `pi_beta` tilts it by `exp(r / beta)`, and best-of-n matches the mode of
the target at `beta*(n)`. `tune_beta` finds the beta for a target acceptance rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qalign_core.chain import run_chain
from qalign_core.errors import InvalidReward, InvalidSetting
from qalign_core.kernel import check_beta
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.sampling import check_count, gather
from qalign_core.types import Cost

Array = NDArray[np.float64]

MIN_REWARDS = 16
"""Base rewards below which no mixture is fitted."""


# --- the mixture -----------------------------------------------------------------------------


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
        InvalidReward: a reward is not finite.
    """
    values = np.asarray(rewards, dtype=np.float64)
    if not np.isfinite(values).all():
        raise InvalidReward("a mixture needs finite rewards; got a NaN or an infinity among them")
    spread = float(values.std()) if len(values) else 0.0
    if len(values) < MIN_REWARDS or spread < 1e-9 * max(1.0, float(np.abs(values).max())):
        return None
    from sklearn.mixture import GaussianMixture  # slow to import

    standard = ((values - values.mean()) / spread)[:, None]
    fits = [
        GaussianMixture(k, n_init=4 if k > 1 else 1, reg_covar=1e-4, random_state=seed).fit(
            standard
        )
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
        InvalidSetting: `beta` is not a positive number.
    """
    beta = check_beta(beta)
    logs = [
        math.log(w) + mu / beta + 0.5 * (sd / beta) ** 2 if w > 0 else -math.inf
        for w, mu, sd in zip(mixture.weights, mixture.means, mixture.sds, strict=True)
    ]
    top = max(logs)
    unnormalised = [math.exp(value - top) for value in logs]
    total = math.fsum(unnormalised)
    return Mixture(
        weights=tuple(w / total for w in unnormalised),
        means=tuple(mu + sd * sd / beta for mu, sd in zip(mixture.means, mixture.sds, strict=True)),
        sds=mixture.sds,
    )


# --- best-of-n -------------------------------------------------------------------------------


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


def matching_n(mixture: Mixture, beta: float, largest: int = 2**30) -> int | None:
    """The n whose best-of-n has its mode where the target at `beta` has: `beta*(n) = beta`.

    Returns:
        None if it is larger than `largest`, or so small that the formula means nothing.

    Raises:
        InvalidSetting: `beta` is not a positive number.
    """
    beta = check_beta(beta)

    def beta_of(n: int) -> float:
        try:
            return best_of_n_as_alignment(mixture, n).beta
        except InvalidSetting:
            return math.inf

    low, high = 1, largest  # beta*(n) falls with n
    if beta_of(high) > beta:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if beta_of(middle) <= beta else (middle, high)
    # the least n of the formula's range is the answer to no particular beta
    return high if math.isfinite(beta_of(high - 1)) else None


def kl_from_base(rewards: Sequence[float], beta: float) -> float:
    """KL(pi_beta || p_LM) in nats, estimated from rewards of base samples.

    `KL = E_pi[r] / beta - log E_base[exp(r / beta)]` with self-normalised weights: equal to
    `log n - H(w)`, so never negative and never above `log n`, which a small beta runs into.

    Raises:
        InvalidSetting: no rewards, or `beta` is not a positive number.
    """
    beta = check_beta(beta)
    if not len(rewards):
        raise InvalidSetting("KL needs rewards of base samples, got none; draw some first")
    scaled = np.asarray(rewards, dtype=np.float64) / beta
    log_w = scaled - scaled.max()
    log_w -= math.log(float(np.exp(log_w).sum()))
    w = np.exp(log_w)
    entropy_terms = np.where(w > 0, w * (log_w + math.log(len(w))), 0.0)
    return max(0.0, math.fsum(entropy_terms.tolist()))


# --- tuning ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Proposals:
    """Proposals as numbers: given them, the acceptance at every beta is known.

    Attributes:
        lead: reward of the proposal minus that of the state, shape [n].
        log_ratio: log of |state| / |proposal|, shape [n].
        changed: whether the proposal differs from the state, shape [n].
        prompt: number of the prompt each belongs to, shape [n].
    """

    lead: Array
    log_ratio: Array
    changed: NDArray[np.bool_]
    prompt: NDArray[np.int64]

    def acceptance(self, beta: float, changed_only: bool = True) -> float | None:
        """Mean acceptance probability at `beta`; None if there is no (changed) proposal."""
        chosen = self.changed if changed_only else np.ones_like(self.changed)
        if not chosen.any():
            return None
        return _mean_alpha(self.lead[chosen], self.log_ratio[chosen], check_beta(beta))


@dataclass(frozen=True, slots=True)
class Tuned:
    """The beta for a target acceptance over proposals that differ from the state.

    Attributes:
        beta: where the acceptance of the proposals made is the target.
        low, high: 95 % band of it (bootstrap over prompts; over proposals if there is one prompt).
        acceptance: at `beta`, over proposals that differ from the state.
        overall: at `beta`, over all proposals.
        target: what was asked for.
        n_proposals, n_changed: how many it rests on.
        cost: tokens spent.
        rounds: betas at which proposals were made, in turn.
    """

    beta: float
    low: float
    high: float
    acceptance: float
    overall: float
    target: float
    n_proposals: int
    n_changed: int
    cost: Cost = field(compare=False)
    rounds: tuple[float, ...] = ()


async def tune_beta(
    lm: LanguageModel,
    rm: RewardModel,
    prompts: str | Sequence[str],
    *,
    target: float = 0.5,
    start: float = 1.0,
    steps: int = 64,
    rounds: int = 3,
    seed: int = 0,
    n_bootstrap: int = 400,
) -> Tuned:
    """Find the beta at which a share `target` of changed proposals is accepted.

    A chain a prompt runs `steps` steps at `start`; since a proposal's acceptance is known at every
    beta, the best beta follows from the proposals of that round. The chain's states depend on beta
    too, so the next round runs at that beta, and so on until it stays where it was, within its
    band. The first quarter of each chain is left out.

    Args:
        lm: language model, as sampled.
        rm: reward model.
        prompts: one, or several of a problem set (not the one to be evaluated on).
        target: acceptance rate wanted, in (0, 1).
        start: first beta, raw RM units.
        steps: proposals a prompt and round, >= 8.
        rounds: at most so many.
        seed: address of the randomness.
        n_bootstrap: resamples for the band.

    Raises:
        InvalidSetting: settings out of range; or no beta reaches the target, because no proposal
            differs from its state, or because lengths alone decide.
        InvalidPrompt, ModelContractError, InvalidReward: from the models.
    """
    if isinstance(prompts, str):
        prompts = [prompts]
    if not 0 < target < 1:
        raise InvalidSetting(f"the target acceptance must be between 0 and 1, got {target}")
    if not prompts:
        raise InvalidSetting("tuning needs at least one prompt, got none")
    check_count("steps", steps, 8)
    check_count("rounds", rounds, 1)
    beta = check_beta(start)
    tried: list[float] = []
    cost = Cost()
    for k in range(rounds):
        tried.append(beta)
        proposals, spent = await _propose(lm, rm, prompts, beta, steps, seed + k)
        cost = cost + spent
        found = beta_for(proposals, target)
        low, high = _band(proposals, target, n_bootstrap, seed)
        settled = low <= beta <= high
        beta = found
        if settled:
            break
    accepted, overall = proposals.acceptance(beta), proposals.acceptance(beta, changed_only=False)
    assert accepted is not None, "beta_for has found changed proposals"
    assert overall is not None, "and so there are proposals"
    return Tuned(
        beta=beta,
        low=low,
        high=high,
        acceptance=accepted,
        overall=overall,
        target=target,
        n_proposals=len(proposals.lead),
        n_changed=int(proposals.changed.sum()),
        cost=cost,
        rounds=tuple(tried),
    )


def beta_for(proposals: Proposals, target: float) -> float:
    """The beta at which these proposals would be accepted at the target rate.

    Raises:
        InvalidSetting: there is none between 1e-3 and 1e3 times the typical reward difference.
    """
    chosen = proposals.changed
    if not chosen.any():
        raise InvalidSetting(
            f"none of {len(chosen)} proposals differs from its state, so no beta can be tuned on "
            "them; make more steps, or sample at a higher temperature"
        )
    beta = _solve(proposals.lead[chosen], proposals.log_ratio[chosen], target)
    if beta is None:
        raise InvalidSetting(
            f"no beta gives these {int(chosen.sum())} proposals an acceptance of {target:g}: "
            "their rewards hardly differ, or their lengths decide alone; choose another target"
        )
    return beta


async def _propose(
    lm: LanguageModel,
    rm: RewardModel,
    prompts: Sequence[str],
    beta: float,
    steps: int,
    seed: int,
) -> tuple[Proposals, Cost]:
    """Run a chain a prompt and reduce what it proposed to numbers."""

    async def one(prompt: str, place: int) -> tuple[list[tuple[float, float, bool, int]], Cost]:
        rows, cost = [], Cost()
        async for step in run_chain(lm, rm, prompt, beta=beta, steps=steps, seed=seed, chain=place):
            cost = cost + step.cost
            if step.t > steps // 4:
                rows.append(
                    (
                        step.proposal.reward - step.current.reward,
                        math.log(len(step.current.response) / len(step.proposal.response)),
                        step.changed,
                        place,
                    )
                )
        return rows, cost

    found = await gather(*(one(prompt, place) for place, prompt in enumerate(prompts)))
    rows = [row for part, _ in found for row in part]
    lead, log_ratio, changed, place = zip(*rows, strict=True)
    proposals = Proposals(
        np.array(lead), np.array(log_ratio), np.array(changed), np.array(place, dtype=np.int64)
    )
    return proposals, sum((cost for _, cost in found), Cost())


def _mean_alpha(lead: Array, log_ratio: Array, beta: float) -> float:
    """Mean of min{1, exp(lead / beta) |y| / |y'|}."""
    with np.errstate(over="ignore"):
        return float(np.exp(np.minimum(0.0, lead / beta + log_ratio)).mean())


def _solve(lead: Array, log_ratio: Array, target: float) -> float | None:
    """The beta of the target rate by bisection on a log scale, or None."""
    scale = float(np.abs(lead).mean())
    if scale == 0:
        return None
    # The rate need not rise everywhere (with beta, good but long proposals lose); it does as a
    # rule, and the least beta that reaches the target is what is looked for.
    grid = scale * np.geomspace(1e-3, 1e3, 49)
    with np.errstate(over="ignore"):
        rates = np.exp(np.minimum(0.0, lead / grid[:, None] + log_ratio)).mean(axis=1)
    above = np.flatnonzero(rates >= target)
    if not len(above) or above[0] == 0:
        return None
    low, high = math.log(grid[above[0] - 1]), math.log(grid[above[0]])
    while high - low > 1e-6:
        middle = (low + high) / 2
        if _mean_alpha(lead, log_ratio, math.exp(middle)) < target:
            low = middle
        else:
            high = middle
    return math.exp(high)


def _band(proposals: Proposals, target: float, n_bootstrap: int, seed: int) -> tuple[float, float]:
    """95 % band of the tuned beta; ends may be 0 or inf where resamples do not reach the target."""
    rng = np.random.default_rng(seed)
    chosen = np.flatnonzero(proposals.changed)
    groups = [chosen[proposals.prompt[chosen] == p] for p in np.unique(proposals.prompt[chosen])]
    if len(groups) == 1:  # proposals of one chain: blocks of eight, since neighbours are related
        groups = [chosen[k : k + 8] for k in range(0, len(chosen), 8)]
    betas = []
    for _ in range(n_bootstrap):
        picked = np.concatenate([groups[g] for g in rng.integers(len(groups), size=len(groups))])
        lead, log_ratio = proposals.lead[picked], proposals.log_ratio[picked]
        beta = _solve(lead, log_ratio, target)
        if beta is None:
            beta = 0.0 if _mean_alpha(lead, log_ratio, 1e-9) >= target else math.inf
        betas.append(beta)
    low, high = np.quantile(betas, [0.025, 0.975], method="nearest")
    return float(low), float(high)
