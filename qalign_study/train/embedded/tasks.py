"""Write the problem sets in `assets/tasks/`."""

import json
from pathlib import Path

from qalign_study.sets.drawn import N_PROBLEMS, drawn_rows


def write_tasks(folder: Path, seed: int) -> None:
    """Write one JSON-lines file a set; no problem occurs twice in a set."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in N_PROBLEMS:
        lines = [json.dumps(row) for row in drawn_rows(f"{name}@{seed}") or ()]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
