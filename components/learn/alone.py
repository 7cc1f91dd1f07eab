"""Lessons on a page without a server: the page carries them and the outcome of every prediction."""

from dataclasses import replace
from functools import cache
from typing import Any

from components.learn.exhibit import build_exhibit
from qalign_study.lessons.facts import RUNS
from qalign_study.lessons.files import Lesson, Stop, load_lessons
from qalign_study.lessons.messages import check_prediction, lesson_message, list_lessons, number_of

SERVED = ("tokens", "hand", "diagnostics")
"""Tabs of the player whose contents a server computes."""
NEEDS = "This needs a server: install the project and run python app.py."


@cache
def build_static_lessons() -> dict[str, Any]:
    """Return the data of `assets/web/learn/alone.js`: the list, the lessons, outcomes and runs.

    A stop that is not on Watch has an exhibit, before and after its question is answered. The text
    of a stop on a tab that needs a server mentions that.
    """
    known = {name: without_server(each) for name, each in load_lessons().items()}
    messages = {name: lesson_message(each) for name, each in known.items()}
    runs = {run for each in messages.values() for run in each["runs"]}
    return {
        "list": list_lessons(known),
        "lessons": messages,
        "outcomes": {name: [_outcomes(s) for s in each.stops] for name, each in known.items()},
        "exhibits": {name: [_exhibits(s) for s in each.stops] for name, each in known.items()},
        "runs": {run: RUNS[run].read_text("utf-8") for run in sorted(runs)},
    }


def _exhibits(stop: Stop) -> list[dict[str, Any]]:
    """Return the exhibits of a stop, without and with its answer; none if it is on Watch."""
    places = (stop.at, stop.ask.then if stop.ask else stop.at)
    if all(place.page == "watch" for place in places):
        return []
    return [build_exhibit(stop, answered=answered) for answered in (False, True)]


def without_server(lesson: Lesson) -> Lesson:
    """Return a lesson whose stops open no tab that a server computes."""
    onward = tuple(name for name in lesson.onward if not name.startswith("run="))
    return replace(lesson, stops=tuple(map(_without_tabs, lesson.stops)), onward=onward)


def _without_tabs(stop: Stop) -> Stop:
    if stop.at.tab in SERVED:
        text, at = f"{stop.text} {NEEDS}", replace(stop.at, tab="")
        stop = replace(stop, text=text, at=at, highlight="text")
    if stop.ask and stop.ask.then.tab in SERVED:
        then = replace(stop.ask.then, tab="")
        stop = replace(stop, ask=replace(stop.ask, then=then, highlight=stop.highlight))
    return stop


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
