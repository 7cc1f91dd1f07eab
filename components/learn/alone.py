"""Lessons on a page without a server: the page carries them and the outcome of every prediction."""

from dataclasses import replace
from typing import Any

from components.learn.facts import RUNS
from components.learn.lessons import Lesson, Stop, lessons
from components.learn.page import entries, judged, number_of, told

SERVED = ("tokens", "hand")
"""Tabs of the player whose contents a server computes."""
NEEDS = "This needs a server: install the project and run python app.py."


def carried() -> dict[str, Any]:
    """What `assets/web/learn/alone.js` reads: the list, the lessons, their outcomes and runs.

    A lesson is carried if all of its stops are on Watch. A stop on a tab that a server fills says
    so in its text.
    """
    known = {name: each for name, each in lessons().items() if _is_alone(each)}
    made = {name: _told(each, set(known)) for name, each in known.items()}
    runs = {run for each in made.values() for run in each["runs"]}
    return {
        "list": [entry for entry in entries() if entry["name"] in known],
        "lessons": made,
        "outcomes": {name: [_outcomes(s) for s in each.stops] for name, each in known.items()},
        "runs": {run: (RUNS / f"{run}.jsonl").read_text("utf-8") for run in sorted(runs)},
    }


def _is_alone(lesson: Lesson) -> bool:
    places = [place for s in lesson.stops for place in (s.at, s.ask and s.ask.then) if place]
    return all(place.page == "watch" for place in places)


def _told(lesson: Lesson, known: set[str]) -> dict[str, Any]:
    stops = [
        replace(stop, text=f"{stop.text} {NEEDS}", at=replace(stop.at, tab=""), lit="text")
        if stop.at.tab in SERVED
        else stop
        for stop in lesson.stops
    ]
    onward = tuple(name for name in lesson.onward if name in known)
    return told(replace(lesson, stops=tuple(stops), onward=onward))


def _outcomes(stop: Stop) -> dict[str, Any]:
    """What comes of every prediction at a stop: by its value, or by its distance from a number."""
    ask = stop.ask
    if ask is None:
        return {}
    outcomes = {said: judged(stop, said) for said in ("", *ask.options)}
    if ask.kind == "choice":
        return {"said": outcomes}
    near = number_of(ask)
    return {"said": outcomes, "near": near, "within": ask.within, "right": judged(stop, f"{near}")}
