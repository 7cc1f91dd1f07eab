"""Async generators: merge several in order of arrival, or iterate from synchronous code."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Collection, Iterator
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def merge(*streams: AsyncIterator[T]) -> AsyncIterator[T]:
    """Yield the items of all streams as they arrive; within a stream the order is kept.

    No stream runs more than a few items ahead of the consumer. An error in one stream is raised in
    its turn and cancels the others, as closing the generator does.
    """
    arrived: asyncio.Queue[tuple[asyncio.Task[None] | None, Any]] = asyncio.Queue()
    ahead = asyncio.Semaphore(len(streams))

    async def follow(stream: AsyncIterator[T]) -> None:
        async for item in stream:
            await ahead.acquire()
            arrived.put_nowait((None, item))

    tasks = [asyncio.ensure_future(follow(stream)) for stream in streams]
    for task in tasks:  # the consumer is notified of every end, error and cancellation
        task.add_done_callback(lambda task: arrived.put_nowait((task, None)))
    running = len(tasks)
    try:
        while running:
            ended, item = await arrived.get()
            if ended is None:
                ahead.release()
                yield item
            else:
                ended.result()
                running -= 1
    finally:
        await end(tasks)


async def gather(*calls: Awaitable[T]) -> list[T]:
    """Await all calls concurrently; if one fails or the caller is canceled, cancel the others."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return [*await asyncio.gather(*tasks)]
    finally:
        await end(tasks)


async def end(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


_END = object()


def iterate(items: AsyncIterator[T]) -> Iterator[T]:
    """Iterate over an async generator from synchronous code, also inside a running event loop.

    A thread of its own runs the generator.

    Leaving the loop early, or an error in its body, closes the generator and thereby ends the run.
    """
    loop = asyncio.new_event_loop()

    def run() -> None:
        """Run the loop until it is stopped, also after `sys.exit()` in a task."""
        while not stopped:
            with suppress(BaseException):  # the task holds the error and re-raises it
                loop.run_forever()

    stopped = False
    thread = threading.Thread(target=run, name="qalign-iterate", daemon=True)
    thread.start()

    waiting: list[asyncio.Task[Any]] = []

    async def advance() -> object:
        task = asyncio.current_task()
        assert task is not None
        waiting[:] = [task]
        return await anext(items, _END)

    async def close() -> None:
        await end(waiting)  # the consumer was interrupted (Ctrl-C)
        aclose = getattr(items, "aclose", None)
        if aclose is not None:
            await aclose()

    try:
        while True:
            item = asyncio.run_coroutine_threadsafe(advance(), loop).result()
            if item is _END:
                return
            yield item  # type: ignore[misc]
    finally:
        asyncio.run_coroutine_threadsafe(close(), loop).result()
        stopped = True
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def collect(items: AsyncIterator[T]) -> list[T]:
    """Return all items of an async generator as a list, also inside a running event loop."""
    return list(iterate(items))
