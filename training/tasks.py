"""Write the problem sets in `assets/tasks/`: held-out problems, each set with its own seed."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import get_args

from qalign_core.runs.generated import ProblemKind, generate_problem, generate_writing_task

N_PROBLEMS = 250
N_WRITING = 100


def write_tasks(folder: Path, seed: int) -> None:
    """Write one JSON-lines file a set; no problem occurs twice in a set."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in get_args(ProblemKind):
        rng = random.Random(f"tasks {seed} {kind}")
        problems = {}
        while len(problems) < N_PROBLEMS:
            problem = generate_problem(rng, kind)
            problems.setdefault(problem.key, problem)
        rows = [
            {"prompt": problem.prompt, "answer": problem.answer, "extractor": "number"}
            for problem in problems.values()
        ]
        _write(folder / f"{kind}.jsonl", kind, rows)
    rng = random.Random(f"tasks {seed} writing")
    tasks = {}
    while len(tasks) < N_WRITING:
        task = generate_writing_task(rng)
        tasks.setdefault(task.key, task)
    rows = [
        {
            "prompt": task.prompt,
            "answer": None,
            "extractor": None,
            "constraints": {"use": task.use, "end": task.end, "sentences": task.sentences},
        }
        for task in tasks.values()
    ]
    _write(folder / "writing.jsonl", "writing", rows)


def read_tasks(folder: Path, name: str) -> list[dict]:
    """The rows of one problem set."""
    lines = (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _write(path: Path, name: str, rows: list[dict]) -> None:
    lines = [json.dumps({"id": f"{name}-{n:03}", **row}) for n, row in enumerate(rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
