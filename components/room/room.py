"""A room as a state machine: members, the position of the class, predictions and chains.

Plain Python: no server, no tasks, and the clock is an argument. A member's actions change only that
member's own place. A token identifies one member.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from weakref import WeakSet

from components.room.limits import Bucket, Caps
from components.room.requests import parse_prediction, parse_state
from components.session.user_text import log_target
from qalign_core.decide.answers.graders import Grader, get_grader
from qalign_core.protocols import AnswerExtractor
from qalign_core.run import Run
from qalign_core.types import Response, ScoredResponse, Step
from qalign_core.validation import is_text, is_whole, short_repr
from qalign_study.serve.refusal import HTTPRefusal

MAX_NAME = 60
"""The most characters of a member's name."""
STEPS, TRIES = 30, 30
"""The game: steps of the chain whose score is to be beaten, and texts that a member may try."""
EVERY, TOGETHER = 0.5, 250
"""The fewest seconds between two batches of a browser, and batches of a class per second."""
AHEAD = 1.2
"""How much faster than the class's pace a browser's clock may run."""
POOL = 200
"""Samples of the model alone, from which the target is estimated."""
TRY_RATE, TRY_BURST = 0.2, 5
"""Tries per second that a member may make, and at once: each runs both models."""


@dataclass(frozen=True)
class RoomLesson:
    """A lesson as a room needs it.

    Attributes:
        name, title: of the lesson.
        stops: as the browser gets them, without the answers.
        judge: returns the outcome of a prediction (number of a stop, prediction; "" for none):
            {"right", "value", "explanation"}.
    """

    name: str
    title: str
    stops: Sequence[Mapping[str, Any]]
    judge: Callable[[int, str], Mapping[str, Any]]


class Screen:
    """A screen of an instructor, counted from its request on while anything refers to it."""


@dataclass(eq=False)
class Member:
    """A place in a room: its chain is number `number` of the room's run.

    Attributes:
        key: a hash of the token. A token identifies one member.
        token: as the member's browser stores it; "" until a member of a saved class is back.
        seen: when a screen last followed from it.
        screens: those that follow now: only the last is served, the others wait for it to close.
        name: of a class with names; "" until the member has given one.
        predictions: by the number of their stop.
        times: when each was last sent, in UTC.
        states: of the chain so far, without their tokens.
        replay_until: the step that the chain of a saved class had reached; up to it, the chain is
            drawn again without waiting for the class.
        draws: whether the member's browser is able to draw a chain.
        drawer: "browser" or "server", or "" if neither draws the chain.
        last: the step that the server drew last; None if a browser went on from there.
        since: the step at which the chain reached its present state.
        reached: the highest ln pi of the chain's first `STEPS` steps; None if there is none.
        tries: texts by hand that were scored; `best` is their highest ln pi.
        hand: the rate limit of tries; `trying` is true while one is being scored.
        version: counts the changes for this member alone.
    """

    number: int
    key: str
    bucket: Bucket
    seen: float
    token: str = ""
    screens: list[object] = field(default_factory=list)
    name: str = ""
    predictions: dict[int, str] = field(default_factory=dict)
    times: dict[int, str] = field(default_factory=dict)
    states: list[ScoredResponse] = field(default_factory=list)
    replay_until: int = -1
    draws: bool = False
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
        """Return whether a screen follows, or did so within `patience` seconds."""
        return bool(self.screens) or now - self.seen < patience


class Room:
    """A class. Each action of the instructor or of a member is a method.

    Attributes:
        code: for joining.
        lead: the instructor's token.
        run: prompt, beta, seed and steps of all chains.
        lesson: the lesson that is taught, if there is one.
        stop: the stop at which the class is.
        opened: the outcomes of the stops whose answers are shown.
        named: whether members give their names, which only the saved class shows.
        solved: whether the right answer of the problem is shown.
        goal: the step up to which chains may go; −1 while they are paused.
        round: counts the runs of this room.
        walk: (member, reward) of every state of this round, in the order in which they came.
        pool: samples of the model alone.
        numbers: the largest number that any member has had.
        single: the member whose own vote is shown with the pooled one.
        text: {"number", "t", "text"} of that member's chain, once the server has drawn it.
        trouble: the error of the models, in one sentence.
        loading: the title of the language model that is being loaded; "" if none is.
        over: why the room is over; "" while it is not.
        version: counts the changes for all screens.
        news: counts the changes for the instructor.
    """

    def __init__(
        self, code: str, run: Run, lesson: RoomLesson | None, caps: Caps, now: float
    ) -> None:
        self.code, self.lead, self.caps = code, secrets.token_urlsafe(18), caps
        self.run, self.lesson = run, lesson
        self.born = self.seen = now
        self.screens: WeakSet[Screen] = WeakSet()
        self.members: dict[str, Member] = {}
        self.door, self.solved, self.named = True, False, False
        self.stop = self.round = self.version = self.news = 0
        self.opened: dict[int, Mapping[str, Any]] = {}
        self.goal = -1
        self.walk: list[tuple[int, float]] = []
        self.pool: list[ScoredResponse] = []
        self.single = 1
        self.text: dict[str, Any] | None = None
        self.trouble = self.loading = self.over = ""
        self.bucket = Bucket(caps.rate, caps.burst, now)
        self.numbers = 0
        self._reached, self._goal_set = -1, now
        self._outcomes: dict[tuple[int, str], Mapping[str, Any]] = {}
        self._answers: dict[str, str | None] = {}

    # Members.

    def join(self, token: str, now: float) -> Member:
        """Return the member of a token, or a new member if no member has it.

        Raises:
            HTTPRefusal: the door is closed, or the room is full.
        """
        key = key_of(token)
        if key in self.members:
            self.members[key].token = token
            return self.members[key]
        if not self.door:
            raise HTTPRefusal(403, "the door of this room is closed; ask the instructor to open it")
        if len(self.members) >= self.caps.members:
            self._free_a_place(now)
        token = secrets.token_urlsafe(18)
        member = self.add_member(self.numbers + 1, key_of(token), now)
        member.token = token
        return member

    def add_member(self, number: int, key: str, now: float) -> Member:
        """Add a member."""
        bucket = Bucket(self.caps.rate, self.caps.burst, now)
        member = self.members[key] = Member(number, key, bucket, seen=now)
        self.numbers = max(self.numbers, number)
        self.news += 1
        return member

    def _free_a_place(self, now: float) -> None:
        """Remove the member who has been away longest.

        Raises:
            HTTPRefusal: no member is away.
        """
        away = [m for m in self.members.values() if not m.is_here(now, self.caps.away)]
        if not away:
            raise HTTPRefusal(403, f"this room is full: all {self.caps.members} places are taken")
        gone = min(away, key=lambda member: member.seen)
        del self.members[gone.key]
        self.walk = [(number, r) for number, r in self.walk if number != gone.number]

    def predict(self, member: Member, stop: object, value: object, now: float) -> None:
        """Record a prediction; the last one before the answers are shown counts.

        Raises:
            HTTPRefusal: it does not fit that stop, or is too late.
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
                f"your answer {short_repr(value)} came after the answers were shown and is "
                "not counted; "
                "wait for the next question",
            )
        member.predictions[at] = parse_prediction(stops[at]["ask"], value)
        member.times[at] = datetime.now(UTC).isoformat(timespec="seconds")
        member.version += 1
        self.news += 1

    def set_name(self, member: Member, name: object, now: float) -> None:
        """Record the name that a member gives.

        Raises:
            HTTPRefusal: it is not a short text, or this class has numbers only.
        """
        member.bucket.take(now)
        if not self.named:
            raise HTTPRefusal(409, "this class has numbers only, and no names")
        text = " ".join(str(name).split()) if is_text(name) else ""
        if not 0 < len(text) <= MAX_NAME:
            raise HTTPRefusal(422, f"a name has 1 to {MAX_NAME} characters; write yours")
        member.name = text
        member.version += 1
        self.news += 1

    def begin_try(self, member: Member, now: float) -> None:
        """Begin to score a text that a member wrote.

        Raises:
            HTTPRefusal: there were too many, or the last one is still being scored.
        """
        if member.tries >= TRIES:
            raise HTTPRefusal(409, f"you have tried {TRIES} texts, the most that this game allows")
        if member.trying:
            raise HTTPRefusal(409, "your last text is still being scored; wait for it")
        member.hand.take(now)
        member.trying = True

    def record_try(self, member: Member, run: Run, log_pi: float) -> None:
        """Record the score of a text that a member wrote; −inf if the model never writes it.

        Raises:
            HTTPRefusal: the class was restarted meanwhile, or the member removed.
        """
        if run is not self.run or member.key not in self.members:
            raise HTTPRefusal(409, "the class was restarted; try your text again")
        member.tries += 1
        if math.isfinite(log_pi):
            member.best = log_pi if member.best is None else max(member.best, log_pi)
        member.version += 1
        self.news += 1

    def record_step(self, member: Member, step: Step) -> None:
        """Record a step that the server drew; a step that is replayed is only shown."""
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
        """Record states that a member's browser drew: the next ones of the chain are counted.

        States that are recorded already, of an earlier round, after a gap or faster than the
        class's pace are skipped: from `member.t` the browser knows where to go on.

        Args:
            member: whose chain it is.
            round_: the round in which they were drawn.
            t: the step of the first of them.
            states: each as `parse_state` reads it.
            now: seconds.

        Raises:
            HTTPRefusal: they are not states, or there were too many batches.
        """
        member.bucket.take(now)
        most = self.run.steps + 1
        if not (is_whole(t, 0, most) and isinstance(states, list) and len(states) <= most):
            raise HTTPRefusal(
                422, f"a batch needs the step of its first state and at most {most} states"
            )
        parsed = [parse_state(state) for state in states]
        if round_ != self.round:
            return
        end = max(member.replay_until, self._reachable(now))
        for k, state in enumerate(parsed, start=int(t)):  # type: ignore[call-overload]
            if k == member.t + 1 <= end and (k or state):
                self._count(member, state)
                member.last = None

    def _count(self, member: Member, state: tuple[str, float, float | None] | None) -> None:
        """Add the next state: text, reward and natural log of p; None if the chain stayed."""
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
        """Return the step that a chain at the class's pace may have reached by now."""
        more = 1 + int(AHEAD * (now - self._goal_set) / self.caps.pace)
        return max(self._reached, min(self.goal, self._reached + more))

    def record_sample(self, sample: ScoredResponse) -> None:
        """Record a sample of the model alone."""
        text = Response((), sample.response.text, sample.response.finished)
        self.pool.append(ScoredResponse(text, sample.reward))
        self.news += 1

    def may_step(self, member: Member, now: float) -> bool:
        """Return whether a member's chain may go on: the class does, and a screen follows."""
        follows = member.t < self.goal and member.is_here(now, self.caps.away)
        return follows or member.t < member.replay_until

    def awaits_replay(self, member: Member) -> bool:
        """Return whether a member who is away had more steps in the saved class than it has now."""
        is_away = member.key in self.members and not member.drawer
        return is_away and member.t < member.replay_until

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
        """The question of this stop."""
        return None if self.lesson is None else self.lesson.stops[self.stop].get("ask")

    @property
    def grader(self) -> Grader | None:
        """The grader of answers; None for a problem without answers."""
        return None if self.run.extractor is None else get_grader(self.run.extractor)

    @property
    def read(self) -> AnswerExtractor:
        """The extractor of answers, which reads each text once."""
        grader = self.grader

        def read(text: str) -> str | None:
            if text not in self._answers:
                self._answers[text] = grader.extract(text) if grader else None
            return self._answers[text]

        return read

    def count_predictions(self, stop: int | None = None) -> Counter[str]:
        """Count each prediction at a stop, by default at this one."""
        at = self.stop if stop is None else stop
        return Counter(m.predictions[at] for m in self.members.values() if at in m.predictions)

    @property
    def furthest_step(self) -> int:
        """The largest step of any chain; −1 before the first draft."""
        return max((member.t for member in self.members.values()), default=-1)

    def outcome_of(self, prediction: str, stop: int | None = None) -> Mapping[str, Any]:
        """Return the outcome of a prediction, by default at this stop."""
        assert self.lesson is not None
        key = (self.stop if stop is None else stop, prediction)
        if key not in self._outcomes:
            self._outcomes[key] = self.lesson.judge(*key)
        return self._outcomes[key]

    # The instructor.

    def turn(self, stop: object) -> None:
        """Take the class to a stop.

        Raises:
            HTTPRefusal: there is no stop of that number.
        """
        last = len(self.lesson.stops) - 1 if self.lesson else -1
        if not is_whole(stop, 0, last):
            raise HTTPRefusal(
                422, f"stop must be a whole number from 0 to {last}, got {short_repr(stop)}"
            )
        self.stop = int(stop)  # type: ignore[call-overload]
        self._touch()

    def reveal(self) -> None:
        """Show the answers of this stop.

        Raises:
            HTTPRefusal: it has no question.
        """
        if self.ask is None:
            raise HTTPRefusal(409, "this stop has no question")
        self.opened[self.stop] = self.outcome_of("")
        self._touch()

    def solve(self) -> None:
        """Show the right answer of the problem."""
        self.solved = True
        self._touch()

    def set_goal(self, action: str, now: float) -> None:
        """Let the chains "run", make one "step", or "rest" (pause)."""
        self._reached, self._goal_set = self._reachable(now), now
        goals = {
            "run": self.run.steps,
            "step": min(self.furthest_step + 1, self.run.steps),
            "rest": -1,
        }
        self.goal = goals[action]
        self._touch()

    def restart(self, run: Run) -> None:
        """Restart all chains from a first draft."""
        for member in self.members.values():
            member.states, member.last, member.since, member.replay_until = [], None, 0, -1
            member.reached, member.best, member.tries = None, None, 0
            member.version += 1
        self.walk, self.goal, self.trouble, self._reached = [], -1, "", -1
        self.text, self.loading = None, ""
        self._answers.clear()  # otherwise they would grow with every round
        if not self.samples_as(run):
            self.pool = []
        if run.prompt != self.run.prompt:
            self.solved = False
        self.run = run
        self.round += 1
        self._touch()

    def samples_as(self, run: Run) -> bool:
        """Return whether samples of the model alone in this room are those of a run too."""
        return (run.prompt, run.lm, run.rm) == (self.run.prompt, self.run.lm, self.run.rm)

    def fail(self, sentence: str) -> None:
        """Stop the chains because the models failed."""
        self.trouble, self.goal = sentence, -1
        self._touch()

    def set_loading(self, run: Run, title: str) -> None:
        """Note that the models of a run are being loaded, or with "" that they are not anymore."""
        if run is self.run and title != self.loading:
            self.loading = title
            self._touch()

    def set_door(self, door: bool) -> None:
        """Open or close the door; members stay in."""
        self.door = door
        self._touch()

    def select_chain(self, number: object) -> None:
        """Choose the member whose own vote is shown with the pooled one.

        Raises:
            HTTPRefusal: no member has that number.
        """
        if number not in [member.number for member in self.members.values()]:
            raise HTTPRefusal(422, f"nobody in this room has number {short_repr(number)}")
        self.single, self.text = int(number), None
        self._touch()

    def show_text(self, run: Run, number: int, t: int, text: str) -> None:
        """Show the text of the chosen chain, unless another was chosen since, or a new run."""
        if run is self.run and number == self.single:
            self.text = {"number": number, "t": t, "text": text}
            self.news += 1

    def end(self, why: str) -> None:
        """End the room."""
        self.over, self.goal = why, -1
        self._touch()

    def _touch(self) -> None:
        self.version += 1
        self.news += 1

    def seconds_alone(self, now: float) -> float:
        """Return the seconds since a screen last followed."""
        if self.screens or any(member.screens for member in self.members.values()):
            return 0.0
        return now - max([self.seen, *(member.seen for member in self.members.values())])


def key_of(token: str) -> str:
    """Return the hash of a token that rooms and saved classes store."""
    return hashlib.sha256(token.encode()).hexdigest()
