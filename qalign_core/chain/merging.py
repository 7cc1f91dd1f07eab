"""Several async generators as one, in order of arrival; several calls side by side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Coroutine
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


async def gather(*calls: Coroutine[Any, Any, T]) -> list[T]:
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
