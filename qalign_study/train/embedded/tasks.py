"""Write the problem sets in `assets/tasks/`: held-out problems, each set with its own seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, get_args

from qalign_study.sets.generated import HasKey, ProblemKind, generate_problem, generate_writing_task
from qalign_study.sets.inventory import Inventory, generate_inventory

_T = TypeVar("_T", bound=HasKey)

N_PROBLEMS = 250
N_INVENTORIES = 350
N_WRITING = 100


def write_tasks(folder: Path, seed: int) -> None:
    """Write one JSON-lines file a set; no problem occurs twice in a set."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in get_args(ProblemKind):
        problems = _distinct(
            lambda rng, kind=kind: generate_problem(rng, kind), kind, seed, N_PROBLEMS
        )
        rows = [
            {"prompt": problem.prompt, "answer": problem.answer, "extractor": "number"}
            for problem in problems
        ]
        _write(folder / f"{kind}.jsonl", kind, rows)
    rows = [
        {"prompt": inventory.prompt, "answer": inventory.answer, "extractor": "amounts"}
        for inventory in held_out_inventories(seed)
    ]
    _write(folder / "inventory.jsonl", "inventory", rows)
    rows = [
        {
            "prompt": task.prompt,
            "answer": None,
            "extractor": None,
            "constraints": {"use": task.use, "end": task.end, "sentences": task.sentences},
        }
        for task in _distinct(generate_writing_task, "writing", seed, N_WRITING)
    ]
    _write(folder / "writing.jsonl", "writing", rows)


def held_out_inventories(seed: int) -> list[Inventory]:
    """The inventories of the set, with what they were made of, in its order."""
    return _distinct(generate_inventory, "inventory", seed, N_INVENTORIES)


def read_tasks(folder: Path, name: str) -> list[dict]:
    """The rows of one problem set."""
    lines = (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _distinct(draw: Callable[[random.Random], _T], name: str, seed: int, n: int) -> list[_T]:
    rng = random.Random(f"tasks {seed} {name}")
    drawn: dict[str, _T] = {}
    while len(drawn) < n:
        task = draw(rng)
        drawn.setdefault(task.key, task)
    return list(drawn.values())


def _write(path: Path, name: str, rows: list[dict]) -> None:
    lines = [json.dumps({"id": f"{name}-{n:03}", **row}) for n, row in enumerate(rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
