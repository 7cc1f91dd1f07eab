"""Lessons as data: each file of `assets/lessons/` is one, a list of stops; the first is first.

    title = "One step"                  what it is called, in the list and on the panel
    says = "What is kept, and why."     one sentence for the list
    minutes = 5
    end = "That was one step."          what stands under the last stop (optional)
    onward = ["run=stuck", "beta"]      runs of the gallery and lessons to go on with (optional)

    [[learnt]]                          what can be said now, under that (optional)
    question = "What is kept?"
    text = "The tokens before the cut."

    [[stop]]
    title = "The chance"
    text = "Two numbers decide: {reward_factor} and {length_ratio}."
    at = { page = "watch", run = "watch", step = 1, phase = "score" }
    lit = "chance"
    notes = "Ask for hands first."      what only the presenter sees (optional)

    [stop.ask]
    question = "How likely is it to be taken?"
    fact = "alpha"                      what the core says when the prediction is checked
    within = 10                         a number: right if it is as close as that
    right = "Yes: {alpha}."
    wrong = "No: it is {alpha}."
    veil = true                         what would tell it is hidden until it is made (optional)
    then = { phase = "verdict" }        where the page goes then (optional)

A prediction with `options` is a choice, one with `spot = true` is a place among the rewards of the
model alone, any other a number (of a share: in %). Of options that are numbers, the one nearest to
the fact is right. Instead of `fact`, `moves` is a fact that goes "up", "down" or stays the "same"
from `at` to `then`, and `largest = true` says that the options are facts. A stop's `at` keeps what
it does not name of the same page from the stop before. In braces stand facts
(`components/learn/facts.py`), of `then` where there is one; `{before.alpha}` is that of `at`.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from components.learn.facts import RUNS, Place, facts_of
from qalign_core.assets import ASSETS
from qalign_core.errors import QAlignError

FOLDER = ASSETS / "lessons"
PHASES = ("cut", "rewrite", "score", "chance", "coin", "verdict")
"""Names of a step's phases in a lesson, in the player's order."""
STAGE = ("problem", "text", "chance", "verdict", "votes", "trace", "transport")
"""The parts of the stage of Watch, which carry these names."""
LIT: dict[str, dict[str, str]] = {
    "watch": {
        **{name: f"[data-stage={name}]" for name in STAGE},
        "time": ".qp-histogram",
        "whatif": ".qp-whatif",
        "more": ".qp-view",
    },
    "compare": {"line": ".qc-budget", "cards": ".qc-columns"},
    # on a phone a section's panel is no box: then its first figure is lit
    "lab": {"section": ".lab-panel, .lab-figure", "controls": "#lab-world"},
    "results": {"figure": "#results-error", "findings": "#results-said"},
}
"""What of each page a stop can light, and where that is."""
VEILED = {
    "compare": ".qc-columns, .qc-concluded",
    "lab": ".lab-figure, .lab-told",
    "results": "#results-error, #results-said, #results-advice, #results-numbers",
}
"""The parts of a page that show the outcome, where that is more than the lit part."""
PAGES = tuple(LIT)
KEYS = {
    "watch": ("run", "step", "phase", "chain", "tab"),
    "compare": (),
    "lab": ("lab",),
    "results": ("set",),
}
"""What a stop's `at` may say of each page."""
SLOT = re.compile(r"\{(before\.)?(\w+)(?::([^{}]*))?\}")
Kind = Literal["choice", "number", "spot"]


class InvalidLesson(QAlignError, ValueError):
    """A lesson's file cannot be read: not TOML, a wrong key or value, a fact that is none."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A prediction, and how it is checked.

    Attributes:
        question: what is asked.
        kind: how it is answered.
        options: of a choice, what each of its values is called.
        fact: what it is compared with; "" if the options are facts.
        moves: what counts is where the fact goes from before to after.
        within: how far off a number or a spot may be.
        right, wrong: what is said of it.
        then: where the page goes once it is made.
        lit: what is lit then.
        veil: whether what tells the outcome is hidden until then.
    """

    question: str
    kind: Kind
    options: Mapping[str, str]
    fact: str
    moves: bool
    within: float
    right: str
    wrong: str
    then: Place
    lit: str
    veil: bool


@dataclass(frozen=True, slots=True)
class Stop:
    """One stop: what is said, of what, and what is asked."""

    title: str
    text: str
    at: Place
    lit: str
    notes: str
    ask: Ask | None


@dataclass(frozen=True, slots=True)
class Lesson:
    """A lesson; `name` is what a link calls it, `learnt` are questions with their answers."""

    name: str
    title: str
    says: str
    minutes: int
    stops: tuple[Stop, ...]
    end: str = ""
    learnt: tuple[tuple[str, str], ...] = ()
    onward: tuple[str, ...] = field(default=())


@cache
def lessons(folder: Path = FOLDER) -> dict[str, Lesson]:
    """All lessons by name, in the order of their files.

    Raises:
        InvalidLesson: a file is wrong; the message names it, and its line or stop.
    """
    found = {}
    for path in sorted(folder.glob("*.toml")):
        lesson = read_lesson(path)
        found[lesson.name] = lesson
    for lesson in found.values():
        runs = {f"run={path.stem}" for path in RUNS.glob("*.jsonl")}
        for name in lesson.onward:
            if name not in {*found, *runs}:
                raise InvalidLesson(
                    f"lesson {lesson.name!r} continues with {name!r}, which does not exist; "
                    f"there are {', '.join([*found, *sorted(runs)])}"
                )
    return found


def read_lesson(path: Path) -> Lesson:
    """A lesson from its file, `NUMBER-NAME.toml`.

    Raises:
        InvalidLesson: the file is wrong; the message names it, and its line or stop.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidLesson(f"{path.name} is not TOML: {error}") from None
    reader = _Reader(path.name, data)
    reader.only("title", "says", "minutes", "end", "learnt", "onward", "stop")
    stops: list[Stop] = []
    for k, stop in enumerate(reader.take("stop", list), start=1):
        given = stop if isinstance(stop, dict) else {}
        stops.append(_stop(_Reader(f"{path.name}, stop {k}", given), stops))
    if not stops:
        raise InvalidLesson(f"{path.name} has no stop; write at least one [[stop]]")
    onward, learnt = reader.take("onward", list, []), reader.take("learnt", list, [])
    return Lesson(
        name=re.sub(r"^\d+-", "", path.stem),
        title=reader.take("title", str),
        says=reader.take("says", str),
        minutes=reader.take("minutes", int),
        stops=tuple(stops),
        end=reader.take("end", str, ""),
        learnt=tuple(_learnt(reader, k, each, stops[-1]) for k, each in enumerate(learnt, 1)),
        onward=tuple(map(str, onward)),
    )


class _Reader:
    """A table of a lesson's file; what is wrong with it is said with its place."""

    def __init__(self, where: str, data: dict[str, Any]) -> None:
        self.where = where
        self.data = data

    def wrong(self, what: str) -> InvalidLesson:
        return InvalidLesson(f"{self.where}: {what}")

    def only(self, *names: str) -> None:
        for name in self.data:
            if name not in names:
                raise self.wrong(f"{name!r} is not known here; known are {', '.join(names)}")

    def take(self, name: str, kind: type, default: Any = None) -> Any:
        value = self.data.get(name, default)
        if value is None:
            raise self.wrong(f"{name!r} is missing")
        numbers = (int, float) if kind is float else kind
        if not isinstance(value, numbers) or (isinstance(value, bool) and kind is not bool):
            raise self.wrong(f"{name!r} is {value!r}; expected {_KINDS[kind]}")
        return value

    def one_of(self, name: str, values: tuple[str, ...], default: str | None = None) -> str:
        value: str = self.take(name, str, default)
        if value not in values:
            raise self.wrong(f"{name!r} is {value!r}; expected one of {', '.join(values)}")
        return value

    def within(self, name: str) -> "_Reader":
        return _Reader(f"{self.where}, {name}", self.take(name, dict))


_KINDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


def _stop(reader: _Reader, before: list[Stop]) -> Stop:
    reader.only("title", "text", "at", "lit", "notes", "ask")
    last = end_of(before[-1]) if before else Place("watch")
    at = _place(reader.within("at"), last) if "at" in reader.data else last
    stop = Stop(
        title=reader.take("title", str),
        text=reader.take("text", str),
        at=at,
        lit=reader.one_of("lit", tuple(LIT[at.page])),
        notes=reader.take("notes", str, ""),
        ask=_ask(reader.within("ask"), at, reader.data["lit"]) if "ask" in reader.data else None,
    )
    for text in (stop.text, stop.notes):
        _check_slots(reader, text, at)
    return stop


def _learnt(reader: _Reader, k: int, data: Any, last: Stop) -> tuple[str, str]:
    given = _Reader(f"{reader.where}, learnt {k}", data if isinstance(data, dict) else {})
    given.only("question", "text")
    question, text = given.take("question", str), given.take("text", str)
    _check_slots(given, text, end_of(last))
    return question, text


def end_of(stop: Stop) -> Place:
    """Where a stop leaves the page."""
    return stop.ask.then if stop.ask else stop.at


def _place(reader: _Reader, last: Place) -> Place:
    page = reader.one_of("page", PAGES, last.page)
    reader.only("page", *KEYS[page])
    place = last if last.page == page else Place(page)
    changes: dict[str, Any] = {"tab": ""}
    for name, kind in (("run", str), ("step", int), ("chain", int), ("tab", str), ("set", str)):
        if name in reader.data:
            changes[name] = reader.take(name, kind)
    if "phase" in reader.data or "step" in changes:
        changes["phase"] = PHASES.index(reader.one_of("phase", PHASES, PHASES[-1]))
    if "lab" in reader.data:
        changes["lab"] = tuple((k, str(v)) for k, v in reader.take("lab", dict).items())
    place = replace(place, **changes)
    if problem := place.problem():
        raise reader.wrong(problem)
    return place


def _ask(reader: _Reader, at: Place, lit: str) -> Ask:
    reader.only("question", "options", "spot", "fact", "moves", "largest", "within", "right",
                "wrong", "then", "lit", "veil")  # fmt: skip
    then = _place(reader.within("then"), at) if "then" in reader.data else at
    options = {k: str(v) for k, v in reader.take("options", dict, {}).items()}
    kind: Kind = "choice" if options else "spot" if reader.take("spot", bool, False) else "number"
    judged = [name for name in ("fact", "moves", "largest") if name in reader.data]
    if len(judged) != 1:
        raise reader.wrong("expected one of fact, moves and largest")
    fact = "" if judged == ["largest"] else reader.take(judged[0], str)
    for name in [fact] if fact else list(options):
        _check_fact(reader, name, then)
    if judged != ["fact"] and kind != "choice":
        raise reader.wrong(f"{judged[0]!r} needs options")
    ask = Ask(
        question=reader.take("question", str),
        kind=kind,
        options=options,
        fact=fact,
        moves=judged == ["moves"],
        within=0.0 if options else float(reader.take("within", float)),
        right=reader.take("right", str),
        wrong=reader.take("wrong", str),
        then=then,
        lit=reader.one_of("lit", tuple(LIT[then.page]), lit if then.page == at.page else None),
        veil=reader.take("veil", bool, False),
    )
    for text in (ask.right, ask.wrong):
        _check_slots(reader, text, then)
    return ask


def _check_slots(reader: _Reader, text: str, place: Place) -> None:
    for _, name, _ in SLOT.findall(text):
        _check_fact(reader, name, place)


def _check_fact(reader: _Reader, name: str, place: Place) -> None:
    known = facts_of(place.page)
    if name.partition(":")[0] not in known:
        raise reader.wrong(f"{name!r} is not a fact of {place.page}; there are {', '.join(known)}")
