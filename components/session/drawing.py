"""A live run of a visitor: the models, then what the run draws, line by line into its feed."""

from __future__ import annotations

from components.session.gpu import with_gpu
from components.session.runs import Feed, Runs
from qalign_core.record.runner import record
from qalign_core.run import Run
from qalign_core.types import Step


@with_gpu
async def draw_run(feed: Feed, runs: Runs, run: Run) -> None:
    """Draw a run, if the server allows it.

    Raises:
        QAlignError: the settings or the models do not allow it.
    """
    run.check(runs.limits)
    lm, rm = await runs.models(feed, run.lm, run.rm, run.sampling)
    async for item in record(lm, rm, run):
        feed.write(item.line)
        if isinstance(item.drawn, Step):
            await feed.step()
