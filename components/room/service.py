"""The requests to rooms: opening, joining, a member's actions and the instructor's.

`chains` draws for the rooms, and `streams` tells the screens what changed.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, cast

from components.room.chains import RoomTasks
from components.room.limits import Bucket, Caps
from components.room.messages import hand_message
from components.room.requests import build_class_run
from components.room.room import Member, Room, RoomLesson, Screen, key_of
from components.room.rooms import Rooms, normalize_code
from components.room.snapshot import NO_SESSION, read_session, restore, save_class
from components.room.streams import lead_stream, member_stream
from components.session.gpu import is_lent
from components.session.runs import Runs
from components.session.user_text import check_scores_tokens, log_target, read_words, score_text
from qalign_core.context import RUN
from qalign_core.errors import QAlignError
from qalign_core.registry import entries, is_foreign
from qalign_core.run import NO_EXTRACTOR, Run
from qalign_study.serve.refusal import HTTPRefusal

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
        self._tasks = RoomTasks(runs, self.rooms.clock)
        self._opening: dict[str, Bucket] = {}
        self._opener: dict[Room, str] = {}
        self._sweeper: asyncio.Task[None] | None = None

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
        usual = session and {"seed": session["seed"]}
        run = await asyncio.to_thread(self._build_run, settings, usual)
        if name:
            try:
                lesson = await asyncio.to_thread(self._load_lesson, str(name)[:60])
            except KeyError as error:
                raise HTTPRefusal(
                    422, "there is no lesson with that name; choose another"
                ) from error
        room = self.rooms.open(run, lesson, normalize_code(settings.get("code")) if session else "")
        self._opener[room] = address
        self._tasks.add(room)
        room.named = request.get("named") is True
        if session:
            try:
                await asyncio.to_thread(restore, room, session, now)
            except BaseException:  # an invalid session opens no room
                self.rooms.close(room, NO_SESSION)
                self._stop(room)
                raise
            self._tasks.start_replay(room)
        self._tasks.start_pool(room)
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
        run, offer = await asyncio.to_thread(self._build_run, request, None), self._runs.offer
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
            async with self._tasks.models(room, run) as (lm, rm):
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
                usual = {k: v for k, v in present.items() if v is not None}
                run = await asyncio.to_thread(self._build_run, request, usual)
                room = self.require_instructor(code, token)  # it may be over by now
                self._tasks.restart(room, run)
            case "door":
                room.set_door(bool(request.get("open")))
            case "single":
                room.select_chain(request.get("number"))
                self._tasks.show_text(room)
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
            for prediction in ("", *room.count_predictions()):
                room.outcome_of(prediction)

    def _find_member(self, code: object, token: str) -> tuple[Room, Member]:
        """Return the room of a code and the member of a token in it."""
        room = self.rooms.find(code, token)
        if key_of(token) not in room.members:
            raise HTTPRefusal(403, "this place in the room was given up; join again")
        return room, room.members[key_of(token)]

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
            return lead_stream(room, screen, self.rooms.clock)
        room, member = self._find_member(code, token)
        if not waits:
            self._tasks.assign_drawer(room, member, draws)
        return member_stream(room, member, self._tasks, self.rooms.clock, draws=draws, waits=waits)

    def _stop(self, room: Room) -> None:
        self._opener.pop(room, None)
        self._tasks.stop(room)

    async def _sweep(self) -> None:
        """Close the rooms that are over, until no room is left."""
        while [*self._tasks]:
            await asyncio.sleep(SWEEP)
            self.rooms.tidy()
            open_ = set(self.rooms)
            for room in [room for room in self._tasks if room not in open_]:
                self._stop(room)
