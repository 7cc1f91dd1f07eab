"""The async generators for people without an event loop: scripts, and notebooks that run one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import TypeVar

T = TypeVar("T")

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
