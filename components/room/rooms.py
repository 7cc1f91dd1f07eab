"""Rooms as a state machine: who is in, where the class stands, what was predicted and drawn.

Plain Python: no server, no tasks and no clock but the one that is handed in. Whatever a member may
do reaches that member's own place and nothing else; a code is for joining, a token is a place.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

from components.session.user_text import log_target
from qalign_core.decide.answers.graders import get_extractor
from qalign_core.errors import QAlignError
from qalign_core.protocols import AnswerExtractor
from qalign_core.run import Limits, Run
from qalign_core.types import Response, ScoredResponse, Step
from qalign_core.validation import is_finite, is_text, is_whole, short_repr
from qalign_study.serve.refusal import HTTPRefusal

LETTERS = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
"""Of codes: none looks like another, from the last row or on a small screen."""
CODE = 8
"""Letters of a code: 31^8 of them, so guessing a million an hour takes a hundred years."""
LARGEST = 1e6
"""The largest number that can be predicted."""
MAX_PREDICTION = 40
"""Characters of a prediction."""
STEPS, TRIES = 30, 30
"""Of the game: steps of the chain that is to be passed, and texts that a member may try."""
LONGEST, HIGHEST = 2000, 100.0
"""Of a state that a browser sends: characters of its text, and its reward either side of 0."""
EVERY, TOGETHER = 0.5, 250
"""Seconds between two batches of a browser at the least, and batches of a whole class a second."""
AHEAD = 1.2
"""How much faster than the class's pace a browser's clock may run."""
POOL = 200
"""Samples of the model alone, by which the target is estimated."""
TRY_RATE, TRY_BURST = 0.2, 5
"""Tries that a member may make a second, and at once: each asks both models."""


@dataclass(frozen=True, slots=True)
class Caps:
    """What rooms may take of a server.

    Attributes:
        rooms: at one time.
        members: of a room.
        server_chains: members of a room whose chains the server draws; the others' browsers do.
        steps: proposals of a member's chain.
        pace: seconds between two steps of a chain at the least: a class looks on.
        text: characters of a problem.
        life: seconds after which any room is over.
        alone: seconds after which a room is over in which nobody is.
        away: seconds after which, in a full room, the place of somebody who left is given away.
        rate, burst: what one token may send a second, and at once.
    """

    rooms: int = 8
    members: int = 1000
    server_chains: int = 100
    steps: int = 60
    pace: float = 0.45
    text: int = 600
    life: float = 3 * 3600.0
    alone: float = 900.0
    away: float = 60.0
    rate: float = 4.0
    burst: int = 20

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Caps:
        """The defaults, with `QALIGN_MAX_ROOMS` (0 for none) and `QALIGN_MAX_MEMBERS` instead.

        Raises:
            QAlignError: one of them is no whole number.
        """
        given = {}
        for cap in ("rooms", "members"):
            name = f"QALIGN_MAX_{cap.upper()}"
            text = environment.get(name, "").strip()
            if text and not (text.isdecimal() and len(text) < 6):
                raise QAlignError(f"{name} must be a whole number, got {short_repr(text)}")
            if text:
                given[cap] = int(text)
        return cls(**given)


class Bucket:
    """How much somebody may still send: it fills by `rate` a second, up to `burst`."""

    def __init__(self, rate: float, burst: int, now: float) -> None:
        self._rate, self._burst, self._left, self._at = rate, burst, float(burst), now

    def take(self, now: float) -> None:
        """Count one more.

        Raises:
            HTTPRefusal: it is empty.
        """
        self._left = min(self._burst, self._left + self._rate * (now - self._at))
        self._at = now
        if self._left < 1:
            raise HTTPRefusal(429, "that was too much at once; wait a moment and try again")
        self._left -= 1


@dataclass(frozen=True)
class RoomLesson:
    """A lesson as a room needs it.

    Attributes:
        name, title: of the lesson.
        stops: as the browser gets them, without what predictions are checked by.
        judge: what comes of a prediction (the number of a stop, what was said; "" for nothing):
            {"right", "value", "explanation"}.
    """

    name: str
    title: str
    stops: Sequence[Mapping[str, Any]]
    judge: Callable[[int, str], Mapping[str, Any]]


class Screen:
    """A screen of an instructor; it counts from its request on, while anything refers to it."""


@dataclass(eq=False)
class Member:
    """A place in a room: its chain is number `number` of the room's run.

    Attributes:
        key: a hash of the token: who has the token has the place.
        token: as the member's browser keeps it; "" until a member of a saved class is back.
        seen: when a screen last followed from it.
        streams: screens that follow now; the one that came last is served.
        predictions: by the number of their stop.
        states: of the chain so far, without their tokens.
        replay_until: the step that the chain of a saved class had reached; up to it, the chain is
            drawn again without waiting for the class.
        drawer: who draws the chain: "browser", "server", or "" if nobody does.
        last: the step that the server drew last; None if a browser went on from there.
        since: the step at which the state came that stands now.
        reached: the highest ln pi of the chain's first `STEPS` steps; None if there is none.
        tries: texts by hand that were weighed; `best` is the highest ln pi of them.
        hand: how many more may come now; `trying` is whether one is being weighed.
        version: counts what has changed for this member alone.
    """

    number: int
    key: str
    bucket: Bucket
    seen: float
    token: str = ""
    streams: int = 0
    screen: object = None
    predictions: dict[int, str] = field(default_factory=dict)
    states: list[ScoredResponse] = field(default_factory=list)
    replay_until: int = -1
    drawer: str = ""
    last: Step | None = None
    since: int = 0
    reached: float | None = None
    tries: int = 0
    best: float | None = None
    hand: Bucket = field(default_factory=lambda: Bucket(TRY_RATE, TRY_BURST, 0.0))
    trying: bool = False
    version: int = 0

    @property
    def t(self) -> int:
        """Number of the last step; −1 before the first draft."""
        return len(self.states) - 1

    def is_here(self, now: float, patience: float) -> bool:
        """Whether a screen follows, or did so within `patience` seconds."""
        return self.streams > 0 or now - self.seen < patience


class Room:
    """A class. Each action of the instructor or of a member is a method.

    Attributes:
        code: with which one joins.
        lead: the instructor's token.
        run: prompt, beta, seed and steps of everybody's chain.
        lesson: what is taught beside the chains, if anything is.
        stop: the stop at which the class is.
        opened: the stops whose answers are open, and what is said of them.
        solved: whether the right answer of the problem is shown.
        goal: the step up to which chains may go; −1 while they rest.
        round: counts the runs of this room.
        walk: (member, reward) of every state of this round, in the order in which they came.
        pool: samples of the model alone.
        numbers: the largest number that any member has had.
        single: the member whose own vote is shown with the pooled one.
        trouble: what went wrong with the models, in one sentence.
        over: why the room is over; "" while it is not.
        version: counts what has changed for everybody.
        news: counts what has changed for the instructor.
    """

    def __init__(
        self, code: str, run: Run, lesson: RoomLesson | None, caps: Caps, now: float
    ) -> None:
        self.code, self.lead, self.caps = code, secrets.token_urlsafe(18), caps
        self.run, self.lesson = run, lesson
        self.born = self.seen = now
        self.screens: WeakSet[Screen] = WeakSet()
        self.members: dict[str, Member] = {}
        self.door, self.solved = True, False
        self.stop = self.round = self.version = self.news = 0
        self.opened: dict[int, Mapping[str, Any]] = {}
        self.goal = -1
        self.walk: list[tuple[int, float]] = []
        self.pool: list[ScoredResponse] = []
        self.single = 1
        self.trouble = self.over = ""
        self.bucket = Bucket(caps.rate, caps.burst, now)
        self.numbers = 0
        self._reached, self._let = -1, now
        self._judged: dict[tuple[int, str], Mapping[str, Any]] = {}
        self._answers: dict[str, str | None] = {}

    # Everybody.

    def join(self, token: str, now: float) -> Member:
        """The place of a token, or a new one for none.

        Raises:
            HTTPRefusal: the door is closed, or every place is taken.
        """
        key = key_of(token)
        if key in self.members:
            self.members[key].token = token
            return self.members[key]
        if not self.door:
            raise HTTPRefusal(403, "the door of this room is closed; ask the instructor to open it")
        if len(self.members) >= self.caps.members:
            self._make_room(now)
        token = secrets.token_urlsafe(18)
        member = self.place(self.numbers + 1, key_of(token), now)
        member.token = token
        return member

    def place(self, number: int, key: str, now: float) -> Member:
        """A new place."""
        bucket = Bucket(self.caps.rate, self.caps.burst, now)
        member = self.members[key] = Member(number, key, bucket, seen=now)
        self.numbers = max(self.numbers, number)
        self.news += 1
        return member

    def _make_room(self, now: float) -> None:
        """Give up the place of who is away longest.

        Raises:
            HTTPRefusal: nobody is.
        """
        away = [m for m in self.members.values() if not m.is_here(now, self.caps.away)]
        if not away:
            raise HTTPRefusal(403, f"this room is full: all {self.caps.members} places are taken")
        gone = min(away, key=lambda member: member.seen)
        del self.members[gone.key]
        self.walk = [(number, r) for number, r in self.walk if number != gone.number]

    def predict(self, member: Member, stop: object, said: object, now: float) -> None:
        """A prediction, which may arrive late; the last one before the answers are opened counts.

        Raises:
            HTTPRefusal: it is none for that stop, or too late.
        """
        member.bucket.take(now)
        stops = self.lesson.stops if self.lesson else ()
        if not is_whole(stop, 0, len(stops) - 1):
            raise HTTPRefusal(409, "this lesson has no such stop; look at the question again")
        at = int(stop)  # type: ignore[call-overload]
        if "ask" not in stops[at]:
            raise HTTPRefusal(409, "this stop has no question")
        if at in self.opened:
            raise HTTPRefusal(
                409,
                f"your answer {short_repr(said)} came after the answers were shown and is "
                "not counted; "
                "wait for the next question",
            )
        member.predictions[at] = parse_prediction(stops[at]["ask"], said)
        member.version += 1
        self.news += 1

    def begin_try(self, member: Member, now: float) -> None:
        """A member has written a text and wants to know its ln pi.

        Raises:
            HTTPRefusal: too many came, or the last one is still being weighed.
        """
        if member.tries >= TRIES:
            raise HTTPRefusal(409, f"you have tried {TRIES} texts, the most that this game allows")
        if member.trying:
            raise HTTPRefusal(409, "your last text is still being scored; wait for it")
        member.hand.take(now)
        member.trying = True

    def record_try(self, member: Member, run: Run, log_pi: float) -> None:
        """Record the scores of a text that a member wrote; −inf if the model never writes it.

        Raises:
            HTTPRefusal: the class has begun again meanwhile, or the place was given up.
        """
        if run is not self.run or member.key not in self.members:
            raise HTTPRefusal(409, "the class was restarted; try your text again")
        member.tries += 1
        if math.isfinite(log_pi):
            member.best = log_pi if member.best is None else max(member.best, log_pi)
        member.version += 1
        self.news += 1

    def record_step(self, member: Member, step: Step) -> None:
        """The server made a step of a chain; one whose state is there already is only shown."""
        if member.key not in self.members:
            return
        state, is_new = step.state, step.accepted and (step.changed or step.t == 0)
        if step.t > member.t:
            text = state.response.text
            self._count(member, (text, state.reward, state.log_prob) if is_new else None)
        member.last = step
        member.since = step.t if is_new else member.since
        member.version += step.t == member.t

    def record_states(
        self, member: Member, round_: object, t: object, states: object, now: float
    ) -> None:
        """A member's browser sent states of the member's chain: those that are next are counted.

        States that are there already, of another round, behind a gap or faster than the class's
        pace are passed over: `member.t` tells the browser where to go on.

        Args:
            member: whose they are.
            round_: the round in which they were drawn.
            t: the step of the first of them.
            states: each as `read_state` reads it.
            now: seconds.

        Raises:
            HTTPRefusal: they are no states, or came too often.
        """
        member.bucket.take(now)
        most = self.run.steps + 1
        if not (is_whole(t, 0, most) and isinstance(states, list) and len(states) <= most):
            raise HTTPRefusal(
                422, f"a batch needs the step of its first state and at most {most} states"
            )
        read = [read_state(state) for state in states]
        if round_ != self.round:
            return
        end = max(member.replay_until, self._reachable(now))
        for k, state in enumerate(read, start=int(t)):  # type: ignore[call-overload]
            if k == member.t + 1 <= end and (k or state):
                self._count(member, state)
                member.last = None

    def _count(self, member: Member, state: tuple[str, float, float | None] | None) -> None:
        """Add the next state of a chain: text, reward and natural log of p; None if it stayed."""
        if state is None:
            member.states.append(member.states[-1])
        else:
            text, reward, log_prob = state
            member.states.append(ScoredResponse(Response((), text, finished=True), reward))
            if log_prob is not None and member.t <= STEPS:
                log_pi = log_target(self.run.target, log_prob, reward)
                member.reached = log_pi if member.reached is None else max(member.reached, log_pi)
        self.walk.append((member.number, member.states[-1].reward))
        self.news += 1

    def _reachable(self, now: float) -> int:
        """The step that a chain at the class's pace may have reached by now."""
        more = 1 + int(AHEAD * (now - self._let) / self.caps.pace)
        return max(self._reached, min(self.goal, self._reached + more))

    def record_sample(self, sample: ScoredResponse) -> None:
        """The model alone wrote a sample."""
        text = Response((), sample.response.text, sample.response.finished)
        self.pool.append(ScoredResponse(text, sample.reward))
        self.news += 1

    def may_step(self, member: Member, now: float) -> bool:
        """Whether a member's chain may go on: the class does, and somebody is there to see it."""
        follows = member.t < self.goal and member.is_here(now, self.caps.away)
        return follows or member.t < member.replay_until

    def server_may_draw(self, member: Member, now: float) -> bool:
        """Return whether the server may draw one more chain, of at most `caps.server_chains`."""
        others = [m for m in self.members.values() if m.drawer == "server" and m is not member]
        return sum(m.is_here(now, self.caps.away) for m in others) < self.caps.server_chains

    @property
    def every(self) -> float:
        """Seconds between two batches of a browser: they grow with the class."""
        return max(EVERY, len(self.members) / TOGETHER)

    @property
    def ask(self) -> Mapping[str, Any] | None:
        """What is asked at this stop."""
        return None if self.lesson is None else self.lesson.stops[self.stop].get("ask")

    @property
    def read(self) -> AnswerExtractor:
        """How the answer is read out of a text, each text once."""
        extract = get_extractor(self.run.extractor or "number")

        def read(text: str) -> str | None:
            if text not in self._answers:
                self._answers[text] = extract(text)
            return self._answers[text]

        return read

    @property
    def prediction_counts(self) -> Counter[str]:
        """How often each prediction was made at this stop."""
        return self.count_predictions(self.stop)

    def count_predictions(self, stop: int) -> Counter[str]:
        """How often each prediction was made at a stop."""
        return Counter(m.predictions[stop] for m in self.members.values() if stop in m.predictions)

    @property
    def furthest_step(self) -> int:
        """The largest step of any chain; −1 before the first draft."""
        return max((member.t for member in self.members.values()), default=-1)

    def outcome_of(self, said: str, stop: int | None = None) -> Mapping[str, Any]:
        """What comes of a prediction, by default at this stop."""
        assert self.lesson is not None
        key = (self.stop if stop is None else stop, said)
        if key not in self._judged:
            self._judged[key] = self.lesson.judge(*key)
        return self._judged[key]

    # The instructor.

    def turn(self, stop: object) -> None:
        """Take everybody to a stop.

        Raises:
            HTTPRefusal: there is none of that number.
        """
        last = len(self.lesson.stops) - 1 if self.lesson else -1
        if not is_whole(stop, 0, last):
            raise HTTPRefusal(
                422, f"stop must be a whole number from 0 to {last}, got {short_repr(stop)}"
            )
        self.stop = int(stop)  # type: ignore[call-overload]
        self._touch()

    def reveal(self) -> None:
        """Open the answers of this stop.

        Raises:
            HTTPRefusal: nothing is asked there.
        """
        if self.ask is None:
            raise HTTPRefusal(409, "this stop has no question")
        told = self.outcome_of("")
        if self.ask["kind"] == "choice":  # then what is said of the right one suits everybody
            told = self.outcome_of(str(told["value"]))
        self.opened[self.stop] = told
        self._touch()

    def solve(self) -> None:
        """Show the right answer of the problem."""
        self.solved = True
        self._touch()

    def set_goal(self, what: str, now: float) -> None:
        """Let chains "run", make one "step", or "rest"."""
        self._reached, self._let = self._reachable(now), now
        goals = {
            "run": self.run.steps,
            "step": min(self.furthest_step + 1, self.run.steps),
            "rest": -1,
        }
        self.goal = goals[what]
        self._touch()

    def restart(self, run: Run) -> None:
        """Start again: everybody's chain from a first draft."""
        for member in self.members.values():
            member.states, member.last, member.since, member.replay_until = [], None, 0, -1
            member.reached, member.best, member.tries = None, None, 0
            member.version += 1
        self.walk, self.goal, self.trouble, self._reached = [], -1, "", -1
        self._answers.clear()  # those of a round: with every round there would be more
        if run.prompt != self.run.prompt:
            self.pool, self.solved = [], False
        self.run = run
        self.round += 1
        self._touch()

    def fail(self, sentence: str) -> None:
        """The models cannot go on."""
        self.trouble, self.goal = sentence, -1
        self._touch()

    def set_door(self, door: bool) -> None:
        """Open or close the door; who is in stays in."""
        self.door = door
        self._touch()

    def select_chain(self, number: object) -> None:
        """Choose the member whose own vote is shown with the pooled one.

        Raises:
            HTTPRefusal: nobody has that number.
        """
        if number not in [member.number for member in self.members.values()]:
            raise HTTPRefusal(422, f"nobody in this room has number {short_repr(number)}")
        self.single = int(number)
        self._touch()

    def end(self, why: str) -> None:
        """The room is over."""
        self.over, self.goal = why, -1
        self._touch()

    def _touch(self) -> None:
        self.version += 1
        self.news += 1

    def seconds_alone(self, now: float) -> float:
        """Seconds since somebody followed."""
        if self.screens or any(member.streams for member in self.members.values()):
            return 0.0
        return now - max([self.seen, *(member.seen for member in self.members.values())])


def parse_prediction(ask: Mapping[str, Any], said: object) -> str:
    """A prediction as it is counted.

    Raises:
        HTTPRefusal: it is no answer to this question.
    """
    if not is_text(said) or len(str(said)) > MAX_PREDICTION:
        raise HTTPRefusal(
            422, f"a prediction must be a text of at most {MAX_PREDICTION} characters"
        )
    text = str(said).strip()
    if ask["kind"] == "choice":
        if text not in [value for value, _ in ask["options"]]:
            raise HTTPRefusal(
                422, f"{short_repr(text)} is not one of the choices; choose one that is shown"
            )
        return text
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not abs(number) <= LARGEST:
        raise HTTPRefusal(
            422, f"{short_repr(text)} is not a number up to a million; write one like 12.5"
        )
    if ask.get("unit") == "%" and not 0 <= number <= 100:
        raise HTTPRefusal(
            422, f"{short_repr(text)} is not a percentage; write a number from 0 to 100"
        )
    return f"{number:.6g}"


def read_state(given: object) -> tuple[str, float, float] | None:
    """A state as a browser sends it: [text, reward, natural log of p], or null where it stayed.

    Raises:
        HTTPRefusal: it is none.
    """
    if given is None:
        return None
    if isinstance(given, list) and len(given) == 3:
        text, reward, log_prob = given
        numbers = is_finite(reward) and abs(reward) <= HIGHEST and is_finite(log_prob)
        if is_text(text) and len(text) <= LONGEST and numbers and log_prob <= 0:
            return text, float(reward), float(log_prob)
    raise HTTPRefusal(422, f"a state must be null, or a text of at most {LONGEST:,} characters, a "
                  f"reward up to {HIGHEST:g} in size, and a log-probability up to 0")  # fmt: skip


class Rooms:
    """All rooms of this process: in memory, and nowhere else.

    Args:
        caps: what they may take.
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
        """A new room, with a code of its own where that of a saved class is not free.

        Raises:
            HTTPRefusal: there are as many as this server has.
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
        """The room of a code; a token only changes what is said of a room that is gone.

        Raises:
            HTTPRefusal: there is none.
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
                "ask for the link of a new room",
            )
        raise HTTPRefusal(
            404, "there is no room with this code; look at the screen and type it again"
        )

    def close(self, room: Room, why: str) -> None:
        """A room is over, and forgotten."""
        room.end(why)
        self._rooms.pop(room.code, None)
        self._ended.append((room.code, why))

    def tidy(self) -> None:
        """Close the rooms whose time is over, and those in which nobody is any more."""
        now = self.clock()
        for room in list(self._rooms.values()):
            if now - room.born > self.caps.life:
                hours = self.caps.life / 3600
                self.close(room, f"this room is over: a room lasts {hours:g} hours")
            elif room.seconds_alone(now) > self.caps.alone:
                self.close(room, "this room is over: nobody was in it anymore")


def key_of(token: str) -> str:
    """What a room and a saved class keep of a token: it cannot be turned back into one."""
    return hashlib.sha256(token.encode()).hexdigest()


def normalize_code(code: object) -> str:
    """A code as people type it, as it is kept: capitals, without what divides it."""
    if not is_text(code):
        return ""
    return "".join(c for c in str(code)[:40].upper() if c in LETTERS)


def build_class_run(
    given: Mapping[str, object], caps: Caps, usual: Mapping[str, object] | None = None
) -> Run:
    """The run of a class from what an instructor sent.

    Args:
        given: problem, answer, beta; what is not there is as `usual` says.
        caps: of rooms.
        usual: settings that stand already.

    Raises:
        HTTPRefusal: one of them cannot be.
    """
    said = {
        key: given[key] for key in ("prompt", "reference", "beta") if given.get(key) is not None
    }
    try:
        run = Run.read(
            {
                "extractor": "number",
                "steps": caps.steps,
                "chains": caps.members,
                "seed": secrets.randbelow(2**31),
                **(usual or {}),
                **said,
            }
        )
        return run.check(Limits(prompt=caps.text, chains=10**4))
    except QAlignError as error:
        raise HTTPRefusal(422, str(error)) from error
