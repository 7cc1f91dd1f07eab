"""A client to be killed: draws runs of the toy models into a folder and says what is in it.

    python folder_client.py FOLDER [HALT]

After each draw it says how many there are and, once that is more than HALT, reads a line, so that
it is never far ahead of who will kill it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from toys import ANSWER, PROMPT, ToyLM, ToyRM

from qalign_core.run import Run
from qalign_study.sets.folder import Progress, run_set
from qalign_study.sets.problem_sets import Problem

PROBLEMS = [
    Problem("with an answer", PROMPT, ANSWER, "number"),
    Problem("open", "Tell me about shells."),
    Problem("../again", f"{PROMPT} ", "17", "number"),
]
RUN = Run("-", beta=0.5, steps=40, seed=11, chains=3, pool=20)
TOTAL = len(PROBLEMS) * (RUN.chains * (RUN.steps + 1) + RUN.pool)


def fill(
    folder: Path,
    *,
    lm: Any = None,
    problems: Any = PROBLEMS,
    progress: Progress | None = None,
    at_once: int = 4,
    **changes: Any,
) -> None:
    """Draw the set into a folder."""
    run, rm = RUN.with_changes(**changes), ToyRM()
    drawing = run_set(lm or ToyLM(), rm, run, problems, folder, at_once=at_once, progress=progress)
    asyncio.run(drawing)


if __name__ == "__main__":
    there, halt = 0, int(sys.argv[2]) if len(sys.argv) > 2 else 0

    def tell(n_new: int, n_done: int, n_elsewhere: int) -> None:
        global there
        there += n_new
        if n_new:
            print(there, flush=True)
            if there > halt:
                sys.stdin.readline()
        elif n_elsewhere:
            print("waiting", flush=True)

    fill(Path(sys.argv[1]), progress=tell)
