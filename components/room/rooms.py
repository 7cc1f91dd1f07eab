"""All rooms of a process, by their codes, and when each is over."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from components.room.limits import Caps
from components.room.room import Room, RoomLesson
from qalign_core.run import Run
from qalign_core.validation import is_text
from qalign_study.serve.refusal import HTTPRefusal

LETTERS = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
"""The letters of codes: no two look alike from the last row or on a small screen."""
CODE = 8
"""Letters per code: 31^8 codes, so guessing a million per hour takes a hundred years."""


class Rooms:
    """All rooms of this process, in memory only.

    Args:
        caps: their limits.
        clock: seconds that only grow.
    """

    def __init__(
        self, caps: Caps | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.caps, self.clock = caps or Caps(), clock
        self._rooms: dict[str, Room] = {}
        self._ended: deque[tuple[str, str]] = deque(maxlen=256)

    def __iter__(self) -> Any:
        return iter(self._rooms.values())

    def open(self, run: Run, lesson: RoomLesson | None = None, code: str = "") -> Room:
        """Open a room, with a new code if that of a saved class is taken.

        Raises:
            HTTPRefusal: all rooms of this server are taken.
        """
        self.tidy()
        if len(self._rooms) >= self.caps.rooms:
            what = "all its rooms are taken" if self.caps.rooms else "it has none"
            raise HTTPRefusal(503, f"this server has no room for another class: {what}")
        while len(code) != CODE or code in self._rooms:
            code = "".join(secrets.choice(LETTERS) for _ in range(CODE))
        self._rooms[code] = room = Room(code, run, lesson, self.caps, self.clock())
        return room

    def find(self, code: object, token: object = "") -> Room:
        """Return the room of a code; a token only changes the error for a room that is gone.

        Raises:
            HTTPRefusal: there is no such room.
        """
        self.tidy()
        name = normalize_code(code)
        if name in self._rooms:
            return self._rooms[name]
        if why := dict(self._ended).get(name):
            raise HTTPRefusal(410, why)
        if token:
            raise HTTPRefusal(
                410,
                "this server was started again, and rooms exist only in its memory; "
                "the instructor can open a new one, or a class that was saved",
            )
        raise HTTPRefusal(
            404, "there is no room with this code; look at the screen and type it again"
        )

    def close(self, room: Room, why: str) -> None:
        """End a room and forget it."""
        room.end(why)
        self._rooms.pop(room.code, None)
        self._ended.append((room.code, why))

    def tidy(self) -> None:
        """Close the rooms whose time is over, and the empty ones."""
        now = self.clock()
        for room in list(self._rooms.values()):
            if now - room.born > self.caps.life:
                hours = self.caps.life / 3600
                self.close(room, f"this room is over: a room lasts {hours:g} hours")
            elif room.seconds_alone(now) > self.caps.alone:
                self.close(room, "this room is over: nobody was in it anymore")


def normalize_code(code: object) -> str:
    """Return a typed code in its stored form: capitals, without separators."""
    if not is_text(code):
        return ""
    return "".join(c for c in str(code)[:40].upper() if c in LETTERS)
