"""The service behind rooms: a chain per member, samples of the model alone, and event streams.

Everything is a task of the server's event loop; the models' engines take turns between members and
other visitors as between any two runs. A stream polls for changes four times per second, so that a
hundred streams cost little and none depends on another.
"""

from __future__ import annotations

import asyncio
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
from components.session.gpu import is_lent
from components.session.runs import Feed, Runs
from components.session.user_text import check_scores_tokens, log_target, read_words, score_text
from qalign_core.chain.chain import run_chain
from qalign_core.chain.concurrent import sample_iid
from qalign_core.context import BACKGROUND, RUN
from qalign_core.errors import ModelLoadError, QAlignError
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.registry import entries, is_foreign
from qalign_core.run import NO_EXTRACTOR, Run
from qalign_core.types import Step
from qalign_study.export.browser import unsupported_reason
from qalign_study.serve.refusal import HTTPRefusal

LOOK = 0.25
"""Seconds between two polls of a stream, or of a paused chain."""
BEAT = 10.0
"""Seconds between heartbeats on a stream, which detect that a member has left."""
COUNT = 1.0
"""Seconds between two computations of the figures of all chains."""
SWEEP = 30.0
"""Seconds between two searches for rooms that are over."""
OPENED, AGAIN = 12, 1 / 60
"""Rooms that one address may open at once, and then per second: there are ten lessons."""
SHARE = 0.5
"""The share of this server's rooms that one address may hold."""
MAX_ADDRESSES = 1024
SCREENS = 16
"""The most screens that may show the instructor's view at once."""
ANY_REWARD = "mood"
"""The reward for any text where this server has no reward model for it."""
UNLOADED = (
    "the language model or the reward cannot be loaded; choose others in the room's settings, or "
    "see the reason in the app's terminal"
)
"""What a class reads when its models cannot be loaded."""
TABS = 4
"""The most screens of one member: one is served, and the others wait."""

log = logging.getLogger("qalign.room")
Work = Callable[[], Awaitable[None]]


class RoomService:
    """All rooms of a server, and their tasks.

    Args:
        runs: the server's runs, which have the models and their limits.
        load_lesson: returns a lesson by its name; raises KeyError if there is none.
        caps: of rooms.
    """

    def __init__(
        self, runs: Runs, load_lesson: Callable[[str], RoomLesson], caps: Caps | None = None
    ) -> None:
        self._runs, self._load_lesson = runs, load_lesson
        self.rooms = Rooms(caps)
        self._tasks: dict[Room, dict[str, asyncio.Task[None]]] = {}
        self._opening: dict[str, Bucket] = {}
        self._opener: dict[Room, str] = {}
        self._sweeper: asyncio.Task[None] | None = None

    # Requests.

    async def open(self, request: Mapping[str, object], address: str) -> dict[str, Any]:
        """Open a room; returns its code and the instructor's token.

        Args:
            request: problem, answer, how answers are read, beta, the two models and the name of a
                lesson.
            address: of the caller; "" where a proxy hides it.

        Raises:
            HTTPRefusal: the settings are invalid, or there are too many rooms.
        """
        now = self.rooms.clock()
        while len(self._opening) >= MAX_ADDRESSES:
            del self._opening[next(iter(self._opening))]
        self._opening.setdefault(address, Bucket(AGAIN, OPENED, now)).take(now)
        session = read_session(request.get("session")) if "session" in request else None
        settings = request if session is None else session
        held = sum(self._opener.get(room) == address for room in self.rooms)
        if address and held >= max(1, SHARE * self.rooms.caps.rooms):
            raise HTTPRefusal(
                429,
                f"your address has {held} rooms open on this server; close one on its Settings, or "
                "wait: a room ends 15 minutes after its last screen has left",
            )
        name, lesson = settings.get("lesson") or "", None
        run = self._build_run(settings, session and {"seed": session["seed"]})
        if name:
            try:
                lesson = await asyncio.to_thread(self._load_lesson, str(name)[:60])
            except KeyError as error:
                raise HTTPRefusal(
                    422, "there is no lesson with that name; choose another"
                ) from error
        room = self.rooms.open(run, lesson, normalize_code(settings.get("code")) if session else "")
        self._tasks[room], self._opener[room] = {}, address
        room.named = request.get("named") is True
        if session:
            try:
                await asyncio.to_thread(restore, room, session, now)
            except HTTPRefusal as error:  # an invalid session opens no room
                self.rooms.close(room, str(error))
                self._stop(room)
                raise
            for member in room.members.values():
                self._start_task(
                    room, f"chain {member.number}", partial(self._draw_chain, room, member)
                )
        self._start_task(room, "pool", partial(self._draw_pool, room))
        if self._sweeper is None or self._sweeper.done():
            self._sweeper = asyncio.create_task(self._sweep(), name="rooms that are over")
        return {"code": room.code, "token": room.lead}

    def _build_run(self, request: Mapping[str, object], usual: Mapping[str, object] | None) -> Run:
        """Build the run of a class with models that this server offers.

        Raises:
            HTTPRefusal: a setting is invalid, or a model is not offered.
        """
        run = build_class_run(request, self.rooms.caps, usual)
        try:
            self._runs.offer.check(run.lm, run.rm)
        except QAlignError as error:
            raise HTTPRefusal(422, str(error)) from error
        if is_lent(run.lm, run.rm):
            raise HTTPRefusal(
                422,
                f"this server lends its GPU to one run at a time, which {run.lm} needs; "
                "choose the embedded model",
            )
        return run

    def describe_models(self) -> dict[str, dict[str, dict[str, object]]]:
        """Return the models on offer by kind and id: title, seconds per step, and a fitting beta.

        The seconds are those of one chain, as the last run of the model took or as its size lets
        expect; None for a model of unknown size.
        """
        offered: dict[str, dict[str, dict[str, object]]] = {}
        for kind, titles in self._runs.offer.models.items():
            offered[kind] = {}
            for id, title in titles.items():
                entry = entries()[kind, id]
                pace = entry.run_seconds / 32 if entry.parameters else None
                if id in self._runs.durations:
                    steps, seconds = self._runs.durations[id]
                    pace = seconds / max(1, steps)
                offered[kind][id] = {"title": title, "pace": pace, "beta": entry.beta or None}
        return offered

    async def check_prompt(self, request: Mapping[str, object]) -> dict[str, Any]:
        """Check whether the chosen model was made for a text like the problem.

        Returns:
            {} if it was; else {"warning": a sentence, "lm", "rm": models that were made for any
            text, where the chosen reward was not, or None, "title": of those that change}.

        Raises:
            HTTPRefusal: a setting is invalid, or a model is not offered.
        """
        run, offer = self._build_run(request, None), self._runs.offer
        if not await asyncio.to_thread(is_foreign, run.lm, run.prompt):
            return {}
        lm, rm = (offer.for_any_text(kind) for kind in ("lm", "rm"))
        if rm is None or not entries()["rm", rm].is_present:
            rm = ANY_REWARD
        reward = f", with the reward “{entries()['rm', rm].title.partition(';')[0]}”"
        if offer.suits_any_text(run.rm):
            rm, reward = run.rm, ""
        title = offer.models["lm"].get(run.lm, run.lm)
        return {
            "warning": f"“{title}” was not made for a text like this, and will probably write "
            "about something else.",
            "lm": lm,
            "rm": rm,
            "title": entries()["lm", lm].title + reward if lm else None,
        }

    def join(self, code: object, token: object) -> dict[str, Any]:
        """Return a new place in a room, or the place of a token.

        Raises:
            HTTPRefusal: there is no such room, or it is full.
        """
        room = self.rooms.find(code, token)
        if token == room.lead:
            return {"code": room.code, "token": room.lead, "lead": True}
        member = room.join(str(token or ""), self.rooms.clock())
        return {"code": room.code, "token": member.token, "lead": False}

    def predict(self, code: object, token: str, request: Mapping[str, object]) -> dict[str, Any]:
        """Record a member's prediction.

        Raises:
            HTTPRefusal: it is invalid or too late.
        """
        room, member = self._find_member(code, token)
        room.predict(member, request.get("stop"), request.get("prediction"), self.rooms.clock())
        return {}

    def set_name(self, code: object, token: str, request: Mapping[str, object]) -> dict[str, Any]:
        """Record the name that a member gives to a class with names.

        Raises:
            HTTPRefusal: it is no name, or the class has numbers only.
        """
        room, member = self._find_member(code, token)
        room.set_name(member, request.get("name"), self.rooms.clock())
        return {}

    def record_states(
        self, code: object, token: str, request: Mapping[str, object]
    ) -> dict[str, Any]:
        """Record states that a member's browser drew.

        Returns:
            {"t": the last step that is counted, "hand": the state of the member's game}.

        Raises:
            HTTPRefusal: they are invalid.
        """
        room, member = self._find_member(code, token)
        round_, t, states = (request.get(name) for name in ("round", "t", "states"))
        room.record_states(member, round_, t, states, self.rooms.clock())
        return {"t": member.t, "hand": hand_message(member)}

    async def score_text(
        self, code: object, token: str, request: Mapping[str, object]
    ) -> dict[str, Any]:
        """Score a member's own text with both models of this server.

        Returns:
            {"log_pi"}: up to a constant; None for a text that the model never writes.

        Raises:
            HTTPRefusal: the text is invalid, or the game allows no more texts.
        """
        room, member = self._find_member(code, token)
        run = room.run
        room.begin_try(member, self.rooms.clock())
        try:
            RUN.set(f"room {room.code} {member.number}")  # in the turns of the member's own chain
            words = read_words(request.get("words"))
            lm, rm = await self._load_models(run)
            check_scores_tokens(lm)
            text = cast(Any, lm).extend_with_text((), words, ended=True)
            _, scores, reward = await score_text(lm, rm, run.prompt, text)
        except QAlignError as error:
            raise HTTPRefusal(422, str(error)) from error
        finally:
            member.trying = False
        log_pi = log_target(run.target, math.fsum(each.log_p for each in scores), reward)
        room.record_try(member, run, log_pi)
        return {"log_pi": log_pi if math.isfinite(log_pi) else None}

    def require_instructor(self, code: object, token: str) -> Room:
        """Return the room of an instructor, and count the request.

        Raises:
            HTTPRefusal: the caller is not the instructor, or sends too many requests.
        """
        room = self.rooms.find(code, token)
        if token != room.lead:
            raise HTTPRefusal(403, "only the instructor of this room may do that")
        room.bucket.take(self.rooms.clock())
        return room

    async def lead(self, code: object, token: str, request: Mapping[str, object]) -> dict[str, Any]:
        """Carry out an action of the instructor.

        Raises:
            HTTPRefusal: the caller is not the instructor, or the action is invalid.

        Returns:
            The saved class for the action "keep"; {} for every other action.
        """
        room = self.require_instructor(code, token)
        match request.get("do"):
            case "turn":
                room.turn(request.get("stop"))
            case "reveal":
                await asyncio.to_thread(self._judge_all, room)
                room.reveal()
            case "solve":
                room.solve()
            case "run" | "step" | "rest" as what:
                room.set_goal(what, self.rooms.clock())
            case "again":
                names = ("prompt", "reference", "beta", "lm", "rm")
                present = {name: getattr(room.run, name) for name in names}
                present["extractor"] = room.run.extractor or NO_EXTRACTOR
                if "prompt" in request:  # a new problem has a new answer
                    del present["prompt"], present["reference"], present["extractor"]
                run = self._build_run(request, {k: v for k, v in present.items() if v is not None})
                self._restart(room, run)
            case "door":
                room.set_door(bool(request.get("open")))
            case "single":
                room.select_chain(request.get("number"))
                self._show_text(room)
            case "keep":
                return await asyncio.to_thread(save_class, room)
            case "end":
                self.rooms.close(room, "the instructor has closed this room")
                self._stop(room)
            case _:
                raise HTTPRefusal(422, "an instructor can turn, reveal, solve, run, step, "
                "rest, again, "
                              "door, single, keep and end")  # fmt: skip
        return {}

    @staticmethod
    def _judge_all(room: Room) -> None:
        """Compute the outcome of every prediction, in a thread: some need an exact world."""
        if room.ask:
            for prediction in ("", *room.prediction_counts):
                room.outcome_of(prediction)

    def _find_member(self, code: object, token: str) -> tuple[Room, Member]:
        """Return the room of a code and the member of a token in it."""
        room = self.rooms.find(code, token)
        if key_of(token) not in room.members:
            raise HTTPRefusal(403, "this place in the room was given up; join again")
        return room, room.members[key_of(token)]

    # Streams.

    def follow(
        self, code: object, token: str, *, draws: bool = False, waits: bool = False
    ) -> AsyncIterator[str]:
        """Return the events that a screen shows from now on.

        Args:
            code: the room's code.
            token: the token of a place in it.
            draws: whether the member's browser draws the member's chain; else the server does.
            waits: whether the screen waits for the member's newer ones to close.

        Raises:
            HTTPRefusal: the token has no place in that room, or too many screens follow with it.
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
        room, member = self._find_member(code, token)
        if not waits:
            self._assign_drawer(room, member, draws)
        return self._member_stream(room, member, draws, waits)

    def _assign_drawer(self, room: Room, member: Member, draws: bool) -> None:
        """Let the browser draw a member's chain, or the server if it can draw one more."""
        tasks, name = self._tasks[room], f"chain {member.number}"
        member.draws = draws
        if draws and not unsupported_reason(room.run):
            member.drawer = "browser"
            if name in tasks:
                tasks.pop(name).cancel()
            return
        member.drawer = "server" if room.server_may_draw(member, self.rooms.clock()) else ""
        if member.drawer and name not in tasks:
            self._start_task(room, name, partial(self._draw_chain, room, member))

    async def _member_stream(
        self, room: Room, member: Member, draws: bool, waits: bool
    ) -> AsyncIterator[str]:
        """Yield a member's messages to the newest screen; the others get them when it closes."""
        screen, screens, clock = object(), member.screens, self.rooms.clock
        screens.insert(0 if waits else len(screens), screen)
        del screens[:-TABS]
        member.streams += 1
        room.news += 1
        versions, beat, is_served = (-1, -1), 0.0, not waits
        try:
            while screen in screens:
                now, is_newest = clock(), screens[-1] is screen
                if room.over:
                    yield format_event({"over": room.over})
                    return
                if is_newest and not is_served:
                    self._assign_drawer(room, member, draws)
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
            yield format_event(
                {"over": f"your place is open in {TABS} newer tabs; use one of them"}
            )
        finally:
            if screen in screens:
                screens.remove(screen)
            member.streams -= 1
            member.seen = clock()
            room.news += 1

    async def _lead_stream(self, room: Room, screen: Screen) -> AsyncIterator[str]:
        news, at, beat, counted, clock = -1, 0, 0.0, 0.0, self.rooms.clock
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

    # Tasks.

    def _start_task(self, room: Room, name: str, work: Work) -> None:
        task = asyncio.create_task(self._run_guarded(room, work), name=f"room {room.code}, {name}")
        self._tasks[room][name] = task

    def _restart(self, room: Room, run: Any) -> None:
        """Restart all chains from a first draft; samples of an unchanged problem are kept."""
        redraw, tasks = not room.samples_as(run), self._tasks[room]
        for name in list(tasks):
            if name != "pool" or redraw:
                tasks.pop(name).cancel()
        room.restart(run)
        if redraw:
            self._start_task(room, "pool", partial(self._draw_pool, room))
        for member in room.members.values():
            if member.drawer or member.streams:
                self._assign_drawer(room, member, member.draws)

    async def _run_guarded(self, room: Room, work: Work) -> None:
        try:
            await work()
        except QAlignError as error:
            room.fail(str(error))
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException:  # a defect: the log has the details, the screens only this sentence
            log.exception("a room failed")
            room.fail("the models had an internal error; start again")

    async def _load_models(self, run: Run) -> tuple[LanguageModel, RewardModel]:
        """Return a run's two models; members never see the reason of a failure, only the log.

        Raises:
            ModelLoadError: one of them cannot be loaded.
        """
        try:
            return await self._runs.models(Feed(), run)
        except QAlignError as error:  # its sentence may have a path of this server's disk
            log.warning("the models of a room cannot be loaded: %s", error)
            raise ModelLoadError(UNLOADED) from error

    async def _draw_pool(self, room: Room) -> None:
        """Draw samples of the model alone, as background work.

        Their seed comes from the problem, because they outlast a restart and a saved class.
        """
        RUN.set(f"room {room.code}")
        BACKGROUND.set(True)
        run = room.run
        lm, rm = await self._load_models(run)
        seed = crc32(run.prompt.encode())
        samples = sample_iid(lm, rm, run.prompt, n=POOL, seed=seed, concurrency=4)
        async with aclosing(samples):  # type: ignore[type-var]
            async for sample in samples:
                room.record_sample(sample)

    def _show_text(self, room: Room) -> None:
        """Show the text of the chosen chain on the instructor's screen."""
        member = next(each for each in room.members.values() if each.number == room.single)
        if (task := self._tasks[room].pop("text", None)) is not None:
            task.cancel()
        if member.last is not None:
            room.show_text(room.run, member.number, member.t, member.last.state.response.text)
        elif member.t >= 0:
            self._start_task(room, "text", partial(self._draw_text, room, member, member.t))

    async def _draw_text(self, room: Room, member: Member, t: int) -> None:
        """Draw a member's chain up to step `t`, because a browser is untrusted."""
        RUN.set(f"room {room.code}")
        run = room.run
        steps = await self._chain(run, member)
        async with aclosing(steps):  # type: ignore[type-var]
            async for step in steps:
                if step.t == t:
                    room.show_text(run, member.number, t, step.state.response.text)
                    return

    async def _chain(self, run: Run, member: Member) -> AsyncIterator[Step]:
        """Return the steps of a member's chain."""
        lm, rm = await self._load_models(run)
        settings: Any = {name: getattr(run, name) for name in ("target", "move", "steps", "seed")}
        return run_chain(lm, rm, run.prompt, chain=member.number, **settings)

    async def _draw_chain(self, room: Room, member: Member) -> None:
        """Draw a member's chain as far as the class allows, while a screen follows.

        It starts from the first draft, and replays at once the steps that the member already has.
        """
        RUN.set(
            f"room {room.code} {member.number}"
        )  # each member takes turns as a visitor of its own
        run, loop = room.run, asyncio.get_running_loop()
        steps = await self._chain(run, member)
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
        """Close the rooms that are over, until no room is left."""
        while self._tasks:
            await asyncio.sleep(SWEEP)
            self.rooms.tidy()
            open_ = set(self.rooms)
            for room in [room for room in self._tasks if room not in open_]:
                self._stop(room)
