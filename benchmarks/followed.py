"""A verifiable reward for IFEval: how many of a prompt's instructions a response follows.

    qalign evaluate --task ifeval --data input_data.jsonl --rm benchmarks/followed.py:followed ...

It reads the official file, `input_data.jsonl`, in the current folder, and needs the extra `tasks`.
A response with the highest reward follows all instructions, so best-of-n is right if any sample is.
"""

from functools import cache
from pathlib import Path

from qalign_study.sets.instructions import Instructions
from qalign_study.sets.tasks import read_task, task_of


@cache
def instructions_by_prompt() -> dict[str, Instructions]:
    """The instructions of the official rows."""
    task = task_of("ifeval")
    assert task is not None
    problems = read_task(task, Path("input_data.jsonl")).problems
    return {p.prompt: p.check for p in problems if isinstance(p.check, Instructions)}


def followed(prompt: str, response: str) -> float:
    """The number of instructions that a response follows."""
    return float(sum(instructions_by_prompt()[prompt].verdicts(response)))
