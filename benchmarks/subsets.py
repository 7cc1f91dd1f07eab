"""The noise of votes over random subsets, in all shipped results: `python -m benchmarks.subsets`.

Votes over n samples are averages over random subsets, so that the samples in another order give
another number. For each set: the standard deviation over four orders, as a share of the interval,
at the n and rule where it is largest.
"""

import argparse
from pathlib import Path

import numpy as np

from qalign_core.assets import ASSETS
from qalign_core.decide.rules import RULES
from qalign_core.types import Array
from qalign_study.measure.intervals import band_of_share, resampled_problems
from qalign_study.measure.record import Record
from qalign_study.measure.results import Results, unpack
from qalign_study.measure.subsets import Pool, votes

ORDERS, RESAMPLES = 4, 2000


def shuffled(results: Results, record: Record, seed: int) -> Pool:
    """The samples of a problem in another order; seed 0 leaves theirs."""
    order = np.arange(len(record.pool_reward))
    if seed:
        order = np.random.default_rng([seed, len(order)]).permutation(len(order))
    answer = record.pool_answer.astype(np.int64)[order]
    return Pool(
        answer,
        record.pool_reward.astype(np.float64)[order],
        record.pool_tilt(results.header.run.sharpness)[order],
        record.is_right(answer),
        results.utility(record),
    )


def noise_of(results: Results) -> list[tuple[float, str, int]]:
    """The noise as a share of the interval, the rule, and n; the largest first."""
    size = len(results.records[0].pool_reward)
    draw = resampled_problems(np.random.default_rng(0), len(results.records), RESAMPLES)
    rows = []
    for n in (2**k for k in range(2, size.bit_length()) if 2**k < size):
        for name in ("mv", "wmv"):
            each = np.array([_shares(results, seed, n, name) for seed in range(ORDERS)])
            low, high = band_of_share(each[0], draw / len(results.records))
            rows.append((float(each.mean(axis=1).std(ddof=1) / (high - low)), name, n))
    return sorted(rows, reverse=True)


def _shares(results: Results, seed: int, n: int, name: str) -> Array:
    beta = (results.header.run.beta,)
    pools = (shuffled(results, record, seed) for record in results.records)
    return np.array([votes(pool, n, RULES[name], beta)[0][0] for pool in pools])


def main() -> None:
    """Print one line per file; files with the samples of another one are left out."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    seen = set()
    for path in sorted(ASSETS.glob("results/**/*.zip"), key=lambda path: path.stat().st_size):
        results = unpack(path)
        first = results.records[0].pool_reward
        key = (
            first.tobytes(),
            len(results.records),
            results.header.run.beta,
            results.header.run.sharpness,
        )
        if key in seen or len(first) < 8:
            continue
        seen.add(key)
        share, name, n = noise_of(results)[0]
        print(f"{share:6.1%}  {name} at {n:<4} {_name(path)}", flush=True)


def _name(path: Path) -> str:
    return str(path.relative_to(ASSETS / "results").with_suffix(""))


if __name__ == "__main__":
    main()
