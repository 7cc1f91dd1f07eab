"""Lessons on a page without a server: the page carries them and the outcome of every prediction."""

from dataclasses import replace
from typing import Any

from qalign_study.lessons.facts import RUNS
from qalign_study.lessons.files import Lesson, Stop, load_lessons
from qalign_study.lessons.messages import check_prediction, lesson_message, list_lessons, number_of

SERVED = ("tokens", "hand")
"""Tabs of the player whose contents a server computes."""
NEEDS = "This needs a server: install the project and run python app.py."


def build_static_lessons() -> dict[str, Any]:
    """Return the data of `assets/web/learn/alone.js`: the list, the lessons, outcomes and runs.

    A lesson is included if all of its stops are on Watch. The text of a stop on a tab that needs a
    server mentions that.
    """
    known = {name: each for name, each in load_lessons().items() if _is_alone(each)}
    messages = {name: _static_message(each, set(known)) for name, each in known.items()}
    runs = {run for each in messages.values() for run in each["runs"]}
    return {
        "list": list_lessons(known),
        "lessons": messages,
        "outcomes": {name: [_outcomes(s) for s in each.stops] for name, each in known.items()},
        "runs": {run: RUNS[run].read_text("utf-8") for run in sorted(runs)},
    }


def _is_alone(lesson: Lesson) -> bool:
    places = [place for s in lesson.stops for place in (s.at, s.ask and s.ask.then) if place]
    return all(place.page == "watch" for place in places)


def _static_message(lesson: Lesson, known: set[str]) -> dict[str, Any]:
    stops = [
        replace(stop, text=f"{stop.text} {NEEDS}", at=replace(stop.at, tab=""), highlight="text")
        if stop.at.tab in SERVED
        else stop
        for stop in lesson.stops
    ]
    onward = tuple(name for name in lesson.onward if name in known)
    return lesson_message(replace(lesson, stops=tuple(stops), onward=onward))


def _outcomes(stop: Stop) -> dict[str, Any]:
    """Return the outcomes of a stop: by value, or by distance from a number."""
    ask = stop.ask
    if ask is None:
        return {}
    outcomes = {value: check_prediction(stop, value) for value in ("", *ask.options)}
    if ask.kind == "choice":
        return {"predictions": outcomes}
    near = number_of(ask)
    return {
        "predictions": outcomes,
        "near": near,
        "within": ask.within,
        "right": check_prediction(stop, f"{near}"),
        "wrong": check_prediction(stop, f"{near + 2 * ask.within + 1}"),
    }
