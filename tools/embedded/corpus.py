"""The corpus: (prompt, response) documents in a fixed mix, and the held-out problem sets."""

import json
import random
from pathlib import Path

from qalign_study.sets.inventory import generate_inventory
from qalign_study.sets.seeded import N_PROBLEMS, generate, generate_rows
from tools.embedded.solutions import (
    draw_mistakes,
    write_copying,
    write_drill,
    write_inventory,
    write_solution,
    write_text,
)

MIX = {
    "in_distribution": 0.22,
    "shifted": 0.08,
    "long": 0.15,
    "inventory": 0.25,
    "writing": 0.16,
    "drill": 0.07,
    "copying": 0.07,
}
N_THINGS = {1: 1, 2: 1, 3: 1, 4: 1, 5: 2, 6: 2}  # how many an inventory counts, and how often


def documents(seed: int, chunk: int, n: int) -> list[tuple[str, str]]:
    """`n` documents of the training split; the same (seed, chunk) gives the same ones."""
    rng = random.Random(f"corpus {seed} {chunk}")
    kinds = rng.choices(list(MIX), list(MIX.values()), k=n)
    return [_document(rng, kind) for kind in kinds]


def _document(rng: random.Random, kind: str) -> tuple[str, str]:
    match kind:
        case "drill":
            return write_drill(rng)
        case "copying":
            return write_copying(rng)
        case "writing":
            task = generate(rng, kind, split="train")
            return task.prompt, write_text(rng, task)
        case "inventory":
            [n_things] = rng.choices(list(N_THINGS), list(N_THINGS.values()))
            inventory = generate_inventory(rng, n_things, split="train")
            return inventory.prompt, write_inventory(rng, inventory, draw_mistakes(rng, inventory))
    problem = generate(rng, kind, split="train")
    return problem.prompt, write_solution(rng, problem)


def write_tasks(folder: Path, seed: int) -> None:
    """Write one JSON-lines file a set; no problem occurs twice in a set."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in N_PROBLEMS:
        lines = [json.dumps(row) for row in generate_rows(f"{name}@{seed}") or ()]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
