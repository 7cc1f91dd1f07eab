"""Are the shipped results what their command draws? Problems drawn again, against their bands.

    python -m benchmarks.reproduce [--results assets/results/shifted.zip] [--problems 50]

The first problems are drawn again with the settings and the seed of the file, by default at a
smaller budget: a pool and a chain begin with those of a smaller budget. The same draws are expected
problem for problem (costs, lengths and verdicts equal, rewards to 1e-5), and every method's
accuracy within the 95 % band of the shipped draws of the same problems; if one is not, the exit
status is 1. n is the number of samples or states.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from qalign_core.analysis.curves import curves
from qalign_core.analysis.record import Array, Record
from qalign_core.cli import problem_file
from qalign_core.registry import load_language_model, load_reward_model
from qalign_core.runs.folder import load_results, results_in, run_set
from qalign_core.runs.problem_sets import load_problems
from qalign_core.runs.results import Results

CLOSE = 1e-5
"""How far apart rewards may be: another machine's sums end in other digits."""
SHIPPED = Path(__file__).resolve().parent.parent / "assets" / "results" / "in_distribution.zip"


async def draw_again(shipped: Results, n_problems: int, budget: int) -> Results:
    """Evaluate the first problems of a results file again."""
    header = shipped.header
    lm = load_language_model(header.lm, sampling=header.run.sampling, rows=128)
    rm = load_reward_model(header.rm)
    for name, model, expected in (
        ("language", lm, header.lm_revision),
        ("reward", rm, header.rm_revision),
    ):
        if model.revision != expected:
            sys.exit(f"the {name} model is {model.revision}, the results are of {expected or '?'}")
    problems = load_problems(problem_file(header.task))[:n_problems]
    run = header.run.with_changes(pool=budget)

    def progress(n_new: int, n_done: int, n_elsewhere: int) -> None:
        print(f"\r{n_done} of {n_problems} problems", end="", file=sys.stderr)

    with tempfile.TemporaryDirectory() as folder:
        await run_set(lm, rm, run, problems, folder, task=header.task, progress=progress)
        print(file=sys.stderr)
        return results_in(folder)


def cut(shipped: Record, drawn: Record) -> Record:
    """As many of the shipped draws as were drawn again: averages over more are less noisy."""
    draws = [f.name for f in fields(Record) if f.name.startswith(("pool_", "chain_"))]
    return replace(shipped, **{n: getattr(shipped, n)[: len(getattr(drawn, n))] for n in draws})


def begins_with(shipped: Record, drawn: Record) -> bool:
    """Whether the shipped record begins with the draws of the other one."""

    def pairs(*names: str) -> list[tuple[Array, Array]]:
        both = [(getattr(shipped, name), getattr(drawn, name)) for name in names]
        return [(old[: len(new)], new) for old, new in both]

    drawn_alike = pairs("pool_cost", "chain_cost", "chain_length", "chain_accepted")
    rewards = pairs("pool_reward", "chain_reward")
    return all(np.array_equal(old, new) for old, new in drawn_alike) and all(
        len(old) == len(new) and np.allclose(old, new, rtol=0, atol=CLOSE) for old, new in rewards
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=SHIPPED)
    parser.add_argument("--problems", type=int, default=50)
    parser.add_argument("--budget", type=int, default=64, help="samples a problem")
    options = parser.parse_args()

    whole = load_results(options.results)
    shipped = replace(whole, records=whole.records[: options.problems])
    budget = min(options.budget, whole.header.pool)
    drawn = asyncio.run(draw_again(whole, len(shipped.records), budget))

    pairs = list(zip(shipped.records, drawn.records, strict=True))
    same = sum(begins_with(old, new) for old, new in pairs)
    print(f"{same} of {len(pairs)} problems have the same draws")
    ns = sorted({1, budget // 4, budget // 2, budget})
    new = {(p.method, p.n): p for p in curves(drawn.draws, budget="samples", ns=ns)}
    outside = 0
    print(f"{'method':8}{'n':>5}{'shipped':>9}{'band':>17}{'again':>8}")
    alike = replace(shipped, records=tuple(cut(old, again) for old, again in pairs))
    for old in (p for p in curves(alike.draws, budget="samples", ns=ns) if p.method != "any"):
        again = new[old.method, old.n].value
        is_inside = old.low <= again <= old.high
        outside += not is_inside
        band = f"[{old.low:.3f}, {old.high:.3f}]"
        print(
            f"{old.method:8}{old.n:5}{old.value:9.3f}{band:>17}{again:8.3f}"
            f"{'' if is_inside else '  outside'}"
        )
    if outside:
        sys.exit(f"{outside} outside the band")


if __name__ == "__main__":
    main()
