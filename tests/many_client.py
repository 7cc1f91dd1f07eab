"""A client to be killed: runs chains of the toy models into a folder and says what is in it.

    python many_client.py FOLDER

After each line that it writes it reads one, so that it is never far ahead of who will kill it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from toys import ANSWER, PROMPT, ToyLM, ToyRM

from qalign_core.runs.many import Answer, run_many
from qalign_core.runs.problem_sets import Problem

PROBLEMS = [
    Problem("with an answer", PROMPT, ANSWER, "number"),
    Problem("open", "Tell me about shells."),
    Problem("../again", f"{PROMPT} ", "17", "number"),
]
STEPS, CHAINS = 120, 3
TOTAL = len(PROBLEMS) * CHAINS * (STEPS + 1)


def run(folder: Path, told=None) -> tuple[Answer, ...]:
    many = run_many(
        ToyLM(),
        ToyRM(),
        PROBLEMS,
        beta=0.5,
        steps=STEPS,
        seed=11,
        n_chains=CHAINS,
        folder=folder,
        at_once=4,
        progress=told,
    )
    return asyncio.run(many)


if __name__ == "__main__":
    written = 0

    def tell(n: int) -> None:
        global written
        written += n
        print(written, flush=True)
        sys.stdin.readline()

    run(Path(sys.argv[1]), tell)
