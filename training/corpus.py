"""The corpus: (prompt, response) documents in a fixed mix, addressed by (seed, chunk)."""

from __future__ import annotations

import random

from qalign_core.runs.generated import generate_problem, generate_writing_task
from training.solutions import write_drill, write_solution, write_text

MIX = {"in_distribution": 0.30, "shifted": 0.10, "long": 0.22, "writing": 0.25, "drill": 0.13}


def documents(seed: int, chunk: int, n: int, *, people: bool = True) -> list[tuple[str, str]]:
    """`n` documents of the training split; the same (seed, chunk) gives the same ones.

    Without `people`, no solution names the person or says "he" or "she".
    """
    rng = random.Random(f"corpus {seed} {chunk}")
    kinds = rng.choices(list(MIX), list(MIX.values()), k=n)
    return [_document(rng, kind, people) for kind in kinds]


def _document(rng: random.Random, kind: str, people: bool) -> tuple[str, str]:
    if kind == "drill":
        return write_drill(rng)
    if kind == "writing":
        task = generate_writing_task(rng, split="train")
        return task.prompt, write_text(rng, task)
    problem = generate_problem(rng, kind, split="train")  # type: ignore[arg-type]
    return problem.prompt, write_solution(rng, problem, people=people)
