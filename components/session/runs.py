"""Live runs, one a visitor: a place in the queue, caps, a status in plain words, and an end.

A run is a coroutine that writes lines into a `Feed`; `Runs.stream` shows what it has written, at
most ten times a second, less often in a crowd. All runs share the event loop and take turns at
every step (each awaits the model's engine), so a run never holds a slot from another. Leaving the
page, Stop and a newer run of the same visitor all cancel the coroutine, and with it the request
that it waits for.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Literal

from components.session.offer import Offer
from qalign_core.context import PROGRESS, RUN, VISITOR
from qalign_core.errors import Busy, EngineError, QAlignError
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.record.format import TraceReader
from qalign_core.record.trace import Trace
from qalign_core.run import Limits, Run, Sampling
from qalign_study.serve.limits import read_limits
from qalign_study.serve.refusal import public_errors

State = Literal["idle", "loading", "queued", "sampling", "finished", "stopped", "failed"]
Models = tuple[LanguageModel, RewardModel]
ModelLoader = Callable[[str, str, Sampling], Models]

TICK = 0.1
"""Seconds between two updates of a page, at the least."""

BEAT = 1.0
"""Seconds after which a page gets the same state again: a visitor who left is noticed only then."""

TICK_A_RUN = 0.015
"""Seconds between two updates for each run that is shown: one takes 1.5 ms of the event loop."""

log = logging.getLogger("qalign.runs")


def tick(n_runs: int) -> float:
    """Seconds between two updates of a page while so many runs are shown."""
    return max(TICK, TICK_A_RUN * n_runs)


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a run, for the page: a state and one plain phrase."""

    state: State
    text: str


IDLE = Status("idle", "Ready. The models load when you press “Run it live”.")
STOPPED = Status("stopped", "Stopped. The steps drawn so far are kept.")


class Feed:
    """Where a run writes: the lines of its trace, and what it is doing.

    Threads may read it while the event loop writes, two at a time too: a page that saves or looks
    at another budget does.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._written = [""]  # joined when it is read: a run writes more often than a page looks
        self.status = Status("loading", "Starting…")
        self.error: QAlignError | None = None
        self.lm: LanguageModel | None = None
        self.n_steps = 0
        self._since = 0.0
        self._reader = TraceReader()
        self._read = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes that must be shown for the language model, such as that it is approximate."""
        return tuple(getattr(self.lm, "notes", ()))

    @property
    def text(self) -> str:
        """The lines so far."""
        with self._lock:
            if len(self._written) > 1:
                self._written = ["".join(self._written)]
            return self._written[0]

    @property
    def trace(self) -> Trace | None:
        """What has been drawn so far; None before the first line."""
        with self._lock:
            text = self.text
            for line in text[self._read :].split("\n")[:-1]:
                self._reader.feed(line)
            self._read = len(text)
            return None if self._reader.header is None else self._reader.trace()

    def write(self, line: str) -> None:
        """Append text (whole lines)."""
        with self._lock:
            self._written.append(line)

    def tell(self, what: str) -> None:
        """Say what a load does now; called from its thread."""
        self.status = Status("loading", f"Loading: {what}…")

    async def step(self) -> None:
        """Count a step for the rate, and let the other runs have their turn."""
        now = time.monotonic()
        if not self.n_steps:
            self._since = now
        self.n_steps += 1
        elapsed = now - self._since
        pace = self.n_steps / max(elapsed, 0.3)
        rate = f", {pace:.0f} steps per second" if elapsed > 0.3 and pace >= 1.5 else ""
        self.status = Status("sampling", "; ".join([f"Sampling{rate}", *self.notes]))
        await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a run has written, its status, what made it fail, if it did, and its steps so far."""

    text: str
    status: Status
    error: QAlignError | None
    n_steps: int


Work = Callable[[Feed], Awaitable[None]]


def _load(lm: str, rm: str, sampling: Sampling) -> Models:
    from qalign_core.registry import load_language_model, load_reward_model  # torch: seconds

    return load_language_model(lm, sampling=sampling), load_reward_model(rm)


class Runs:
    """All live runs of this process."""

    def __init__(
        self,
        limits: Limits | None = None,
        load: ModelLoader = _load,
        offer: Offer | None = None,
    ) -> None:
        self.limits = limits or read_limits()
        self.offer = offer or Offer.from_environment()
        self._load = load
        self._running: set[object] = set()
        self._waiting: list[object] = []
        self._moved: asyncio.Event = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.durations: dict[str, tuple[int, float]] = {}
        """Steps and seconds of the last whole run of each language model."""

    @property
    def usual(self) -> bool:
        """Whether names mean the models that they mean elsewhere, and no stand-ins."""
        return self._load is _load

    def warm_up(self) -> threading.Thread:
        """Load the models behind the page, in a daemon thread; a failure shows at the first run."""

        def load() -> None:
            try:
                self._load(Run.lm, Run.rm, Sampling())
            except QAlignError as error:
                log.warning("models are not ready: %s", error)

        thread = threading.Thread(target=load, name="warm-up", daemon=True)
        thread.start()
        return thread

    @contextlib.asynccontextmanager
    async def models(self, feed: Feed, run: Run) -> AsyncIterator[Models]:
        """Provide a run's two models, loaded in a thread if this is their first use.

        Within this context, their errors have sentences for visitors (`public_errors`).

        Raises:
            ModelLoadError: this server does not offer them, or they cannot be loaded.
        """
        self.offer.check(run.lm, run.rm)
        feed.status = Status("loading", "Loading the models…")
        PROGRESS.set(feed.tell)
        VISITOR.set(True)
        with public_errors():
            models = await asyncio.to_thread(self._load, run.lm, run.rm, run.sampling)
            feed.lm = models[0]
            yield models

    async def stream(
        self, visitor: str, work: Work, *, patient: bool = True
    ) -> AsyncGenerator[Snapshot]:
        """Run `work` for a visitor and yield what it writes; closing the generator ends it.

        It can be closed where it yields, so it does so every `BEAT` seconds at least.

        Args:
            visitor: whose run it is; an older one of theirs is ended.
            work: what is run.
            patient: whether it waits however many are ahead; otherwise a full queue refuses it.
        """
        await self.stop(visitor)
        feed = Feed()
        task = asyncio.create_task(
            self._run(visitor, feed, work, patient), name=f"run of {visitor}"
        )
        self._tasks[visitor] = task
        latest, updated_at = (0, IDLE), 0.0
        try:
            while True:
                done = task.done()
                late = time.monotonic() - updated_at >= BEAT
                now = (len(feed.text), feed.status)
                if now != latest or done or late:
                    latest, updated_at = now, time.monotonic()
                    yield Snapshot(feed.text, feed.status, feed.error, feed.n_steps)
                if done:
                    return
                # the first step is shown at once, even with many others
                pause = tick(len(self._tasks)) if feed.n_steps else TICK
                await asyncio.wait({task}, timeout=pause)
        finally:
            task.cancel()
            if self._tasks.get(visitor) is task:
                del self._tasks[visitor]

    async def stop(self, visitor: str) -> bool:
        """End the visitor's run and say whether there was one; what it wrote stays."""
        task = self._tasks.pop(visitor, None)
        if task is None:
            return False
        task.cancel()
        await asyncio.wait({task})
        return True

    async def _run(self, visitor: str, feed: Feed, work: Work, patient: bool) -> None:
        RUN.set(visitor)  # the engines take turns between visitors, not between requests
        try:
            async with self._place(feed, patient):
                await work(feed)
            text = "; ".join(["All texts are drawn", *feed.notes])
            feed.status = replace(feed.status, state="finished", text=text)
        except asyncio.CancelledError:
            feed.status = STOPPED
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a panic of a library in Rust is no Exception
            if not isinstance(error, QAlignError):
                # a defect, not the visitor's mistake: the log has it, the page says only that
                log.exception("a run failed")
                error = EngineError("the run had an internal error; try again.")
            feed.error = error
            feed.status = Status("failed", f"Failed: {error}")

    @contextlib.asynccontextmanager
    async def _place(self, feed: Feed, patient: bool) -> AsyncIterator[None]:
        """Wait for one of the places to run, first come, first served."""
        ticket = object()
        if not patient and len(self._waiting) >= self.limits.queue:
            raise Busy(f"{self.limits.queue} runs are already waiting; try again in a minute")
        self._waiting.append(ticket)
        try:
            while self._waiting[0] is not ticket or len(self._running) >= self.limits.runs:
                place = self._waiting.index(ticket) + 1
                feed.status = Status("queued", f"Number {place} in the queue")
                self._moved.clear()
                await self._moved.wait()
            self._running.add(ticket)
        finally:
            self._waiting.remove(ticket)
            self._moved.set()
        try:
            yield
        finally:
            self._running.discard(ticket)
            self._moved.set()
