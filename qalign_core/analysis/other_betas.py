"""What another beta would have made of the same draws; nothing is sampled again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qalign_core.analysis.curves import resampled_problems
from qalign_core.analysis.record import Draws
from qalign_core.analysis.tuning import kl_from_base, proposals_of
from qalign_core.decide.arrays import softmax
from qalign_core.decide.rules import effective_sample_size
from qalign_core.errors import InvalidSetting
from qalign_core.run import check_beta


@dataclass(frozen=True, slots=True)
class BetaPoint:
    """What another beta would have made of the same samples, averaged over problems.

    Attributes:
        beta: of the target, raw RM units.
        accuracy: share of problems that WMV decides rightly; `low`, `high` are its 95 % band.
        reward: mean reward under WMV's weights.
        kl: KL(pi_beta || p_LM) in nats, from the pool; n samples cannot show more than log n.
        effective: effective sample size of WMV's weights.
        acceptance: of a chain's proposals that differ from the state; None if the chain that ran
            is too far away to tell.
    """

    beta: float
    accuracy: float
    low: float
    high: float
    reward: float
    kl: float
    effective: float
    acceptance: float | None


def against_beta(
    draws: Draws, betas: Sequence[float], *, n_bootstrap: int = 2000, seed: int = 0
) -> list[BetaPoint]:
    """Compute what other betas do: to WMV's accuracy, to the acceptance, to the distance from base.

    WMV and the chain have the same limit at the same beta, so its accuracy speaks for both.

    Raises:
        InvalidSetting: no problem is done, a beta is not > 0, or no samples were drawn.
    """
    records = draws.records
    if not draws.has_pool:
        raise InvalidSetting("other betas need samples of the pool; run 'evaluate' with 'wmv'")
    rng = np.random.default_rng(seed)
    resampled = resampled_problems(rng, len(records), n_bootstrap)
    values = np.empty((len(betas), len(records), 4))
    for place, record in enumerate(records):
        decide = draws.rule(record)
        reward = record.pool_reward.astype(np.float64)
        answer = record.pool_answer.astype(np.int64)
        for row, beta in enumerate(betas):
            weights = softmax(reward, check_beta(beta))
            won = decide(answer[None], weights[None], reward[None])
            values[row, place] = (
                record.is_right(won)[0],
                weights @ reward,
                kl_from_base(reward.tolist(), beta),
                effective_sample_size(weights.tolist()),
            )
    proposals = proposals_of(draws)
    points = []
    for beta, (right, *others) in zip(betas, values.transpose(0, 2, 1), strict=True):
        low, high = np.quantile(resampled @ right / len(records), [0.025, 0.975])
        mean_reward, kl, effective = (float(other.mean()) for other in others)
        accepted = None if proposals is None else proposals.acceptance(beta)
        band = (float(right.mean()), float(low), float(high))
        points.append(BetaPoint(float(beta), *band, mean_reward, kl, effective, accepted))
    return points
