"""What runs in rooms: a chain for each member, samples of the model alone, and what screens follow.

Everything is a task of the server's event loop; the models' engines take turns between members and
other visitors as between any two runs. A stream looks four times a second whether something has
changed, so that a hundred of them cost little and none depends on another.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, cast
from zlib import crc32

from components.room.messages import (
    Figures,
    class_message,
    format_event,
    hand_message,
    member_message,
    room_message,
)
from components.room.rooms import (
    POOL,
    Bucket,
    Caps,
    Member,
    Room,
    RoomLesson,
    Rooms,
    Screen,
    build_class_run,
    key_of,
    normalize_code,
)
from components.room.snapshot import read_session, restore, save_class
from components.session.runs import Feed, Runs
from components.session.user_text import check_weighs, log_target, read_words, weigh_text
from qalign_core.chain.chain import run_chain
from qalign_core.chain.sampling import sample_iid
from qalign_core.context import BACKGROUND, RUN
from qalign_core.errors import QAlignError
from qalign_study.serve.refusal import HTTPRefusal

LOOK = 0.25
"""Seconds between two looks of a stream, or of a chain that rests."""
BEAT = 10.0
"""Seconds between signs of life on a stream: a member who left is noticed only then."""
COUNT = 1.0
"""Seconds between two looks at all chains together."""
SWEEP = 30.0
"""Seconds between two looks for rooms that are over."""
OPENED, AGAIN = 12, 1 / 60
"""Rooms that one address may open at once, and then a second: there are nine lessons."""
SHARE = 0.5
"""Of the rooms of this server, what one address may hold."""
MAX_ADDRESSES = 1024
SCREENS = 16
"""Screens that may follow from the instructor's place at once."""

log = logging.getLogger("qalign.room")
Work = Callable[[], Awaitable[None]]


class RoomService:
    """All rooms of a server, and what runs in them.

    Args:
        runs: of the server: it has the models, and their limits.
        teach: a lesson by its name; KeyError if there is none.
        caps: of rooms.
    """

    def __init__(
        self, runs: Runs, teach: Callable[[str], RoomLesson], caps: Caps | None = None
    ) -> None:
        self._runs, self._teach = runs, teach
        self.rooms = Rooms(caps)
        self._tasks: dict[Room, dict[str, asyncio.Task[None]]] = {}
        self._opening: dict[str, Bucket] = {}
        self._opener: dict[Room, str] = {}
        self._sweeper: asyncio.Task[None] | None = None

    # What is asked, and what is answered.

    async def open(self, given: Mapping[str, object], address: str) -> dict[str, Any]:
        """Open a room: its code, and the instructor's token.

        Args:
            given: problem, answer, beta and the name of a lesson.
            address: who asks; "" where a proxy hides it.

        Raises:
            HTTPRefusal: the settings, or too many rooms.
        """
        now = self.rooms.clock()
        while len(self._opening) >= MAX_ADDRESSES:
            del self._opening[next(iter(self._opening))]
        self._opening.setdefault(address, Bucket(AGAIN, OPENED, now)).take(now)
        session = read_session(given.get("session")) if "session" in given else None
        given = given if session is None else session
        held = sum(self._opener.get(room) == address for room in self.rooms)
        if address and held >= max(1, SHARE * self.rooms.caps.rooms):
            raise HTTPRefusal(
                429,
                f"your address has {held} rooms open on this server; close one on its Settings, or "
                "wait: a room ends 15 minutes after its last screen has left",
            )
        name, lesson = given.get("lesson") or "", None
        run = build_class_run(given, self.rooms.caps, session and {"seed": session["seed"]})
        if name:
            try:
                lesson = await asyncio.to_thread(self._teach, str(name)[:60])
            except KeyError as error:
                raise HTTPRefusal(
                    422, "there is no lesson with that name; choose another"
                ) from error
        room = self.rooms.open(run, lesson, normalize_code(given.get("code")) if session else "")
        self._tasks[room], self._opener[room] = {}, address
        if session:
            try:
                await asyncio.to_thread(restore, room, session, now)
            except HTTPRefusal as error:  # a session that cannot be is no room
                self.rooms.close(room, str(error))
                self._stop(room)
                raise
            for member in room.members.values():
                self._begin(room, f"chain {member.number}", partial(self._walk, room, member))
        self._begin(room, "pool", partial(self._pool, room))
        if self._sweeper is None or self._sweeper.done():
            self._sweeper = asyncio.create_task(self._sweep(), name="rooms that are over")
        return {"code": room.code, "token": room.lead}

    def join(self, code: object, token: object) -> dict[str, Any]:
        """A place in a room, or the one that a token has.

        Raises:
            HTTPRefusal: there is no such room, or no place in it.
        """
        room = self.rooms.find(code, token)
        if token == room.lead:
            return {"code": room.code, "token": room.lead, "lead": True}
        member = room.join(str(token or ""), self.rooms.clock())
        return {"code": room.code, "token": member.token, "lead": False}

    def predict(self, code: object, token: str, given: Mapping[str, object]) -> dict[str, Any]:
        """Take a member's prediction.

        Raises:
            HTTPRefusal: it cannot be.
        """
        room, member = self._place(code, token)
        room.predict(member, given.get("stop"), given.get("prediction"), self.rooms.clock())
        return {}

    def record_states(
        self, code: object, token: str, given: Mapping[str, object]
    ) -> dict[str, Any]:
        """Take states that a member's browser drew.

        Returns:
            {"t": the last step that is counted, "hand": how the member's game stands}.

        Raises:
            HTTPRefusal: they cannot be.
        """
        room, member = self._place(code, token)
        round_, t, states = (given.get(name) for name in ("round", "t", "states"))
        room.record_states(member, round_, t, states, self.rooms.clock())
        return {"t": member.t, "hand": hand_message(member)}

    async def score_text(
        self, code: object, token: str, given: Mapping[str, object]
    ) -> dict[str, Any]:
        """Weigh a member's own text, as both models of this server find it.

        Returns:
            {"log_pi"}: but for a constant; None for a text that the model never writes.

        Raises:
            HTTPRefusal: it cannot be.
        """
        room, member = self._place(code, token)
        run = room.run
        room.begin_try(member, self.rooms.clock())
        try:
            RUN.set(f"room {room.code} {member.number}")  # in the turns of the member's own chain
            words = read_words(given.get("words"))
            lm, rm = await self._runs.models(Feed(), run)
            check_weighs(lm)
            text = cast(Any, lm).written((), words, ended=True)
            _, weighed, reward = await weigh_text(lm, rm, run.prompt, text)
        except QAlignError as error:
            raise HTTPRefusal(422, str(error)) from error
        finally:
            member.trying = False
        log_pi = log_target(run.target, math.fsum(each.log_p for each in weighed), reward)
        room.record_try(member, run, log_pi)
        return {"log_pi": log_pi if math.isfinite(log_pi) else None}

    def require_instructor(self, code: object, token: str) -> Room:
        """The room of an instructor, who asks for something once more.

        Raises:
            HTTPRefusal: the caller is not the instructor, or asks too often.
        """
        room = self.rooms.find(code, token)
        if token != room.lead:
            raise HTTPRefusal(403, "only the instructor of this room may do that")
        room.bucket.take(self.rooms.clock())
        return room

    async def lead(self, code: object, token: str, given: Mapping[str, object]) -> dict[str, Any]:
        """Do what the instructor wants.

        Raises:
            HTTPRefusal: the caller is not the instructor, or it cannot be done.

        Returns:
            The class as it can be kept, where that is asked for; else nothing.
        """
        room = self.require_instructor(code, token)
        match given.get("do"):
            case "turn":
                room.turn(given.get("stop"))
            case "reveal":
                await asyncio.to_thread(self._judge, room)
                room.reveal()
            case "solve":
                room.solve()
            case "run" | "step" | "rest" as what:
                room.set_goal(what, self.rooms.clock())
            case "again":
                held = {"prompt": room.run.prompt, "reference": room.run.reference or ""}
                if "prompt" in given:  # another problem has another answer
                    held = {}
                run = build_class_run(given, self.rooms.caps, {"beta": room.run.beta, **held})
                self._start_again(room, run)
            case "door":
                room.set_door(bool(given.get("open")))
            case "single":
                room.select_chain(given.get("number"))
            case "keep":
                return await asyncio.to_thread(save_class, room)
            case "end":
                self.rooms.close(room, "the instructor has closed this room; thank you for coming")
                self._stop(room)
            case _:
                raise HTTPRefusal(422, "an instructor can turn, reveal, solve, run, step, "
                "rest, again, "
                              "door, single, keep and end")  # fmt: skip
        return {}

    @staticmethod
    def _judge(room: Room) -> None:
        """Find out what comes of every prediction, in a thread: some take a world to compute."""
        if room.ask:
            for said in [str(room.outcome_of("")["value"]), *room.prediction_counts]:
                with contextlib.suppress(ValueError):  # the right number is no prediction
                    room.outcome_of(said)

    def _place(self, code: object, token: str) -> tuple[Room, Member]:
        """The room of a code, and the member of a token in it."""
        room = self.rooms.find(code, token)
        if key_of(token) not in room.members:
            raise HTTPRefusal(403, "this place in the room was given up; join again")
        return room, room.members[key_of(token)]

    # Streams.

    def follow(self, code: object, token: str, *, draws: bool = False) -> AsyncIterator[str]:
        """What a screen shows from now on, as events.

        Args:
            code: of the room.
            token: of a place in it.
            draws: whether the member's browser draws the member's chain; else the server does.

        Raises:
            HTTPRefusal: the token has no place in that room, or too many screens follow from it.
        """
        room = self.rooms.find(code, token)
        if token == room.lead:
            if len(room.screens) >= SCREENS:
                raise HTTPRefusal(
                    429, f"{SCREENS} screens show this room already; close one of them"
                )
            screen = Screen()
            room.screens.add(screen)
            return self._lead_stream(room, screen)
        room, member = self._place(code, token)
        self._appoint(room, member, draws)
        return self._member_stream(room, member)

    def _appoint(self, room: Room, member: Member, draws: bool) -> None:
        """Have a member's chain drawn by the browser, or by the server if it can draw one more."""
        tasks, name = self._tasks[room], f"chain {member.number}"
        if draws:
            member.drawer = "browser"
            if name in tasks:
                tasks.pop(name).cancel()
            return
        member.drawer = "server" if room.server_may_draw(member, self.rooms.clock()) else ""
        if member.drawer and name not in tasks:
            self._begin(room, name, partial(self._walk, room, member))

    async def _member_stream(self, room: Room, member: Member) -> AsyncIterator[str]:
        screen = member.screen = object()
        member.streams += 1
        room.news += 1
        seen, beat, clock = (-1, -1), 0.0, self.rooms.clock
        try:
            while member.screen is screen:
                now = clock()
                if room.over:
                    yield format_event({"over": room.over})
                    return
                if (room.version, member.version) != seen:
                    told: dict[str, Any] = {"mine": member_message(room, member)}
                    if room.version != seen[0]:
                        told["room"] = room_message(room)
                    seen, beat = (room.version, member.version), now
                    yield format_event(told)
                elif now - beat > BEAT:
                    beat = now
                    yield ":\n\n"
                await asyncio.sleep(LOOK)
            yield format_event({"elsewhere": True})
        finally:
            member.streams -= 1
            member.seen = clock()
            room.news += 1

    async def _lead_stream(self, room: Room, screen: Screen) -> AsyncIterator[str]:
        seen, at, beat, counted, clock = -1, 0, 0.0, 0.0, self.rooms.clock
        walk: list[tuple[int, float]] = []
        drawn: tuple[int, ...] = ()
        try:
            while True:
                now = clock()
                if room.over:
                    yield format_event({"over": room.over})
                    return
                told: dict[str, Any] = {}
                if room.news != seen:
                    seen = room.news
                    told = {"room": room_message(room), "class": class_message(room, now)}
                    if walk is not room.walk:  # the class began again, or a place was given away
                        walk, at = room.walk, 0
                    told["from"] = at
                    told["walk"] = [(n, round(reward, 3)) for n, reward in walk[at:]]
                    at = len(walk)
                state = (room.round, len(room.walk), len(room.pool), room.single)
                if state != drawn and now - counted >= COUNT:
                    drawn, counted = state, now
                    told["figures"] = await asyncio.to_thread(Figures(room).to_dict)
                if told or now - beat > BEAT:
                    beat = now
                    yield format_event(told) if told else ":\n\n"
                await asyncio.sleep(LOOK)
        finally:
            room.screens.discard(screen)
            room.seen = clock()

    # Tasks.

    def _begin(self, room: Room, name: str, work: Work) -> None:
        task = asyncio.create_task(self._guarded(room, work), name=f"room {room.code}, {name}")
        self._tasks[room][name] = task

    def _start_again(self, room: Room, run: Any) -> None:
        """Everybody's chain from a first draft; the samples stay where the problem does."""
        redraw, tasks = run.prompt != room.run.prompt, self._tasks[room]
        for name in list(tasks):
            if name != "pool" or redraw:
                tasks.pop(name).cancel()
        room.restart(run)
        if redraw:
            self._begin(room, "pool", partial(self._pool, room))
        for member in room.members.values():
            if member.drawer == "server":
                self._begin(room, f"chain {member.number}", partial(self._walk, room, member))

    async def _guarded(self, room: Room, work: Work) -> None:
        try:
            await work()
        except QAlignError as error:
            room.fail(str(error))
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException:  # a defect: the log has it, the screens say only that
            log.exception("a room failed")
            room.fail("the models had an internal error; start again")

    async def _pool(self, room: Room) -> None:
        """Draw samples of the model alone, beside what somebody waits for.

        Their seed is the problem's, since they outlast a round and come back with a saved class.
        """
        RUN.set(f"room {room.code}")
        BACKGROUND.set(True)
        run = room.run
        lm, rm = await self._runs.models(Feed(), run)
        seed = crc32(run.prompt.encode())
        samples = sample_iid(lm, rm, run.prompt, n=POOL, seed=seed, concurrency=4)
        async with aclosing(samples):  # type: ignore[type-var]
            async for sample in samples:
                room.record_sample(sample)

    async def _walk(self, room: Room, member: Member) -> None:
        """A member's chain, as far as the class goes and somebody looks on.

        It is drawn from its first draft on, at once up to the state that the member has.
        """
        RUN.set(f"room {room.code} {member.number}")  # each member's turn is a visitor's
        run, loop = room.run, asyncio.get_running_loop()
        lm, rm = await self._runs.models(Feed(), run)
        how: Any = {name: getattr(run, name) for name in ("target", "move", "steps", "seed")}
        steps = run_chain(lm, rm, run.prompt, chain=member.number, **how)
        async with aclosing(steps):  # type: ignore[type-var]
            for t in range(run.steps + 1):
                while t > member.t and not room.may_step(member, self.rooms.clock()):
                    if room.over or member.key not in room.members:
                        return
                    await asyncio.sleep(LOOK)
                due = loop.time() + room.caps.pace * (t > max(member.t, member.replay_until))
                room.record_step(member, await anext(steps))
                await asyncio.sleep(max(0.0, due - loop.time()))

    def _stop(self, room: Room) -> None:
        self._opener.pop(room, None)
        for task in self._tasks.pop(room, {}).values():
            task.cancel()

    async def _sweep(self) -> None:
        """Close what is over, until no room is left."""
        while self._tasks:
            await asyncio.sleep(SWEEP)
            self.rooms.tidy()
            open_ = set(self.rooms)
            for room in [room for room in self._tasks if room not in open_]:
                self._stop(room)
