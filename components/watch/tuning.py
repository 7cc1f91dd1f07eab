"""The search for the beta at which half of the changed proposals are accepted, as a run."""

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from components.session.gpu import with_gpu
from components.session.runs import Feed, Runs, Status
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.run import Run
from qalign_core.types import Response
from qalign_study.measure.tuning import ROUNDS, Tuned, tune_beta

FINDING = "Finding"
STEPS = 64
"""Proposals per round."""


@with_gpu
async def tune_run(feed: Feed, runs: Runs, run: Run) -> None:
    """Find the beta at which half of the changed proposals are accepted, and write it.

    Each line is an estimate: a list of a beta, and in the last line also its acceptance and its
    band. The status has the number of proposals and of rounds, done and in all.

    Raises:
        QAlignError: the settings or the models do not allow it, or no beta does it.
    """
    run.check(runs.limits)
    async with runs.models(feed, run) as (lm, rm):
        tuned = await _tune(feed, lm, rm, run)
    values = [round_beta(tuned.beta), tuned.acceptance, tuned.low, tuned.high]
    feed.write(json.dumps(values) + "\n")


async def _tune(feed: Feed, lm: LanguageModel, rm: RewardModel, run: Run) -> Tuned:
    """Write each estimate but the last, and the status, while beta is tuned."""
    place, n = "", 0

    def begin_round(tried: Sequence[float]) -> None:
        nonlocal place, n
        place, n = f"round {len(tried)} of at most {ROUNDS}", 0
        if len(tried) > 1:
            feed.write(json.dumps([round_beta(tried[-1])]) + "\n")

    async def extend(*args: Sequence[int], **options: Any) -> Response:
        nonlocal n
        response = await lm.extend(*args, **options)
        n += 1
        proposals = f"{min(max(0, n - 1), STEPS)} of {STEPS} proposals"  # the first text is a draft
        feed.status = Status("sampling", f"{FINDING} β: {place}, {proposals}. Stop ends it")
        return response

    counted: Any = SimpleNamespace(
        id=lm.id, max_new_tokens=lm.max_new_tokens, encode=lm.encode, extend=extend
    )
    run = run.with_changes(steps=STEPS)
    return await tune_beta(counted, rm, [run.prompt], run, notify=begin_round)


def round_beta(beta: float) -> float:
    """Round a beta to three digits, as the slider shows it."""
    return float(f"{beta:.3g}")
