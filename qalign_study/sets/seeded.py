"""The embedded problem sets as they are drawn: held-out problems, each set by a seed of its own."""

import random
import re
from functools import lru_cache
from typing import Any, get_args

from qalign_study.sets.generated import (
    Problem,
    ProblemKind,
    Split,
    WritingTask,
    generate_problem,
    generate_writing_task,
)
from qalign_study.sets.inventory import Inventory, generate_inventory

Generated = Problem | Inventory | WritingTask

N_PROBLEMS = {**dict.fromkeys(get_args(ProblemKind), 250), "inventory": 350, "writing": 100}
"""Problems of each embedded set. The files in `assets/tasks/` are those of seed 0."""
_SEEDED = re.compile(rf"({'|'.join(N_PROBLEMS)})@(0|[1-9]\d{{0,8}})")


def generate_rows(task: str) -> list[dict[str, Any]] | None:
    """The rows of `NAME@SEED`, such as "inventory@2"; None if a name is not of that form."""
    if (match := _SEEDED.fullmatch(task)) is None:
        return None
    name, seed = match[1], int(match[2])
    rows = map(_row, held_out(name, seed))
    prefix = task if seed else name
    return [{"id": f"{prefix}-{n:03}", **row} for n, row in enumerate(rows)]


@lru_cache(maxsize=8)  # inventories take seconds
def held_out(name: str, seed: int) -> tuple[Any, ...]:
    """The distinct tasks of a set, with what they were made of, in its order."""
    rng = random.Random(f"tasks {seed} {name}")
    tasks: dict[str, Generated] = {}
    while len(tasks) < N_PROBLEMS[name]:
        task = generate(rng, name)
        tasks.setdefault(task.key, task)
    return tuple(tasks.values())


def generate(rng: random.Random, name: str, *, split: Split = "held_out") -> Generated:
    """A task as an embedded set has them."""
    if name == "inventory":
        return generate_inventory(rng, split=split)
    if name == "writing":
        return generate_writing_task(rng, split=split)
    return generate_problem(rng, name, split=split)  # type: ignore[arg-type]


def _row(task: Generated) -> dict[str, Any]:
    if isinstance(task, WritingTask):
        return {"prompt": task.prompt, "answer": None, "extractor": None, **task.row_fields}
    extractor = "amounts" if isinstance(task, Inventory) else "number"
    return {"prompt": task.prompt, "answer": task.answer, "extractor": extractor}
