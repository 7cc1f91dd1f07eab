"""The event streams of rooms: what each screen shows, as it changes.

A stream polls for changes four times per second, so that a hundred streams cost little and none
depends on another.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from components.room.chains import RoomTasks
from components.room.messages import (
    Figures,
    class_message,
    format_event,
    member_message,
    room_message,
)
from components.room.room import Member, Room, Screen

LOOK = 0.25
"""Seconds between two polls of a stream."""
BEAT = 10.0
"""Seconds between heartbeats on a stream, which detect that a member has left."""
COUNT = 1.0
"""Seconds between two computations of the figures of all chains."""
TABS = 4
"""The most screens of one member: one is served, and the others wait."""

Clock = Callable[[], float]
"""Seconds that only grow."""


async def member_stream(
    room: Room, member: Member, tasks: RoomTasks, clock: Clock, *, draws: bool, waits: bool
) -> AsyncIterator[str]:
    """Yield a member's messages to the newest screen; the others get them when it closes."""
    screen, screens = object(), member.screens
    screens.insert(0 if waits else len(screens), screen)
    del screens[:-TABS]
    room.news += 1
    versions, beat, is_served = (-1, -1), 0.0, not waits
    try:
        while screen in screens:
            now, is_newest = clock(), screens[-1] is screen
            if room.over:
                yield format_event({"over": room.over})
                return
            if is_newest and not is_served:
                tasks.assign_drawer(room, member, draws)
            if is_served and not is_newest:
                versions, beat = (-1, -1), now
                yield format_event({"elsewhere": True})
            elif is_newest and (room.version, member.version) != versions:
                message: dict[str, Any] = {"mine": member_message(room, member)}
                if room.version != versions[0]:
                    message["room"] = room_message(room)
                versions, beat = (room.version, member.version), now
                yield format_event(message)
            elif now - beat > BEAT:
                beat = now
                yield ":\n\n"
            is_served = is_newest
            await asyncio.sleep(LOOK)
        yield format_event({"over": f"your place is open in {TABS} newer tabs; use one of them"})
    finally:
        if screen in screens:
            screens.remove(screen)
        member.seen = clock()
        room.news += 1


async def lead_stream(room: Room, screen: Screen, clock: Clock) -> AsyncIterator[str]:
    """Yield the messages to a screen of the instructor."""
    news, at, beat, counted = -1, 0, 0.0, 0.0
    walk: list[tuple[int, float]] = []
    progress: tuple[int, ...] = ()
    try:
        while True:
            now = clock()
            if room.over:
                yield format_event({"over": room.over})
                return
            message: dict[str, Any] = {}
            if room.news != news:
                news = room.news
                message = {"room": room_message(room), "class": class_message(room, now)}
                if walk is not room.walk:  # the class was restarted, or a place was given away
                    walk, at = room.walk, 0
                message["from"] = at
                message["walk"] = [(n, round(reward, 3)) for n, reward in walk[at:]]
                at = len(walk)
            state = (room.round, len(room.walk), len(room.pool), room.single)
            if state != progress and now - counted >= COUNT:
                progress, counted = state, now
                message["figures"] = await asyncio.to_thread(Figures(room).to_dict)
            if message or now - beat > BEAT:
                beat = now
                yield format_event(message) if message else ":\n\n"
            await asyncio.sleep(LOOK)
    finally:
        room.screens.discard(screen)
        room.seen = clock()
