"""Are the shipped results what their command draws? Problems drawn again, against their bands.

    python -m benchmarks.reproduce [--results assets/results/shifted.zip] [--problems 50]

The first problems are drawn again with the settings and the seed of the file, by default at a
smaller budget: a pool and a chain begin with those of a smaller budget. On any machine the same
costs and verdicts are expected problem for problem, and rewards within 0.001, but for a draw at its
border (docs/architecture.md). Every method's accuracy must lie within the 95 % band of the shipped
draws of the same problems; if one does not, the exit status is 1. n is the number of samples or
states.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
from tqdm import tqdm

from qalign_core.errors import QAlignError
from qalign_core.registry import load_language_model, load_reward_model
from qalign_core.validation import check_count
from qalign_study.measure.curves import curves
from qalign_study.measure.record import Record
from qalign_study.measure.results import Results, results_in, unpack
from qalign_study.sets.folder import run_set
from qalign_study.sets.problem_sets import load_problems

SHIPPED = Path(__file__).resolve().parent.parent / "assets" / "results" / "in_distribution.zip"


async def draw_again(shipped: Results, n_problems: int, budget: int, folder: Path) -> Results:
    """Evaluate the first problems of a results file again, into a folder."""
    header = shipped.header
    rows = min(128, 4 * n_problems)  # on some processors a step computes all of them, used or not
    lm = load_language_model(header.run.lm, sampling=header.run.sampling, rows=rows)
    rm = load_reward_model(header.run.rm)
    for name, model, expected in (
        ("language", lm, header.lm_revision),
        ("reward", rm, header.rm_revision),
    ):
        revision = getattr(model, "revision", "")
        if revision != expected:
            sys.exit(f"the {name} model is {revision or '?'}, the results are of {expected or '?'}")

    problems = load_problems(header.task)[:n_problems]
    run = header.run.with_changes(pool=budget)
    with tqdm(total=n_problems, unit="problem") as bar:
        await run_set(
            lm,
            rm,
            run,
            problems,
            folder,
            at_once=128,
            task=header.task,
            progress=lambda n_new, n_done, n_elsewhere: bar.update(n_done - bar.n),
        )
    return results_in(folder)


def cut(shipped: Record, redrawn: Record) -> Record:
    """As many of the shipped draws as were drawn again: averages over more are less noisy."""
    draws = [f.name for f in fields(Record) if f.name.startswith(("pool_", "chain_"))]
    return replace(shipped, **{n: getattr(shipped, n)[: len(getattr(redrawn, n))] for n in draws})


def begins_with(shipped: Record, redrawn: Record) -> bool:
    """True if the shipped record begins with the draws of the other one."""
    names = ("pool_cost", "chain_cost", "chain_accepted", "pool_reward", "chain_reward")
    return all(
        np.allclose(getattr(shipped, name)[: len(new)], new, rtol=0, atol=1e-3)
        for name in names
        for new in (getattr(redrawn, name),)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=SHIPPED)
    parser.add_argument("--problems", type=int, default=50)
    parser.add_argument("--budget", type=int, default=64, help="samples a problem")
    options = parser.parse_args()

    for name in ("problems", "budget"):
        check_count(f"--{name}", getattr(options, name), 1)
    whole = unpack(options.results)
    shipped = replace(whole, records=whole.records[: options.problems])
    budget = min(options.budget, whole.header.run.pool)
    with tempfile.TemporaryDirectory() as folder:
        redrawn = asyncio.run(draw_again(whole, len(shipped.records), budget, Path(folder)))

    pairs = list(zip(shipped.records, redrawn.records, strict=True))
    same = sum(begins_with(old, new) for old, new in pairs)
    print(f"{same} of {len(pairs)} problems have the same numbers")
    ns = sorted({n for n in (1, budget // 4, budget // 2, budget) if n})
    new = {(p.method, p.n): p for p in curves(redrawn, budget="samples", ns=ns)}
    outside = 0
    print(f"{'method':8}{'n':>5}{'shipped':>9}{'band':>17}{'again':>8}")
    alike = replace(shipped, records=tuple(cut(old, again) for old, again in pairs))
    for old in (p for p in curves(alike, budget="samples", ns=ns) if p.method != "any"):
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
    try:
        main()
    except QAlignError as error:
        sys.exit(str(error))
