"""A class that is kept: its table, and a room that is opened again from its session."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
import test_rooms
from test_rooms import PROMPT, SETTINGS, STOPS, a_class, do, rewards_of, until

from components.room.messages import Figures
from components.room.rooms import POOL, Room, key_of
from components.room.service import RoomService
from components.room.snapshot import kept
from qalign_study.serve.refusal import HTTPRefusal

pytestmark = pytest.mark.asyncio
hall = test_rooms.hall


async def a_lesson(hall: RoomService) -> tuple[dict[str, Any], Room, list[Any]]:
    """A class of three that has predicted, opened one answer and drawn some steps."""
    lead, room, members = await a_class(hall, 3)
    await do(hall, lead, "turn", stop=1)
    for member, said in zip(members, ("up", "down", "up"), strict=True):
        hall.say(room.code, member.token, {"stop": 1, "said": said})
    await do(hall, lead, "reveal")
    await do(hall, lead, "turn", stop=2)
    hall.say(room.code, members[0].token, {"stop": 2, "said": "12.5"})
    for t in range(5):
        await do(hall, lead, "step")
        await until(lambda t=t: all(member.t == t for member in members))
    return lead, room, members


async def keep(hall: RoomService, lead: dict[str, Any]) -> dict[str, Any]:
    """What the instructor's browser gets, as it arrives."""
    found = await hall.lead(lead["code"], lead["token"], {"do": "keep"})
    return json.loads(json.dumps(found, allow_nan=False))


async def test_the_table_has_every_prediction_state_and_vote(hall):
    lead, _room, members = await a_lesson(hall)
    found = await keep(hall, lead)
    rows = list(csv.DictReader(io.StringIO(found["table"])))
    said = [(r["who"], r["at"], r["answer"], r["value"], r["right"]) for r in rows
            if r["kind"] == "prediction"]  # fmt: skip
    assert said == [
        ("1", "2", "up", "down", "False"),
        ("1", "3", "12.5", "", ""),  # its answers are not open: the table does not tell them
        ("2", "2", "down", "down", "True"),
        ("3", "2", "up", "down", "False"),
    ]
    states = [(int(r["who"]), int(r["at"]), float(r["value"])) for r in rows
              if r["kind"] == "state"]  # fmt: skip
    assert states == [
        (m.number, t, reward) for m in members for t, reward in enumerate(rewards_of(m))
    ]
    votes = {r["who"] for r in rows if r["kind"] == "vote"}
    assert votes == {"base", "class", "target"}
    assert [stop["title"] for stop in found["stops"]] == ["Which?", "How many?"]
    assert [stop["value"] for stop in found["stops"]] == ["down", None]


async def test_no_answer_in_the_table_is_a_formula_of_a_spreadsheet(hall, monkeypatch):
    lead, _room, _members = await a_lesson(hall)
    for answer, told in (("=1+1", "'=1+1"), ("-2.5", "-2.5")):
        monkeypatch.setattr(Room, "read", property(lambda _, read=answer: lambda _: read))
        table = (await keep(hall, lead))["table"]
        rows = csv.DictReader(io.StringIO(table))
        assert {row["answer"] for row in rows if row["kind"] == "state"} == {told}


async def test_a_class_is_opened_again_as_it_was(hall):
    lead, _room, members = await a_lesson(hall)
    session = (await keep(hall, lead))["session"]
    before = [(m.number, dict(m.said), rewards_of(m), m.token) for m in members]
    await do(hall, lead, "end")
    new = await hall.open({"session": session}, "here")
    assert new["code"] == lead["code"]  # so the members' link still leads there
    assert new["token"] != lead["token"]
    again = hall.rooms.find(new["code"])
    for number, said, rewards, token in before:
        assert hall.join(new["code"], token) == {"code": new["code"], "token": token, "lead": False}
        member = again.members[key_of(token)]
        await until(lambda m=member, own=rewards: rewards_of(m) == own)
        assert (member.number, member.said, rewards_of(member)) == (number, said, rewards)
    assert (again.stop, list(again.opened), again.run.prompt) == (2, [1], PROMPT)
    assert again.opened[1]["value"] == "down"
    assert hall.join(new["code"], "")["code"] == new["code"]
    assert again.numbers == 4  # a newcomer gets a new number
    member = again.members[key_of(before[0][3])]
    assert member.t == 4
    await do(hall, new, "run")  # and the chains go on
    member.streams = 1
    await until(lambda: member.t == 40)


async def test_the_model_alone_says_the_same_in_a_class_that_is_opened_again(hall):
    lead, room, members = await a_lesson(hall)
    await do(hall, lead, "again")  # the chains have another seed now, the samples stay
    await do(hall, lead, "run")
    await until(lambda: len(room.pool) == POOL and all(m.t == 40 for m in members))
    before = [Figures(room).told()[name] for name in ("base", "weights")]
    session = (await keep(hall, lead))["session"]
    await do(hall, lead, "end")
    new = await hall.open({"session": session}, "here")
    again = hall.rooms.find(new["code"])
    await until(lambda: len(again.pool) > POOL / 2)
    assert Figures(again).told()["base"] == before[0][: len(again.pool)]  # fewer: the page says so
    await until(lambda: len(again.pool) == POOL and all(m.t == 40 for m in again.members.values()))
    assert [Figures(again).told()[name] for name in ("base", "weights")] == before
    other = await hall.open(SETTINGS | {"prompt": "Is 2 + 2 = 4?"}, "here")  # samples of its own
    await until(lambda: len(hall.rooms.find(other["code"]).pool) == POOL)
    assert Figures(hall.rooms.find(other["code"])).told()["base"] != before[0]


async def test_a_saved_class_gives_no_place_away(hall):
    lead, room, members = await a_lesson(hall)
    found = json.dumps(await keep(hall, lead))
    for secret in (lead["token"], *(member.token for member in members)):
        assert secret not in found
    assert all(member.key in found for member in members)
    for member in members:  # what the file does hold of a token is no token
        with pytest.raises(HTTPRefusal, match="given up"):
            hall.say(room.code, member.key, {"stop": 2, "said": "7"})


async def test_while_its_room_is_open_a_class_opens_under_another_code(hall):
    lead, room, _ = await a_lesson(hall)
    session = (await keep(hall, lead))["session"]
    new = await hall.open({"session": session}, "here")
    assert new["code"] != lead["code"]
    assert hall.rooms.find(lead["code"]) is room


BROKEN = {
    "no session": lambda s: None,
    "a text": lambda s: "class",
    "no members": lambda s: s | {"members": None},
    "a seed that is none": lambda s: s | {"seed": "1"},
    "an unknown lesson": lambda s: s | {"lesson": "nobody"},
    "a stop too far": lambda s: s | {"stop": 9},
    "an opened stop too far": lambda s: s | {"opened": [9]},
    "a stop opened 60,000 times": lambda s: s | {"opened": [1] * 60_000},
    "a stop opened more often than there are": lambda s: s | {"opened": [1] * (len(STOPS) + 1)},
    "a stop opened without a lesson": lambda s: s | {"lesson": "", "opened": [1]},
    "a prediction twice": lambda s: changed(s, said={"1": "up", "01": "up"}),
    "too many members": lambda s: s | {"members": s["members"] * 40},
    "a member twice": lambda s: s | {"members": s["members"] * 2},
    "a prediction that cannot be": lambda s: changed(s, said={"1": "sideways"}),
    "a prediction where nothing is asked": lambda s: changed(s, said={"0": "up"}),
    "a key that is none": lambda s: changed(s, key="short"),
    "a step too far": lambda s: changed(s, t=41),
    "a number that is none": lambda s: changed(s, number=0),
    "an endless best": lambda s: changed(s, best=1e999),
}


def changed(session: dict[str, Any], **values: object) -> dict[str, Any]:
    first, *others = session["members"]
    return session | {"members": [first | values, *others]}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_session_that_cannot_be_opens_no_room_and_gets_one_sentence(hall, name):
    lead, _, _ = await a_lesson(hall)
    session = (await keep(hall, lead))["session"]
    rooms = len(list(hall.rooms))
    with pytest.raises(HTTPRefusal) as error:
        await hall.open({"session": BROKEN[name](session)}, "here")
    assert error.value.status == 422
    assert "\n" not in str(error.value)
    assert len(list(hall.rooms)) == rooms
    assert await hall.open({"session": session}, "here")  # as it was saved it opens


async def test_a_class_without_lesson_or_members_is_kept_too(hall):
    lead = await hall.open(SETTINGS, "here")
    room = hall.rooms.find(lead["code"])
    session = json.loads(json.dumps(kept(room)))["session"]
    await do(hall, lead, "end")
    assert (await hall.open({"session": session}, "here"))["code"] == lead["code"]
