"""A class that is kept: its table, and a room that is opened again from its session."""

from __future__ import annotations

import csv
import io
import json
from contextlib import aclosing
from typing import Any

import pytest
import test_rooms
from refusals import refusal
from test_rooms import PROMPT, SETTINGS, STOPS, a_class, do, heard, rewards_of, until

from components.room.messages import Figures, class_message, member_message, room_message
from components.room.room import POOL, Room, key_of
from components.room.service import RoomService
from components.room.snapshot import save_class
from qalign_study.serve.refusal import HTTPRefusal

pytestmark = pytest.mark.asyncio
service = test_rooms.service


async def a_lesson(service: RoomService) -> tuple[dict[str, Any], Room, list[Any]]:
    """A class of three that has predicted, opened one answer and drawn some steps."""
    lead, room, members = await a_class(service, 3)
    await do(service, lead, "turn", stop=1)
    for member, answer in zip(members, ("up", "down", "up"), strict=True):
        service.predict(room.code, member.token, {"stop": 1, "prediction": answer})
    await do(service, lead, "reveal")
    await do(service, lead, "turn", stop=2)
    service.predict(room.code, members[0].token, {"stop": 2, "prediction": "12.5"})
    for t in range(5):
        await do(service, lead, "step")
        await until(lambda t=t: all(member.t == t for member in members))
    return lead, room, members


async def keep(service: RoomService, lead: dict[str, Any]) -> dict[str, Any]:
    """What the instructor's browser gets, as it arrives."""
    message = await service.lead(lead["code"], lead["token"], {"do": "keep"})
    return json.loads(json.dumps(message, allow_nan=False))


async def test_the_table_has_every_prediction_state_and_vote(service):
    lead, room, members = await a_lesson(service)
    kept = await keep(service, lead)
    rows = list(csv.DictReader(io.StringIO(kept["table"])))
    rows_of_predictions = [(r["who"], r["at"], r["answer"], r["value"], r["right"]) for r in rows
            if r["kind"] == "prediction"]  # fmt: skip
    assert rows_of_predictions == [
        ("1", "2", "Up", "Down", "False"),
        ("1", "3", "12.5", "", ""),  # its answers are not open: the table does not tell them
        ("2", "2", "Down", "Down", "True"),
        ("2", "3", "", "", ""),  # a row for those who did not answer
        ("3", "2", "Up", "Down", "False"),
        ("3", "3", "", "", ""),
    ]
    answers = [r for r in rows if r["kind"] == "prediction"]
    assert all(r["lesson"] == room.lesson.name and r["question"] for r in answers)
    assert all(bool(r["time"]) == bool(r["answer"]) for r in answers)
    states = [(int(r["who"]), int(r["at"]), float(r["value"])) for r in rows
              if r["kind"] == "state"]  # fmt: skip
    assert states == [
        (m.number, t, reward) for m in members for t, reward in enumerate(rewards_of(m))
    ]
    votes = {r["who"] for r in rows if r["kind"] == "vote"}
    assert votes == {"base", "class", "target"}
    assert [stop["title"] for stop in kept["stops"]] == ["Which?", "How many?"]
    assert [stop["value"] for stop in kept["stops"]] == ["down", None]


async def test_names_are_in_the_saved_class_and_on_no_screen(service):
    lead, room, members = await a_lesson(service)
    for named, status in ((False, 409), (True, 422)):  # numbers only; then no name at all
        room.named = named
        with pytest.raises(HTTPRefusal) as refused:
            service.set_name(room.code, members[0].token, {"name": " " if named else "Ann"})
        assert refused.value.status == status
    service.set_name(room.code, members[0].token, {"name": " Ann  Example "})
    kept = await keep(service, lead)
    rows = list(csv.DictReader(io.StringIO(kept["table"])))
    assert {r["name"] for r in rows if r["who"] == "1"} == {"Ann Example"}
    others = [member_message(room, m) for m in members[1:]]
    screens = [room_message(room), class_message(room, 0.0), *others]
    assert "Ann" not in json.dumps(screens)
    seat = await service.open({"session": kept["session"]}, "")
    reopened = service.rooms.find(seat["code"])
    assert [m.name for m in reopened.members.values()] == ["Ann Example", "", ""]
    assert reopened.named


async def test_no_answer_in_the_table_is_a_formula_of_a_spreadsheet(service, monkeypatch):
    lead, _room, _members = await a_lesson(service)
    for answer, cell in (("=1+1", "'=1+1"), ("-2.5", "-2.5")):
        monkeypatch.setattr(Room, "read", property(lambda _, read=answer: lambda _: read))
        table = (await keep(service, lead))["table"]
        rows = csv.DictReader(io.StringIO(table))
        assert {row["answer"] for row in rows if row["kind"] == "state"} == {cell}


async def test_a_class_is_opened_again_as_it_was(service):
    lead, _room, members = await a_lesson(service)
    session = (await keep(service, lead))["session"]
    before = [(m.number, dict(m.predictions), rewards_of(m), m.token) for m in members]
    await do(service, lead, "end")
    new = await service.open({"session": session}, "here")
    assert new["code"] == lead["code"]  # so the members' link still leads there
    assert new["token"] != lead["token"]
    again = service.rooms.find(new["code"])
    for number, guesses, rewards, token in before:
        assert service.join(new["code"], token) == {
            "code": new["code"],
            "token": token,
            "lead": False,
        }
        member = again.members[key_of(token)]
        await until(lambda m=member, own=rewards: rewards_of(m) == own)
        assert (member.number, member.predictions, rewards_of(member)) == (number, guesses, rewards)
    assert (again.stop, list(again.opened), again.run.prompt) == (2, [1], PROMPT)
    assert again.opened[1]["value"] == "down"
    assert service.join(new["code"], "")["code"] == new["code"]
    assert again.numbers == 4  # a newcomer gets a new number
    member = again.members[key_of(before[0][3])]
    assert member.t == 4
    await do(service, new, "run")  # and the chains go on
    async with aclosing(service.follow(new["code"], before[0][3])) as stream:
        await heard(stream, lambda e: True)
        await until(lambda: member.t == 40)


async def test_a_saved_class_is_replayed_by_one_task_as_background_work(service):
    lead, _room, members = await a_lesson(service)
    session = (await keep(service, lead))["session"]
    new = service.rooms.find((await service.open({"session": session}, "here"))["code"])
    assert set(service._tasks._tasks[new]) == {"pool", "replay"}
    await until(lambda: all(m.t == m.replay_until == 4 for m in new.members.values()))
    returned = new.members[members[0].key]
    async with aclosing(service.follow(new.code, members[0].token)) as stream:
        await heard(stream, lambda e: True)
        assert f"chain {returned.number}" in service._tasks._tasks[new]  # its own turns now


async def test_the_model_alone_says_the_same_in_a_class_that_is_opened_again(service):
    lead, room, members = await a_lesson(service)
    await do(service, lead, "again")  # the chains have another seed now, the samples stay
    await do(service, lead, "run")
    await until(lambda: len(room.pool) == POOL and all(m.t == 40 for m in members))
    before = [Figures(room).to_dict()[name] for name in ("base", "weights")]
    session = (await keep(service, lead))["session"]
    await do(service, lead, "end")
    new = await service.open({"session": session}, "here")
    again = service.rooms.find(new["code"])
    await until(lambda: len(again.pool) > POOL / 2)
    assert (
        Figures(again).to_dict()["base"] == before[0][: len(again.pool)]
    )  # fewer: the page says so
    await until(lambda: len(again.pool) == POOL and all(m.t == 40 for m in again.members.values()))
    assert [Figures(again).to_dict()[name] for name in ("base", "weights")] == before
    other = await service.open(SETTINGS | {"prompt": "Is 2 + 2 = 4?"}, "here")  # samples of its own
    await until(lambda: len(service.rooms.find(other["code"]).pool) == POOL)
    assert Figures(service.rooms.find(other["code"])).to_dict()["base"] != before[0]


async def test_a_saved_class_gives_no_place_away(service):
    lead, room, members = await a_lesson(service)
    text = json.dumps(await keep(service, lead))
    for secret in (lead["token"], *(member.token for member in members)):
        assert secret not in text
    assert all(member.key in text for member in members)
    for member in members:  # what the file does hold of a token is no token
        with pytest.raises(HTTPRefusal, match="given up"):
            service.predict(room.code, member.key, {"stop": 2, "prediction": "7"})


async def test_while_its_room_is_open_a_class_opens_under_another_code(service):
    lead, room, _ = await a_lesson(service)
    session = (await keep(service, lead))["session"]
    new = await service.open({"session": session}, "here")
    assert new["code"] != lead["code"]
    assert service.rooms.find(lead["code"]) is room


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
    "a time of a stop that no number holds": lambda s: changed(s, times={"9" * 5000: "x"}),
}


def changed(session: dict[str, Any], **values: object) -> dict[str, Any]:
    first, *others = session["members"]
    return session | {"members": [first | values, *others]}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_session_that_cannot_be_opens_no_room_and_gets_one_sentence(service, name):
    lead, _, _ = await a_lesson(service)
    session = (await keep(service, lead))["session"]
    rooms = len(list(service.rooms))
    with refusal(HTTPRefusal, status=422):
        await service.open({"session": BROKEN[name](session)}, "here")
    assert len(list(service.rooms)) == rooms
    assert await service.open({"session": session}, "here")  # as it was saved it opens


async def test_a_class_without_lesson_or_members_is_kept_too(service):
    lead = await service.open(SETTINGS, "here")
    room = service.rooms.find(lead["code"])
    session = json.loads(json.dumps(save_class(room)))["session"]
    await do(service, lead, "end")
    assert (await service.open({"session": session}, "here"))["code"] == lead["code"]
