"""Rooms without a browser: the state machine, what runs in it, and its addresses."""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import pytest
from refusals import refusal
from starlette.applications import Starlette
from toys import ANSWER, PROMPT, ToyLM, ToyRM

from components.common.rpc import server_functions
from components.request_guard import RequestGuard
from components.room import chains, streams
from components.room.chains import UNLOADED
from components.room.limits import Bucket, Caps
from components.room.messages import Figures, class_message, member_message, room_message
from components.room.requests import build_class_run
from components.room.room import POOL, TRIES, TRY_BURST, Member, Room, RoomLesson, Screen, key_of
from components.room.rooms import CODE, LETTERS, Rooms, normalize_code
from components.room.routes import room_routes
from components.room.service import ANY_REWARD, RoomService
from components.room.snapshot import save_class
from components.room.streams import TABS
from components.session.drawing import draw_run
from components.session.runs import Runs
from qalign_core.assets import ASSETS
from qalign_core.chain.chain import run_chain
from qalign_core.decide.answers.graders import get_grader
from qalign_core.decide.methods import importance_weights, majority_vote
from qalign_core.errors import InvalidSetting, ModelLoadError, NotEnoughMemory, QAlignError
from qalign_core.protocols import TokenScore
from qalign_core.registry import entries, load_reward_model
from qalign_core.target import Target
from qalign_core.types import Response, ScoredResponse, Step
from qalign_study.measure.diagnostics import agreement
from qalign_study.measure.results import load_results
from qalign_study.serve.origins import OriginPolicy
from qalign_study.serve.refusal import HIDDEN, HTTPRefusal, public_errors, respond_refused

SETTINGS = {"prompt": PROMPT, "reference": ANSWER, "beta": 0.5}
STOPS = [
    {"title": "First", "text": "It begins."},
    {"title": "Which?", "text": "Two ways.", "ask": {
        "question": "Which way?", "kind": "choice", "options": [["up", "Up"], ["down", "Down"]],
        "unit": "", "veil": "", "marks": []}},
    {"title": "How many?", "text": "Some.", "ask": {
        "question": "How many?", "kind": "number", "options": [], "unit": "%", "veil": "",
        "marks": []}},
]  # fmt: skip
VALUES = {1: "down", 2: "12.5"}
RUBBISH = [
    *(None, True, 7, 1.5, "", " ", [], {}, ["up"], "sideways", "up\x00", "\ud800", "u" * 4000),
    *("<script>alert(1)</script>", "${7*7}", "__proto__", "'; DROP TABLE rooms; --"),
]
NO_NUMBERS = [*RUBBISH[:5], "nan", "inf", "-inf", "1e999", "1e7", "twelve", "0x10", "1" * 400]


def judge(stop: int, answer: str) -> dict[str, Any]:
    value = VALUES[stop]
    verdict = f"It is {value}."
    return {"right": answer == value if answer else None, "value": value, "explanation": verdict}


LESSON = RoomLesson(name="lesson", title="A lesson", stops=STOPS, judge=judge)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_typed_right_answer_has_the_form_of_the_votes() -> None:
    for typed, answer in (("1,000", "1000"), ("$18.00", "18"), ("Paris!", "paris")):
        assert build_class_run({**SETTINGS, "reference": typed}, Caps()).reference == answer
    assert build_class_run({**SETTINGS, "reference": None}, Caps()).reference is None


def test_the_right_answer_decides_how_answers_are_read_unless_the_problem_does() -> None:
    for typed, extractor in (
        ("1,000", "number"), ("B", "choice"), ("Paris", "text"), ('["New York", "NYC"]', "text"),
        ("5 eggs, 9 nuts", "amounts"),
    ):  # fmt: skip
        assert build_class_run({**SETTINGS, "reference": typed}, Caps()).extractor == extractor
    chosen = {**SETTINGS, "reference": "B", "extractor": "option"}
    assert build_class_run(chosen, Caps()).extractor == "option"
    assert build_class_run({**SETTINGS, "extractor": "none"}, Caps()).extractor is None
    open_ended = {"prompt": "Say something about rain.", "lm": "smollm2-135m", "rm": "mood"}
    assert build_class_run(open_ended, Caps()).extractor is None
    assert build_class_run({**open_ended, "lm": "embedded"}, Caps()).extractor == "number"
    sentence = refused(
        422, lambda: build_class_run({**SETTINGS, "extractor": "rules.py:read"}, Caps())
    )
    assert "extractor must be one of" in sentence


def test_a_class_counts_any_answer_that_a_grader_reads(clock) -> None:
    settings = {**SETTINGS, "reference": '["New York", "NYC"]', "lm": "embedded"}
    room = Rooms(Caps(), clock).open(build_class_run(settings, Caps()), LESSON)
    member = room.join("", clock())
    for text in ("The answer is NYC.", "The answer is new york.", "The answer is Boston."):
        room.record_sample(ScoredResponse(Response((1,), text, True), 0.5))
    room.record_step(member, a_step(0, 1.0))
    assert room_message(room)["right"] == ()
    room.solve()
    message = room_message(room)
    assert message["reference"] == "new york or nyc"
    votes = dict(Figures(room).to_dict()["votes"]["base"])
    assert [answer in message["right"] for answer in votes] == [True, True, False]
    table = save_class(room)["table"]
    assert "nyc" in table
    assert table.count(",True,") == 4  # base and target, two answers each


def test_a_problem_without_answers_has_no_votes(clock) -> None:
    settings = {"prompt": "Write a line about 24 hours.", "extractor": "none"}
    room = Rooms(Caps(), clock).open(build_class_run(settings, Caps()), LESSON)
    member = room.join("", clock())
    room.record_sample(ScoredResponse(Response((1,), "It is 24.", True), 0.5))
    room.record_step(member, a_step(0, 1.0))
    figures = Figures(room).to_dict()
    assert set(map(tuple, figures["votes"].values())) == {()}
    assert "leaders" not in figures
    assert not room_message(room)["has_answer"]
    session = save_class(room)["session"]
    assert build_class_run(session, Caps()).extractor is None  # when it is opened again


def a_room(clock: Clock, caps: Caps | None = None, lesson: RoomLesson | None = LESSON) -> Room:
    caps = caps or Caps()
    return Rooms(caps, clock).open(build_class_run(SETTINGS, caps), lesson)


def a_step(t: int, reward: float, accepted: bool = True) -> Step:
    new = ScoredResponse(Response((t + 1, 0), f"That is {t}.", True), reward)
    return Step(1, t, 0, new, new, 0.0 if accepted else -9.0, -1.0, accepted, new.cost)


def rewards_of(member: Member) -> list[float]:
    """Return the reward of each state, repeats counted."""
    return [state.reward for state in member.states]


def seen_by(room: Room, member: Member) -> str:
    """All that one member's screen shows."""
    return json.dumps([room_message(room), member_message(room, member)])


def refused(status: int, call: Callable[[], object]) -> str:
    """The sentence with which a call is refused."""
    with refusal(HTTPRefusal, status=status, most=200) as error:
        call()
    return str(error.value)


# Codes and places.


def test_a_code_has_forty_bits_and_no_letters_that_look_alike():
    assert math.log2(len(LETTERS) ** CODE) > 39
    assert not set("O0I1L") & set(LETTERS)
    codes = {Rooms().open(build_class_run(SETTINGS, Caps())).code for _ in range(50)}
    assert len(codes) == 50


def test_a_code_is_read_as_people_type_it(clock):
    rooms = Rooms(clock=clock)
    room = rooms.open(build_class_run(SETTINGS, Caps()))
    typed = f" {room.code[:4].lower()}-{room.code[4:].lower()} "
    assert rooms.find(typed) is room
    assert normalize_code(None) == normalize_code("\ud800") == ""


def test_guesses_find_nothing_and_keep_nobody_out(clock):
    rooms = Rooms(clock=clock)
    room = rooms.open(build_class_run(SETTINGS, Caps()))
    near = room.code[:-1] + LETTERS[(LETTERS.index(room.code[-1]) + 1) % len(LETTERS)]
    texts = {refused(404, lambda g=g: rooms.find(g)) for g in [near, "A" * CODE, "", None, 7, [1]]}
    for k in range(1000):
        refused(404, lambda k=k: rooms.find(f"{k:08d}"))
    assert len(texts) == 1  # a near guess is told what a wild one is
    assert rooms.find(room.code) is room


def test_who_comes_back_has_the_same_place_and_what_was_said_and_drawn(clock):
    room = a_room(clock)
    member = room.join("", clock.now)
    room.turn(1)
    room.predict(member, 1, "up", clock.now)
    room.record_step(member, a_step(0, 1.0))
    before = seen_by(room, member)
    clock.now += 500
    again = room.join(member.token, clock.now)
    assert again is member
    assert seen_by(room, again) == before
    assert len(room.members) == 1


def test_a_made_up_token_is_a_newcomer(clock):
    room = a_room(clock)
    first = room.join("", clock.now)
    other = room.join("guessed", clock.now)
    assert other is not first
    assert other.token != "guessed"


def test_a_full_room_refuses_and_gives_away_only_the_place_of_who_is_gone(clock):
    room = a_room(clock, Caps(members=3))
    here, gone, back = (room.join("", clock.now) for _ in range(3))
    here.screens = [object()]
    assert "3 places" in refused(403, lambda: room.join("", clock.now))
    clock.now += 61
    back.seen = clock.now
    newcomer = room.join("", clock.now)
    assert gone.key not in room.members
    assert {here.key, back.key, newcomer.key} == set(room.members)
    refused(403, lambda: room.join("", clock.now))


def test_a_closed_door_keeps_out_newcomers_and_nobody_else(clock):
    room = a_room(clock)
    member = room.join("", clock.now)
    room.set_door(False)
    assert "door" in refused(403, lambda: room.join("", clock.now))
    assert room.join(member.token, clock.now) is member
    room.set_door(True)
    room.join("", clock.now)


# Predictions.


@pytest.mark.parametrize("answer", RUBBISH, ids=lambda v: repr(v)[:20])
def test_rubbish_for_a_choice_is_refused_and_changes_nothing_for_another(clock, answer):
    room = a_room(clock)
    rude, other = room.join("", clock.now), room.join("", clock.now)
    room.turn(1)
    room.predict(other, 1, "up", clock.now)
    before = seen_by(room, other), class_message(room, clock.now)["predictions"]
    refused(422, lambda: room.predict(rude, 1, answer, clock.now))
    assert (seen_by(room, other), class_message(room, clock.now)["predictions"]) == before


@pytest.mark.parametrize("answer", NO_NUMBERS, ids=lambda v: repr(v)[:20])
def test_what_is_no_number_up_to_a_million_is_refused(clock, answer):
    room = a_room(clock)
    member = room.join("", clock.now)
    room.turn(2)
    refused(422, lambda: room.predict(member, 2, answer, clock.now))
    assert not room.count_predictions()


def test_numbers_are_counted_as_numbers_however_they_are_written(clock):
    room = a_room(clock)
    room.turn(2)
    for answer in ("12.5", "12.50", " 1.25e1 ", "3"):
        room.predict(room.join("", clock.now), 2, answer, clock.now)
    assert class_message(room, clock.now)["predictions"] == [("12.5", 3), ("3", 1)]
    for answer in ("-3", "150"):
        sentence = refused(
            422, lambda answer=answer: room.predict(room.join("", clock.now), 2, answer, clock.now)
        )
        assert "not a percentage" in sentence


def test_the_last_prediction_counts_once_until_the_answers_are_open(clock):
    room = a_room(clock)
    member = room.join("", clock.now)
    assert "has no question" in refused(409, lambda: room.predict(member, 0, "up", clock.now))
    room.turn(1)
    for answer in ("up", "down", "up"):
        room.predict(member, 1, answer, clock.now)
    assert dict(room.count_predictions()) == {"up": 1}
    for stop in (0, 3, "1", None, 1.0, True):
        refused(409, lambda stop=stop: room.predict(member, stop, "down", clock.now))
    room.reveal()
    assert "is not counted" in refused(409, lambda: room.predict(member, 1, "down", clock.now))
    assert dict(room.count_predictions()) == {"up": 1}


def test_an_answer_that_arrives_late_counts_until_its_answers_are_open(clock):
    room = a_room(clock)
    member = room.join("", clock.now)
    room.turn(1)
    room.turn(2)  # the class has gone on while the member was offline
    room.predict(member, 1, "up", clock.now)
    assert not room.count_predictions()
    room.turn(1)
    assert dict(room.count_predictions()) == {"up": 1}
    room.reveal()
    room.turn(2)
    assert "is not counted" in refused(409, lambda: room.predict(member, 1, "down", clock.now))


def test_never_have_more_members_answered_than_there_are(clock):
    room = a_room(clock)
    room.turn(1)
    gone, here, silent = (room.join("", clock.now) for _ in range(3))
    for member in (gone, here):
        room.predict(member, 1, "up", clock.now)
    here.screens, silent.screens = [object()], [object()]
    message = class_message(room, clock.now)
    assert message["here"] == 2  # beside this number "2 of 2" would hide that one has not answered
    assert (sum(n for _, n in message["predictions"]), message["expected"]) == (2, 3)
    room.turn(2)
    assert class_message(room, clock.now)["expected"] == 2


def test_nobody_is_told_the_answer_before_it_is_open(clock):
    room = a_room(clock)
    member = room.join("", clock.now)
    room.turn(1)
    room.predict(member, 1, "up", clock.now)
    hidden = seen_by(room, member)
    assert "It is" not in hidden
    public = room_message(room) | {"prompt": "", "code": "", "round": 0}
    public["run"] |= {"seed": 0}  # a seed may contain the answer by chance
    assert ANSWER not in json.dumps(public)
    room.reveal()
    views = room_message(room), member_message(room, member)
    assert views[0]["value"] == "down"
    assert views[0]["reference"] is None
    assert views[1]["outcome"] == {"right": False, "explanation": "It is down."}
    room.turn(2)  # the answers of another stop are not
    assert "It is" not in seen_by(room, member)
    room.solve()
    assert room_message(room)["reference"] == ANSWER


def test_a_flood_is_refused_and_the_others_are_heard(clock):
    room = a_room(clock)
    rude, other = room.join("", clock.now), room.join("", clock.now)
    room.turn(1)
    took = 0
    for _ in range(2000):
        with suppress(HTTPRefusal):
            room.predict(rude, 1, "up", clock.now)
            took += 1
    refused(429, lambda: room.predict(rude, 1, "up", clock.now))
    assert took == room.caps.burst
    room.predict(other, 1, "down", clock.now)
    assert dict(room.count_predictions()) == {"up": 1, "down": 1}
    clock.now += 1.0
    room.predict(rude, 1, "down", clock.now)


def test_a_bucket_fills_no_higher_than_its_burst():
    bucket = Bucket(1.0, 2, 0.0)
    for _ in range(2):
        bucket.take(1e6)
    refused(429, lambda: bucket.take(1e6))


def test_there_is_no_stop_but_those_of_the_lesson(clock):
    room = a_room(clock)
    for stop in (-1, 3, "1", None, 1.5, True, [], 10**400):
        refused(422, lambda stop=stop: room.turn(stop))
    assert room.stop == 0
    refused(422, lambda: a_room(clock, lesson=None).turn(0))


# The end of a room.


def test_a_room_is_over_when_nobody_is_in_it_or_its_time_is(clock):
    rooms = Rooms(Caps(life=7200, alone=900), clock)
    alone, long = (rooms.open(build_class_run(SETTINGS, Caps())) for _ in range(2))
    screen = Screen()
    long.screens.add(screen)
    clock.now += 901
    assert "nobody" in refused(410, lambda: rooms.find(alone.code))
    assert rooms.find(long.code) is long
    clock.now += 7200
    assert "2 hours" in refused(410, lambda: rooms.find(long.code))
    assert alone.over
    assert long.over


def test_a_place_in_a_room_that_this_server_never_had_is_told_of_a_restart(clock):
    before, after = Rooms(clock=clock), Rooms(clock=clock)
    room = before.open(build_class_run(SETTINGS, Caps()))
    token = room.join("", clock.now).token
    sentence = refused(410, lambda: after.find(room.code, token))
    assert "started again" in sentence
    assert "the instructor can open a new one, or a class that was saved" in sentence
    assert "started again" not in refused(404, lambda: after.find(room.code))


def test_a_server_has_so_many_rooms_and_one_that_is_over_makes_room(clock):
    rooms = Rooms(Caps(rooms=2), clock)
    room, _ = (rooms.open(build_class_run(SETTINGS, Caps())) for _ in range(2))
    assert "taken" in refused(503, lambda: rooms.open(build_class_run(SETTINGS, Caps())))
    rooms.close(room, "closed")
    rooms.open(build_class_run(SETTINGS, Caps()))
    refused(503, lambda: Rooms(Caps(rooms=0), clock).open(build_class_run(SETTINGS, Caps())))


def test_an_operator_says_how_many_rooms_and_members():
    caps = Caps.from_environment({"QALIGN_MAX_ROOMS": "0", "QALIGN_MAX_MEMBERS": "30"})
    assert (caps.rooms, caps.members) == (0, 30)
    for wrong in ("-1", "many", "1e9", "9" * 99):
        with pytest.raises(QAlignError, match="QALIGN_MAX_ROOMS must be a whole number"):
            Caps.from_environment({"QALIGN_MAX_ROOMS": wrong})


@pytest.mark.parametrize(
    "settings",
    [
        {"prompt": "x" * 601},
        {"prompt": "  "},
        {"prompt": ["a"]},
        {"prompt": "\ud800"},
        {"beta": 0},
        {"beta": "nan"},
        {"beta": 1e300},
        {"beta": {}},
        {"reference": "9" * 5000},
    ],
    ids=lambda v: repr(v)[:30],
)
def test_a_class_has_no_problem_or_beta_that_a_run_cannot_have(settings):
    refused(422, lambda: build_class_run(SETTINGS | settings, Caps()))


def test_whatever_else_is_sent_has_no_say_in_the_run_of_a_class():
    sent = {**SETTINGS, "temperature": 2, "steps": 10**6, "chains": 5000}
    run = build_class_run(sent, Caps())
    assert (run.temperature, run.steps, run.chains) == (1, 60, 1000)


# Chains, drawn with toy models.


async def end(service: RoomService) -> None:
    """End everything that runs."""
    tasks = [task for each in service._tasks._tasks.values() for task in each.values()]
    for room in list(service._tasks):
        service._stop(room)
    if service._sweeper is not None:
        service._sweeper.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def service(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RoomService]:
    for module in (chains, streams):
        monkeypatch.setattr(module, "LOOK", 0.002)
    monkeypatch.setattr(streams, "COUNT", 0.0)
    runs = Runs(load=lambda lm, rm, sampling: (ToyLM(), ToyRM()))
    rooms = RoomService(runs, {"lesson": LESSON}.__getitem__, Caps(steps=40, pace=1e-6))
    yield rooms
    await end(rooms)


async def test_an_instructor_opens_a_room_for_each_lesson_and_a_thousand_are_refused(service):
    n_lessons = len(list((ASSETS / "lessons").glob("*.toml")))
    for _ in range(n_lessons):
        lead = await service.open({**SETTINGS, "lesson": "lesson"}, "here")
        await do(service, lead, "end")
    with pytest.raises(HTTPRefusal, match="too much at once"):
        for _ in range(1000):
            lead = await service.open(dict(SETTINGS), "here")
            await do(service, lead, "end")
    await service.open(dict(SETTINGS), "there")


async def until(done: Callable[[], object]) -> None:
    """Let everything run until something is so."""
    async with asyncio.timeout(60):
        while not done():
            await asyncio.sleep(0)


async def turns(n: int = 300) -> None:
    """Let everything run for so many turns of the loop: a chain that may goes on by some steps."""
    for _ in range(n):
        await asyncio.sleep(0)


async def a_class(service: RoomService, n: int) -> tuple[dict[str, Any], Room, list[Member]]:
    """A room whose members have their screens on."""
    lead = await service.open({**SETTINGS, "lesson": "lesson"}, "here")
    room = service.rooms.find(lead["code"])
    tokens = [service.join(lead["code"], "")["token"] for _ in range(n)]
    members = [room.members[key_of(token)] for token in tokens]
    for member in members:
        service.follow(room.code, member.token)
        member.screens = [object()]
    return lead, room, members


async def do(service: RoomService, lead: dict[str, Any], what: str, **more: object) -> None:
    await service.lead(lead["code"], lead["token"], {"do": what, **more})


async def test_a_members_chain_is_that_chain_of_the_rooms_run(service):
    lead, room, members = await a_class(service, 3)
    await do(service, lead, "run")
    await until(lambda: all(member.t == 40 for member in members))
    for member in members:
        run = room.run
        chain = run_chain(ToyLM(), ToyRM(), run.prompt, beta=run.beta, steps=40, seed=run.seed,
                          chain=member.number)  # fmt: skip
        alone = [step.state async for step in chain]
        assert [s.response.text for s in member.states] == [s.response.text for s in alone]
        assert rewards_of(member) == [state.reward for state in alone]
    assert len({tuple(rewards_of(member)) for member in members}) == 3
    assert sorted(room.walk) == sorted((m.number, r) for m in members for r in rewards_of(m))


async def test_chains_go_only_as_far_as_the_instructor_lets_them(service, monkeypatch):
    monkeypatch.setattr(chains, "LOOK", 0)  # a chain that rests looks at each turn of the loop
    lead, _, members = await a_class(service, 4)
    await turns()
    assert [member.t for member in members] == [-1] * 4
    for t in (0, 1):
        await do(service, lead, "step")
        await until(lambda t=t: all(member.t == t for member in members))
        await turns()
        assert [member.t for member in members] == [t] * 4
    await do(service, lead, "run")
    await until(lambda: members[0].t > 1)
    await do(service, lead, "rest")
    await turns()
    rested = [member.t for member in members]
    await turns()
    assert [member.t for member in members] == rested
    assert max(rested) < 40
    await do(service, lead, "run")
    await turns()
    assert members[0].t > rested[0], "the control: so many turns are enough for a step"


async def test_the_chain_of_who_left_rests_and_goes_on_when_they_are_back(service):
    lead, room, (here, away) = await a_class(service, 2)
    away.screens, away.seen = [], -1e9
    await do(service, lead, "run")
    await until(lambda: here.t == 40)
    assert away.t == -1
    assert service.join(room.code, away.token)["token"] == away.token
    away.screens = [object()]
    await until(lambda: away.t == 40)


async def test_starting_again_draws_other_chains_and_keeps_the_members(service):
    lead, room, members = await a_class(service, 2)
    await do(service, lead, "run")
    await until(lambda: all(member.t == 40 for member in members))
    before = rewards_of(members[0])
    await do(service, lead, "again", beta="2")
    assert [member.t for member in members] == [-1, -1]
    assert (room.run.beta, room.run.prompt, room.run.reference) == (2.0, PROMPT, ANSWER)
    await do(service, lead, "run")
    await until(lambda: all(member.t == 40 for member in members))
    assert rewards_of(members[0]) != before
    assert len(room.walk) == 82


async def test_what_the_class_says_are_the_cores_own_numbers(service):
    lead, room, members = await a_class(service, 3)
    await do(service, lead, "run")
    await until(lambda: all(m.t == 40 for m in members) and len(room.pool) == POOL)
    figures = Figures(room).to_dict()
    states = [state for member in members for state in member.states]
    base = room.pool
    read = get_grader("number").extract
    weights = importance_weights([s.reward for s in base], Target(room.run.beta))
    assert figures["votes"]["class"] == list(majority_vote(states, read).shares[:4])
    assert figures["votes"]["single"] == list(majority_vote(members[0].states, read).shares[:4])
    later = [reward for member in members for reward in rewards_of(member)[20:]]
    assert figures["mean"]["class"] == pytest.approx(sum(later) / len(later))
    target = sum(w * s.reward for w, s in zip(weights, base, strict=True))
    assert figures["mean"]["target"] == pytest.approx(target)
    verdict = agreement([rewards_of(member) for member in members])
    assert (figures["rhat"], figures["agreement"]) == (verdict.finite, str(verdict))
    assert figures["trust"]["sentence"]


async def test_the_class_settles_on_the_target(service):
    lead, room, members = await a_class(service, 40)
    await do(service, lead, "run")
    await until(lambda: all(m.t == 40 for m in members) and len(room.pool) == POOL)
    mean = Figures(room).to_dict()["mean"]
    assert abs(mean["class"] - mean["target"]) < 0.2 * (mean["target"] - mean["base"])


def test_figures_of_a_class_that_has_drawn_nothing_say_nothing(clock):
    assert Figures(a_room(clock)).to_dict() == {}


async def test_only_the_instructors_token_leads(service):
    lead, room, (member, _) = await a_class(service, 2)
    before = seen_by(room, member)
    for token in (member.token, "", "guess", lead["token"][:-1]):
        for what in ("turn", "reveal", "solve", "run", "again", "door", "single", "end"):
            with refusal(HTTPRefusal, status=403):
                await service.lead(lead["code"], token, {"do": what, "stop": 1})
    assert seen_by(room, member) == before
    for rubbish in ({}, {"do": None}, {"do": "explode"}, {"do": ["run"]}, {"do": "single"}):
        with refusal(HTTPRefusal, status=422):
            await service.lead(lead["code"], lead["token"], rubbish)


@pytest.mark.parametrize("kind", [QAlignError, ModelLoadError, NotEnoughMemory, InvalidSetting])
async def test_the_reason_of_models_that_fail_is_only_in_the_log_and_the_room_goes_on(
    service, caplog, kind
):
    reason = "/home/me/rules.py has no function or class warn; name one as FILE.py:NAME"

    def broken(*_: object) -> Any:
        raise kind(reason)

    service._runs._load, load = broken, service._runs._load
    lead, room, members = await a_class(service, 1)
    await until(lambda: room.trouble)
    assert room_message(room)["trouble"] == UNLOADED
    assert reason in caplog.text
    own = {"words": "yes"}
    with pytest.raises(HTTPRefusal) as error:
        await service.score_text(lead["code"], members[0].token, own)
    assert error.value.detail == UNLOADED
    assert "rules.py" not in json.dumps([seen_by(room, members[0]), class_message(room, 0.0)])
    service._runs._load = load
    await do(service, lead, "again")
    await do(service, lead, "run")
    await until(lambda: members[0].t == 40)


RULES = """
from qalign_core.errors import InvalidSetting


def warn(prompt, text):
    raise ValueError(f"{__file__} is out of order")


class Warn:
    async def score(self, prompt, response):
        raise InvalidSetting(f"{__file__} is out of order")
"""


@pytest.mark.parametrize("name", ["warn", "Warn"])
async def test_a_reward_that_raises_shows_no_folder_of_the_server_to_anybody(
    service, tmp_path, caplog, name
):
    (tmp_path / "my rules").mkdir()
    (path := tmp_path / "my rules" / "rules.py").write_text(RULES)
    load = service._runs._load
    rm = load_reward_model(f"{path}:{name}", code=True)
    service._runs._load = lambda *models: (load(*models)[0], rm)
    _, room, _ = await a_class(service, 1)
    await until(lambda: room.trouble)
    runs = service._runs
    run = room.run.with_changes(chains=1)
    async for now in runs.stream("a visitor", lambda feed: draw_run(feed, runs, run)):
        latest = now
    (answer,) = server_functions(lambda path: load_results(path))
    failed = await answer(str(tmp_path / "none.zip"))
    assert [room.trouble, str(latest.error), failed["error"]] == [HIDDEN, HIDDEN, f"{HIDDEN}."]
    assert latest.status.text == f"Failed: {HIDDEN}"
    assert f"{path} is out of order" in caplog.text  # the terminal has all of it


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        *((QAlignError, each) for each in ("46/60 is 0.767", "owner/name is gated", "and/or",
          "http://127.0.0.1:8000/tmp/v1 does not answer", "a text, /", "/" * 3000)),
        (InvalidSetting, "this server does not offer '/etc/x'; choose another"),
    ],
)  # fmt: skip
def test_a_sentence_without_a_path_and_a_visitors_own_words_stay_as_they_are(kind, sentence):
    with pytest.raises(kind, match=f"^{re.escape(sentence)}$"), public_errors():
        raise kind(sentence)


@pytest.mark.parametrize("path", ["/etc/x.py", "~me/x.py", "C:\\x\\y.py", "C:/x", "/none", "~/x"])
@pytest.mark.parametrize("sentence", ["%s has no function f", "it failed ('%s'); fix it", "a: %s"])
def test_a_sentence_with_a_path_is_replaced_whether_or_not_the_path_exists(path, sentence):
    with pytest.raises(ModelLoadError, match=f"^{re.escape(HIDDEN)}$"), public_errors():
        raise ModelLoadError(sentence % path)


async def test_screens_show_that_the_server_loads_a_model_until_it_is_loaded(service):
    loads, load = threading.Event(), service._runs._load

    def slow(*models: Any) -> Any:
        loads.wait()
        return load(*models)

    service._runs._load = slow
    lead, room, members = await a_class(service, 1)
    await until(lambda: room.loading)
    title = service._runs.offer.models["lm"][room.run.lm]
    assert room_message(room)["loading"] == title
    await do(service, lead, "again", lm=room.run.lm)  # the older load ends later
    assert room.loading == ""
    await until(lambda: room.loading == title)
    loads.set()
    await until(lambda: not room.loading)
    await do(service, lead, "run")
    await until(lambda: members[0].t == 40)
    assert room_message(room)["loading"] == ""


# Members whose browsers draw.

STATES = [None if t % 3 == 2 else [f"That is {t}.", 1.0 - t / 10, -0.5] for t in range(61)]
"""As a browser sends them: a text, its reward and its natural log of p; null where it stayed."""
NO_STATES = [
    *(True, 7, 1.5, "text", {}, [], ["text", 1.0], ["text", 1.0, -1.0, 0], [7, 1.0, -1.0]),
    *(["text", "1", -1.0], ["text", True, -1.0], ["text", 100.5, -1.0], ["text", 1e999, -1.0]),
    *(["text", math.nan, -1.0], ["text", 1.0, 0.1], ["text", 1.0, -math.inf]),
    *(["u" * 2001, 1.0, -1.0], ["\ud800", 1.0, -1.0]),
]


def that_runs(clock: Clock) -> tuple[Room, Member]:
    """A room whose class has run for so long that every step can have been drawn."""
    room = a_room(clock)
    member = room.join("", clock.now)
    room.set_goal("run", clock.now)
    clock.now += 100
    return room, member


def test_states_of_a_browser_are_counted_once_and_in_order(clock):
    room, member = that_runs(clock)
    for t, end in ((0, 3), (0, 3), (1, 5), (2, 4)):  # twice, overlapping, and old ones
        room.record_states(member, 0, t, STATES[t:end], clock.now)
    texts = ["That is 0.", "That is 1.", "That is 1.", "That is 3.", "That is 4."]
    assert [state.response.text for state in member.states] == texts
    assert room.walk == [(1, reward) for reward in rewards_of(member)]
    for round_, t in ((0, 6), (1, 5), (-1, 5), (None, 5), ("0", 5)):  # a gap, other rounds
        room.record_states(member, round_, t, STATES[t:], clock.now)
        assert member.t == 4
    room.record_states(member, 0, 5, STATES[5:], clock.now)
    assert (member.t, len(room.walk)) == (60, 61)
    room.restart(build_class_run(SETTINGS, Caps()))
    room.record_states(member, 0, 0, STATES, clock.now)  # sent before the class began again
    assert (member.t, room.walk) == (-1, [])
    assert member.reached is None


@pytest.mark.parametrize("state", NO_STATES, ids=lambda v: repr(v)[:20])
def test_what_is_no_state_is_refused_and_nothing_of_its_batch_is_counted(clock, state):
    room, member = that_runs(clock)
    other = room.join("", clock.now)
    before = seen_by(room, other)
    refused(422, lambda: room.record_states(member, 0, 0, [*STATES[:2], state], clock.now))
    for t, states in (("0", []), (-1, []), (True, []), (None, []), (0, "text"), (0, [None] * 62)):
        refused(422, lambda t=t, states=states: room.record_states(member, 0, t, states, clock.now))
    room.record_states(
        member, 0, 0, [None], clock.now
    )  # a first draft cannot stay where nothing was
    assert (member.t, room.walk, seen_by(room, other)) == (-1, [], before)


def test_a_flood_of_batches_is_refused_and_the_others_are_counted(clock):
    room, member = that_runs(clock)
    for _ in range(room.caps.burst):
        room.record_states(member, 0, 0, STATES, clock.now)
    refused(429, lambda: room.record_states(member, 0, 0, STATES, clock.now))
    other = room.join("", clock.now)
    room.record_states(other, 0, 0, STATES, clock.now)
    assert len(room.walk) == 122


def test_a_browser_is_no_faster_than_the_class(clock):
    room = a_room(clock, Caps(pace=1.0))
    fast, other = room.join("", clock.now), room.join("", clock.now)

    def reached() -> int:
        clock.now += 1.0
        room.record_states(fast, 0, 0, STATES, clock.now)
        return fast.t

    assert reached() == -1
    for t in (0, 1):
        room.set_goal("step", clock.now)
        room.record_states(other, 0, 0, STATES[: t + 1], clock.now)
        assert [reached(), reached()] == [t, t]
    room.set_goal("run", clock.now)
    assert [reached() for _ in range(5)] == [3, 4, 5, 6, 8]
    room.set_goal("rest", clock.now)
    assert [reached(), reached()] == [8, 8]
    room.set_goal("step", clock.now)
    assert [reached(), reached(), room.goal] == [9, 9, 9]


def test_what_a_browser_sends_has_no_say_in_the_target(clock):
    room, member = that_runs(clock)
    for t in range(3):
        room.record_sample(a_step(t, float(t)).state)
    before = Figures(room).to_dict()
    room.record_states(member, 0, 0, [["I say 7.", 100.0, 0.0]], clock.now)
    figures = Figures(room).to_dict()
    assert figures["mean"]["target"] == before["mean"]["target"]
    assert figures["votes"]["class"] == [("7", 1.0)]
    room.record_sample(a_step(3, 100.0).state)  # what the server draws of the model alone does
    assert Figures(room).to_dict()["mean"]["target"] > 90


def test_batches_are_rarer_in_a_large_class(clock):
    room = a_room(clock)
    assert room.every == 0.5
    for _ in range(1000):
        room.join("", clock.now)
    assert room.every == 4.0
    refused(403, lambda: room.join("", clock.now) and room.join("", clock.now))


async def its_chain(room: Room, member: Member) -> list[Any]:
    """A member's chain as the member's browser sends it."""
    run, sent = room.run, list[Any]()
    chain = run_chain(ToyLM(), ToyRM(), run.prompt, beta=run.beta, steps=run.steps, seed=run.seed,
                      chain=member.number)  # fmt: skip
    async for step in chain:
        is_new = step.accepted and (step.changed or step.t == 0)
        sent.append([step.state.response.text, step.state.reward, -1.0] if is_new else None)
    return sent


async def test_the_server_goes_on_where_a_browser_stopped_and_the_other_way_round(service):
    lead, room, (member, other) = await a_class(service, 2)
    states = await its_chain(room, member)
    service.follow(room.code, member.token, draws=True)
    await do(service, lead, "run")
    await until(lambda: other.t == 40)
    assert member.t == -1  # the server draws nothing for a browser that does
    service.record_states(room.code, member.token, {"round": 0, "t": 0, "states": states[:11]})
    assert member.t == 10
    service.follow(room.code, member.token)  # the browser's worker has failed
    await until(lambda: member.t > 20)
    service.follow(room.code, member.token, draws=True)  # and another browser has the place
    rested = member.t
    for _ in range(50):
        await asyncio.sleep(0)
    assert member.t == rested
    kept = service.record_states(
        room.code, member.token, {"round": 0, "t": 5, "states": states[5:36]}
    )
    assert kept["t"] == max(35, rested)
    service.follow(room.code, member.token)
    await until(lambda: member.last is not None and member.last.t == 40)
    rewards = [r for number, r in room.walk if number == member.number]
    assert rewards == rewards_of(member)
    texts = [state and state[0] for state in states]
    for k, text in enumerate(texts):
        texts[k] = text or texts[k - 1]
    assert [state.response.text for state in member.states] == texts
    assert member_message(room, member)["counted"] == 41 - max(k for k, s in enumerate(states) if s)


async def test_the_server_draws_so_many_chains_and_the_next_member_looks_on(service):
    service.rooms.caps = replace(service.rooms.caps, server_chains=2)
    lead, room, members = await a_class(service, 3)
    await do(service, lead, "run")
    await until(lambda: all(member.t == 40 for member in members[:2]))
    assert [member.drawer for member in members] == ["server", "server", ""]
    assert members[2].t == -1
    members[0].screens, members[0].seen = [], -1e9
    service.follow(room.code, members[2].token)  # when one has left there is a place
    await until(lambda: members[2].t == 40)


# The game.


class Teller(ToyLM):
    """A toy model that tells how likely texts are: each of its tokens 1/e, and no other."""

    def __init__(self, may: asyncio.Event | None = None) -> None:
        super().__init__()
        self.may = may

    async def extend(self, prompt_ids, prefix, *, seed):
        response = await super().extend(prompt_ids, prefix, seed=seed)
        return replace(response, log_probs=(-1.0,) * len(response))

    def extend_with_text(self, prefix, words, *, ended):
        return Response((*prefix, *words.encode()), words, ended)

    async def score_tokens(self, prompt_ids, tokens, *, top):
        if self.may is not None:
            await self.may.wait()
        return tuple(TokenScore(-math.inf if token == ord("~") else -1.0, ()) for token in tokens)


async def a_game(
    service: RoomService, lm: ToyLM, n: int = 2
) -> tuple[dict[str, Any], Room, list[Member]]:
    """A class whose chains have made their first drafts."""
    service._runs._load = lambda *_: (lm, ToyRM())
    lead, room, members = await a_class(service, n)
    await do(service, lead, "step")
    await until(lambda: all(member.t == 0 for member in members))
    return lead, room, members


async def weigh(
    service: RoomService, room: Room, member: Member, words: object, **more: object
) -> Any:
    return await service.score_text(room.code, member.token, {"words": words, **more})


async def test_a_score_is_what_the_servers_models_say_and_not_the_browsers_word(service):
    lead, room, (one, two) = await a_game(service, Teller())
    for member in (one, two):
        state = member.states[0]
        n = len(member.last.proposal.response)
        assert member.reached == pytest.approx(-n + state.reward / 0.5)
    assert class_message(room, 0.0)["game"]["first"] == []
    text = "We begin with 6."
    lie = {"log_pi": 1e9, "best": 1e9, "reward": 1e9, "tokens": [0], "number": one.number}
    reply = await weigh(service, room, two, text, **lie)
    reward = await ToyRM().score(PROMPT, Teller().extend_with_text((), text, ended=True))
    assert reply == {"log_pi": pytest.approx(-len(text) + reward / 0.5)}
    assert (one.best, two.best) == (None, reply["log_pi"])
    await weigh(service, room, two, "a longer text of which each token costs")
    assert await weigh(service, room, two, "~") == {"log_pi": None}
    assert two.best == reply["log_pi"]
    assert member_message(room, two)["hand"] == {
        "reached": two.reached,
        "best": two.best,
        "left": 27,
    }
    game = class_message(room, 0.0)["game"]
    assert game["first"] == [(two.number, two.best, two.reached)]
    assert game["chains"] == max(one.reached, two.reached)
    assert game["passed"] == (two.best > two.reached)
    await do(service, lead, "again")
    assert member_message(room, two)["hand"] == {"reached": None, "best": None, "left": 30}
    assert class_message(room, 0.0)["game"] is None


@pytest.mark.parametrize("words", [*RUBBISH[:4], [], {}, ["up"], "a\x00", "a\u202eb", "\ud800",
                                   "u" * 4000], ids=lambda v: repr(v)[:20])  # fmt: skip
async def test_rubbish_by_hand_is_refused_and_changes_nothing_for_another(service, words):
    _, room, (rude, other) = await a_game(service, Teller())
    await weigh(service, room, other, "mine")
    before = seen_by(room, other), class_message(room, 0.0)["game"]
    with refusal(HTTPRefusal, status=422):
        await weigh(service, room, rude, words)
    assert (seen_by(room, other), class_message(room, 0.0)["game"]) == before
    assert rude.tries == 0
    for nobody in ("", "guess", room.lead):
        with pytest.raises(HTTPRefusal):
            await service.score_text(room.code, nobody, {"words": "mine"})


async def test_a_flood_of_texts_asks_the_models_a_few_times_and_others_are_weighed(service, clock):
    lm = Teller(may=asyncio.Event())
    _, room, (rude, other) = await a_game(service, lm)
    service.rooms.clock = clock
    flood = [asyncio.create_task(weigh(service, room, rude, "x" * k)) for k in range(1, 200)]
    mine = asyncio.create_task(weigh(service, room, other, "mine"))
    for _ in range(20):
        await asyncio.sleep(0)
    lm.may.set()
    replies = await asyncio.gather(*flood, return_exceptions=True)
    assert sum(not isinstance(reply, HTTPRefusal) for reply in replies) == 1
    assert (await mine)["log_pi"] == other.best
    took = 0
    for _ in range(50):
        with suppress(HTTPRefusal):
            await weigh(service, room, rude, "x")
            took += 1
    assert took == TRY_BURST - 1
    for _ in range(TRIES):
        clock.now += 60
        with suppress(HTTPRefusal):
            await weigh(service, room, rude, "x")
    assert rude.tries == TRIES


async def test_a_text_that_is_weighed_when_the_class_starts_again_counts_for_nothing(service):
    lm = Teller(may=asyncio.Event())
    lead, room, (one, _) = await a_game(service, lm)
    late = asyncio.create_task(weigh(service, room, one, "mine"))
    await until(lambda: one.trying)
    await do(service, lead, "again")
    lm.may.set()
    with pytest.raises(HTTPRefusal, match="was restarted"):
        await late
    assert (one.best, one.tries, one.trying) == (None, 0, False)


async def test_the_embedded_model_weighs_a_chains_text_as_the_chain_did(service, monkeypatch):
    monkeypatch.setattr(chains, "POOL", 1)
    service._runs._load = Runs()._load
    lead = await service.open({"prompt": "Tom has 5 eggs. He buys 3 more. How many?"}, "here")
    room = service.rooms.find(lead["code"])
    room.run = replace(room.run, seed=1)  # a text that is read into the tokens it was written in
    member = room.members[key_of(service.join(lead["code"], "")["token"])]
    service.follow(room.code, member.token)
    member.screens = [object()]
    await do(service, lead, "step")
    await until(lambda: member.t == 0)
    reply = await weigh(service, room, member, member.states[0].response.text)
    assert reply["log_pi"] == pytest.approx(member.reached, abs=1e-3)


# What screens follow.


async def heard(events: AsyncIterator[str], done: Callable[[dict[str, Any]], bool]) -> list[Any]:
    """The events of a stream up to one."""
    seen: list[Any] = []
    async with asyncio.timeout(60):
        async for event in events:
            if event.startswith("data: "):
                seen.append(json.loads(event.removeprefix("data: ")))
                if done(seen[-1]):
                    break
    return seen


async def test_a_screen_is_told_each_state_of_its_own_chain_and_no_others(service):
    lead, room, members = await a_class(service, 2)
    stream = service.follow(room.code, members[0].token)
    async with aclosing(stream):  # type: ignore[type-var]
        await do(service, lead, "run")
        events = await heard(stream, lambda e: e.get("mine", {}).get("t") == 40)
    assert {event["mine"]["number"] for event in events if "mine" in event} == {members[0].number}
    assert events[-1]["mine"]["rewards"] == [round(r, 3) for r in rewards_of(members[0])]
    last = events[-1]["mine"]
    assert last["kept"] + (last["new"] if last["accepted"] else last["old"]) == (
        members[0].states[-1].response.text
    )


async def test_the_instructors_screen_has_every_chain_and_prediction(service):
    lead, room, members = await a_class(service, 3)
    await do(service, lead, "turn", stop=1)
    service.predict(room.code, members[0].token, {"stop": 1, "prediction": "up"})
    stream = service.follow(room.code, lead["token"])
    async with aclosing(stream):  # type: ignore[type-var]
        first = await heard(stream, lambda e: "class" in e)
        assert first[-1]["class"]["predictions"] == [["up", 1]]
        await do(service, lead, "run")
        events = await heard(stream, lambda e: e.get("class", {}).get("done") == 3)
    walk = [tuple(each) for event in events for each in event.get("walk", [])]
    assert walk == [(number, round(reward, 3)) for number, reward in room.walk]


async def test_a_place_is_followed_by_its_newest_screen_and_by_the_one_before_once_that_closes(
    service,
):
    lead, room, (member,) = await a_class(service, 1)
    member.screens = []
    here = room.code, member.token
    streams = [service.follow(*here, draws=draws) for draws in (True, False)]
    waiting = service.follow(*here, draws=True, waits=True)  # it was cut off while it waited
    old, new = streams
    async with aclosing(old), aclosing(new), aclosing(waiting):  # type: ignore[type-var]
        await heard(old, lambda e: "room" in e)
        await heard(new, lambda e: "room" in e)
        assert member.drawer == "server"
        assert (await heard(old, lambda e: True)) == [{"elsewhere": True}]
        late = asyncio.create_task(heard(waiting, lambda e: True))
        back = asyncio.create_task(heard(old, lambda e: True))
        await until(lambda: len(member.screens) == 3)
        await do(service, lead, "turn", stop=1)
        assert (await heard(new, lambda e: "room" in e))[-1]["room"]["stop"]["k"] == 1
        assert not back.done() and not late.done()  # noqa: PT018
        await new.aclose()  # type: ignore[attr-defined]
        (event,) = await back
        assert (event["room"]["stop"]["k"], event["mine"]["number"]) == (1, member.number)
        assert member.drawer == "browser"
        await old.aclose()  # type: ignore[attr-defined]
        assert "room" in (await late)[0]
    assert member.screens == []


async def test_a_member_has_a_few_screens_and_the_oldest_leaves_for_one_more(service):
    _, room, (member,) = await a_class(service, 1)
    streams = [service.follow(room.code, member.token) for _ in range(TABS + 1)]
    for stream in streams:
        await heard(stream, lambda e: "room" in e)
    assert "newer tabs" in (await heard(streams[0], lambda e: True))[0]["over"]
    assert [await heard(each, lambda e: True) for each in streams[1:-1]] == [
        [{"elsewhere": True}] for _ in streams[1:-1]
    ]
    for stream in streams[1:]:
        await stream.aclose()  # type: ignore[attr-defined]


async def test_the_text_of_a_chosen_chain_is_drawn_by_the_server(service):
    lead, room, members = await a_class(service, 2)
    await do(service, lead, "run")
    await until(lambda: all(member.t == 40 for member in members))
    texts = [member.states[-1].response.text for member in members]
    await do(service, lead, "single", number=2)
    assert class_message(room, 0)["text"] == {"number": 2, "t": 40, "text": texts[1]}
    members[0].last = None  # as if a browser had drawn it, and sent something else
    members[0].states[-1] = ScoredResponse(Response((), "<b>Hello</b>", finished=True), 1.0)
    await do(service, lead, "single", number=1)
    assert room.text is None
    await until(lambda: room.text is not None)
    assert room.text == {"number": 1, "t": 40, "text": texts[0]}
    await do(service, lead, "again")
    assert room.text is None


def test_the_instructor_sees_how_many_answers_are_right_once_they_are_open(clock):
    room = a_room(clock)
    members = [room.join("", 0.0) for _ in range(3)]
    room.turn(1)
    for member, answer in zip(members[:2], ("up", "down"), strict=True):
        room.predict(member, 1, answer, 0.0)
    assert class_message(room, 0)["right"] is None
    room.reveal()
    assert class_message(room, 0)["right"] == 1
    room.turn(0)
    assert class_message(room, 0)["right"] is None


async def test_a_class_has_any_models_that_the_server_offers_and_the_server_draws_for_all(service):
    loaded: list[tuple[str, str]] = []
    models = {"lm": "smollm2-135m", "rm": "0.5*mood + 0.5*length:12"}

    def load(lm: str, rm: str, sampling: object) -> tuple[ToyLM, ToyRM]:
        loaded.append((lm, rm))
        return ToyLM(), ToyRM()

    service._runs._load = load
    lead = await service.open({**SETTINGS, **models}, "here")
    room = service.rooms.find(lead["code"])
    token = service.join(lead["code"], "")["token"]
    member = room.members[key_of(token)]
    stream = service.follow(room.code, token, draws=True)  # its browser would draw other models
    async with aclosing(stream):  # type: ignore[type-var]
        assert (
            "embedded models only" in (await heard(stream, lambda e: True))[0]["room"]["no_browser"]
        )
        assert member.drawer == "server"
        await do(service, lead, "run")
        await until(lambda: member.t == 40 and len(room.pool) == POOL)
        assert set(loaded) == {tuple(models.values())}
        saved = (await service.lead(lead["code"], lead["token"], {"do": "keep"}))["session"]
        again = service.rooms.find((await service.open({"session": saved}, "there"))["code"])
        assert (again.run.lm, again.run.rm) == tuple(models.values())
        await do(service, lead, "again", lm="embedded", rm="embedded")
        assert (room.run.prompt, room.run.lm, member.drawer) == (PROMPT, "embedded", "browser")
        assert room_message(room)["no_browser"] == ""
        assert room.pool == []  # of the models before


async def test_a_right_answer_that_is_too_long_is_refused_before_it_is_read(service, monkeypatch):
    monkeypatch.setattr(
        "components.room.requests.canonical_references", lambda _: pytest.fail("it was read")
    )
    for call in (service.check_prompt, partial(service.open, address="here")):
        with refusal(HTTPRefusal, "reference has 3,601 characters; 600 at most", status=422):
            await call({**SETTINGS, "reference": r"\sqrt{" * 600 + "2"})


@pytest.mark.parametrize("name", ["lm", "rm"])
@pytest.mark.parametrize("model", ["other/model", "/etc", 7, "x" * 4000, "http://127.0.0.1"])
async def test_a_model_that_is_not_offered_opens_no_room(service, name, model):
    with refusal(HTTPRefusal, status=422):
        await service.open({**SETTINGS, name: model}, "here")
    assert list(service.rooms) == []


async def test_a_problem_that_a_model_was_not_made_for_gets_a_warning_and_another_model(service):
    essay = {**SETTINGS, "prompt": "Discuss Wittgenstein's Tractatus; be epigrammatic."}
    reply = await service.check_prompt(essay)
    assert "was not made for a text like this" in reply["warning"]
    assert (reply["lm"], reply["rm"]) == ("smollm2-135m", ANY_REWARD)
    mood = "Mood: kind words over unkind ones"
    assert reply["title"] == f"SmolLM2 135M Instruct, with the reward “{mood}”"
    for kept in ("plain", "length:12", "0.5*plain + 0.5*length:9", "judge:smollm2-135m"):
        reply = await service.check_prompt(essay | {"rm": kept})
        assert (reply["rm"], reply["title"]) == (kept, "SmolLM2 135M Instruct")
    for replaced in ("embedded", "0.5*plain + 0.5*embedded", "judge:embedded"):
        reply = await service.check_prompt(essay | {"rm": replaced})
        assert reply["rm"] == ANY_REWARD
    for fitting in (essay | {"lm": "smollm2-135m"}, {"prompt": "Tom has 5 eggs. How many?"}):
        assert await service.check_prompt(fitting) == {}
    with pytest.raises(HTTPRefusal, match="does not offer"):
        await service.check_prompt(essay | {"lm": "other/model"})


def test_the_models_of_the_page_are_those_of_the_server_and_their_pace_is_stated(service):
    service._runs.durations["smollm2-135m"] = 64, 32.0
    models = service.describe_models()
    assert {kind: list(each) for kind, each in models.items()} == {
        kind: list(titles) for kind, titles in service._runs.offer.models.items()
    }
    assert models["lm"]["smollm2-135m"]["pace"] == 0.5  # as its last run took
    assert models["lm"]["smollm2-360m"]["pace"] == entries()["lm", "smollm2-360m"].run_seconds / 32


async def test_all_screens_are_told_when_the_room_is_closed(service):
    lead, room, (member,) = await a_class(service, 1)
    streams = [service.follow(room.code, token) for token in (lead["token"], member.token)]
    await do(service, lead, "end")
    for stream in streams:
        assert "closed this room" in (await heard(stream, lambda e: "over" in e))[-1]["over"]
    with refusal(HTTPRefusal, status=410):
        service.join(room.code, member.token)


# The addresses.


@pytest.fixture
async def client(service: RoomService) -> AsyncIterator[httpx.AsyncClient]:
    app = Starlette(
        routes=room_routes(service, ()), exception_handlers={HTTPRefusal: respond_refused}
    )
    transport = httpx.ASGITransport(app=RequestGuard(app, OriginPolicy()))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as session:
        yield session


JSON = {"Content-Type": "application/json"}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_a_room_is_opened_joined_and_led_over_http(client, service):
    lead = (await client.post("/room/open", json={**SETTINGS, "lesson": "lesson"})).json()
    seat = (await client.post("/room/join", json={"code": lead["code"].lower()})).json()
    assert seat["lead"] is False
    again = await client.post("/room/join", json={"code": lead["code"]},
                              headers=bearer(seat["token"]))  # fmt: skip
    assert again.json() == seat
    turned = await client.post("/room/lead", json={"code": lead["code"], "do": "turn", "stop": 1},
                               headers=bearer(lead["token"]))  # fmt: skip
    assert turned.status_code == 200
    prediction = {"code": lead["code"], "stop": 1, "prediction": "up"}
    reply = await client.post("/room/predict", json=prediction, headers=bearer(seat["token"]))
    assert reply.status_code == 200
    room = service.rooms.find(lead["code"])
    assert dict(room.count_predictions()) == {"up": 1}
    room.set_goal("run", service.rooms.clock())
    states = {"code": lead["code"], "round": 0, "t": 0, "states": STATES[:1]}
    moved = await client.post("/room/states", json=states, headers=bearer(seat["token"]))
    reached = pytest.approx(-0.5 + 1.0 / 0.5)
    assert moved.json() == {"t": 0, "hand": {"reached": reached, "best": None, "left": TRIES}}


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Bearer "])
@pytest.mark.parametrize("path", ["/room/join", "/room/join/", "//room//join"])
async def test_a_member_keeps_the_seat_however_scheme_and_address_are_written(client, scheme, path):
    lead = (await client.post("/room/open/", json=SETTINGS)).json()
    seat = (await client.post("/room/join", json={"code": lead["code"]})).json()
    headers = {"Authorization": f"{scheme} {seat['token']}"}
    url = f"http://localhost{path}"
    again = await client.post(url, json={"code": lead["code"]}, headers=headers)
    assert again.json() == seat
    assert (await client.get("/room/")).status_code == 200


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"NaN", b"[" * 5000, b"\xff\xfe",
                                  b'"text"', b"{}", b'{"code": 7}', b'{"code": {"a": 1}}',
                                  b'{"code": "' + b"A" * 9000 + b'"}'],
                         ids=lambda b: repr(b)[:20])  # fmt: skip
@pytest.mark.parametrize("path", ["open", "join", "predict", "states", "score", "lead", "qr"])
async def test_rubbish_gets_one_sentence(client, path, body):
    answer = await client.post(f"/room/{path}", content=body, headers=JSON)
    assert 400 <= answer.status_code < 500
    assert "\n" not in answer.json()["detail"]
    assert len(answer.json()["detail"]) < 300


async def test_one_address_cannot_take_all_rooms_at_once(client, service):
    answers = [await client.post("/room/open", json=SETTINGS) for _ in range(10)]
    assert [answer.status_code for answer in answers] == [200] * 4 + [429] * 6


async def test_the_page_asks_no_outside_host_and_its_data_end_no_script(client):
    answer = await client.get("/room")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "https://" not in answer.text.replace("https?:", "")
    data = answer.text.split('id="offered">')[1].split("</script>")[0]
    assert json.loads(data)["problems"]


async def test_a_link_is_drawn_as_a_square_of_bits(client):
    lead = (await client.post("/room/open", json=SETTINGS)).json()

    async def draw(link: object) -> httpx.Response:
        query = {"code": lead["code"], "link": link}
        return await client.post("/room/qr", json=query, headers=bearer(lead["token"]))

    rows = (await draw("http://here/room#ABCD2345")).json()["rows"]
    assert {len(row) for row in rows} == {len(rows)}
    assert {*"".join(rows)} == {"0", "1"}
    for wrong in (None, "javascript:alert(1)", "http://" + "a" * 300):
        assert (await draw(wrong)).status_code == 422
