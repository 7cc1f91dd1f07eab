"""A GPU for the length of a run, where the server is a Space with ZeroGPU hardware.

There `spaces.GPU` runs a function in a process that is forked from this one and has the GPU.
Threads do not come along and what the function yields is pickled, so a whole run goes there, its
models and their engines included, and what it writes comes back into its feed. Everywhere else
`spaces.GPU` changes nothing; and a run of the models that come with the project asks for no GPU.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import closing
from functools import wraps
from typing import Any, TypeVar, cast

import gradio as gr

from components.session.offer import Offer, needs_gpu
from components.session.runs import TICK, Feed, Runs, Snapshot, Status
from qalign_core.errors import EngineError, QAlignError
from qalign_core.run import Limits, Run

F = TypeVar("F", bound=Callable[..., Any])
Draw = Callable[[Feed, Runs, Run], Awaitable[None]]
"""What draws a run: of its feed, the server's runs, and the run itself."""


def on_gpu(function: F) -> F:
    """`spaces.GPU` of a function where that package is installed, otherwise the function."""
    try:
        import spaces
    except ImportError:
        return function
    return cast(F, spaces.GPU(function))


def draw(drawing: Draw, limits: Limits, offer: Offer, run: Run) -> Generator[Snapshot, None, None]:
    """Do a run in an event loop of its own; closing the generator cancels it.

    Each snapshot has the text since the one before.

    A function is pickled by its name, so `drawing` comes with the decorator, which asks for a GPU.
    Something is yielded at every tick, because only then a visitor's Stop is noticed.
    """
    feed = Feed()
    with asyncio.Runner() as runner:
        whole = cast(Any, drawing).__wrapped__(feed, Runs(limits, offer=offer), run)
        task = runner.get_loop().create_task(whole)
        n = 0
        while not task.done():
            runner.run(asyncio.wait({task}, timeout=TICK))
            error = task.exception() if task.done() else None
            if error is not None and not isinstance(error, QAlignError):
                raise error
            text = feed.text[n:]
            n += len(text)
            yield Snapshot(text, feed.status, error, feed.n_steps)


_draw_on_gpu = on_gpu(draw)


def is_lent(lm: str, rm: str) -> bool:
    """Whether these models run on a GPU that is lent for the length of a run."""
    return _draw_on_gpu is not draw and needs_gpu(lm, rm)


def with_gpu(drawing: Draw) -> Draw:
    """Let a run draw on a GPU that is lent for it, if one is and its models need one.

    Raises:
        EngineError: no GPU was lent, or it was taken away; ZeroGPU's own sentence.
    """

    @wraps(drawing)
    async def anywhere(feed: Feed, runs: Runs, run: Run) -> None:
        if not is_lent(run.lm, run.rm):
            await drawing(feed, runs, run)
            return
        run.check(runs.limits)  # before any of the visitor's GPU time is asked for
        runs.offer.check(run.lm, run.rm)
        feed.status = Status("loading", "Waiting for a GPU…")
        await _follow(feed, _draw_on_gpu(anywhere, runs.limits, runs.offer, run))

    return anywhere


async def _follow(feed: Feed, written: Generator[Snapshot, None, None]) -> None:
    """Take what a run elsewhere writes into the feed, until it ends or this is cancelled."""
    stopped = threading.Event()
    loop = asyncio.get_running_loop()

    def take(now: Snapshot) -> None:
        if not stopped.is_set():
            feed.write(now.text)
            feed.status, feed.n_steps = now.status, now.n_steps

    def follow() -> None:
        error = None
        with closing(written):
            for now in written:
                if stopped.is_set():
                    return
                loop.call_soon_threadsafe(take, now)
                error = now.error
        if error is not None:
            raise error

    try:
        await asyncio.to_thread(follow)
    except gr.Error as error:
        raise EngineError(f"no GPU for this run: {error.message}") from error
    finally:
        stopped.set()
