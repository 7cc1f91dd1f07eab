"""Choose β for inventories by a rule that is stated beforehand: `python -m benchmarks.choose_beta`.

The rule: on inventories 300 to 349, which no result reports, draw one chain of 126 proposals (the
FLOPs of about 64 samples) per problem at each β of the grid. The β with the highest mean share of
right states wins; a tie goes to the smaller β. The share of right states is used because the votes
of 50 problems are right too rarely to be compared.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path

from qalign_core.registry import load_language_model, load_reward_model
from qalign_core.run import Run
from qalign_study.measure.diagnostics import acceptance_of
from qalign_study.measure.results import results_in
from qalign_study.sets.folder import run_set
from qalign_study.sets.problem_sets import load_problems

GRID = (0.2, 0.4, 0.8, 1.6, 3.2)
FIRST = 300
"""The first of the inventories that no result reports."""


async def draw(beta: float, steps: int, seed: int, folder: Path) -> None:
    """Draw the chains of one β."""
    lm, rm = load_language_model("embedded", rows=64), load_reward_model("embedded")
    problems = load_problems("inventory")[FIRST:]
    run = Run(beta=beta, steps=steps, pool=0, seed=seed)
    await run_set(lm, rm, run, problems, folder, task="inventory")


def chosen(shares: Mapping[float, float]) -> float:
    """The β of the highest share of right states; of equal ones, the smallest."""
    return max(shares, key=lambda beta: (shares[beta], -beta))


def main() -> None:
    """Print a row per β, and the β that the rule chooses."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=126)
    parser.add_argument("--seed", type=int, default=50001)
    options = parser.parse_args()
    shares: dict[float, float] = {}
    print(f"{'β':>5}{'right states, %':>17}{'problems right':>16}{'changes accepted, %':>21}")
    for beta in GRID:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(draw(beta, options.steps, options.seed, Path(folder)))
            records = results_in(folder).records
        right = [r.is_right(r.chain_answer[r.state_of]) for r in records]
        shares[beta] = sum(each.mean() for each in right) / len(right)
        accepted = acceptance_of(records).changed.value or 0
        n_right = sum(each.mean() > 0.5 for each in right)
        print(
            f"{beta:>5g}{100 * shares[beta]:>17.1f}{n_right:>9} of {len(right)}"
            f"{100 * accepted:>21.1f}",
            flush=True,
        )
    print(f"the rule chooses β = {chosen(shares):g}")


if __name__ == "__main__":
    main()
