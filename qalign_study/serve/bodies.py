"""What requests carry: each body has a size and a time, and all of them together a size."""

import asyncio
import re

from starlette.types import Receive

from qalign_study.serve.refused import Refused

MOST = (
    (re.compile(r"/room/(open|moved)$"), 128 * 2**10),
    (re.compile(r"/room/[^/]*$"), 8 * 2**10),
    (re.compile(r"/(api|call|mcp|queue|run|v1)(/|$)"), 2**20),
    (re.compile(""), 4 * 2**20),
)
"""Bytes of one body by its path: a class or chain; a problem; texts of a run; rewards of chains."""
RECEIVE = 30.0
"""Seconds in which a body must have arrived."""
TOGETHER = 64 * 2**20
"""Bytes of all bodies that have not arrived as a whole."""


class Bodies:
    """Receives bodies. Where they become too many, the one that has taken longest gives way.

    A body of somebody who behaves is there within milliseconds, so it is never that one.
    """

    def __init__(self) -> None:
        self._arriving: dict[asyncio.Timeout, int] = {}  # bytes of each, the oldest first

    async def receive(self, receive: Receive, path: str) -> bytes:
        """A whole body; of too much nothing is kept, but it is taken, so that it can be answered.

        Raises:
            Refused: it is too large or too slow.
        """
        most = next(most for pattern, most in MOST if pattern.search(path))
        parts, size, more = list[bytes](), 0, True
        try:
            async with asyncio.timeout(RECEIVE) as limit:
                self._arriving[limit] = 0
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(400, "the request broke off; send it again")
                    part, more = message.get("body", b""), message.get("more_body", False)
                    size += len(part)
                    parts.append(part)
                    if size > most:
                        parts.clear()
                    self._arriving[limit] = size if parts else 0
                    self._make_room()
        except TimeoutError as error:
            raise Refused(
                408, f"the request took too long: {RECEIVE:g} s at most; send it faster"
            ) from error
        finally:
            del self._arriving[limit]
        if size > most:
            raise Refused(413, f"the request has {size:,} bytes; at most {most:,} are allowed")
        return b"".join(parts)

    def _make_room(self) -> None:
        over, now = sum(self._arriving.values()) - TOGETHER, asyncio.get_running_loop().time()
        for limit, held in self._arriving.items():
            if over <= 0:
                return
            over -= held
            if not limit.expired():
                limit.reschedule(now)
