"""A live run of a visitor: the models, then what the run draws, line by line into its feed."""

import time
from dataclasses import dataclass
from typing import Self

from components.session.gpu import with_gpu
from components.session.runs import Feed, Runs
from qalign_core.record.runner import make_header, record
from qalign_core.run import Run
from qalign_core.types import Step
from qalign_core.validation import from_json, is_text, is_whole
from qalign_study.export.browser import engine_header


@dataclass(frozen=True, slots=True)
class BrowserReply:
    """What a visitor's browser says of drawing a run there.

    Attributes:
        why: why it does not, as the end of a sentence; "" if it does.
        seed: of a run that it began and that the server takes over.
    """

    why: str = "the browser stopped answering"
    seed: int | None = None

    @classmethod
    def read(cls, text: object) -> Self:
        """Parse an untrusted reply."""
        try:
            reply = from_json(str(text))
            why, seed = reply["why"], reply.get("seed")
        except (ValueError, TypeError, KeyError, AttributeError):
            return cls()
        if not is_text(why) or not (seed is None or is_whole(seed, 0, 2**31 - 1)):
            return cls()
        return cls(why[:200], seed)


@with_gpu
async def draw_run(feed: Feed, runs: Runs, run: Run) -> None:
    """Draw a run, if the server allows it.

    Raises:
        QAlignError: the settings or the models do not allow it.
    """
    run.check(runs.limits)
    async with runs.models(feed, run) as (lm, rm):
        began = time.monotonic()
        async for item in record(lm, rm, run):
            feed.write(item.line)
            if isinstance(item.draw, Step):
                await feed.step()
    runs.durations[run.lm] = run.chains * run.steps, time.monotonic() - began


async def header_for_browser(runs: Runs, run: Run) -> str:
    """What a visitor's browser needs to draw a run, if the server allows it.

    Raises:
        QAlignError: the settings or the models do not allow it.
    """
    run.check(runs.limits)
    async with runs.models(Feed(), run) as (lm, rm):
        return engine_header(make_header(lm, rm, run))
