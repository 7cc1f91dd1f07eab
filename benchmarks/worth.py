"""Simulates the map of the Lab's section on where a chain wins.

Run: python -m benchmarks.worth     (writes assets/results/worth.json; 3 minutes on one core)

Worlds of 12 decisions from one right sample in 2 to one in 3000, with rewards that tell 65 to
99.5 % of near misses apart, at the compute of 256 samples; each method at the best of three beta.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

from qalign_core.assets import ASSETS
from qalign_core.decide.rules import chain_vote, weighted_vote
from qalign_study.exact.decisions import Exploration, Situation, explore

PATH = ASSETS / "results" / "worth.json"
DECISIONS, MOST, PROBLEMS, SEED = 12, 256, 1000, 1
RARITIES = (2, 5, 10, 30, 100, 300, 1000, 3000)
NEAR_MISSES = (0.65, 0.75, 0.85, 0.9, 0.95, 0.98, 0.995)
BETAS = (0.15, 0.3, 0.6)
SETTINGS = {"decisions": DECISIONS, "most": MOST, "problems": PROBLEMS, "seed": SEED,
            "rarities": RARITIES, "near_misses": NEAR_MISSES, "betas": BETAS}  # fmt: skip


def world(rarity: int, near_miss: float) -> dict[str, float]:
    """One world: where it lies on the map, and how much more often QAlign is right there."""
    chance = (1 / rarity) ** (1 / DECISIONS)
    explorations = [
        explore(
            Situation(DECISIONS, chance, near_miss, beta),
            most=MOST, n_problems=PROBLEMS, seed=SEED,
        )
        for beta in BETAS
    ]  # fmt: skip

    def best(method: str) -> Exploration:
        return max(explorations, key=lambda each: each.right[method][-1].mean())  # type: ignore[index]

    qalign, wmv = best(chain_vote.id), best(weighted_vote.id)
    gap = qalign.right[chain_vote.id][-1].mean() - wmv.right[weighted_vote.id][-1].mean()
    near = qalign.near_misses.value or 0.0
    return {"one": round(qalign.one, 6), "near_miss": round(near, 4), "difference": round(gap, 4)}


def worlds() -> Iterator[dict[str, float]]:
    """Every world of the map."""
    for rarity in RARITIES:
        for near_miss in NEAR_MISSES:
            yield world(rarity, near_miss)


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    rows = list(worlds())
    columns = {name: [each[name] for each in rows] for name in rows[0]}
    text = json.dumps({"settings": SETTINGS, "worlds": columns}, indent=1)
    PATH.write_text(text + "\n", encoding="utf-8")
    for each in rows:
        print(*each.values())


if __name__ == "__main__":
    main()
