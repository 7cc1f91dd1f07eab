"""Async generators: several as one in order of arrival, or without an event loop of one's own."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Collection, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


async def merge(*streams: AsyncIterator[T]) -> AsyncIterator[T]:
    """Yield the items of all streams as they arrive; within a stream the order is kept.

    No stream runs more than a few items ahead of the reader. An error in one is raised at its
    place and ends the others, as closing the generator does.
    """
    arrived: asyncio.Queue[tuple[bool, T | Exception | None]] = asyncio.Queue(len(streams))

    async def follow(stream: AsyncIterator[T]) -> None:
        try:
            async for item in stream:
                await arrived.put((False, item))
            await arrived.put((True, None))
        except Exception as error:  # handed to the reader, who raises it
            await arrived.put((True, error))

    tasks = [asyncio.ensure_future(follow(stream)) for stream in streams]
    running = len(tasks)
    try:
        while running:
            ended, item = await arrived.get()
            if not ended:
                yield item  # type: ignore[misc]
            elif isinstance(item, Exception):
                raise item
            else:
                running -= 1
    finally:
        await end(tasks)


async def gather(*calls: Awaitable[T]) -> list[T]:
    """Await all calls side by side; if one fails or the caller is cancelled, cancel the others."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return [await task for task in tasks]
    finally:
        await end(tasks)


async def end(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until they are gone."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


_END = object()


def iterate(items: AsyncIterator[T]) -> Iterator[T]:
    """Iterate over an async generator; works inside a running event loop too (it uses a thread).

    Leaving the loop early, or an error in its body, closes the generator and so ends the run.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="qalign-iterate", daemon=True)
    thread.start()

    async def advance() -> object:
        return await anext(items, _END)

    async def close() -> None:
        aclose = getattr(items, "aclose", None)
        if aclose is not None:
            await aclose()

    call = None
    try:
        while True:
            call = asyncio.run_coroutine_threadsafe(advance(), loop)
            item = call.result()
            if item is _END:
                return
            yield item  # type: ignore[misc]
    finally:
        if call is not None and not call.done():  # interrupted while waiting (Ctrl-C)
            call.cancel()
        asyncio.run_coroutine_threadsafe(close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def collect(items: AsyncIterator[T]) -> list[T]:
    """All items of an async generator as a list; works inside a running event loop too."""
    return list(iterate(items))
