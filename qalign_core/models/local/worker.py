"""One thread that owns a model, and a queue that is fair between runs, used by all engines.

Coroutines `submit` jobs and wait; the thread takes them round robin over runs (not first come
first served, so 32 chains of one user do not hold up the one chain of another; what is drawn aside
comes second) and hands results back with one call per event loop and turn. Nothing here knows what
a job computes.
"""

import asyncio
import atexit
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import torch

from qalign_core.context import BACKGROUND, RUN
from qalign_core.errors import EngineError, QAlignError
from qalign_core.validation import first_line

ASIDE_SHARE = 8
"""While both wait, one job in so many is of those drawn aside: they are slow then, not stopped."""

_alive: "weakref.WeakSet[Worker]" = weakref.WeakSet()


class Job:
    """Some work on its way through a worker: what is to be computed, and who waits for it."""

    __slots__ = ("aside", "cancelled", "future", "is_running", "loop", "run", "work")

    def __init__(self, work: Any) -> None:
        self.work, self.run, self.aside = work, RUN.get(), BACKGROUND.get()
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.cancelled = self.is_running = False


class Worker(ABC):
    """Owns one thread. Subclasses implement `turn`, which calls `take` and `finish`.

    Args:
        name: the thread's name.
        threads: threads that torch may use inside one operation.
        max_queue: jobs that may wait; when so many do, a run that has its share of them (as many
            as each of the runs that wait could have) is refused one more with an `EngineError`.

    Attributes:
        n_waiting: jobs that are queued and not yet started.
    """

    def __init__(self, name: str, *, threads: int = 1, max_queue: int = 4096) -> None:
        self.name = name
        self.threads = threads
        self.max_queue = max_queue
        # by (aside, run); within each of the two, the run that waits longest for its turn is first
        self._waiting: OrderedDict[tuple[bool, str], deque[Job]] = OrderedDict()
        self.n_waiting = self._n_started = 0
        self._open: set[Job] = set()  # somebody waits for them
        self._last_used = time.monotonic()
        self._changed = threading.Condition()
        self._calls: dict[asyncio.AbstractEventLoop, list[Callable[[], None]]] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    # For coroutines.

    async def submit(self, work: Any) -> Any:
        """Queue a job and wait for its result; cancelling the caller cancels the job."""
        job = Job(work)
        with self._changed:
            if self._closed:
                raise EngineError(f"{self.name} was unloaded; load the model again")
            if self.n_waiting >= self.max_queue and self._has_its_share(job.run):
                raise EngineError(
                    f"{self.name} is busy: {self.n_waiting} requests are waiting already; "
                    "try again in a minute"
                )
            if self._thread is None:
                thread = threading.Thread(target=self._work, name=self.name, daemon=True)
                thread.start()  # the machine may have no thread left
                self._thread = thread
                _alive.add(self)
            self._waiting.setdefault((job.aside, job.run), deque()).append(job)
            self.n_waiting += 1
            self._open.add(job)
            self._changed.notify()
        try:
            return await job.future
        except asyncio.CancelledError:
            job.cancelled = True
            raise
        finally:
            with self._changed:
                self._open.discard(job)
                self._last_used = time.monotonic()

    def _has_its_share(self, run: str) -> bool:
        """Whether as many jobs of a run wait as of each run could."""
        runs = {run, *(of for _, of in self._waiting)}
        held = sum(len(jobs) for (_, of), jobs in self._waiting.items() if of == run)
        return held >= max(1, self.max_queue // len(runs))

    def close(self) -> None:
        """Stop the thread after its current turn; waiting jobs fail."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=10)

    @property
    def n_open(self) -> int:
        """How many requests wait or run."""
        return len(self._open)

    @property
    def idle_seconds(self) -> float:
        """How long no request has been open; 0 while one is."""
        with self._changed:
            return 0.0 if self._open else time.monotonic() - self._last_used

    # For subclasses, on the worker's thread.

    @abstractmethod
    def turn(self) -> None:
        """Do a small amount of work: take jobs, advance them, finish some."""

    def busy(self) -> bool:
        """Whether there is unfinished work that was already taken."""
        return False

    def abandon(self, error: BaseException) -> None:  # noqa: B027
        """Let go of what jobs hold that were taken and will not be finished."""

    def take(self) -> Job | None:
        """The next job, round robin over runs; None if none waits."""
        with self._changed:
            while self.n_waiting:
                self._n_started += 1
                aside = self._n_started % ASIDE_SHARE == 0
                first = next(iter(self._waiting))  # if nobody of that kind waits
                lane = next((key for key in self._waiting if key[0] == aside), first)
                job = self._waiting[lane].popleft()
                self._waiting.move_to_end(lane)
                if not self._waiting[lane]:
                    del self._waiting[lane]
                self.n_waiting -= 1
                if not job.cancelled:
                    job.is_running = True
                    return job
        return None

    def finish(self, job: Job, result: Any) -> None:
        """Hand a result (or an exception) back, at the end of this turn."""
        self.call_later(job, partial(_resolve, job.future, result))

    def call_later(self, job: Job, function: Callable[[], None]) -> None:
        """Call a function in the event loop of a job, at the end of this turn."""
        self._calls.setdefault(job.loop, []).append(function)

    def _work(self) -> None:
        try:
            torch.set_num_threads(self.threads)  # of this thread only: two engines use two cores
            with torch.inference_mode():
                while self._has_work():
                    try:
                        self.turn()
                    except BaseException as error:  # a panic of a library in Rust is no Exception
                        failed = as_engine_error(error)
                        self.abandon(failed)
                        self._fail_jobs(failed, running_only=True)
                    self._deliver()
                self.abandon(EngineError(f"{self.name} was unloaded"))
        finally:  # however the thread ends, nobody waits for it any more
            with self._changed:
                self._closed = True
            self._fail_jobs(EngineError(f"{self.name} was unloaded while this request ran"))
            self._deliver()

    def _has_work(self) -> bool:
        """Wait for work; False once the worker is closed."""
        with self._changed:
            while not (self._closed or self.n_waiting or self.busy()):
                self._changed.wait()
            return not self._closed

    def _fail_jobs(self, error: QAlignError, *, running_only: bool = False) -> None:
        """Finish every open job, or every running one, with an error."""
        with self._changed:
            jobs = [job for job in self._open if job.is_running or not running_only]
        for job in jobs:
            self.finish(job, error)

    def _deliver(self) -> None:
        for loop, functions in self._calls.items():
            with suppress(RuntimeError):  # the loop was closed: nobody waits any more
                loop.call_soon_threadsafe(_call_each, functions)
        self._calls = {}


@contextmanager
def torch_threads(n: int) -> Iterator[None]:
    """Let torch use n threads here, as in the worker: other numbers round otherwise."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _call_each(functions: list[Callable[[], None]]) -> None:
    for function in functions:
        function()


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


def as_engine_error(error: BaseException) -> QAlignError:
    """One sentence for what went wrong in a model; plain errors stay as they are."""
    if isinstance(error, QAlignError):
        return error
    text = first_line(error)
    if "out of memory" in text.lower() or "can't allocate memory" in text.lower():
        return EngineError(
            "the model ran out of memory; use fewer chains, a shorter limit or a smaller model"
        )
    failed = EngineError(f"the model failed while it ran: {text}")
    failed.__cause__ = error
    return failed


@atexit.register
def _close_all() -> None:
    for worker in list(_alive):
        worker.close()
