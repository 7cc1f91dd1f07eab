"""Rewards of base samples of real prompts, as they are shipped: what a mixture is fitted to."""

import random
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from qalign_core.assets import ASSETS
from qalign_core.errors import InvalidTask, InvalidTrace
from qalign_core.record.format import TraceReader
from qalign_core.record.store import trace_text
from qalign_core.record.trace import Trace
from qalign_study.measure.mixture import MIN_REWARDS
from qalign_study.measure.results import unpack
from qalign_study.sets.problem_sets import load_problems

EVALUATED = ASSETS / "results" / "in_distribution.zip"
N_EVALUATED = 9  # as in the paper's figure
SEED = 7


@dataclass(frozen=True, slots=True)
class BaseRewards:
    """Rewards (raw RM units) of independent samples of the base LM for one prompt."""

    prompt: str
    rewards: tuple[float, ...]

    def title(self, length: int) -> str:
        """The prompt's beginning, at most `length` characters."""
        return self.prompt if len(self.prompt) <= length else f"{self.prompt[: length - 1]}…"


@lru_cache(maxsize=1)
def base_rewards() -> dict[str, BaseRewards]:
    """Return the shipped rewards by name: recorded runs with enough samples, then nine problems."""
    recorded = {}
    for path in sorted((ASSETS / "runs").glob("*.jsonl")):
        trace = _load_samples(path)
        if len(trace.rewards) >= MIN_REWARDS:
            recorded[path.stem] = BaseRewards(trace.header.run.prompt, trace.rewards)
    return recorded | evaluated()


def _load_samples(path: Path) -> Trace:
    """Read a recorded run without its steps, which take most of the time and are not needed."""
    reader = TraceReader()
    for line in trace_text(path).splitlines():
        if not line.startswith('{"type":"step"'):
            reader.feed(line)
    return reader.trace()


def evaluated() -> dict[str, BaseRewards]:
    """Nine problems of the shipped evaluation, drawn at random but always the same, by their ids.

    Empty if the evaluation cannot be read: the Results page reports why.
    """
    try:
        results = unpack(EVALUATED)
        problems = load_problems(results.header.task)
    except (InvalidTrace, InvalidTask):
        return {}
    prompts = {problem.id: problem.prompt for problem in problems}
    records = [record for record in results.records if record.id in prompts]
    sample = random.Random(SEED).sample(records, min(N_EVALUATED, len(records)))
    return {r.id: BaseRewards(prompts[r.id], tuple(map(float, r.pool_reward))) for r in sample}
