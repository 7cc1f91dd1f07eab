"""Saved classes: a table of all predictions and states, and a session that can be opened again.

A session has the run's seed and the members' places, predictions and steps. Its chains are drawn
again from that seed, so a saved class is small and its texts come from this server's models.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from components.room.messages import Figures
from components.room.requests import parse_prediction
from components.room.room import MAX_NAME, TRIES, Room
from qalign_core.run import NO_EXTRACTOR
from qalign_core.validation import is_finite, is_text, is_whole
from qalign_study.serve.refusal import HTTPRefusal
from qalign_study.sheet.files import csv_of

COLUMNS = ["kind", "who", "name", "lesson", "at", "question", "answer", "value", "right", "time"]
_STEP = re.compile(r"[0-9]{1,9}")
NO_SESSION = "this is not a saved class; choose the page that a class was saved as"


def save_class(room: Room) -> dict[str, Any]:
    """Return a class as its instructor's browser saves it.

    Returns:
        {"session": the argument of `restore`, "table": CSV, "stops": predictions by stop}.
    """
    members = [
        {"key": m.key, "number": m.number, "t": max(m.t, m.replay_until), "best": m.best,
         "tries": m.tries, "name": m.name, "times": {str(k): text for k, text in m.times.items()},
         "said": {str(stop): text for stop, text in m.predictions.items()}}
        for m in room.members.values()
    ]  # fmt: skip
    session = {
        "code": room.code, "prompt": room.run.prompt, "reference": room.run.reference or "",
        "beta": room.run.beta, "seed": room.run.seed, "stop": room.stop, "solved": room.solved,
        "lesson": room.lesson.name if room.lesson else "", "opened": list(room.opened),
        "named": room.named, "lm": room.run.lm, "rm": room.run.rm,
        "extractor": room.run.extractor or NO_EXTRACTOR,
        "members": members,
    }  # fmt: skip
    table = csv_of(pd.DataFrame(_rows(room), columns=COLUMNS))
    return {"session": session, "table": table, "stops": list(_stops(room))}


def _rows(room: Room) -> Iterator[tuple[object, ...]]:
    """Yield the rows: answers by stop, scores of the game, states with rewards, votes with shares.

    A stop whose question the class has seen has one row per member, with or without an answer.
    """
    right, grader = room.run.reference, room.grader

    def is_right(answer: str | None) -> bool | str:
        return grader.is_right(answer, right) if grader and right else ""

    lesson, stops = (room.lesson.name, room.lesson.stops) if room.lesson else ("", ())
    questions = [k for k in range(len(stops)) if k in room.opened or room.count_predictions(k)]
    for member in room.members.values():
        who = member.number, member.name
        for stop in questions:
            prediction = member.predictions.get(stop, "")
            outcome = room.outcome_of(prediction, stop) if stop in room.opened else {}
            ask, verdict = stops[stop]["ask"], outcome.get("right", "") if prediction else ""
            yield ("prediction", *who, lesson, stop + 1, ask["question"],
                   option_name(ask, prediction), option_name(ask, outcome.get("value", "")),
                   verdict, member.times.get(stop, ""))  # fmt: skip
        if member.best is not None:
            ahead = member.best > member.reached if member.reached is not None else ""
            yield "game", *who, "", "", "ln π of the best text", "", member.best, ahead, ""
        for t, state in enumerate(list(member.states)):
            answer = room.read(state.response.text)
            yield "state", *who, "", t, "", answer or "", state.reward, is_right(answer), ""
    votes = Figures(room).to_dict().get("votes", {})
    for who in sorted(votes.keys() - {"single"}):
        for answer, share in votes[who]:
            yield "vote", who, "", "", "", "", answer, share, is_right(answer), ""


def option_name(ask: Mapping[str, Any], value: str) -> str:
    """Return an answer as the class saw it: the words of an option, or a number."""
    return str(dict(ask["options"]).get(value, value))


def _stops(room: Room) -> Iterator[dict[str, Any]]:
    """Yield the stops that have predictions."""
    for k, stop in enumerate(room.lesson.stops if room.lesson else ()):
        if counts := room.count_predictions(k):
            opened = room.opened.get(k, {})
            yield {"title": stop["title"], "ask": stop["ask"],
                   "predictions": sorted(counts.items()),
                   "value": opened.get("value"),
                   "explanation": opened.get("explanation", "")}  # fmt: skip


def read_session(session: object) -> dict[str, Any]:
    """Parse an untrusted session.

    Raises:
        HTTPRefusal: it is not a session.
    """
    if not isinstance(session, dict) or not is_whole(session.get("seed"), 0, 2**31):
        raise HTTPRefusal(422, NO_SESSION)
    return session


def restore(room: Room, session: Mapping[str, Any], now: float) -> None:
    """Restore the members, predictions and opened answers of a saved class.

    Raises:
        HTTPRefusal: the session does not fit the room.
    """
    members, opened = session.get("members"), session.get("opened")
    if not isinstance(members, list) or not isinstance(opened, list):
        raise HTTPRefusal(422, NO_SESSION)
    if len(members) > room.caps.members:
        raise HTTPRefusal(422, f"that class has {len(members)} members; this server's rooms have "
                      f"{room.caps.members} places")  # fmt: skip
    numbers = set[int]()
    for entry in members:
        _restore_member(room, entry, numbers, now)
    stops = room.lesson.stops if room.lesson else ()
    if len(opened) > len(stops):  # a stop is opened once at most
        raise HTTPRefusal(422, NO_SESSION)
    for stop in opened:
        room.turn(stop)
        room.reveal()
    if room.lesson:
        room.turn(session.get("stop"))
    room.solved = session.get("solved") is True
    room.named = session.get("named") is True


def _restore_member(room: Room, entry: Any, numbers: set[int], now: float) -> None:
    """Restore one member; `numbers` are those of the members already restored."""
    stops = room.lesson.stops if room.lesson else ()
    try:
        key, number, t, best, tries = (entry[k] for k in ("key", "number", "t", "best", "tries"))
        predictions = {int(stop): text for stop, text in entry["said"].items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise HTTPRefusal(422, NO_SESSION) from None
    if not (
        len(entry["said"]) == len(predictions)
        and is_text(key)
        and len(key) == 64
        and key not in room.members
        and is_whole(number, 1, 10**6)
        and number not in numbers
        and is_whole(t, -1, room.run.steps)
        and is_whole(tries, 0, TRIES)
        and (best is None or is_finite(best))
        and all(0 <= stop < len(stops) and "ask" in stops[stop] for stop in predictions)
        and is_text(name := entry.get("name", ""))
        and len(name) <= MAX_NAME
        and isinstance(times := entry.get("times", {}), dict)
        and all(_STEP.fullmatch(str(k)) and is_text(text) for k, text in times.items())
    ):
        raise HTTPRefusal(422, NO_SESSION)
    numbers.add(number)
    member = room.add_member(number, key, now)
    member.replay_until, member.best, member.tries = t, best, tries
    member.name, member.times = name, {int(k): text[:40] for k, text in times.items()}
    member.predictions = {
        stop: parse_prediction(stops[stop]["ask"], text) for stop, text in predictions.items()
    }
