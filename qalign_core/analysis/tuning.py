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

from qalign_core.chain.chain import run_chain
from qalign_core.chain.kernel import check_beta
from qalign_core.chain.sampling import check_count, gather
from qalign_core.errors import InvalidReward, InvalidSetting
from qalign_core.protocols import LanguageModel, RewardModel
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
    """Proposals of chains at one beta, as numbers: they tell the acceptance at other betas too.

    Given a proposal, its acceptance probability at every beta is known; and the state that it was
    made in, drawn from the target at `beta`, counts `exp(r (1/beta' - 1/beta))` times as much under
    the target at `beta'`. That goes as far as enough of the states still count.

    Attributes:
        reward_old, reward_new: of state and proposal, shape [n].
        log_ratio: log of |state| / |proposal|, shape [n].
        changed: whether the proposal differs from the state, shape [n].
        prompt: number of the prompt each belongs to, shape [n].
        beta: at which the chains ran.
    """

    reward_old: Array
    reward_new: Array
    log_ratio: Array
    changed: NDArray[np.bool_]
    prompt: NDArray[np.int64]
    beta: float

    def acceptance(self, beta: float, *, changed_only: bool = True) -> float | None:
        """Acceptance rate of chains at `beta`; None if these proposals cannot tell."""
        betas = np.array([check_beta(beta)])
        weights = self._weights(betas)
        counted = weights * self.changed if changed_only else weights
        total = counted.sum()
        if total == 0 or self._effective(weights)[0] < MIN_EFFECTIVE:
            return None
        return float((counted * self._alpha(betas)).sum() / total)

    def _alpha(self, betas: Array) -> Array:
        """min{1, exp((r' - r) / beta) |y| / |y'|}, shape [betas, n]."""
        with np.errstate(over="ignore"):
            lead = (self.reward_new - self.reward_old) / betas[:, None]
        return np.exp(np.minimum(0.0, lead + self.log_ratio))

    def _weights(self, betas: Array) -> Array:
        """Importance weights of the states, of mean 1 within each prompt, shape [betas, n]."""
        log_w = self.reward_old * (1 / betas[:, None] - 1 / self.beta)
        weights = np.empty_like(log_w)
        for p in np.unique(self.prompt):
            mine = self.prompt == p
            w = np.exp(log_w[:, mine] - log_w[:, mine].max(axis=1, keepdims=True))
            weights[:, mine] = w / w.mean(axis=1, keepdims=True)
        return weights

    def _effective(self, weights: Array) -> Array:
        """Share of the states that effectively count, shape [betas]; the weights' mean is 1."""
        return np.asarray(1 / (weights**2).mean(axis=1))


MIN_EFFECTIVE = 0.2
"""Share of the states that must effectively count for an acceptance at another beta."""


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
    rounds: int = 6,
    seed: int = 0,
    n_bootstrap: int = 1000,
) -> Tuned:
    """Find the beta at which a share `target` of changed proposals is accepted.

    A chain a prompt makes `steps` proposals at `start`. They tell the acceptance at other betas
    (see `Proposals`), hence the best beta, or the furthest one that they can speak of, at which
    the next round runs; and so on until the beta of a round lies within its own band. The first
    quarter of each chain is left out.

    Args:
        lm: language model, as sampled.
        rm: reward model.
        prompts: one, or several of a problem set (not those to be evaluated on).
        target: acceptance rate wanted, in (0, 1).
        start: first beta, raw RM units.
        steps: proposals a prompt and round, >= 8.
        rounds: at most so many.
        seed: address of the randomness.
        n_bootstrap: resamples for the band.

    Raises:
        InvalidSetting: settings out of range; or no beta reaches the target: no proposal differs
            from its state, rewards are all equal, or the last round was still too far away.
        InvalidPrompt, ModelContractError, InvalidReward: from the models.
    """
    prompts = [prompts] if isinstance(prompts, str) else list(prompts)
    if not 0 < target < 1:
        raise InvalidSetting(f"the target acceptance must be between 0 and 1, got {target}")
    if not prompts:
        raise InvalidSetting("tuning needs at least one prompt, got none")
    check_count("steps", steps, 8)
    check_count("rounds", rounds, 1)
    beta = check_beta(start)
    tried: list[float] = []
    cost = Cost()
    while True:
        tried.append(beta)
        proposals, spent = await propose(
            lm, rm, prompts, beta=beta, steps=steps, seed=seed + len(tried) - 1
        )
        cost = cost + spent
        found = beta_for(proposals, target, n_bootstrap=n_bootstrap, seed=seed)
        if found.reached and (found.low <= beta <= found.high or len(tried) == rounds):
            break
        if len(tried) == rounds:
            raise InvalidSetting(
                f"after {rounds} rounds no beta was found at which {target:g} of the changed "
                f"proposals are accepted (last tried: {beta:.3g}); start nearer, or make more steps"
            )
        beta = found.beta
    accepted = proposals.acceptance(found.beta)
    overall = proposals.acceptance(found.beta, changed_only=False)
    assert accepted is not None, "the proposals reach the beta that was found on them"
    assert overall is not None, "and changed proposals are proposals"
    return Tuned(
        beta=found.beta,
        low=found.low,
        high=found.high,
        acceptance=accepted,
        overall=overall,
        target=target,
        n_proposals=len(proposals.changed),
        n_changed=int(proposals.changed.sum()),
        cost=cost,
        rounds=tuple(tried),
    )


async def propose(
    lm: LanguageModel,
    rm: RewardModel,
    prompts: Sequence[str],
    *,
    beta: float,
    steps: int,
    seed: int,
) -> tuple[Proposals, Cost]:
    """Run a chain a prompt, all at once, and reduce what they proposed to numbers.

    Raises:
        InvalidSetting, InvalidPrompt, ModelContractError, InvalidReward.
    """
    Row = tuple[float, float, float, bool, int]  # noqa: N806

    async def one(prompt: str, place: int) -> tuple[list[Row], Cost]:
        rows: list[Row] = []
        cost = Cost()
        async for step in run_chain(lm, rm, prompt, beta=beta, steps=steps, seed=seed, chain=place):
            cost = cost + step.cost
            if step.t > steps // 4:
                old, new = step.current, step.proposal
                log_ratio = math.log(len(old.response) / len(new.response))
                rows.append((old.reward, new.reward, log_ratio, step.changed, place))
        return rows, cost

    found = await gather(*(one(prompt, place) for place, prompt in enumerate(prompts)))
    old, new, log_ratio, changed, place = zip(*(r for rows, _ in found for r in rows), strict=True)
    proposals = Proposals(
        reward_old=np.array(old, dtype=np.float64),
        reward_new=np.array(new, dtype=np.float64),
        log_ratio=np.array(log_ratio, dtype=np.float64),
        changed=np.array(changed, dtype=np.bool_),
        prompt=np.array(place, dtype=np.int64),
        beta=beta,
    )
    return proposals, sum((cost for _, cost in found), Cost())


@dataclass(frozen=True, slots=True)
class Found:
    """A beta with its 95 % band; if it was not `reached`, the furthest one in its direction."""

    beta: float
    low: float
    high: float
    reached: bool


def beta_for(
    proposals: Proposals, target: float, *, n_bootstrap: int = 1000, seed: int = 0
) -> Found:
    """The beta at which chains would accept changed proposals at the target rate.

    The band is by bootstrap over prompts, or over blocks of a single chain; an end is 0 or inf
    where resamples do not reach the target.

    Raises:
        InvalidSetting: no proposal differs from its state, or all rewards are equal.
    """
    changed = proposals.changed
    if not changed.any():
        raise InvalidSetting(
            f"none of {len(changed)} proposals differs from its state, so beta cannot be tuned on "
            "them; make more steps, or sample at a higher temperature"
        )
    scale = float(np.abs(proposals.reward_new - proposals.reward_old)[changed].mean())
    if scale == 0:
        raise InvalidSetting(
            f"the {int(changed.sum())} changed proposals have the rewards of their states, so beta "
            "decides nothing; use a reward that tells responses apart"
        )
    middle = math.log(proposals.beta)
    grid = np.exp(np.unique([*np.linspace(middle - 7, middle + 7, 561), middle]))
    weights = proposals._weights(grid)
    usable = proposals._effective(weights) >= MIN_EFFECTIVE
    grid, weights = grid[usable], weights[usable]
    counted = weights * changed
    accepted = counted * proposals._alpha(grid)

    groups = proposals.prompt
    if len(np.unique(groups)) == 1:  # neighbours in a chain are related: resample blocks of eight
        groups = np.arange(len(groups)) // 8
    members = np.unique(groups, return_inverse=True)[1]
    n_groups = int(members.max()) + 1
    belongs = np.zeros((len(members), n_groups))
    belongs[np.arange(len(members)), members] = 1
    top, bottom = accepted @ belongs, counted @ belongs  # [betas, groups]

    log_beta, reached = _crossing(grid, top.sum(axis=1) / bottom.sum(axis=1), target)
    rng = np.random.default_rng(seed)
    picked = rng.multinomial(n_groups, np.full(n_groups, 1 / n_groups), n_bootstrap).T
    total = bottom @ picked
    rates = np.divide(top @ picked, total, out=np.ones_like(total), where=total > 0)
    ends = [_crossing(grid, rate, target) for rate in rates.T]
    logs = [x if inside else (math.inf if x > middle else -math.inf) for x, inside in ends]
    low, high = np.quantile(logs, [0.025, 0.975], method="nearest")
    return Found(math.exp(log_beta), float(np.exp(low)), float(np.exp(high)), reached)


def _crossing(grid: Array, rates: Array, target: float) -> tuple[float, bool]:
    """Log of the least beta at which the rate rises through the target, and whether there is one.

    Without one: the log of the last beta in the direction where it must be.
    """
    above = rates >= target
    rises = np.flatnonzero(above[1:] & ~above[:-1])
    if len(rises):
        k = rises[0]
        share = (target - rates[k]) / (rates[k + 1] - rates[k])
        return float(np.log(grid[k]) + share * np.log(grid[k + 1] / grid[k])), True
    return float(np.log(grid[0] if above[0] else grid[-1])), False
